"""Compiled extensions: what their headers say of CUDA, of torch, of the C++ ABI."""

from __future__ import annotations

import pytest

from gpuready.model import Fact
from gpuready.probe import fact_helpers, optional_probes, torch_extensions
from gpuready.probe.torch_extensions import detect_cxx_abi, parse_bitsandbytes_cuda, parse_cudart_major
from gpuready.system import AccessError
from tests.probe.fakes import DENIED, SITE, Fake, by_key, files, library, someone

LIB = f"{SITE}/torch/lib"
BASE = files(LIB, "libtorch.so", "libtorch_cpu.so", "libc10.so", "libtorch_cuda.so")
TORCH = [Fact("torch.path", f"{SITE}/torch", SITE), Fact("torch.cuda", "12.8", SITE)]
FLASH = f"{SITE}/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"
NEW = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
OLD = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
NEITHER = "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"


def installed(*names, more=None):
    folders = {f"{SITE}/{name}-1.0.dist-info/METADATA": "" for name in names}
    return BASE | folders | (more or {})


def looked(host, facts=None, who=None):
    """Through the door that decides whether to look at all, with the packages that are listed."""
    who = who or someone()
    entries = [n for site in who.site for n in host.list_directory(site) or () if n.endswith(".dist-info")]
    names = [e.partition("-")[0].lower().replace("_", "-").replace(".", "-") for e in entries]
    listing = [Fact("python.packages", len(names), SITE), *(Fact(f"package.{n}", "1.0", SITE) for n in names)]
    found = by_key(optional_probes._extension_facts(host, who, [*(TORCH if facts is None else facts), *listing]))
    return found["extension.linked"]


def flash(needed="libc10.so libtorch.so libcudart.so.12 libstdc++.so.6 libc.so.6", runpath=None, **requested):
    requested.setdefault("elf", {(FLASH, ".dynstr"): [NEW]})
    requested.setdefault("libraries", {"libcudart.so.12": "/usr/lib/libcudart.so.12"})
    heads = {FLASH: library(needed, runpath), **requested.pop("headers", {})}
    return Fake(installed("flash_attn", more=files(SITE, FLASH.rpartition("/")[2])), headers=heads, **requested)


def test_flash_attention():
    found = looked(flash())
    assert found.value == {"flash-attn": {"file": FLASH, "cudart": "12", "torch": True, "abi": "cxx11", "missing": ()}}
    assert (found.source, found.gap) == (SITE, "")


def test_nothing_is_read_where_nothing_is_installed():
    host = Fake(installed("numpy", "torch"))
    assert looked(host).value == {}
    assert host.count("elf") == host.count("elf_text") == 0


def test_the_list_of_names_is_that_of_the_places():
    assert sorted(name.replace("_", "-") for name in torch_extensions.COMPILED_FILES) == sorted(fact_helpers.EXTENSIONS)


PLACES = {
    "flash_attn": "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so",
    "flash_attn_3": "flash_attn_3/_C.abi3.so",
    "xformers": "xformers/_C.so",
    "vllm": "vllm/_C.abi3.so",
    "transformer_engine": "transformer_engine_torch.cpython-312-x86_64-linux-gnu.so",
    "causal_conv1d": "causal_conv1d_cuda.cpython-312-x86_64-linux-gnu.so",
    "mamba_ssm": "selective_scan_cuda.cpython-312-x86_64-linux-gnu.so",
    "deepspeed": "deepspeed/ops/adam/fused_adam_op.cpython-312-x86_64-linux-gnu.so",
    "apex": "amp_C.cpython-312-x86_64-linux-gnu.so",
    "auto_gptq": "autogptq_cuda_64.cpython-312-x86_64-linux-gnu.so",
    "fbgemm_gpu": "fbgemm_gpu/fbgemm_gpu_py.so",
    "fbgemm_gpu_genai": "fbgemm_gpu/experimental/gen_ai/fbgemm_gpu_experimental_gen_ai.so",
    "torchvision": "torchvision/_C.so",
    "torchao": "torchao/_C.abi3.so",
    "torchaudio": "torchaudio/lib/_torchaudio.so",
    "sgl_kernel": "sgl_kernel/sm100/common_ops.abi3.so",
    "colossalai": "colossalai/_C/fused_optim_cuda.so",
    "bitsandbytes": "bitsandbytes/libbitsandbytes_cuda128.so",
}


def test_every_place_is_tried():
    assert set(PLACES) == set(torch_extensions.COMPILED_FILES)


@pytest.mark.parametrize(("name", "file"), PLACES.items())
def test_where_each_keeps_it(name, file):
    host = Fake(
        installed(name, more=files(SITE, file)),
        headers={f"{SITE}/{file}": library("libcudart.so.12 libc10.so")},
        libraries={"libcudart.so.12": "/x"},
    )
    row = looked(host).value[name.replace("_", "-")]
    assert (row["file"], row["cudart"], row["torch"]) == (f"{SITE}/{file}", "12", True)


@pytest.mark.parametrize("name", ["torchvision", "vllm"])
def test_newer_names_of_the_same(name):
    file = f"{SITE}/{name}/_C_stable.so"
    host = Fake(installed(name, more={file: ""}), headers={file: library("libcudart.so.13")})
    assert looked(host).value[name]["cudart"] == "13"


def test_a_distribution_that_compiles_when_it_is_used():
    row = looked(Fake(installed("deepspeed", more=files(SITE, "deepspeed/ops/adam/__init__.py")))).value
    assert row == {"deepspeed": {"file": None, "cudart": None, "torch": None, "abi": None, "missing": ()}}


def test_only_one_file_of_each_is_read():
    names = [f"colossalai/_C/op{n}.so" for n in range(20)]
    host = Fake(installed("colossalai", more=files(SITE, *names)), headers={f"{SITE}/{names[0]}": library("libc10.so")})
    looked(host)
    assert host.count("elf") == 1


@pytest.mark.parametrize(
    "entry", ["flash_attn-2.8.3.dist-info", "Flash_Attn-2.8.3.dist-info", "flash_attn-2.8.3-py3.12.egg-info"]
)
def test_spellings_of_the_listing(entry):
    host = flash()
    host.files = {p: t for p, t in host.files.items() if "dist-info" not in p} | {f"{SITE}/{entry}/METADATA": ""}
    facts = [*TORCH, Fact("python.packages", 1, SITE), Fact("package.flash-attn", "2.8.3", SITE)]
    assert "flash-attn" in optional_probes._extension_facts(host, someone(), facts)[0].value


def test_of_two_site_folders_the_first_wins():
    other = "/home/u/.local/lib/python3.12/site-packages"
    host = flash()
    host.files |= {f"{other}/flash_attn-2.0.dist-info/METADATA": "", f"{other}/flash_attn_2_cuda.so": ""}
    assert looked(host, who=someone(site=(SITE, other))).value["flash-attn"]["file"] == FLASH


# -- the ABI


@pytest.mark.parametrize(
    ("symbols", "found"),
    [
        ([NEW], "cxx11"),
        ([OLD], "old"),
        ([NEITHER], None),
        ([NEITHER, OLD], "old"),
        ([], None),
        (["_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"], "cxx11"),
        (["_ZN3c105ErrorC2ENS_14SourceLocationESs"], "old"),
        (["_ZN5torch3jit17parseSchemaOrNameERKSsb"], "old"),
        (["_ZN5torch3jit17parseSchemaOrNameERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEb"], "cxx11"),
        (["_ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEE"], None),
        (["_ZNSs4_Rep10_M_destroyERKSaIcE", "_ZN2at6TensorC1Ev"], None),
    ],
)
def test_how_strings_are_spelt(symbols, found):
    assert detect_cxx_abi(tuple(symbols)) == found


def test_the_rest_of_the_symbols_is_asked_where_the_usual_ones_are_missing():
    host = flash(elf={(FLASH, ".dynstr"): ["_ZN2at10something0ERKSs", "_ZSt4cout"]})
    assert looked(host).value["flash-attn"]["abi"] == "old"


def test_a_library_that_does_not_link_torch_has_no_such_abi():
    row = looked(flash("libcudart.so.12 libc.so.6")).value["flash-attn"]
    assert (row["torch"], row["abi"]) == (False, None)


# -- CUDA


@pytest.mark.parametrize(
    ("name", "major"),
    [
        ("libcudart.so.12", "12"),
        ("libcudart.so.13", "13"),
        ("libcudart.so.11.0", "11"),
        ("libcudart.faf08d9a.so.13", "13"),
        ("libcudart-a7b20f20.so.11.0", "11"),
        ("libcudart.so", None),
        ("libcudart_static.so.12", None),
        ("libcuda.so.1", None),
    ],
)
def test_the_runtime_that_a_name_means(name, major):
    assert parse_cudart_major(name) == major


def test_a_runtime_that_is_linked_in():
    assert looked(flash("libc10.so libtorch.so")).value["flash-attn"]["cudart"] is None


# -- bitsandbytes


@pytest.mark.parametrize(
    ("file", "version"),
    [
        ("libbitsandbytes_cuda128.so", "12.8"),
        ("libbitsandbytes_cuda130.so", "13.0"),
        ("libbitsandbytes_cuda117_nocublaslt.so", "11.7"),
        ("libbitsandbytes_cpu.so", None),
        ("libbitsandbytes_cuda.so", None),
    ],
)
def test_the_version_in_a_name(file, version):
    assert parse_bitsandbytes_cuda(f"/x/{file}") == version


def bits(cuda):
    names = [f"bitsandbytes/libbitsandbytes_{kind}.so" for kind in ("cpu", "cuda118", "cuda128", "cuda130")]
    heads = {f"{SITE}/{names[2]}": library("libcudart.so.12"), f"{SITE}/{names[3]}": library("libcudart.so.13")}
    host = Fake(installed("bitsandbytes", more=files(SITE, *names)), headers=heads,
                   libraries={"libcudart.so.12": "/x", "libcudart.so.13": "/x"})  # fmt: skip
    return looked(host, [TORCH[0], Fact("torch.cuda", cuda, SITE)]).value["bitsandbytes"]


def test_bitsandbytes_brings_one_for_each_cuda():
    row = bits("12.8")
    assert row["carries"] == ("11.8", "12.8", "13.0")
    assert row["file"].endswith("cuda128.so") and row["cudart"] == "12"


def test_bitsandbytes_without_one_for_this_cuda():
    row = bits("12.6")
    assert row["carries"] == ("11.8", "12.8", "13.0")
    assert row["file"] is None and row["cudart"] is None


# -- what is missing


def missing(needed, runpath=None, more=None, heads=None, **requested):
    host = flash(f"libc10.so {needed}", runpath, headers=heads or {}, **{"libraries": {}, **requested})
    host.files |= more or {}
    return looked(host).value["flash-attn"]["missing"]


def test_libraries_of_torch_and_of_the_system_are_there():
    assert missing("libtorch.so libtorch_cpu.so libstdc++.so.6 libgcc_s.so.1 libc.so.6 libpython3.12.so.1.0") == ()


def test_a_library_that_is_nowhere():
    assert missing("libcudart.so.13 libtorch_cuda_linalg.so") == ("libcudart.so.13", "libtorch_cuda_linalg.so")


def test_a_library_where_the_file_points():
    there = files(f"{SITE}/flash.libs", "libpng16.so.16")
    assert missing("libpng16.so.16", "$ORIGIN:$ORIGIN/flash.libs", there) == ()
    assert missing("libpng16.so.16", "/build/machine/lib", there) == ("libpng16.so.16",)


def test_a_library_that_the_loader_finds():
    assert missing("libcuda.so.1", libraries={"libcuda.so.1": "/usr/lib/libcuda.so.1"}) == ()


def test_a_library_in_the_wheels_of_nvidia():
    wheels = files(f"{SITE}/nvidia/cuda_runtime/lib", "libcudart.so.12")
    heads = {f"{LIB}/libtorch_cuda.so": library("libcudart.so.12")}
    assert missing("libcudart.so.12", more=wheels, heads=heads) == ()


def test_what_an_older_cuda_has_left_in_the_wheels_is_not_loaded():
    wheels = files(f"{SITE}/nvidia/cuda_runtime/lib", "libcudart.so.12")
    wheels |= files(f"{SITE}/nvidia/cu13/lib", "libcudart.so.13")
    heads = {f"{LIB}/libtorch_cuda.so": library("libcudart.so.13")}
    assert missing("libcudart.so.12", more=wheels, heads=heads) == ("libcudart.so.12",)
    assert missing("libcudart.so.13", more=wheels, heads=heads) == ()


# -- what cannot be seen


def test_a_file_that_cannot_be_read_is_a_gap_of_its_row():
    row = looked(flash(headers={FLASH: AccessError("a damaged ELF file")})).value["flash-attn"]
    assert (row["file"], row["gap"], row["cudart"]) == (FLASH, "a damaged ELF file", None)
    row = looked(flash(elf={(FLASH, ".dynstr"): DENIED})).value["flash-attn"]
    assert row["gap"] == "permission denied"


def test_a_folder_that_cannot_be_listed_is_a_gap_of_its_row():
    host = Fake(installed("xformers", more={f"{SITE}/xformers/": DENIED}))
    assert looked(host).value["xformers"]["gap"] == "permission denied"


def test_a_folder_of_torch_that_cannot_be_listed_makes_nothing_missing():
    host = flash()
    host.files[f"{LIB}/"] = DENIED
    row = looked(host).value["flash-attn"]
    assert row["missing"] == () and row["gap"] == "permission denied"


def test_a_site_folder_that_cannot_be_listed():
    facts = [Fact("python.packages", None, SITE, gap="permission denied")]
    assert optional_probes._extension_facts(Fake({}), someone(), facts)[0].gap == "permission denied"
    assert optional_probes._extension_facts(Fake({}), someone(), [])[0].gap == "no list of packages"
    host = Fake({f"{SITE}/": DENIED})
    assert torch_extensions.probe_extensions(host, someone(), [])[0].gap == "permission denied"
