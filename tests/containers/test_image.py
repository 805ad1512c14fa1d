"""``gpuready check --image`` in a real container: podman starts an image that is made here, of this Python and its libraries."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running import Run, gpuready

NAME = "localhost/gpuready-image-test"
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
LEFT_OUT = ("test", "__pycache__", "idlelib", "tkinter", "ensurepip", "lib2to3", "site-packages", "turtledemo")
GUARD = """
import os, sys
caps = [line for line in open("/proc/self/status") if line.startswith("CapEff")]
if os.listdir("/sys/class/net") != ["lo"] or int(caps[0].split()[1], 16):
    print("NOT ISOLATED")
try:
    open("/written", "w")
    print("NOT READ-ONLY")
except OSError:
    pass
"""
"""Runs in the image before gpuready does; what it prints breaks the answer."""

# Where the machine is itself a sandbox, podman may not raise limits, and crun does not start on hybrid control groups.
CONTAINERS_CONF = (
    '[engine]\nruntime = "runc"\n[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
)
STORAGE_CONF = '[storage]\ndriver = "vfs"\ngraphroot = "{0}/storage"\nrunroot = "{0}/run"\n'

Podman = Callable[..., "subprocess.CompletedProcess[str]"]


def fill(root: Path) -> None:
    """The files of an image: this Python with its library, what both are linked with, and packages that are only declared."""
    library = Path(sys.base_prefix) / "lib" / f"python{MINOR}"
    program = Path(sys.base_prefix) / "bin" / f"python{MINOR}"
    inside = root / str(library).lstrip("/")
    shutil.copytree(library, inside, ignore=shutil.ignore_patterns(*LEFT_OUT, "config-*", "*.a"), symlinks=True)
    linked = subprocess.run(["ldd", program, *inside.rglob("*.so")], capture_output=True, text=True, check=False).stdout
    for path in {program, *map(Path, re.findall(r"(/\S+\.so[.\d]*) \(", linked))}:
        target = root / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/python3").symlink_to(program)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/os-release").write_text('ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Made for a test"\n')
    for name, version in (("torch", "2.6.0"), ("transformers", "5.5.0")):
        metadata = inside / "site-packages" / f"{name}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (inside / "site-packages" / "sitecustomize.py").write_text(GUARD)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables that give podman a store of its own."""
    if not shutil.which("podman"):
        pytest.skip("there is no podman here: as root, apt-get install podman runc")
    folder = tmp_path_factory.mktemp("podman")
    (folder / "containers.conf").write_text(CONTAINERS_CONF if shutil.which("runc") else "")
    (folder / "storage.conf").write_text(STORAGE_CONF.format(folder))
    names = {"CONTAINERS_CONF": "containers.conf", "CONTAINERS_STORAGE_CONF": "storage.conf"}
    return {name: str(folder / file) for name, file in names.items()}


@pytest.fixture(scope="module")
def podman(settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Podman:
    """podman, with an image that has a Python and one that has none."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **settings}
        return subprocess.run(["podman", *words], env=env, capture_output=True, text=True, check=False)

    folder = tmp_path_factory.mktemp("image")
    fill(folder / "root")
    for name, members in (("full", [folder / "root"]), ("bare", [folder / "root" / "etc"])):
        with tarfile.open(folder / f"{name}.tar", "w") as archive:
            for member in members:
                archive.add(member, "." if name == "full" else "etc")
        made = run(
            "import",
            "--change=ENV PATH=/usr/bin",
            "--change=ENV NVIDIA_REQUIRE_CUDA=cuda>=12.4",
            folder / f"{name}.tar",
            f"{NAME}:{name}",
        )
        assert made.returncode == 0, made.stderr
    tried = run("run", "--rm", "--pull=never", "--network=none", f"{NAME}:full", "python3", "-S", "-c", "print(6 * 7)")
    if tried.stdout != "42\n":
        pytest.skip(f"podman cannot start a container here: {tried.stderr.strip()[-300:]}")
    return run


def check(settings: dict[str, str], *words: str) -> Run:
    return gpuready("check", "transformers", *words, timeout=120, **settings)


def test_the_check_runs_inside_the_image(podman: Podman, settings: dict[str, str]) -> None:
    ran = check(settings, "--image", f"{NAME}:full", "--on", "rtx5090", "--driver", "580.95.05", "--json")
    report = json.loads(ran.out)
    facts = {fact["key"]: fact for fact in report["facts"]}
    assert facts["package.torch"]["value"] == "2.6.0" and facts["package.transformers"]["value"] == "5.5.0"
    assert facts["os.pretty"]["value"] == "Made for a test" and facts["container.cuda"]["value"] == "12.4"
    assert facts["python.version"]["value"].startswith(MINOR) and facts["python.version"]["how"] != "stated"
    assert facts["driver.version"]["value"] == "580.95.05" and facts["gpu.count"]["value"] == 1
    assert "net.interfaces" not in facts and "system.shm" not in facts  # those of the container that looked
    assert report["host"] == f"{NAME}:full on rtx5090"
    assert podman("ps", "--all", "--quiet").stdout == ""


def test_an_image_without_python_is_refused_in_a_sentence(podman: Podman, settings: dict[str, str]) -> None:
    ran = check(settings, "--image", f"{NAME}:bare")
    assert (
        ran.code == 2
        and ran.err == f"gpuready: gpuready could not run inside {NAME}:bare: it has no python3 on its PATH\n"
    )


def test_an_image_that_is_not_here_is_not_pulled(podman: Podman, settings: dict[str, str]) -> None:
    ran = check(settings, "--image", "localhost/nobody:1")
    assert ran.code == 2 and ran.err.count("\n") == 1 and "podman pull localhost/nobody:1" in ran.err


def test_no_engine_is_a_sentence(tmp_path: Path) -> None:
    ran = gpuready("check", "--image", "x", PATH=str(tmp_path))
    assert ran.code == 2 and ran.err == "gpuready: --image needs podman or docker, and neither is on PATH\n"


def test_an_engine_that_does_not_answer_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\necho Cannot connect to the Docker daemon >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    ran = gpuready("check", "--image", "x", PATH=str(tmp_path))
    assert ran.code == 2 and "docker does not answer: Cannot connect to the Docker daemon" in ran.err


def test_an_image_and_a_file_are_not_judged_together(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:3.12\n")
    ran = gpuready("check", "--image", "x", "--dockerfile", "Dockerfile", cwd=tmp_path)
    assert ran.code == 2 and "cannot be combined" in ran.err
