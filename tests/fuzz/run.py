"""Coverage-guided fuzzing of one reader: ``python -m tests.fuzz.run smi -max_total_time=600``.

Needs atheris (`pip install atheris`). New inputs go to ``FUZZ_FOLDER`` (a new folder unless it is set); what is worth keeping is
put into ``corpus/NAME`` by hand, small. An exception does not end the run: the first input of each kind is kept
with its traceback, and the search goes on. ``tests/fuzz/all.py`` runs every reader at once.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
LIMITS = ("-timeout=20", "-rss_limit_mb=2048", "-max_len=8192", "-print_final_stats=1")


def main(name: str, flags: list[str]) -> None:
    import atheris

    folder = Path(os.environ.get("FUZZ_FOLDER") or tempfile.mkdtemp(prefix="fuzz-"))
    fresh, crashes, slow = folder / "corpus" / name, folder / "crashes", folder / "slow"
    for path in (fresh, crashes, slow):
        path.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["gpuready"]):
        from tests.fuzz.parsers import PARSERS, feed

        if name not in PARSERS:
            raise SystemExit(f"there is no reader {name!r}: {', '.join(PARSERS)}")
        one = _keeping(crashes, name, feed)
        for seed in sorted((CORPUS / name).glob("*"))[:3]:  # what is imported late must be instrumented too
            one(seed.read_bytes())
    where = [] if any(flag.startswith("-merge=1") for flag in flags) else [str(fresh), str(CORPUS / name)]
    words = [sys.argv[0], *LIMITS, f"-artifact_prefix={crashes}/{name}-", *flags, *where]
    atheris.Setup(words, _timed(slow / name, one))
    atheris.Fuzz()


def _timed(slow: Path, feed: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The reader; the input that took it longest is kept, with the seconds of CPU."""
    result = slow.with_suffix(".txt")
    most = [float(result.read_text()) if result.exists() else 0.01]

    def one(data: bytes) -> None:
        begun = time.process_time()
        feed(data)
        seconds = time.process_time() - begun
        if seconds > 1.2 * most[0]:
            most[0] = seconds
            slow.write_bytes(data)
            result.write_text(f"{seconds:.3f}")

    return one


def _keeping(crashes: Path, name: str, feed: Callable[[str, bytes], None]) -> Callable[[bytes], None]:
    """The reader; what it raises is kept once for each place that raises it."""

    def one(data: bytes) -> None:
        try:
            feed(name, data)
        except Exception as error:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if "/gpuready/" in f.filename]
            at = f"{frames[-1].filename.rpartition('/gpuready/')[2]}:{frames[-1].lineno}" if frames else "?"
            mark = hashlib.sha256(f"{type(error).__name__} {at}".encode()).hexdigest()[:8]
            path = crashes / f"{name}-{mark}"
            if not path.exists():
                path.write_bytes(data)
                said = "".join(traceback.format_exception(error, limit=-8))
                path.with_suffix(".txt").write_text(f"{type(error).__name__} in {at}\n\n{said[:20_000]}")

    return one


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
