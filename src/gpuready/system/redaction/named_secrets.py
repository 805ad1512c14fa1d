"""Secrets announced by a name: where the name stands in a text, and where its value.

A value explicitly assigned to a name (by a separator, a quote, a call, a list) is judged by the name. A value that is only
near it (in a table, in prose, on the next line) is hidden only if it is surely generated. Most names announce
nothing: that is decided without a regular expression, so most patterns are never compiled.
"""

from gpuready.system.redaction.secret_names import (
    DIGITS,
    HEADER,
    NONE,
    PASSWORD,
    STRONG,
    WEAK,
    is_harmless_value,
    is_plain_path,
    is_surely_generated,
    must_hide_value,
    secret_kind,
    split_name,
)
from gpuready.system.redaction.secret_patterns import compile_cached, has_long_word

NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
LONGEST_NAME, LONGEST_PATH = 80, 512
_LOOK_AHEAD, _LOOK_BEHIND = 120, 240
"""How far after a name, and before it, to look for a value joined to it only by nearness."""

_QUERY_WORDS = ("sig", "signature", "key", "pass", "auth", "sas", "code")
"""Last words of names that mean a secret only in the query of a URL."""
_SETTERS = frozenset(("set", "save", "with", "store", "put", "use", "add", "update"))
"""First words of functions that take the secret itself; others, such as get_token, take something else."""

_QUOTE = r"""\\{0,7}(?:\x22{3}|'{3}|["'`])|&quot;|&#34;|&#39;|&#x27;|[“‘]"""
_COLOUR = r"(?:(?:\x1b|\\{1,8}(?:u001b|x1b))\[[0-9;]{0,12}m)?"
_BREAK = r"(?:\s|\\{1,4}[nrt])"
_ASSIGNMENT = (
    rf"{_COLOUR}({_QUOTE})?\*{{0,2}}(\]?){_COLOUR}[ \t]{{0,40}}(=>|:=|==?|->|:|：|%3[DdAa])"
    rf"([ \t]{{0,40}}(?:\\?\r?\n[ \t]{{0,8}})?){_COLOUR}(?:<!\[CDATA\[|(?:Some|SecretStr|SecretBytes|str|bytes)\((?=[bru]?[\"']))?"
    rf"(?:[bruf$BRUF](?=\\{{0,7}}[\x22\x27]))?({_QUOTE})?"
)
_SEPARATE_VALUE = (
    rf"(?:({_QUOTE}),{_BREAK}{{0,40}}[bru]?({_QUOTE})(?!value)"
    rf"|(?:{_QUOTE})?,?{_BREAK}{{0,40}}(?:{_QUOTE})?(?:value|content)(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}({_QUOTE})?)"
)
"""Between a name that is itself a value and its own value: ``'--token', 'x'`` in a list, or ``name: TOKEN, value: x``."""
_VALUE_BEFORE_NAME = (
    rf"(?:value|content)(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:{_QUOTE})?([^\s\"'\\`,<>]{{3,200}})"
    rf"(?:{_QUOTE})?,?{_BREAK}{{0,40}}(?:{_QUOTE})?(?:name|key)(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:{_QUOTE})?$"
)
_VALUE_IN_PAIR = r"""["']([^\s"'\\]{16,200})\\{0,7}["'],[ \t]{0,4}[bru]?\\{0,7}["']$"""
"""The same two in reverse order: the value before its name."""
_LIST_ITEMS = r"[^\[\](){}]{1,4000}"
_NEARBY_SECRET = (
    r"(?:[^\w\s\\/]|[ \t]|\r?\n(?!\s{0,8}\n)|\\{1,8}(?:[nrt]|(?=[\"'])|\r?\n|(?:u[0-9a-f]{4}|x1b)(?:\[[0-9;]{0,12}m)?)"
    r"|\x1b\[[0-9;]{0,12}m|</?\w{1,12}>|[bruf](?=[\"'])|&(?:quot|lt|gt|amp|#\d\d|#x\w\w);|(?<=[=:] )[A-Za-z]\w{0,24}\("
    r"|(?<=[=:])[A-Za-z]\w{0,24}\(|\b(?:is|was|value|content|provided|Some)\b|(?:[ \t][a-z]{1,12}){1,6}:[ \t])"
    r"{1,24}([A-Za-z0-9+/][A-Za-z0-9_+/.~\-]{15,}={0,2})(?![\w=(\[])"
)
_ADJACENT_SECRET = r"(?=[A-Za-z_\-]{0,40}\d)[A-Za-z0-9_\-]{20,}"
"""What can only be a secret although only a blank separates it from the name."""
_OPTION_GAP = (
    rf"[ \t]{{0,8}}(?:[\\^`]\r?\n|\\{{3,8}}n)?[ \t]{{0,16}}((?:\r?\n|\\{{1,4}}n)[ \t]{{0,40}}(?:- )?)?({_QUOTE})?"
)
"""Between an option and its value: blanks, a continued line, perhaps as JSON writes it, or (group 1) the next line."""
_BARE_VALUE = r"""(?:[^\s"'`,;&)\]}|<>\\]|[,;&)\]}|<>](?![\s"',;)\]}]|$|[\w.\-]+=)|\\(?!["'nrt]))+"""
_ENTITY = r"[^&\n]*"
_QUOTED_VALUES = {
    '"': r'(?:[^"\\\n]|\\[^"\n])*', "'": r"(?:[^'\\\n]|\\[^'\n])*", "`": r"[^`\n]*", "“": r"[^”\n]*", "‘": r"[^’\n]*",
}  # fmt: skip
_REST_OF_LINE = r"""[^"'\n\r]+"""
_PARAMETERS = (
    r"""(?:[\w\-]{1,40}=\\{0,7}"[^"\n]{0,400}"(?:,[ \t]{0,4})?|[\w\-]{1,40}=[^\s,"']{1,400}(?:,[ \t]{0,4})?)+"""
)
"""The parameters of Digest authentication, including quotes."""
_VALUE_LEADS = " \t\n\r\v\f\"'`\\&=:>|[(<\x1b“‘"
"""What may stand between the assignment sign and its value."""
_QUOTES = ('"', "'", "\\")
"""After one more letter, as in ``b"…"``, these begin a value too."""
_SEPARATORS = frozenset("=:\"'>\\&`([,|<*%\x1b")

Span = tuple[int, int]


def may_announce_value(text: str, at: int, end: int) -> bool:
    """Whether something that could be a value follows; fast, since most words announce nothing."""
    separator, next_ = text[end : end + 1], text[end + 1 : end + 2]
    if separator in ("", "\n", "\r"):
        around = text[max(at - _LOOK_BEHIND, 0) : end + 32]
        return "value" in around or text[at - 1 : at] in ("-", "_") or _has_long_word_near(text, end)
    if separator in (" ", "\t"):
        return (
            next_ in (":", "=", " ", '"', "'", "`")
            or (at > 0 and text[at - 1] in NAME_CHARACTERS)
            or _has_long_word_near(text, end)
        )
    return separator in _SEPARATORS or (separator > "\x7f" and _has_long_word_near(text, end))


def _has_long_word_near(text: str, end: int) -> bool:
    near = text[end : end + _LOOK_AHEAD]
    return not DIGITS.isdisjoint(near) and has_long_word(near)


def find_announced_value(text: str, start: int, end: int, hidden_until: int) -> Span | None:
    """Span of the secret this name announces, if any."""
    if text[start - 1 : start] == "\\" and text[start] in "nrt" and end - start > 4:
        start += 1  # an escaped line end, as JSON writes it, is not part of a name
    name, before = text[start:end], text[start - 1 : start]
    kind = secret_kind(name.strip("-."))
    if kind == NONE:
        kind = _two_word_kind(text, name, start) or (STRONG if _is_query_parameter(text, name, start, before) else NONE)
    if kind == NONE:
        return None
    found = _explicit_value_span(text, name, before, end, kind) if end < len(text) else None
    if not found and kind not in (WEAK, HEADER):
        found = _nearby_secret_span(text, end) or _preceding_value_span(text, start, end, hidden_until, kind)
    return _extend_yaml_list(text, *found) if found else None


def _two_word_kind(text: str, name: str, start: int) -> str:
    """The kind of a name of two separate words: API key, secret key."""
    if name.lower() not in ("key", "keys") or text[start - 1 : start] != " ":
        return NONE
    words = text[max(start - 20, 0) : start - 1].split()
    word = words[-1].strip("*_`\"'([") if words else ""
    kind = secret_kind(f"{word}_key") if word.isalpha() else NONE
    return kind if kind == STRONG else NONE  # "for key" means nothing


def _is_query_parameter(text: str, name: str, start: int, before: str) -> bool:
    """Whether the name is a query parameter of a URL."""
    query = before in ("?", "&") or (before == ";" and text[start - 5 : start] == "&amp;")
    return query and name.lower().replace("-", "_").rpartition("_")[2] in _QUERY_WORDS


def _explicit_value_span(text: str, name: str, before: str, end: int, kind: str) -> Span | None:
    """Span of the value explicitly assigned to a name."""
    separator = text[end : end + 1]
    if name[0] == "-" and separator in (" ", "\t", "\n", "\r", "\\"):
        return _option_value_span(text, end, kind)
    if separator in (" ", "\t") and text[end + 1 : end + 2] not in (":", "=", " ", "-"):
        return (
            _secret_value_span(text, end + 1, _ADJACENT_SECRET, kind, bare=True)
            if kind == STRONG and "_" in name
            else None
        )
    if separator == ">" and before == "<":
        return _xml_value_span(text, end + 1, kind)
    if separator == "(":
        return _call_argument_span(text, name, end, kind)
    found = _header_value_span(text, end) if kind == HEADER else _assigned_value_span(text, name, end, kind)
    return found or _separate_value_span(text, name, end, kind)


def _option_value_span(text: str, end: int, kind: str) -> Span | None:
    onwards = compile_cached(_OPTION_GAP).match(text, end)
    if not onwards or onwards.end() == end or not (onwards.group(1) or text[end] in " \t"):
        return None
    crossed, quote = onwards.group(1), onwards.group(2)
    if quote:
        source = rf"(?!--){_QUOTED_VALUES.get(quote[-1], _ENTITY)}"
    else:  # on the next line it must stand alone: that line may describe an option without a value
        source = rf"(?![\-\s]){_BARE_VALUE}" + (r"(?=[ \t]*(?:\r?\n|\\{1,4}n|[\"']|$))" if crossed else "")
    return _secret_value_span(text, onwards.end(), source, kind, bare=kind != PASSWORD)


def _xml_value_span(text: str, at: int, kind: str) -> Span | None:
    """Span of an XML element's content: one word, perhaps on its own line."""
    begins = compile_cached(r"\s{0,40}(?:<!\[CDATA\[)?").match(text, at)
    return _secret_value_span(text, begins.end() if begins else at, r"[^<\s\]]+", kind, bare=False)


def _call_argument_span(text: str, name: str, end: int, kind: str) -> Span | None:
    """Span of the argument of a function that sets the secret."""
    words = split_name(name.rpartition(".")[2])
    opening = compile_cached(rf"\([ \t]{{0,4}}[bruf]?({_QUOTE})").match(text, end)
    if not opening or len(words) < 2 or words[0] not in _SETTERS:
        return None
    return _secret_value_span(text, opening.end(), _QUOTED_VALUES.get(opening.group(1)[-1], _ENTITY), kind, bare=False)


def _separate_value_span(text: str, name: str, end: int, kind: str) -> Span | None:
    """Span of the value of a name that is itself a value."""
    if text[end] not in "\n\r\"'\\&" or not (
        "," in text[end : end + 10] or "val" in text[end : end + 60] or "content" in text[end : end + 60]
    ):
        return None
    match = compile_cached(_SEPARATE_VALUE).match(text, end)
    if not match or (match.group(2) and text.startswith("--", match.end())):  # the next option of a list
        return None
    quote = match.group(2) or match.group(3) or ""
    if match.group(2) and name[0] != "-":  # in a list of names, only a surely generated item is a value
        kind = STRONG if kind == HEADER else WEAK
    return _secret_value_span(
        text, match.end(), _QUOTED_VALUES.get(quote[-1:], _ENTITY) if quote else _BARE_VALUE, kind, bare=False
    )


def _looks_assigned(text: str, end: int) -> bool:
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


def _assigned_value_span(text: str, name: str, end: int, kind: str) -> Span | None:
    if text[end + 1 : end + 2] == "&" and text[end + 2 : end + 3] not in ("q", "#"):
        return None  # a URL parameter without a value
    plain = text[end + 1 : end + 2] not in _VALUE_LEADS and text[end + 2 : end + 3] not in _QUOTES
    if text[end] in "=:" and plain:  # NAME=value: needs no regular expression
        found = _secret_value_span(text, end + 1, _BARE_VALUE, kind, bare=text[end] == ":" and not name.isupper())
        if not found or not _is_function_call(text, *found):
            return found
    match = compile_cached(_ASSIGNMENT).match(text, end) if _looks_assigned(text, end) else None
    if not match:
        return None
    quote, next_ = match.group(5), text[match.end() : match.end() + 1]
    if quote:
        spoken = quote[-1] in "`“‘"  # quoted as in prose: it may be a word about the secret
        return _secret_value_span(
            text, match.end(), _QUOTED_VALUES.get(quote[-1], _ENTITY), kind, bare=spoken and not name.isupper()
        )
    if next_ in ("[", "("):
        return _secret_list_span(text, match.end() + 1, kind)
    if match.group(2):
        return None  # os.environ["TOKEN"] = token: another name
    if next_ in ("|", ">"):
        return _yaml_block_span(text, match.end(), kind)
    prose = bool(match.group(4)) or (match.group(3) == ":" and not match.group(1))
    found = _secret_value_span(text, match.end(), _BARE_VALUE, kind, bare=prose and not name.isupper())
    return None if found and _is_function_call(text, *found) else found


def _is_function_call(text: str, begin: int, end: int) -> bool:
    """Whether this is a function call: its argument is then the value."""
    return text[end : end + 1] in ('"', "'") and "(" in text[begin:end]


def _secret_list_span(text: str, at: int, kind: str) -> Span | None:
    """Span of all items of a list, where any of them is a secret."""
    found = compile_cached(_LIST_ITEMS).match(text, at)
    if not found or text[found.end() : found.end() + 1] not in (")", "]"):
        return None
    items = [item.strip(" \t\r\n\\") for item in found.group().split(",")]
    if not any(_is_secret_item(item, kind) for item in items):
        return None
    begins = len(found.group()) - len(found.group().lstrip(" \t\r\n\\\"'`"))
    ends = len(found.group().rstrip(" \t\r\n\\\"'`"))
    return found.start() + begins, found.start() + max(ends, begins)


def _is_secret_item(item: str, kind: str) -> bool:
    bare = item.strip("\"'`\\")
    return is_surely_generated(bare) or (
        kind != WEAK and item[:1] in ('"', "'", "`") and must_hide_value(bare, kind, bare=True)
    )


def _yaml_block_span(text: str, at: int, kind: str) -> Span | None:
    """Span of a YAML block scalar: the lines below a name with deeper indentation."""
    head = compile_cached(r"[|>][+\-]?[ \t]{0,8}((?:\r?\n|\\{1,4}n)[ \t]{1,80})(?=\S)").match(text, at)
    if not head:
        return None
    further = head.group(1)
    line = further.rstrip(" \t")
    end = text.find(line, head.end())
    first = text[head.end() : end if end >= 0 else len(text)].strip()
    if len(first) <= LONGEST_PATH and not must_hide_value(first, kind, bare=kind != PASSWORD):
        return None
    while end >= 0 and text.startswith(further, end):
        end = text.find(line, end + len(line))
    return head.end(), len(text) if end < 0 else end


def _extend_yaml_list(text: str, start: int, end: int) -> Span:
    """The value, and where it is an item of a YAML list, the rest of that list."""
    if text[start - 2 : start].strip("\"'") not in ("-", "- "):
        return start, end
    rest = compile_cached(r"[\"']?(?:(?:\r?\n|\\{1,4}n)[ \t]{0,40}- [^\s\\:]+(?=[\s\\]|$))+").match(text, end)
    return start, rest.end() if rest else end


def _nearby_secret_span(text: str, end: int) -> Span | None:
    """Span of a surely generated word after the name, whatever joins the two."""
    if not _has_long_word_near(text, end):
        return None
    found = compile_cached(_NEARBY_SECRET).match(text, end)
    word = found.group(1) if found else ""
    if not found or is_harmless_value(word) or is_plain_path(word) or not is_surely_generated(word):
        return None
    return found.span(1)


def _preceding_value_span(text: str, start: int, end: int, hidden_until: int, kind: str) -> Span | None:
    """Span of a value that stands before its name."""
    begin = max(start - _LOOK_BEHIND, hidden_until)
    window = text[begin:start]
    close = window[-16:]
    if ("name" in close or "key" in close) and ("value" in window or "content" in window):
        found = compile_cached(_VALUE_BEFORE_NAME).search(window)
        if found and must_hide_value(found.group(1), kind, bare=kind != PASSWORD):
            return begin + found.start(1), begin + found.end(1)
    if window[-1:] in ('"', "'") and "," in close and text[end : end + 8].lstrip("\\\"'")[:1] in (")", "]"):
        found = compile_cached(_VALUE_IN_PAIR).search(window)
        if found and is_surely_generated(found.group(1)):
            return begin + found.start(1), begin + found.end(1)
    return None


def _header_value_span(text: str, end: int) -> Span | None:
    """Span of the rest of the line after Authorization or Cookie, without the name of the scheme."""
    match = compile_cached(_ASSIGNMENT).match(text, end) if _looks_assigned(text, end) else None
    if not match:
        return None
    scheme = compile_cached(r"(?i)(?:(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)\s+)?")
    at = scheme.match(text, match.end())
    begin = at.end() if at else match.end()
    pairs = compile_cached(r"[^\s=;]{1,80}=").match(text, begin)
    several = compile_cached(_PARAMETERS).match(text, begin) if pairs and '"' in text[begin : pairs.end() + 9] else None
    source = _PARAMETERS if several else _REST_OF_LINE
    return _secret_value_span(text, begin, source, STRONG, bare=begin == match.end() and not pairs)


def _secret_value_span(text: str, at: int, source: str, kind: str, bare: bool) -> Span | None:
    if "://" in text[at : at + 32] and compile_cached(r"\s*[\w+.\-]{2,12}://").match(text, at):
        return None  # a URL: its secrets have been hidden already
    found = compile_cached(source).match(text, at)
    if not found:
        return None
    value = found.group().strip()
    # Anything longer than a path counts as a secret without inspection: that keeps the time linear.
    if len(value) <= LONGEST_PATH and not must_hide_value(value, kind, bare):
        return None
    return found.end() - len(found.group().lstrip()), found.end()
