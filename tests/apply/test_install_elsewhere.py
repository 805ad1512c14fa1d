"""Installing for a machine of another architecture: whole, and not imported here."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from types import SimpleNamespace

import pytest

from gpuready.apply.bundle import format_lock_file
from gpuready.apply.install import Installer
from gpuready.apply.install_errors import InstallFailed
from gpuready.apply.wheel_contents import list_other_architecture
from gpuready.model.plan import LockedPackage, Plan
from gpuready.probe.imports import probe_imports
from gpuready.probe.target_environment import describe_environment
from gpuready.system import LiveHost
from tests.apply.wheels import wheel

OTHER = "aarch64" if platform.machine() == "x86_64" else "x86_64"


def other_lock(bench, tag: str, system: str = "manylinux_2_28") -> list[str]:
    """The command that installs a plan for another architecture from one wheel of this tag."""
    path = wheel(bench.wheels, "gamma", "1.0", tag=tag)
    row = LockedPackage("gamma", "1.0", hashes=("sha256:" + hashlib.sha256(path.read_bytes()).hexdigest(),))
    python = f"3.{sys.version_info.minor}"
    planned = Plan(
        "gamma", "1.0", "plan", python=python, platform=f"{OTHER}-{system}", lock=(row,), resolved="resolved"
    )
    file = bench.folder / "other.lock"
    file.write_text(format_lock_file(planned))
    return ["install", "--lock", str(file), "--find-links", str(bench.wheels), "--python", sys.executable]


@pytest.mark.parametrize("tag", [f"py3-none-manylinux_2_28_{OTHER}", "py3-none-any"])
def test_a_plan_for_another_architecture_is_installed_and_not_imported(bench, tag):
    ran = bench.run(*other_lock(bench, tag), "-e", str(bench.home), "--json")
    assert ran.code == 0, ran.out + ran.err
    assert [note for note in json.loads(ran.out)["notes"] if note.startswith(f"not imported: it is for {OTHER}")]
    assert f"gpuready-machine = {OTHER}" in (bench.home / "current" / "pyvenv.cfg").read_text()
    target = describe_environment(LiveHost(), str(bench.home), f"{bench.home}/bin/python", "test")
    assert target.machine == OTHER and probe_imports(LiveHost(), target) == []


@pytest.mark.parametrize(
    ("verdict", "elsewhere", "kept"),
    [("undecided", True, True), ("undecided", False, False), ("not-ready", True, False), ("clear", False, True)],
)
def test_what_cannot_be_told_here_discards_nothing_that_is_for_elsewhere(verdict, elsewhere, kept):
    """axolotl 0.14 for eight H100 was installed on a machine of aarch64, 240 packages, and thrown away for one open question."""
    rule = SimpleNamespace(code="GPU004", severity="error")
    found = {
        "findings": (rule,) if verdict == "not-ready" else (),
        "undecided": (rule,) if verdict == "undecided" else (),
    }
    installer = Installer.__new__(Installer)
    installer.imported = {"error": ""}
    installer.inputs, installer.notes = SimpleNamespace(elsewhere=elsewhere, foreign=""), []
    installer.plan = Plan("axolotl", "0.14", "plan")  # without a lock nothing is imported
    installer.judge = lambda path: SimpleNamespace(verdict=verdict, **found)
    generation = SimpleNamespace(has_manifest=True, path="/nowhere")
    if kept:
        assert installer._check_generation(generation).verdict == verdict
        assert ["GPU004" in note for note in installer.notes] == ([True] if verdict == "undecided" else [])
    else:
        with pytest.raises(InstallFailed, match="GPU004"):
            installer._check_generation(generation)


def test_a_plan_for_another_system_is_refused(bench):
    ran = bench.run(*other_lock(bench, "py3-none-any", "apple-darwin"), "-e", str(bench.home))
    assert ran.code == 2 and "install it there" in ran.err and not bench.home.exists()


def test_what_was_built_for_this_architecture_is_told_from_what_is_for_another(tmp_path):
    site = tmp_path / "lib/python3.11/site-packages"
    for name, tag in (("here", f"linux_{platform.machine()}"), ("there", f"linux_{OTHER}"), ("any_one", "any")):
        (site / f"{name}-1.0.dist-info").mkdir(parents=True)
        (site / f"{name}-1.0.dist-info" / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: cp311-cp311-{tag}\n")
    assert list_other_architecture(str(tmp_path), OTHER) == ["here"]
    assert list_other_architecture(str(tmp_path), platform.machine()) == ["there"]


@pytest.mark.parametrize(
    ("numbers", "found"), [((183,), []), ((183, 62), ["sparse"]), ((62,), ["sparse"]), ((), ["sparse"])]
)
def test_compiled_files_tell_more_than_a_tag_that_nobody_knows(tmp_path, numbers, found):
    """NVIDIA tags wheels for aarch64 servers as manylinux2014_sbsa. 183 is aarch64 in an ELF header, 62 is x86_64."""
    site = tmp_path / "lib/python3.11/site-packages"
    info = site / "sparse-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-manylinux2014_sbsa\n")
    rows = ["sparse.py,,\n"]
    (site / "sparse.py").write_text("")
    for at, number in enumerate(numbers):
        header = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + number.to_bytes(2, "little")
        (site / f"lib{at}.so").write_bytes(header + bytes(100))
        rows.append(f"lib{at}.so,,\n")
    (info / "RECORD").write_text("".join(rows))
    assert list_other_architecture(str(tmp_path), "aarch64") == found
