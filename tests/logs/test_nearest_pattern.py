"""Where no pattern matches, the one that shares most words answers below 60 %, and says so."""

from __future__ import annotations

from gpuready.diagnose import NEAREST_NOTE
from gpuready.logs.pattern_index import PatternIndex, build_pattern_table
from gpuready.workflow.diagnose import diagnose_logs

ROWS = [
    ("MEM001", {"says": "CUDA out of memory. Tried to allocate", "cause": "cuda-oom"}),
    ("NET016", {"says": "The client socket has timed out after", "cause": "rendezvous-unreachable"}),
    ("SYS002", {"says": "No space left", "as": "clue", "cause": "disk-full"}),
]


def nearest(*texts):
    found = PatternIndex(build_pattern_table(ROWS)).find_nearest(texts)
    return None if found is None else (found[0], found[1].code, found[1].strength)


def test_the_pattern_that_shares_most_words():
    assert nearest("step 3", "client's socket timed out, after the last attempt has failed") == (1, "NET016", "nearest")


def test_few_shared_words_are_no_answer():
    assert nearest("the socket is out", "memory of the client") is None
    assert nearest("no space is left here") is None, "a clue is not guessed from"


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
