"""The patient's packages, and what careless hands leave among them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.utils import canonicalize_name

from gpuready.catalog.packages import canonical_package_name
from gpuready.model.metadata import split_metadata_name
from gpuready.probe import packages
from gpuready.probe.environment_choice import choose_environment
from gpuready.probe.packages import read_package_metadata
from gpuready.probe.target_environment import TargetEnvironment
from gpuready.system import AccessError, LiveHost
from tests.deadlines import HANG_S
from tests.probe.fakes import Fake, by_key

SITE = "/v/lib/python3.11/site-packages"
WHO = TargetEnvironment("/v", "/v/bin/python", "venv", "3.11.7", (SITE,), "--python", "/v/pyvenv.cfg")
TRANSFORMERS = """\
Metadata-Version: 2.4
Name: transformers
Version: 5.22.0
Requires-Python: >=3.10.0
Requires-Dist: huggingface-hub<2.0,>=1.3.0
Requires-Dist: torch>=2.4; extra == "torch"
Requires-Dist: accelerate>=1.1.0; extra == "accelerate"

A description that says
Requires-Dist: nothing
"""


def installed(*names, site=SITE, text="Name: x\n"):
    return {f"{site}/{name}.dist-info/METADATA": text for name in names}


def look(files, who=WHO, **given):
    return by_key(packages.probe_packages(Fake(files, **given), who))


def test_names_and_versions():
    facts = look(installed("torch-2.8.0", "flash_attn-2.8.3", "ruamel.yaml-0.18.6", "PyYAML-6.0.2"))
    assert set(packages.KEYS) <= set(facts)
    assert facts["package.torch"].value == "2.8.0"
    assert facts["package.torch"].source == f"{SITE}/torch-2.8.0.dist-info"
    assert facts["package.flash-attn"].value == "2.8.3"
    assert facts["package.ruamel-yaml"].value == "0.18.6"
    assert facts["package.pyyaml"].value == "6.0.2"
    assert facts["python.packages"].value == 4
    assert facts["python.version"].value == "3.11.7"
    assert facts["python.half_installed"].value == facts["python.duplicates"].value == ()


@pytest.mark.parametrize(
    ("entry", "name", "version"),
    [
        ("torch-2.11.0.dist-info", "torch", "2.11.0"),
        ("flash_attn-2.7.4.post1+cu12torch2.6.dist-info", "flash-attn", "2.7.4.post1+cu12torch2.6"),
        ("nvidia_cudnn_cu12-9.10.2.21.dist-info", "nvidia-cudnn-cu12", "9.10.2.21"),
        ("zope.interface-7.2-py3.11.egg-info", "zope-interface", "7.2"),
        ("PyYAML-6.0.egg-info", "pyyaml", "6.0"),
        ("mine.egg-info", "mine", ""),
        ("mine.dist-info", "mine", ""),
        ("backports.tarfile-1.2.0.dist-info", "backports-tarfile", "1.2.0"),
    ],
)
def test_folder_names(entry, name, version):
    assert split_metadata_name(entry) == (name, version)


@given(st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True))
def test_one_spelling(name):
    assert canonical_package_name(name) == canonicalize_name(name)


def test_half_installed():
    """D31."""
    facts = look(installed("torch-2.8.0") | {f"{SITE}/numpy-2.1.0.dist-info/RECORD": ""})
    assert facts["python.half_installed"].value == ("numpy-2.1.0.dist-info",)
    assert facts["package.numpy"].gap == "half-installed: its metadata is missing"
    assert facts["package.torch"].value == "2.8.0"


def test_two_versions_and_left_overs():
    """D34: both are told, and neither is believed."""
    files = installed("torch-2.4.0", "torch-2.5.1") | {
        f"{SITE}/~orch-2.3.0.dist-info/METADATA": "",
        f"{SITE}/~umpy/x": "",
    }
    facts = look(files)
    assert facts["python.duplicates"].value == ({"name": "torch", "versions": ("2.4.0", "2.5.1")},)
    assert facts["package.torch"].gap == "listed twice: 2.4.0, 2.5.1"
    assert facts["python.half_installed"].value == ("~orch-2.3.0.dist-info", "~umpy")


def test_the_first_folder_wins_without_being_a_duplicate():
    other = "/usr/lib/python3/dist-packages"
    files = installed("numpy-2.1.0") | installed("numpy-1.24.2", "yaml-6.0", site=other)
    facts = look(files, WHO.replace(site=(SITE, other)))
    assert facts["package.numpy"].value == "2.1.0"
    assert facts["package.yaml"].value == "6.0"
    assert facts["python.duplicates"].value == ()


def test_versions_that_only_the_metadata_tells():
    files = {
        f"{SITE}/mine.egg-info/PKG-INFO": "Name: mine\nVersion: 0.3\n",
        f"{SITE}/flat-1.0.egg-info": "Name: flat\nVersion: 1.0\n",
        f"{SITE}/dumb.dist-info/METADATA": "Name: dumb\n",
    }
    facts = look(files)
    assert facts["package.mine"].value == "0.3"
    assert facts["package.flat"].value == "1.0"
    assert facts["package.dumb"].gap == "its folder's name carries no version"


def test_a_site_that_cannot_be_read():
    """D35: unknown, and not empty."""
    facts = look({f"{SITE}/": AccessError("permission denied")})
    assert facts["python.packages"].gap == "permission denied"
    assert facts["python.version"].value == "3.11.7"


def test_no_site_and_no_version():
    facts = look({}, WHO.replace(site=(), version=None, gap="it ended with 127"))
    assert "it ended with 127" in facts["python.packages"].gap
    assert facts["python.version"].gap == "it ended with 127"


def test_an_empty_environment_is_empty():
    facts = look({"/x": ""}, WHO.replace(site=()))
    assert facts["python.packages"].value == 0 and not facts["python.packages"].gap


# -- metadata -----------------------------------------------------------------------------------------


def test_what_a_framework_asks_for():
    facts = look(installed("transformers-5.22.0", text=TRANSFORMERS) | installed("numpy-2.1.0"))
    ((name, asked),) = facts["python.requires"].value.items()
    assert name == "transformers"
    assert asked["requires_python"] == ">=3.10.0"
    assert asked["version"] == "5.22.0"
    assert asked["requires_dist"][0] == "huggingface-hub<2.0,>=1.3.0"
    assert len(asked["requires_dist"]) == 3


def test_metadata_of_one_distribution():
    files = installed("transformers-5.22.0", text=TRANSFORMERS)
    assert read_package_metadata(Fake(files), "Transformers", WHO)["version"] == "5.22.0"
    assert read_package_metadata(Fake(files), "absent", WHO) is None


def test_metadata_that_is_no_text(tmp_path: Path):
    """D32: bytes that are not UTF-8, a hundred megabytes, links in circles."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, body in {
        "latin": b"Name: latin\nVersion: 1\nAuthor: Ren\xe9\n\nx",
        "vast": b"Name: vast\nVersion: 2\n",
    }.items():
        (site / f"{name}-1.dist-info").mkdir(parents=True)
        with (site / f"{name}-1.dist-info" / "METADATA").open("wb") as file:
            file.write(body)
            if name == "vast":
                file.truncate(100 << 20)
    (site / "round-1.dist-info").symlink_to(site / "round-1.dist-info")
    (site / "loop").symlink_to(site)
    who = WHO.replace(prefix=str(tmp_path), site=(str(site),))
    begun = time.monotonic()
    assert read_package_metadata(LiveHost(), "latin", who)["version"] == "1"
    assert read_package_metadata(LiveHost(), "vast", who)["version"] == "2"
    facts = by_key(packages.probe_packages(LiveHost(), who))
    assert facts["package.latin"].value == "1"
    assert time.monotonic() - begun < HANG_S / 2


# -- the current folder -------------------------------------------------------------------------------


def test_what_shadows_an_installed_module():
    """D30."""
    files = installed("torch-2.8.0", "flash_attn-2.8.3", "numpy-2.1.0") | {
        "/srv/torch.py": "",
        "/srv/numpy/__init__.py": "",
        "/srv/random.py": "",
        "/srv/flash_attn/x.c": "",
        "/srv/train.py": "",
        "/srv/data/__init__.py": "",
    }
    facts = look(files, cwd="/srv")
    assert facts["python.shadowed"].value == ("/srv/random.py", "/srv/torch.py", "/srv/numpy")


def test_the_site_folder_itself_shadows_nothing():
    assert look(installed("torch-2.8.0") | {f"{SITE}/torch/__init__.py": ""}, cwd=SITE)["python.shadowed"].value == ()


def test_a_current_folder_that_is_gone():
    assert look(installed("torch-2.8.0"), cwd=AccessError("no such file or directory"))["python.shadowed"].gap


# -- real files ---------------------------------------------------------------------------------------


def test_a_real_environment_with_real_packages(tmp_path: Path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    site = next((tmp_path / "v" / "lib").glob("python3*")) / "site-packages"
    (site / "torch-2.8.0+cu128.dist-info").mkdir()
    (site / "torch-2.8.0+cu128.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.8.0+cu128\n")
    (site / "half-1.0.dist-info").mkdir()
    facts = by_key(packages.probe_packages(LiveHost(), choose_environment(LiveHost(), str(tmp_path / "v"))))
    assert facts["package.torch"].value == "2.8.0+cu128"
    assert facts["python.half_installed"].value == ("half-1.0.dist-info",)
    assert facts["python.kind"].value == "venv"
    assert facts["python.disk_free"].value > 0


def test_the_listing_agrees_with_the_standard_library(tmp_path: Path):
    """Our own environment, told by both."""
    from importlib.metadata import distributions

    who = choose_environment(LiveHost(), sys.executable)
    facts = by_key(packages.probe_packages(LiveHost(), who))
    ours = {k.removeprefix("package.") for k in facts if k.startswith("package.")}
    theirs = {canonical_package_name(d.name) for d in distributions(path=list(who.site)) if d.name}
    assert theirs <= ours


def _timed(who):
    begun = time.perf_counter()
    facts = packages.probe_packages(LiveHost(), who)
    assert len(facts) > 300
    return time.perf_counter() - begun


def recorded(folder: str, sizes: dict[str, int]) -> dict[str, str]:
    rows = [*(f"{name},sha256=x,{size}" for name, size in sizes.items()), f"{folder}/METADATA,,"]
    return {f"{SITE}/{folder}/RECORD": "\n".join(rows), f"{SITE}/{folder}/METADATA": ""}


@pytest.mark.parametrize(
    ("old", "found"),
    [
        (recorded("torch-2.4.0.dist-info", {"torch/a.py": 9, "torch/gone.py": 1}), "2.5.1"),
        (recorded("torch-2.4.0.dist-info", {"torch/a.py": 3, "torch/b.py": 4}), None),  # nothing tells them apart
        ({f"{SITE}/torch-2.4.0.dist-info/METADATA": ""}, "2.5.1"),  # no RECORD
        ({f"{SITE}/torch-2.4.0.dist-info/{n}": t for n, t in (("METADATA", ""), ("RECORD", "torch/a.py,,3"))}, "2.5.1"),
    ],
)
def test_of_two_versions_the_one_whose_files_are_there(old, found):
    """The last one is a copied RECORD, which names another folder."""
    files = recorded("torch-2.5.1.dist-info", {"torch/a.py": 3, "torch/b.py": 4})
    facts = look(files | old | {f"{SITE}/torch/a.py": "x=1", f"{SITE}/torch/b.py": "x=11"})
    assert facts["package.torch"].value == found
    assert facts["python.duplicates"].value == ({"name": "torch", "versions": ("2.4.0", "2.5.1")},)


@pytest.mark.parametrize("place", ["tqdm-4.67.1-py3.12.egg", "tqdm-4.67.1-py3.12.egg/EGG-INFO/PKG-INFO"])
def test_an_egg_is_a_distribution_as_a_folder_or_zipped(place):
    facts = look({f"{SITE}/{place}": "PK"})
    assert (facts["package.tqdm"].value, facts["python.half_installed"].value) == ("4.67.1", ())
