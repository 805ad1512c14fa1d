"""Tracebacks put together again: headless ones, chained ones, interleaved ones, and those that nobody died of."""

from __future__ import annotations

from gpuready.logs.log_prefixes import parse_lines
from gpuready.logs.tracebacks import find_tracebacks


def reported(text: str):
    return find_tracebacks(list(parse_lines([(i + 1, line.encode()) for i, line in enumerate(text.split("\n"))])))


PLAIN = """Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    main()
    ^^^^^^
  File "/venv/lib/python3.12/site-packages/torch/x.py", line 3, in f
    raise ValueError("no")
ValueError: no
and a second line
"""


def test_a_plain_one():
    (failure,) = reported(PLAIN)
    assert (failure.type, failure.message) == ("ValueError", "no\nand a second line")
    assert (failure.number, failure.at, failure.last) == (1, 7, 9) or failure.last == 8
    assert [frame.line for frame in failure.frames] == [12, 3]
    assert failure.frames[0].code == "main()" and not failure.frames[0].is_library


def test_without_its_head_and_without_its_frames():
    assert reported(PLAIN.partition("\n")[2])[0].type == "ValueError"
    assert reported("KeyError: 'x'")[0].type == "KeyError"
    assert reported("torch.cuda.OutOfMemoryError: CUDA out of memory")[0].short_type == "OutOfMemoryError"


def test_a_chain_knows_what_came_first():
    text = (
        PLAIN
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + PLAIN.replace("ValueError: no", "OSError: so")
    )
    first, second = reported(text)
    assert first.after is None and second.after == 0 and second.type == "OSError"


def test_ranks_that_speak_at_the_same_time():
    a = ["[rank0]: " + line for line in PLAIN.split("\n")[:7]]
    b = ["[rank1]: " + line for line in PLAIN.replace("ValueError: no", "RuntimeError: other").split("\n")[:7]]
    mixed = "\n".join(line for pair in zip(a, b, strict=True) for line in pair)
    failures = reported(mixed)
    assert {(f.rank, f.type, len(f.frames)) for f in failures} == {(0, "ValueError", 2), (1, "RuntimeError", 2)}


def test_what_was_ignored_killed_nobody():
    text = "Exception ignored in: <function A.__del__ at 0x7f>\n" + PLAIN
    assert reported(text)[0].caught


def test_a_program_in_cpp():
    (failure,) = reported(
        "terminate called after throwing an instance of 'c10::CUDAError'\n  what():  CUDA error: unknown error\n"
    )
    assert failure.short_type == "CUDAError" and "unknown error" in failure.message


def test_a_notebook():
    text = "----\nTypeError                 Traceback (most recent call last)\nCell In[18], line 3\n----> 3 x()\n\nFile ~/a/b.py:165, in f(*args)\n    1 y\n\nTypeError: got an unexpected"
    assert reported(text)[-1].type == "TypeError" and reported(text)[-1].message == "got an unexpected"


def test_the_output_of_a_build_is_indented():
    text = "\n".join("      " + line for line in PLAIN.split("\n"))
    assert reported(text)[0].type == "ValueError"


def test_libraries_are_no_work_of_the_user():
    text = PLAIN.replace("/home/me/train.py", "/usr/lib/python3.12/runpy.py")
    assert all(frame.is_library for frame in reported(text)[0].frames)


def test_prose_is_no_exception():
    assert reported("An error: something\nNote: ValueError is raised when\nstep 3 done") == []


def test_links_of_a_notebook_are_paths():
    text = (
        "KeyError                  Traceback (most recent call last)\n"
        "[/tmp/ipython-input-1.py](https://localhost:8080/#) in <cell line: 0>()\n----> 1 from lib import A\n\n"
        "File [~/v/lib/python3.12/site-packages/lib/a.py:12](https://x.net/a.py:12), in f(self)\n"
        "---> [12](https://x.net/a.py:12) go()\n\nKeyError: 'x'\n"
    )
    frames = reported(text)[-1].frames
    assert [frame.file.rpartition("/")[2] for frame in frames] == ["ipython-input-1.py", "a.py"]
    assert [frame.code for frame in frames] == ["from lib import A", "go()"]


def test_frames_of_pytest():
    text = "src/lib/trainer.py:16: in train\n    return inner()\nlib/a.py:3: in inner\n    x()\nE   KeyError: 'x'\n"
    assert [frame.function for frame in reported(text)[0].frames] == ["train", "inner"]
