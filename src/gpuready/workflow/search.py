"""Search rules, contracts, facts and causes, ranked by BM25; nothing leaves the machine."""

from __future__ import annotations

from functools import cache

from gpuready import catalog, contracts, rules, workflow
from gpuready.catalog import causes
from gpuready.model.record import Record
from gpuready.workflow.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from gpuready.model import Contract

ENTRY_KINDS = ("rule", "contract", "fact", "cause")
MAX_RESULTS, MAX_QUERY_LENGTH = 50, 500
_BM25_K, _BM25_B = 1.2, 0.6  # BM25: saturation of repeated words, penalty for long texts
_TITLE_WEIGHT = 4  # weight of a title word
_EXCERPT_LENGTH = 220


class SearchEntry(Record):
    """One searchable item. ``more`` is the command that shows the rest."""

    kind: str
    name: str
    title: str
    text: str
    more: str


def search_entries(query: str, kinds: Sequence[str] = (), most: int = 10) -> list[dict[str, Any]]:
    """Return the best matches first: kind, name, title, excerpt, more, score."""
    wanted = tokenize_text(query)
    if not wanted or len(query) > MAX_QUERY_LENGTH:
        raise Refused(f"search takes one or a few words, at most {MAX_QUERY_LENGTH} letters")
    for kind in kinds:
        if kind not in ENTRY_KINDS:
            raise Refused(f"search knows the kinds {', '.join(ENTRY_KINDS)}, not {kind!r}")
    if not 1 <= most <= MAX_RESULTS:
        raise Refused(f"search gives from 1 to {MAX_RESULTS} answers, not {most}")
    index = _build_index()
    scores = index.score_entries(dict.fromkeys(wanted))
    rows = [(score, n) for n, score in scores.items() if not kinds or index.entries[n].kind in kinds]
    rows.sort(key=lambda row: (-row[0], row[1]))
    return [_result_row(index.entries[n], score, wanted) for score, n in rows[:most]]


def _result_row(entry: SearchEntry, score: float, wanted: Sequence[str]) -> dict[str, Any]:
    shown = {"kind": entry.kind, "name": entry.name, "title": entry.title}
    return shown | {"excerpt": _make_excerpt(entry.text, wanted), "more": entry.more, "score": round(score, 2)}


def _make_excerpt(text: str, wanted: Sequence[str]) -> str:
    """Return the part of a text around the first matching word."""
    plain = " ".join(text.split())
    if len(plain) <= _EXCERPT_LENGTH:
        return plain
    low = plain.lower()
    first = min((at for at in (low.find(word) for word in wanted) if at >= 0), default=0)
    begin = max(first - _EXCERPT_LENGTH // 3, 0)
    begin = plain.find(" ", begin) + 1 if begin else 0
    part = plain[begin : begin + _EXCERPT_LENGTH].rsplit(" ", 1)[0]
    return ("... " if begin else "") + part + (" ..." if begin + _EXCERPT_LENGTH < len(plain) else "")


def tokenize_text(text: str) -> list[str]:
    """Split a text into comparable words: lower case, parts of compound names too, plurals cut."""
    import re

    tokens: list[str] = []
    for whole in re.findall(r"[a-z0-9]+(?:[._+-][a-z0-9]+)*", text.lower()):
        parts = re.split(r"[._+-]", whole)
        tokens += [_stem_word(whole)] + ([_stem_word(part) for part in parts] if len(parts) > 1 else [])
    return tokens


def _stem_word(word: str) -> str:
    if len(word) > 4 and word.isalpha():
        if word.endswith("ies"):
            return word[:-3] + "y"
        if word.endswith("s") and not word.endswith("ss"):
            return word[:-1]
    return word


# -- the index ----------------------------------------------------------------------------------------------


class SearchIndex:
    """Which words occur in which entries, and how often."""

    def __init__(self, entries: Sequence[SearchEntry]):
        self.entries = entries
        self.postings: dict[str, dict[int, int]] = {}
        self.lengths: list[int] = []
        for n, entry in enumerate(entries):
            tokens = tokenize_text(f"{entry.name} {entry.title}") * _TITLE_WEIGHT + tokenize_text(entry.text)
            self.lengths.append(len(tokens))
            for word in tokens:
                rows = self.postings.setdefault(word, {})
                rows[n] = rows.get(n, 0) + 1
        self.mean_length = sum(self.lengths) / max(len(entries), 1)

    def score_entries(self, wanted: Any) -> dict[int, float]:
        from math import log

        scores_by_entry: dict[int, float] = {}
        for word in wanted:
            rows = self.postings.get(word, {})
            rarity = log(1 + (len(self.entries) - len(rows) + 0.5) / (len(rows) + 0.5))
            for n, count in rows.items():
                length = 1 - _BM25_B + _BM25_B * self.lengths[n] / self.mean_length
                scores_by_entry[n] = scores_by_entry.get(n, 0.0) + rarity * count * (_BM25_K + 1) / (
                    count + _BM25_K * length
                )
        return scores_by_entry


@cache
def _build_index() -> SearchIndex:
    return SearchIndex([*_rule_entries(), *_contract_entries(), *_fact_entries(), *_cause_entries()])


def _rule_entries() -> Iterator[SearchEntry]:
    for code in rules.list_codes():
        explanation = workflow.explain_rule(code)
        text = " ".join([explanation["text"], *explanation["signs"], *explanation["reads"]])
        yield SearchEntry(
            "rule", f"{code} {explanation['name']}", explanation["title"], text, f"gpuready explain {code}"
        )


def _contract_entries() -> Iterator[SearchEntry]:
    """Yield each requirement of a framework once, by the newest contract that has it."""
    seen: set[tuple[str, str, str]] = set()
    for row in reversed(contracts.list_contract_rows()):
        variant = row.get("variant") or None
        contract = contracts.load_contract(row["framework"], row["version"], variant)
        spec = f"{contract.framework}=={contract.version}" + (f":{variant}" if variant else "")
        for title, text in _contract_asks(contract):
            if (contract.framework, title, text) not in seen:
                seen.add((contract.framework, title, text))
                yield SearchEntry("contract", spec, title, text, f"gpuready contract show {spec}")


def _contract_asks(contract: Contract) -> Iterator[tuple[str, str]]:
    for need in contract.needs:
        yield (f"{contract.framework} needs {need.key} {need.want}", _join_nonempty(need.level, need.when, need.cite))
    for one in contract.capabilities:
        yield (f"{contract.framework} capability {one.name}", _join_nonempty(one.level, one.when, one.note, one.cite))
    for variable in contract.variables:
        value = f"={variable.value}" if variable.value else ""
        yield (
            f"{contract.framework} variable {variable.name}{value} ({variable.access})",
            _join_nonempty(variable.when, variable.note, variable.cite),
        )
    for error in contract.errors:
        yield (f"{contract.framework} error: {error.message}", _join_nonempty(error.cause, error.fix, error.code))


def _join_nonempty(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _fact_entries() -> Iterator[SearchEntry]:
    for row in catalog.load_catalog("facts")["fact"]:
        yield SearchEntry("fact", row["key"], row["meaning"], row["type"], "gpuready probe")


def _cause_entries() -> Iterator[SearchEntry]:
    for row in causes.list_causes():
        fix = [step["does"] for step in row.get("fix", ())]
        text = _join_nonempty(row.get("so", ""), *fix)
        code = next(iter(row["codes"]), "")
        yield SearchEntry(
            "cause", row["slug"], _strip_log_clauses(row["says"]), text, f"gpuready explain {code}" if code else ""
        )


def _strip_log_clauses(text: str) -> str:
    """Remove the clauses of a cause that a log fills in."""
    import re

    return re.sub(r"\[[^][]*\]", "", text)
