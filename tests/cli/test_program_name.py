"""The commands of a screen can be pasted: where the word gpuready starts nothing, a person is told what does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready.apply import generation
from gpuready.render.layout import Screen
from gpuready.system import command_line
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
        return command_line.find_start_words()

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
    monkeypatch.setattr(command_line, "__file__", str(site / "gpuready/system/command_line.py"))
    words = started(f"{place}/gpuready", f"{tmp_path}/{place}")
    assert words == ["uvx", "--from", "/home/me/my code/gpuready", "gpuready"]


@pytest.mark.parametrize("argv", [["-c"], ["/x/pytest"], ["/x/other/__main__.py"], [""], []])
def test_started_in_another_way_nothing_is_told(argv, monkeypatch):
    monkeypatch.setattr(sys, "argv", argv)
    assert command_line.find_start_words() == []


def test_as_a_module_the_python_is_told_where_the_word_starts_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["/x/gpuready/__main__.py"])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert command_line.find_start_words() == [sys.executable, "-m", "gpuready"]
    (tmp_path / "gpuready").touch(0o755)
    assert command_line.find_start_words() == []


@pytest.fixture
def script(tmp_path) -> Path:
    """A gpuready that is not on PATH, as ``make check`` leaves it."""
    script = tmp_path / ".venv/bin/gpuready"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!{sys.executable}\nfrom gpuready.cli import main\nmain()\n")
    script.chmod(0o755)
    return script


def _run_on_a_terminal(script: Path, *words: str, path: str = "/usr/bin:/bin") -> str:
    """What a terminal shows, of both streams."""
    ours, theirs = os.openpty()
    env = {**QUIET, "PATH": path, "PYTHONPATH": str(SRC)}
    shown = b""
    with subprocess.Popen([str(script), *words], cwd=script.parents[2], env=env, stdout=theirs, stderr=theirs):
        os.close(theirs)
        try:
            while more := os.read(ours, 65536):
                shown += more
        except OSError:  # all of it was read, and nobody is at the other end
            pass
    os.close(ours)
    return shown.decode()


WORDS = ("check", "trl", "--on", "h100")


def test_the_commands_of_the_screen_start_the_gpuready_that_printed_them(script):
    screen = _run_on_a_terminal(script, *WORDS)
    assert ".venv/bin/gpuready plan trl --on h100" in screen and " gpuready " not in screen
    started = _run_on_a_terminal(script, *WORDS, path=f"{script.parent}:/usr/bin:/bin")
    assert ":     gpuready plan trl --on h100" in started and ".venv/bin" not in started


def test_the_folder_of_an_install_is_one_that_it_can_take(started, tmp_path):
    started("bin/gpuready")
    own = generation.EnvironmentHome(str(tmp_path / ".venv"))
    assert command_line.find_new_environment() == ".venv" and not own.explain_refusal()
    (tmp_path / ".venv").mkdir()
    assert command_line.find_new_environment() == ".venv" and not own.explain_refusal()
    (tmp_path / ".venv/pyvenv.cfg").touch()
    assert command_line.find_new_environment() == ".venv-gpuready" and own.explain_refusal()
    (tmp_path / ".venv/.gpuready").mkdir()
    assert command_line.find_new_environment() == ".venv" and not own.explain_refusal()
    assert command_line.find_new_environment(takes_own=False) == ".venv-gpuready", "uv venv refuses one that is there"
    (tmp_path / ".venv-gpuready/bin").mkdir(parents=True)
    assert command_line.find_new_environment(takes_own=False) == ".venv-gpuready-2"


def test_the_steps_of_a_plan_make_a_folder_that_is_not_there(script, tmp_path):
    (tmp_path / ".venv/bin").mkdir(parents=True, exist_ok=True)
    screen = _run_on_a_terminal(script, "plan", "trl", "--on", "h100", "--no-resolve")
    steps = [line for line in screen.splitlines() if line.strip().startswith("$")]
    assert any("uv venv" in line and line.endswith(".venv-gpuready") for line in steps)
    assert all(".venv" not in line.replace(".venv-gpuready", "").replace(".venv/bin/gpuready", "") for line in steps)


def test_the_screen_names_that_folder_in_an_install_alone():
    screen = Screen(environment=".venv-gpuready")
    install = screen.format_command(("gpuready", "install", "trl", "-e", ".venv", "--wants", "bf16"), 0, "")
    assert install == ["gpuready install trl -e .venv-gpuready --wants bf16"]
    check = ("gpuready", "check", "trl", "--python", ".venv")
    assert screen.format_command(check, 0, "") == [" ".join(check)]


def test_a_person_is_told_where_a_sentence_names_a_command(script):
    says = "gpuready is not on your PATH: write .venv/bin/gpuready for it"
    assert says in _run_on_a_terminal(script, *WORDS, "--torch", "2.8.0+cpu", "-v")
    assert says not in _run_on_a_terminal(script, *WORDS)
    assert says not in _run_on_a_terminal(script, *WORDS, "-v", "--json")
    assert says not in _run_on_a_terminal(script, *WORDS, "-v", path=f"{script.parent}:/usr/bin:/bin")
