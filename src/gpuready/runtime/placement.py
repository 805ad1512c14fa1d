"""Where a model and its process go: the decisions of Axolotl and Transformers, as functions of plain values.

``available`` are the device types that torch has (``cuda``, ``mps``, ``npu`` …); a script asks torch and
says so. Nothing here imports it.
"""

from __future__ import annotations

from gpuready.runtime.platform import NAMES, platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Set
    from typing import Any

RANKED = ("cuda", "mps", "npu")
"""Axolotl's order; of MPS there is one device, so that it has no number."""

OF_QUANTIZER = ("cuda", "npu", "hpu", "xpu")
"""The order in which Transformers' bitsandbytes quantiser looks for a device."""

NUMBERED = ("cuda", "xpu")
"""Devices that the quantiser names by their number alone."""

OFF_GPU = ("cpu", "disk")


def choose_device(available: Set[str], local_rank: int = 0) -> str:
    """The device of a process in Axolotl: ``cuda:LOCAL_RANK``, ``mps``, ``npu:LOCAL_RANK``, else ``cpu``."""
    found = next((name for name in RANKED if name in available), None)
    if found is None:
        return "cpu"
    return found if found == "mps" else f"{found}:{local_rank}"


def device_map(given: Any, available: Set[str], current: int = 0) -> Any:
    """The device map as Transformers' bitsandbytes quantiser completes it; one that is given stays.

    ``current`` is the number of the current device of the type that is taken.
    """
    if given is not None:
        return given
    found = next((name for name in OF_QUANTIZER if name in available), None)
    if found is None:
        return {"": "cpu"}
    return {"": current if found in NUMBERED else f"{found}:{current}"}


def axolotl_device_map(device: str, given: Any = None) -> Any:
    """Axolotl's device map: the whole model on ``mps:0`` or ``npu:0`` there, else what is given."""
    found = next((name for name in ("mps", "npu") if name in device), None)
    return f"{found}:0" if found else given


def place_model_on_device(
    *,
    model_parallel: bool = False,
    deepspeed_fp16: bool = False,
    full_eval_half: bool = False,
    fsdp: bool = False,
    training: bool = False,
    asked: bool = True,
) -> bool:
    """Whether the Trainer moves the model to the GPU at once; four cases put it off.

    The model is larger than one GPU (``model_parallel``); DeepSpeed loads it in half the size; evaluation
    wholly in fp16 or bf16 casts it first, unless there is training before; FSDP shards it.
    """
    cast_first = full_eval_half and not training
    return asked and not (model_parallel or deepspeed_fp16 or cast_first or fsdp)


def is_model_parallel(hf_device_map: Mapping[str, Any] | None) -> bool:
    """Whether a model lies on more than one GPU; what is on the CPU or on disk does not count."""
    devices = {str(place) for place in (hf_device_map or {}).values()}
    return len(devices - set(OFF_GPU)) > 1


def backend_for(device: str) -> str:
    """The backend of a process group over devices of a type: nccl for ``cuda:1``, gloo for ``cpu``."""
    kind = device.partition(":")[0]
    found = next((p for p in map(platform, NAMES) if p.device == kind), None)
    if found is None:
        raise ValueError(f"{device!r} is no device that torch has: write for example cuda:0, npu:1 or cpu")
    return found.backend
