"""Is a release what it says? The sdist and the wheel are built twice and must be the same bytes; a bare venv takes the wheel.

``python tools/wheel_check.py [OUT] [-o FILE]`` needs hatchling here, and an index for the bare venv. OUT keeps the files and their
SHA256SUMS, FILE what was found: with what it was built, from which day's sources, the hashes, and what the installed wheel says.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv",
    "build",
    "dist",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "gpuready-logs",
)
BUILD = (
    "import sys; from hatchling import build as b; out = sys.argv[1];"
    " print(b.build_sdist(out)); print(b.build_wheel(out))"
)


def epoch() -> str:
    """The time that the files of a release carry: that of the last commit, unless the environment says another."""
    result = os.environ.get("SOURCE_DATE_EPOCH")
    if result:
        return result
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "1763164800"


def built(sources: Path, folder: Path, python: str = sys.executable) -> dict[str, str]:
    """Build both from a copy of the sources in a folder of its own; name -> sha256."""
    source, out = folder / "source", folder / "out"
    out.mkdir(parents=True)
    shutil.copytree(sources, source)
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch(), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("BUILD_EXT", None)
    subprocess.run([python, "-c", BUILD, str(out)], cwd=source, env=env, check=True, stdout=subprocess.DEVNULL)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


def inside(wheel: Path) -> list[str]:
    """What in a wheel should not be there: tests, caches, files that lead out of it."""
    names = zipfile.ZipFile(wheel).namelist()
    return [
        name
        for name in names
        if "__pycache__" in name or name.startswith(("/", "tests/", "benchmarks/")) or ".." in name.split("/")
    ]


def installed(wheel: Path, folder: Path) -> str:
    """Install into a bare venv, and what `gpuready check` says there."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(pip, check=True)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [str(folder / "bin" / "gpuready"), "check"], capture_output=True, text=True, env=env, cwd=folder
    )
    if done.returncode not in (0, 1, 3) or "Traceback" in done.stderr:
        raise SystemExit(f"gpuready check ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout.strip().splitlines()[0]


def toolchain() -> dict[str, str]:
    from importlib.metadata import version

    return {"python": platform.python_version(), "hatchling": version("hatchling"), "machine": platform.machine()}


def kept(out: Path, made: dict[str, str], to: str) -> None:
    """The files, with a list of their hashes as sha256sum reads it."""
    shutil.copytree(out, to, dirs_exist_ok=True)
    lines = [f"{digest}  {name}\n" for name, digest in sorted(made.items())]
    (Path(to) / "SHA256SUMS").write_text("".join(lines))


def main() -> None:
    words = sys.argv[1:]
    record = words[words.index("-o") + 1] if "-o" in words[:-1] else ""
    places = [word for word in words if word not in ("-o", record)]
    os.environ["SOURCE_DATE_EPOCH"] = epoch()  # of both builds, whoever commits meanwhile
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT, folder / "sources", ignore=LEFT_OUT)  # nobody edits them meanwhile
        first, second = built(folder / "sources", folder / "a"), built(folder / "sources", folder / "b")
        for file, digest in first.items():
            print(f"{digest}  {file}")
        if first != second:
            raise SystemExit(f"built twice, and not the same: {second}")
        wheel = next((folder / "a" / "out").glob("*.whl"))
        if unexpected := inside(wheel):
            raise SystemExit(f"in the wheel, and should not be: {unexpected[:5]}")
        print("built twice, the same bytes")
        said = installed(wheel, folder / "venv")
        print(f"in a bare venv: {said}")
        if places:
            kept(folder / "a" / "out", first, places[0])
    if record:
        about = {"date": date.today().isoformat(), "command": "make release-check", "source_date_epoch": epoch()}
        found = about | toolchain() | {"sha256": first, "built_twice_the_same": True, "in_a_bare_venv": said}
        Path(record).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
