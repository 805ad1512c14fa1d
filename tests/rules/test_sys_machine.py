"""The machine around the GPUs: the C library, limits, caches, the clock, folders, the kernel's log."""

from __future__ import annotations

import pytest

from gpuready.model import NOT_STATED, Fact, Facts, Finding, UnknownFactError
from gpuready.rules import job_request, network_interfaces
from tests.rules.worlds import GAP, H100, contract, env, facts, judged, need

GB, GIB, MIB = 10**9, 1 << 30, 1 << 20


def test_a_model_in_a_folder_is_not_downloaded():
    online = {"hub.offline": False}
    assert job_request.may_download_model(facts(online)) and job_request.may_download_model(
        facts(online | {"job.model": "meta-llama/Llama-3-8B"})
    )
    assert not job_request.may_download_model(facts(online | {"job.model": "/models/llama"}))
    assert not job_request.may_download_model(facts({"hub.offline": True}))


def test_ports_that_carry_data():
    rows = {"a/1": {"state": "active", "link_layer": "Ethernet"}, "b/1": {"state": "down"}}
    assert (
        network_interfaces.active_rdma_ports(facts({"net.ib": rows})) == ["a/1"]
        and network_interfaces.infiniband_ports(facts({"net.ib": rows})) == {}
    )
    assert network_interfaces.active_rdma_ports(facts({"net.ib": None})) == []


ABOUT_A_MACHINE = ["SYS005", "SYS006", "SYS007", "SYS008", "SYS010", "SYS011", "SYS019", "SYS020", "SYS021"]
ABOUT_THE_SHELL = ["SYS012", "SYS013", "SYS014", "SYS015", "SYS016", "SYS018", "SYS022"]


@pytest.mark.parametrize("code", [*ABOUT_A_MACHINE, *ABOUT_THE_SHELL, "SYS009", "SYS017"])
def test_a_what_if_states_no_limits_caches_or_variables(code):
    """``--on h100``: what nobody looked for is neither wrong nor undecided."""
    from gpuready import rules
    from tests.rules.worlds import outcome

    stated = Facts([Fact(key, value, "--on", "stated") for key, value in H100.items()], "h100", NOT_STATED)
    assert outcome(rules.load_rule(code), stated, contract(framework="transformers")) is None


# -- SYS005: the C library ----------------------------------------------------------------------------

OLD = H100 | {"os.glibc": "2.17", "python.kind": "venv", "package.torch": None}


def test_no_wheel_for_an_old_library():
    agreed = contract(need("package.torch", ">=2.13.0,<2.15.0"))
    found = judged("SYS005", OLD, agreed)
    assert found.severity == "error" and "glibc 2.17" in found.says and found.needs[0].want == ">=2.28"


def test_an_older_torch_that_the_contract_takes_is_enough():
    assert judged("SYS005", OLD, contract(need("package.torch", ">=2.2.0,<=2.5.1"))) is None
    assert judged("SYS005", OLD, contract(need("package.torch", ">=2.6"))) is None
    assert judged("SYS005", OLD) is None, "a contract without a pin takes an old one"


@pytest.mark.parametrize("version, wrong", [("2.7.0+cu126", True), ("2.12.1", True), ("2.6.0+cu124", False)])
def test_a_torch_that_was_copied_here(version, wrong):
    assert isinstance(judged("SYS005", OLD | {"package.torch": version}), Finding) is wrong


def test_conda_builds_for_older_libraries():
    assert judged("SYS005", OLD | {"package.torch": "2.9.1", "python.kind": "conda"}) is None


def test_musl_has_no_wheels_but_may_have_a_build():
    musl = OLD | {"os.glibc": None}
    assert "no glibc" in judged("SYS005", musl).says
    assert judged("SYS005", musl | {"package.torch": "2.8.0"}) is None


@pytest.mark.parametrize(
    "values", [{"os.glibc": "2.28"}, {"os.glibc": "2.39"}, {"os.system": "darwin"}, {"os.arch": "ppc64le"}]
)
def test_libraries_and_systems_that_are_no_case(values):
    assert judged("SYS005", OLD | values, contract(need("package.torch", ">=2.13"))) is None


def test_an_unseen_library():
    assert isinstance(judged("SYS005", OLD, os_glibc="no libc"), UnknownFactError)
    assert isinstance(judged("SYS005", OLD, package_torch="no listing"), UnknownFactError)


# -- SYS006: open files -------------------------------------------------------------------------------

EIGHT = {"gpu.count": 8, "gpu.visible": tuple(range(8))}


@pytest.mark.parametrize(
    "limit, gpus, reported",
    [
        (1024, EIGHT, True),
        (4095, EIGHT, True),
        (4096, EIGHT, False),
        (-1, EIGHT, False),
        (1024, {}, False),
        (256, {}, True),
        (1024, {"job.gpus": 4}, True),
        (1024, {"job.wants": ("multi-node",)}, True),
        (1024, env(WORLD_SIZE="2"), True),
        (1024, EIGHT | {"job.gpus": 1}, False),
        (None, EIGHT, False),
    ],
)
def test_open_files(limit, gpus, reported):
    found = judged("SYS006", H100 | gpus | {"limit.nofile": limit})
    assert (found is not None) is reported
    if reported:
        assert found.severity == "warning", "never an error"


def test_open_files_unseen():
    assert isinstance(judged("SYS006", H100 | EIGHT, limit_nofile="no getrlimit"), UnknownFactError)


# -- SYS007: locked memory ----------------------------------------------------------------------------

PORT = {"mlx5_0/1": {"state": "active", "link_layer": "InfiniBand"}}
CLUSTER = {"job.wants": ("multi-node",), "net.ib": PORT, "limit.memlock": 8 * MIB, "env.names": ()}


def test_locked_memory_matters_between_machines():
    found = judged("SYS007", CLUSTER)
    assert found.severity == "warning" and "8192 KiB" in found.says
    assert judged("SYS007", CLUSTER | {"job.wants": ()}) is None, "one machine does not use InfiniBand"
    assert isinstance(judged("SYS007", CLUSTER | {"job.wants": ()} | env(SLURM_JOB_NUM_NODES="4")), Finding)


@pytest.mark.parametrize("limit", [-1, 64 * MIB, 1 << 40, None])
def test_enough_locked_memory(limit):
    assert judged("SYS007", CLUSTER | {"limit.memlock": limit}) is None


@pytest.mark.parametrize("ports", [{}, None, {"mlx5_0/1": {"state": "down", "link_layer": "InfiniBand"}}])
def test_no_card_that_locks_memory(ports):
    assert judged("SYS007", CLUSTER | {"net.ib": ports}) is None


def test_infiniband_that_is_switched_off_locks_nothing():
    assert judged("SYS007", CLUSTER | env(NCCL_IB_DISABLE="1")) is None
    roce = {"mlx5_0/1": {"state": "active", "link_layer": "Ethernet"}}
    assert isinstance(judged("SYS007", CLUSTER | {"net.ib": roce}), Finding)


# -- SYS008, SYS009, SYS010: the hub ------------------------------------------------------------------

CACHE = {"hub.writable": False, "hub.cache": "/models/hub", "hub.offline": False}


def test_a_cache_of_somebody_else():
    assert judged("SYS008", CACHE).severity == "warning"
    assert judged("SYS008", CACHE | {"hub.writable": True}) is None
    assert judged("SYS008", CACHE | {"hub.offline": True}) is None, "shared on purpose"
    assert judged("SYS008", CACHE | {"job.model": "./model"}) is None
    assert isinstance(judged("SYS008", CACHE, hub_writable="it hangs on a group"), UnknownFactError)


def room(free, parameters=70 * GB, wants=("bf16",), **more):
    values = {"disk.free": free, "disk.path": "/home", "hub.offline": False}
    return values | {"job.parameters": parameters, "job.wants": wants} | more


@pytest.mark.parametrize(
    "values, reported",
    [
        (room(100 * GB), True),
        (room(141 * GB), False),
        (room(100 * GB, wants=("bnb-4bit",)), False),
        (room(30 * GB, wants=("bnb-4bit",)), True),
        (room(30 * GB, wants=("gptq",)), False),
        (room(30 * GB, parameters=None), False),
        (room(1 * GB, **{"job.model": "/models/llama"}), False),
        (room(1 * GB) | {"hub.offline": True}, False),
        (room(None), False),
    ],
)
def test_room_for_the_weights(values, reported):
    found = judged("SYS009", values)
    assert (found is not None) is reported
    if reported:
        assert found.severity == "warning", "it may be there already"


def test_the_room_is_told_in_gigabytes():
    assert judged("SYS009", room(100 * GB)).says.startswith("the model's weights need 140 GB")
    assert isinstance(judged("SYS009", room(1), disk_free="statvfs failed"), UnknownFactError)


def test_offline_is_a_line_of_information():
    assert judged("SYS010", {"hub.offline": True, "hub.cache": "/c"}).severity == "info"
    assert judged("SYS010", {"hub.offline": False}) is None
    assert isinstance(judged("SYS010", {}, hub_offline=GAP), UnknownFactError)


# -- SYS011: the clock --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "year, reported",
    [(1970, True), (2023, True), (2024, False), (2026, False), (2099, False), (2106, True), (None, False)],
)
def test_the_clock(year, reported):
    found = judged("SYS011", {"clock.year": year})
    assert (found is not None) is reported and (not reported or str(year) in found.says)


# -- SYS019, SYS020: folders --------------------------------------------------------------------------


def test_folders_of_the_path():
    found = judged("SYS019", {"path.unsafe": (".", "/opt/tools"), "os.wsl": False})
    assert "'.' and '/opt/tools'" in found.says
    assert judged("SYS019", {"path.unsafe": ()}) is None


def test_the_drives_of_windows_are_open_to_all():
    drives = ("/mnt/c/Windows/System32", "/mnt/c/Windows")
    assert judged("SYS019", {"path.unsafe": drives, "os.wsl": True}) is None
    assert isinstance(judged("SYS019", {"path.unsafe": drives, "os.wsl": False}), Finding)
    assert "Windows" not in judged("SYS019", {"path.unsafe": (*drives, "."), "os.wsl": True}).says


THEIRS = {"cache.inductor": {"path": "/tmp/torchinductor_ada", "uid": 0, "mine": False}}


@pytest.mark.parametrize(
    "more, severity",
    [
        ({"job.wants": ("torch-compile",)} | env(HOME="/home/ada"), "error"),
        ({"job.wants": ("flex-attention",)} | env(HOME="/home/ada"), "error"),
        (env(HOME="/home/ada"), "warning"),
        ({"job.wants": ("torch-compile",)} | env(HOME="/root"), "warning"),
        ({"job.wants": ("torch-compile",)} | env(TORCHINDUCTOR_CACHE_DIR="/shared/cache"), "warning"),
        ({"job.wants": ("torch-compile",)}, "warning"),
    ],
)
def test_a_cache_that_belongs_to_another(more, severity):
    assert judged("SYS020", THEIRS | more).severity == severity


@pytest.mark.parametrize("row", [None, {"path": "/tmp/x", "uid": 1, "mine": True}])
def test_a_cache_of_ones_own_or_none_yet(row):
    assert judged("SYS020", {"cache.inductor": row}) is None


# -- SYS021: Xids -------------------------------------------------------------------------------------


def xid(number, line="", pci="0000:3b:00.0"):
    return {"xid": number, "pci": pci, "line": line or f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=7"}


@pytest.mark.parametrize("number", [48, 64, 74, 79, 95, 119, 120, 136, 144, 145, 146, 149, 150, 155, 156, 158])
def test_numbers_that_speak_of_hardware(number):
    found = judged("SYS021", {"kernel.xids": (xid(number),)})
    assert found.severity == "error" and f"Xid {number} on 0000:3b:00.0" in found.says


@pytest.mark.parametrize("number", [13, 31, 43, 45, 109])
def test_programs_never_speak_against_the_gpu(number):
    assert judged("SYS021", {"kernel.xids": (xid(number),)}) is None


def test_what_the_gpu_has_mended_is_a_warning():
    assert judged("SYS021", {"kernel.xids": (xid(63), xid(94))}).severity == "warning"
    assert judged("SYS021", {"kernel.xids": (xid(63), xid(95))}).severity == "error"


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("144, SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000001 0x00000008 0x00000000 0x00000000)", "warning"),
        ("144, SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000002 0x00000000 0x00000000)", "error"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000)", "error"),
        ("147, TREX Nonfatal XC0 i0 Link 00 (0x00000001 0x00000001 0x00000000 0x00000000)", "warning"),
    ],
)
def test_nvlink_lines_say_themselves_whether_they_are_fatal(line, severity):
    found = judged("SYS021", {"kernel.xids": (xid(int(line[:3]), f"NVRM: Xid (PCI:0000:3b:00): {line}"),)})
    assert found.severity == severity and "WORKFLOW_NVLINK5_ERR" in found.fix[0].does
    result = " ".join([found.so, *(f"{step.does} {step.note}" for step in found.fix)])
    assert ("reset" in result, "go on" in result) == (severity == "error", severity == "warning")
    assert ("dcgmi" in result, "root" in result) == (severity == "error", severity == "error")


def test_a_fault_that_nvidia_ignores_has_no_step_for_root():
    found = judged("SYS021", {"kernel.xids": (xid(157),)})
    assert [step.does for step in found.fix] == [
        "Xid 157: go on, and contact the vendor if it returns: no spare part is left (NVIDIA: IGNORE)"
    ]


def test_of_a_mild_line_and_a_repaired_fault_of_one_number_the_fault_has_the_step():
    lines = ("149, NETIR_LINK_EVT Fatal XC0", "149, NETIR_LINK_EVT Nonfatal XC0")
    rows = tuple(xid(149, f"NVRM: Xid (PCI:0000:3b:00): {line}") for line in lines)
    for order in (rows, rows[::-1]):
        done = xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
        found = judged("SYS021", {"kernel.xids": (*order, done)})
        assert found.severity == "warning" and "Xid 149: reset the GPU" in found.fix[0].does


def test_a_reset_that_is_due_and_one_that_was_done():
    due = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    done = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert isinstance(judged("SYS021", {"kernel.xids": (xid(154, due),)}), Finding)
    assert judged("SYS021", {"kernel.xids": (xid(154, done),)}) is None


def test_many_lines_are_told_once_and_short():
    rows = tuple(xid(79, pci=f"0000:{bus:02x}:00.0") for bus in range(8)) * 50
    assert len(judged("SYS021", {"kernel.xids": rows}).says) < 160


def test_a_log_that_only_root_may_read():
    assert isinstance(judged("SYS021", {}, kernel_xids="permission denied"), UnknownFactError)
    assert judged("SYS021", {"kernel.xids": (xid(79),)}, contract(platforms=["rocm"])) is None
