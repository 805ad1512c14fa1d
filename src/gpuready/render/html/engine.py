"""The template engine: all text is HTML-escaped, and deceptive characters are written out."""

from __future__ import annotations

from gpuready.render import finding, units
from gpuready.render.escape import command, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from jinja2 import Environment

_kept: dict[str, Environment] = {}


def environment() -> Environment:
    """The shared environment: autoescape on, undefined names are errors."""
    if not _kept:
        from os.path import dirname

        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        made = Environment(
            loader=FileSystemLoader(f"{dirname(__file__)}/templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=shown,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        made.filters |= FILTERS | {"inert": lambda data: _inert(_json(data))}
        made.globals |= {"counted": units.counted}
        _kept["one"] = made
    return _kept["one"]


def shown(value: Any) -> Any:
    """Escape control characters, bidirectional marks and the like, as on the screen."""
    return value if hasattr(value, "__html__") else visible(value)


def page(view: dict[str, Any], document: str) -> str:
    """The whole page. Its own style and script are allowed by hash, and nothing else is."""
    made = environment()
    style, script = _source("style.css"), _source("script.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return made.get_template("page.html").render(
        **view, policy=policy, style=_verbatim(style), script=_verbatim(script), document=_inert(document)
    )


def fragment(view: dict[str, Any]) -> str:
    return (
        environment().get_template("fragment.html").render(one=view, style=_verbatim(_source("fragment.css")))
    )


def _source(name: str) -> str:
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]


def _verbatim(ours: str) -> Any:
    """Our own style and script: the only text that is not escaped."""
    from markupsafe import Markup

    return Markup(ours)


def _json(data: Any) -> str:
    import json

    return json.dumps(data, separators=(",", ":"))


def _inert(document: str) -> Any:
    """JSON inside a script element: nothing in it can end the element or start a comment."""
    from markupsafe import Markup

    for char in "<>&":
        document = document.replace(char, f"\\u{ord(char):04x}")
    document = document.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Markup(document)


def _hash(text: str) -> str:
    from base64 import b64encode
    from hashlib import sha256

    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _command(words: tuple[str, ...]) -> str:
    return " ".join(command(words))


def _lines(text: str) -> list[str]:
    return text.splitlines()


def _words(text: str) -> str:
    """``not-ready`` -> ``not ready``"""
    return text.replace("-", " ")


FILTERS = {
    "command": _command,
    "lines": _lines,
    "words": _words,
    "value": units.value,
    "size": units.size,
    "seconds": units.seconds,
    "want": finding.want,
}
