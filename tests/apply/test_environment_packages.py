"""The uv commands of a fix in a copy of an environment, with uv replaced by what it was asked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuready import system
from gpuready.apply import environment_packages
from gpuready.apply.uv import UvSettings

REINSTALL = (
    "uv",
    "pip",
    "install",
    "--torch-backend",
    "cpu",
    "--reinstall",
    "--no-deps",
    "torch==2.13.0+cpu",
    "packaging==26.3",
)


@pytest.fixture
def asked(monkeypatch):
    calls = []

    def note_call(host, argv, *rest):
        calls.append(list(argv[1:]))
        return SimpleNamespace(rc=0)

    monkeypatch.setattr(environment_packages.uv, "run_uv", note_call)
    monkeypatch.setattr(environment_packages.uv, "find_uv", lambda host: "uv")
    return calls


def run_reinstall(tmp_path, wheels=()):
    site = tmp_path / "env/lib/python3.11/site-packages"
    for name in ("packaging-26.3", "other-1.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (site / "packaging-26.3.dist-info/METADATA").write_text("Name: packaging\n")
    (site / "packaging-20.9.dist-info").mkdir()
    (site / "packaging-20.9.dist-info/INSTALLER").write_text("pip\n")
    (tmp_path / "wheels").mkdir()
    for name in wheels:
        (tmp_path / "wheels" / name).write_text("")
    settings = UvSettings()
    settings.folders = (str(tmp_path / "wheels"),)
    packages = environment_packages.EnvironmentPackages(system.LiveHost(), str(tmp_path / "env"), settings, print, 1.0)
    packages.run_uv(REINSTALL)
    return sorted(entry.name for entry in site.iterdir())


@pytest.mark.parametrize(
    ("wheel", "is_used"),
    [
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("torch-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl", False),
        ("torch-2.12.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", False),
    ],
)
def test_a_build_of_torch_in_a_folder_of_wheels_needs_no_index(tmp_path, asked, wheel, is_used):
    run_reinstall(tmp_path, [wheel])
    assert ("--torch-backend" not in asked[0]) is is_used
    assert "torch==2.13.0+cpu" in asked[0]


def test_what_is_left_of_other_metadata_is_removed_by_a_reinstall(tmp_path, asked):
    """uv removes what the RECORD of the other version lists; a folder with the rest of it would hide the version."""
    assert run_reinstall(tmp_path) == ["other-1.0.dist-info", "packaging-26.3.dist-info"]
