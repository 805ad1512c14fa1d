"""Contracts on the screen: one in full, a list of all, the difference of two."""

from __future__ import annotations

from gpuready.render.escape import command, visible
from gpuready.render.finding import condition, want
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from gpuready.model import Capability, Contract, KnownError, Need, Step, Variable


def show(contract: Contract, screen: Screen | None = None) -> str:
    """All requirements of one contract, with citations."""
    on = screen or Screen()
    sections = [
        _head(contract, on),
        _section("needs", [_need(n) for n in contract.needs], on),
        _section("capabilities", [_capability(c) for c in contract.capabilities], on),
        _section("variables", [_variable(v) for v in contract.variables], on),
        _errors(contract.errors, on),
        _section("steps", [_step(s) for s in contract.steps], on),
        _listed("notes", [visible(n) for n in contract.notes], on),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def known(rows: Sequence[Mapping[str, Any]], screen: Screen | None = None) -> str:
    """All contracts, and whether each has an environment page."""
    heads = ("framework", "version", "variant")
    return listing(
        [{h: r.get(h) for h in heads} | {"page": "yes" if r.get("page") else ""} for r in rows], screen
    )


def listing(rows: Sequence[Any], screen: Screen | None = None) -> str:
    """Rows in columns. A row is a dict, whose keys head the columns, a sequence, or a text."""
    on = screen or Screen()
    heads = list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))
    table = [_cells(row, heads) for row in rows]
    if heads:
        table.insert(0, [visible(head) for head in heads])
    wide = max((len(cells) for cells in table), default=0)
    table = [cells + [""] * (wide - len(cells)) for cells in table]
    return "".join(line + "\n" for row in on.table(table) for line in row)


def difference(a: str, b: str, rows: Sequence[Any], screen: Screen | None = None) -> str:
    on = screen or Screen()
    if not rows:
        return "\n".join(on.paragraph(f"{visible(a)} and {visible(b)} ask for the same")) + "\n"
    head = on.paragraph(f"{visible(a)} -> {visible(b)}")
    return "\n".join(head) + "\n\n" + listing(rows, on)


def unplaced(lines: Sequence[tuple[int, str]], screen: Screen | None = None) -> str:
    """Lines of an environment page that could not be placed in the contract."""
    on = screen or Screen()
    rows = [(str(number), visible(text.strip())) for number, text in lines]
    if not rows:
        return ""
    table = ["  " + line for row in on.table(rows, 2) for line in row]
    return "\n".join(["", "lines of the page that found no place", *table]) + "\n"


# -- parts ----------------------------------------------------------------------------------------------


def _head(contract: Contract, screen: Screen) -> list[str]:
    lines = screen.ends(visible(contract.name), visible(", ".join(contract.platforms)))
    for text in (contract.title, contract.origin, contract.says):
        lines += screen.paragraph(visible(text), 2) if text else []
    return lines


def _need(need: Need) -> tuple[str, ...]:
    return visible(need.key), want(need.want), _conditions(need.level, need.when), visible(need.cite)


def _capability(item: Capability) -> tuple[str, ...]:
    gate = visible(item.gate or item.note)
    return visible(item.name), gate, _conditions(item.level, item.when), visible(item.cite)


def _variable(item: Variable) -> tuple[str, ...]:
    value = visible(item.value or "|".join(item.allowed) or item.note)
    level = f"{item.access}, required" if item.required else item.access
    return visible(item.name), value, _conditions(level, item.when), visible(item.cite)


def _step(step: Step) -> tuple[str, ...]:
    return visible(step.does), " ".join(command(step.run)), visible(step.safety), visible(step.note)


def _conditions(level: str, when: str) -> str:
    return f"{visible(level)} {condition(when)}" if when else visible(level)


def _section(title: str, rows: Sequence[tuple[str, ...]], screen: Screen) -> list[str]:
    """Rows in columns; the last cell, the citation, goes on the lines below."""
    lines = [screen.paint(title, "bold")] if rows else []
    for row, cells in zip(rows, screen.table([row[:-1] for row in rows], 2), strict=True):
        lines += ["  " + line for line in cells]
        lines += [screen.paint(line, "dim") for line in screen.paragraph(row[-1], 6)] if row[-1] else []
    return lines


def _errors(errors: Iterable[KnownError], screen: Screen) -> list[str]:
    lines: list[str] = []
    for error in errors:
        code = f"{visible(error.code)} " if error.code else ""
        lines += screen.paragraph(code + visible(error.message), 2, 2)
        lines += screen.paragraph(f"{visible(error.cause)}: {visible(error.fix)}", 6)
        lines += screen.paragraph(visible(error.cite), 6) if error.cite else []
    return [screen.paint("errors", "bold"), *lines] if lines else []


def _listed(title: str, items: Sequence[str], screen: Screen) -> list[str]:
    lines = [line for item in items for line in screen.paragraph(item, 2, 2)]
    return [screen.paint(title, "bold"), *lines] if lines else []


def _cells(row: Any, heads: Sequence[str]) -> list[str]:
    if isinstance(row, dict):
        return [_cell(row.get(head)) for head in heads]
    if isinstance(row, (list, tuple)):
        return [_cell(value) for value in row]
    return [_cell(row)]


def _cell(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(item) for item in value)
    return "" if value is None else visible(value)
