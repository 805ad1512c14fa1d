"""Forms of logs: errors of other languages, runs in one file, prefixes nobody listed, what a transport did to the lines."""

from __future__ import annotations

import json

import pytest

from gpuready.logs.log_prefixes import parse_lines
from gpuready.logs.runs import keep_last_run
from gpuready.logs.tracebacks import find_tracebacks
from gpuready.workflow.diagnose import diagnose_logs

PLAIN = (
    'Traceback (most recent call last):\n  File "/home/me/train.py", line 12, in <module>\n    main()\n'
    '  File "/venv/lib/python3.12/site-packages/flurb/core.py", line 3, in run\n    raise Lost\nflurb.core.Lost: the flurb is gone\n'
)


def lines_of(text: str):
    return list(parse_lines([(i + 1, line.encode()) for i, line in enumerate(text.split("\n"))]))


def failures_of(text: str):
    return find_tracebacks(lines_of(text))


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("terminate called without an active exception", "std::terminate", "without an active exception"),
        ("thread '<unnamed>' panicked at src/lib.rs:41:14:\ncalled `unwrap()`", "rust::panic", "src/lib.rs:41:14:"),
        ("OMP: Error #15: Initializing libiomp5md.dll, but found it initialized.", "omp::error", "15: Init"),
        ("nvcc fatal unsupported gpu architecture 'compute_86'", "compiler::fatal", "unsupported gpu"),
        ("  × Failed to build `flash-attn==2.8.3`\n  ├─▶ The build backend returned an error\n  ╰─▶ Call failed", "uv::error", "Call failed"),
        ("a.cu(12): error: identifier is undefined", "compiler::error", "identifier"),
        ("self.node2pg[node_rank] KeyError: 1", "KeyError", "1"),
        ("socket.gaierror: [Errno -2] Name or service not known", None, ""),
    ],
)  # fmt: skip
def test_errors_of_every_emitter(text, kind, message):
    found = failures_of(text)
    if kind:
        assert found[0].type == kind and message in found[0].message
    else:
        assert failures_of(PLAIN.rpartition("flurb.core")[0] + text)[-1].type == "socket.gaierror"


def test_an_exception_group_has_its_members():
    text = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/home/me/a.py", line 3, in <module>\n  |     raise group\n'
        "  | ExceptionGroup: two (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
        '    | Traceback (most recent call last):\n    |   File "/home/me/a.py", line 9, in f\n    |     g()\n    | ValueError: no\n'
        "    +------------------------------------\n"
    )
    assert [f.short_type for f in failures_of(text)] == ["ExceptionGroup", "ValueError"]


def test_what_was_being_handled_is_superseded_and_what_was_raised_from_is_not():
    outer = PLAIN.replace("flurb.core.Lost: the flurb is gone", "OSError: other")
    context = PLAIN + "\nDuring handling of the above exception, another exception occurred:\n\n" + outer
    cause = PLAIN + "\nThe above exception was the direct cause of the following exception:\n\n" + outer
    assert [f.superseded for f in failures_of(context)] == [True, False]
    assert [f.superseded for f in failures_of(cause)] == [False, False]
    found = diagnose_logs([[cause.encode()]], look=False)
    assert [one.type for one in found.exceptions][-1] == "flurb.core.Lost"


@pytest.mark.parametrize(
    "start", ["me@gpu-07:~/job$ python b.py", "+ python b.py", "===== run 2 started at 12:00 ====="]
)
def test_the_last_run_is_answered(start):
    lines, _ = keep_last_run(lines_of(f"{PLAIN}{start}\nstep 1 loss 2.0\nTraining completed.\n"))
    assert not find_tracebacks(lines) and lines[0].text == start
    assert diagnose_logs([[f"{PLAIN}{start}\nstep 1 loss 2.0\nTraining completed.\n".encode()]]).verdict == "healthy"


def test_a_look_at_the_machine_is_no_run():
    lines, command = keep_last_run(lines_of(f"$ python a.py\n{PLAIN}$ nvidia-smi\nGPU 0: NVIDIA H100\n"))
    assert command == "python a.py" and find_tracebacks(lines)


PREFIXES = {
    "host=gpu07 rank=5 | ": {"rank": 5, "host": "gpu07"},
    "[11/16/2026 12:{n:02d}:{m:02d}] [worker 2] [rank5] ": {"rank": 5},
    "Nov 16 12:{n:02d}:{m:02d} gpu07 python[4711]: ": {"host": "gpu07", "pid": 4711},
    "[pod/train-x7/main] ": {"host": "train-x7"},
    "5: ": {"rank": 5},
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_that_repeat(prefix):
    text = "".join(prefix.format(n=i, m=i) + line + "\n" for i, line in enumerate((PLAIN + "bye\n" * 3).splitlines()))
    found = failures_of(text)
    assert found and found[0].message.startswith("the flurb is gone") and len(found[0].frames) == 2
    assert {key: getattr(found[0], key) for key in PREFIXES[prefix]} == PREFIXES[prefix]


@pytest.mark.parametrize("form", ["json", "docker", "escaped", "collapsed", "wrapped"])
def test_what_a_transport_did_is_undone(form):
    rows = PLAIN.splitlines()
    texts = {
        "json": "\n".join(json.dumps({"level": "info", "rank": 5, "message": row}) for row in rows),
        "docker": "\n".join(json.dumps({"log": row + "\n", "stream": "stderr"}) for row in rows),
        "escaped": "worker said: " + PLAIN.replace("\n", "\\n"),
        "collapsed": " ".join(PLAIN.split()).replace("flurb.core.Lost", "flurb.core.LostError"),
        "wrapped": "\n".join(row[at : at + 60] for row in rows for at in range(0, len(row), 60)),
    }
    (found,) = failures_of(texts[form])
    assert found.message.startswith("the flurb is gone") and len(found.frames) == 2
    assert form != "json" or found.rank == 5
