"""The names of extension modules."""

from __future__ import annotations


def extension_kind(path: str, minor: str) -> str:
    """own, other or none: whether a file is an extension module for a Python.

    ``_x.cpython-311-x86_64-linux-gnu.so`` is for 3.11, ``_x.abi3.so`` for all; ``_x.so`` may be one, ``libx.so`` is a library.
    """
    file = path.rpartition("/")[2]
    stem, *tags = file.split(".")
    if tags[-1:] != ["so"] or not stem:
        return "none"
    if len(tags) == 1:
        return "none" if stem.startswith("lib") and stem not in ("libtriton", "libproton") else "own"
    if tags[0] == "abi3":
        return "own"
    if tags[0].startswith("cpython-"):
        number = tags[0].split("-")[1].rstrip("td")
        return "own" if number == minor.replace(".", "") else "other"
    return "other" if tags[0].startswith(("pypy", "graalpy", "cp3")) else "none"
