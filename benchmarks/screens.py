"""The screen of `gpuready check` of another checkout and of this one, side by side, for nine recorded machines.

python benchmarks/screens.py OTHER_CHECKOUT -o benchmarks/results/screens-before-after.md
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tests.machines import goldens  # noqa: E402

MACHINES = {
    "h200-real": "axolotl", "lost": "transformers", "old-driver": "transformers", "v100": "axolotl", "kubernetes": "transformers",
    "cpu-torch": "trl", "halves": "vllm", "no-driver": "transformers", "rtx5090-old-torch": "vllm",
}  # fmt: skip
MAIN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gpuready.cli import main; main()"
WIDTH = 80


def check_screen(checkout: Path, recording: Path, framework: str) -> list[str]:
    """What a checkout prints for a recording, in 80 columns, without the time it took."""
    words = [sys.executable, "-P", "-c", MAIN, str(checkout / "src"), "check", framework, "--on", recording.name]
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "COLUMNS": str(WIDTH), "HOME": "/nonexistent"}
    done = subprocess.run(words, env=environment, cwd=recording.parent, capture_output=True, text=True)
    return [re.sub(r" +\d+\.\d+s$", "", line) for line in done.stdout.splitlines()]


def format_machine(name: str, framework: str, before: list[str], after: list[str]) -> str:
    says = goldens.REAL.get(name) or (goldens.park.MACHINES[name].__doc__ or "").strip()
    rows = [f"{a:<{WIDTH}} | {b}".rstrip() for a, b in zip_longest(before, after, fillvalue="")]
    lines = "\n".join([f"{f'before, {len(before)} lines':<{WIDTH}} | after, {len(after)} lines", *rows])
    return f"## {name}, {framework}\n\n{says}\n\n```text\n{lines}\n```\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    parts, counts = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, framework in MACHINES.items():
            path = Path(folder, f"{name}.json")
            path.write_text(goldens.recorded(name, framework))
            screens = [check_screen(tree, path, framework) for tree in (options.other.resolve(), ROOT)]
            parts.append(format_machine(name, framework, *screens))
            counts.append(f"| {name} | {framework} | {len(screens[0])} | {len(screens[1])} |")
    head = "# The screen of check, before and after\n\nMade by `python benchmarks/screens.py`, 80 columns; `-v` has the details.\n"
    table = "\n".join(["| machine | framework | lines before | lines after |", "|---|---|---|---|", *counts])
    options.output.write_text("\n".join([head, table + "\n", *parts]))


if __name__ == "__main__":
    main()
