"""Features, packages, facts and accelerators."""

from __future__ import annotations

import pytest
from tests.every import every

from gpuready.catalog import facts, gpus, packages
from gpuready.model import Facts

# -- features -----------------------------------------------------------------------------------------


@every(
    ("gpu", "feature", "has"),
    [
        ("t4", "bf16", False),
        ("v100", "bf16", False),
        ("a100", "bf16", True),
        ("a100", "fp8", False),
        ("l40s", "fp8", True),
        ("h100", "fp8", True),
        ("t4", "flash-attn", False),
        ("rtx3090", "flash-attn", True),
        ("rtx5090", "flash-attn", True),
        ("h100", "flash-attn-3", True),
        ("b200", "flash-attn-3", False),
        ("a100", "flash-attn-3", False),
        ("rtx5090", "flash_attention_4", False),
        ("b200", "flash_attention_4", True),
        ("p100", "torch_compile", False),
        ("v100", "torch_compile", True),
        ("p100", "qlora", True),
        ("v100", "int8", False),
        ("t4", "int8", True),
        ("h100", "nvfp4", False),
        ("b200", "nvfp4", True),
        ("h100", "nvls", True),
        ("v100", "volta_support", True),
        ("t4", "volta_support", False),
        ("t4", "gpudirect_rdma", True),  # not a matter of the GPU
    ],
)
def test_a_gate(gpu, feature, has):
    answer, cite = gpus.check_feature_support(feature, gpus.find_gpu(gpu)["compute_capability"])
    assert answer is has and cite


@pytest.mark.parametrize(("low", "high"), [("7.9", "8.0"), ("8.9", "10.0")])
def test_capabilities_are_versions_and_not_text(low, high):
    assert gpus.check_feature_support("bf16", high)[0] is True
    assert gpus.check_feature_support("bf16", low)[0] is (low == "8.9")


def test_a_feature_is_found_by_its_aliases():
    assert gpus.find_feature("flash-attn") is gpus.find_feature("flash_attention_2") is gpus.find_feature("FA2")
    assert gpus.find_feature("warp drive") is None
    assert gpus.find_feature("mxfp8")["cuda"] == ">=12.8"


def test_a_gate_that_nobody_knows_is_an_error_and_not_a_no():
    with pytest.raises(ValueError, match="no feature is called 'warp'"):
        gpus.check_feature_support("warp", "9.0")


def test_every_feature_has_a_gate():
    for name in gpus.list_features():
        assert isinstance(gpus.check_feature_support(name, "9.0")[0], bool)


# -- packages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flash-attn", "flash_attn", "Flash.Attn", "FLASH__ATTN"])
def test_a_package_by_any_spelling(name):
    assert packages.find_package(name)["kind"] == "cuda-extension"


def test_a_package_that_the_catalogue_lacks():
    assert packages.find_package("left-pad") is None
    assert packages.find_package_release("left-pad", "1.0") is None
    assert packages.find_package_release("vllm", "99.0") is None
    assert packages.linked_cuda_major({}) is None
    assert packages.required_torch("left-pad", "1.0") is None


@pytest.mark.parametrize(
    ("name", "version", "major"),
    [
        ("vllm", "0.19.1", 12),
        ("vllm", "0.20.2", 13),
        ("torchao", "0.16.0", 12),
        ("torchao", "0.17.0", 13),
        ("xformers", "0.0.35", 12),
        ("xformers", "0.0.20", None),  # nobody has looked
        ("peft", "0.18.1", None),
    ],
)
def test_what_a_wheel_is_linked_to(name, version, major):
    assert packages.linked_cuda_major(packages.find_package_release(name, version) or {}) == major


@pytest.mark.parametrize(
    ("name", "version", "torch"),
    [
        ("xformers", "0.0.34", "==2.10.0"),
        ("triton", "3.7.1", "==2.12.1|==2.13.0"),
        ("fbgemm-gpu-genai", "1.4.2", ">=2.9,<2.10"),
        ("torchao", "0.17.0", ">=2.11"),
        ("flash-attn", "2.8.3", None),
        ("ray", "2.55.0", None),
    ],
)
def test_the_torch_of_a_release(name, version, torch):
    assert packages.required_torch(name, version) == torch


def test_the_wheels_of_flash_attn():
    assert packages.find_package_release("flash-attn", "2.8.3")["wheels"] == [
        "2.4.0",
        "2.5.1",
        "2.6.0",
        "2.7.1",
        "2.8.0",
    ]


def test_imports_that_fail_though_metadata_allows_them():
    found = packages.find_import_conflicts({"peft": "0.17.1", "transformers": "5.1.0"})
    assert [row["b"] for row in found] == ["transformers>=5.0.0"] and "HybridCache" in found[0]["why"]
    assert not packages.find_import_conflicts({"peft": "0.18.0", "transformers": "5.1.0"})
    assert packages.find_import_conflicts({"pandas": "2.0.3", "numpy": "2.1.3"})
    assert not packages.find_import_conflicts({"pandas": "2.2.2", "numpy": "2.1.3"})
    assert packages.find_import_conflicts({"pyarrow": "26.0.1", "numpy": "1.26.4"})
    assert not packages.find_import_conflicts({"pyarrow": "26.0.1", "numpy": "2.2.6"})


def test_the_cuda_of_bitsandbytes_is_that_of_its_wheels():
    """12.8 since 0.45.3, 13.0 since 0.48.0; of a release that nobody has read nothing is said."""
    carried = {v: packages.bundled_cuda("bitsandbytes", v) for v in ("0.44.1", "0.45.0", "0.45.3", "0.48.0", "9.0")}
    assert {v: max(map(float, known), default=0) for v, known in carried.items()} == {
        "0.44.1": 12.5, "0.45.0": 12.6, "0.45.3": 12.8, "0.48.0": 13.0, "9.0": 0,
    }  # fmt: skip


def test_lookalikes():
    assert packages.find_lookalike("roll")["wanted"] == "ROLL by Alibaba"
    assert packages.find_lookalike("mcore_adapter") is not None
    assert packages.find_lookalike("torch") is None


@pytest.mark.parametrize(
    ("requirement", "parts"),
    [("trl>=0.25", ("trl", ">=0.25")), ("vllm", ("vllm", "")), ("Flash_Attn == 2.8.3", ("flash-attn", "== 2.8.3"))],
)
def test_split(requirement, parts):
    assert packages.split_requirement(requirement) == parts


# -- facts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("gpu.count", "int"),
        ("gpu.capability", "versions"),
        ("gpu.memory", "bytes_list"),
        ("driver.version", "version"),
        ("torch.arch", "texts"),
        ("package.torch", "version"),
        ("package.ruamel.yaml", "version"),
        ("env.CUDA_VISIBLE_DEVICES", "text"),
        ("env.names", "texts"),
        ("can.flash-attn", "bool"),
        ("python.packages", "int"),
    ],
)
def test_a_declared_fact(key, kind):
    assert facts.find_declaration(key)["type"] == kind


@pytest.mark.parametrize("key", ["gpu.colour", "gpu", "", "package", "package.", "nothing.at.all", "*", "gpu.*"])
def test_an_undeclared_fact(key):
    assert facts.find_declaration(key) is None


KNOWN = """
gpu.count gpu.visible gpu.name gpu.capability gpu.memory gpu.free gpu.uuid gpu.pci gpu.mode gpu.persistence
gpu.mig gpu.ecc gpu.ecc_errors gpu.remap_pending gpu.pcie gpu.pcie_max gpu.throttle gpu.power_limit
gpu.nvlink gpu.processes gpu.vendor driver.version driver.cuda driver.kind driver.library driver.wsl
driver.compat toolkit.version toolkit.path toolkit.nvcc toolkit.others compiler.gcc compiler.gxx
compiler.ninja compiler.cmake python.version python.path python.packages python.site python.prefix
python.kind torch.version torch.cuda torch.arch torch.abi torch.path torch.build torch.hip cudnn.version
nccl.version libcuda.path libcudart.path os.name os.version os.pretty os.system os.kernel os.arch os.glibc
os.wsl os.container host.cpus host.cores_usable memory.total memory.available memory.limit disk.free
disk.total disk.path disk.rotational system.shm system.shm_free limit.nofile limit.memlock limit.nproc
limit.stack env.names visibility.cuda job.wants job.parameters job.config job.device_map job.gpus
net.interface net.ib fabric.manager hub.cache hub.offline hub.token
"""


@every("key", KNOWN.split())
def test_the_house_knows_this_fact(key):
    assert key in facts.list_fact_keys()


def test_the_families_that_are_read_whole_have_their_listing():
    listed = Facts([])
    for family, listing in (("package", "python.packages"), ("env", "env.names")):
        assert facts.find_declaration(listing) is not None
        assert listed.fact(f"{family}.x").gap


# -- accelerators -------------------------------------------------------------------------------------


def test_vendors_and_backends():
    assert gpus.find_accelerator_vendor("NVIDIA")["select_env"] == ["CUDA_VISIBLE_DEVICES"]
    assert gpus.find_accelerator_vendor("amd")["select_env"][0] == "ROCR_VISIBLE_DEVICES"
    assert gpus.find_accelerator_vendor("nobody") is None
    for backend, name in {"cuda": "nvidia", "rocm": "amd", "npu": "huawei", "hpu": "habana", "mps": "apple"}.items():
        assert gpus.find_vendor_by_backend(backend)["id"] == name
    assert gpus.find_vendor_by_backend("cpu") is None


def test_systems_and_their_c_libraries():
    from gpuready.catalog import systems

    assert systems.system_glibc("centos", "7") == systems.system_glibc("centos", "7.9") == "2.17"
    assert systems.system_glibc("ubuntu", "22.04") == "2.35" and systems.system_glibc("ubuntu", "99.04") is None
    assert systems.system_glibc("arch", "") is None and systems.find_system("amiga") is None
    assert {row["kind"] for row in map(systems.find_system, systems.list_systems())} == {"linux", "windows", "darwin"}


def test_every_declared_fact_has_a_probe_that_gives_it():
    """A key that nobody gives is a promise to rules that nobody keeps."""
    from pathlib import Path

    import gpuready
    from gpuready.catalog import facts

    source = Path(gpuready.__file__).parent
    rooms = ("probe", "containers", "jobs", "runtime", "workflow", "fleet")
    text = "".join(p.read_text() for room in rooms for p in (source / room).rglob("*.py"))
    declared = [key for key in list(facts.list_fact_keys()) if not key.endswith("*")]
    assert [key for key in declared if f'"{key}"' not in text] == []


def test_every_command_that_starts_a_job_is_filled_in():
    from gpuready.catalog import load_catalog
    from gpuready.catalog.releases import launch_command

    for framework in sorted({row["framework"] for row in load_catalog("launch")["launch"]}):
        words = launch_command(framework, 8)
        assert words and not any("{" in word for word in words), framework


@pytest.mark.parametrize(
    ("framework", "file", "kind", "command"),
    [
        ("axolotl", "cfg.yml", "axolotl", "axolotl train cfg.yml"),
        ("axolotl", "", "", "axolotl train config.yml"),
        ("colossalai", "train.py", "colossalai", "colossalai run --nproc_per_node 8 train.py"),
        ("transformers", "acc.yaml", "accelerate", "accelerate launch --config_file acc.yaml train.py"),
        ("transformers", "ds.json", "deepspeed", "deepspeed --num_gpus 8 train.py --deepspeed ds.json"),
        ("transformers", "config.json", "model", "torchrun --nproc-per-node 8 train.py"),
        ("roll", "examples/q7b/rlvr.yaml", "roll",
         "python examples/start_rlvr_pipeline.py --config_path q7b --config_name rlvr"),
        ("verl", "a/b/ppo.yaml", "", "python -m verl.trainer.main_ppo --config-dir a/b --config-name ppo"),
        ("unheard-of", "x.yml", "", ""),
    ],
)  # fmt: skip
def test_the_command_for_a_file(framework, file, kind, command):
    from gpuready.catalog.releases import launch_command

    assert " ".join(launch_command(framework, 8, file, kind)) == command


@pytest.mark.parametrize(
    ("system", "release", "open_modules", "command"),
    [
        ("ubuntu", "24.04", False, "sudo apt-get install nvidia-driver-580"),
        ("ubuntu", "24.04", True, "sudo apt-get install nvidia-driver-580-open"),
        ("debian", "12", True, "sudo apt-get install nvidia-open-580"),
        ("rocky", "9.6", False, "sudo dnf module install nvidia-driver:580-dkms"),
        ("rocky", "9.6", True, "sudo dnf module install nvidia-driver:580-open"),
        ("rhel", "10.0", False, "sudo dnf install nvidia-open"),
        ("amzn", "2023", True, "sudo dnf module install nvidia-driver:580-open"),
        ("amzn", "2", False, ""),
        ("centos", "7", False, ""),
        ("rhel", "", False, ""),
        ("arch", "", False, ""),
    ],
)
def test_the_driver_command_is_of_the_release_and_of_the_kernel_modules(system, release, open_modules, command):
    from gpuready.catalog.systems import driver_command

    assert " ".join(driver_command(system, release, "580", open_modules)[0]) == command
