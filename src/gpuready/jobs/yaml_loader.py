"""PyYAML's safe loader with a bound on nested brackets: its time grows with the square of their depth."""

from __future__ import annotations

from typing import Any

MAX_FLOW_DEPTH = 100
"""Nested brackets; no real file has a tenth of this."""


def make_bounded_loader() -> Any:
    """Return the loader class for plain values."""
    import yaml

    class BoundedLoader(yaml.SafeLoader):
        def fetch_flow_collection_start(self, token: Any) -> None:
            if self.flow_level >= MAX_FLOW_DEPTH:
                raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=self.get_mark())
            super().fetch_flow_collection_start(token)

    return BoundedLoader


def describe_yaml_error(error: Exception) -> str:
    """Describe why PyYAML cannot parse a text, with the line if known."""
    if not hasattr(error, "problem"):
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition("\n")[0]
        return f"cannot be read as YAML: {why}"
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    return f"{where}{error.problem or str(error).partition(chr(10))[0]}; it must be YAML"
