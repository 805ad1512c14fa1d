"""What a framework's commands import at their start and its metadata does not require, held against real imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpuready.system.imports.damage import Survey

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
VENDORED = "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'vendored'))\n"
CASES: dict[str, dict[str, str]] = {
    "all-is-there": {"kite/train.py": "import json\nfrom kite import tail\n", "kite/tail.py": ""},
    "absent": {"kite/train.py": "import none_such_module\n"},
    "absent-further-in": {
        "kite/train.py": "from .deep import wing\n",
        "kite/deep/wing.py": "from none_such import x\n",
    },
    "caught": {"kite/train.py": "try:\n    import none_such_module\nexcept ImportError:\n    pass\n"},
    "worded-anew": {
        "kite/__init__.py": "try:\n    import none_such_module\nexcept ImportError as e:\n    raise ImportError('pip install it') from e\n",
        "kite/train.py": "",
    },
    "logged-and-raised": {
        "kite/train.py": "try:\n    import none_such_module\nexcept ImportError:\n    print('no')\n    raise\n"
    },
    "own-folder-on-the-path": {
        "kite/train.py": "import os, sys\nsys.path.append(os.path.dirname(__file__))\nimport string_kit\n",
        "kite/string_kit.py": "",
    },
    "made-by-hand": {"kite/train.py": "import sys, json\nsys.modules['string_kit'] = json\nimport string_kit\n"},
    "a-context-of-its-own": {
        "kite/train.py": "from kite.tail import try_import\nwith try_import():\n    import none_such_module\n",
        "kite/tail.py": "import contextlib\ndef try_import():\n    return contextlib.suppress(ImportError)\n",
    },
    "newer-than-its-own-minor": {
        "kite/train.py": f"import sys\nif sys.version_info > {sys.version_info[:2]}:\n    import json\nelse:\n    import none_such_module\n"
    },
    "a-template-in-a-function": {
        "kite/train.py": 'def one():\n    return """\nimport none_such_module\n"""\n\ndef two():\n    return """\nimport none_such_module\n"""\n'
    },
    "a-comment-between-names": {
        "kite/train.py": "from kite import (\n    deep,  # noqa, for now\n    tail,\n)\n",
        "kite/tail.py": "import none_such_module\n",
    },
    "a-byte-order-mark": {"kite/train.py": "\ufeffimport none_such_module\n"},
    "in-a-function": {"kite/train.py": "def run():\n    import none_such_module\n"},
    "for-another-system": {"kite/train.py": "import sys\nif sys.platform == 'win32':\n    import none_such_module\n"},
    "vendored": {
        "kite/__init__.py": VENDORED,
        "kite/vendored/string_kit.py": "",
        "kite/train.py": "import string_kit\n",
    },
    "not-vendored": {
        "kite/__init__.py": VENDORED,
        "kite/vendored/string_kit.py": "",
        "kite/train.py": "import string_kat\n",
    },
    "no-such-start": {"kite/tail.py": ""},
    "main-is-always-there": {"kite/train.py": "import __main__\n"},
    "beside-it": {"kite/train.py": "import lone_module\n", "lone_module.py": ""},
}


def lay_out(site: Path, files: dict[str, str]) -> None:
    for name, text in ({"kite/__init__.py": "", "kite/deep/__init__.py": ""} | files).items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    info = site / "kite-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kite\nVersion: 1.0\n")
    names = [path.relative_to(site).as_posix() for path in site.rglob("*.py")]
    (info / "RECORD").write_text("".join(f"{name},,{(site / name).stat().st_size}\n" for name in names))


def survey(site: Path, **more: object) -> dict[str, object]:
    request = {"python": f"{MINOR}.0", "sites": [str(site)], "roots": ["kite"], "starts": {"kite": ["kite.train"]}}
    return Survey(request | more).run()


@pytest.mark.parametrize("name", CASES)
def test_a_start_fails_on_paper_where_it_fails_for_real(tmp_path, name):
    lay_out(tmp_path, CASES[name])
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import kite.train"
    ran = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    last = ran.stderr.strip().rpartition("\n")[2]
    real = "" if "'kite.train'" in last else last  # a start that this release does not have is none
    plain, traced = survey(tmp_path), survey(tmp_path, simulate=True)
    error = traced["outcome"]["kite"]["error"]
    assert error == real or (name == "worded-anew" and error.startswith("ModuleNotFoundError") and real)
    kinds = [row["kind"] for row in traced["rows"]]
    assert kinds == (["start"] if real else [])
    assert bool(plain["rows"]) >= bool(real)  # the quick look may ask for the long one, and must where the start fails


def test_a_file_of_two_distributions_is_as_either_recorded_it(tmp_path):
    lay_out(tmp_path, {"kite/deep/wing.py": "import json\nVALUE = 1\n"})
    record = tmp_path / "kite-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("kite/deep/wing.py,,22", "kite/deep/wing.py,,99"))
    assert [row["kind"] for row in survey(tmp_path)["rows"]] == ["short"]
    other = tmp_path / "kite_parts-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: kite-parts\nVersion: 1.0\n")
    (other / "RECORD").write_text("kite/deep/wing.py,,22\n")
    assert survey(tmp_path)["rows"] == []
