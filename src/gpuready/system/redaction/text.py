"""Remove secrets from text before it is stored or shown; the text around them stays.

A secret is recognised by its form (`secret_patterns`) or its name (`secret_names`). Not found: one without either; one
broken over lines, unless its length is known (`TOKEN_LENGTHS`); one encoded in another way than base64.
"""

from typing import Any

from gpuready.system.redaction.named_secrets import (
    LONGEST_NAME,
    LONGEST_PATH,
    NAME_CHARACTERS,
    find_announced_value,
    may_announce_value,
)
from gpuready.system.redaction.secret_names import (
    HEADER,
    NONE,
    PASSWORD,
    REDACTED,
    SHORTEST_GENERATED,
    STRONG,
    WEAK,
    has_key_entropy,
    is_harmless_value,
    is_reference,
    is_surely_generated,
    looks_generated,
    must_hide_value,
    secret_kind,
    split_name,
)
from gpuready.system.redaction.secret_patterns import (
    ADDRESSES,
    CERTAIN_HINTS,
    PHRASES,
    TOKEN_LENGTHS,
    TOKENS_BY_MIDDLE,
    Phrases,
    compile_cached,
    escape_length,
    find_token_patterns,
    has_long_word,
)

_NAME_HINTS = ("token", "secret", "pass", "pwd", "cred", "cookie", "key", "auth", "session", "dsn", "jwt", "mnemonic")
"""Searched for in text: a part of every name that means a secret, but for those with an ending."""
_ENDING_HINTS = ("_pw", "-pw", "_pat", "-pat", "otp", "-api")
"""Searched for at the end of a name: _path and footprint mean nothing."""

_NAME_KEYS, _VALUE_KEYS = ("name", "Name", "key", "Key"), ("value", "Value", "content", "default")
"""Keys under which tables of one name and one value have the two."""

_HOST = (
    r"(?i)(?:(?:[^\W_](?:[^\W_]|-){0,62}\.){1,8}[a-z]{2,24}|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:]{2,40}\]|localhost)(?![\w(\-])"
    r"|(?:[^\W_](?:[^\W_]|-){0,62})(?=/|:/|:\d{2,5}(?![\w.]))"
)
"""After an @ in running text: a name with a domain, an address, or any name with a port or a path."""
_LOGIN_STARTS = " \t\r\n\"'`<>(){}[],;|=\\"
"""What may stand before a login without a scheme."""
_WHOLE_LOGIN = r"([^\s:@/]{0,64}):(?!//)(\S{1,256})@((?:[a-zA-Z0-9.\-]{1,253}(?<!\d\.\d)(?<!\d\.\d\d)|(?:\d{1,3}\.){3}\d{1,3}|\[[0-9a-fA-F:]{2,40}\])(?::\d{1,5})?(?:/\S*)?)"
_LABELS = frozenset(
    ("mailto", "from", "to", "cc", "bcc", "by", "email", "mail", "author", "contact", "maintainer", "owner", "sip")
)
"""Before the colon, these make what follows an address of mail."""

_USERINFO = r"""([^\s/?#"'<>]*)@|((?:[^\s/?#"'<>@:]{0,64}):(?=[^\s/?#"'<>@:]*[^\s/?#"'<>@:0-9])[^\s"'<>@]{1,256})@"""
"""Up to the last @ before the path; or, where it cannot be a port, a password that contains a slash."""

_UNSEEN = "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
"""Characters that are drawn as nothing, and with which a token would be in two pieces."""


def redact_text(text: str) -> str:
    if len(text) < 8:
        return text
    if "\0" in text:  # /proc/PID/cmdline separates words by NUL
        spaced = text.replace("\0", " ")
        hidden = redact_text(spaced)
        return text if hidden == spaced else hidden
    if not text.isascii() and (joined := compile_cached(_UNSEEN).sub("", text)) != text:
        hidden = redact_text(joined)
        return text if hidden == joined else hidden
    url = "://" in text
    for separator in ("://",) if url else (":\\/\\/", ":\\\\/\\\\/"):  # the others are escaped JSON
        if separator in text:
            text = _redact_urls(text, separator)
    if "@" in text:
        text = _redact_logins(text)
    if "PRIVATE KEY" in text:
        text = _redact_private_keys(text)
    for hint, source in find_token_patterns(text):
        text = _hide_matches(text, text, hint, source, whole=True)
    for hint, (before, source) in TOKENS_BY_MIDDLE.items():
        text = _hide_matches(text, text, hint, source, whole=True, before=before)
    low = _ascii_lower(text)
    hints = [hint for hint in (*_NAME_HINTS, *_ENDING_HINTS) if hint in low]
    if url:
        text, low = _redact_phrases(text, low, hints, ADDRESSES)
        hints.append("sig")
    if _may_have_phrase(text):
        text, low = _redact_phrases(text, low, hints, PHRASES)
    for hint in hints:
        hidden = _redact_named_values(text, low, hint)
        if hidden is not text:
            text, low = hidden, _ascii_lower(hidden)
    return _redact_keys_by_entropy(text) if hints and has_long_word(text) else text


def _may_have_phrase(text: str) -> bool:
    """Whether a text has a sign without which none of PHRASES can match."""
    return " " in text or "--" in text or "%3" in text or '"' in text or "(" in text or "@" in text


def _redact_phrases(text: str, low: str, hints: list[str], phrases: Phrases) -> tuple[str, str]:
    absent = ""
    for hint, need, sources in phrases:
        if (need and need not in hints) or (absent and absent in hint):
            continue
        if hint not in low:
            absent = hint  # then no hint that contains it is present
        else:
            for source in sources:
                hidden = _hide_matches(text, low, hint, source)
                if hidden is not text:  # by identity, not length: a secret may be as long as its replacement
                    text, low = hidden, _ascii_lower(hidden)
    return text, low


def redact_value(name: str, value: str) -> str:
    """Redact the value of a variable or field: all of it, where the name means a secret."""
    kind = secret_kind(name)
    if kind and "://" not in value and must_hide_value(value.strip(), kind):
        return REDACTED
    login = compile_cached(_WHOLE_LOGIN).fullmatch(value) if "@" in value else None
    if login and _is_password(login[1], login[2]) and not (login[2].replace(":", "").isdigit() and "." not in login[3]):
        return f"{login[1]}:{REDACTED}@{login[3]}"
    return redact_text(value)


def redact_json(value: Any, name: str = "") -> Any:
    """Redact plain JSON, by pattern, by key and by command-line option."""
    if isinstance(value, str):
        return redact_value(name, value) if name else redact_text(value)
    if isinstance(value, dict):
        return {redact_json(k): redact_json(v, _name_of_value(value, k, name)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_redact_item(value, i, item, name) for i, item in enumerate(value)]
        items = _redact_command(value, items)
        return tuple(items) if isinstance(value, tuple) else items
    if type(value) is int and value > 999 and name and secret_kind(name) == PASSWORD:
        return REDACTED
    return value


def may_contain_secret(value: Any) -> bool:
    """Whether there may be a secret anywhere in this; cheaper than checking each text.

    Names and paths, which are most texts, need no regular expression as long as no phrase stands among them.
    """
    words: list[str] = []
    _collect_texts(value, words, "")
    groups: tuple[list[str], list[str]] = ([], [])
    for word in words:
        groups[_may_have_phrase(word)].append(word)
    # a value may follow its name on the next line, but not after an empty one
    return any(redact_text(text) != text for text in map("\n\n".join, groups))


def _collect_texts(value: Any, words: list[str], name: str) -> None:
    """Every text in plain JSON, with its key or the item before it, as it could announce a secret."""
    if isinstance(value, str):
        words.append(f"{name}={value}" if name else value)
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect_texts(key, words, "")
            _collect_texts(item, words, _name_of_value(value, key, name))
    elif isinstance(value, (list, tuple)):
        options = False
        for i, item in enumerate(value):
            _collect_texts(item, words, _announcing_name(value, i) or name)
            options = options or (isinstance(item, str) and item[:1] == "-")
        if options:
            words.append(
                " ".join([item if " " not in item else f"'{item}'" for item in value if isinstance(item, str)])
            )
    elif type(value) is int and name and secret_kind(name) == PASSWORD:
        words.append(f"{name}={value}")


def _name_of_value(table: dict[Any, Any], key: Any, outer: str) -> str:
    """The name of a value in a table: its key, or the table's name entry, as in Kubernetes variables."""
    if not isinstance(key, str):
        return ""
    if key not in _VALUE_KEYS:
        return key if outer == "" or secret_kind(key) else outer
    stated_name = next((table[k] for k in _NAME_KEYS if isinstance(table.get(k), str)), "")
    return stated_name or outer or key


def _announcing_name(items: Any, at: int) -> str:
    """The name in an adjacent item: an option, a header, a variable of a pair."""
    before = items[at - 1] if at else items[1] if len(items) == 2 else ""
    if not isinstance(before, str) or not isinstance(items[at], str) or "=" in before:
        return ""
    if before[:1] == "-":
        return "" if items[at][:1] == "-" else before.lstrip("-")
    if len(items) != 2 and len(items[at]) < SHORTEST_GENERATED:
        return ""
    return before if secret_kind(before) and (len(items) == 2 or is_surely_generated(items[at])) else ""


def _redact_item(items: Any, at: int, item: Any, name: str) -> Any:
    """Redact one item of a list, which may be the argument of the option before it, or the value of a header."""
    if isinstance(item, str) and " " in item and (hidden := _redact_quoted_word(items[at - 1] if at else "", item)):
        return hidden
    announced = _announcing_name(items, at)
    if not announced or (items[at - 1][:1] == "-" and at):
        return redact_json(item, announced or name)
    kind = secret_kind(announced)
    if "://" not in item and must_hide_value(item.strip(), STRONG if kind == HEADER and at else WEAK):
        return REDACTED
    return redact_json(item, name)


def _redact_quoted_word(before: Any, word: str) -> str:
    """A word of a command line with blanks, which a shell had in quotes, without its secret; empty where it has none.

    ``--password=two words``, ``API=two words`` after ``--from-literal``, ``two words`` after ``--pass``.
    """
    if before in ("--pass", "--passphrase"):
        return "" if word[:1] == "-" else REDACTED
    start = "--from-literal=" if word.startswith("--from-literal=") else ""
    option, equals, _ = word[len(start) :].partition("=")
    if not equals or " " in option:
        return ""
    whole = f"{start}{option}={REDACTED}"
    is_secret = start or before == "--from-literal" or option in ("--pass", "--passphrase")
    return whole if is_secret or (option[:1] == "-" and redact_text(word).startswith(whole)) else ""


def _redact_command(original: Any, redacted: list[Any]) -> list[Any]:
    """Redact passwords that are only recognisable in the whole command line, as in ``docker login -p``."""
    if not all(isinstance(word, str) for word in original) or not any(word[:1] == "-" for word in original):
        return redacted
    line = " ".join([word if word and word.split() == [word] else "_" for word in redacted])
    hidden = redact_text(line)
    if hidden == line or hidden.count(" ") != line.count(" "):
        return redacted
    pairs = zip(redacted, line.split(" "), hidden.split(" "), strict=True)
    return [word if before == after else after for word, before, after in pairs]


def _ascii_lower(text: str) -> str:
    """Lower-case ASCII with every character in its place: other letters do not matter, and some grow."""
    return text.encode("ascii", "replace").lower().decode("ascii")


def _hide_matches(text: str, where: str, hint: str, source: str, whole: bool = False, before: int = 0) -> str:
    """Hide what a pattern matches at its hint, or (`whole`) where a word begins so many characters before it."""
    parts, copied_until, at = [], 0, where.find(hint)
    while at >= 0:
        found = compile_cached(source).match(text, at - before) if at >= before else None
        after = at + 1
        if found:
            after = max(found.end(), after)
            if (not whole or _begins_word(text, at - before)) and _is_plausible_secret(found.group(1), hint):
                parts += [text[copied_until : found.start(1)], REDACTED]
                copied_until = _end_of_broken_token(text, found.end(1), hint, found.group(1)) if whole else found.end(1)
                after = max(after, copied_until)
        at = where.find(hint, after)
    return "".join([*parts, text[copied_until:]]) if parts else text


def _end_of_broken_token(text: str, end: int, hint: str, secret: str) -> int:
    """End of a token shorter than its kind: on the next line, where that begins with exactly the rest."""
    missing = TOKEN_LENGTHS.get(hint, 0) + len(hint) - len(secret)
    if missing <= 0:
        return end
    rest = compile_cached(r"(?:\r?\n|\\{1,4}n)[ \t]{0,8}([A-Za-z0-9_\-]{1,36})(?![A-Za-z0-9_\-])").match(text, end)
    return rest.end() if rest and len(rest.group(1)) == missing else end


def _begins_word(text: str, at: int) -> bool:
    """Whether a word begins here; an escape before it (\\n, %20, a colour) is not part of a word."""
    if at == 0 or not text[at - 1].isalnum():
        return True
    for size in range(1, 6):
        if at > size and text[at - size - 1] in "\\%[;":
            return escape_length(text, at - size) == size
    return False


def _is_plausible_secret(secret: str, hint: str) -> bool:
    if is_harmless_value(secret):
        return False
    if hint == "eyJ":
        return "." in secret and len(secret) >= 30
    if hint == "sk-" or hint.endswith("_test_"):  # some package names begin so, too
        parts = secret.replace("-", "_").split("_")
        return any(len(part) >= 16 and any(c.isdigit() for c in part) for part in parts)
    return looks_generated(secret) or hint in CERTAIN_HINTS


def _redact_urls(text: str, separator: str) -> str:
    """Hide what stands before the @ of a URL; a short name without a password stays."""
    parts, copied_until, size, at = [], 0, len(separator), text.find(separator)
    while at >= 0:
        found = compile_cached(_USERINFO).match(text, at + size) if _has_userinfo(text, at + size) else None
        if found:
            userinfo = found.group(1) if found.group(1) is not None else found.group(2)
            parts += [text[copied_until : at + size], _redact_userinfo(userinfo), "@"]
            copied_until = found.end()
        at = text.find(separator, at + size)
        while 0 <= at < copied_until:
            at = text.find(separator, at + size)
    return "".join([*parts, text[copied_until:]]) if parts else text


def _redact_logins(text: str) -> str:
    """Hide the password of ``user:password@host``, and a generated user, where no scheme stands before them."""
    parts, copied_until, at = [], 0, text.find("@")
    while at >= 0:
        if compile_cached(_HOST).match(text, at + 1):
            before = text[max(copied_until, at - LONGEST_PATH) : at]
            login = before[max(map(before.rfind, _LOGIN_STARTS)) + 1 :].removeprefix("//")
            user, colon, password = login.partition(":")
            secret = password if colon else user
            is_secret = not password.isdigit() and _is_password(user, password) if colon else is_surely_generated(user)
            if len(secret) >= (2 if colon else 20) and is_secret and "/" not in user and "@" not in user:
                parts += [text[copied_until : at - len(secret)], REDACTED]
                copied_until = at
        at = text.find("@", at + 1)
    return "".join([*parts, text[copied_until:]]) if parts else text


def _is_password(user: str, password: str) -> bool:
    return not is_harmless_value(password) and not _LABELS.intersection(split_name(user)[-1:]) and password[:2] != "//"


def _redact_keys_by_entropy(text: str) -> str:
    """Hide words that look like a key by their entropy, where a word on the same line says that they are one."""
    parts, copied_until = [], 0
    for found in compile_cached(r"[A-Za-z0-9~./][A-Za-z0-9+/_.\-]{18,}[A-Za-z0-9+/_\-]={0,2}").finditer(text):
        if has_key_entropy(found.group()) and _says_key(text, *found.span()):  # the cheaper question first
            parts += [text[copied_until : found.start()], REDACTED]
            copied_until = found.end()
    return "".join([*parts, text[copied_until:]]) if parts else text


def _says_key(text: str, begin: int, end: int) -> bool:
    """Whether a word near this one, on its line, is the name of a secret, or says key, and not cache key."""
    near = f"{text[max(begin - 80, 0) : begin].rpartition(chr(10))[2]} {text[end : end + 40].partition(chr(10))[0]}"
    low = near.lower()
    if not any(hint in low for hint in _NAME_HINTS):
        return False
    words = compile_cached(r"[\w.\-]+").findall(near)
    return any(
        secret_kind(word) or (word.lower() in ("key", "keys") and secret_kind(f"{before}_{word}") != NONE)
        for before, word in zip(["a", *words], words, strict=False)
    )


def _has_userinfo(text: str, at: int) -> bool:
    """Whether the URL that begins here contains an @: most do not, and need no regular expression."""
    words = text[at : at + LONGEST_PATH].split(maxsplit=1)
    return bool(words) and "@" in words[0]


def _redact_userinfo(userinfo: str) -> str:
    name, colon, password = userinfo.partition(":")
    if len(name) >= 20 or is_surely_generated(name):
        return REDACTED
    if colon and password and not is_reference(password) and REDACTED not in password:
        return f"{name}:{REDACTED}"
    return userinfo


def _redact_private_keys(text: str) -> str:
    """Hide the body of private keys; one without an end is hidden to the end of the text."""
    parts, copied_until, at = [], 0, text.find("-----BEGIN ")
    while at >= 0:
        body = text.find("-----", at + 11)
        after = at + 11
        if 0 <= body < at + 80 and "PRIVATE KEY" in text[at:body]:
            end = text.find("-----END ", body)
            after = end if end >= 0 else len(text)
            parts += [text[copied_until : body + 5], REDACTED]
            copied_until = after
        at = text.find("-----BEGIN ", after)
    return "".join([*parts, text[copied_until:]]) if parts else text


def _redact_named_values(text: str, low: str, hint: str) -> str:
    """Hide the values of secret names that contain a hint."""
    parts, copied_until, at = [], 0, low.find(hint)
    must_end = hint in _ENDING_HINTS
    while at >= 0:
        if must_end and low[at + len(hint) : at + len(hint) + 1].isalnum():
            at = low.find(hint, at + 1)
            continue
        tail = text[at : at + LONGEST_NAME]
        end = at + len(tail) - len(tail.lstrip(NAME_CHARACTERS))
        if may_announce_value(text, at, end):
            before = text[max(at - LONGEST_NAME, copied_until) : at]
            found = find_announced_value(
                text, at - len(before) + len(before.rstrip(NAME_CHARACTERS)), end, copied_until
            )
            if found:
                parts += [text[copied_until : found[0]], REDACTED]
                copied_until, end = found[1], max(end, found[1])
        at = low.find(hint, max(end, at + 1))
    return "".join([*parts, text[copied_until:]]) if parts else text
