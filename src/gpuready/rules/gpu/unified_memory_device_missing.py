"""The container lacks the device file /dev/nvidia-uvm, which CUDA needs.

## What it checks
Whether a container that has the GPU's device files also has /dev/nvidia-uvm. It is a warning, because a
privileged container may create the file itself. A container without any device file is DRV004. WSL, Jetson
and sandboxes with their own kernel use other device files and are not checked.

## Why it matters
nvidia-smi works, but CUDA fails with error 999: ``CUDA unknown error - this may be due to an incorrectly set
up environment``. It happens when devices are passed by hand (``--device /dev/nvidia0``, LXC), or when the
container was created before the host had loaded nvidia_uvm.

## How to fix
On the host run ``nvidia-modprobe -u -c 0``, then recreate the container with all its devices (``docker run
--gpus all``).

## References
- nvidia-modprobe(1): device files
"""

from gpuready.catalog import cuda
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health

CODE = "GPU017"
SEVERITY = "warning"
READS = ("gpu.count", "gpu.nodes", "os.container", "os.sandbox", "gpu.capability", "job.wants")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {"gpu.count": 1, "gpu.nodes": ({"path": "/dev/nvidia0"}, {"path": "/dev/nvidiactl"}), "os.container": "docker"}
HEALTHY = BROKEN | {"gpu.nodes": ({"path": "/dev/nvidia-uvm"}, {"path": "/dev/nvidia0"}, {"path": "/dev/nvidiactl"})}
CONTROL, UNIFIED = "/dev/nvidiactl", "/dev/nvidia-uvm"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "gpu.nodes", "os.container") or not facts.value("gpu.count"):
        return None
    if facts.value("os.container") in (None, "none"):
        return None
    paths = {row.get("path") for row in facts.value("gpu.nodes") or ()}
    if CONTROL not in paths or UNIFIED in paths or _works_without_uvm(facts):
        return None
    return make_finding(
        f"the container has the GPU but not {UNIFIED}",
        found=(facts.fact("gpu.nodes"), facts.fact("os.container")),
        needs=(Requirement("gpu.nodes", UNIFIED, level="recommended", cite="NVIDIA driver README, device files"),),
        so="nvidia-smi works, but CUDA fails with error 999 unless it can create that file",
        fix=(
            FixStep("on the host run nvidia-modprobe -u -c 0, then recreate the container", note="needs root"),
            FixStep("start the container with all its devices: docker run --gpus all"),
        ),
    )


def _works_without_uvm(facts: Facts) -> bool:
    """Return whether CUDA may work without that file: in a sandbox, or on integrated GPUs."""
    rule = cuda.find_cuda_rule("cubin_compat")
    integrated = {*rule["integrated"], *rule["same_chip"]}
    return bool(facts.value_if_known("os.sandbox")) or not integrated.isdisjoint(
        facts.value_if_known("gpu.capability") or ()
    )
