"""The container is started without a GPU.

## What it checks
Whether the compose file or the command line gives the container a GPU: ``docker run --gpus all``, ``gpus:
all``, or a reservation under ``deploy.resources.reservations.devices`` with ``capabilities: [gpu]``.
``runtime: nvidia`` with NVIDIA_VISIBLE_DEVICES is the older form. It is an error if the file is complete. It
is a warning if the image is unknown or sets NVIDIA_VISIBLE_DEVICES, because a host whose default runtime is
NVIDIA's then gives the container its GPUs.

## Why it matters
Docker gives a container no GPU unless asked. The container starts normally, but ``torch.cuda.is_available()``
is False in it.

## How to fix
Add ``gpus: all`` to the service, or start it with ``docker run --gpus all``.

## References
- Docker documentation: compose, GPU support
- NVIDIA container toolkit, NVIDIA_VISIBLE_DEVICES
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_request, visible_gpus

CODE = "GPU023"
SEVERITY = "error"
READS = ("container.gpus", "container.shows", "container.image", "job.wants")
REQUIRED_FACTS = ("container.gpus",)
BROKEN = {"container.gpus": "none", "container.shows": False}
HEALTHY = {"container.gpus": "all", "container.shows": False}
CITE = "Docker documentation: compose, GPU support; NVIDIA container toolkit, NVIDIA_VISIBLE_DEVICES"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "container.gpus" not in facts or "cuda" not in contract.platforms:
        return None
    if (
        visible_gpus.accelerator_platforms(contract) == []
        or job_request.job_asks_for(facts, "cpu")
        or facts.value("container.gpus") != "none"
    ):
        return None
    certain = facts.value_if_known("container.shows") is False
    keys = ("container.gpus", "container.shows", "container.image")
    return make_finding(
        "the container is started without a GPU",
        found=tuple(facts.fact(key) for key in keys if key in facts),
        needs=(Requirement("container.gpus", "all", cite=CITE),),
        so="torch.cuda.is_available() is False in it"
        + ("" if certain else ", unless NVIDIA's runtime is the host's default"),
        fix=(
            FixStep("add gpus: all to the service, or reserve devices with capabilities: [gpu]"),
            FixStep("start the container with docker run --gpus all", note="outside the container"),
        ),
        severity=SEVERITY if certain else "warning",
    )
