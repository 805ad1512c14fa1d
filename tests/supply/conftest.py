"""The release, built once for all tests of this folder."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Release(NamedTuple):
    epoch: str
    sources: Path
    tables: dict[str, bytes]
    hashes: dict[str, str]
    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def release(tmp_path_factory) -> Release:
    pytest.importorskip("hatchling")
    tool = load_tool("wheel_check")
    folder = tmp_path_factory.mktemp("release")
    sources = folder / "sources"
    sources.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    for name in ("src", "scripts", "tools", "docs"):
        shutil.copytree(ROOT / name, sources / name, ignore=tool.LEFT_OUT)
    shutil.copy(ROOT / ".gitignore", sources)
    made = (sources / "src").glob("gpuready/*/data/*.py")
    tables = {str(path.relative_to(sources / "src")): path.read_bytes() for path in made}
    for path in (sources / "src").glob("gpuready/*/data/[!_]*.py"):
        path.unlink()  # the build makes them
    epoch = tool.epoch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", epoch)
        patch.setenv("PYTHONHASHSEED", "2")  # another order of sets than where the tables that stand here were made
        hashes = tool.built(sources, folder / "a")
    out = folder / "a" / "out"
    return Release(epoch, sources, tables, hashes, next(out.glob("*.whl")), next(out.glob("*.tar.gz")))
