"""A hypothetical machine: a GPU name from the catalogue plus the what-if flags.

Everything else stays ``not stated``, which is neither absent nor unknown; this machine's own packages are
never mixed in.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import gpus, systems, torch
from gpuready.model import NOT_STATED, Fact, Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ALSO_CALLED = {
    "darwin": "macos",
    "redhat": "rhel",
    "alma": "almalinux",
    "amazonlinux": "amzn",
    "al": "amzn",
    "win": "windows",
}
UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
UNITS |= {
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}


def machine(name: str, what_if: Mapping[str, str]) -> Facts:
    """Return ``h100x8`` and the flags as facts. ValueError suggests the nearest GPU names."""
    row, count = _gpu(name)
    source = f"catalogue: {row['name']}"
    each = {
        "gpu.name": row["name"],
        "gpu.capability": row["compute_capability"],
        "gpu.memory": int(row["vram_gib"] * 2**30),
        "gpu.vendor": "nvidia",
    }
    facts = [Fact(key, (value,) * count, source, "stated") for key, value in each.items()]
    facts += [
        Fact("platform.name", "cuda", source, "stated"),
        Fact("gpu.count", count, "--on", "stated"),
        Fact("gpu.visible", tuple(range(count)), "--on", "stated"),
        Fact("visibility.cuda", None, "--on", "stated"),
    ]
    facts += variations(
        {"arch": row.get("host", "x86_64")} | dict(what_if), what_if.get("arch") or row.get("host", "x86_64")
    )
    return Facts(facts, name, NOT_STATED)


def _gpu(name: str) -> tuple[dict[str, Any], int]:
    parsed = gpus.parse_machine(name)
    if parsed is None:
        near = ", ".join(gpus.suggest(name) or gpus.suggest(name.lower().rpartition("x")[0]))
        hint = (
            f"nearest: {near}" if near else "write for example h100x8, rtx4090 or v100x4, or name a recording"
        )
        raise ValueError(f"--on {name!r}: no GPU of the catalogue has that name; {hint}")
    row, count = parsed
    if not 1 <= count <= 1024:
        raise ValueError(f"--on {name}: a machine has between 1 and 1024 GPUs, not {count}")
    return row, count


def variations(what_if: Mapping[str, str], arch: str) -> list[Fact]:
    """Return the facts that the what-if flags state."""
    facts: list[Fact] = []
    for flag, text in what_if.items():
        facts += _STATERS[flag](f"--{flag}", text.strip(), arch)
    return facts


def _version(key: str, *more: str) -> Any:
    def state(flag: str, text: str, arch: str) -> list[Fact]:
        if not versions.is_version(text):
            raise ValueError(f"{flag} {text}: not a version; write for example {flag} {_EXAMPLES[flag]}")
        return [Fact(k, text, flag, "stated") for k in (key, *more)]

    return state


def _bytes(key: str, *more: str) -> Any:
    def state(flag: str, text: str, arch: str) -> list[Fact]:
        return [Fact(k, quantity(flag, text), flag, "stated") for k in (key, *more)]

    return state


def quantity(flag: str, text: str) -> int:
    """Parse ``64GB`` as bytes. GB is 10^9, GiB is 2^30."""
    number = text.rstrip("bBkKmMgGtTiI ")
    unit = text[len(number) :].strip().lower() or "b"
    try:
        value = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        raise ValueError(f"{flag} {text}: not a size; write for example {flag} 64GB") from None
    if not 0 < value < 2**63 or not text.isascii():
        raise ValueError(f"{flag} {text}: not a size that a machine can have")
    return int(value)


def _torch(flag: str, text: str, arch: str) -> list[Fact]:
    version, variant = torch.parse(text)
    if not versions.is_version(version):
        raise ValueError(f"{flag} {text}: not a version; write for example {flag} 2.8.0+cu128")
    stated: dict[str, object]
    if variant == "cpu":
        stated = {"torch.build": "cpu", "torch.cuda": None, "torch.arch": ()}
    else:
        build = torch.build(version, variant, arch)
        if build is None:
            raise ValueError(
                f"{flag} {text}: the catalogue has no such build of torch for {arch}{_known(version, arch)}"
            )
        stated = {"torch.build": "cuda", "torch.cuda": build.cuda, "torch.arch": tuple(build.arch)}
        text = f"{build.version}+{build.variant}"
    stated |= {"torch.version": text, "package.torch": text}
    return [Fact(key, value, flag, "stated") for key, value in stated.items()]


def _known(version: str, arch: str) -> str:
    variants = [build.variant for build in torch.builds(version, arch)]
    if variants:
        return f"; it has {', '.join(variants)}"
    if torch.builds(version):
        return f"; of {version} it has none for CUDA there"
    return f"; it knows {torch.releases()[0]} to {torch.newest()}"


def _os(flag: str, text: str, arch: str) -> list[Fact]:
    name = text.lower().replace(" ", "").replace("-", "")
    letters = name.rstrip("0123456789.")
    own = ALSO_CALLED.get(letters, letters)
    row, version = systems.system(own), name[len(letters) :]
    if row is None:
        raise ValueError(
            f"{flag} {text}: no system of the catalogue has that name{_nearest(own, systems.names())}"
        )
    stated: dict[str, object] = {"os.system": row["kind"], "os.name": own, "os.pretty": text}
    stated |= {"os.version": version or None, "os.wsl": own == "wsl"}
    if library := systems.glibc(own, version):
        stated["os.glibc"] = library
    return [Fact(key, value, flag, "stated") for key, value in stated.items()]


def _nearest(word: str, known: list[str]) -> str:
    from difflib import get_close_matches

    return f"; write one of {', '.join(get_close_matches(word, known, 3, 0.5) or known)}, such as ubuntu22.04"


def _kernel(flag: str, text: str, arch: str) -> list[Fact]:
    """A kernel as ``uname -r`` prints it: the leading numbers count."""
    numbers = text.partition("-")[0].partition("+")[0].strip(".")
    if not versions.is_version(numbers):
        raise ValueError(f"{flag} {text}: not a version; write for example {flag} {_EXAMPLES[flag]}")
    return [Fact("os.kernel", numbers, flag, "stated"), Fact("os.release", text, flag, "stated")]


def _arch(flag: str, text: str, arch: str) -> list[Fact]:
    if text not in ("x86_64", "aarch64"):
        raise ValueError(f"{flag} {text}: must be x86_64 or aarch64")
    return [Fact("os.arch", text, flag, "stated")]


_EXAMPLES = {"--driver": "580.95.05", "--toolkit": "12.8", "--kernel": "6.8", "--python-version": "3.12"}
_STATERS = {
    "driver": _version("driver.version", "driver.library"),
    "toolkit": _version("toolkit.version"),
    "kernel": _kernel,
    "python-version": _version("python.version"),
    "ram": _bytes("memory.total", "memory.available"),
    "disk": _bytes("disk.free"),
    "shm": _bytes("system.shm"),
    "torch": _torch,
    "os": _os,
    "arch": _arch,
}
FLAGS = tuple(_STATERS)
