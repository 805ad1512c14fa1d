"""Does gpuready stand in the way of a framework? uv resolves each alone, and again with gpuready's requirements beside it.

The same versions must come out but for what gpuready adds; an extra (a server, an agent's tools) that cannot stand beside one is
named. Those belong into an environment of gpuready's own: ``python benchmarks/beside_frameworks.py [NAME ...] [-o FILE]``. ROLL is on
no index: its stacks are the kept locks, which `gpuready plan roll --source` made from its own files.
"""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PINNED = {
    "transformers": ("transformers[torch]", "3.12", ("5.22.2", "4.57.6")),
    "axolotl": ("axolotl", "3.12", ("0.21.0", "0.18.0")),
    "colossalai": ("colossalai", "3.11", ("0.5.0", "0.4.9")),
    "vllm": ("vllm", "3.12", ("0.32.0", "0.24.0")),
    "sglang": ("sglang", "3.12", ("0.5.23", "0.5.15")),
    "trl": ("trl", "3.12", ("1.16.0", "0.29.1")),
    "unsloth": ("unsloth", "3.12", ("2026.10.7", "2026.7.6")),
    "llama-factory": ("llamafactory", "3.12", ("0.9.5", "0.9.3")),
    "verl": ("verl", "3.12", ("0.9.1", "0.7.1")),
}
"""What each is asked for as, the Python that it is resolved for, and its releases: the newest, and one of about half a year before."""
AT_ONCE = 4
"""Resolutions that run side by side: each waits for the index most of the time."""


LOCKED = {"roll, torch 2.8, vllm": "roll-torch280-vllm", "roll, torch 2.8, sglang": "roll-torch280-sglang"}
"""Stacks that stand in benchmarks/results already."""
PLATFORM = "x86_64-manylinux_2_34"
"""The wheels of sglang ask for this glibc."""
EXTRAS = ("web", "mcp", "ray", "docs")


def own(extra: str = "") -> list[str]:
    """gpuready's requirements, from pyproject.toml: those that it always has, and those of an extra."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else ())]


def resolved(lines: list[str], python: str, beside: tuple[str, ...] = ()) -> tuple[dict[str, str], str]:
    """Name -> version, or why there is no solution; what stands ``beside`` may not change."""
    with tempfile.TemporaryDirectory() as folder:
        asked, fixed = Path(folder) / "asked.in", Path(folder) / "fixed.txt"
        asked.write_text("\n".join(lines) + "\n")
        fixed.write_text("\n".join(beside) + "\n")
        words = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
        words += ["--python-version", python, "--python-platform", PLATFORM]
        done = subprocess.run([*words, "-c", str(fixed), str(asked)], capture_output=True, text=True, timeout=600)
    if done.returncode:
        return {}, " ".join(done.stderr.split())[-400:]
    rows = (line.partition(" ;")[0].strip() for line in done.stdout.splitlines())
    return dict(row.split("==", 1) for row in rows if "==" in row), ""


def compared(name: str, release: str) -> dict[str, Any]:
    project, python, _ = PINNED[name]
    asked, begun = f"{project}=={release}", time.monotonic()
    alone, why = resolved([asked], python)
    if why:
        return {"framework": name, "asked": asked, "python": python, "version": release, "unresolved_alone": why}
    pinned = [f"{package}=={version}" for package, version in alone.items()]
    both, clash = resolved([*pinned, *own()], python)
    changed = {one: [alone[one], both.get(one)] for one in alone if both.get(one) != alone[one]}
    return {
        "framework": name, "asked": asked, "python": python, "version": release,
        "packages": len(alone), "conflict": clash, "changed": {} if clash else changed,
        "added": sorted(set(both) - set(alone)), "extras_that_conflict": (bad := clashes(alone, python)),
        "resolved_together": {extra: together(asked, extra, alone, python) for extra in bad},
        "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def clashes(stack: dict[str, str], python: str) -> dict[str, str]:
    """The extras that cannot be had without changing a version of a stack, each with uv's reason."""
    fixed = tuple(f"{package}=={version}" for package, version in stack.items())
    found = {extra: resolved(own(extra), python, beside=fixed)[1] for extra in EXTRAS}
    return {extra: why for extra, why in found.items() if why}


def together(asked: str, extra: str, alone: dict[str, str], python: str) -> Any:
    """Where an extra changes the stack: what uv changes when it is asked for both at once, or why it cannot."""
    both, why = resolved([asked, *own(extra)], python)
    return why or {
        one: [alone.get(one), both.get(one)] for one in sorted({*alone, *both}) if alone.get(one) != both.get(one)
    }


def locked(name: str) -> dict[str, Any]:
    """The same for a stack that was resolved before: nothing of it may change, so it stands beside."""
    kept = json.loads((ROOT / "benchmarks" / "results" / f"{LOCKED[name]}.lock").read_text())
    stack = {row["name"]: row["version"] for row in kept["lock"]}
    begun = time.monotonic()
    both, clash = resolved(own(), kept["python"], beside=tuple(f"{k}=={v}" for k, v in stack.items()))
    return {
        "framework": name, "asked": f"benchmarks/results/{LOCKED[name]}.lock", "python": kept["python"],
        "version": kept["version"], "packages": len(stack), "conflict": clash, "changed": {},
        "added": sorted(set(both) - set(stack)), "extras_that_conflict": clashes(stack, kept["python"]),
        "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def rows(names: list[str]) -> list[dict[str, Any]]:
    """Of every framework each release, some at a time, in the order of the tables above."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = [
            pool.submit(compared, name, release) for name in names if name in PINNED for release in PINNED[name][2]
        ]
        waiting += [pool.submit(locked, name) for name in names if name in LOCKED]
        for one in waiting:
            print(json.dumps(one.result())[:300], flush=True)
    return [one.result() for one in waiting]


def main() -> int:
    known = [*PINNED, *LOCKED]
    found = rows([word for word in sys.argv[1:] if word in known] or known)
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": platform.platform(),
        "command": "python benchmarks/beside_frameworks.py",
        "gpuready_requires": own(),
        "extras": {extra: own(extra)[len(own()) :] for extra in EXTRAS},
        "frameworks": found,
    }
    if "-o" in sys.argv:
        Path(sys.argv[sys.argv.index("-o") + 1]).write_text(json.dumps(result, indent=1) + "\n")
    return int(any(row.get("conflict") or row.get("changed") or row.get("unresolved_alone") for row in found))


if __name__ == "__main__":
    sys.exit(main())
