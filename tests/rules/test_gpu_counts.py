"""How many GPUs, of which kind, for the job: lost ones, unequal ones, a container's."""

from __future__ import annotations

import pytest

from gpuready import rules
from gpuready.model import NOT_STATED, Fact, Facts, Finding, UnknownFactError
from tests.rules.worlds import A100, T4, contract, facts, gpus, judged, outcome, with_hole

# -- GPU013 and GPU014 --------------------------------------------------------------------------------


def test_a_lost_gpu_is_named_by_its_place_even_where_the_list_has_holes():
    machine = facts(gpus(2) | {"gpu.lost": (1,)})
    machine = machine.with_facts(Fact("gpu.pci", ("0000:1b:00.0", "0000:5e:00.0"), gap="GPU 1: GPU is lost"))
    found = outcome(rules.load_rule("GPU013"), machine, contract())
    assert "GPU 1 (0000:5e:00.0)" in found.says and found.severity == "error"
    assert "GPU 1" in judged("GPU013", {"gpu.lost": (1,)}, gpu_pci="unknown").says


def test_a_lost_gpu_counts_although_it_is_not_shown():
    assert isinstance(judged("GPU013", gpus(2, lost=(1,)) | {"gpu.visible": (0,)}), Finding)


def test_silence_for_another_reason_is_not_loss():
    assert isinstance(with_hole("GPU013", {}, "gpu.lost", (), "GPU 1: Unknown Error (NVML 999)"), UnknownFactError)
    assert isinstance(with_hole("GPU013", {}, "gpu.lost", (0,), "GPU 1: Unknown Error (NVML 999)"), Finding)


BARE = dict(rules.load_rule("GPU014").BROKEN)


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
    assert isinstance(judged("GPU014", BARE, env_names="denied"), UnknownFactError)


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
    assert isinstance(outcome(rules.load_rule("GPU015"), Facts(stated, "", NOT_STATED), contract()), Finding)


# -- GPU016 -------------------------------------------------------------------------------------------


def kinds(*rows):
    """GPUs of these names, capabilities and gibibytes."""
    names, capabilities, memory = zip(*rows, strict=True)
    return gpus(len(rows), capability=capabilities, memory=tuple(g << 30 for g in memory)) | {"gpu.name": names}


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

BOXED = dict(rules.load_rule("GPU017").BROKEN)


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
