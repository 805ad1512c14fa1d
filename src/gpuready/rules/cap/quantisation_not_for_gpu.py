"""The quantization that the job asks for does not support these GPUs.

## What it checks
Whether each GPU supports the bitsandbytes quantization of the job: 4 bits (NF4, FP4, QLoRA) need compute
capability 6.0, 8 bits (LLM.int8()) 7.5. 4 bits below 6.0 is an error, 8 bits below 7.5 a warning. GPTQ, AWQ
and HQQ have their own requirements, which the framework states if known.

## Why it matters
Below 6.0 bitsandbytes has no code. Below 7.5 8-bit layers use slow 16- or 32-bit products, and fail for some
shapes.

## How to fix
On Volta and Pascal use 4 bits instead of 8: it is supported and needs less memory.

## References
- bitsandbytes, docs/source/installation.mdx
"""

from gpuready.model import Contract, Facts, Finding
from gpuready.rules import capability_floors, visible_gpus

CODE = "CAP006"
SEVERITY = "error"
READS = capability_floors.READS
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "job.wants": ("bnb-4bit",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA GeForce GTX 980",),
    "gpu.capability": ("5.2",),
}
HEALTHY = BROKEN | {"gpu.name": ("Tesla V100-SXM2-16GB",), "gpu.capability": ("7.0",)}
BITS = {"bnb_4bit": "4", "bnb_int8": "8"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    lacking = capability_floors.gpus_by_lacking_feature(facts, contract, BITS)
    if not lacking:
        return None
    is_error = "bnb_4bit" in lacking
    bits = visible_gpus.join_names([BITS[feature] for feature in lacking])
    return capability_floors.lacking_finding(
        facts,
        lacking,
        f"bitsandbytes does not support {bits} bits on {{}}",
        "the model does not load, or fails in its first layer" if is_error else "8-bit layers run slowly or fail",
        "load the weights in fp16 or fp32, without quantization" if is_error else "use 4 bits instead of 8",
        SEVERITY if is_error else "warning",
    )
