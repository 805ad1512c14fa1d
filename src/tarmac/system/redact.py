"""Secrets are taken out of text before it is kept or shown; what stands around them stays.

A secret is known by its shape (`shapes`) or by its name (`telling`). Not found: one without either; one that is
broken over lines, unless its length is known (`shapes.LENGTHS`); one that is encoded in another way than base64.
"""

from __future__ import annotations

from tarmac.system.shapes import LENGTHS, PHRASES, WEBHOOKS, compiled, tokens, written
from tarmac.system.telling import HEADER, NONE, PASSWORD, STRONG, WEAK, minted, safe, secretive, telling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HIDDEN = "[redacted]"

_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
_LONGEST_NAME, _LONGEST_PATH = 80, 512
_TELLING = ("token", "secret", "pass", "pwd", "cred", "cookie", "key", "auth", "session")
"""What is looked for in text: a part of every name that tells of a secret there."""

_QUERY = ("sig", "signature", "key", "pass", "auth", "sas", "code")
"""Last words of names that tell of a secret only in the query of a URL."""

_CERTAIN = (
    "login ", "docker login ", "sshpass ", "%3a%2f%2f", "curl ", "redis-cli ", "machine ", "mysql", "ldap", "echo ",
)  # fmt: skip
"""What is found after these is a secret whatever it looks like."""

_USERINFO = (
    r"""([^\s/?#"'<>]*)@|((?:[^\s/?#"'<>@:]{0,64}):(?=[^\s/?#"'<>@:]*[^\s/?#"'<>@:0-9])[^\s"'<>@]{1,256})@"""
)
"""Up to the last @ before the path; or, where no port could be so written, a password with a slash in it."""

_QUOTE = r"""\\{0,7}(?:\x22{3}|'{3}|["'])|&quot;|&#34;|&#39;|&#x27;"""
_AFTER = rf"({_QUOTE})?(\]?)[ \t]{{0,8}}(=>|:=|==?|:)(\s{{0,8}})(?:\x1b\[[0-9;]{{0,12}}m)?(?:[bruf$BRUF](?=\\{{0,7}}[\x22\x27]))?({_QUOTE})?"
_APART = rf"(?:({_QUOTE}),\s{{0,8}}[bru]?({_QUOTE})(?!value)|(?:{_QUOTE})?,?(?:\s|\\{{1,4}}[nr]){{0,40}}(?:{_QUOTE})?value(?:{_QUOTE})?[ \t]{{0,4}}:[ \t]{{0,4}}({_QUOTE})?)"
"""Between a name that is itself a value and its own: ``'--token', 'x'`` in a list, or ``name: TOKEN, value: x``."""
_BESIDE = r"(?=[A-Za-z_\-]{0,40}\d)[A-Za-z0-9_\-]{20,}"
"""What can only be a secret though nothing but a blank is before it."""
_ONWARDS = r"[ \t]{0,8}(?:\\\r?\n|\\{3,8}n)?[ \t]{0,16}"
"""Between an option and its value: blanks, or a line that goes on, perhaps as JSON writes it."""
_BARE = r"""(?:[^\s"'`,;&)\]}|<>\\]|[,;&)\]}|<>](?![\s"',;)\]}]|$|[\w.\-]+=)|\\(?!["'nrt]))+"""
_ENTITY = r"[^&\n]*"
_QUOTED = {'"': r'(?:[^"\\\n]|\\[^"\n])*', "'": r"(?:[^'\\\n]|\\[^'\n])*"}
_LINE = r"""[^"'\n\r]+"""
_MORE = ("", " ", "\t", "\n", "\r", "\v", "\f", '"', "'", "\\", "&", "=", ":", ">", "\x1b")
"""What may stand between the sign of an assignment and its value."""
_QUOTES = ('"', "'", "\\")
"""After one more letter, as in ``b"…"``, these begin a value too."""


def redact(text: str) -> str:
    """The text without its secrets."""
    if len(text) < 8:
        return text
    if "\0" in text:  # between the words of a command line, as the kernel keeps it
        spaced = text.replace("\0", " ")
        hidden = redact(spaced)
        return text if hidden == spaced else hidden
    url = "://" in text
    if url:
        text = _urls(text)
    if "PRIVATE KEY" in text:
        text = _pem(text)
    for hint, source in tokens(text):
        text = _hide(text, text, hint, source, whole=True)
    low = _lower(text)
    hints = [hint for hint in _TELLING if hint in low]
    if url:
        text, low = _phrases(text, low, hints, WEBHOOKS)
        hints.append("sig")
    if " " in text or "%3" in text or '":"' in text or "(" in text:
        text, low = _phrases(text, low, hints, PHRASES)
    for hint in hints:
        hidden = _named(text, low, hint)
        if hidden is not text:
            text, low = hidden, _lower(hidden)
    return text


def _phrases(text: str, low: str, hints: list[str], phrases: tuple[Any, ...]) -> tuple[str, str]:
    absent = ""
    for hint, need, sources in phrases:
        if (need and need not in hints) or (absent and absent in hint):
            continue
        if hint not in low:
            absent = hint  # nor is any that holds it
        else:
            for source in sources:
                hidden = _hide(text, low, hint, source)
                if hidden is not text:  # told by that, not by its length: a secret may be as long as its mark
                    text, low = hidden, _lower(hidden)
    return text, low


def redact_value(name: str, value: str) -> str:
    """The value of a variable or a field without its secrets: all of it, where the name says so."""
    kind = telling(name)
    if kind and "://" not in value and secretive(value.strip(), kind):
        return HIDDEN
    return redact(value)


def redact_all(value: Any, name: str = "") -> Any:
    """Plain JSON without its secrets, by shape, by key and by command-line option."""
    if isinstance(value, str):
        return redact_value(name, value) if name else redact(value)
    if isinstance(value, dict):
        named = _named_value(value)
        return {
            k: redact_all(v, named if named and k == "value" else k if isinstance(k, str) else "")
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        pair = len(value) == 2
        items = [_item(value[i - 1] if i else "", item, pair) for i, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def harbours(value: Any) -> bool:
    """Whether there may be a secret anywhere in this; asked of all of it at once, which is cheaper than of each."""
    words: list[str] = []
    _spell(value, words)
    text = "\n".join(words)
    return redact(text) != text


def _spell(value: Any, words: list[str]) -> None:
    """Every text in plain JSON, with its key or the item before it, as it could announce a secret."""
    if isinstance(value, str):
        words.append(value)
    elif isinstance(value, dict):
        named = _named_value(value)
        for key, item in value.items():
            if isinstance(item, str):
                words.append(f"{named if named and key == 'value' else key}={item}")
            else:
                _spell(item, words)
    elif isinstance(value, (list, tuple)):
        before = ""
        for item in value:
            if isinstance(item, str) and before and (before.startswith("-") or len(value) == 2):
                words.append(f"{before} {item}" if before.startswith("-") else f"{before}={item}")
            else:
                _spell(item, words)
            before = item if isinstance(item, str) else ""


def _named_value(value: dict[Any, Any]) -> str:
    """The name in an object that holds a name and its value, as Kubernetes writes variables."""
    name = value.get("name")
    return name if isinstance(name, str) and isinstance(value.get("value"), str) else ""


def _item(before: Any, item: Any, pair: bool) -> Any:
    """One item of a list, which may be the argument of the option before it, or the value of a header."""
    if not (isinstance(item, str) and isinstance(before, str)):
        return redact_all(item)
    if before.startswith("-") and "=" not in before and not item.startswith("-"):
        return redact_value(before.lstrip("-"), item)
    kind = telling(before) if pair and before else NONE
    if kind and "://" not in item and secretive(item.strip(), STRONG if kind == HEADER else WEAK):
        return HIDDEN
    return redact(item)


def _lower(text: str) -> str:
    """ASCII in lower case with every character in its place: other letters tell nothing, and some grow."""
    return text.encode("ascii", "replace").lower().decode("ascii")


def _hide(text: str, where: str, hint: str, source: str, whole: bool = False) -> str:
    """Hide what a pattern finds where its hint stands, or (`whole`) begins a word."""
    pattern, parts, kept, at = compiled(source), [], 0, where.find(hint)
    while at >= 0:
        found = pattern.match(text, at)
        after = at + 1
        if found:
            after = max(found.end(), after)
            if (not whole or _free(text, at)) and _plausible(found.group(1), hint):
                parts += [text[kept : found.start(1)], HIDDEN]
                kept = _broken(text, found.end(1), hint, found.group(1)) if whole else found.end(1)
                after = max(after, kept)
        at = where.find(hint, after)
    return "".join([*parts, text[kept:]]) if parts else text


def _broken(text: str, end: int, hint: str, secret: str) -> int:
    """Where a token ends that is shorter than its kind: on the next line, where that begins with just the rest."""
    missing = LENGTHS.get(hint, 0) + len(hint) - len(secret)
    if missing <= 0:
        return end
    rest = compiled(r"(?:\r?\n|\\{1,4}n)[ \t]{0,8}([A-Za-z0-9_\-]{1,36})(?![A-Za-z0-9_\-])").match(text, end)
    return rest.end() if rest and len(rest.group(1)) == missing else end


def _free(text: str, at: int) -> bool:
    """Whether a word begins here; what is written for a sign (\\n, %20, a colour) is none."""
    if at == 0 or not text[at - 1].isalnum():
        return True
    for size in range(1, 6):
        if at > size and text[at - size - 1] in "\\%[;":
            return written(text, at - size) == size
    return False


def _plausible(secret: str, hint: str) -> bool:
    if safe(secret):
        return False
    if hint == "eyJ":
        return "." in secret and len(secret) >= 30
    if hint == "sk-" or hint.endswith("_test_"):  # many a package begins so, too
        parts = secret.replace("-", "_").split("_")
        return any(len(part) >= 16 and any(c.isdigit() for c in part) for part in parts)
    return minted(secret) or hint in _CERTAIN


def _urls(text: str) -> str:
    """Hide what stands before the @ of a URL; a short name without a password stays."""
    parts, kept, at = [], 0, text.find("://")
    while at >= 0:
        found = compiled(_USERINFO).match(text, at + 3) if _has_user(text, at + 3) else None
        if found:
            who = found.group(1) if found.group(1) is not None else found.group(2)
            parts += [text[kept : at + 3], _who(who), "@"]
            kept = found.end()
        at = text.find("://", at + 3)
        while 0 <= at < kept:
            at = text.find("://", at + 3)
    return "".join([*parts, text[kept:]]) if parts else text


def _has_user(text: str, at: int) -> bool:
    """Whether an @ stands in the address that begins here: most have none, and need no pattern."""
    words = text[at : at + _LONGEST_PATH].split(maxsplit=1)
    return bool(words) and "@" in words[0]


def _who(user: str) -> str:
    name, colon, password = user.partition(":")
    if len(name) >= 20:
        return HIDDEN
    if colon and password and not password.startswith(("$", HIDDEN)):
        return f"{name}:{HIDDEN}"
    return user


def _pem(text: str) -> str:
    """Hide the body of private keys; one without an end is hidden to the end."""
    parts, kept, at = [], 0, text.find("-----BEGIN ")
    while at >= 0:
        body = text.find("-----", at + 11)
        after = at + 11
        if 0 <= body < at + 80 and "PRIVATE KEY" in text[at:body]:
            end = text.find("-----END ", body)
            after = end if end >= 0 else len(text)
            parts += [text[kept : body + 5], HIDDEN]
            kept = after
        at = text.find("-----BEGIN ", after)
    return "".join([*parts, text[kept:]]) if parts else text


def _named(text: str, low: str, hint: str) -> str:
    """Hide the values of names that hold a hint and tell of a secret."""
    parts, kept, at = [], 0, low.find(hint)
    while at >= 0:
        tail = text[at : at + _LONGEST_NAME]
        end = at + len(tail) - len(tail.lstrip(_NAME))
        if _announces(text, at, end):
            before = text[max(at - _LONGEST_NAME, kept) : at]
            found = _value(text, at - len(before) + len(before.rstrip(_NAME)), end)
            if found:
                parts += [text[kept : found[0]], HIDDEN]
                kept = end = found[1]
        at = low.find(hint, max(end, at + 1))
    return "".join([*parts, text[kept:]]) if parts else text


def _announces(text: str, at: int, end: int) -> bool:
    """Whether something that could be a value follows; said quickly, since most words announce nothing."""
    sign, next_ = text[end : end + 1], text[end + 1 : end + 2]
    if sign in ("\n", "\r"):
        return "value" in text[end : end + 32]
    if sign in (" ", "\t"):
        return next_ in (":", "=", " ") or (at > 0 and text[at - 1] in _NAME)
    return sign in ("=", ":", '"', "'", ">", "\\", "&")


def _value(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Where the secret stands that this name announces, if it announces one."""
    name, before, sign = text[start:end], text[start - 1 : start], text[end : end + 1]
    option = name[0] == "-" and sign in (" ", "\t")
    beside = not option and sign in (" ", "\t") and text[end + 1 : end + 2] not in (":", "=", " ")
    kind = telling(name.strip("-."))
    if beside:
        return _span(text, end + 1, _BESIDE, kind, bare=True) if kind == STRONG and "_" in name else None
    asked = before in ("?", "&") or (before == ";" and text[start - 5 : start] == "&amp;")
    if asked and not kind and name.lower().replace("-", "_").rpartition("_")[2] in _QUERY:
        kind = STRONG
    if kind == NONE:
        return None
    if sign == ">" and before == "<":
        return _span(text, end + 1, r"[^<\s]+", kind, bare=False)
    if option:
        onwards = compiled(_ONWARDS).match(text, end + 1)
        at = onwards.end() if onwards else end + 1
        return _span(text, at, rf"(?![\-\s]){_BARE}", kind, bare=kind != PASSWORD)
    found = _header(text, end) if kind == HEADER else _assigned(text, name, end, kind)
    return found or _apart(text, name, end, kind)


def _apart(text: str, name: str, end: int, kind: str) -> tuple[int, int] | None:
    """The value of a name that is itself a value."""
    sign = compiled(_APART).match(text, end) if text[end] in "\n\r\"'\\&" else None
    if not sign:
        return None
    if sign.group(2) and text.startswith("--", sign.end()):
        return None  # the next option of a list
    quote = sign.group(2) or sign.group(3) or ""
    if (
        sign.group(2) and name[0] != "-"
    ):  # a list of names has no values: only what can be nothing else is one
        kind = STRONG if kind == HEADER else WEAK
    return _span(text, sign.end(), _QUOTED.get(quote[-1:], _ENTITY) if quote else _BARE, kind, bare=False)


def _is_assigned(text: str, end: int) -> bool:
    """What `_AFTER` begins with, without a pattern: most names that end here are given no value."""
    rest = text[end : end + 16].lstrip("\\")
    if rest[:1] == "&":
        rest = rest.partition(";")[2]
    elif rest[:1] in ('"', "'"):
        rest = rest.lstrip("\"'").removeprefix("]")
    return rest.lstrip(" \t")[:1] in ("=", ":")


def _assigned(text: str, name: str, end: int, kind: str) -> tuple[int, int] | None:
    plain = text[end + 1 : end + 2] not in _MORE and text[end + 2 : end + 3] not in _QUOTES
    if text[end] in "=:" and plain:  # NAME=value: it needs no pattern
        return _span(text, end + 1, _BARE, kind, bare=text[end] == ":" and not name.isupper())
    sign = compiled(_AFTER).match(text, end) if _is_assigned(text, end) else None
    if not sign:
        return None
    quote = sign.group(5)
    if quote:
        return _span(text, sign.end(), _QUOTED.get(quote[-1], _ENTITY), kind, bare=False)
    if sign.group(2):
        return None  # os.environ["TOKEN"] = token: another name
    prose = bool(sign.group(4)) or (sign.group(3) == ":" and not sign.group(1))
    return _span(text, sign.end(), _BARE, kind, bare=prose and not name.isupper())


def _header(text: str, end: int) -> tuple[int, int] | None:
    """The rest of the line after Authorization or Cookie, less the name of the scheme."""
    sign = compiled(_AFTER).match(text, end)
    if not sign:
        return None
    scheme = compiled(r"(?i)(?:(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)\s+)?")
    at = scheme.match(text, sign.end())
    begin = at.end() if at else sign.end()
    pairs = compiled(r"[^\s=;]{1,80}=").match(text, begin)
    return _span(text, begin, _LINE, STRONG, bare=begin == sign.end() and not pairs)


def _span(text: str, at: int, source: str, kind: str, bare: bool) -> tuple[int, int] | None:
    if "://" in text[at : at + 32] and compiled(r"\s*[\w+.\-]{2,12}://").match(text, at):
        return None  # an address: what is secret in it has been hidden already
    found = compiled(source).match(text, at)
    if not found:
        return None
    value = found.group().strip()
    # What is longer than any path is taken for a secret unread: that keeps the time linear.
    if len(value) <= _LONGEST_PATH and not secretive(value, kind, bare):
        return None
    return found.end() - len(found.group().lstrip()), found.end()
