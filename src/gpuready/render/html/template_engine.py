"""The template engine: all text is HTML-escaped, and deceptive characters are written out."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from os.path import dirname
from typing import TYPE_CHECKING, Any

from gpuready.model.contract import describe_want
from gpuready.model.facts import verdict_words
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import units
from gpuready.render.escape import quote_command_words

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def template_environment() -> Environment:
    """The shared environment: autoescape on, undefined names are errors."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(f"{dirname(__file__)}/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=escape_template_value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= TEMPLATE_FILTERS
    templates.globals |= {"counted": units.format_count}
    return templates


def escape_template_value(value: Any) -> Any:
    """Escape control characters, bidirectional marks and the like, as on the screen."""
    return value if hasattr(value, "__html__") else escape_unprintable(value)


def render_page_template(view: dict[str, Any], document: str) -> str:
    """The whole page. Its own style and script are allowed by hash, and nothing else is."""
    templates = template_environment()
    style, script = _template_source("style.css"), _template_source("script.js")
    policy = (
        f"default-src 'none'; style-src '{_csp_hash(style)}'; script-src '{_csp_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return templates.get_template("page.html").render(
        **view,
        policy=policy,
        style=_trusted_markup(style),
        script=_trusted_markup(script),
        document=_embed_json(document),
    )


def render_fragment_template(view: dict[str, Any]) -> str:
    return (
        template_environment()
        .get_template("fragment.html")
        .render(one=view, style=_trusted_markup(_template_source("fragment.css")))
    )


def _template_source(name: str) -> str:
    loader = template_environment().loader
    assert loader is not None
    return loader.get_source(template_environment(), name)[0]


def _trusted_markup(source: str) -> Any:
    """Our own style and script: the only text that is not escaped."""
    from markupsafe import Markup

    return Markup(source)


def mark_breaks(text: Any) -> Any:
    """The escaped text with a place to break after each separator: ``a/b.c`` -> ``a/<wbr>b.<wbr>c``, never within a word."""
    from markupsafe import Markup, escape

    pieces = re.findall(r"[^/_.,=:@+\[\]-]*[/_.,=:@+\[\]-]+|[^/_.,=:@+\[\]-]+$", escape_unprintable(text))
    return Markup("<wbr>").join(escape(piece) for piece in pieces)


def _embed_json(document: str) -> Any:
    """JSON inside a script element: nothing in it can end the element or start a comment."""
    return _trusted_markup(document.translate({ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}))


def _csp_hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


TEMPLATE_FILTERS = {
    "breaks": mark_breaks,
    "command": lambda words: " ".join(quote_command_words(words)),
    "lines": str.splitlines,
    "words": verdict_words,
    "value": units.format_fact_value,
    "size": units.format_bytes,
    "seconds": units.format_seconds,
    "want": describe_want,
    "inert": lambda data: _embed_json(json.dumps(data, separators=(",", ":"))),
}
