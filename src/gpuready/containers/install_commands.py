"""What commands of a container file install: pip, uv and conda pins, Pythons, and CUDA toolkits from apt.

Only an exact pin is a version. A package installed without one, behind a condition, or with an unknown word
is not stated, whatever was stated before.
"""

from __future__ import annotations

from gpuready.catalog.packages import canonical_package_name, split_requirement
from gpuready.containers.dockerfile import UNKNOWN
from gpuready.model import Record, versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuready.containers.shell_commands import ShellCommand

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
OTHER_TARGET_OPTIONS = ("-t", "--target", "--prefix", "--root", "--dry-run")
"""With one of these options nothing is installed where the program would find it."""

SYSTEM_MANAGERS = {"apt": "apt", "apt-get": "apt", "aptitude": "apt", "dnf": "dnf", "microdnf": "dnf", "yum": "yum",
                   "zypper": "zypper", "apk": "apk"}  # fmt: skip
"""Programs that install the distribution's packages, and the package manager of each."""

INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX",
                    "UV_INDEX", "UV_TORCH_BACKEND")  # fmt: skip


class PackagePin(Record):
    """One requested package: its exact version or None, and the torch build of its index."""

    name: str
    version: str | None
    build: str = ""  # cu128, cpu, rocm6.3; empty for the default index
    spec: str = ""
    sure: bool = True
    wheel: bool = False


class InstallEffects(Record):
    """What one command installs, and how it names the Python that it installs into."""

    pins: tuple[PackagePin, ...] = ()
    gone: tuple[str, ...] = ()
    python: str = ""  # the version of a Python that it installs; ``system`` for the distribution's own
    toolkit: str = ""
    files: tuple[str, ...] = ()
    build: str = ""  # torch build of the index used for the files
    installer: str = ""  # pip, uv, conda, venv (it makes an environment), system, toolchain (uv python install)
    program: str = ""  # the program that is run: pip3, python3.12, /opt/venv/bin/pip
    target: str = ""  # what it names: the folder of a new venv, --python of uv, -n or -p of conda
    system: bool = False  # --system of uv
    allowed: bool = False  # --break-system-packages
    inherits: bool = False  # --system-site-packages


def parse_install_command(command: ShellCommand, environment: Mapping[str, str]) -> InstallEffects:
    """Return what a command installs; empty if it installs nothing."""
    words = list(command.words)
    name = words[0].rpartition("/")[2].lower() if words else ""
    if (name.startswith("python") and words[1:3] in (["-m", "venv"], ["-m", "virtualenv"])) or name == "virtualenv":
        return _parse_venv_command(words, name) if command.sure else InstallEffects()
    if name.startswith("python") and words[1:3] == ["-m", "pip"]:
        return _parse_pip_command(words[3:], command.sure, environment).replace(program=words[0])
    if name.startswith("pip") and name[3:].replace(".", "").isdigit() | (name == "pip"):
        return _parse_pip_command(words[1:], command.sure, environment).replace(program=words[0])
    if name == "uv":
        return _parse_uv_command(words[1:], command.sure, environment)
    if name in ("conda", "mamba", "micromamba"):
        return _parse_conda_command(words[1:], command.sure)
    if name in SYSTEM_MANAGERS:
        return _parse_system_install(words[1:], command.sure)
    return InstallEffects()


def _parse_venv_command(words: list[str], name: str) -> InstallEffects:
    """Parse ``python3.12 -m venv /opt/venv`` and ``virtualenv -p python3.12 venv``."""
    own_program = words[0] if name.startswith("python") else "python3"
    rest = words[3:] if name.startswith("python") else words[1:]
    plain, options = _split_options(rest)
    inherits = any(option == "--system-site-packages" for option, _ in options)
    program = next((value for option, value in options if option in ("-p", "--python")), own_program)
    return InstallEffects(
        installer="venv", program=program, target=plain[-1] if plain else "", inherits=inherits, allowed=True
    )


PROJECT_OPTIONS = {
    "--frozen",
    "--locked",
    "--group",
    "--extra",
    "--package",
    "--all-groups",
    "--all-extras",
    "--no-dev",
}
"""Options of ``uv run`` that only a project has: it makes or updates the project's environment first."""


def _parse_uv_command(words: list[str], sure: bool, environment: Mapping[str, str]) -> InstallEffects:
    plain = [w for w in words if not w.startswith("-")]
    if plain[:1] == ["pip"]:
        rest = words[words.index("pip") + 1 :]
        effects = _parse_pip_command(rest, sure, environment)
        target, system = _find_option(rest, "-p", "--python"), "--system" in rest
        return effects.replace(installer=effects.installer and "uv", target=target, system=system)
    if plain[:1] == ["add"]:
        effects = _parse_pip_install(words[words.index("add") + 1 :], sure, environment)
        return effects.replace(installer="uv project")
    if sure and (plain[:1] == ["sync"] or (plain[:1] == ["run"] and not PROJECT_OPTIONS.isdisjoint(words))):
        return InstallEffects(installer="uv project")
    if plain[:1] == ["venv"] and sure:
        return _parse_uv_venv(words[words.index("venv") + 1 :])
    if plain[:1] == ["python"] and plain[1:2] in (["install"], ["pin"]) and sure and len(plain) == 3:
        return InstallEffects(installer="toolchain", python=_parse_python_release(plain[2]))
    return InstallEffects()


def _parse_uv_venv(words: list[str]) -> InstallEffects:
    plain, options = _split_options(words)
    asked = next((value for name, value in options if name in ("-p", "--python")), "")
    return InstallEffects(
        installer="venv",
        program="uv",
        python=_parse_python_release(asked),
        target=plain[-1] if plain else ".venv",
        inherits=any(name == "--system-site-packages" for name, _ in options),
    )


def _parse_pip_command(words: list[str], sure: bool, environment: Mapping[str, str]) -> InstallEffects:
    verb = next((w for w in words if not w.startswith("-")), "")
    rest = words[words.index(verb) + 1 :] if verb else []
    if verb == "uninstall":
        gone = tuple(_normalize_name(w) for w in rest if not w.startswith("-"))
        return InstallEffects(gone=gone, installer="pip", allowed=True)
    return _parse_pip_install(rest, sure, environment) if verb == "install" else InstallEffects()


def _parse_pip_install(words: list[str], sure: bool, environment: Mapping[str, str]) -> InstallEffects:
    plain, options = _split_options(words)
    if any(name in OTHER_TARGET_OPTIONS or name in ("-h", "--help") for name, _ in options):
        return InstallEffects()
    build = _torch_build_of_indexes(options, environment)
    upgrade = any(name in ("-U", "--upgrade", "--pre", "--force-reinstall") for name, _ in options)
    pins = [parse_requirement(word, build, sure) for word in plain]
    pins += [parse_requirement(value, build, sure) for name, value in options if name in ("-e", "--editable")]
    accepted = [p.replace(spec="<0") if upgrade and p.version is None and not p.spec else p for p in pins if p]
    files = [value for name, value in options if name in ("-r", "--requirement", "--requirements")]
    return InstallEffects(
        pins=tuple(accepted),
        files=tuple(files) if sure else (),
        build=build,
        installer="pip",
        allowed=not sure or _may_break_system(options, environment),
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
    tags = [tag for value in index_values for word in value.split() if (tag := _torch_build_of_address(word))]
    if any(UNKNOWN in value or value == "auto" for value in index_values):
        return UNKNOWN
    return tags[0] if tags else ""


def _torch_build_of_address(address: str) -> str:
    last = address.rstrip("/").rpartition("/")[2].rpartition("=")[2].lower()
    known = last == "cpu" or last.startswith("rocm") or (last[:2] == "cu" and last[2:].isdigit())
    return last + ("!" if "nightly" in address else "") if known else ""


def parse_requirement(word: str, build: str, sure: bool = True) -> PackagePin | None:
    """Parse ``torch==2.8.0``, ``name[extra]>=1``, a wheel address; None for a folder or an archive."""
    text = word.partition(";")[0].partition(" --")[0].strip()
    if UNKNOWN in text.partition("=")[0]:
        return None
    name, at, address = text.partition("@")
    if at and "://" not in name and ("://" in address or address.strip().endswith(".whl")):
        wheel_pin = _parse_wheel_address(address, sure)
        return wheel_pin or PackagePin(_normalize_name(name), None, spec="<0", sure=sure)
    if text.endswith(".whl") or ".whl#" in text:
        return _parse_wheel_address(text, sure)
    if "://" in text or text.startswith((".", "/", "$")) or "/" in text:
        return _parse_git_requirement(text, sure)
    return _parse_named_requirement(text, build, sure)


def _parse_named_requirement(text: str, build: str, sure: bool) -> PackagePin | None:
    name, spec = split_requirement(text)
    if spec.startswith("["):
        spec = spec.partition("]")[2].strip()
    spec = spec.strip("()").replace(" ", "")
    if not name.replace("-", "").isalnum() or not name.isascii():
        return None
    if UNKNOWN in spec:
        return PackagePin(name, None, UNKNOWN if build else "", "<0", sure)
    exact = spec.lstrip("=") if spec.startswith("==") and "," not in spec else ""
    version = exact if exact and versions.is_version(exact) else None
    return PackagePin(name, version, build, "" if version else spec, sure)


def _parse_wheel_address(address: str, sure: bool) -> PackagePin | None:
    """Parse name and version from a wheel's file name."""
    file = address.partition("#")[0].strip().rpartition("/")[2].replace("%2B", "+").replace("%2b", "+")
    parts = file.removesuffix(".whl").split("-")
    if len(parts) < 5 or UNKNOWN in file:
        return None
    version = parts[1].replace("_", "+") if "+" not in parts[1] and "_" in parts[1] else parts[1]
    return PackagePin(
        _normalize_name(parts[0]), version if versions.is_version(version) else None, "", "<0", sure, True
    )


def _parse_git_requirement(text: str, sure: bool) -> PackagePin | None:
    """Parse ``git+https://…/name.git@v1``: the name at best, never a version."""
    if not text.startswith("git+"):
        return None
    egg = text.partition("egg=")[2].partition("&")[0]
    name = egg or text.rpartition("/")[2].partition("@")[0].partition("#")[0].removesuffix(".git")
    return PackagePin(_normalize_name(name), None, "", "<0", sure) if name and UNKNOWN not in name else None


def _parse_conda_command(words: list[str], sure: bool) -> InstallEffects:
    verb = next((w for w in words if not w.startswith("-")), "")
    if verb not in ("install", "create", "update"):
        return InstallEffects()
    plain, _ = _split_options(words[words.index(verb) + 1 :])
    pins: list[PackagePin] = []
    for word in plain:
        name, _, version = word.rpartition("::")[2].replace("==", "=").partition("=")
        pins.append(
            PackagePin(_normalize_name(name), _parse_python_release(version.partition("=")[0]) or None, "", "<0", sure)
        )
    by_name = {pin.name: pin for pin in pins}
    python = by_name.pop("python", None)
    cuda = by_name.pop("pytorch-cuda", None)
    build = f"cuda{cuda.version}" if cuda and cuda.version else "conda"
    if "cpuonly" in by_name:
        build = "cpu"
    if torch := by_name.pop("pytorch", None):
        by_name["torch"] = torch.replace(name="torch", build=build)
    version = python.version if python and python.version and sure else ""
    named = _find_option(words, "-n", "--name", "-p", "--prefix")
    return InstallEffects(
        pins=tuple(by_name.values()),
        python=version or "",
        toolkit=_conda_toolkit(by_name) if sure else "",
        installer="conda new" if verb == "create" else "conda",
        target=named,
        allowed=True,
    )


def _conda_toolkit(pins: Mapping[str, PackagePin]) -> str:
    """Return the CUDA release of a toolkit from conda: ``cuda==11.8.0``, ``cuda-toolkit=12.4``."""
    pin = pins.get("cuda") or pins.get("cuda-toolkit") or pins.get("cuda-nvcc")
    return ".".join(pin.version.split(".")[:2]) if pin is not None and pin.version else ""


def _parse_system_install(words: list[str], sure: bool) -> InstallEffects:
    """Toolkits and Pythons from the distribution's packages."""
    if not {"install", "in", "add"} & set(words) or not sure:
        return InstallEffects()
    plain, _ = _split_options(words)
    names = [word.partition("=")[0] for word in plain]
    toolkit = [version for name in names if (version := _parse_toolkit_package(name))]
    exact = {version for name in names if (version := _parse_python_package(name))}
    own = (
        "system"
        if any(name.startswith(("python3-", "py3-", "py-")) or name in ("python3", "pip") for name in names)
        else ""
    )
    python = " ".join((own, *sorted(exact)[-1:])).strip()
    return InstallEffects(installer="system", python=python, toolkit=toolkit[-1] if toolkit else "")


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


def parse_requirements_file(text: str, build: str) -> tuple[list[PackagePin], list[str]]:
    """Return the pins of a requirements file, and the files that it includes."""
    pins: list[PackagePin] = []
    files: list[str] = []
    for raw in text.replace("\\\n", " ").splitlines()[:20_000]:
        line = raw.partition(" #")[0].strip()
        if line.startswith("-"):
            _, options = _split_options(line.replace("=", " ", 1).split())
            build = _torch_build_of_indexes(options, {}) or build
            files += [value for name, value in options if name in ("-r", "--requirement")]
        elif line and not line.startswith("#") and (pin := parse_requirement(line, build)):
            pins.append(pin.replace(sure=pin.sure and ";" not in line))
    return pins, files


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
