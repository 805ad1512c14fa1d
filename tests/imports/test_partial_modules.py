"""Circles of imports, extension modules that a package hides, zip files on sys.path: each against a real import."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import zipfile

import pytest

from gpuready import rules
from gpuready.model import Contract, Fact, Facts, Requirement
from gpuready.model.import_rows import METADATA_GONE
from gpuready.system.imports.libraries import Library, Loader
from gpuready.system.imports.search_path import SearchPath
from tests.imports.breakages import OTHER_MACHINE
from tests.imports.test_followed_statements import EMPTIED, WING, lay_out, really_import, survey

CIRCLES = {
    "a name that is bound later": ("import kite.wing\nLATE = 1\n", "from kite.train import LATE\n"),
    "a class that is defined later": ("from kite.wing import span\nclass Late:\n    pass\n", "from kite.train import Late\n"),
    "a name that is bound before": ("EARLY = 1\nimport kite.wing\n", "from kite.train import EARLY\n"),
    "a name that is imported before": ("from os import sep\nimport kite.wing\n", "from kite.train import sep\n"),
    "a name of a branch": ("if True:\n    EARLY = 1\nimport kite.wing\n", "from kite.train import EARLY\n"),
    "a name that is caught": (
        "import kite.wing\nLATE = 1\n",
        "try:\n    from kite.train import LATE\nexcept ImportError:\n    LATE = 0\n",
    ),
    "a name that code makes": ("globals()['MADE'] = 1\nimport kite.wing\n", "from kite.train import MADE\n"),
    "a name on demand": ("def __getattr__(name):\n    return 1\nimport kite.wing\n", "from kite.train import LATE\n"),
    "a name that every module has": ("import kite.wing\n", "from kite.train import __file__\n"),
    "a name that a function makes": ("def go():\n    global MADE\n    MADE = 1\ngo()\nimport kite.wing\n", "from kite.train import MADE\n"),
    "a name of a table": ("vars()['MADE'] = 1\nimport kite.wing\n", "from kite.train import MADE\n"),
    "a name of a case": ("match 1:\n    case _:\n        class Early: pass\nimport kite.wing\n", "from kite.train import Early\n"),
    "a name of the same line": ("EARLY = 1; import kite.wing\n", "from kite.train import EARLY\n"),
    "the module itself": ("import kite.wing\nLATE = 1\n", "import kite.train\nfrom kite import tail\n"),
    "a function that asks later": ("import kite.wing\nLATE = 1\n", "def go():\n    from kite.train import LATE\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", CIRCLES)
def test_a_circle_of_imports_fails_where_it_asks_too_early(tmp_path, name):
    train, wing = CIRCLES[name]
    lay_out(tmp_path, EMPTIED, train)
    (tmp_path / "kite/wing.py").write_text(wing + WING)
    outcome, real = survey(tmp_path)["outcome"]["kite"], really_import(tmp_path)
    assert "gap" not in outcome, outcome
    assert outcome["error"].partition(" (most")[0] == real.partition(" (most")[0], (outcome, real)


@pytest.mark.parametrize("has_package", [False, True])
def test_a_package_that_nobody_recorded_hides_an_extension_module(tmp_path, has_package):
    import _json

    lay_out(tmp_path, EMPTIED, "from kite._json import scanstring\n")
    (tmp_path / "kite/wing.py").write_text(WING)
    file = shutil.copy(_json.__file__, tmp_path / "kite")
    with (tmp_path / "kite-1.0.dist-info/RECORD").open("a") as record:
        record.write(f"kite/{file.rpartition('/')[2]},,\n")
    if has_package:
        (tmp_path / "kite/_json").mkdir()
        (tmp_path / "kite/_json/__init__.py").touch()
    found, real = survey(tmp_path), really_import(tmp_path)
    assert [row["module"] for row in found["hidden"]] == ["kite._json"] * has_package
    assert found["outcome"]["kite"]["error"].partition(" (")[0] == real.partition(" (")[0]


def test_a_zip_file_on_the_path_has_modules_and_distributions(tmp_path):
    lay_out(tmp_path, EMPTIED, "import sail.rope\n")
    (tmp_path / "kite/wing.py").write_text(WING)
    metadata = tmp_path / "kite-1.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text().rstrip() + "\nRequires-Dist: sail>=2\n")
    absent = survey(tmp_path)
    assert [row["kind"] for row in absent["rows"]] == ["absent", "start"]
    with zipfile.ZipFile(tmp_path / "sail-2.1-py3.egg", "w") as archive:
        for name in ("sail/__init__.py", "sail/rope.py", "EGG-INFO/PKG-INFO"):
            archive.writestr(name, "")
    (tmp_path / "easy-install.pth").write_text("./sail-2.1-py3.egg\n")
    found = survey(tmp_path)
    assert not found["rows"]
    assert not found["outcome"]["kite"]["error"]
    code = f"import site; site.addsitedir({str(tmp_path)!r}); import kite.train"
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    assert json.loads(json.dumps(found)) == found


def test_a_file_that_is_no_zip_lists_nothing(tmp_path):
    (tmp_path / "broken.egg").write_text("no archive")
    assert not SearchPath([str(tmp_path / "broken.egg")], []).list_folder(str(tmp_path / "broken.egg"))


def test_the_loader_passes_over_a_library_of_another_machine_and_no_other(tmp_path):
    """ld.so goes on behind a file of another machine; one that is cut off ends the search."""
    loader = Loader(SearchPath((), []), platform.machine(), f"{tmp_path / 'other'}:{tmp_path / 'own'}", "")
    name = "libm.so.6"
    system = loader._find_in_system(name)
    assert system is not None
    for folder in ("other", "own"):
        (tmp_path / folder).mkdir()
    with open(system, "rb") as file:
        data = file.read()
    (tmp_path / "other" / name).write_bytes(data[:18] + OTHER_MACHINE + data[20:])
    by = Library("/x/libx.so", {"needed": (name,)})
    assert loader._find(name, by) == system
    (tmp_path / "own" / name).write_bytes(data[:40])
    again = Loader(loader.path.__class__((), []), platform.machine(), ":".join(loader.variable), "")
    assert again._find(name, by) == str(tmp_path / "own" / name)
    assert isinstance(again.read_header(str(tmp_path / "own" / name)), str)


@pytest.mark.parametrize("has_modules", [True, False])
def test_a_package_without_its_metadata_is_told_from_one_that_is_absent(tmp_path, has_modules):
    lay_out(tmp_path, EMPTIED, "import os\n")
    (tmp_path / "kite/wing.py").write_text(WING)
    metadata = tmp_path / "kite-1.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text().rstrip() + "\nRequires-Dist: sail>=2\n")
    if has_modules:
        (tmp_path / "sail").mkdir()
        (tmp_path / "sail/__init__.py").touch()
    (row,) = survey(tmp_path)["rows"]
    assert (row["kind"], row["detail"]) == ("absent", METADATA_GONE if has_modules else "not installed")


OUTCOME = {"module": "kite", "error": "", "cause": "", "chain": ()}


@pytest.mark.parametrize(
    ("detail", "outcome", "codes"),
    [
        (METADATA_GONE, OUTCOME, ["PKG044"]),
        (METADATA_GONE, OUTCOME | {"gap": "only running tells"}, ["PKG002", "PKG044"]),
        (METADATA_GONE, {}, ["PKG002", "PKG044"]),
        ("not installed", OUTCOME, ["PKG002"]),
    ],
)
def test_what_imports_without_the_metadata_of_a_package_is_only_warned(detail, outcome, codes):
    needs = (Requirement("package.sail", ">=2", cite="METADATA of kite 1.0"),)
    contract = Contract("kite", "1.0", distribution="kite", platforms=("cpu",), needs=needs)
    row = {"distribution": "sail", "kind": "absent", "path": "", "detail": detail, "by": "kite", "want": ">=2"}
    values = {
        "package.kite": "1.0",
        "package.sail": None,
        "python.path": "/v/bin/python",
        "import.damage": ({**row, "roots": ("kite",)},),
        "import.hidden": (),
        "import.outcome": {"kite": outcome} if outcome else {},
    }
    facts = Facts([Fact(key, value, "test") for key, value in values.items()])
    found = [rules.load_rule(code).judge(facts, contract) for code in ("PKG002", "PKG044")]
    assert [finding.code for finding in found if finding and finding.severity != "info"] == codes


def test_the_fix_of_a_hidden_extension_module_deletes_what_hides_it():
    path = "/v/site-packages/kite/_json/__init__.py"
    row = {"module": "kite._json", "path": path, "distribution": "kite"}
    outcome = OUTCOME | {"error": "ImportError: cannot import name 'scanstring' from 'kite._json'", "cause": path}
    values = {"python.shadowed": (), "import.hidden": (row,), "import.damage": (), "import.outcome": {"kite": outcome}}
    facts = Facts([Fact(key, value, "test") for key, value in values.items()])
    contract = Contract("kite", "1.0", distribution="kite", platforms=("cpu",))
    for code in ("PKG020", "PKG042"):
        finding = rules.load_rule(code).judge(facts, contract)
        assert finding is not None
        assert finding.fix[0].does.startswith(f"delete {path}, which no package has installed")
