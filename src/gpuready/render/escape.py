"""Make untrusted text safe for a terminal: control characters are shown, not sent."""

from __future__ import annotations


def escape_unprintable(text: object) -> str:
    """Return the text on one line, with every unprintable character escaped (``\\x1b``).

    Unprintable is what Python says: control characters, ESC and so every escape sequence, carriage returns, bidirectional
    overrides, zero-width and private characters, unusual spaces, lone surrogates.
    """
    plain_text = text if isinstance(text, str) else str(text)
    if plain_text.isprintable():
        return plain_text
    return "".join(c if c.isprintable() else _escape_character(c) for c in plain_text)


def _escape_character(char: str) -> str:
    # A byte that is not UTF-8 reaches Python as a surrogate: show the byte.
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:02x}"
    if char == "\n":
        return "\\n"
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def encodable_text(text: str, encoding: str) -> str:
    """Escape the characters that a stream of this encoding cannot write."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def quote_command_words(words: tuple[str, ...]) -> list[str]:
    """Quote each word for a POSIX shell where needed."""
    return [_quote_posix_word(escape_unprintable(word)) for word in words]


def _quote_posix_word(word: str) -> str:
    if word and word.isascii() and all(c.isalnum() or c in "@%+=:,./-_" for c in word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
