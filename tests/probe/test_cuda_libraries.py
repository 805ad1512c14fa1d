"""Which CUDA libraries torch would load: RPATH, LD_LIBRARY_PATH, RUNPATH, in the loader's order."""

from __future__ import annotations

import pytest

from gpuready.model import Fact
from gpuready.probe import cuda_libraries, optional_probes
from gpuready.system import AccessError
from tests.probe.fakes import DENIED, SITE, Fake, by_key, files, library

LIB = f"{SITE}/torch/lib"
CU = f"{SITE}/nvidia/cu13/lib"
RPATH = "$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../nvidia/nccl/lib:$ORIGIN/../../nvidia/cu13/lib:$ORIGIN"
NEEDS = "libc10_cuda.so libcudart.so.13 libcusparse.so.12 libcublas.so.13 libnccl.so.2 libcudnn.so.9 libc.so.6"
TORCH = [Fact("torch.path", f"{SITE}/torch", SITE), Fact("torch.cuda", "13.0", f"{SITE}/torch/version.py")]
WHEELS = {
    **files(LIB, "libtorch_cuda.so", "libtorch_global_deps.so", "libc10_cuda.so"),
    **files(f"{SITE}/nvidia/nccl/lib", "libnccl.so.2"),
    **files(f"{SITE}/nvidia/cudnn/lib", "libcudnn.so.9"),
    **files(CU, "libcudart.so.13", "libcusparse.so.12", "libnvJitLink.so.13", "libcublas.so.13"),
}
TOOLKIT = files("/usr/local/cuda/lib64", "libnvJitLink.so.13", "libcudart.so.13", "libcublas.so.13", "libnccl.so.2")


def headers(rpath=True, needs=NEEDS):
    """What the wheels of torch and of NVIDIA say; torch may also be built with a RUNPATH."""
    return {
        f"{LIB}/libtorch_global_deps.so": library("libcudart.so.13", RPATH, rpath),
        f"{LIB}/libtorch_cuda.so": library(needs, RPATH, rpath),
        f"{LIB}/libc10_cuda.so": library("libcudart.so.13", RPATH, rpath),
        f"{CU}/libcusparse.so.12": library("libnvJitLink.so.13 libc.so.6", "$ORIGIN"),
        f"{CU}/libcublas.so.13": library("libcublasLt.so.13", "$ORIGIN"),
        f"{CU}/libcudart.so.13": library(),
        f"{CU}/libnvJitLink.so.13": library(),
    }


def host(own="", more=None, heads=None, preload="", **requested):
    env = {name: value for name, value in (("LD_LIBRARY_PATH", own), ("LD_PRELOAD", preload)) if value}
    return Fake(WHEELS | TOOLKIT | (more or {}), env=env, headers=heads or headers(), **requested)


def looked(machine, facts=TORCH):
    found = optional_probes._cuda_library_facts(machine, facts)
    assert tuple(fact.key for fact in found) == cuda_libraries.KEYS
    return by_key(found)


def test_the_libraries_of_the_wheels():
    found = looked(host())
    assert found["libnccl.path"].value == f"{SITE}/nvidia/nccl/lib/libnccl.so.2"
    assert found["libcudnn.path"].value == f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
    assert found["libnccl.path"].source == "needed by libtorch_cuda.so"
    assert found["library.shadowed"].value == {}
    assert found["library.shadowed"].source == "LD_LIBRARY_PATH is not set"


def test_few_headers_are_read_where_nothing_can_slip_in():
    machine = host()
    looked(machine)
    assert machine.count("elf") <= 3


def test_a_toolkit_on_the_path_slips_in_below_the_libraries_of_the_wheels():
    """torch has an RPATH, which goes first; cuSPARSE has a RUNPATH, which goes last."""
    found = looked(host("/usr/local/cuda/lib64"))
    assert found["library.shadowed"].value == {
        "libnvJitLink.so.13": {
            "taken": "/usr/local/cuda/lib64/libnvJitLink.so.13",
            "instead_of": f"{CU}/libnvJitLink.so.13",
            "because": "LD_LIBRARY_PATH, for libcusparse.so.12",
        }
    }
    assert found["libnccl.path"].value == f"{SITE}/nvidia/nccl/lib/libnccl.so.2"


def test_a_torch_with_a_runpath_takes_everything_from_the_path():
    found = looked(host("/usr/local/cuda/lib64", heads=headers(rpath=False)))
    rows = found["library.shadowed"].value
    assert set(rows) == {"libcudart.so.13", "libcublas.so.13", "libnccl.so.2", "libnvJitLink.so.13"}
    assert rows["libnccl.so.2"]["because"] == "LD_LIBRARY_PATH, for libtorch_cuda.so"
    assert rows["libcudart.so.13"]["because"] == "LD_LIBRARY_PATH, for libtorch_global_deps.so"
    assert found["libnccl.path"].value == "/usr/local/cuda/lib64/libnccl.so.2"
    assert found["libnccl.path"].source == "LD_LIBRARY_PATH, for libtorch_cuda.so"


def test_a_library_without_a_path_of_its_own_goes_by_that_of_its_loader():
    heads = headers() | {f"{CU}/libcusparse.so.12": library("libnvJitLink.so.13")}
    assert looked(host("/usr/local/cuda/lib64", heads=heads))["library.shadowed"].value == {}
    heads = headers() | {f"{CU}/libcusparse.so.12": library("libnvJitLink.so.13", "$ORIGIN", rpath=True)}
    assert looked(host("/usr/local/cuda/lib64", heads=heads))["library.shadowed"].value == {}


def test_a_name_that_is_loaded_is_not_looked_for_again():
    """Whoever loads it first decides: torch itself, with its RPATH, before cuSPARSE."""
    machine = host("/usr/local/cuda/lib64", heads=headers(needs=f"libnvJitLink.so.13 {NEEDS}"))
    assert looked(machine)["library.shadowed"].value == {}


def test_the_first_folder_of_the_path_decides():
    more = files("/opt/cuda/lib", "libnvJitLink.so.13")
    rows = looked(host("/nowhere:/opt/cuda/lib:/usr/local/cuda/lib64", more))["library.shadowed"].value
    assert rows["libnvJitLink.so.13"]["taken"] == "/opt/cuda/lib/libnvJitLink.so.13"


@pytest.mark.parametrize("own", ["relative/lib", ":", "", "/empty", CU, f"{CU}/"])
def test_a_path_that_changes_nothing(own):
    assert looked(host(own))["library.shadowed"].value == {}


def test_the_same_file_by_another_way_is_no_other_file():
    links = {"/alias": CU}
    assert looked(host("/alias", links=links))["library.shadowed"].value == {}


def test_what_is_preloaded_goes_before_all():
    found = looked(host(preload="/opt/nccl/libnccl.so.2 /usr/lib/libjemalloc.so"))
    assert found["libnccl.path"].value == "/opt/nccl/libnccl.so.2"
    assert found["library.shadowed"].value["libnccl.so.2"]["because"] == "LD_PRELOAD"


def test_a_library_that_torch_does_not_need_is_absent():
    """Some builds have NCCL compiled in."""
    found = looked(host(heads=headers(needs="libcudart.so.13")))["libnccl.path"]
    assert (found.value, found.gap) == (None, "")
    assert found.source == f"{LIB}/libtorch_cuda.so does not need it"


def test_a_library_of_the_system():
    machine = host(libraries={"libnccl.so.2": "/usr/lib/libnccl.so.2"})
    machine.files = {p: t for p, t in machine.files.items() if "nccl" not in p}
    assert looked(machine)["libnccl.path"].value == "/usr/lib/libnccl.so.2"


def test_a_library_that_is_needed_and_nowhere_is_a_gap():
    machine = host()
    machine.files = {p: t for p, t in machine.files.items() if "nccl" not in p}
    found = looked(machine)["libnccl.path"]
    assert found.value is None and found.gap == "libnccl.so.2 is needed and was not found"


def test_a_torch_without_its_library():
    found = looked(host(heads={"x": {}}))
    assert found["libnccl.path"].gap == "there is no libtorch_cuda.so"


def test_a_header_that_cannot_be_read_below_does_no_harm():
    heads = headers() | {f"{CU}/libcublas.so.13": AccessError("a damaged ELF file")}
    rows = looked(host("/usr/local/cuda/lib64", heads=heads))["library.shadowed"].value
    assert set(rows) == {"libnvJitLink.so.13"}


@pytest.mark.parametrize("which", ["libtorch_global_deps.so", "libtorch_cuda.so"])
def test_a_torch_that_cannot_be_read_is_a_gap(which):
    found = looked(host(heads=headers() | {f"{LIB}/{which}": DENIED}))
    assert {fact.gap for fact in found.values()} == {"permission denied"}


def test_circles_end():
    heads = headers() | {f"{CU}/libnvJitLink.so.13": library("libcusparse.so.12 libnvJitLink.so.13", "$ORIGIN")}
    looked(host("/usr/local/cuda/lib64", heads=heads))


def test_the_walk_is_bounded():
    names = [f"libcu{n}.so.1" for n in range(300)]
    heads = headers(needs=" ".join(names)) | {f"{CU}/{name}": library() for name in names}
    machine = host("/usr/local/cuda/lib64", files(CU, *names), heads)
    looked(machine)
    assert machine.count("elf") < 400


@pytest.mark.parametrize(
    ("facts", "gap"),
    [
        ([Fact("torch.path", None, SITE), Fact("torch.cuda", None, SITE)], ""),
        ([Fact("torch.path", f"{SITE}/torch", SITE), Fact("torch.cuda", None, "version.py")], ""),
        ([Fact("torch.path", None, SITE), Fact("torch.cuda", None, SITE, gap="no version.py")], "no version.py"),
    ],
)
def test_without_a_torch_that_uses_cuda_nothing_would_be_loaded(facts, gap):
    found = looked(host(), facts)
    assert found["libnccl.path"].value is None
    assert found["library.shadowed"].value == (None if gap else {})
    assert {fact.gap for fact in found.values()} == {gap}


def test_a_torch_whose_place_is_not_known():
    facts = [Fact("torch.path", None, SITE, gap="dark"), Fact("torch.cuda", "13.0", SITE)]
    assert {fact.gap for fact in looked(host(), facts).values()} == {"dark"}
