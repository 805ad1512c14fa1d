"""Parse one row, bullet or block of an environment page as rows of a contract."""

from __future__ import annotations

import re

import gpuready.contracts.phrases as phrases
from gpuready.model import KnownError, Need, Step, Variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.contracts.layout import Block

VERBS = (
    "Add|Allow|Build|Change|Check|Choose|Configure|Consider|Decrease|Disable|Downgrade|Download|Enable|"
    "Ensure|Export|Free|Increase|Install|Keep|Limit|Lower|Make|Move|Pass|Pin|Raise|Rebuild|Recompile|Reduce|"
    "Reinstall|Remove|Replace|Restart|Run|Set|Start|Switch|Try|Turn|Uninstall|Update|Upgrade|Use|Verify|Wait"
)
"""Words with which a solution begins."""

LONGEST_HEAD = 200
"""Maximum length of a row's first cell, which is read again with each of the others."""

_SPEC = r"(?:>=|<=|==|~=|!=|<|>)\s*v?[\w.*+!-]+"
_NAME = r"`?([A-Za-z][\w.-]*)(?:\[([\w,\s-]*)\])?`?"
_SHELL = r"[;&|$`\\\"'{}\n]|[<>](?!=?\s*\d)"


def requirement(block: Block, cite: str) -> list[Need]:
    """Return the needs of one row of a requirements table."""
    cells = [c for c in block.cells if c] or [block.text]
    head = cells[0][:LONGEST_HEAD]
    when = phrases.condition(head) if len(cells) > 1 else ""
    said = [f"{head} {cell}" for cell in cells[1:]] or [block.text]
    found = [need for text in said for need in phrases.needs(text, "required", cite, when)]
    whole = "; ".join(said)
    if re.match(r"(?:os|operating system|platform)\b", head, re.I) and (system := phrases.system(whole)):
        found.insert(0, Need("os.system", system, "", "required", cite))
    if re.search(r"\bnvidia\b.{0,20}\bgpu\b", whole, re.I):
        found.insert(0, Need("gpu.count", ">=1", when, "required", cite))
    return found or _named(block.text, "required", cite)


def dependency(block: Block, level: str, cite: str) -> list[Need]:
    """Return the needs of a package row or bullet; what is not a Python package is a fact of the machine."""
    text = " ".join(c for c in block.cells if c) or block.text
    if block.columns and "package" not in block.columns[0] and "name" not in block.columns[0]:
        return requirement(block, cite)
    facts = phrases.needs(text, level, cite)
    if phrases.subject(text) or re.match(r"`?[A-Za-z]\w*\.\w+", text):
        return (
            [n for n in facts if n.key != "package.torch"]
            or _aside(text, level, cite)
            or _named(text, level, cite)
        )
    return list(_packages(text, level, cite)) or facts


def _named(text: str, level: str, cite: str) -> list[Need]:
    """Require the presence of a thing that is named without a version."""
    key = phrases.subject(text)
    when = "gpus>1" if key == "nccl.version" else phrases.condition(text)
    keys = [key, "toolkit.nvcc"] if key == "toolkit.version" and re.search(r"\bnvcc\b", text) else [key]
    return [Need(key, "*", when, level, cite) for key in keys if key]


def _aside(text: str, level: str, cite: str) -> list[Need]:
    """Parse ``torch.compile`` compatible (requires PyTorch 2.0+): a feature, and what it needs."""
    match = re.match(r"`?([a-z]\w*)\.(\w+)", text)
    when = f"wants={match[1]}-{match[2]}".replace("_", "-") if match else ""
    return [n.but(level="required") for n in phrases.needs(text, level, cite, when)]


def _packages(text: str, level: str, cite: str) -> Iterator[Need]:
    """Parse ``name >= 1, < 2 (for what)``, or several joined by ``+``."""
    body, _, aside = text.partition("(")
    when = phrases.condition(aside)
    for piece in re.split(r"\s\+\s", body):
        match = re.match(rf"{_NAME}\s*(.*)", piece.strip())
        # Unlike prose, a package is quoted, followed by a version, or alone.
        if match is None or not (piece.strip().startswith("`") or re.match(_SPEC, match[3]) or not match[3]):
            continue
        want, rank = _version(match[3], aside, level)
        if match[1] == "torch" and re.search(r"\bwith cuda\b", aside, re.I):
            yield Need("torch.build", "cuda", when, rank, cite)
        yield Need(f"package.{re.sub(r'[-_.]+', '-', match[1]).lower()}", want, when, rank, cite)


def _version(text: str, aside: str, level: str) -> tuple[str, str]:
    """Return the specifier of a package, and its level; ``== 1 or 2`` are alternatives."""
    clauses = [re.sub(r"\s", "", c) for c in re.findall(_SPEC, text)]
    others = re.findall(r"\bor\s+v?(\d[\w.]*)", text)
    if len(clauses) == 1 and others:
        return "|".join([clauses[0], *(f"=={v}" for v in others)]), level
    span = re.search(r"(?<!\d)(?<!\d\.)(\d+(?:\.\d+)+)\s*(?:to|-|–)\s*(\d+(?:\.\d+)+)", aside)
    if not clauses and span:
        return f">={span[1]},<={span[2]}", "recommended" if level == "required" else level
    return ",".join(clauses) or "*", level


def variable(block: Block, cite: str) -> list[Variable]:
    """Return the variable that a row or bullet describes."""
    text = " ".join(c for c in block.cells if c) or block.text
    match = re.match(r"`?([A-Z_][A-Za-z0-9_]*[A-Z0-9_][A-Za-z0-9_]*)`?\s*[:=]?\s*(.*)", text, re.S)
    if match is None:
        return []
    name, rest = match[1], match[2]
    sets = re.search(r"auto(?:matically)?[- ]?(?:set|config)|set internally|set at|sets it", rest, re.I)
    when = "build" if re.match(r"yes\b.*\bbuild", rest, re.I) else phrases.condition(rest)
    allowed = re.search(r"\bset to `([^`]+)` or `([^`]+)`", rest, re.I)
    return [
        Variable(
            name,
            "set" if sets else "read",
            "" if allowed else _value(rest),
            when,
            (allowed[1], allowed[2]) if allowed else (),
            re.match(r"yes\b|required\b", rest, re.I) is not None,
            cite,
        )
    ]


def _value(text: str) -> str:
    """Return the value in a description: after ``set to``, ``default`` or ``e.g.``."""
    for pattern in (
        r"\bset to [`\"']([^`\"']+)[`\"']",
        r"\bset to (\d+)\b",
        r"\bdefaults?(?: to| is)? [`\"']?([\w.:/-]+)",
        r"\be\.g\.,? [`\"']?([^`\"'\s)]+)",
    ):
        if match := re.search(pattern, text, re.I):
            return match[1].rstrip(".,")
    return ""


def mentioned(block: Block, cite: str) -> list[Variable]:
    """Return variables with a value in prose or code: ``NAME=value``, ``"NAME": "value"``, ``environ["NAME"]``."""
    patterns = (
        r"`([A-Z][A-Z0-9_]{2,})\s*=\s*([^`\s]+)`",
        r"environ\[[\"']([A-Z]\w+)[\"']\]\s*=\s*[\"']([^\"']*)[\"']",
        r"[\"']([A-Z][A-Z0-9]+_\w+)[\"']\s*:\s*[\"']([^\"']*)[\"']",
        r"[\"']([A-Z][A-Z0-9]+_\w+)[\"']\s*:\s*os\.getenv\([\"']\w+[\"'],\s*[\"']([^\"']*)[\"']\)",
    )
    return [Variable(m[1], "set", m[2], cite=cite) for p in patterns for m in re.finditer(p, block.text)]


def spoken_of(block: Block, cite: str) -> list[Variable]:
    """Return variables that prose only names: quoted, or in a list after "environment variables"."""
    quoted = re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", block.text)
    lists = re.search(r"environment variables?[^.(]{0,300}\(([A-Z][A-Z0-9_, ]{0,600})\)", block.text)
    listed = re.split(r"[,\s]+", lists[1].strip()) if lists else []
    return [Variable(name, "read", cite=cite) for name in [*quoted, *listed] if name]


def error(block: Block, cite: str) -> list[KnownError]:
    """Return the error of a row, whose cells may have run together."""
    cells = [c for c in block.cells if c]
    if len(cells) >= 3:
        return [KnownError(cells[0].strip("`"), cells[1], " ".join(cells[2:]), "", cite)]
    message, rest = _message(block.text)
    cause, fix = _cause(rest)
    return [KnownError(message, cause, fix, "", cite)] if message and cause and fix else []


def _message(text: str) -> tuple[str, str]:
    if match := re.match(r"`([^`]+)`\s*(.*)", text):
        return match[1], match[2]
    words = text.split()
    turns = _turns(words)
    opener = r"The|An?|No|Not|Some|[A-Z][a-z]+(?:ing|ed)"
    at = next((i for i in turns if re.fullmatch(opener, words[i])), turns[0] if turns else len(words))
    return " ".join(words[:at]), " ".join(words[at:])


def _cause(text: str) -> tuple[str, str]:
    """Split cause and solution: where a verb says what to do, or a command or a sentence begins."""
    for pattern in (
        rf"(?<![.:;,\s])\s+(?=(?:{VERBS})\b)",
        r"(?<!\s)\s+(?=`(?:pip|conda|export|apt|python)\b)",
    ):
        if match := re.search(pattern, text):
            return text[: match.start()], text[match.end() :]
    words = text.split()
    at = next(iter(_turns(words)), len(words))
    return " ".join(words[:at]), " ".join(words[at:])


def _turns(words: list[str]) -> list[int]:
    """Return where a capital follows a lower-case word, a number or an end: a new cell may begin there."""
    capital = [word[0].isupper() for word in words]
    ended = [word.endswith((".", ")")) for word in words]
    small = [not big and not word.endswith(":") for big, word in zip(capital, words, strict=True)]
    return [i for i in range(1, len(words)) if capital[i] and (small[i - 1] or ended[i - 1])]


def commands(block: Block, origin: str) -> Iterator[Step]:
    """Yield the commands of a shell block, each with the comment above it."""
    import shlex

    does, where = "", f"{origin}, {block.section.casefold()}, line {block.line}"
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        text = line.strip()
        if text.startswith("#"):
            inner = re.match(r"#+\s*(?:Alternative|Or)\s*:\s*((?:pip|conda|docker|uv)\s.*)", text, re.I)
            does = does if inner else text.lstrip("# ").rstrip(":")
            text = inner[1] if inner else ""
        if text:
            try:
                argv = shlex.split(text)
            except ValueError:
                argv = []
            yield _step(does or text, text, argv, where)


def _step(does: str, text: str, argv: list[str], where: str) -> Step:
    """Make a step: manual where a shell is needed, else an argument list."""
    if argv and re.fullmatch(r"[A-Z_][A-Z0-9_]*=\S*", argv[0]):
        argv = ["env", *argv]
    if not argv or argv[0] in ("export", "source", "cd", "sudo") or any(re.search(_SHELL, a) for a in argv):
        return Step(does, (), "manual", (), f"{text} ({where})")
    looks = argv[0] in ("nvidia-smi", "nvcc") or argv[-1] in ("--version", "check", "env")
    return Step(does, tuple(argv), "safe" if looks else "ask", (), where)


def compatibility(block: Block, cite: str) -> list[Need]:
    """Return what a compatibility note requires; advice stays a note."""
    head, colon, body = block.text.partition(":")
    if not colon or not re.search(r"\brequire[sd]?\b|\bmust\b|\bonly\b", body, re.I):
        return []
    when = phrases.condition(head + ":")
    found = [n for n in phrases.needs(body, "required", cite, when) if n.key != "package.torch"]
    quoted = re.search(r"\brequires?\s+`([a-z][\w-]*)`", body, re.I)
    if when and quoted:
        found.append(Need(f"package.{quoted[1].replace('_', '-')}", "*", when, "required", cite))
    return found
