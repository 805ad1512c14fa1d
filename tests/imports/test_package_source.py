"""What the files of a release tell: variables, and imports at the start of its commands."""

from __future__ import annotations

import io
import zipfile

import pytest

from gpuready import contracts
from gpuready.contracts.release_table import expand_release, pin_needs, start_needs
from gpuready.system.imports.package_source import list_variable_uses, read_package_source

METADATA = """Metadata-Version: 2.1
Name: kite-ml
Version: 1.2.0
Requires-Python: >=3.10
Requires-Dist: torch>=2.6
Requires-Dist: windrose==0.3; platform_machine != "aarch64" and sys_platform != "darwin"
Requires-Dist: lamp>=1; extra == "light"

"""


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ('import os\nos.environ["KITE_A"]', ["KITE_A read kite.py:2"]),
        ('import os\nx = os.environ.get("KITE_A", "7")', ["KITE_A read kite.py:2"]),
        ('from os import environ, getenv\ngetenv("KITE_A"); environ.pop("KITE_B", None)', ["KITE_A read kite.py:2", "KITE_B read kite.py:2"]),
        ('import os\nos.environ["KITE_A"] = "1"', ["KITE_A set kite.py:2"]),
        ('import os\nif "KITE_A" not in os.environ:\n    os.environ["KITE_A"] = "1"', ["KITE_A read,set kite.py:3"]),
        ('import os\nassert os.environ["KITE_A"] == "1"', ["KITE_A read kite.py:2"]),
        ('import os\nos.environ.setdefault(\n    "KITE_A", "no")', ["KITE_A read,set-if-unset kite.py:2 no"]),
        ('{}.get("NOT_ONE"); d["NOT_ONE"] = 1; print("NOT_ONE")', []),
    ],
)  # fmt: skip
def test_variables_in_all_their_forms(code, uses):
    assert list_variable_uses({"kite.py": code}) == uses


def test_a_wheel_is_read_and_what_it_imports_where_its_metadata_does_not_ask_is_required_there(tmp_path):
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("kite/__init__.py", "import windrose\n")
        archive.writestr("kite_ml-1.2.0.dist-info/METADATA", METADATA)
        path = tmp_path / "kite_ml-1.2.0-py3-none-any.whl"
    path.write_bytes(body.getvalue())
    source = read_package_source(str(path))
    assert (source.name, source.version) == ("kite-ml", "1.2.0")
    row = {"name": "kite-ml", "version": "1.2.0", "python": source.requires_python, "requires": source.requires_dist}
    row |= {"starts": ["windrose kite/__init__.py:1"]}
    assert [(n["key"], n["want"], n.get("when", "")) for n in pin_needs(row)] == [
        ("python.version", ">=3.10", ""),
        ("package.torch", ">=2.6", ""),
        ("package.windrose", "==0.3", "os.system!=darwin,arch!=aarch64"),
        ("package.lamp", ">=1", "wants=light"),
    ]
    assert [(n["key"], n["want"], n["when"]) for n in start_needs(row)] == [
        ("package.windrose", "==0.3", "os.system!=darwin,arch=aarch64")
    ]


def test_a_value_that_the_code_chooses_is_marked():
    row = {"name": "kite", "version": "1.2.0", "requires": [], "python": "", "starts": [], "gates": []}
    row["variables"] = [
        "KITE_ALLOC read,set-if-unset kite/a.py:3 *",
        "KITE_MODE read,set-if-unset kite/a.py:9 fast",
        "KITE_X read kite/a.py:1",
    ]
    own = [
        {"name": "KITE_ALLOC", "access": "read and set", "value": "a"},
        {"name": "KITE_MODE", "access": "read and set", "value": "fast"},
    ]
    made = expand_release(
        {"variables": own, "version": "1.1"}, row | {"line": "1.2", "origin": "a wheel"}, is_own=False
    )
    assert [one.get("traits", []) for one in made["variables"]] == [["own-default"], []]
    assert made["other_variables"] == ["KITE_X read kite/a.py:1"]


def test_contracts_of_releases_are_there():
    names = {(row["framework"], row["version"]) for row in contracts.list_contract_rows()}
    assert {("axolotl", f"0.{minor}") for minor in range(14, 22)} <= names
    assert {("colossalai", f"0.4.{patch}") for patch in range(3, 10)} <= names
    assert {("transformers", f"5.{minor}") for minor in range(15, 23)} <= names
    assert {("roll", version) for version in ("0.1.0", "0.1.1", "0.1.3", "0.2.0", "0.2.1", "0.3.0")} <= names


def test_axolotl_is_known_to_import_torchao_where_its_metadata_does_not_ask_for_it():
    needs = contracts.load_contract("axolotl", "0.18").requirements_for("package.torchao")
    assert "os.system!=darwin,arch=aarch64" in [need.when for need in needs]
