"""The names of extension modules."""

from __future__ import annotations


class ExtensionTag:
    """The Python that loads an extension module: its minor version, whether it is free-threaded, and its machine."""

    def __init__(self, minor: str, is_free_threaded: bool = False, machine: str = ""):
        self.minor = minor
        self.number = minor.replace(".", "") + ("t" if is_free_threaded else "")
        self.is_free_threaded, self.machine = is_free_threaded, machine

    def fits(self, tag: str) -> bool:
        """``cpython-313t-x86_64-linux-gnu``: for a free-threaded 3.13 on this machine only."""
        _, number, *rest = tag.split("-")
        is_here = not rest or not self.machine or rest[0] == self.machine
        return number.rstrip("dm") == self.number and is_here


def extension_kind(path: str, tag: ExtensionTag) -> str:
    """own, other or none: whether a file is an extension module for a Python.

    ``_x.cpython-311-x86_64-linux-gnu.so`` is for 3.11, ``_x.abi3.so`` for all that are not free-threaded; ``_x.so`` may be one,
    ``libx.so`` is a library.
    """
    file = path.rpartition("/")[2]
    stem, *tags = file.split(".")
    if tags[-1:] != ["so"] or not stem:
        return "none"
    if len(tags) == 1:
        return "none" if stem.startswith("lib") and stem not in ("libtriton", "libproton") else "own"
    if tags[0] == "abi3":
        return "other" if tag.is_free_threaded else "own"
    if tags[0].startswith("cpython-"):
        return "own" if tag.fits(tags[0]) else "other"
    return "other" if tags[0].startswith(("pypy", "graalpy", "cp3")) else "none"
