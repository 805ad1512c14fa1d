"""The rows of torch: what its wheels declare, and what stands inside them."""

import ast
import re
from datetime import date
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from refresh.index import File, Index, Metadata, Trouble, best, in_order
from refresh.text import NEW, TODO, Change, Row, insert_row, list_rows, set_head, touched

# Field of the row: how the distribution's name begins.
PINS = {
    "nccl": "nvidia-nccl-cu", "cudnn": "nvidia-cudnn-cu", "cusparselt": "nvidia-cusparselt-cu",
    "nvshmem": "nvidia-nvshmem-cu", "cuda_runtime": "nvidia-cuda-runtime", "cublas": "nvidia-cublas",
    "cuda_toolkit": "cuda-toolkit", "cuda_bindings": "cuda-bindings",
}  # fmt: skip
LIBRARY = "torch/lib/libtorch_python.so"
# A compiler may put the string right behind another one, so only its end is certain to be a zero.
ARCHS = re.compile(rb"((?:sm|compute)_\d+[af]?(?: (?:sm|compute)_\d+[af]?)+)\0")
TABLE = "torch/cuda/__init__.py PYTORCH_RELEASES_CODE_CC in the PyPI wheel"


def changes(data: dict[str, Any], index: Index, only: list[str]) -> tuple[list[Change], list[str]]:
    """New releases as whole rows; also a sentence for each release that could not be read."""
    known = {Version(row["version"]) for row in data["torch"]}
    offered = index.releases("torch")
    found: list[Change] = []
    troubles: list[str] = []
    for version, files in offered.items():
        key = f"torch/{version}"
        if version > min(known) and version not in known and touched(key, only):
            try:
                found.append(_added(key, version, files, index))
            except Trouble as bad:
                troubles.append(f"{key}: {bad}")
    newest = str(max(offered, default=max(known)))
    if Version(newest) > Version(data["newest"]):
        says = f"{data['newest']} -> {newest}"
        found.append(Change(NEW, "torch/newest", says, lambda text: set_head(text, "newest", newest)))
    return found, troubles


def from_page(files: list[File]) -> dict[str, Any]:
    """What the list of files tells without opening one."""
    intel = [f for f in files if f.linux("x86_64")]
    arm = [f for f in files if f.linux("aarch64")]
    return {
        "version": str(files[0].version),
        "date": min((f.day for f in intel if f.day), default=""),
        "requires_python": next((f.requires_python for f in intel), ""),
        "python": in_order(p for f in intel for p in f.pythons),
        "python_aarch64": in_order(p for f in arm for p in f.pythons),
    }


def opened(files: list[File], index: Index) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row and its builds out of one wheel for x86_64 and one for aarch64."""
    intel, arm = chosen(files, "x86_64"), chosen(files, "aarch64")
    if intel is None:
        raise Trouble(f"torch {files[0].version}: the index has no wheel for Linux x86_64")
    metadata, built = index.metadata(intel), _version_file(intel, index)
    arm_built = _version_file(arm, index) if arm else {}
    row = from_page(files) | {"commit": built["git_version"], "default": variant(built["cuda"])}
    row |= {"pypi_aarch64": "cuda" if arm_built.get("cuda") else "cpu"}
    row |= pins(metadata) | {"confirmed": True}
    row["source"] = [
        f"PyPI metadata of {intel.name}",
        f"torch/version.py and libtorch_python.so arch string inside {intel.name}",
    ]
    return row, _builds(intel, arm if arm_built.get("cuda") else None, built["cuda"], row, index)


def chosen(files: list[File], machine: str) -> File | None:
    """The wheel that is opened: the one for Python 3.11, as in the rows before, else the oldest Python's."""
    wheels = [f for f in files if f.linux(machine) and f.pythons]
    plain = [f for f in wheels if not any(p.endswith("t") for p in f.pythons)] or wheels
    ranked = sorted(plain, key=lambda f: ("3.11" not in f.pythons, int(in_order(f.pythons)[0][2:].rstrip("t")), f.name))
    return ranked[0] if ranked else None


def _version_file(file: File, index: Index) -> dict[str, str]:
    """``cuda`` and ``git_version`` of torch/version.py, read and never run."""
    text = index.wheel(file).text("torch/version.py")
    found = {"cuda": "", "git_version": ""}
    try:
        tree = ast.parse(text or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Trouble(f"{file.name}: torch/version.py is not Python") from None
    for node in tree.body:
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id in found and isinstance(value, ast.Constant):
            found[target.id] = str(value.value or "")
    if not re.fullmatch(r"[0-9a-f]{40}", found["git_version"]):
        raise Trouble(f"{file.name}: torch/version.py names no commit")
    if not re.fullmatch(r"(\d+\.\d+)?", found["cuda"]):
        raise Trouble(f"{file.name}: torch/version.py names no CUDA that makes sense")
    return found


def pins(metadata: Metadata) -> dict[str, Any]:
    """What the wheel pins: triton and NVIDIA's libraries."""
    found: dict[str, Any] = {}
    wants = metadata.wants()
    for one in wants:
        if one.name == "triton":
            found |= {"triton": pin(one)} | ({"triton_marker": str(one.marker)} if one.marker else {})
    for field, start in PINS.items():
        named = [one for one in wants if one.name == start or _numbered(one.name, start)]
        found |= {field: pin(named[0])} if named else {}
    return found


def _numbered(name: str, start: str) -> bool:
    return name.startswith(start) and re.fullmatch(r"(-cu)?\d+", name[len(start) :]) is not None


def pin(requirement: Requirement) -> str:
    """``==2.30.7`` -> ``2.30.7``; anything else as it stands."""
    only = list(requirement.specifier)
    return only[0].version if len(only) == 1 and only[0].operator == "==" else str(requirement.specifier)


def _builds(intel: File, arm: File | None, cuda: str, row: dict[str, Any], index: Index) -> list[dict[str, Any]]:
    """The build of the wheel itself, and those that torch's own table names beside it."""
    own: dict[str, Any] = {"cuda": cuda, "variant": variant(cuda), "pypi": True, "arch": archs(intel, index)}
    if arm:
        own["aarch64"] = archs(arm, index)
    own |= {k: row[k] for k in ("nccl", "cudnn") if k in row}
    own |= {"confirmed": True, "source": [f"libtorch_python.so arch string inside {intel.name}"]}
    if arm:
        own["source"].append(f"libtorch_python.so arch string inside {arm.name}")
    found = {cuda: own}
    result = table(intel, index)
    if result.get(cuda, {}).get("x86_64", own["arch"]) != own["arch"]:
        own["confirmed"] = False  # the string and torch's own table do not agree: a person decides
    for other, machines in result.items():
        if other != cuda and machines.get("x86_64"):
            found[other] = {"cuda": other, "variant": variant(other), "pypi": False, "arch": machines["x86_64"]}
            found[other] |= {"aarch64": machines["aarch64"]} if machines.get("aarch64") else {}
            found[other] |= {"confirmed": False, "source": [TABLE]}
    return [found[key] for key in sorted(found, key=Version)]


def archs(file: File, index: Index) -> list[str]:
    """The capabilities of the string from which ``torch.cuda.get_arch_list()`` answers."""
    seen = index.wheel(file).find(LIBRARY, ARCHS)
    if not seen:
        raise Trouble(f"{file.name}: no list of architectures in {LIBRARY}")
    return [dotted(word) for word in seen[1].decode().split() if word.startswith("sm_")]


def dotted(word: str) -> str:
    digits = word.removeprefix("sm_").rstrip("af")
    return f"{digits[:-1]}.{digits[-1]}"


def variant(cuda: str) -> str:
    return "cu" + cuda.replace(".", "") if cuda else "cpu"


def table(file: File, index: Index) -> dict[str, dict[str, list[str]]]:
    """Torch's own table of the builds of its release; empty in releases without one."""
    text = index.wheel(file).text("torch/cuda/__init__.py") or ""
    try:
        for node in ast.parse(text).body:
            if isinstance(node, ast.AnnAssign | ast.Assign) and "PYTORCH_RELEASES_CODE_CC" in ast.dump(node):
                return _table(ast.literal_eval(node.value or "{}"))
    except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        return {}
    return {}


def _table(value: Any) -> dict[str, dict[str, list[str]]]:
    """Older releases give one set for each CUDA, for x86_64; newer ones one for each machine."""
    found = {}
    for cuda, machines in value.items():
        by_machine = machines if isinstance(machines, dict) else {"x86_64": machines}
        if re.fullmatch(r"\d+\.\d+", cuda):
            found[cuda] = {m: [dotted(str(c)) for c in sorted(codes)] for m, codes in by_machine.items()}
    return found


def companion(name: str, version: str, day: str, index: Index) -> tuple[str, bool]:
    """The torchvision or torchaudio of a release, and whether its metadata pins this torch."""
    fallback = ""
    wheels = [wheel for files in index.releases(name).values() if (wheel := best(files)) and wheel.day and day]
    near = [wheel for wheel in wheels if -200 <= _days(day, wheel.day) <= 90]
    for wheel in near or [wheel for wheel in wheels if wheel.day <= day][-1:]:
        asked = [r for r in index.metadata(wheel).wants() if r.name == "torch"]
        if any(pin(r) == version for r in asked):
            return str(wheel.version), True
        if _days(day, wheel.day) <= 14 and all(r.specifier.contains(version) for r in asked):
            fallback = str(wheel.version)
    return fallback, False


def _days(first: str, then: str) -> int:
    return (date.fromisoformat(then) - date.fromisoformat(first)).days


def _added(key: str, version: Version, files: list[File], index: Index) -> Change:
    row, builds = opened(files, index)
    missing = [field for field in ("date", "requires_python", "nccl", "cudnn") if not row.get(field)]
    unsure = ["builds"] if any(not b["confirmed"] for b in builds) else []
    for name in ("torchvision", "torchaudio"):
        row[name], pinned = companion(name, str(version), row["date"], index)
        unsure += [] if pinned else [name]
        missing += [] if row[name] else [name]
    if missing or row["default"] == "cpu":
        why = f"no {', '.join(missing)}" if missing else "its wheel is a CPU build"
        return Change(TODO, key, f"new, and not written: {why} in what the index gives; the rest is {_summary(row)}")
    row = _ordered(row, unsure)
    says = f"{_summary(row)}; builds " + " ".join(b["variant"] for b in builds)
    return Change(NEW, key, says, _insert(row, builds))


def _ordered(row: dict[str, Any], unsure: list[str]) -> dict[str, Any]:
    tail = {key: row.pop(key) for key in ("confirmed", "source")}
    tail["source"].append("torchvision/torchaudio PyPI metadata")
    middle = {"unconfirmed_fields": unsure} if unsure else {}
    return row | {"confirmed": tail["confirmed"]} | middle | {"source": tail["source"]}


def _summary(row: dict[str, Any]) -> str:
    pythons = row["python"]
    return f"{row['date'] or 'no date'}, {row['default']}, Python {pythons[0]} to {pythons[-1]}, commit {row['commit'][:10]}"


def _insert(row: dict[str, Any], builds: list[dict[str, Any]]) -> Any:
    """Behind the builds of the newest release that is older."""

    def edit(text: str) -> str:
        rows, version = list_rows(text), Version(row["version"])
        newer = (r.start for r in rows if r.name == "torch" and Version(r.values["version"]) > version)
        end = min(newer, default=len(text))

        def is_before(one: Row) -> bool:
            return one.name in ("torch", "torch.build") and one.start < end

        return insert_row(text, is_before, [("torch", row), *(("torch.build", build) for build in builds)])

    return edit
