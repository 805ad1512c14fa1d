"""A bench to install on. It is in memory where it can be: what is tested is the order of writes, not the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuready.system import LiveHost
from tests.apply.asking import _places
from tests.apply.local_index import Index
from tests.apply.wheels import Bench


@contextmanager
def made_bench() -> Iterator[Path]:
    """A folder for a bench, in memory where there is room."""
    shm = "/dev/shm"
    where = shm if os.path.isdir(shm) and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 1 << 30 else None
    folder = Path(tempfile.mkdtemp(prefix="gpuready-install-", dir=where))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def bench():
    with made_bench() as folder:
        yield Bench(folder)


@pytest.fixture(scope="session")
def first_install():
    """Version 1.0, installed once by the command."""
    with made_bench() as folder:
        ran = Bench(folder).install("1.0")
        assert ran.code == 0, ran.out + ran.err
        yield folder


@pytest.fixture
def standing(first_install):
    """A bench on which version 1.0 stands: a copy of the first install and of its cache."""
    with made_bench() as folder:
        shutil.copytree(first_install, folder, symlinks=True, dirs_exist_ok=True)
        yield Bench(folder)


@pytest.fixture
def index(tmp_path):
    made = Index(tmp_path / "index")
    yield made
    made.close()


@pytest.fixture
def world(tmp_path, index, monkeypatch):
    """A door to a machine whose only indexes are local, and whose torch index cu126 is one of them."""
    kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    environ = kept | {
        "HOME": str(tmp_path / "home"),
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
        "UV_DEFAULT_INDEX": index.url("main"),
        "UV_HTTP_RETRIES": "0",
        "TMPDIR": str(tmp_path),
        "PIP_CONFIG_FILE": "/dev/null",
    }
    (tmp_path / "home").mkdir()
    _places(monkeypatch, cu126=index.url("cu126"), **{"vllm-nightly-cu130": index.url("nightly")})
    index.add("sparrow", "1.2.3", ["torch>=2", "filelock"])
    index.add("filelock", "4.0")
    index.add("torch", "2.13.0")
    index.add("torch", "99.0", files={"torch/__init__.py": "raise SystemExit('stolen')"})
    index.add("torch", "2.13.0+cu126", ["triton==3.7"], on="cu126")
    index.add("filelock", "66.0", on="cu126")
    index.add("triton", "3.7")
    return LiveHost(environ=environ)
