"""The commands of a screen can be pasted: where the word gpuready starts nothing, a person is told what does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready.system import program_name
from tests.running import QUIET, SRC


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Start gpuready by a path, from a folder, with a PATH; return the words that are told."""

    def start(path: str, search: str = "/usr/bin:/bin") -> list[str]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch(0o755)
        monkeypatch.setattr(sys, "argv", [str(tmp_path / path)])
        monkeypatch.setenv("PATH", search)
        monkeypatch.chdir(tmp_path)
        return program_name.find_start_words()

    return start


def test_after_make_check(started):
    assert started(".venv/bin/gpuready") == [".venv/bin/gpuready"]


def test_on_the_path_its_name_is_enough(started, tmp_path):
    assert started("bin/gpuready", f"/usr/bin:{tmp_path}/bin") == []
    (tmp_path / "links").mkdir()
    (tmp_path / "links/gpuready").symlink_to(tmp_path / "bin/gpuready")
    assert started("bin/gpuready", f"{tmp_path}/links:/usr/bin") == [], "as uv tool and pipx link it"


def test_another_one_that_comes_first_is_not_it(started, tmp_path):
    started("other/gpuready")
    assert started("bin/gpuready", f"{tmp_path}/other:{tmp_path}/bin") == ["bin/gpuready"]


def test_uvx_is_named_with_what_it_was_given(started, tmp_path, monkeypatch):
    """Its environment is on PATH for this process alone."""
    place = "cache/uv/archive-v0/Xy12/bin"
    assert started(f"{place}/gpuready", f"{tmp_path}/{place}") == ["uvx", "gpuready"], "from an index"
    site = tmp_path / "cache/uv/archive-v0/Xy12/lib/python3.11/site-packages"
    (site / "gpuready-0.1.0.dist-info").mkdir(parents=True)
    address = json.dumps({"url": "file:///home/me/my%20code/gpuready", "dir_info": {}})
    (site / "gpuready-0.1.0.dist-info/direct_url.json").write_text(address)
    monkeypatch.setattr(program_name, "__file__", str(site / "gpuready/system/program_name.py"))
    words = started(f"{place}/gpuready", f"{tmp_path}/{place}")
    assert words == ["uvx", "--from", "/home/me/my code/gpuready", "gpuready"]


@pytest.mark.parametrize("argv", [["-c"], ["/x/pytest"], ["/x/gpuready/__main__.py"], [""], []])
def test_started_in_another_way_nothing_is_told(argv, monkeypatch):
    monkeypatch.setattr(sys, "argv", argv)
    assert program_name.find_start_words() == []


def _run_on_a_terminal(folder: Path, *words: str, path: str) -> str:
    """What stderr shows, where it is a terminal."""
    ours, theirs = os.openpty()
    env = {**QUIET, "PATH": path, "PYTHONPATH": str(SRC)}
    argv = [str(folder / ".venv/bin/gpuready"), *words]
    subprocess.run(argv, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=theirs, check=False, timeout=60)
    os.close(theirs)
    try:
        return os.read(ours, 65536).decode()
    except OSError:  # nothing was written, and nobody is at the other end
        return ""
    finally:
        os.close(ours)


def test_a_person_is_told_after_the_screen(tmp_path):
    script = tmp_path / ".venv/bin/gpuready"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!{sys.executable}\nfrom gpuready.cli import main\nmain()\n")
    script.chmod(0o755)
    words = ("check", "trl", "--on", "h100")
    says = "gpuready is not on your PATH: write .venv/bin/gpuready for it"
    assert says in _run_on_a_terminal(tmp_path, *words, path="/usr/bin:/bin")
    assert says not in _run_on_a_terminal(tmp_path, *words, "--json", path="/usr/bin:/bin")
    assert says not in _run_on_a_terminal(tmp_path, *words, path=f"{script.parent}:/usr/bin:/bin")
