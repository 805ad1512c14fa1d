"""Conditions on the captures of a pattern: ``free < want and total > 2 * held``. Only numbers, sizes and names."""

from collections.abc import Mapping, Sequence

from gpuready.model.sizes import parse_size

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
                raise ValueError(
                    f"the condition {clause!r} speaks of {word!r}, which is neither a capture nor a number"
                )


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
    plain = text.strip().rstrip(".,;:)").replace(",", "")
    try:
        return float(int(plain, 16)) if plain.startswith("0x") else float(plain)
    except (ValueError, OverflowError):
        return parse_size(plain, 1024)
