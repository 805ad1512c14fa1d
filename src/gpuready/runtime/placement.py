"""Where a model and its process go: the decisions of Axolotl and Transformers, as functions of plain values.

``available`` has torch's device types (``cuda``, ``mps``, ``npu`` …), passed by the caller: torch is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from gpuready.runtime.platform import PLATFORM_NAMES, get_platform

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
