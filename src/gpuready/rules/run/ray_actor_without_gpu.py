"""An actor of Ray has no GPU.

Ray shows an actor the GPUs that it asked for and hides all others by CUDA_VISIBLE_DEVICES. An actor that asked for none, or that was
placed by its parent and not by Ray, has an empty list: torch then sees no GPU although the node has some.

Ask for GPUs where the actor is made (num_gpus, a placement group), or tell Ray to leave the variable alone
(RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES) and choose the device in the program. A node whose GPUs nobody can see is GPU001.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN017"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {
        "says": "No CUDA GPUs are available",
        "with": ("ray::", "/ray/", "RayTaskError", "ray.exceptions", "RayActor", "ray_worker", "RayWorker"),
    },
    {
        "says": "no CUDA-capable device is detected",
        "with": ("ray::", "/ray/", "RayTaskError", "ray.exceptions", "RayActor", "RayWorker"),
    },
    {
        "says": "Failed to infer device type",
        "with": ("ray::", "/ray/", "RayTaskError", "ray.exceptions", "RayActor", "RayWorker"),
    },
    {
        "says": "No supported device detected",
        "in": "exception",
        "with": ("ray::", "/ray/", "RayTaskError", "ray.exceptions", "RayActor", "RayWorker", "vllm_engine.py"),
    },
    "CUDA_VISIBLE_DEVICES is set to empty string, which means GPU support is disabled",
    "which means GPU support is disabled. If you are using ray",
    "Current node has no GPU available",
    "Ray does not allocate any GPUs on the driver node",
    "CUDA_VISIBLE_DEVICES set incorrectly",
    {"says": "list index out of range", "in": "exception", "with": ("get_gpu_ids", "get_accelerator_ids")},
    {
        "says": "invalid literal for int() with base 10: ''",
        "in": "exception",
        "with": ("CUDA_VISIBLE_DEVICES", "device_id_to_physical_device_id"),
    },
    {"says": "KeyError: 'CUDA_VISIBLE_DEVICES'", "in": "exception", "with": ("ray",)},
    {
        "says": "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",
        "with": ("ray::", "/ray/", "RayTaskError", "ray.exceptions"),
    },
    {"says": "expected to have GPU assigned by Ray", "as": "root"},
    {
        "says": "No CUDA GPUs are available",
        "with": (
            "ray.get(",
            "Actor(",
            "RayGPUExecutor",
            "ray_gpu_executor",
            "ray_distributed_executor",
            "ray_utils",
            "_init_workers_ray",
        ),
    },
    {"says": "no CUDA-capable device is detected", "with": ("ray.get(", "Actor(", "_init_workers_ray")},
    {"says": "Found no NVIDIA driver on your system", "with": ("ray::", "/ray/", "RayTaskError", "ray.exceptions")},
    {"says": "CUDA_VISIBLE_DEVICES{}RAY_EXPERIMENTAL_NOSET"},
    {"says": "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "as": "clue"},
    {"says": "invalid device ordinal", "with": ("ray::", "RayTaskError", "/ray/_private")},
    {"says": "HIP_VISIBLE_DEVICES", "in": "exception", "with": ("ray",)},
    {"says": "ROCR_VISIBLE_DEVICES", "in": "exception", "with": ("ray",)},
    {"says": "Please use HIP_VISIBLE_DEVICES instead"},
    {"says": "Inconsistent values{}CUDA_VISIBLE_DEVICES", "in": "exception"},
    {
        "says": "No Cuda GPUs are available",
        "with": ("ray::", "/ray/", "RayTaskError", "ray.exceptions", "RayWorker", "_init_workers_ray"),
    },
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
