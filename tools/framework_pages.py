"""A page for each framework in the manner of an environment page, written from its contracts; used by reference.py."""

from __future__ import annotations

from gpuready import contracts, rules
from gpuready.model import Contract, Requirement

SYSTEM = {
    "os": "system", "python": "Python", "gpu": "GPU", "driver": "driver", "toolkit": "CUDA toolkit", "compiler": "compiler",
    "torch": "torch build", "system": "shared memory", "memory": "memory", "disk": "disk", "limit": "limits",
}  # fmt: skip


def page(framework: str) -> str:
    """Every version and variant of a framework."""
    every = [
        contracts.load_contract(framework, row["version"], row.get("variant") or None)
        for row in contracts.list_contract_rows()
        if row["framework"] == framework
    ]
    lines = [f"# {every[0].title or framework}\n", "What each version asks of a machine, as its contract has it.\n"]
    lines.append("| version | platforms | torch | Python | read from |\n|---|---|---|---|---|")
    for one in every:
        torch, python = _wanted(one, "package.torch"), _wanted(one, "python.version")
        cells = (", ".join(one.platforms), torch, python, one.origin)
        lines.append(f"| [{one.name}](#{anchor(one.name)}) | " + " | ".join(cell(c) for c in cells) + " |")
    for one in every:
        lines += section(one)
    return "\n".join(lines) + "\n"


def _wanted(contract: Contract, key: str) -> str:
    return ", ".join(n.want for n in contract.requirements_for(key) if n.level == "required" and not n.when)


def anchor(text: str) -> str:
    """The anchor that a heading gets: letters, digits, blanks as hyphens."""
    kept = "".join(c for c in text.lower() if c.isalnum() or c in " -_")
    return "-".join(kept.split())


def section(contract: Contract) -> list[str]:
    parts = [*_overview(contract), *_system(contract), *_dependencies(contract), *_variables(contract)]
    parts += [*_install(contract), *_capabilities(contract), *_errors(contract), *_notes(contract)]
    return [*parts, *_evidence(contract)]


def _head(contract: Contract, what: str) -> str:
    return f"\n### {contract.name}: {what}\n"


def _overview(contract: Contract) -> list[str]:
    lines = [f"\n## {contract.name}\n", f"{contract.title or contract.framework}, read from {contract.origin}."]
    lines.append(f"It runs on {', '.join(contract.platforms)}." + (f" {contract.says}" if contract.says else ""))
    spec = contract.framework + (f":{contract.variant}" if contract.variant else "")
    return [*lines, f"\n    gpuready check {spec}\n    gpuready contract show {spec}"]


def _system(contract: Contract) -> list[str]:
    rows = [n for n in contract.needs if not n.key.startswith("package.")]
    return [_head(contract, "system requirements"), *_table(rows, lambda n: _subject(n.key))] if rows else []


def _subject(key: str) -> str:
    return f"{SYSTEM.get(key.partition('.')[0], key.partition('.')[0])}: `{key}`"


def _dependencies(contract: Contract) -> list[str]:
    rows = contract.requirements_for("package.*")
    return [_head(contract, "dependencies"), *_table(list(rows), lambda n: f"`{n.key[8:]}`")] if rows else []


def _table(rows: list[Requirement], name) -> list[str]:  # type: ignore[no-untyped-def]
    lines = ["| requirement | value | when | level | source |", "|---|---|---|---|---|"]
    return lines + [
        f"| {name(n)} | {cell(n.want) if n.want != '*' else 'any'} | {cell(n.when)} | {n.level} | {cell(n.cite)} |"
        for n in rows
    ]


def _variables(contract: Contract) -> list[str]:
    if not contract.variables:
        return []
    lines = [
        _head(contract, "variables"),
        "| variable | required | access | value | when | source |",
        "|---|---|---|---|---|---|",
    ]
    for v in contract.variables:
        value = v.value or (f"one of {', '.join(v.allowed)}" if v.allowed else "")
        said = cell(v.cite + (f"; {v.note}" if v.note else ""))
        lines.append(
            f"| `{v.name}` | {'yes' if v.required else 'no'} | {v.access} | {cell(value)} | {cell(v.when)} | {said} |"
        )
    return lines


def _install(contract: Contract) -> list[str]:
    spec = contract.framework + (f":{contract.variant}" if contract.variant else "")
    lines = [
        _head(contract, "quick install"),
        "With the versions that fit this machine, into an environment of its own:\n",
    ]
    lines += [f"    gpuready plan {spec}", f"    gpuready install {spec} -e venv"]
    if contract.steps:
        lines.append("\nAs its documentation says:\n")
        for step in contract.steps:
            lines.append(f"    # {step.does}" + (f" ({step.note})" if step.note else ""))
            lines += [f"    {_shell(step.run)}"] if step.run else []
    return lines


def _shell(words: tuple[str, ...]) -> str:
    import shlex

    return shlex.join(words)


def _capabilities(contract: Contract) -> list[str]:
    if not contract.capabilities:
        return []
    lines = [_head(contract, "capabilities"), "| capability | level | gate | when | source |", "|---|---|---|---|---|"]
    return lines + [
        f"| {c.name} | {c.level} | {c.gate} | {cell(c.when)} | {cell(c.cite + (f'; {c.note}' if c.note else ''))} |"
        for c in contract.capabilities
    ]


def _errors(contract: Contract) -> list[str]:
    if not contract.errors:
        return []
    lines = [_head(contract, "common errors"), "| error | cause | solution | rule | source |", "|---|---|---|---|---|"]
    return lines + [
        f"| {cell(e.message)} | {cell(e.cause)} | {cell(e.fix)} | {rule_link(e.code)} | {cell(e.cite)} |"
        for e in contract.errors
    ]


def rule_link(code: str) -> str:
    if code not in rules.list_codes():
        return code
    return f"[{code}](../rules/{code[:3].lower()}.md#{code.lower()})"


def _notes(contract: Contract) -> list[str]:
    if not contract.notes:
        return []
    return [_head(contract, "compatibility notes"), *(f"- {text(note)}" for note in contract.notes)]


def _evidence(contract: Contract) -> list[str]:
    """The places that were read, each with what stands on it."""
    where: dict[str, list[str]] = {}
    for need in contract.needs:
        where.setdefault(need.cite, []).append(need.key)
    for v in contract.variables:
        where.setdefault(v.cite, []).append(v.name)
    for c in contract.capabilities:
        where.setdefault(c.cite, []).append(f"can.{c.name}")
    where.pop("", None)
    lines = [_head(contract, "code evidence"), "| read at | says |", "|---|---|"]
    lines += [
        f"| {cell(place)} | {', '.join(f'`{k}`' for k in dict.fromkeys(keys))} |" for place, keys in where.items()
    ]
    return lines if where else []


def cell(words: str) -> str:
    """A table cell; a pipe inside would end it, and brackets would be read as markup."""
    return text(words).replace("|", "\\|")


def text(words: str) -> str:
    return words.replace("\n", " ").replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*").replace("_", "\\_")
