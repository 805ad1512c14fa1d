"""Errors that are no Python exception: C++, Rust, OpenMP, compilers, linkers, and the trees of pip and uv.

And Python's own as people quote them: without their type, or as ``repr`` shows them: ``AttributeError("'tuple' object has ...")``.
"""

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine

_FORMS = (
    # terminate called after throwing an instance of 'c10::Error'
    ("terminat", LazyRegex(r"\s{0,40}terminate called after throwing an instance of ['\"`]?([\w:]{1,120})['\"`]?"), ""),
    ("terminat", LazyRegex(r"\s{0,40}terminate called (without an active exception|recursively)"), "std::terminate"),
    ("terminat", LazyRegex(r".{0,40}terminating (?:due to|with) uncaught exception of type ([\w:]{1,120})"), ""),
    # thread '<unnamed>' panicked at src/lib.rs:41:14:
    ("panicked at", LazyRegex(r".{0,120}?thread '[^']{0,80}' (?:\(\d{1,9}\) )?panicked at (.{1,400})"), "rust::panic"),
    # OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized.
    ("omp: ", LazyRegex(r".{0,40}?(?:OMP|omp): (?:System )?[Ee]rror #(.{1,400})"), "omp::error"),
    # Fatal Python error: Segmentation fault
    ("fatal python error", LazyRegex(r".{0,120}?[Ff]atal [Pp]ython error: (.{1,200})"), "python::fatal"),
    ("error in `", LazyRegex(r"\*\*\* Error in `[^']{1,200}': (.{1,200})"), "libc::error"),
    ("assertion", LazyRegex(r"\S{1,200}: \S{0,200}:?\d{0,7}:? ?.{0,200}Assertion [`'\"].{1,200} failed"), "assert::failed"),
    ("check failed", LazyRegex(r".{0,160}Check failed: (.{1,300})"), "glog::fatal"),
    # nvcc fatal   : Unsupported gpu architecture 'compute_90'
    ("fatal", LazyRegex(r"\s{0,40}(?:nvcc|ptxas|nvlink|cicc|fatbinary|cl|hipcc|clang|gcc)\s{1,4}fatal\s{0,6}:?\s{0,4}(.{1,300})"), "compiler::fatal"),
    ("error", LazyRegex(r"\s{0,40}(?:nvcc|ptxas|nvlink|cicc|hipcc|clang|gcc|g\+\+|cc1plus|ninja|cmake|collect2)\s{0,4}(?:fatal )?error\s{0,4}:?\s(.{1,300})", 2), "compiler::error"),
    # loc("kernel.py":18:23): error: 'tt.fp_to_fp' op ...
    ("error", LazyRegex(r"\s{0,40}loc\(.{1,400}\): error: (.{1,300})"), "mlir::error"),
    # a.cu(12): error: ..., a.cpp:12:5: fatal error: x.h: No such file
    ("error", LazyRegex(r"\s{0,40}\S{1,300}?(?:\(\d{1,7}\)|:\d{1,7}(?::\d{1,5})?):? (?:fatal |catastrophic )?error(?: #[\w-]{1,9}| [A-Z]{1,4}\d{3,5})?: (.{1,300})"), "compiler::error"),
    ("ld", LazyRegex(r"\s{0,40}\S{0,120}?\bld(?:\.\w{1,8})?: (?:error: )?((?:cannot|unable|undefined|error).{1,300})"), "linker::error"),
    ("cmake error", LazyRegex(r"\s{0,40}CMake Error(?: at (.{1,200}))?", 2), "cmake::error"),
    ("build stopped", LazyRegex(r"\s{0,40}ninja: build stopped: (.{1,200})"), "ninja::stopped"),
    ("***", LazyRegex(r"\s{0,40}g?make(?:\[\d{1,3}\])?: \*\*\* (.{1,200})"), "make::error"),
    # uv:   × Failed to build `flash-attn==2.8.3`
    ("×", LazyRegex(r"\s{0,4}× (.{1,400})"), "uv::error"),
    ("error: ", LazyRegex(r"\s{0,6}error: ((?:subprocess-exited-with-error|[Ff]ailed |externally-managed|Distribution|Request|No solution|Package |Could not|Querying|Command).{0,400})"), "installer::error"),
    ("error: ", LazyRegex(r"\s{0,6}ERROR: ((?:Could not|No matching|Cannot|Failed|ResolutionImpossible|Command|pip's|Ignored|THESE|Package|Exception|Operation|Invalid|Unexpected).{0,400})"), "installer::error"),
    ("error: ", LazyRegex(r"\s{0,6}((?:Unsatisfiable|Packages?NotFound|Conda\w{0,30}|Resolve\w{0,30}|LibMamba\w{0,30})Error: .{0,400})"), "installer::error"),
    # Cannot import module for custom nodes: cannot import name 'x' from 'y' (/opt/venv/lib/.../y/__init__.py)
    ("cannot import name", LazyRegex(r"(?!\s{0,40}[\w.]{1,80}(?:Error|Exception): ).{0,300}?(cannot import name '\w{1,80}' from '[\w.]{1,120}' \([^()]{1,400}\))"), "ImportError"),
    # Error: All model downloads failed (anyhow, eyre, click, node)
    ("error: ", LazyRegex(r"Error: (?!Process completed|Command failed)(.{8,400})"), "program::error"),
    ("error executing job", LazyRegex(r"(Error executing job with overrides.{0,200})"), "hydra::error"),
)  # fmt: skip
"""What a line must contain in lower case, its form, and the type; the form's group is the message or, without a type, the type."""

_TREE_MARKS = (
    "├─▶", "╰─▶", "├─>", "╰─>", "├▶", "╰▶", "hint:", "help:", "Caused by:", "cause:", "[stderr]", "[stdout]", "what():",
)  # fmt: skip
"""Beginnings of lines that continue such an error: uv, cargo, pip, C++."""

_NUMBERED = LazyRegex(r"\s{2,8}\d{1,2}: \S")
"""A link of a chain of causes: ``   1: Connection reset by peer (os error 54)``."""


def parse_native_error(text: str) -> tuple[str, str] | None:
    """Type and message of an error of these forms."""
    low = text[:600].lower()
    if "erro" not in low and "fatal" not in low and not any(key in low for key in _OTHER_KEYS):
        return None
    for key, form, kind in _FORMS:
        if key in low and (match := form.match(text)):
            words = (match[1] if form.compiled.groups else match[0]) or match[0]
            return (kind, words.strip()) if kind else (words, "")
    return None


_OTHER_KEYS = (
    "terminat", "panicked at", "assertion", "check failed", "build stopped", "***", "×", "ld: ", "ld.", "cannot import name",
)  # fmt: skip


def continues_native_error(text: str) -> bool:
    """Whether a line is a branch of such an error's tree, or the text of one."""
    rest = text.strip().lstrip("│ ")
    return rest.startswith(_TREE_MARKS) or text.lstrip().startswith("│") or bool(_NUMBERED.match(text))


_PLAIN_FORMS = (
    ("has no attribute", "AttributeError", LazyRegex(r"(?:type object |module )?'[\w.]{1,120}' (?:object )?has no attribute '\w{1,80}'")),
    ("cannot import name", "ImportError", LazyRegex(r"cannot import name '\w{1,80}' from '[\w.]{1,120}'")),
    ("No module named", "ModuleNotFoundError", LazyRegex(r"No module named '[\w.]{1,120}'\W{0,4}$")),
    ("unexpected keyword argument", "TypeError", LazyRegex(r"(?:[\w.<>]{1,120}\(\) )?got (?:an )?unexpected keyword argument '\w{1,80}'")),
    ("No such file or directory", "FileNotFoundError", LazyRegex(r"(?:\[Errno 2\] )?No such file or directory: ?['\"][^'\"]{1,300}")),
    ("object is not", "TypeError", LazyRegex(r"'[\w.]{1,80}' object is not (?:subscriptable|callable|iterable|an iterator|a mapping)")),
    ("object does not support", "TypeError", LazyRegex(r"'[\w.]{1,80}' object does not support item (?:assignment|deletion)")),
    ("unsupported operand", "TypeError", LazyRegex(r"unsupported operand type\(s\) for [^:]{1,20}: '")),
    ("required positional", "TypeError", LazyRegex(r"[\w.<>]{1,120}\(\) missing \d{1,3} required positional argument")),
    ("index out of range", "IndexError", LazyRegex(r"(?:list|tuple|string) index out of range")),
    ("values to unpack", "ValueError", LazyRegex(r"(?:too many|not enough) values to unpack \(expected")),
    ("is not defined", "NameError", LazyRegex(r"name '\w{1,80}' is not defined\W{0,4}$")),
)  # fmt: skip
_REPR = LazyRegex(r"([A-Za-z_][\w.]{0,80}(?:Error|Exception))\(([\"'])(.{1,1000})\2,?\)\s{0,4}$")


def parse_typeless_error(line: LogLine, is_quoted: bool) -> tuple[str, str] | None:
    """Type and message of an exception that a line tells in such a form: as a whole, or anywhere where the log is but a quotation."""
    if line.level in ("W", "I", "D") or line.place:
        return None
    text = line.text[:1200].strip()
    for key, kind, form in _PLAIN_FORMS:
        found = (form.search(text) if is_quoted else form.match(text)) if key in text else None
        if found:
            return kind, text[found.start() :]
    is_shown = "Error(" in text or "Exception(" in text
    shown = (_REPR.search(text) if is_quoted else _REPR.match(text)) if is_shown else None
    return (shown[1], shown[3]) if shown else None
