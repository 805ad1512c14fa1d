"""Keeps a process in the generation of the environment it started in. Written by gpuready; runs at every start.

The environment may be replaced while a process runs. Its later imports must come from the files it started with,
so its paths are changed to those of the generation. The lock tells gpuready that the generation is in use; it
ends with the process. A script may ``import gpuready``: the one that made the environment, where no other is installed.
"""

import os
import sys


def pin_process_paths(base: str) -> None:
    own_path = os.path.realpath(__file__)
    generation = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(own_path))))
    old_prefix = sys.prefix
    if not os.path.isfile(generation + "/pyvenv.cfg"):
        return
    if old_prefix != generation:
        for i, path in enumerate(sys.path):
            if path.startswith(old_prefix + "/"):
                sys.path[i] = generation + path[len(old_prefix) :]
        if sys.executable and sys.executable.startswith(old_prefix + "/"):
            sys.executable = generation + sys.executable[len(old_prefix) :]
        sys.prefix = sys.exec_prefix = generation
        if base and os.path.dirname(os.path.realpath(getattr(sys, "_base_executable", ""))) == generation + "/bin":
            # bin/python, which is reached through a link, is not the program that the environment was made with.
            sys._base_executable = base  # type: ignore[attr-defined]
        site = sys.modules.get("site")
        if site is not None and getattr(site, "PREFIXES", None):
            site.PREFIXES[:] = [generation if path == old_prefix else path for path in site.PREFIXES]
    # Python processes site folders twice, and adds the renamed ones again.
    sys.path[:] = list(dict.fromkeys(sys.path))
    if not hasattr(sys, "_gpuready_generation"):
        lock_generation(generation)


def lock_generation(generation: str) -> None:
    import fcntl

    fd = os.open(generation + "/in-use.lock", os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    # Avoid low descriptors, which some programs expect to be free; the copy keeps the lock.
    sys._gpuready_generation = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)  # type: ignore[attr-defined]
    os.close(fd)


class GpureadyFinder:
    """Finds the package gpuready, and nothing else, in the folder of the gpuready that made this environment."""

    def __init__(self, folder: str):
        self.folder = folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> "object | None":
        if name != "gpuready":
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [self.folder])


def begin(folder: str, base: str = "") -> None:
    """Run the hook; no failure may keep Python from starting. ``folder``: of the package gpuready; ``base``: the Python that bin/python copies."""
    if not any(type(finder).__name__ == GpureadyFinder.__name__ for finder in sys.meta_path):
        sys.meta_path.append(GpureadyFinder(folder))  # type: ignore[arg-type]
    try:
        pin_process_paths(base)
    except Exception:
        sys._gpuready_generation = -1  # type: ignore[attr-defined]
