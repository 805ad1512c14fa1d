"""The machine inside a container, from its Dockerfile or compose file and its host."""

from __future__ import annotations

from gpuready import system
from gpuready.model import NOT_STATED, Fact, Facts
from gpuready.workflow.refusal import Refused, named, refusing, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST = 1 << 20


def machine(asked: str, host: Facts | None, what_if: Mapping[str, str]) -> Facts:
    """Return the facts of a Dockerfile, ``compose.yml`` or ``compose.yml#SERVICE`` on a host; flags override the file."""
    from gpuready.probe import compose, container, stated

    path, service = _parted(asked)
    text = text_of(path)
    ground = host or Facts(refusing(stated.variations, what_if, _arch(what_if)), "", NOT_STATED)
    arch = ground.known("os.arch") or _arch(what_if)
    shares: tuple[str, ...] = ()
    try:
        if compose.is_compose(path, text):
            file, shares = compose.look(_reading, path, text, service, arch)
        else:
            file = container.look(_reading, path, text, arch, {}, service)
    except ValueError as bad:
        raise Refused(f"{path}: {bad}") from None
    if host is None and "driver" in what_if:
        ground = ground.also(*_a_gpu(file))
    found = container.on_host(ground, [*file, *refusing(stated.variations, what_if, arch)], shares)
    name = path.rpartition("/")[2] + (f"#{service}" if service else "")
    return Facts(found, f"{name} on {host.host}" if host is not None and host.host else name, NOT_STATED)


def _parted(asked: str) -> tuple[str, str]:
    """Split off the service or stage after #; a file whose own name has a # is taken as it is."""
    path, _, service = asked.rpartition("#")
    if not path or named().stat(asked) is not None:
        return asked, ""
    return path, service


def _arch(what_if: Mapping[str, str]) -> str:
    return what_if.get("arch", "x86_64")


def _a_gpu(file: list[Fact]) -> list[Fact]:
    """Return facts for one GPU of unknown model: a host with a stated driver has a GPU."""
    count = next((f.value for f in file if f.key == "job.gpus"), 1)
    stated = {"gpu.count": count, "gpu.visible": tuple(range(count)), "platform.name": "cuda"}
    return [Fact(key, value, "--driver", "stated") for key, value in stated.items()]


def _reading(path: str) -> str | None:
    """Read a file that another one names; None where it is missing, too large or not allowed."""
    try:
        return named().read(path, LARGEST)
    except system.Blind:
        return None
