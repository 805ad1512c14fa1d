"""Lines that ask for a package, or for another release of it, in the words of any package.

ImportError: Deepspeed TP requires deepspeed >= 0.16.4, Please update DeepSpeed via `pip install deepspeed -U`.
RuntimeError: Torch version must be 2.5 or higher to use symmetric memory. Current version: 2.4.0
ValueError: torchao was selected, but it is not installed on this machine.
"""

from __future__ import annotations

from gpuready.logs.lazy_regex import LazyRegex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuready.logs.log_lines import LogLine

MAX_CHARACTERS = 600
"""How much of a line is read."""

_NAME = (
    r"[`'\"]?(?P<package>(?!(?:cuda|python\d?|nvidia|drivers?|gpus?|devices?|cudnn|nccl|gcc|glibc|compute|rocm|linux|nvcc|compilers?|kernels?|memory"
    r"|files?|models?|datasets?|backends?|tokens?|versions?|config\w*|checkpoints?|flash\w*|the|an?|it|that|this|which|your|at|to|be|is|only|git\S*|cmake|ninja|ffmpeg|lib\w+|mpi\w*|numactl|visual|ms\w*)\b)"
    r"[a-z][\w.-]{0,39}\w)[`'\"]?"
)
"""A package; not the toolkit, the driver, Python or what has a cause of its own."""
_BOUND = r",? ?(?:version |package |library |release )?\(?(?:[<>=~]=|[<>]|at least|version) ?[`'\"]?v?\d{1,4}\.\d"


_KNOWN = r"transformers|torch|pytorch|vllm|sglang|peft|trl|accelerate|datasets|tokenizers|deepspeed|bitsandbytes|triton|numpy|diffusers|\w{2,30}[_-]\w{2,30}"
"""Packages that a line may name without a release; others may be anything that one updates."""


def _forms(*texts: str) -> tuple[LazyRegex, ...]:
    filled = (text.replace("NAME", _NAME).replace("BOUND", _BOUND).replace("KNOWN", _KNOWN) for text in texts)
    return tuple(LazyRegex("(?i)" + text) for text in filled)


_RELEASES = _forms(
    r"(?:requires?|needs?|depends on|expects?|supports?|works? with|compatible with|(?:supported|available) (?:in|with|on|from|for)) (?:an? |the |to have |only )?NAMEBOUND",
    r"\bNAME ?(?:version )?\(?(?:[<>=~]=|[<>]) ?v?\d{1,4}\.[\w.]{1,14}\)? (?:is|are) (?:required|needed)",
    r"(?:upgrade|downgrade|update) (?:to |your )?NAME ?(?:to )?(?:version ?)?(?:at least |v|[<>=~]{1,2} ?)?\d{1,4}\.\d",
    r"(?:upgrade|downgrade|update) (?:your )?[`'\"]?(?P<package>KNOWN)[`'\"]?(?:[.,;(`]| \(| to the latest| version|$)",
    r"requires? NAME v?\d{1,4}\.\d[\w.]{0,10},? but (?:found|got|detected|you have)",
    r"NAME (?:package )?version to be (?:greater|at least|[<>=])",
    r"\binstalled NAME version (?:is )?too (?:old|new)",
    r"\bNAME version (?:must be|should be|has to be|needs to be) (?:at least|[<>=]|v?\d)",
    r"\bNAME must have at least version",
    r"\bcurrent NAME version does not (?:have|support)",
    r"requires? NAME (?:version )?v?\d[\w.+]{0,14} or (?:higher|newer|later|above|greater)",
    r"but (?:you have|you are using|found|got|the installed|installed) NAME(?: version |==| )v?\d{1,4}\.\d",
)
_MISSING = _forms(
    r"\bNAME (?:package |library |module |extra )?(?:was|were|is|are) (?:not (?:found|installed|available)|missing|unavailable) (?:on|in) (?:your|this|the) (?:system|machine|environment|runtime)",
    r"(?:requires?|needs?) (?:the |that )?NAME(?: package| library| module| extra)?(?: to be installed|, which is not (?:installed|available))",
    r"requires? (?:the )?installation of NAME",
    r"\bNAME (?:kernels?|module|package|extension) (?:was |were )?not found\b.{0,120}install",
    r"\bNAME was selected, but it is not installed",
    r"\bNAME (?:package |library )?is required .{0,160}(?:not installed|[Ii]nstall (?:it|psutil))",
    r"\bNAME (?:package|library) is required for",
    r"requires? (?:the )?NAME (?:library |package )?\(?(?:install |but it was not found|`pip install)",
    r"requires? (?:the )?NAME(?: library| package)?[.:;] ?(?:[`(]|pip |[Ii]nstall )",
    r"(?:have to|need to|must) install NAME (?:first|to)",
    r"\bNAME (?:should|must) be installed\b",
    r"please (?:pip )?install NAME(?:[.;,]|$| first| to | via | with | using | by )",
)
_HAS_IT = LazyRegex(
    r"(?i)\b(?:upgrade|update|found|you have|but|installed|current|downgrade|incompatible)\b|install -U"
)
_INSTALL = LazyRegex(r"(?i)(?:pip3? |please |to )install|install it")
_MARKS = ("requir", "need", "version", "install", "pdate", "grade", "support", "available", "depends", "found")
"""One of these is in every such line."""


def find_asked_packages(lines: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    """``another release of deepspeed is asked for``, ``the package torchao is asked for``: with the index of the line."""
    for index, line in enumerate(lines):
        text = line.text[:MAX_CHARACTERS]
        if any(mark in text for mark in _MARKS) and (words := _name_request(text)):
            yield index, words


def _name_request(text: str) -> str:
    """What a line asks for; empty where it asks for nothing."""
    if found := next((match for form in _MISSING if (match := form.search(text))), None):
        return f"the package {found['package']} is asked for"
    found = next((match for form in _RELEASES if (match := form.search(text))), None)
    if found is None:
        return ""
    is_missing = bool(_INSTALL.search(text)) and not _HAS_IT.search(text)
    return f"{'the package' if is_missing else 'another release of'} {found['package']} is asked for"
