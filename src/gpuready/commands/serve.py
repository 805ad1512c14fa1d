"""``gpuready serve``: a what-if page and the results over HTTP. Read-only."""

import ipaddress
import secrets

from gpuready.commands.declaration import Command, Parameter, Request, UsageError, collect_parameters
from gpuready.commands.parameters import COLOR, read_token
from gpuready.commands.result import Result
from gpuready.workflow import Refused
from gpuready.workflow.refusal import own_install_command

DEFAULT_PORT = 8642
TOKEN_VARIABLE = "GPUREADY_SERVE_TOKEN"
_PARAMETERS = {
    "host": Parameter("the address to listen at (127.0.0.1)", "ADDRESS"),
    "port": Parameter(
        f"the port; 0 takes any that is free ({DEFAULT_PORT}, or one after it)",
        "PORT",
        kind="count",
        least=0,
        most=65535,
    ),
    "token": Parameter(f"the secret that a browser or a program must bring ({TOKEN_VARIABLE}, else random)", "TOKEN"),
    "open_to_others": Parameter("allow a --host that other machines can reach; nothing is encrypted"),
    "no_open": Parameter("open no browser"),
}


def run(request: Request) -> Result:
    host, port = _parse_host_address(request.get_option("host", "127.0.0.1")), request.get_option("port")
    token = read_token(request, TOKEN_VARIABLE) or secrets.token_urlsafe(32)
    _check_exposure(host, request.has_switch("open_to_others"))
    try:
        from gpuready.web.server import serve_web_app
    except ImportError as missing:
        raise Refused(
            f"gpuready serve needs {missing.name}, which is not here: {own_install_command('starlette', 'uvicorn')}"
        ) from None
    serve_web_app(
        host,
        DEFAULT_PORT if port is None else port,
        token=token,
        announce=lambda address: request.session.write_note(_address_message(address, host), confided=True),
        open_browser=not request.has_switch("no_open"),
        exact_port=port is not None,
    )
    return Result.from_text("")


def _address_message(address: str, host: str) -> str:
    lines = [f"gpuready serve: {address}", "The address holds the token: who has it can ask. Ctrl-C ends it."]
    if not ipaddress.ip_address(host).is_loopback:
        lines.append(
            f"WARNING: other machines reach {host}. Nothing is encrypted: whoever sees the network sees the token."
        )
    return "\n".join(lines)


def _parse_host_address(word: str) -> str:
    """Parse a numeric address: a name could resolve to anything."""
    try:
        return str(ipaddress.ip_address("127.0.0.1" if word == "localhost" else word.strip("[]")))
    except ValueError:
        raise UsageError(f"--host takes an address such as 127.0.0.1 or ::1, not {word!r}") from None


def _check_exposure(host: str, allowed: bool) -> None:
    one = ipaddress.ip_address(host)
    if one.is_unspecified:
        raise UsageError(
            f"--host {host} is every address of this machine: name the one by which it will be called, as the guard asks for it"
        )
    if not one.is_loopback and not allowed:
        raise UsageError(
            f"--host {host} can be reached by other machines, and nothing is encrypted: add --open-to-others, or forward the port with ssh -L"
        )


COMMANDS = (
    Command(
        "serve",
        "a local, read-only web page for what-if questions",
        run,
        collect_parameters(_PARAMETERS, COLOR),
        interrupted="",
        examples=("", "--port 8600", "--no-open --port 0"),
    ),
)
