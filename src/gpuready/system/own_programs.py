"""Programs that came with gpuready: its Python and its uv."""

import sys

OWN_PROGRAMS = {sys.executable}


def find_own_uv() -> str:
    """Return the path of the uv that came with gpuready; empty where there is none."""
    try:
        from uv import find_uv_bin

        path = str(find_uv_bin())
    except (ImportError, OSError):
        return ""
    OWN_PROGRAMS.add(path)
    return path
