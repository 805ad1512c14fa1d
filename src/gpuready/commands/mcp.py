"""``gpuready mcp``: tools for a coding agent."""

import gc
import os
import secrets

from gpuready.commands.declaration import Command, Parameter, Request, UsageError, collect_parameters
from gpuready.commands.parameters import COMMON, read_token
from gpuready.commands.result import Result
from gpuready.workflow import Refused
from gpuready.workflow.allowed_paths import AllowedPaths
from gpuready.workflow.diagnose import limit_reading_time
from gpuready.workflow.refusal import own_install_command

TOKEN_VARIABLE = "GPUREADY_MCP_TOKEN"
_PARAMETERS = {
    "root": Parameter("a folder whose files may be read, beside the current one", "DIR", many=True),
    "python": Parameter("the environment to examine and to prove", "PATH"),
    "allow_changes": Parameter("also offer installs: planned first, then agreed to by a person"),
    "http": Parameter("serve over HTTP on loopback, in place of stdin and stdout"),
    "port": Parameter(
        "where to listen with --http (default: any free port)", "PORT", kind="count", least=0, most=65535
    ),
    "token": Parameter(f"what clients must send with --http (default: {TOKEN_VARIABLE}, else a new one)", "TOKEN"),
}


def run(request: Request) -> Result:
    """Serve until the client disconnects; there is no output besides what clients get."""
    if request.has_switch("json"):
        raise UsageError("gpuready mcp has no answer of its own: leave out --json")
    if not request.has_switch("http") and ("port" in request.options or "token" in request.options):
        raise UsageError("--port and --token go with --http")
    allowed_paths = AllowedPaths(_allowed_roots(request), request.get_option("python"))
    token = read_token(request, TOKEN_VARIABLE) if request.has_switch("http") else ""
    try:
        from gpuready.mcp import server
    except ImportError as missing:
        raise Refused(
            f"gpuready mcp needs the package mcp, 2.0 or newer, which is not here ({missing}): {own_install_command('mcp>=2')}"
        ) from None
    gc.enable()  # main() disabled it; a server runs long
    allowed_paths.restrict_named_files()
    limit_reading_time()
    if request.has_switch("http"):
        _serve_http(request, allowed_paths, token)
    else:
        server.serve_over_stdio(allowed_paths, request.has_switch("allow_changes"))
    return Result.from_text("")


def _allowed_roots(request: Request) -> list[str]:
    """Return the current folder and the named ones; / only where it is named explicitly."""
    here = os.getcwd()
    return [*([here] if here != "/" else []), *request.get_option("root", ())]


def _serve_http(request: Request, allowed_paths: AllowedPaths, token: str) -> None:
    from gpuready.mcp.http_transport import serve_over_http

    session = request.session
    if not token:
        token = secrets.token_urlsafe(32)
        session.write_note(f"token: {token}", confided=True)
    port, changes = request.get_option("port", 0), request.has_switch("allow_changes")
    serve_over_http(allowed_paths, port, token, session.write_sentence, changes)


COMMANDS = (
    Command(
        "mcp",
        "serve these commands as tools for coding agents (MCP)",
        run,
        collect_parameters(_PARAMETERS, COMMON),
        interrupted="",
        examples=("", "--root ../data", "--http --port 8700"),
    ),
)
