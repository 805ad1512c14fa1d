"""The builds of torch, and which GPU each has code for, against binary compatibility written out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import every

from gpuready.catalog import cuda, gpus, load_catalog, torch

# CUDA programming guide, binary compatibility: same major, a minor that is not older. Integrated GPUs (5.3,
# 6.2, 7.2, 8.7, 10.1) and the others do not share code, and 10.1 was renamed 11.0. Written out, not computed.
RUNS_ON = {
    "3.5": {"3.5", "3.7"}, "3.7": {"3.7"},
    "5.0": {"5.0", "5.2"}, "5.2": {"5.2"}, "5.3": {"5.3"},
    "6.0": {"6.0", "6.1"}, "6.1": {"6.1"}, "6.2": {"6.2"},
    "7.0": {"7.0", "7.5"}, "7.2": {"7.2"}, "7.5": {"7.5"},
    "8.0": {"8.0", "8.6", "8.8", "8.9"}, "8.6": {"8.6", "8.8", "8.9"}, "8.7": {"8.7"}, "8.8": {"8.8", "8.9"},
    "8.9": {"8.9"},
    "9.0": {"9.0"},
    "10.0": {"10.0", "10.3", "10.7"}, "10.1": {"10.1", "11.0"}, "10.3": {"10.3", "10.7"}, "10.7": {"10.7"},
    "11.0": {"10.1", "11.0"},
    "12.0": {"12.0", "12.1"}, "12.1": {"12.1"},
}  # fmt: skip
CAPABILITIES = list(RUNS_ON)
BUILDS = [b for m in ("x86_64", "aarch64") for v in torch.list_torch_releases() for b in torch.list_torch_builds(v, m)]


def sm(capability: str) -> str:
    return "sm_" + capability.replace(".", "")


def capability(entry: str) -> str:
    digits = entry.removeprefix("sm_")
    return f"{digits[:-1]}.{digits[-1]}"


@every("code", CAPABILITIES)
def test_every_code_on_every_device(code):
    for device in CAPABILITIES:
        assert torch.covers_capability([sm(code)], device)[0] is (device in RUNS_ON[code]), (code, device)


@every("build", BUILDS, ids=lambda b: f"{b.version}-{b.variant}-{b.machine}")
def test_every_gpu_with_every_build(build):
    native = set().union(*(RUNS_ON[capability(entry)] for entry in build.arch if entry.startswith("sm_")))
    for row in load_catalog("gpus")["gpu"]:
        device = row["compute_capability"]
        covered, why = torch.covers_capability(build.arch, device)
        assert covered is (device in native), (row["name"], why)
        assert device in why


@pytest.mark.parametrize(
    ("gpu", "version", "variant", "covered"),
    [
        ("rtx5090", "2.5.1", "cu118", False),
        ("rtx5090", "2.5.1", "cu121", False),
        ("rtx5090", "2.5.1", "cu124", False),
        ("rtx5090", "2.7.0", "cu126", False),
        ("rtx5090", "2.7.0", "cu128", True),
        ("rtx5090", "2.8.0", None, True),
        ("rtx4090", "2.5.1", "cu124", True),
        ("v100", "2.13.0", "cu130", False),
        ("v100", "2.13.0", "cu126", True),
        ("v100", "2.10.0", None, True),
        ("v100", "2.11.0", None, False),
        ("v100", "2.11.0", "cu128", False),
        ("p100", "2.7.1", None, True),
        ("p100", "2.8.0", None, False),
        ("t4", "2.15.0", None, True),
        ("h100", "2.0.0", "cu117", False),
        ("h100", "2.0.0", "cu118", True),
        ("h100", "2.15.0", None, True),
        ("b200", "2.6.0", None, False),
        ("b200", "2.8.0", None, True),
        ("b300", "2.8.0", None, True),
    ],
)
def test_known_truths(gpu, version, variant, covered):
    build = torch.find_torch_build(version, variant)
    assert torch.covers_capability(build.arch, gpus.find_gpu(gpu)["compute_capability"])[0] is covered


def test_no_build_of_2_5_1_knows_the_rtx_5090():
    assert len(torch.list_torch_builds("2.5.1")) == 3
    assert not any(torch.covers_capability(b.arch, "12.0")[0] for b in torch.list_torch_builds("2.5.1"))


@pytest.mark.parametrize(
    ("arch", "device", "covered"),
    [
        (["sm_86"], "8.9", True),
        (["sm_80"], "8.6", True),
        (["sm_90"], "9.0", True),
        (["sm_120"], "12.1", True),
        (["sm_80", "sm_86"], "8.7", False),  # Orin
        (["sm_87"], "8.7", True),
        (["sm_87"], "8.9", False),
        (["sm_86"], "8.0", False),
        (["sm_70"], "7.5", True),
        (["sm_100"], "12.0", False),
        ([], "9.0", False),
        (["gfx942", "gfx90a"], "9.0", False),
        (["nonsense", "", "sm_", "sm_x"], "9.0", False),
    ],
)
def test_single_lists(arch, device, covered):
    assert torch.covers_capability(arch, device)[0] is covered


def test_integrated_gpus_take_common_code_from_cuda_13_2_on():
    assert torch.covers_capability(["sm_80"], "8.7", cuda="13.0")[0] is False
    assert torch.covers_capability(["sm_80"], "8.7", cuda="13.2")[0] is True


@every(("code", "device"), list(itertools.product(["9.0", "10.0", "10.3", "12.0"], CAPABILITIES)))
def test_architecture_code_needs_that_very_gpu(code, device):
    assert torch.covers_capability([sm(code) + "a"], device)[0] is (device == code)
    assert torch.covers_capability([sm(code).replace("sm", "compute") + "a"], device)[0] is (device == code)


@pytest.mark.parametrize(
    ("code", "device", "covered"),
    [
        ("sm_100f", "10.0", True),
        ("sm_100f", "10.3", True),
        ("sm_103f", "10.0", False),
        ("sm_100f", "12.0", False),
        ("sm_120f", "12.1", True),
        ("compute_100f", "10.3", True),
        ("compute_100f", "12.0", False),
    ],
)
def test_family_code_stays_in_its_major(code, device, covered):
    assert torch.covers_capability([code], device)[0] is covered


@every(("code", "device"), list(itertools.product(CAPABILITIES, CAPABILITIES)))
def test_ptx_compiles_for_everything_that_is_not_older(code, device):
    covered, why = torch.covers_capability([sm(code).replace("sm", "compute")], device)
    older = [int(part) for part in device.split(".")] < [int(part) for part in code.split(".")]
    assert covered is not older
    if covered:
        assert "driver" in why and "CUDA of the build" in why, "the driver has to be new enough"


def test_machine_code_comes_before_ptx():
    assert torch.covers_capability(["compute_90", "sm_80"], "8.6") == (True, "sm_80 runs on 8.6")
    assert torch.covers_capability(["sm_80", "sm_86"], "8.9") == (True, "sm_86 runs on 8.9")


def test_the_spellings_of_build_scripts():
    assert torch.covers_capability(["9.0a"], "9.0")[0] and not torch.covers_capability(["9.0a"], "10.0")[0]
    assert torch.covers_capability(["8.0+PTX"], "8.6") == (True, "sm_80 runs on 8.6")
    assert torch.covers_capability(["8.0+PTX"], "12.0")[0] and not torch.covers_capability(["8.0"], "12.0")[0]


def test_why_not_names_what_there_is():
    assert torch.covers_capability(["sm_80", "sm_90"], "12.0") == (False, "nothing in sm_80 sm_90 runs on 12.0")
    assert torch.covers_capability([], "12.0") == (False, "no architecture is listed")


entries = st.sampled_from(
    [p + c.replace(".", "") + s for p in ("sm_", "compute_") for c in CAPABILITIES for s in ("", "a", "f")]
)


@given(st.lists(entries, max_size=6), entries, st.sampled_from(CAPABILITIES))
def test_more_code_never_covers_less(arch, more, device):
    assert torch.covers_capability([*arch, more], device)[0] >= torch.covers_capability(arch, device)[0]


@given(st.lists(entries, max_size=6), st.sampled_from(CAPABILITIES), st.randoms())
def test_the_order_does_not_count(arch, device, random):
    mixed = arch[:]
    random.shuffle(mixed)
    assert torch.covers_capability(mixed, device)[0] == torch.covers_capability(arch, device)[0]


# -- builds -------------------------------------------------------------------------------------------


def test_releases_are_in_order():
    assert (
        torch.list_torch_releases()[0] == "1.13.0"
        and torch.list_torch_releases()[-1] == torch.newest_torch() == "2.15.0"
    )
    assert torch.list_torch_releases().index("2.9.1") < torch.list_torch_releases().index("2.10.0")


def test_a_build_of_pypi():
    build = torch.find_torch_build("2.12.1")
    assert (build.version, build.cuda, build.variant, build.pypi) == ("2.12.1", "13.0", "cu130", True)
    assert build.arch == ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    assert "3.12" in build.python and "3.9" not in build.python
    assert (build.nccl, build.cudnn, build.driver_floor) == ("2.29.7", "9.20.0.48", "580.65.06")
    assert build.cite


@pytest.mark.parametrize("wanted", ["cu128", "12.8", "12.8.1"])
def test_a_build_is_found_by_its_variant_or_its_cuda(wanted):
    assert torch.find_torch_build("2.8.0", wanted).variant == "cu128"


def test_a_release_is_found_by_any_spelling():
    assert (
        torch.find_torch_build("2.8", "cu128")
        == torch.find_torch_build("2.8.0+cu126", "cu128")
        == torch.find_torch_build("2.8.0", "cu128")
    )


@pytest.mark.parametrize(
    ("version", "variant"), [("1.12.1", None), ("2.8.0", "cu118"), ("2.8.0", "rocm6.4"), ("9.9", None)]
)
def test_what_the_catalogue_lacks_is_none(version, variant):
    assert torch.find_torch_build(version, variant) is None


def test_the_pins_of_the_pypi_wheel_are_those_of_its_metadata():
    assert torch.find_torch_build("2.11.0", "cu130").cudnn == "9.19.0.56"
    assert torch.find_torch_build("2.11.0", "cu126").cudnn == "9.10.2.21"


def test_the_wheel_that_carries_ptx_says_so():
    assert "compute_120" in torch.find_torch_build("2.7.1", "cu128").arch
    others = [b for b in BUILDS if not b.version.startswith("2.7") and any("compute" in a for a in b.arch)]
    assert not others


def test_aarch64_has_its_own_code_and_its_own_default():
    assert torch.find_torch_build("2.10.0", machine="aarch64") is None, "PyPI serves a CPU build"
    assert torch.find_torch_build("2.11.0", machine="aarch64").arch == ("sm_80", "sm_90", "sm_100", "sm_110", "sm_120")
    index_only = torch.find_torch_build("2.10.0", "cu130", "aarch64")
    assert index_only.pypi is False and "sm_110" in index_only.arch
    assert torch.find_torch_build("2.6.0", "cu124", "aarch64") is None
    assert torch.list_torch_builds("2.8.0", "riscv64") == []


def test_a_dgx_spark_has_builds():
    row = gpus.find_gpu("gb10")
    assert torch.covers_capability(torch.find_torch_build("2.12.0", None, row["host"]).arch, row["compute_capability"])[
        0
    ]


@every("build", BUILDS, ids=lambda b: f"{b.version}-{b.variant}-{b.machine}")
def test_a_build_is_whole(build):
    assert build.arch and build.python and build.cite
    assert cuda.driver_runs_cuda(build.driver_floor, build.cuda) is True
    assert build.cuda in cuda.list_cuda_releases()
    if build.pypi:
        assert build.nccl and build.cudnn


def test_pypi_serves_one_build_at_most():
    for version in torch.list_torch_releases():
        assert [b.pypi for b in torch.list_torch_builds(version)].count(True) == 1
        assert [b.pypi for b in torch.list_torch_builds(version, "aarch64")].count(True) <= 1


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("2.8.0+cu128", ("2.8.0", "cu128")),
        ("2.8.0", ("2.8.0", None)),
        ("2.8.0+cpu", ("2.8.0", "cpu")),
        ("2.8.0+xpu", ("2.8.0", "xpu")),
        ("2.6.0+rocm6.2.4", ("2.6.0", "rocm6.2.4")),
        ("2.7.0a0+79aa17489c.nv25.4", ("2.7.0a0", None)),
        ("2.4.0+cu121.with.pypi.cudnn", ("2.4.0", "cu121")),
        ("2.9.0.dev20250804+cu129", ("2.9.0.dev20250804", "cu129")),
        ("2.9.0+git0fabc3b", ("2.9.0", None)),
        (" 2.8.0+cu128\n", ("2.8.0", "cu128")),
        ("", ("", None)),
    ],
)
def test_parse(text, parsed):
    assert torch.parse_torch_version(text) == parsed


@pytest.mark.parametrize(
    ("version", "variable"),
    [
        ("2.0.1", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.8.0+cu128", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.9.0", "PYTORCH_ALLOC_CONF"),
        ("2.10.0", "PYTORCH_ALLOC_CONF"),
        ("2.15.0+cu132", "PYTORCH_ALLOC_CONF"),
    ],
)
def test_the_variable_of_the_allocator(version, variable):
    assert torch.allocator_variable(version) == variable
