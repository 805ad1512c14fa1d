"""Read lock files as plans: gpuready's own JSON, or requirements that all have an exact version and a hash."""

from __future__ import annotations

from gpuready import contracts, versions
from gpuready.apply.build import FOREIGN
from gpuready.planned import Locked, Plan
from gpuready.workflow.refusal import Refused, refusing, text_of


def locked(path: str, framework: str = "") -> Plan:
    """Read the plan in a lock: a gpuready plan as JSON, or requirements that all have a hash."""
    text = text_of(path)
    if text.lstrip().startswith("{"):
        return _from_json(path, text)
    rows = _requirements(path, text)
    by_name = {row.name: row.version for row in rows}
    name = contracts.distribution(contracts.parse(framework)[0]) if framework else ""
    if name and name not in by_name:
        raise Refused(f"{path} does not hold {name}: is it the lock of another framework?")
    torch = by_name.get("torch", "")
    build = torch.partition("+")[2]
    cuda = (
        "" if build in ("cpu", "") and not any(n.startswith("nvidia-") for n in by_name) else build or "cuda"
    )
    return Plan(
        name,
        by_name.get(name, ""),
        "plan",
        torch=torch,
        cuda=cuda,
        packages=by_name,
        lock=rows,
        resolved=FOREIGN,
    )


def _from_json(path: str, text: str) -> Plan:
    from gpuready.plan.lock import read_lock

    return refusing(read_lock, text, path)


def _requirements(path: str, text: str) -> tuple[Locked, ...]:
    """Parse a requirements file; Refused for anything but exact versions with hashes."""
    rows = []
    for line in text.replace("\\\n", " ").splitlines():
        line = line.partition(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("-"):
            raise Refused(f"{path}: {line.split()[0]} is not taken from a lock: give it on the command line")
        rows.append(_requirement(path, line))
    if not rows:
        raise Refused(f"{path} is an empty lock")
    return tuple(rows)


def _requirement(path: str, line: str) -> Locked:
    from gpuready.catalog.packages import canonical

    words = line.split()
    hashes = tuple(word.removeprefix("--hash=") for word in words if word.startswith("--hash="))
    what = " ".join(word for word in words if not word.startswith("--hash=")).partition(";")[0].strip()
    name, at, origin = what.partition(" @ ")
    exactly, version = "", ""
    if not at:
        name, exactly, version = what.partition("==")
    name = canonical(name.partition("[")[0].strip())
    pinned = bool(at) or (bool(exactly) and versions.is_version(version.strip()))
    if not name.replace("-", "").isalnum() or not pinned or not hashes or not all(map(_is_hash, hashes)):
        raise Refused(f"{path}: {what[:80]!r} needs a name, an exact version (==) and a --hash=sha256:...")
    if at:
        return Locked(name, _version_in(origin), hashes, origin=origin.strip())
    return Locked(name, version.strip(), hashes)


def _is_hash(text: str) -> bool:
    kind, _, digits = text.partition(":")
    return kind == "sha256" and len(digits) == 64 and digits.isalnum()


def _version_in(origin: str) -> str:
    parts = origin.rpartition("/")[2].split("-")
    return parts[1].replace("%2B", "+") if len(parts) > 1 else ""
