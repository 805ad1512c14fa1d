"""Find wheels: which packages of a lock have one for a Python and a platform, and builds of torch in folders. Nothing is built."""

from collections.abc import Iterable, Sequence

from gpuready.apply import resolution_cache, uv
from gpuready.apply.index_release import ask_for_files
from gpuready.apply.resolution_request import (
    ResolutionRequest,
    format_stated_metadata,
    is_default_index,
    python_minor_version,
)
from gpuready.catalog import indexes
from gpuready.catalog.packages import canonical_package_name
from gpuready.model import versions
from gpuready.model.plan import LockedPackage, Plan
from gpuready.system import HostAccess

DEADLINE = 60.0


def find_wheels(
    host: HostAccess, rows: Iterable[LockedPackage], plan: Plan, settings: uv.UvSettings
) -> frozenset[str] | None:
    """Return the names of the rows that have a wheel for the Python and the platform of a plan; None if uv cannot say.

    Rows of torch's own indexes are not asked for: those have wheels only.
    """
    asked = [row for row in rows if _may_lack_wheel(row)]
    if not asked:
        return frozenset()
    exact = tuple(f"{row.name}=={row.version}" for row in asked)
    request = ResolutionRequest(exact, {}, {}, (), python_minor_version(plan.python), plan.platform)
    key = resolution_cache.resolution_cache_key(host, ("wheels", *exact, request.python, request.platform), settings)
    cached = (resolution_cache.load_cached_answer(host, key) or {}).get("wheels")
    if isinstance(cached, list) and all(isinstance(name, str) for name in cached):
        return frozenset(cached)
    found = _ask_for_wheels(host, request, [row.name for row in asked], settings)
    if found is not None:
        resolution_cache.store_answer(host, key, {"wheels": sorted(found)})
    return found


def _may_lack_wheel(row: LockedPackage) -> bool:
    """Whether it is a row of the default index, a folder, or an index of uv's settings, which uv asks by itself."""
    torch_indexes = set(indexes.list_indexes()) - {indexes.DEFAULT_INDEX}
    return bool(row.version) and row.index not in torch_indexes and not row.index.startswith("pip-")


def _ask_for_wheels(
    host: HostAccess, request: ResolutionRequest, names: list[str], settings: uv.UvSettings
) -> frozenset[str] | None:
    """Ask uv for the files of exact versions. What they require is stated as nothing, so that none is built to learn it."""
    flags = ("--no-deps", *request.uv_flags(allow_build=True, annotate=False))
    stated = format_stated_metadata(names, {})
    listed = ask_for_files(host, request, flags, settings, deadline=DEADLINE, config=stated)
    if not isinstance(listed, list):
        return None
    return frozenset(canonical_package_name(row["name"]) for row in listed if row.get("wheels"))


def mark_built(
    host: HostAccess,
    rows: tuple[LockedPackage, ...],
    suspects: Sequence[LockedPackage],
    plan: Plan,
    settings: uv.UvSettings,
) -> tuple[LockedPackage, ...]:
    """Mark the rows of a lock for which no wheel fits: among the suspects, or all of them where uv cannot say."""
    found = find_wheels(host, suspects, plan, settings) or frozenset()
    built = {row.name for row in suspects if _may_lack_wheel(row)} - found
    return tuple(row.replace(built=True) if row.name in built else row for row in rows)


def find_folder_wheels(host: HostAccess, plan: Plan, folders: tuple[str, ...]) -> dict[str, str]:
    """Find builds of torch and its family in folders of wheels: they need no index."""
    folder_by_package: dict[str, str] = {}
    if is_default_index(plan.index):
        return folder_by_package
    build = plan.torch.partition("+")[2]
    tag = "cp" + "".join(map(str, versions.major_minor(plan.python)))
    for folder in folders:
        for file in host.list_directory(folder) or ():
            parts = file.removesuffix(".whl").replace("%2B", "+").split("-")
            if not file.endswith(".whl") or len(parts) < 5:
                continue
            name, version = canonical_package_name(parts[0]), parts[1]
            wanted = plan.torch if name == "torch" else plan.packages.get(name, "")
            fits = version == wanted if wanted and "+" in wanted else version.partition("+")[2] == build
            if name in indexes.torch_index_packages() and fits and parts[-3] in (tag, "py3", "cp3"):
                folder_by_package.setdefault(name, folder)
    return folder_by_package
