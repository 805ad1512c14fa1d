"""On which device, in which precision and with which attention a framework will run a job, and why.

The rules are those of the frameworks' environment pages (``placement``, ``precision`` and ``platform``), applied to
the facts of a machine and to the job's configuration file.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from gpuready.model import Contract, Fact, Facts, UnknownFactError
from gpuready.model.facts import describe_gap
from gpuready.runtime import precision
from gpuready.runtime.device import DEVICE_ORDER
from gpuready.runtime.platform import PLATFORM_NAMES, choose_platform, get_platform

FRAMEWORKS = ("axolotl", "transformers", "colossalai", "roll")
"""Frameworks whose rules are known."""

PRECISIONS = ("fp8", "bf16", "fp16", "fp32")
"""In the order in which one that the job asks for wins."""


def predict_job_placement(facts: Facts, contract: Contract, options: Mapping[str, Any]) -> list[Fact]:
    """Return job.device, job.precision and job.attention; nothing for a framework without known rules.

    ``options`` are the settings of the job's file: ``device_map``, ``auto_precision`` and ``half_eval``.
    """
    if contract.framework not in FRAMEWORKS:
        return []
    try:
        available = available_devices(facts)
    except UnknownFactError as unknown:
        gap = f"{unknown.fact.key}: {describe_gap(unknown.fact.gap)}"
        return [Fact(key, None, contract.name, "stated", gap=gap) for key in ("job.device", "job.precision")]
    capability = _lowest_capability(facts) if available - {"cpu"} else None
    device, device_reasons = _choose_job_device(facts, contract.framework, available, options)
    dtype, why = _choose_precision(facts, contract, capability, bool(options.get("auto_precision")))
    return [
        Fact("job.device", device, "; ".join(device_reasons), "stated"),
        Fact("job.precision", dtype, why, "stated") if dtype else Fact("job.precision", None, "", "stated", gap=why),
        _predict_attention(facts, contract, capability, dtype or "fp32"),
    ]


def _predict_attention(facts: Facts, contract: Contract, capability: str | None, dtype: str) -> Fact:
    """Return the attention that is used; unknown where a faster one may be installed or not."""
    packages = {name: facts.fact(f"package.{name}") for name in ("flash-attn", "xformers")}
    installed = {name: str(fact.value) for name, fact in packages.items() if fact.value and not fact.gap}
    attention, why = precision.best_attention(capability, installed, dtype, contract)
    for name, fact in packages.items():
        if name == attention:
            break
        if fact.gap:
            return Fact("job.attention", None, contract.name, "stated", gap=f"{fact.key}: {describe_gap(fact.gap)}")
    return Fact("job.attention", attention, why, "stated")


def available_devices(facts: Facts) -> set[str]:
    """Return torch's device types on a machine; UnknownFactError where its platform is not known."""
    name = facts.value("platform.name")
    if facts.value_if_known("torch.build") == "cpu" or name not in PLATFORM_NAMES:
        return {"cpu"}
    visible = facts.value_if_known("gpu.visible")
    hidden = name == "cuda" and (facts.value_if_known("gpu.count") == 0 or (visible is not None and not visible))
    return {"cpu"} if hidden else {get_platform(name).device, "cpu"}


def _choose_job_device(
    facts: Facts, framework: str, available: set[str], options: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Return the device, or the range of devices of several ranks, and the reasons."""
    wants = facts.value_if_known("job.wants") or ()
    if framework == "roll":
        name = next(iter(facts.value_if_known("gpu.name") or ()), None)
        chosen = choose_platform(available, name)
        device = "cpu" if chosen.device == "cpu" else f"{chosen.device}:0"
        reasons = [f"ROLL goes by the device's name ({name or 'no GPU'}): {chosen.name}"]
    else:
        order = AXOLOTL_DEVICES if framework == "axolotl" else DEVICE_ORDER
        device = choose_device(available, 0, order)
        reasons = [f"{framework} takes {', '.join(order)} in this order, else cpu; numbered by LOCAL_RANK"]
    if facts.value_if_known("torch.build") == "cpu":
        reasons.append("torch is built without GPUs")
    ranks = _count_ranks(facts) if device != "cpu" else 1
    if ranks > 1:
        reasons.append(f"the process group is {backend_for(device)}")
    if framework in ("axolotl", "transformers"):
        reasons += _describe_model_placement(framework, device, available, wants, options)
    return (f"{device} to {device.partition(':')[0]}:{ranks - 1}" if ranks > 1 else device), reasons


def _describe_model_placement(
    framework: str, device: str, available: set[str], wants: tuple[str, ...], options: Mapping[str, Any]
) -> list[str]:
    requested = options.get("device_map")
    mapped = requested
    if framework == "axolotl":
        mapped = axolotl_device_map(device, requested)
    elif {"bnb-4bit", "bnb-8bit"} & set(wants):
        mapped = device_map(requested, available)
    at_once = place_model_on_device(
        model_parallel=is_model_parallel(requested if isinstance(requested, dict) else None),
        deepspeed_fp16="deepspeed" in wants,
        full_eval_half=bool(options.get("half_eval")),
        fsdp=bool({"fsdp", "fsdp2"} & set(wants)),
        training="inference" not in wants,
    )
    moved = "the Trainer moves the model there at once" if at_once else "the Trainer does not move the model itself"
    return [*([f"device_map is {mapped}"] if mapped is not None else []), moved]


def _count_ranks(facts: Facts) -> int:
    visible, count = facts.value_if_known("gpu.visible"), facts.value_if_known("gpu.count")
    there = len(visible) if visible is not None else count or 1
    return min(there, facts.value_if_known("job.gpus") or there)


def _choose_precision(facts: Facts, contract: Contract, capability: str | None, auto: bool) -> tuple[str, str]:
    """Return the precision and the reason; empty where the job's file states none."""
    wants = facts.value_if_known("job.wants") or ()
    architecture = precision.sm_string(capability) or "a machine without a GPU"
    best = precision.mixed_precision(capability)
    asked = next((name for name in PRECISIONS if name in wants), None)
    if asked is None and auto:
        return ("fp32" if best == "no" else best), f"the job says auto, and {architecture} has {best} natively"
    if asked is None:
        return "", f"the job states no precision; {architecture} has {best} natively"
    why = f"the job asks for {asked}"
    if asked != "fp32" and not precision.supports_feature(asked, capability, contract):
        why += f", which {architecture} does not have natively; {'fp32' if best == 'no' else best} would be"
    if asked == "fp8" and contract.framework == "roll":
        why += f"; scaled {' or '.join(precision.fp8_recipe('moe' in wants))}"
    return asked, why


def _lowest_capability(facts: Facts) -> str | None:
    capabilities = [str(one) for one in facts.value_if_known("gpu.capability") or () if one]
    return min(capabilities, key=lambda text: tuple(map(int, text.split("."))), default=None)


AXOLOTL_DEVICES = ("cuda", "mps", "npu")
"""Axolotl's order; MPS has one device and so no number."""

QUANTIZER_DEVICES = ("cuda", "npu", "hpu", "xpu")
"""The order in which Transformers' bitsandbytes quantiser looks for a device."""

NUMBERED_DEVICES = ("cuda", "xpu")
"""Devices that the quantiser names by their number alone."""

OFF_GPU = ("cpu", "disk")


def choose_device(available: Set[str], local_rank: int = 0, order: Sequence[str] = AXOLOTL_DEVICES) -> str:
    """Return the device of a process: ``cuda:LOCAL_RANK``, ``mps``, ``npu:LOCAL_RANK``, else ``cpu``."""
    device_type = next((name for name in order if name in available), None)
    if device_type is None:
        return "cpu"
    return device_type if device_type == "mps" else f"{device_type}:{local_rank}"


def device_map(requested: Any, available: Set[str], current: int = 0) -> Any:
    """Return the device map as Transformers' bitsandbytes quantiser completes it; a requested one stays.

    ``current`` is the number of the current device of that type.
    """
    if requested is not None:
        return requested
    device_type = next((name for name in QUANTIZER_DEVICES if name in available), None)
    if device_type is None:
        return {"": "cpu"}
    return {"": current if device_type in NUMBERED_DEVICES else f"{device_type}:{current}"}


def axolotl_device_map(device: str, requested: Any = None) -> Any:
    """Return Axolotl's device map: the whole model on ``mps:0`` or ``npu:0``, else the requested one."""
    device_type = next((name for name in ("mps", "npu") if name in device), None)
    return f"{device_type}:0" if device_type else requested


def place_model_on_device(
    *,
    model_parallel: bool = False,
    deepspeed_fp16: bool = False,
    full_eval_half: bool = False,
    fsdp: bool = False,
    training: bool = False,
    asked: bool = True,
) -> bool:
    """Whether the Trainer moves the model to the GPU at once; four cases postpone it.

    The model is larger than one GPU (``model_parallel``); DeepSpeed loads it in half the size; evaluation
    wholly in fp16 or bf16 casts it first, unless there is training before; FSDP shards it.
    """
    cast_first = full_eval_half and not training
    return asked and not (model_parallel or deepspeed_fp16 or cast_first or fsdp)


def is_model_parallel(hf_device_map: Mapping[str, Any] | None) -> bool:
    """Whether a model is on more than one GPU; CPU and disk do not count."""
    devices = {str(place) for place in (hf_device_map or {}).values()}
    return len(devices - set(OFF_GPU)) > 1


def backend_for(device: str) -> str:
    """Return the process-group backend for a device: nccl for ``cuda:1``, gloo for ``cpu``."""
    kind = device.partition(":")[0]
    found = next((p for p in map(get_platform, PLATFORM_NAMES) if p.device == kind), None)
    if found is None:
        raise ValueError(f"{device!r} is not a device that torch supports: write for example cuda:0, npu:1 or cpu")
    return found.backend
