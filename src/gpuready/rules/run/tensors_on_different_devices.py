"""The tensors of one operation are on different devices.

An operation needs its tensors on one device, and they are not: inputs that were left on the processor, a buffer that was created
without a device, a layer that a device map placed on another GPU, weights that were never loaded and lie on the meta device, or
a collective of NCCL over a tensor of the processor.

Move the inputs to the device of the module that takes them, and create new tensors with device=. With a device map, let its hooks do
it, and do not move parts by hand.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN009"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Expected all tensors to be on the same device",
    "Expected all tensors to be on the same device, but found at least two devices, {one} and {other}!",
    "Input, output and indices must be on the current device",
    {"says": "Expected object of device type {one} but got device type {other}"},
    {"says": "is on CPU, but expected", "in": "exception"},
    {"says": "is on CPU, but expected them to be on GPU"},
    "Expected a 'cuda' device type for generator but found 'cpu'",
    "Expected a 'cpu' device type for generator but found 'cuda'",
    "module must have its parameters and buffers on device",
    {"says": "should be on the same device", "in": "exception"},
    {"says": "to be on the same device", "in": "exception"},
    {"says": "is not on the expected device", "in": "exception"},
    {"says": "cannot be accessed from Triton (cpu tensor?)"},
    {"says": "Cannot copy out of meta tensor; no data!", "in": "exception"},
    {"says": "Tensor.item() cannot be called on meta tensors", "in": "exception"},
    {"says": "Input type (torch.FloatTensor) and weight type (torch.cuda."},
    {"says": "Input type (torch.HalfTensor) and weight type (torch.cuda."},
    {"says": "Input type (torch.BFloat16Tensor) and weight type (torch.cuda."},
    {"says": "Input type (CPU{}) and weight type (torch.cuda."},
    {"says": "Input type (torch.cuda.{}) and weight type (torch.FloatTensor)"},
    {"says": "Input type (torch.cuda.{}) and weight type (torch.HalfTensor)"},
    {"says": "Input type (torch.cuda.{}) and weight type (torch.BFloat16Tensor)"},
    {"says": "Input type (CUDA{}) and weight type (CPU"},
    {"says": "indices should be either on cpu or on the same device as the indexed tensor"},
    {"says": "can't convert cuda:{} device type tensor to numpy", "in": "exception"},
    {"says": "meta_kernel", "with": ("NotImplementedError", "Meta"), "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
