"""Parse phrases of environment pages, such as ``CUDA 11.8+ recommended``, as needs."""

from __future__ import annotations

import itertools
import re

from gpuready.model import Capability, Record, Requirement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

GPU_GENERATIONS = {
    "pascal": "6.0", "volta": "7.0", "v100": "7.0", "turing": "7.5", "ampere": "8.0", "a100": "8.0",
    "ada": "8.9", "hopper": "9.0", "h100": "9.0", "h200": "9.0", "blackwell": "10.0", "b200": "10.0",
}  # fmt: skip
VERSION_FACTS = (
    (r"ubuntu", "os.version"),
    (r"(?:linux\s+)?kernel", "os.kernel"),
    (r"glibc", "os.glibc"),
    (r"python(?![\w.])", "python.version"),
    (r"compute capability", "gpu.capability"),
    (r"cuda[\s-]*toolkit`?", "toolkit.version"),
    (r"cuda(?![\w-])", "torch.cuda"),
    (r"cudnn`?", "cudnn.version"),
    (r"nccl`?", "nccl.version"),
    (r"(?:nvidia[\s-]*)?driver`?", "driver.version"),
    (r"pytorch", "package.torch"),
)
"""How pages name a fact that is a version; the first match counts."""

FEATURE_PHRASES = {
    "bf16": ("bf16", r"\bbf16\b|\bbfloat16\b"),
    "fp16": ("fp16_amp", r"\bfp16\b"),
    "tf32": ("tf32", r"\btf32\b|tensorfloat"),
    "fp8": ("fp8_scaled_mm", r"\bfp8\b"),
    "flash-attn": ("flash_attention_2", r"flash[\s_-]*att(?:entio)?n"),
    "xformers": ("xformers_attention", r"\bxformers\b"),
    "torch-compile": ("torch_compile", r"torch\.compile"),
    "bnb-4bit": ("bnb_4bit", r"\b4[\s-]*bit\b|\bqlora\b"),
    "bnb-8bit": ("bnb_int8", r"\b8[\s-]*bit\b"),
    "liger": ("liger", r"\bliger\b"),
    "mamba": ("", r"\bmamba\b"),
    "deepspeed": ("", r"\bdeepspeed\b"),
    "vllm": ("", r"\bvllm\b"),
    "sglang": ("", r"\bsglang\b"),
    "megatron": ("", r"\bmegatron\b"),
}
"""What a job can want, the catalogue's feature for it, and how pages call it."""

SUBJECT_FACTS = (
    (r"cuda[\s-]*toolkit", "toolkit.version"),
    (r"(?:nvidia[\s-]*)?driver", "driver.version"),
    (r"nccl|communication backend", "nccl.version"),
    (r"cudnn", "cudnn.version"),
    (r"cuda", "torch.cuda"),
    (r"python", "python.version"),
)
"""What a line is about when it names a thing without a version."""

ADVISED_PACKAGES = (
    "vllm",
    "sglang",
    "deepspeed",
    "flash[-_]attn",
    "transformers",
    "accelerate",
    "xformers",
    "peft",
    "trl",
)
"""Packages whose oldest version prose may name."""

_BOUND = r"`?:?\s{0,4}(?:of\s{1,4})?(?:version:?\s{0,4})?(>=|<=|==|>|<|≥|≤)?\s{0,4}[vr]?(\d+(?:\.\d+)*)(\+|\s+or\s+(?:newer|later|higher|above))?"
_RANGE_END = re.compile(r"\s{0,4}(?:-|–|to|through)\s{0,4}v?(\d+(?:\.\d+)+)", re.I)
"""``3.10 - 3.13``: the last one counts, with its patches."""
_SIZE = r"(?<!\d)(\d+)\s*(GB|GiB|TB)\b\+?"


class PhraseNeed(Record):
    """One thing that a phrase requires, and its position in the phrase."""

    at: int
    key: str
    want: str


def parse_phrase_needs(text: str, level: str, cite: str, when: str = "") -> list[Requirement]:
    """Return everything that a phrase requires, each with the level and condition of the words beside it."""
    needs_found: dict[tuple[str, str, str], Requirement] = {}
    measured = _size_subject(text)
    for part in split_clauses(text):
        level_here, previous = level, ""
        for need, words in _needs_with_words(part, measured):
            level_here = _level_in_words(words, level_here)
            own_condition = _relative_condition(parse_condition_phrase(words), previous)
            level_here = "recommended" if need.key == "disk.rotational" else level_here
            condition_text = own_condition or (previous if words.lstrip().startswith("(") else "")
            previous = own_condition or previous
            full = ",".join(dict.fromkeys(c for c in (when, condition_text, _ubuntu_condition(need)) if c))
            needs_found.setdefault(
                (need.key, need.want, full), Requirement(need.key, need.want, full, level_here, cite)
            )
    return list(needs_found.values())


def _relative_condition(own_condition: str, previous: str) -> str:
    """Make ``for larger`` mean larger than the model named before it."""
    size = re.search(r"model>=([\d.]+b)", previous)
    return own_condition.replace("model>7b", f"model>{size[1]}") if size else own_condition


def line_subject(text: str) -> str:
    """Return the fact that a line is about, where it gives no version of it; empty where there is none."""
    named = [key for pattern, key in SUBJECT_FACTS if re.match(rf"`?(?:{pattern})\b", text, re.I)]
    return named[0] if named else ""


def parse_condition_phrase(text: str) -> str:
    """Return the ``when`` that a phrase names, or an empty text."""
    conditions = []
    if match := re.search(r"\bfor\s+(\d+(?:\.\d+)?)B\b", text, re.I):
        conditions.append(f"model>={match[1]}b")
    elif re.search(r"\bfor (?:larger|bigger)", text, re.I):
        conditions.append("model>7b")
    if re.search(r"multi-?\s*gpu|multi-?\s*node|several gpus", text, re.I):
        conditions.append("gpus>1")
    if match := re.search(r"(?:\bfor\s+|^)torch\s{0,9}(>=|==|<)?\s{0,9}(\d+(?:\.\d+)+)", text):
        conditions.append(f"torch{match[1] or '=='}{match[2]}")
    for name, (_, pattern) in FEATURE_PHRASES.items():
        if re.search(rf"\b(?:for|with)\s+(?:{pattern})|^(?:{pattern})\b[^:]*:|\((?:{pattern})\)", text, re.I):
            conditions.append(f"wants={name}")
            break
    return ",".join(conditions)


def find_capabilities(text: str, cite: str) -> list[Capability]:
    """Return the features that a text mentions."""
    named = [(n, g) for n, (g, pattern) in FEATURE_PHRASES.items() if re.search(pattern, text, re.I)]
    return [Capability(name, "optional", gate, f"wants={name}", cite) for name, gate in named]


def allowed_systems(text: str) -> str:
    """Return the operating systems that a phrase allows: ``linux|windows``; empty where it names none."""
    kinds = {"linux": "linux", "ubuntu": "linux", "debian": "linux", "windows": "windows", "macos": "darwin"}
    allowed: set[str] = set()
    for part in split_clauses(text):
        named = list(re.finditer("|".join(kinds), part, re.I))
        ends = [match.start() for match in named[1:]] + [len(part)] * bool(named)
        refused = False
        # Last to first: "Windows/macOS not supported" excludes both.
        for match, end in reversed(list(zip(named, ends, strict=True))):
            following = part[match.end() : end]
            joined = re.fullmatch(r"\s*(?:/|,|and|or)\s*", following)
            refused = bool(re.search(r"\bnot\b|unsupported|\bno\b", following, re.I) or (joined and refused))
            allowed |= set() if refused else {kinds[match[0].lower()]}
    return "|".join(kind for kind in ("linux", "windows", "darwin") if kind in allowed)


def split_clauses(text: str) -> list[str]:
    """Split into clauses: at semicolons, at ends of sentences, and before a word that changes the level."""
    cuts = r";\s*|(?<=[a-z0-9)])\.\s+(?=[A-Z])|,\s+(?=(?:Recommended|Minimum|Preferred)\b)"
    return [part for part in re.split(cuts, text) if part.strip()]


def _needs_with_words(part: str, measured: str) -> list[tuple[PhraseNeed, str]]:
    """Return each required thing with its words: from its position to that of the next."""
    found = sorted(
        [*_find_sizes(part, measured), *_find_versions(part), *_find_generation(part)], key=lambda need: need.at
    )
    starts = [0 if i == 0 else _bracket_start(part, need.at) for i, need in enumerate(found)]
    # A size and what follows from it (an SSD) have the same position and share their words.
    places = [*dict.fromkeys(starts), len(part)]
    after = dict(itertools.pairwise(places))
    return [(need, part[start : after[start]]) for need, start in zip(found, starts, strict=True)]


def _bracket_start(part: str, at: int) -> int:
    return at - 1 if part[at - 1 : at] == "(" else at


def _level_in_words(words: str, level: str) -> str:
    if re.search(r"recommend|prefer|ideally", words, re.I):
        return "recommended"
    return "optional" if re.search(r"\boptional", words, re.I) else level


def _ubuntu_condition(need: PhraseNeed) -> str:
    return "os.name=ubuntu" if need.key == "os.version" else ""


def _find_versions(part: str) -> Iterator[PhraseNeed]:
    taken: set[int] = set()
    aside = re.compile(r"\b(?:for|than|from|below)\s+$", re.I)
    for name, key in VERSION_FACTS:
        for match in re.finditer(rf"(?<![\w.-])(?:{name}){_BOUND}", part, re.I):
            operator, version, plus = match.groups()[-3:]
            at = match.start()
            if at in taken or not (operator or plus or "." in version) or operator in ("<",):
                continue
            # "for CUDA 11.8+" is a condition, not a requirement.
            if aside.search(part, max(at - 40, 0), at):
                continue
            taken.update(range(*match.span()))
            newest = _RANGE_END.match(part, match.end()) if not operator and not plus else None
            upper = f",<{_next_version(newest[1])}" if newest else ""
            yield PhraseNeed(match.start(), key, _normalize_operator(operator) + version + upper)
            if better := re.match(r"\s*\((\d+(?:\.\d+)+)\+?\s+(?:is\s+)?(?:recommend|prefer)", part[match.end() :]):
                yield PhraseNeed(match.end() + better.start(1), key, f">={better[1]}")


def _next_version(version: str) -> str:
    """``3.13`` -> ``3.14``."""
    *first, last = version.split(".")
    return ".".join([*first, str(int(last) + 1)])


def find_package_advice(text: str, cite: str) -> list[Requirement]:
    """Parse ``We recommend vLLM 0.27.1+``: packages of which prose names an oldest version."""
    found = re.findall(
        rf"\b({'|'.join(ADVISED_PACKAGES)})`?\s+v?(\d+(?:\.\d+)+)(?:\+|\s+(?:and|or)\s+(?:later|newer|above))",
        text,
        re.I,
    )
    names = [(re.sub(r"[\s_]+", "-", name.lower()), version) for name, version in found]
    return [Requirement(f"package.{name}", f">={v}", f"wants={name}", "recommended", cite) for name, v in names]


def find_stated_minimums(text: str, cite: str) -> list[Requirement]:
    """Parse ``the Driver Version needs to be greater than 550.127``, ``a minimum requirement of CUDA version 11.3`` and
    ``make sure that you have Python 3.8 or later``.
    """
    found = []
    for name, key in VERSION_FACTS:
        pattern = rf"\b(?:{name})[^.;\n]{{0,60}}?\b(at least|greater than|newer than|higher than)\s+`?v?(\d+(?:\.\d+)+)"
        for words, version in re.findall(pattern, text, re.I):
            sign = ">=" if words.lower() == "at least" else ">"
            found.append(Requirement(key, f"{sign}{version}", "", "required", cite))
        first = rf"\bminimum\b[^.;\n]{{0,30}}?\b(?:{name})\s+(?:version\s+)?v?(\d+(?:\.\d+)+)"
        found += [Requirement(key, f">={one}", "", "required", cite) for one in re.findall(first, text, re.I)]
        later = rf"(?<![\w.-])(?:{name})`?\s+(?:version\s+)?v?(\d+(?:\.\d+)*)(?:\+|\s+or\s+(?:newer|later|higher|above|greater)\b)"
        asked = (clause for clause in split_clauses(text) if _asks_for_something(clause))
        found += [
            Requirement(key, f">={one}", "", "required", cite) for c in asked for one in re.findall(later, c, re.I)
        ]
    return found


def _asks_for_something(clause: str) -> bool:
    """Whether a clause states a need without a condition: ``make sure that you have Python 3.8 or later``."""
    asks = r"\b(?:make sure|ensure|requires?|required|needs?|must|prerequisites?)\b"
    return bool(re.search(asks, clause, re.I)) and not re.search(r"\b(?:if|when|unless|only|otherwise)\b", clause, re.I)


def _normalize_operator(text: str | None) -> str:
    return {"≥": ">=", "≤": "<=", None: ">="}.get(text, text or "")


def _size_subject(whole: str) -> str:
    """Return the fact that sizes in a text belong to."""
    for pattern, key in (
        (r"\bshared[\s-]memory\b|\bshm\b", "system.shm"),
        (r"\bdisk\b|\bssd\b|storage", "disk.free"),
        (r"\bvram\b|\bgpu\b", "gpu.memory"),
        (r"\bram\b|memory", "memory.total"),
    ):
        if re.search(pattern, whole, re.I):
            return key
    return ""


def _find_sizes(part: str, key: str) -> Iterator[PhraseNeed]:
    names_ssd = key == "disk.free" and re.search(r"\bssd\b", part, re.I)
    for match in re.finditer(_SIZE, part, re.I) if key else ():
        unit = {"gb": "GB", "gib": "GiB", "tb": "TB"}[match[2].lower()]
        yield PhraseNeed(match.start(), key, f">={match[1]}{unit}")
        if names_ssd:
            yield PhraseNeed(match.start(), "disk.rotational", "false")


def _find_generation(part: str) -> Iterator[PhraseNeed]:
    """Find ``Minimum: Pascal``, ``Ampere or newer``, ``requires Hopper``; a bare list of names requires nothing."""
    if re.search(r"compute capability\s{0,9}(?:>=|of)?\s{0,9}\d", part, re.I):
        return
    asks = r"minimum|recommended|preferred|requires?|needs?|\bonly\b|supported with|or newer|or later|or higher"
    if not re.search(asks, part, re.I):
        return
    named = {n: m for n in GPU_GENERATIONS if (m := re.search(rf"\b{n}\b", part, re.I))}
    if named:
        at = min(match.start() for match in named.values())
        yield PhraseNeed(at, "gpu.capability", f">={min((GPU_GENERATIONS[n] for n in named), key=float)}")
