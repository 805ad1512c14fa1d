"""Attacks of other kinds: an index that redirects or never ends, damaged archives, files that include each other, hosts that ask for ever, environments of others."""

from __future__ import annotations

import http.server
import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from gpuready.apply.wheel_contents import compare_with_wheels
from gpuready.model.metadata import marker_applies
from gpuready.model.plan import LockedPackage
from gpuready.system import AccessError
from gpuready.system.archive_members import list_tar_members
from gpuready.system.download import download_file, fetch_text
from gpuready.system.log_streams import ReadBudget, open_log_streams
from gpuready.system.release_metadata import fetch_release_metadata
from tests.running import QUIET, call_gpuready, gpuready

ROOT = Path(__file__).parents[2]
LOGIN = "Basic bWU6c2VjcmV0"
WHEEL = "a-1-py3-none-any.whl"


# -- an index ---------------------------------------------------------------------------------------------


@contextmanager
def serving(location: str = "") -> Iterator[tuple[str, list[str | None]]]:
    """A server that notes the logins it gets, and leads everything but ``/end`` elsewhere."""
    seen: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            leads_on = location and not self.path.startswith("/end")
            self.send_response(302 if leads_on else 404)
            self.send_header("Location", location) if leads_on else None
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", seen
        server.shutdown()


def fetches(address: str, folder: Path) -> list[Callable[[], object]]:
    """Every way in which gpuready itself fetches something, with a login."""
    return [
        lambda: fetch_release_metadata(f"http://{address}/{WHEEL}", LOGIN, timeout=3),
        lambda: fetch_release_metadata(f"http://{address}/a-1.tar.gz", LOGIN, timeout=3),
        lambda: download_file(f"http://{address}/{WHEEL}", str(folder / WHEEL), ["sha256:0"], LOGIN, timeout=3),
        lambda: fetch_text(f"http://{address}/config.json", 1000, LOGIN, timeout=3),
    ]


def test_a_login_does_not_follow_a_redirect_to_another_server(tmp_path):
    with serving() as (other, seen), serving(f"http://{other}/end.whl") as (index, asked):
        for fetch in fetches(index, tmp_path):
            with pytest.raises(AccessError):
                fetch()
    assert set(asked) == {LOGIN} and len(seen) >= 4 and set(seen) == {None}


def test_a_login_stays_with_its_own_server(tmp_path):
    with serving("/end.whl") as (index, seen):
        for fetch in fetches(index, tmp_path):
            with pytest.raises(AccessError):
                fetch()
    assert set(seen) == {LOGIN}


@contextmanager
def answering(answer: bytes, pause: float = 0.0) -> Iterator[str]:
    """A server of bytes that need not be HTTP; with a pause it sends one at a time."""

    def send(link: socket.socket) -> None:
        with link:
            link.recv(65536)
            try:
                for piece in [answer[at : at + 1] for at in range(len(answer))] if pause else [answer]:
                    link.sendall(piece)
                    time.sleep(pause)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=send, args=(link,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


HEAD = b"HTTP/1.1 200 OK\r\n"
BROKEN = [b"no status\r\n\r\n", b"HTTP/1.1 " + b"9" * 100000, HEAD + b"A: b\r\n" * 200, HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n"]  # fmt: skip


@pytest.mark.parametrize("answer", BROKEN, ids=range(len(BROKEN)))
def test_broken_http_is_one_error(tmp_path, answer):
    with answering(answer) as address:
        for fetch in fetches(address, tmp_path):
            with pytest.raises(AccessError):
                fetch()


SHORT = HEAD + b"Content-Length: 99\r\nContent-Range: bytes 0-98/99\r\n\r\nName: a\nVersion: 1\n"


def test_a_body_that_was_cut_is_an_error(tmp_path):
    with answering(SHORT) as address:
        for fetch in fetches(address, tmp_path):
            with pytest.raises(AccessError, match="broke off after 19 of 99 bytes"):
                fetch()


def test_a_server_that_sends_a_letter_now_and_then_has_a_limit():
    started = time.monotonic()
    with answering(HEAD + b"Content-Length: 99\r\n\r\n" + b"x" * 99, pause=0.2) as address, pytest.raises(AccessError):
        fetch_text(f"http://{address}/config.json", 1000, timeout=1.0)
    assert time.monotonic() - started < 10


# -- archives and metadata --------------------------------------------------------------------------------


def damaged_wheels() -> Iterator[bytes]:
    """Encrypted, packed by a method that nobody knows, and with damage in what is packed by deflate and by LZMA."""
    for method, flag, name in ((zipfile.ZIP_DEFLATED, 1, 0), (99, 0, 0), (zipfile.ZIP_DEFLATED, 0, 1), (14, 0, 9)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method if method != 99 else zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a-1.dist-info/METADATA", "Name: a\nVersion: 1\n" * 50)
        data = bytearray(file.getvalue())
        entry, packed = data.rindex(b"PK\x01\x02"), data.index(b"METADATA") + len("METADATA")
        data[6] |= flag
        data[entry + 8] |= flag
        data[8] = data[entry + 10] = method
        if name:
            data[packed + name - 1 : packed + name + 15] = b"\xff" * 16
        yield bytes(data)


def test_a_damaged_or_encrypted_wheel_is_one_sentence(tmp_path):
    for data in damaged_wheels():
        (tmp_path / WHEEL).write_bytes(data)
        with pytest.raises(AccessError):
            fetch_release_metadata(str(tmp_path / WHEEL))
        ran = call_gpuready("contract", "new", "kite", WHEEL, cwd=tmp_path)
        assert ran.code == 2 and "gpuready failed" not in ran.err and ran.err.count("\n") == 1, ran.err


def test_a_damaged_record_of_a_wheel_is_one_fault(tmp_path):
    """Nothing is said of files that could not be compared."""
    site = tmp_path / "env/lib/python3.11/site-packages"
    (site / "a-1.dist-info").mkdir(parents=True)
    (site / "a-1.dist-info/METADATA").write_text("Name: a\nVersion: 1\n")
    (site / "a-1.dist-info/RECORD").write_text("a.py,,\na-1.dist-info/METADATA,,\na-1.dist-info/RECORD,,\n")
    (site / "a.py").write_text("")
    for data in [data.replace(b"METADATA", b"RECORDxx") for data in damaged_wheels()] + [b"", b"PK\x03\x04"]:
        wheel = tmp_path / WHEEL
        wheel.write_bytes(data.replace(b"RECORDxx", b"RECORD\0\0"))
        row = LockedPackage("a", "1", (f"sha256:{sha256(wheel.read_bytes()).hexdigest()}",))
        faults, compared = compare_with_wheels(str(tmp_path / "env"), [row], [str(tmp_path)])
        assert compared == 1 and [fault.path for fault in faults] == [str(wheel)], faults
        assert "RECORD" in faults[0].says and "not compared" in faults[0].says


def test_an_archive_is_not_unpacked_beyond_its_bound():
    large = tarfile.TarInfo("a-1/zeros")
    large.size = 1 << 40
    file = io.BytesIO(large.tobuf() + bytes(1024))
    with tarfile.open(fileobj=file) as archive, pytest.raises(ValueError, match="more than 1 GiB"):
        list(list_tar_members(archive))


def test_brackets_without_end_in_a_marker_apply_to_nobody(tmp_path):
    marker = "(" * 20000 + "os_name == 'posix'" + ")" * 20000
    assert not marker_applies(marker, {"os_name": "posix"}, frozenset())
    assert marker_applies("((os_name == 'posix'))", {"os_name": "posix"}, frozenset())
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as archive:
        archive.writestr("a-1.dist-info/METADATA", f"Name: a\nVersion: 1\nRequires-Dist: torch>=2; {marker}\n")
    ran = gpuready("contract", "new", "kite", WHEEL, cwd=tmp_path)
    assert "gpuready failed" not in ran.err and "Traceback" not in ran.err, ran.err


def test_requirement_files_that_include_each_other_are_counted(tmp_path):
    for number in range(30):
        (tmp_path / f"r{number}.txt").write_text("".join(f"-r r{other}.txt\n" for other in range(30)))
    (tmp_path / "Dockerfile").write_text("FROM python:3.12\nCOPY . .\nRUN pip install -r r0.txt\n")
    (tmp_path / "requirements.txt").write_text("-r r0.txt\n")
    assert gpuready("check", "transformers", "--dockerfile", "Dockerfile", cwd=tmp_path, timeout=20).code == 3
    ran = gpuready(
        "plan", "roll:torch280-vllm", "--source", ".", "--on", "h100x8", "--offline", cwd=tmp_path, timeout=20
    )
    assert ran.code == 2 and "into itself" in ran.err, ran


def test_pipes_and_devices_among_sources_keep_nobody_waiting(tmp_path):
    (tmp_path / "kite").mkdir()
    (tmp_path / "kite/pyproject.toml").write_text('[project]\nname = "kite"\nversion = "1"\n')
    (tmp_path / "kite/zero.py").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "kite/pipe.py")
    assert gpuready("contract", "new", "kite", "kite", cwd=tmp_path, timeout=15).code >= 0
    assert gpuready("run", "--dry-run", "kite/pipe.py", cwd=tmp_path, timeout=15).code >= 0


# -- logs, hosts, the action, environments ----------------------------------------------------------------


def test_holes_of_a_log_earn_it_no_time(tmp_path):
    with open(tmp_path / "a.log", "wb") as file:
        file.truncate(64 << 20)
    budget = ReadBudget()
    for stream in open_log_streams(str(tmp_path / "a.log"), budget=budget):
        assert sum(map(len, stream)) >= 0
    assert budget.stored < 1 << 20


def test_a_host_that_asks_for_gpuready_for_ever_is_asked_twice(tmp_path):
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        f"#!{sys.executable} -I\nimport re, sys\nopen({str(tmp_path / 'asked')!r}, 'a').write('x')\n"
        "orders = sys.stdin.buffer.read().decode('latin1')\n"
        'mark = re.search(r\'"mark": ?"([^"]+)"|(gpuready-[0-9a-f]+)\', orders)\n'
        "print(mark[1] or mark[2], 'need', sys.argv[sys.argv.index('--') + 1])\n"
    )
    ssh.chmod(0o755)
    words = ("fleet", "check", "--hosts", "n1", "--engine", "ssh", "--timeout", "5", "--retries", "0")
    ran = gpuready(*words, cwd=tmp_path, timeout=30, PATH=f"{ssh.parent}:/usr/bin:/bin", HOME=str(tmp_path))
    assert ran.code == 1 and (tmp_path / "asked").read_text() == "xx", ran


def run_action(folder: Path, **inputs: str) -> tuple[int, list[str]]:
    words = ["bash", str(ROOT / "scripts/action.sh")]
    command = folder / "gpuready"
    command.write_text(f'#!/bin/sh\necho "$@" >> {folder}/started\nexec {sys.executable} -m gpuready "$@"\n')
    command.chmod(0o755)
    env = {**QUIET, "PYTHONPATH": str(ROOT / "src"), "RUNNER_TEMP": str(folder), "GPUREADY_COMMAND": str(command)}
    ran = subprocess.run(words, cwd=folder, env=env | inputs, capture_output=True, text=True, timeout=60)
    return ran.returncode, (ran.stdout + ran.stderr).splitlines()


def test_frameworks_of_the_action_are_no_flags(tmp_path):
    code, said = run_action(tmp_path, GPUREADY_FRAMEWORKS="transformers --run-python")
    assert code == 2 and "--run-python" in said[0] and not (tmp_path / "started").exists()


def test_what_a_container_file_says_is_no_command_for_the_runner(tmp_path):
    (tmp_path / "Dockerfile").write_text(
        "FROM python:3.12\nRUN pip install torch==2.8.0 ::error::forged ::add-mask::x\n"
    )
    _, said = run_action(tmp_path, GPUREADY_FRAMEWORKS="transformers", GPUREADY_DOCKERFILE="Dockerfile")
    stopped = next(line for line in said if line.startswith("::stop-commands::"))
    token = stopped.removeprefix("::stop-commands::")
    forged = [at for at, line in enumerate(said) if "::error::" in line]
    assert (
        len(token) == 32 and forged and said.index(stopped) < min(forged) and max(forged) < said.index(f"::{token}::")
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("command", ["prove", "bench", "fix"])
def test_no_environment_of_another_user_is_started_unless_it_is_named(tmp_path, command):
    python, site = tmp_path / ".venv/bin/python", tmp_path / ".venv/lib/python3.11/site-packages"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    python.chmod(0o755)
    (tmp_path / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    for name, version in (("torch", "2.8.0"), ("transformers", "5.0")):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("")
        (site / f"{name}-{version}.dist-info").mkdir()
        (site / f"{name}-{version}.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    for path in (tmp_path / ".venv", *(tmp_path / ".venv").rglob("*")):
        os.chown(path, 65534, 65534)
    words = {
        "prove": ["prove", "transformers"],
        "bench": ["bench"],
        "fix": ["fix", "transformers", "--yes", "--offline"],
    }
    ran = gpuready(*words[command], cwd=tmp_path, HOME=str(tmp_path))
    assert ran.code == 2 and "belongs to another user" in ran.err and not (tmp_path / "started").exists(), ran
