"""The corpus is what it says: known causes, lines that prove them, nothing of the machine that recorded it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.every import every
from tests.induce import clean, corpus, gpu, stage
from tests.induce.everywhere import EVERYWHERE
from tests.induce.slugs import SLUGS
from tests.induce.themes import THEMES

CASES = corpus.load()
MADE = {case.id: case for cases in THEMES.values() for case in cases} | {case.id: case for case in gpu.CASES}
PRIVATE = re.compile(
    "|".join(("/ro" + "ot/", "/wo" + "rk/", r"\.pyenv", r"py" + "pi\\.org", "pythonhost" + "ed", "hf_[A-Za-z]{20}"))
)


def by_id(case: corpus.Case | stage.Provoke) -> str:
    return case.id


def test_there_are_enough_kinds() -> None:
    on_cpu = [case for case in CASES if not case.id.startswith("gpu-")]
    assert len({case.id for case in CASES}) == len(CASES)
    assert len(on_cpu) >= 150
    assert len({case.cause for case in on_cpu}) >= 50
    assert sum(case.negative for case in on_cpu) >= 40
    assert sum(case.rank is not None for case in CASES) >= 15


def test_it_is_small() -> None:
    assert max(len(case.log.encode()) for case in CASES) < 40_000
    assert sum(file.stat().st_size for file in corpus.FOLDER.glob("*.jsonl")) < 1_500_000


@every("case", CASES, ids=by_id)
def test_each_case_is_well_formed(case: corpus.Case) -> None:
    assert case.cause in SLUGS
    assert case.negative == (case.cause in corpus.NOT_ENVIRONMENT)
    assert case.how and case.decisive
    lines = {clean.folded(line) for line in corpus.untagged(case.log).splitlines()}
    assert set(case.decisive) <= lines
    assert not PRIVATE.search(case.log)


@every("case", [case for case in CASES if case.ranks], ids=by_id)
def test_ranks_add_up_to_the_log(case: corpus.Case) -> None:
    whole = sorted(corpus.untagged(case.log).splitlines())
    parts = sorted(line for text in (case.agent, *case.ranks.values()) for line in text.splitlines())
    assert [line for line in whole if line] == [line for line in parts if line]
    if case.rank is None:
        return
    said = {clean.folded(line) for line in (case.ranks[case.rank] + case.agent).splitlines()}
    assert said & set(case.decisive)


def test_labels_are_those_of_the_cases() -> None:
    for case in CASES:
        assert case.id in MADE, f"{case.id} is recorded and nothing provokes it"
        made = MADE[case.id]
        assert (case.cause, case.rank, case.variant) == (made.cause, made.rank, made.variant), case.id


def test_every_script_is_a_program_and_every_pattern_a_pattern() -> None:
    for case in MADE.values():
        compile(case.script, case.id, "exec")
        assert case.cause in SLUGS and case.ends in ("ok", "fail", "deadline"), case.id
        assert case.decisive and all(re.compile(pattern) for pattern in case.decisive), case.id


@pytest.mark.parametrize("case", EVERYWHERE, ids=by_id)
def test_provoked_anew_it_shows_the_same(case: stage.Provoke, tmp_path: Path) -> None:
    row = corpus.opened(stage.induce(case, stage.here(), tmp_path))
    assert row.cause == case.cause
    assert all(re.search(pattern, line) for pattern, line in zip(case.decisive, row.decisive, strict=True))
    assert not PRIVATE.search(row.log) and str(tmp_path) not in row.log


def test_nothing_is_recorded_when_it_did_not_show(tmp_path: Path) -> None:
    silent = stage.Provoke("silent", "disk-full", ("No space left",), "print('fine')\n", "python3 train.py", ends="ok")
    with pytest.raises(stage.NotInduced, match="no line matches"):
        stage.induce(silent, stage.here(), tmp_path)
    lucky = stage.Provoke("lucky", "disk-full", ("No space left",), "print('No space left')\n", "python3 train.py")
    with pytest.raises(stage.NotInduced, match="a failure was expected"):
        stage.induce(lucky, stage.here(), tmp_path)


def test_what_a_case_leaves_running_is_ended(tmp_path: Path) -> None:
    script = "import subprocess\nchild = subprocess.Popen(['sleep', '300'], start_new_session=True)\nprint('child', child.pid)\n"
    case = stage.Provoke("leaves", "healthy", (r"child \d+",), script, "python3 train.py", ends="ok")
    row = stage.induce(case, stage.here(), tmp_path)
    pid = int(row["decisive"][0].split()[1])
    assert not alive(pid)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_private_things_are_taken_out(tmp_path: Path) -> None:
    home = os.path.expanduser("~")
    text = f"{tmp_path}/train.py\nhttps://user:secret@mirror.local:8080/simple/torch/\n{home}/x 10.1.2.3 172.20.1.9\n 50%|#  |\r100%|###|\n"
    shown = clean.sanitised(text, tmp_path, tmp_path / "venv")
    assert (
        shown
        == "/srv/job/train.py\nhttps://index.example:8080/simple/torch/\n/home/user/x 10.0.0.5 10.0.0.5\n100%|###|\n"
    )


def test_a_long_log_keeps_its_decisive_line() -> None:
    lines = [f"line {number} {'x' * 60}\n" for number in range(3000)]
    lines[1500] = "the decisive one\n"
    shown = clean.trimmed("".join(lines), ["decisive"])
    assert len(shown) < 40_000 and "the decisive one" in shown
    assert shown.startswith("line 0 ") and shown.endswith(lines[-1])
    assert "[...]" in shown
