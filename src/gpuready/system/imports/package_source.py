"""The sources of a release (a wheel, an archive or a checkout) and the versions they ask for. Nothing is imported or run."""

from __future__ import annotations

import ast
import os
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress

from gpuready.model import Record
from gpuready.model.metadata import parse_metadata, parse_requires_file
from gpuready.system.archive_members import list_tar_members

MAX_SOURCE_BYTES = 4 << 20
_ASIDE = r"(?:^|/)(?:tests?|docs?[\w-]*|examples?|benchmarks?|scripts|cicd|\.github|build|third_party|applications)/|(?:^|/)(?:setup|conftest)\.py$"
Modules = Iterator[tuple[str, ast.Module]]
_METADATA = r"[^/]+\.dist-info/METADATA|PKG-INFO"


class PackageSource(Record):
    """A release as its files have it: sources by path, and what its metadata requires."""

    name: str
    version: str
    requires_dist: tuple[str, ...]
    requires_python: str
    is_dynamic: bool  # its requirements are worked out anew by each build
    files: dict[str, str]

    def parse_modules(self, pattern: str = "") -> Modules:
        """Yield the path and the syntax tree of each module whose text has a pattern, and that this Python can parse."""
        wanted = re.compile(pattern, re.M)
        for path, text in self.files.items():
            if wanted.search(text):
                with suppress(SyntaxError, ValueError, RecursionError):
                    yield path, ast.parse(text)


def read_package_source(path: str) -> PackageSource:
    """Read a wheel, a source archive (tar.gz) or the folder of a checkout."""
    if os.path.isdir(path):
        return make_package_source(_folder_files(path), is_wheel=False)
    return make_package_source(
        _wheel_files(path) if path.endswith(".whl") else _archive_files(path), path.endswith(".whl")
    )


def make_package_source(members: Iterable[tuple[str, str]], is_wheel: bool) -> PackageSource:
    """Make the source of a release of its members; those of an archive stand below ``src`` or beside its metadata."""
    files = dict(members)
    head = next((text for name, text in files.items() if re.fullmatch(_METADATA, name)), "")
    metadata = parse_metadata(head)
    listed = next((text for name, text in files.items() if name.endswith(".egg-info/requires.txt")), "")
    sources = {name.removeprefix("src/"): text for name, text in files.items() if _is_source(name, is_wheel)}
    return PackageSource(
        name=_field(head, "Name"),
        version=_field(head, "Version"),
        requires_dist=tuple(metadata["requires_dist"] or parse_requires_file(listed)),
        requires_python=metadata["requires_python"] or "",
        is_dynamic=not is_wheel and re.search(r"^Dynamic: requires-dist$", head, re.M | re.I) is not None,
        files=sources,
    )


def _field(head: str, name: str) -> str:
    found = re.search(rf"^{name}: (\S+)", head, re.M)
    return found[1] if found else ""


def _is_source(name: str, is_wheel: bool) -> bool:
    return name.endswith(".py") and ".dist-info/" not in name and (is_wheel or re.search(_ASIDE, name) is None)


def is_wanted_member(name: str) -> bool:
    """Whether a member of a wheel tells anything: a source, or the metadata."""
    return name.endswith((".py", ".dist-info/METADATA"))


def _wheel_files(path: str) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if is_wanted_member(info.filename) and info.file_size <= MAX_SOURCE_BYTES:
                yield info.filename, archive.read(info).decode("utf-8", "replace")


def _archive_files(path: str) -> Iterator[tuple[str, str]]:
    with tarfile.open(path) as archive:
        for entry in list_tar_members(archive):
            name = entry.name.removeprefix("./").partition("/")[2]
            if entry.isfile() and entry.size <= MAX_SOURCE_BYTES and _is_readable_member(name):
                stream = archive.extractfile(entry)
                yield name, stream.read().decode("utf-8", "replace") if stream else ""


def _is_readable_member(name: str) -> bool:
    return name.endswith((".py", ".egg-info/requires.txt")) or name == "PKG-INFO"


def _folder_files(folder: str) -> Iterator[tuple[str, str]]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in sorted(names):
            path = os.path.join(where, name)
            relative = os.path.relpath(path, folder)
            if _is_readable_member(relative) and os.path.isfile(path) and os.path.getsize(path) <= MAX_SOURCE_BYTES:
                with open(path, encoding="utf-8", errors="replace") as file:
                    yield relative, file.read()


SOURCES_WITH_GATES = r"__version__|_version\b|\bversion\(|greater_or_equal|less_than"
"""What a source has that may ask for a version."""

_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_NUMBER = r"\d{1,6}(?:\.\d{1,6}){1,4}[.\w]{0,20}"


class VersionGate(Record):
    """A comparison with a version: ``torch < 2.6``."""

    package: str
    specifier: str
    path: str
    line: int


def find_version_gates(modules: Modules) -> list[VersionGate]:
    """Return each gate once, at the first place that has it."""
    found: dict[tuple[str, str], VersionGate] = {}
    for path, tree in modules:
        for node in ast.walk(tree):
            for package, specifier in _gates_of(node):
                gate = VersionGate(package, specifier, path, node.lineno)  # type: ignore[attr-defined]
                found.setdefault((package, specifier), gate)
    return list(found.values())


def _gates_of(node: ast.AST) -> Iterator[tuple[str, str]]:
    """``version.parse(torch.__version__) < version.parse("2.6")``, ``is_torch_version(">=", "2.6")``, ``require_version("x>=1")``."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SIGNS:
        number = next((m for one in ast.walk(node.comparators[0]) if (m := _version_text(one))), "")
        package = _package_of(ast.unparse(node.left)) if number else ""
        if package:
            yield package, f"{_SIGNS[type(node.ops[0])]}{number}"
    elif isinstance(node, ast.Call):
        yield from _gates_of_call(node)


def _version_text(node: ast.AST) -> str:
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return text if re.fullmatch(_NUMBER, text) else ""


def _package_of(words: str) -> str:
    """``version.parse(torch.__version__)``, ``metadata.version('torch')``, ``torch_version`` -> ``torch``."""
    patterns = (
        r"\b([a-z]\w*)\.(?:__version__|version\.cuda)",
        r"version\(['\"]([\w-]+)['\"]\)",
        r"\b_?([a-z]+)_version$",
    )
    names = [match[1] for pattern in patterns if (match := re.search(pattern, words))]
    return names[0].replace("_", "-") if names else ""


def _gates_of_call(node: ast.Call) -> Iterator[tuple[str, str]]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if match := re.fullmatch(r"is_(\w{1,60})_(?:version|greater_or_equal|less_than)(?:_\w{1,60})?", name):
        sign = next((t for t in texts if t in _SIGNS.values()), "<" if "less" in name else ">=")
        yield from ((match[1].replace("_", "-"), sign + t) for t in texts if re.fullmatch(_NUMBER, t))
    elif name in ("require_version", "require_version_core"):
        for text in texts:
            if match := re.fullmatch(rf"([\w-]+)((?:>=|<=|==|<|>|!=){_NUMBER})", text.replace(" ", "")):
                yield match[1], match[2]
