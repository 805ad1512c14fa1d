"""Roll back and verify an installed environment."""

from __future__ import annotations

from gpuready.apply.generation import Home
from gpuready.apply.journal import Journal
from gpuready.apply.lease import Held, Lease
from gpuready.planned import Installed
from gpuready.system import contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.system import Door


def rollback(door: Door, home: Home) -> Installed:
    """Publish the previous generation: one rename, no network. ValueError if there is none."""
    _ours(home)
    lease = Lease(home.at(".gpuready"), door.hostname())
    try:
        lease.take(wait=False)
    except Held as held:
        raise ValueError(f"{home.path} cannot be rolled back now: {held}") from None
    try:
        now, before = home.current(), home.previous()
        if before is None:
            raise ValueError(f"{home.path} has no generation before {now.name if now else 'this one'}")
        if contents.size(f"{before.path}/bin/python") is None:
            raise ValueError(
                f"{before.name} has lost its Python ({contents.real(before.path + '/bin/python')})"
            )
        journal = Journal(home.path, door.wall)
        journal.note("rollback", generation=before.name, before=now.name if now else "")
        home.publish(before)
        return Installed("rolled-back", home.path, before.name, now.name if now else "")
    finally:
        lease.leave()


def verify(home: Home) -> Installed:
    """Check that every file of the published generation is unchanged. ValueError if none is published."""
    from gpuready.apply import audit

    _ours(home)
    now = home.current()
    if now is None:
        raise ValueError(f"{home.path} has no complete environment: install one")
    manifest = now.manifest()
    faults = tuple(audit.audit(now.path, manifest))
    before = home.previous()
    verdict = "damaged" if faults else "intact"
    known = manifest.get("packages") or {}
    need = {"packages": len(known)}
    return Installed(
        verdict,
        home.path,
        now.name,
        before.name if before else "",
        faults=faults,
        need=need,
        exit=1 if faults else 0,
    )


def _ours(home: Home) -> None:
    if not home.ours():
        raise ValueError(f"{home.path} is no environment that gpuready made: name one with -e DIR")
