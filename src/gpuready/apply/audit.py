"""Compare a whole environment with its RECORD files and its manifest, by the functions of the survey. No time that a program can set is trusted."""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuready.catalog.packages import canonical_package_name
from gpuready.model import Record
from gpuready.model.plan import InstallFault
from gpuready.system import durable_files, file_contents
from gpuready.system.imports.distributions import Difference, Distribution, compare_hashes, compare_rows

HARMLESS_FAULTS = ("overlap",)
"""Faults that come from the wheels: they are reported, and an environment with them is as it was published."""

BASE_PYTHON_KEY = "executable"
"""The key of pyvenv.cfg, as venv writes it, that names the Python of which bin/python is a copy."""

_UNUSUAL_PATH = re.compile(r"//|/$|(?:^|/)\.\.?(?:/|$)")
"""A path that is not in its shortest form; to normalise every path takes longer than to hash a small file."""


class RecordFileRow(Record):
    """One RECORD row: the path below the environment, its hash (urlsafe base64) and size."""

    path: str
    package: str
    hash: str = ""
    size: int = -1


class DistributionInventory:
    """The files that the distributions of an environment claim."""

    def __init__(self, root: str):
        self.root = root.rstrip("/")
        self.packages: dict[str, str] = {}  # name -> version
        self.records: dict[str, str] = {}  # name -> hash of its RECORD
        self.rows: dict[str, list[RecordFileRow]] = {}  # path -> rows that claim it
        self.faults: list[InstallFault] = []
        for site in list_site_folders(self.root):
            for name in file_contents.list_names_or_empty(f"{self.root}/{site}"):
                if name.endswith(".dist-info"):
                    self._add_distribution(site, name)

    def _add_distribution(self, site: str, folder: str) -> None:
        name, _, version = folder.removesuffix(".dist-info").partition("-")
        name = canonical_package_name(name)
        at = f"{site}/{folder}"
        text = file_contents.read_text_file(f"{self.root}/{at}/RECORD")
        if name in self.packages:
            message = f"two versions: {self.packages[name]} and {version}"
            self.faults.append(InstallFault("changed", at, name, message))
        self.packages[name] = version
        if file_contents.file_size(f"{self.root}/{at}/METADATA") is None:
            self.faults.append(InstallFault("missing", f"{at}/METADATA", name, "the distribution has no METADATA"))
        if text is None:
            self.faults.append(InstallFault("missing", f"{at}/RECORD", name, "nobody can tell what belongs to it"))
            return
        self.records[name] = file_contents.hash_file_contents(f"{self.root}/{at}/RECORD")
        for row in parse_record_rows(text, site, name):
            self.rows.setdefault(row.path, []).append(row)

    def unclaimed_files(self) -> Iterator[str]:
        """Yield the settings of the environment, and files in site folders and bin that no RECORD names, except compiled Python."""
        yield "pyvenv.cfg"
        lib, other = (file_contents.resolve_real_path(f"{self.root}/{name}") for name in ("lib", "lib64"))
        for folder in (*list_site_folders(self.root), "bin", *(("lib64",) if other != lib else ())):
            start = f"{self.root}/{folder}"
            for path in durable_files.walk_files(start):
                below = path[len(self.root) + 1 :]
                if below not in self.rows and not _is_compiled_python(below):
                    yield below


def list_site_folders(root: str) -> list[str]:
    """List the site-packages folders of an environment."""
    python_folders = [name for name in file_contents.list_names_or_empty(f"{root}/lib") if name.startswith("python3")]
    return [f"lib/{name}/site-packages" for name in python_folders]


def list_distributions(root: str) -> Iterator[Distribution]:
    """Yield what is installed in an environment and has metadata."""
    for site in (f"{root}/{folder}" for folder in list_site_folders(root)):
        for entry in file_contents.list_names_or_empty(site):
            name, _, version = entry.removesuffix(".dist-info").partition("-")
            has_name = entry.endswith(".dist-info") and canonical_package_name(name).replace("-", "").isalnum()
            if has_name and file_contents.file_size(f"{site}/{entry}/METADATA") is not None:
                yield Distribution(canonical_package_name(name), version, site, f"{site}/{entry}")


def _is_compiled_python(path: str) -> bool:
    """Whether Python wrote it beside a source; byte-code in the place of a source is a module like any other."""
    return "/__pycache__/" in path


def parse_record_rows(text: str, site: str, package: str) -> Iterator[RecordFileRow]:
    """Parse a RECORD; its paths are relative to ``site``."""
    try:
        for cells in csv.reader(text.splitlines()):
            if not cells or not cells[0]:
                continue
            path = cells[0]
            if not path.startswith("/"):
                path = f"{site}/{path}" if site else path
                path = posixpath.normpath(path) if _UNUSUAL_PATH.search(path) else path
            recorded = cells[1] if len(cells) > 1 else ""
            size = int(cells[2]) if len(cells) > 2 and re.fullmatch(r"[0-9]{1,19}", cells[2]) else -1
            yield RecordFileRow(
                path, package, recorded.removeprefix("sha256=") if recorded.startswith("sha256=") else "", size
            )
    except csv.Error:
        return


def describe_generation(
    root: str, inventory: DistributionInventory | None = None
) -> tuple[dict[str, Any], list[InstallFault]]:
    """Return the manifest data of a new environment, and faults it already has. ``inventory``: that of it, if it was read."""
    inventory = inventory or DistributionInventory(root)
    own = {path: _hash_own_file(f"{root}/{path}") for path in inventory.unclaimed_files()}
    known = {"packages": inventory.packages, "records": inventory.records, "own": own}
    return known, [*inventory.faults, *_check_files(inventory)]


def list_startup_code(root: str, inventory: DistributionInventory | None = None) -> list[str]:
    """List files that run a package's code whenever this Python starts: .pth files with imports, sitecustomize."""
    rows = (inventory or DistributionInventory(root)).rows
    startup_files, folders = [], list_site_folders(root)
    for path, claims in rows.items():
        if path.endswith(".pth") and path.rpartition("/")[0] in list_site_folders(root):
            lines = (file_contents.read_text_file(f"{root}/{path}", 1 << 20) or "").splitlines()
            folders += [posixpath.normpath(f"{path.rpartition('/')[0]}/{line.strip()}") for line in lines]
            if any(line.startswith(("import ", "import\t")) for line in lines):
                startup_files.append(f"{path.rpartition('/')[2]} of {claims[0].package}")
    for path, claims in rows.items():
        if any(_is_startup_module(path, folder) for folder in folders):
            startup_files.append(f"{path.rpartition('/')[2]} of {claims[0].package}")
    return sorted(startup_files)


def _is_startup_module(path: str, folder: str) -> bool:
    """Whether it is the module sitecustomize or usercustomize of a folder, as a file or as a package."""
    below = path.removeprefix(f"{folder}/")
    top, _, rest = below.partition("/")
    is_named = top.partition(".")[0] in ("sitecustomize", "usercustomize")
    return below != path and is_named and (not rest or rest.startswith("__init__."))


def hash_faulty_files(root: str, faults: Iterable[InstallFault]) -> dict[str, str]:
    """Return the files inside of the environment that differ from their RECORD, by their hash; empty for one that is missing."""
    differing = [fault for fault in faults if fault.kind in ("changed", "missing") and fault.path != fault.package]
    paths = [fault.path for fault in differing if not _leads_out(fault.path)]
    sizes = {path: file_contents.file_size(f"{root}/{path}") for path in paths}
    return {path: "" if size is None else _record_hash(f"{root}/{path}") for path, size in sizes.items()}


def remove_packages(root: str, packages: Iterable[str]) -> None:
    """Remove the files that packages claim inside of an environment, and what describes them, so that they are installed anew."""
    gone = set(packages)
    for path, claims in DistributionInventory(root).rows.items():
        is_inside = not _leads_out(path) and not file_contents.leads_outside(f"{root}/{posixpath.dirname(path)}", root)
        if is_inside and any(row.package in gone for row in claims):
            durable_files.unlink_quietly(f"{root}/{path}")
    for site in list_site_folders(root):
        for name in file_contents.list_names_or_empty(f"{root}/{site}"):
            if name.endswith(".dist-info") and canonical_package_name(name.partition("-")[0]) in gone:
                durable_files.remove_tree(f"{root}/{site}/{name}")


def _leads_out(path: str) -> bool:
    """Whether a path of a RECORD lies outside of the environment."""
    depth = 0
    for part in path.split("/"):
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return path.startswith("/") or "//" in path  # an absolute path below a folder


def audit_environment(root: str, manifest: Mapping[str, Any], since: float = 0.0) -> list[InstallFault]:
    """Return every difference from the published state. ``since``: what has not changed after this time is not hashed."""
    inventory = DistributionInventory(root)
    published = manifest.get("misrecorded") or {}
    differing = list(_check_files(inventory, since))
    now = hash_faulty_files(root, [fault for fault in differing if fault.path in published])
    faults = [*inventory.faults, *(f for f in differing if f.path not in now or now[f.path] != published[f.path])]
    faults += _find_drift(inventory, manifest)
    own = manifest.get("own") or {}
    faults += [
        InstallFault("extra", path, says="no distribution brought it")
        for path in inventory.unclaimed_files()
        if path not in own
    ]
    for path, recorded_hash in own.items():
        if file_contents.file_size(f"{root}/{path}") is None and not path.startswith("bin/python"):
            faults.append(InstallFault("missing", path, says="made with the environment"))
        elif recorded_hash and _hash_own_file(f"{root}/{path}") != recorded_hash:
            faults.append(InstallFault("changed", path, says="its contents are not those that were published"))
    return [*faults, *_check_interpreter(root, manifest)]


def _hash_own_file(path: str) -> str:
    """Hash a file without RECORD; empty for interpreters, which are checked elsewhere, and unreadable files."""
    try:
        return "" if "/bin/python" in path else file_contents.hash_file_contents(path)
    except OSError:
        return ""


def _check_files(inventory: DistributionInventory, since: float = 0.0) -> Iterator[InstallFault]:
    """Compare every recorded file; of several distributions that bring one, one has to record what is there."""
    root = inventory.root
    claimed = {path: claims for path, claims in inventory.rows.items() if not _is_compiled_python(path)}
    outside = {path for path in claimed if file_contents.leads_outside(_place(root, path), root)}
    single = [claims[0] for path, claims in claimed.items() if len(claims) == 1 and path not in outside]
    differing = _compare_claims(root, single, since)
    for path, claims in claimed.items():
        each = [_compare_claims(root, [claim], since) for claim in claims] if len(claims) > 1 else []
        if path in outside:
            yield InstallFault("outside", path, claims[0].package, "a link to a place that is not the environment's")
        elif path in differing or (each and all(each)):
            kind, _, detail = differing[path] if path in differing else each[0][path]
            yield InstallFault("missing" if kind == "missing" else "changed", path, claims[0].package, detail)
        elif len({(row.hash, row.size) for row in claims if row.hash or row.size >= 0}) > 1:
            names = " and ".join(dict.fromkeys(row.package for row in claims))
            yield InstallFault("overlap", path, claims[0].package, f"{names} both bring it, with different contents")


def _place(root: str, path: str) -> str:
    return path if path.startswith("/") else f"{root}/{path}"


def _compare_claims(root: str, claims: Iterable[RecordFileRow], since: float) -> dict[str, Difference]:
    """Return what differs, by path: the size, else the contents of what has changed since."""
    places = {_place(root, claim.path): claim for claim in claims}
    rows = [
        (at[1:], f"sha256={row.hash}" if row.hash else "", row.size if row.size >= 0 else None)
        for at, row in places.items()
    ]
    found = list(compare_rows("", rows, is_strict=True))
    found += compare_hashes("", [row for row in rows if file_contents.has_changed_since(f"/{row[0]}", since)])
    return {places[difference[1]].path: difference for difference in reversed(found)}


def _record_hash(path: str) -> str:
    try:
        return file_contents.hash_as_recorded(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _find_drift(inventory: DistributionInventory, manifest: Mapping[str, Any]) -> Iterator[InstallFault]:
    """Yield distributions added, removed or changed after the environment was published."""
    published, records = manifest.get("packages") or {}, manifest.get("records") or {}
    for name in sorted({*published, *inventory.packages}):
        before, now = published.get(name), inventory.packages.get(name)
        if before == now and records.get(name) == inventory.records.get(name):
            continue
        if before == now:
            message = f"{now} was installed again, or its RECORD edited"
        else:
            message = f"{before or 'not there'} was published, {now or 'nothing'} is there"
        yield InstallFault("drift", name, name, message)


def _check_interpreter(root: str, manifest: Mapping[str, Any]) -> Iterator[InstallFault]:
    """Check that the base Python exists and is the one the environment was made with."""
    python = manifest.get("python") or {}
    own = file_contents.resolve_real_path(f"{root}/bin/python")
    base = find_base_python(root, manifest)
    if file_contents.file_size(base) is None or file_contents.file_size(own) is None:
        yield InstallFault("interpreter", "bin/python", says=f"{base} is gone")
    elif python.get("hash") and (
        own not in (base, f"{file_contents.resolve_real_path(root)}/bin/python")
        or file_contents.hash_file_contents(own) != python["hash"]
    ):
        yield InstallFault(
            "interpreter", "bin/python", says=f"{own} is not the Python that the environment was made with"
        )
    for name in (path for path in manifest.get("own") or {} if path.startswith("bin/python") and python.get("path")):
        if (other := file_contents.resolve_real_path(f"{root}/{name}")) != own:
            yield InstallFault("interpreter", name, says=f"it leads to {other}, and bin/python to {own}")


def find_base_python(root: str, manifest: Mapping[str, Any]) -> str:
    """Return the Python outside of the environment that its own is a link to, or a copy of."""
    python = manifest.get("python") or {}
    return str(python.get("path") or file_contents.resolve_real_path(f"{root}/bin/python"))


def describe_interpreter(root: str) -> dict[str, str]:
    """Return the manifest entry of an environment's Python."""
    lines = (file_contents.read_text_file(f"{root}/pyvenv.cfg") or "").splitlines()
    named = dict(line.split(" = ", 1) for line in lines if " = " in line)
    path = named.get(BASE_PYTHON_KEY) or file_contents.resolve_real_path(f"{root}/bin/python")
    return {"path": path, "hash": file_contents.hash_file_contents(f"{root}/bin/python")}


def list_import_names(root: str, packages: Iterable[str]) -> list[str]:
    """List the import names of distributions, in their order: the one with its name, else all in its RECORD."""
    tops = {copy.name: copy.list_top_modules() for copy in list_distributions(root) if copy.name in packages}
    owns = {name: [top for top in tops.get(name, []) if top == name.replace("-", "_")] for name in packages}
    return [top for name, own in owns.items() for top in own or tops.get(name, [])]
