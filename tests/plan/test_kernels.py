"""How compiled packages come: real rows of the catalogue, real contracts, and the rules that hold for all."""

from __future__ import annotations

import itertools
import re

import pytest

from gpuready import contracts
from gpuready.catalog import cuda as toolkits
from gpuready.catalog import kernels as catalogue
from gpuready.catalog import torch
from gpuready.model import Contract, Fact, Facts, Requirement, versions
from gpuready.plan import source_build
from gpuready.plan.kernels import plan_kernels
from gpuready.probe import stated_machine
from tests.sampling import sample_cases

GIB = 2**30


def machine(name: str, cores: int | None = None, ram: int | None = None, **more) -> Facts:
    facts = stated_machine.stated_machine_facts(name, {})
    known = {"host.cores_usable": cores, "memory.available": ram and ram * GIB, **more}
    return facts.with_facts(*(Fact(k.replace("__", "."), v) for k, v in known.items() if v is not None))


def plan(on, framework="transformers", release="2.8.0", variant=None, python="3.12", wants=(), **more):
    facts = machine(on, **more) if isinstance(on, str) else on
    build = torch.find_torch_build(release, variant, facts.value_if_known("os.arch") or "x86_64")
    contract = (
        framework
        if isinstance(framework, Contract)
        else contracts.load_contract(*contracts.parse_contract_spec(framework))
    )
    return {k.package: k for k in plan_kernels(facts, contract, build, python, wants)}


# -- ready-made wheels ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "variant", "python", "wheel"),
    [
        ("2.8.0", None, "3.12", "flash_attn-2.8.3.post1+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"),
        ("2.7.1", "cu126", "3.9", "flash_attn-2.8.3.post1+cu12torch2.7cxx11abiTRUE-cp39-cp39-linux_x86_64.whl"),
        ("2.6.0", None, "3.10", "flash_attn-2.8.3.post1+cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_x86_64.whl"),
        ("2.6.0", "cu126", "3.10", "flash_attn-2.8.3.post1+cu12torch2.6cxx11abiTRUE-cp310-cp310-linux_x86_64.whl"),
        ("2.5.1", "cu124", "3.11", "flash_attn-2.8.3.post1+cu12torch2.5cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"),
        ("2.3.1", None, "3.11", "flash_attn-2.7.4.post1+cu12torch2.3cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"),
        ("2.3.1", "cu118", "3.11", "flash_attn-2.7.3+cu11torch2.3cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"),
        ("2.10.0", "cu130", "3.12", "flash_attn-2.8.1+cu13torch2.10cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"),
    ],
)
def test_the_wheel_of_flash_attn_is_named_exactly(release, variant, python, wheel):
    found = plan("a100", release=release, variant=variant, python=python, wants=["flash-attn"])["flash-attn"]
    assert (found.how, found.wheel) == ("release", wheel)
    assert found.steps[0].run[-1].endswith("/" + wheel)
    assert f"/v{found.version}/" in found.steps[0].run[-1]


def test_a_python_without_a_wheel_means_a_build():
    assert plan("a100", release="2.4.0", python="3.12", wants=["flash-attn"])["flash-attn"].how == "release"
    assert plan("a100", release="2.8.0", python="3.14", wants=["flash-attn"])["flash-attn"].how == "build"


def test_another_machine_than_the_wheels_are_for_means_a_build():
    arm = machine("gh200").with_facts(Fact("os.arch", "aarch64"))
    build = next(b for v in torch.list_torch_releases() for b in torch.list_torch_builds(v, "aarch64"))
    contract = contracts.load_contract("verl")
    found = {k.package: k for k in plan_kernels(arm, contract, build, "3.12", ["flash-attn"])}["flash-attn"]
    assert found.how == "build" and "aarch64" in found.why and found.version == "2.8.3"


def test_a_pin_of_the_contract_is_kept():
    found = plan("h100", "axolotl==0.18", wants=["flash-attn"])["flash-attn"]
    assert (found.version, found.how) == ("2.8.3", "release")


def test_a_wheel_without_code_for_the_gpu_is_not_taken():
    """flash-attn 2.7.4.post1 was built with CUDA 12.4, which knows no sm_120; torch 2.8 does."""
    pinned = Contract("mine", "1", needs=(Requirement("package.flash-attn", "==2.7.4.post1"),))
    build = torch.find_torch_build("2.6.0", "cu126")
    ada = {k.package: k for k in plan_kernels(machine("rtx4090"), pinned, build, "3.12", ())}["flash-attn"]
    assert ada.how == "release"
    wide = torch.find_torch_build("2.8.0", "cu128")
    new = {k.package: k for k in plan_kernels(machine("rtx5090"), pinned, wide, "3.12", ())}["flash-attn"]
    assert new.how == "build" and new.arch_list == "120" and new.toolkit == "12.8"
    assert "FLASH_ATTENTION_FORCE_BUILD=TRUE" in new.steps[-1].run


@pytest.mark.parametrize("gpu", ["v100", "t4", "p100", "gtx1080ti"])
def test_flash_attn_is_not_for_old_gpus_and_the_answer_names_another(gpu):
    found = plan(gpu, wants=["flash-attn"])["flash-attn"]
    assert found.how == "none" and "8.0" in found.why and "SDPA" in found.why and not found.steps


def test_one_old_gpu_among_new_ones_counts():
    mixed = machine("a100x2").with_facts(Fact("gpu.capability", ("8.0", "7.5")))
    assert plan(mixed, wants=["flash-attn"])["flash-attn"].how == "none"


def test_flash_attn_3_and_4():
    hopper = plan("h100", release="2.15.0", wants=["flash-attn-3", "flash-attn-4"], cores=112, ram=2000)
    assert hopper["flash-attn-3"].how == "build"
    assert "subdirectory=hopper" in hopper["flash-attn-3"].steps[-1].run[-1]
    assert hopper["flash-attn-3"].arch_list == "9.0"
    assert hopper["flash-attn-4"].how == "jit"
    assert "flash-attn-4[cu13]" in hopper["flash-attn-4"].steps[-1].run
    for gpu, three, four in (("b200", "none", "jit"), ("rtx5090", "none", "none"), ("a100", "none", "none")):
        found = plan(gpu, release="2.15.0", wants=["flash-attn-3", "flash-attn-4"])
        assert (found["flash-attn-3"].how, found["flash-attn-4"].how) == (three, four)


def test_what_an_index_serves_has_to_be_linked_to_the_cuda_of_torch():
    twelve = plan("a100", "axolotl==0.21", "2.12.1", "cu126")
    assert twelve["xformers"].how == "index" and "fits" in twelve["xformers"].why
    unused = plan("a100", "axolotl==0.21", "2.13.0", "cu130")["xformers"]
    assert unused.how == "index" and "will not work" in unused.why and not unused.steps
    thirteen = plan("a100", "axolotl==0.21", "2.13.0", "cu130", cores=16, ram=128, wants=["xformers"])
    assert thirteen["xformers"].how == "build" and "linked to CUDA 12" in thirteen["xformers"].why
    assert thirteen["xformers"].arch_list == "8.0" and thirteen["xformers"].max_jobs == 8
    assert thirteen["bitsandbytes"].how == "index"
    assert thirteen["bitsandbytes"].wheel == "bitsandbytes-0.50.2-py3-none-manylinux_2_24_x86_64.whl"


def test_bitsandbytes_has_no_library_for_an_old_gpu_in_cuda_13():
    found = plan("v100", "axolotl==0.21", "2.14.0", "cu126")["bitsandbytes"]
    assert found.how == "index"
    volta = plan("v100", "axolotl==0.21", "2.14.0", "cu130")["bitsandbytes"]
    assert volta.how == "none" and "7.0" in volta.why


def test_an_old_glibc_cannot_take_the_wheel():
    old = machine("a100").with_facts(Fact("os.glibc", "2.17"))
    found = plan(old, "axolotl==0.21", "2.12.1", "cu126")
    assert found["bitsandbytes"].how == "none" and "glibc" in found["bitsandbytes"].why
    assert found["xformers"].how == "build"


def test_vllm_for_the_other_cuda_is_called_as_its_release_page_calls_it():
    """Their names change with the release, and each wants a glibc of its own."""
    found = plan("h100", "roll:torch291-vllm", "2.9.1", "cu130")["vllm"]
    assert found.how == "release"
    assert found.steps[0].run[-1].endswith("/v0.15.1/vllm-0.15.1+cu130-cp38-abi3-manylinux_2_35_x86_64.whl")
    old = machine("h100").with_facts(Fact("os.glibc", "2.31"))
    assert "vllm" not in plan(old, "roll:torch291-vllm", "2.9.1", "cu130")


def test_fbgemm_follows_torch():
    for release, version in (("2.10.0", "1.5.0"), ("2.13.0", "1.8.0"), ("2.14.0", "1.9.0")):
        found = plan("h100", "axolotl==0.21", release, wants=["fbgemm"])["fbgemm-gpu-genai"]
        assert (found.version, found.how) == (version, "index")
    assert plan("h100", "axolotl==0.21", "2.15.0", wants=["fbgemm"])["fbgemm-gpu-genai"].how == "none"


def test_auto_gptq_has_a_wheel_for_one_torch_alone():
    free = Contract("mine", "1")
    fits = plan("a100", free, "2.2.0", python="3.10", wants=["gptq"])["auto-gptq"]
    assert (fits.how, fits.version) == ("index", "0.7.1")
    late = plan("a100", free, "2.13.0", wants=["gptq"])["auto-gptq"]
    assert late.how == "build" and "gptqmodel" in late.why


def test_mamba_asks_for_both_of_its_packages():
    found = plan("h100", release="2.10.0", wants=["mamba"])
    assert found["mamba-ssm"].how == found["causal-conv1d"].how == "release"
    assert found["mamba-ssm"].wheel.startswith("mamba_ssm-2.3.2.post1+cu12torch2.10cxx11abiTRUE")
    newer = plan("h100", release="2.10.0", variant="cu130", wants=["mamba"])
    assert newer["mamba-ssm"].wheel.startswith("mamba_ssm-2.3.2.post1+cu13torch2.10")
    pinned = plan("rtx5090", "axolotl==0.21", "2.13.0", wants=["mamba"])["mamba-ssm"]
    assert pinned.how == "none" and pinned.version == "1.2.0.post1" and "12.0" in pinned.why


def test_deepspeed_and_colossalai_compile_when_they_are_used():
    found = plan("h100x8", "deepspeed", "2.13.0", wants=["deepspeed"])["deepspeed"]
    assert found.how == "jit" and found.toolkit == "13.0" and "own minor" in found.why
    own = plan("h100", "colossalai", "2.5.1", "cu124", "3.11")["colossalai"]
    assert own.how == "jit" and own.version == "0.5.0" and own.compiler == "gcc 6 to 13"
    assert own.arch_list.split(";")[-1] == "9.0" and own.arch_list.split(";")[0] == "6.0"
    older = plan("v100", "colossalai", "2.5.1", "cu124", "3.11")["colossalai"]
    assert older.arch_list == "6.0;7.0"
    early = plan("h100", "colossalai", "2.5.1", "cu124", "3.11", wants=["build"])["colossalai"]
    assert early.how == "build" and "BUILD_EXT=1" in early.steps[-1].run
    assert "--no-build-isolation" in early.steps[-1].run


def test_roll_asks_for_three():
    found = plan("h100", "roll:torch260-vllm", "2.6.0", python="3.10")
    assert {n: k.how for n, k in found.items()} == {
        "flash-attn": "release", "transformer-engine": "build", "deepspeed": "jit"
    }  # fmt: skip
    assert found["transformer-engine"].wheel.startswith("transformer_engine_torch-2.2.0+cu12torch2.6.0+cu124")
    assert "NVTE_CUDA_ARCHS=90" in found["transformer-engine"].steps[-1].run


def test_nothing_that_nobody_asks_for():
    assert plan("h100") == {}
    assert plan("h100", wants=["fp8", "lora"]) == {}


def test_other_systems_are_told():
    mac = machine("h100").with_facts(Fact("os.system", "darwin"))
    assert "Linux" in plan(mac, wants=["flash-attn"])["flash-attn"].why


# -- builds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "ram", "jobs"), [(64, 512, 32), (64, 64, 7), (2, 512, 1), (1, 4, 1), (96, 850, 48), (8, 36, 4)]
)
def test_the_jobs_are_those_of_flash_attn_itself(cores, ram, jobs):
    """setup.py: half of the processors, and 9 GiB for each."""
    found = plan("h100", release="2.13.0", wants=["flash-attn"], cores=cores, ram=ram)["flash-attn"]
    assert found.max_jobs == jobs == max(1, min(cores // 2, ram // 9))
    assert f"MAX_JOBS={jobs}" in found.steps[-1].run


def test_a_container_has_less_memory_than_the_machine():
    facts = machine("h100", cores=64, ram=512).with_facts(Fact("memory.limit", 20 * GIB))
    assert plan(facts, release="2.13.0", wants=["flash-attn"])["flash-attn"].max_jobs == 2


def test_what_is_not_known_is_said_and_a_careful_number_taken():
    found = plan("h100", release="2.13.0", wants=["flash-attn"])["flash-attn"]
    assert found.max_jobs == 4 and "careful guess" in found.why
    some = plan("h100", release="2.13.0", wants=["flash-attn"], cores=128)["flash-attn"]
    assert some.max_jobs == 4 and "memory is not known" in some.why
    few = plan("h100", release="2.13.0", wants=["flash-attn"], ram=10)["flash-attn"]
    assert few.max_jobs == 1


def test_more_processors_take_less_time():
    times = [
        plan("h100", release="2.13.0", wants=["flash-attn"], cores=c, ram=2000)["flash-attn"].seconds
        for c in (4, 16, 64, 256)
    ]
    assert times == sorted(times, reverse=True) and all(low < high for low, high in times)
    assert times[2] == (180, 781)  # the README's three minutes on 64 processors


def test_the_toolkit_that_is_there_needs_no_step():
    fits = machine("h100", cores=8, ram=64).with_facts(Fact("toolkit.version", "13.1"), Fact("compiler.gcc", "13.3"))
    first = plan(fits, release="2.13.0", wants=["flash-attn"])["flash-attn"].steps[0]
    assert first.does == "install what the build needs"
    older = machine("h100").with_facts(Fact("toolkit.version", "12.8"), Fact("compiler.gcc", "99.1"))
    steps = [s.does for s in plan(older, release="2.13.0", wants=["flash-attn"])["flash-attn"].steps]
    assert "CUDA 13.0" in steps[0] and "gcc" in steps[1]
    other = older.with_facts(
        Fact("toolkit.others", ({"path": "/usr/local/cuda-13.0", "version": "13.0", "nvcc": "/x/nvcc"},))
    )
    steps = [s.does for s in plan(other, release="2.13.0", wants=["flash-attn"])["flash-attn"].steps]
    assert steps[0] == "set CUDA_HOME to /usr/local/cuda-13.0"


def test_deepspeed_forgives_no_other_minor_from_cuda_13_on():
    near = machine("h100").with_facts(Fact("toolkit.version", "13.1"))
    assert "CUDA 13.0" in plan(near, "deepspeed", "2.13.0", wants=["deepspeed"])["deepspeed"].steps[0].does
    near = machine("h100").with_facts(Fact("toolkit.version", "12.4"))
    found = plan(near, "deepspeed", "2.8.0", wants=["deepspeed"])["deepspeed"]
    assert "toolkit" not in found.steps[0].does


# -- for all of the catalogue ---------------------------------------------------------------------------


def test_every_kernel_is_a_package_of_the_catalogue_or_a_framework():
    from gpuready.catalog import packages

    for name in catalogue.list_kernels():
        row = catalogue.find_kernel(name)
        assert packages.find_package(name) or row.get("own") in contracts.list_frameworks() or "beside" in row
        assert row["comes"] in ("index", "release", "source", "jit") and row["instead"]
        assert set(row["wants"]) <= set(__import__("gpuready.probe.job", fromlist=["WANTS"]).WANTS)
        if row["comes"] == "release":
            assert {"wheel", "address", "arch", "toolkit_min", "job_bytes"} <= set(row)
        for one in row.get("version", ()):
            assert set(one["cuda"]) == set(one["built"])
            assert all(set(gap) <= {"torch", "cuda", "python", "machine", "abi"} for gap in one.get("without", ()))


GPUS = ("p100", "v100", "t4", "a100", "rtx4090", "h100", "b200", "b300", "rtx5090")


def test_every_answer_holds_together():
    """Over every release of torch, its builds, and GPUs of every kind: nothing is said that cannot be done. An ordinary run takes
    a quarter of the pairs."""
    wants = [name for name in catalogue.list_kernels() if name != "colossalai"]
    contract = Contract("mine", "1")
    count = 0
    for release, gpu in sample_cases(itertools.product(torch.list_torch_releases(), GPUS), 4):
        facts = machine(gpu, cores=16, ram=64)
        capability = facts.value("gpu.capability")[0]
        for build in torch.list_torch_builds(release):
            for kernel in plan_kernels(facts, contract, build, build.python[-1], wants):
                count += 1
                assert kernel.why and kernel.cite
                _holds(kernel, build, capability)
    assert count > 1000


def _holds(kernel, build, capability):
    assert kernel.how in ("index", "release", "build", "jit", "none")
    if kernel.how == "none":
        assert not kernel.steps and "instead: " in kernel.why
        return
    assert kernel.steps
    if kernel.how == "release":
        made = re.search(r"\+cu(1\d)\d?torch(\d+\.\d+)cxx11abi(TRUE|FALSE)-cp(\d+)-", kernel.wheel)
        assert int(made[1]) == versions.major_version(build.cuda)
        assert made[2] == "{}.{}".format(*versions.major_minor(build.version))
        assert made[4] == build.python[-1].replace(".", "")
    if kernel.toolkit:
        assert versions.major_version(kernel.toolkit) == versions.major_version(build.cuda)
        targets = toolkits.list_nvcc_targets(kernel.toolkit)
        listed = [one if "." in one else f"{one[:-1]}.{one[-1]}" for one in kernel.arch_list.split(";")]
        assert 1 <= kernel.max_jobs <= 16
        if targets:
            assert any(torch.covers_capability([one], capability, build.cuda)[0] for one in listed), kernel


def test_the_memory_of_a_build():
    assert source_build.usable_build_memory(Facts([Fact("memory.total", 5)])) == 5
    assert source_build.usable_build_memory(Facts([Fact("memory.available", 9), Fact("memory.limit", 3)])) == 3
    assert source_build.usable_build_memory(Facts([])) is None


def test_a_wheel_that_does_not_serve_is_neither_taken_nor_left_by_its_build():
    found = plan(machine("v100"), release="2.14.1", variant="cu126", python="3.13", wants=("xformers",))
    compiled = next(step.run for step in found["xformers"].steps if step.does.startswith("compile"))
    assert found["xformers"].how == "build"
    assert compiled[compiled.index("--no-binary") + 1] == "xformers"
    assert compiled[compiled.index("--reinstall-package") + 1] == "xformers"
