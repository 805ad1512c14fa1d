"""``gpuready mcp``: tools for a coding agent."""

from __future__ import annotations

import os

from gpuready.cli.words import EVERYWHERE, Command, Flag, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.words import Told
    from gpuready.render.layout import Screen

TOKEN = "GPUREADY_MCP_TOKEN"
_FLAGS = (
    Flag("--root", "a folder whose files may be read, beside the current one", "DIR", many=True),
    Flag("--python", "the environment that is looked at and proved in", "PATH"),
    Flag("--allow-changes", "also offer installs: planned first, then agreed to by a person"),
    Flag("--http", "serve over HTTP on loopback, in place of stdin and stdout"),
    Flag("--port", "where to listen with --http (default: any free port)", "PORT"),
    Flag("--token", f"what clients must send with --http (default: {TOKEN}, else a new one)", "TOKEN"),
)
COMMANDS = (
    Command(
        "mcp",
        "serve these commands as tools of a coding agent (Model Context Protocol)",
        _FLAGS + EVERYWHERE,
    ),
)


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    """Serve until the client disconnects; there is no output besides what clients get."""
    flags = told.flags
    if flags.get("json"):
        raise Usage("gpuready mcp has no answer of its own: leave out --json")
    if not flags.get("http") and ("port" in flags or "token" in flags):
        raise Usage("--port and --token go with --http")
    port = _port(flags)
    from gpuready.workflow import Refused
    from gpuready.workflow.fencing import Yard

    yard = Yard(_roots(flags), flags.get("python"))
    token = _token(flags) if flags.get("http") else ""
    try:
        from gpuready.mcp import server
    except ImportError as missing:
        raise Refused(
            f"gpuready mcp needs the package mcp, 2.0 or newer, which is not here ({missing}): pip install 'gpuready[mcp]'"
        ) from None
    import gc

    gc.enable()  # main() disabled it; a server runs long
    yard.close()
    changes = bool(flags.get("allow-changes"))
    if flags.get("http"):
        _http(yard, port, token, changes)
    else:
        server.over_stdio(yard, changes)
    return "", 0


def _roots(flags: Mapping[str, Any]) -> list[str]:
    """Return the current folder and the named ones; / only where it is named explicitly."""
    here = os.getcwd()
    return [*([here] if here != "/" else []), *flags.get("root", ())]


def _token(flags: Mapping[str, Any]) -> str:
    """Return the token that clients must send; empty where a new one is to be generated."""
    token = str(flags.get("token") or os.environ.get(TOKEN, ""))
    if token and not (
        16 <= len(token) <= 512 and token.isascii() and token.isprintable() and " " not in token
    ):
        raise Usage("the token must have from 16 to 512 letters, digits or marks, and no space")
    return token


def _http(yard: Any, port: int, token: str, changes: bool) -> None:
    from gpuready.cli.terminal import note, sentence
    from gpuready.mcp.guard import over_http

    if not token:
        import secrets

        token = secrets.token_urlsafe(32)
        note(f"token: {token}", confided=True)
    over_http(yard, port, token, sentence, changes)


def _port(flags: Mapping[str, Any]) -> int:
    word = str(flags.get("port", "0"))
    if not (word.isascii() and word.isdecimal() and len(word) < 6 and int(word) < 65536):
        raise Usage(f"--port takes a number from 0 to 65535, not {word!r}")
    return int(word)
