"""Read how one service of a compose file is started, and the Dockerfile or image it uses.

Every fact has the line that states it. Docker's documented defaults count as facts: without ``shm_size`` a
container has 64 MiB of shared memory, and without a reservation no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.containers import base_image, dockerfile, dockerfile_facts
from gpuready.containers.dockerfile import UNKNOWN
from gpuready.containers.stages import ReadFile
from gpuready.jobs import config_reader
from gpuready.model import Fact, Record
from gpuready.model.sizes import parse_size

MAX_NODES = 20_000
MAX_DEPTH = 60
DEFAULT_SHM = 64 << 20


class LocatedValue(Record):
    """A value of the file and its line."""

    value: Any
    line: int


def is_compose_file(path: str, text: str) -> bool:
    """Decide by the file name, else by a ``services:`` at the start of a line."""
    if path.lower().endswith((".yml", ".yaml")):
        return True
    return any(line.startswith("services:") for line in text.splitlines()[:500])


def read_compose_service(
    read: ReadFile, path: str, text: str, service: str = "", arch: str = "x86_64"
) -> tuple[list[Fact], tuple[str, ...]]:
    """Return the facts of a service, and the fact keys it shares with its host.

    ValueError lists the services to choose from.
    """
    document = _convert_node(_compose_yaml(text), {}, 0)
    services = _as_mapping(_as_mapping(document).get("services"))
    if not services:
        raise ValueError("it has no services, so it is not a compose file")
    name = _choose_service(services, service)
    definition = _as_mapping(services[name])
    line = services[name].line
    facts = [*_service_image_facts(read, path, definition, line, arch)]
    facts = [
        *_override_variables(facts, _service_environment(definition, path)),
        *_service_resource_facts(definition, path, line),
    ]
    return facts, ("system.shm", "system.shm_free") if _as_text(definition.get("ipc")) == "host" else ()


def _compose_yaml(text: str) -> Any:
    if len(text) > dockerfile.MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {dockerfile.MAX_FILE_BYTES >> 20} MiB, which no compose file is")
    import yaml

    try:
        return yaml.compose(text, Loader=config_reader.make_bounded_loader())
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(config_reader.describe_yaml_error(error)) from None


def _convert_node(node: Any, counts: dict[str, int], depth: int) -> LocatedValue:
    """Convert a node to mappings, lists and texts with lines; anchors are expanded up to a limit."""
    counts["count"] = counts.get("count", 0) + 1
    if depth > MAX_DEPTH or counts["count"] > MAX_NODES:
        raise ValueError("it is nested too deeply, or its anchors make it endless")
    if node is None:
        return LocatedValue({}, 1)
    line = node.start_mark.line + 1
    if node.id == "mapping":
        merged: dict[str, LocatedValue] = {}
        entries: dict[str, LocatedValue] = {}
        for key, value in node.value:
            if key.value == "<<":
                merged_value = _convert_node(value, counts, depth + 1)
                for one in merged_value.value if isinstance(merged_value.value, list) else [merged_value]:
                    merged = {**_as_mapping(one), **merged}
            elif isinstance(key.value, str):
                entries[key.value] = _convert_node(value, counts, depth + 1).replace(line=key.start_mark.line + 1)
        return LocatedValue({**merged, **entries}, line)
    if node.id == "sequence":
        return LocatedValue([_convert_node(item, counts, depth + 1) for item in node.value], line)
    return LocatedValue(_interpolate_defaults(str(node.value)) if node.tag != "tag:yaml.org,2002:null" else "", line)


def _interpolate_defaults(text: str) -> str:
    """Replace ``${GPUS:-all}`` by its default; a variable without one is unknown here."""
    return dockerfile.expand_variables(text.replace("$$", "\\$"), dockerfile.BuildValues()) if "$" in text else text


def _as_mapping(located: LocatedValue | None) -> dict[str, LocatedValue]:
    return located.value if located is not None and isinstance(located.value, dict) else {}


def _as_items(located: LocatedValue | None) -> list[LocatedValue]:
    if located is None:
        return []
    return located.value if isinstance(located.value, list) else [located] if isinstance(located.value, str) else []


def _as_text(located: LocatedValue | None) -> str:
    return located.value.strip() if located is not None and isinstance(located.value, str) else ""


def _choose_service(services: Mapping[str, LocatedValue], requested: str) -> str:
    """Return the requested service, the only one, or the only one that uses GPUs."""
    if requested:
        if requested not in services:
            raise ValueError(f"it has no service {requested!r}; it has {', '.join(services)[:200]}")
        return requested
    if len(services) == 1:
        return next(iter(services))
    for likely in (_asks_for_gpus, _has_cuda_image):
        matches = [name for name, one in services.items() if likely(_as_mapping(one))]
        if len(matches) == 1:
            return matches[0]
        if matches:
            break
    names = ", ".join(services)[:200]
    raise ValueError(f"it has several services ({names}): name one, as in --dockerfile FILE#{next(iter(services))}")


def _asks_for_gpus(service: Mapping[str, LocatedValue]) -> bool:
    return _requested_gpus(service)[0] != "none"


def _has_cuda_image(service: Mapping[str, LocatedValue]) -> bool:
    base = base_image.parse_image_name(_as_text(service.get("image")))
    return bool(base.cuda or base.torch) or "build" in service


def _service_image_facts(
    read: ReadFile, path: str, service: Mapping[str, LocatedValue], line: int, arch: str
) -> list[Fact]:
    """Return the facts of the service's Dockerfile, else of its image name."""
    build = service.get("build")
    if build is None:
        reference = service.get("image")
        text = f"FROM {_as_text(reference).replace(UNKNOWN, '?') or 'unknown'}"
        facts = dockerfile_facts.read_dockerfile_facts(read, path, text, arch)
        where = f"{path}:{reference.line if reference else line}"
        return [f.replace(source=where if f.source != path else path) for f in facts]
    settings = _as_mapping(build)
    context = _as_text(settings.get("context")) or _as_text(build) or "."
    inline = settings.get("dockerfile_inline")
    argument_pairs = _name_value_pairs(settings.get("args"))
    arguments = {name: value for name, (value, _) in argument_pairs.items()}
    target = _as_text(settings.get("target"))
    if inline is not None:
        return dockerfile_facts.read_dockerfile_facts(
            read, f"{path}:{inline.line}", _as_text(inline), arch, arguments, target
        )
    file = _locate_dockerfile(path, context, _as_text(settings.get("dockerfile")) or "Dockerfile")
    dockerfile_text = read(file) if file else None
    if dockerfile_text is None:
        return [Fact("os.container", "docker", path, "stated"), Fact("os.system", "linux", path, "stated")]
    try:
        return dockerfile_facts.read_dockerfile_facts(read, file, dockerfile_text, arch, arguments, target)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _locate_dockerfile(path: str, context: str, name: str) -> str:
    """Locate the Dockerfile, only beside or below the compose file."""
    parts = [p for p in f"{context}/{name}".split("/") if p not in ("", ".")]
    if context.startswith("/") or ".." in parts or UNKNOWN in context + name or "://" in context:
        return ""
    folder = path.rpartition("/")[0]
    return "/".join([folder, *parts] if folder else parts)


def _name_value_pairs(located: LocatedValue | None) -> dict[str, tuple[str, int]]:
    """Parse ``A: 1`` or ``- A=1`` with lines; a name alone takes the shell's value, which is unknown."""
    pairs: dict[str, tuple[str, int]] = {}
    for name, one in _as_mapping(located).items():
        pairs[name] = (_as_text(one), one.line)
    for one in _as_items(located):
        name, equals, value = _as_text(one).partition("=")
        if name:
            pairs[name] = (value if equals else UNKNOWN, one.line)
    return pairs


def _service_environment(service: Mapping[str, LocatedValue], path: str) -> dict[str, tuple[str, str]]:
    return {
        name: (value, f"{path}:{line}") for name, (value, line) in _name_value_pairs(service.get("environment")).items()
    }


def _override_variables(facts: list[Fact], overrides: Mapping[str, tuple[str, str]]) -> list[Fact]:
    """Override the image's variables by those of the service."""
    if not overrides:
        return facts
    names = next((f.value for f in facts if f.key == "env.names"), ())
    override_facts = dockerfile_facts.variable_facts(overrides)
    names_fact = override_facts[0].replace(value=tuple(sorted({*names, *overrides})))
    shows = overrides.get("NVIDIA_VISIBLE_DEVICES")
    visible_facts = [Fact("container.shows", shows[0] not in ("", "none", "void"), shows[1], "stated")] if shows else []
    return [*facts, names_fact, *override_facts[1:], *visible_facts]


def _service_resource_facts(service: Mapping[str, LocatedValue], path: str, line: int) -> list[Fact]:
    requested, gpu_line = _requested_gpus(service)
    source = f"{path}:{gpu_line or line}"
    facts = [Fact("container.gpus", requested, source, "stated")] if UNKNOWN not in requested else []
    if requested.isdigit():
        facts.append(Fact("job.gpus", int(requested), source, "stated"))
    return [*facts, *_service_shm_facts(service, path, line), *_service_limit_facts(service, path)]


def _requested_gpus(service: Mapping[str, LocatedValue]) -> tuple[str, int]:
    """Return all, none, a number, or ``id:0,id:1``, and the line that states it."""
    deploy = _as_mapping(_as_mapping(_as_mapping(service.get("deploy")).get("resources")).get("reservations"))
    for devices in (service.get("gpus"), deploy.get("devices")):
        if devices is not None and _as_text(devices) == "all":
            return "all", devices.line
        for one in _as_items(devices):
            if requested := _reserved_gpus(_as_mapping(one), devices is service.get("gpus")):
                return requested, one.line
    visible = _name_value_pairs(service.get("environment")).get("NVIDIA_VISIBLE_DEVICES", ("", 0))
    runtime = service.get("runtime")
    if _as_text(runtime).startswith("nvidia"):
        return _format_gpu_ids(visible[0]) or "all", runtime.line if runtime else 0
    for device in _as_items(service.get("devices")):
        name = _as_text(device)
        if name.startswith("nvidia.com/gpu="):
            return _format_gpu_ids(name.partition("=")[2]) or "all", device.line
        if name.startswith("/dev/nvidia"):
            return "all", device.line
    return "none", 0


def _reserved_gpus(device: Mapping[str, LocatedValue], short_form: bool) -> str:
    """Parse one reservation. Without the capability ``gpu`` compose rejects it or gives no GPU."""
    capabilities = {_as_text(one) for one in _as_items(device.get("capabilities"))}
    driver = _as_text(device.get("driver"))
    if not short_form and not capabilities & {"gpu", "nvidia", "compute", "utility"}:
        return ""
    if driver and driver not in ("nvidia", "cdi") and UNKNOWN not in driver:
        return ""
    ids = [_as_text(one) for one in _as_items(device.get("device_ids"))]
    if ids:
        return _format_gpu_ids(",".join(ids))
    count = _as_text(device.get("count"))
    return "all" if count in ("", "all", "-1") else count


def _format_gpu_ids(text: str) -> str:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or names == ["all"]:
        return "all" if names else ""
    return "none" if names in (["none"], ["void"]) else ",".join(f"id:{name}" for name in names)


def _service_shm_facts(service: Mapping[str, LocatedValue], path: str, line: int) -> list[Fact]:
    size, ipc = service.get("shm_size"), service.get("ipc")
    for mount in [*_as_items(service.get("tmpfs")), *_as_items(service.get("volumes"))]:
        if "/dev/shm" in (_as_text(mount) or _as_text(_as_mapping(mount).get("target"))):
            return []  # mounted explicitly: its size is in the mount options
    if _as_text(ipc) == "host" or _as_text(ipc).startswith(("service:", "container:")):
        return []  # shared with the host or another container
    if size is None:
        source = f"{path}:{line} (no shm_size: Docker's default)"
        return [Fact("system.shm", DEFAULT_SHM, source, "stated")]
    text = _as_text(size)
    if UNKNOWN in text:
        return []
    return [Fact("system.shm", _parse_docker_size(text, "shm_size", size.line), f"{path}:{size.line}", "stated")]


def _parse_docker_size(text: str, what: str, line: int) -> int:
    """Parse a size as Docker does, in powers of 1024: 16g, 2gb, 64M."""
    size = parse_size(text, 1024)
    if size is None or not 1 <= size < 2**63:
        raise ValueError(f"line {line}: {what} {text[:40]!r} is not a size; write for example 16gb")
    return int(size)


def _service_limit_facts(service: Mapping[str, LocatedValue], path: str) -> list[Fact]:
    facts: list[Fact] = []
    for name in ("memlock", "nofile", "nproc", "stack"):
        ulimit = _as_mapping(service.get("ulimits")).get(name)
        soft = _as_mapping(ulimit).get("soft", ulimit)
        text = _as_text(soft)
        if text.lstrip("-").isdigit() and len(text) < 20:
            line = ulimit.line if ulimit else 0
            facts.append(Fact(f"limit.{name}", max(int(text), -1), f"{path}:{line}", "stated"))
    limit = _as_mapping(_as_mapping(_as_mapping(service.get("deploy")).get("resources")).get("limits")).get("memory")
    limit = limit or service.get("mem_limit")
    if limit is not None and _as_text(limit) and UNKNOWN not in _as_text(limit):
        size = _parse_docker_size(_as_text(limit), "memory", limit.line)
        facts.append(Fact("memory.limit", size, f"{path}:{limit.line}", "stated"))
    return facts
