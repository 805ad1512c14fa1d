"""The compilers and build tools on PATH; CC and CXX take precedence.

Most programs contain their version as a string: reading it costs a tenth of starting them.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.sight import digits, gaps, glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.system import Door

KEYS = ("compiler.gcc", "compiler.gxx", "compiler.ninja", "compiler.cmake")
WRAPPERS = ("ccache", "sccache", "distcc", "env")


def look(door: Door) -> list[Fact]:
    """Return the gcc, g++, ninja and cmake that a build would use."""
    facts: list[Fact] = []
    for key, see in (("compiler.gcc", _gcc), ("compiler.ninja", _ninja), ("compiler.cmake", _cmake)):
        try:
            facts += see(door)
        except Blind as blind:
            facts += gaps((key,), str(blind), key.partition(".")[2])
    return facts


def _gcc(door: Door) -> list[Fact]:
    """gcc and g++; if both come from one package, gcc is asked for both."""
    gcc, by = _chosen(door, "CC", "gcc", "cc")
    gxx, also = _chosen(door, "CXX", "g++", "c++")
    first = _asked(door, "compiler.gcc", gcc, by)
    if gcc and gxx and _twin(door.real(gcc)) == _twin(door.real(gxx)):
        return [first, first.but(key="compiler.gxx", source=f"{gxx}, of one package with {gcc}")]
    return [first, _asked(door, "compiler.gxx", gxx, also)]


def _chosen(door: Door, variable: str, *names: str) -> tuple[str | None, str]:
    """Return the compiler named by a variable, else the first on PATH, and where it came from."""
    words = [word for word in (door.env(variable) or "").split() if word not in WRAPPERS]
    if words and "clang" not in words[0].rpartition("/")[2]:
        return door.which(words[0]), f"{variable}={words[0]}"
    return next((path for name in names if (path := door.which(name))), None), "the path"


def _twin(path: str) -> str:
    """Map ``/usr/bin/x86_64-linux-gnu-g++-12`` to ``…-gcc-12``: equal paths are one package."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.replace('g++', 'gcc').replace('c++', 'cc')}"


def _asked(door: Door, key: str, path: str | None, by: str) -> Fact:
    if path is None:
        return Fact(key, None, by)
    real = door.real(path)
    major = real.rpartition("-")[2]
    if major.isdecimal() and (version := _inside(door, real, f"{major}.")):
        return Fact(key, version, f"the version string in {real}")
    # Old releases know only -dumpversion; new ones answer it with the major version alone.
    ran = door.run([path, "-dumpfullversion", "-dumpversion"])
    version = digits(ran.out.strip())
    source = f"{path} -dumpfullversion"
    return Fact(key, version, source, gap="" if version else ran.end or f"it ended with {ran.rc}")


def _inside(door: Door, path: str, start: str) -> str | None:
    """Return the only string in a program that is a version of this series, else None."""
    texts = glimpse(door.elf_text, path, ".rodata", (start,)) or ()
    found = {text for text in texts if text.startswith(start) and digits(text) == text}
    return found.pop() if len(found) == 1 else None


def _ninja(door: Door) -> list[Fact]:
    path = door.which("ninja") or door.which("ninja-build")
    if path and (version := _inside(door, path, "1.")):
        return [Fact("compiler.ninja", version, f"the version string in {path}")]
    return [_tool(door, "compiler.ninja", path, "ninja")]


def _cmake(door: Door) -> list[Fact]:
    """cmake's version is in a folder name; running cmake takes thirty times as long."""
    path = door.which("cmake")
    if path is None:
        return [Fact("compiler.cmake", None, "the path")]
    shared = f"{door.real(path).rpartition('/')[0].rpartition('/')[0]}/share"
    for name in reversed(glimpse(door.list, shared) or ()):
        if name.startswith("cmake-") and (version := digits(name[6:])):
            return [Fact("compiler.cmake", version, f"{shared}/{name}")]
    return [_tool(door, "compiler.cmake", path, "cmake")]


def _tool(door: Door, key: str, path: str | None, name: str) -> Fact:
    """Take the version from the wheel that installed it (its script starts a whole Python), else run it."""
    if path is None:
        return Fact(key, None, "the path")
    if glimpse(door.read, path, 2) == "#!" and (found := _wheel(door, path, name)):
        return Fact(key, found[0], found[1])
    ran = door.run([path, "--version"])
    words = [word for word in ran.out.split() if word[:1].isdigit()]
    version = digits(words[0]) if words else None
    return Fact(
        key, version, f"{path} --version", gap="" if version else ran.end or f"it ended with {ran.rc}"
    )


def _wheel(door: Door, path: str, name: str) -> tuple[str, str] | None:
    from gpuready.probe.packages import parsed

    library = f"{path.rpartition('/')[0].rpartition('/')[0]}/lib"
    for python in glimpse(door.list, library) or ():
        site = f"{library}/{python}/site-packages"
        for entry in (glimpse(door.list, site) or ()) if python.startswith("python3") else ():
            if entry.startswith(f"{name}-") and entry.endswith(".dist-info"):
                return parsed(entry)[1], f"{site}/{entry}"
    return None
