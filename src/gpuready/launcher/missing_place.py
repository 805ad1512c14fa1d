"""Where the module or the file is that one rank has not found, and others have. It reads folders, and nothing in them."""

import os
import re
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES

from gpuready.model.last_error import last_error_line
from gpuready.model.run import RankEnd

_NO_FILE = re.compile(r"FileNotFoundError: .* No such file or directory: '([^']+)'")
_NO_MODULE = re.compile(
    r"(?:ModuleNotFoundError: No module named|AttributeError: module|ImportError: cannot import name '.*?' from) '(\w+)"
)
"""``No module named 'tokens.bpe'``, ``module 'tokens' has no attribute 'bpe'``, ``cannot import name 'bpe' from 'tokens' (/a/tokens.py)``"""
_SAME_PLACES = "let all ranks have the same PYTHONPATH and folder; find what changes those of this one"
_WAIT_FOR_IT = "let all ranks wait until it is written, as by a barrier after the rank that writes it"


def explain_missing(end: RankEnd, paths: Mapping[int, list[list[str]]]) -> tuple[str, str]:
    """Say where it is, and the fix; empty where nothing shows that it is anywhere. Each rank has its sys.path, that of its start, and its folder."""
    error = last_error_line(end.last)
    file, module = _NO_FILE.match(error), _NO_MODULE.match(error)
    name = file[1] if file else module[1] if module else ""
    own, kind = paths.get(end.rank) or [[], [], []], 2 if file else 0
    if not name or not own[kind]:
        return "", ""
    files = [name] if file else [f"{name}.py", f"{name}/__init__.py", *map(name.__add__, EXTENSION_SUFFIXES)]
    here = _find(files, own[kind])
    if file and here:
        return f"{here[1]} is there now: it came after rank {end.rank} had looked for it", _WAIT_FOR_IT
    owners: dict[tuple[str, str], list[int]] = {}
    for rank, lists in paths.items():
        if rank != end.rank and (found := _find(files, lists[kind])):
            owners.setdefault(found, []).append(rank)
    ranks = {place: f"rank {', '.join(map(str, some[:8]))}" for place, some in owners.items()}
    if here:
        other = next(iter(ranks), here)
        says = (
            f"{name} is {here[1]} on rank {end.rank}, and {other[1]} on {ranks[other]}"
            if here not in ranks and ranks
            else ""
        )
        return says, _SAME_PLACES if says else ""
    ranks = {place: f"of {some}" for place, some in ranks.items()}
    if not ranks and kind == 0 and (before := _find(files, own[1])):
        ranks = {before: "with which it started"}
    where = "working folder" if file else "sys.path"
    for place, whose in ranks.items():
        return (
            f"{name} is in {place[0]}: the {where} {whose}, and not in that which rank {end.rank} had when it failed",
            _SAME_PLACES,
        )
    return "", ""


def _find(files: list[str], folders: list[str]) -> tuple[str, str] | None:
    """The first folder that has one of the files, and that file."""
    places = ((folder, os.path.join(folder, file)) for folder in folders for file in files)
    return next((place for place in places if os.path.exists(place[1])), None)
