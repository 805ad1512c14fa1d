"""What the tests of the launcher share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launcher.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
