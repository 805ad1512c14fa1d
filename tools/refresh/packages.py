"""The rows of the packages around torch."""

import json
import re
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from refresh.index import File, Index, Metadata, Trouble, best
from refresh.text import NEW, TODO, Change, Row, brief, insert_row, list_rows, touched
from refresh.wheel import Wheel

RUNTIME = re.compile(r"libcudart\.so\.\d+\Z")
# In the table of names, where other libraries stand beside it: not a name that a program opens by itself.
IN_STRINGS = re.compile(rb"\0(?:lib[\w+.-]+\0)+(libcudart\.so\.\d+)\0|\0(libcudart\.so\.\d+)\0(?:lib[\w+.-]+\0)+")
LIBRARY_OF = re.compile(r"_cuda(\d\d)(\d)[^/]*\.so\Z")
PTXAS = re.compile(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)[^\d.]")
TOOLS = {"ptxas": "triton/backends/nvidia/bin/ptxas", "ptxas_blackwell": "triton/backends/nvidia/bin/ptxas-blackwell"}
LINKED = ("cuda-extension", "cuda-library")
BUDGET = 24 << 20  # compressed bytes that a look for the linked CUDA may cost
ARCH = re.compile(r"\d{1,2}\.\d[af]?(\+PTX)?")
# Fields that people give and no index has.
BY_HAND = ("for_torch", "wheels", "wheels_cuda", "archs", "built_with", "pinned_by")


def changes(data: dict[str, Any], index: Index, only: list[str]) -> tuple[list[Change], list[str]]:
    """New releases of every package that has rows; and what could not be read."""
    found: list[Change] = []
    troubles: list[str] = []
    for row in data["package"]:
        key = f"packages/{row['name']}"
        if not row.get("version") or not touched(key, only):
            continue
        try:
            found += _package(row, index, only)
        except Trouble as bad:
            troubles.append(f"{key}: {bad}")
    return found, troubles


def _package(row: dict[str, Any], index: Index, only: list[str]) -> list[Change]:
    newest = max(Version(one["version"]) for one in row["version"])
    keys = {f"packages/{row['name']}/{v}": files for v, files in index.releases(row["name"]).items() if v > newest}
    return [one for key, files in keys.items() if touched(key, only) for one in _new(key, row, files, index)]


def from_page(files: list[File]) -> dict[str, Any]:
    """What the list of files tells: the day, the Python, and what is offered for Linux x86_64."""
    wheel = best(files)
    kind = "sdist-only" if wheel is None else "pure-wheel" if wheel.pure else "binary-wheel"
    row = {
        "version": str(files[0].version),
        "date": min((f.day for f in files if f.day), default=""),
        "requires_python": next((f.requires_python for f in [wheel, *files] if f and f.requires_python), ""),
        "dist": kind,
    }
    return {key: value for key, value in row.items() if value}


def opened(row: dict[str, Any], files: list[File], index: Index) -> dict[str, Any]:
    """A row out of the metadata and the wheel of one release."""
    page, wheel = from_page(files), best(files)
    if wheel is None:
        return page | {"confirmed": True, "source": f"PyPI metadata of {files[0].name}"}
    metadata = index.metadata(wheel)
    asked = declared(metadata, _followed(row))
    page = {key: value for key, value in page.items() if key != "dist"} | asked | {"dist": page["dist"]}
    if not wheel.pure:
        page |= inside(row, wheel, index)
    return page | {"confirmed": True, "source": f"PyPI metadata of {wheel.name}"}


def _followed(row: dict[str, Any]) -> set[str]:
    """The requirements that rows of this package have named so far."""
    return {canonicalize_name(Requirement(text).name) for one in row["version"] for text in one.get("requires", ())}


def declared(metadata: Metadata, followed: set[str]) -> dict[str, Any]:
    """Its requirement on torch, and on what the rows follow."""
    found: dict[str, Any] = {}
    wants = metadata.wants()
    for one in wants:
        if one.name == "torch":
            found["torch"] = str(one.specifier)
    requires = [_written(one) for one in wants if canonicalize_name(one.name) in followed]
    return found | ({"requires": requires} if requires else {})


def _written(one: Requirement) -> str:
    extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
    return f"{one.name}{extras}{one.specifier}"


def inside(row: dict[str, Any], wheel: File, index: Index) -> dict[str, Any]:
    """What only the wheel knows: the CUDA that it loads, the CUDAs that it has libraries for, its ptxas."""
    found: dict[str, Any] = {}
    opened_wheel = index.wheel(wheel) if row["kind"] in (*LINKED, "compiler") else None
    if opened_wheel is None:
        return found
    libraries = {m for m in opened_wheel.members if LIBRARY_OF.search(m)}
    if libraries:
        pairs = {LIBRARY_OF.search(m).groups() for m in libraries}  # type: ignore[union-attr]
        found["cuda_libs"] = sorted((f"{a}.{b}" for a, b in pairs), key=Version)
    elif row["kind"] in LINKED and (linked := loads(opened_wheel)):
        found["cuda_linked"] = [linked]
    found |= recipe(opened_wheel)
    for field, member in TOOLS.items():
        seen = opened_wheel.find(member, PTXAS) if row["kind"] == "compiler" else None
        found |= {field: seen[1].decode()} if seen else {}
    return found


def recipe(wheel: Wheel) -> dict[str, Any]:
    """The torch and the architectures of the build, where the wheel keeps a note of it, as xformers' do."""
    member = next((m for m in wheel.members if m.endswith("/cpp_lib.json")), "")
    try:
        decoded = json.loads(wheel.text(member) or "{}")
        built, archs = decoded["version"]["torch"], decoded["env"]["TORCH_CUDA_ARCH_LIST"].replace(";", " ").split()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    if not re.fullmatch(r"[0-9.]+\+cu\d+", str(built)) or not all(ARCH.fullmatch(a) for a in archs):
        return {}
    return {"built_with": built, "archs": archs}


def loads(wheel: Wheel) -> str:
    """The libcudart that some extension of a wheel loads; the smallest are opened first."""
    inside_it = sorted((i for n, i in wheel.members.items() if n.endswith(".so")), key=lambda i: i.compress_size)
    spent, too_large = 0, []
    for info in inside_it:
        spent += info.compress_size
        if spent > BUDGET:
            too_large.append(info)
            continue
        names = wheel.needed(info.filename) or ()
        if found := next((n for n in names if RUNTIME.match(n)), ""):
            return found
    for info in too_large[:2]:  # the table of names stands at the start of a library as a linker leaves it
        if seen := wheel.find(info.filename, IN_STRINGS, 4 << 20):
            return str((seen[1] or seen[2]).decode())
    return ""


def _new(key: str, row: dict[str, Any], files: list[File], index: Index) -> list[Change]:
    learned = opened(row, files, index)
    if "date" not in learned:
        return [Change(TODO, key, "new, and not written: the index does not say when it came out")]
    says = ", ".join(f"{k} {brief(v)}" for k, v in learned.items() if k in ("date", "torch", "dist", "cuda_linked"))
    found = [Change(NEW, key, says, _insert(row["name"], learned))]
    by_hand = [f for f in BY_HAND if f in row["version"][-1] and f not in learned]
    if by_hand:
        found.append(Change(TODO, key, f"{', '.join(by_hand)}: the row before has it, and no metadata does"))
    return found


def _insert(name: str, learned: dict[str, Any]) -> Any:
    def edit(text: str) -> str:
        rows, version = list_rows(text), Version(learned["version"])
        start = next(row.start for row in rows if row.name == "package" and row.values["name"] == name)
        end = min((row.start for row in rows if row.name != "package.version" and row.start > start), default=len(text))

        def is_before(row: Row) -> bool:
            is_older = row.name == "package.version" and Version(row.values["version"]) < version
            return row.start == start or (is_older and start < row.start < end)

        return insert_row(text, is_before, [("package.version", learned)])

    return edit
