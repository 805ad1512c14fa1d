"""The compilers and build tools on PATH; CC and CXX take precedence.

Most programs contain their version as a string: reading it costs a tenth of starting them.
"""

from gpuready.model import Fact
from gpuready.model.metadata import split_metadata_name
from gpuready.probe.fact_helpers import gap_facts, leading_version, read_if_present
from gpuready.system import AccessError, HostAccess

KEYS = ("compiler.gcc", "compiler.gxx", "compiler.ninja", "compiler.cmake")
COMPILER_WRAPPERS = ("ccache", "sccache", "distcc", "env")


def probe_compilers(host: HostAccess) -> list[Fact]:
    """Return the gcc, g++, ninja and cmake that a build would use."""
    facts: list[Fact] = []
    for key, probe_tool in (
        ("compiler.gcc", _gcc_facts),
        ("compiler.ninja", _ninja_facts),
        ("compiler.cmake", _cmake_facts),
    ):
        try:
            facts += probe_tool(host)
        except AccessError as error:
            facts += gap_facts((key,), str(error), key.partition(".")[2])
    return facts


def _gcc_facts(host: HostAccess) -> list[Fact]:
    """gcc and g++; if both come from one package, gcc is asked for both."""
    gcc, gcc_source = _choose_compiler(host, "CC", "gcc", "cc")
    gxx, gxx_source = _choose_compiler(host, "CXX", "g++", "c++")
    gcc_fact = _compiler_fact(host, "compiler.gcc", gcc, gcc_source)
    if gcc and gxx and _gcc_path_of(host.resolve_path(gcc)) == _gcc_path_of(host.resolve_path(gxx)):
        return [gcc_fact, gcc_fact.replace(key="compiler.gxx", source=f"{gxx}, of one package with {gcc}")]
    return [gcc_fact, _compiler_fact(host, "compiler.gxx", gxx, gxx_source)]


def _choose_compiler(host: HostAccess, variable: str, *names: str) -> tuple[str | None, str]:
    """Return the compiler named by a variable, else the first on PATH, and where it came from."""
    words = [word for word in (host.get_env_var(variable) or "").split() if word not in COMPILER_WRAPPERS]
    if words and "clang" not in words[0].rpartition("/")[2]:
        return host.find_program(words[0]), f"{variable}={words[0]}"
    return next((path for name in names if (path := host.find_program(name))), None), "the path"


def _gcc_path_of(path: str) -> str:
    """Map ``/usr/bin/x86_64-linux-gnu-g++-12`` to ``…-gcc-12``: equal paths are one package."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.replace('g++', 'gcc').replace('c++', 'cc')}"


def _compiler_fact(host: HostAccess, key: str, path: str | None, chosen_by: str) -> Fact:
    if path is None:
        return Fact(key, None, chosen_by)
    real = host.resolve_path(path)
    major = real.rpartition("-")[2]
    if major.isdecimal() and (version := _find_version_string(host, real, f"{major}.")):
        return Fact(key, version, f"the version string in {real}")
    # Old releases know only -dumpversion; new ones answer it with the major version alone.
    ran = host.run([path, "-dumpfullversion", "-dumpversion"])
    version = leading_version(ran.out.strip())
    source = f"{path} -dumpfullversion"
    return Fact(key, version, source, gap="" if version else ran.end or f"it ended with {ran.rc}")


def _find_version_string(host: HostAccess, path: str, start: str) -> str | None:
    """Return the only string in a program that is a version of this series, else None."""
    texts = read_if_present(host.find_elf_strings, path, ".rodata", (start,)) or ()
    versions = {text for text in texts if text.startswith(start) and leading_version(text) == text}
    return versions.pop() if len(versions) == 1 else None


def _ninja_facts(host: HostAccess) -> list[Fact]:
    path = host.find_program("ninja") or host.find_program("ninja-build")
    if path and (version := _find_version_string(host, path, "1.")):
        return [Fact("compiler.ninja", version, f"the version string in {path}")]
    return [_build_tool_fact(host, "compiler.ninja", path, "ninja")]


def _cmake_facts(host: HostAccess) -> list[Fact]:
    """cmake's version is in a folder name; running cmake takes thirty times as long."""
    path = host.find_program("cmake")
    if path is None:
        return [Fact("compiler.cmake", None, "the path")]
    shared = f"{host.resolve_path(path).rpartition('/')[0].rpartition('/')[0]}/share"
    for name in reversed(read_if_present(host.list_directory, shared) or ()):
        if name.startswith("cmake-") and (version := leading_version(name[6:])):
            return [Fact("compiler.cmake", version, f"{shared}/{name}")]
    return [_build_tool_fact(host, "compiler.cmake", path, "cmake")]


def _build_tool_fact(host: HostAccess, key: str, path: str | None, name: str) -> Fact:
    """Take the version from the wheel that installed it, else run it where that is allowed."""
    if path is None:
        return Fact(key, None, "the path")
    if wheel := _find_wheel_version(host, path, name):
        return Fact(key, wheel[0], wheel[1])
    ran = host.run([path, "--version"])
    words = [word for word in ran.out.split() if word[:1].isdigit()]
    version = leading_version(words[0]) if words else None
    return Fact(key, version, f"{path} --version", gap="" if version else ran.end or f"it ended with {ran.rc}")


def _find_wheel_version(host: HostAccess, path: str, name: str) -> tuple[str, str] | None:
    library = f"{path.rpartition('/')[0].rpartition('/')[0]}/lib"
    for python in read_if_present(host.list_directory, library) or ():
        site = f"{library}/{python}/site-packages"
        for entry in (read_if_present(host.list_directory, site) or ()) if python.startswith("python3") else ():
            if entry.startswith(f"{name}-") and entry.endswith(".dist-info"):
                return split_metadata_name(entry)[1], f"{site}/{entry}"
    return None
