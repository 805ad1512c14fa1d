"""The draft of a contract from the folder of a checkout, which has a pyproject.toml and no METADATA."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpuready.contracts import contract_file
from gpuready.model import Contract

TOOL = Path(__file__).parents[2] / "tools" / "draft_contract.py"
PROJECT = """
[project]
name = "Kite-ML"
version = "1.2.3"
requires-python = ">=3.10"
dependencies = ["torch>=2.8,<2.15", "numpy<2; platform_machine != 'aarch64'"]
[project.optional-dependencies]
fast = ["flash-attn>=2.7"]
"""


def draft(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(TOOL), str(folder), "-o", str(folder / "kite.toml"), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def test_a_checkout_is_read_from_its_project_table(tmp_path):
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "kite_ml").mkdir()
    (tmp_path / "kite_ml" / "__init__.py").write_text("import os\nLINE = os.environ.get('KITE_STRING', 'long')\n")
    made = draft(tmp_path)
    assert made.returncode == 0, made.stderr
    contract = Contract.from_json(contract_file.read_contract_data(str(tmp_path / "kite.toml")))
    assert (contract.framework, contract.version) == ("kite-ml", "1.2")
    wants = {need.key: (need.want, need.when) for need in contract.needs}
    assert wants["package.torch"] == (">=2.8,<2.15", "") and wants["python.version"] == (">=3.10", "")
    assert wants["package.numpy"] == ("<2", "arch!=aarch64")
    assert any("KITE_STRING" in row for row in contract.other_variables)


def test_what_a_build_works_out_is_asked_for(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "kite"\ndynamic = ["version"]\n')
    made = draft(tmp_path)
    assert made.returncode == 1 and made.stderr.strip().endswith("give --version")
    assert draft(tmp_path, "--version", "1.0").returncode == 0
