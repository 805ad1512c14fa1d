"""What the tests of the door share: fake machines, a fake NVML, and a watch for what is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuready.system import LiveHost
from tests import forks
from tests.deadlines import GENEROUS_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent


def children() -> set[int]:
    """The processes whose parent we are, zombies included."""
    try:
        lists = [Path(f"/proc/self/task/{task}/children").read_text() for task in os.listdir("/proc/self/task")]
        return {int(pid) for pids in lists for pid in pids.split()}
    except OSError:  # a kernel without that list
        return _search()


def _search() -> set[int]:
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                found.add(int(name))
    return found


def _alive(marker: str, patience: float = GENEROUS_S) -> list[int]:
    until = time.monotonic() + patience  # killed is not yet gone on a busy machine: a signal takes until the next turn
    while (found := _running(marker)) and time.monotonic() < until:
        time.sleep(0.01)
    return found


def _running(marker: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                arguments = Path(f"/proc/{name}/cmdline").read_bytes()
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker.encode() in arguments and state != "Z":
                found.append(int(name))
    return found


@pytest.fixture
def alive() -> Callable[..., list[int]]:
    """The processes that have a text among their arguments, of our own family or not."""
    return _alive


@pytest.fixture(autouse=True, scope="session")
def command_server() -> None:
    """The process that runs commands is there before the first test: no test has left it behind."""
    forks.start_server("", os.getpid())


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test may leave a child process or an open file behind; its threads are waited for, since the next test may fork."""
    before, files = children(), set(os.listdir("/proc/self/fd"))
    threads = len(os.listdir("/proc/self/task"))
    yield
    monkeypatch.undo()
    until = time.monotonic() + GENEROUS_S
    while children() - before and time.monotonic() < until:
        time.sleep(0.01)
    while len(os.listdir("/proc/self/task")) > threads and time.monotonic() < until:
        time.sleep(0.01)
    assert children() - before == set()
    assert len(os.listdir("/proc/self/fd")) <= len(files)


@pytest.fixture(scope="session")
def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not found:
        pytest.skip("NO C COMPILER: the fake NVML cannot be built, so nothing of NVML is tested here")
    return found


@pytest.fixture(scope="session")
def fake_nvml(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library that answers as NVML does, well or ill (see fake_nvml.c)."""
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = HERE / "fake_nvml.c"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wno-unused-result"]
    subprocess.run([compiler, *flags, "-o", library, source], check=True, capture_output=True)
    return library


@pytest.fixture
def as_nobody(tmp_path: Path) -> Callable[[Callable[[], Any]], Any]:
    """Call a function as a user without rights: root, who may do anything, becomes nobody for it."""

    def call(function: Callable[[], Any]) -> Any:
        if os.geteuid() != 0:
            return function()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setgid(65534)
                os.setuid(65534)
                said = repr(function())
            except BaseException as error:
                said = repr(f"raised {error!r}")
            os.write(write, said.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            said = pipe.read().decode()
        os.waitpid(pid, 0)
        return eval(said)

    return call


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, which those of pytest are not."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="gpuready-test-"))
    folder.chmod(0o755)
    yield folder
    subprocess.run(["chmod", "-R", "u+rwx", str(folder)], check=False)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Write an executable script and give its path."""

    def write(body: str, name: str = "program", interpreter: str = "/bin/sh") -> str:
        path = tmp_path / name
        path.write_text(f"#!{interpreter}\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def a_thread():
    """Another thread beside ours, so that a fork would not be safe."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.fixture
def live() -> LiveHost:
    return LiveHost()
