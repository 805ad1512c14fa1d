"""The result of a command called from Python: verdict, screen text, the command line's JSON, and HTML for a notebook."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuready.render.layout import Screen


class Result:
    """The result of one command. ``found`` is what the workflow returned; ``verdict`` is empty where nothing was judged.

    It prints as the command's screen in 80 columns, and displays itself in a notebook.
    """

    __slots__ = ("_html", "_json", "_page", "exit", "found", "verdict")

    def __init__(
        self,
        found: Any,
        verdict: str,
        exit: int,
        *,
        json: Callable[[], str],
        page: Callable[[Screen], str],
        html: Callable[[], str] | None = None,
    ):
        self.found, self.verdict, self.exit = found, verdict, exit
        self._json, self._page, self._html = json, page, html

    @classmethod
    def from_record(
        cls,
        found: Any,
        json: Callable[[Any], str],
        page: Callable[[Any, Screen], str],
        html: Callable[[], str] | None = None,
    ) -> Result:
        """Make the result of a command whose record carries its own verdict and exit code."""
        return cls(
            found,
            found.verdict,
            found.exit,
            json=lambda: json(found),
            page=lambda screen: page(found, screen),
            html=html,
        )

    def json(self) -> str:
        """Return the text that the command line prints with --json."""
        return self._json()

    @property
    def data(self) -> dict[str, Any]:
        """The same as a dict."""
        import json

        document: dict[str, Any] = json.loads(self._json())
        return document

    def html(self) -> str:
        """Return HTML for a notebook: no script, and all machine data as escaped text."""
        from gpuready.render import notebook

        return notebook.render_notebook_html(self._html, str(self))

    def __str__(self) -> str:
        from gpuready.render.layout import Screen

        return self._page(Screen(80)).rstrip("\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.html()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("..." if cycle else str(self))
