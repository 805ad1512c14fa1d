"""GPU rules: what is there, what is shown, and whether torch and the framework take it."""

from __future__ import annotations

import pytest

from gpuready import rules
from gpuready.model import NOT_STATED, Fact, Facts, Finding, UnknownFactError
from tests.rules.worlds import H100, contract, judged, need, outcome

NOTHING = {"gpu.count": 0, "gpu.visible": (), "gpu.pci_count": 0, "platform.name": "cpu", "os.container": None}
WHEEL_86 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")


def shown(value, shown_, ignored=(), why="because"):
    return {"value": value, "shown": shown_, "ignored": ignored, "why": why}


def cards(*pairs, visible=None):
    """GPUs of these names and capabilities."""
    names, capabilities = zip(*pairs, strict=True)
    return H100 | {
        "gpu.count": len(pairs),
        "gpu.visible": tuple(range(len(pairs))) if visible is None else visible,
        "gpu.name": names,
        "gpu.capability": capabilities,
        "gpu.uuid": tuple(f"GPU-{i}" for i in range(len(pairs))),
    }


# -- GPU001 -------------------------------------------------------------------------------------------


def test_no_gpu_is_not_ready_even_where_the_framework_also_runs_on_the_cpu():
    found = judged("GPU001", NOTHING, contract(platforms=["cuda", "rocm", "cpu"]))
    assert found.severity == "error" and found.says == "no NVIDIA GPU found"


def test_a_job_for_the_cpu_needs_no_gpu():
    assert judged("GPU001", NOTHING | {"job.wants": ("cpu",)}) is None


def test_a_gpu_of_another_platform_that_the_contract_takes():
    amd = NOTHING | {"platform.name": "rocm"}
    assert judged("GPU001", amd, contract(platforms=["cuda", "rocm"])) is None
    assert isinstance(judged("GPU001", amd, contract(platforms=["cuda"])), Finding)


def test_a_contract_for_rocm_alone_on_a_machine_with_nvidia():
    found = judged("GPU001", H100, contract(platforms=["rocm"]))
    assert found.says == "no device for rocm"


def test_which_platform_is_there_may_be_unknown():
    both = contract(platforms=["cuda", "rocm"])
    assert isinstance(judged("GPU001", NOTHING, both, platform_name="no /sys here"), UnknownFactError)
    assert isinstance(judged("GPU001", NOTHING, platform_name="no /sys here"), Finding)


def test_a_contract_for_the_cpu_alone_reads_nothing():
    assert judged("GPU001", NOTHING, contract(platforms=["cpu"])) is None


def test_a_container_is_told_how_to_be_started():
    steps = judged("GPU001", NOTHING | {"os.container": "docker"}).fix
    assert "--gpus all" in steps[0].does and "machine" in steps[1].does
    assert len(judged("GPU001", NOTHING | {"os.container": "none"}).fix) == 1


def test_a_container_sees_the_bus_whatever_it_was_given():
    on_bus = NOTHING | {"gpu.pci_count": 8, "platform.name": "cuda", "driver.version": "590.48.01"}
    assert "dmesg" in judged("GPU001", on_bus).fix[0].does
    inside = judged("GPU001", on_bus | {"os.container": "docker"}).fix
    assert "--gpus all" in inside[0].does and not any("driver" in step.does for step in inside)


def test_a_driver_that_lists_nothing_while_the_bus_has_a_card():
    assert "the PCI bus has 2" in judged("GPU001", NOTHING | {"gpu.pci_count": 2}).says


@pytest.mark.parametrize("driver, ways", [("595.58.03", 2), ("580.95.05", 1), (None, 1)])
def test_cards_that_the_driver_leaves_alone_are_here_all_the_same(driver, ways):
    """The way out is not another machine; branch 580 helps only who has a newer one."""
    fix = judged("GPU001", NOTHING | {"gpu.pci_count": 2, "driver.version": driver}).fix
    assert "dmesg" in fix[0].does and len(fix) == ways
    assert all("branch 580" in step.does for step in fix[1:])


def test_accelerators_of_another_kind_do_not_hide_gpus_from_torch():
    amd = NOTHING | {"platform.name": "rocm"}
    assert "is_available" not in judged("GPU001", amd, contract(platforms=["cuda"])).so


def test_unknown_is_not_absent():
    assert isinstance(judged("GPU001", {}, gpu_count="NVML hung"), UnknownFactError)


def test_none_shown_without_a_variable():
    hidden = NOTHING | {"gpu.count": 2, "visibility.cuda": None}
    assert judged("GPU001", hidden).says == "CUDA shows none of the GPUs"


def test_what_a_variable_hides_is_told_once():
    hidden = H100 | {"gpu.visible": (), "visibility.cuda": shown("-1", ())}
    assert judged("GPU001", hidden) is None
    assert isinstance(judged("GPU002", hidden), Finding)


def test_the_contracts_own_need_is_cited_where_it_is_in_force():
    agreed = contract(need("gpu.count", ">=1", cite="api.py:19"), need("gpu.count", ">=2", when="wants=grpo"))
    assert [n.cite for n in judged("GPU001", NOTHING, agreed).needs] == ["api.py:19"]


# -- GPU002 and GPU003 --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "-1"])
def test_a_variable_that_hides_all(value):
    found = judged("GPU002", H100 | {"visibility.cuda": shown(value, ())})
    assert found.says == f"the variable CUDA_VISIBLE_DEVICES hides all GPUs (value {value!r})"


def test_a_variable_that_names_nothing_here_says_which_and_what_there_is():
    table = shown("GPU-5b7adead", (), ("GPU-5b7adead",), "'GPU-5b7adead' is the UUID of no GPU here")
    uuids = ("GPU-aaaaaaaa-1", "GPU-5b7a0f6e-2")
    found = judged("GPU002", H100 | {"gpu.count": 2, "gpu.uuid": uuids, "visibility.cuda": table})
    assert "GPU-5b7adead" in found.says and "no GPU here" in found.says
    assert found.fix[1].does.endswith("CUDA_VISIBLE_DEVICES=GPU-5b7a0f6e-2"), "the nearest comes first"


def test_a_duplicate_that_stops_cuda():
    found = judged("GPU002", H100 | {"visibility.cuda": shown("0,0", (), ("0", "0"), "'0' names a GPU twice")})
    assert "twice" in found.says


def test_a_wrong_device_order_is_told_without_blaming_the_other_variable():
    table = shown(None, (), (), "CUDA_DEVICE_ORDER=RANDOM is neither FASTEST_FIRST nor PCI_BUS_ID")
    found = judged("GPU002", H100 | {"visibility.cuda": table})
    assert "CUDA_DEVICE_ORDER=RANDOM" in found.says and "CUDA_VISIBLE_DEVICES" not in found.says


def test_a_machine_without_gpus_has_nothing_to_hide():
    assert judged("GPU002", NOTHING | {"visibility.cuda": shown("", ())}) is None


def test_hostile_values_stay_short_and_quoted():
    found = judged("GPU002", H100 | {"visibility.cuda": shown("\x1b[2J" * 10_000, ())})
    assert len(found.says) < 300 and "\x1b" not in found.says


def test_zero_comma_ninety_nine_is_truncated_in_silence():
    table = shown("0,99", (0,), ("99",), "'99' is no GPU of this machine")
    found = judged("GPU003", H100 | {"visibility.cuda": table})
    assert found.severity == "error" and "'99'" in found.says and "'0,99'" in found.says
    assert "1 of 2" in found.so
    assert found.fix[0].does.endswith(f"={H100['gpu.uuid'][0]}")


def test_good_entries_after_the_bad_one_are_listed_too():
    table = shown("0,abc,1", (0,), ("abc", "1"), "'abc' is not an index")
    found = judged("GPU003", H100 | {"gpu.count": 2, "visibility.cuda": table})
    assert "'abc' and '1'" in found.says


def test_truncation_to_nothing_belongs_to_the_other_rule():
    table = shown("99", (), ("99",), "'99' is no GPU of this machine")
    assert judged("GPU003", H100 | {"visibility.cuda": table}) is None
    assert isinstance(judged("GPU002", H100 | {"visibility.cuda": table}), Finding)


@pytest.mark.parametrize("code", ["GPU002", "GPU003"])
def test_a_good_or_absent_variable(code):
    assert judged(code, H100) is None
    assert judged(code, H100 | {"visibility.cuda": shown("0", (0,))}) is None


# -- GPU004 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, capability, arch",
    [
        ("NVIDIA GeForce RTX 4090", "8.9", WHEEL_86),
        ("NVIDIA A10", "8.6", ("sm_80",)),
        ("NVIDIA H200", "9.0", WHEEL_86),
        ("NVIDIA B300", "10.3", ("sm_100",)),
        ("NVIDIA GeForce RTX 5090", "12.0", ("sm_90", "compute_90")),
    ],
)
def test_binary_compatibility_within_a_major(name, capability, arch):
    assert judged("GPU004", cards((name, capability)) | {"torch.arch": arch}) is None


@pytest.mark.parametrize(
    "capability, arch",
    [
        ("12.0", WHEEL_86),
        ("7.0", ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")),
        ("6.1", ("sm_70", "sm_75")),
        ("8.0", ("sm_86", "sm_90")),
        ("10.3", ("sm_100a", "sm_120")),
    ],
)
def test_code_of_another_major_or_a_higher_minor_does_not_run(capability, arch):
    found = judged("GPU004", cards(("some GPU", capability)) | {"torch.arch": arch})
    assert found.severity == "error" and capability in found.says
    assert [n.want for n in found.needs] == ["sm_" + capability.replace(".", "")]


def test_of_mixed_gpus_only_the_uncovered_one_is_named():
    machine = cards(("NVIDIA A100", "8.0"), ("Tesla P40", "6.1")) | {"torch.arch": ("sm_75", "sm_80")}
    found = judged("GPU004", machine)
    assert found.says == "torch has no code (sm_61) for GPU 1 (Tesla P40, 6.1)"
    assert any(step.does == "show only the other GPUs: CUDA_VISIBLE_DEVICES=GPU-0" for step in found.fix)


def test_a_gpu_that_is_not_shown_does_not_count():
    machine = cards(("NVIDIA A100", "8.0"), ("Tesla P40", "6.1"), visible=(0,))
    assert judged("GPU004", machine | {"torch.arch": ("sm_80",)}) is None


def test_several_alike_are_named_once():
    machine = cards(*[("Tesla P40", "6.1")] * 4) | {"torch.arch": ("sm_80",)}
    assert judged("GPU004", machine).says == "torch has no code (sm_61) for the 4 GPUs (Tesla P40, 6.1)"


def test_the_fix_is_a_build_inside_the_pins_for_this_driver_and_python():
    agreed = contract(need("package.torch", ">=2.6"))
    machine = cards(("Tesla V100", "7.0")) | {"torch.arch": ("sm_75",), "driver.version": "550.144.03"}
    step = judged("GPU004", machine | {"package.torch": "2.12.1+cu130"}, agreed).fix[0]
    assert step.safety == "ask" and step.run[:5] == ("uv", "pip", "install", "--python", "/venv/bin/python")
    assert step.run[-1] == "torch==2.12.1" and step.run[step.run.index("--torch-backend") + 1] == "cu126"


def test_where_no_build_is_left_the_fix_says_so():
    agreed = contract(need("package.torch", ">=2.2.0,<=2.5.1"))
    found = judged("GPU004", cards(("RTX 5090", "12.0")) | {"torch.arch": WHEEL_86}, agreed)
    assert len(found.fix) == 1 and not found.fix[0].run
    assert ">=2.2.0,<=2.5.1" in found.fix[0].does and "12.0" in found.fix[0].does


def test_no_torch_and_cpu_torch_are_told_elsewhere():
    for torch in (None, "cpu"):
        values = H100 | {"torch.cuda": None, "torch.arch": (), "torch.build": torch}
        assert judged("GPU004", values) is None


def test_a_list_that_could_not_be_read():
    assert isinstance(judged("GPU004", H100, torch_arch="permission denied"), UnknownFactError)
    assert isinstance(judged("GPU004", H100, gpu_capability="GPU 0: gone"), UnknownFactError)


def test_a_hole_in_the_list_is_unknown():
    assert isinstance(judged("GPU004", H100 | {"gpu.visible": (0, 3)}), UnknownFactError)


def test_torch_not_stated_waits_for_the_statement():
    stated = Facts([Fact(k, v, how="stated") for k, v in H100.items() if k.startswith("gpu.")], "", NOT_STATED)
    found = outcome(rules.load_rule("GPU004"), stated, contract())
    assert isinstance(found, UnknownFactError) and found.fact.gap == NOT_STATED and found.fact.key == "torch.cuda"


# -- GPU005 -------------------------------------------------------------------------------------------

V100 = cards(("Tesla V100-SXM2-16GB", "7.0"))


def test_no_such_need_reads_nothing():
    view_free = Facts([])
    assert outcome(rules.load_rule("GPU005"), view_free, contract()) is None


@pytest.mark.parametrize("level, severity", [("required", "error"), ("recommended", "warning"), ("optional", "info")])
def test_the_level_decides(level, severity):
    found = judged("GPU005", V100, contract(need("gpu.capability", ">=8.0", level=level)))
    assert found.severity == severity and "Tesla V100" in found.says


def test_a_floor_for_what_the_job_does_not_ask():
    agreed = contract(need("gpu.capability", ">=8.0", when="wants=flash-attn"))
    assert judged("GPU005", V100 | {"job.wants": ()}, agreed) is None
    found = judged("GPU005", V100 | {"job.wants": ("flash_attn",)}, agreed)
    assert found.says.startswith("flash-attn does not support the GPU")
    assert any("turn off flash-attn" in step.does for step in found.fix)


def test_bf16_and_fp8_have_rules_of_their_own():
    agreed = contract(need("gpu.capability", ">=8.0", when="wants=bf16,platform=cuda"))
    assert judged("GPU005", V100 | {"job.wants": ("bf16",)}, agreed) is None


def test_capabilities_are_versions_not_strings():
    assert judged("GPU005", cards(("B200", "10.0")), contract(need("gpu.capability", ">=9.0"))) is None


def test_a_gpu_may_also_be_too_new():
    agreed = contract(need("gpu.capability", ">=9.0,<11.0"))
    assert isinstance(judged("GPU005", cards(("RTX 5090", "12.0")), agreed), Finding)


def test_only_the_old_one_of_two_is_named():
    machine = cards(("NVIDIA H100", "9.0"), ("Tesla T4", "7.5"))
    found = judged("GPU005", machine, contract(need("gpu.capability", ">=8.0")))
    assert "GPU 1 (Tesla T4, 7.5)" in found.says and "H100" not in found.says
    assert found.fix[0].does.endswith("CUDA_VISIBLE_DEVICES=GPU-0")


def test_an_unseen_recommendation_holds_nothing_back():
    agreed = contract(need("gpu.capability", ">=8.0", level="recommended"))
    assert judged("GPU005", V100, agreed, gpu_capability="gone") is None
    required = contract(need("gpu.capability", ">=8.0"))
    assert isinstance(judged("GPU005", V100, required, gpu_capability="gone"), UnknownFactError)


def test_no_gpu_is_told_elsewhere():
    assert judged("GPU005", NOTHING, contract(need("gpu.capability", ">=8.0"))) is None
