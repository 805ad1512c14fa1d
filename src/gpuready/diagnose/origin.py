"""Where an exception comes from: whose frame is the innermost, and whether that blames the user's own code or data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_summary import LogSummary, exception_chain
from gpuready.logs.logged_exception import LoggedException, StackFrame
from gpuready.model.record import Record

USER, REMOTE_CODE = "user", "transformers_modules"
"""Package names of the user's own files, and of code that came with a model."""


class ExceptionOrigin(Record):
    """Who raised an exception: a kind, the package where it is one, and the frame."""

    kind: str  # user, package, torch, compiler, extension, driver, network, hub, installer, unknown
    package: str = ""
    file: str = ""
    line: int = 0

    @property
    def says(self) -> str:
        """``vllm (vllm/v1/engine/core.py, line 12)``; empty where it is unknown."""
        name = _KIND_NAMES.get(self.kind, self.package)
        if self.package and self.package != name:
            name = f"{name} ({self.package})"
        return f"{name}, {self.file}, line {self.line}" if self.file and name else name


_KIND_NAMES = {
    "user": "the user's own code", "compiler": "a compiler", "extension": "a compiled extension", "driver": "the GPU or its driver",
    "network": "the network", "hub": "the model hub", "installer": "the package manager", "unknown": "",
}  # fmt: skip

_PACKAGE = LazyRegex(
    r"(?:(?:site|dist)-packages|/(?:custom_nodes|third[_-]?party|external|submodules|vendor|plugins)(?=/[\w.-]{1,60}/))/(?:[^/]{1,80}\.egg/)?([A-Za-z_]\w{0,60})"
)
"""Of packages that are installed, or that a program keeps beside its own code."""
_STDLIB = LazyRegex(
    r"(?:^|/)(?:lib(?:64)?/python3?(?:\.\d{1,3}t?)?|python3\.\d{1,3}t?)/[\w/]{1,120}\.py$|/[Ll]ib/(?!site-packages)[\w/]{1,120}\.py$|^<(?!stdin|ipython|cell)"
)
_STARTER = LazyRegex(r"(?:^|/)(?:bin|Scripts)/[\w.-]{1,80}$|\.exe/__main__\.py$")
"""The script that pip makes for a command: ``/usr/bin/vllm``."""
_CHECKOUT_PARENTS = ("src", "python", "lib", "packages")
PLAIN_NAMES = ("data", "dataset", "datasets", "models", "model", "utils", "train", "training", "trainer", "trainers", "scripts", "tools",
                "core", "configs", "config", "modules", "engine", "eval", "common", "losses", "layers", "helpers", "main", "code", "tasks")  # fmt: skip
"""Folders of anyone's ``src``: they make no package of another."""
ELISIONS = ("...", "…", "[...]", "[…]", "<...>", "..", "xxx", "***", "path", "{path}", "$CONDA_PREFIX", "$VIRTUAL_ENV")
"""What people write in place of the beginning of a path."""
KNOWN_PACKAGES = frozenset((
    "accelerate", "apex", "axolotl", "bitsandbytes", "colossalai", "cv2", "datasets", "deepspeed", "detectron2", "dgl", "diffusers",
    "fairseq", "flash_attn", "flashinfer", "flax", "gradio", "gym", "gymnasium", "h5py", "huggingface_hub", "hydra", "jax", "jaxlib", "keras",
    "kornia", "langchain", "librosa", "lightning", "llamafactory", "matplotlib", "megatron", "mmcv", "mmdet", "mmengine", "nemo", "numba", "numpy", "omegaconf", "onnx", "onnxruntime", "openai",
    "openrlhf", "optax", "optimum", "paddle", "pandas", "peft", "pyarrow", "pydantic", "pytorch_lightning", "ray", "requests", "roll",
    "safetensors", "scipy", "sentence_transformers", "setuptools", "sglang", "sklearn", "swift", "tensorflow", "tensorrt", "timm", "tokenizers", "torch",
    "torch_geometric", "torchmetrics", "torchvision", "torchaudio", "torchtext", "transformer_engine", "transformers", "triton", "trl", "ultralytics", "unsloth",
    "unsloth_zoo", "urllib3", "verl", "vllm", "xformers"))  # fmt: skip
_NETWORK_PACKAGES = ("requests", "urllib3", "httpx", "httpcore", "aiohttp", "anyio", "socket", "ssl", "grpc")
_NETWORK_TYPES = LazyRegex(
    r"(?i)(?:Connect|Connection|SSL|Proxy|MaxRetry|Read|NameResolution|gai|Remote|Chunked|Incomplete)\w{0,30}(?:Error|Timeout|error)$"
)
_HUB_TYPES = LazyRegex(
    r"(?i)(?:HfHub|Gated|Repository|Entry|Revision|LocalEntry|OfflineMode)\w{0,40}(?:Error|Enabled)$"
)
_INSTALLERS = ("pip", "uv", "setuptools", "pkg_resources", "pyproject_hooks", "build", "wheel", "conda", "mamba")
_COMPILER_PATHS = ("/torch/_inductor/", "/torch/_dynamo/", "/torch/utils/cpp_extension", "/triton/", "/torch/_functorch/",
                   "/numba/", "/cutlass/", "/deep_gemm/", "/flashinfer/jit/", "/tvm/", "/tilelang/", "/op_builder/")  # fmt: skip
_COMPILER_TYPES = LazyRegex(
    r"(?i)(?:Compil\w{0,30}(?:Error|Failed)|InductorError|BackendCompilerFailed|OutOfResources|PTXASError)$"
)
_DEVICE_ERRORS = LazyRegex(
    r"(?i)(?:^|\b)(?:cuda|cudnn|cublas\w*|nccl|hip|cusolver|nvml) (?:runtime )?(?:error|failure)\b"
)
_EXTENSIONS = LazyRegex(r"(?i)undefined symbol|\.so(?:\.\d{1,4}){0,3}: |DLL load failed|cannot open shared object")

_BUILD_FOLDER = LazyRegex(
    r"/pip-(?:install|req-build|build-env|wheel|ephem\w{1,12})-|/(?:uv|pip)/cache/|/builds-v\d|<pip-setuptools-caller>|/mesonbuild/"
)
"""Where package managers unpack what they build."""


def package_of_frame(frame: StackFrame) -> str:
    """The import package of a frame's file; ``user`` for the user's own, empty for Python's own."""
    path = frame.file.replace("\\", "/")
    if "/transformers_modules/" in path:
        return REMOTE_CODE
    found = _PACKAGE.search(path)
    if found:
        return found[1]
    if _BUILD_FOLDER.search(path):
        return _INSTALLERS[0]
    parts = path.split("/")
    if package := _package_after_elision(parts):
        return package
    if _STDLIB.search(path) or _STARTER.search(path):
        return ""
    return _package_of_checkout(parts) or USER


def _package_after_elision(parts: Sequence[str]) -> str:
    """``.../transformers/trainer.py``: a known package after a path that somebody shortened."""
    is_shortened = parts[0] in ELISIONS or (parts[0] == "" and parts[1:2] and parts[1] in ELISIONS)
    named = parts[:-1] if is_shortened else parts[:1] if len(parts) > 1 else ()
    return next((name for name in named if name in KNOWN_PACKAGES), "")


def _package_of_checkout(parts: Sequence[str]) -> str:
    """``/opt/vllm/vllm/engine/core.py`` and ``src/axolotl/cli/train.py``: a package that runs from its source tree."""
    for parent, name in pairwise(parts[:-1]):
        folded = name.lower().replace("-", "").replace("_", "")
        in_checkout = folded in parent.lower().replace("-", "").replace("_", "") and len(folded) > 2
        in_source = parent in _CHECKOUT_PARENTS and folded not in PLAIN_NAMES
        if name.isidentifier() and (in_checkout or in_source) and name not in _CHECKOUT_PARENTS:
            return name
    return ""


_PASSES_CALLS_ON = ("_call_impl", "_wrapped_call_impl", "decorate_context", "wrapper", "wrapped", "inner")


def calling_frames(failure: LoggedException) -> Iterator[tuple[StackFrame, str]]:
    """The frames with their packages, from the innermost outwards, without Python's own and what only passes calls on."""
    for frame in reversed(failure.frames):
        package = package_of_frame(frame)
        if package and not (frame.function.startswith("__getattr") or frame.function in _PASSES_CALLS_ON):
            yield frame, package


def find_origin(failure: LoggedException) -> ExceptionOrigin:
    """Who raised it: by its type and message where these say so, else by the innermost frame that is not Python's own."""
    frame, package = next(calling_frames(failure), (None, ""))
    if not package and "." in failure.type:
        package = failure.type.partition(".")[0]
    kind = _kind_of_exception(failure, frame.file.replace("\\", "/") if frame else "", package)
    shown = "" if package == USER else package
    return ExceptionOrigin(kind, shown, frame.file if frame else "", frame.line if frame else 0)


def _kind_of_exception(failure: LoggedException, file: str, package: str) -> str:
    name, message = failure.short_type.lower(), failure.message[:400]
    if _DEVICE_ERRORS.search(message) or name in ("acceleratorerror", "nvmlerror"):
        return "driver"
    if package == "huggingface_hub" or failure.type.startswith("huggingface_hub") or _HUB_TYPES.match(name):
        return "hub"
    if package in _NETWORK_PACKAGES or _NETWORK_TYPES.match(name):
        return "network"
    if package in _INSTALLERS:
        return "installer"
    if any(part in file for part in _COMPILER_PATHS) or _COMPILER_TYPES.search(name) or package == "triton":
        return "compiler"
    if _EXTENSIONS.search(message):
        return "extension"
    if package in ("torch", USER):
        return package
    return "package" if package else "unknown"


# -- the user's own -----------------------------------------------------------------------------------------------

_INPUT_REFUSED = ("valueerror", "validationerror", "scannererror", "parsererror", "yamlerror", "jsondecodeerror", "unicodedecodeerror",
                  "arrowinvalid", "filenotfounderror", "hfvalidationerror", "tomldecodeerror", "casterror", "datasetgenerationerror",
                  "datafilesnotfounderror", "emptydataseterror", "configkeyerror", "configattributeerror", "missingmandatoryvalue",
                  "templateerror", "templatesyntaxerror", "badrequesterror", "invalidrequesterror", "unprocessableentityerror")  # fmt: skip
"""Types with which a package refuses its input: a configuration, a file, an argument."""

_CONFIG_FILES = ("scannererror", "yamlerror", "tomldecodeerror", "configkeyerror", "configattributeerror", "missingmandatoryvalue",
                 "misconfigurationexception")  # fmt: skip
"""Types of a configuration that cannot be read or used: nothing but it is at fault."""

_CONFIG_TYPES = LazyRegex(
    r"\w{0,30}(?:config\w{0,12}|argument|option|parameter|usage|validation)\w{0,12}(?:error|exception)$"
)
"""``MisconfigurationException``, ``DeepSpeedConfigError``, ``VLLMValidationError``: types that say what they refuse."""

_DATA_ERRORS = (
    "notimplementederror", "keyerror", "indexerror", "zerodivisionerror", "stopiteration", "overflowerror",
    "recursionerror",
)  # fmt: skip
"""Types that bad data raises anywhere below a file of the user."""

_ENVIRONMENT_WORDS = LazyRegex(
    r"(?i)\bversion (?:of|mismatch|conflict|is|\d+\.)|[<>=~]=? ?v?\d+\.\d|\b\d+\.\d+\.\d+\b|incompatible|\binstall|\bupgrade|\bdrivers?\b"
    r"|\bcuda\b|\brocm\b|\bgpus?\b|\b[xn]pus?\b|\b(?:hopper|ampere|blackwell)\b|\bsm_?\d{2,3}|\bgfx\d|\bplatforms?\b|\bmemory\b|not (?:currently |yet )?(?:support|available|compiled|built|enabled|implemented for ')|unsupported(?! operand)|unavailable"
    r"|\barchitectures?\b|capability|\blibrary\b|recogni[sz]e|\bpermission|\btime(?:d )?out\b|\bconnect|\bnetwork\b|\bkernels?\b|/dev/|\.so\b"
    r"|input/output|errno|\bdisk\b|\bmmap|\bnumpy\b|\bnccl\b|\bexited\b|\bdied\b|failed to (?:launch|start|spawn|communicate)|\bkilled\b|\bonly supports?\b|engine core"
)
_DATA_OBJECT = LazyRegex(
    r"'(?:numpy\.ndarray|Tensor|str|dict|list|tuple|int|float|bool|bytes|set|DataFrame|Series|generator)' object has no attribute"
)
"""A value where the program expects another: data, or how it handles them."""
_ATTRIBUTE = LazyRegex(r"has no attribute ['`]?(\w{1,80})")
_DATA_FILES = LazyRegex(
    r"(?i)(?:data|collat|preprocess|prompt|template|token|formatting)[^/]{0,40}(?:/[^/]{1,60}){0,2}$"
)
"""Files in which a package reads the rows of a dataset."""

_COMPILER_LINE = LazyRegex(
    r"(?i)(?:^|\s)(\S{1,400}\.(?:cpp|cc|cu|cuh|c|h|hpp))(?::\d{1,7}:\d{1,5}|\(\d{1,7}\)): (?:fatal )?error:"
)


def names_environment(text: str) -> bool:
    """Whether a complaint speaks of versions, devices, memory or the network: then it is not the program's alone."""
    return bool(_ENVIRONMENT_WORDS.search(text[:600].removeprefix("[Errno 2] ")))


def is_users_own(summary: LogSummary, number: int) -> bool:
    """Whether an exception is of the user's own code, data or configuration, and of nothing else."""
    failure = summary.failures[number]
    kind = find_origin(failure).kind
    if kind == "user":
        return not _is_of_base_class(failure)
    if kind == "compiler":
        return _is_users_source(summary, number)
    if kind not in ("package", "torch", "unknown") or "::" in failure.type:  # of C++, of an installer, of a build
        return False
    if _is_importing(failure):
        return False
    if failure.short_type in ("NameError", "UnboundLocalError") and any(map(_is_not_installed, failure.frames[-1:])):
        return True
    chain = [summary.failures[i] for i in exception_chain(summary.failures, number)]
    if _is_missing_file(failure) and "-packages" in failure.message:
        return False
    is_of_environment = names_environment(failure.message) and not _DATA_OBJECT.match(failure.message)
    if is_of_environment or "::" in failure.message[:80]:  # ``_Map_base::at``: thrown by C++
        return False
    on_stack = any(_is_not_installed(frame) for one in chain for frame, _ in calling_frames(one))
    return _blames_input(failure, on_stack)


def _is_importing(failure: LoggedException) -> bool:
    """Whether an installed package was only being imported: nobody has given it anything yet."""
    pairs = pairwise(failure.frames)
    return any(outer.code.startswith(("from ", "import ")) and not _is_not_installed(inner) for outer, inner in pairs)


def _is_of_base_class(failure: LoggedException) -> bool:
    """Whether a package's ``__getattr__`` misses a private attribute, or one that the shown code does not name: whose it is, nobody sees."""
    last, found = failure.frames[-1], _ATTRIBUTE.search(failure.message[:600])
    if not found or not last.function.startswith("__getattr") or package_of_frame(last) in ("", USER):
        return False
    code = next(calling_frames(failure))[0].code
    return found[1].startswith("_") or found[1] not in (code or found[1])


_OWN_TYPES = ("KeyError", "IndexError", "FileNotFoundError", "ZeroDivisionError", "UnboundLocalError")


def is_own_data(failure: LoggedException) -> bool:
    """Whether the user's own line, or a reader of data that it called, raised it: for what the program reads, computes and refuses."""
    package = next((package for _, package in calling_frames(failure)), "")
    is_own = package in (USER, "pandas", "numpy", "PIL", "h5py") and failure.short_type in _OWN_TYPES
    is_refused = _refuses_itself(failure) or failure.short_type.lower() in _CONFIG_FILES
    return (is_own or is_refused) and not names_environment(failure.message)


def _refuses_itself(failure: LoggedException) -> bool:
    """Whether a ``raise`` or an ``assert`` of the program's own, with words, ended it."""
    frame = failure.frames[-1] if failure.frames else None
    is_own = frame is not None and _is_not_installed(frame) and frame.code.startswith(("raise ", "assert "))
    return is_own and " " in failure.message.strip() and failure.short_type not in ("ImportError", "OSError")


def _is_missing_file(failure: LoggedException) -> bool:
    """Whether a file or folder was not found, and not a program that was to be started."""
    starts = any(frame.file.endswith("subprocess.py") for frame in failure.frames[-3:])
    return failure.short_type in ("FileNotFoundError", "NotADirectoryError", "IsADirectoryError") and not starts


def _is_not_installed(frame: StackFrame) -> bool:
    """Whether a file is the user's, or of a source tree that the user runs."""
    return "-packages/" not in frame.file.replace("\\", "/")


def _blames_input(failure: LoggedException, on_stack: bool) -> bool:
    """Whether a package complains of its input. ``on_stack``: a file of the user's is."""
    name, message = failure.short_type.lower(), failure.message
    if name in _INPUT_REFUSED or _CONFIG_TYPES.match(name) or (name == "assertionerror" and " " in message.strip()):
        return True
    if name in ("keyerror", "indexerror") and failure.frames and _DATA_FILES.search(failure.frames[-1].file):
        return True
    if not on_stack:
        return False
    if name in ("typeerror", "attributeerror") and "'NoneType'" in message:
        return True
    if name in _DATA_ERRORS:
        return True
    return name not in ("attributeerror", "nameerror", "unboundlocalerror") and _is_called_by_user(failure)


def _is_called_by_user(failure: LoggedException) -> bool:
    """Whether the user's own file called the package that raised it: what it was called with is the user's."""
    packages = [package for _, package in calling_frames(failure)]
    return USER in packages and all(package == packages[0] for package in packages[: packages.index(USER)])


def find_users_source(summary: LogSummary) -> int | None:
    """The exception with which a compiler refused a source file of the user's."""
    numbers = range(len(summary.failures))
    compiled = (number for number in numbers if find_origin(summary.failures[number]).kind == "compiler")
    return next((number for number in compiled if _is_users_source(summary, number)), None)


def _is_users_source(summary: LogSummary, number: int) -> bool:
    """Whether a compiler refused a source file of the user's: the user's file asked for the build, none of a package is at fault."""
    chain = [summary.failures[i] for i in exception_chain(summary.failures, number)]
    if not any(_is_called_by_user(one) for one in chain):
        return False
    found = [match[1] for line in summary.lines if (match := _COMPILER_LINE.search(line.text[:600]))]
    return bool(found) and not any("-packages/" in file or file.startswith(("/usr/", "/opt/")) for file in found)
