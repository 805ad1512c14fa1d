"""The framework does not run on this operating system.

Most frameworks for training are made for Linux: NCCL exists there alone, and kernels are built and tested
there. On Windows that means the Windows Subsystem for Linux (WSL 2), which counts as Linux and sees the GPUs
through the Windows driver: install no driver inside it. On macOS there is no CUDA at all.
"""

from __future__ import annotations

from gpuready.model import Finding, FixStep, Requirement
from gpuready.rules import contract_needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "SYS003"
SEVERITY = "error"
READS = ("os.system", "os.pretty", *contract_needs.READS)
PATTERNS = (
    "Windows is not supported. Please use WSL.",
    {"says": "only supports Linux platform", "in": "exception"},
    {"says": "vLLM only supports Linux platform"},
    "uvloop does not support Windows at the moment",
    {"says": "No module named 'resource'", "in": "exception"},
    {"says": "No module named 'fcntl'", "in": "exception"},
    {"says": "No module named 'termios'", "in": "exception"},
    {"says": "No module named 'pwd'", "in": "exception"},
    {"says": "No module named 'grp'", "in": "exception"},
    {"says": "Distributed package doesn't have NCCL built in", "with": (":\\",)},
    "use_libuv was requested but PyTorch was build without libuv support",
    "use_libuv was requested but PyTorch was built without libuv support",
    {"says": "module 'signal' has no attribute 'SIG", "in": "exception"},
    {"says": "module 'os' has no attribute 'sched_getaffinity'", "in": "exception", "with": (":\\",)},
    {"says": "module 'os' has no attribute 'getuid'", "in": "exception"},
    {"says": "module 'os' has no attribute 'geteuid'", "in": "exception"},
    {"says": "module 'os' has no attribute 'killpg'", "in": "exception"},
    {"says": "module 'os' has no attribute 'setsid'", "in": "exception"},
    {"says": "module 'os' has no attribute 'fork'", "in": "exception"},
    {"says": "Windows not yet supported for torch.compile"},
    {"says": "torch.compile not supported on Windows"},
    {"says": "is not supported on Windows", "in": "exception"},
    {"says": "not supported on Windows", "in": "exception"},
    {"says": "does not support Windows", "in": "exception"},
    {"says": "Windows is not supported", "in": "exception"},
    {"says": "Unsupported platform: win32", "in": "exception"},
    {"says": "Unsupported platform: Windows", "in": "exception"},
    {"says": "Unable to pre-compile async_io", "with": (":\\",)},
    {"says": "No module named 'vllm._C'", "in": "exception", "with": (":\\",)},
    {"says": "Could not find a version that satisfies the requirement triton", "with": (":\\", "win_amd64", "win32")},
    {"says": "No matching distribution found for triton", "as": "clue"},
    {
        "says": "Could not find a version that satisfies the requirement {package} (from versions:",
        "with": (":\\",),
        "as": "clue",
    },
    {"says": "No matching distribution found for nvidia-nccl"},
    {"says": "No module named 'deepspeed'", "in": "exception", "with": (":\\",), "as": "clue"},
    {"says": "No module named 'uvloop'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'triton'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'triton.language'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'triton.runtime'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'pty'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'tty'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'crypt'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'readline'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'nis'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'spwd'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'syslog'", "with": (":\\",), "in": "exception"},
    {"says": "No module named 'posix'", "with": (":\\",), "in": "exception"},
    {"says": "vLLM is not supported on Windows"},
    {"says": "RuntimeError: uvloop does not support Windows"},
    {"says": "triton is not available on Windows"},
    {"says": "cannot import name 'triton", "with": (":\\",)},
    {"says": "deepspeed{}not supported on Windows"},
    {"says": "Failed to import from vllm._C", "with": (":\\",)},
    {"says": "The filename or extension is too long", "with": ("vllm", "deepspeed", "flash")},
    {"says": "[WinError 126]", "with": ("vllm", "deepspeed", "triton", "nccl")},
    {"says": "No module named 'vllm'", "with": (":\\",), "as": "clue"},
    {"says": "Unable to proceed: Windows"},
    {"says": "NCCL is not available on Windows"},
    {"says": "module 'os' has no attribute 'uname'"},
    {"says": "has no attribute 'register_at_fork'"},
    {"says": "module 'socket' has no attribute 'AF_UNIX'"},
    {"says": "add_signal_handler", "in": "exception", "with": (":\\",)},
    {"says": "Microsoft Visual C++ 14.0 or greater is required", "as": "clue", "with": ("deepspeed", "vllm", "flash")},
    {"says": "DeepSpeed{}Windows", "in": "exception"},
    {"says": "Unable to pre-compile {}", "with": (":\\",), "in": "exception"},
    {"says": "'nvidia-nccl-cu", "with": ("win_amd64", ":\\")},
    {"says": "has no wheels with a matching platform tag (e.g., `win_amd64`)"},
    {"says": "matching platform tag (e.g., `win_amd64`)"},
    {"says": "You're on Windows ("},
    {"says": "hint: You're on Windows", "as": "clue"},
)
CONTRACT = {"needs": ({"key": "os.system", "want": "linux", "cite": "setup.py:19"},)}
BROKEN = {"os.system": "windows", "os.pretty": "Windows 11"}
HEALTHY = {"os.system": "linux", "os.pretty": "Ubuntu 22.04.4 LTS"}


CUDA_SYSTEM_NEED = Requirement(
    "os.system", "linux|windows", cite="PyTorch's wheels with CUDA are for Linux and Windows; macOS has none"
)
"""Applies to every contract if the GPUs are NVIDIA's."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    stated = (*contract.requirements_for("os.system"), *((CUDA_SYSTEM_NEED,) if _has_cuda_gpu(facts, contract) else ()))
    if not stated:
        return None
    failed = contract_needs.unmet_needs(facts, stated)
    if not failed:
        return None
    system = facts.value("os.system")
    return Finding(
        CODE,
        contract_needs.worst_need_severity(failed),
        f"{contract.framework} does not run on {system or 'this system'}",
        found=(facts.fact("os.system"), facts.fact("os.pretty")),
        needs=tuple(failed),
        so=f"{contract.framework} refuses to be installed, or its GPU parts are missing",
        fix=(_supported_os_step(system),),
    )


def _has_cuda_gpu(facts: Facts, contract: Contract) -> bool:
    return "cuda" in contract.platforms and bool(contract_needs.peek_fact(facts, "gpu.count"))


def _supported_os_step(system: object) -> FixStep:
    if system == "windows":
        return FixStep("use WSL 2 with a Linux distribution", ("wsl", "--install"), note="needs administrator rights")
    return FixStep("use a machine or a container with Linux")
