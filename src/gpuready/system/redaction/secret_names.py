"""Names that mean a secret: HF_TOKEN does, MAX_TOKENS and SSH_AUTH_SOCK do not.

`secret_kind` says how sure a name is, and `must_hide_value` whether a value must be hidden. The answer depends on
both: a weak name such as CACHE_KEY hides only what looks generated.
"""

from itertools import pairwise
from math import log2

PASSWORD, STRONG, WEAK, HEADER, NONE = "password", "strong", "weak", "header", ""
REDACTED = "[redacted]"

NAME_HINTS = ("token", "secret", "pass", "cred", "cookie", "key", "auth", "session", "dsn", "pwd", "jwt", "mnemonic")
"""A name without one of these is harmless: checked first, because it is cheap."""
NAME_ENDINGS = ("pw", "pat", "otp", "api")
"""So is one that neither has a hint nor ends with one of these."""


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PASSWORD_WORDS = _word_set("password passwords passwd passphrase passcode pwd sshpass")
_STRONG_WORDS = _word_set("token secret secrets credential credentials creds dsn jwt mnemonic authtoken otp totp")
_WEAK_WORDS = _word_set("auth session sessionid tokens bearer")
_PATTERN_WORDS = _word_set(
    "file glob regex re include exclude match ignore search name path url line log skip module weight layer key param"
)
"""Before "pat", these make it a pattern, and not a personal access token."""
_GLUED_WORDS = _word_set(
    "password passwd passphrase apikey accesskey privatekey secretkey accountkey sharedaccesskey token secret"
)
_SECRET_KEY_WORDS = _word_set(
    "api access private secret encryption decryption signing master account auth license deploy service"
    " subscription storage shared consumer client admin session hmac jwt ssh gpg pgp rsa"
    " kaggle wandb comet openai hub mlflow neptune"
)
_HARMLESS_GLUED = _word_set("tiktoken detoken retoken subtoken multitoken lasttoken nexttoken bypass compass")
"""Words that end like a secret's name, and are not."""
_HARMLESS_KEYS = _word_set(
    "public primary foreign sort cache partition group row map dict hot state block index config lookup"
    " idempotency known"
)
_ABOUT_SECRETS = _word_set(
    "file path paths dir folder url uri endpoint host type ids name names count limit length len size max min"
    " expiry expires ttl timeout age enabled required mode method format version alg algorithm level rate"
    " budget class index sock socket policy prefix suffix field header store provider backend map usage"
    " manager address desktop seat helper plugin bits kind"
)
"""Last words of names about a secret, not for one. The value is still checked by its form."""

_TEXT_TOKENS = _word_set(
    "max min num n pad eos bos unk sep cls mask special new per total prompt completion input output image"
    " video audio vision stop begin end added next prefix suffix generated context cached batch eot eom fim"
    " sub first last each unexpected invalid disable implicit"
)
"""Before "token", these make it a token of a language model."""

_kind_cache: dict[str, str] = {}
_MAX_CACHED, _MAX_CACHED_LENGTH = 2048, 100

DIGITS = frozenset("0123456789")
SHORTEST_GENERATED = 12
"""Letters of the shortest word that is surely generated."""
_SHORTEST_KEY = 20
"""Letters of the shortest word whose entropy tells."""
_HARMLESS_VALUES = _word_set(
    "true false yes no on off none null nil undefined unset required missing invalid incorrect expired empty"
    " not set default auto optional *** **** ******** xxxx redacted str string bearer"
)


def secret_kind(name: str) -> str:
    """How surely a name is that of a secret. Results are cached, since the same names recur."""
    kind = _kind_cache.get(name)
    if kind is None:
        kind = _classify_name(name)
        if len(_kind_cache) >= _MAX_CACHED:
            _kind_cache.clear()
        if len(name) < _MAX_CACHED_LENGTH:
            _kind_cache[name] = kind
    return kind


def _classify_name(name: str) -> str:
    low = name.lower()
    for hint in NAME_HINTS:
        if hint in low:
            break
    else:
        if not low.endswith(NAME_ENDINGS):
            return NONE
    words = split_name(name)
    if not words:
        return NONE
    return _classify_words(words)


def _classify_words(words: list[str]) -> str:
    last = words[-1]
    if last in ("authorization", "cookie", "cookies"):
        return HEADER
    if last in _ABOUT_SECRETS or (last == "id" and words[-2:] not in (["session", "id"], ["key", "id"])):
        return NONE
    if last == "id":
        return WEAK if words[-2] == "session" else _classify_key_name(words[:-1])
    pairs = map("".join, pairwise(words))  # pass_phrase, pass-word
    if not _PASSWORD_WORDS.isdisjoint((*words, *pairs)) or (last in ("pass", "pw") and len(words) > 1):
        return PASSWORD
    return _classify_strength(words)


def _classify_strength(words: list[str]) -> str:
    last = words[-1]
    if "token" in words:
        at = words.index("token")
        return NONE if at and words[at - 1] in _TEXT_TOKENS else STRONG
    if _STRONG_WORDS & set(words):
        return STRONG
    if last == "api":
        return STRONG if words[0] == "x" else NONE  # X-JFrog-Art-Api
    if last == "pat" and len(words) > 1:
        return NONE if words[-2] in _PATTERN_WORDS else STRONG
    if "key" in words or last == "keys":
        return _classify_key_name(words)
    if any(w.endswith(g) for w in words for g in _GLUED_WORDS if len(w) > len(g) and w not in _HARMLESS_GLUED):
        return PASSWORD if any("pass" in w for w in words) else STRONG
    return WEAK if last in _WEAK_WORDS or "apikey" in words or words == ["pass"] else NONE


def _classify_key_name(words: list[str]) -> str:
    at = words.index("key") if "key" in words else len(words) - 1
    before = words[at - 1] if at else ""
    if before in _HARMLESS_KEYS or not before:
        return NONE
    return STRONG if before in _SECRET_KEY_WORDS else WEAK


def split_name(name: str) -> list[str]:
    """The words of a name in lower case: HF_TOKEN, hf-token and hfToken give the same two."""
    plain = name.replace("-", "_").replace(".", "_").replace("/", "_")
    if not plain.isupper() and not plain.islower():
        pairs = zip("_" + plain, plain, strict=False)
        plain = "".join(f"_{c}" if c.isupper() and not before.isupper() else c for before, c in pairs)
    return [word for word in plain.lower().split("_") if word]


def must_hide_value(value: str, kind: str, bare: bool = False) -> bool:
    """Whether a value under a name of this kind must be hidden. `bare`: it stands in running prose."""
    if is_harmless_value(value):
        return False
    if kind == WEAK:
        return len(value) >= 16 and looks_generated(value) and not is_digest(value) and not is_plain_path(value)
    if is_plain_path(value):
        return False
    if kind == PASSWORD:
        return True
    return looks_generated(value) if bare else len(value) >= 3


def is_harmless_value(value: str) -> bool:
    """Whether a value is harmless under any name: empty, yes and no, a placeholder, a reference."""
    low = value.lower()
    if len(low) < 2 or low in _HARMLESS_VALUES or "[redacted" in low:
        return True
    if value[0] in "<[{" and value[-1] in ">]}":
        return True
    placeholder = value.isupper() and value.isalpha() and len(value) <= 10
    return is_reference(value) or placeholder or (value.isdigit() and len(value) < 3)


def is_reference(value: str) -> bool:
    """Whether a value is the name of a variable: $TOKEN, ${token}, $password; not $ecret1."""
    name = value[1:].strip("{}()")
    known = value[1:2] in ("{", "(") or name.isupper() or secret_kind(name) != NONE
    return value[:1] == "$" and known and name.replace("_", "").isalnum()


def looks_generated(value: str) -> bool:
    """Whether a value looks generated: letters and digits mixed, or both cases without a pattern."""
    size = len(value)
    if size < 8:
        return False
    if size >= 24 and " " not in value:
        return True
    if not DIGITS.isdisjoint(value) and any(c.isalpha() for c in set(value)):
        return True
    inside = value[1:]
    return size >= 12 and inside != inside.lower() and inside != inside.upper()


def has_key_entropy(word: str) -> bool:
    """Whether a long word has nearly the entropy of random letters and digits; names, paths, versions and hashes have less."""
    size = len(word)
    if size < _SHORTEST_KEY or word.lower() == word or word.upper() == word or is_plain_path(word):
        return False
    if not _alternates_classes("".join(filter(str.isalnum, word))):
        return False
    entropy = -sum(n / size * log2(n / size) for n in map(word.count, set(word)))
    return entropy >= min(0.8 * log2(size), 4.3)


def is_surely_generated(value: str) -> bool:
    """Whether a value is certainly generated: a long word that alternates between letters and digits."""
    plain = value
    for separator in "_-./+=~:":
        plain = plain.replace(separator, " ")
    return any(_alternates_classes(word) for word in plain.split())


def _alternates_classes(word: str) -> bool:
    if len(word) < SHORTEST_GENERATED or DIGITS.isdisjoint(word) or word.isdigit():
        return False
    turns, before = 0, ""
    for letter in word:
        kind = "0" if letter in DIGITS else "A" if letter.isupper() else "a"
        # A capital before small letters is normal in names, and does not count.
        turns += bool(before) and kind != before and before + kind != "Aa"
        before = kind
    return turns > len(word) / 4


def is_digest(value: str) -> bool:
    """Whether a value is a hash or a UUID: an identifier, not a secret."""
    bare = value.replace("-", "").removeprefix("sha256:")
    return len(bare) in (32, 40, 56, 64, 96, 128) and all(c in "0123456789abcdefABCDEF" for c in bare)


def is_plain_path(value: str) -> bool:
    """Whether a value is plainly a path; a base64 secret may begin with a slash, but looks generated."""
    if not value.startswith(("/", "~/", "./", "../")) or any(c in value for c in "+=\n"):
        return False
    return not any(_looks_random(part) for part in value.split("/"))


def _looks_random(part: str) -> bool:
    kinds = (str.isupper, str.islower, str.isdigit)
    return len(part) >= 12 and all(any(kind(c) for c in part) for kind in kinds) and part.isalnum()
