"""Facts that a Dockerfile states about the machine inside the container, each with its line.

The file is read, never executed. What it does not state stays ``not stated``; GPUs, driver and kernel are
the host's.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import cuda as toolkits
from gpuready.catalog import systems, torch
from gpuready.model import NOT_STATED, Fact, Facts
from gpuready.probe import dockerfile, visibility
from gpuready.probe.dockerfile import UNKNOWN
from gpuready.probe.recipe import Builder
from gpuready.system.redact import redact_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.probe.image import Image
    from gpuready.probe.installs import Pin
    from gpuready.probe.recipe import Built, Read

HOSTS = (
    "gpu.", "driver.", "platform.", "host.", "memory.", "fabric.", "accelerator.", "kernel.", "net.ib",
    "net.peermem", "os.kernel", "os.release", "os.arch", "os.wsl", "clock.", "job.",
)  # fmt: skip
"""Prefixes of the facts that a container takes from its host."""


def look(
    read: Read,
    path: str,
    text: str,
    arch: str = "x86_64",
    given: Mapping[str, str] | None = None,
    target: str = "",
) -> list[Fact]:
    """Return the facts of a Dockerfile. ValueError, with the line, if it is not one."""
    folder = path.rpartition("/")[0]
    builder = Builder(read, folder, arch, given or {})
    stages = dockerfile.stages(text, builder.automatic | builder.given)
    index = len(stages) - 1
    if target:
        named = [i for i, stage in enumerate(stages) if stage.name == target.lower() or str(i) == target]
        if not named:
            raise ValueError(f"it has no stage named {target!r}")
        index = named[-1]
    return of_image(builder.build(stages, index), path, arch)


def of_image(built: Built, path: str, arch: str) -> list[Fact]:
    """Return the facts of a simulated image."""
    first = f"{path}:{built.line}"
    stated: list[Fact] = [
        Fact("os.container", "docker", path, "stated"),
        Fact("container.image", built.base.name, first, "stated"),
    ]
    if built.base.requires and not _on(built, "NVIDIA_DISABLE_REQUIRE"):
        stated.append(Fact("container.cuda", built.base.requires, first, "stated"))
    if "NVIDIA_VISIBLE_DEVICES" in built.variables or built.base.shows is not None:
        value = built.variables.get("NVIDIA_VISIBLE_DEVICES", ("all" if built.base.shows else "", 0))[0]
        stated.append(Fact("container.shows", value not in ("", "none", "void"), first, "stated"))
    stated += _system(built, first) + _toolkit(built, path, first) + _python(built, path)
    for name, (pin, line) in built.packages.items():
        source = f"{path}:{line}"
        if name == "torch":
            stated += _torch(pin, source, arch, built.base)
        elif pin.version is not None:
            stated.append(Fact(f"package.{name}", pin.version, source, "stated"))
    return stated + variables({n: (v, f"{path}:{line}") for n, (v, line) in built.variables.items()})


def _on(built: Built, name: str) -> bool:
    return built.variables.get(name, ("", 0))[0].lower() in ("1", "true", "yes")


def variables(found: Mapping[str, tuple[str, str]]) -> list[Fact]:
    """Return environment variables as facts; one with an unknown value has only its name."""
    if not found:
        return []
    named = [
        Fact(f"env.{name}", redact_value(name, value), source, "stated")
        if UNKNOWN not in value
        else Fact(f"env.{name}", None, source, "stated", NOT_STATED)
        for name, (value, source) in found.items()
    ]
    source = next(iter(found.values()))[1]
    return [Fact("env.names", tuple(sorted(found)), source, "stated"), *named]


def _system(built: Built, source: str) -> list[Fact]:
    name, release = built.base.system, built.base.release
    stated: dict[str, Any] = {"os.system": "linux"}
    if name:
        stated |= {"os.name": name, "os.version": release, "os.pretty": f"{name} {release}"}
        if library := systems.glibc(name, release):
            stated["os.glibc"] = library
    return [Fact(key, value, source, "stated") for key, value in stated.items()]


def _toolkit(built: Built, path: str, first: str) -> list[Fact]:
    """The toolkit of the image, or one installed by apt; none if the image is known to lack it."""
    version, line = built.toolkit
    if version:
        source, where = f"{path}:{line}", f"/usr/local/cuda-{version}"
    elif built.base.toolkit:
        version, source, where = built.base.cuda, first, "/usr/local/cuda"
    elif built.base.toolkit is False:
        return [Fact("toolkit.version", None, first, "stated"), Fact("toolkit.nvcc", None, first, "stated")]
    else:
        return []
    stated = {"toolkit.version": version, "toolkit.path": where, "toolkit.nvcc": f"{where}/bin/nvcc"}
    return [Fact(key, value, source, "stated") for key, value in stated.items()]


def _python(built: Built, path: str) -> list[Fact]:
    stated = [("python.version", built.python), ("python.kind", built.kind)]
    return [Fact(key, value, f"{path}:{line}", "stated") for key, (value, line) in stated if value]


def _torch(pin: Pin, source: str, arch: str, base: Image) -> list[Fact]:
    """torch and the CUDA of its build, as far as the file or the catalogue states it."""
    version, local = torch.parse(pin.version or "")
    tag = (local or pin.build).rstrip("!")
    stated: dict[str, Any] = (
        {"torch.version": pin.version, "package.torch": pin.version} if pin.version else {}
    )
    wanted = tag.removeprefix("cuda") or None
    if tag == "cpu":
        stated |= {"torch.build": "cpu", "torch.cuda": None, "torch.arch": ()}
    elif tag.startswith("rocm"):
        stated |= {"torch.build": "rocm", "torch.cuda": None}
    elif tag == "own":
        stated |= {"torch.build": "cuda", "torch.cuda": base.cuda}
    elif tag not in (UNKNOWN, "conda") and (pin.version or wanted):
        build = torch.build(version, wanted, arch) if pin.version and versions.is_version(version) else None
        if build is not None:
            stated |= {"torch.build": "cuda", "torch.cuda": build.cuda, "torch.arch": tuple(build.arch)}
            full = f"{build.version}+{build.variant}"
            stated |= {"torch.version": full, "package.torch": full}
        elif wanted:
            stated |= {"torch.build": "cuda", "torch.cuda": _dotted(wanted)}
    return [Fact(key, value, source, "stated") for key, value in stated.items()]


def _dotted(tag: str) -> str:
    """``cu128`` -> 12.8."""
    digits = tag.removeprefix("cu")
    return digits if "." in digits else f"{digits[:-1]}.{digits[-1]}"


def on_host(host: Facts, file: list[Fact], shares: tuple[str, ...] = ()) -> Facts:
    """Return the machine seen inside the container: the file's facts on top of the host's."""
    kept = [f for f in host if f.key.startswith(HOSTS) or f.key in shares]
    facts = Facts(kept, host.host, NOT_STATED).also(*file)
    return facts.also(*_given(facts), *_compat(facts), *_shown(facts))


def _given(facts: Facts) -> list[Fact]:
    """The host's GPUs that the file requests."""
    asked, count = facts.known("container.gpus"), facts.known("gpu.count")
    if asked in (None, "all", "none") or not isinstance(count, int):
        return []
    names = str(asked).split(",")
    if len(names) == 1 and not str(asked).startswith("id:") and names[0].isdigit():
        chosen = list(range(min(int(names[0]), count)))
    else:
        ids = [name.removeprefix("id:") for name in names]
        if not all(one.isdigit() for one in ids):
            return []  # by UUID, which cannot be mapped to an index here
        chosen = [int(one) for one in ids if int(one) < count]
    lists = [
        f for f in facts if f.key.startswith("gpu.") and isinstance(f.value, tuple) and len(f.value) == count
    ]
    fewer = [f.but(value=tuple(f.value[i] for i in chosen)) for f in lists if f.key != "gpu.visible"]
    source = facts.fact("container.gpus").source
    return [
        *fewer,
        Fact("gpu.count", len(chosen), source, "stated"),
        Fact("gpu.visible", tuple(range(len(chosen))), source, "stated"),
    ]


def _compat(facts: Facts) -> list[Fact]:
    """NVIDIA's CUDA images contain cuda-compat, which the container toolkit puts before an older driver."""
    cuda, driver = facts.known("container.cuda"), facts.known("driver.version")
    if not cuda or not driver or toolkits.runs(driver, cuda) is not False:
        return []
    source = facts.fact("container.cuda").source
    library = toolkits.driver_full(cuda)[0]
    found = [Fact("driver.compat", "/usr/local/cuda/compat/libcuda.so.1", source, "stated")]
    return found + ([Fact("driver.library", library, source, "stated")] if library else [])


def _shown(facts: Facts) -> list[Fact]:
    """The effect of CUDA_VISIBLE_DEVICES, if the file sets it and the GPUs are known."""
    count, fact = facts.known("gpu.count"), facts.fact("env.CUDA_VISIBLE_DEVICES")
    if not isinstance(count, int) or fact.gap or fact.value is None:
        return [Fact("visibility.cuda", None, facts.host, "stated")] if isinstance(count, int) else []
    seen = visibility.parse(str(fact.value), count, facts.known("gpu.uuid") or ())
    table = {"value": fact.value, "shown": seen.shown, "ignored": seen.ignored, "why": seen.why}
    return [
        Fact("visibility.cuda", table, fact.source, "stated"),
        Fact("gpu.visible", seen.shown, fact.source, "stated"),
    ]
