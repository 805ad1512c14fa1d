"""The guides that come with the installation: Markdown files, in the package or in the checkout that it is run from."""

from gpuready import system
from gpuready.workflow.refusal import Refused, suggest_nearest

_PACKAGE = __file__.rpartition("/workflow/")[0]
_PLACES = (f"{_PACKAGE}/guides", f"{_PACKAGE.rpartition('/src/')[0]}/docs")
_FOLDERS = ("start", "how-to", "explanation")


def list_guides() -> dict[str, str]:
    """The path of each guide by its name, in the order of the folders."""
    host, paths = system.ReadOnlyHost(), dict[str, str]()
    for folder in (f"{place}/{name}" for place in _PLACES for name in _FOLDERS):
        names = [file.removesuffix(".md") for file in sorted(host.list_directory(folder) or ()) if file.endswith(".md")]
        paths = {name: f"{folder}/{name}.md" for name in names if name != "index"} | paths
    if not paths:
        raise Refused(f"this installation has no guides in {_PLACES[0]}: install gpuready again")
    return paths


def read_guide(name: str) -> str:
    paths = list_guides()
    if name not in paths:
        raise Refused(f"there is no guide {name!r}{suggest_nearest(name, paths)}; `gpuready docs` lists them")
    return system.ReadOnlyHost().read_text(paths[name]) or ""
