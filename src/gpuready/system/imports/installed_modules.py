"""A quick look at what the modules of an installed distribution import: plain statements at the margin, by their text.

So are those of a ``try`` whose handler only raises. What stands in another ``try``, a condition or a function is left out.
It says where a longer look is worth its time.
"""

from __future__ import annotations

import re

from gpuready.system.files import open_regular
from gpuready.system.imports.package_source import module_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuready.system.imports.distributions import Distribution

STATEMENT = re.compile(
    r"^(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]{0,4000}\)|[^\n#]{0,500})|import[ \t]+([\w. \t,]{1,500}))", re.M
)
RAISED = re.compile(
    r"^try:\n((?:[ \t][^\n]{0,300}\n){1,8})except[^\n]{0,200}:\n(?:[ \t][^\n]{0,300}\n){0,4}[ \t]+raise\b", re.M
)
"""Imports whose failure is only worded anew: ``try: import torchao``, ``except ImportError as e: raise ImportError(...)``."""
COMMENT = re.compile(r"#[^\n]*")
MAX_MODULES = 3000


def find_absent_imports(
    copy: Distribution, starts: Sequence[str], is_importable: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """Return the modules of other packages that some modules import and nothing provides, each with the file that does."""
    files = [name for name, _, _ in copy.rows if name.endswith(".py") and not name.startswith(("..", "/"))]
    paths = {module_name(name): f"{copy.site}/{name}" for name in files}
    own = {name.partition(".")[0] for name in starts}
    waiting = [name for start in starts for name in _with_parents(start)]
    seen: set[str] = set()
    others: dict[str, str] = {}
    while waiting and len(seen) < MAX_MODULES:
        name = waiting.pop()
        if name in seen or name not in paths:
            continue
        seen.add(name)
        for wanted in _list_imports(name, paths[name]):
            top = wanted.partition(".")[0]
            if top in own:
                waiting += _with_parents(wanted)
            else:
                others.setdefault(top, paths[name])
    return [(top, path) for top, path in others.items() if not is_importable(top)]


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _list_imports(name: str, path: str) -> Iterator[str]:
    """Yield what a module imports; of ``from a import b``, both ``a`` and ``a.b``."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace", opener=open_regular) as file:
            text = file.read()
    except OSError:
        return
    package = name if path.endswith("/__init__.py") else name.rpartition(".")[0]
    raised = "\n".join(line.strip() for block in RAISED.findall(text) for line in block.splitlines())
    for module, names, plain in STATEMENT.findall(f"{text}\n{raised}"):
        if plain:
            yield from (words[0] for part in plain.split(",") if (words := part.split()))
            continue
        start = _absolute_name(module, package)
        yield start
        parts = COMMENT.sub("", names).strip("()").split(",")
        yield from (f"{start}.{words[0]}" for part in parts if (words := part.split()))


def _absolute_name(module: str, package: str) -> str:
    """``.wing`` in the package ``kite.deep`` -> ``kite.deep.wing``."""
    rest = module.lstrip(".")
    level = len(module) - len(rest)
    if not level:
        return module
    parts = package.split(".")
    return ".".join(part for part in (*parts[: len(parts) - level + 1], rest) if part)
