"""When public symbols of packages came and went: ``symbols.txt.gz``, read once from the syntax of their wheels.

Text in sections: ``package trl 0.11 0.12 …`` names the releases that were read; each further line has a kind, the number
of the first release with its symbols, that of the first without them, and the symbols:

    parameter 0 2 SFTTrainer(dataset_text_field SFTTrainer(packing
"""

import gzip
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import islice

from gpuready.catalog import load_catalog

Span = dict[str, str]
Section = tuple[str, tuple[str, ...], str]


MAX_SPANS = 200
"""How many places of one symbol are looked at."""


@cache
def load_earlier_names() -> dict[tuple[str, str], Span]:
    """Names of Python (kind ``python``: ``tomllib``, ``datetime:UTC``, ``str.removeprefix``), and what packages lost before the first release that was read."""
    table = load_catalog("earlier_names")
    found: dict[tuple[str, str], Span] = {}
    for row in table["python"]:
        span = {"came": "", "gone": ""} | {row["change"]: row["release"]}
        for module, colon, members in (word.partition(":") for word in row["names"]):
            found |= {("python", module + colon + name): span for name in members.split(",")}
    for row in table["lost"]:
        for kind in ("module", "name", "parameter", "attribute"):
            for symbol in row.get(kind, ()):
                found[kind, symbol] = {"package": row["package"], "symbol": symbol, "came": "", "gone": row["gone"]}
    return found


@cache
def _load_lowered() -> tuple[Section, ...]:
    return tuple((name, releases, lines.lower()) for name, releases, lines in _load_sections())


@cache
def _load_sections() -> tuple[Section, ...]:
    """Package, releases and lines of every section."""
    text = gzip.decompress(files("gpuready.catalog").joinpath("symbols.txt.gz").read_bytes()).decode()
    sections = []
    for part in text.split("\npackage ")[1:]:
        head, _, lines = part.partition("\n")
        name, *releases = head.split()
        sections.append((name, tuple(releases), f"\n{lines}\n"))
    return tuple(sections)


def find_symbol_spans(kind: str, symbol: str) -> list[Span]:
    """The spans of a symbol (``SFTTrainer(packing``), or of all that end with it (``*(packing``), that changed.

    A span has package, symbol, came (empty: before the first release that was read) and gone (empty: still there).
    Of the kind ``package``: whether the table has the package; of the kind ``python``: a name of the standard library. The letter case of a symbol without capitals is ignored.
    """
    if kind == "package":
        return [{"package": name} for name, _, _ in _load_sections() if name == symbol]
    names = load_earlier_names()
    ends = [key for key in names if key[0] == kind and key[1].endswith(symbol[1:])] if symbol[0] == "*" else []
    if known := [names[key] for key in ends or [(kind, symbol)] if key in names]:
        return known
    found = _search_sections(_load_sections(), kind, symbol)
    return found or (_search_sections(_load_lowered(), kind, symbol) if symbol == symbol.lower() else [])


def _search_sections(sections: tuple[Section, ...], kind: str, symbol: str) -> list[Span]:
    return list(islice((span for section in sections for span in _search_section(*section, kind, symbol)), MAX_SPANS))


def _search_section(name: str, releases: tuple[str, ...], lines: str, kind: str, symbol: str) -> Iterator[Span]:
    wanted = symbol.removeprefix("*")
    needle = wanted if symbol.startswith("*") else f" {wanted}"  # a blank stands before every symbol
    at = -1
    while (at := lines.find(needle, at + 1)) >= 0:
        end = at + len(needle)
        if lines[end] not in " \n":
            continue
        start = lines.rfind(" ", 0, end - len(wanted)) + 1
        line = lines.rfind("\n", 0, at) + 1
        line_kind, came, gone = lines[line : line + 40].split(" ", 3)[:3]
        if line_kind == kind:
            yield {
                "package": name,
                "symbol": lines[start:end],
                "came": releases[int(came)] if came != "0" else "",
                "gone": releases[int(gone)] if int(gone) < len(releases) else "",
            }
