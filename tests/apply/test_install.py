"""Installing: what a user sees, and that the old environment or the new one stands, never half."""

from __future__ import annotations

import ensurepip
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

from gpuready.apply.install_errors import suggest_missing_package
from gpuready.apply.install_steps import own_interpreter
from gpuready.system import LiveHost
from tests.apply import wheels
from tests.apply.wheels import lock, owned, wheel
from tests.sampling import FUZZ

CROWD = 32 if FUZZ else 4


def instead(folder: Path, first: str) -> str:
    """A uv that does something first; what makes gpuready take it."""
    from uv import find_uv_bin

    path = folder / "uv"
    path.write_text(f'#!/bin/sh\n{first}\nexec {find_uv_bin()} "$@"\n')
    path.chmod(0o755)
    return f"import gpuready.apply.uv as u\nu.find_own_uv = lambda: {str(path)!r}\n"


def reported(ran) -> dict:
    return json.loads(ran.out)


def test_the_first_install_and_one_on_top(bench):
    ran = bench.install("1.0", "--json")
    found = reported(ran)
    assert ran.code == 0 and found["verdict"] == "installed" and found["schema"] == 1
    assert found["environment"] == str(bench.home) and found["stored_as"].startswith("0001-")
    assert found["report"]["verdict"] == "clear" and found["plan"]["framework"] == "alpha"
    assert [step["run"][1:3] for step in found["steps"]][1] == ["pip", "install"]
    assert bench.version() == "1.0"
    assert reported(bench.install("2.0", "--json"))["previous"] == found["stored_as"]
    assert bench.version() == "2.0"
    bench.whole()


def test_it_is_used_like_any_environment(standing):
    own_script = "import gpuready; print(gpuready.launch.__name__)"  # as the tutorial's train.py
    inside = f"source env/bin/activate && echo $VIRTUAL_ENV && which python && alpha && python -c '{own_script}'"
    shell = subprocess.run(["bash", "-c", inside], cwd=standing.folder, capture_output=True, text=True)
    assert shell.stdout.split() == [str(standing.home), f"{standing.home}/bin/python", "1.0", "launch"], shell.stderr
    listed = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "list", "-p", standing.home],
        capture_output=True,
        text=True,
        env=standing.env,
    )
    assert "alpha" in listed.stdout, listed.stderr


def test_tools_work_in_the_generation_of_now(standing):
    """uv remembers an interpreter by its path, pip and venv by its prefix: after each change of generation they have the new one."""
    uv, python = [find_uv_bin(), "pip"], standing.home / "bin/python"

    def call(*words: object) -> str:
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, env=standing.env, cwd=standing.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install_with_tools(round: int) -> None:
        for tool in ("uv", "pip"):
            name = f"{tool}{round}"
            wheel(standing.wheels, name, "1.0")
            words = ("install", "--no-index", "--find-links", standing.wheels, name)
            call(*((*uv, *words, "-p", standing.home) if tool == "uv" else (python, "-m", "pip", *words)))
            call(python, "-c", f"import {name}")
            assert name in call(*uv, "list", "-p", python)
        call(python, "-m", "venv", "--without-pip", f"inner{round}")
        assert call(standing.folder / f"inner{round}/bin/python", "-c", "import sys; print(sys.prefix)").endswith(
            f"inner{round}\n"
        )

    bundled = Path(ensurepip.__file__).parent / "_bundled"
    rollback = ("install", "--rollback", "-e", str(standing.home))
    steps = (None, ("install", "2.0"), rollback)
    for round, step in enumerate(steps):
        if step:
            ran = standing.install(step[1]) if step is not rollback else standing.run(*step)
            assert ran.code == 0, ran.out + ran.err
        call(*uv, "install", "--no-index", "--find-links", bundled, "pip", "-p", standing.home)
        if step:
            install_with_tools(round)


def test_a_python_that_starts_only_beside_its_libraries_stays_a_link(tmp_path):
    base, generation = tmp_path / "base/python", tmp_path / "env"
    for folder in (base.parent, generation / "bin"):
        folder.mkdir(parents=True)
    base.write_text('#!/bin/sh\n[ -e "$(dirname "$(realpath "$0")")/libpython.so" ]\n')
    base.chmod(0o755)
    (generation / "bin/python").symlink_to(base)
    (base.parent / "libpython.so").touch()
    own_interpreter(LiveHost(), str(generation))
    assert (generation / "bin/python").resolve() == base and not (generation / "pyvenv.cfg").exists()


def test_the_same_plan_again_is_unchanged(standing):
    ran = standing.install("1.0", "--json")
    assert ran.code == 0 and reported(ran)["verdict"] == "unchanged" and reported(ran)["steps"] == []
    assert len(standing.complete()) == 1


def test_every_install_imports_and_no_dry_run_does(bench):
    trace = bench.folder / "imported"
    start = f"import os\nopen({str(trace)!r}, 'a').write('x')\nif os.environ.get('BREAK'): raise OSError('no more')\n"
    made = wheel(bench.wheels, "alpha", "9.0", {"alpha/__init__.py": start})
    bench.locks["9.0"] = lock(bench.folder / "9.0.lock", made)
    assert bench.install("9.0").code == 0 and trace.read_text() == "x"
    assert reported(bench.install("9.0", "--json"))["verdict"] == "unchanged" and trace.read_text() == "xx"
    ran = bench.install("9.0", env={"BREAK": "1"})
    assert ran.code == 1 and "import alpha fails in the new environment: OSError: no more" in ran.out
    asked, python = len(trace.read_text()), ("--python", str(bench.home))
    for words in (("fix", "alpha", *python), bench.argv("9.0")):
        bench.run(*words, "--dry-run")
    assert bench.run("install", "--verify", "-e", str(bench.home)).code == 0
    assert len(trace.read_text()) == asked, "neither a dry run nor --verify starts it"
    bench.run("fix", "alpha", *python, "--yes")
    assert len(trace.read_text()) > asked, "fix imports, though no file differs"
    bench.run("check", "alpha", *python)
    before = len(trace.read_text())
    bench.run("check", "alpha", *python, "--import")
    assert len(trace.read_text()) == before + 1


def test_a_dry_run_shows_the_commands_and_changes_nothing(bench):
    ran = bench.install("1.0", "--dry-run")
    assert ran.code == 0 and not bench.home.exists()
    assert "uv venv --relocatable" in ran.out and "--require-hashes" in ran.out
    assert not {"installed", "done"} & set(ran.out.replace(",", " ").replace(":", " ").split())
    found = reported(bench.install("1.0", "--dry-run", "--json"))
    assert found["verdict"] == "dry-run" and found["need"]["size"] > 0
    assert reported(bench.install("1.0", "--json"))["steps"] == found["steps"], "exactly what an install runs"
    made = reported(bench.run(*bench.argv("2.0", "--dry-run", "--json")))
    assert [s["run"][1] for s in made["steps"]] == ["venv", "pip"] and bench.version() == "1.0"


@pytest.mark.parametrize(
    ("fill", "why"),
    [
        (lambda home: (home.mkdir(), (home / "pyvenv.cfg").write_text("home = /usr/bin\n")), "did not make"),
        (lambda home: (home.mkdir(), (home / "thesis.tex").write_text("x")), "has files that are not gpuready's"),
        (lambda home: home.write_text("x"), "is not a folder"),
        (lambda home: home.symlink_to("/nonexistent/there"), "cannot"),
    ],
)
def test_a_folder_that_is_not_ours_is_refused(bench, fill, why):
    fill(bench.home)
    ran = bench.install()
    assert ran.code == 2 and why in ran.err and ran.err.count("\n") == 1 and "Traceback" not in ran.err
    assert not (bench.home / "installs").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("alpha\n", "exact version"),
        ("alpha==1.0\n", "--hash"),
        ("alpha==1.0 --hash=md5:12\n", "--hash"),
        ("-r other.txt\n", "-r is not taken"),
        ("", "empty lock"),
        (f"beta==1.0 --hash=sha256:{'0' * 64}\n", "does not hold alpha"),
        ('{"framework": "alpha"}', "not a lock"),
        ("{", "not a lock"),
        ("al;pha==1.0 --hash=sha256:" + "0" * 64, "needs a name"),
        ("alpha==1.0 --hash=sha256:12\n", "--hash"),
    ],
)
def test_a_bad_lock_is_refused(bench, text, why):
    bench.locks["1.0"].write_text(text)
    ran = bench.install()
    assert ran.code == 2 and why in ran.err and ran.err.count("\n") == 1
    assert not bench.home.exists()


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ([], "takes a FRAMEWORK"),
        (["--rollback", "--verify"], "cannot be combined"),
        (["alpha", "--rollback"], "takes no FRAMEWORK"),
        (["alpha", "--keep", "0"], "--keep takes a whole number"),
        (["alpha", "--keep", "two"], "--keep takes a whole number"),
        (["--rollback", "-e", "nowhere"], "not an environment made by gpuready"),
        (["--verify", "-e", "nowhere"], "not an environment made by gpuready"),
        (["alpha", "--lock", "nowhere.txt"], "does not exist"),
    ],
)
def test_bad_command_lines(bench, argv, why):
    ran = bench.run("install", *argv, cwd=bench.folder)
    assert ran.code == 2 and why in ran.err and ran.err.count("\n") == 1 and ran.out == ""


def test_f03_a_signal_stops_it_cleanly(standing):
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
        slow = "import gpuready.apply.install as i, time\n"
        slow += "i.Installer._check_imports = lambda self, g: (print('ready', flush=True), time.sleep(600))\n"
        process = standing.start(*standing.argv("2.0"), before=slow)
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        assert process.returncode == code and "Traceback" not in err
        assert standing.version() == "1.0" and len(list((standing.home / "installs").iterdir())) == 1
        said = "interrupted" if number == signal.SIGINT else "told to end"
        left = f"the unfinished environment was removed, {standing.home} is as it was; uv's cache keeps its files"
        assert err.endswith(f"gpuready: {said}: {left}\n")


def test_f03_uv_does_not_outlive_a_signal(bench, tmp_path):
    hide = instead(tmp_path, '[ "$1" = pip ] && { echo Resolved >&2; sleep 600; }')
    process = bench.start(*bench.argv("2.0"), before=hide)
    for line in process.stderr:
        if "Resolved" in line:
            break
    children = owned(process.pid)
    assert children
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 143
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert list((bench.home / "installs").iterdir()) == []


def test_f07_many_at_once_build_once(bench):
    """Four at once; 32 with FUZZ=1."""
    crowd = [bench.start(*bench.argv("1.0", "--json")) for _ in range(CROWD)]
    found = []
    for process in crowd:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        found.append(json.loads(out)["verdict"])
    assert sorted(found) == ["installed"] + ["unchanged"] * (CROWD - 1)
    assert len(list((bench.home / "installs").iterdir())) == 1
    bench.whole()


def test_f08_different_environments_share_a_cache(bench):
    versions = ["1.0", "2.0"]
    homes = [bench.folder / f"env{i}" for i in range(2)]
    crowd = [bench.start(*bench.argv(v, home=h)) for h, v in zip(homes, versions, strict=True)]
    assert [p.wait(timeout=240) for p in crowd] == [0] * 2
    assert [bench.version(h) for h in homes] == versions


SWEEPS = """
import os, gpuready.system.durable_files as files
rename = files._rename_or_unlink
def as_another_install_would(draft, path, *more):
    if path.startswith({home!r}) and (lock := files.take_lock({home!r} + "/.gpuready/lock")) is not None:
        os.unlink(draft)
        files.release_lock(lock)
    rename(draft, path, *more)
files._rename_or_unlink = as_another_install_would
"""
"""Whoever holds the lock removes the drafts of those who died: a draft that is written without it is gone."""


def test_two_plans_at_once_on_one_folder_take_turns(bench):
    crowd = [bench.start(*bench.argv(v), before=SWEEPS.format(home=str(bench.home))) for v in ("1.0", "2.0")]
    said = [p.communicate(timeout=120) for p in crowd]
    assert [p.returncode for p in crowd] == [0, 0], said
    assert bench.version() in ("1.0", "2.0") and len(bench.complete()) == 2
    bench.whole()


def test_what_another_install_replaces_meanwhile_is_not_told_as_unchanged(standing):
    """The published generation is looked at without the lock: here another is published and it is removed, at that moment."""
    late = """import os, gpuready.apply.install as i
check = i.Installer._check_generation
def late(self, generation):
    i.Installer._check_generation = check
    other = self.home.next_generation("0" * 12)
    os.rename(generation.path, other.path)
    self.home.publish_generation(other)
    return check(self, generation)
i.Installer._check_generation = late"""
    ran = standing.install("1.0", "--json", before=late)
    assert ran.code == 0, ran.out + ran.err
    assert reported(ran)["verdict"] == "installed" and standing.version() == "1.0" and len(standing.complete()) == 2


def test_f09_a_dead_holder_is_replaced_at_once(bench):
    hang = "import gpuready.apply.install as i, time\ni.Installer._check_imports = lambda self, g: (print('ready', flush=True), time.sleep(600))\n"
    process = bench.start(*bench.argv("1.0"), before=hang)
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate()
    ran = reported(bench.install("1.0", "--json"))
    assert ran["verdict"] == "installed" and bench.version() == "1.0"
    assert len(list((bench.home / "installs").iterdir())) == 1, "what the dead one left is swept"
    said = (bench.home / "journal.jsonl").read_text()
    assert '"swept"' in said


def test_f09_a_stopped_holder_is_named(bench):
    hang = "import gpuready.apply.install as i, time\ni.Installer._check_imports = lambda self, g: (print('ready', flush=True), time.sleep(600))\n"
    process = bench.start(*bench.argv("1.0"), before=hang)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGSTOP)
    try:
        ran = bench.install("2.0")
        assert ran.code == 2 and f"kill -CONT {process.pid}" in ran.out + ran.err
    finally:
        process.kill()
        process.communicate()


def test_f10_a_running_process_keeps_its_generation(standing):
    code = "import alpha, sys; print('up', flush=True); sys.stdin.readline(); from alpha import part7; import beta; print(alpha.VERSION, beta.VERSION)"
    job = subprocess.Popen(
        [standing.home / "bin/python", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert job.stdout.readline() == "up\n"
    ran = reported(standing.install("2.0", "--keep", "1", "--json"))
    assert any("still uses it" in note for note in ran["notes"]), ran["notes"]
    assert standing.version() == "2.0" and len(standing.complete()) == 2
    assert job.communicate("go\n")[0] == "1.0 1.0\n"
    standing.alpha("3.0")
    standing.locks["3.0"] = standing.folder / "3.0.lock"
    standing.install("3.0", "--keep", "1")
    assert len(standing.complete()) == 1


def test_f11_rollback(standing):
    standing.install("2.0")
    ran = reported(standing.run("install", "--rollback", "-e", str(standing.home), "--json"))
    assert ran["verdict"] == "rolled-back" and standing.version() == "1.0"
    refused = standing.run("install", "--rollback", "-e", str(standing.home))
    assert refused.code == 2 and "no environment before" in refused.err and standing.version() == "1.0"
    again = reported(standing.install("2.0", "--json"))
    assert again["verdict"] == "installed" and again["steps"] == [] and standing.version() == "2.0"
    standing.install("1.0")
    standing.run("install", "--rollback", "-e", str(standing.home))
    assert standing.version() == "2.0", "what was taken up again counts as the newest"


def test_a_wheel_whose_own_record_is_wrong_is_noted(bench):
    """As in vllm 0.32: the wheel has the hash of the lock, and its RECORD names a file that it does not have."""
    (made,) = bench.wheels.glob("alpha-1.0-*.whl")
    with zipfile.ZipFile(made) as file:
        inside = {name: file.read(name) for name in file.namelist()}
    record = inside["alpha-1.0.dist-info/RECORD"].replace(b",sha256=", b",sha256=x", 1)
    inside["alpha-1.0.dist-info/RECORD"] = record + b"alpha/absent.py,sha256=abc,3\n"
    with zipfile.ZipFile(made, "w") as file:
        for name, data in inside.items():
            file.writestr(name, data)
    (beta,) = bench.wheels.glob("beta-1.0-*.whl")
    bench.locks["1.0"] = wheels.lock(bench.folder / "1.0.lock", made, beta)
    ran = bench.install("1.0", "--json")
    assert ran.code == 0 and reported(ran)["verdict"] == "installed", ran.out + ran.err
    assert any("the RECORD in the wheel of alpha is wrong about" in note for note in reported(ran)["notes"])
    assert "damaged on arrival: alpha;" in ran.err and [s["run"][1] for s in reported(ran)["steps"]] == [
        "venv",
        "pip",
        "pip",
    ]
    bench.whole()
    other = bench.run(*bench.argv("1.0", "--json", home=bench.folder / "other"))
    assert other.code == 0 and "damaged" not in other.err, "a wheel that is known to be so is not fetched again"
    assert any("the RECORD in the wheel of alpha is wrong about" in note for note in reported(other)["notes"])
    (bench.site() / "alpha" / "absent.py").write_text("x")
    assert bench.run("install", "--verify", "-e", str(bench.home)).code == 1


def test_f14_a_wheel_for_another_platform(standing):
    path = wheel(standing.wheels, "alpha", "9.0")
    other = path.rename(path.with_name("alpha-9.0-cp39-cp39-macosx_11_0_arm64.whl"))
    standing.locks["9.0"] = lock(standing.folder / "9.0.lock", other)
    ran = standing.run(*standing.argv("9.0"))
    assert ran.code == 2 and "alpha" in ran.out and "failed" in ran.out and standing.version() == "1.0"


def test_f18_a_disk_without_links(bench):
    none = "import os\ndef no(*a, **k): raise OSError(1, 'Operation not permitted')\nos.symlink = no\n"
    ran = bench.install("1.0", before=none)
    assert ran.code == 2 and "EPERM, operation not permitted" in " ".join(ran.out.split())
    assert not (bench.home / "current").exists()


def test_f18_a_disk_without_locks(bench):
    none = "import fcntl\ndef no(*a): raise OSError(38, 'Function not implemented')\nfcntl.flock = no\n"
    crowd = [bench.start(*bench.argv("1.0", "--json"), before=none) for _ in range(3)]
    found = []
    for process in crowd:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        found.append(json.loads(out)["verdict"])
    assert sorted(found) == ["installed", "unchanged", "unchanged"]


@pytest.mark.parametrize("name", ["with space", "ünï'c\"öde $x", "l" * 120 + "/" + "o" * 120])
def test_f19_awkward_paths(bench, name):
    home = bench.folder / name
    ran = bench.run(*bench.argv(home=home))
    assert ran.code == 0, ran.out + ran.err
    assert bench.version(home) == "1.0"
    script = subprocess.run([home / "bin" / "alpha"], capture_output=True, text=True)
    assert script.stdout == "1.0\n", script.stderr


def test_f22_a_wheel_that_does_not_import_is_not_published(standing):
    bad = wheel(standing.wheels, "alpha", "6.0", {"alpha/__init__.py": "import no_such_module\n"})
    standing.locks["6.0"] = lock(standing.folder / "6.0.lock", bad)
    ran = standing.install("6.0", "--json")
    assert ran.code == 1 and reported(ran)["verdict"] == "failed" and "no_such_module" in reported(ran)["says"]
    assert "requirements of your own that name package.no-such-module do" in reported(ran)["says"]
    assert standing.version() == "1.0" and len(list((standing.home / "installs").iterdir())) == 1


@pytest.mark.parametrize("error", ["ImportError: libkite.so", "ModuleNotFoundError: No module named 'alpha.wing'"])
def test_another_failed_import_names_no_package(error):
    assert suggest_missing_package(error) == ""


def test_f22_an_import_that_crashes_or_hangs_is_not_published(standing):
    for number, (code, why) in enumerate(
        {"import os; os.abort()": "ABRT", "import time; time.sleep(99)": "did not end within 2 s"}.items()
    ):
        version = f"6.{number + 1}"
        standing.locks[version] = lock(
            standing.folder / f"{version}.lock", wheel(standing.wheels, "alpha", version, {"alpha/__init__.py": code})
        )
        limit = {"GPUREADY_IMPORT_DEADLINE": "2" if "within" in why else "120"}
        ran = standing.install(version, env=limit)
        assert ran.code == 1 and why in ran.out and standing.version() == "1.0"


def test_f24_many_generations_are_kept_in_bounds(standing):
    for number in range(2):
        version = f"5.{number}"
        standing.locks[version] = lock(
            standing.folder / f"{version}.lock",
            wheel(standing.wheels, "alpha", version),
            wheel(standing.wheels, "beta", version),
        )
        assert standing.install(version).code == 0
        assert len(list((standing.home / "installs").iterdir())) == 2
    standing.install("1.0", "--keep", "4")
    assert len(standing.complete()) == 3


def test_a_damaged_environment_is_made_anew(standing):
    for path in list(standing.site().glob("alpha/part1*.py")):
        path.unlink()
    ran = reported(standing.install("1.0", "--json"))
    assert ran["verdict"] == "installed" and any("not as it was published" in note for note in ran["notes"])
    standing.whole()


def test_nothing_outside_the_folder_changes(bench):
    before = {p for p in bench.folder.rglob("*") if "cache" not in p.parts}
    ours = bench.folder / "state/gpuready"
    before |= {bench.folder / "state", ours, ours / "installs"}
    bench.install("1.0")
    after = {
        p
        for p in bench.folder.rglob("*")
        if "cache" not in p.parts and "env" not in p.relative_to(bench.folder).parts[:1]
    }
    assert after == before | {next((ours / "installs").iterdir())}
    assert os.listdir(bench.folder / "cache")
