"""The locks of the development environment: whole, hashed, of no particular registry; and nothing in CI without a pin."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCKS = {"core": (), "action": (), "test": ("test",)}
"""A lock, and the extras of gpuready that it holds besides what gpuready always needs."""
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def rows(name: str) -> dict[Requirement, list[str]]:
    """Every locked requirement with its hashes."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    split = (line.split("--hash=") for line in lines)
    return {Requirement(words[0].strip()): [one.strip() for one in words[1:]] for words in split}


def here(python: str, machine: str) -> dict[str, str]:
    return {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }


def wanted(extras: tuple[str, ...]) -> list[Requirement]:
    try:
        import tomllib
    except ModuleNotFoundError:
        import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return [Requirement(line) for one in lists for line in one]


@pytest.mark.parametrize("name", LOCKS)
def test_every_row_is_one_version_with_its_hashes(name):
    found = rows(name)
    assert found
    for requirement, hashes in found.items():
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)) and requirement.url is None, requirement
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), requirement


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_registry(name):
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text and "index-url" not in text and "find-links" not in text


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_what_pyproject_asks_for(name, python, machine):
    """Who adds a requirement locks it too: make lock."""
    place = here(python, machine)
    locked = {r.name: r for r in rows(name) if r.marker is None or r.marker.evaluate(place)}
    for one in wanted(LOCKS[name]):
        if one.marker is None or one.marker.evaluate(place):
            assert one.name in locked, f"{one.name} is not in requirements/{name}.txt: make lock"
            version = str(locked[one.name].specifier).removeprefix("==")
            assert one.specifier.contains(Version(version)), f"{one} is not met by {version}: make lock"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
def test_no_package_is_locked_twice_for_one_place(python, machine):
    place = here(python, machine)
    for name in LOCKS:
        names = [r.name for r in rows(name) if r.marker is None or r.marker.evaluate(place)]
        assert len(names) == len(set(names))


def test_the_core_lock_is_part_of_the_others():
    core, action, tested = ({str(requirement) for requirement in rows(name)} for name in ("core", "action", "test"))
    assert core <= action <= tested
    assert {"hatchling", "pathspec", "pluggy", "trove-classifiers"} <= {r.name for r in rows("action")}  # it builds us


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_takes_every_action_by_its_commit(path):
    used = re.findall(r"uses:\s*(\S+)", path.read_text())
    assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in used), used


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_keeps_no_credentials(path):
    text = path.read_text()
    assert re.search(r"^permissions:\n  contents: read\n(?! )", text, re.M)
    # Which jobs of these may write: below.
    writes = path.name in ("release.yml", "refresh.yml")
    assert (text.count("permissions:") == 1 and ": write" not in text) or writes
    assert ("contents: write" not in text or path.name == "refresh.yml") and "secrets." not in text
    assert text.count("persist-credentials: false") == text.count("actions/checkout@")
    assert "pull_request_target" not in text


def test_what_signs_a_release_runs_no_code_of_the_project():
    import yaml

    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    writers = {name for name, job in jobs.items() if "write" in (job.get("permissions") or {}).values()}
    assert writers == {"attest", "publish"} and "permissions" not in jobs["build"]
    for name in writers:
        steps = jobs[name]["steps"]
        assert not any("checkout" in step.get("uses", "") for step in steps)
        assert [step["run"] for step in steps if "run" in step] in ([], ["rm dist/SHA256SUMS dist/sbom.cdx.json"])
    assert any("GITHUB_REF_NAME#v" in step.get("run", "") for step in jobs["build"]["steps"])


def test_a_refresh_writes_only_where_nothing_of_it_runs():
    """The job that reads the index may not write; the one that pushes runs git and gh, and applies tables only."""
    import yaml

    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "refresh.yml").read_text())["jobs"]
    assert "permissions" not in jobs["read"]
    assert jobs["propose"]["permissions"] == {"contents": "write", "pull-requests": "write"}
    lines = [line.split() for step in jobs["propose"]["steps"] for line in step.get("run", "").splitlines()]
    assert {words[0] for words in lines} == {"day=$(date", "git", "gh"}
    assert ["git", "apply", "--include='src/gpuready/catalog/*.toml'", '"$PARTS/refresh.patch"'] in lines


def test_ci_is_the_locked_test_command():
    text = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"^make test\b", text, re.M) and "pip install" not in text
    assert "tools/development.sh" in (ROOT / "Makefile").read_text()


def _installed(tmp_path: Path, pip: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The script with a pip that does as it is told, and notes what it was asked."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{pip}\n')
    python.chmod(0o755)
    script = ["sh", str(ROOT / "tools" / "development.sh"), str(python), *words]
    return subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=120)


def _asked(tmp_path: Path) -> str:
    return (tmp_path / "asked").read_text()


LACKING = 'case "$*" in *hashes*) echo "ERROR: No matching distribution found" >&2; exit 1;; esac'
FALSE = 'case "$*" in *hashes*) echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM" >&2; exit 1;; esac'


def test_the_lock_is_installed_by_its_hashes(tmp_path):
    """pip brings the locked uv and no more, from the index that pip was told of; uv does the rest."""
    done = _installed(tmp_path, 'case "$*" in *config*) echo https://index.example/simple;; esac', "")
    assert done.returncode == 0 and "installed by the lock" in done.stdout
    first, _, second, third = _asked(tmp_path).splitlines()
    assert "--require-hashes -r" in first and first.endswith("uv.txt")
    assert second.startswith("-m uv pip") and second.endswith("--require-hashes -r requirements/test.txt")
    assert third.startswith("-m uv pip") and "--no-deps" in third


def test_where_uv_cannot_pip_installs_the_lock_by_its_hashes(tmp_path):
    done = _installed(tmp_path, 'case "$*" in *"-m uv"*) exit 2;; esac', "only")
    assert done.returncode == 0 and "installed by the lock" in done.stdout
    last, ours = _asked(tmp_path).splitlines()[-2:]
    assert last.startswith("-m pip") and last.endswith("--require-hashes -r requirements/test.txt")
    assert ours.startswith("-m pip") and "--no-deps" in ours


def test_where_a_version_cannot_be_had_it_goes_on_and_says_so(tmp_path):
    done = _installed(tmp_path, LACKING, "")
    assert done.returncode == 0 and "NOT LOCKED" in done.stderr and "No matching" in done.stderr
    assert _asked(tmp_path).splitlines()[-1].endswith("-e .[test]")


def test_only_the_lock_will_do_where_that_is_asked(tmp_path):
    assert _installed(tmp_path, LACKING, "only").returncode == 1
    assert ".[test" not in _asked(tmp_path)


@pytest.mark.parametrize("how", ["", "only"])
def test_a_file_that_is_not_the_locked_one_is_never_passed_over(tmp_path, how):
    done = _installed(tmp_path, FALSE, how)
    assert done.returncode == 1 and "STOPPED" in done.stderr and ".[test" not in _asked(tmp_path)


def test_without_the_lock_by_request(tmp_path):
    assert _installed(tmp_path, FALSE, "no").returncode == 0 and "hashes" not in _asked(tmp_path)
