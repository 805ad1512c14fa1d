"""What a build needs around it: tools, headers, a folder, memory, no stale lock, variables that are numbers."""

from __future__ import annotations

import pytest

from gpuready.model import Finding, UnknownFactError
from tests.rules.builds import BUILDS, COLOSSAL
from tests.rules.worlds import H100, contract, judged, need

# -- BLD011, BLD012 -----------------------------------------------------------------------------------


def test_a_build_needs_a_compiler_and_likes_ninja():
    bare = H100 | BUILDS | {"compiler.gcc": None, "compiler.gxx": None, "compiler.ninja": None}
    found = judged("BLD011", bare)
    assert found.severity == "error" and "a C++ compiler and ninja" in found.says and len(found.fix) == 2
    slow = judged("BLD011", H100 | BUILDS | {"compiler.ninja": None})
    assert slow.severity == "warning" and slow.fix[0].run[-1] == "ninja"


@pytest.mark.parametrize("word", ["torch-compile", "Flex_Attention", "liger"])
def test_triton_needs_a_c_compiler_and_the_headers(word):
    job = {"job.wants": (word,)}
    assert judged("BLD011", H100 | job | {"compiler.gcc": None}).severity == "error"
    assert judged("BLD011", H100 | job | {"compiler.ninja": None, "compiler.gxx": None}) is None
    assert judged("BLD012", H100 | job | {"python.headers": False}).severity == "error"


def test_clang_serves_where_it_is_named():
    clang = H100 | {"compiler.gcc": None, "compiler.gxx": None, "env.CC": "clang", "env.CXX": "clang++"}
    assert judged("BLD011", clang | {"job.wants": ("build", "torch-compile")}) is None


def test_tools_that_the_contract_asks_for_are_told_there():
    agreed = contract(need("compiler.gxx", "*", when="build"), need("compiler.ninja", "*", when="build"))
    assert judged("BLD011", H100 | BUILDS | {"compiler.gxx": None, "compiler.ninja": None}, agreed) is None


def test_the_headers_of_this_very_python():
    found = judged("BLD012", H100 | BUILDS | {"python.headers": False})
    assert "python3.12-dev" in found.fix[0].does and found.fix[0].note == "needs root"
    assert "python3-dev" in judged("BLD012", H100 | BUILDS | {"python.headers": False}, python_version="?").fix[0].does
    assert isinstance(judged("BLD012", H100 | BUILDS, python_headers="no folder"), UnknownFactError)


# -- BLD013 -------------------------------------------------------------------------------------------

GONE = {"tmp.path": "/scratch/7", "tmp.exists": False, "tmp.noexec": None, "tmp.free": None}
COMPILES = {"job.wants": ("torch-compile",)}


def test_a_temporary_folder_that_is_not_there():
    assert judged("BLD013", H100 | BUILDS | GONE).severity == "error"
    assert judged("BLD013", H100 | COMPILES | GONE) is None, "Python falls back to /tmp by itself"


def test_noexec_and_a_full_disk_are_warnings():
    for job in (BUILDS, COMPILES):
        assert judged("BLD013", H100 | job | {"tmp.noexec": True}).severity == "warning"
    assert "less than 1 GB" in judged("BLD013", H100 | BUILDS | {"tmp.free": 10**8}).says
    assert judged("BLD013", H100 | COMPILES | {"tmp.free": 10**8}) is None
    assert judged("BLD013", H100 | BUILDS | {"tmp.free": None}) is None


def test_a_cache_that_lies_elsewhere():
    moved = H100 | {"tmp.noexec": True, "env.TORCHINDUCTOR_CACHE_DIR": "/data/cache"}
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
    box = {"host.cores_usable": cores, "memory.available": available, "memory.limit": limit, "env.MAX_JOBS": stated}
    found = judged("BLD014", H100 | BUILDS | box)
    assert (found.fix[0].does if found else None) == (f"set MAX_JOBS={jobs}" if jobs else None)
    if found:
        assert found.severity == "warning"


# -- BLD015, BLD016, BLD017 ---------------------------------------------------------------------------


def test_a_lock_is_named_and_never_removed_unasked():
    lock = "/home/u/.cache/torch_extensions/py312_cu128/fused_adam/lock"
    found = judged("BLD015", H100 | {"cache.locks": (lock,)})
    assert lock in found.says and found.fix[0].run == ("rm", "--", lock) and found.fix[0].safety == "ask"
    many = judged("BLD015", H100 | {"cache.locks": tuple(f"/c/{i}/lock" for i in range(9))})
    assert "6 more" in many.says and len(many.fix) == 9


@pytest.mark.parametrize("value, fires", [("0", True), ("False", True), (" no ", True), ("1", False), ("", False)])
def test_a_no_that_counts_as_a_yes(value, fires):
    assert isinstance(judged("BLD016", H100 | {"env.FORCE_CUDA": value}, COLOSSAL), Finding) is fires
    assert judged("BLD016", H100 | {"env.FORCE_CUDA": value}) is None, "others read it otherwise"


@pytest.mark.parametrize(
    "value, fires", [("true", True), ("", True), ("1.0", True), ("1", False), (" 0 ", False), (None, False)]
)
def test_a_number_is_a_number(value, fires):
    found = judged("BLD017", H100 | {"env.BUILD_EXT": value}, COLOSSAL)
    assert isinstance(found, Finding) is fires
    assert judged("BLD017", H100 | {"env.BUILD_EXT": value}) is None


def test_once_it_is_installed_nobody_reads_the_variable():
    broken = H100 | {"env.BUILD_EXT": "true"}
    assert judged("BLD017", broken, COLOSSAL).severity == "error"
    assert judged("BLD017", broken | {"package.colossalai": "0.5.0"}, COLOSSAL).severity == "info"
    assert judged("BLD017", broken | BUILDS | {"package.colossalai": "0.5.0"}, COLOSSAL).severity == "error"
