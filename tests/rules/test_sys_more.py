"""The machine around the GPUs: limits, disks and caches, the clock, the environment that a job inherits."""

from __future__ import annotations

import pytest

from tarmac.model import NOT_STATED, Fact, Facts, Finding, Unknown
from tarmac.rules import allocator, hub, rdma, shell
from tarmac.rules.sys import variables_two_frameworks_differ as two
from tests.rules.worlds import GAP, H100, contract, facts, judged, need

GB, GIB, MIB = 10**9, 1 << 30, 1 << 20


def env(**variables):
    """An environment of these variables and no others."""
    return {"env.names": tuple(variables)} | {f"env.{name}": value for name, value in variables.items()}


def variable(name, access="read", **fields):
    return {"name": name, "access": access, "cite": "code.py:1", **fields}


# -- what the rules share -----------------------------------------------------------------------------


def test_a_variable_is_unset_empty_or_has_a_value():
    known = facts(env(A=" 1 ", B="", C="  "))
    assert [shell.value(known, name) for name in "ABCD"] == ["1", None, None, None]
    with pytest.raises(Unknown):
        shell.value(facts({}, env_names=GAP), "A")


@pytest.mark.parametrize(
    "text, number",
    [
        ("8", 8),
        ("-1", -1),
        ("", None),
        (None, None),
        ("--5", None),
        ("1.5", None),
        ("x", None),
        ("9" * 30, None),
    ],
)
def test_numbers_in_variables(text, number):
    assert shell.number(text) == number


@pytest.mark.parametrize("text, on", [("1", True), ("0", False), ("2", True), ("yes", False), ("", False)])
def test_switches_are_numbers(text, on):
    assert shell.switched_on(facts(env(X=text)), "X") is on


def test_long_values_are_cut():
    assert shell.quoted("short") == "'short'" and len(shell.quoted("x" * 100)) < 50


def test_only_variables_under_a_condition_that_holds():
    agreed = contract(
        variables=[variable("A"), variable("B", when="wants=fp8"), variable("C", when="os.name=ubuntu")]
    )
    assert [v.name for v in shell.in_force(facts({}), agreed)] == ["A"], "an unseen condition is none"
    both = facts({"job.wants": ("fp8",), "os.name": "ubuntu"})
    assert [v.name for v in shell.in_force(both, agreed)] == ["A", "B", "C"]


@pytest.mark.parametrize(
    "text, found",
    [
        ("a:1", [("a", "1")]),
        ("a:1, b:2 ,", [("a", "1"), ("b", "2")]),
        ("a:[256:1,512:2],b:x", [("a", "[256:1,512:2]"), ("b", "x")]),
        ("a=1", [("a=1", None)]),
        (",a:1", [("", None), ("a", "1")]),
        ("", []),
    ],
)
def test_settings_of_the_allocator(text, found):
    assert allocator.settings(text) == found


def test_a_model_in_a_folder_is_not_downloaded():
    online = {"hub.offline": False}
    assert hub.asked(facts(online)) and hub.asked(facts(online | {"job.model": "meta-llama/Llama-3-8B"}))
    assert not hub.asked(facts(online | {"job.model": "/models/llama"}))
    assert not hub.asked(facts({"hub.offline": True}))


def test_ports_that_carry_data():
    rows = {"a/1": {"state": "active", "link_layer": "Ethernet"}, "b/1": {"state": "down"}}
    assert rdma.active(facts({"net.ib": rows})) == ["a/1"] and rdma.infiniband(facts({"net.ib": rows})) == {}
    assert rdma.active(facts({"net.ib": None})) == []


ABOUT_A_MACHINE = ["SYS005", "SYS006", "SYS007", "SYS008", "SYS010", "SYS011", "SYS019", "SYS020", "SYS021"]
ABOUT_THE_SHELL = ["SYS012", "SYS013", "SYS014", "SYS015", "SYS016", "SYS018", "SYS022"]


@pytest.mark.parametrize("code", [*ABOUT_A_MACHINE, *ABOUT_THE_SHELL, "SYS009", "SYS017"])
def test_a_what_if_states_no_limits_caches_or_variables(code):
    """``--on h100``: what nobody looked for is neither wrong nor undecided."""
    from tarmac import rules
    from tests.rules.worlds import outcome

    stated = Facts([Fact(key, value, "--on", "stated") for key, value in H100.items()], "h100", NOT_STATED)
    assert outcome(rules.rule(code), stated, contract(framework="transformers")) is None


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
    "values",
    [{"os.glibc": "2.28"}, {"os.glibc": "2.39"}, {"os.system": "darwin"}, {"os.arch": "ppc64le"}],
)
def test_libraries_and_systems_that_are_no_case(values):
    assert judged("SYS005", OLD | values, contract(need("package.torch", ">=2.13"))) is None


def test_an_unseen_library():
    assert isinstance(judged("SYS005", OLD, os_glibc="no libc"), Unknown)
    assert isinstance(judged("SYS005", OLD, package_torch="no listing"), Unknown)


# -- SYS006: open files -------------------------------------------------------------------------------

EIGHT = {"gpu.count": 8, "gpu.visible": tuple(range(8))}


@pytest.mark.parametrize(
    "limit, gpus, told",
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
def test_open_files(limit, gpus, told):
    found = judged("SYS006", H100 | gpus | {"limit.nofile": limit})
    assert (found is not None) is told
    if told:
        assert found.severity == "warning", "never an error"


def test_open_files_unseen():
    assert isinstance(judged("SYS006", H100 | EIGHT, limit_nofile="no getrlimit"), Unknown)


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
    assert isinstance(judged("SYS008", CACHE, hub_writable="it hangs on a group"), Unknown)


def room(free, parameters=70 * GB, wants=("bf16",), **more):
    values = {"disk.free": free, "disk.path": "/home", "hub.offline": False}
    return values | {"job.parameters": parameters, "job.wants": wants} | more


@pytest.mark.parametrize(
    "values, told",
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
def test_room_for_the_weights(values, told):
    found = judged("SYS009", values)
    assert (found is not None) is told
    if told:
        assert found.severity == "warning", "it may be there already"


def test_the_room_is_told_in_gigabytes():
    assert judged("SYS009", room(100 * GB)).says.startswith("the weights of the model take 140 GB")
    assert isinstance(judged("SYS009", room(1), disk_free="statvfs failed"), Unknown)


def test_offline_is_a_line_of_information():
    assert judged("SYS010", {"hub.offline": True, "hub.cache": "/c"}).severity == "info"
    assert judged("SYS010", {"hub.offline": False}) is None
    assert isinstance(judged("SYS010", {}, hub_offline=GAP), Unknown)


# -- SYS011: the clock --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "year, told",
    [(1970, True), (2023, True), (2024, False), (2026, False), (2099, False), (2106, True), (None, False)],
)
def test_the_clock(year, told):
    found = judged("SYS011", {"clock.year": year})
    assert (found is not None) is told and (not told or str(year) in found.says)


# -- SYS012, SYS013, SYS014: the allocator ------------------------------------------------------------

ON = "expandable_segments:True"


@pytest.mark.parametrize(
    "version, variables, severity",
    [
        ("2.8.0+cu128", {"PYTORCH_ALLOC_CONF": ON}, "warning"),
        ("2.8.0", {"PYTORCH_CUDA_ALLOC_CONF": ON}, None),
        ("2.8.0", {"PYTORCH_CUDA_ALLOC_CONF": ON, "PYTORCH_ALLOC_CONF": ON}, None),
        ("2.8.0", {"PYTORCH_CUDA_ALLOC_CONF": "backend:native", "PYTORCH_ALLOC_CONF": ON}, "warning"),
        ("2.9.0", {"PYTORCH_ALLOC_CONF": ON}, None),
        ("2.12.1+cu130", {"PYTORCH_CUDA_ALLOC_CONF": ON}, "info"),
        ("2.12.1", {"PYTORCH_CUDA_ALLOC_CONF": ON, "PYTORCH_ALLOC_CONF": ON}, None),
        ("2.12.1", {"PYTORCH_CUDA_ALLOC_CONF": "backend:native", "PYTORCH_ALLOC_CONF": ON}, "warning"),
        ("2.12.1", {}, None),
        (None, {"PYTORCH_ALLOC_CONF": ON}, None),
        ("2.8.0", {"PYTORCH_ALLOC_CONF": " "}, None),
    ],
)
def test_the_name_of_the_allocators_variable(version, variables, severity):
    found = judged("SYS012", env(**variables) | {"package.torch": version})
    assert (found.severity if found else None) == severity


def test_the_right_name_is_named():
    found = judged("SYS012", env(PYTORCH_ALLOC_CONF=ON) | {"package.torch": "2.8.0"})
    assert found.fix[0].does == "set PYTORCH_CUDA_ALLOC_CONF instead of PYTORCH_ALLOC_CONF"


def settings(text, version="2.8.0", name="PYTORCH_CUDA_ALLOC_CONF"):
    return env(**{name: text}) | {"package.torch": version}


@pytest.mark.parametrize(
    "text",
    [
        ON,
        "max_split_size_mb:512",
        "max_split_size_mb: 128, garbage_collection_threshold: 0.8",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "backend:cudaMallocAsync",
        "max_split_size_mb:12,large_segment_size_mb:12",
        "expandable_segments:True,roundup_power2_divisions:16,",
        "per_process_memory_fraction:0.9",
        "",
    ],
)
def test_settings_that_torch_takes(text):
    assert judged("SYS013", settings(text)) is None


@pytest.mark.parametrize(
    "text, why",
    [
        ("expandable_segments=True", "where a colon belongs"),
        ("expandable_segments:true", "must be True or False"),
        ("expandable_segments", "has no value"),
        ("max_split_size_mb:", "has no value"),
        ("max_split_size_mb:big", "must be a number"),
        ("max_split_size_mb:10", "must be 20 at the least"),
        ("garbage_collection_threshold:1.5", "between 0 and 1"),
        ("garbage_collection_threshold:most", "between 0 and 1"),
        ("backend:cudamallocasync", "there is no backend"),
        (",expandable_segments:True", "before a comma"),
    ],
)
def test_settings_that_torch_refuses(text, why):
    found = judged("SYS013", settings(text))
    assert found.severity == "error" and why in found.says


def test_an_unknown_option_may_be_one_of_a_newer_torch():
    assert judged("SYS013", settings("max_split_size:512")).severity == "warning"
    assert judged("SYS013", settings("max_split_size:512,expandable_segments:1")).severity == "error"


def test_only_the_variable_that_counts_is_read():
    bad = settings("nonsense", "2.8.0", "PYTORCH_ALLOC_CONF")
    assert judged("SYS013", bad) is None, "this torch does not read it"
    assert judged("SYS013", bad | {"package.torch": "2.10.0"}).severity == "error"
    both = env(PYTORCH_CUDA_ALLOC_CONF="nonsense", PYTORCH_ALLOC_CONF=ON) | {"package.torch": "2.10.0"}
    assert judged("SYS013", both) is None
    assert judged("SYS013", settings("nonsense", None)) is None, "no torch reads anything"
    assert isinstance(judged("SYS013", settings("nonsense"), package_torch="no listing"), Unknown)


SLEEPS = settings(ON) | {"job.wants": ("vllm",), "package.vllm": "0.10.2"}


def test_expandable_segments_and_sleep():
    found = judged("SYS014", SLEEPS)
    assert found.severity == "warning" and "vLLM 0.10.2" in found.says
    assert judged("SYS014", SLEEPS | {"package.vllm": "0.21.0"}) is None, "it turns them off itself"
    assert judged("SYS014", SLEEPS | {"package.vllm": None}) is None
    assert judged("SYS014", SLEEPS | {"job.wants": ("bf16",)}) is None
    assert judged("SYS014", SLEEPS | settings("expandable_segments:False")) is None


def test_a_contract_that_brings_vllm_asks_for_it():
    agreed = contract(need("package.vllm", "==0.10.2"))
    assert isinstance(judged("SYS014", SLEEPS | {"job.wants": ()}, agreed), Finding)
    optional = contract(need("package.vllm", "==0.10.2", level="recommended"))
    assert judged("SYS014", SLEEPS | {"job.wants": ()}, optional) is None


def test_roll_empties_the_old_variable_and_not_the_new_one():
    roll = contract(variables=[variable("PYTORCH_CUDA_ALLOC_CONF", "set", traits=("emptied-for-vllm",))])
    assert judged("SYS014", SLEEPS, roll) is None
    newer = SLEEPS | settings(ON, "2.10.0", "PYTORCH_ALLOC_CONF")
    assert "PYTORCH_ALLOC_CONF" in judged("SYS014", newer, roll).says


# -- SYS015, SYS016, SYS017: variables of contracts ---------------------------------------------------


def test_a_word_that_the_framework_does_not_take():
    agreed = contract(
        variables=[
            variable("MODE", allowed=["fast", "safe"]),
            variable("OWN", "set", allowed=["a"]),
            variable("FREE"),
            variable("LATER", allowed=["1"], when="wants=fp8"),
            variable("BUILD_EXT", allowed=["0", "1"]),
        ]
    )
    values = env(MODE="FAST", OWN="z", FREE="z", LATER="z", BUILD_EXT="yes")
    found = judged("SYS015", values, agreed)
    assert found.severity == "warning" and found.says.endswith("MODE")
    assert found.fix[0].does == "set MODE to fast or safe, or unset it"
    assert "LATER" in judged("SYS015", values | {"job.wants": ("fp8",)}, agreed).says
    assert (
        judged("SYS015", env(MODE="fast"), agreed) is None and judged("SYS015", env(MODE=""), agreed) is None
    )


@pytest.mark.parametrize("traits, told", [(("forced",), True), (("emptied-for-vllm",), False), ((), False)])
def test_only_what_the_framework_forces_is_lost(traits, told):
    agreed = contract(variables=[variable("X", "set", value="1", traits=traits)])
    found = judged("SYS016", env(X="8"), agreed)
    assert (found is not None) is told
    assert judged("SYS016", env(X="1"), agreed) is None and judged("SYS016", env(), agreed) is None


def test_the_shipped_contracts_say_which_value_wins():
    from tarmac import contracts

    colossal, roll = contracts.load("colossalai"), contracts.load("roll")
    found = judged("SYS016", env(CUDA_DEVICE_MAX_CONNECTIONS="8"), colossal)
    assert "sets CUDA_DEVICE_MAX_CONNECTIONS to 1" in found.says
    values = env(NCCL_NVLS_ENABLE="1", NCCL_CUMEM_ENABLE="1") | {"gpu.vendor": ("nvidia",)}
    found = judged("SYS016", values, roll)
    assert "NCCL_NVLS_ENABLE to 0" in found.says and "CUMEM" not in found.says


def test_two_frameworks_and_one_variable():
    mine = contract(
        variables=[variable("X", "set", value="1"), variable("Y", "set", value="1", when="wants=fp8")]
    )
    other = contract(
        framework="other", variables=[variable("X", "set", value="4"), variable("Y", "set", value="2")]
    )
    table = {"contract.variables": two.others(mine, [mine, other])}
    assert table["contract.variables"] == {"other 1.0": {"X": "4", "Y": "2"}}
    found = judged("SYS017", table, mine)
    assert found.severity == "warning" and found.says == "set by demo and otherwise by other 1.0: X"
    assert found.needs[0].want == "1"


def test_frameworks_that_agree_or_do_not_meet():
    mine = contract(variables=[variable("X", "set", value="1")])
    assert judged("SYS017", {"contract.variables": {"other 1.0": {"X": "1", "Z": "9"}}}, mine) is None
    assert (
        judged("SYS017", {"contract.variables": {"demo 1.0": {"X": "9"}, "demo": {"X": "9"}}}, mine) is None
    )
    assert judged("SYS017", {"contract.variables": {}}, mine) is None and judged("SYS017", {}, mine) is None
    assert isinstance(judged("SYS017", {}, mine, contract_variables=GAP), Unknown)


# -- SYS018: tracing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables, told",
    [
        ({"CUDA_LAUNCH_BLOCKING": "1"}, True),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, False),
        ({"NCCL_DEBUG": "trace"}, True),
        ({"NCCL_DEBUG": "INFO"}, False),
        ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, True),
        ({"TORCH_DISTRIBUTED_DEBUG": "INFO"}, False),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, True),
        ({}, False),
    ],
)
def test_what_was_set_for_a_search(variables, told):
    found = judged("SYS018", env(**variables))
    assert (found.severity if found else None) == ("info" if told else None)


def test_determinism_sets_launch_blocking_itself():
    values = env(CUDA_LAUNCH_BLOCKING="1", NCCL_DEBUG="TRACE") | {"job.wants": ("determinism",)}
    assert judged("SYS018", values).fix[0].does == "unset NCCL_DEBUG"


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


@pytest.mark.parametrize("number", [48, 64, 74, 79, 95, 119, 120])
def test_numbers_that_speak_of_hardware(number):
    found = judged("SYS021", {"kernel.xids": (xid(number),)})
    assert found.severity == "warning" and f"Xid {number} on 0000:3b:00.0" in found.says


@pytest.mark.parametrize("number", [13, 31, 43, 45, 109])
def test_programs_never_speak_against_the_gpu(number):
    assert judged("SYS021", {"kernel.xids": (xid(number),)}) is None


def test_what_the_gpu_has_mended_is_information():
    assert judged("SYS021", {"kernel.xids": (xid(63), xid(94))}).severity == "info"
    assert judged("SYS021", {"kernel.xids": (xid(63), xid(95))}).severity == "warning"


def test_a_reset_that_is_due_and_one_that_was_done():
    due = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    done = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert isinstance(judged("SYS021", {"kernel.xids": (xid(154, due),)}), Finding)
    assert judged("SYS021", {"kernel.xids": (xid(154, done),)}) is None


def test_many_lines_are_told_once_and_short():
    rows = tuple(xid(79, pci=f"0000:{bus:02x}:00.0") for bus in range(8)) * 50
    assert len(judged("SYS021", {"kernel.xids": rows}).says) < 160


def test_a_log_that_only_root_may_read():
    assert isinstance(judged("SYS021", {}, kernel_xids="permission denied"), Unknown)
    assert judged("SYS021", {"kernel.xids": (xid(79),)}, contract(platforms=["rocm"])) is None


# -- SYS022: leftovers of accelerate ------------------------------------------------------------------

TRAINER = contract(framework="transformers")


@pytest.mark.parametrize(
    "variables, severity",
    [
        ({"ACCELERATE_USE_CPU": "true"}, "warning"),
        ({"ACCELERATE_USE_FSDP": "1"}, "warning"),
        ({"ACCELERATE_USE_FSDP": "false"}, None),
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, "info"),
        ({"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_DEEPSPEED": "true"}, "warning"),
        ({"ACCELERATE_USE_CPU": "true", "LOCAL_RANK": "0"}, None),
        ({"FSDP_VERSION": "2"}, None),
        ({}, None),
    ],
)
def test_leftovers(variables, severity):
    found = judged("SYS022", env(**variables), TRAINER)
    assert (found.severity if found else None) == severity
    assert judged("SYS022", env(**variables)) is None, "only frameworks that read them"


@pytest.mark.parametrize(
    "name, want",
    [
        ("ACCELERATE_USE_FSDP", "fsdp2"),
        ("ACCELERATE_USE_DEEPSPEED", "deepspeed"),
        ("ACCELERATE_USE_CPU", "cpu"),
    ],
)
def test_what_the_job_asks_for_is_no_leftover(name, want):
    assert judged("SYS022", env(**{name: "true"}) | {"job.wants": (want,)}, TRAINER) is None
