"""The toolkit, its compiler and torch, where something is built."""

from __future__ import annotations

import pytest

from gpuready.model import Finding, UnknownFactError
from tests.rules.builds import BUILDS, COLOSSAL, OPEN, card
from tests.rules.worlds import H100, contract, judged, need

# -- BLD004 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "toolkit, capability, fires",
    [
        ("12.4", "12.0", True),
        ("12.8.93", "12.0", False),
        ("12.8", "10.3", True),
        ("12.9", "10.3", False),
        ("13.0", "7.0", True),
        ("12.9", "7.0", False),
        ("11.7", "8.9", True),
        ("11.8", "9.0", False),
    ],
)
def test_what_nvcc_knows(toolkit, capability, fires):
    built = ("sm_70", "sm_80", "sm_90", "sm_100", "sm_120")
    found = judged("BLD004", card(capability, **BUILDS) | {"toolkit.version": toolkit, "torch.arch": built})
    assert isinstance(found, Finding) is fires


def test_torch_asks_for_no_more_than_it_has_itself():
    """An RTX 4090 with torch for sm_86 at most: torch asks nvcc 11.7 for 8.6, and the build works."""
    ada = card("8.9", **BUILDS) | {"toolkit.version": "11.7", "torch.arch": ("sm_80", "sm_86")}
    assert judged("BLD004", ada) is None
    assert isinstance(judged("BLD004", ada | {"torch.arch": ("sm_80", "sm_90a")}), Finding)
    assert isinstance(judged("BLD004", ada | {"torch.arch": None}), Finding)


def test_the_ways_out_are_code_for_a_kin_or_another_toolkit():
    ada = card("8.9", **BUILDS) | {"toolkit.version": "11.7", "torch.arch": ("sm_90",)}
    near, other = judged("BLD004", ada).fix
    assert near.does.startswith("set TORCH_CUDA_ARCH_LIST=8.6") and ">=11.8" in other.does
    volta = card("7.0", **BUILDS) | {"toolkit.version": "13.0", "torch.arch": ("sm_90",)}
    (only,) = judged("BLD004", volta).fix
    assert ">=11.0,<=12.9" in only.does


def test_a_list_that_is_set_is_judged_by_other_rules():
    blackwell = card("12.0", **BUILDS) | {"toolkit.version": "12.4", "env.TORCH_CUDA_ARCH_LIST": "9.0+PTX"}
    assert judged("BLD004", blackwell) is None
    native = blackwell | {"env.TORCH_CUDA_ARCH_LIST": "native"}
    assert isinstance(judged("BLD004", native), Finding)


def test_without_toolkit_or_gpu_there_is_no_target():
    assert judged("BLD004", card("12.0", **BUILDS) | {"toolkit.version": None}) is None
    assert judged("BLD004", H100 | BUILDS | {"gpu.count": 0, "gpu.visible": ()}) is None


def test_a_toolkit_that_the_catalogue_does_not_know_is_unknown():
    for code in ("BLD004", "BLD005"):
        assert isinstance(judged(code, H100 | BUILDS | {"toolkit.version": "29.1"}), UnknownFactError)


def test_where_kernels_may_be_there_already_it_is_a_warning():
    agreed = COLOSSAL
    assert judged("BLD004", card("12.0") | {"toolkit.version": "12.4"}, agreed).severity == "warning"
    assert judged("BLD004", card("12.0", **BUILDS) | {"toolkit.version": "12.4"}, agreed).severity == "error"


# -- BLD005 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "toolkit, gcc, severity",
    [
        ("12.1", "13.2.0", "error"),
        ("12.4", "13.2.0", None),
        ("12.4", "14.1.0", "error"),
        ("12.8", "14.2.0", None),
        ("11.8", "11.4.0", None),
        ("11.8", "12.2.0", "error"),
        ("12.8", "4.8.5", "warning"),
    ],
)
def test_which_gcc_which_cuda(toolkit, gcc, severity):
    found = judged("BLD005", H100 | BUILDS | {"toolkit.version": toolkit, "compiler.gcc": gcc})
    assert (found.severity if found else None) == severity
    if found:
        assert gcc in found.says and toolkit in found.says and found.needs[0].cite


@pytest.mark.parametrize(
    "name, value",
    [
        ("NVCC_CCBIN", "/usr/bin/g++-12"),
        ("CUDAHOSTCXX", "/usr/bin/g++-12"),
        ("NVCC_PREPEND_FLAGS", "-ccbin /usr/bin/g++-12"),
        ("NVCC_APPEND_FLAGS", "-allow-unsupported-compiler"),
        ("CC", "/usr/bin/clang-16"),
    ],
)
def test_who_names_another_compiler_has_one(name, value):
    new = H100 | BUILDS | {"toolkit.version": "12.1", "compiler.gcc": "14.1.0"}
    assert judged("BLD005", new | {f"env.{name}": value}) is None
    assert isinstance(judged("BLD005", new | {"env.NVCC_PREPEND_FLAGS": "-Xptxas -v"}), Finding)


def test_no_gcc_is_told_elsewhere():
    assert judged("BLD005", H100 | BUILDS | {"compiler.gcc": None}) is None


# -- BLD006, BLD007 -----------------------------------------------------------------------------------

BARE = H100 | BUILDS | {"toolkit.path": None, "toolkit.version": None, "toolkit.nvcc": None, "toolkit.chosen_by": None}


def test_no_toolkit_where_something_is_built():
    found = judged("BLD006", BARE)
    assert found.severity == "error" and "install the CUDA toolkit 12.8" in found.fix[0].does
    assert "wheels" in found.fix[1].does


def test_nvcc_on_the_path_is_enough():
    assert judged("BLD006", H100 | BUILDS | {"env.CUDA_HOME": None}) is None


def test_what_the_contract_asks_in_its_own_words_is_told_there():
    assert judged("BLD006", BARE, contract(need("toolkit.version", ">=11.0", when="build"))) is None
    assert judged("BLD006", BARE, contract(need("toolkit.nvcc", "*"))) is None
    elsewhere = contract(need("toolkit.version", ">=12.3", when="wants=deepgemm"))
    assert isinstance(judged("BLD006", BARE, elsewhere), Finding)


def test_the_contracts_word_on_cuda_home_is_cited():
    home = {"name": "CUDA_HOME", "access": "read", "required": True, "cite": "cuda_extension.py:41"}
    assert judged("BLD006", BARE, contract(variables=[home])).needs[0].cite == "cuda_extension.py:41"


def test_a_toolkit_that_is_here_under_another_name():
    others = ({"path": "/opt/cuda", "version": "12.6", "nvcc": "/opt/cuda/bin/nvcc"},)
    assert judged("BLD006", BARE | {"toolkit.others": others}).fix[0].does == "set CUDA_HOME=/opt/cuda"
    old = ({"path": "/opt/cuda", "version": "11.8", "nvcc": "/opt/cuda/bin/nvcc"},)
    assert "install" in judged("BLD006", BARE | {"toolkit.others": old}).fix[0].does
    runtime = ({"path": "/opt/cuda", "version": "12.8", "nvcc": None},)
    assert "install" in judged("BLD006", BARE | {"toolkit.others": runtime}).fix[0].does


def home(path, by="CUDA_HOME", missing=None, nvcc=None):
    return {
        "toolkit.path": path,
        "toolkit.chosen_by": by,
        "toolkit.home_missing": missing,
        "toolkit.nvcc": nvcc,
        "toolkit.version": None,
    }


def test_a_variable_that_leads_nowhere():
    found = judged("BLD007", H100 | BUILDS | home("/opt/gone", missing="/opt/gone/"))
    assert found.severity == "error" and "CUDA_HOME points to /opt/gone" in found.says
    assert any(step.does.startswith("unset CUDA_HOME") for step in found.fix)
    assert judged("BLD006", H100 | BUILDS | home("/opt/gone", missing="/opt/gone")) is None, "told once"


def test_a_runtime_without_a_compiler():
    found = judged("BLD007", H100 | BUILDS | home("/opt/cuda", by="CUDA_PATH"))
    assert "CUDA_PATH points to /opt/cuda, which has no bin/nvcc" in found.says


def test_a_dead_link_counts_only_where_nothing_else_leads_to_a_toolkit():
    link = "/usr/local/cuda"
    assert "the link points to /usr/local/cuda" in judged("BLD007", H100 | BUILDS | home(None, None, link)).says
    fine = home("/opt/cuda", "nvcc on the path", link, "/opt/cuda/bin/nvcc")
    assert judged("BLD007", H100 | BUILDS | fine) is None
    other = home("/opt/cuda", "CUDA_HOME", "/opt/cuda-path", "/opt/cuda/bin/nvcc")
    assert judged("BLD007", H100 | BUILDS | other) is None, "CUDA_PATH is not asked where CUDA_HOME is set"


def test_it_weighs_by_what_is_built():
    wrong = H100 | home("/opt/gone", missing="/opt/gone")
    assert judged("BLD007", wrong).severity == "info"
    assert judged("BLD007", wrong, COLOSSAL).severity == "warning"
    assert judged("BLD007", wrong, toolkit_nvcc="denied") is None, "no news of what nobody sees"
    assert isinstance(judged("BLD007", wrong | BUILDS, toolkit_path="denied"), UnknownFactError)


def test_a_compiler_that_is_named_outright():
    named = H100 | BUILDS | home("/opt/gone", missing="/opt/gone") | {"env.PYTORCH_NVCC": "/usr/bin/nvcc"}
    assert judged("BLD007", named) is None


# -- BLD008 -------------------------------------------------------------------------------------------


def test_a_build_without_torch():
    bare = H100 | {"package.torch": None, "torch.version": None, "torch.cuda": None}
    assert judged("BLD008", bare) is None
    found = judged("BLD008", bare | BUILDS)
    assert found.fix[0].run[:3] == ("uv", "pip", "install") and "--no-build-isolation" in found.fix[1].does
    by_variable = judged("BLD008", bare | {"env.BUILD_EXT": "1"}, OPEN)
    assert by_variable.needs[0].cite == "setup.py:16"
