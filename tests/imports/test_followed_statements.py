"""Statements of modules followed on paper, in environments with something damaged or absent: each against a real import."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpuready.system.imports.damage import Survey

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
# Every module of kite is recorded as it is here; "wing" is the file that a case deletes, empties or cuts.
WING = "import os\n__all__ = ['span', 'Tip']\nlength = 3\n\ndef span():\n    return 1\n\n\nclass Tip:\n    pass\n"
EMPTIED, CUT, DELETED = "emptied", "cut", "deleted"

FOLLOWED: dict[str, tuple[str, str]] = {
    # -- an emptied or a cut file is a module without its names
    "emptied-and-imported": (EMPTIED, "import kite.wing\n"),
    "emptied-and-a-name-taken": (EMPTIED, "from kite.wing import span\n"),
    "emptied-and-an-attribute-taken": (EMPTIED, "import kite.wing\nLENGTH = kite.wing.length\n"),
    "emptied-and-an-attribute-taken-later": (EMPTIED, "import kite.wing\ndef go():\n    return kite.wing.length\n"),
    "emptied-and-a-base-class": (EMPTIED, "from kite import wing\nclass Wing(wing.Tip):\n    pass\n"),
    "emptied-and-a-decorator": (EMPTIED, "from kite import wing\n@wing.span\ndef go():\n    pass\n"),
    "emptied-and-a-default": (EMPTIED, "from kite import wing as w\ndef go(length=w.length):\n    pass\n"),
    "emptied-and-all-names": (EMPTIED, "from kite.wing import *\n"),
    "emptied-and-one-of-all-names": (EMPTIED, "from kite.wing import *\nclass Other(Tip):\n    pass\n"),
    "emptied-and-one-of-all-names-later": (EMPTIED, "from kite.wing import *\ndef go():\n    return Tip()\n"),
    "emptied-and-a-name-that-is-bound-again": (EMPTIED, "from kite.wing import *\nTip = object\nclass Other(Tip):\n    pass\n"),
    "emptied-and-a-module-beside-all-names": (EMPTIED, "from . import tail\nfrom .wing import *\nOTHER = tail.__name__\n"),
    "emptied-and-a-module-that-another-import-binds": (EMPTIED, "from .tail import *\nfrom .wing import *\nOTHER = tail.__name__\n"),
    "emptied-and-names-made-up": (
        EMPTIED,
        "from kite.wing import *\nfor one in ('left', 'right'):\n    globals()[one] = one\nFIRST = left\nSECOND = right\n",
    ),
    "emptied-and-perhaps-an-attribute": (EMPTIED, "import kite.wing\nLENGTH = None and kite.wing.length\n"),
    "emptied-and-asked-for": (EMPTIED, "import kite.wing\nLENGTH = getattr(kite.wing, 'length', 3)\n"),
    "cut-and-imported": (CUT, "import kite.wing\n"),
    "cut-and-all-names": (CUT, "from kite.wing import *\n"),
    "cut-and-a-name-that-is-left": (CUT, "from kite.wing import length\n"),
    "cut-and-a-name-that-is-gone": (CUT, "from kite.wing import Tip\n"),
    "cut-and-caught": (CUT, "try:\n    from kite.wing import Tip\nexcept ImportError:\n    Tip = None\n"),
    # -- a deleted file
    "deleted-and-imported": (DELETED, "import kite.wing\n"),
    "deleted-and-caught-by-a-variable": (
        DELETED,
        "ERRORS = (ImportError, OSError)\ntry:\n    import kite.wing\nexcept ERRORS:\n    pass\n",
    ),
    "deleted-and-not-caught-by-a-variable": (
        DELETED,
        "ERRORS = (KeyError, OSError)\ntry:\n    import kite.wing\nexcept ERRORS:\n    pass\n",
    ),
    "deleted-and-caught-by-a-variable-from-elsewhere": (
        DELETED,
        "from kite.tail import ERRORS\ntry:\n    import kite.wing\nexcept ERRORS:\n    pass\n",
    ),
    "deleted-and-behind-a-function-that-finds-the-package": (
        DELETED,
        "from importlib.util import find_spec\ndef is_kite_available():\n    return find_spec('kite') is not None\nif is_kite_available():\n    import kite.wing\n",
    ),
    "deleted-and-caught-by-a-base": (DELETED, "try:\n    import kite.wing\nexcept (ValueError, BaseException):\n    pass\n"),
    "deleted-and-in-a-function-that-is-called": (DELETED, "def go():\n    import kite.wing\ngo()\n"),
    "deleted-and-in-a-function-that-returns-first": (DELETED, "def go():\n    return\n    import kite.wing\ngo()\n"),
    "deleted-and-in-a-function-of-another-module": (DELETED, "from kite.tail import go\ngo()\n"),
    "deleted-and-in-a-branch-of-a-function": (DELETED, "from kite.tail import choose\nchoose('tail')\n"),
    "deleted-and-in-the-branch-of-a-function": (DELETED, "from kite.tail import choose\nchoose('wing')\n"),
    "deleted-and-in-a-loop-over-names": (DELETED, "for name in ('one', 'two'):\n    import kite.wing\n"),
    "deleted-and-in-a-loop-over-nothing": (DELETED, "for name in ():\n    import kite.wing\n"),
    "deleted-and-imported-by-a-loop": (
        DELETED,
        "import importlib\nfor name in ('tail', 'wing'):\n    importlib.import_module('.' + name if False else 'kite.wing')\n",
    ),
    "deleted-and-imported-by-name-in-a-loop": (
        DELETED,
        "import importlib\nfor name in ('kite.tail', 'kite.wing'):\n    importlib.import_module(name)\n",
    ),
    "deleted-and-imported-by-a-relative-name": (
        DELETED,
        "from importlib import import_module\nimport_module('.wing', __package__)\n",
    ),
    "deleted-and-skipped-in-a-loop": (
        DELETED,
        "import importlib\nfor name in ('kite.tail', 'kite.wing'):\n    if name == 'kite.wing':\n        continue\n    importlib.import_module(name)\n",
    ),
    "deleted-and-in-a-match": (
        DELETED,
        "import sys\nmatch sys.platform:\n    case 'win32':\n        pass\n    case _:\n        import kite.wing\n",
    ),
    "deleted-and-not-in-this-match": (
        DELETED,
        "import sys\nNAME = 'tail'\nmatch NAME:\n    case 'wing':\n        import kite.wing\n    case _:\n        pass\n",
    ),
    "deleted-and-in-while-true": (DELETED, "while True:\n    import kite.wing\n    break\n"),
    "deleted-and-behind-a-constant": (DELETED, "USE = False\nif USE:\n    import kite.wing\n"),
    "deleted-and-behind-a-package": (
        DELETED,
        "from importlib.util import find_spec\nHAS = find_spec('none_such') is not None\nif HAS:\n    import kite.wing\n",
    ),
    "deleted-and-behind-a-package-that-is-there": (
        DELETED,
        "import importlib.util\nif importlib.util.find_spec('kite'):\n    import kite.wing\n",
    ),
    "deleted-and-an-error-of-its-own": (
        DELETED,
        "try:\n    from kite import wing\nexcept ImportError:\n    wing = None\nif wing is None:\n    pass\n",
    ),
    # -- code that runs where something is defined or made
    "deleted-and-in-a-decorator": (DELETED, "def mark(f):\n    import kite.wing\n    return f\n@mark\ndef go():\n    pass\n"),
    "deleted-and-in-a-decorator-of-another-module": (DELETED, "from kite.tail import mark\n@mark\ndef fly():\n    pass\n"),
    "deleted-and-in-a-decorator-of-a-class": (DELETED, "from kite.tail import mark\n@mark\nclass Kite:\n    pass\n"),
    "deleted-and-in-a-decorator-with-arguments": (
        DELETED,
        "def mark(n):\n    def inner(f):\n        import kite.wing\n        return f\n    return inner\n@mark(1)\ndef go():\n    pass\n",
    ),
    "deleted-and-in-what-a-decorator-returns": (
        DELETED,
        "def mark(f):\n    def inner():\n        import kite.wing\n    return inner\n@mark\ndef go():\n    pass\n",
    ),
    "deleted-and-in-a-metaclass": (
        DELETED,
        "class Meta(type):\n    def __new__(cls, *args):\n        import kite.wing\n        return super().__new__(cls, *args)\nclass Kite(metaclass=Meta):\n    pass\n",
    ),
    "deleted-and-in-a-metaclass-that-nothing-has": (
        DELETED,
        "class Meta(type):\n    def __new__(cls, *args):\n        import kite.wing\n        return super().__new__(cls, *args)\nclass Kite:\n    pass\n",
    ),
    "deleted-and-where-a-class-is-derived": (
        DELETED,
        "class Base:\n    def __init_subclass__(cls):\n        import kite.wing\nclass Kite(Base):\n    pass\n",
    ),
    "deleted-and-in-an-instance": (
        DELETED,
        "class Kite:\n    def __init__(self):\n        import kite.wing\nKITE = Kite()\n",
    ),
    "deleted-and-in-an-instance-of-another-module": (DELETED, "from kite.tail import Tail\nTAIL = Tail('wing')\n"),
    "deleted-and-not-in-an-instance-of-another-module": (DELETED, "from kite.tail import Tail\nTAIL = Tail('tail')\n"),
    "deleted-and-in-a-comprehension": (
        DELETED,
        "from importlib import import_module\nALL = [import_module(n) for n in ('kite.tail', 'kite.wing')]\n",
    ),
    "deleted-and-left-out-of-a-comprehension": (
        DELETED,
        "from importlib import import_module\nALL = [import_module(n) for n in ('kite.tail', 'kite.wing') if n != 'kite.wing']\n",
    ),
    "deleted-and-in-a-function-of-a-comprehension": (
        DELETED,
        "def load(n):\n    import kite.wing\nALL = {n: load(n) for n in ('a', 'b')}\n",
    ),
    "deleted-and-in-a-comprehension-over-nothing": (
        DELETED,
        "def load(n):\n    import kite.wing\nALL = [load(n) for n in ()]\n",
    ),
    "deleted-and-in-a-tuple-of-a-generator": (
        DELETED,
        "from importlib import import_module\nALL = tuple(import_module(n) for n in ('kite.tail', 'kite.wing'))\n",
    ),
    "deleted-and-in-a-generator-that-nobody-asks": (
        DELETED,
        "from importlib import import_module\nALL = (import_module(n) for n in ('kite.tail', 'kite.wing'))\n",
    ),
    "deleted-and-behind-a-name-that-nothing-binds": (
        DELETED,
        "try:\n    SETUP\nexcept NameError:\n    SETUP = False\nif SETUP:\n    pass\nelse:\n    import kite.wing\n",
    ),
    "deleted-and-behind-a-name-that-is-bound": (
        DELETED,
        "SETUP = True\ntry:\n    SETUP\nexcept NameError:\n    SETUP = False\nif SETUP:\n    pass\nelse:\n    import kite.wing\n",
    ),
    "raised-where-a-package-is-absent": (
        DELETED,
        "from importlib.util import find_spec\nif find_spec('none_such') is None:\n    raise ImportError('install it')\n",
    ),
    # -- metadata
    "a-version-of-nothing": (DELETED, "import importlib.metadata\nV = importlib.metadata.version('none-such')\n"),
    "a-version-of-nothing-in-an-expression": (
        DELETED,
        "from importlib.metadata import version\nif version('none-such').split('.')[0] < '2':\n    pass\n",
    ),
    "a-version-of-nothing-that-is-caught": (
        DELETED,
        "import importlib.metadata as metadata\ntry:\n    V = metadata.version('none-such')\nexcept metadata.PackageNotFoundError:\n    V = '0'\n",
    ),
    "a-version-of-nothing-that-import-error-catches": (
        DELETED,
        "import importlib.metadata as metadata\ntry:\n    V = metadata.version('none-such')\nexcept ImportError:\n    V = '0'\n",
    ),
    "a-version-that-is-there": (DELETED, "from importlib.metadata import version\nV = version('Kite')\n"),
    "versions-of-a-table": (
        DELETED,
        "from kite.tail import NEEDS, require_version\nfor name in ('kite', 'sail'):\n    if name in NEEDS:\n        require_version(NEEDS[name])\n",
    ),
    "versions-of-a-table-without-it": (
        DELETED,
        "from kite.tail import NEEDS, require_version\nfor name in ('kite', 'left'):\n    if name in NEEDS:\n        require_version(NEEDS[name])\n",
    ),
    "another-version-than-asked-for": (DELETED, "from kite.tail import require_version\nrequire_version('kite>=2')\n"),
}  # fmt: skip
TAIL = """import importlib.metadata
ERRORS = (ImportError,)
NEEDS = {"kite": "kite>=1", "sail": "sail>=2"}


def go():
    import kite.wing


def choose(name):
    if name == "wing":
        import kite.wing
    else:
        import json


def mark(f):
    import kite.wing
    return f


class Tail:
    def __init__(self, name):
        if name == "wing":
            import kite.wing


def require_version(text):
    name, _, want = text.partition(">=")
    if importlib.metadata.version(name).split(".") < want.split("."):
        raise ImportError(text)
"""
MAYBE = "import os\nif os.environ.get('KITE_MAYBE'):\n    import kite.wing\n"
CANNOT_TELL = {
    "deleted-and-behind-a-variable-of-the-environment": (
        DELETED,
        "import os\ndef is_kite_available():\n    return 'KITE_IS_ON' in os.environ\nif is_kite_available():\n    import kite.wing\n",
    ),
    "behind-a-variable": (DELETED, "import os\nif os.environ.get('KITE_WING'):\n    import kite.wing\n"),
    "in-a-loop-that-may-be-empty": (DELETED, "import os\nfor name in os.environ:\n    import kite.wing\n    break\n"),
    "caught-by-nobody-knows-what": (
        DELETED,
        "import kite.tail\nerrors = kite.tail.ERRORS\ntry:\n    import kite.wing\nexcept errors:\n    pass\n",
    ),
    "caught-at-first-and-not-the-second-time": (
        DELETED,
        "try:\n    import kite.maybe\nexcept ImportError:\n    pass\nimport kite.maybe\n",
    ),
    "after-a-return-perhaps": (
        DELETED,
        "import os\ndef go():\n    if os.environ.get('KITE'):\n        return\n    import kite.wing\ngo()\n",
    ),
}
CAUGHT_ANYHOW = {
    "a-condition-inside-a-try": (
        DELETED,
        "import os\ntry:\n    if os.environ.get('KITE_WING'):\n        import kite.wing\nexcept ImportError:\n    pass\n",
    ),
    "an-absent-package-that-nobody-requires": (
        EMPTIED,
        "import os\nif os.environ.get('KITE'):\n    import none_such\n",
    ),
}


def lay_out(site: Path, how: str, source: str) -> None:
    files = {
        "kite/__init__.py": "",
        "kite/train.py": source,
        "kite/tail.py": TAIL,
        "kite/wing.py": WING,
        "kite/maybe.py": MAYBE,
    }
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    info = site / "kite-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kite\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{name},,{len(text)}\n" for name, text in files.items()))
    wing = site / "kite/wing.py"
    wing.unlink() if how == DELETED else wing.write_text("" if how == EMPTIED else WING[: WING.index("class Tip")])


def survey(site: Path, **more: object) -> dict[str, object]:
    request = {"python": f"{MINOR}.0", "sites": [str(site)], "roots": ["kite"], "starts": {"kite": ["kite.train"]}}
    return Survey(request | {"simulate": True} | more).run()


def really_import(site: Path) -> str:
    """The last line of what a real import says; empty where it works."""
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import kite.train"
    ran = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    return ran.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_fails_on_paper_fails_for_real(tmp_path, name):
    lay_out(tmp_path, *FOLLOWED[name])
    outcome = survey(tmp_path)["outcome"]["kite"]
    real = really_import(tmp_path)
    assert "gap" not in outcome, outcome
    assert outcome["error"].partition(":")[0] == real.partition(":")[0].rpartition(".")[2], (outcome, real)


@pytest.mark.parametrize("name", [*CANNOT_TELL, *CAUGHT_ANYHOW])
def test_what_only_running_tells_is_a_gap(tmp_path, name):
    lay_out(tmp_path, *(CANNOT_TELL | CAUGHT_ANYHOW)[name])
    outcome = survey(tmp_path)["outcome"]["kite"]
    assert not outcome["error"], outcome
    assert ("gap" in outcome) is (name in CANNOT_TELL), outcome


def test_a_cut_file_beside_compiled_code_is_a_gap(tmp_path):
    """Compiled code may use what is cut off, as ``torch._C`` does of an emptied torch/functional.py."""
    import _json

    lay_out(tmp_path, EMPTIED, "import kite.wing\nimport kite._json\n")
    shutil.copy(_json.__file__, tmp_path / "kite")
    assert "wing.py, which is cut off" in survey(tmp_path)["outcome"]["kite"]["gap"]
    assert not really_import(tmp_path)


@pytest.mark.skipif(not shutil.which("setpriv") or os.geteuid() != 0, reason="needs root, and setpriv")
def test_a_file_that_this_user_may_not_read_fails_its_import():
    """Asked as a user who may not read it, of a real import and of the survey."""
    asks = "import json, sys; sys.path[:0] = [{!r}, {!r}]; from tests.imports import test_followed_statements as t; from pathlib import Path; print(json.dumps(t.survey(Path({!r}))))"
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        lay_out(site, EMPTIED, "import kite.wing\n")
        (site / "kite/wing.py").write_text(WING)
        (site / "kite/wing.py").chmod(0)
        Path(folder).chmod(0o755)
        words = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c"]
        real = subprocess.run([*words, f"import sys; sys.path.insert(0, {str(site)!r}); import kite.train"], capture_output=True, text=True, check=False)  # fmt: skip
        root = Path(__file__).resolve().parents[2]
        asked = subprocess.run([*words, asks.format(str(root), str(root / "src"), str(site))], capture_output=True, text=True, check=False)  # fmt: skip
    if "PermissionError" not in real.stderr or not asked.stdout:
        pytest.skip("this Python, or these sources, cannot be read by another user")
    found = json.loads(asked.stdout)
    assert [row["kind"] for row in found["rows"]] == ["unreadable"]
    assert found["outcome"]["kite"]["error"].startswith("PermissionError")
