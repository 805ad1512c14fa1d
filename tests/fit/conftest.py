"""The files that a user of ``gpuready fit`` has."""

from __future__ import annotations

import json

import pytest

from tests.fit.asking import AXOLOTL, SMALL


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SMALL))
    (tmp_path / "axolotl.yml").write_text(AXOLOTL)
    return tmp_path
