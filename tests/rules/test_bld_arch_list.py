"""The list of architectures that a build is told to make."""

from __future__ import annotations

import pytest

from gpuready.model import Finding
from gpuready.rules import compilation
from tests.rules.builds import BUILDS, COLOSSAL, card
from tests.rules.worlds import H100, facts, judged

# -- the list of architectures ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, entries",
    [
        ("7.0;7.5;8.0+PTX", {"7.0": ["7.0"], "7.5": ["7.5"], "8.0+PTX": ["8.0+PTX"]}),
        ("8.0 9.0a", {"8.0": ["8.0"], "9.0a": ["9.0a"]}),
        ("Ampere;Hopper", {"Ampere": ["8.0", "8.6+PTX"], "Hopper": ["9.0+PTX"]}),
        ("Ampere+Tegra", {"Ampere+Tegra": ["8.7"]}),
        ("10.0f 12.1", {"10.0f": ["10.0f"], "12.1": ["12.1"]}),
        ("All", None),
        ("8.0,9.0", None),
        ("8.0;;9.0", None),
        ("sm_90", None),
    ],
)
def test_what_a_list_asks_for(text, entries):
    assert compilation.parse_build_arch_list(text) == entries


@pytest.mark.parametrize("value", [None, "", "  ", "native"])
def test_a_list_that_decides_nothing(value):
    assert compilation.effective_arch_list(facts({"env.TORCH_CUDA_ARCH_LIST": value})) is None


# -- BLD009, BLD010 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, capability, fires",
    [
        ("7.0;7.5;8.0", "9.0", True),
        ("7.0;7.5;8.0+PTX", "9.0", False),
        ("8.0 8.6", "8.9", False),
        ("9.0a", "9.0", False),
        ("9.0a", "10.0", True),
        ("Ampere", "9.0", False),
        ("Ampere", "7.5", True),
        ("Volta", "8.0", False),
        ("5.2 6.0 6.1 7.0 7.5 8.0 8.6 9.0+PTX", "12.0", False),
        ("something", "9.0", False),
    ],
)
def test_which_gpus_a_list_serves(text, capability, fires):
    found = judged("BLD009", card(capability, **BUILDS) | {"env.TORCH_CUDA_ARCH_LIST": text})
    assert isinstance(found, Finding) is fires
    if fires:
        assert found.severity == "error" and capability in found.says and capability in found.fix[0].does


def test_one_gpu_of_two_that_is_left_out():
    two = (
        H100
        | BUILDS
        | {"gpu.count": 2, "gpu.visible": (0, 1), "gpu.capability": ("8.0", "9.0"), "gpu.name": ("A", "H")}
    )
    found = judged("BLD009", two | {"env.TORCH_CUDA_ARCH_LIST": "8.0"})
    assert "GPU 1 (H, 9.0)" in found.says and "8.0;9.0" in found.fix[0].does
    hidden = two | {"gpu.visible": (0,), "env.TORCH_CUDA_ARCH_LIST": "8.0"}
    assert judged("BLD009", hidden) is None


def test_colossalai_does_not_read_the_list_where_it_sees_a_gpu():
    for code in ("BLD009", "BLD010"):
        broken = H100 | BUILDS | {"env.TORCH_CUDA_ARCH_LIST": "3.5", "toolkit.version": "12.8"}
        assert judged(code, broken, COLOSSAL) is None
        assert isinstance(judged(code, broken), Finding)


@pytest.mark.parametrize(
    "text, toolkit, beyond",
    [
        ("8.0 9.0 12.0+PTX", "12.4", "12.0+PTX"),
        ("8.0 9.0 12.0+PTX", "12.8", None),
        ("7.0;7.5", "13.0", "7.0"),
        ("9.0a", "11.8", "9.0a"),
        ("9.0a", "12.4", None),
        ("10.0f", "12.8", "10.0f"),
        ("10.0f", "12.9", None),
        ("Blackwell", "12.8", None),
        ("Blackwell", "12.4", "Blackwell"),
        ("Kepler;Ampere", "12.4", "Kepler"),
        ("native", "12.4", None),
        ("nonsense", "12.4", None),
    ],
)
def test_which_entries_a_toolkit_can_build(text, toolkit, beyond):
    found = judged("BLD010", H100 | BUILDS | {"env.TORCH_CUDA_ARCH_LIST": text, "toolkit.version": toolkit})
    assert (found is None) is (beyond is None)
    if beyond:
        assert beyond in found.says


def test_the_fix_keeps_what_can_be_built():
    found = judged("BLD010", H100 | BUILDS | {"env.TORCH_CUDA_ARCH_LIST": "8.0 12.0", "toolkit.version": "12.4"})
    assert found.fix[0].does == "set TORCH_CUDA_ARCH_LIST=8.0"
    alone = judged("BLD010", H100 | BUILDS | {"env.TORCH_CUDA_ARCH_LIST": "12.0", "toolkit.version": "12.4"})
    assert alone.fix[0].does == "unset TORCH_CUDA_ARCH_LIST"
    assert judged("BLD010", H100 | BUILDS | {"env.TORCH_CUDA_ARCH_LIST": "12.0", "toolkit.version": None}) is None
