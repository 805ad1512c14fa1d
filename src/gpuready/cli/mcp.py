"""``gpuready mcp``: tools for a coding agent."""

from __future__ import annotations

import os

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec, Flag, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.render.layout import Screen

TOKEN_VARIABLE = "GPUREADY_MCP_TOKEN"
_FLAGS = (
    Flag("--root", "a folder whose files may be read, beside the current one", "DIR", many=True),
    Flag("--python", "the environment that is looked at and proved in", "PATH"),
    Flag("--allow-changes", "also offer installs: planned first, then agreed to by a person"),
    Flag("--http", "serve over HTTP on loopback, in place of stdin and stdout"),
    Flag("--port", "where to listen with --http (default: any free port)", "PORT"),
    Flag("--token", f"what clients must send with --http (default: {TOKEN_VARIABLE}, else a new one)", "TOKEN"),
)
COMMANDS = (
    CommandSpec(
        "mcp", "serve these commands as tools of a coding agent (Model Context Protocol)", _FLAGS + COMMON_FLAGS
    ),
)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    """Serve until the client disconnects; there is no output besides what clients get."""
    flags = parsed.flags
    if flags.get("json"):
        raise UsageError("gpuready mcp has no answer of its own: leave out --json")
    if not flags.get("http") and ("port" in flags or "token" in flags):
        raise UsageError("--port and --token go with --http")
    port = _parse_mcp_port(flags)
    from gpuready.workflow import Refused
    from gpuready.workflow.allowed_paths import AllowedPaths

    allowed_paths = AllowedPaths(_allowed_roots(flags), flags.get("python"))
    token = _read_mcp_token(flags) if flags.get("http") else ""
    try:
        from gpuready.mcp import server
    except ImportError as missing:
        raise Refused(
            f"gpuready mcp needs the package mcp, 2.0 or newer, which is not here ({missing}): pip install 'gpuready[mcp]'"
        ) from None
    import gc

    gc.enable()  # main() disabled it; a server runs long
    allowed_paths.restrict_named_files()
    changes = bool(flags.get("allow-changes"))
    if flags.get("http"):
        _serve_http(allowed_paths, port, token, changes)
    else:
        server.serve_over_stdio(allowed_paths, changes)
    return "", 0


def _allowed_roots(flags: Mapping[str, Any]) -> list[str]:
    """Return the current folder and the named ones; / only where it is named explicitly."""
    here = os.getcwd()
    return [*([here] if here != "/" else []), *flags.get("root", ())]


def _read_mcp_token(flags: Mapping[str, Any]) -> str:
    """Return the token that clients must send; empty where a new one is to be generated."""
    token = str(flags.get("token") or os.environ.get(TOKEN_VARIABLE, ""))
    if token and not (16 <= len(token) <= 512 and token.isascii() and token.isprintable() and " " not in token):
        raise UsageError("the token must have from 16 to 512 letters, digits or marks, and no space")
    return token


def _serve_http(allowed_paths: Any, port: int, token: str, changes: bool) -> None:
    from gpuready.cli.terminal import write_note, write_sentence
    from gpuready.mcp.http_transport import serve_over_http

    if not token:
        import secrets

        token = secrets.token_urlsafe(32)
        write_note(f"token: {token}", confided=True)
    serve_over_http(allowed_paths, port, token, write_sentence, changes)


def _parse_mcp_port(flags: Mapping[str, Any]) -> int:
    word = str(flags.get("port", "0"))
    if not (word.isascii() and word.isdecimal() and len(word) < 6 and int(word) < 65536):
        raise UsageError(f"--port takes a number from 0 to 65535, not {word!r}")
    return int(word)
