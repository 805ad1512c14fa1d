"""Facts that a Dockerfile states about the machine inside the container, each with its line.

The file is read, never executed. What it does not state stays ``not stated``; GPUs, driver and kernel are
the host's.
"""

from collections.abc import Mapping
from typing import Any

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import systems, torch
from gpuready.catalog.kernels import uses_cxx11_abi
from gpuready.containers import dockerfile
from gpuready.containers.base_image import BaseImage
from gpuready.containers.dockerfile import UNKNOWN
from gpuready.containers.installs import UPGRADED, PackagePin
from gpuready.containers.stages import ImageContents, ImagePython, ReadFile, StageReader
from gpuready.model import NOT_STATED, Fact, Facts, versions
from gpuready.probe import visibility
from gpuready.system.redaction.text import redact_value

HOST_FACT_PREFIXES = (
    "gpu.", "driver.", "platform.", "host.", "memory.", "fabric.", "accelerator.", "kernel.", "net.ib",
    "net.peermem", "os.kernel", "os.release", "os.arch", "os.wsl", "clock.", "job.",
)  # fmt: skip
"""Prefixes of the facts that a container takes from its host."""


def read_dockerfile_facts(
    read: ReadFile,
    path: str,
    text: str,
    arch: str = "x86_64",
    build_args: Mapping[str, str] | None = None,
    target: str = "",
) -> list[Fact]:
    """Return the facts of a Dockerfile. ValueError, with the line, if it is not one."""
    folder = path.rpartition("/")[0]
    reader = StageReader(read, folder, arch, build_args or {})
    stages = dockerfile.parse_stages(text, reader.build_values)
    index = len(stages) - 1
    if target:
        matching = [i for i, stage in enumerate(stages) if stage.name == target.lower() or str(i) == target]
        if not matching:
            raise ValueError(f"it has no stage named {target!r}")
        index = matching[-1]
    return image_facts(reader.read_stage(stages, index), path, arch)


def image_facts(built: ImageContents, path: str, arch: str) -> list[Fact]:
    """Return the facts of an image."""
    first = f"{path}:{built.line}"
    stated: list[Fact] = [
        Fact("os.container", "docker", path, "stated"),
        Fact("container.image", built.base.name, first, "stated"),
    ]
    if built.base.requires and not _is_variable_enabled(built, "NVIDIA_DISABLE_REQUIRE"):
        stated.append(Fact("container.cuda", built.base.requires, first, "stated"))
    if "NVIDIA_VISIBLE_DEVICES" in built.variables or built.base.shows is not None:
        value = built.variables.get("NVIDIA_VISIBLE_DEVICES", ("all" if built.base.shows else "", 0))[0]
        stated.append(Fact("container.shows", value not in ("", "none", "void"), first, "stated"))
    python = built.final_environment()
    stated += (
        _image_system_facts(built, first)
        + _image_toolkit_facts(built, path, first)
        + _image_python_facts(built, python, path)
    )
    for name, (pin, line) in python.packages.items():
        source = f"{path}:{line}"
        if name == "torch":
            stated += pinned_torch_facts(pin, source, arch, built.base)
        elif pin.version:
            stated.append(Fact(f"package.{name}", pin.version, source, "stated"))
    if words := _requested_words(built, python):
        stated.append(Fact("container.requests", words, path, "stated"))
        stated.append(Fact("container.installs", python.installs, path, "stated"))
    return stated + variable_facts({n: (v, f"{path}:{line}") for n, (v, line) in built.variables.items()})


def _requested_words(built: ImageContents, python: ImagePython) -> tuple[str, ...]:
    """What the file installs, for a resolver; empty where something else may be there: from the base, or by what was not looked at."""
    pins = [pin for pin, _ in python.packages.values()]
    may_have_more = built.unread or not built.base.is_known or "own" in (built.base.build, *(pin.build for pin in pins))
    if may_have_more or built.base.torch or built.base.brings or python.kind == "conda" or not python.is_resolved:
        return ()
    if not all(
        pin.sure and (pin.version or not pin.build) and UNKNOWN not in f"{pin.version}{pin.spec}" for pin in pins
    ):
        return ()
    labels = {pin.name: f"+{pin.build}" for pin in pins if pin.build and "+" not in (pin.version or "")}
    return tuple(
        pin.name + (f"=={pin.version}{labels.get(pin.name, '')}" if pin.version else pin.spec.replace(UPGRADED, ""))
        for pin in pins
    )


def _is_variable_enabled(built: ImageContents, name: str) -> bool:
    return built.variables.get(name, ("", 0))[0].lower() in ("1", "true", "yes")


def variable_facts(values: Mapping[str, tuple[str, str]]) -> list[Fact]:
    """Return environment variables as facts; one with an unknown value has only its name."""
    if not values:
        return []
    facts = [
        Fact(f"env.{name}", redact_value(name, value), source, "stated")
        if UNKNOWN not in value
        else Fact(f"env.{name}", None, source, "stated", NOT_STATED)
        for name, (value, source) in values.items()
    ]
    source = next(iter(values.values()))[1]
    return [Fact("env.names", tuple(sorted(values)), source, "stated"), *facts]


def _image_system_facts(built: ImageContents, source: str) -> list[Fact]:
    name, release = built.base.system, built.base.release
    stated: dict[str, Any] = {"os.system": "linux"}
    if name:
        stated |= {"os.name": name, "os.pretty": f"{name} {release}".strip()}
        stated |= {"os.version": release} if release else {}
        library = systems.system_glibc(name, release)
        stated |= {"os.glibc": library} if library or systems.has_musl(name) else {}
    if manager := built.manager or systems.system_manager(name):
        stated["os.manager"] = manager
    return [Fact(key, value, source, "stated") for key, value in stated.items()]


def _image_toolkit_facts(built: ImageContents, path: str, first: str) -> list[Fact]:
    """The toolkit of the image, one installed or one copied; none if the image is known to lack it."""
    toolkit = built.toolkit
    if toolkit is None and built.base.toolkit is False and not built.unread:
        return [Fact(f"toolkit.{part}", None, first, "stated") for part in ("version", "nvcc", "path", "home_missing")]
    if toolkit is None or not toolkit.version:
        return []
    stated = {"toolkit.version": toolkit.version, "toolkit.path": toolkit.folder}
    stated["toolkit.nvcc"] = f"{toolkit.folder}/bin/nvcc"
    return [Fact(key, value, f"{path}:{toolkit.line}", "stated") for key, value in stated.items()]


def _image_python_facts(built: ImageContents, python: ImagePython, path: str) -> list[Fact]:
    """The Python that the packages go into; what is decided elsewhere is a gap, and not merely left out."""
    source = f"{path}:{python.line or built.line}"
    stated = {"python.version": python.version, "python.path": python.path, "python.kind": python.kind}
    facts = [Fact(key, value, source, "stated") for key, value in stated.items() if value]
    if python.managed is not None:
        facts.append(Fact("python.managed", python.managed, source, "stated"))
    if built.refused:
        rows = tuple({"line": line, "why": why} for why, line in dict.fromkeys(built.refused))
        facts.append(Fact("container.refused", rows, f"{path}:{rows[0]['line']}", "stated"))
    return facts + _unknown_base_facts(built, python, path) + _unread_facts(built, python, path)


def _unread_facts(built: ImageContents, python: ImagePython, path: str) -> list[Fact]:
    """What was not looked at, and the facts that it may have changed."""
    if not built.unread:
        return []
    rows = tuple({"line": line, "text": text} for line, text in dict.fromkeys(built.unread))
    line, text = built.unread[-1]
    gap = f"line {line} was not looked at: {text}"
    keys = [] if python.version else ["python.version"]
    keys += [] if built.toolkit else ["toolkit.version", "toolkit.nvcc"]
    keys += [] if "torch" in python.packages else ["torch.version", "torch.cuda"]
    keys += [f"package.{name}" for name in sorted({"torch", *built.doubted} - set(python.packages))]
    listed = Fact("container.unread", rows, f"{path}:{rows[0]['line']}", "stated")
    return [listed, *(Fact(key, None, f"{path}:{line}", "stated", gap) for key in keys)]


def _unknown_base_facts(built: ImageContents, python: ImagePython, path: str) -> list[Fact]:
    """What nobody can tell of an image that the catalogue does not know."""
    if built.base.system and built.base.is_known:
        return []
    gap = f"the catalogue does not know the image {built.base.name}"
    keys = ([] if built.base.system else ["os.glibc"]) + ([] if python.version else ["python.version"])
    keys += ["container.cuda"] if not (built.base.is_known or built.base.requires) else []  # what it asks of the driver
    torch_keys = ["package.torch", "torch.version", "torch.cuda"] if "torch" not in python.packages else []
    return [Fact(key, None, f"{path}:{built.line}", "stated", gap) for key in (*keys, *torch_keys)]


def pinned_torch_facts(pin: PackagePin, source: str, arch: str, base: BaseImage) -> list[Fact]:
    """torch and the CUDA of its build, as far as the file or the catalogue states it."""
    version, local = torch.parse_torch_version(pin.version or "")
    tag = (local or pin.build).rstrip("!")
    stated: dict[str, Any] = {"torch.version": pin.version, "package.torch": pin.version} if pin.version else {}
    wanted = tag.removeprefix("cuda") or None
    if tag == "cpu" or (not tag and torch.is_default_cpu_only(version, arch)):
        stated |= {"torch.build": "cpu", "torch.cuda": None, "torch.arch": ()}
    elif tag.startswith("rocm"):
        stated |= {"torch.build": "rocm", "torch.cuda": None}
    elif tag == "own":
        stated |= {"torch.build": "cuda", "torch.cuda": base.cuda}
    elif tag not in (UNKNOWN, "conda") and (pin.version or wanted):
        build = torch.find_torch_build(version, wanted, arch) if pin.version and versions.is_version(version) else None
        if build is not None:
            stated |= {"torch.build": "cuda", "torch.cuda": build.cuda, "torch.arch": tuple(build.arch)}
            full = f"{build.version}+{build.variant}"
            stated |= {"torch.version": full, "package.torch": full, "torch.abi": uses_cxx11_abi(build)}
        elif wanted:
            stated |= {"torch.build": "cuda", "torch.cuda": torch.parse_cuda_label(wanted)}
    return [Fact(key, value, source, "stated") for key, value in stated.items()]


def merge_container_facts(host: Facts, file_facts: list[Fact], shared_keys: tuple[str, ...] = ()) -> Facts:
    """Return the machine seen inside the container: the file's facts on top of the host's."""
    kept = [f for f in host if f.key.startswith(HOST_FACT_PREFIXES) or f.key in shared_keys]
    facts = Facts(kept, host.host, NOT_STATED).with_facts(*file_facts)
    return facts.with_facts(*_assigned_gpu_facts(facts), *_cuda_compat_facts(facts), *_visible_gpu_facts(facts))


def _assigned_gpu_facts(facts: Facts) -> list[Fact]:
    """The host's GPUs that the file requests."""
    requested, count = facts.value_if_known("container.gpus"), facts.value_if_known("gpu.count")
    if requested in (None, "all", "none") or not isinstance(count, int):
        return []
    names = str(requested).split(",")
    if len(names) == 1 and not str(requested).startswith("id:") and names[0].isdigit():
        chosen = list(range(min(int(names[0]), count)))
    else:
        ids = [name.removeprefix("id:") for name in names]
        if not all(one.isdigit() for one in ids):
            return []  # by UUID, which cannot be mapped to an index here
        chosen = [int(one) for one in ids if int(one) < count]
    lists = [f for f in facts if f.key.startswith("gpu.") and isinstance(f.value, tuple) and len(f.value) == count]
    fewer = [f.replace(value=tuple(f.value[i] for i in chosen)) for f in lists if f.key != "gpu.visible"]
    source = facts.fact("container.gpus").source
    return [
        *fewer,
        Fact("gpu.count", len(chosen), source, "stated"),
        Fact("gpu.visible", tuple(range(len(chosen))), source, "stated"),
    ]


def _cuda_compat_facts(facts: Facts) -> list[Fact]:
    """NVIDIA's CUDA images contain cuda-compat, which the container toolkit puts before an older driver."""
    cuda, driver = facts.value_if_known("container.cuda"), facts.value_if_known("driver.version")
    if not cuda or not driver or toolkits.driver_runs_cuda(driver, cuda) is not False:
        return []
    source = facts.fact("container.cuda").source
    library = toolkits.release_driver(cuda)[0]
    compat = [Fact("driver.compat", "/usr/local/cuda/compat/libcuda.so.1", source, "stated")]
    return compat + ([Fact("driver.library", library, source, "stated")] if library else [])


def _visible_gpu_facts(facts: Facts) -> list[Fact]:
    """The effect of CUDA_VISIBLE_DEVICES, if the file sets it and the GPUs are known."""
    count, fact = facts.value_if_known("gpu.count"), facts.fact("env.CUDA_VISIBLE_DEVICES")
    if not isinstance(count, int) or fact.gap or fact.value is None:
        return [Fact("visibility.cuda", None, facts.host, "stated")] if isinstance(count, int) else []
    visible = visibility.parse_visible_devices(str(fact.value), count, facts.value_if_known("gpu.uuid") or ())
    table = {"value": fact.value, "shown": visible.shown, "ignored": visible.ignored, "why": visible.why}
    return [
        Fact("visibility.cuda", table, fact.source, "stated"),
        Fact("gpu.visible", visible.shown, fact.source, "stated"),
    ]
