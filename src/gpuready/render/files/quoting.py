"""Quote and validate values for the file that contains them: nothing from a plan can end its quotes.

Names, versions and hashes have a grammar; a value outside it is refused in a sentence, because quoting cannot make it
valid. Other text is quoted, and comments are kept to one line.
"""

from __future__ import annotations

from gpuready.render.escape import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuready.planned import Plan

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
SCHEMES = ("https://", "http://", "file://")


def is_name(text: str) -> bool:
    """A valid name of a distribution, an index or a framework."""
    return bool(text) and set(text) <= LETTERS | set("._-") and text[0] in LETTERS and text[-1] in LETTERS


def is_version(text: str) -> bool:
    return bool(text) and set(text) <= LETTERS | set("._-+!") and text[0] in LETTERS


def is_hash(text: str) -> bool:
    kind, colon, digest = text.partition(":")
    return bool(colon) and kind in ("sha256", "sha384", "sha512") and _is_digest(digest)


def _is_digest(text: str) -> bool:
    return len(text) >= 64 and set(text) <= set("0123456789abcdef")


def is_variable(text: str) -> bool:
    return bool(text) and set(text) <= LETTERS | {"_"} and not text[0].isdigit()


def is_line(text: str) -> bool:
    """Printable on one line."""
    return all(c.isprintable() for c in text)


def is_address(text: str) -> bool:
    """A URL or path without blanks and without credentials."""
    bare = text.partition("://")[2].partition("/")[0]
    return is_line(text) and " " not in text and text.startswith((*SCHEMES, "/")) and "@" not in bare


def is_image(text: str) -> bool:
    return set(text) <= LETTERS | set("._-/:@") and (not text or text[0] in LETTERS)


def checked(plan: Plan) -> Plan:
    """Return the plan if every value fits its grammar. ValueError names the one that does not."""
    for what, test, values in _asked(plan):
        for value in values:
            if not isinstance(value, str) or not test(value):
                raise ValueError(f"the plan names a {what} that no file can hold: {visible(value)[:80]!r}")
    return plan


def _asked(plan: Plan) -> list[tuple[str, Callable[[str], bool], Iterable[str]]]:
    names = [*plan.packages, *(one.name for one in plan.lock), *(k.package for k in plan.kernels)]
    numbers = [*plan.packages.values(), *(one.version for one in plan.lock), *plan.tools.values()]
    own = [plan.version, plan.python, plan.torch, plan.cuda, *(k.version for k in plan.kernels)]
    lists = [*(k.arch_list for k in plan.kernels), *plan.variables.values(), *plan.image_flags]
    words = [w for s in (*plan.steps, *(s for k in plan.kernels for s in k.steps)) for w in s.run]
    return [
        ("package", is_name, names),
        ("framework", is_name, [plan.framework]),
        ("version", is_version, [*numbers, *(text for text in own if text)]),
        ("hash", is_hash, [digest for one in plan.lock for digest in one.hashes]),
        ("index", is_name, [*plan.indexes, *(one.index for one in plan.lock if one.index)]),
        ("address of an index", is_address, plan.indexes.values()),
        ("origin", is_line, [one.origin for one in plan.lock]),
        ("variable", is_variable, [*plan.variables, *plan.unset]),
        ("container image", is_image, [plan.image]),
        ("value", is_line, [*lists, *words]),
    ]


def comment(text: object) -> str:
    """Escape text so that a comment stays on one line."""
    return visible(text)


def wrapped(text: object, mark: str = "# ", width: int = 100) -> list[str]:
    """Comment lines of a sentence, broken between words."""
    import textwrap

    return textwrap.wrap(
        visible(text), width, initial_indent=mark, subsequent_indent=mark, break_long_words=False,
        break_on_hyphens=False,
    ) or [mark.rstrip()]  # fmt: skip


def word(text: str) -> str:
    if text and set(text) <= LETTERS | set("@%+=:,./-_"):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def words(several: Iterable[str]) -> str:
    return " ".join(word(one) for one in several)


def text(value: str) -> str:
    """A double-quoted string valid in both TOML and YAML."""
    return '"' + "".join(_escaped(c) for c in value) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if " " <= char <= "~":
        return char
    code = ord(char)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def docker(value: str) -> str:
    """A value for ENV in a Dockerfile: double quotes, no expansion."""
    return '"' + "".join("\\" + c if c in '"\\$' else c for c in value) + '"'
