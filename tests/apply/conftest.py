"""A bench to install on. It is in memory where it can be: what is tested is the order of writes, not the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.apply.wheels import Bench


@pytest.fixture
def bench():
    shm = "/dev/shm"
    where = (
        shm
        if os.path.isdir(shm) and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 1 << 30
        else None
    )
    folder = Path(tempfile.mkdtemp(prefix="tarmac-install-", dir=where))
    yield Bench(folder)
    shutil.rmtree(folder, ignore_errors=True)
