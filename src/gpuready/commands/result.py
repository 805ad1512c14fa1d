"""The result of a command, for every face: verdict, screen text, one line, JSON, and HTML for a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuready.model.facts import verdict_words
from gpuready.render.layout import Screen


class Result:
    """The result of one command. ``found`` is what the workflow returned; ``verdict`` is empty where nothing was judged.

    It prints as the command's screen in 80 columns, and displays itself in a notebook.
    """

    __slots__ = ("_html", "_json", "_line", "_page", "exit", "found", "text", "verdict")

    def __init__(
        self,
        found: Any,
        json: Callable[[Any], str],
        page: Callable[..., str],
        *,
        verdict: str | None = None,
        exit: int | None = None,
        line: Callable[[Any], str] | None = None,
        html: Callable[[Any], str] | None = None,
        text: str | None = None,
    ):
        """``json``, ``page``, ``line`` and ``html`` render ``found``; ``page`` takes a screen too, and True for -v.

        ``verdict`` and ``exit`` are those of ``found`` unless they are stated. ``text`` is printed in place of any other.
        """
        self.found = found
        self.verdict: str = getattr(found, "verdict", "") if verdict is None else verdict
        self.exit: int = getattr(found, "exit", 0) if exit is None else exit
        self._json, self._page, self._line, self._html, self.text = json, page, line, html, text

    @classmethod
    def from_text(cls, text: str, exit: int = 0, found: Any = None) -> Result:
        """Make the result of a command that has one text, whatever the format."""
        return cls(found, lambda found: text, lambda found, screen: text, exit=exit, text=text)

    @property
    def answer(self) -> str:
        """The verdict in the words of the screen; empty where nothing was judged."""
        return verdict_words(self.verdict) if self.verdict else ""

    def json(self) -> str:
        """Return the text that the command line prints with --json."""
        return self._json(self.found)

    @property
    def data(self) -> dict[str, Any]:
        """The same as a dict."""
        import json

        document: dict[str, Any] = json.loads(self._json(self.found))
        return document

    def html(self) -> str:
        """Return HTML for a notebook: no script, and all machine data as escaped text."""
        from gpuready.render.html import render_notebook_html

        make = self._html
        return render_notebook_html(None if make is None else lambda: make(self.found), str(self))

    def format_text(self, screen: Screen, *, json: bool = False, quiet: bool = False, verbose: bool = False) -> str:
        """Return what the command line prints."""
        if self.text is not None:
            return self.text
        if json:
            return self._json(self.found)
        if quiet and self._line is not None:
            return self._line(self.found)
        return self._page(self.found, screen, True) if verbose else self._page(self.found, screen)

    def __str__(self) -> str:
        return self._page(self.found, Screen(80)).rstrip("\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.html()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("..." if cycle else str(self))
