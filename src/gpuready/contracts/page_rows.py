"""Parse one row, bullet or block of an environment page as rows of a contract."""

from __future__ import annotations

import re

import gpuready.contracts.phrases as phrases
from gpuready.model import ContractVariable, FixStep, KnownError, Requirement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.contracts.page_layout import PageBlock

SOLUTION_VERBS = (
    "Add|Allow|Build|Change|Check|Choose|Configure|Consider|Decrease|Disable|Downgrade|Download|Enable|"
    "Ensure|Export|Free|Increase|Install|Keep|Limit|Lower|Make|Move|Pass|Pin|Raise|Rebuild|Recompile|Reduce|"
    "Reinstall|Remove|Replace|Restart|Run|Set|Start|Switch|Try|Turn|Uninstall|Update|Upgrade|Use|Verify|Wait"
)
"""Words with which a solution begins."""

MAX_HEAD_LENGTH = 200
"""Maximum length of a row's first cell, which is read again with each of the others."""

_SPEC = r"(?:>=|<=|==|~=|!=|<|>)\s*v?[\w.*+!-]+"
_NAME = r"`?([A-Za-z][\w.-]*)(?:\[([\w,\s-]*)\])?`?"
_REQUIREMENT_LINE = re.compile(
    r"((?:nvidia )?driver|cuda toolkit|[A-Za-z][\w-]{0,60})(?: version)?\s{0,9}((?:>=|<=|==|~=|≥|≤)\s{0,9}v?\d[\w.]{0,30})",
    re.I,
)
_SHELL = r"[;&|$`\\\"'{}\n]|[<>](?!=?\s*\d)"


def parse_requirement_row(block: PageBlock, cite: str) -> list[Requirement]:
    """Return the needs of one row of a requirements table."""
    if columns := parse_version_columns(block, cite):
        return columns
    cells = _cells_with_levels(block)
    head = cells[0][0][:MAX_HEAD_LENGTH]
    when = phrases.parse_condition_phrase(head) if len(cells) > 1 else ""
    texts = {f"{head} {cell}": level for cell, level in cells[1:]} or {block.text: "required"}
    needs = [need for text, level in texts.items() for need in phrases.parse_phrase_needs(text, level, cite, when)]
    whole = "; ".join(texts)
    if re.match(r"(?:os|operating system|platform)\b", head, re.I) and (system := phrases.allowed_systems(whole)):
        needs.insert(0, Requirement("os.system", system, "", "required", cite))
    if re.search(r"\bnvidia\b.{0,20}\bgpu\b", whole, re.I):
        needs.insert(0, Requirement("gpu.count", ">=1", when, "required", cite))
    return needs or _need_without_version(block.text, "required", cite)


def _cells_with_levels(block: PageBlock) -> list[tuple[str, str]]:
    """Return the cells of a row, each with the level of its column: ``GPU memory | 24 GB | 80 GB`` below Minimum and Recommended."""
    levels = [_column_level(column) for column in block.columns] + [""] * len(block.cells)
    cells = [(cell, level or "required") for cell, level in zip(block.cells, levels, strict=False) if cell]
    return cells or [(block.text, "required")]


def parse_version_columns(block: PageBlock, cite: str) -> list[Requirement]:
    """Parse the row of a table whose columns are versions: ``torch | 2.0.0 | 2.6.0`` below Minimum and Recommended."""
    ranks = [_column_level(column) for column in block.columns]
    if not any(ranks[1:]) or not block.cells or len(block.cells[0].split()) != 1:
        return []
    key = _column_fact(block.cells[0])
    is_optional = "optional" in block.columns[0]
    return [
        Requirement(key, want, "", "optional" if is_optional else level, cite)
        for level, cell in zip(ranks, block.cells, strict=False)
        if level and (want := _column_want(cell))
    ]


def _column_level(column: str) -> str:
    if re.search(r"recommend|prefer|tested", column):
        return "recommended"
    return "required" if re.search(r"minimum|range|least|required version", column) else ""


def _column_fact(name: str) -> str:
    """Return the fact that a row is about: a version of the machine's, else a package."""
    plain = name.strip("`").lower()
    facts = [key for pattern, key in phrases.VERSION_FACTS if re.fullmatch(pattern, plain)]
    return facts[0] if facts else f"package.{re.sub(r'[-_.]+', '-', plain)}"


def _column_want(cell: str) -> str:
    """``>=3.0, <4.8.5`` as it is; ``3.12`` and the first of ``cuda12.8/13.0`` as the oldest version."""
    clauses = [re.sub(r"\s", "", clause) for clause in re.findall(_SPEC, cell)]
    number = re.search(r"(?<![\w.])(?:[a-z]+)?v?(\d+(?:\.\d+)+(?:\.?(?:post|b|rc|a)\d+)?)", cell)
    return ",".join(clauses) or (f">={number[1]}" if number else "")


def parse_dependency_row(block: PageBlock, level: str, cite: str) -> list[Requirement]:
    """Return the needs of a package row or bullet; what is not a Python package is a fact of the machine."""
    if columns := parse_version_columns(block, cite):
        return columns
    text = " ".join(c for c in block.cells if c) or block.text
    if block.columns and "package" not in block.columns[0] and "name" not in block.columns[0]:
        return parse_requirement_row(block, cite)
    facts = phrases.parse_phrase_needs(text, level, cite)
    if phrases.line_subject(text) or re.match(r"`?[A-Za-z]\w*\.\w+", text):
        return (
            [n for n in facts if n.key != "package.torch"]
            or _feature_needs(text, level, cite)
            or _need_without_version(text, level, cite)
        )
    return list(_package_needs(text, level, cite)) or facts


def _need_without_version(text: str, level: str, cite: str) -> list[Requirement]:
    """Require the presence of a thing that is named without a version."""
    key = phrases.line_subject(text)
    when = "gpus>1" if key == "nccl.version" else phrases.parse_condition_phrase(text)
    keys = [key, "toolkit.nvcc"] if key == "toolkit.version" and re.search(r"\bnvcc\b", text) else [key]
    return [Requirement(key, "*", when, level, cite) for key in keys if key]


def _feature_needs(text: str, level: str, cite: str) -> list[Requirement]:
    """Parse ``torch.compile`` compatible (requires PyTorch 2.0+): a feature, and what it needs."""
    match = re.match(r"`?([a-z]\w*)\.(\w+)", text)
    when = f"wants={match[1]}-{match[2]}".replace("_", "-") if match else ""
    return [n.replace(level="required") for n in phrases.parse_phrase_needs(text, level, cite, when)]


def _package_needs(text: str, level: str, cite: str) -> Iterator[Requirement]:
    """Parse ``name >= 1, < 2 (for what)``, or several joined by ``+``."""
    body, _, aside = text.partition("(")
    when = phrases.parse_condition_phrase(aside)
    for piece in re.split(r"\s\+\s", body):
        match = re.match(rf"{_NAME}\s*(.*)", piece.strip())
        # Unlike prose, a package is quoted, followed by a version, or alone.
        if match is None or not (piece.strip().startswith("`") or re.match(_SPEC, match[3]) or not match[3]):
            continue
        want, rank = _package_specifier(match[3], aside, level)
        if match[1] == "torch" and re.search(r"\bwith cuda\b", aside, re.I):
            yield Requirement("torch.build", "cuda", when, rank, cite)
        yield Requirement(f"package.{re.sub(r'[-_.]+', '-', match[1]).lower()}", want, when, rank, cite)


def _package_specifier(text: str, aside: str, level: str) -> tuple[str, str]:
    """Return the specifier of a package, and its level; ``== 1 or 2`` are alternatives."""
    clauses = [re.sub(r"\s", "", c) for c in re.findall(_SPEC, text)]
    others = re.findall(r"\bor\s+v?(\d[\w.]*)", text)
    if len(clauses) == 1 and others:
        return "|".join([clauses[0], *(f"=={v}" for v in others)]), level
    span = re.search(r"(?<!\d)(?<!\d\.)(\d+(?:\.\d+)+)\s*(?:to|-|–)\s*(\d+(?:\.\d+)+)", aside)
    if not clauses and span:
        return f">={span[1]},<={span[2]}", "recommended" if level == "required" else level
    return ",".join(clauses) or "*", level


def parse_variable_row(block: PageBlock, cite: str) -> list[ContractVariable]:
    """Return the variable that a row or bullet describes."""
    text = " ".join(c for c in block.cells if c) or block.text
    match = re.match(r"`?([A-Z_][A-Za-z0-9_]*[A-Z0-9_][A-Za-z0-9_]*)`?\s*[:=]?\s*(.*)", text, re.S)
    if match is None:
        return []
    name, rest = match[1], match[2]
    sets = re.search(r"auto(?:matically)?[- ]?(?:set|config)|set internally|set at|sets it", rest, re.I)
    when = "build" if re.match(r"yes\b.*\bbuild", rest, re.I) else phrases.parse_condition_phrase(rest)
    allowed = re.search(r"\bset to `([^`]+)` or `([^`]+)`", rest, re.I)
    return [
        ContractVariable(
            name,
            "set" if sets else "read",
            "" if allowed else _stated_value(rest),
            when,
            (allowed[1], allowed[2]) if allowed else (),
            re.match(r"yes\b|required\b", rest, re.I) is not None,
            cite,
        )
    ]


def _stated_value(text: str) -> str:
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


def variables_with_values(block: PageBlock, cite: str) -> list[ContractVariable]:
    """Return variables with a value in prose or code: ``NAME=value``, ``"NAME": "value"``, ``environ["NAME"]``."""
    patterns = (
        r"`(?:export\s+)?([A-Z][A-Z0-9_]{2,})\s*=\s*([^`\s]+)`",
        r"environ\[[\"']([A-Z]\w+)[\"']\]\s*=\s*[\"']([^\"']*)[\"']",
        r"[\"']([A-Z][A-Z0-9]+_\w+)[\"']\s*:\s*[\"']([^\"']*)[\"']",
        r"[\"']([A-Z][A-Z0-9]+_\w+)[\"']\s*:\s*os\.getenv\([\"']\w+[\"'],\s*[\"']([^\"']*)[\"']\)",
    )
    return [ContractVariable(m[1], "set", m[2], cite=cite) for p in patterns for m in re.finditer(p, block.text)]


def variables_without_values(block: PageBlock, cite: str) -> list[ContractVariable]:
    """Return variables that prose only names: quoted, or in a list after "environment variables"."""
    quoted = re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", block.text)
    lists = re.search(r"environment variables?[^.(]{0,300}\(([A-Z][A-Z0-9_, ]{0,600})\)", block.text)
    list_names = re.split(r"[,\s]+", lists[1].strip()) if lists else []
    return [ContractVariable(name, "read", cite=cite) for name in [*quoted, *list_names] if name]


def parse_error_row(block: PageBlock, cite: str) -> list[KnownError]:
    """Return the error of a row, whose cells may have run together."""
    cells = [c for c in block.cells if c]
    if len(cells) >= 3:
        return [KnownError(cells[0].strip("`"), cells[1], " ".join(cells[2:]), "", cite)]
    message, rest = _split_message(block.text)
    cause, fix = _split_cause_and_fix(rest)
    return [KnownError(message, cause, fix, "", cite)] if message and cause and fix else []


def _split_message(text: str) -> tuple[str, str]:
    if match := re.match(r"`([^`]+)`\s*(.*)", text):
        return match[1], match[2]
    words = text.split()
    turns = _cell_starts(words)
    opener = r"The|An?|No|Not|Some|[A-Z][a-z]+(?:ing|ed)"
    at = next((i for i in turns if re.fullmatch(opener, words[i])), turns[0] if turns else len(words))
    return " ".join(words[:at]), " ".join(words[at:])


def _split_cause_and_fix(text: str) -> tuple[str, str]:
    """Split cause and solution: where a verb says what to do, or a command or a sentence begins."""
    for pattern in (
        rf"(?<![.:;,\s])\s+(?=(?:{SOLUTION_VERBS})\b)",
        r"(?<!\s)\s+(?=`(?:pip|conda|export|apt|python)\b)",
    ):
        if match := re.search(pattern, text):
            return text[: match.start()], text[match.end() :]
    words = text.split()
    at = next(iter(_cell_starts(words)), len(words))
    return " ".join(words[:at]), " ".join(words[at:])


def _cell_starts(words: list[str]) -> list[int]:
    """Return where a capital follows a lower-case word, a number or an end: a new cell may begin there."""
    capital = [word[0].isupper() for word in words]
    ended = [word.endswith((".", ")")) for word in words]
    small = [not big and not word.endswith(":") for big, word in zip(capital, words, strict=True)]
    return [i for i in range(1, len(words)) if capital[i] and (small[i - 1] or ended[i - 1])]


def split_requirement_lines(block: PageBlock, cite: str) -> tuple[list[Requirement], PageBlock]:
    """Return what lines of a code block require that are no commands, as ``CUDA Version >= 12.4``; and the rest of the block."""
    needs, rest = list[Requirement](), list[str]()
    is_rocm = re.search(r"\brocm\b", block.text, re.I) and not re.search(r"\bcuda\b", block.text, re.I)
    for line in block.text.splitlines():
        match = _REQUIREMENT_LINE.fullmatch(line.strip())
        if match and (key := _column_fact(match[1])) != "package.rocm":
            want = re.sub(r"\s", "", match[2]).replace("≥", ">=").replace("≤", "<=")
            needs.append(Requirement(key, want, "platform=rocm" if is_rocm else "", "required", cite))
        else:
            rest.append(line)
    return needs, block.replace(text="\n".join(rest)) if needs else block


def parse_commands(block: PageBlock, origin: str) -> Iterator[FixStep]:
    """Yield the commands of a shell block, each with the comments above and beside it."""
    comments, is_used, where = list[str](), False, f"{origin}, {block.section.casefold()}, line {block.line}"
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        text = line.strip()
        if text.startswith("#"):
            inner = re.match(r"#+\s*(?:Alternative|Or)\s*:\s*((?:pip|conda|docker|uv)\s.*)", text, re.I)
            comments = [
                *(comments if not is_used or inner else ()),
                *([] if inner else [text.lstrip("# ").rstrip(":")]),
            ]
            is_used = is_used and bool(inner)
            text = inner[1] if inner else ""
        if text:
            beside = re.search(r"\s#\s*(.*)", text)
            words = [*comments, beside[1] if beside else ""]
            yield _command_step(": ".join(w for w in words if w) or text, text, _split_command(text), where)
            is_used = True
    if any(comments) and not is_used:
        yield FixStep(": ".join(w for w in comments if w), note=where)


def _split_command(text: str) -> list[str]:
    """Return the arguments of a command without its comment; none where the quotes do not match."""
    import shlex

    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return []


def _command_step(does: str, text: str, argv: list[str], where: str) -> FixStep:
    """Make a step: manual where a shell is needed, else an argument list."""
    if argv and re.fullmatch(r"[A-Z_][A-Z0-9_]*=\S*", argv[0]):
        argv = ["env", *argv]
    if not argv or argv[0] in ("export", "source", "cd", "sudo") or any(re.search(_SHELL, a) for a in argv):
        return FixStep(does, (), "manual", (), f"{text} ({where})")
    looks = argv[0] in ("nvidia-smi", "nvcc") or argv[-1] in ("--version", "check", "env")
    return FixStep(does, tuple(argv), "safe" if looks else "ask", (), where)


def parse_compatibility_note(block: PageBlock, cite: str) -> list[Requirement]:
    """Return what a compatibility note requires; advice stays a note."""
    head, colon, body = block.text.partition(":")
    if not colon or not re.search(r"\brequire[sd]?\b|\bmust\b|\bonly\b", body, re.I):
        return []
    when = phrases.parse_condition_phrase(head + ":")
    needs = [n for n in phrases.parse_phrase_needs(body, "required", cite, when) if n.key != "package.torch"]
    quoted = re.search(r"\brequires?\s+`([a-z][\w-]*)`", body, re.I)
    if when and quoted:
        needs.append(Requirement(f"package.{quoted[1].replace('_', '-')}", "*", when, "required", cite))
    return needs
