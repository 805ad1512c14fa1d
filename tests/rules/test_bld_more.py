"""What builds, beyond the toolkit: targets, compilers, variables, folders, memory, locks."""

from __future__ import annotations

import pytest

from tarmac import rules
from tarmac.model import NOT_STATED, Fact, Facts, Finding, Need, Unknown
from tarmac.rules import building
from tests.rules.worlds import H100, contract, facts, judged, need, outcome

BUILDS = {"job.wants": ("build",)}
HOST = H100 | {
    "env.names": (),
    "toolkit.chosen_by": "nvcc on the path",
    "toolkit.home_missing": None,
    "python.headers": True,
    "tmp.path": "/tmp",
    "tmp.exists": True,
    "tmp.noexec": False,
    "tmp.free": 10**11,
    "host.cores_usable": 32,
    "memory.available": 10**12,
    "memory.limit": None,
    "cache.locks": (),
}
"""The healthy machine with all that a build looks at."""

FORCE = {"name": "FORCE_CUDA", "access": "read", "cite": "extensions/cuda_extension.py:33"}
EXT = {"name": "BUILD_EXT", "access": "read", "cite": "setup.py:16"}
COLOSSAL = contract(
    need("toolkit.version", ">=11.0"),
    framework="colossalai",
    distribution="colossalai",
    variables=[FORCE, EXT],
)
OPEN = contract(framework="colossalai", distribution="colossalai", variables=[FORCE, EXT])
"""The same without a word on the toolkit."""

CODES = [f"BLD{n:03}" for n in range(4, 18)]


def card(capability, **more):
    return HOST | {"gpu.capability": (capability,), "gpu.name": ("a GPU",)} | more


# -- when anything is said at all ---------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_a_healthy_machine_hears_nothing_whether_it_builds_or_not(code):
    for job in ({}, BUILDS, {"job.wants": ("torch-compile",)}):
        for agreed in (contract(), COLOSSAL, OPEN):
            assert judged(code, HOST | job, agreed) is None


WRONG = {
    "toolkit.version": "11.0",
    "compiler.gcc": None,
    "compiler.gxx": None,
    "compiler.ninja": None,
    "python.headers": False,
    "tmp.exists": False,
    "host.cores_usable": 512,
    "memory.available": 10**9,
    "env.TORCH_CUDA_ARCH_LIST": "3.5",
}


@pytest.mark.parametrize("code", [c for c in CODES if c not in ("BLD007", "BLD015", "BLD016", "BLD017")])
def test_where_nothing_is_built_nothing_is_wrong(code):
    assert judged(code, HOST | WRONG) is None
    assert judged(code, HOST | WRONG | {"job.wants": ("bf16",)}) is None


@pytest.mark.parametrize("code", CODES)
def test_a_contract_for_another_platform_hears_nothing(code):
    if code != "BLD015":
        wrong = HOST | WRONG | BUILDS | {"toolkit.path": "/gone", "toolkit.nvcc": None}
        assert judged(code, wrong, contract(platforms=["rocm"])) is None


def test_on_a_machine_of_another_platform_nvcc_is_not_asked_for():
    amd = HOST | BUILDS | {"platform.name": "rocm", "toolkit.path": None, "toolkit.version": None}
    both = contract(platforms=["cuda", "rocm"])
    assert judged("BLD006", amd, both) is None
    assert isinstance(judged("BLD006", amd | {"platform.name": "cuda"}, both), Finding)


def test_a_build_is_asked_for_by_the_job_or_by_the_variable_of_the_framework():
    assert building.asked(facts(BUILDS), contract())
    assert building.asked(facts({"env.BUILD_EXT": "1"}), OPEN)
    assert not building.asked(facts({"env.BUILD_EXT": "0"}), OPEN)
    assert not building.asked(facts({"env.BUILD_EXT": "yes"}), OPEN)
    assert not building.asked(facts({"env.BUILD_EXT": "1"}), contract()), (
        "who does not read it does not build"
    )
    with pytest.raises(Unknown):
        building.asked(Facts([]), OPEN)


def test_a_required_toolkit_means_a_build_on_first_use():
    assert building.due(facts(HOST), COLOSSAL) and not building.due(facts(HOST), OPEN)
    assert building.severity(facts(HOST), COLOSSAL) == "warning"
    assert building.severity(facts(HOST | BUILDS), COLOSSAL) == "error"


def test_an_imagined_machine_has_the_variables_that_are_stated_and_no_others():
    stated = Facts([Fact("env.MAX_JOBS", "4")], "", NOT_STATED)
    assert building.setting(stated, "MAX_JOBS") == "4" and building.setting(stated, "BUILD_EXT") is None
    with pytest.raises(Unknown):
        building.setting(Facts([]), "BUILD_EXT")
    keys = ("gpu.count", "gpu.visible", "gpu.name")
    card = [
        *(Fact(key, H100[key]) for key in keys),
        Fact("gpu.capability", ("12.0",)),
        Fact("job.wants", ("build",)),
    ]
    tools = [Fact("toolkit.version", "12.4"), Fact("torch.arch", ("sm_90", "sm_120"))]
    imagined = Facts([*card, *tools], "rtx5090", NOT_STATED)
    assert isinstance(outcome(rules.rule("BLD004"), imagined, contract()), Finding)


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
    assert building.entries(text) == entries


@pytest.mark.parametrize("value", [None, "", "  ", "native"])
def test_a_list_that_decides_nothing(value):
    assert building.listed(facts({"env.TORCH_CUDA_ARCH_LIST": value})) is None


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
    assert judged("BLD004", HOST | BUILDS | {"gpu.count": 0, "gpu.visible": ()}) is None


def test_a_toolkit_that_the_catalogue_does_not_know_is_unknown():
    for code in ("BLD004", "BLD005"):
        assert isinstance(judged(code, HOST | BUILDS | {"toolkit.version": "29.1"}), Unknown)


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
    found = judged("BLD005", HOST | BUILDS | {"toolkit.version": toolkit, "compiler.gcc": gcc})
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
    new = HOST | BUILDS | {"toolkit.version": "12.1", "compiler.gcc": "14.1.0"}
    assert judged("BLD005", new | {f"env.{name}": value}) is None
    assert isinstance(judged("BLD005", new | {"env.NVCC_PREPEND_FLAGS": "-Xptxas -v"}), Finding)


def test_no_gcc_is_told_elsewhere():
    assert judged("BLD005", HOST | BUILDS | {"compiler.gcc": None}) is None


# -- BLD006, BLD007 -----------------------------------------------------------------------------------

BARE = (
    HOST
    | BUILDS
    | {"toolkit.path": None, "toolkit.version": None, "toolkit.nvcc": None, "toolkit.chosen_by": None}
)


def test_no_toolkit_where_something_is_built():
    found = judged("BLD006", BARE)
    assert found.severity == "error" and "install the CUDA toolkit 12.8" in found.fix[0].does
    assert "wheels" in found.fix[1].does


def test_nvcc_on_the_path_is_enough():
    assert judged("BLD006", HOST | BUILDS | {"env.CUDA_HOME": None}) is None


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
    found = judged("BLD007", HOST | BUILDS | home("/opt/gone", missing="/opt/gone/"))
    assert found.severity == "error" and "CUDA_HOME leads to /opt/gone" in found.says
    assert any(step.does.startswith("unset CUDA_HOME") for step in found.fix)
    assert judged("BLD006", HOST | BUILDS | home("/opt/gone", missing="/opt/gone")) is None, "told once"


def test_a_runtime_without_a_compiler():
    found = judged("BLD007", HOST | BUILDS | home("/opt/cuda", by="CUDA_PATH"))
    assert "CUDA_PATH leads to /opt/cuda, which has no bin/nvcc" in found.says


def test_a_dead_link_counts_only_where_nothing_else_leads_to_a_toolkit():
    link = "/usr/local/cuda"
    assert (
        "the link leads to /usr/local/cuda" in judged("BLD007", HOST | BUILDS | home(None, None, link)).says
    )
    fine = home("/opt/cuda", "nvcc on the path", link, "/opt/cuda/bin/nvcc")
    assert judged("BLD007", HOST | BUILDS | fine) is None
    other = home("/opt/cuda", "CUDA_HOME", "/opt/cuda-path", "/opt/cuda/bin/nvcc")
    assert judged("BLD007", HOST | BUILDS | other) is None, "CUDA_PATH is not asked where CUDA_HOME is set"


def test_it_weighs_by_what_is_built():
    wrong = HOST | home("/opt/gone", missing="/opt/gone")
    assert judged("BLD007", wrong).severity == "info"
    assert judged("BLD007", wrong, COLOSSAL).severity == "warning"
    assert judged("BLD007", wrong, toolkit_nvcc="denied") is None, "no news of what nobody sees"
    assert isinstance(judged("BLD007", wrong | BUILDS, toolkit_path="denied"), Unknown)


def test_a_compiler_that_is_named_outright():
    named = HOST | BUILDS | home("/opt/gone", missing="/opt/gone") | {"env.PYTORCH_NVCC": "/usr/bin/nvcc"}
    assert judged("BLD007", named) is None


# -- BLD008 -------------------------------------------------------------------------------------------


def test_a_build_without_torch():
    bare = HOST | {"package.torch": None, "torch.version": None, "torch.cuda": None}
    assert judged("BLD008", bare) is None
    found = judged("BLD008", bare | BUILDS)
    assert found.fix[0].run[:3] == ("uv", "pip", "install") and "--no-build-isolation" in found.fix[1].does
    by_variable = judged("BLD008", bare | {"env.BUILD_EXT": "1"}, OPEN)
    assert by_variable.needs[0].cite == "setup.py:16"


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
        HOST
        | BUILDS
        | {"gpu.count": 2, "gpu.visible": (0, 1), "gpu.capability": ("8.0", "9.0"), "gpu.name": ("A", "H")}
    )
    found = judged("BLD009", two | {"env.TORCH_CUDA_ARCH_LIST": "8.0"})
    assert "GPU 1 (H, 9.0)" in found.says and "8.0;9.0" in found.fix[0].does
    hidden = two | {"gpu.visible": (0,), "env.TORCH_CUDA_ARCH_LIST": "8.0"}
    assert judged("BLD009", hidden) is None


def test_colossalai_does_not_read_the_list_where_it_sees_a_gpu():
    for code in ("BLD009", "BLD010"):
        odd = HOST | BUILDS | {"env.TORCH_CUDA_ARCH_LIST": "3.5", "toolkit.version": "12.8"}
        assert judged(code, odd, COLOSSAL) is None
        assert isinstance(judged(code, odd), Finding)


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
    found = judged("BLD010", HOST | BUILDS | {"env.TORCH_CUDA_ARCH_LIST": text, "toolkit.version": toolkit})
    assert (found is None) is (beyond is None)
    if beyond:
        assert beyond in found.says


def test_the_fix_keeps_what_can_be_built():
    found = judged(
        "BLD010", HOST | BUILDS | {"env.TORCH_CUDA_ARCH_LIST": "8.0 12.0", "toolkit.version": "12.4"}
    )
    assert found.fix[0].does == "set TORCH_CUDA_ARCH_LIST=8.0"
    alone = judged("BLD010", HOST | BUILDS | {"env.TORCH_CUDA_ARCH_LIST": "12.0", "toolkit.version": "12.4"})
    assert alone.fix[0].does == "unset TORCH_CUDA_ARCH_LIST"
    assert (
        judged("BLD010", HOST | BUILDS | {"env.TORCH_CUDA_ARCH_LIST": "12.0", "toolkit.version": None})
        is None
    )


# -- BLD011, BLD012 -----------------------------------------------------------------------------------


def test_a_build_needs_a_compiler_and_likes_ninja():
    bare = HOST | BUILDS | {"compiler.gcc": None, "compiler.gxx": None, "compiler.ninja": None}
    found = judged("BLD011", bare)
    assert found.severity == "error" and "a C++ compiler and ninja" in found.says and len(found.fix) == 2
    slow = judged("BLD011", HOST | BUILDS | {"compiler.ninja": None})
    assert slow.severity == "warning" and slow.fix[0].run[-1] == "ninja"


@pytest.mark.parametrize("word", ["torch-compile", "Flex_Attention", "liger"])
def test_triton_needs_a_c_compiler_and_the_headers(word):
    job = {"job.wants": (word,)}
    assert judged("BLD011", HOST | job | {"compiler.gcc": None}).severity == "error"
    assert judged("BLD011", HOST | job | {"compiler.ninja": None, "compiler.gxx": None}) is None
    assert judged("BLD012", HOST | job | {"python.headers": False}).severity == "error"


def test_clang_serves_where_it_is_named():
    clang = HOST | {"compiler.gcc": None, "compiler.gxx": None, "env.CC": "clang", "env.CXX": "clang++"}
    assert judged("BLD011", clang | {"job.wants": ("build", "torch-compile")}) is None


def test_tools_that_the_contract_asks_for_are_told_there():
    agreed = contract(need("compiler.gxx", "*", when="build"), need("compiler.ninja", "*", when="build"))
    assert judged("BLD011", HOST | BUILDS | {"compiler.gxx": None, "compiler.ninja": None}, agreed) is None


def test_the_headers_of_this_very_python():
    found = judged("BLD012", HOST | BUILDS | {"python.headers": False})
    assert "python3.12-dev" in found.fix[0].does and found.fix[0].note == "needs root"
    assert (
        "python3-dev"
        in judged("BLD012", HOST | BUILDS | {"python.headers": False}, python_version="?").fix[0].does
    )
    assert isinstance(judged("BLD012", HOST | BUILDS, python_headers="no folder"), Unknown)


# -- BLD013 -------------------------------------------------------------------------------------------

GONE = {"tmp.path": "/scratch/7", "tmp.exists": False, "tmp.noexec": None, "tmp.free": None}
COMPILES = {"job.wants": ("torch-compile",)}


def test_a_temporary_folder_that_is_not_there():
    assert judged("BLD013", HOST | BUILDS | GONE).severity == "error"
    assert judged("BLD013", HOST | COMPILES | GONE) is None, "Python falls back to /tmp by itself"


def test_noexec_and_a_full_disk_are_warnings():
    for job in (BUILDS, COMPILES):
        assert judged("BLD013", HOST | job | {"tmp.noexec": True}).severity == "warning"
    assert "less than 1 GB" in judged("BLD013", HOST | BUILDS | {"tmp.free": 10**8}).says
    assert judged("BLD013", HOST | COMPILES | {"tmp.free": 10**8}) is None
    assert judged("BLD013", HOST | BUILDS | {"tmp.free": None}) is None


def test_a_cache_that_lies_elsewhere():
    moved = HOST | {"tmp.noexec": True, "env.TORCHINDUCTOR_CACHE_DIR": "/data/cache"}
    assert judged("BLD013", moved | COMPILES) is None
    assert isinstance(judged("BLD013", moved | BUILDS), Finding)


# -- BLD014 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cores, available, limit, stated, jobs",
    [
        (96, 2 * 10**12, 4 * 10**9, None, "1"),
        (32, 16 * 10**9, None, None, "6"),
        (32, 100 * 10**9, None, None, None),
        (32, 16 * 10**9, None, "4", None),
        (32, 16 * 10**9, None, "16", "6"),
        (32, 16 * 10**9, None, "many", "6"),
        (1, 10**9, None, None, None),
        (None, 10**9, None, None, None),
        (32, None, None, None, None),
    ],
)
def test_how_many_compilers_the_memory_holds(cores, available, limit, stated, jobs):
    box = {
        "host.cores_usable": cores,
        "memory.available": available,
        "memory.limit": limit,
        "env.MAX_JOBS": stated,
    }
    found = judged("BLD014", HOST | BUILDS | box)
    assert (found.fix[0].does if found else None) == (f"set MAX_JOBS={jobs}" if jobs else None)
    if found:
        assert found.severity == "warning"


# -- BLD015, BLD016, BLD017 ---------------------------------------------------------------------------


def test_a_lock_is_named_and_never_removed_unasked():
    lock = "/home/u/.cache/torch_extensions/py312_cu128/fused_adam/lock"
    found = judged("BLD015", HOST | {"cache.locks": (lock,)})
    assert lock in found.says and found.fix[0].run == ("rm", "--", lock) and found.fix[0].safety == "ask"
    many = judged("BLD015", HOST | {"cache.locks": tuple(f"/c/{i}/lock" for i in range(9))})
    assert "6 more" in many.says and len(many.fix) == 9


@pytest.mark.parametrize(
    "value, fires", [("0", True), ("False", True), (" no ", True), ("1", False), ("", False)]
)
def test_a_no_that_counts_as_a_yes(value, fires):
    assert isinstance(judged("BLD016", HOST | {"env.FORCE_CUDA": value}, COLOSSAL), Finding) is fires
    assert judged("BLD016", HOST | {"env.FORCE_CUDA": value}) is None, "others read it otherwise"


@pytest.mark.parametrize(
    "value, fires", [("true", True), ("", True), ("1.0", True), ("1", False), (" 0 ", False), (None, False)]
)
def test_a_number_is_a_number(value, fires):
    found = judged("BLD017", HOST | {"env.BUILD_EXT": value}, COLOSSAL)
    assert isinstance(found, Finding) is fires
    assert judged("BLD017", HOST | {"env.BUILD_EXT": value}) is None


def test_once_it_is_installed_nobody_reads_the_variable():
    odd = HOST | {"env.BUILD_EXT": "true"}
    assert judged("BLD017", odd, COLOSSAL).severity == "error"
    assert judged("BLD017", odd | {"package.colossalai": "0.5.0"}, COLOSSAL).severity == "info"
    assert judged("BLD017", odd | BUILDS | {"package.colossalai": "0.5.0"}, COLOSSAL).severity == "error"


# -- the shared judgement -----------------------------------------------------------------------------


def test_a_contract_names_its_variables():
    assert building.variable(COLOSSAL, "BUILD_EXT").cite == "setup.py:16"
    assert building.variable(contract(), "BUILD_EXT") is None


def test_another_toolkit_is_one_with_a_compiler_and_of_the_right_major():
    rows = (
        {"path": "/usr/local/cuda-12.8", "version": "12.8", "nvcc": "/usr/local/cuda-12.8/bin/nvcc"},
        {"path": "/a", "version": None, "nvcc": "/a/bin/nvcc"},
        {"path": "/b", "version": "11.8", "nvcc": "/b/bin/nvcc"},
        {"path": "/c", "version": "12.4", "nvcc": "/c/bin/nvcc"},
    )
    known = facts(HOST | {"toolkit.others": rows, "toolkit.path": "/usr/local/cuda-12.8"})
    assert building.home(known) == "/b" and building.home(known, "12.6") == "/c"
    assert building.home(known, "13.0") is None and building.home(facts({})) is None


def test_needs_are_cited():
    for code in ("BLD005", "BLD010"):
        values = HOST | BUILDS | {"toolkit.version": "12.1", "env.TORCH_CUDA_ARCH_LIST": "12.0"}
        found = judged(code, values)
        assert all(isinstance(one, Need) and one.cite for one in found.needs)
