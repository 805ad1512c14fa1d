"""The files that a user of ``gpuready fit`` has."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gpuready.fit import FitJob
from tests.fit.asking import AXOLOTL, SMALL
from tests.fit.kites import KITE, REFUSED_KITES, play


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SMALL))
    (tmp_path / "axolotl.yml").write_text(AXOLOTL)
    return tmp_path


@pytest.fixture(scope="session")
def kites(tmp_path_factory) -> dict[str, dict]:
    folder = tmp_path_factory.mktemp("kites")
    shutil.copy(Path(__file__).with_name("small_transformers.py"), folder / "transformers.py")
    asked = {"kite": FitJob(KITE, seq=64), "autocast": FitJob(KITE, seq=64, precision="amp-bf16", accumulation=2)}
    asked["dropped"] = FitJob(KITE | {"layerdrop": 1.0}, seq=64)
    asked |= {name: FitJob(KITE | fields, seq=64) for name, (fields, _) in REFUSED_KITES.items()}
    return play("", folder, asked)
