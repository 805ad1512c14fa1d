"""Quote text for a stream and for a shell."""

from gpuready.model.visible_text import escape_unprintable


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
