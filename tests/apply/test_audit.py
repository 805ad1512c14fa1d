"""Verify: every way in which an environment can be other than it was published is found."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest

from gpuready.apply.audit import describe_generation, parse_record_rows
from gpuready.system.file_contents import hash_as_recorded
from gpuready.system.imports.distributions import LARGE_FILE
from tests.apply.wheels import lock, wheel


def faults(bench) -> list[tuple[str, str]]:
    ran = bench.run("install", "--verify", "-e", str(bench.home), "--json")
    found = json.loads(ran.out)
    assert ran.code == (1 if found["faults"] else 0) and found["verdict"] == (
        "damaged" if found["faults"] else "intact"
    )
    return [(fault["kind"], fault["path"].rpartition("/")[2]) for fault in found["faults"]]


def test_a_new_one_is_intact_and_stays_so_when_used(standing):
    assert standing.version() == "1.0"
    subprocess.run([standing.home / "bin/python", "-m", "compileall", "-q", standing.site()], check=True)
    assert faults(standing) == []


def test_f15_every_missing_file_is_found(standing):
    gone = sorted(standing.site().glob("alpha/part*.py"))[::2]
    for path in gone:
        path.unlink()
    assert sorted(faults(standing)) == sorted(("missing", path.name) for path in gone)
    page = standing.run("install", "--verify", "-e", str(standing.home))
    assert page.code == 1 and "damaged: files are missing or changed" in page.out and "part0.py" in page.out


def test_f15_a_whole_package_is_gone(standing):
    shutil.rmtree(standing.site() / "beta")
    shutil.rmtree(standing.site() / "beta-1.0.dist-info")
    assert faults(standing) == [("drift", "beta")]


def test_d33_a_record_is_gone_or_cut(standing):
    record = standing.site() / "alpha-1.0.dist-info" / "RECORD"
    rows = record.read_text().splitlines(keepends=True)
    record.unlink()
    record.write_text("".join(rows[: len(rows) // 2]))
    kinds = {kind for kind, _ in faults(standing)}
    assert kinds == {"drift", "extra"}
    record.unlink()
    assert ("missing", "RECORD") in faults(standing)


@pytest.mark.parametrize("edit", ["flip", "cut", "longer"])
def test_changed_contents_whatever_the_times_say(standing, edit):
    path = standing.site() / "alpha" / "part3.py"
    data, was = path.read_bytes(), path.stat()
    path.unlink()
    path.write_bytes({"flip": b"Y" + data[1:], "cut": data[:-5], "longer": data + b"#"}[edit])
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert faults(standing) == [("changed", "part3.py")]


def test_check_deep_finds_what_verify_finds(standing):
    """Of the same size and time: only the contents tell, and one function compares them for both commands."""
    path = standing.site() / "alpha" / "part3.py"
    deep = ("check", "alpha", "--python", str(standing.home), "--deep", "--json")
    assert "part3.py" not in standing.run(*deep).out
    data, was = path.read_bytes(), path.stat()
    path.unlink()
    path.write_bytes(b"Y" + data[1:])
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert faults(standing) == [("changed", "part3.py")]
    findings = json.loads(standing.run(*deep).out)["findings"]
    assert "part3.py" in json.dumps(findings), [one["code"] for one in findings]


def test_f21_times_alone_mean_nothing(standing):
    for path in standing.site().rglob("*"):
        os.utime(path, (0, 0))
    assert faults(standing) == []


def test_f16_what_the_user_installed_besides_is_drift(standing):
    extra = wheel(standing.folder / "more", "gamma", "0.1")
    argv = [sys.executable, "-m", "uv", "pip", "install", "-p", standing.home, "--offline", extra]
    done = subprocess.run(argv, env=standing.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert faults(standing) == [("drift", "gamma")]


def test_f16_a_loose_file_is_extra(standing):
    (standing.site() / "sneaky.pth").write_text("import os\n")
    (standing.home / "bin" / "torchrun").write_text("#!/bin/sh\n")
    assert sorted(faults(standing)) == [("extra", "sneaky.pth"), ("extra", "torchrun")]


def test_f17_two_packages_bring_one_file(bench):
    twins = [
        wheel(bench.wheels, "alpha", "7.0", {"alpha/__init__.py": "", "cv9/__init__.py": "A = 1\n", "cv9/same.py": ""}),
        wheel(bench.wheels, "beta", "7.0", {"beta/__init__.py": "", "cv9/__init__.py": "A = 2\n", "cv9/same.py": ""}),
    ]
    bench.locks["7.0"] = lock(bench.folder / "7.0.lock", *twins)
    ran = json.loads(bench.install("7.0", "--json").out)
    assert ran["verdict"] == "installed" and "alpha and beta both bring it" in ran["notes"][0]
    assert faults(bench) == [], "as it was published: `install` and `check` find no fault either"


def test_f20_the_python_below_is_gone_or_another(standing):
    generation = (standing.home / "current").resolve()
    python = generation / "bin" / "python"
    other = standing.folder / "python3"
    shutil.copy(python, other)
    python.unlink()
    python.symlink_to("/nonexistent/python3")
    assert ("interpreter", "python") in faults(standing)
    python.unlink()
    python.symlink_to(other)
    assert faults(standing) == [("interpreter", "python")]


def test_a_link_into_a_cache_is_not_the_environments_own(standing):
    path = standing.site() / "alpha" / "part5.py"
    kept = standing.folder / "elsewhere.py"
    shutil.move(path, kept)
    path.symlink_to(kept)
    assert faults(standing) == [("outside", "part5.py")]


@pytest.mark.parametrize("usable", [1, 4])
def test_a_large_file_that_differs_is_found_beside_others(tmp_path, monkeypatch, usable):
    """Large files are hashed several at once where there is more than one processor."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(usable)), raising=False)
    site = tmp_path / "lib/python3.12/site-packages"
    (site / "big-1.dist-info").mkdir(parents=True)
    (site / "big-1.dist-info/METADATA").write_text("Name: big\n")
    names, rows = [f"part{number}.bin" for number in range(6)], []
    for number, name in enumerate(names):
        (site / name).write_bytes(bytes([number]) * (LARGE_FILE + number))
        rows.append(f"{name},sha256={hash_as_recorded(str(site / name))},{LARGE_FILE + number}\n")
    (site / "big-1.dist-info/RECORD").write_text("".join(rows))
    assert describe_generation(str(tmp_path))[1] == []
    data = bytearray((site / "part3.bin").read_bytes())
    data[-1] ^= 1
    (site / "part3.bin").write_bytes(data)
    (site / "part5.bin").unlink()
    found = {(fault.kind, fault.path.rpartition("/")[2]) for fault in describe_generation(str(tmp_path))[1]}
    assert found == {("changed", "part3.bin"), ("missing", "part5.bin")}


@pytest.mark.parametrize(
    "path", ["a/b.py", "../../../bin/x", "./a.py", "a/./b", "a//b", "a/../b", "a/..b/c", "a/.b", ".a", "..a/b", "a/b/"]
)
def test_paths_of_a_record_are_in_their_shortest_form(path):
    """Written otherwise, a wheel could bring one file under two names."""
    site = "lib/python3.12/site-packages"
    assert [row.path for row in parse_record_rows(f"{path},,", site, "x")] == [os.path.normpath(f"{site}/{path}")]
    assert [row.path for row in parse_record_rows(f"{path},,", "", "x")] == [os.path.normpath(path)]


def verdict(bench) -> dict:
    return json.loads(bench.run("install", "--verify", "-e", str(bench.home), "--json").out)


def plant(bench, path, text: str) -> None:
    """Change a file of a package with its RECORD and the manifest, so that the folder agrees with itself."""
    generation = (bench.home / "current").resolve()
    was, size = hash_as_recorded(str(path)), path.stat().st_size
    path.unlink()
    path.write_text(text)
    record = bench.site() / "alpha-1.0.dist-info" / "RECORD"
    before = hashlib.sha256(record.read_bytes()).hexdigest()
    rows = record.read_text().replace(f"{was},{size}", f"{hash_as_recorded(str(path))},{len(text)}")
    record.unlink()
    record.write_text(rows)
    manifest = generation / "gpuready.json"
    now = hashlib.sha256(record.read_bytes()).hexdigest()
    text = manifest.read_text().replace(before, now)
    manifest.unlink()
    manifest.write_text(text)


def test_a_folder_that_agrees_with_itself_proves_nothing(standing):
    """36.5: who changes a file, its RECORD and the manifest is believed by neither command."""
    plant(standing, standing.site() / "alpha" / "part3.py", "X = 'planted'\n")
    found = verdict(standing)
    assert (found["verdict"], found["exit"]) == ("undecided", 3) and "not installed by your gpuready" in found["says"]
    ran = json.loads(standing.install("1.0", "--json").out)
    assert ran["verdict"] == "installed" and "planted" not in (standing.site() / "alpha" / "part3.py").read_text()
    assert verdict(standing)["verdict"] == "intact"


def test_an_environment_without_our_seal_is_installed_anew(standing):
    shutil.rmtree(standing.folder / "state")
    assert verdict(standing)["verdict"] == "undecided"
    ran = json.loads(standing.install("1.0", "--json").out)
    assert ran["verdict"] == "installed" and any("not installed by your gpuready" in note for note in ran["notes"])


def test_activate_and_settings_are_compared(standing):
    generation = (standing.home / "current").resolve()
    for name in ("bin/activate", "pyvenv.cfg"):
        text = (generation / name).read_text()
        (generation / name).write_text(f"{text[:-2]}#\n")  # of the same size
        assert faults(standing) == [("changed", name.rpartition("/")[2])]
        (generation / name).write_text(text)
    activate = generation / "bin/activate"
    activate.write_text(f"{activate.read_text()[:-2]}#\n")
    ran = json.loads(standing.install("1.0", "--json").out)
    assert ran["verdict"] == "installed" and any("bin/activate" in note for note in ran["notes"])


def test_unchanged_hashes_what_changed_after_the_install(standing):
    path = standing.site() / "alpha" / "part3.py"
    assert json.loads(standing.install("1.0", "--json").out)["verdict"] == "unchanged"
    data, was = path.read_bytes(), path.stat()
    path.unlink()
    path.write_bytes(b"Y" + data[1:])
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert json.loads(standing.install("1.0", "--json").out)["verdict"] == "installed"
    assert path.read_bytes() == data


def test_pruning_follows_no_link(standing):
    elsewhere = standing.folder / "precious"
    (elsewhere / "0000-aaa").mkdir(parents=True)
    (elsewhere / "0000-aaa" / "gpuready.json").write_text("{}")
    (elsewhere / "0000-bbb").mkdir()
    (standing.home / "installs" / "0000-aaa").symlink_to(elsewhere / "0000-aaa")
    (standing.home / "installs" / "0000-bbb").symlink_to(elsewhere / "0000-bbb")
    assert standing.install("2.0", "--keep", "1").code == 0
    assert (elsewhere / "0000-aaa" / "gpuready.json").exists() and (elsewhere / "0000-bbb").exists()
    shutil.move(standing.home / "installs", standing.folder / "moved")
    (standing.home / "installs").symlink_to(standing.folder / "moved")
    before = sorted(os.listdir(standing.folder / "moved"))
    refused = standing.install("1.0", "--keep", "1")
    assert refused.code == 2 and "has a link where gpuready has a folder (installs)" in refused.err
    assert sorted(os.listdir(standing.folder / "moved")) == before


def test_other_names_of_python_lead_where_the_first_one_does(standing):
    for name in ("python3", f"python3.{sys.version_info[1]}"):
        path = standing.home / "bin" / name
        path.unlink()
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        assert faults(standing) == [("interpreter", name)]
        path.unlink()
        path.symlink_to("python")
    assert faults(standing) == []


def test_byte_code_in_the_place_of_a_source_and_a_second_library_folder_are_extra(standing):
    (standing.site() / "sitecustomize.pyc").write_bytes(b"code")
    assert faults(standing) == [("extra", "sitecustomize.pyc")]
    (standing.site() / "sitecustomize.pyc").unlink()
    other = standing.site().resolve().parents[2] / "lib64"
    if other.is_symlink():
        other.unlink()
    (other / "python3.11/site-packages").mkdir(parents=True)
    (other / "python3.11/site-packages/planted.pth").write_text("import os\n")
    assert faults(standing) == [("extra", "planted.pth")]


def test_what_python_compiled_is_not_compared(standing):
    """As SECURITY.md says: Python writes it whenever it runs."""
    subprocess.run([standing.home / "bin/python", "-m", "compileall", "-q", standing.site()], check=True)
    next((standing.site() / "alpha/__pycache__").glob("*.pyc")).write_bytes(b"other")
    assert faults(standing) == []
