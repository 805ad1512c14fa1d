"""The kind of cause that the place of an error suggests, where no known message is in the log: a guess from structure alone.

urllib3/response.py ... TimeoutError: The read operation timed out        the network
Resolved 35 packages in 334ms ... error: found distribution ...           the package manager
/trl/trainer/sft.py calls /transformers/x.py, which has no attribute y    two packages
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.diagnose.event_order import EventOrder
from gpuready.diagnose.failure_facts import follow_chain
from gpuready.diagnose.origin import (
    BUILD_FOLDER,
    INPUT_REFUSED,
    REMOTE_CODE,
    USER,
    calling_frames,
    find_origin,
    package_of_frame,
)
from gpuready.diagnose.refused_options import refuses_options, refuses_values
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_summary import LogSummary
from gpuready.logs.logged_exception import LoggedException
from gpuready.logs.run_activity import is_complaint_line
from gpuready.model.diagnosis import NOT_ENVIRONMENT, VERSION_CONFLICT

BUILD, RESOLUTION, NETWORK, KERNEL = "extension-build-failed", "package-resolution", "hub-unreachable", "triton-kernel-failed"  # fmt: skip
RENDEZVOUS = "rendezvous-unreachable"
_KINDS = {"network": NETWORK, "installer": RESOLUTION, "extension": "ext-abi-mismatch"}
_NATIVE = {
    "compiler": BUILD,
    "linker": BUILD,
    "cmake": BUILD,
    "ninja": BUILD,
    "make": BUILD,
    "mlir": KERNEL,
    "uv": RESOLUTION,
    "installer": RESOLUTION,
}
_RUNNERS = ("make", "ninja")
_BUILDERS = ("setuptools", "pkg_resources", "pyproject_hooks", "build", "wheel")
"""Classes of causes by the kind of an exception's origin, and by that of an error which is no exception."""

_TYPES = {
    "unpicklingerror": "corrupt-or-lfs-weights", "safetensorerror": "corrupt-or-lfs-weights", "badzipfile": "corrupt-or-lfs-weights",
    "eoferror": "corrupt-or-lfs-weights", "arrowinvalid": "dataset-error", "datasetgenerationerror": "dataset-error", "casterror": "dataset-error",
    "parsererror": "dataset-error", "emptydataerror": "dataset-error", "unidentifiedimageerror": "dataset-error", "compileerror": BUILD,
    "distutilserror": BUILD, "cmakeerror": BUILD, "versionconflict": VERSION_CONFLICT, "packagenotfounderror": "missing-python-package",
    "distributionnotfound": "missing-python-package",
    "pydanticusererror": VERSION_CONFLICT, "pydanticimporterror": VERSION_CONFLICT, "permissionerror": "cache-permission",
    "syntaxerror": "python-version-unsupported", "indentationerror": VERSION_CONFLICT,
}  # fmt: skip
"""Classes by the type of an exception alone."""

_PLACES = (
    (BUILD, LazyRegex(r"/cpp_extension\.py|/op_builder/|/setuptools/|/distutils/|/skbuild|/scikit_build|/maturin/|setup\.py$")),
    (KERNEL, LazyRegex(r"/triton/(?:compiler|runtime|backends)/|/torch/_inductor/")),
    ("checkpoint-mismatch", LazyRegex(r"load_state_dict|load_checkpoint|load_weights|load_ckpt|resume_from|resume_start|/checkpoint/|checkpoint_connector|migrate_checkpoint|load_from_checkpoint|restore_model")),
    ("corrupt-or-lfs-weights", LazyRegex(r"/safetensors/|/torch/serialization\.py|/gguf/|/pickle\.py|/zipfile\.py|/sentencepiece/")),
    ("dataset-error", LazyRegex(
        r"(?:-packages/|^)(?:datasets|pyarrow|h5py|zarr|netCDF4|tables|lmdb|webdataset|fastparquet|nibabel|pydicom|tifffile|soundfile|decord)/"
        r"|-packages/(?:\w{1,40}/){1,4}datasets?/|/torch/utils/data/")),
)  # fmt: skip
"""Classes by the file and the function of the innermost frame."""

_CUT_PLACES = (
    (NETWORK, LazyRegex(r"/huggingface_hub/|/transformers/utils/hub\.py|/requests/|/urllib3/|/httpx/|/httpcore/|/aiohttp/|modelscope/hub/")),
    ("dataset-error", LazyRegex(r"datasets_modules/|-packages/datasets/(?:builder|load|packaged|arrow|data_files)|_generate_(?:examples|tables)")),
    ("transformers-too-old", LazyRegex(r"tokenization_|/tokenizers/|_init_tokenizer|get_tokenizer|configuration_auto|configuration_utils")),
    (NOT_ENVIRONMENT, LazyRegex(r"/(?:config|hparams|arguments?)\w{0,20}[./].{0,80}(?:assert|valid|check|parse)|hf_argparser|/argparse\.py|/omegaconf/|/hydra/|/pydantic/|/yaml/")),
    (VERSION_CONFLICT, LazyRegex(r"import_utils\.py|importlib|<frozen |\bimport \w|^\S{1,300} <module>")),
)  # fmt: skip
"""Further classes by the frames of a traceback without its end."""

_OF_VALUES = (
    "keyerror",
    "indexerror",
    "valueerror",
    "assertionerror",
    "unboundlocalerror",
    "zerodivisionerror",
    "stopiteration",
)
_OF_INTERFACES = ("attributeerror", "typeerror", "nameerror")
_OF_ARGUMENTS = ("valueerror", "typeerror", "badparameter", "clierror", "hfvalidationerror")
_NAMES = ("nameerror", "unboundlocalerror")
"""What any program raises: about its values, about what it calls, and about names of its own."""
_DATA = LazyRegex(r"/torch/utils/data/|-packages/datasets/|collat")

_TOOLS = (
    (BUILD, LazyRegex(
        r"(?i)building wheel|build_ext|running build|\bcmake\b|\bninja\b|setup\.py|\bcargo\b|\brustc\b|\bnvcc\b|\bgcc\b|\bg\+\+|cl\.exe|Compiling \w")),
    (RESOLUTION, LazyRegex(
        r"\buv (?:sync|pip|add|lock|run|tool|venv)\b|Resolved \d{1,5} packages? in|(?:Using|Creating) (?:C?Python |virtual ?env)|`uv "
        r"|\bpip3? (?:install|download|wheel)\b|^\s{0,8}Collecting [\w.-]|Requirement already satisfied|Looking in indexes|\bconda (?:install|create|env|update)\b"
        r"|\b(?:micro)?mamba (?:install|create|env|update)\b|Collecting package metadata|Solving environment|\bpoetry (?:install|add|lock|update)\b|Resolving dependencies\.\.\.|\bpixi (?:install|add|run)\b|pypoetry|[•-] (?:Installing|Updating|Downgrading) [\w.-]{2,60} \(|\bpipenv (?:install|lock|sync)\b|\bpdm (?:install|add|lock|sync)\b")),
)  # fmt: skip
"""Classes by the program that writes the log."""

_OF_TRAINING = (
    "dataset-error", "checkpoint-mismatch", "corrupt-or-lfs-weights", "loss-diverged", "transformers-too-old", NOT_ENVIRONMENT,
)  # fmt: skip
"""What only a program that loads models and data can complain of, and no package manager."""

MAX_TOOL_LINES, MAX_END, MAX_AFTER = 400, 12, 6
"""Lines by which the program is recognised, those at the end among which its complaint is, and those after the innermost frame of a
traceback without its end."""


def guess_class(summary: LogSummary, order: EventOrder, final: int | None) -> tuple[str, int | None, int | None] | None:
    """The slug of a cause, with the exception or the line that it is guessed from."""
    if final is None and not order.survived.proves_health():
        return _guess_by_tool(summary)
    if final is None or not order.has_failed:
        return None
    final = _find_finished(summary, final)
    failure = summary.failures[final]
    if not failure.type and _is_followed(summary, failure):
        return None
    if slug := _guess_by_failure(failure):
        return slug, final, None
    return None if failure.frames else _guess_by_tool(summary)


def may_speak_of(failure: LoggedException, cause: Mapping[str, Any]) -> bool:
    """Whether an error may be about a cause: a package manager that cannot parse a file speaks of no dataset, a value of no release."""
    if cause["slug"] in _OF_TRAINING and _NATIVE.get(failure.type.partition("::")[0]) == RESOLUTION:
        return False
    is_of_releases = cause["slug"] == VERSION_CONFLICT or "pairs" in cause
    return not (is_of_releases and refuses_values(failure))


def _find_finished(summary: LogSummary, final: int) -> int:
    """The exception itself; in place of a traceback without its end what it was raised from, in place of make's error that of what it ran."""
    kinds = [failure.type.partition("::")[0] for failure in summary.failures[: final + 1]]
    if kinds[final] in _RUNNERS:
        return next((n for n in range(final - 1, -1, -1) if kinds[n] in _NATIVE and kinds[n] not in _RUNNERS), final)
    return next((number for number in follow_chain(summary, final) if kinds[number]), final)


def _is_followed(summary: LogSummary, failure: LoggedException) -> bool:
    """Whether the log goes on after a traceback without its end: then it was not what ended the run."""
    beyond = (line for line in summary.lines if line.source == failure.source and line.number > failure.last)
    mark = (failure.frames[-1].code or failure.frames[-1].file) if failure.frames else ""
    inside = failure.text.rpartition(mark)[2].strip() if mark else ""
    after = sum(bool(line.text.strip()) for line in beyond if line.place != "derived")
    return inside.count("\n") + bool(inside) + after > MAX_AFTER


def _guess_by_failure(failure: LoggedException) -> str:
    """The class that the origin of an exception suggests."""
    if "::" in failure.type:
        return _NATIVE.get(failure.type.partition("::")[0], "")
    if any(BUILD_FOLDER.search(frame.file.replace("\\", "/")) for frame in failure.frames):
        return BUILD
    origin = find_origin(failure)
    if origin.kind == "network" and origin.package in ("ray", "torch"):
        return RENDEZVOUS  # the processes of a job look for each other
    if origin.kind in _KINDS:
        return BUILD if origin.package in _BUILDERS else _KINDS[origin.kind]
    name = (failure.short_type or failure.named_type).lower()
    if origin.kind == "hub":
        return NOT_ENVIRONMENT if name in _OF_ARGUMENTS else NETWORK
    if (
        "partially initialized module" in failure.message
        and failure.frames
        and package_of_frame(failure.frames[-1]) == USER
    ):
        return NOT_ENVIRONMENT  # a file that has the name of what it imports
    if name == "syntaxerror" and not _is_installed(failure):
        return NOT_ENVIRONMENT
    if name in _TYPES:
        return _TYPES[name]
    if name in ("modulenotfounderror", "importerror") and not failure.type:
        is_inside = name == "importerror" or any("-packages/" in frame.file for frame in failure.frames)
        return VERSION_CONFLICT if is_inside else "missing-python-package"
    if name == "importerror" and failure.frames and failure.frames[-1].code.startswith("raise "):
        return "missing-python-package"  # a package that looked for another one itself
    is_plain = name in (*_OF_VALUES, *_OF_INTERFACES)
    if is_plain and failure.type and (slug := _guess_by_callers(failure, name)):
        return slug
    if (name in INPUT_REFUSED and not failure.type) or refuses_options(failure):
        return NOT_ENVIRONMENT
    if is_plain:
        return _guess_by_callers(failure, name)
    return _guess_by_place(failure) if failure.type else _guess_by_path(failure)


def _guess_by_path(failure: LoggedException) -> str:
    """The class of the innermost frame that has one, of a traceback without its end; below a file of the user's there is none."""
    for frame in reversed(failure.frames):
        if package_of_frame(frame) == USER:
            return ""
        place = f"{frame.file} {frame.function} {frame.code}".replace("\\", "/")
        if found := next((slug for slug, form in (*_CUT_PLACES, *_PLACES) if form.search(place)), ""):
            return found
    return ""


def _is_installed(failure: LoggedException) -> bool:
    """Whether the file at fault is of a package, as the last frame or the message tells."""
    place = f"{failure.frames[-1].file if failure.frames else ''} {failure.message[:300]}".replace("\\", "/")
    return "-packages/" in place or bool(BUILD_FOLDER.search(place))


def _guess_by_place(failure: LoggedException) -> str:
    """The class of the file and the function that raised it."""
    frame = failure.frames[-1] if failure.frames else None
    place = f"{frame.file} {frame.function} {frame.code}".replace("\\", "/") if frame else ""
    return next((slug for slug, form in _PLACES if form.search(place)), "")


def _guess_by_callers(failure: LoggedException, name: str) -> str:
    """Below a script of the user's it is the script's; values come from the data; where one package calls another, the two do not fit."""
    packages = list(dict.fromkeys(package for _, package in calling_frames(failure) if package))
    is_foreign = "::" in failure.message[:80] or (name in _NAMES and packages[:1] != [USER])
    if USER in packages[:2] and not is_foreign:
        return NOT_ENVIRONMENT
    if name in _OF_VALUES and (slug := _guess_by_path(failure)) not in ("", VERSION_CONFLICT, NETWORK):
        return slug
    if name in _OF_VALUES:
        is_data = any(_DATA.search(frame.file.replace("\\", "/")) for frame in failure.frames)
        return "dataset-error" if is_data else ""
    is_between = REMOTE_CODE in packages or len([package for package in packages if package != USER]) > 1
    return VERSION_CONFLICT if is_between and not is_foreign else ""


def _guess_by_tool(summary: LogSummary) -> tuple[str, int | None, int | None] | None:
    """The class of the program that writes the log, where it complains at the end."""
    own = [i for i, line in enumerate(summary.lines) if line.text.strip() and line.place != "derived"]
    last = next((i for i in reversed(own[-MAX_END:]) if is_complaint_line(summary.lines[i])), None)
    texts = [summary.lines[i].text[:300] for i in own[-MAX_TOOL_LINES:]]
    slug = next((slug for slug, form in _TOOLS if any(form.search(text) for text in texts)), "")
    return (slug, None, last) if slug and last is not None else None
