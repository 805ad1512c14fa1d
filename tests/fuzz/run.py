"""Coverage-guided fuzzing of one reader: ``python -m tests.fuzz.run smi -max_total_time=600``.

Needs atheris (`pip install atheris`). New inputs go to a folder of their own; what is worth keeping is put into
``corpus/NAME`` by hand, small.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
LIMITS = ("-timeout=10", "-rss_limit_mb=2048", "-max_len=8192")


def main(name: str, flags: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["tarmac"]):
        from tests.fuzz.parsers import PARSERS, feed

        seed = next(iter((CORPUS / name).glob("*")), None)
        feed(name, seed.read_bytes() if seed else b"")  # what is imported late must be instrumented too
    if name not in PARSERS:
        raise SystemExit(f"there is no reader {name!r}: {', '.join(PARSERS)}")
    fresh = tempfile.mkdtemp(prefix=f"fuzz-{name}-")
    atheris.Setup([sys.argv[0], *LIMITS, *flags, fresh, str(CORPUS / name)], lambda data: feed(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
