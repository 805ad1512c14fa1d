"""Environment variables: which are asked for (compiled from rules, contracts and probes), and what a framework's are for."""

from typing import Any

from gpuready.catalog import load_catalog


def is_asked_variable(name: str) -> bool:
    """Whether a rule, a contract or a probe asks for this variable."""
    table = load_catalog("variables")
    return name in table["names"] or name.startswith(tuple(table["prefixes"]))


RoleRow = dict[str, Any]


def list_roles(framework: str) -> list[str]:
    """Return the process kinds of a framework, the usual one first; empty if all are alike."""
    return [row["name"] for row in load_catalog("roles")["role"] if row["framework"] == framework]


def role_uses_variable(framework: str, role: str, name: str) -> bool:
    """Return whether a variable applies to a process kind; one that no role names applies to all."""
    rows = {row["name"]: row for row in load_catalog("roles")["role"] if row["framework"] == framework}
    role_row = rows.get(role)
    if role_row is None or not any(name in row["variables"] for row in rows.values()):
        return True
    if name in role_row.get("drops", ()):
        return False
    return name in role_row["variables"] or (
        bool(role_row.get("also")) and role_uses_variable(framework, role_row["also"], name)
    )


def is_emptied_variable(framework: str, name: str) -> bool:
    """Return whether the framework sets a variable to the empty string on purpose."""
    return _find_role_row("emptied", framework, name) is not None


def why_not_in_shell(framework: str, name: str) -> str:
    """Return why a variable set by the framework should not be set in a shell; empty if it may be."""
    row = _find_role_row("passing", framework, name)
    return str(row["says"]) if row else ""


def is_settable(name: str) -> bool:
    """Return whether any contract file may set a variable: it tunes, and neither loads code nor redirects."""
    return any(name in row["names"] for row in load_catalog("roles")["settable"])


def variable_meaning(name: str) -> str:
    """Return what a variable does, in a few words; empty if unknown."""
    rows = load_catalog("roles")["meaning"]
    return next((str(row["says"]) for row in rows if row["name"] == name), "")


def variable_hardware_gate(name: str) -> RoleRow | None:
    """Return the only hardware on which a variable is wanted."""
    return next((row for row in load_catalog("roles")["gated"] if row["name"] == name), None)


def _find_role_row(table: str, framework: str, name: str) -> RoleRow | None:
    rows = load_catalog("roles")[table]
    return next((row for row in rows if row["framework"] == framework and row["name"] == name), None)
