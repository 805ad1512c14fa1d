"""From the built wheel, beside environments of the user as each tool lays them out: which one is examined?

uv, uvx and `uv tool` are real, pipx in ``make faults``; conda and pixi are laid out as they document it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.running import QUIET

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv", path=sysconfig.get_path("scripts")) or "uv"
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
MARK = "4.57.1"
"""The version of transformers in the environment of the user; gpuready's own has none."""


class Examined(NamedTuple):
    prefix: str | None
    chosen_by: str | None
    transformers: str | None
    verdict: str
    names: set[str]


@pytest.fixture
def home(tmp_path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    return folder


def variables(home: Path, **more: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(("SSL_", "UV_INDEX", "UV_DEFAULT", "PIP_"))
    }
    return {
        **kept,
        **QUIET,
        "HOME": str(home),
        "UV_CACHE_DIR": str(home / ".cache/uv"),
        "UV_PYTHON": sys.executable,
        **more,
    }


def examine(words: list[str], home: Path, folder: Path, *, flags: Sequence[str] = (), **more: str) -> Examined:
    ran = subprocess.run(
        [*words, "check", "transformers", "--json", *flags],
        cwd=folder,
        env=variables(home, **more),
        capture_output=True,
        text=True,
    )
    assert ran.returncode in (0, 1, 3), ran.stderr
    report = json.loads(ran.stdout)
    facts = {fact["key"]: fact["value"] for fact in report["facts"] if not fact["gap"]}
    found = (facts.get(key) for key in ("python.prefix", "python.chosen_by", "package.transformers"))
    return Examined(*found, report["verdict"], {key for key in facts if key.startswith("package.")})


def make_venv(folder: Path, version: str = MARK) -> Path:
    subprocess.run(
        [UV, "venv", "-q", "--python", sys.executable, str(folder)], check=True, env=variables(folder.parent)
    )
    return mark(folder, version)


def mark(prefix: Path, version: str = MARK) -> Path:
    metadata = prefix / "lib" / f"python{MINOR}" / "site-packages" / f"transformers-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: transformers\nVersion: {version}\n\n")
    return prefix


def make_conda(prefix: Path) -> Path:
    for name in (f"conda-meta/python-{MINOR}.4-h955ad1f_1.json", "conda-meta/history", "bin/python"):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).write_text("{}")
    return mark(prefix)


@pytest.fixture(scope="session")
def bare(release, tmp_path_factory) -> list[str]:
    """The wheel alone in an environment of its own."""
    folder = tmp_path_factory.mktemp("bare") / "gpuready"
    env = variables(folder.parent)
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, str(folder)], check=True, env=env)
    install = [UV, "pip", "install", "-q", "--no-deps", "--offline", "--python", str(folder), str(release.wheel)]
    subprocess.run(install, check=True, env=env)
    return [str(folder / "bin" / "gpuready")]


def assert_users(found: Examined, prefix: Path, chosen_by: str) -> None:
    assert (found.prefix, found.chosen_by, found.transformers) == (str(prefix), chosen_by, MARK)
    assert not found.names & {"package.gpuready", "package.jinja2"}, "that is gpuready's own"


# -- how gpuready is started: its own environment is never the answer -----------------------------------


def needs_index(words: list[str], home: Path, **more: str) -> subprocess.CompletedProcess:
    ran = subprocess.run(words, env=variables(home, **more), capture_output=True, text=True, cwd=home)
    if ran.returncode:
        pytest.skip(f"NO INDEX: {ran.stderr.strip()[-200:]}")
    return ran


@pytest.fixture(scope="session")
def wheels(release, tmp_path_factory) -> dict[str, str]:
    """Variables with which uv finds gpuready's dependencies: the cache of this user, else an index."""
    ran = subprocess.run([UV, "cache", "dir"], capture_output=True, text=True)
    return {"UV_CACHE_DIR": ran.stdout.strip()}


def test_uvx_beside_an_active_environment(release, wheels, home, project):
    words = [UV, "tool", "run", "--from", str(release.wheel), "gpuready"]
    needs_index([*words, "--version"], home, **wheels)
    active = make_venv(project / "train")
    assert_users(examine(words, home, project, VIRTUAL_ENV=str(active), **wheels), active, "active venv")
    path = programs(home)
    found = examine(words, home, project, **wheels, PATH=f"{path}:{active}/bin")
    assert_users(found, active, "python3 on PATH")
    none = examine(words, home, project, **wheels, PATH=path)
    assert none.prefix is None and none.verdict in ("undecided", "not-ready")


def programs(home: Path) -> str:
    """A folder for PATH with what uv's scripts call, and no Python."""
    folder = home / "programs"
    folder.mkdir()
    for name in ("dirname", "realpath", "sh"):
        (folder / name).symlink_to(shutil.which(name))
    return str(folder)


def test_uv_tool_install(release, wheels, home, project):
    folders = {"UV_TOOL_DIR": str(home / "tools"), "UV_TOOL_BIN_DIR": str(home / "bin")}
    needs_index([UV, "tool", "install", "-q", str(release.wheel)], home, **wheels, **folders)
    here = make_venv(project / ".venv")
    path = f"{home}/tools/gpuready/bin:/usr/bin"
    assert_users(examine([f"{home}/bin/gpuready"], home, project, PATH=path), here, "./.venv")
    other = make_venv(home / "other")
    assert_users(
        examine([f"{home}/bin/gpuready"], home, home, PATH=f"{home}/tools/gpuready/bin:{other}/bin"),
        other,
        "python3 on PATH",
    )


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.faults)], ids=["documented", "pipx"])
def test_pipx(release, bare, wheels, home, project, real):
    """The folder and the metadata file that pipx documents; pipx itself, where it can be had, in ``make faults``."""
    own = home / ".local/share/pipx/venvs/gpuready"
    if not (real and install_by_pipx(release, wheels, home)):
        shutil.copytree(Path(bare[0]).parents[1], own, symlinks=True)
        (own / "pipx_metadata.json").write_text("{}")
        script = own / "bin/gpuready"
        script.write_text(f"#!{own}/bin/python\n" + script.read_text().partition("\n")[2])
    assert (own / "pipx_metadata.json").exists()
    other = make_venv(project / "other")
    found = examine([str(own / "bin/gpuready")], home, project, PATH=f"{own}/bin:{other}/bin")
    assert_users(found, other, "python3 on PATH")


def install_by_pipx(release, wheels, home: Path) -> bool:
    tool = home / "pipx"
    words = [UV, "pip", "install", "-q", "--python", str(tool), "pipx"]
    if subprocess.run([UV, "venv", "-q", str(tool)], env=variables(home)).returncode:
        return False
    if subprocess.run(words, env=variables(home, **wheels)).returncode:
        return False
    env = variables(home, **wheels, PATH=f"{Path(UV).parent}:/usr/bin:/bin")
    words = [str(tool / "bin/pipx"), "install", "--backend", "uv", str(release.wheel)]
    return not subprocess.run(words, env=env, capture_output=True).returncode


def test_uv_run_with_gpuready(release, wheels, home, project):
    (project / "pyproject.toml").write_text('[project]\nname = "app"\nversion = "1"\n')
    words = [UV, "run", "-q", "--no-sync", "--with", str(release.wheel), "gpuready"]
    here = make_venv(project / ".venv")
    needs_index([*words, "--version"], home, **wheels)
    assert_users(examine(words, home, project, **wheels), here, "active venv")


def test_a_bare_environment_first_on_the_path(bare, home, project):
    own, other = Path(bare[0]).parent, make_venv(project / "other")
    assert_users(examine(bare, home, project, PATH=f"{own}:{other}/bin"), other, "python3 on PATH")
    none = examine(bare, home, project, PATH=str(own))
    assert none.prefix is None and none.transformers is None and none.verdict in ("undecided", "not-ready")


def test_an_activated_environment_is_the_users_though_gpuready_is_in_it(bare, home, project):
    found = examine(bare, home, project, VIRTUAL_ENV=str(Path(bare[0]).parents[1]))
    assert (found.prefix, found.chosen_by) == (str(Path(bare[0]).parents[1]), "active venv")


def test_make_check_does_not_examine_the_checkout_s_own(home, project):
    other = make_venv(project / "other")
    words = [sys.executable, "-c", "from gpuready.cli import main; main()"]
    found = examine(words, home, ROOT, PATH=f"{other}/bin", PYTHONPATH=str(ROOT / "src"))
    assert_users(found, other, "python3 on PATH")


def test_the_action_examines_the_environment_of_the_job(bare, home, project):
    other, named = make_venv(project / "other"), make_venv(project / "named", "4.56.0")
    settings = {"GPUREADY_COMMAND": bare[0], "RUNNER_TEMP": str(home), "GPUREADY_FRAMEWORKS": "transformers"}
    path = f"{other}/bin:/usr/bin:/bin"
    for python, expected in (("", MARK), (str(named), "4.56.0")):
        env = variables(home, **settings, GPUREADY_PYTHON=python, PATH=path)
        ran = subprocess.run(["bash", ROOT / "scripts/action.sh"], cwd=project, env=env, capture_output=True, text=True)
        assert f"transformers {expected}" in ran.stdout


# -- what the user has ----------------------------------------------------------------------------------


def test_uv_project(bare, home, project):
    (project / "pyproject.toml").write_text('[project]\nname = "app"\nversion = "1"\n')
    sync = [UV, "sync", "-q", "--offline", "--python", sys.executable]
    subprocess.run(sync, cwd=project, env=variables(home), check=True)
    here = mark(project / ".venv")
    assert_users(examine(bare, home, project), here, "./.venv")
    elsewhere = {"UV_PROJECT_ENVIRONMENT": str(home / "envs/app")}
    subprocess.run(sync, cwd=project, env=variables(home, **elsewhere), check=True)
    there = mark(home / "envs/app")
    assert_users(examine(bare, home, project, **elsewhere), there, "uv project")


def test_pixi_project(bare, home, project):
    (project / "pixi.toml").write_text('[workspace]\nname = "app"\n')
    where = make_conda(project / ".pixi/envs/default")
    assert_users(examine(bare, home, project), where, "pixi project")


def test_conda(bare, home, project):
    active = make_conda(home / "miniforge3/envs/train")
    make_venv(project / ".venv")
    found = examine(bare, home, project, CONDA_PREFIX=str(active), CONDA_DEFAULT_ENV="train")
    assert_users(found, active, "active conda environment")


def test_system_python(bare, home, project):
    """The Python of the system is examined as it is; nothing of gpuready's own environment is in it."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no system Python")
    found = examine(bare, home, project)
    assert found.chosen_by == "python3 on PATH" and found.prefix == str(Path(python).resolve().parents[1])
    assert "package.gpuready" not in found.names


def test_one_that_is_named(bare, home, project):
    named, other = make_venv(home / "named"), make_venv(project / ".venv")
    found = examine(bare, home, project, flags=["--python", str(named)], VIRTUAL_ENV=str(other))
    assert_users(found, named, "--python")
