"""Search rules, contracts, facts and causes, ranked by BM25; nothing leaves the machine."""

from __future__ import annotations

from gpuready import catalog, contracts, rules, workflow
from gpuready.catalog import causes
from gpuready.noun import Noun
from gpuready.workflow.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from gpuready.model import Contract

KINDS = ("rule", "contract", "fact", "cause")
MOST, LONGEST = 50, 500
_K, _B = 1.2, 0.6  # BM25: saturation of repeated words, penalty for long texts
_TITLE = 4  # weight of a title word
_SHOWN = 220


class Entry(Noun):
    """One searchable item. ``more`` is the command that shows the rest."""

    kind: str
    name: str
    title: str
    text: str
    more: str


def search(query: str, kinds: Sequence[str] = (), most: int = 10) -> list[dict[str, Any]]:
    """Return the best matches first: kind, name, title, excerpt, more, score."""
    wanted = words(query)
    if not wanted or len(query) > LONGEST:
        raise Refused(f"search takes one or a few words, at most {LONGEST} letters")
    for kind in kinds:
        if kind not in KINDS:
            raise Refused(f"search knows the kinds {', '.join(KINDS)}, not {kind!r}")
    if not 1 <= most <= MOST:
        raise Refused(f"search gives from 1 to {MOST} answers, not {most}")
    index = _index()
    scores = index.scores(dict.fromkeys(wanted))
    rows = [(score, n) for n, score in scores.items() if not kinds or index.entries[n].kind in kinds]
    rows.sort(key=lambda row: (-row[0], row[1]))
    return [_row(index.entries[n], score, wanted) for score, n in rows[:most]]


def _row(entry: Entry, score: float, wanted: Sequence[str]) -> dict[str, Any]:
    shown = {"kind": entry.kind, "name": entry.name, "title": entry.title}
    return shown | {"excerpt": _excerpt(entry.text, wanted), "more": entry.more, "score": round(score, 2)}


def _excerpt(text: str, wanted: Sequence[str]) -> str:
    """Return the part of a text around the first matching word."""
    plain = " ".join(text.split())
    if len(plain) <= _SHOWN:
        return plain
    low = plain.lower()
    first = min((at for at in (low.find(word) for word in wanted) if at >= 0), default=0)
    begin = max(first - _SHOWN // 3, 0)
    begin = plain.find(" ", begin) + 1 if begin else 0
    part = plain[begin : begin + _SHOWN].rsplit(" ", 1)[0]
    return ("... " if begin else "") + part + (" ..." if begin + _SHOWN < len(plain) else "")


def words(text: str) -> list[str]:
    """Split a text into comparable words: lower case, parts of compound names too, plurals cut."""
    import re

    found: list[str] = []
    for whole in re.findall(r"[a-z0-9]+(?:[._+-][a-z0-9]+)*", text.lower()):
        parts = re.split(r"[._+-]", whole)
        found += [_stem(whole)] + ([_stem(part) for part in parts] if len(parts) > 1 else [])
    return found


def _stem(word: str) -> str:
    if len(word) > 4 and word.isalpha():
        if word.endswith("ies"):
            return word[:-3] + "y"
        if word.endswith("s") and not word.endswith("ss"):
            return word[:-1]
    return word


# -- the index ----------------------------------------------------------------------------------------------


class Index:
    """Which words occur in which entries, and how often."""

    def __init__(self, entries: Sequence[Entry]):
        self.entries = entries
        self.places: dict[str, dict[int, int]] = {}
        self.lengths: list[int] = []
        for n, entry in enumerate(entries):
            told = words(f"{entry.name} {entry.title}") * _TITLE + words(entry.text)
            self.lengths.append(len(told))
            for word in told:
                rows = self.places.setdefault(word, {})
                rows[n] = rows.get(n, 0) + 1
        self.usual = sum(self.lengths) / max(len(entries), 1)

    def scores(self, wanted: Any) -> dict[int, float]:
        from math import log

        found: dict[int, float] = {}
        for word in wanted:
            rows = self.places.get(word, {})
            rare = log(1 + (len(self.entries) - len(rows) + 0.5) / (len(rows) + 0.5))
            for n, count in rows.items():
                length = 1 - _B + _B * self.lengths[n] / self.usual
                found[n] = found.get(n, 0.0) + rare * count * (_K + 1) / (count + _K * length)
        return found


@catalog.remembered
def _index() -> Index:
    return Index([*_rules(), *_contracts(), *_facts(), *_causes()])


def _rules() -> Iterator[Entry]:
    for code in rules.LEDGER:
        story = workflow.explain(code)
        text = " ".join([story["text"], *story["signs"], *story["reads"]])
        yield Entry("rule", f"{code} {story['name']}", story["title"], text, f"gpuready explain {code}")


def _contracts() -> Iterator[Entry]:
    """Yield each requirement of a framework once, by the newest contract that has it."""
    seen: set[tuple[str, str, str]] = set()
    for row in reversed(contracts.available()):
        variant = row.get("variant") or None
        contract = contracts.load(row["framework"], row["version"], variant)
        spec = f"{contract.framework}=={contract.version}" + (f":{variant}" if variant else "")
        for title, text in _asks(contract):
            if (contract.framework, title, text) not in seen:
                seen.add((contract.framework, title, text))
                yield Entry("contract", spec, title, text, f"gpuready contract show {spec}")


def _asks(contract: Contract) -> Iterator[tuple[str, str]]:
    for need in contract.needs:
        yield f"{contract.framework} needs {need.key} {need.want}", _joined(need.level, need.when, need.cite)
    for one in contract.capabilities:
        yield f"{contract.framework} capability {one.name}", _joined(one.level, one.when, one.note, one.cite)
    for variable in contract.variables:
        value = f"={variable.value}" if variable.value else ""
        yield (
            f"{contract.framework} variable {variable.name}{value} ({variable.access})",
            _joined(variable.when, variable.note, variable.cite),
        )
    for error in contract.errors:
        yield f"{contract.framework} error: {error.message}", _joined(error.cause, error.fix, error.code)


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _facts() -> Iterator[Entry]:
    for row in catalog.load("facts")["fact"]:
        yield Entry("fact", row["key"], row["meaning"], row["type"], "gpuready probe")


def _causes() -> Iterator[Entry]:
    for row in causes.every():
        fix = [step["does"] for step in row.get("fix", ())]
        text = _joined(row.get("so", ""), *fix)
        code = next(iter(row["codes"]), "")
        yield Entry(
            "cause", row["slug"], _plain(row["says"]), text, f"gpuready explain {code}" if code else ""
        )


def _plain(text: str) -> str:
    """Remove the clauses of a cause that a log fills in."""
    import re

    return re.sub(r"\[[^][]*\]", "", text)
