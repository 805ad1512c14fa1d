"""Sizes and counts in text: one grammar, with the convention as a parameter. Inside, sizes are bytes."""

COUNT_UNITS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
"""``7b`` parameters."""
CONTEXT_UNITS = {"k": 1024}
"""``8k`` tokens."""
_BYTE_UNITS = {
    base: {"": 1, "b": 1, "byte": 1, "bytes": 1}
    | {f"{letter}b": base**power for power, letter in enumerate("kmgt", 1)}
    | {f"{letter}{end}": 1024**power for power, letter in enumerate("kmgt", 1) for end in ("", "ib")}
    for base in (1000, 1024)
}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MAX_DIGITS = 30


def parse_size(text: str, base: int = 1000) -> float | None:
    """Parse ``16 GB``, ``16GiB``, ``16g`` or ``16`` as bytes; None for anything else.

    ``base`` says what GB is: 1000**3 as in contracts and flags, or 1024**3 as Docker, torch and nvidia-smi write
    it. GiB and a bare G are 1024**3 everywhere.
    """
    number, unit = split_unit(text)
    return _multiply(number, _BYTE_UNITS[base].get(unit.lower()))


def parse_count(text: str, units: dict[str, int] = COUNT_UNITS) -> int | None:
    """Parse ``7b``, ``1.5B``, ``350m`` or ``7000000000``; None for anything else."""
    number, unit = split_unit(text)
    count = _multiply(number, units.get(unit.lower()) if unit else 1) if " " not in text.strip() else None
    return None if count is None else round(count)


def split_unit(text: str) -> tuple[str, str]:
    """Split ``16 GB`` into ``16`` and ``GB``."""
    whole = text.strip()
    number = whole.rstrip(_LETTERS)
    return number.rstrip(), whole[len(number) :]


def is_plain_number(text: str) -> bool:
    """Accept digits, optionally a point with digits behind it; no sign, no exponent."""
    whole, point, rest = text.partition(".")
    return text.isascii() and whole.isdigit() and (rest.isdigit() if point else True)


def _multiply(number: str, factor: int | None) -> float | None:
    if factor is None or len(number) > _MAX_DIGITS or not is_plain_number(number):
        return None
    value = float(number) * factor
    return int(value) if value.is_integer() else value
