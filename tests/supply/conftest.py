"""The release, built once for all tests of this folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
EPOCH = os.environ.get("SOURCE_DATE_EPOCH", "1763164800")
BUILD = "import sys; from hatchling import build as b; b.build_sdist(sys.argv[1]); b.build_wheel(sys.argv[1])"


def build_release(sources: Path, folder: Path) -> dict[str, str]:
    """Build both from a copy of the sources in a folder of its own; name -> sha256."""
    source, out = folder / "source", folder / "out"
    out.mkdir(parents=True)
    shutil.copytree(sources, source)
    env = {name: value for name, value in os.environ.items() if name != "BUILD_EXT"}
    env |= {"SOURCE_DATE_EPOCH": EPOCH, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=source, env=env, check=True, stdout=subprocess.DEVNULL)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


class Release(NamedTuple):
    sources: Path
    tables: dict[str, bytes]
    hashes: dict[str, str]
    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def release(tmp_path_factory) -> Release:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("release")
    sources = folder / "sources"
    sources.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    for name in ("src", "scripts", "tools", "docs"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".gitignore", sources)
    made = (sources / "src").glob("gpuready/*/data/*.py")
    tables = {str(path.relative_to(sources / "src")): path.read_bytes() for path in made}
    for path in (sources / "src").glob("gpuready/*/data/[!_]*.py"):
        path.unlink()  # the build makes them
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "2")  # another order of sets than where the tables that stand here were made
        hashes = build_release(sources, folder / "a")
    out = folder / "a" / "out"
    return Release(sources, tables, hashes, next(out.glob("*.whl")), next(out.glob("*.tar.gz")))
