"""Lines that ask for a package, or for another release of it, in the words of any package.

ImportError: Deepspeed TP requires deepspeed >= 0.16.4, Please update DeepSpeed via `pip install deepspeed -U`.
RuntimeError: Torch version must be 2.5 or higher to use symmetric memory. Current version: 2.4.0
ValueError: torchao was selected, but it is not installed on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine

Form = tuple[tuple[str, ...], LazyRegex]


MAX_CHARACTERS = 600
"""How much of a line is read."""

_NAME = (
    r"[`'\"]?(?P<package>(?!(?:cuda|python\d?|nvidia|drivers?|gpus?|devices?|cudnn|nccl|gcc|glibc|compute|rocm|linux|nvcc|compilers?|kernels?|memory"
    r"|files?|models?|datasets?|backends?|tokens?|versions?|config\w{0,40}|checkpoints?|flash(?!infer)\w{0,40}|the|an?|it|that|this|which|your|at|to|be|is|only|git\S{0,40}|cmake|ninja|ffmpeg|lib\w{1,40}|mpi\w{0,40}|numactl|visual|msvc|msbuild)\b)"
    r"[a-z][\w.-]{0,39}\w(?: engine)?)[`'\"]?"
)
"""A package; not the toolkit, the driver, Python or what has a cause of its own."""
_BOUND = r",? ?(?:version |package |library |release )?\(?(?:[<>=~]=|[<>]|at least|version) ?[`'\"]?v?\d{1,4}\.\d"


_LISTED = r"transformers|torch|pytorch|vllm|sglang|peft|trl|accelerate|datasets|tokenizers|deepspeed|bitsandbytes|triton|numpy|diffusers|ray|apex|wandb|xformers|flashinfer|transformer.engine"
_KNOWN = rf"{_LISTED}|\w{{2,30}}[_-]\w{{2,30}}"
"""Packages that a line may name without a release; others may be anything that one updates."""


def _form(marks: str, text: str) -> Form:
    """One way of asking: literals of which a line has one, and what is around it."""
    filled = text.replace("NAME", _NAME).replace("BOUND", _BOUND).replace("KNOWN", _KNOWN).replace("LISTED", _LISTED)
    return tuple(marks.split("|")), LazyRegex("(?i)" + filled)


_OR_HIGHER = " or higher| or newer| or later| or above| or greater| and above| and later| and newer| and up"
_RELEASES = (
    _form("require|need|depends on|expect|support|works with|work with|compatible with|available", r"(?:requires?|needs?|depends on|expects?|supports?|works? with|compatible with|(?:supported|available) (?:in|with|on|from|for)) (?:an? |the |to have |only )?NAMEBOUND"),
    _form(" required| needed", r"\bNAME ?(?:version )?\(?(?:[<>=~]=|[<>]) ?v?\d{1,4}\.[\w.]{1,14}\)? (?:is|are) (?:required|needed)"),
    _form("grade |update ", r"(?:upgrade|downgrade|update) (?:to |your )?NAME ?(?:to )?(?:version ?)?(?:at least |v|[<>=~]{1,2} ?)?\d{1,4}\.\d"),
    _form("grade |update ", r"(?:upgrade|downgrade|update) (?:your )?[`'\"]?(?P<package>KNOWN)[`'\"]?(?:[.,;(`]| \(| to the latest| version|$)"),
    _form("install ", r"\binstall NAME ?(?:[<>=~]=|[<>]) ?v?\d{1,4}\.\d"),
    _form("use ", r"\buse (?:the |an? )?NAME (?:version|release) ?(?:[<>=~]= ?|at least )[`'\"]?v?\d{1,4}\.\d"),
    _form("use ", r"\buse [`'\"]?(?P<package>LISTED)[`'\"]? ?(?:[<>=~]= ?|at least )[`'\"]?v?\d{1,4}\.\d"),
    _form(" but ", r"requires? NAME v?\d{1,4}\.\d[\w.]{0,10},? but (?:found|got|detected|you have)"),
    _form(" version to be ", r"NAME (?:package )?version to be (?:greater|at least|[<>=])"),
    _form(" too old| too new", r"\binstalled NAME version (?:is )?too (?:old|new)"),
    _form(" version must | version should | version has | version needs ", r"\bNAME version (?:must be|should be|has to be|needs to be) (?:at least|[<>=]|v?\d)"),
    _form(" must have at least ", r"\bNAME must have at least version"),
    _form(" version does not ", r"\bcurrent NAME version does not (?:have|support)"),
    _form(_OR_HIGHER, r"(?:requires?|needs?|use|with|install|have|least|in) (?:the )?NAME (?:version )?v?\d[\w.+]{0,14} (?:or|and) (?:higher|newer|later|above|greater|up)\b"),
    _form(_OR_HIGHER, r"\b(?P<package>LISTED) (?:version )?v?\d[\w.+]{0,14} (?:or|and) (?:higher|newer|later|above|greater|up)\b"),
    _form("+", r"(?:requires?|needs?|use|with|install|have|least|in) (?:the )?NAME (?:version )?v?\d{1,4}\.\d[\w.]{0,10}\+(?:[\s.,;)]|$)"),
    _form(" version ", r"\bNAME version \S{1,20} (?:exceeds|is (?:above|below|lower|higher|older|newer|greater|less))\b"),
    _form("version of ", r"not (?:available|supported) (?:in|by|with) (?:this|your|the installed|the current) version of NAME"),
    _form(" build| version", r"not (?:available|supported) (?:in|by|with) (?:this|your|the installed|the current) NAME (?:build|version|release)"),
    _form("but ", r"but (?:you have|you are using|found|got|the installed|installed) NAME(?: version |==| )v?\d{1,4}\.\d"),
)  # fmt: skip
_MISSING = (
    _form(" not found| not installed| not available| missing| unavailable", r"\bNAME (?:package |library |module |extra )?(?:was|were|is|are) (?:not (?:found|installed|available)|missing|unavailable) (?:on|in) (?:your|this|the) (?:system|machine|environment|runtime)"),
    _form(" to be installed| which is not ", r"(?:requires?|needs?) (?:the |that )?NAME(?: package| library| module| extra)?(?: to be installed|, which is not (?:installed|available))"),
    _form("installation of ", r"requires? (?:the )?installation of NAME"),
    _form(" not found", r"\bNAME (?:kernels?|module|package|extension) (?:was |were )?not found\b.{0,120}install"),
    _form(" importable| be imported", r"\bNAME (?:is not importable|(?:could not|cannot|can't) be imported)"),
    _form(" seem to be installed", r"\bNAME (?:does not|do not|doesn't) seem to be installed"),
    _form(" package| library", r"requires? (?:the |an? )?(?!(?:shared|static|dynamic|external|native|system|standard|new|newer|different|compiled|optional|additional|custom|separate|single|third.party)\b)NAME (?:python )?(?:package|library)\b"),
    _form(" was selected", r"\bNAME was selected, but it is not installed"),
    _form(" is required ", r"\bNAME (?:package |library )?is required .{0,160}(?:not installed|install it)"),
    _form(" is required for", r"\bNAME (?:package|library) is required for"),
    _form(" is required ", r"\b(?P<package>LISTED) is required (?:for|to|by|when)\b"),
    _form("(install |but it was not |pip install", r"requires? (?:the )?NAME (?:library |package )?\(?(?:install |but it was not found|`pip install)"),
    _form("require", r"requires? (?:the )?NAME(?: library| package)?[.:;] ?(?:[`(]|pip |install )"),
    _form("have to install|need to install|must install", r"(?:have to|need to|must) install NAME (?:first|to)"),
    _form("ensure|make sure|check that|verify", r"(?:ensure|make sure|check|verify) (?:that )?(?:the )?NAME(?: python)?(?: packages?| library| libraries)? (?:is|are) (?:properly |correctly )?installed"),
    _form(" not available", r"\bNAME (?:backend |package |library |extension )?(?:is|are) not available\b.{0,40}install (?:the package|it|them)\b"),
    _form(" be installed", r"\bNAME (?:should|must) be installed\b"),
    _form("please install|please pip install", r"please (?:pip )?install NAME(?:[.;,]|$| first| to | via | with | using | by )"),
)  # fmt: skip
MAX_BEFORE, MAX_AFTER, MAX_TRIES = 80, 260, 3
"""Characters around a literal in which its form is looked for, and the number of places of one literal."""
_HAS_IT = LazyRegex(
    r"(?i)\b(?:upgrade|update|found|you have|but|installed|current|downgrade|incompatible)\b|install -U"
)
_INSTALL = LazyRegex(r"(?i)(?:pip3? |please |to )install|install it")


def find_asked_packages(lines: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    """``another release of deepspeed is asked for``, ``the package torchao is asked for``: with the index of the line."""
    for index, line in enumerate(lines):
        if line.level in ("I", "D", "W") or line.place:
            continue  # no error of a package
        if words := _name_request(line.text[:MAX_CHARACTERS]):
            yield index, words


def _name_request(text: str) -> str:
    """What a line asks for; empty where it asks for nothing."""
    low = text.lower()
    may_be_missing = "install" in low or " require" in low or " not " in low
    if may_be_missing and (package := _find_package(_MISSING, text, low)):
        return f"the package {package} is asked for"
    package = _find_package(_RELEASES, text, low) if "." in low else ""
    if not package:
        return ""
    is_missing = bool(_INSTALL.search(text)) and not _HAS_IT.search(text)
    return f"{'the package' if is_missing else 'another release of'} {package} is asked for"


def _find_package(forms: Sequence[Form], text: str, low: str) -> str:
    """The package in the first form that matches around one of its literals."""
    for marks, regex in forms:
        for mark in marks:
            at, tries = low.find(mark), 0
            while at >= 0 and tries < MAX_TRIES:
                if found := regex.compiled.search(text, max(at - MAX_BEFORE, 0), at + MAX_AFTER):
                    return str(found["package"]).replace(" ", "-")
                at, tries = low.find(mark, at + 1), tries + 1
    return ""
