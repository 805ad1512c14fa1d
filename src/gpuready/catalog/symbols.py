"""When public symbols of packages came and went: ``symbols.txt.gz``, made by ``tools/symbol_history.py`` from their wheels.

Text in sections: ``package trl 0.11 0.12 …`` names the releases that were read; each further line has a kind, the number
of the first release with its symbols, that of the first without them, and the symbols:

    parameter 0 2 SFTTrainer(dataset_text_field SFTTrainer(packing
"""

from __future__ import annotations

from functools import cache
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Span = dict[str, str]

MAX_SPANS = 200
"""How many places of one symbol are looked at."""


@cache
def _load_sections() -> tuple[tuple[str, tuple[str, ...], str], ...]:
    """Package, releases and lines of every section."""
    import gzip
    from importlib.resources import files

    text = gzip.decompress(files("gpuready.catalog").joinpath("symbols.txt.gz").read_bytes()).decode().lower()
    sections = []
    for part in text.split("\npackage ")[1:]:
        head, _, lines = part.partition("\n")
        name, *releases = head.split()
        sections.append((name, tuple(releases), f"\n{lines}\n"))
    return tuple(sections)


def find_symbol_spans(kind: str, symbol: str) -> list[Span]:
    """The spans of a symbol (``SFTTrainer(packing``), or of all that end with it (``*(packing``), that changed; case is ignored.

    A span has package, symbol, came (empty: before the first release that was read) and gone (empty: still there).
    Of the kind ``package``: whether the table has the package.
    """
    if kind == "package":
        return [{"package": name} for name, _, _ in _load_sections() if name == symbol]
    found = (span for section in _load_sections() for span in _search_section(*section, kind, symbol.lower()))
    return list(islice(found, MAX_SPANS))


def _search_section(name: str, releases: tuple[str, ...], lines: str, kind: str, symbol: str) -> Iterator[Span]:
    wanted = symbol.removeprefix("*")
    at = -1
    while (at := lines.find(wanted, at + 1)) >= 0:
        start = max(lines.rfind(" ", 0, at), lines.rfind("\n", 0, at)) + 1
        exact = at == start or symbol.startswith("*")
        if not exact or lines[at + len(wanted)] not in " \n":
            continue
        line = lines.rfind("\n", 0, at) + 1
        line_kind, came, gone = lines[line : line + 40].split(" ", 3)[:3]
        if line_kind == kind:
            yield {
                "package": name,
                "symbol": lines[start : at + len(wanted)],
                "came": releases[int(came)] if came != "0" else "",
                "gone": releases[int(gone)] if int(gone) < len(releases) else "",
            }
