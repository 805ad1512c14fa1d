"""`gpuready fix` with real uv on real environments: what it changes, what it leaves alone, and the way back."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from gpuready.apply.environment_copy import EnvironmentCopy
from gpuready.model import Contract, Fact, Facts, Finding, FixStep, Requirement
from gpuready.plan.change import FixChange
from gpuready.plan.fix_changes import list_fix_changes
from gpuready.system import LiveHost, durable_files
from gpuready.workflow.fix import list_unmet_needs
from gpuready.workflow.fix_items import FixTarget, _join_package_rows, _make_task
from tests.apply.test_project_config import sdist
from tests.apply.wheels import wheel
from tests.plan.test_fix_for_real import CONTRACT
from tests.render.planned import uv
from tests.running import Run, gpuready

WHEELS = (("demo", "1.0"), ("helper_kit", "1.0"), ("helper_kit", "1.4.2"), ("other_kit", "2.5"))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Wheels, a contract, and an environment with a kit of the wrong version and without another."""
    at = tmp_path_factory.mktemp("fix")
    for name, version in WHEELS:
        wheel(at / "wheels", name, version, script=name)
    (at / "demo.toml").write_text(CONTRACT)
    env = {k: v for k, v in os.environ.items() if not k.startswith("UV_")} | {"UV_OFFLINE": "1", "UV_NO_CACHE": "1"}
    packages = ("demo==1.0", "helper-kit==1.0")
    for words in (
        ("venv", "--relocatable", "--python", sys.executable, "env"),
        ("pip", "install", "--python", "env", "--no-index", "--find-links", "wheels", *packages),
    ):
        subprocess.run([uv(), *words], cwd=at, env=env, check=True, capture_output=True)
    return at


@pytest.fixture
def place(template, tmp_path):
    shutil.copytree(template, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path


def fix(place: Path, *words: str, kite: str = "wide", **env: str) -> Run:
    here = ("--python", "env", "--contract", "demo.toml", "--find-links", "wheels", "--offline")
    env = {"XDG_STATE_HOME": str(place / "state")} | env
    return gpuready("fix", *here, *words, cwd=place, UNSLOTH_COMPILE_DISABLE=kite, UV_NO_CACHE="1", **env)


def undo(place: Path, **env: str) -> Run:
    return gpuready("fix", "--undo", "--python", "env", cwd=place, **{"XDG_STATE_HOME": str(place / "state")} | env)


def state_of(place: Path) -> EnvironmentCopy:
    """The copies and the record of the environment, as the command sees them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        return EnvironmentCopy(LiveHost(), str(place / "env"))


def tree(path: Path) -> str:
    """Every file of a folder: its name, its mode and its text, without byte-code."""
    found = hashlib.sha256()
    for at in sorted(p for p in path.rglob("*") if "__pycache__" not in p.parts):
        text = os.readlink(at) if at.is_symlink() else at.read_bytes().hex() if at.is_file() else ""
        found.update(f"{at.relative_to(path)} {at.lstat().st_mode} {text}\n".encode())
    return found.hexdigest()


def versions(place: Path) -> dict[str, str]:
    found = (place / "env").glob("lib/python3*/site-packages/*.dist-info")
    return dict(one.name.removesuffix(".dist-info").split("-") for one in found)


def test_it_changes_what_was_found_and_takes_it_back(place):
    before = tree(place / "env")
    ran = fix(place, "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert ran.out.startswith("fixed ") and "checked again: no problems found" in ran.out
    assert "take it back:    gpuready fix --undo" in ran.out
    assert versions(place) == {"demo": "1.0", "helper_kit": "1.4.2", "other_kit": "2.5"}
    script = subprocess.run([place / "env/bin/helper_kit"], capture_output=True, text=True)
    assert script.stdout == "1.4.2\n", "its scripts run from where they stand"
    copy = Path(state_of(place).before)
    assert (place / "env/pyvenv.cfg").read_text() == (copy / "pyvenv.cfg").read_text()
    assert "export UNSLOTH_COMPILE_DISABLE=long" in (place / "gpuready-env.sh").read_text()
    assert copy.parent == place / "env.gpuready-fix" and tree(copy) == before
    here = ("--python", "env", "--contract", "demo.toml", "-q")
    assert gpuready("check", *here, cwd=place, UNSLOTH_COMPILE_DISABLE="long").code == 0
    again = fix(place, "--yes", kite="long")
    assert again.code == 0 and again.out.startswith("nothing to fix")
    back = undo(place)
    assert back.code == 0, back.err
    assert tree(place / "env") == before and not (place / "gpuready-env.sh").exists()
    twice = undo(place)
    assert twice.code == 2 and "nothing to take back" in twice.err
    steps = [json.loads(line)["step"] for line in Path(state_of(place).journal.path).read_text().splitlines()]
    assert steps == ["begun", "run", "publish", "published", "settings", "undo", "undone", "settings-undone"]


def test_a_dry_run_shows_the_numbered_changes_and_makes_none(place):
    before = tree(place)
    ran = fix(place, "--dry-run")
    assert ran.code == 0 and tree(place) == before
    assert "1  install helper-kit==1.4.2, other-kit>=2" in ran.out and "2  set UNSLOTH_COMPILE_DISABLE=long" in ran.out
    assert "why   PKG002: other-kit is not installed" in ran.out and "undo  gpuready fix --undo" in ran.out
    items = json.loads(fix(place, "--dry-run", "--json").out)["items"]
    assert [(one["by"], one["codes"]) for one in items] == [
        ("gpuready", ["PKG002", "PKG003"]),
        ("gpuready", ["SYS015"]),
    ]


def test_what_an_install_did_not_bring_is_installed_in_a_second_round(place):
    """The framework's wheel asks for none of the packages that its contract requires."""
    for path in (place / "env").glob("lib/python3*/site-packages/*"):
        if path.name.startswith(("demo", "helper_kit")):
            shutil.rmtree(path)
    ran = fix(place, "--yes", kite="long")
    assert ran.code == 0 and ran.out.startswith("fixed "), ran.out + ran.err
    assert versions(place) == {"demo": "1.0", "helper_kit": "1.4.2", "other_kit": "2.5"}


def test_what_stops_uv_or_hides_a_module_is_taken_away_in_the_copy(place):
    """A torn RECORD, a link to nowhere, what an older release left, a stray package and a command that starts another Python."""
    assert fix(place, "--yes", kite="long").code == 0
    (site,) = (place / "env").glob("lib/python3*/site-packages")
    record = site / "helper_kit-1.4.2.dist-info/RECORD"
    record.write_text(record.read_text()[:-40])
    shutil.rmtree(site / "other_kit")
    (site / "other_kit").symlink_to(place / "gone")
    files = {"demo/__init__.py": "import demo._kite\ndef main(): pass\n", "demo/_kite.py": ""}
    made = wheel(place / "wheels", "demo", "1.0", files, "demo")
    install = ("pip", "install", "--python", "env", "--no-index", "--no-cache", "--reinstall", "--no-deps", made)
    subprocess.run([uv(), *install], cwd=place, check=True, capture_output=True)
    spare = wheel(place / "wheels", "spare", "1.0")
    subprocess.run([uv(), *install[:-3], spare], cwd=place, check=True, capture_output=True)
    shutil.rmtree(site / "spare")
    assert "spare has lost its files" in list_unmet_needs(str(place / "env")), "which nothing requires"
    wheel(place / "wheels", "demo", "0.9", {"demo/__init__.py": "OLD = 1\n", "demo/old.py": ""})
    with zipfile.ZipFile(place / "wheels/demo-0.9-py3-none-any.whl") as file:
        file.extractall(site, [one for one in file.namelist() if one != "demo/__init__.py"])
    (site / "demo/_kite").mkdir()
    (site / "demo/_kite/__init__.py").write_text("raise ImportError('kite')\n")
    command = place / "env/bin/demo"
    command.write_text(f"#!{os.path.realpath(sys.executable)}\n" + command.read_text().partition("\n")[2])
    before = tree(place / "env")
    ran = fix(place, "--yes", kite="long")
    assert ran.code == 0 and ran.out.startswith("fixed "), ran.out + ran.err
    assert "demo/_kite/__init__.py" in "".join(ran.out.split()) and "by you" not in ran.out
    assert subprocess.run([command]).returncode == 0 and versions(place)["demo"] == "1.0"
    assert (site / "spare/__init__.py").exists() and not (site / "demo/old.py").exists(), (
        "a file of the older release alone"
    )
    assert undo(place).code == 0 and tree(place / "env") == before


@pytest.mark.parametrize("words", [(), ("--allow-build",)], ids=["as-it-is", "agreed"])
def test_a_package_without_a_wheel_is_built_only_where_that_was_agreed(place, words):
    (place / "wheels" / "other_kit-2.5-py3-none-any.whl").unlink()
    mark = place / "built"
    sdist(place / "wheels", "other_kit", "2.5", mark)
    ran = fix(place, "--yes", *words)
    assert mark.exists() == bool(words), ran.out + ran.err
    assert ran.code == 2 and versions(place) == {"demo": "1.0", "helper_kit": "1.0"}
    assert words or "agree with --allow-build" in ran.out


def test_settings_of_the_project_rule_a_fix_only_where_asked_for(place):
    (place / "uv.toml").write_text('[[index]]\nname = "strange"\nurl = "https://evil.invalid/simple"\n')
    plain, asked = fix(place, "--dry-run"), fix(place, "--dry-run", "--use-project-config")
    assert "evil.invalid" not in plain.out and "evil.invalid" in asked.out, asked.out


def test_nobody_to_ask_is_not_consent(place):
    before = tree(place / "env")
    ran = fix(place)
    assert ran.code == 2 and "add --yes or --dry-run" in ran.err and not ran.out and tree(place / "env") == before


def test_only_some_codes(place):
    before = tree(place / "env")
    ran = fix(place, "--yes", "--only", "sys015")
    assert ran.code == 1 and ran.out.startswith("partly fixed") and "left out by --only" in ran.out
    assert "left: 2 problems" in ran.out and tree(place / "env") == before
    assert "export UNSLOTH_COMPILE_DISABLE" in (place / "gpuready-env.sh").read_text()
    wrong = fix(place, "--yes", "--only", "GPU001")
    assert wrong.code == 2 and "no such finding" in wrong.err


def test_a_change_that_fails_leaves_the_environment_alone(place):
    (place / "wheels" / "other_kit-2.5-py3-none-any.whl").unlink()
    before = tree(place / "env")
    ran = fix(place, "--yes")
    assert ran.code == 2 and "nothing was changed" in ran.out and "uv pip install failed" in ran.out
    assert tree(place / "env") == before and not (place / "gpuready-env.sh").exists()
    assert os.listdir(place / "env.gpuready-fix") == ["lock"]


def test_where_no_index_can_be_reached_it_says_which_why_and_what_to_do(place):
    (place / "wheels" / "other_kit-2.5-py3-none-any.whl").unlink()
    before, no_index = (
        tree(place / "env"),
        {"UV_DEFAULT_INDEX": "http://user:s3cr3t@127.0.0.1:9/private", "UV_HTTP_RETRIES": "0", "UV_OFFLINE": "0"},
    )
    words = ("--python", "env", "--contract", "demo.toml", "--find-links", "wheels", "--yes")
    ran = gpuready(
        "fix", *words, cwd=place, UNSLOTH_COMPILE_DISABLE="wide", UV_NO_CACHE="1", HOME=str(place), **no_index
    )
    said = "failed: nothing could be fetched from 127.0.0.1:9: it refuses the connection; check the network and the proxy, "
    assert ran.code == 2 and said + "or name a folder of wheels with --find-links DIR" in " ".join(ran.out.split())
    assert "cause:" not in ran.out and not {"s3cr3t", "private"} & {*ran.out.split()} and tree(place / "env") == before


def test_a_copy_with_a_new_problem_is_not_taken(place):
    """The new kit brings files of another package in two versions: what the check finds in the copy decides."""
    bad = "import gpuready.workflow.fix_order as o\nfrom gpuready.model import Finding\nreal = o.FixOrder._check\n"
    bad += "o.FixOrder._check = lambda s, p=None: (r := real(s, p)).replace(findings=(Finding('PKG099', 'error', 'new'),))\n"
    before = tree(place / "env")
    code = f"{bad}from gpuready.cli import main; main()"
    words = ["fix", "--python", "env", "--contract", "demo.toml", "--find-links", "wheels", "--offline", "--yes"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(place), "UV_NO_CACHE": "1", "UNSLOTH_COMPILE_DISABLE": "wide"}
    env["PYTHONPATH"] = str(Path(durable_files.__file__).parents[2])
    ran = subprocess.run([sys.executable, "-c", code, *words], cwd=place, env=env, capture_output=True, text=True)
    assert ran.returncode == 2 and "(PKG099): new" in " ".join(ran.stdout.split()), ran.stdout + ran.stderr
    assert tree(place / "env") == before


def test_conda_and_system_pythons_get_commands_only(place):
    conda = place / "conda"
    (conda / "conda-meta").mkdir(parents=True)
    (conda / "conda-meta" / "python-3.11.7-h1_0.json").write_text("{}")
    (conda / "bin").mkdir()
    (conda / "bin" / "python").symlink_to(sys.executable)
    before = tree(conda)
    ran = gpuready("fix", "--python", "conda", "--contract", "demo.toml", "--yes", cwd=place)
    assert ran.code == 1 and ran.out.startswith("nothing that gpuready can change here"), ran.out + ran.err
    assert "by you" in ran.out and "uv pip install --python" in ran.out and "conda Python" in ran.out
    assert tree(conda) == before and not (place / "conda.gpuready-fix").exists()


def test_bad_words(place):
    for words, says in (
        (("fix", "--undo", "--dry-run"), "cannot be combined"),
        (("fix", "demo", "--undo"), "--undo takes no FRAMEWORK"),
        (("fix", "--undo", "--python", "env"), "nothing to take back"),
        (("fix", "--yes", "--python", "nowhere"), "nowhere"),
        (("fix", "--yes", "--python", "env", "--find-links", "nowhere"), "nowhere"),
        (("fix", "--yes", "--on", "h100x8"), "fix needs an environment of this machine, --python PATH"),
    ):
        ran = gpuready(*words, cwd=place, HOME=str(place))
        assert ran.code == 2 and says in ran.err and "Traceback" not in ran.err and not ran.out, (words, ran)


# -- the copy -----------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """The smallest thing that is an environment to the copier; in memory, where a sync costs nothing."""
    shm = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="gpuready-fix-", dir=shm if os.access(shm, os.W_OK) else None))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    at = folder / "env"
    (at / "lib").mkdir(parents=True)
    (at / "pyvenv.cfg").write_text("home = /usr\n")
    (at / "lib" / "a").write_text("old")
    (at / "lib64").symlink_to("lib")
    yield at
    shutil.rmtree(folder)


def rewrite(draft: str) -> None:
    """As uv does: a new file takes the place of the old one, whose name the environment before shares."""
    for name in ("a", "b"):
        Path(draft, f"lib/{name}.new").write_text("new")
        os.replace(f"{draft}/lib/{name}.new", f"{draft}/lib/{name}")


def test_a_signal_leaves_nothing_half(small):
    before, copy = tree(small), EnvironmentCopy(LiveHost(), str(small))

    def stopped(draft: str) -> None:
        rewrite(draft)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy.change(stopped)
    assert tree(small) == before and os.listdir(copy.folder) == ["lock"]


def test_a_file_edited_in_place_afterwards_does_not_reach_the_kept_copy(small):
    (small / "lib" / "kept.py").write_text("one")
    (small / "lib" / "kite.so").write_text("library")
    copy = EnvironmentCopy(LiveHost(), str(small))
    before = copy.change(rewrite)
    (small / "lib" / "kept.py").write_text("edited")
    assert Path(before, "lib/kept.py").read_text() == "one"
    assert os.stat(small / "lib/kite.so").st_nlink > 1 or copy._can_share_blocks(str(small), str(small))
    copy.undo()
    assert (small / "lib" / "kept.py").read_text() == "one"


CHANGING = ("rename_path", "remove_tree", "replace_file", "make_folder", "remove_file", "exchange_paths", "sync_disk")


def run_killed(small: Path, at: int, exchange: bool, undo: bool = False) -> int:
    """Change the environment in a child that is killed before the call `at` that changes the disk; how many there were."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    count = [0]

    def counted(do):
        def call(*args, **more):
            count[0] += 1
            if count[0] == at:
                os._exit(99)
            return do(*args, **more)

        return call

    for name in CHANGING:
        setattr(durable_files, name, counted(getattr(durable_files, name)))
    if not exchange:
        durable_files.exchange_paths = lambda a, b: False
    copy = EnvironmentCopy(LiveHost(), str(small))
    copy._copy_tree = counted(copy._copy_tree)
    copy.undo() if undo else copy.change(rewrite)
    os._exit(min(count[0], 98))


@pytest.mark.parametrize("exchange", [True, False], ids=["exchanged", "in place"])
def test_killed_at_every_call_there_is_the_old_or_the_new(small, exchange):
    """Where folders cannot be exchanged, the next run puts the old one back first."""
    old = tree(small)
    calls = run_killed(small, 0, exchange)
    new = tree(small)
    assert calls > 8 and new != old and (small / "lib/a").read_text() == "new"
    for at in range(1, calls + 1):
        EnvironmentCopy(LiveHost(), str(small)).undo()
        assert tree(small) == old, at
        assert run_killed(small, at, exchange) == 99
        copy = EnvironmentCopy(LiveHost(), str(small))
        assert not exchange or (small / "lib/a").read_text() in ("old", "new"), at
        with copy._opened_folder():
            pass  # what every command does first
        assert tree(small) in (old, new), at
        if tree(small) == old:
            copy.change(rewrite)
        assert tree(small) == new and tree(Path(copy.before)) == old, at


@pytest.mark.parametrize("exchange", [True, False], ids=["exchanged", "in place"])
def test_an_undo_killed_at_every_call(small, exchange):
    old, copy = tree(small), EnvironmentCopy(LiveHost(), str(small))
    copy.change(rewrite)
    for at in range(1, 99):
        if (code := run_killed(small, at, exchange, undo=True)) != 99:
            break
        with copy._opened_folder():
            pass
        now = tree(small)
        assert now == old or (small / "lib/b").read_text() == "new", at
        if now == old:
            copy.change(rewrite)
    assert code < 99 and tree(small) == old


def test_two_at_once(small):
    copy = EnvironmentCopy(LiveHost(), str(small))
    with copy._opened_folder(), pytest.raises(ValueError, match="cannot be changed now"):
        EnvironmentCopy(LiveHost(), str(small)).change(rewrite)


# -- who makes which change ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "release", "first"),
    [
        ("ubuntu", "24.04", ("sudo", "apt-get", "install")),
        ("debian", "12", ("sudo", "apt-get", "install")),
        ("rocky", "9.4", ("sudo", "dnf", "module")),
        ("rocky", "10.0", ("sudo", "dnf", "install")),
        ("amzn", "2023", ("sudo", "dnf", "module")),
        ("sles", "15.6", ("sudo", "zypper", "install")),
    ],
)
def test_a_driver_is_for_a_person_with_the_commands_of_the_distribution(system, release, first):
    need = Requirement("driver.version", ">=580.65.06", cite="torch")
    finding = Finding("DRV001", "error", "too old", needs=(need,), fix=(FixStep("install driver 580 or newer"),))
    stated = {"os.name": system, "os.version": release, "driver.version": "525.60"}
    facts = Facts(tuple(Fact(key, value, "test") for key, value in stated.items()))
    change = next(c for c in list_fix_changes(finding, facts, Contract("demo", "1")) if c.acts)
    task = _make_task(1, change.step, (change,), {"DRV001": "too old"}, FixTarget("venv", "/env"))
    assert task.how == "" and task.item.by == "you"
    assert task.item.commands[0][:3] == first and task.item.commands[-1] == ("sudo", "reboot")
    assert ("580" in " ".join(task.item.commands[0])) != ("newest driver" in task.item.note)


def test_an_environment_of_gpuready_gets_a_new_generation():
    """Its packages are one whole plan: several changes of packages become one install, and a rollback."""
    steps = [
        FixStep(f"install {name}", ("uv", "pip", "install", "--python", "/env/bin/python", f"{name}==1"), "ask")
        for name in ("a", "b")
    ]
    rows = [(s, (FixChange(s, 3, (("package", s.does[-1], "1"),), "PKG003"),), {"PKG003": "x"}) for s in steps]
    (row,) = _join_package_rows(rows, FixTarget("gpuready", "/env"), "demo")
    assert row[0].run == ("gpuready", "install", "demo", "-e", "/env")
    task = _make_task(1, *row, FixTarget("gpuready", "/env"))
    assert task.how == "install" and task.item.undo == "gpuready install --rollback -e /env"


def test_what_lies_in_a_checkout_is_left_to_the_person():
    step = FixStep("install", ("uv", "pip", "install", "--python", "/env/bin/python", "-r", "requirements.txt"), "ask")
    change = FixChange(step, 3, (("package", "a", "1"),), "PKG003")
    assert _make_task(1, step, (change,), {}, FixTarget("venv", "/env")).item.by == "you"


def test_nothing_is_installed_for_gpus_where_there_are_none():
    """`install` would refuse: the change is offered to the person, with what has to come first."""
    step = FixStep("make a new environment", ("gpuready", "install", "demo", "-e", ".venv-3.12"), "ask")
    change = FixChange(step, 3, (("package", "a", "1"),), "PKG003")
    target = FixTarget("venv", "/env")
    assert _make_task(1, step, (change,), {}, target).how == "install"
    task = _make_task(1, step, (change,), {}, target.replace(no_install="once a GPU is visible"))
    assert task.how == "" and task.item.by == "you" and "once a GPU is visible" in task.item.note


def test_a_framework_for_gpus_alone_without_one_is_fixed_by_a_person(tmp_path):
    ran = gpuready("fix", "axolotl", "--yes", cwd=tmp_path, HOME=str(tmp_path))
    if "GPU001" not in ran.out:
        pytest.skip("a GPU is here")
    assert ran.code == 1 and ran.out.startswith("nothing that gpuready can change here"), ran.out + ran.err
    assert "once a GPU is visible here" in ran.out


def test_what_could_not_be_checked_is_not_called_fine():
    """A check that cannot tell leaves something open, though no change is known for it."""
    from gpuready.model import Report, UndecidedRule
    from gpuready.workflow.fix_order import FixOrder

    def idle_verdict(*undecided: UndecidedRule) -> str:
        order = FixOrder.__new__(FixOrder)
        order.tasks, order.before = [], Report(Contract("demo", "1.0"), Facts([], ""), undecided=undecided)
        return order._idle_verdict()

    gap = Fact("import.damage", None, "the environment", "read", "no answer within 60 s")
    assert idle_verdict(UndecidedRule("PKG042", "error", "importing fails", (gap,))) == "undecided"
    assert idle_verdict() == "nothing-to-fix"
