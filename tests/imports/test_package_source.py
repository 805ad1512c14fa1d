"""What the files of a release tell: variables, imports at the start of its commands, version gates."""

from __future__ import annotations

import io
import zipfile

import pytest

from gpuready import contracts
from gpuready.contracts.release_table import expand_release, pin_needs, start_needs
from gpuready.system.imports.package_source import find_version_gates, make_package_source, read_package_source
from gpuready.system.imports.start_imports import find_start_imports
from gpuready.system.imports.variable_uses import find_variable_uses

METADATA = """Metadata-Version: 2.1
Name: kite-ml
Version: 1.2.0
Requires-Python: >=3.10
Requires-Dist: torch>=2.6
Requires-Dist: windrose==0.3; platform_machine != "aarch64" and sys_platform != "darwin"
Requires-Dist: lamp>=1; extra == "light"

"""


def modules(**files: str):
    members = [(name.replace("__", "/") + ".py", text) for name, text in files.items()]
    return make_package_source(members, is_wheel=True).parse_modules()


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ('import os\nos.environ["KITE_A"]', {("KITE_A", "read", "", False)}),
        ('import os\nx = os.environ.get("KITE_A", "7")', {("KITE_A", "read", "7", False)}),
        ('from os import environ, getenv\ngetenv("KITE_A"); environ.pop("KITE_B", None)', {("KITE_A", "read", "", False), ("KITE_B", "read", "", False)}),
        ('import os\nos.environ["KITE_A"] = "1"', {("KITE_A", "set", "1", False)}),
        ('import os\nif "KITE_A" not in os.environ:\n    os.environ["KITE_A"] = "1"', {("KITE_A", "read", "", False), ("KITE_A", "set", "1", True)}),
        ('import os\nassert "KITE_A" not in os.environ.keys()', {("KITE_A", "read", "", False)}),
        ('import os\nos.environ.setdefault("KITE_A", "no")', {("KITE_A", "read", "", False), ("KITE_A", "set", "no", True)}),
        ('import os\ndef flag(name, default=0):\n    return int(os.environ.get(name, default))\nflag("KITE_A")', {("KITE_A", "read", "", False)}),
        ('NAME = "KITE_A"\nimport os\nos.environ[NAME] = str(3)', {("KITE_A", "set", "", False)}),
        ('import os\nenv = os.environ.copy()\nenv["KITE_A"] = "x"', {("KITE_A", "set", "x", False)}),
        ('import os\nos.environ.update({"KITE_A": "x"}, KITE_B="y")', {("KITE_A", "set", "x", False), ("KITE_B", "set", "y", False)}),
        ('import os\nfor k in ("a",):\n    os.environ[f"KITE_{k}"] = "1"', {("KITE_*", "set", "1", False)}),
        ('start(runtime_env={"env_vars": {"KITE_A": "0"}})', {("KITE_A", "set", "0", False)}),
        ('from accelerate.utils import parse_flag_from_env\nparse_flag_from_env("KITE_A", False)', {("KITE_A", "read", "", False)}),
        ('get_int_from_env(["KITE_A", "KITE_B"], 1)', {("KITE_A", "read", "", False), ("KITE_B", "read", "", False)}),
        ('{}.get("NOT_ONE"); d["NOT_ONE"] = 1; print("NOT_ONE")', set()),
    ],
)  # fmt: skip
def test_variables_in_all_their_forms(code, uses):
    found = find_variable_uses(modules(kite=code))
    assert {(use.name, use.access, use.value, use.keeps) for use in found} == uses


def test_a_command_imports_what_no_guard_stops():
    found = find_start_imports(
        modules(
            kite____init__="",
            kite__cli="import click\ndef train():\n    from kite.train import run\n    run()\ndef late():\n    if x:\n        import never",
            kite__train="import windrose.core\nfrom . import extra\nimport os\nif TYPE_CHECKING:\n    import typed",
            kite__extra="try:\n    import guarded\nexcept ImportError:\n    guarded = None\nif is_available():\n    import maybe",
            kite__other="import unseen",
        ),
        ["kite.cli"],
    )
    assert [(one.module, one.path, one.line) for one in found] == [
        ("click", "kite/cli.py", 1),
        ("windrose", "kite/train.py", 1),
    ]


@pytest.mark.parametrize(
    "code", ["from torch.utils.cpp_extension import CUDA_HOME", "from torch.utils import cpp_extension", "import torch.utils.cpp_extension as c"]
)  # fmt: skip
def test_what_a_module_of_torch_brings_in_is_needed_at_the_start(code):
    """colossalai's command imports torch.utils.cpp_extension: setuptools, for which torch asks from Python 3.12 on only."""
    found = find_start_imports(modules(kite__cli=f"\n{code}"), ["kite.cli"])
    assert [(one.module, one.line, one.through) for one in found] == [
        ("torch", 2, ""),
        ("setuptools", 2, "torch.utils.cpp_extension"),
    ]
    row = {"name": "kite", "version": "1", "requires": ["torch"], "starts": ["setuptools kite/cli.py:2 torch.utils.cpp_extension"]}  # fmt: skip
    assert [(need["key"], need["want"]) for need in start_needs(row)] == [("package.setuptools", "*")]
    assert start_needs(row | {"requires": ["torch", "setuptools>=60"]}) == []


def test_variables_that_are_fields_of_a_class():
    """As sglang and others declare them: a field looks up the variable of the name that it is bound to."""
    base = (
        "import os\nclass Field:\n    def __set_name__(self, owner, name):\n        self.name = name\n"
        "    def get(self):\n        return os.getenv(self.name)\nclass Whole(Field):\n    pass\n"
    )
    use = "from kite.fields import Whole\nclass Envs:\n    KITE_PORT = Whole(30000)\n    KITE_NAME: Whole = Whole(None)\n    OTHER_ONE = list()\n"
    found = find_variable_uses(modules(kite____init__="", kite__fields=base, kite__envs="import os\n" + use))
    assert {(one.name, one.access, one.value) for one in found} == {
        ("KITE_PORT", "read", "30000"),
        ("KITE_NAME", "read", ""),
    }


def test_version_gates():
    code = (
        'if version.parse(torch.__version__) < version.parse("2.6"):\n    raise ImportError("old")\n'
        'ok = is_torch_version(">=", "2.8.0") and is_transformers_greater_or_equal("5.1")\n'
        'require_version("datasets>=3.0")\nx = loss < 0.5\n'
    )
    found = {(g.package, g.specifier) for g in find_version_gates(modules(kite=code))}
    assert found == {("torch", "<2.6"), ("torch", ">=2.8.0"), ("transformers", ">=5.1"), ("datasets", ">=3.0")}


def test_a_wheel_is_read_and_what_it_imports_where_its_metadata_does_not_ask_is_required_there(tmp_path):
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("kite/__init__.py", "import windrose\n")
        archive.writestr("kite_ml-1.2.0.dist-info/METADATA", METADATA)
        archive.writestr("kite_ml-1.2.0.dist-info/entry_points.txt", "[console_scripts]\nkite = kite.cli:main\n")
    path = tmp_path / "kite_ml-1.2.0-py3-none-any.whl"
    path.write_bytes(body.getvalue())
    source = read_package_source(str(path))
    assert (source.name, source.version, source.commands) == ("kite-ml", "1.2.0", ("kite.cli",))
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
