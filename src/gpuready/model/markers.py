"""Markers of requirements (``; python_version < "3.11" and extra == "x"``), evaluated as ``packaging`` does, without importing it."""

from __future__ import annotations

from collections.abc import Mapping

from gpuready.model.versions import is_satisfied

_OPERATORS = ("===", "==", "!=", "<=", ">=", "~=", "<", ">")
_WORDS = ("and", "or", "not", "in", "(", ")", *_OPERATORS)
_VERSION_NAMES = ("python_version", "python_full_version", "implementation_version", "platform_release")


def canonical_name(name: str) -> str:
    """``Flash_Attn`` -> ``flash-attn`` (PEP 503)."""
    plain = name.strip().lower().replace("_", "-").replace(".", "-")
    while "--" in plain:
        plain = plain.replace("--", "-")
    return plain


class Marker:
    """A recursive descent over the words of one marker; ValueError or IndexError where it cannot be read."""

    def __init__(self, text: str):
        self.words, self.at = _split_marker(text), 0
        self.environment: Mapping[str, str] = {}
        self.extras: frozenset[str] = frozenset()

    def list_variables(self) -> set[str]:
        """What it asks for: python_version, extra."""
        return {word for word in self.words if word not in _WORDS and word[0] != "'"}

    def evaluate(self, environment: Mapping[str, str], extras: frozenset[str]) -> bool:
        """Whether it holds; a variable that the environment does not have is empty."""
        self.environment, self.extras, self.at = environment, extras, 0
        value = self._any_of()
        if self.at != len(self.words):
            raise ValueError("words after the marker")
        return value

    def _any_of(self) -> bool:
        value = self._all_of()
        while self._takes("or"):
            value = self._all_of() or value
        return value

    def _all_of(self) -> bool:
        value = self._one()
        while self._takes("and"):
            value = self._one() and value
        return value

    def _one(self) -> bool:
        if self._takes("("):
            value = self._any_of()
            if not self._takes(")"):
                raise ValueError("an open bracket")
            return value
        left, operator = self._next(), self._next()
        if operator == "not":
            operator = f"not {self._next()}"
        return self._compare(left, operator, self._next())

    def _takes(self, word: str) -> bool:
        found = self.at < len(self.words) and self.words[self.at] == word
        self.at += found
        return found

    def _next(self) -> str:
        self.at += 1
        return self.words[self.at - 1]

    def _compare(self, left: str, operator: str, right: str) -> bool:
        names = (left, right)
        if "extra" in names:
            wanted = canonical_name((right if left == "extra" else left)[1:])
            return (wanted in self.extras) == (operator != "!=")
        return _compare_values(
            self._value(left), operator, self._value(right), any(name in _VERSION_NAMES for name in names)
        )

    def _value(self, word: str) -> str:
        return word[1:] if word[0] == "'" else self.environment.get(word.replace(".", "_"), "")


def _compare_values(left: str, operator: str, right: str, are_versions: bool) -> bool:
    if operator in ("in", "not in"):
        return (left in right) == (operator == "in")
    if are_versions and operator in _OPERATORS:
        fits = is_satisfied(left, f"{operator}{right}")
        if fits is not None:
            return fits
    comparisons = {"==": left == right, "===": left == right, "!=": left != right, "<": left < right, ">": left > right}
    return comparisons.get(operator, left <= right if operator == "<=" else left >= right)


def _split_marker(text: str) -> list[str]:
    """Split a marker into words; a quoted text begins with one quote: ``os_name == "nt"`` -> os_name, ==, 'nt."""
    words, at = [], 0
    while at < len(text):
        sign = text[at]
        if sign in "'\"":
            end = text.index(sign, at + 1)
            words.append("'" + text[at + 1 : end])
            at = end + 1
        elif sign in "()":
            words.append(sign)
            at += 1
        elif operator := next((one for one in _OPERATORS if text.startswith(one, at)), ""):
            words.append(operator)
            at += len(operator)
        elif sign.isspace():
            at += 1
        else:
            end = at
            while end < len(text) and (text[end].isalnum() or text[end] in "_."):
                end += 1
            if end == at:
                raise ValueError(f"the sign {sign!r}")
            words.append(text[at:end])
            at = end
    return words
