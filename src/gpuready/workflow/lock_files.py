"""Read lock files as plans: gpuready's own JSON, or requirements that all have an exact version and a hash."""

from gpuready import contracts, system
from gpuready.apply.install_steps import FOREIGN_LOCK
from gpuready.catalog.packages import canonical_package_name
from gpuready.model import versions
from gpuready.model.plan import LockedPackage, Plan
from gpuready.plan.lock import read_lock
from gpuready.workflow.refusal import Refused, call_or_refuse, read_named_file


def read_lock_file(path: str, framework: str = "") -> Plan:
    """Read the plan in a lock: a gpuready plan as JSON, or requirements that all have a hash."""
    text = read_named_file(path)
    if text.lstrip().startswith("{"):
        return call_or_refuse(read_lock, text, path)
    rows = _parse_requirements_lock(path, text)
    by_name = {row.name: row.version for row in rows}
    spec = call_or_refuse(contracts.parse_contract_spec, framework)[0] if framework else ""
    name = contracts.distribution_name(spec) if spec else ""
    if name and name not in by_name:
        raise Refused(f"{path} does not hold {name}: is it the lock of another framework?")
    torch = by_name.get("torch", "")
    build = torch.partition("+")[2]
    cuda = "" if build in ("cpu", "") and not any(n.startswith("nvidia-") for n in by_name) else build or "cuda"
    return Plan(
        name, by_name.get(name, ""), "plan", torch=torch, cuda=cuda, packages=by_name, lock=rows, resolved=FOREIGN_LOCK
    )


def _parse_requirements_lock(path: str, text: str) -> tuple[LockedPackage, ...]:
    """Parse a requirements file; Refused for anything but exact versions with hashes."""
    rows = []
    for line in text.replace("\\\n", " ").splitlines():
        line = line.partition(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("-"):
            raise Refused(f"{path}: {line.split()[0]} is not taken from a lock: give it on the command line")
        rows.append(_parse_locked_requirement(path, line))
    if not rows:
        raise Refused(f"{path} is an empty lock")
    return tuple(rows)


def _parse_locked_requirement(path: str, line: str) -> LockedPackage:
    words = line.split()
    hashes = tuple(word.removeprefix("--hash=") for word in words if word.startswith("--hash="))
    what = " ".join(word for word in words if not word.startswith("--hash=")).partition(";")[0].strip()
    name, at, origin = what.partition(" @ ")
    exactly, version = "", ""
    if not at:
        name, exactly, version = what.partition("==")
    name = canonical_package_name(name.partition("[")[0].strip())
    pinned = bool(at) or (bool(exactly) and versions.is_version(version.strip()))
    if not name.replace("-", "").isalnum() or not pinned or not hashes or not all(map(_is_sha256_hash, hashes)):
        raise Refused(f"{path}: {what[:80]!r} needs a name, an exact version (==) and a --hash=sha256:...")
    if at:
        return LockedPackage(name, _version_from_url(origin), hashes, origin=origin.strip())
    return LockedPackage(name, version.strip(), hashes)


def _is_sha256_hash(text: str) -> bool:
    kind, _, digits = text.partition(":")
    return kind == "sha256" and len(digits) == 64 and digits.isalnum()


def _version_from_url(origin: str) -> str:
    parts = origin.rpartition("/")[2].split("-")
    return parts[1].replace("%2B", "+") if len(parts) > 1 else ""


def explain_foreign_file(host: system.HostAccess, flag: str, path: str | None) -> str:
    """Say why root refuses a file: another user may change it, and so what root installs. Empty where it is safe."""
    if path is None or host.get_user().get("uid") != 0:
        return ""
    status = call_or_refuse(host.stat_path, path)
    if status is None or status["kind"] != "file":
        return ""  # reading it reports the error
    if status["uid"]:
        reason = f"belongs to uid {status['uid']}, who"
    elif status["mode"] & 0o002:
        reason = "may be written by everybody, and so anybody"
    else:
        return ""
    return (
        f"{flag} {path} {reason} could change what root installs: install as that file's owner, "
        "or look at it and give a copy of your own (cp)"
    )
