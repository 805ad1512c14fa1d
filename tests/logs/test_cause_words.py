"""Where no pattern matches, the words of an error answer below 60 %, and say so."""

from __future__ import annotations

from gpuready.diagnose import NEAREST_NOTE
from gpuready.logs.cause_words import split_words
from gpuready.logs.pattern_index import PatternIndex, build_pattern_table
from gpuready.workflow.diagnose import diagnose_logs

ROWS = [
    ("MEM001", {"says": "CUDA out of memory. Tried to allocate", "cause": "cuda-oom"}),
    ("MEM001", {"says": "CUDA_ERROR_OUT_OF_MEMORY on the device", "cause": "cuda-oom"}),
    ("NET016", {"says": "The client socket has timed out after", "cause": "rendezvous-unreachable"}),
    ("NET016", {"says": "client socket is not connected to the rendezvous", "cause": "rendezvous-unreachable"}),
    ("SYS002", {"says": "No space left", "as": "trace", "cause": "disk-full"}),
    *(("PKG037", {"says": f"release {number} of a package", "cause": "version-conflict"}) for number in range(300)),
]


def guess(*texts, topics=()):
    found = PatternIndex(build_pattern_table(ROWS, topics)).find_nearest(texts)
    return [(index, sign.cause) for index, sign in found]


def test_words_are_compared_by_their_beginning_and_by_the_parts_of_names():
    assert split_words("SafetensorError: connections") == {"safete", "connec"}
    assert split_words("MASTER_ADDR /opt/env/lib/x.py https://host/page") == {"master_addr", "master", "addr"}


def test_the_cause_that_the_words_speak_for():
    assert guess("step 3", "sockets of clients timed out, rendezvous lost") == [(1, "rendezvous-unreachable")]


def test_few_words_are_no_answer():
    assert guess("the socket is out", "a client of ours") == []
    assert guess("no space is left here") == [], "words of what only lies beside a cause"


def test_a_topic_comes_before_few_words():
    topic = ("NET009", "node-network-broken", "socket + lost")
    text = "sockets of clients timed out, rendezvous lost"
    assert guess(text, topics=[topic])[0] == (0, "node-network-broken")
    assert (0, "rendezvous-unreachable") in guess(text, topics=[topic])


UNSEEN = """starting worker 7
FATAL: peer access between GPU devices: the NCCL WARN said the NVIDIA drver found on your sytem is very old, please updat it
[E] exit code 1: torch failed because NVIDIA driver on your system is the old one, found too old here
srun: error: node1: task 0: Exited with exit code 1
"""


def test_a_guess_is_below_sixty_percent_and_says_so():
    found = diagnose_logs([[UNSEEN.encode()]], look=False)
    assert found.cause == "driver-too-old" and found.confidence < 0.6 and NEAREST_NOTE in found.notes


def test_a_healthy_log_is_not_guessed_about():
    text = "could not find the old driver on your system, NVIDIA found\n" + "step 1 loss 2.0\nstep 2 loss 1.9\n" * 9
    assert diagnose_logs([[text.encode()]], look=False).verdict != "cause"


CLEAR_WORDS = """Traceback (most recent call last):
  File "/srv/job/train.py", line 9, in <module>
    model = FSDP(model)
ValueError: cannot flatten parameters of bfloat16 and float32 into one: a flat parameter of FSDP needs one uniform dtype for all of its tensors
"""


def test_clear_words_outweigh_that_a_script_raised_it():
    assert diagnose_logs([[CLEAR_WORDS.encode()]], look=False).cause == "fsdp-mixed-dtype"


def test_words_say_nothing_of_a_call_that_python_refused():
    text = CLEAR_WORDS.replace("ValueError", "TypeError")
    assert diagnose_logs([[text.encode()]], look=False).cause == "not-environment"


def test_own_values_stay_the_program_s_own():
    text = CLEAR_WORDS.partition("ValueError")[0] + "ValueError: 3 rows are not divisible by a group of 2\n"
    assert diagnose_logs([[text.encode()]], look=False).cause == "not-environment"
