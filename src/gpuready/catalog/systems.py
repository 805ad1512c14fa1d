"""Operating systems by name: their kind, and the glibc and Python of their releases."""

from typing import Any

from gpuready.catalog import load_catalog
from gpuready.model import versions


def find_system(name: str) -> dict[str, Any] | None:
    return next((row for row in load_catalog("systems")["system"] if row["name"] == name), None)


def list_systems() -> list[str]:
    return [row["name"] for row in load_catalog("systems")["system"]]


def find_system_of_image(name: str) -> str:
    """Return the system whose container image has this name; empty if there is none."""
    return next((row["name"] for row in load_catalog("systems")["system"] if name in row.get("images", ())), "")


def find_codename(word: str) -> tuple[str, str]:
    """Return the system and the release with this code name, such as bookworm; empty if unknown."""
    rows = load_catalog("systems")["system"]
    return next(((row["name"], row["codenames"][word]) for row in rows if word in row.get("codenames", ())), ("", ""))


def system_glibc(name: str, version: str) -> str | None:
    """Return the glibc of a release, by its full or major version; None if unknown."""
    known: dict[str, str] = (find_system(name) or {}).get("glibc", {})
    return known.get(version) or known.get(version.partition(".")[0])


def system_python(name: str, version: str) -> str | None:
    """Return the version of ``python3`` in a release; None if unknown."""
    known: dict[str, str] = (find_system(name) or {}).get("python", {})
    return known.get(version) or known.get(version.partition(".")[0])


def has_musl(name: str) -> bool:
    """Return whether the C library of a system is musl, for which torch has no wheels."""
    return bool((find_system(name) or {}).get("musl"))


def system_manager(name: str) -> str:
    """Return the package manager of a system; empty if unknown."""
    return str((find_system(name) or {}).get("manager", ""))


def manages_python(name: str, version: str) -> bool | None:
    """Return whether pip refuses to install into the system's own python3 (PEP 668); None if unknown."""
    since = (find_system(name) or {}).get("managed")
    if since is None:
        return False if find_system(name) else None
    return versions.compare_versions(version, since) >= 0 if versions.parse_plain_release(version) else None


def driver_command(name: str, version: str, branch: str, open_modules: bool = False) -> tuple[tuple[str, ...], str]:
    """Return the command that installs an NVIDIA driver branch, and whose packages these are; empty if unknown."""
    releases = (version, version.partition(".")[0])
    rows: list[dict[str, Any]] = (find_system(name) or {}).get("driver", [])
    row = next((row for row in rows if any(release in row.get("releases", releases) for release in releases)), {})
    words = (open_modules and row.get("open")) or row.get("run", ())
    return tuple(word.replace("{branch}", branch) for word in words), str(row.get("packages", ""))
