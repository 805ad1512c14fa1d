"""The machine itself: the environment, its name, its limits, and what importing the door costs."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time

import pytest

import gpuready.system
from gpuready.system import AccessError, LiveHost
from tests.deadlines import fastest


@pytest.fixture
def host():
    return LiveHost()


# -- the environment


def test_a_variable(host, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/usr/local/cuda")
    monkeypatch.delenv("NOT_SET", raising=False)
    monkeypatch.setenv("EMPTY", "")
    assert host.get_env_var("CUDA_HOME") == "/usr/local/cuda"
    assert host.get_env_var("NOT_SET") is None
    assert host.get_env_var("EMPTY") == ""


def test_no_variable_gives_its_secret_away(host, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz")
    monkeypatch.setenv("https_proxy", "http://me:hunter2@proxy:3128")
    assert host.get_env_var("HF_TOKEN") == "[redacted]"
    assert host.get_env_var("https_proxy") == "http://me:[redacted]@proxy:3128"
    assert host.get_environment()["HF_TOKEN"] == "[redacted]"


def test_bytes_that_are_not_text_are_escaped(monkeypatch):
    monkeypatch.setitem(os.environ, "ODD\udcff", "caf\udce9 é")
    found = LiveHost().get_environment()
    assert found["ODD\\xff"] == "caf\\xe9 é"
    "".join(found.values()).encode()  # nothing of it is unprintable


def test_ten_thousand_variables(tmp_path):
    env = {f"VARIABLE_{i}": f"/some/path/{i}:value" for i in range(10_000)} | {"MY_PASSWORD": "x y z"}
    found = LiveHost(environ=env).get_environment()
    assert len(found) == 10_001
    assert found["MY_PASSWORD"] == "[redacted]"
    tenth = dict(list(env.items())[:1000])
    one, ten = (
        fastest(lambda e=e: LiveHost(environ=e).get_environment(), clock=time.process_time) for e in (tenth, env)
    )
    assert ten < 40 * one, "a hundred times where it is quadratic"


CROWD = """
from gpuready.system import LiveHost
found = LiveHost().get_environment()
print(len(found), LiveHost().run(["sh", "-c", "echo fine"]).out.strip())
"""


def test_a_real_process_with_ten_thousand_variables_and_invalid_bytes():
    env = {f"V{i}".encode(): b"x" * 20 for i in range(10_000)}
    env |= {b"BAD\xff": b"\xfe", b"PATH": os.environb[b"PATH"], b"PYTHONPATH": os.pathsep.join(sys.path).encode()}
    done = subprocess.run([sys.executable, "-c", CROWD], env=env, capture_output=True, text=True)
    assert done.stdout.split()[1:] == ["fine"], done.stderr
    assert int(done.stdout.split()[0]) >= 10_003


# -- the machine


def test_uname(host):
    found = host.get_uname()
    assert found["machine"] == platform.machine()
    assert found["release"] == platform.release()
    assert set(found) == {"system", "release", "version", "machine", "node"}


def test_hostname(host, monkeypatch):
    monkeypatch.delenv("GPUREADY_HOSTNAME", raising=False)
    assert host.get_hostname() == os.uname().nodename
    monkeypatch.setenv("GPUREADY_HOSTNAME", "gpu-07")
    assert host.get_hostname() == "gpu-07"


def test_limits(host):
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    found = host.get_resource_limits()
    assert set(found) == {"nofile", "memlock", "nproc", "stack"}
    assert found["nofile"] == soft
    assert all(value == -1 or value >= 0 for value in found.values())
    code = "from gpuready.system import LiveHost; print(LiveHost().get_resource_limits()['stack'])"
    done = subprocess.run(
        ["sh", "-c", 'ulimit -S -s 1024; exec "$0" -c "$1"', sys.executable, code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "1048576\n", done.stderr


def test_the_processors_that_we_may_use(host):
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert host.count_cpus() == {"online": os.cpu_count(), "usable": 1}
    finally:
        os.sched_setaffinity(0, before)


def test_libc(host, monkeypatch):
    name, version = platform.libc_ver()
    if name == "glibc":
        assert host.get_glibc_version() == version
    monkeypatch.setattr(os, "confstr", lambda _: None)
    assert host.get_glibc_version() is None

    def refuse(_):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", refuse)
    assert host.get_glibc_version() is None


def test_the_user(tmp_path, host):
    assert host.get_user()["uid"] == os.geteuid()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(f"damaged\nsomebody:x:{os.geteuid()}:1::/:/bin/sh\n")
    assert LiveHost(root=str(tmp_path)).get_user() == {"uid": os.geteuid(), "name": "somebody"}


def test_a_user_whom_nobody_knows(tmp_path, as_nobody):
    assert LiveHost(root=str(tmp_path)).get_user() == {"uid": os.geteuid(), "name": None}
    found = as_nobody(lambda: LiveHost().get_user())
    assert isinstance(found["uid"], int)


def test_a_folder_that_was_removed_under_us(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    assert LiveHost().get_cwd() == str(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(AccessError, match="no such file"):
        LiveHost().get_cwd()


def test_the_interpreter(host):
    assert host.get_interpreter() == {
        "executable": sys.executable,
        "prefix": sys.prefix,
        "version": ".".join(map(str, sys.version_info[:3])),
        "role": "library",
    }


def test_the_clock_never_goes_back(host):
    assert host.get_monotonic_time() <= host.get_monotonic_time()


def test_an_unknown_question(host):
    with pytest.raises(AttributeError):
        host.answer_query("no_such_verb")


# -- the price of the door


def fresh(code):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return done.stdout


def test_nothing_heavy_is_imported():
    code = (
        "import sys; before = set(sys.modules)\n"
        "from gpuready.system import AccessError, HostAccess, LiveHost, RunResult, RecordingHost, ReplayHost, redact_text, run_probes\n"
        "from gpuready.model import Fact\n"
        "LiveHost().run(['true']); LiveHost().get_environment(); LiveHost().find_library('libcuda.so.1')\n"
        "run_probes(RecordingHost(LiveHost()), [('a', lambda d: [Fact('a', d.read_text('/proc/version'))], ('a',), 5)])\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    heavy = {
        "dataclasses",
        "subprocess",
        "pathlib",
        "packaging",
        "threading",
        "logging",
        "inspect",
        "importlib.metadata",
        "tempfile",
    }
    heavy |= {"shutil", "tomllib", "asyncio", "ctypes"}
    loaded = set(fresh(code).split())
    assert loaded and not loaded & heavy


def test_the_names_are_there_and_no_others():
    for name in gpuready.system.__all__:
        assert getattr(gpuready.system, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        gpuready.system.nonsense  # noqa: B018


def test_the_function_is_not_hidden_by_its_module():
    code = "import gpuready.system.recording; from gpuready.system import redact_text; print(redact_text('plain'))"
    assert fresh(code) == "plain\n"
