"""All patterns, indexed by the literals that their matches contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.logs.excerpt import MAX_LINES
from gpuready.logs.literal_search import LiteralSearch
from gpuready.logs.log_patterns import LogPattern, PatternRow, compile_patterns, pattern_literals, validate_pattern

STRUCTURE_LITERALS = (
    "Traceback (most recent call last)", '", line ', "Error: ", "Exception: ", "terminate called after", "NCCL WARN",
    "Root Cause (first observed failure)", "failed (exitcode:", "exits with return code", "srun: error", "slurmstepd: error",
    "Segmentation fault", "Fatal Python error", "Watchdog caught collective operation timeout", " nranks ", "NVRM: Xid", "NCCL INFO Trees [",
)  # fmt: skip
"""Literals that belong to no cause and are always needed: kept without a quota."""

REMARK_QUOTA = 4
"""How many hits are kept of a text that only has to occur somewhere."""


class PatternIndex:
    """All patterns, including those of consequences (with an empty code), indexed by literal; each is compiled on first use."""

    def __init__(self, table: Mapping[str, Any]):
        self.rows: Sequence[PatternRow] = table["rows"]
        self._index: Mapping[str, Sequence[int]] = table["index"]
        self._compiled: dict[int, LogPattern] = {}
        self.remarks = frozenset(table["remarks"])
        structure = [literal.lower() for literal in STRUCTURE_LITERALS]
        self.literals = list(dict.fromkeys([*structure, *self._index, *sorted(self.remarks)]))
        self.search = LiteralSearch(self.literals)
        remarks = {n: REMARK_QUOTA for n, literal in enumerate(self.literals) if literal not in self._index}
        self.quotas = remarks | dict.fromkeys(range(len(STRUCTURE_LITERALS)), MAX_LINES)

    def patterns_for(self, literal: str) -> list[tuple[int, LogPattern]]:
        """The patterns that are searched for by this literal."""
        return [(number, self.pattern_at(number)) for number in self._index.get(literal, ())]

    def pattern_at(self, number: int) -> LogPattern:
        if number not in self._compiled:
            code, row = self.rows[number]
            self._compiled[number] = compile_patterns(code, [row])[0]
        return self._compiled[number]


def build_pattern_table(rows: Sequence[PatternRow]) -> dict[str, Any]:
    """Precompute the table for a PatternIndex, so that reading a log compiles nothing; stored by tools/compile_catalog.py."""
    index: dict[str, list[int]] = {}
    remarks: dict[str, None] = {}
    for number, (code, row) in enumerate(rows):
        pattern = compile_patterns(code, [row])[0]
        validate_pattern(code, row)
        for literal in pattern_literals(row):
            index.setdefault(literal, []).append(number)
        remarks |= dict.fromkeys((*pattern.also, *pattern.unless))
    return {"rows": list(rows), "index": index, "remarks": list(remarks)}
