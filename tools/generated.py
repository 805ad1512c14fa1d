"""Files that a tool makes: written, or with ``--check`` only compared; exit 1 where one is stale."""

import sys
from pathlib import Path


def stale(made: dict[Path, str]) -> list[Path]:
    """Those that are missing, or are not as they would be made now."""
    return [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def settle(made: dict[Path, str]) -> None:
    """What a tool does when it is called."""
    if "--check" in sys.argv[1:]:
        old = stale(made)
        for path in old:
            print(f"stale: {path.name}")
        sys.exit(1 if old else 0)
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
