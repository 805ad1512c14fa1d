"""The offline bundle: every wheel of a lock in one folder, for a machine without network."""

from __future__ import annotations

from gpuready.apply import uv
from gpuready.apply.question import FOLDER, Question, versions_python
from gpuready.catalog import indexes
from gpuready.planned import Locked
from gpuready.system import Blind, save
from gpuready.system.fetch import fetch, folder, hash_of, publish, unquoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from gpuready.planned import Plan
    from gpuready.system import Door

LOCK, REQUIREMENTS, README = "gpuready.lock", "requirements.txt", "README.txt"


def bundle(
    door: Door,
    plan: Plan,
    path: str,
    *,
    find_links: tuple[str, ...] = (),
    offline: bool = False,
    note: Callable[[str], None] = lambda line: None,
) -> tuple[str, ...]:
    """Fill a folder atomically; return notes about it.

    An interrupted call can be resumed: intact files are kept. ValueError or AccessError, in a sentence, if it
    cannot be done.
    """
    if not plan.lock:
        raise ValueError(f"there is nothing to bundle: the plan is {plan.resolved or 'not resolved'}")
    path = path if path.startswith("/") else f"{door.cwd()}/{path}"
    path = path.rstrip("/")
    lock = lock_text(plan)
    if door.list(path):
        if door.read(f"{path}/{LOCK}", 64 << 20) == lock:
            return (f"{path} has this bundle already",)
        raise ValueError(f"{path} is there and holds something else: name another folder, or remove it")
    parent, _, name = path.rpartition("/")
    draft = f"{parent}/.{name}.part"
    folder(draft)
    said = list(_filled(door, plan, draft, find_links, offline, note))
    save(f"{draft}/{LOCK}", lock)
    save(f"{draft}/{REQUIREMENTS}", requirements(plan.lock))
    save(f"{draft}/{README}", _readme(plan, name, said))
    publish(draft, path)
    return tuple(said)


def lock_text(plan: Plan) -> str:
    """Format the lock as a file."""
    import json

    from gpuready.model import SCHEMA

    body = {"schema": SCHEMA, "kind": "lock"} | plan.but(indexes={}).to_json()
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def requirements(rows: tuple[Locked, ...]) -> str:
    """Format locked rows as a requirements file with hashes, without index addresses."""
    lines = []
    for row in rows:
        pin = f"{row.name} @ {row.origin}" if row.origin else f"{row.name}=={row.version}"
        lines.append(" \\\n".join([pin, *(f"    --hash={one}" for one in row.hashes)]))
    return "\n".join(lines) + "\n"


def _filled(
    door: Door,
    plan: Plan,
    draft: str,
    find_links: tuple[str, ...],
    offline: bool,
    note: Callable[[str], None],
) -> Iterator[str]:
    told = uv.settings(door, find_links, offline)
    files = located(door, plan, told)
    _room(door, draft, sum(size for _, _, size in files.values()))
    for at, row in enumerate(plan.lock):
        file, url, _ = files[row.name]
        note(f"fetching {at + 1} of {len(plan.lock)}: {file}")
        if not file.endswith(".whl"):
            yield f"{row.name} {row.version} has no wheel for this target: {file} is its source, to be built there"
        here = f"{draft}/{file}"
        if hash_of(here) in row.hashes:
            continue
        cafile = told.env.get("SSL_CERT_FILE") or ""
        try:
            fetch(url, here, row.hashes, _auth(url, told), cafile)
        except Blind as blind:
            raise ValueError(
                f"{file} cannot be fetched: {blind}; what is there is kept, so run it again"
            ) from None


def _room(door: Door, path: str, size: int) -> None:
    found = door.disk(path)
    if found is not None and found["free"] < size:
        raise ValueError(f"the bundle needs {size >> 20} MiB, and {path} has room for {found['free'] >> 20}")


def located(door: Door, plan: Plan, told: uv.Settings) -> dict[str, tuple[str, str, int]]:
    """Find the file of each row for the plan's target: name, address, and size (0 if unknown)."""
    ranks = target_tags(plan.python, plan.platform)
    listed = {_canonical(p["name"]): p for p in _pylock(door, plan, told)}
    found = {}
    for row in plan.lock:
        if row.name not in listed:
            raise ValueError(f"uv says nothing of where {row.name} {row.version} is: make the plan again")
        found[row.name] = _chosen(row, listed[row.name], ranks)
    return found


def _canonical(name: str) -> str:
    from gpuready.catalog.packages import canonical

    return canonical(name)


def _pylock(door: Door, plan: Plan, told: uv.Settings) -> list[dict[str, Any]]:
    """Ask uv for the address of every file, under the rules of the resolution."""
    from gpuready.apply.pipconf import _toml
    from gpuready.system.follow import variables
    from gpuready.system.scratch import Scratch

    question, env = _where(door, plan, told)
    path = uv.find(door)
    with Scratch(variables(door)) as scratch:
        save(f"{scratch}/pyproject.toml", question.project())
        argv = [path, "pip", "compile", f"{scratch}/pyproject.toml", "--no-deps", "--format", "pylock.toml"]
        argv += [flag for flag in question.flags() if flag != "--emit-index-annotation"]
        argv += ["--python", door.interpreter()["executable"], "-o", f"{scratch}/pylock.toml", "-q"]
        ran = uv.run(door, argv, told, env=env)
        text = door.read(f"{scratch}/pylock.toml", 64 << 20) if ran.rc == 0 else None
    if text is None:
        from gpuready.apply import proof

        names = {url: name for name, url in question.addresses.items()}
        found = proof.failure(ran.err or ran.end, plan.framework, names)
        raise ValueError(
            f"the files of the lock cannot be found: {getattr(found, 'why', '') or getattr(found, 'says', '')}"
        )
    return [
        p for p in _toml(text).get("packages", ()) if isinstance(p, dict) and isinstance(p.get("name"), str)
    ]


def _where(door: Door, plan: Plan, told: uv.Settings) -> tuple[Question, dict[str, str | None]]:
    """Return the lock as a request: each row exactly, from the index it came from."""
    from gpuready.apply.resolve import folders_with, parted

    sources: dict[str, str] = {}
    addresses: dict[str, str] = {}
    env: dict[str, str | None] = {}
    for row in plan.lock:
        if row.index in indexes.names():
            sources[row.name], addresses[row.index] = row.index, indexes.url(row.index)
        elif row.index.startswith("pip-") and int(row.index[4:]) < len(told.extra):
            address, login = parted(told.extra[int(row.index[4:])], row.index.upper().replace("-", "_"))
            sources[row.name], addresses[row.index] = row.index, address
            env |= login
    for at, (name, path) in enumerate(folders_with(door, plan, told.folders).items()):
        sources[name], addresses[f"{FOLDER}-{at}"] = f"{FOLDER}-{at}", path
    exact = tuple(f"{row.name}=={row.version}" for row in plan.lock)
    return Question(exact, sources, addresses, (), versions_python(plan.python), plan.platform), env


def _chosen(row: Locked, listed: dict[str, Any], ranks: dict[str, int]) -> tuple[str, str, int]:
    """Return the best wheel for the target with a hash in the lock; the source if there is no wheel."""
    wheels = [_file(one) for one in listed.get("wheels", ()) if isinstance(one, dict)]
    fitting = [
        (rank, one) for one in wheels if one[3] in row.hashes and (rank := _rank(one[0], ranks)) is not None
    ]
    if fitting:
        name, url, size, _ = min(fitting)[1]
        return name, url, size
    for kind in ("sdist", "archive"):
        if isinstance(listed.get(kind), dict):
            name, url, size, digest = _file(listed[kind])
            if digest in row.hashes:
                return name, url, size
    raise ValueError(
        f"{row.name} {row.version} has no file for this target with a hash of the lock: plan again"
    )


def _file(entry: dict[str, Any]) -> tuple[str, str, int, str]:
    url = str(entry.get("url") or entry.get("path") or "")
    url = unquoted(url.removeprefix("file://")) if url.startswith("file://") else url
    name = str(entry.get("name") or unquoted(url.partition("#")[0].rpartition("/")[2]))
    digest = (entry.get("hashes") or {}).get("sha256", "")
    size = entry.get("size")
    if "/" in name or name.startswith("."):
        raise ValueError(f"the index calls a file {name[:60]!r}, which is no name of a file")
    return name, url, size if isinstance(size, int) else 0, f"sha256:{digest}"


def target_tags(python: str, platform: str) -> dict[str, int]:
    """Map every wheel tag that a target accepts to its rank, best first."""
    from packaging import tags

    from gpuready.versions import minor

    version = minor(python)
    platforms = list(target_platforms(platform))
    listed = [
        *tags.cpython_tags(version, platforms=platforms),
        *tags.compatible_tags(version, platforms=platforms),
    ]
    return {str(tag): at for at, tag in enumerate(listed)}


def target_platforms(platform: str) -> Iterator[str]:
    """Expand ``x86_64-manylinux_2_28`` to manylinux_2_28_x86_64 and all older, then linux_x86_64."""
    machine, _, kind = platform.partition("-")
    newest = int(kind.rpartition("_")[2]) if kind.startswith("manylinux_2_") else 17
    for minor in range(newest, 4, -1):
        yield f"manylinux_2_{minor}_{machine}"
        for old, name in ((17, "manylinux2014"), (12, "manylinux2010"), (5, "manylinux1")):
            if minor == old:
                yield f"{name}_{machine}"
    yield f"linux_{machine}"


def _rank(file: str, ranks: dict[str, int]) -> int | None:
    parts = file.removesuffix(".whl").split("-")
    if not file.endswith(".whl") or len(parts) < 5:
        return None
    pythons, abis, platforms = (part.split(".") for part in parts[-3:])
    found = [ranks.get(f"{p}-{a}-{f}") for p in pythons for a in abis for f in platforms]
    return min((rank for rank in found if rank is not None), default=None)


def _auth(url: str, told: uv.Settings) -> str:
    """Return the login of the user's own index, for a file on the same host."""
    from base64 import b64encode

    host = url.partition("://")[2].partition("/")[0]
    for known in (told.env.get("UV_DEFAULT_INDEX") or "", *told.extra):
        login, at, at_host = known.partition("://")[2].partition("/")[0].rpartition("@")
        if at and at_host == host:
            return f"Basic {b64encode(login.encode()).decode()}"
    return ""


def _readme(plan: Plan, name: str, said: list[str]) -> str:
    built = [f"  {k.package} {k.version}: {k.why}" for k in plan.kernels if k.how != "index"]
    lines = [
        f"{plan.framework} {plan.version} for Python {plan.python} on {plan.platform}: {len(plan.lock)} packages.",
        "",
        "On the machine without network:",
        "",
        f"  gpuready install --lock {name}/{LOCK} --find-links {name} --offline -e ENV",
        "",
        "or, in an environment that is there:",
        "",
        f"  uv pip install --offline --no-index --find-links {name} --require-hashes -r {name}/{REQUIREMENTS}",
    ]
    lines += ["", "Not in this folder:", *built] if built else []
    return "\n".join([*lines, *(["", *said] if said else []), ""])
