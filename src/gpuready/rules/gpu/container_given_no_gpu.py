"""The container is started without a GPU.

Docker gives a container no GPU unless it is asked to: ``docker run --gpus all``, and in a compose file
``gpus: all`` or a reservation under ``deploy.resources.reservations.devices`` with ``capabilities: [gpu]``, without
which compose refuses it. ``runtime: nvidia`` with NVIDIA_VISIBLE_DEVICES is the older way. A container without
one starts as if nothing were missing; ``torch.cuda.is_available()`` is False in it.

It is an error where the file states the whole of it. Where the image sets NVIDIA_VISIBLE_DEVICES, as NVIDIA's and
PyTorch's do, or nobody knows the image, it is a warning: a host whose default runtime is NVIDIA's gives such a
container its GPUs all the same.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "GPU023"
SEVERITY = "error"
READS = ("container.gpus", "container.shows", "container.image", "job.wants")
SIGNS = ()
BROKEN = {"container.gpus": "none", "container.shows": False}
HEALTHY = {"container.gpus": "all", "container.shows": False}
CITE = "Docker documentation: compose, GPU support; NVIDIA container toolkit, NVIDIA_VISIBLE_DEVICES"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "container.gpus" not in facts or "cuda" not in contract.platforms:
        return None
    if cards.platforms(contract) == [] or job.asks(facts, "cpu") or facts.value("container.gpus") != "none":
        return None
    certain = facts.known("container.shows") is False
    told = ("container.gpus", "container.shows", "container.image")
    return Finding(
        CODE,
        SEVERITY if certain else "warning",
        "the container is started without a GPU",
        found=tuple(facts.fact(key) for key in told if key in facts),
        needs=(Need("container.gpus", "all", cite=CITE),),
        so="torch.cuda.is_available() is False in it"
        + ("" if certain else ", unless NVIDIA's runtime is the host's default"),
        fix=(
            Step("write gpus: all into the service, or reserve devices with capabilities: [gpu]"),
            Step("start the container with docker run --gpus all", note="outside the container"),
        ),
    )
