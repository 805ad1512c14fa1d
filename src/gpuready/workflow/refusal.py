"""Bad input: Refused, in one sentence."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

from gpuready import system
from gpuready.system.path_allowlist import PathAllowlist, RestrictedHost

ReturnType = TypeVar("ReturnType")


MAX_FILE_BYTES = 64 << 20
"""Largest file that is read."""
_FENCES: list[PathAllowlist] = []
"""At most one: in a server, the fence for files named by clients or inside other files."""


class Refused(Exception):
    """Bad input. The message is one sentence: what is wrong, where, and what to do."""


def call_or_refuse(do: Callable[..., ReturnType], *args: Any) -> ReturnType:
    """Call a function, and convert its error about bad input to Refused."""
    try:
        return do(*args)
    except (ValueError, system.AccessError) as error:
        raise Refused(str(error)) from None


def call_dry(do: Callable[..., ReturnType], *args: Any) -> ReturnType:
    """Call a function for a dry run: of programs it starts only the system's and gpuready's own."""
    from gpuready.system.process import runner

    return runner.call_dry(lambda: do(*args))


def set_fence(allowed: PathAllowlist | None) -> None:
    """Restrict files read by name to those inside; None removes the restriction."""
    _FENCES[:] = [] if allowed is None else [allowed]


def fence_of_named_files() -> PathAllowlist | None:
    """Return the fence of a server; None where there is none."""
    return _FENCES[0] if _FENCES else None


def host_for_named_files() -> system.LiveHost:
    """Return the host access for files named by a person or inside another file; fenced in a server."""
    if not _FENCES:
        return system.LiveHost()
    return RestrictedHost(_FENCES[0])


def read_named_file(path: str) -> str:
    try:
        text = host_for_named_files().read_text(path, MAX_FILE_BYTES)
    except system.AccessError as error:
        raise Refused(f"cannot read {path}: {error}") from None
    if text is None:
        raise Refused(f"{path} does not exist")
    return text


def suggest_nearest(word: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.lower(), [k.lower() for k in known], 3, 0.5)
    by_lower = {k.lower(): k for k in known}
    return f" (nearest: {', '.join(by_lower[n] for n in near)})" if near else ""


def own_install_command(*packages: str) -> str:
    """Return the command that adds packages to the environment that gpuready runs in, by what made it."""
    host, names = system.LiveHost(), " ".join(f"'{name}'" for name in packages)
    if host.stat_path(f"{sys.prefix}/pipx_metadata.json"):
        return f"pipx inject gpuready {names}"
    if find_spec("pip"):
        return f"{sys.executable} -m pip install {names}"
    return f"uv pip install --python {sys.executable} {names}"
