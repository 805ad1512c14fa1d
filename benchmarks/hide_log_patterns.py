"""Would ``gpuready diagnose`` know the cause of a log whose message it has never seen? Labelled logs with their patterns hidden.

Every pattern of the labelled cause that matches a log is hidden, from the search and from the words that are learned from the
patterns, until none is left. Then only what lies below the patterns answers: origin, votes of words, topics, place of the error.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]

from gpuready.catalog import causes  # noqa: E402
from gpuready.logs.cause_words import CauseWords  # noqa: E402
from gpuready.logs.log_patterns import LogPattern  # noqa: E402
from gpuready.logs.log_summary import LogSource, LogSummary, read_logs  # noqa: E402
from gpuready.logs.pattern_index import PatternIndex  # noqa: E402
from gpuready.workflow.diagnose import derive_lines, diagnose_summary, load_pattern_table  # noqa: E402

MAX_ROUNDS = 12
"""How often patterns are hidden: where the first ones are gone, weaker ones of the same cause may match."""


class HidingIndex(PatternIndex):
    """The same patterns without some of them."""

    def __init__(self, full: PatternIndex, hidden: frozenset[int]):
        self.__dict__.update(full.__dict__)
        self._hidden = hidden
        shown = [row for number, row in enumerate(full.rows) if number not in hidden]
        self._words = CauseWords(shown, full._topic_rows, full._descriptions)

    def patterns_for(self, literal: str) -> list[tuple[int, LogPattern]]:
        return [(number, pattern) for number, pattern in super().patterns_for(literal) if number not in self._hidden]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="+", type=Path, help="files of labelled logs, JSON lines")
    parser.add_argument("-v", action="store_true", help="show every log that is not recognised")
    parser.add_argument("-o", "--output", type=Path, help="write the score")
    asked = parser.parse_args()
    score = {path.name: score_file(path, asked.v) for path in asked.file}
    total = [sum(one[n] for one in score.values()) for n in range(3)]
    shown = {
        name: {"logs recognised by a pattern": hidden, "still right without it": right, "no cause found": silent}
        for name, (hidden, right, silent) in (*score.items(), ("all", tuple(total)))
    }
    text = json.dumps(shown, indent=1) + "\n"
    print(text, end="")
    if asked.output:
        asked.output.write_text(text)
    return 0


def score_file(path: Path, verbose: bool) -> tuple[int, int, int]:
    """How many logs a pattern recognises, how many are still right without it, and for how many there is then no answer."""
    full = load_pattern_table()
    hidden = right = silent = 0
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        wanted = row.get("root_cause") or row["cause"]
        summary, got = diagnose_with(full, row["log"])
        if got != wanted or not match_numbers(full, summary, wanted):
            continue
        got = diagnose_hidden(full, row["log"], wanted)
        hidden, right, silent = hidden + 1, right + (got == wanted), silent + (got == "unknown")
        if verbose and got != wanted:
            print(f"{row.get('id', '?'):40} {wanted}: {got}")
    return hidden, right, silent


def diagnose_hidden(full: PatternIndex, log: str, wanted: str) -> str:
    """The answer once no pattern of the cause matches the log any more."""
    hidden: frozenset[int] = frozenset()
    got = ""
    for _ in range(MAX_ROUNDS):
        index = HidingIndex(full, hidden) if hidden else full
        summary, got = diagnose_with(index, log)
        more = match_numbers(full, summary, wanted) - hidden
        if not more:
            break
        hidden |= more
    return got


def diagnose_with(index: PatternIndex, log: str) -> tuple[LogSummary, str]:
    summary = read_logs([LogSource("log", [log.encode()])], index, derive_lines)
    found: Any = diagnose_summary(summary, look=False)
    return summary, found.cause or found.verdict


def match_numbers(full: PatternIndex, summary: LogSummary, wanted: str) -> frozenset[int]:
    """The rows of the patterns of a cause that match."""
    texts = {(match.sign.code, match.sign.says) for match in summary.matches if _cause_of(match.sign) == wanted}
    return frozenset(
        number
        for number, (code, row) in enumerate(full.rows)
        if not isinstance(row, str) and (code, row.get("says") or row.get("regex")) in texts
    )


def _cause_of(sign: Any) -> str:
    row = causes.find_cause_for_code(sign.code, sign.cause)
    return str(row["slug"]) if row else ""


if __name__ == "__main__":
    sys.exit(main())
