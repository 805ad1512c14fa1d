"""The contract that docs/how-to/add-a-framework.md shows: it passes the tests of a shipped one."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from gpuready.contracts import contract_file
from gpuready.model import Contract

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-framework.md"
NAME = "kite-1.2"


def read_guide_text() -> str:
    found = re.search(r"<!-- example: kite.toml -->\n```toml\n(.*?)```", GUIDE.read_text(), re.S)
    assert found is not None
    return found[1]


def load_guide_contract() -> Contract:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{NAME}.toml")
        path.write_text(read_guide_text())
        return Contract.from_json(contract_file.read_contract_data(str(path)))
