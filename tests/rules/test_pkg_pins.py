"""Python and its packages."""

from __future__ import annotations

import pytest

from gpuready.model import NOT_STATED, Fact, Facts, Finding, UnknownFactError
from gpuready.rules import load_rule
from tests.rules.worlds import H100, contract, judged, need, outcome

# -- PKG001 -------------------------------------------------------------------------------------------

CPU = H100 | {"torch.build": "cpu", "torch.version": "2.8.0+cpu", "torch.cuda": None, "torch.arch": ()}
CPU |= {"package.torch": "2.8.0+cpu"}


def test_cpu_torch_whatever_the_driver_and_the_toolkit():
    for around in ({}, {"toolkit.version": None}, {"gpu.count": 0, "platform.name": "cpu"}):
        found = judged("PKG001", CPU | around)
        assert found.severity == "error" and found.says == "torch is a CPU-only build"


def test_the_fix_is_the_same_release_for_cuda():
    step = judged("PKG001", CPU, contract(need("package.torch", ">=2.6"))).fix[0]
    assert step.does == "install torch 2.8.0 built for cu128" and step.run[-1] == "torch==2.8.0"


@pytest.mark.parametrize("platform", ["npu", "hpu", "mps"])
def test_a_plug_in_wants_the_plain_build(platform):
    values = CPU | {"gpu.count": 0, "platform.name": platform}
    assert judged("PKG001", values, contract(platforms=["cuda", platform])) is None
    assert judged("PKG001", values) is None, "GPU001 says that the framework does not take such a machine"


def test_rocm_wants_its_own_build():
    both = contract(platforms=["cuda", "rocm"])
    amd = {"gpu.count": 0, "platform.name": "rocm"}
    for build, made in (("cpu", "a CPU-only build"), ("cuda", "built for CUDA"), ("xpu", "built for Intel's XPU")):
        found = judged("PKG001", CPU | amd | {"torch.build": build}, both)
        assert found.says == f"torch is {made}, but this machine needs one for ROCm"
        assert [step.does for step in found.fix] == ["install a torch built for ROCm"]
    assert judged("PKG001", CPU | amd | {"torch.build": "rocm"}, both) is None
    on_nvidia = judged("PKG001", CPU | {"torch.build": "rocm"}, both)
    assert on_nvidia.says == "torch is built for rocm, not for CUDA"


def test_no_torch_is_told_elsewhere_and_cpu_jobs_are_content():
    assert judged("PKG001", H100 | {"torch.build": None}) is None
    assert judged("PKG001", CPU | {"job.wants": ("cpu",)}) is None
    assert judged("PKG001", H100) is None


def test_an_unseen_build():
    assert isinstance(judged("PKG001", CPU, torch_build="no version.py"), UnknownFactError)


# -- PKG002 -------------------------------------------------------------------------------------------


def test_without_the_framework_its_needs_are_no_news():
    agreed = contract(*(need(f"package.p{i}", ">=1") for i in range(40)), distribution="demo")
    found = judged("PKG002", H100 | {"package.demo": None}, agreed)
    assert found.says == "demo is not installed, nor are 40 packages that it needs"
    assert [f.key for f in found.found] == ["package.demo"]
    assert found.fix[0].run[-1] == "demo==1.0.*"


def test_torch_comes_by_its_build_in_the_same_step():
    agreed = contract(need("package.torch", ">=2.7,<2.9"), distribution="demo")
    bare = {k: v for k, v in H100.items() if not k.startswith(("torch.", "package."))}
    found = judged("PKG002", bare, agreed)
    assert found.says == "demo and torch are not installed" and len(found.fix) == 1
    run = found.fix[0].run
    assert "torch==2.8.0" in run and "demo==1.0.*" in run and run[run.index("--torch-backend") + 1] == "cu128"


def test_torch_is_needed_whether_the_contract_says_so_or_not():
    found = judged("PKG002", {"python.packages": 3, "package.demo": "1.0"}, contract(distribution="demo"))
    assert found.says == "torch is not installed"


def test_a_framework_that_no_index_has_is_installed_as_its_contract_says():
    steps = [{"does": "install the checkout", "run": ["pip", "install", "-e", "."], "safety": "ask"}]
    found = judged("PKG002", H100 | {"package.roll": None}, contract(distribution="roll", steps=steps))
    assert [step.run for step in found.fix] == [("pip", "install", "-e", ".")]
    steps[0]["run"] = ["pip", "install", "roll[all]==1.0"]
    found = judged("PKG002", H100 | {"package.roll": None}, contract(distribution="roll", steps=steps))
    assert found.fix[0].run[-1] == "roll==1.0.*"


def test_missing_packages_come_with_their_pins():
    agreed = contract(need("package.peft", ">=0.7.1,<=0.13.2"), need("package.peft", "!=0.8"), need("package.trl", "*"))
    found = judged("PKG002", H100, agreed)
    assert found.says == "peft and trl are not installed"
    assert found.fix[0].run[-2:] == ("peft>=0.7.1,<=0.13.2,!=0.8", "trl")


def test_alternatives_are_installed_by_the_last():
    found = judged("PKG002", H100, contract(need("package.vllm", "==0.8.4|==0.10.2")))
    assert found.fix[0].run[-1] == "vllm==0.10.2"


def test_what_the_job_does_not_ask_for_is_not_missing():
    agreed = contract(need("package.deepspeed", ">=0.9.3", when="wants=deepspeed"))
    assert judged("PKG002", H100, agreed) is None
    assert isinstance(judged("PKG002", H100 | {"job.wants": ("deepspeed",)}, agreed), Finding)


def test_recommended_packages_are_a_line_of_information():
    agreed = contract(need("package.rich", "*", level="recommended"), need("package.triton", "*", level="optional"))
    found = judged("PKG002", H100, agreed)
    assert found.severity == "info" and found.says == "recommended by demo and not installed: rich"


def test_a_listing_that_nobody_saw():
    bare = {k: v for k, v in H100.items() if not k.startswith("package.")}
    assert isinstance(judged("PKG002", bare, python_packages="permission denied"), UnknownFactError)


def test_packages_not_stated():
    stated = Facts([Fact("gpu.count", 8, how="stated")], "", NOT_STATED)
    found = outcome(load_rule("PKG002"), stated, contract(distribution="demo"))
    assert isinstance(found, UnknownFactError) and found.fact.gap == NOT_STATED


# -- PKG003 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version, want",
    [
        ("2.8.0+cu128", "==2.8.0"),
        ("2.8.0+cu128", ">=2.2,<=2.8.0"),
        ("2.9.0rc1", ">=2.8"),
        ("2.8.0.post1", ">2.7"),
        ("2.8.0", "==2.6.0|==2.8.0"),
        ("2.10.0", ">=2.9"),
        ("26.0", "==26"),
    ],
)
def test_inside(version, want):
    assert judged("PKG003", H100 | {"package.torch": version}, contract(need("package.torch", want))) is None


@pytest.mark.parametrize(
    "version, want",
    [("2.9.0rc1", ">=2.9"), ("2.8.0rc1", "==2.8.0"), ("2.8.1+cu128", "==2.8.0"), ("2.7.0", "==2.6.0|==2.8.0")],
)
def test_outside(version, want):
    found = judged("PKG003", H100 | {"package.torch": version}, contract(need("package.torch", want)))
    assert found.severity == "error" and f"torch {version}" in found.says


def test_one_finding_lists_all_and_the_gravest_decides():
    agreed = contract(
        need("package.peft", "<=0.13.2"),
        need("package.trl", "==0.9.6", level="recommended"),
        need("package.rich", ">=14", level="optional"),
    )
    values = H100 | {"package.peft": "0.19", "package.trl": "0.20", "package.rich": "13.0"}
    found = judged("PKG003", values, agreed)
    assert found.severity == "error" and len(found.found) == len(found.needs) == 3
    assert found.says == "peft 0.19, trl 0.20 and rich 13.0 are incompatible with demo 1.0"
    assert found.fix[0].run[-3:] == ("peft<=0.13.2", "trl==0.9.6", "rich>=14")
    softer = judged("PKG003", values | {"package.peft": "0.13.2"}, agreed)
    assert softer.severity == "warning"


def test_optional_packages_that_are_absent():
    agreed = contract(need("package.triton", ">=1.0.0", level="optional"))
    assert judged("PKG003", H100, agreed) is None


def test_a_torch_outside_is_replaced_by_a_build():
    agreed = contract(need("package.torch", ">=2.2.0,<=2.5.1"))
    step = judged("PKG003", H100, agreed).fix[0]
    assert step.does == "install torch 2.5.1 built for cu124"


def test_a_version_that_is_none_is_unknown():
    agreed = contract(need("package.weird", ">=1"))
    found = judged("PKG003", H100 | {"package.weird": "unknown"}, agreed)
    assert isinstance(found, UnknownFactError) and "not a version" in found.fact.gap


def test_a_package_that_is_there_twice_is_unknown():
    found = judged("PKG003", H100, contract(need("package.peft", ">=1")), package_peft="listed twice: 0.7, 0.9")
    assert isinstance(found, UnknownFactError)


# -- PKG004 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version, want", [("3.10.0", ">=3.9"), ("3.12.3", ">=3.9,<3.14"), ("3.13.0rc1", ">=3.12")])
def test_pythons_are_versions(version, want):
    agreed = contract(need("python.version", want))
    assert judged("PKG004", H100 | {"python.version": version}, agreed) is None


def test_the_proposed_python_is_inside():
    agreed = contract(need("python.version", ">=3.13"))
    step = judged("PKG004", H100 | {"python.version": "3.9.2"}, agreed).fix[0]
    assert step.run[:4] == ("uv", "venv", "--python", "3.13") and step.safety == "ask"
    nothing = judged("PKG004", H100, contract(need("python.version", ">=4")))
    assert not nothing.fix[0].run


def test_levels_of_python():
    softer = contract(need("python.version", ">=3.13", level="recommended"))
    assert judged("PKG004", H100, softer).severity == "warning"
    assert judged("PKG004", H100) is None


# -- PKG005 -------------------------------------------------------------------------------------------

MAPPED = H100 | {"job.device_map": "auto"}


def test_a_device_map_needs_accelerate():
    found = judged("PKG005", MAPPED)
    assert found.says == "a device map needs accelerate, which is not installed"
    assert judged("PKG005", H100 | {"job.wants": ("device_map",)}).severity == "error"
    assert judged("PKG005", H100) is None


@pytest.mark.parametrize("level", ["required", "recommended", "optional"])
def test_the_contracts_floor_counts_whatever_its_level(level):
    agreed = contract(need("package.accelerate", ">=1.1.0", level=level))
    found = judged("PKG005", MAPPED | {"package.accelerate": "0.34.2"}, agreed)
    assert found.severity == "error" and "too old (0.34.2)" in found.says
    assert found.fix[0].run[-1] == "accelerate>=1.1.0"
    assert judged("PKG005", MAPPED | {"package.accelerate": "1.15.0"}, agreed) is None


def test_accelerate_is_then_told_by_this_rule_alone():
    agreed = contract(need("package.accelerate", ">=1.1.0"))
    for absent_or_old in ({}, {"package.accelerate": "0.34.2"}):
        assert judged("PKG002", MAPPED | absent_or_old, agreed) is None
        assert judged("PKG003", MAPPED | absent_or_old, agreed) is None
    assert isinstance(judged("PKG002", H100, agreed), Finding)


# -- PKG006 -------------------------------------------------------------------------------------------


def test_only_packages_of_the_contract_count():
    agreed = contract(need("package.flash-attn", "*"))
    broken = H100 | {"python.half_installed": ("flash_attn-2.8.3.dist-info", "numpy-2.0.dist-info")}
    assert judged("PKG006", broken, agreed).says == "partly installed: flash-attn"
    assert judged("PKG006", broken) is None


def test_what_is_there_twice_is_a_warning_and_what_pip_left_is_none():
    twice = H100 | {"python.duplicates": ({"name": "torch", "versions": ("2.4", "2.5")},)}
    assert judged("PKG006", twice).severity == "warning"
    assert judged("PKG006", H100 | {"python.half_installed": ("~orch", "~orch-2.4.0.dist-info")}) is None


def test_a_torch_without_its_files():
    found = judged("PKG006", H100 | {"torch.broken": "torch-2.8.0.dist-info is there, but torch/version.py is not"})
    assert found.severity == "error" and found.says == "partly installed: torch"
    assert found.fix[0].run[-5:] == ("--torch-backend", "cu128", "--reinstall", "--no-deps", "torch==2.8.0+cu128")


# -- PKG007 -------------------------------------------------------------------------------------------


def test_torchs_cuda_by_the_contract():
    agreed = contract(need("torch.cuda", ">=13.0", when="gpu.capability>=10.0"))
    assert judged("PKG007", H100, agreed) is None
    blackwell = H100 | {"gpu.capability": ("10.0",), "gpu.name": ("NVIDIA B200",)}
    found = judged("PKG007", blackwell, agreed)
    assert found.severity == "error" and "built for cu13" in found.fix[0].does


def test_no_build_that_the_driver_runs():
    agreed = contract(need("torch.cuda", ">=13.0"))
    found = judged("PKG007", H100 | {"driver.version": "550.144.03"}, agreed)
    assert found.fix[0].does == "install a torch built with CUDA >=13.0"


def test_a_torch_without_cuda_is_told_elsewhere():
    assert judged("PKG007", CPU, contract(need("torch.cuda", ">=12.4"))) is None


def test_a_copy_that_pythonpath_brings_is_not_installed_over():
    """An install into the environment changes nothing of what Python finds first."""
    wanted = contract(need("package.safetensors", ">=0.8"), need("package.numpy", ">=2"))
    values = {"env.PYTHONPATH": "/old:/older/", "python.path": "/venv/bin/python"}
    for folder, is_by_path in (("/old", True), ("/older", True), ("/venv/lib/python3.12/site-packages", False)):
        rows = [Fact(key, value, "the environment", "read") for key, value in values.items()]
        rows.append(Fact("package.safetensors", "0.3.2", f"{folder}/safetensors-0.3.2.dist-info", "read"))
        rows.append(
            Fact("package.numpy", "1.26.4", "/venv/lib/python3.12/site-packages/numpy-1.26.4.dist-info", "read")
        )
        steps = load_rule("PKG003").judge(Facts(rows, ""), wanted).fix
        assert [step.does.startswith("start without") for step in steps] == ([True, False] if is_by_path else [False])
        assert "numpy>=2" in steps[-1].run and ("safetensors>=0.8" in steps[-1].run) is not is_by_path
