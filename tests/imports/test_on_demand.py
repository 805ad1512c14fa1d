"""Extension modules that cannot be loaded, as wheels ship them: which of these does an import meet?"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuready.system.imports.distributions import find_distributions
from gpuready.system.imports.extension_names import ExtensionTag
from gpuready.system.imports.on_demand import is_on_demand
from gpuready.system.imports.search_path import SearchPath

EXTENSION = "kite/pool.cpython-312-x86_64-linux-gnu.so"
NOT_MET = {
    "nobody-names-it": "import os\n",
    "another-module-of-that-name": "from torch import pool\nimport wing.pool\n",
    "in-a-function": "def start():\n    from kite import pool\n",
    "caught": "try:\n    from . import pool\nexcept ImportError:\n    pool = None\n",
    "suppressed": "import contextlib\nwith contextlib.suppress(ImportError):\n    import kite.pool\n",
    "caught-in-a-function-that-is-called": "def start():\n    try:\n        import kite.pool\n    except Exception:\n        pass\nstart()\n",
    "types-only": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kite.pool import Pool\n",
    "for-windows": "import sys\nif sys.platform == 'win32':\n    import kite.pool\n",
    "a-word-in-a-text": "def start():\n    print('pool')\nstart()\nNAMES = dict(pool='pool')\n",
    "a-text-with-lines-at-the-margin": 'def start():\n    text = """\nfrom kite import pool\n"""\n',
}
MET = {
    "at-the-top": "from . import pool\n",
    "by-its-full-name": "import kite.pool\n",
    "a-name-of-it": "from kite.pool import Pool\n",
    "in-a-class": "class Kite:\n    from kite import pool\n",
    "another-error-is-caught": "try:\n    from . import pool\nexcept KeyError:\n    pass\n",
    "in-a-handler": "try:\n    import none_such\nexcept ImportError:\n    from . import pool\n",
    "in-a-function-that-is-called": "def start():\n    from kite import pool\nstart()\n",
    "by-a-loader": "import importlib\nimportlib.import_module('kite.pool')\n",
    "raised-again": "try:\n    from . import pool\nexcept ImportError as e:\n    raise RuntimeError('reinstall') from e\n",
    "after-a-try": "try:\n    import json\nexcept ImportError:\n    pass\nelse:\n    from . import pool\n",
    "by-a-loader-in-a-condition": "from importlib import import_module\nif import_module('kite.pool'):\n    pass\n",
    "by-a-name-put-together": "from importlib import import_module\nfor name in ('json', 'pool'):\n    import_module('kite.' + name)\n",
    "by-a-name-in-an-f-string": "from importlib import import_module\nparts = [import_module(f'kite.{n}') for n in ['pool']]\n",
    "not-python": "from . import pool (\n",
}


def lay_out(folder: Path, source: str, extension: str = EXTENSION, size: int = 9) -> Path:
    files = {"kite/__init__.py": "", "kite/start.py": source, extension: "not ELF "[:8] + "x"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    info = folder / "kite-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kite\nVersion: 1.0\n")
    sizes = {name: len(text) for name, text in files.items()} | {extension: size}
    (info / "RECORD").write_text("".join(f"{name},sha256=x,{length}\n" for name, length in sizes.items()))
    return folder / extension


def judge(folder: Path, path: Path) -> bool:
    copy = find_distributions(SearchPath((), [str(folder)]))["kite"][0]
    return is_on_demand(copy, "library", str(path), ExtensionTag("3.12"))


@pytest.mark.parametrize("name", [*NOT_MET, *MET])
def test_only_an_import_that_nobody_catches_meets_it(tmp_path, name):
    path = lay_out(tmp_path, (NOT_MET | MET)[name])
    assert judge(tmp_path, path) is (name in NOT_MET)


@pytest.mark.parametrize(
    ("caller", "is_met"),
    [
        ("from kite.start import load\nload()\n", True),
        ("from kite import start\nkept = start.load()\n", True),
        ("import kite.start\nkite.start.load()\n", True),
        ("import json\nkept = json.load(open('x'))\n", False),
        ("from kite.start import load\n", False),
        ("from kite.start import load\ndef later():\n    load()\n", False),
        ("from kite.start import load\ntry:\n    load()\nexcept Exception:\n    pass\n", False),
    ],
)
def test_a_function_that_imports_it_may_be_called_by_another_source(tmp_path, caller, is_met):
    path = lay_out(tmp_path, "def load():\n    from kite import pool\n    return pool\n")
    (tmp_path / "kite/user.py").write_text(caller)
    record = tmp_path / "kite-1.0.dist-info/RECORD"
    record.write_text(record.read_text() + f"kite/user.py,sha256=x,{len(caller)}\n")
    assert judge(tmp_path, path) is not is_met


def test_a_changed_file_a_plain_library_and_a_module_at_the_top_always_count(tmp_path):
    for number, (extension, size) in enumerate([(EXTENSION, 10), ("kite/libpool.so", 9), ("pool.abi3.so", 9)]):
        folder = tmp_path / str(number)
        assert not judge(folder, lay_out(folder, "", extension, size)), extension
