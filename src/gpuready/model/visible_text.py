"""Make text from machines, logs and peers visible: what a reader cannot see is written out. Every writer uses this, then its own quoting."""

import re
from functools import cache
from typing import Any

_NOT_PLAIN = re.compile(r"[^ -~]+")

_INVISIBLE_NAMES = (
    "VARIATION SELECTOR", "FILLER", "JOINER", "VOWEL INHERENT", "PATTERN BLANK", "NULL NOTEHEAD", "OBJECT REPLACEMENT",
)  # fmt: skip
"""In the Unicode names of characters that are drawn as nothing, although Python calls them printable."""


@cache
def is_visible(char: str) -> bool:
    """Whether a reader sees the character; not a control, a format or bidirectional mark, a tag, a filler, a lone surrogate."""
    from unicodedata import name

    return char.isprintable() and not any(word in name(char, "") for word in _INVISIBLE_NAMES)


def escape_unprintable(text: object) -> str:
    """Return the text on one line, with every character that cannot be seen escaped (``\\x1b``)."""
    plain_text = text if isinstance(text, str) else str(text)
    if plain_text.isprintable() and (plain_text.isascii() or all(map(is_visible, set(plain_text)))):
        return plain_text
    return _NOT_PLAIN.sub(_escape_run, plain_text)


def escape_lines(text: str) -> str:
    """Return the text with its line ends, and everything else that cannot be seen escaped."""
    return "\n".join(map(escape_unprintable, text.split("\n")))


def escape_strings(value: Any) -> Any:
    """Return plain JSON with every text in it made visible, line ends kept."""
    if isinstance(value, str):
        return escape_lines(value)
    if isinstance(value, dict):
        return {escape_strings(key): escape_strings(item) for key, item in value.items()}
    return [escape_strings(item) for item in value] if isinstance(value, (list, tuple)) else value


def _escape_run(run: re.Match[str]) -> str:
    return "".join(c if is_visible(c) else _escape_character(c) for c in run[0])


@cache
def _escape_character(char: str) -> str:
    # A byte that is not UTF-8 reaches Python as a surrogate: show the byte.
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:02x}"
    if char == "\n":
        return "\\n"
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cut_middle(text: str, most: int = 300) -> str:
    """Cut what is too long in its middle: a sentence often says at its end what happened to what it names before."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[5 - most // 2 :]}"
