"""tools/list_wheel_conflicts.py: what the files of a release import at their top, and which releases of another lack it."""

from __future__ import annotations

import io
import tarfile

import list_wheel_conflicts
from packaging.version import Version
from refresh.index import File
from refresh.wheel import Trouble

ALWAYS = "import transformers\nfrom transformers import (  # of all uses\n    Kept, Gone as Old,\n)\n"
GUARDED = (
    '"""\nfrom transformers import Told\n"""\ntry:\n    from transformers import Tried\nexcept ImportError:\n    pass\n'
)
LAZY = "def f():\n    from transformers import Later\n"
RELEASES = {
    "peft": {"1.0": {"peft/__init__.py": GUARDED + LAZY + "from .base import x\n", "peft/base.py": ALWAYS}},
    "trl": {
        "2.0": {
            "trl/__init__.py": "",
            "trl/trainer/__init__.py": "",
            "trl/trainer/sft_trainer.py": "from transformers.new import Part\n",
            "trl/trainer/dpo_trainer.py": "from transformers import Kept\n",
        }
    },
    "transformers": {
        "4.0": {"transformers/__init__.py": "names = ['Kept', 'Gone', 'Told', 'Tried', 'Later']\n"},
        "4.9": {"transformers/__init__.py": "from .old import *\n", "transformers/old.py": "Kept = Gone = 1\n"},
        "5.0": {"transformers/__init__.py": "Kept = 1\n", "transformers/new.py": "class Part: ...\n"},
    },
}


class OwnIndex:
    """An index of sdists that are made from the texts above."""

    given = ""

    def __init__(self, given: str = "") -> None:
        pass

    def releases(self, name):
        return {
            Version(v): [File(f"{name}-{v}.tar.gz", f"{name}/{v}", Version(v), frozenset(), "", "9", "")]
            for v in RELEASES.get(name, {})
        }

    def read(self, address, limit):
        name, version = address.split("/")
        body = io.BytesIO()
        with tarfile.open(fileobj=body, mode="w:gz") as archive:
            for path, text in RELEASES[name][version].items():
                info = tarfile.TarInfo(f"{name}-{version}/src/{path}")
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
        return body.getvalue()

    def metadata(self, file):
        raise Trouble("none")


def test_rows_are_of_what_runs_at_import_and_of_names_that_another_release_has(monkeypatch):
    monkeypatch.setattr(list_wheel_conflicts, "Index", OwnIndex)
    rows = list_wheel_conflicts.list_rows(OwnIndex(), ["peft", "trl"])
    assert [(row["a"], row["b"], row.get("part", "")) for row in rows] == [
        ("peft>=1.0,<=1.0", "transformers>=5.0", ""),
        ("trl>=2.0,<=2.0", "transformers<5.0", "trl.trainer.sft_trainer"),
    ]
    assert rows[0]["why"].startswith("peft.base imports transformers.Gone, which transformers>=5.0 does not have")


def test_a_base_of_a_class_counts_as_imported_and_what_a_function_uses_does_not():
    text = "import pyarrow as pa\n\nclass Wide(pa.PyExtensionType):\n    def go(self):\n        return pa.later\n"
    (_, plain), (module, used) = list_wheel_conflicts._top_imports(text, "datasets")
    assert (plain, module, used) == ((), "pyarrow", ("PyExtensionType",))
