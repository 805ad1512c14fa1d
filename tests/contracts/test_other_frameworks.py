"""vllm, sglang, trl, verl, deepspeed, unsloth and llama-factory: their figures, and what they refuse."""

from __future__ import annotations

import pytest

from gpuready import contracts, rules, workflow
from gpuready.catalog import releases
from gpuready.check.evaluate import judge
from gpuready.contracts import when
from gpuready.model import Fact, Facts
from tests.every import every
from tests.rules.worlds import H100, facts

NAMES = {
    "vllm": "0.32",
    "sglang": "0.5.23",
    "trl": "1.16",
    "verl": "0.9.1",
    "deepspeed": "0.19",
    "unsloth": "2026.10",
    "llama-factory": "0.9.5",
}
each = pytest.mark.parametrize("name", NAMES)


def contract(name):
    return contracts.load_contract(name)


def asked(name, key, condition="", level="required"):
    return [n.want for n in contract(name).requirements_for(key) if (n.when, n.level) == (condition, level)]


def findings(name, **changed):
    world = H100 | {key.replace("__", "-").replace("_", ".", 1): value for key, value in changed.items()}
    report = judge(rules.load_all_rules(), facts(world), contract(name))
    return {f.code: f for f in report.findings}


@each
def test_the_newest_version_is_the_one_that_was_read(name):
    assert contract(name).version == NAMES[name]


@each
def test_it_is_compact_and_says_where_it_was_read(name):
    one = contract(name)
    rows = sum(len(getattr(one, table)) for table in ("needs", "capabilities", "variables", "errors"))
    assert 30 <= rows <= 80
    assert "read on 2026-11-15" in one.origin
    assert ("source distribution" if name == "deepspeed" else "wheel") in one.origin


@each
def test_the_version_stands_in_every_citation_of_the_metadata(name):
    """A pin is cited from the release that was read, not from another."""
    one = contract(name)
    line = one.version if one.version.count(".") > 1 else f"{one.version}."
    for need in one.requirements_for("package.*"):
        if "METADATA" in need.cite and not need.cite.startswith("unsloth-zoo"):
            assert need.cite.startswith(f"{one.distribution} {line}"), need


@each
def test_the_pins_agree_with_the_catalogue(name):
    """Two tables of one fact: what the catalogue's row says of torch and of Python, the contract says too."""
    one = contract(name)
    _, row = releases.find_release(one.distribution, one.version)
    python = asked(name, "python.version")[0]
    if row.get("requires_python"):
        assert set(python.split(",")) == set(row["requires_python"].split(","))
    pins = {need.want for need in one.requirements_for("package.torch")}
    if row.get("torch"):
        assert any(set(row["torch"].split(",")) == set(pin.split(",")) for pin in pins)


@every(
    ("name", "key", "condition", "level", "wanted"),
    [
        ("vllm", "package.torch", "", "required", "==2.13.0"),
        ("vllm", "package.transformers", "", "required", ">=5.16.1,<5.20.0"),
        ("vllm", "package.flashinfer-python", "", "required", "==0.7.0.post1"),
        ("vllm", "os.system", "", "required", "linux"),
        ("vllm", "gpu.capability", "", "required", ">=7.5"),
        ("vllm", "gpu.capability", "wants=bf16", "required", ">=8.0"),
        ("sglang", "package.torch", "", "required", "==2.14.1"),
        ("sglang", "package.transformers", "", "required", "==5.19.0"),
        ("sglang", "gpu.capability", "", "required", ">=8.0"),
        ("sglang", "package.sglang-kernel", "", "required", "==0.4.10"),
        ("trl", "package.transformers", "", "required", ">=4.56.2"),
        ("trl", "package.accelerate", "", "required", ">=1.10.1"),
        ("trl", "package.vllm", "wants=vllm", "recommended", ">=0.22.0,<=0.31.0"),
        ("trl", "package.liger-kernel", "wants=liger", "required", ">=0.8.2"),
        ("verl", "package.ray", "", "required", ">=2.41.0"),
        ("verl", "package.vllm", "wants=vllm", "required", "==0.24.0"),
        ("verl", "package.sglang", "wants=sglang", "required", "==0.5.12"),
        ("verl", "package.torch", "wants=vllm|sglang|fsdp|megatron", "required", "==2.11.0"),
        ("deepspeed", "package.torch", "", "required", ">=2.0.0"),
        ("deepspeed", "gpu.capability", "wants=fp16,platform=cuda", "required", ">=7.0"),
        ("unsloth", "package.torch", "", "required", ">=2.4.0,<2.15.0"),
        ("unsloth", "package.bitsandbytes", "", "required", ">=0.45.5,!=0.46.0,!=0.48.0"),
        ("unsloth", "gpu.capability", "platform=cuda", "recommended", ">=7.0"),
        ("llama-factory", "package.transformers", "", "required", ">=4.55.0,!=4.57.0,<=5.6.0"),
        ("llama-factory", "package.trl", "", "required", ">=0.18.0,<=0.24.0"),
        ("llama-factory", "package.vllm", "wants=vllm", "required", ">=0.4.3,<=0.11.0"),
    ],
)
def test_figures_held_by_hand(name, key, condition, level, wanted):
    assert wanted in asked(name, key, condition, level)


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("vllm", {"VLLM_HOST_IP", "VLLM_PORT", "VLLM_WORKER_MULTIPROC_METHOD", "CUDA_VISIBLE_DEVICES"}),
        ("sglang", {"SGLANG_CACHE_DIR", "SGLANG_HOST_IP", "CUDA_HOME"}),
        ("deepspeed", {"DS_BUILD_OPS", "DS_SKIP_CUDA_CHECK", "DS_ACCELERATOR", "CUDA_HOME", "LOCAL_RANK"}),
        ("unsloth", {"UNSLOTH_COMPILE_DISABLE", "PYTORCH_ALLOC_CONF"}),
        ("llama-factory", {"FORCE_TORCHRUN", "DISABLE_VERSION_CHECK", "NPROC_PER_NODE"}),
        ("verl", {"VERL_PLATFORM", "CUDA_DEVICE_MAX_CONNECTIONS"}),
        ("trl", {"VLLM_SERVER_DEV_MODE", "MASTER_PORT"}),
    ],
)
def test_the_variables_that_matter_most_are_there(name, variables):
    assert variables <= {v.name for v in contract(name).variables}


@pytest.mark.parametrize(
    ("name", "capability", "code"),
    [("vllm", "7.0", "GPU005"), ("sglang", "7.0", "GPU005"), ("unsloth", "6.1", "GPU005")],
)
def test_a_gpu_below_the_floor_is_told(name, capability, code):
    found = findings(name, gpu_capability=(capability,), gpu_name=("an old one",))
    assert code in found
    assert found[code].severity == ("warning" if name == "unsloth" else "error")


def test_a_turing_gpu_is_enough_for_vllm_and_has_no_kernels_in_sglang():
    turing = {"gpu_capability": ("7.5",), "gpu_name": ("Tesla T4",)}
    assert "GPU005" not in findings("vllm", **turing)
    assert findings("sglang", **turing)["GPU005"].severity == "error"


def test_vllm_and_sglang_cannot_share_an_environment():
    for report in workflow.check_machine(["vllm", "sglang"], on="h100x8"):
        found = {f.code: f for f in report.findings}
        assert found["PKG008"].severity == "error" and "torch" in found["PKG008"].says


def test_sglang_needs_a_compiler_outside_of_a_container():
    bare = {"toolkit_nvcc": None, "toolkit_version": None}
    assert findings("sglang", **bare)["BLD003"].severity == "error"
    assert findings("sglang", **bare, os_container="docker")["BLD003"].severity == "warning"
    assert "BLD003" not in findings("sglang")


def test_deepspeed_needs_a_compiler_only_for_what_it_compiles():
    bare = {"toolkit_nvcc": None, "toolkit_version": None}
    assert findings("deepspeed", **bare)["BLD003"].severity == "info"
    for want in ("build", "fused-adam", "inference"):
        assert findings("deepspeed", **bare, job_wants=(want,))["BLD003"].severity == "error"


def test_an_engine_is_asked_for_only_with_its_extra():
    one = contract("verl")

    def engines(*wants):
        known = Facts([Fact("job.wants", wants), Fact("gpu.vendor", ("nvidia",))])
        keys = ("package.vllm", "package.sglang", "package.torch")
        return {
            n.key
            for key in keys
            for n in one.requirements_for(key)
            if n.level == "required" and when.condition_applies(n.when, known)
        }

    assert engines() == set()
    assert engines("vllm") == {"package.vllm", "package.torch"}
    assert engines("sglang") == {"package.sglang", "package.torch"}
    assert engines("fsdp") == {"package.torch"}


@each
def test_the_command_line_takes_it_as_it_stands_on_an_h100(name):
    (report,) = workflow.check_machine([name], on="h100x8")
    expected = ("driver",) if report.contract.pinned_torch else ("driver", "torch")
    assert report.lacking == expected and not any(one.severity == "error" for one in report.findings)
    assert report.contract.framework == name
