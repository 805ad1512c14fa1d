"""The command itself: what it refuses, what it says, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.web.served import TOKEN

SERVE = [sys.executable, "-m", "gpuready", "serve", "--no-open"]


def refused(*flags: str) -> str:
    ran = subprocess.run([*SERVE, *flags], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and ran.stdout == "" and ran.stderr.count("\n") == 1, ran.stderr
    return ran.stderr


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--host", "192.0.2.7"], "--open-to-others"),
        (["--host", "0.0.0.0", "--open-to-others"], "every address"),
        (["--host", "example.org"], "takes an address"),
        (["--port", "65536"], "from 0 to 65535"),
        (["--token", "short"], "from 16 to 512"),
        (["--token", "a b" * 9], "letters, digits"),
    ],
)
def test_what_would_be_open_or_weak_is_refused(flags, says):
    assert says in refused(*flags)


def test_a_weak_token_in_the_variable_is_refused_and_not_shown(monkeypatch):
    monkeypatch.setenv("GPUREADY_SERVE_TOKEN", "shortish")
    said = refused()
    assert "GPUREADY_SERVE_TOKEN: a token has from 16" in said and "shortish" not in said


def test_without_any_temporary_folder_it_says_so(monkeypatch):
    from gpuready.system import own_folders
    from gpuready.web.server import _open_scratch_folder
    from gpuready.workflow import Refused

    monkeypatch.setattr(own_folders, "TEMPORARY_PARENTS", ())
    monkeypatch.setenv("TMPDIR", "/no/such/folder")
    with pytest.raises(Refused, match=r"no folder can be made in /no/such/folder.*set TMPDIR"), _open_scratch_folder():
        pass


def test_a_port_that_is_taken_is_told():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert "cannot listen at 127.0.0.1" in refused("--port", str(other.getsockname()[1]))


def test_without_the_extra_it_says_what_to_install(tmp_path):
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('no', name='uvicorn')")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    ran = subprocess.run(SERVE, capture_output=True, text=True, timeout=60, env=env)
    assert ran.returncode == 2 and "pip install 'starlette' 'uvicorn'" in ran.stderr and ran.stderr.count("\n") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_nothing_is_left(tmp_path, number, code):
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.Popen([*SERVE, "--port", "0"], stderr=subprocess.PIPE, text=True, env=env)
    said = run.stderr.readline()
    assert "?token=" in said and len(said.partition("?token=")[2].strip()) >= 40  # random, and long
    assert TOKEN not in said
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    end = time.monotonic() + 60
    while not (workers := children.read_text().split()):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert (os.stat(next(tmp_path.iterdir())).st_mode & 0o777) == 0o700
    run.send_signal(number)
    assert run.wait(60) == code
    run.stderr.close()
    assert list(tmp_path.iterdir()) == []
    assert not [
        pid
        for pid in workers
        if Path(f"/proc/{pid}/cmdline").exists() and b"gpuready" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
