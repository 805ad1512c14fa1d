"""Contracts on the screen: one in full, a list of all, the difference of two, the faults of a file."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuready.model import Capability, Contract, ContractVariable, FixStep, KnownError, Record, Requirement
from gpuready.model.contract import ContractCheck, describe_want
from gpuready.model.visible_text import is_visible
from gpuready.render.finding import describe_safety, format_condition
from gpuready.render.layout import PLAIN_SCREEN, Screen, join_sections


def render_contract_screen(contract: Contract, screen: Screen = PLAIN_SCREEN) -> str:
    """All requirements of one contract, with citations."""
    sections = [
        _format_contract_header(contract, screen),
        _format_contract_section("needs", [_need_row(n) for n in contract.needs], screen),
        _format_contract_section("capabilities", [_capability_row(c) for c in contract.capabilities], screen),
        _format_contract_section("variables", [_variable_row(v) for v in contract.variables], screen),
        _format_other_variables(contract, screen),
        _format_known_errors(contract.errors, screen),
        _format_contract_steps(contract.steps, screen),
        _format_titled_lines("notes", screen.format_paragraphs(contract.notes, 2, 2), screen),
    ]
    return join_sections(sections)


def render_contract_list(rows: Sequence[Mapping[str, Any]], screen: Screen = PLAIN_SCREEN) -> str:
    heads = ("framework", "version", "variant")
    cells = [[str(row.get(head) or "") for head in heads] for row in rows]
    return "".join(line + "\n" for row in screen.format_table([heads, *cells]) for line in row)


def render_contract_diff(a: str, b: str, rows: Sequence[Any], screen: Screen = PLAIN_SCREEN) -> str:
    if not rows:
        return "\n".join(screen.format_paragraph(f"{a} and {b} have the same requirements")) + "\n"
    tables = list(dict.fromkeys(row.get("table", "") for row in rows))
    sections = [
        _format_changed_rows(table, [row for row in rows if row.get("table", "") == table], screen) for table in tables
    ]
    return join_sections([screen.format_paragraph(f"{a} -> {b}"), *sections])


def _format_changed_rows(table: str, rows: Sequence[Mapping[str, str]], screen: Screen) -> list[str]:
    """The changes of one table, a paragraph each: ``changed  package.peft: >=0.18 -> >=0.19``."""
    lines: list[str] = []
    for row in rows:
        values = " -> ".join(text for text in (row.get("before"), row.get("after")) if text)
        lines += screen.format_paragraph(f"{row['change']:<8} {row['name']}{': ' if values else ''}{values}", 2, 9)
    return _format_titled_lines(table, lines, screen)


def render_contract_check(checked: ContractCheck, screen: Screen = PLAIN_SCREEN) -> str:
    """The faults of a contract file, a paragraph each; what it requires where it has none."""
    if checked.contract is not None and not checked.faults:
        commands = [
            ("judge by it", ("gpuready", "check", "--contract", checked.file)),
            ("ship it in your wheel", ("gpuready", "docs", "add-a-framework")),
        ]
        shown = render_contract_screen(checked.contract, screen).rstrip("\n").split("\n")
        return join_sections([[f"{checked.file}: no faults found"], shown, screen.format_labelled_commands(commands)])
    return join_sections([[line for fault in checked.faults for line in screen.format_paragraph(fault, 0, 2)]])


# -- parts ----------------------------------------------------------------------------------------------


def _format_contract_header(contract: Contract, screen: Screen) -> list[str]:
    lines = screen.align_ends(contract.name, ", ".join(contract.platforms))
    for text in (contract.title, contract.origin, contract.says):
        lines += screen.format_paragraph(text, 2) if text else []
    return lines


def _need_row(need: Requirement) -> tuple[str, ...]:
    return (need.key, describe_want(need.want), _level_and_condition(need.level, need.when), need.cite)


def _capability_row(item: Capability) -> tuple[str, ...]:
    gate = item.gate or item.note
    return (item.name, gate, _level_and_condition(item.level, item.when), item.cite)


def _variable_row(item: ContractVariable) -> tuple[str, ...]:
    value = item.value or "|".join(item.allowed) or item.note
    level = f"{item.access}, required" if item.required else item.access
    return (item.name, value, _level_and_condition(level, item.when), item.cite)


def _level_and_condition(level: str, when: str) -> str:
    return f"{level} {format_condition(when)}" if when else level


def _format_contract_section(title: str, rows: Sequence[tuple[str, ...]], screen: Screen) -> list[str]:
    """Rows in columns; the last cell, the citation, goes on the lines below."""
    lines = [screen.apply_style(title, "bold")] if rows else []
    for row, cells in zip(rows, screen.format_table([row[:-1] for row in rows], 2), strict=True):
        lines += ["  " + line for line in cells]
        lines += screen.dim_paragraph(row[-1], 6) if row[-1] else []
    return lines


def _format_contract_steps(steps: Iterable[FixStep], screen: Screen) -> list[str]:
    lines: list[str] = []
    for step in steps:
        lines += ["  " + line for line in screen.align_ends(step.does, describe_safety(step.replace(note="")), 2)]
        lines += screen.format_command(step.run, 6) if step.run else []
        lines += screen.dim_paragraph(step.note, 6) if step.note else []
    return _format_titled_lines("steps", lines, screen)


def _format_other_variables(contract: Contract, screen: Screen) -> list[str]:
    """Variables that the code uses and that seldom matter, by name."""
    names = ", ".join(text.partition(" ")[0] for text in contract.other_variables)
    return _format_titled_lines(
        "other variables in its code", screen.format_paragraph(names, 2) if names else [], screen
    )


def _format_known_errors(errors: Iterable[KnownError], screen: Screen) -> list[str]:
    lines: list[str] = []
    for error in errors:
        code = f"{error.code} " if error.code else ""
        lines += screen.format_paragraph(code + error.message, 2, 2)
        lines += screen.format_paragraph(f"{error.cause}: {error.fix}", 6)
        lines += screen.format_paragraph(error.cite, 6) if error.cite else []
    return _format_titled_lines("errors", lines, screen)


def _format_titled_lines(title: str, lines: list[str], screen: Screen) -> list[str]:
    return [screen.apply_style(title, "bold"), *lines] if lines else []


_HEAD = ("framework", "version", "variant", "distribution", "title", "origin")
_TABLES = ("needs", "capabilities", "variables", "errors", "steps")
_LISTS = ("other_variables", "notes")


def render_contract_toml(contract: Contract) -> str:
    lines = [f"{key} = {_quote(getattr(contract, key))}" for key in _HEAD if getattr(contract, key)]
    lines.append(f"platforms = {_quote_list(contract.platforms)}")
    for table in _TABLES:
        lines += _format_list(table, [_format_row(row) for row in getattr(contract, table)])
    for key in _LISTS:
        lines += _format_list(key, [_quote(text) for text in getattr(contract, key, ())])
    return "\n".join(lines) + "\n"


def _format_list(key: str, rows: Sequence[str]) -> list[str]:
    return ["", f"{key} = [", *(f"  {row}," for row in rows), "]"] if rows else []


def _format_row(row: Record) -> str:
    """``{ key = "python.version", want = ">=3.10" }``: fields with their default are left out."""
    defaults = type(row)._defaults
    fields = [(name, getattr(row, name)) for name in type(row)._fields]
    stated = [(name, value) for name, value in fields if name not in defaults or value != defaults[name]]
    return "{ " + ", ".join(f"{name} = {_format_value(value)}" for name, value in stated) + " }"


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quote_list(value) if isinstance(value, tuple) else _quote(str(value))


def _quote_list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(_quote(text) for text in texts) + "]"


def _quote(text: str) -> str:
    """A basic string of TOML, which escapes as JSON does; so is what cannot be seen."""
    return "".join(c if is_visible(c) else f"\\U{ord(c):08x}" for c in json.dumps(text, ensure_ascii=False))
