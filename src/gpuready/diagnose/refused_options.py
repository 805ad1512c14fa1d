"""Whether a package refuses its options: a configuration that does not go together, in words that name no hardware and no release.

ValueError: `loss_type='chunked_nll'` is not supported when `lm_head` is wrapped by a PEFT adapter
NotImplementedError: --enable-lora cannot be used with --pipeline-parallel-size
MisconfigurationException: no `training_step()` method defined
"""

from __future__ import annotations

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.logged_exception import LoggedException

MAX_MESSAGE = 400
"""Characters of a message that are read."""

CONFIG_TYPES = LazyRegex(
    r"\w{0,30}(?:config\w{0,12}|argument|option|parameter|usage|validation)\w{0,12}(?:error|exception)$"
)
"""``MisconfigurationException``, ``DeepSpeedConfigError``, ``VLLMValidationError``: types that say what they refuse."""

_CHECKED = ("runtimeerror", "exception", "notimplementederror", "valueerror", "assertionerror")
_OF_VALUES = (*_CHECKED, "typeerror")
"""Types that the checks of a package raise, and those with which it refuses values."""

_UNSUPPORTED = LazyRegex(
    r"(?i)(?:does not|do not|doesn't|don't|not (?:yet |currently )?|un)support|\bonly support(?:s|ed)?\b|cannot use both"
)
_HARDWARE_WORDS = LazyRegex(
    r"(?i)cuda|gpu|nvidia|driver|hopper|ampere|blackwell|\bsm_?\d|capability|architecture|platform|device|version|\d\.\d|install|kernel|memory|nccl"
    r"|build|compil|library|windows|linux|python|dtype|float|fp8|bf16|model type|backend"
)

_OPTION = LazyRegex(
    r"`[^`\n]{0,60}[_=][^`\n]{0,60}`|['\"][a-z][a-z0-9]{0,30}_\w{1,60}['\"]|(?<!\w)--[a-z][\w-]{1,60}(?:[= ]\d{1,9})?"
    r"|\b[a-z][\w.]{1,60}=[\w'\"\[({.-]{1,40}|\b[a-z][a-z0-9]{1,30}(?:_[a-z0-9]{1,30}){1,8}\b"
)
"""Names of options, with their values: ``max_length``, ``--enable-lora``, ```packing=False```."""
_REFUSAL = LazyRegex(
    r"(?i)(?:does not|do not|doesn't|don't|is not|are not|not|not yet|not currently|yet not) support|unsupported|\bonly .{1,60} (?:is|are) supported|only (?:be )?support"
    r"|only (?:be )?(?:works?|compatible|available|allowed|valid|used|set|enabled) (?:with|for|when|in|if|by)|incompatible with|not (?:be )?compatible with"
    r"|(?:cannot|can't|can not) (?:be )?(?:used|use|combined|combine|set|enabled|enable|specified)|not allowed|mutually exclusive"
    r"|(?:must|should|has to|have to|needs to) (?:not )?(?:be|equal|match)|requires? [`'\"]?[\w.]{1,60}(?: ?=|[`'\"]? to be )|please (?:set|disable|enable|choose|increase|decrease|remove)"
    r"|(?:either|or) (?:set|disable|enable|remove)|expected one of|choose (?:from|between|one)"
)
_MACHINE_WORDS = LazyRegex(
    r"(?i)\bcuda\b|\bgpus?\b|nvidia|driver|hopper|ampere|blackwell|\bturing\b|\bvolta\b|\bsm_?\d|\bgfx\d|capability|architecture|platform|\bdevices?\b"
    r"|\bversions?\b|\breleases?\b|\bnewer\b|\bolder\b|install|upgrade|\bmemory\b|nccl|\bbuil[dt]|compil|librar|package|windows|linux|\bmac ?os\b|python"
    r"|\bfp8\b|\bbf16\b|bfloat16|model type|not found|not available|permission|connect|time(?:d )?out|\bports?\b|download|checkpoint|state.dict|\bweights?\b"
    r"|\bfiles?\b|corrupt|\branks?\b|environment variable|\.so\b|import"
)
_RELEASE = LazyRegex(r"[<>~=]= ?v?\d{1,4}\.\d|\b\d{1,4}\.\d{1,4}\.\d|\bv\d{1,3}\.\d")
_OF_RELEASES = LazyRegex(
    r"(?i)version|release|upgrade|downgrade|\bupdate (?:to|your|the)\b|install|\bnewer\b|\bolder\b|\d\.\d|incompatible (?:release|version)|removed|renamed|deprecat|import|no longer"
)


def refuses_values(failure: LoggedException) -> bool:
    """Whether a package refuses a value, and does not say that a release is at fault."""
    message = _OPTION.sub(" ", failure.message[:MAX_MESSAGE])
    return failure.short_type.lower() in _CHECKED and not _OF_RELEASES.search(message)


def refuses_options(failure: LoggedException) -> bool:
    """Whether a package refuses its options: by the type of the exception, or in words that name neither hardware nor a release."""
    name, message = failure.short_type.lower(), failure.message[:MAX_MESSAGE]
    if not failure.type or _HARDWARE_WORDS.search(message):
        return False
    if CONFIG_TYPES.match(name):
        return True
    return name in _OF_VALUES and bool(_UNSUPPORTED.search(message)) and bool(failure.frames)


def names_refused_option(failure: LoggedException) -> bool:
    """Whether a package says of an option by its name that it does not go with the others; what the names contain does not count."""
    message = failure.message[:MAX_MESSAGE]
    if failure.short_type.lower() not in _OF_VALUES or not _OPTION.search(message) or not _REFUSAL.search(message):
        return False
    rest = _OPTION.sub(" ", message)
    return not _RELEASE.search(message) and not _MACHINE_WORDS.search(rest)
