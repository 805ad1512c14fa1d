"""Compare an environment with its RECORD files. File times are never trusted."""

from __future__ import annotations

from gpuready.model import Noun
from gpuready.planned import Fault
from gpuready.system import contents, durable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    Beat = Callable[[], None]

_EMPTY = {"RECORD", "RECORD.jws", "RECORD.p7s"}


class Row(Noun):
    """One RECORD row: the path below the environment, its hash (urlsafe base64) and size."""

    path: str
    package: str
    hash: str = ""
    size: int = -1


class Inventory:
    """The files that the distributions of an environment claim."""

    def __init__(self, root: str):
        self.root = root.rstrip("/")
        self.packages: dict[str, str] = {}  # name -> version
        self.records: dict[str, str] = {}  # name -> hash of its RECORD
        self.rows: dict[str, list[Row]] = {}  # path -> rows that claim it
        self.faults: list[Fault] = []
        for site in sites(self.root):
            for name in contents.names(f"{self.root}/{site}"):
                if name.endswith(".dist-info"):
                    self._distribution(site, name)

    def _distribution(self, site: str, folder: str) -> None:
        name, _, version = folder.removesuffix(".dist-info").partition("-")
        name = _canonical(name)
        at = f"{site}/{folder}"
        text = contents.text(f"{self.root}/{at}/RECORD")
        if name in self.packages:
            says = f"two versions: {self.packages[name]} and {version}"
            self.faults.append(Fault("changed", at, name, says))
        self.packages[name] = version
        if contents.size(f"{self.root}/{at}/METADATA") is None:
            self.faults.append(Fault("missing", f"{at}/METADATA", name, "the distribution has no METADATA"))
        if text is None:
            self.faults.append(Fault("missing", f"{at}/RECORD", name, "nobody can tell what belongs to it"))
            return
        self.records[name] = contents.digest(f"{self.root}/{at}/RECORD")
        for row in _rows(text, site, name):
            self.rows.setdefault(row.path, []).append(row)

    def others(self) -> Iterator[str]:
        """Yield files in site folders and bin that no RECORD names, except compiled Python."""
        for folder in (*sites(self.root), "bin"):
            start = f"{self.root}/{folder}"
            for path in durable.walk(start):
                below = path[len(self.root) + 1 :]
                if below not in self.rows and not _compiled(below):
                    yield below


def sites(root: str) -> list[str]:
    """List the site-packages folders of an environment."""
    found = [name for name in contents.names(f"{root}/lib") if name.startswith("python3")]
    return [f"lib/{name}/site-packages" for name in found]


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _compiled(path: str) -> bool:
    return path.endswith(".pyc") or "/__pycache__/" in path


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _rows(text: str, site: str, package: str) -> Iterator[Row]:
    import csv
    import posixpath

    try:
        for cells in csv.reader(text.splitlines()):
            if not cells or not cells[0]:
                continue
            path = cells[0] if cells[0].startswith("/") else posixpath.normpath(f"{site}/{cells[0]}")
            told = cells[1] if len(cells) > 1 else ""
            size = int(cells[2]) if len(cells) > 2 and _is_size(cells[2]) else -1
            yield Row(path, package, told.removeprefix("sha256=") if told.startswith("sha256=") else "", size)
    except csv.Error:
        return


def describe(root: str, beat: Beat = lambda: None) -> tuple[dict[str, Any], list[Fault]]:
    """Return the manifest data of a new environment, and faults it already has."""
    found = Inventory(root)
    own = {path: _hash(f"{root}/{path}") for path in found.others()}
    known = {"packages": found.packages, "records": found.records, "own": own}
    return known, [*found.faults, *_files(found, True, beat)]


def starters(root: str) -> list[str]:
    """List .pth files that run a package's code whenever this Python starts (import lines)."""
    found = []
    for path, claims in Inventory(root).rows.items():
        if path.endswith(".pth") and path.rpartition("/")[0] in sites(root):
            lines = (contents.text(f"{root}/{path}", 1 << 20) or "").splitlines()
            if any(line.startswith(("import ", "import\t")) for line in lines):
                found.append(f"{path.rpartition('/')[2]} of {claims[0].package}")
    return sorted(found)


def audit(
    root: str, manifest: Mapping[str, Any], deep: bool = True, beat: Beat = lambda: None
) -> list[Fault]:
    """Return every difference from the published state. Not ``deep``: sizes only, no hashes."""
    found = Inventory(root)
    faults = [*found.faults, *_files(found, deep, beat), *_drift(found, manifest)]
    own = manifest.get("own") or {}
    faults += [
        Fault("extra", path, says="no distribution brought it") for path in found.others() if path not in own
    ]
    for path, told in own.items():
        if contents.size(f"{root}/{path}") is None and not path.startswith("bin/python"):
            faults.append(Fault("missing", path, says="made with the environment"))
        elif deep and told and _hash(f"{root}/{path}") != told:
            faults.append(Fault("changed", path, says="its contents are not those that were published"))
    return [*faults, *_interpreter(root, manifest)]


def _hash(path: str) -> str:
    """Hash a file without RECORD; empty for interpreters, which are checked elsewhere, and unreadable files."""
    try:
        return "" if path.rpartition("/")[2].startswith("python") else contents.digest(path)
    except OSError:
        return ""


def _files(found: Inventory, deep: bool, beat: Beat) -> Iterator[Fault]:
    for path, claims in found.rows.items():
        at = path if path.startswith("/") else f"{found.root}/{path}"
        size = contents.size(at)
        if size is None:
            if not _compiled(path):
                yield Fault("missing", path, claims[0].package)
        elif contents.outside(at, found.root):
            yield Fault("outside", path, claims[0].package, "a link to a place that is not the environment's")
        elif path.rpartition("/")[2] not in _EMPTY:
            yield from _one(at, path, claims, size, deep)
        beat()


def _one(at: str, path: str, claims: list[Row], size: int, deep: bool) -> Iterator[Fault]:
    """Check one file against its claims: several distributions may own it if they agree."""
    told = {(row.hash, row.size) for row in claims if row.hash or row.size >= 0}
    sizes = [row for row in claims if row.size in (-1, size)]
    fits = bool(sizes)
    if fits and deep and any(row.hash for row in sizes):
        found = _base64(at)
        fits = any(row.hash in ("", found) for row in sizes)
    if not fits:
        why = f"{claims[0].size} bytes were published, {size} are there" if not sizes else "another content"
        yield Fault("changed", path, claims[0].package, why)
    elif len(told) > 1:
        names = " and ".join(dict.fromkeys(row.package for row in claims))
        yield Fault("overlap", path, claims[0].package, f"{names} both bring it, with different contents")


def _base64(path: str) -> str:
    from base64 import urlsafe_b64encode

    try:
        return urlsafe_b64encode(bytes.fromhex(contents.digest(path))).rstrip(b"=").decode()
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _drift(found: Inventory, manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield distributions added, removed or changed after the environment was published."""
    was, records = manifest.get("packages") or {}, manifest.get("records") or {}
    for name in sorted({*was, *found.packages}):
        before, now = was.get(name), found.packages.get(name)
        if before == now and records.get(name) == found.records.get(name):
            continue
        if before == now:
            says = f"{now} was installed again, or its RECORD edited"
        else:
            says = f"{before or 'not there'} was published, {now or 'nothing'} is there"
        yield Fault("drift", name, name, says)


def _interpreter(root: str, manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """Check that the base Python exists and is the one the environment was made with."""
    python = manifest.get("python") or {}
    at = contents.real(f"{root}/bin/python")
    if contents.size(at) is None:
        yield Fault("interpreter", "bin/python", says=f"{python.get('path') or at} is gone")
    elif python.get("hash") and (at != python.get("path") or contents.digest(at) != python["hash"]):
        yield Fault(
            "interpreter", "bin/python", says=f"{at} is not the Python that the environment was made with"
        )


def interpreter(root: str) -> dict[str, str]:
    """Return the manifest entry of an environment's Python."""
    at = contents.real(f"{root}/bin/python")
    return {"path": at, "hash": contents.digest(at)}


def modules(root: str, package: str) -> list[str]:
    """List the import names of a distribution: the one with its name, else all in its RECORD."""
    wanted = _canonical(package)
    tops = set()
    for path, claims in Inventory(root).rows.items():
        if any(row.package == wanted for row in claims):
            _, slash, rest = path.partition("/site-packages/")
            first, deeper, below = rest.partition("/")
            if slash and deeper and below == "__init__.py":
                tops.add(first)
            elif slash and not deeper and first.endswith(".py"):
                tops.add(first.removesuffix(".py"))
    named = wanted.replace("-", "_")
    found = [named] if named in tops else sorted(tops)
    return [name for name in found if name.isidentifier()]
