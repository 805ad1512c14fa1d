"""Compare an environment with its lock: what has to be there, what no wheel may bring, and the content of the wheels.

A cache can bring other files under a good hash, with a RECORD that agrees with them. Only the wheel itself, which the
lock has the hash of, tells.
"""

from collections.abc import Iterable, Iterator, Sequence

from gpuready.apply.audit import DistributionInventory, list_site_folders, parse_record_rows
from gpuready.catalog.packages import canonical_package_name
from gpuready.model.plan import InstallFault, LockedPackage
from gpuready.system import AccessError, file_contents
from gpuready.system.archive_members import read_wheel_record
from gpuready.system.download import sha256_of_file
from gpuready.system.dynamic_loader import is_library_for

_ACTIVATE_SCRIPTS = (
    "activate", "activate.bat", "activate.csh", "activate.fish", "activate.nu", "activate.ps1", "activate_this.py",
    "deactivate.bat",
)  # fmt: skip
_ROOT_FILES = ("pyvenv.cfg", "gpuready.json", "requirements.lock", "in-use.lock", "order")
_SITE_FILES = ("_gpuready_generation.py", "_0_gpuready.pth", "~gpuready.pth", "_virtualenv.py", "_virtualenv.pth")
_INSTALLER_FILES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")


def find_overreach(root: str, inventory: DistributionInventory | None = None) -> list[InstallFault]:
    """Return the files of wheels that replace a file of the environment itself: its Python, its settings, or ours."""
    inventory = inventory or DistributionInventory(root)
    faults, real_root = [], file_contents.resolve_real_path(root)
    real_folders = file_contents.resolve_folders(root, {path.rpartition("/")[0] for path in inventory.rows})
    for path, claims in inventory.rows.items():
        folder, _, name = path.rpartition("/")
        below = f"{real_folders[folder]}/{name}".removeprefix(f"{real_root}/")
        if _is_environment_file(below):
            says = f"{claims[0].package} brings it, and it belongs to the environment itself"
            faults.append(InstallFault("overreach", below, claims[0].package, says))
    return faults


def list_other_architecture(root: str, machine: str) -> list[str]:
    """Return the packages whose wheel is for no machine of this architecture, by its tags: ``Tag: cp312-cp312-linux_x86_64``.

    Some name it otherwise (``manylinux2014_sbsa`` for aarch64): what their compiled files are for counts more.
    """
    found = []
    for site in list_site_folders(root):
        for name in file_contents.list_names_or_empty(f"{root}/{site}"):
            text = file_contents.read_text_file(f"{root}/{site}/{name}/WHEEL") if name.endswith(".dist-info") else None
            tags = [line.rpartition("-")[2] for line in (text or "").splitlines() if line.startswith("Tag: ")]
            fits = not tags or any(tag == "any" or tag.endswith(machine) for tag in tags)
            if not fits and not _is_compiled_for(f"{root}/{site}", name, machine):
                found.append(name.partition("-")[0].replace("_", "-"))
    return sorted(found)


def _is_compiled_for(site: str, folder: str, machine: str) -> bool:
    """Whether a distribution has compiled files, and all of them are for this architecture."""
    record = file_contents.read_text_file(f"{site}/{folder}/RECORD") or ""
    starts = [file_contents.read_file_start(f"{site}/{row.path}", 20) for row in parse_record_rows(record, "", "")]
    compiled = [start for start in starts if start.startswith(b"\x7fELF")]
    return bool(compiled) and all(is_library_for(start, machine) for start in compiled)


def _is_environment_file(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    if folder == "bin":
        version = name.removeprefix("python").rstrip("t").replace(".", "")
        is_python = name.startswith("python") and (not version or version.isdigit())
        return is_python or name.lower() in _ACTIVATE_SCRIPTS
    return path in _ROOT_FILES or (folder.endswith("/site-packages") and name in _SITE_FILES)


def find_absent_packages(inventory: DistributionInventory, rows: Iterable[LockedPackage]) -> list[InstallFault]:
    """Return the packages of a lock that the environment does not have."""
    absent = [row for row in rows if canonical_package_name(row.name) not in inventory.packages]
    return [
        InstallFault("missing", row.name, row.name, f"{row.version} is in the lock and was not installed")
        for row in absent
    ]


def compare_with_wheels(
    root: str, rows: Iterable[LockedPackage], folders: Sequence[str], inventory: DistributionInventory | None = None
) -> tuple[list[InstallFault], int]:
    """Compare installed packages with the wheels of the lock, as far as folders have them; return faults and how many."""
    wheels = {row.name: wheel for row in rows if (wheel := _find_wheel(row, folders))}
    installed: dict[str, dict[str, str]] = {name: {} for name in wheels}
    for path, claims in (inventory or DistributionInventory(root)).rows.items() if wheels else ():
        for claim in claims:
            if claim.package in installed:
                installed[claim.package][path] = claim.hash
    faults, compared = list[InstallFault](), 0
    for name, wheel in wheels.items():
        if installed[name]:
            compared += 1
            faults += _compare_package(root, name, wheel, installed[name])
    return faults, compared


def _find_wheel(row: LockedPackage, folders: Sequence[str]) -> str:
    """Return the wheel of a row, by its hash; empty where no folder has it."""
    places = [f"{folder}/{name}" for folder in folders for name in file_contents.list_names_or_empty(folder)]
    if row.origin and "://" not in row.origin.removeprefix("file://"):
        places.insert(0, row.origin.removeprefix("file://"))
    for path in places:
        name = canonical_package_name(path.rpartition("/")[2].partition("-")[0])
        if path.endswith(".whl") and name == row.name and sha256_of_file(path) in row.hashes:
            return path
    return ""


def _compare_package(root: str, package: str, wheel: str, installed: dict[str, str]) -> Iterator[InstallFault]:
    site = next(iter(list_site_folders(root)), "")
    try:
        expected = dict(_wheel_files(wheel, site))
    except AccessError as error:
        yield InstallFault("changed", wheel, package, f"not compared with the wheel of the lock: {error}")
        return
    for path, digest in expected.items():
        if digest and installed.get(path, digest) != digest:
            yield InstallFault("changed", path, package, "another content than in the wheel of the lock")
        elif path not in installed:
            yield InstallFault("missing", path, package, "it is in the wheel of the lock")
    for path in installed:
        if path not in expected and not _is_made_by_installer(path, site):
            yield InstallFault("extra", path, package, "it is not in the wheel of the lock")


def _is_made_by_installer(path: str, site: str) -> bool:
    """Whether an installer writes such a file itself: starters of entry points, its notes, compiled Python."""
    folder, _, name = path.rpartition("/")
    notes = folder.endswith(".dist-info") and name in _INSTALLER_FILES
    return folder == "bin" or notes or (path.startswith(f"{site}/") and "/__pycache__/" in path)


def _wheel_files(wheel: str, site: str) -> Iterator[tuple[str, str]]:
    """Yield where each file of a wheel is installed, and its hash; none for scripts, whose first line is rewritten."""
    for row in parse_record_rows(read_wheel_record(wheel), "", ""):
        top, _, rest = row.path.partition("/")
        kind, _, below = rest.partition("/")
        if not top.endswith(".data"):
            made = top.endswith(".dist-info") and rest in _INSTALLER_FILES
            yield f"{site}/{row.path}", "" if made else row.hash
        elif kind in ("purelib", "platlib"):
            yield f"{site}/{below}", row.hash
        elif kind == "data":
            yield below, row.hash
        elif kind == "scripts":
            yield f"bin/{below}", ""
