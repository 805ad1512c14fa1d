"""A hypothetical machine: a GPU name from the catalogue plus the what-if flags.

Everything else stays ``not stated``, which is neither absent nor unknown; this machine's own packages are
never mixed in.
"""

from __future__ import annotations

from gpuready.catalog import gpus, systems, torch
from gpuready.model import NOT_STATED, Fact, Facts, sizes, versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

OS_ALIASES = {
    "darwin": "macos",
    "redhat": "rhel",
    "alma": "almalinux",
    "amazonlinux": "amzn",
    "al": "amzn",
    "win": "windows",
}


def stated_machine_facts(name: str, what_if: Mapping[str, str]) -> Facts:
    """Return ``h100x8`` and the flags as facts. ValueError suggests the nearest GPU names."""
    row, count = _parse_gpu_name(name)
    source = f"catalogue: {row['name']}"
    gpu_values = {
        "gpu.name": row["name"],
        "gpu.capability": row["compute_capability"],
        "gpu.memory": int(row["vram_gib"] * 2**30),
        "gpu.vendor": "nvidia",
    }
    facts = [Fact(key, (value,) * count, source, "stated") for key, value in gpu_values.items()]
    facts += [
        Fact("platform.name", "cuda", source, "stated"),
        Fact("gpu.count", count, "--on", "stated"),
        Fact("gpu.visible", tuple(range(count)), "--on", "stated"),
        Fact("visibility.cuda", None, "--on", "stated"),
    ]
    facts += what_if_facts(
        {"arch": row.get("host", "x86_64")} | dict(what_if), what_if.get("arch") or row.get("host", "x86_64")
    )
    return Facts(facts, name, NOT_STATED)


def _parse_gpu_name(name: str) -> tuple[dict[str, Any], int]:
    parsed = gpus.parse_machine(name)
    if parsed is None:
        near = ", ".join(gpus.suggest_gpu_names(name) or gpus.suggest_gpu_names(name.lower().rpartition("x")[0]))
        hint = f"nearest: {near}" if near else "write for example h100x8, rtx4090 or v100x4, or name a recording"
        raise ValueError(f"--on {name!r}: no GPU of the catalogue has that name; {hint}")
    row, count = parsed
    if not 1 <= count <= 1024:
        raise ValueError(f"--on {name}: a machine has between 1 and 1024 GPUs, not {count}")
    return row, count


def what_if_facts(what_if: Mapping[str, str], arch: str) -> list[Fact]:
    """Return the facts that the what-if flags state."""
    facts: list[Fact] = []
    if "kernel" in what_if and "os" not in what_if:
        facts.append(Fact("os.system", "linux", "--kernel", "stated"))
    for flag, text in what_if.items():
        facts += _FLAG_STATERS[flag](f"--{flag}", text.strip(), arch)
    return facts


def _make_version_stater(key: str, *more: str) -> Any:
    def state_version(flag: str, text: str, arch: str) -> list[Fact]:
        if not versions.is_version(text):
            raise ValueError(f"{flag} {text}: not a version; write for example {flag} {_FLAG_EXAMPLES[flag]}")
        return [Fact(k, text, flag, "stated") for k in (key, *more)]

    return state_version


def _make_size_stater(key: str, *more: str) -> Any:
    def state_size(flag: str, text: str, arch: str) -> list[Fact]:
        return [Fact(k, parse_byte_size(flag, text), flag, "stated") for k in (key, *more)]

    return state_size


def parse_byte_size(flag: str, text: str) -> int:
    """Parse ``64GB`` as bytes. GB is 10^9, GiB is 2^30."""
    value = sizes.parse_size(text)
    if value is None:
        raise ValueError(f"{flag} {text}: not a size; write for example {flag} 64GB")
    if not 0 < value < 2**63:
        raise ValueError(f"{flag} {text}: not a size that a machine can have")
    return int(value)


def _state_torch(flag: str, text: str, arch: str) -> list[Fact]:
    version, variant = torch.parse_torch_version(text)
    if not versions.is_version(version):
        raise ValueError(f"{flag} {text}: not a version; write for example {flag} 2.8.0+cu128")
    stated: dict[str, object]
    if variant == "cpu":
        stated = {"torch.build": "cpu", "torch.cuda": None, "torch.arch": ()}
    else:
        build = torch.find_torch_build(version, variant, arch)
        if build is None:
            raise ValueError(
                f"{flag} {text}: the catalogue has no such build of torch for {arch}{_list_known_builds(version, arch)}"
            )
        stated = {"torch.build": "cuda", "torch.cuda": build.cuda, "torch.arch": tuple(build.arch)}
        text = f"{build.version}+{build.variant}"
    stated |= {"torch.version": text, "package.torch": text}
    return [Fact(key, value, flag, "stated") for key, value in stated.items()]


def _list_known_builds(version: str, arch: str) -> str:
    variants = [build.variant for build in torch.list_torch_builds(version, arch)]
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
            f"{flag} {text}: no system of the catalogue has that name{_suggest_system(system_name, systems.list_systems())}"
        )
    stated: dict[str, object] = {"os.system": row["kind"], "os.name": system_name, "os.pretty": text}
    stated |= {"os.version": version or None, "os.wsl": system_name == "wsl"}
    if library := systems.system_glibc(system_name, version):
        stated["os.glibc"] = library
    return [Fact(key, value, flag, "stated") for key, value in stated.items()]


def _suggest_system(word: str, known: list[str]) -> str:
    from difflib import get_close_matches

    return f"; write one of {', '.join(get_close_matches(word, known, 3, 0.5) or known)}, such as ubuntu22.04"


def _state_kernel(flag: str, text: str, arch: str) -> list[Fact]:
    """A kernel as ``uname -r`` prints it: the leading numbers count."""
    numbers = text.partition("-")[0].partition("+")[0].strip(".")
    if not versions.is_version(numbers):
        raise ValueError(f"{flag} {text}: not a version; write for example {flag} {_FLAG_EXAMPLES[flag]}")
    return [Fact("os.kernel", numbers, flag, "stated"), Fact("os.release", text, flag, "stated")]


def _state_arch(flag: str, text: str, arch: str) -> list[Fact]:
    if text not in ("x86_64", "aarch64"):
        raise ValueError(f"{flag} {text}: must be x86_64 or aarch64")
    return [Fact("os.arch", text, flag, "stated")]


_FLAG_EXAMPLES = {"--driver": "580.95.05", "--toolkit": "12.8", "--kernel": "6.8", "--python-version": "3.12"}
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
