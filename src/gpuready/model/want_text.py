"""The words for what a requirement wants of a fact. Tolerant: a malformed want is shown as it is."""

from __future__ import annotations


def describe_want(want: str) -> str:
    """``>=2.2,<=2.5.1`` -> ``>= 2.2, <= 2.5.1``; ``==2.6|==2.8`` -> ``2.6 or 2.8``; ``*`` -> ``present``."""
    if want.strip() == "*":
        return "present"
    choices = [[clause.strip() for clause in choice.split(",")] for choice in want.split("|")]
    is_list = len(choices) > 1 and all(len(clauses) == 1 for clauses in choices)
    return " or ".join(", ".join(_format_clause(clause, is_list) for clause in clauses) for clauses in choices)


def _format_clause(clause: str, is_list: bool) -> str:
    bound = clause.lstrip("<>=!~")
    operator, bound = clause[: len(clause) - len(bound)], bound.strip()
    number = bound.rstrip("KMGTiB")
    if number != bound and number[-1:].isdigit():
        bound = f"{number} {bound[len(number) :]}"
    return f"{operator} {bound}" if operator and not (is_list and operator == "==") else bound
