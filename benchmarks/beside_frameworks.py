"""Does tarmac stand in the way of a framework? uv resolves each alone, and again with tarmac's requirements beside it.

The same versions must come out but for what tarmac adds; an extra (a server, an agent's tools) that cannot stand beside one is
named. Those belong into an environment of tarmac's own: ``python benchmarks/beside_frameworks.py [NAME ...] [-o FILE]``. ROLL is on
no index: its stacks are the kept locks, which `tarmac plan roll --source` made from its own files.
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
    "transformers": ("transformers[torch]==5.22.0", "3.12"),
    "axolotl": ("axolotl==0.21.0", "3.12"),
    "colossalai": ("colossalai==0.5.0", "3.11"),
    "vllm": ("vllm==0.32.0", "3.12"),
    "sglang": ("sglang==0.5.23", "3.12"),
    "trl": ("trl==1.16.0", "3.12"),
    "unsloth": ("unsloth", "3.12"),
    "llama-factory": ("llamafactory==0.9.5", "3.12"),
    "verl": ("verl==0.9.1", "3.12"),
}
"""What each is asked for as, and the Python that it is resolved for; a version that the index lacks is left open."""


LOCKED = {
    "roll, torch 2.8, vllm": "roll-torch280-vllm",
    "roll, torch 2.8, sglang": "roll-torch280-sglang",
}
"""Stacks that stand in benchmarks/results/locks already."""
EXTRAS = ("yaml", "web", "mcp", "ray", "docs")


def own(extra: str = "") -> list[str]:
    """tarmac's requirements, from pyproject.toml: those that it always has, and those of an extra."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else ())]


PLATFORMS = {"sglang==0.5.23": "x86_64-manylinux_2_34"}  # its wheels ask for a newer glibc


def resolved(lines: list[str], python: str, beside: tuple[str, ...] = ()) -> tuple[dict[str, str], str]:
    """Name -> version, or why there is no solution; what stands ``beside`` may not change."""
    with tempfile.TemporaryDirectory() as folder:
        asked, fixed = Path(folder) / "asked.in", Path(folder) / "fixed.txt"
        asked.write_text("\n".join(lines) + "\n")
        fixed.write_text("\n".join(beside) + "\n")
        words = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
        words += ["--python-version", python, "--python-platform", platform_of([*lines, *beside])]
        done = subprocess.run(
            [*words, "-c", str(fixed), str(asked)], capture_output=True, text=True, timeout=300
        )
    if done.returncode:
        return {}, " ".join(done.stderr.split())[-400:]
    rows = (line.partition(" ;")[0].strip() for line in done.stdout.splitlines())
    return dict(row.split("==", 1) for row in rows if "==" in row), ""


def platform_of(lines: list[str]) -> str:
    return next((PLATFORMS[line] for line in lines if line in PLATFORMS), "x86_64-manylinux_2_28")


def compared(name: str) -> dict[str, Any]:
    asked, python = PINNED[name]
    begun = time.monotonic()
    alone, why = resolved([asked], python)
    if why and "==" in asked:
        asked = asked.partition("==")[0]
        alone, why = resolved([asked], python)
    if why:
        return {"framework": name, "asked": asked, "python": python, "unresolved_alone": why}
    pinned = [f"{package}=={version}" for package, version in alone.items()]
    both, clash = resolved([*pinned, *own()], python)
    changed = {one: [alone[one], both.get(one)] for one in alone if both.get(one) != alone[one]}
    return {
        "framework": name, "asked": asked, "python": python, "version": alone.get(asked.partition("[")[0].partition("==")[0]),
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
        one: [alone.get(one), both.get(one)]
        for one in sorted({*alone, *both})
        if alone.get(one) != both.get(one)
    }


def locked(name: str) -> dict[str, Any]:
    """The same for a stack that was resolved before: nothing of it may change, so it stands beside."""
    kept = json.loads((ROOT / "benchmarks" / "results" / "locks" / f"{LOCKED[name]}.lock").read_text())
    stack = {row["name"]: row["version"] for row in kept["lock"]}
    begun = time.monotonic()
    both, clash = resolved(own(), kept["python"], beside=tuple(f"{k}=={v}" for k, v in stack.items()))
    return {
        "framework": name, "asked": f"benchmarks/results/locks/{LOCKED[name]}.lock", "python": kept["python"],
        "version": kept["version"], "packages": len(stack), "conflict": clash, "changed": {},
        "added": sorted(set(both) - set(stack)), "extras_that_conflict": clashes(stack, kept["python"]),
        "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def main() -> int:
    known = [*PINNED, *LOCKED]
    rows = []
    for name in [word for word in sys.argv[1:] if word in known] or known:
        rows.append(compared(name) if name in PINNED else locked(name))
        print(json.dumps(rows[-1])[:300], flush=True)
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": platform.platform(),
        "command": "python benchmarks/beside_frameworks.py",
        "tarmac_requires": own(),
        "extras": {extra: own(extra)[len(own()) :] for extra in EXTRAS},
        "frameworks": rows,
    }
    if "-o" in sys.argv:
        Path(sys.argv[sys.argv.index("-o") + 1]).write_text(json.dumps(result, indent=1) + "\n")
    return int(any(row.get("conflict") or row.get("changed") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
