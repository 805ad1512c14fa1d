"""A hypothetical machine: a GPU name from the catalogue plus the what-if flags.

Everything else stays ``not stated``, which is neither absent nor unknown; this machine's own packages are
never mixed in.
"""

from collections.abc import Mapping
from typing import Any

from gpuready.catalog import cuda, gpus, machine_names, systems, torch
from gpuready.model import NOT_STATED, Fact, Facts, sizes, versions

OS_ALIASES = {
    "darwin": "macos",
    "redhat": "rhel",
    "alma": "almalinux",
    "amazonlinux": "amzn",
    "al": "amzn",
    "win": "windows",
}

FIRST_DRIVER_BRANCH, NEWER_DRIVER_BRANCHES = 300, 100
"""The oldest branch that a flag may state, and how far beyond the newest known one: some three years of releases."""


def stated_machine_facts(name: str, what_if: Mapping[str, str]) -> Facts:
    """Return ``h100x8`` and the flags as facts. ValueError says what is wrong, with the nearest names."""
    try:
        devices = machine_names.parse_machine_name(name)
    except ValueError as error:
        raise ValueError(f"--on {name}: {error}") from None
    vendor, row = devices[0].vendor, devices[0].row
    facts = _nvidia_facts(devices) if vendor == "nvidia" else _other_vendor_facts(devices)
    platform = machine_names.describe_vendor_platform(vendor)
    facts.append(Fact("platform.name", platform, _source(devices), "stated"))
    arch = row.get("host", "x86_64")
    usual = {"arch": arch} | ({"os": row["system"]} if "system" in row else {})
    flags = usual | dict(what_if) | _complete_torch_flag(what_if, platform)
    stated = what_if_facts(flags, what_if.get("arch") or arch)
    if platform == "mps":  # its wheels have no suffix
        stated = [f.replace(value=f.value.removesuffix("+cpu")) if isinstance(f.value, str) else f for f in stated]
    return Facts([*facts, *stated], name, NOT_STATED)


def apply_what_if(facts: Facts, what_if: Mapping[str, str]) -> Facts:
    """Return the facts of a machine with what the flags state, and what follows from it."""
    changed = facts.with_facts(*what_if_facts(what_if, str(facts.value_if_known("os.arch") or "x86_64")))
    if "driver" in what_if and "driver.cuda" in facts:
        newest = cuda.newest_cuda_for_driver(what_if["driver"].strip())
        changed = changed.with_facts(Fact("driver.cuda", newest, "--as driver", "stated"))
    require_possible(changed, what_if)
    return changed


def require_possible(facts: Facts, what_if: Mapping[str, str]) -> None:
    """ValueError where no machine is as the flags say."""
    vendor, arch = facts.value_if_known("accelerator.vendor"), what_if.get("arch", "")
    capabilities = list(
        zip(facts.value_if_known("gpu.name") or (), facts.value_if_known("gpu.capability") or (), strict=False)
    )
    if driver := what_if.get("driver", "").strip():
        newest = cuda.list_release_drivers()[-1]
        branch, last = versions.major_version(driver), versions.major_version(newest)
        if not FIRST_DRIVER_BRANCH <= branch <= last + NEWER_DRIVER_BRANCHES:
            raise ValueError(
                f"driver={driver}: there is no such driver of NVIDIA; the newest that is known is {newest}"
            )
        if vendor not in (None, "nvidia") and not capabilities:
            raise ValueError(f"driver is for the driver of NVIDIA GPUs, and this machine has those of {vendor}")
        for name, capability in capabilities:
            first = cuda.first_driver_branch(str(capability), facts.value_if_known("os.system"))[0]
            if first is not None and branch < first:
                raise ValueError(
                    f"driver={driver}: no driver before branch {first} knows the {name}; state driver={first} or newer"
                )
    for name, _ in capabilities if arch else ():
        host = (gpus.find_gpu(str(name)) or {}).get("host", arch)
        if host != arch:
            raise ValueError(f"arch={arch}: the {name} is built together with a processor of {host}")


def _complete_torch_flag(what_if: Mapping[str, str], platform: str) -> dict[str, str]:
    """Return ``torch=2.13.0`` as the build of that release which this platform has: ``2.13.0+rocm7.2``."""
    text = what_if.get("torch", "").strip()
    if not text or "+" in text:
        return {}
    known = torch.list_rocm_variants(text) if platform == "rocm" else ["cpu"] if platform == "mps" else []
    return {"torch": f"{text}+{known[-1]}"} if known else {}


def _source(devices: list[machine_names.NamedDevices]) -> str:
    """Name the rows, and what of them only one source says: ``-v`` and JSON show it."""
    return "catalogue: " + ", ".join(group.row["name"] + _describe_unconfirmed(group.row) for group in devices)


def _describe_unconfirmed(row: Mapping[str, Any]) -> str:
    fields = row.get("unconfirmed", ())
    return f" (not confirmed by a second source: {', '.join(fields)})" if fields else ""


def _nvidia_facts(devices: list[machine_names.NamedDevices]) -> list[Fact]:
    every = [group for group in devices for _ in range(group.count)]
    values: dict[str, object] = {
        "gpu.name": tuple(one.name for one in every),
        "gpu.capability": tuple(one.row["compute_capability"] for one in every),
        "gpu.memory": tuple(one.memory for one in every),
        "gpu.vendor": ("nvidia",) * len(every),
    }
    stated = {"gpu.count": len(every), "gpu.visible": tuple(range(len(every))), "visibility.cuda": None}
    return [
        *(Fact(key, value, _source(devices), "stated") for key, value in values.items()),
        *(Fact(key, value, "--on", "stated") for key, value in stated.items()),
    ]


def _other_vendor_facts(devices: list[machine_names.NamedDevices]) -> list[Fact]:
    """Return a machine without a GPU of NVIDIA; how much memory its accelerators have is not judged."""
    names = tuple(group.name for group in devices for _ in range(group.count))
    values: dict[str, object] = {
        "gpu.count": 0,
        "gpu.visible": (),
        "accelerator.vendor": devices[0].vendor,
        "accelerator.count": len(names),
        "accelerator.name": names,
    }
    return [Fact(key, value, _source(devices), "stated") for key, value in values.items()]


def what_if_facts(what_if: Mapping[str, str], arch: str) -> list[Fact]:
    """Return the facts that the what-if flags state."""
    facts: list[Fact] = []
    if "kernel" in what_if and "os" not in what_if:
        facts.append(Fact("os.system", "linux", "--as kernel", "stated"))
    for flag, text in what_if.items():
        facts += _FLAG_STATERS[flag](flag, text.strip(), arch)
    return facts


def _make_version_stater(key: str, *more: str) -> Any:
    def state_version(flag: str, text: str, arch: str) -> list[Fact]:
        if not versions.is_version(text):
            raise ValueError(f"{flag}={text}: not a version; write for example {flag}={_FLAG_EXAMPLES[flag]}")
        return [Fact(k, text, f"--as {flag}", "stated") for k in (key, *more)]

    return state_version


def _make_size_stater(key: str, *more: str) -> Any:
    def state_size(flag: str, text: str, arch: str) -> list[Fact]:
        return [Fact(k, parse_byte_size(flag, text), f"--as {flag}", "stated") for k in (key, *more)]

    return state_size


def parse_byte_size(flag: str, text: str) -> int:
    """Parse ``64GB`` as bytes. GB is 10^9, GiB is 2^30."""
    value = sizes.parse_size(text)
    if value is None:
        raise ValueError(f"{flag}={text}: not a size; write for example {flag}=64GB")
    if not 0 < value < 2**63:
        raise ValueError(f"{flag}={text}: not a size that a machine can have")
    return int(value)


def _state_torch(flag: str, text: str, arch: str) -> list[Fact]:
    version, variant = torch.parse_torch_version(text)
    if not versions.is_version(version):
        raise ValueError(f"{flag}={text}: not a version; write for example {flag}=2.8.0+cu128")
    stated: dict[str, object]
    if variant == "cpu" or (variant is None and torch.is_default_cpu_only(version, arch)):
        text = f"{version}+cpu"
        stated = {"torch.build": "cpu", "torch.cuda": None, "torch.arch": ()}
    elif variant in torch.list_rocm_variants(version) and arch == "x86_64":
        stated = {"torch.build": "rocm", "torch.cuda": None, "torch.hip": variant.removeprefix("rocm")}
    elif variant == "xpu" and torch.find_torch_release(version):
        stated = {"torch.build": "xpu", "torch.cuda": None}
    else:
        build = torch.find_torch_build(version, variant, arch)
        if build is None and versions.compare_versions(version, torch.list_torch_releases()[0]) < 0:
            return [
                Fact(key, text, f"--as {flag}", "stated") for key in ("torch.version", "package.torch")
            ]  # too old to be known
        if build is None:
            raise ValueError(
                f"{flag}={text}: the catalogue has no such build of torch for {arch}{_list_known_builds(version, arch)}"
            )
        stated = {"torch.build": "cuda", "torch.cuda": build.cuda, "torch.arch": tuple(build.arch)}
        text = f"{build.version}+{build.variant}"
    stated |= {"torch.version": text, "package.torch": text}
    return [Fact(key, value, f"--as {flag}", "stated") for key, value in stated.items()]


def _list_known_builds(version: str, arch: str) -> str:
    variants = [build.variant for build in torch.list_torch_builds(version, arch)]
    variants += torch.list_rocm_variants(version) if arch == "x86_64" else []
    if variants:
        return f"; it has {', '.join(variants)}"
    if torch.list_torch_builds(version):
        return f"; of {version} it has none for CUDA there"
    return f"; it knows {torch.list_torch_releases()[0]} to {torch.newest_torch()}"


def _state_os(flag: str, text: str, arch: str) -> list[Fact]:
    name = text.lower().replace(" ", "").replace("-", "")
    letters = name.rstrip("0123456789.")
    system_name = OS_ALIASES.get(letters, letters)
    row, version = systems.find_system(system_name), name[len(letters) :]
    if row is None:
        raise ValueError(
            f"{flag}={text}: no system of the catalogue has that name{_suggest_system(system_name, systems.list_systems())}"
        )
    stated: dict[str, object] = {"os.system": row["kind"], "os.name": system_name, "os.pretty": text}
    stated |= {"os.version": version or None, "os.wsl": system_name == "wsl"}
    library = systems.system_glibc(system_name, version)
    if library or systems.has_musl(system_name):
        stated["os.glibc"] = library
    return [Fact(key, value, f"--as {flag}", "stated") for key, value in stated.items()]


def _suggest_system(word: str, known: list[str]) -> str:
    from difflib import get_close_matches

    return f"; write one of {', '.join(get_close_matches(word, known, 3, 0.5) or known)}, such as ubuntu22.04"


def _state_kernel(flag: str, text: str, arch: str) -> list[Fact]:
    """A kernel as ``uname -r`` prints it: the leading numbers count."""
    numbers = text.partition("-")[0].partition("+")[0].strip(".")
    if not versions.is_version(numbers):
        raise ValueError(f"{flag}={text}: not a version; write for example {flag}={_FLAG_EXAMPLES[flag]}")
    return [Fact("os.kernel", numbers, f"--as {flag}", "stated"), Fact("os.release", text, f"--as {flag}", "stated")]


def _state_arch(flag: str, text: str, arch: str) -> list[Fact]:
    if text not in ("x86_64", "aarch64"):
        raise ValueError(f"{flag}={text}: must be x86_64 or aarch64")
    return [Fact("os.arch", text, f"--as {flag}", "stated")]


_FLAG_EXAMPLES = {"driver": "580.95.05", "toolkit": "12.8", "kernel": "6.8", "python-version": "3.12"}
_FLAG_STATERS = {
    "driver": _make_version_stater("driver.version", "driver.library"),
    "toolkit": _make_version_stater("toolkit.version"),
    "kernel": _state_kernel,
    "python-version": _make_version_stater("python.version"),
    "ram": _make_size_stater("memory.total", "memory.available"),
    "disk": _make_size_stater("disk.free"),
    "shm": _make_size_stater("system.shm"),
    "torch": _state_torch,
    "os": _state_os,
    "arch": _state_arch,
}
WHAT_IF_FLAGS = tuple(_FLAG_STATERS)
