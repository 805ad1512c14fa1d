"""The machine around the GPUs, their memory, and what they can compute."""

from __future__ import annotations

import pytest

from tarmac.model import Finding, Unknown
from tests.rules.worlds import H100, contract, judged, need

GB, GIB = 10**9, 2**30


# -- SYS001 -------------------------------------------------------------------------------------------


def test_small_shared_memory_in_a_container_is_a_warning():
    found = judged("SYS001", H100 | {"os.container": "docker", "system.shm": 64 << 20})
    assert found.severity == "warning" and "--shm-size" in found.fix[0].does
    assert judged("SYS001", H100 | {"os.container": "docker", "system.shm": GIB}) is None


@pytest.mark.parametrize("container", [None, "none"])
def test_outside_containers_only_a_contract_asks(container):
    bare = H100 | {"os.container": container, "system.shm": 64 << 20}
    assert judged("SYS001", bare) is None
    assert judged("SYS001", bare, contract(need("system.shm", ">=10GB"))).severity == "error"


def test_a_contract_for_one_kind_of_container_leaves_the_usual_floor_to_others():
    agreed = contract(need("system.shm", ">=10GB", when="os.container=docker|podman", level="recommended"))
    small = H100 | {"system.shm": 2 * GIB}
    assert judged("SYS001", small | {"os.container": "podman"}, agreed).needs[0].want == ">=10GB"
    assert judged("SYS001", small | {"os.container": "kubernetes"}, agreed) is None
    tiny = H100 | {"os.container": "kubernetes", "system.shm": 64 << 20}
    assert judged("SYS001", tiny, agreed).needs[0].want == ">=1GiB"


def test_no_shared_memory_at_all_is_not_small():
    assert judged("SYS001", H100 | {"os.container": "docker", "system.shm": None}) is None


# -- SYS002 -------------------------------------------------------------------------------------------


def test_the_usual_floor_of_the_disk():
    assert judged("SYS002", H100 | {"disk.free": 9 * GB}).severity == "warning"
    assert judged("SYS002", H100 | {"disk.free": 11 * GB}) is None


@pytest.mark.parametrize("level, severity", [("required", "error"), ("recommended", "warning")])
def test_the_contracts_floor_of_the_disk(level, severity):
    agreed = contract(need("disk.free", ">=50GB", level=level))
    assert judged("SYS002", H100 | {"disk.free": 49 * GB}, agreed).severity == severity
    assert judged("SYS002", H100 | {"disk.free": 50 * GB}, agreed) is None


def test_an_unseen_disk():
    assert judged("SYS002", H100, disk_free="statvfs failed") is None
    required = contract(need("disk.free", ">=50GB"))
    assert isinstance(judged("SYS002", H100, required, disk_free="statvfs failed"), Unknown)


# -- SYS003 -------------------------------------------------------------------------------------------


def test_windows_and_wsl():
    agreed = contract(need("os.system", "linux"))
    found = judged("SYS003", H100 | {"os.system": "windows"}, agreed)
    assert found.says == "demo does not run on windows" and "WSL" in found.fix[0].does
    assert judged("SYS003", H100 | {"os.system": "linux", "os.wsl": True}, agreed) is None


def test_alternatives_of_systems():
    agreed = contract(need("os.system", "linux|darwin"))
    assert judged("SYS003", {"os.system": "darwin", "gpu.count": 0}, agreed) is None
    assert judged("SYS003", H100 | {"os.system": "darwin"}, agreed).severity == "error", "no CUDA there"
    assert judged("SYS003", H100 | {"os.system": "windows"}) is None


# -- SYS004 -------------------------------------------------------------------------------------------


def test_every_other_need_is_judged():
    agreed = contract(
        need("os.arch", "x86_64"),
        need("os.kernel", ">=5.15", level="recommended"),
        need("torch.abi", "true"),
        need("gpu.count", ">=2"),
        need("disk.rotational", "false", level="recommended"),
    )
    poor = {"os.arch": "aarch64", "os.kernel": "5.4.0", "torch.abi": False, "disk.rotational": True}
    found = judged("SYS004", H100 | poor, agreed)
    assert found.severity == "error" and len(found.needs) == 5
    assert "bring os.kernel to >= 5.15" in found.fix[0].does
    rich = {"gpu.count": 2, "gpu.visible": (0, 1), "os.kernel": "6.8.0-45-generic"}
    assert judged("SYS004", H100 | rich, agreed) is None


def test_what_follows_from_something_else_is_not_told_twice():
    agreed = contract(need("torch.abi", "true"), need("nccl.version", ">=99"), need("gpu.count", ">=1"))
    bare = {"torch.cuda": None, "torch.abi": None, "gpu.count": 0}
    assert judged("SYS004", H100 | bare, agreed) is None


def test_what_has_a_rule_of_its_own_is_left_to_it():
    agreed = contract(need("package.nothing", "*"), need("disk.free", ">=1TB"), need("gpu.memory", ">=1TB"))
    assert judged("SYS004", H100 | {"disk.free": 0}, agreed) is None


# -- MEM001 -------------------------------------------------------------------------------------------


def job(parameters, *wants, **more):
    return H100 | {"job.parameters": parameters, "job.wants": wants, "job.device_map": None} | more


def several(count, memory=H100["gpu.memory"][0], free=None):
    return {
        "gpu.count": count,
        "gpu.visible": tuple(range(count)),
        "gpu.name": ("GPU",) * count,
        "gpu.memory": (memory,) * count,
        "gpu.free": (memory if free is None else free,) * count,
    }


@pytest.mark.parametrize(
    "parameters, wants, fits",
    [
        (70e9, ("bf16",), False),
        (70e9, ("fp16",), False),
        (70e9, ("8bit",), True),
        (70e9, ("qlora", "bf16"), True),
        (30e9, ("fp32",), False),
        (30e9, ("bf16",), True),
        (40e9, (), True),
        (45e9, (), False),
        (400e9, ("4bit",), False),
        (300e9, ("2bit",), True),
        (400e9, ("gptq",), True),
    ],
)
def test_weights_alone_against_80_gb(parameters, wants, fits):
    found = judged("MEM001", job(int(parameters), *wants))
    assert (found is None) is fits
    if found:
        assert found.severity == "error" and found.needs[0].key == "gpu.memory"


def test_fp16_and_bf16_take_the_same_bytes():
    needs = [judged("MEM001", job(70 * GB, precision)).needs[0].want for precision in ("fp16", "bf16")]
    assert needs == [">=140.0GB"] * 2


def test_all_gpus_together_count_and_no_more_than_are_asked_for():
    assert judged("MEM001", job(70 * GB, "bf16") | several(2)) is None
    assert isinstance(judged("MEM001", job(70 * GB, "bf16", **{"job.gpus": 1}) | several(2)), Finding)


def test_weights_that_may_lie_elsewhere():
    assert judged("MEM001", job(70 * GB, "bf16", "cpu-offload")) is None
    assert judged("MEM001", job(70 * GB, "bf16", **{"job.device_map": "auto"})) is None
    assert judged("MEM001", job(70 * GB, "bf16", **{"job.gpus": 16})) is None


def test_a_floor_is_information_until_the_job_is_stated():
    agreed = contract(need("gpu.memory", ">=16GB"))
    small = several(1, 8 * GIB)
    assert judged("MEM001", H100 | small, agreed).severity == "info"
    assert judged("MEM001", job(GB, "bf16") | small, agreed).severity == "error"
    assert judged("MEM001", H100 | several(1, 24 * GIB), agreed) is None


@pytest.mark.parametrize("level, severity", [("required", "error"), ("recommended", "warning")])
def test_a_floor_for_a_class_of_models(level, severity):
    agreed = contract(need("gpu.memory", ">=24GB", when="model>=7b", level=level))
    small = several(1, 16 * GIB)
    assert judged("MEM001", job(7 * GB, "4bit") | small, agreed).severity == severity
    assert judged("MEM001", job(3 * GB, "4bit") | small, agreed) is None
    assert judged("MEM001", H100 | small, agreed) is None


@pytest.mark.parametrize("mib", [16384, 16160, 15360, 15109])
def test_a_card_counts_by_the_number_on_its_box(mib):
    """A T4 is sold with 16 GB and shows 15109 MiB where ECC is on."""
    agreed = contract(need("gpu.memory", ">=16GB", when="model>=7b"))
    assert judged("MEM001", job(7 * GB, "4bit") | several(1, mib << 20), agreed) is None


def test_unseen_memory():
    assert isinstance(judged("MEM001", job(7 * GB, "bf16"), gpu_memory="not supported"), Unknown)
    assert judged("MEM001", H100, contract(need("gpu.memory", ">=16GB")), gpu_memory="not supported") is None


def test_nothing_stated_and_nothing_asked():
    assert judged("MEM001", {}) is None


# -- MEM002 -------------------------------------------------------------------------------------------

TOTAL = H100["gpu.memory"][0]


def held(used, *rows, **more):
    return H100 | {"gpu.free": (TOTAL - used,), "gpu.processes": rows} | more


def row(pid, used, gpu=0, user="ada", command="python train.py"):
    return {"gpu": gpu, "pid": pid, "used": used, "user": user, "command": command}


def test_a_holder_is_named():
    found = judged("MEM002", held(40 * GIB, row(4711, 39 * GIB)))
    assert found.severity == "warning" and "40.0 GiB" in found.says
    assert "process 4711 of ada (python train.py) on GPU 0, 39936 MiB" in found.so


def test_a_holder_that_cannot_be_seen():
    assert "40960 MiB used by processes not visible here" in judged("MEM002", held(40 * GIB)).so
    shared = judged("MEM002", held(40 * GIB, row(4711, 10 * GIB))).so
    assert "process 4711" in shared and "30720 MiB used by processes not visible here" in shared
    nameless = judged("MEM002", held(40 * GIB, row(4711, None, user=None, command=None))).so
    assert "process 4711 on GPU 0" in nameless and "not visible" not in nameless
    unseen = judged("MEM002", held(40 * GIB), gpu_processes="no permission").so
    assert "not visible here" in unseen


@pytest.mark.parametrize("used", [0, 600 << 20, GIB, 4 * GB])
def test_what_the_driver_keeps_is_nobodys(used):
    assert judged("MEM002", held(used)) is None


def test_a_small_card_with_a_desktop():
    small = several(1, 8 * GIB, free=7 * GIB + (200 << 20))
    assert judged("MEM002", H100 | small) is None
    assert isinstance(judged("MEM002", H100 | several(1, 8 * GIB, free=6 * GIB)), Finding)


def test_an_error_where_the_stated_model_no_longer_fits():
    values = held(60 * GIB, row(1, 60 * GIB)) | {"job.parameters": 30 * GB, "job.wants": ("bf16",)}
    found = judged("MEM002", values)
    assert found.severity == "error" and found.needs[0].want == ">=60.0GB"
    assert judged("MEM002", values | {"job.parameters": 7 * GB}).severity == "warning"
    assert judged("MEM002", values | {"job.parameters": 70 * GB}).severity == "warning", "MEM001 tells that"
    assert judged("MEM002", values | {"job.device_map": "auto"}).severity == "warning"


def test_an_empty_gpu_is_proposed():
    two = several(2) | {"gpu.free": (TOTAL, GIB), "gpu.uuid": ("GPU-a", "GPU-b"), "gpu.processes": ()}
    found = judged("MEM002", H100 | two)
    assert "GPU 1 (GPU, " in found.says and found.fix[0].does.endswith("CUDA_VISIBLE_DEVICES=GPU-a")
    assert judged("MEM002", H100 | two | {"gpu.visible": (0,)}) is None


# -- CAP001, CAP002 -----------------------------------------------------------------------------------

V100 = H100 | {"gpu.name": ("Tesla V100-SXM2-16GB",), "gpu.capability": ("7.0",)}
A100 = H100 | {"gpu.name": ("NVIDIA A100",), "gpu.capability": ("8.0",)}
ADA = H100 | {"gpu.name": ("NVIDIA L40S",), "gpu.capability": ("8.9",)}
OFFERS = {"capabilities": [{"name": "bf16", "gate": "bf16"}, {"name": "fp8", "gate": "fp8_scaled_mm"}]}


@pytest.mark.parametrize("word", ["bf16", "BF16", "bfloat16"])
def test_bf16_on_a_v100_is_emulated(word):
    found = judged("CAP001", V100 | {"job.wants": (word,)})
    assert found.severity == "error"
    assert found.says == "bf16 is only emulated on the GPU (Tesla V100-SXM2-16GB, 7.0)"


def test_not_asked_for_it_is_information_where_the_framework_offers_it():
    assert judged("CAP001", V100, contract(**OFFERS)).severity == "info"
    assert judged("CAP001", V100) is None
    assert judged("CAP001", A100 | {"job.wants": ("bf16",)}, contract(**OFFERS)) is None
    assert judged("CAP001", V100 | {"job.wants": ("fp16",)}) is None


def test_unseen_gpus_hold_nothing_back_unless_asked():
    assert judged("CAP001", V100, contract(**OFFERS), gpu_capability="gone") is None
    assert isinstance(judged("CAP001", V100 | {"job.wants": ("bf16",)}, gpu_capability="gone"), Unknown)


def test_of_mixed_gpus_the_old_one_is_named():
    mixed = H100 | several(2) | {"gpu.name": ("NVIDIA H100", "Tesla T4"), "gpu.capability": ("9.0", "7.5")}
    found = judged("CAP001", mixed | {"job.wants": ("bf16",)})
    assert found.says == "bf16 is only emulated on GPU 1 (Tesla T4, 7.5)"


def test_fp8_begins_with_ada():
    asked = {"job.wants": ("fp8",)}
    assert judged("CAP002", A100 | asked).severity == "error"
    assert judged("CAP002", ADA | asked) is None
    assert judged("CAP002", A100, contract(**OFFERS)).severity == "info"


def test_a_contract_may_ask_for_more():
    agreed = contract(need("gpu.capability", ">=9.0", when="wants=fp8,platform=cuda"), **OFFERS)
    found = judged("CAP002", ADA | {"job.wants": ("fp8",)}, agreed)
    assert found.severity == "error" and "9.0 or newer" in found.fix[1].does and len(found.needs) == 2
    assert judged("CAP002", ADA, agreed).severity == "info"
    assert judged("CAP002", H100 | {"job.wants": ("fp8",)}, agreed) is None


def test_no_gpu_lacks_nothing():
    nothing = H100 | {"gpu.count": 0, "gpu.visible": (), "job.wants": ("bf16", "fp8")}
    assert judged("CAP001", nothing) is None and judged("CAP002", nothing) is None
