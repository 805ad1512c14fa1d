"""Signature, attribute and import errors between two packages: which two, and which of them is too new or too old.

    TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'       a parameter
    ImportError: cannot import name 'X' from 'transformers' (…/__init__.py)            a name
    ModuleNotFoundError: No module named 'torch._six'                                  a module
    AttributeError: module 'numpy' has no attribute 'bool'                             a name
    AttributeError: 'DynamicCache' object has no attribute 'seen_tokens'               an attribute
    NameError: name 'ParallelismConfig' is not defined                                 a name, in a file of a package

The table of when symbols came and went is passed in; without it, or where it does not know, both directions remain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from gpuready.diagnose.complaint import Complaint, read_complaint
from gpuready.diagnose.library_classes import KEEPS_ATTRIBUTES, PARTS_OF_MODELS, package_of_class
from gpuready.diagnose.origin import KNOWN_PACKAGES, PLAIN_NAMES, REMOTE_CODE, USER, calling_frames
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.logged_exception import LoggedException
from gpuready.model.record import Record
from gpuready.model.versions import compare_versions

Span = Mapping[str, str]
SymbolTable = Callable[[str, str], Sequence[Span]]


_PASSED_BY_MODELS = ("position_ids", "cache_position", "position_embeddings", "num_items_in_batch", "logits_to_keep", "num_logits_to_keep",
                     "past_key_value", "past_key_values", "use_cache", "padding_mask", "output_router_logits")  # fmt: skip
_QUALIFIED = LazyRegex(r"'(\w{2,40})\.[\w.]{1,120}' (?:object )?has no attribute")
"""A class of C, whose name has its package: ``'torch.dtype' object has no attribute``."""
_CALLED_WITH_DATA = ("forward", "__call__", "generate")
"""Methods that get what the user's data or options have."""
_CALLS_BACK = LazyRegex(r"(?i)trainer|arrow_dataset|collat|callback|dataloader|fetch\.py|reward|/ray/|worker|train\.py")
"""Files of packages that call functions of the user's."""


_LIGHTNING_HOOK = LazyRegex(r"on_\w{3,20}_(?:epoch|batch)_(?:start|end)$|on_fit_(?:start|end)$|configure_optimizers$")
"""Methods by which Lightning calls a user's module: its ``Trainer`` is Lightning's."""

_NOT_PUBLISHED = ("apex", "cv2", "detectron2", "hydra", "megatron", "nemo", "paddle", "roll", "sklearn", "swift")
"""Packages whose name on the index is another one's."""

SAVED = "saved"
_CALLER_NAMES = {USER: "your script", REMOTE_CODE: "the model's own code", SAVED: "the saved configuration"}
"""What relies on a symbol and is no installed package."""


class VersionConflict(Record):
    """Two packages that do not go together: ``package`` is too new, too old, outside what is between, or it is not known."""

    package: str
    caller: str  # the package that relies on the symbol; ``user`` for the user's own script
    symbol: str
    direction: str = ""  # new, old, between, mixed, undefined
    release: str = ""  # the release in which the symbol came or went
    until: str = ""  # where it came and went: the release in which it went
    added: bool = False  # too new because the symbol came, not because it went
    placed: bool = False  # the log shows an installed release that agrees, or a module or class without the name

    @property
    def is_directed(self) -> bool:
        """Whether the two are proven not to fit, and, where the table has the symbol, which of them is too old or too new."""
        return self.direction == "old" or self.added or self.placed

    @property
    def captures(self) -> dict[str, str]:
        """For the texts of the catalogue; what is not known is left out."""
        named = {"symbol": self.symbol}
        if self.package:
            named |= {"package": self.package} | _name_dist("dist", self.package)
        caller = _CALLER_NAMES.get(self.caller, self.caller)
        is_package = self.caller not in _CALLER_NAMES
        named |= {"older" if self.added else "user": caller, "other" if is_package else "script": caller}
        if self.caller == REMOTE_CODE and self.package:
            named["remote"] = self.package
        return named | (_name_dist("other_dist", caller) if is_package else {}) | self._change_captures()

    def _change_captures(self) -> dict[str, str]:
        """What became of the symbol, in words and for the fixes."""
        package, release = self.package, self.release
        if self.direction == "undefined":
            words = f"is used by {package} without being imported: that was skipped"
            return {"change": words, "imported": package} | _name_dist("imported_dist", package)
        if self.direction == "mixed":
            return {"change": f"is not in {package}, which imports it itself", "mixed": self.symbol}
        if self.direction == "between":
            words = f"is in {package} from {release} to before {self.until}"
            return {"change": words, "from": release, "until": self.until}
        if not package:
            return {"change": "is called otherwise than it takes", "passed": self.symbol}
        if self.direction == "old":
            return {"change": f"came with {package} {release}", "came": release}
        if self.direction == "new":
            words = f"is in {package} since {release}" if self.added else f"left {package} in {release}"
            return {"change": words, "since" if self.added else "gone": release}
        return {"change": f"is not in the installed {package}", "unclear": self.symbol}


def _name_dist(capture: str, package: str) -> dict[str, str]:
    """What a command may install: a log is anybody's words, so only a package that is known."""
    return {capture: package.replace("_", "-")} if package in KNOWN_PACKAGES and package not in _NOT_PUBLISHED else {}


def check_direction(conflict: VersionConflict, installed: str) -> VersionConflict:
    """The same without a direction that the version in the log contradicts: the symbol may have moved for another reason."""
    if not installed or conflict.direction not in ("new", "old", "between"):
        return conflict
    is_before = compare_versions(installed, conflict.release) < 0
    if conflict.direction == "between":
        is_outside = is_before or compare_versions(installed, conflict.until) >= 0
        return conflict.replace(placed=True) if is_outside else conflict.replace(direction="", release="", until="")
    agrees = is_before == (conflict.direction == "old")
    return conflict.replace(placed=True) if agrees else conflict.replace(direction="", release="")


def find_conflict(failure: LoggedException, find_spans: SymbolTable) -> VersionConflict | None:
    """The conflict behind an error; None where it is none, or the user's own mistake."""
    complaint = read_complaint(failure)
    if complaint is not None and complaint.kind == "parameter" and not complaint.owner:
        spans = find_spans("parameter", f"*({complaint.name}")  # Python before 3.10 says only ``__init__``
        found = _conflict_from_table(complaint, USER, spans) if spans else None
        return found.replace(symbol=spans[0]["symbol"] + ")", placed=False) if found and found.direction else None
    if complaint is not None and complaint.kind in ("undefined", "passed"):
        return _conflict_of_foreign_name(complaint, failure, find_spans)
    if complaint is None or not complaint.owner or complaint.owner.partition(".")[0] in sys.stdlib_module_names:
        return None
    own = complaint.owner.partition(".")[0] if "partially initialized" in failure.message else ""
    caller = next((package for _, package in calling_frames(failure) if package != own), own if failure.frames else "")
    owner = _QUALIFIED.search(failure.message[:800])
    if spans := [span for span in _find_spans(complaint, find_spans) if not owner or span["package"] == owner[1]]:
        found = _conflict_from_table(complaint, _who_passes(failure, caller), spans)
        is_own = complaint.kind == "module" and _provider(complaint) == caller and _is_of_one_tree(failure)
        return found or (VersionConflict(caller, caller, complaint.symbol, "mixed") if is_own else None)
    if spans := _find_overridden(complaint, find_spans):
        return _conflict_of_override(complaint, caller, spans)
    package = _provider(complaint)
    if complaint.kind in ("name", "module"):
        return _conflict_of_missing(complaint, failure, caller, find_spans)
    if not caller:  # a line without its stack: whose class it is, its name may say
        is_option = complaint.kind == "attribute" and bool(KEEPS_ATTRIBUTES.match(complaint.owner))
        is_word = complaint.kind == "parameter" and bool(find_spans("parameter", f"*({complaint.name}"))
        is_known = package and complaint.owner != "Trainer" and (is_option or is_word)  # many scripts have a Trainer
        return VersionConflict(package, USER, complaint.symbol) if is_known else None
    if caller != USER and _is_passed_by_models(complaint):
        return VersionConflict("transformers", USER if caller == "transformers" else caller, complaint.symbol)
    is_remote = any(other == REMOTE_CODE for _, other in calling_frames(failure))
    if is_remote and caller == "transformers" and package in ("", caller):  # it calls a class of the model's code
        return VersionConflict(caller, REMOTE_CODE, complaint.symbol)
    if caller == USER:
        return _conflict_with_script(complaint, failure, find_spans)
    if caller == package and complaint.kind == "attribute" and complaint.owner.endswith("Config"):
        return VersionConflict(package, SAVED, complaint.symbol)
    if caller == package and _forwards_arguments(complaint, failure):
        return VersionConflict(package, _caller_of_package(failure, package), complaint.symbol)
    if caller == package and (other := _caller_of_class(complaint, failure, package)):
        return VersionConflict(package, other, complaint.symbol)
    if caller == package:
        return None
    if not package and not _is_call_between_packages(complaint, failure):
        return None
    return VersionConflict(package, caller, complaint.symbol, placed=_shows_call(complaint, failure))


def _shows_call(complaint: Complaint, failure: LoggedException) -> bool:
    """Whether an installed package itself passes by name what was refused, or calls the class of another otherwise than it takes."""
    frame, caller = next(calling_frames(failure))
    is_passed = complaint.kind == "parameter" and f"{complaint.name}=" in frame.code
    is_called = complaint.kind in ("count", "required") and _provider(complaint) not in ("", caller)
    return (is_passed or is_called) and "-packages" in frame.file


def _conflict_of_missing(
    complaint: Complaint, failure: LoggedException, caller: str, find_spans: SymbolTable
) -> VersionConflict | None:
    """A module without a name or a part that somebody imports: a conflict where it is an installed package's."""
    package = _provider(complaint)
    if caller == USER and complaint.kind == "name" and complaint.owner == package and find_spans("package", package):
        return None  # the user asks for a name that no release has
    is_installed = (
        caller not in ("", USER)
        or "-packages" in failure.message
        or package in KNOWN_PACKAGES
        or bool(find_spans("package", package))
        or (package.lower() not in PLAIN_NAMES and (not failure.frames or _is_part_of_installed(complaint, failure)))
    )
    if package == caller:
        return VersionConflict(package, caller, complaint.symbol, "mixed") if _is_of_one_tree(failure) else None
    is_part = complaint.kind == "module" and package in KNOWN_PACKAGES  # else the package itself would be missing
    is_shown = caller not in ("", USER) or "-packages" in failure.message or is_part
    is_placed = is_shown and not _COMPILED_PART.match(complaint.name)
    return VersionConflict(package, caller or USER, complaint.symbol, placed=is_placed) if is_installed else None


_COMPILED_PART = LazyRegex(r"_(?:C|ext|cuda|cpp)\b|\w{1,60}_(?:cuda|ext|cpp)$")
"""A part that is missing where it was not built, in any release."""


def _is_of_one_tree(failure: LoggedException) -> bool:
    """Whether an installed package misses a part of its own: its files are of two releases, or not all of them are there."""
    return bool(failure.frames) and "-packages/" in failure.frames[-1].file.replace("\\", "/")


def _who_passes(failure: LoggedException, caller: str) -> str:
    """The caller; where it only forwards its ``**kwargs``, who called it."""
    frames = list(calling_frames(failure))
    if not frames or "**" not in frames[0][0].code:
        return caller
    return next((package for _, package in frames if package != caller), caller)


def _forwards_arguments(complaint: Complaint, failure: LoggedException) -> bool:
    """Whether a package makes a class of its own from what it was called with: ``EngineArgs(``, ``Config(**kwargs)``."""
    code = failure.frames[-1].code if failure.frames else ""
    is_open = code.endswith("(") or "**" in code
    return complaint.kind == "parameter" and is_open and bool(package_of_class(complaint.owner.partition(".")[0]))


def _caller_of_package(failure: LoggedException, package: str) -> str:
    """Who called a package; where its own frames are all that is known, a script."""
    return next((other for _, other in calling_frames(failure) if other != package), USER)


def _caller_of_class(complaint: Complaint, failure: LoggedException, package: str) -> str:
    """The other package for which a package looks in vain for an attribute of a class of its own."""
    other = _caller_of_package(failure, package) if complaint.kind == "attribute" else USER
    return other if other not in (USER, REMOTE_CODE) else ""


def _conflict_with_script(
    complaint: Complaint, failure: LoggedException, find_spans: SymbolTable
) -> VersionConflict | None:
    """The user's own script uses a class of a package as another release has it, and not with a word that no release has."""
    owner, _, method = complaint.owner.partition(".")
    is_hook = any(_LIGHTNING_HOOK.match(frame.function) for frame in failure.frames)
    package = "pytorch_lightning" if owner == "Trainer" and is_hook else package_of_class(owner)
    is_with_data = method in _CALLED_WITH_DATA and not PARTS_OF_MODELS.match(owner)
    if not package or is_with_data or (complaint.kind == "attribute" and not KEEPS_ATTRIBUTES.match(owner)):
        return None
    kind, mark = ("attribute", ".") if complaint.kind == "attribute" else ("parameter", "(")
    is_word = complaint.kind != "count" and bool(find_spans(kind, f"*{mark}{complaint.name}"))
    is_unread = not find_spans("package", package) and bool(find_spans("package", "torch"))  # its silence tells nothing
    return VersionConflict(package, USER, complaint.symbol) if is_word or is_unread else None


def _conflict_of_foreign_name(
    complaint: Complaint, failure: LoggedException, find_spans: SymbolTable
) -> VersionConflict | None:
    """A package uses a name that another one exports since some release, or a method of a class that it did not get."""
    caller = next((package for _, package in calling_frames(failure)), "")
    if caller == USER:
        return None
    if complaint.kind == "passed":
        packages = {span["package"] for span in find_spans("attribute", f"*.{complaint.name}")}
        known = packages & {"transformers"} or packages
        return VersionConflict(known.pop(), caller or USER, complaint.name) if len(known) == 1 else None
    spans = [span for span in find_spans("name", f"*:{complaint.name}") if "." not in span["symbol"]]
    if len(spans) == 1 and spans[0]["came"]:
        return VersionConflict(spans[0]["package"], caller or USER, complaint.name, "old", spans[0]["came"])
    is_class = complaint.name[:1].isupper() and not complaint.name.isupper()
    return VersionConflict(caller, caller, complaint.name, "undefined") if caller and is_class else None


def _is_part_of_installed(complaint: Complaint, failure: LoggedException) -> bool:
    """Whether a part of a package is missing that was found itself, and is not the user's own: no folder on the stack is."""
    package = complaint.owner.partition(".")[0]
    folders = {part for frame in failure.frames for part in frame.file.replace("\\", "/").split("/")[:-1]}
    return package not in folders


def _is_passed_by_models(complaint: Complaint) -> bool:
    """Whether an argument is one that only the models of transformers pass to their parts: somebody replaced a part."""
    is_forward = complaint.owner.rpartition(".")[2] == "forward" or complaint.owner.endswith("_forward")
    return complaint.kind == "parameter" and is_forward and complaint.name in _PASSED_BY_MODELS


def _is_call_between_packages(complaint: Complaint, failure: LoggedException) -> bool:
    """Whether a package called what is not known with arguments of its own: it did not pass on what a user gave."""
    frame, package = next(calling_frames(failure))
    if complaint.kind == "attribute":  # a private class of its own it would not misuse
        return complaint.owner.startswith("_") and package not in (USER, REMOTE_CODE)
    method = complaint.owner.rpartition(".")[2].lower()
    if method in _CALLED_WITH_DATA or "<lambda>" in complaint.owner:
        return complaint.name in frame.code and "**" not in frame.code
    is_function = "." not in complaint.owner and complaint.owner[:1].islower()
    return not (is_function and _CALLS_BACK.search(frame.file))


def _provider(complaint: Complaint) -> str:
    """The package whose interface it is, as far as the message says."""
    if complaint.kind in ("name", "module"):
        return complaint.owner.partition(".")[0]
    return package_of_class(complaint.owner.partition(".")[0])


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
    return list(find_spans("parameter", f"{owner}({name}"))


def _find_overridden(complaint: Complaint, find_spans: SymbolTable) -> list[Span]:
    """``MyTrainer.compute_loss(x)``: the spans of the parameter of that method in any class."""
    method = complaint.owner.rpartition(".")[2]
    if complaint.kind not in ("parameter", "required") or "." not in complaint.owner or method in _CALLED_WITH_DATA:
        return []
    return list(find_spans("parameter", f"*.{method}({complaint.name}"))


def _conflict_of_override(complaint: Complaint, caller: str, spans: Sequence[Span]) -> VersionConflict | None:
    """A package calls a method that somebody overrides, with an argument that it has passed since some release."""
    span = next((span for span in spans if span["package"] == caller), None)
    if span is None or complaint.kind != "parameter":
        return None
    plain = VersionConflict(caller, USER, complaint.symbol)
    return (
        plain.replace(direction="new", release=span["came"], added=True) if span["came"] and not span["gone"] else plain
    )


def _conflict_from_table(complaint: Complaint, caller: str, spans: Sequence[Span]) -> VersionConflict | None:
    """The package and direction that the table gives; where several packages have the symbol, no direction."""
    others = [span for span in spans if span["package"] != caller]
    if not others:
        return _conflict_with_saved(complaint, spans[0])
    package, came, gone = others[0]["package"], others[0]["came"], others[0]["gone"]
    plain = VersionConflict(package, caller or USER, complaint.symbol)
    if len({(span["package"], span["came"], span["gone"]) for span in others}) > 1:
        return plain
    if came and gone and complaint.kind != "required":
        return plain.replace(direction="between", release=came, until=gone)
    if complaint.kind == "required":
        return plain.replace(direction="new", release=came, added=True) if came and not gone else plain
    return plain.replace(direction="old" if came else "new", release=came or gone, placed=True)


def _conflict_with_saved(complaint: Complaint, span: Span) -> VersionConflict | None:
    """Within one package it is none, but for a configuration that a newer release saved and this one does not know."""
    is_saved = complaint.kind == "parameter" and complaint.owner.lower().endswith("config") and span["came"]
    if not is_saved or span["gone"]:
        return None
    return VersionConflict(span["package"], SAVED, complaint.symbol, "old", span["came"])
