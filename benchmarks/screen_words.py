"""The words of every first screen, before and after: what a newcomer has to learn.

    python benchmarks/screen_words.py PYTHON_BEFORE PYTHON_AFTER [-o FILE.json]

Both interpreters have a gpuready. Each command is run by both in an empty folder, with the same recorded machines; numbers, versions,
paths, names of packages with a digit and command-line flags are no words. A command that one of them lacks has no words there.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

MACHINES = Path(__file__).parent.parent / "tests" / "machines"
JOB = "import os\nif os.environ['RANK'] == '1':\n    raise ValueError('the shard of rank 1 is empty')\n"
LOG = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    import torch\n' + (
    "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
)
SCREENS = {
    "--help": ["--help"],
    "fit --help": ["fit", "--help"],
    "check": ["check", "transformers", "--on", "old-driver.json"],
    "check, no problems": ["check", "transformers", "--on", "h200.json"],
    "check, can't tell": ["check", "trl", "--on", "8xH100"],
    "fix": ["fix", "transformers", "--dry-run"],
    "plan": ["plan", "transformers", "--on", "old-driver.json", "--offline"],
    "fit": ["fit", "Qwen/Qwen3-8B"],
    "fit for a machine": ["fit", "Qwen/Qwen3-8B", "--on", "8xH100"],
    "diagnose": ["diagnose", "job.log"],
    "run": ["run", "--nproc", "2", "--", "job.py"],
    "fleet": ["fleet", "check", "transformers", "h200.json", "old-driver.json"],
    "prove": ["prove", "transformers"],
    "issue": ["issue", "transformers"],
}


def words_of(python: str, argv: list[str], folder: str) -> list[str]:
    """Return the words of one screen, in the order of the alphabet; none where the command is refused as unknown."""
    done = subprocess.run([python, "-m", "gpuready", *argv], cwd=folder, capture_output=True, text=True, timeout=300)
    text = done.stdout if done.stdout.strip() else "" if done.returncode == 2 else done.stderr
    text = re.sub(r"(?<!\w)--?[a-z][\w-]*|\S*[\d/\\=_@]\S*", " ", text)
    return sorted({word.lower() for word in re.findall(r"[A-Za-z][A-Za-z'-]*[a-z]", text)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("-o", default="/dev/stdout")
    args = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("old-driver.json", "h200.json"):
            (Path(folder) / name).write_bytes((MACHINES / name).read_bytes())
        (Path(folder) / "job.py").write_text(JOB)
        (Path(folder) / "job.log").write_text(LOG)
        for name, argv in SCREENS.items():
            before, after = (words_of(python, argv, folder) for python in (args.before, args.after))
            rows[name] = {
                "command": " ".join(argv),
                "before": len(before),
                "after": len(after),
                "gone": " ".join(sorted(set(before) - set(after))),
                "new": " ".join(sorted(set(after) - set(before))),
                "kept": " ".join(sorted(set(after) & set(before))),
            }
    Path(args.o).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
