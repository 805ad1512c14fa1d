"""Make the real locks of ROLL: uv resolves its variants for a linux x86_64 GPU machine, and the answer is kept as a lock.

    python benchmarks/locks.py [NAME ...]

They need a package index. ROLL itself is on none; what its requirement files ask for is locked. A lock names
indexes and holds no address.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT.parent / "src")]

from gpuready import contracts  # noqa: E402
from gpuready.apply.bundle import format_lock_file  # noqa: E402
from gpuready.apply.resolve import resolve_plan  # noqa: E402
from gpuready.catalog import catalog_date  # noqa: E402
from gpuready.catalog import torch as builds  # noqa: E402
from gpuready.model.plan import Plan  # noqa: E402
from gpuready.system import LiveHost  # noqa: E402

# name: framework, version, variant, Python, torch. All take the build that the default index serves.
LOCKS = {
    "roll-torch280-vllm": ("roll", "0.3.0", "torch280-vllm", "3.10", "2.8.0"),
    "roll-torch280-sglang": ("roll", "0.3.0", "torch280-sglang", "3.10", "2.8.0"),
}


def locked(name: str) -> Plan:
    framework, version, variant, python, torch = LOCKS[name]
    build = builds.find_torch_build(torch)
    assert build is not None and build.pypi
    contract = contracts.load_contract(framework, version, variant or None)
    plan = Plan(
        framework,
        version,
        "plan",
        variant=variant,
        machine="linux x86_64, NVIDIA GPU",
        python=python,
        torch=f"{torch}+{build.variant}",
        cuda=build.cuda,
        index="pypi",
        platform="x86_64-manylinux_2_28",
        catalog=catalog_date(),
    )
    return resolve_plan(LiveHost(), plan, contract, note=lambda line: print(f"  {name}: {line}", file=sys.stderr))


def main(names: list[str]) -> int:
    out = ROOT / "results"
    failed = 0
    for name in names or list(LOCKS):
        begun = time.monotonic()
        plan = locked(name)
        if not plan.lock:
            print(f"{name}: {plan.resolved} {[c.says for c in plan.conflicts]}", file=sys.stderr)
            failed = 1
            continue
        (out / f"{name}.lock").write_text(format_lock_file(plan), encoding="utf-8")
        print(f"{name}: {len(plan.lock)} packages, {time.monotonic() - begun:.1f} s")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
