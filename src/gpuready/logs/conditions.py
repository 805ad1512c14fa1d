"""Conditions on the captures of a pattern: ``free < want and total > 2 * held``. Only numbers, sizes and names."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNITS = {
    "b": 1, "byte": 1, "bytes": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20,
    "mib": 1 << 20, "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40,
}  # fmt: skip
_COMPARE = ("<=", ">=", "==", "!=", "<", ">")


def condition_holds(text: str, captures: Mapping[str, str]) -> bool:
    """Whether every clause holds; one with a capture that is not a number does not."""
    return all(_clause_holds(clause, captures) for clause in text.split(" and ")) if text else True


def validate_condition(text: str, names: Sequence[str]) -> None:
    """ValueError where a condition cannot be parsed."""
    for clause in text.split(" and ") if text else ():
        words = clause.split()
        if len([w for w in words if w in _COMPARE]) != 1:
            raise ValueError(f"the condition {clause!r} needs one of {' '.join(_COMPARE)}")
        for word in words:
            if word not in (*_COMPARE, "+", "-", "*", "/") and word not in names and parse_number(word) is None:
                raise ValueError(f"the condition {clause!r} speaks of {word!r}, which is no capture and no number")


def _clause_holds(clause: str, captures: Mapping[str, str]) -> bool:
    words = clause.split()
    at = next(i for i, word in enumerate(words) if word in _COMPARE)
    left, right = _evaluate_sum(words[:at], captures), _evaluate_sum(words[at + 1 :], captures)
    if left is None or right is None:
        return False
    answers = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    return (answers | {"==": left == right, "!=": left != right})[words[at]]


def _evaluate_sum(words: Sequence[str], captures: Mapping[str, str]) -> float | None:
    """``a - 0.5 * b``: from left to right, products before sums."""
    total, product, sign, operator = 0.0, None, 1.0, ""
    for word in words:
        if word in ("+", "-"):
            total, product, sign = total + sign * (product or 0.0), None, 1.0 if word == "+" else -1.0
        elif word in ("*", "/"):
            operator = word
        else:
            value = parse_number(captures.get(word, word))
            if value is None or (operator == "/" and not value):
                return None
            product = value if product is None else product * value if operator == "*" else product / value
            operator = ""
    return total + sign * (product or 0.0)


def parse_number(text: str) -> float | None:
    """``20.00 MiB`` -> 20971520.0, ``12.4`` -> 12.4, ``0x1f`` -> 31.0; None where it is not a number."""
    words = text.strip().rstrip(".,;:)").replace(",", "").split()
    if not words or len(words) > 2:
        return None
    digits = words[0]
    unit = words[1].lower().rstrip(".,;:)") if len(words) == 2 else ""
    if not unit:
        digits = words[0].rstrip("KMGTiBb") if words[0][:1].isdigit() and not words[0].startswith("0x") else words[0]
        unit = words[0][len(digits) :].lower()
    if unit and unit not in _UNITS:
        return None
    try:
        value = float(int(digits, 16)) if digits.startswith("0x") else float(digits)
    except (ValueError, OverflowError):
        return None
    return value * _UNITS[unit] if unit else value
