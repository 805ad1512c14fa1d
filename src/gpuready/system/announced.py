"""Secrets announced by a name: where the name stands in a text, and where its value.

A value explicitly assigned to a name (by a separator, a quote, a call, a list) is judged by the name. A value that is only
near it (in a table, in prose, on the next line) is hidden only if it is surely generated. Most names announce
nothing: that is decided without a regular expression, so most patterns are never compiled.
"""

from __future__ import annotations

from gpuready.system.shapes import compiled, has_long_word
from gpuready.system.telling import (
    DIGITS,
    HEADER,
    NONE,
    PASSWORD,
    STRONG,
    WEAK,
    pathlike,
    safe,
    secretive,
    split,
    surely,
    telling,
)

NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
LONGEST_NAME, LONGEST_PATH = 80, 512
_NEAR, _BEHIND = 120, 240
"""How far after a name, and before it, to look for a value joined to it only by nearness."""

_QUERY = ("sig", "signature", "key", "pass", "auth", "sas", "code")
"""Last words of names that mean a secret only in the query of a URL."""
_SETTERS = frozenset(("set", "save", "with", "store", "put", "use", "add", "update"))
"""First words of functions that take the secret itself; others, such as get_token, take something else."""

_QUOTE = r"""\\{0,7}(?:\x22{3}|'{3}|["'`])|&quot;|&#34;|&#39;|&#x27;|[“‘]"""
_COLOUR = r"(?:(?:\x1b|\\{1,8}(?:u001b|x1b))\[[0-9;]{0,12}m)?"
_BREAK = r"(?:\s|\\{1,4}[nrt])"
_AFTER = (
    rf"{_COLOUR}({_QUOTE})?\*{{0,2}}(\]?){_COLOUR}[ \t]{{0,40}}(=>|:=|==?|->|:|：|%3[DdAa])"
    rf"([ \t]{{0,40}}(?:\\?\r?\n[ \t]{{0,8}})?){_COLOUR}(?:<!\[CDATA\[|(?:Some|SecretStr|SecretBytes|str|bytes)\((?=[bru]?[\"']))?"
    rf"(?:[bruf$BRUF](?=\\{{0,7}}[\x22\x27]))?({_QUOTE})?"
)
_APART = (
    rf"(?:({_QUOTE}),{_BREAK}{{0,40}}[bru]?({_QUOTE})(?!value)"
    rf"|(?:{_QUOTE})?,?{_BREAK}{{0,40}}(?:{_QUOTE})?(?:value|content)(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}({_QUOTE})?)"
)
"""Between a name that is itself a value and its own value: ``'--token', 'x'`` in a list, or ``name: TOKEN, value: x``."""
_BEFORE = (
    rf"(?:value|content)(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:{_QUOTE})?([^\s\"'\\`,<>]{{3,200}})"
    rf"(?:{_QUOTE})?,?{_BREAK}{{0,40}}(?:{_QUOTE})?(?:name|key)(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:{_QUOTE})?$"
)
_PAIRED = r"""["']([^\s"'\\]{16,200})\\{0,7}["'],[ \t]{0,4}[bru]?\\{0,7}["']$"""
"""The same two in reverse order: the value before its name."""
_LIST = r"[^\[\](){}]{1,4000}"
_NEARBY = (
    r"(?:[^\w\s\\/]|[ \t]|\r?\n(?!\s{0,8}\n)|\\{1,8}(?:[nrt]|(?=[\"'])|\r?\n|(?:u[0-9a-f]{4}|x1b)(?:\[[0-9;]{0,12}m)?)"
    r"|\x1b\[[0-9;]{0,12}m|</?\w{1,12}>|[bruf](?=[\"'])|&(?:quot|lt|gt|amp|#\d\d|#x\w\w);|(?<=[=:] )[A-Za-z]\w{0,24}\("
    r"|(?<=[=:])[A-Za-z]\w{0,24}\(|\b(?:is|was|value|content|provided|Some)\b|(?:[ \t][a-z]{1,12}){1,6}:[ \t])"
    r"{1,24}([A-Za-z0-9+/][A-Za-z0-9_+/.~\-]{15,}={0,2})(?![\w=(\[])"
)
_BESIDE = r"(?=[A-Za-z_\-]{0,40}\d)[A-Za-z0-9_\-]{20,}"
"""What can only be a secret although only a blank separates it from the name."""
_ONWARDS = rf"[ \t]{{0,8}}(?:[\\^`]\r?\n|\\{{3,8}}n)?[ \t]{{0,16}}((?:\r?\n|\\{{1,4}}n)[ \t]{{0,40}}(?:- )?)?({_QUOTE})?"
"""Between an option and its value: blanks, a continued line, perhaps as JSON writes it, or (group 1) the next line."""
_BARE = r"""(?:[^\s"'`,;&)\]}|<>\\]|[,;&)\]}|<>](?![\s"',;)\]}]|$|[\w.\-]+=)|\\(?!["'nrt]))+"""
_ENTITY = r"[^&\n]*"
_QUOTED = {
    '"': r'(?:[^"\\\n]|\\[^"\n])*', "'": r"(?:[^'\\\n]|\\[^'\n])*", "`": r"[^`\n]*", "“": r"[^”\n]*", "‘": r"[^’\n]*",
}  # fmt: skip
_LINE = r"""[^"'\n\r]+"""
_PARAMETERS = r"""(?:[\w\-]{1,40}=\\{0,7}"[^"\n]{0,400}"(?:,[ \t]{0,4})?|[\w\-]{1,40}=[^\s,"']{1,400}(?:,[ \t]{0,4})?)+"""
"""The parameters of Digest authentication, including quotes."""
_MORE = (
    "",
    " ",
    "\t",
    "\n",
    "\r",
    "\v",
    "\f",
    '"',
    "'",
    "`",
    "\\",
    "&",
    "=",
    ":",
    ">",
    "|",
    "[",
    "(",
    "<",
    "\x1b",
    "“",
    "‘",
)
"""What may stand between the assignment sign and its value."""
_QUOTES = ('"', "'", "\\")
"""After one more letter, as in ``b"…"``, these begin a value too."""
_SIGNS = frozenset("=:\"'>\\&`([,|<*%\x1b")

Span = tuple[int, int]


def announces(text: str, at: int, end: int) -> bool:
    """Whether something that could be a value follows; fast, since most words announce nothing."""
    sign, next_ = text[end : end + 1], text[end + 1 : end + 2]
    if sign in ("", "\n", "\r"):
        around = text[max(at - _BEHIND, 0) : end + 32]
        return "value" in around or text[at - 1 : at] in ("-", "_") or _near(text, end)
    if sign in (" ", "\t"):
        return (
            next_ in (":", "=", " ", '"', "'", "`") or (at > 0 and text[at - 1] in NAME) or _near(text, end)
        )
    return sign in _SIGNS or (sign > "\x7f" and _near(text, end))


def _near(text: str, end: int) -> bool:
    near = text[end : end + _NEAR]
    return not DIGITS.isdisjoint(near) and has_long_word(near)


def value_of(text: str, start: int, end: int, kept: int) -> Span | None:
    """Span of the secret this name announces, if any."""
    if text[start - 1 : start] == "\\" and text[start] in "nrt" and end - start > 4:
        start += 1  # an escaped line end, as JSON writes it, is not part of a name
    name, before = text[start:end], text[start - 1 : start]
    kind = telling(name.strip("-."))
    if kind == NONE:
        kind = _spoken(text, name, start) or (STRONG if _asked(text, name, start, before) else NONE)
    if kind == NONE:
        return None
    found = _given(text, name, before, end, kind) if end < len(text) else None
    if not found and kind not in (WEAK, HEADER):
        found = _nearby(text, end) or _before(text, start, end, kept, kind)
    return _rows(text, *found) if found else None


def _spoken(text: str, name: str, start: int) -> str:
    """The kind of a name of two separate words: API key, secret key."""
    if name.lower() not in ("key", "keys") or text[start - 1 : start] != " ":
        return NONE
    words = text[max(start - 20, 0) : start - 1].split()
    word = words[-1].strip("*_`\"'([") if words else ""
    kind = telling(f"{word}_key") if word.isalpha() else NONE
    return kind if kind == STRONG else NONE  # "for key" means nothing


def _asked(text: str, name: str, start: int, before: str) -> bool:
    """Whether the name is a query parameter of a URL."""
    query = before in ("?", "&") or (before == ";" and text[start - 5 : start] == "&amp;")
    return query and name.lower().replace("-", "_").rpartition("_")[2] in _QUERY


def _given(text: str, name: str, before: str, end: int, kind: str) -> Span | None:
    """Span of the value explicitly assigned to a name."""
    sign = text[end : end + 1]
    if name[0] == "-" and sign in (" ", "\t", "\n", "\r", "\\"):
        return _option(text, end, kind)
    if sign in (" ", "\t") and text[end + 1 : end + 2] not in (":", "=", " ", "-"):
        return _span(text, end + 1, _BESIDE, kind, bare=True) if kind == STRONG and "_" in name else None
    if sign == ">" and before == "<":
        return _element(text, end + 1, kind)
    if sign == "(":
        return _called(text, name, end, kind)
    found = _header(text, end) if kind == HEADER else _assigned(text, name, end, kind)
    return found or _apart(text, name, end, kind)


def _option(text: str, end: int, kind: str) -> Span | None:
    onwards = compiled(_ONWARDS).match(text, end)
    if not onwards or onwards.end() == end or not (onwards.group(1) or text[end] in " \t"):
        return None
    crossed, quote = onwards.group(1), onwards.group(2)
    if quote:
        source = rf"(?!--){_QUOTED.get(quote[-1], _ENTITY)}"
    else:  # on the next line it must stand alone: that line may describe an option without a value
        source = rf"(?![\-\s]){_BARE}" + (r"(?=[ \t]*(?:\r?\n|\\{1,4}n|[\"']|$))" if crossed else "")
    return _span(text, onwards.end(), source, kind, bare=kind != PASSWORD)


def _element(text: str, at: int, kind: str) -> Span | None:
    """Span of an XML element's content: one word, perhaps on its own line."""
    begins = compiled(r"\s{0,40}(?:<!\[CDATA\[)?").match(text, at)
    return _span(text, begins.end() if begins else at, r"[^<\s\]]+", kind, bare=False)


def _called(text: str, name: str, end: int, kind: str) -> Span | None:
    """Span of the argument of a function that sets the secret."""
    words = split(name.rpartition(".")[2])
    opening = compiled(rf"\([ \t]{{0,4}}[bruf]?({_QUOTE})").match(text, end)
    if not opening or len(words) < 2 or words[0] not in _SETTERS:
        return None
    return _span(text, opening.end(), _QUOTED.get(opening.group(1)[-1], _ENTITY), kind, bare=False)


def _apart(text: str, name: str, end: int, kind: str) -> Span | None:
    """Span of the value of a name that is itself a value."""
    if text[end] not in "\n\r\"'\\&" or not (
        "," in text[end : end + 10] or "val" in text[end : end + 60] or "content" in text[end : end + 60]
    ):
        return None
    sign = compiled(_APART).match(text, end)
    if not sign or (sign.group(2) and text.startswith("--", sign.end())):  # the next option of a list
        return None
    quote = sign.group(2) or sign.group(3) or ""
    if (
        sign.group(2) and name[0] != "-"
    ):  # in a list of names, only a surely generated item is a value
        kind = STRONG if kind == HEADER else WEAK
    return _span(text, sign.end(), _QUOTED.get(quote[-1:], _ENTITY) if quote else _BARE, kind, bare=False)


def _is_assigned(text: str, end: int) -> bool:
    """Check the beginning of `_ASSIGNMENT` without a regular expression: most names have no value."""
    rest = text[end : end + 60].lstrip("\\")
    if rest.startswith(("\x1b", "x1b[", "u001b[")):
        return "=" in rest or ":" in rest
    if rest[:1] == "&":
        rest = rest.partition(";")[2]
    elif rest[:1] in ('"', "'", "`", "*", "]"):
        rest = rest.lstrip("\"'`*").removeprefix("]")
    rest = rest.lstrip(" \t")
    return rest[:1] in ("=", ":", "：", "\x1b") or rest[:2] == "->" or rest[:2] == "%3"


def _assigned(text: str, name: str, end: int, kind: str) -> Span | None:
    if text[end + 1 : end + 2] == "&" and text[end + 2 : end + 3] not in ("q", "#"):
        return None  # a URL parameter without a value
    plain = text[end + 1 : end + 2] not in _MORE and text[end + 2 : end + 3] not in _QUOTES
    if text[end] in "=:" and plain:  # NAME=value: needs no regular expression
        found = _span(text, end + 1, _BARE, kind, bare=text[end] == ":" and not name.isupper())
        if not found or not _calls(text, *found):
            return found
    sign = compiled(_AFTER).match(text, end) if _is_assigned(text, end) else None
    if not sign:
        return None
    quote, next_ = sign.group(5), text[sign.end() : sign.end() + 1]
    if quote:
        spoken = quote[-1] in "`“‘"  # quoted as in prose: it may be a word about the secret
        return _span(
            text, sign.end(), _QUOTED.get(quote[-1], _ENTITY), kind, bare=spoken and not name.isupper()
        )
    if next_ in ("[", "("):
        return _listed(text, sign.end() + 1, kind)
    if sign.group(2):
        return None  # os.environ["TOKEN"] = token: another name
    if next_ in ("|", ">"):
        return _block(text, sign.end(), kind)
    prose = bool(sign.group(4)) or (sign.group(3) == ":" and not sign.group(1))
    found = _span(text, sign.end(), _BARE, kind, bare=prose and not name.isupper())
    return None if found and _calls(text, *found) else found


def _calls(text: str, begin: int, end: int) -> bool:
    """Whether this is a function call: its argument is then the value."""
    return text[end : end + 1] in ('"', "'") and "(" in text[begin:end]


def _listed(text: str, at: int, kind: str) -> Span | None:
    """Span of all items of a list, where any of them is a secret."""
    found = compiled(_LIST).match(text, at)
    if not found or text[found.end() : found.end() + 1] not in (")", "]"):
        return None
    items = [item.strip(" \t\r\n\\") for item in found.group().split(",")]
    if not any(_listed_one(item, kind) for item in items):
        return None
    begins = len(found.group()) - len(found.group().lstrip(" \t\r\n\\\"'`"))
    ends = len(found.group().rstrip(" \t\r\n\\\"'`"))
    return found.start() + begins, found.start() + max(ends, begins)


def _listed_one(item: str, kind: str) -> bool:
    bare = item.strip("\"'`\\")
    return surely(bare) or (kind != WEAK and item[:1] in ('"', "'", "`") and secretive(bare, kind, bare=True))


def _block(text: str, at: int, kind: str) -> Span | None:
    """Span of a YAML block scalar: the lines below a name with deeper indentation."""
    head = compiled(r"[|>][+\-]?[ \t]{0,8}((?:\r?\n|\\{1,4}n)[ \t]{1,80})(?=\S)").match(text, at)
    if not head:
        return None
    further = head.group(1)
    line = further.rstrip(" \t")
    end = text.find(line, head.end())
    first = text[head.end() : end if end >= 0 else len(text)].strip()
    if len(first) <= LONGEST_PATH and not secretive(first, kind, bare=kind != PASSWORD):
        return None
    while end >= 0 and text.startswith(further, end):
        end = text.find(line, end + len(line))
    return head.end(), len(text) if end < 0 else end


def _rows(text: str, start: int, end: int) -> Span:
    """The value, and where it is an item of a YAML list, the rest of that list."""
    if text[start - 2 : start].strip("\"'") not in ("-", "- "):
        return start, end
    rest = compiled(r"[\"']?(?:(?:\r?\n|\\{1,4}n)[ \t]{0,40}- [^\s\\:]+(?=[\s\\]|$))+").match(text, end)
    return start, rest.end() if rest else end


def _nearby(text: str, end: int) -> Span | None:
    """Span of a surely generated word after the name, whatever joins the two."""
    if not _near(text, end):
        return None
    found = compiled(_NEARBY).match(text, end)
    if not found or safe(found.group(1)) or pathlike(found.group(1)) or not surely(found.group(1)):
        return None
    return found.span(1)


def _before(text: str, start: int, end: int, kept: int, kind: str) -> Span | None:
    """Span of a value that stands before its name."""
    begin = max(start - _BEHIND, kept)
    window = text[begin:start]
    close = window[-16:]
    if ("name" in close or "key" in close) and ("value" in window or "content" in window):
        found = compiled(_BEFORE).search(window)
        if found and secretive(found.group(1), kind, bare=kind != PASSWORD):
            return begin + found.start(1), begin + found.end(1)
    if window[-1:] in ('"', "'") and "," in close and text[end : end + 8].lstrip("\\\"'")[:1] in (")", "]"):
        found = compiled(_PAIRED).search(window)
        if found and surely(found.group(1)):
            return begin + found.start(1), begin + found.end(1)
    return None


def _header(text: str, end: int) -> Span | None:
    """Span of the rest of the line after Authorization or Cookie, without the name of the scheme."""
    sign = compiled(_AFTER).match(text, end) if _is_assigned(text, end) else None
    if not sign:
        return None
    scheme = compiled(r"(?i)(?:(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)\s+)?")
    at = scheme.match(text, sign.end())
    begin = at.end() if at else sign.end()
    pairs = compiled(r"[^\s=;]{1,80}=").match(text, begin)
    several = (
        compiled(_PARAMETERS).match(text, begin) if pairs and '"' in text[begin : pairs.end() + 9] else None
    )
    source = _PARAMETERS if several else _LINE
    return _span(text, begin, source, STRONG, bare=begin == sign.end() and not pairs)


def _span(text: str, at: int, source: str, kind: str, bare: bool) -> Span | None:
    if "://" in text[at : at + 32] and compiled(r"\s*[\w+.\-]{2,12}://").match(text, at):
        return None  # a URL: its secrets have been hidden already
    found = compiled(source).match(text, at)
    if not found:
        return None
    value = found.group().strip()
    # Anything longer than a path counts as a secret without inspection: that keeps the time linear.
    if len(value) <= LONGEST_PATH and not secretive(value, kind, bare):
        return None
    return found.end() - len(found.group().lstrip()), found.end()
