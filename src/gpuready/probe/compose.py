"""Read how one service of a compose file is started, and the Dockerfile or image it uses.

Every fact has the line that states it. Docker's documented defaults count as facts: without ``shm_size`` a
container has 64 MiB of shared memory, and without a reservation no GPU.
"""

from __future__ import annotations

from gpuready.model import Fact, Noun
from gpuready.probe import container, dockerfile, image, stated, yamls
from gpuready.probe.dockerfile import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.probe.recipe import Read

MOST = 20_000
DEEPEST = 60
DEFAULT_SHM = 64 << 20


class At(Noun):
    """A value of the file and its line."""

    value: Any
    line: int


def is_compose(path: str, text: str) -> bool:
    """Decide by the file name, else by a ``services:`` at the start of a line."""
    if path.lower().endswith((".yml", ".yaml")):
        return True
    return any(line.startswith("services:") for line in text.splitlines()[:500])


def look(
    read: Read, path: str, text: str, service: str = "", arch: str = "x86_64"
) -> tuple[list[Fact], tuple[str, ...]]:
    """Return the facts of a service, and the fact keys it shares with its host.

    ValueError lists the services to choose from.
    """
    whole = _plain(_nodes(text), {}, 0)
    services = _mapping(_mapping(whole).get("services"))
    if not services:
        raise ValueError("it has no services, and so it is no compose file")
    name = _chosen(services, service)
    own = _mapping(services[name])
    line = services[name].line
    facts = [*_image(read, path, own, line, arch)]
    facts = [*_with_variables(facts, _environment(own, path)), *_started(own, path, line)]
    return facts, ("system.shm", "system.shm_free") if _text(own.get("ipc")) == "host" else ()


def _nodes(text: str) -> Any:
    if len(text) > dockerfile.LARGEST:
        raise ValueError(f"it is larger than {dockerfile.LARGEST >> 20} MiB, which no compose file is")
    try:
        import yaml
    except ImportError:
        raise ValueError("a compose file needs PyYAML to be read: install the package pyyaml") from None
    try:
        return yaml.compose(text, Loader=yamls.loader())
    except (yaml.YAMLError, RecursionError, ValueError) as bad:
        raise ValueError(yamls.fault(bad)) from None


def _plain(node: Any, seen: dict[str, int], depth: int) -> At:
    """Convert a node to mappings, lists and texts with lines; anchors are expanded up to a limit."""
    seen["count"] = seen.get("count", 0) + 1
    if depth > DEEPEST or seen["count"] > MOST:
        raise ValueError("it is nested too deeply, or its anchors make it endless")
    if node is None:
        return At({}, 1)
    line = node.start_mark.line + 1
    if node.id == "mapping":
        merged: dict[str, At] = {}
        own: dict[str, At] = {}
        for key, value in node.value:
            if key.value == "<<":
                found = _plain(value, seen, depth + 1)
                for one in found.value if isinstance(found.value, list) else [found]:
                    merged = {**_mapping(one), **merged}
            elif isinstance(key.value, str):
                own[key.value] = _plain(value, seen, depth + 1).but(line=key.start_mark.line + 1)
        return At({**merged, **own}, line)
    if node.id == "sequence":
        return At([_plain(item, seen, depth + 1) for item in node.value], line)
    return At(_interpolated(str(node.value)) if node.tag != "tag:yaml.org,2002:null" else "", line)


def _interpolated(text: str) -> str:
    """Replace ``${GPUS:-all}`` by its default; a variable without one is unknown here."""
    return dockerfile.expand(text.replace("$$", "\\$"), {}) if "$" in text else text


def _mapping(found: At | None) -> dict[str, At]:
    return found.value if found is not None and isinstance(found.value, dict) else {}


def _items(found: At | None) -> list[At]:
    if found is None:
        return []
    return found.value if isinstance(found.value, list) else [found] if isinstance(found.value, str) else []


def _text(found: At | None) -> str:
    return found.value.strip() if found is not None and isinstance(found.value, str) else ""


def _chosen(services: Mapping[str, At], asked: str) -> str:
    """Return the requested service, the only one, or the only one that uses GPUs."""
    if asked:
        if asked not in services:
            raise ValueError(f"it has no service {asked!r}; it has {', '.join(services)[:200]}")
        return asked
    if len(services) == 1:
        return next(iter(services))
    for likely in (_asks_for_gpus, _stands_on_cuda):
        found = [name for name, one in services.items() if likely(_mapping(one))]
        if len(found) == 1:
            return found[0]
        if found:
            break
    names = ", ".join(services)[:200]
    raise ValueError(
        f"it has several services ({names}): name one, as in --dockerfile FILE#{next(iter(services))}"
    )


def _asks_for_gpus(service: Mapping[str, At]) -> bool:
    return _gpus(service)[0] != "none"


def _stands_on_cuda(service: Mapping[str, At]) -> bool:
    found = image.read(_text(service.get("image")))
    return bool(found.cuda or found.torch) or "build" in service


def _image(read: Read, path: str, service: Mapping[str, At], line: int, arch: str) -> list[Fact]:
    """Return the facts of the service's Dockerfile, else of its image name."""
    build = service.get("build")
    if build is None:
        named = service.get("image")
        text = f"FROM {_text(named).replace(UNKNOWN, '?') or 'unknown'}"
        facts = container.look(read, path, text, arch)
        where = f"{path}:{named.line if named else line}"
        return [f.but(source=where if f.source != path else path) for f in facts]
    settings = _mapping(build)
    context = _text(settings.get("context")) or _text(build) or "."
    inline = settings.get("dockerfile_inline")
    given = _pairs(settings.get("args"))
    arguments = {name: value for name, (value, _) in given.items()}
    target = _text(settings.get("target"))
    if inline is not None:
        return container.look(read, f"{path}:{inline.line}", _text(inline), arch, arguments, target)
    file = _joined(path, context, _text(settings.get("dockerfile")) or "Dockerfile")
    found = read(file) if file else None
    if found is None:
        return [Fact("os.container", "docker", path, "stated"), Fact("os.system", "linux", path, "stated")]
    try:
        return container.look(read, file, found, arch, arguments, target)
    except ValueError as bad:
        raise ValueError(f"{file}: {bad}") from None


def _joined(path: str, context: str, name: str) -> str:
    """Locate the Dockerfile, only beside or below the compose file."""
    parts = [p for p in f"{context}/{name}".split("/") if p not in ("", ".")]
    if context.startswith("/") or ".." in parts or UNKNOWN in context + name or "://" in context:
        return ""
    folder = path.rpartition("/")[0]
    return "/".join([folder, *parts] if folder else parts)


def _pairs(found: At | None) -> dict[str, tuple[str, int]]:
    """Parse ``A: 1`` or ``- A=1`` with lines; a name alone takes the shell's value, which is unknown."""
    pairs: dict[str, tuple[str, int]] = {}
    for name, one in _mapping(found).items():
        pairs[name] = (_text(one), one.line)
    for one in _items(found):
        name, equals, value = _text(one).partition("=")
        if name:
            pairs[name] = (value if equals else UNKNOWN, one.line)
    return pairs


def _environment(service: Mapping[str, At], path: str) -> dict[str, tuple[str, str]]:
    return {
        name: (value, f"{path}:{line}") for name, (value, line) in _pairs(service.get("environment")).items()
    }


def _with_variables(facts: list[Fact], more: Mapping[str, tuple[str, str]]) -> list[Fact]:
    """Override the image's variables by those of the service."""
    if not more:
        return facts
    names = next((f.value for f in facts if f.key == "env.names"), ())
    own = container.variables(more)
    every = own[0].but(value=tuple(sorted({*names, *more})))
    shows = more.get("NVIDIA_VISIBLE_DEVICES")
    asked = (
        [Fact("container.shows", shows[0] not in ("", "none", "void"), shows[1], "stated")] if shows else []
    )
    return [*facts, every, *own[1:], *asked]


def _started(service: Mapping[str, At], path: str, line: int) -> list[Fact]:
    asked, where = _gpus(service)
    source = f"{path}:{where or line}"
    facts = [Fact("container.gpus", asked, source, "stated")] if UNKNOWN not in asked else []
    if asked.isdigit():
        facts.append(Fact("job.gpus", int(asked), source, "stated"))
    return [*facts, *_shm(service, path, line), *_limits(service, path)]


def _gpus(service: Mapping[str, At]) -> tuple[str, int]:
    """Return all, none, a number, or ``id:0,id:1``, and the line that states it."""
    deploy = _mapping(_mapping(_mapping(service.get("deploy")).get("resources")).get("reservations"))
    for devices in (service.get("gpus"), deploy.get("devices")):
        if devices is not None and _text(devices) == "all":
            return "all", devices.line
        for one in _items(devices):
            if asked := _reserved(_mapping(one), devices is service.get("gpus")):
                return asked, one.line
    visible = _pairs(service.get("environment")).get("NVIDIA_VISIBLE_DEVICES", ("", 0))
    runtime = service.get("runtime")
    if _text(runtime).startswith("nvidia"):
        return _listed(visible[0]) or "all", runtime.line if runtime else 0
    for device in _items(service.get("devices")):
        name = _text(device)
        if name.startswith("nvidia.com/gpu="):
            return _listed(name.partition("=")[2]) or "all", device.line
        if name.startswith("/dev/nvidia"):
            return "all", device.line
    return "none", 0


def _reserved(device: Mapping[str, At], short: bool) -> str:
    """Parse one reservation. Without the capability ``gpu`` compose rejects it or gives no GPU."""
    capabilities = {_text(one) for one in _items(device.get("capabilities"))}
    driver = _text(device.get("driver"))
    if not short and not capabilities & {"gpu", "nvidia", "compute", "utility"}:
        return ""
    if driver and driver not in ("nvidia", "cdi") and UNKNOWN not in driver:
        return ""
    ids = [_text(one) for one in _items(device.get("device_ids"))]
    if ids:
        return _listed(",".join(ids))
    count = _text(device.get("count"))
    return "all" if count in ("", "all", "-1") else count


def _listed(text: str) -> str:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or names == ["all"]:
        return "all" if names else ""
    return "none" if names in (["none"], ["void"]) else ",".join(f"id:{name}" for name in names)


def _shm(service: Mapping[str, At], path: str, line: int) -> list[Fact]:
    size, ipc = service.get("shm_size"), service.get("ipc")
    for mount in [*_items(service.get("tmpfs")), *_items(service.get("volumes"))]:
        if "/dev/shm" in (_text(mount) or _text(_mapping(mount).get("target"))):
            return []  # mounted explicitly: its size is in the mount options
    if _text(ipc) == "host" or _text(ipc).startswith(("service:", "container:")):
        return []  # shared with the host or another container
    if size is None:
        source = f"{path}:{line} (no shm_size: Docker's default)"
        return [Fact("system.shm", DEFAULT_SHM, source, "stated")]
    text = _text(size)
    if UNKNOWN in text:
        return []
    return [Fact("system.shm", _bytes(text, "shm_size", size.line), f"{path}:{size.line}", "stated")]


def _bytes(text: str, what: str, line: int) -> int:
    """Parse a size as Docker does, in powers of 1024: 16g, 2gb, 64M."""
    number = text.lower().rstrip("bkmgti ")
    unit = text.lower()[len(number) :].strip().removesuffix("b").removesuffix("i")
    try:
        value = float(number) * {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}[unit]
        return stated.quantity(what, str(int(value)))
    except (ValueError, KeyError, OverflowError):
        raise ValueError(f"line {line}: {what} {text[:40]!r} is no size; write for example 16gb") from None


def _limits(service: Mapping[str, At], path: str) -> list[Fact]:
    facts: list[Fact] = []
    for name in ("memlock", "nofile", "nproc", "stack"):
        found = _mapping(service.get("ulimits")).get(name)
        soft = _mapping(found).get("soft", found)
        text = _text(soft)
        if text.lstrip("-").isdigit() and len(text) < 20:
            line = found.line if found else 0
            facts.append(Fact(f"limit.{name}", max(int(text), -1), f"{path}:{line}", "stated"))
    limit = _mapping(_mapping(_mapping(service.get("deploy")).get("resources")).get("limits")).get("memory")
    limit = limit or service.get("mem_limit")
    if limit is not None and _text(limit) and UNKNOWN not in _text(limit):
        size = _bytes(_text(limit), "memory", limit.line)
        facts.append(Fact("memory.limit", size, f"{path}:{limit.line}", "stated"))
    return facts
