"""Roll back and verify an installed environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.apply import audit, wheel_contents
from gpuready.apply.generation import EnvironmentHome, InstallJournal
from gpuready.apply.lease import Lease, LeaseBusyError
from gpuready.model.plan import InstallResult, LockedPackage
from gpuready.model.validation import parse_record
from gpuready.system import HostAccess, file_contents


def rollback_environment(host: HostAccess, home: EnvironmentHome) -> InstallResult:
    """Publish the previous generation: one rename, no network. ValueError if there is none."""
    _require_managed(home)
    lease = Lease(home.join_path(".gpuready"), host.get_hostname())
    try:
        lease.acquire_lease(wait=False)
    except LeaseBusyError as error:
        raise ValueError(f"{home.path} cannot be rolled back now: {error}") from None
    try:
        published, before = home.current_generation(), home.previous_generation()
        if before is None:
            raise ValueError(f"{home.path} has no generation before {published.name if published else 'this one'}")
        if file_contents.file_size(f"{before.path}/bin/python") is None:
            raise ValueError(
                f"{before.name} has lost its Python ({file_contents.resolve_real_path(before.path + '/bin/python')})"
            )
        journal = InstallJournal(home.path, host.get_wall_time)
        journal.record_step("rollback", generation=before.name, before=published.name if published else "")
        home.publish_generation(before)
        return InstallResult("rolled-back", home.path, before.name, published.name if published else "")
    finally:
        lease.release_lease()


def verify_environment(home: EnvironmentHome, folders: Sequence[str] = ()) -> InstallResult:
    """Check that every file of the published generation is unchanged. ValueError if none is published.

    ``folders`` of wheels: packages whose wheel of the lock is there are compared with it, the others with their RECORD.
    """
    _require_managed(home)
    published = home.current_generation()
    if published is None:
        raise ValueError(f"{home.path} has no complete environment: install one")
    manifest = published.read_manifest()
    rows = _locked_rows(manifest)
    of_wheels, compared = wheel_contents.compare_with_wheels(published.path, rows, folders)
    all_faults = [*audit.audit_environment(published.path, manifest), *of_wheels]
    all_faults += wheel_contents.find_overreach(published.path)
    found = {(fault.kind, fault.path): fault for fault in all_faults}
    faults = tuple(fault for fault in found.values() if fault.kind not in audit.HARMLESS_FAULTS)
    harmless = [f"{fault.path}: {fault.says}" for fault in found.values() if fault not in faults]
    before = home.previous_generation()
    verdict = "damaged" if faults else "intact"
    known = manifest.get("packages") or {}
    need = {"packages": len(known), "compared": compared}
    return InstallResult(
        verdict,
        home.path,
        published.name,
        before.name if before else "",
        faults=faults,
        notes=(*_describe_comparison(compared, len(rows)), *harmless[:5]),
        need=need,
        exit=1 if faults else 0,
    )


def _locked_rows(manifest: Mapping[str, Any]) -> list[LockedPackage]:
    """Return the lock of a published generation; rows that cannot be read are left out."""
    plan = manifest.get("plan")
    rows = plan.get("lock") if isinstance(plan, dict) else ()
    try:
        return [parse_record(LockedPackage, row) for row in rows or ()]
    except (ValueError, TypeError):
        return []


def _describe_comparison(compared: int, packages: int) -> tuple[str, ...]:
    if compared >= packages:
        return ()
    return (
        f"{compared} of {packages} packages were compared with the wheels of the lock, the others with their RECORD: "
        "--find-links DIR names a folder of wheels (gpuready plan FRAMEWORK --bundle DIR makes one)",
    )


def _require_managed(home: EnvironmentHome) -> None:
    if not home.is_managed():
        raise ValueError(f"{home.path} is not an environment made by gpuready: name one with -e DIR")
