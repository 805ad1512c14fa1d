"""How long ``gpuready fit`` takes, whole process, and how much memory it needs itself.

    python benchmarks/fit_speed.py [--repeat 7] [-o FILE]

The commands run in turn, round after round, so that a busy moment falls on all. ``prediction`` is one answer for an 8B model
that fits; ``smallest change`` one that does not, with its search; ``largest`` and ``every GPU`` ask several times. On a
machine with other work the seconds of the processor say more than those of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIT = [sys.executable, "-m", "gpuready", "fit"]
KINDS = {
    "python start": [sys.executable, "-c", "pass"],
    "prediction, 1B": [*FIT, "llama-3.2-1b", "--on", "h200", "-q"],
    "prediction, 8B": [*FIT, "llama-3.1-8b", "--on", "h200", "-q"],
    "prediction, 8B LoRA": [*FIT, "llama-3.1-8b", "--method", "lora", "--on", "h200", "-q"],
    "prediction, 8B QLoRA, checkpointing": [*FIT, "llama-3.1-8b", "--method", "qlora", "--gradient-checkpointing", "--on", "h200", "-q"],
    "prediction, 8B, accumulation 8": [*FIT, "llama-3.1-8b", "--accumulation", "8", "--on", "h200", "-q"],
    "prediction, 8B LoRA, DPO": [*FIT, "llama-3.1-8b", "--method", "lora", "--dpo", "--on", "h200", "-q"],
    "prediction, 8B, ZeRO-3 over 8": [*FIT, "llama-3.1-8b", "--zero", "3", "--on", "h200x8", "-q"],
    "prediction, 8B, FSDP2 over 8": [*FIT, "llama-3.1-8b", "--fsdp", "--on", "h200x8", "-q"],
    "prediction, 8B, generation": [*FIT, "llama-3.1-8b", "--task", "generate", "--new-tokens", "1024", "--on", "h200", "-q"],
    "prediction, 70B": [*FIT, "llama-3.1-70b", "--task", "generate", "--on", "b300", "-q"],
    "smallest change, 8B on one H100": [*FIT, "llama-3.1-8b", "--micro-batch", "4", "--seq", "4096", "--on", "h100", "-q"],
    "smallest change, 8B on an RTX 4090": [*FIT, "llama-3.1-8b", "--micro-batch", "4", "--seq", "4096", "--on", "rtx4090", "-q"],
    "smallest change, 8B, ZeRO-3 on 8 A100": [*FIT, "llama-3.1-8b", "--zero", "3", "--micro-batch", "16", "--seq", "8192", "--on", "a100x8", "-q"],
    "smallest change, 8B QLoRA on an RTX 4090": [*FIT, "llama-3.1-8b", "--method", "qlora", "--micro-batch", "16", "--seq", "4096", "--on", "rtx4090", "-q"],
    "smallest change, 8B LoRA, DPO on an RTX 4090": [*FIT, "llama-3.1-8b", "--method", "lora", "--dpo", "--micro-batch", "4", "--seq", "4096", "--on", "rtx4090", "-q"],
    "largest micro-batch, 8B LoRA": [*FIT, "llama-3.1-8b", "--method", "lora", "--max", "micro-batch", "--on", "h100", "-q"],
    "every GPU, 8B": [*FIT, "llama-3.1-8b", "--gpus", "-q"],
}  # fmt: skip


def timed(argv: list[str], compiled: str) -> tuple[float, float, int]:
    """Seconds on the clock, seconds of the processor, and the peak memory in bytes."""
    begun = time.monotonic()
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONPYCACHEPREFIX": compiled}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: the first, untimed round compiles
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - begun
    if os.waitstatus_to_exitcode(status) not in (0, 1, 3):
        raise SystemExit(f"{' '.join(argv)}: {child.stderr.read().decode() if child.stderr else ''}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("-o", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as compiled:
        whole = measured(args.repeat, compiled)
    text = json.dumps(whole, indent=2) + "\n"
    if args.o:
        Path(args.o).write_text(text)
    print(text, end="")
    return 0


def measured(repeat: int, compiled: str) -> dict[str, object]:
    runs: dict[str, list[tuple[float, float, int]]] = {name: [] for name in KINDS}
    for argv in KINDS.values():
        timed(argv, compiled)
    for _ in range(repeat):
        for name, argv in KINDS.items():
            runs[name].append(timed(argv, compiled))
    rows = {
        name: {
            "median_s": round(statistics.median(r[0] for r in found), 4),
            "least_s": round(min(r[0] for r in found), 4),
            "processor_s": round(statistics.median(r[1] for r in found), 4),
            "peak_bytes": max(r[2] for r in found),
        }
        for name, found in runs.items()
    }
    return {
        "date": date.today().isoformat(),
        "command": " ".join(sys.argv),
        "repeat": repeat,
        "load": os.getloadavg()[0],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "rows": rows,
    }


if __name__ == "__main__":
    sys.exit(main())
