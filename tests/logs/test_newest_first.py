"""A log with the newest line first is read from its end, and its lines keep their numbers."""

from __future__ import annotations

from gpuready.logs.runs import order_by_time
from gpuready.workflow.diagnose import diagnose_logs

ERROR = (
    "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: No space left on device (28)"
)
STEPS = [
    "loading",
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 3, in <module>',
    "    main()",
    ERROR,
]
LINES = [
    f"ERROR 2026-04-05T00:01:{10 + i}.5Z {text}"
    for i, text in enumerate([*STEPS, "exited", "run.sh: line 4: 28 Killed python3"])
]


def rows(lines: list[str]) -> list[tuple[int, bytes]]:
    return [(number, line.encode()) for number, line in enumerate(lines, 1)]


def test_the_newest_line_first():
    assert order_by_time(rows(LINES)) == rows(LINES)
    turned = order_by_time(rows(LINES[::-1]))
    assert [line for _, line in turned] == [line.encode() for line in LINES]
    assert [number for number, _ in turned] == sorted(number for number, _ in turned)


def test_other_orders_are_left_alone():
    few = [line.replace("2026-04-05T00:01:", "") for line in LINES[::-1]]
    mixed = [LINES[i] for i in (1, 0, 3, 2, 5, 4, 6)]
    same = [f"2026-04-05 00:01:10 {text}" for text in STEPS * 2]
    one_back = [*LINES, *LINES]
    for lines in (few, mixed, same, one_back, LINES[:3][::-1], []):
        assert order_by_time(rows(lines)) == rows(lines)


def test_the_answer_is_that_of_the_log_in_its_order():
    text = "\n".join(LINES[::-1]).encode()
    found = diagnose_logs([[text]], look=False)
    assert found.cause == diagnose_logs([["\n".join(LINES).encode()]], look=False).cause == "shm-too-small"
    assert ERROR in text.decode().split("\n")[found.evidence[0].line - 1]
    unknown = (
        text.replace(ERROR.encode(), b"WeirdError: unheard of")
        .replace(b"Killed", b"Ended")
        .replace(b"/home/me/train.py", b"/v/lib/python3.12/site-packages/a/b.py")
    )
    exceptions = diagnose_logs([[unknown]], look=False).exceptions
    assert exceptions and exceptions[0].line == 3
