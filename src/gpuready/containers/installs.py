"""What a literal command of a container file installs: pip, uv and conda pins, Pythons and CUDA toolkits from apt.

Only an exact pin is a version. A package installed without one, or with an unknown word, is not stated, whatever was
stated before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gpuready.catalog.packages import canonical_package_name, split_requirement
from gpuready.containers.dockerfile import UNKNOWN
from gpuready.containers.run_lines import SYSTEM_MANAGERS, LiteralCommand
from gpuready.model import Record, versions

OPTIONS_WITH_VALUE = {
    "-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints", "-i", "--index-url",
    "--extra-index-url", "--index", "--default-index", "-f", "--find-links", "--torch-backend", "-t", "--target",
    "--prefix", "--root", "-p", "--python", "--python-version", "--platform", "--implementation", "--abi",
    "--only-binary", "--no-binary", "--progress-bar", "--cache-dir", "--timeout", "--retries", "--trusted-host",
    "--config-settings", "-C", "--global-option", "--install-option", "--upgrade-package", "-P", "--exclude-newer",
    "--index-strategy", "--keyring-provider", "--link-mode", "--no-build-isolation-package", "--overrides",
    "--override", "--extra", "--group", "--prerelease", "--resolution", "--src", "--report", "--proxy", "--cert",
    "-n", "--name", "--channel", "--file", "--cpus", "--jobs", "-j", "-o", "--option", "-e", "--editable",
}  # fmt: skip
INDEX_OPTIONS = ("-i", "--index-url", "--extra-index-url", "--index", "--default-index", "-f", "--find-links")
UPGRADED = "<0.dev0"
"""The range of a name that ``--upgrade`` takes anew: no release from before meets it."""
OTHER_TARGET_OPTIONS = ("-t", "--target", "--prefix", "--root", "--dry-run", "-h", "--help")
"""With one of these options nothing is installed where the program would find it."""

RULE_OPTIONS = {
    "--no-deps", "-c", "--constraint", "--constraints", "--override", "--overrides", "--pre", "--prerelease",
    "--resolution", "--exclude-newer",
}  # fmt: skip
"""With one of these options a resolver finds another set than by the requirements alone."""

INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX",
                    "UV_INDEX", "UV_TORCH_BACKEND")  # fmt: skip


class PackagePin(Record):
    """One requested package: its exact version or None, and the torch build of its index."""

    name: str
    version: str | None
    build: str = ""  # cu128, cpu, rocm6.3; empty for the default index
    spec: str = ""
    sure: bool = True  # False behind a marker, as in ``x==1; python_version < "3.9"``


class Install(Record):
    """What one command installs, and how it names the Python that it installs into."""

    installer: str  # pip, uv, conda, venv (it makes an environment), system
    pins: tuple[PackagePin, ...] = ()
    gone: tuple[str, ...] = ()
    python: str = ""  # the version of a Python that it installs; ``system`` for the distribution's own
    toolkit: str = ""
    files: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # of a requirements file: its requirements as written
    build: str = ""  # torch build of the index used for the files
    program: str = ""  # the program that is run: pip3, python3.12, /opt/venv/bin/pip
    target: str = ""  # what it names: the folder of a new venv, --python of uv
    is_literal: bool = True  # False if it also installs a folder, an archive or a repository
    system: bool = False  # --system of uv
    allowed: bool = False  # --break-system-packages
    inherits: bool = False  # --system-site-packages
    own_rules: bool = False  # --no-deps, --constraint and what else makes another set than its words


def parse_install(command: LiteralCommand, environment: Mapping[str, str]) -> Install | None:
    """Return what a command installs; None if it is no literal install."""
    words, name = list(command.words), command.program
    if any(UNKNOWN in word.partition("=")[0] for word in words):
        return None
    if name.startswith("python") and words[1:3] == ["-m", "venv"]:
        return _parse_venv(words[3:], words[0])
    if name.startswith("python") and words[1:3] == ["-m", "pip"]:
        return _parse_pip(words[3:], words[0], environment)
    if name == "pip" or (name.startswith("pip") and name[3:].replace(".", "").isdigit()):
        return _parse_pip(words[1:], words[0], environment)
    if name == "uv" and words[1:2] == ["pip"]:
        install = _parse_pip(words[2:], "uv", environment)
        target = _find_option(words, "-p", "--python") or environment.get("UV_PYTHON", "")
        return install and install.replace(installer="uv", target=target, system="--system" in words)
    if name == "uv" and words[1:2] == ["venv"]:
        return _parse_venv(words[2:], "uv")
    if name in ("conda", "mamba", "micromamba") and words[1:2] == ["install"]:
        return _parse_conda_install(words[2:])
    if name in SYSTEM_MANAGERS and {"install", "in", "add"} & set(words):
        return _parse_system_install(words[1:])
    return None


def _parse_venv(words: list[str], program: str) -> Install | None:
    """Parse ``python3.12 -m venv /opt/venv`` and ``uv venv --python 3.12``."""
    plain, options = _split_options(words)
    inherits = any(option == "--system-site-packages" for option, _ in options)
    python = _parse_python_release(_find_option(words, "-p", "--python")) if program == "uv" else ""
    target = plain[-1] if plain else ".venv" if program == "uv" else ""
    return Install("venv", program=program, python=python, target=target, inherits=inherits) if target else None


def _parse_pip(words: list[str], program: str, environment: Mapping[str, str]) -> Install | None:
    verb = next((word for word in words if not word.startswith("-")), "")
    rest = words[words.index(verb) + 1 :] if verb else []
    if verb == "uninstall":
        gone = tuple(_normalize_name(word) for word in rest if not word.startswith("-"))
        return Install("pip", gone=gone, program=program, allowed=True)
    return _parse_pip_install(rest, program, environment) if verb == "install" else None


def _parse_pip_install(words: list[str], program: str, environment: Mapping[str, str]) -> Install | None:
    plain, options = _split_options(words)
    if any(name in OTHER_TARGET_OPTIONS for name, _ in options):
        return None
    build = _torch_build_of_indexes(options, environment)
    upgrade = any(name in ("-U", "--upgrade", "--pre", "--force-reinstall") for name, _ in options)
    asked = [*plain, *(value for name, value in options if name in ("-e", "--editable"))]
    pins = [pin for word in asked if (pin := parse_requirement(word, build))]
    return Install(
        "pip",
        pins=tuple(p.replace(spec=UPGRADED) if upgrade and p.version is None and not p.spec else p for p in pins),
        files=tuple(value for name, value in options if name in ("-r", "--requirement", "--requirements")),
        build=build,
        program=program,
        is_literal=len(pins) == len(asked) or any(name == "--no-deps" for name, _ in options),
        allowed=_may_break_system(options, environment),
        own_rules=any(name in RULE_OPTIONS for name, _ in options),
    )


def _may_break_system(options: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> bool:
    """Return whether an install may write into a Python that its distribution manages (PEP 668)."""
    variables = ("PIP_BREAK_SYSTEM_PACKAGES", "UV_BREAK_SYSTEM_PACKAGES")
    return any(name == "--break-system-packages" for name, _ in options) or any(
        environment.get(name, "0").lower() not in ("", "0", "false", "no") for name in variables
    )


def _split_options(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Split words into arguments and options with values."""
    plain: list[str] = []
    options: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if not word.startswith("-"):
            plain.append(word)
        elif "=" in word and word.startswith("--"):
            options.append(word.partition("=")[::2])
        elif word in OPTIONS_WITH_VALUE and at < len(words):
            options.append((word, words[at]))
            at += 1
        elif word[:2] in ("-r", "-i", "-f", "-c", "-t", "-e") and len(word) > 2 and word[1] != "-":
            options.append((word[:2], word[2:]))
        else:
            options.append((word, ""))
    return plain, options


def _torch_build_of_indexes(options: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> str:
    """The torch build of the indexes, by the last part of their address: cu128, cpu, rocm6.3."""
    index_values = [value for name, value in options if name in INDEX_OPTIONS or name == "--torch-backend"]
    index_values = index_values or [environment[name] for name in INDEX_VARIABLES if name in environment]
    tags = [tag for value in index_values for word in value.split() if (tag := torch_build_of_address(word))]
    if any(UNKNOWN in value or value == "auto" for value in index_values):
        return UNKNOWN
    return tags[0] if tags else ""


def torch_build_of_address(address: str) -> str:
    last = address.rstrip("/").rpartition("/")[2].rpartition("=")[2].lower()
    known = last == "cpu" or last.startswith("rocm") or (last[:2] == "cu" and last[2:].isdigit())
    return last + ("!" if "nightly" in address else "") if known else ""


def parse_requirement(word: str, build: str) -> PackagePin | None:
    """Parse ``torch==2.8.0``, ``name[extra]>=1``, a wheel's address; None for a folder, an archive or a repository."""
    text = word.partition(";")[0].partition(" --")[0].strip()
    name, at, address = text.partition("@")
    if at and "://" not in name:
        text = address.strip()
    if text.partition("#")[0].endswith(".whl"):
        return _parse_wheel_address(text)
    if "/" in text or text.startswith(".") or UNKNOWN in text.partition("=")[0]:
        return None
    return _parse_named_requirement(text, build)


def _parse_named_requirement(text: str, build: str) -> PackagePin | None:
    name, spec = split_requirement(text)
    if spec.startswith("["):
        spec = spec.partition("]")[2].strip()
    spec = spec.strip("()").replace(" ", "")
    if not name.replace("-", "").isalnum() or not name.isascii():
        return None
    if UNKNOWN in spec:
        return PackagePin(name, None, UNKNOWN if build else "", "<0")
    exact = spec.lstrip("=") if spec.startswith("==") and "," not in spec else ""
    version = exact if exact and versions.is_version(exact) else None
    return PackagePin(name, version, build, "" if version else spec)


def _parse_wheel_address(address: str) -> PackagePin | None:
    """Parse name and version from a wheel's file name."""
    file = address.partition("#")[0].strip().rpartition("/")[2].replace("%2B", "+").replace("%2b", "+")
    parts = file.removesuffix(".whl").split("-")
    if len(parts) < 5 or UNKNOWN in file:
        return None
    version = parts[1].replace("_", "+") if "+" not in parts[1] and "_" in parts[1] else parts[1]
    return PackagePin(_normalize_name(parts[0]), version if versions.is_version(version) else None, "", "<0")


def _parse_conda_install(words: list[str]) -> Install | None:
    """Parse ``conda install python=3.10 pytorch==2.5.1 pytorch-cuda=12.4``; None if it names an environment or a file."""
    plain, options = _split_options(words)
    if any(name in ("-n", "--name", "-p", "--prefix", "--file") for name, _ in options):
        return None
    return parse_conda_words(plain)


def parse_conda_words(words: Sequence[str]) -> Install:
    """Parse ``python=3.10``, ``pytorch==2.5.1``, ``pytorch-cuda=12.4``."""
    by_name: dict[str, PackagePin] = {}
    for word in words:
        name, _, version = word.rpartition("::")[2].replace("==", "=").partition("=")
        release = _parse_python_release(version.partition("=")[0]) or None
        by_name[_normalize_name(name)] = PackagePin(_normalize_name(name), release, "", "<0")
    python, cuda = by_name.pop("python", None), by_name.pop("pytorch-cuda", None) or by_name.get("cudatoolkit")
    named = next((_build_of_string(word) for word in words if "pytorch=" in word), "")
    build = "cpu" if "cpuonly" in by_name else f"cuda{cuda.version}" if cuda and cuda.version else named or "conda"
    if torch := by_name.pop("pytorch", None):
        by_name["torch"] = torch.replace(name="torch", build=build)
    release = python.version if python else None
    return Install(
        "conda", tuple(by_name.values()), python=release or "", toolkit=_conda_toolkit(by_name), allowed=True
    )


def _build_of_string(version: str) -> str:
    """``2.5.1=py3.11_cuda12.4_cudnn9.1.0_0`` -> cuda12.4, ``2.5.1=cuda126_py311`` -> cuda12.6, ``2.5.1=cpu_mkl`` -> cpu."""
    named = re.search(r"=[^=]*cuda(\d\d)\.?(\d)", version)
    return f"cuda{named[1]}.{named[2]}" if named else "cpu" if re.search(r"=(?:[^=]*_)?cpu", version) else ""


def _conda_toolkit(pins: Mapping[str, PackagePin]) -> str:
    """Return the CUDA release of a toolkit from conda: ``cuda==11.8.0``, ``cuda-toolkit=12.4``."""
    pin = pins.get("cuda") or pins.get("cuda-toolkit") or pins.get("cuda-nvcc")
    return ".".join(pin.version.split(".")[:2]) if pin is not None and pin.version else ""


def _parse_system_install(words: list[str]) -> Install:
    """Toolkits and Pythons from the distribution's packages."""
    names = [word.partition("=")[0] for word in _split_options(words)[0]]
    toolkits = [version for name in names if (version := _parse_toolkit_package(name))]
    exact = {version for name in names if (version := _parse_python_package(name))}
    own = any(name.startswith(("python3-", "py3-", "py-")) or name in ("python3", "pip") for name in names)
    return Install(
        "system", python="system" if own else max(exact, default=""), toolkit=toolkits[-1] if toolkits else ""
    )


def _parse_python_package(package: str) -> str:
    """Map ``python3.12-venv``, ``python3.12`` and Red Hat's ``python39`` to 3.12 and 3.9; empty if it is none."""
    name = package.partition("-")[0].removeprefix("python")
    if name == package.partition("-")[0]:
        return ""
    if name[:1] == "3" and len(name) > 1 and name.isdigit():
        name = f"3.{name[1:]}"
    return name if name.startswith("3.") and versions.parse_plain_release(name) is not None else ""


def _parse_toolkit_package(package: str) -> str:
    """Map ``cuda-toolkit-12-8``, ``cuda-nvcc-12-8``, ``cuda-12-8`` to 12.8."""
    for prefix in ("cuda-toolkit-", "cuda-nvcc-", "cuda-compiler-", "cuda-"):
        numbers = package.removeprefix(prefix)
        if package.startswith(prefix) and numbers.replace("-", "").isdigit() and numbers.count("-") == 1:
            return numbers.replace("-", ".")
    return ""


def parse_requirements_file(text: str, build: str) -> Install:
    """Return the pins of a requirements file, and the files that it includes."""
    pins: list[PackagePin] = []
    files: list[str] = []
    words: list[str] = []
    is_literal = True
    for raw in text.replace("\\\n", " ").splitlines()[:20_000]:
        line = raw.partition(" #")[0].strip()
        if line.startswith("-"):
            _, options = _split_options(line.replace("=", " ", 1).split())
            build = _torch_build_of_indexes(options, {}) or build
            files += [value for name, value in options if name in ("-r", "--requirement")]
            is_literal = is_literal and not any(name in ("-e", "--editable") for name, _ in options)
        elif line and not line.startswith("#"):
            pin = parse_requirement(line, build)
            pins += [pin.replace(sure=";" not in line)] if pin else []
            words += [line.partition(" --")[0]] if pin and "@" not in line and "/" not in line else []
            is_literal = is_literal and pin is not None
    return Install("pip", tuple(pins), files=tuple(files), words=tuple(words), build=build, is_literal=is_literal)


def _find_option(words: list[str], *names: str) -> str:
    return next((value for name, value in _split_options(words)[1] if name in names), "")


def _parse_python_release(text: str) -> str:
    """Parse ``cpython-3.12`` and ``python3.12`` as 3.12; empty if it is not a version."""
    last = text.rpartition("/")[2].lower().removeprefix("cpython").removeprefix("python").lstrip("-=@")
    return last if versions.parse_plain_release(last) is not None else ""


def _normalize_name(name: str) -> str:
    return canonical_package_name(name.strip().partition("[")[0])


def record_pin(packages: dict[str, tuple[PackagePin, int]], pin: PackagePin, line: int) -> None:
    """Record a pin: the new version, the previous one if the install keeps it, or none."""
    previous = packages.get(pin.name, (pin, 0))[0].version
    if (
        pin.sure
        and pin.version is None
        and previous is not None
        and (not pin.spec or _version_satisfies(previous, pin.spec))
    ):
        return
    packages[pin.name] = (pin if pin.sure else pin.replace(version=None), line)


def _version_satisfies(version: str, spec: str) -> bool:
    try:
        return versions.satisfies_specifier(version, spec)
    except ValueError:
        return False
