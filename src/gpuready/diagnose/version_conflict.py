"""Signature, attribute and import errors between two packages: which two, and which of them is too new or too old.

    TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'       a parameter
    ImportError: cannot import name 'X' from 'transformers' (…/__init__.py)            a name
    ModuleNotFoundError: No module named 'torch._six'                                  a module
    AttributeError: module 'numpy' has no attribute 'bool'                             a name
    AttributeError: 'DynamicCache' object has no attribute 'seen_tokens'               an attribute

The table of when symbols came and went is passed in; without it, or where it does not know, both directions remain.
"""

from __future__ import annotations

from gpuready.diagnose.origin import USER, calling_frames
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.model.record import Record
from gpuready.model.versions import compare_versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuready.logs.tracebacks import LoggedException

    Span = Mapping[str, str]
    SymbolTable = Callable[[str, str], Sequence[Span]]

_UNEXPECTED = LazyRegex(r"(?i)(?:([\w.<>]{1,160})\(\) )?got an unexpected keyword argument '(\w{1,80})'")
_MISSING = LazyRegex(
    r"(?i)(?:([\w.<>]{1,160})\(\) )?missing \d{1,3} required (?:positional|keyword-only) arguments?: '(\w{1,80})'"
)
_COUNT = LazyRegex(r"([\w.<>]{1,160})\(\) takes (?:from )?\d{1,3} (?:to \d{1,3} )?positional arguments? but \d")
_IMPORT = LazyRegex(r"(?i)cannot import name '(\w{1,80})' from '([\w.]{1,160})'(?: \(([^)\n]{1,400})\))?")
_MODULE = LazyRegex(r"(?i)No module named '(\w{1,60}(?:\.\w{1,60}){1,12})'(?!; )")
_MODULE_NAME = LazyRegex(r"\bmodule '(\w[\w.]{0,160})' has no attribute '(\w{1,80})'")
_OBJECT = LazyRegex(r"(?:type object )?'(\w{1,80})' (?:object )?has no attribute '(\w{1,80})'")
_BUILT_IN = ("nonetype", "str", "dict", "list", "tuple", "int", "float", "bool", "bytes", "set", "function", "method", "type", "module",
             "generator", "tensor", "ndarray", "namespace", "property", "object", "dataframe", "series")  # fmt: skip
_OF_TRANSFORMERS = LazyRegex(
    r"(?i)\w{1,70}(?:Config|Tokenizer|TokenizerFast|Cache|Processor|ForCausalLM|ForConditionalGeneration|Trainer|TrainingArguments|PreTrainedModel)$"
)
_CALL = LazyRegex(r"([A-Za-z_][\w.]{0,120})\(")


class Complaint(Record):
    """What an error says of an interface: the kind of symbol, whose it is, and its name."""

    kind: str  # parameter, required, count, name, module, attribute
    owner: str  # function, module or class
    name: str = ""

    @property
    def symbol(self) -> str:
        """As it is shown: ``Trainer(tokenizer)``, ``torch._six``, ``numpy.bool``."""
        if self.kind in ("parameter", "required"):
            return f"{self.owner}({self.name})"
        return f"{self.owner}()" if self.kind == "count" else f"{self.owner}.{self.name}" if self.name else self.owner


class VersionConflict(Record):
    """Two packages that do not go together: ``package`` is too new, too old, outside what is between, or it is not known."""

    package: str
    caller: str  # the package that relies on the symbol; ``user`` for the user's own script
    symbol: str
    direction: str = ""  # new, old, between
    release: str = ""  # the release in which the symbol came or went
    until: str = ""  # where it came and went: the release in which it went
    added: bool = False  # too new because the symbol came, not because it went

    @property
    def captures(self) -> dict[str, str]:
        """For the texts of the catalogue; what is not known is left out."""
        named = {"package": self.package, "dist": _distribution(self.package), "symbol": self.symbol}
        caller = "your script" if self.caller == USER else self.caller
        named |= {"older" if self.added else "user": caller, "script" if self.caller == USER else "other": caller}
        if self.caller != USER:
            named["other_dist"] = _distribution(self.caller)
        if self.direction == "between":
            return named | {"from": self.release, "until": self.until}
        change = {"new": "since" if self.added else "gone", "old": "came"}.get(self.direction, "unclear")
        return named | {change: self.release or self.symbol}


def _distribution(package: str) -> str:
    return {"transformers_modules": "transformers", "PIL": "pillow"}.get(package, package.replace("_", "-"))


def read_complaint(failure: LoggedException) -> Complaint | None:
    """The interface that an error complains of."""
    text = failure.message[:800]
    name = failure.short_type.lower()
    if name == "typeerror":
        if match := _UNEXPECTED.search(text) or _MISSING.search(text):
            kind = "parameter" if "unexpected" in match[0] else "required"
            return Complaint(kind, _function_name(match[1] or "", failure), match[2])
        match = _COUNT.search(text)
        return Complaint("count", _function_name(match[1], failure)) if match else None
    if match := _IMPORT.search(text):
        return (
            None
            if _is_local_file(match[3] or "") or "partially initialized" in text
            else Complaint("name", match[2], match[1])
        )
    if name == "modulenotfounderror" and (match := _MODULE.search(text)):
        return None if "._c" in match[1].lower() else Complaint("module", match[1])
    if name == "attributeerror" and "partially initialized" not in text:
        if match := _MODULE_NAME.search(text):
            return Complaint("name", match[1], match[2])
        match = _OBJECT.search(text)
        return Complaint("attribute", match[1], match[2]) if match and match[1].lower() not in _BUILT_IN else None
    return None


def _function_name(said: str, failure: LoggedException) -> str:
    """``Trainer.__init__`` -> ``Trainer``; Python before 3.10 says only ``__init__``: then the name in the line of code."""
    plain = said.rpartition("<locals>.")[2].removesuffix(".__init__").removesuffix(".__new__")
    if plain and plain not in ("__init__", "__new__"):
        return plain
    code = failure.frames[-1].code if failure.frames else ""
    called = [match for match in _CALL.compiled.findall(code) if not match.startswith("super")]
    return str(called[-1]).rpartition(".")[2] if called else ""


def _is_local_file(path: str) -> bool:
    """Whether the module that lacks a name is a file of the user's, and not of an installed package."""
    return bool(path) and path not in ("unknown location",) and "-packages" not in path and path.endswith(".py")


def check_direction(conflict: VersionConflict, installed: str) -> VersionConflict:
    """The same without a direction that the version in the log contradicts: the symbol may have moved for another reason."""
    if not installed or conflict.direction not in ("new", "old"):
        return conflict
    is_before = compare_versions(installed, conflict.release) < 0
    return conflict if is_before == (conflict.direction == "old") else conflict.replace(direction="", release="")


def find_conflict(failure: LoggedException, find_spans: SymbolTable) -> VersionConflict | None:
    """The conflict behind an error; None where it is none, or the user's own mistake."""
    complaint = read_complaint(failure)
    if complaint is None or not complaint.owner:
        return None
    caller = next((package for _, package in calling_frames(failure)), "")
    spans = _find_spans(complaint, find_spans)
    if spans:
        return _conflict_from_table(complaint, caller, spans)
    package = _provider(complaint)
    if not package or package in (caller, USER):
        return None
    if complaint.kind in ("name", "module"):
        is_installed = caller not in ("", USER) or "-packages" in failure.message or find_spans("package", package)
        return VersionConflict(package, caller or USER, complaint.symbol) if is_installed else None
    return VersionConflict(package, caller, complaint.symbol) if caller not in ("", USER) else None


def _provider(complaint: Complaint) -> str:
    """The package whose interface it is, as far as the message says."""
    if complaint.kind in ("name", "module"):
        return complaint.owner.partition(".")[0]
    owner = complaint.owner.partition(".")[0]
    return "transformers" if _OF_TRANSFORMERS.match(owner) else ""


def _find_spans(complaint: Complaint, find_spans: SymbolTable) -> list[Span]:
    """The spans of the symbol itself; of a method that a subclass overrides, those of the method of any class."""
    kind, owner, name = complaint.kind, complaint.owner, complaint.name
    if kind == "count":
        return []
    if kind == "module":
        parts = owner.split(".")
        return next(
            (found for n in range(len(parts), 1, -1) if (found := list(find_spans("module", ".".join(parts[:n]))))), []
        )
    if kind == "name":
        return list(find_spans("name", f"{owner}:{name}") or find_spans("module", f"{owner}.{name}"))
    if kind == "attribute":
        return list(find_spans("attribute", f"{owner}.{name}"))
    method = owner.rpartition(".")[2]
    exact = list(find_spans("parameter", f"{owner}({name}"))
    overridden = "." in owner and not exact and method not in ("forward", "__call__", "from_pretrained")
    return exact or (list(find_spans("parameter", f"*.{method}({name}")) if overridden else [])


def _conflict_from_table(complaint: Complaint, caller: str, spans: Sequence[Span]) -> VersionConflict | None:
    """The package and direction that the table gives; several packages with the symbol: the caller's neighbour first."""
    span = min(spans, key=lambda s: s["package"] == caller)
    package, came, gone = span["package"], span["came"], span["gone"]
    if package == caller:
        if "." not in complaint.owner or complaint.kind not in ("parameter", "required"):
            return None  # within one package
        is_new = came and not gone and complaint.kind == "parameter"
        return VersionConflict(
            package, USER, complaint.symbol, "new" if is_new else "", came if is_new else "", added=bool(is_new)
        )
    plain = VersionConflict(package, caller or USER, complaint.symbol)
    if came and gone and complaint.kind != "required":
        return plain.replace(direction="between", release=came, until=gone)
    if bool(came) == bool(gone):
        return plain
    if complaint.kind == "required":
        return plain.replace(direction="new", release=came, added=True) if came else plain
    return plain.replace(direction="old" if came else "new", release=came or gone)
