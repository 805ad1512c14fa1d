"""Read from an error which interface it complains of: a parameter, a name, a module or an attribute, and whose."""

from __future__ import annotations

from gpuready.diagnose.origin import ELISIONS, KNOWN_PACKAGES, USER, package_of_frame
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.logged_exception import LoggedException, StackFrame
from gpuready.model.record import Record

_UNEXPECTED = LazyRegex(
    r"(?i)(?:([\w.<>]{1,160})\(\)`? )?(?:got an unexpected|got unexpected|unexpected) keyword arguments?:? ['`\[{]{0,2}(\w{1,80})"
    r"|['`](?P<word>\w{1,80})['`] is an invalid keyword argument for (?:(?:this function|print)|(?P<function>[\w.]{1,120}))"
)
_MISSING = LazyRegex(
    r"(?i)(?:([\w.<>]{1,160})\(\)`? )?(?:missing \d{1,3} required (?:positional|keyword-only) arguments?:|missing required argument) ['`](\w{1,80})"
)
_COUNT = LazyRegex(
    r"([\w.<>]{1,160})\(\) takes (?:(?:from |exactly |at most |at least )?\d{1,3} (?:to \d{1,3} )?(?:positional )?arguments? (?:but \d|\(\d)|no (?:keyword )?arguments)"
    r"|([\w.<>]{1,160})\(\) got multiple values for (?:keyword )?argument"
)
_IMPORT = LazyRegex(
    r"(?i)cannot import name ['\"`]?(\w{1,80})['\"`]? from (?:partially initialized module )?['\"`]?(\w[\w.]{0,160}\w)['\"`]?"
    r"(?: \(most likely due to a circular import\))?(?: \(([^)\n]{1,400})\))?"
)
_MODULE = LazyRegex(r"(?i)No module named '(\w{1,60}(?:\.\w{1,60}){1,12})'(?!; )")
_MODULE_NAME = LazyRegex(r"\bmodule ['\"`]?(\w[\w.]{0,160})['\"`]? has no attribute ['\"`]?(\w{1,80})")
_UNDEFINED = LazyRegex(r"name '([A-Za-z_]\w{1,80})' is not defined")
_UNPICKLED = LazyRegex(r"Can't get attribute '(\w{1,80})' on <module '(\w[\w.]{0,160})' from '[^'\n]{1,300}-packages")
"""A class that a saved object is of, and that the installed package has elsewhere or not at all."""
_WRAPPED = LazyRegex(r"(?i)failed to import [\w.]{1,160} because of the following error")
"""How a lazy module wraps the error of an import; its message follows."""
_WRAPPERS = ("runtimeerror", "exception", "importerror")
"""Types with which packages raise the error of another one again."""
_CALLED = LazyRegex(r"(?i)\(\) (?:got an unexpected|missing \d{1,3} required|takes \d|got multiple values)")
"""How Python complains of a call, where a package repeats it in an error of another type."""
_OBJECT = LazyRegex(
    r"(?:(?:type object )?'(?:\w{1,40}\.){0,6}(\w{1,80})' (?:object )?|^(?=[A-Z])(\w{3,80}) )has no attribute ['`]?(\w{1,80})"
)
_BUILT_IN = ("nonetype", "str", "dict", "list", "tuple", "int", "float", "bool", "bytes", "set", "function", "method", "type", "module",
             "generator", "tensor", "ndarray", "namespace", "property", "object", "dataframe", "series")  # fmt: skip
_CONTAINERS, MIN_SPECIAL = ("list", "tuple", "dict"), 9
"""What older releases pass where newer ones have a class, and the length of a name that only such a class has."""
_CALL = LazyRegex(r"([A-Za-z_][\w.]{0,120})\(")

_PASSED_ON = ("fn", "func", "f", "function", "cls", "method", "self", "wrapped")

_SHARED_FOLDERS = (
    "", "workspace", "home", "root", "app", "opt", "mnt", "data", "code", "projects", "repos", "work", "git", "src",
)  # fmt: skip
"""Folders in which several source trees may lie side by side."""


class Complaint(Record):
    """What an error says of an interface: the kind of symbol, whose it is, and its name."""

    kind: str  # parameter, required, count, name, module, attribute, undefined, passed
    owner: str  # function, module or class
    name: str = ""

    @property
    def symbol(self) -> str:
        """As it is shown: ``Trainer(tokenizer)``, ``torch._six``, ``numpy.bool``."""
        if self.kind in ("parameter", "required"):
            return f"{self.owner}({self.name})"
        if self.kind == "count":
            return f"{self.owner}()"
        return f"{self.owner}.{self.name}" if self.name else self.owner


def read_complaint(failure: LoggedException) -> Complaint | None:
    """The interface that an error complains of."""
    text = failure.message[:800]
    name = failure.short_type.lower()
    is_wrapped = bool(_WRAPPED.search(text)) or name in _WRAPPERS
    if name == "typeerror" or (is_wrapped and _CALLED.search(text)):
        return _complaint_of_call(text, failure)
    if match := _IMPORT.search(text):
        is_file = (match[3] or "").endswith(".py") and package_of_frame(StackFrame(match[3], 0)) == USER
        is_own = is_file or imports_own_tree(failure) or _may_be_shadowed(text, match[2])
        return None if is_own else Complaint("name", match[2], match[1])
    if (name == "modulenotfounderror" or is_wrapped) and (match := _MODULE.search(text)):
        return None if "._c" in match[1].lower() else Complaint("module", match[1])
    if (name == "nameerror" or is_wrapped) and (match := _UNDEFINED.search(text)):
        return Complaint("undefined", "", match[1])
    if name == "attributeerror" or is_wrapped or "partially initialized module" in text:
        if match := _MODULE_NAME.search(text):
            return None if _may_be_shadowed(text, match[1]) else Complaint("name", match[1], match[2])
        if match := _UNPICKLED.search(text):
            return Complaint("name", match[2], match[1])
        match = _OBJECT.search(text)
        return _complaint_of_object(match[1] or match[2], match[3]) if match else None
    return None


def _complaint_of_call(text: str, failure: LoggedException) -> Complaint | None:
    """A function that was called with a parameter that it has not, without one that it needs, or with too many."""
    if match := _UNEXPECTED.search(text):
        return Complaint(
            "parameter", _function_name(match[1] or match["function"] or "", failure), match[2] or match["word"]
        )
    if match := _MISSING.search(text):
        return Complaint("required", _function_name(match[1] or "", failure), match[2])
    match = _COUNT.search(text)
    return Complaint("count", _function_name(match[1] or match[2], failure)) if match else None


def _complaint_of_object(owner: str, name: str) -> Complaint | None:
    """A class without an attribute; a built-in one only where the attribute is that of a class which it stands for."""
    if owner.lower() not in _BUILT_IN:
        return Complaint("attribute", owner, name)
    is_special = owner.lower() in _CONTAINERS and len(name) > MIN_SPECIAL and "_" in name.strip("_")
    return Complaint("passed", owner, name) if is_special else None


def _function_name(said: str, failure: LoggedException) -> str:
    """``Trainer.__init__`` -> ``Trainer``; Python before 3.10 says only ``__init__``: then the name in the line of code."""
    plain = said.rpartition("<locals>.")[2].removesuffix(".__init__").removesuffix(".__new__")
    if plain and plain not in ("__init__", "__new__"):
        return plain
    for frame in reversed(failure.frames):  # ``return fn(self, **kwargs)`` passes on what the frame before it called
        code = frame.code
        starts = (match for match in _CALL.compiled.finditer(code) if not match[1].startswith("super"))
        called = [match[1] for match in starts if code[: match.start()].count("(") == code[: match.start()].count(")")]
        if called and called[-1] not in _PASSED_ON:
            return str(called[-1]).rpartition(".")[2]
    return ""


def imports_own_tree(failure: LoggedException) -> bool:
    """Whether a file lacks a name of the source tree that it is in itself: ``repo/tools/run.py`` of ``repo/pkg/part.py``."""
    match = _IMPORT.search(failure.message[:800])
    if match is None or not match[3] or not failure.frames:
        return False
    path, inside = match[3].replace("\\", "/"), match[2].replace(".", "/")
    at = path.rfind(f"{inside}/__init__.py" if path.endswith("/__init__.py") else f"{inside}.py")
    root = path[: max(at, 0)].rstrip("/").removesuffix("/src")
    if "-packages/" in path or root.rpartition("/")[2].lower() in (*_SHARED_FOLDERS, *ELISIONS):
        return False
    file, package = failure.frames[-1].file.replace("\\", "/"), match[2].partition(".")[0]
    is_of_framework = package in KNOWN_PACKAGES and f"/{package}/" in file.removeprefix(root)
    return file.startswith(f"{root}/") and not is_of_framework  # whose parts are then of two releases


def _may_be_shadowed(text: str, module: str) -> bool:
    """Whether a circular import may be that of a file of the user's which has the name of a package."""
    return "partially initialized" in text and "." not in module and "-packages" not in text
