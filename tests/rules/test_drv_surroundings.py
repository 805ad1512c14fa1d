"""DRV rules about drivers and GPUs that do not go together, and about what stands in front of the driver."""

from __future__ import annotations

import pytest

from gpuready import rules
from gpuready.check.evaluate import judge
from gpuready.model import NOT_STATED, Fact, Facts, Finding, UndecidedRule, UnknownFactError
from tests.rules.worlds import H100, contract, facts, judged, need, outcome


def card(name, capability, driver=None, **more):
    values = {"gpu.count": 1, "gpu.visible": (0,), "gpu.name": (name,), "gpu.capability": (capability,)}
    return values | ({"driver.version": driver} if driver else {}) | more


def two(first, second, **more):
    """Two GPUs of these names and capabilities."""
    values = {"gpu.count": 2, "gpu.visible": (0, 1), "gpu.uuid": ("GPU-0", "GPU-1")}
    return values | {"gpu.name": (first[0], second[0]), "gpu.capability": (first[1], second[1])} | more


V100, A100, RTX5090 = ("Tesla V100-SXM2-16GB", "7.0"), ("NVIDIA A100-SXM4-80GB", "8.0"), ("RTX 5090", "12.0")
READ = {"gpu.memory": (17_179_869_184,)}

# -- DRV006 -------------------------------------------------------------------------------------------


def tools(toolkit, driver, **more):
    return {"toolkit.version": toolkit, "driver.version": driver, "toolkit.path": "/cuda", "torch.cuda": None} | more


@pytest.mark.parametrize(
    ("toolkit", "driver"), [("12.8", "535.104.05"), ("11.8", "450.80.02"), ("13.1", "580.65.06"), ("12.0", "595.10")]
)
def test_minor_version_compatibility_holds_for_what_nvcc_builds(toolkit, driver):
    assert judged("DRV006", tools(toolkit, driver, **{"job.wants": ("build",)})) is None


def test_only_a_build_makes_it_a_warning():
    assert judged("DRV006", tools("13.0", "550.144.03")).severity == "info"
    assert judged("DRV006", tools("13.0", "550.144.03", **{"job.wants": ("build",)})).severity == "warning"
    required = contract(need("toolkit.version", ">=12"))
    assert judged("DRV006", tools("13.0", "550.144.03"), required).severity == "warning"


def test_where_torch_is_there_other_rules_know_better():
    assert judged("DRV006", tools("13.0", "550.144.03", **{"torch.cuda": "12.6"})) is None


def test_a_toolkit_that_is_here_and_goes_with_the_driver():
    others = ({"path": "/usr/local/cuda-13.0", "version": "13.0"}, {"path": "/usr/local/cuda-12.4", "version": "12.4"})
    found = judged("DRV006", tools("13.0", "550.144.03", **{"toolkit.others": others}))
    assert found.fix[0].does == "set CUDA_HOME=/usr/local/cuda-12.4, which is CUDA 12.4"
    assert "CUDA toolkit 12.4" in judged("DRV006", tools("13.0", "550.144.03")).fix[0].does


@pytest.mark.parametrize("values", [{"toolkit.version": None}, {"driver.version": None}])
def test_no_toolkit_or_no_driver(values):
    assert judged("DRV006", tools("13.0", "550.144.03", **values, **{"job.wants": ("build",)})) is None


def test_what_is_only_information_is_never_undecided():
    assert judged("DRV006", tools("13.0", "550.144.03"), driver_version="denied") is None
    assert judged("DRV006", tools("29.0", "550.144.03")) is None
    building = tools("13.0", "550.144.03", **{"job.wants": ("build",)})
    assert isinstance(judged("DRV006", building, driver_version="denied"), UnknownFactError)
    assert isinstance(judged("DRV006", building | {"toolkit.version": "29.0"}), UnknownFactError)


def test_cuda_compat_helps_the_build_too():
    compat = {"driver.compat": "/usr/local/cuda/compat/libcuda.so.580.65.06"}
    assert judged("DRV006", tools("13.0", "550.144.03", **compat)) is None


# -- DRV007 and DRV008 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "capability"), [V100, ("Tesla P100-PCIE-16GB", "6.0"), ("GTX 1080", "6.1"), ("Tesla M60", "5.2")]
)
def test_branch_590_leaves_maxwell_to_volta_behind(name, capability):
    assert judged("DRV007", card(name, capability, "590.44.01")).severity == "error"
    assert judged("DRV007", card(name, capability, "610.10")).severity == "error"
    assert judged("DRV007", card(name, capability, "580.159.04")) is None
    assert judged("DRV007", card(name, capability, "470.256.02")) is None


@pytest.mark.parametrize("capability", ["7.5", "8.0", "9.0", "12.0"])
def test_turing_and_newer_are_driven(capability):
    values = card("some GPU", capability)
    assert judged("DRV007", values | {"driver.version": "610.10"}) is None
    assert judged("DRV007", values, driver_version="denied") is None, "nothing hangs on the driver"


@pytest.mark.parametrize("capability", ["10.0", "10.3", "12.0", "12.1"])
def test_blackwell_begins_with_branch_570(capability):
    assert judged("DRV008", card("a Blackwell", capability, "565.57.01")).severity == "error"
    assert judged("DRV008", card("a Blackwell", capability, "570.26")) is None


@pytest.mark.parametrize(
    ("name", "capability", "old", "new"),
    [
        ("Tesla V100-SXM2-16GB", "7.0", "375.51", "384.81"),
        ("Tesla T4", "7.5", "396.26", "410.72"),
        ("NVIDIA A100-SXM4-40GB", "8.0", "440.33.01", "450.80.02"),
        ("NVIDIA GeForce RTX 3090", "8.6", "450.80.02", "455.23.04"),
        ("NVIDIA GeForce RTX 4090", "8.9", "515.65.01", "520.61.05"),
        ("NVIDIA H100", "9.0", "470.256.02", "520.61.05"),
        ("NVIDIA B200", "10.0", "565.57.01", "570.86.15"),
    ],
)
def test_each_generation_has_a_first_branch(name, capability, old, new):
    assert judged("DRV008", card(name, capability, old)) is not None
    assert judged("DRV008", card(name, capability, new)) is None


def test_the_branches_of_windows_have_other_numbers():
    windows = card("NVIDIA GeForce RTX 4090", "8.9", "521.33") | {"os.system": "windows"}
    assert judged("DRV008", windows) is not None and judged("DRV008", windows | {"os.system": "linux"}) is None
    world = H100 | {"os.system": "windows", "torch.cuda": "12.8", "driver.compat": None}
    assert judged("DRV001", world | {"driver.version": "527.41"}) is not None
    assert judged("DRV001", world | {"driver.version": "528.33"}) is None


@pytest.mark.parametrize(("code", "gpu", "driver"), [("DRV007", V100, "590.48.01"), ("DRV008", RTX5090, "550.144.03")])
def test_a_gpu_that_tells_its_memory_is_driven_whatever_the_catalogue_says(code, gpu, driver):
    assert judged(code, card(*gpu, driver) | READ) is None
    stated = [Fact(k, v, how="stated") for k, v in (card(*gpu, driver) | READ).items()]
    assert isinstance(outcome(rules.load_rule(code), Facts(stated), contract()), Finding)


@pytest.mark.parametrize(("code", "gpu", "driver"), [("DRV007", V100, "590.48.01"), ("DRV008", RTX5090, "550.144.03")])
def test_beside_a_gpu_that_is_driven_it_is_a_warning(code, gpu, driver):
    found = judged(code, two(gpu, A100, **{"driver.version": driver}))
    assert found.severity == "warning" and "GPU 0" in found.says and "A100" not in found.says
    assert found.fix[-1].does.endswith("CUDA_VISIBLE_DEVICES=GPU-1")
    assert judged(code, two(gpu, A100, **{"driver.version": driver, "job.gpus": 2})).severity == "error"


@pytest.mark.parametrize("code", ["DRV007", "DRV008"])
def test_no_driver_and_no_gpu_are_told_elsewhere(code):
    assert judged(code, card(*V100, **{"driver.version": None})) is None
    assert judged(code, card(*RTX5090, **{"driver.version": None})) is None
    assert judged(code, {"gpu.count": 0, "gpu.visible": ()}) is None


def test_an_imagined_machine_without_a_driver_is_left_open():
    stated = Facts([Fact(k, v, how="stated") for k, v in card(*V100).items()], "v100", NOT_STATED)
    report = judge([rules.load_rule("DRV007")], stated, contract())
    assert isinstance(report.unstated[0], UndecidedRule) and report.unstated[0].missing[0].key == "driver.version"


# -- DRV009 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "capability", "kind", "wanted"),
    [
        ("NVIDIA B200", "10.0", "proprietary", "open"),
        ("NVIDIA GB10", "12.1", "proprietary", "open"),
        ("NVIDIA GH200 480GB", "9.0", "proprietary", "open"),
        ("Tesla V100-SXM2-16GB", "7.0", "open", "proprietary"),
        ("Tesla P40", "6.1", "open", "proprietary"),
    ],
)
def test_gpus_that_take_one_kind_only(name, capability, kind, wanted):
    found = judged("DRV009", card(name, capability, **{"driver.kind": kind}))
    assert found.severity == "error" and found.needs[0].want == wanted and wanted in found.fix[0].does
    assert judged("DRV009", card(name, capability, **{"driver.kind": wanted})) is None


@pytest.mark.parametrize("capability", ["7.5", "8.0", "8.6", "8.9", "9.0"])
@pytest.mark.parametrize("kind", ["open", "proprietary"])
def test_turing_to_hopper_take_both(capability, kind):
    assert judged("DRV009", card("some GPU", capability, **{"driver.kind": kind})) is None


@pytest.mark.parametrize("capability", ["7.2", "8.7", "5.3"])
def test_integrated_gpus_have_drivers_of_their_own(capability):
    assert judged("DRV009", card("Xavier", capability, **{"driver.kind": "open"})) is None


def test_a_gpu_that_has_started_is_proof_even_where_the_kind_is_hidden():
    started = card(*RTX5090) | READ
    assert judged("DRV009", started | {"driver.kind": "proprietary"}) is None
    assert judged("DRV009", started, driver_kind="this file, which tells, is not here") is None
    assert isinstance(judged("DRV009", card(*RTX5090), driver_kind="no file"), UnknownFactError)


def test_the_kind_is_asked_only_where_it_matters():
    assert judged("DRV009", card(*A100), driver_kind="no file") is None


def test_two_gpus_that_no_driver_serves_together():
    found = judged("DRV009", two(V100, ("NVIDIA B200", "10.0"), **{"driver.kind": "open"}))
    assert found.severity == "warning" and "V100" in found.says and "B200" not in found.says


# -- DRV010 -------------------------------------------------------------------------------------------

HGX = {"gpu.count": 8, "fabric.switches": 4, "fabric.manager": "installed"}


def test_a_manager_that_is_not_there_is_installed_first():
    assert "start it" in judged("DRV010", HGX).fix[0].does
    absent = judged("DRV010", HGX | {"fabric.manager": "absent", "driver.version": "580.95.05"})
    assert "is not installed" in absent.says and "580.95.05" in absent.fix[0].does


@pytest.mark.parametrize(
    "values",
    [
        {"fabric.switches": 0, "fabric.manager": "absent"},
        {"fabric.manager": "running"},
        {"os.container": "docker"},
        {"os.sandbox": "gvisor"},
        {"gpu.count": 0},
        {"gpu.mig": ("on",) * 8},
        {"gpu.processes": ({"gpu": 0, "pid": 1},)},
    ],
)
def test_where_nobody_needs_the_manager_or_cuda_is_seen_to_start(values):
    assert judged("DRV010", HGX | values) is None


def test_mig_on_some_gpus_leaves_the_others_in_need():
    assert isinstance(judged("DRV010", HGX | {"gpu.mig": ("on",) * 7 + ("off",)}), Finding)


def test_a_manager_that_cannot_be_seen():
    assert isinstance(judged("DRV010", HGX, fabric_manager="no /proc"), UnknownFactError)
    boxed = HGX | {"os.container": "kubernetes"}
    assert judged("DRV010", boxed, fabric_manager="the host is out of sight", fabric_switches="no bus") is None
    assert judged("DRV010", {"gpu.count": 8}) is None, "a recording of old days, in which nobody looked"


# -- DRV011 -------------------------------------------------------------------------------------------


def compat(library, driver, name="NVIDIA A100-SXM4-80GB", capability="8.0"):
    path = "/usr/local/cuda/compat/libcuda.so.1"
    return card(name, capability, driver) | {"driver.compat": path, "driver.library": library}


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090"])
def test_a_library_older_than_the_driver_fails_on_every_gpu(name):
    found = judged("DRV011", compat("570.124.06", "580.95.05", name))
    assert found.severity == "error" and "803" in found.so
    assert found.fix[0].does.startswith("remove /usr/local/cuda/compat from")


def test_a_newer_library_is_for_data_centre_gpus():
    assert judged("DRV011", compat("580.95.05", "550.144.03")).severity == "info"
    found = judged("DRV011", compat("580.95.05", "550.144.03", "NVIDIA GeForce RTX 4090", "8.9"))
    assert found.severity == "error" and "804" in found.so
    assert judged("DRV011", compat("580.95.05", "550.144.03", "NVIDIA RTX A6000", "8.6")).severity == "info"
    assert judged("DRV011", compat("580.95.05", "550.144.03", "a card nobody knows")).severity == "info"


def test_a_mixed_machine_is_no_certain_failure():
    pair = two(("NVIDIA GeForce RTX 4090", "8.9"), A100)
    assert judged("DRV011", compat("580.95.05", "550.144.03") | pair).severity == "info"


@pytest.mark.parametrize("driver", ["580.65.06", "580.95.05", "580.159.04"])
def test_within_one_branch_it_is_only_told(driver):
    assert judged("DRV011", compat("580.95.05", driver)).severity == "info"


def test_versions_that_nobody_knows_convict_nobody():
    assert judged("DRV011", compat("570.124.06", "580.95.05"), driver_library="its name has none").severity == "info"


@pytest.mark.parametrize("capability", ["8.7", "11.0"])
def test_jetson_counts_in_another_way(capability):
    assert judged("DRV011", compat("570.124.06", "580.95.05", "Thor", capability)).severity == "info"


def test_no_such_library_and_no_gpu():
    assert judged("DRV011", H100) is None
    assert judged("DRV011", compat("570.124.06", "580.95.05") | {"gpu.count": 0}) is None


# -- DRV012 -------------------------------------------------------------------------------------------

WSL = {"os.wsl": True, "driver.wsl": True, "gpu.count": 1}
SYSTEM = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


def test_the_library_of_windows_by_its_place():
    lent = WSL | {"libcuda.path": "/usr/lib/wsl/lib/libcuda.so.1"}
    assert judged("DRV012", lent, driver_library="its name carries no version") is None


def test_a_container_in_wsl_has_it_under_another_path():
    values = facts(WSL | {"libcuda.path": SYSTEM, "os.container": "docker"})
    for real in ("/usr/lib/wsl/drivers/nv_dispi.inf_1/libcuda.so.1.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1.1"):
        library = Fact("driver.library", None, real, gap=f"the name of {real} carries no version")
        assert outcome(rules.load_rule("DRV012"), values.with_facts(library), contract()) is None


def test_a_linux_driver_inside_wsl():
    found = judged("DRV012", WSL | {"libcuda.path": SYSTEM, "driver.library": "535.183.01"})
    assert found.severity == "error" and SYSTEM in found.says and "remove the Linux driver" in found.fix[0].does


def test_no_library_at_all_unless_the_silent_driver_is_told_already():
    none = WSL | {"libcuda.path": None, "driver.library": None}
    assert "finds no libcuda" in judged("DRV012", none | {"driver.error": None}).says
    assert judged("DRV012", none | {"driver.error": 12}) is None


@pytest.mark.parametrize("values", [{"os.wsl": False}, {"driver.wsl": False}, {"gpu.count": 0}])
def test_not_in_wsl_or_without_a_gpu(values):
    assert judged("DRV012", WSL | {"libcuda.path": SYSTEM, "driver.library": "535.183.01"} | values) is None


# -- DRV013 -------------------------------------------------------------------------------------------


def idle(name, count=1, **more):
    values = {"gpu.count": count, "gpu.visible": tuple(range(count)), "gpu.name": (name,) * count}
    return values | {"gpu.persistence": ("off",) * count} | more


def test_one_card_of_a_workstation_needs_no_persistence():
    assert judged("DRV013", idle("NVIDIA GeForce RTX 4090")) is None
    assert judged("DRV013", idle("NVIDIA GeForce RTX 4090", 2)).severity == "info"
    assert judged("DRV013", idle("Tesla T4")).severity == "info"


def test_wsl_and_gpus_without_such_a_mode():
    assert judged("DRV013", idle("Tesla T4", **{"driver.wsl": True})) is None
    assert judged("DRV013", idle("Tesla T4") | {"gpu.persistence": ("none",)}) is None
