"""``gpuready serve``: a what-if page and the results over HTTP. Read-only."""

from __future__ import annotations

from gpuready.cli.command_spec import CommandSpec, Flag, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.render.layout import Screen

DEFAULT_PORT = 8642
MIN_TOKEN_LENGTH = 16
"""Minimum length of a token chosen by the user."""
_FLAGS = (
    Flag("--host", "the address to listen at (127.0.0.1)", "ADDRESS"),
    Flag("--port", f"the port; 0 takes any that is free ({DEFAULT_PORT}, or one after it)", "PORT"),
    Flag("--token", "the secret that a browser or a program must bring (random)", "TOKEN"),
    Flag("--open-to-others", "let --host be an address that other machines reach; nothing is encrypted"),
    Flag("--no-open", "open no browser"),
    Flag("--color", "colour the answer", "WHEN", ("auto", "always", "never")),
)
COMMANDS = (CommandSpec("serve", "a page to ask what-if, on this machine alone; read-only", _FLAGS),)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    flags = parsed.flags
    host, port, token = (
        _parse_host_address(flags.get("host", "127.0.0.1")),
        _parse_serve_port(flags.get("port")),
        _read_serve_token(flags.get("token")),
    )
    from gpuready.cli.terminal import write_note
    from gpuready.workflow import Refused

    _check_exposure(host, bool(flags.get("open-to-others")))
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as missing:
        raise Refused(
            f"gpuready serve needs {missing.name}, which is not here: install gpuready[web] (pip install 'gpuready[web]')"
        ) from None
    from gpuready.web.server import serve_web_app

    serve_web_app(
        host,
        DEFAULT_PORT if port is None else port,
        token=token,
        announce=lambda address: write_note(_address_message(address, host), confided=True),
        open_browser=not flags.get("no-open"),
        exact_port=port is not None,
    )
    return "", 0


def _address_message(address: str, host: str) -> str:
    import ipaddress

    lines = [f"gpuready serve: {address}", "The address holds the token: who has it can ask. Ctrl-C ends it."]
    if not ipaddress.ip_address(host).is_loopback:
        lines.append(
            f"WARNING: other machines reach {host}. Nothing is encrypted: whoever sees the network sees the token."
        )
    return "\n".join(lines)


def _parse_host_address(word: str) -> str:
    """Parse a numeric address: a name could resolve to anything."""
    import ipaddress

    try:
        return str(ipaddress.ip_address("127.0.0.1" if word == "localhost" else word.strip("[]")))
    except ValueError:
        raise UsageError(f"--host takes an address such as 127.0.0.1 or ::1, not {word!r}") from None


def _check_exposure(host: str, allowed: bool) -> None:
    import ipaddress

    one = ipaddress.ip_address(host)
    if one.is_unspecified:
        raise UsageError(
            f"--host {host} is every address of this machine: name the one by which it will be called, as the guard asks for it"
        )
    if not one.is_loopback and not allowed:
        raise UsageError(
            f"--host {host} can be reached by other machines, and nothing is encrypted: add --open-to-others, or forward the port with ssh -L"
        )


def _parse_serve_port(word: str | None) -> int | None:
    if word is None:
        return None
    if not word.isascii() or not word.isdecimal() or len(word) > 5 or int(word) > 65535:
        raise UsageError(f"--port takes a number from 0 to 65535, not {word!r}")
    return int(word)


def _read_serve_token(word: str | None) -> str:
    if word is None:
        import secrets

        return secrets.token_urlsafe(32)
    if len(word) < MIN_TOKEN_LENGTH or not word.isascii() or not word.replace("-", "a").replace("_", "a").isalnum():
        raise UsageError(f"--token takes at least {MIN_TOKEN_LENGTH} letters, digits, - and _")
    return word
