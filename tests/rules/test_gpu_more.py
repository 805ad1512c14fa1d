"""GPU rules about the condition of the GPUs, and about what the job asks of them."""

from __future__ import annotations

import pytest

from tarmac import rules
from tarmac.check import judge
from tarmac.model import NOT_STATED, Fact, Facts, Finding, Unknown
from tests.rules.worlds import H100, contract, facts, judged, outcome

HEALTH = ["GPU006", "GPU007", "GPU008", "GPU009", "GPU010", "GPU011", "GPU012", "GPU013", "DRV013"]
A100, T4 = "NVIDIA A100-SXM4-80GB", "Tesla T4"
MIG = "MIG-7c1b5a52-0000-5222-8333-44444444444"


def gpus(count, name=A100, **values):
    """A machine of so many GPUs, each fact the same for all or given as a tuple."""
    lists = {
        f"gpu.{key}": value if isinstance(value, tuple) else (value,) * count for key, value in values.items()
    }
    base = {"gpu.name": (name,) * count, "gpu.uuid": tuple(f"GPU-{i}" for i in range(count))}
    return {"gpu.count": count, "gpu.visible": tuple(range(count)), **base, **lists}


def with_hole(code, values, key, told, gap):
    """What a rule says where one GPU keeps a fact to itself."""
    return outcome(rules.rule(code), facts(values).also(Fact(key, told, "NVML", gap=gap)), contract())


# -- what holds for all rules on health ---------------------------------------------------------------


@pytest.mark.parametrize("code", HEALTH)
def test_health_is_nothing_that_a_what_if_can_have(code):
    stated = [
        Fact(k, v, how="stated") for k, v in H100.items() if k in ("gpu.count", "gpu.visible", "gpu.name")
    ]
    report = judge([rules.rule(code)], Facts(stated, "", NOT_STATED), contract())
    assert not report.unstated and not report.undecided and not report.judged


@pytest.mark.parametrize("code", HEALTH)
def test_a_job_for_the_cpu_needs_no_healthy_gpu(code):
    rule = rules.rule(code)
    assert outcome(rule, facts(dict(rule.BROKEN) | {"job.wants": ("cpu",)}), contract()) is None


@pytest.mark.parametrize("code", [c for c in HEALTH if c not in ("GPU013",)])
def test_a_machine_without_gpus_has_no_health(code):
    empty = {key: () for key in rules.rule(code).BROKEN if key.startswith("gpu.")} | {"gpu.count": 0}
    assert judged(code, empty) is None


@pytest.mark.parametrize(
    ("code", "key"),
    [
        ("GPU006", "gpu.mode"),
        ("GPU008", "gpu.ecc_errors"),
        ("GPU010", "gpu.pcie"),
        ("GPU011", "gpu.throttle"),
        ("GPU012", "gpu.power_limit"),
        ("DRV013", "gpu.persistence"),
    ],
)
def test_a_gpu_without_such_a_thing_leaves_nothing_undecided(code, key):
    healthy = dict(rules.rule(code).HEALTHY)
    for gap in ("Not Supported", "N/A", "GPU 0: Not Supported; GPU 1: GPU is lost (NVML 15)"):
        assert with_hole(code, healthy, key, None, gap) is None
    assert isinstance(with_hole(code, healthy, key, None, "No Permission"), Unknown)


def test_one_gpu_convicts_while_another_is_silent():
    machine = gpus(2, mode="default")
    found = with_hole("GPU006", machine, "gpu.mode", ("prohibited", None), "GPU 1: timeout")
    assert "GPU 0" in found.says
    silent = with_hole("GPU006", machine, "gpu.mode", ("default", None), "GPU 1: timeout")
    assert isinstance(silent, Unknown) and "timeout" in silent.fact.gap


def test_a_list_that_is_too_short_is_unknown():
    unknown = judged("GPU006", gpus(2) | {"gpu.mode": ("default",)})
    assert isinstance(unknown, Unknown) and unknown.fact.gap == "not known of GPU 1"


@pytest.mark.parametrize("code", ["GPU006", "GPU008", "GPU011"])
def test_a_gpu_that_is_not_shown_is_not_judged(code):
    rule = rules.rule(code)
    pair = {k: v * 2 if isinstance(v, tuple) else v for k, v in rule.HEALTHY.items()}
    key = {"GPU006": "gpu.mode", "GPU008": "gpu.ecc_errors", "GPU011": "gpu.throttle"}[code]
    pair |= {"gpu.count": 2, "gpu.visible": (0,), key: (rule.HEALTHY[key][0], rule.BROKEN[key][0])}
    assert outcome(rule, facts(pair), contract()) is None
    assert isinstance(outcome(rule, facts(pair | {"gpu.visible": (1,)}), contract()), Finding)


# -- GPU006 -------------------------------------------------------------------------------------------


def row(gpu, command="python train.py"):
    return {"gpu": gpu, "pid": 4711, "used": 1 << 30, "user": "ada", "command": command}


def test_a_shut_display_card_beside_an_open_one_is_a_warning():
    machine = gpus(2, mode=("prohibited", "default"))
    found = judged("GPU006", machine)
    assert found.severity == "warning" and found.fix[0].does.endswith("CUDA_VISIBLE_DEVICES=GPU-1")
    assert judged("GPU006", machine | {"job.gpus": 2}).severity == "error"
    assert judged("GPU006", machine | {"job.gpus": 1}).severity == "warning"


@pytest.mark.parametrize("mode", ["exclusive-process", "exclusive-thread"])
def test_an_exclusive_gpu_that_somebody_holds(mode):
    found = judged("GPU006", gpus(2, mode=mode, processes=(row(1),)))
    assert found.severity == "warning" and "GPU 1" in found.says and "GPU 0" not in found.says
    assert {f.key for f in found.found} == {"gpu.mode", "gpu.processes"}


def test_an_exclusive_gpu_that_is_free_is_as_clusters_have_it():
    assert judged("GPU006", gpus(2, mode="exclusive-process", processes=())) is None


def test_the_mps_server_holds_the_gpu_for_all():
    machine = gpus(1, mode="exclusive-process", processes=(row(0, "nvidia-cuda-mps-server"),))
    assert judged("GPU006", machine) is None
    unseen = gpus(1, mode="exclusive-process", processes=(row(0, None),))
    assert isinstance(judged("GPU006", unseen), Finding)
    assert judged("GPU006", unseen | {"env.CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}) is None


def test_a_default_gpu_may_be_shared():
    assert judged("GPU006", gpus(1, mode="default", processes=(row(0),))) is None


def test_holders_that_cannot_be_seen_matter_only_in_exclusive_mode():
    assert judged("GPU006", gpus(1, mode="default"), gpu_processes="denied") is None
    assert isinstance(judged("GPU006", gpus(1, mode="exclusive-process"), gpu_processes="denied"), Unknown)


# -- GPU007 -------------------------------------------------------------------------------------------


def instances(*parents):
    return tuple(
        {"gpu": parent, "uuid": f"{MIG}{i}", "memory_total": 10 << 30} for i, parent in enumerate(parents)
    )


def test_one_of_two_without_instance_is_a_warning_until_the_job_needs_both():
    machine = gpus(2, mig=("on", "off"), mig_devices=())
    assert judged("GPU007", machine).severity == "warning"
    assert judged("GPU007", machine | {"job.gpus": 2}).severity == "error"
    assert judged("GPU007", machine).fix[0].does.endswith("=GPU-1")


def test_the_fix_names_the_gpu():
    machine = gpus(3, mig=("off", "on", "on"), mig_devices=instances(1))
    found = judged("GPU007", machine)
    assert "GPU 2" in found.says and any("-i 2 " in step.does for step in found.fix)


@pytest.mark.parametrize("mode", ["off", "none"])
def test_mig_off_or_unheard_of(mode):
    assert judged("GPU007", gpus(2, mig=mode, mig_devices=())) is None


def test_several_instances_and_no_choice_is_a_line_that_names_one():
    machine = gpus(1, mig="on", mig_devices=instances(0, 0)) | {"visibility.cuda": None}
    found = judged("GPU007", machine)
    assert found.severity == "info" and f"{MIG}0" in found.says
    by_index = machine | {"visibility.cuda": {"value": "0", "shown": (0,)}}
    assert judged("GPU007", by_index).severity == "info"


def test_an_instance_that_is_named_or_the_only_one_needs_no_line():
    machine = gpus(1, mig="on", mig_devices=instances(0, 0))
    assert judged("GPU007", machine | {"visibility.cuda": {"value": f"{MIG}0", "shown": (0,)}}) is None
    alone = gpus(1, mig="on", mig_devices=instances(0))
    assert judged("GPU007", alone | {"visibility.cuda": None}) is None


def test_a_whole_gpu_beside_an_instance_is_a_choice():
    machine = gpus(2, mig=("on", "off"), mig_devices=instances(0)) | {"visibility.cuda": None}
    assert judged("GPU007", machine).severity == "info"


def test_information_is_never_undecided():
    assert judged("GPU007", gpus(1, mig="on", mig_devices=instances(0, 0)), visibility_cuda="denied") is None


def test_instances_without_uuid_still_count():
    nameless = ({"gpu": 0, "uuid": None}, {"gpu": 0, "uuid": None})
    found = judged("GPU007", gpus(1, mig="on", mig_devices=nameless) | {"visibility.cuda": None})
    assert found.severity == "info" and "such as" not in found.says


# -- GPU008 and GPU009 --------------------------------------------------------------------------------


def test_errors_are_counted_for_each_gpu():
    found = judged("GPU008", gpus(3, ecc_errors=(0, 2, 0)))
    assert found.severity == "warning" and "GPU 1" in found.says and "2 since" in found.says
    assert any("-i 1" in step.does for step in found.fix)


def test_what_the_rows_tell_is_told_once():
    machine = gpus(2, ecc_errors=(1, 0), remap_pending=(0,), remap_failure=())
    assert judged("GPU008", machine) is None
    assert isinstance(judged("GPU009", machine), Finding)
    both = gpus(2, ecc_errors=(1, 4), remap_pending=(0,), remap_failure=())
    assert "GPU 1" in judged("GPU008", both).says


def test_rows_that_cannot_be_replaced_are_graver_than_rows_that_wait():
    machine = gpus(2, remap_pending=(0,), remap_failure=(1,))
    found = judged("GPU009", machine)
    assert found.severity == "error" and "GPU 1" in found.says and "replaced" in found.fix[-1].does
    assert found.fix[0].does.endswith("=GPU-0")


def test_rows_of_a_gpu_that_is_not_shown():
    assert judged("GPU009", gpus(2, remap_pending=(1,), remap_failure=()) | {"gpu.visible": (0,)}) is None


def test_a_flag_is_enough_while_another_gpu_is_silent():
    machine = gpus(2, remap_failure=())
    assert isinstance(with_hole("GPU009", machine, "gpu.remap_pending", (0,), "GPU 1: timeout"), Finding)
    assert isinstance(with_hole("GPU009", machine, "gpu.remap_pending", (), "GPU 1: timeout"), Unknown)
    assert with_hole("GPU009", machine, "gpu.remap_pending", (), "GPU 1: GPU is lost (NVML 15)") is None


# -- GPU010 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", ["4 x16", "1 x16", "3 x16"])
def test_the_generation_alone_never_counts(now):
    assert judged("GPU010", gpus(1, pcie=now, pcie_max="4 x16")) is None


def test_fewer_lanes_at_full_generation_on_a_data_centre_gpu():
    found = judged("GPU010", gpus(2, pcie=("4 x16", "4 x4"), pcie_max="4 x16"))
    assert found.severity == "warning" and "GPU 1" in found.says and "4 x4 of 4 x16" in found.says


def test_a_link_that_may_be_asleep_is_information():
    assert judged("GPU010", gpus(1, pcie="1 x8", pcie_max="4 x16")).severity == "info"


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 3090", "NVIDIA RTX A6000", "a card nobody knows"])
def test_boards_that_share_lanes_are_built_so(name):
    assert judged("GPU010", gpus(2, name, pcie="4 x8", pcie_max="4 x16")).severity == "info"


@pytest.mark.parametrize(
    "name", ["NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB10", "NVIDIA Thor", "Orin (nvgpu)"]
)
def test_gpus_that_do_not_speak_pcie_to_their_processor(name):
    assert judged("GPU010", gpus(1, name, pcie="5 x1", pcie_max="5 x16")) is None


@pytest.mark.parametrize("now", ["0 x0", "4 x0", "rubbish", "4 x", "x8"])
def test_a_width_that_was_not_read_is_none(now):
    assert judged("GPU010", gpus(1, pcie=now, pcie_max="4 x16")) is None


# -- GPU011 and GPU012 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "hw_slowdown, hw_thermal",
        "hw_slowdown, hw_thermal_slowdown",
        "sw_thermal_slowdown",
        "sw_thermal",
        "sw_power_cap, hw_power_brake",
        "hw_power_brake_slowdown",
    ],
)
def test_heat_and_power_brake_in_the_words_of_either_witness(text):
    assert judged("GPU011", gpus(1, throttle=text)).severity == "warning"


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "sw_power_cap",
        "application_clocks",
        "applications_clocks_setting",
        "sync_boost, display_clocks",
    ],
)
def test_what_slows_a_healthy_gpu(text):
    assert judged("GPU011", gpus(1, throttle=text)) is None


def test_a_slowdown_without_a_cause_may_pass():
    assert judged("GPU011", gpus(1, throttle="hw_slowdown")).severity == "info"
    assert judged("GPU011", gpus(2, throttle=("hw_slowdown", "sw_thermal"))).severity == "warning"


@pytest.mark.parametrize(
    ("limit", "severity"), [(700, None), (631, None), (630, None), (600, "info"), (480, "warning")]
)
def test_how_low_a_power_limit_may_be(limit, severity):
    found = judged("GPU012", gpus(1, power_limit=limit, power_limit_default=700))
    assert (found and found.severity) == severity


def test_limits_of_unlike_gpus_are_set_back_one_by_one():
    machine = gpus(3, power_limit=(200, 150, 400), power_limit_default=(400, 300, 400))
    steps = [step.does for step in judged("GPU012", machine).fix]
    assert len(steps) == 2 and steps[0].endswith("-i 0 -pl 400") and steps[1].endswith("-i 1 -pl 300")


def test_laptops_and_unknown_limits():
    laptop = "NVIDIA GeForce RTX 4090 Laptop GPU"
    assert judged("GPU012", gpus(1, laptop, power_limit=80, power_limit_default=150)) is None
    assert judged("GPU012", gpus(1, power_limit=80, power_limit_default=0)) is None


# -- GPU013 and GPU014 --------------------------------------------------------------------------------


def test_a_lost_gpu_is_named_by_its_place_even_where_the_list_has_holes():
    machine = facts(gpus(2) | {"gpu.lost": (1,)})
    machine = machine.also(Fact("gpu.pci", ("0000:1b:00.0", "0000:5e:00.0"), gap="GPU 1: GPU is lost"))
    found = outcome(rules.rule("GPU013"), machine, contract())
    assert "GPU 1 (0000:5e:00.0)" in found.says and found.severity == "error"
    assert "GPU 1" in judged("GPU013", {"gpu.lost": (1,)}, gpu_pci="unknown").says


def test_a_lost_gpu_counts_although_it_is_not_shown():
    assert isinstance(judged("GPU013", gpus(2, lost=(1,)) | {"gpu.visible": (0,)}), Finding)


def test_silence_for_another_reason_is_not_loss():
    assert isinstance(with_hole("GPU013", {}, "gpu.lost", (), "GPU 1: Unknown Error (NVML 999)"), Unknown)
    assert isinstance(with_hole("GPU013", {}, "gpu.lost", (0,), "GPU 1: Unknown Error (NVML 999)"), Finding)


BARE = dict(rules.rule("GPU014").BROKEN)


@pytest.mark.parametrize(
    "fence",
    [
        {"os.container": "docker"},
        {"os.sandbox": "gvisor"},
        {"driver.wsl": True},
        {"env.SLURM_JOB_ID": "42"},
        {"env.PBS_JOBID": "42"},
        {"env.KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        {"gpu.mig": ("on", "off")},
    ],
)
def test_where_the_bus_shows_more_than_the_job_was_given(fence):
    assert judged("GPU014", BARE | fence) is None


def test_virtual_functions_are_no_cards():
    assert judged("GPU014", BARE | {"gpu.count": 4, "gpu.pci_count": 68}) is None


def test_counts_that_agree_or_are_told_elsewhere():
    assert judged("GPU014", BARE | {"gpu.count": 0}) is None
    assert judged("GPU014", BARE | {"gpu.pci_count": 7}) is None
    assert judged("GPU014", BARE | {"gpu.pci_count": 0}) is None
    assert isinstance(judged("GPU014", BARE, env_names="denied"), Unknown)


# -- GPU015 -------------------------------------------------------------------------------------------


def test_a_job_that_fits_or_says_nothing():
    assert judged("GPU015", gpus(4) | {"job.gpus": 4}) is None
    assert judged("GPU015", gpus(4) | {"job.gpus": 2}) is None
    assert judged("GPU015", gpus(4)) is None


def test_gpus_that_are_there_and_hidden_can_be_shown():
    found = judged("GPU015", gpus(4) | {"gpu.visible": (0,), "job.gpus": 3})
    assert found.fix[0].does.endswith("CUDA_VISIBLE_DEVICES=GPU-0,GPU-1,GPU-2")
    assert "machine" in judged("GPU015", gpus(2) | {"job.gpus": 3}).fix[1].does


def test_none_at_all_and_entries_that_are_dropped_are_told_elsewhere():
    assert judged("GPU015", gpus(2) | {"gpu.visible": (), "job.gpus": 2}) is None
    table = {"value": "0,99", "shown": (0,), "ignored": ("99",), "why": "'99' is no GPU of this machine"}
    dropped = gpus(2) | {"gpu.visible": (0,), "visibility.cuda": table}
    assert judged("GPU015", dropped | {"job.gpus": 2}) is None
    assert isinstance(judged("GPU015", dropped | {"job.gpus": 4}), Finding)


def test_a_number_that_may_be_that_of_all_nodes():
    assert judged("GPU015", gpus(4) | {"job.gpus": 16, "job.wants": ("multi-node",)}) is None


def test_the_job_is_judged_on_an_imagined_machine_too():
    stated = [Fact(k, v, how="stated") for k, v in (gpus(4) | {"job.gpus": 8}).items()]
    assert isinstance(outcome(rules.rule("GPU015"), Facts(stated, "", NOT_STATED), contract()), Finding)


# -- GPU016 -------------------------------------------------------------------------------------------


def kinds(*rows):
    """GPUs of these names, capabilities and gibibytes."""
    names, capabilities, memory = zip(*rows, strict=True)
    return gpus(len(rows), capability=capabilities, memory=tuple(g << 30 for g in memory)) | {
        "gpu.name": names
    }


BIG, SMALL = (A100, "8.0", 80), (T4, "7.5", 15)


def test_what_the_job_says_decides_how_grave_it_is():
    mixed = kinds(BIG, BIG, SMALL)
    assert judged("GPU016", mixed).severity == "info"
    assert judged("GPU016", mixed | {"job.gpus": 3}).severity == "warning"
    assert judged("GPU016", mixed | {"job.wants": ("fsdp",)}).severity == "warning"
    assert judged("GPU016", mixed | {"job.gpus": 1}) is None
    assert judged("GPU016", mixed | {"job.device_map": "auto"}) is None


def test_the_largest_group_is_the_one_to_show():
    found = judged("GPU016", kinds(SMALL, BIG, BIG) | {"job.gpus": 2})
    assert found.fix[0].does.endswith("CUDA_VISIBLE_DEVICES=GPU-1,GPU-2")
    assert f"2 x {A100} (80 GiB) and 1 x {T4} (15 GiB)" in found.says
    assert (found.needs[0].key, found.needs[0].want) == ("gpu.capability", "==8.0")


def test_memory_alone_may_differ():
    found = judged("GPU016", kinds((A100, "8.0", 80), (A100, "8.0", 40)) | {"job.gpus": 2})
    assert found.needs[0].key == "gpu.memory"


def test_a_hair_of_memory_and_a_card_that_is_not_shown_make_no_difference():
    assert judged("GPU016", kinds((A100, "8.0", 80), (A100, "8.0", 79)) | {"job.gpus": 2}) is None
    assert judged("GPU016", kinds(BIG, SMALL) | {"gpu.visible": (1,), "job.gpus": 2}) is None


def test_instances_of_one_gpu_are_alike():
    assert judged("GPU016", kinds(BIG, SMALL) | {"gpu.visible": (0, 0), "job.gpus": 2}) is None


# -- GPU017 -------------------------------------------------------------------------------------------

BOXED = dict(rules.rule("GPU017").BROKEN)


@pytest.mark.parametrize("container", ["docker", "podman", "kubernetes", "lxc", "singularity"])
def test_every_kind_of_container(container):
    """CUDA as root may make the file itself, as was seen on an H200: so it is no more than a warning."""
    assert judged("GPU017", BOXED | {"os.container": container}).severity == "warning"


@pytest.mark.parametrize(
    "values",
    [
        {"os.container": None},
        {"os.container": "none"},
        {"os.sandbox": "gvisor"},
        {"gpu.count": 0},
        {"gpu.nodes": ()},
        {"gpu.nodes": ({"path": "/dev/dxg"},)},
        {"gpu.capability": ("8.7",)},
        {"gpu.capability": ("11.0",)},
    ],
)
def test_where_cuda_makes_the_file_or_needs_none(values):
    assert judged("GPU017", BOXED | values) is None
