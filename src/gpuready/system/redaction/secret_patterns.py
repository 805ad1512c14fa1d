"""Secrets recognised by their form: a hint to search for, and the pattern that follows it.

Each pattern is tried only at its hint, and either takes the whole run it is in or gives up within a few
characters: the time stays linear in the text. Group 1 is what is hidden.
"""

from __future__ import annotations

import re
from re import Pattern

_W = r"[A-Za-z0-9]"
_WD = r"[A-Za-z0-9_\-]"
_ENCODED = (
    *("aGZf", "Z2hwX", "Z2hvX", "Z2hzX", "Z2h1X", "Z2l0aHViX3BhdF", "Z2xwYXQt"),  # hf_, ghp_ .., github_pat_, glpat-
    *("c2stcHJvai", "c2stYW50L", "bnZhcGkt", "bnBtX", "cHlwaS1B", "QUtJQ", "eG94Y", "aHZzL"),  # sk-proj-, .., hvs.
    *(f"LS0tLS1CRUdJTi{kind}" for kind in ("BQUklW", "BSU0Eg", "BPUEVO", "BFQyBQ", "BFTkNS")),  # private keys
)
"""How the base64 of tokens with a known prefix begins; Kubernetes stores its secrets that way."""

_TOKENS = {
    # Hugging Face, GitHub, GitLab
    **{hint: rf"({hint}{_W}{{16,}})" for hint in ("hf_", "api_org_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_")},
    "github_pat_": r"(github_pat_[A-Za-z0-9_]{16,})",
    **{
        f"{kind}-": rf"({kind}-{_WD}{{16,}})" for kind in ("glpat", "gldt", "glrt", "glptt", "glcbt", "gloas", "glsoat")
    },
    # model providers and hosts
    **{hint: rf"({hint}{_WD}{{16,}})" for hint in ("sk-", "nvapi-", "tgp_v1_", "wandb_v1_", "lsv2_pt_", "lsv2_sk_")},
    **{
        hint: rf"({hint}{_W}{{20,}})"
        for hint in ("gsk_", "r8_", "xai-", "pplx-", "fw_", "jina_", "csk-", "tvly-", "rpa_", "esecret_")
    },
    "pcsk_": r"(pcsk_[A-Za-z0-9_]{30,})",
    "sk_": r"(sk_[0-9a-f]{32,})",
    "ak-": rf"(ak-{_W}{{22}})(?![A-Za-z0-9_\-])",
    "as-": rf"(as-{_W}{{22}})(?![A-Za-z0-9_\-])",
    "secret_": rf"(secret_{_WD}{{1,80}}_[0-9a-f]{{32}}\.{_W}{{16,}})",
    "ABSK": r"(ABSK[A-Za-z0-9+/]{16,}={0,2})",
    "KGAT_": r"(KGAT_[0-9a-f]{24,})",
    # clouds
    **{k: rf"({k}[A-Z0-9]{{16}}(?:[:,/ ][A-Za-z0-9/+]{{40}})?)(?![A-Za-z0-9])" for k in ("AKIA", "ASIA")},
    "LTAI": rf"(LTAI{_W}{{12,26}})(?![A-Za-z0-9])",
    "AKID": rf"(AKID{_W}{{28,}})",
    "AKLT": rf"(AKLT{_W}{{28,}}={{0,2}})",
    "fm2_": r"(fm2_[A-Za-z0-9+/]{24,}={0,2})",
    "AIza": rf"(AIza{_WD}{{30,}})",
    "ya29.": rf"(ya29\.{_WD}{{10,}})",
    "GOCSPX-": rf"(GOCSPX-{_WD}{{16,}})",
    "1//0": rf"(1//0{_WD}{{24,}})",
    **{f"{kind}_v1_": rf"({kind}_v1_[0-9a-f]{{32,}})" for kind in ("dop", "doo", "dor")},
    **{hint: rf"({hint}[0-9a-f]{{32}}(?:-\d)?)(?![0-9a-zA-Z])" for hint in ("dapi", "dose")},
    # registries
    "npm_": rf"(npm_{_W}{{30,}})",
    "pypi-Ag": rf"(pypi-Ag{_WD}{{16,}})",
    "dckr_pat_": rf"(dckr_pat_{_WD}{{16,}})",
    "dckr_oat_": rf"(dckr_oat_{_WD}{{16,}})",
    "AKCp": rf"(AKCp{_W}{{60,}})",
    "rubygems_": r"(rubygems_[0-9a-f]{32,})",
    # services
    **{f"xox{kind}-": rf"(xox{kind}-{_WD}{{10,}})" for kind in "abcdeoprs"},
    "xapp-": rf"(xapp-\d-{_WD}{{10,}})",
    **{hint: rf"({hint}{_W}{{10,}})" for hint in ("sk_live_", "sk_test_", "rk_live_", "rk_test_")},
    "whsec_": r"(whsec_[A-Za-z0-9+/=]{16,})",
    "SG.": rf"(SG\.{_WD}{{16,}}(?:\.{_WD}*)?)",
    **{f"{kind}_": rf"({kind}_[0-9a-fA-F]{{24,}})" for kind in ("shpat", "shpca", "shppa", "shpss")},
    **{hint: rf"({hint}{_WD}{{20,}})" for hint in ("glsa_", "lin_api_", "sbp_", "figd_", "pscale_tkn_")},
    **{hint: rf"({hint}{_W}{{30,}})" for hint in ("ntn_", "nfp_")},
    "sntrys_": r"(sntrys_[A-Za-z0-9+/_\-]{20,}={0,2})",
    "HRKU-AA": rf"(HRKU-AA{_WD}{{30,}})",
    **{f"AA{c}": rf"((?<=\d{{8}}:)AA{c}{_WD}{{32,}})" for c in "EFGH"},  # Telegram: after the bot's number
    **{f"{hint}.": rf"({hint}\.{_WD}{{20,}})" for hint in ("hvs", "hvb", "dp.pt", "dp.st", "atlasv1")},
    "ops_eyJ": rf"(ops_eyJ{_WD}{{16,}})",
    "pul-": r"(pul-[0-9a-f]{40})(?![0-9a-zA-Z])",
    "0-": r"((?<=v1\.)0-[0-9a-f]{24}-[0-9a-f]{100,})",  # Cloudflare's origin CA
    "NRAK-": r"(NRAK-[A-Z0-9]{20,})",
    "PMAK-": r"(PMAK-[0-9a-f\-]{24,})",
    "ATATT3": rf"(ATATT3{_WD}{{20,}}=?{_W}*)",
    "tskey-": rf"(tskey-{_WD}{{12,}})",
    "AGE-SECRET-KEY-1": r"(AGE-SECRET-KEY-1[A-Z0-9]{20,})",
    **{hint: rf"({hint}{_W}{{24,}})" for hint in ("ATBB", "ATCTT3")},
    **{hint: rf"({hint}[A-Za-z0-9+/]{{16,}}={{0,2}})" for hint in _ENCODED},
    **{hint: rf"({hint}[A-Za-z0-9+/_\-]{{16,}}={{0,2}})" for hint in ("eyJhcGlf", "eyJhdXRo")},  # {"api_, {"auth
    "eyJ": r"(eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*){0,4})",
}
"""Hint and pattern of tokens with at least sixteen letters, digits, _ and - in a row."""

TOKEN_LENGTHS = {
    "hf_": 34, "ghp_": 36, "gho_": 36, "ghu_": 36, "ghs_": 36, "npm_": 36, "AIza": 35, "glpat-": 20,
}  # fmt: skip
"""Number of characters after the hint, for tokens of one length: used to rejoin what a terminal broke."""

WEBHOOKS = (
    (
        "hook",
        "",
        (
            r"(?i)hooks\.slack\.com/\w{1,20}/(\S{8,200})",
            rf"(?i)hooks/(\d{{5,30}}/{_WD}{{8,}})",
            r"(?i)hook\.office\.com/(\S{8,300})",
            rf"(?i)hook/({_WD}{{16,}})",
        ),
    ),
    (
        "/t/",  # a channel of conda
        "",
        (r"/t/([a-z]{2}-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})(?=/)",),
    ),
    ("conda", "", (rf"(?i)conda[^\s/]{{0,60}}/t/({_WD}{{16,}})",)),
    ("telegram.org/bot", "", (rf"(?i)telegram\.org/bot(\d+:{_WD}{{10,}})",)),
)
"""URLs that anybody who knows them may write to: Slack, Discord, Teams, Feishu, Telegram."""

_SET_VARIABLE = r"\w{0,60}(?:token|secret|password|passwd|key|_pat)[ \t]{1,8}[\\'\"]{0,3}([^\s'\"\\]{8,})"
"""A variable and its value separated only by a blank, as some shells and files set it."""
_Q = r"\\{0,7}['\"]"
_QUOTED = r"\\{{0,7}}['\"]((?<=')[^'\n]{{{0},}}(?<!\\)|(?<=\")[^\"\n]{{{0},}}(?<!\\))"
"""A value in quotes, blanks included, of at least so many characters; a backslash before the last quote is outside."""
_GAP = r"(?:\s|\\{1,4}[nrt]){1,8}"
_SHORT_PASSWORD_OPTION = r"(?:[^\n]{0,200}?\s)?-p[ =]?['\"]?([^\s'\"\\`]{3,})"
"""A password after the one-letter option some commands have for it."""

PHRASES = (
    ("env ", "", (rf"(?i)env[ \t]{{1,8}}{_SET_VARIABLE}",)),
    ("set -", "", (rf"(?i)set -[a-z]{{1,4}}[ \t]{{1,8}}{_SET_VARIABLE}",)),
    ("setx ", "", (rf"(?i)setx[ \t]{{1,8}}{_SET_VARIABLE}",)),
    (
        "configure set ",
        "",
        (r"(?i)configure set \S{0,40}(?:secret_access_key|session_token)[ \t]{1,8}([^\s'\"\\]{16,})",),
    ),
    (
        "curl ",
        "",
        (r"(?i)curl [^\n]{0,200}?(?<=\s)(?:-u|--user|-U|--proxy-user)[ =]?['\"]?[^\s:'\"/]{1,80}:([^\s'\"/\\]{3,})",),
    ),
    (
        "--user",  # not a group name: container engines take --user name:group
        "",
        (r"(?i)--user[ =]['\"]?[^\s:'\"/]{1,80}:(?!(?-i:[a-z_][a-z0-9_\-]{0,19})(?:[\s'\"]|$))([^\s'\"/\\]{8,})",),
    ),
    (
        "mysql",
        "",
        (r"(?i)mysql(?:dump|admin|show|import)? [^\n]{0,100}?(?<=\s)-p(?!thread\b|ipe\b)([^\s'\"\\\-][^\s'\"\\]{2,})",),
    ),
    (
        "ldap",
        "",
        (r"(?i)ldap(?:search|modify|add|whoami|passwd|delete) [^\n]{0,200}?(?<=\s)-w ?['\"]?([^\s'\"\\]{3,})",),
    ),
    ("-pass", "pass", (rf"(?<=-)-pass[ =]{_QUOTED.format(3)}",)),
    ("--pass", "pass", (r"--pass[ =]['\"]?([^\s'\"\\]{8,})",)),
    (
        "-from-literal",  # the value in quotes, or name and value
        "",
        (
            rf"(?<=-)-from-literal[ =][^\s='\"]{{1,80}}={_QUOTED.format(8)}",
            r"(?<=-)-from-literal[ =]\\{0,7}'[^\s='\"]{1,80}=([^'\n]{7,}[^'\n\\])",
            r"(?<=-)-from-literal[ =]\\{0,7}\"[^\s='\"]{1,80}=([^\"\n]{7,}[^\"\n\\])",
        ),
    ),
    ("--from-literal", "", (r"--from-literal[ =]['\"]?[^\s='\"]{1,80}=([^\s'\"\\]{8,})",)),
    (" pass:", "pass", (r"(?i) pass:([^\s'\"\\]{8,})",)),
    (
        "echo ",
        "",
        (r"(?i)echo (?:-n )?['\"]?([^\s'\"|\\]{3,})['\"]? {0,4}\| {0,4}(?:sudo -S|docker login|passwd|kinit)\b",),
    ),
    (
        "username",
        "key",
        (
            rf"(?i)username{_Q}\s{{0,4}}:\s{{0,4}}{_Q}[^\"\n]{{0,80}}{_Q}\s{{0,4}},\s{{0,4}}{_Q}key{_Q}"
            rf"\s{{0,4}}:\s{{0,4}}{_Q}([0-9a-f]{{32}}){_Q}",
        ),
    ),
    ("machine ", "pass", (rf"(?i)machine{_GAP}[^\s\\]{{1,200}}{_GAP}password{_GAP}(\S+)",)),
    ("redis-cli ", "", (r"(?i)redis-cli [^\n]{0,200}?(?<=\s)-a ['\"]?([^\s'\"\\]{3,})",)),
    ("twine ", "", (rf"(?i)twine {_SHORT_PASSWORD_OPTION}",)),
    ("mongo", "", (rf"(?i)mongo(?:sh|dump|restore|export|import)? {_SHORT_PASSWORD_OPTION}",)),
    ("http-basic.", "", (r"(?i)http-basic\.\S{1,80}[ \t]\S{1,80}[ \t]['\"]?([^\s'\"\\]{3,})",)),
    ("jdbc:oracle", "", (r"(?i)jdbc:oracle:\w{1,8}:[^\s/@:]{1,80}/([^\s@]{1,256})@",)),
    (
        "private-lines:",
        "",
        (rf"(?i)private-lines:[ \t]\d{{1,3}}{_GAP}((?:[A-Za-z0-9+/=]{{1,80}}(?:{_GAP}|$)){{1,200}})",),
    ),
    ("bearer ", "", (r"(?i)bearer\s{1,4}([A-Za-z0-9_.~+/=\-]{8,})",)),
    ("basic ", "auth", (r"(?i)basic\s{1,4}([A-Za-z0-9+/_\-]{8,}={0,2})",)),
    (
        "auth",  # a user and a password, as HTTP clients take them
        "auth",
        (
            rf"(?i)auth\s{{0,4}}=?\s{{0,4}}\(\s{{0,4}}{_Q}[^'\"\n]{{1,80}}{_Q}\s{{0,4}},\s{{0,4}}{_Q}([^'\"\n\\]{{3,}}){_Q}",
            rf"(?i)auth(?:{_Q})?\s{{0,4}}[:=]\s{{0,4}}{_Q}[^\s:'\"\\/]{{1,80}}:([^\s'\"\\/]{{3,}}){_Q}",
        ),
    ),
    ("login", "", ()),  # searched once: where it is absent, so are the next ones
    (
        "login(",
        "",
        (
            r"(?i)login\([^)\n]{0,80}?(?:key|token)\s{0,4}=\s{0,4}\\{0,4}['\"]([^\s'\"\\]{8,})",
            rf"(?i)login\(\s{{0,4}}(?:{_Q}[^'\"\n]{{1,80}}{_Q}\s{{0,4}},\s{{0,4}})?{_Q}([^\s'\"\\]{{8,}})",
        ),
    ),
    (
        "login ",
        "pass",
        (
            rf"(?i)login{_GAP}[^\s\\]+{_GAP}(?:account{_GAP}[^\s\\]+{_GAP})?password{_GAP}(\S+)",
            r"(?i)login [^\n]{0,100}?\s--password[ =]['\"]?([^\s'\"]+)",
        ),
    ),
    (
        "login ",
        "",
        (
            rf"(?i)(?:(?<=docker )|(?<=podman )|(?<=nerdctl )|(?<=registry )|(?<=oras )|(?<=crane )|(?<=\baz ))login {_SHORT_PASSWORD_OPTION}",
        ),
    ),
    ("wandb login ", "", (r"(?i)wandb login (?:--\S+ )?([0-9a-f]{40})(?![0-9a-zA-Z])",)),
    ("sshpass ", "pass", (r"(?i)sshpass\s+-p\s*['\"]?([^\s'\"]+)",)),
    ("%3a%2f%2f", "", (r"(?i)%3a%2f%2f((?:[\w.~\-]|%(?!40|2f|3f|23)[0-9a-f]{2})*)%40",)),
)
"""Hint, the name hint that must be present too, and case-insensitive patterns."""

_LONG_WORD = b"a" * 16
_ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_WORD = frozenset(_ALNUM.encode() + b"_-")
_FLATTEN_TABLE = bytes(97 if byte in _WORD else 32 for byte in range(256))

_ESCAPE_SIGNS = frozenset("./\\%[;")

_hints_by_head: dict[str, list[str]] = {}
_compiled: dict[str, Pattern[str]] = {}


def find_token_patterns(text: str) -> list[tuple[str, str]]:
    """Hint and pattern of every token this text may contain.

    Searching for each of sixty hints would cost more than everything else. So the text is first flattened to words
    and gaps, where long words are found at once, and only the beginnings of their parts are compared.
    """
    flat = text.encode("ascii", "replace").translate(_FLATTEN_TABLE)
    if _LONG_WORD not in flat:
        return []
    if not _hints_by_head:
        for hint in _TOKENS:
            _hints_by_head.setdefault(_hint_head(hint), []).append(hint)
    spans = _long_words(flat)
    words = [text[begin:end] for begin, end in spans]
    for begin, end in spans:
        separator = text[begin - 1] if begin else " "
        if separator in _ESCAPE_SIGNS:
            # A hint with a full stop ends before the word; an escape is not part of the word.
            words.append(
                _hint_before_word(text, begin) if separator in "./" else text[begin + escape_length(text, begin) : end]
            )
    parts = set("_".join(set(words)).replace("-", "_").split("_"))
    found = _hints_by_head.keys() & (parts | {part[:3] for part in parts})
    return [(hint, _TOKENS[hint]) for head in sorted(found) for hint in _hints_by_head[head]]


def escape_length(text: str, begin: int) -> int:
    """How much of the word that begins here belongs to an escape before it: \\n, %20, a terminal colour."""
    separator = text[begin - 1]
    if separator == "\\":
        return 5 if text[begin : begin + 3] == "u00" else 3 if text[begin] == "x" else text[begin] in "nrtbf"
    if separator == "%":
        return 2
    tail = text[begin : begin + 4]
    colour = tail.lstrip("0123456789")
    return len(tail) - len(colour) + 1 if colour[:1] == "m" else 0


def has_long_word(text: str) -> bool:
    """Whether there are sixteen letters, digits, _ and - in a row, as in every token."""
    return _LONG_WORD in text.encode("ascii", "replace").translate(_FLATTEN_TABLE)


def _long_words(flat: bytes) -> list[tuple[int, int]]:
    found, find = [], flat.find
    at = find(_LONG_WORD)
    while at >= 0:
        end = find(b" ", at)
        if end < 0:
            end = len(flat)
        found.append((at, end))
        at = find(_LONG_WORD, end)
    return found


def _hint_before_word(text: str, begin: int) -> str:
    """The short word and the full stop, or the slashes, before a long word."""
    if text[begin - 2 : begin] == "//":
        return "//"
    short = text[max(begin - 10, 0) : begin - 1]
    at = begin - 1 - len(short) + len(short.rstrip(_ALNUM))
    if at and text[at - 1] in _ESCAPE_SIGNS:
        at += escape_length(text, at)
    return text[at : begin - 1] + "."


def _hint_head(hint: str) -> str:
    if "." in hint or "/" in hint:
        return "//" if "/" in hint else hint[:-1].rpartition(".")[2] + "."
    first, separator, rest = hint.replace("-", "_").partition("_")
    if first in ("api", "lin"):  # too common to begin with
        first = rest.partition("_")[0]
    return first if separator else hint[:3]


def compile_cached(source: str) -> Pattern[str]:
    """Compile a pattern on first use: most texts need none."""
    found = _compiled.get(source)
    if found is None:
        found = _compiled[source] = re.compile(source)
    return found
