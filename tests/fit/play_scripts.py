"""Watch many small scripts after one import of torch: a folder with the scripts, whose replies are written beside them."""

import json
import os
import sys
from pathlib import Path

import watch

CARD = {"name": "NVIDIA H100 80GB HBM3", "capability": [9, 0], "memory": 85_017_100_288, "processors": 132}
WHOLE = (
    "loop",
    "lengths",
    "penalty",
    "ahead",
    "looks",
)  # watched as long as a user's script; the others for three steps


def main(folder: str) -> None:
    for path in sorted(Path(folder).glob("*.py")):
        child = os.fork()
        if not child:
            world = int(path.stem.rpartition("_of_")[2]) if "_of_" in path.stem else 1
            whole = path.stem in WHOLE
            request = {
                "kind": "script", "words": [str(path), "--lr", "1"], "card": CARD, "count": world, "world": world, "steps": 5 if path.stem in ("ahead", "looks") else 2 if whole else 3, "seconds": 0 if path.stem in ("ahead", "looks") else 60, "exact": not whole,
                "launcher": "", "launcher_words": [], "reply": f"{path}.json", "journal": f"{path}.journal", "backups": f"{path}.kept",
            }  # fmt: skip
            os.mkdir(f"{path}.kept")
            Path(f"{path}.asked").write_text(json.dumps(request))
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.argv = ["watch.py", f"{path}.asked"]
            watch.main()
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
