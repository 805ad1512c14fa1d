"""tools/symbol_history.py: public symbols by their syntax, and the spans in which releases have them."""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import ClassVar

import symbol_history
from refresh.symbols import read_symbols

TRAINER = """
import os
from .base import Base, helper as assist
from other import Elsewhere
__all__ = ["Trainer", "Options"]
if True:
    LIMIT: int = 3
try:
    from ._fast import speed
except ImportError:
    speed = None
class Trainer(Base):
    kind = "sft"
    def __init__(self, model, *, tokenizer=None, **kwargs):
        self.state = model
        self._hidden = 1
    def compute_loss(self, inputs): ...
    @staticmethod
    def build(path): ...
class Options:
    rate: float = 0.1
    _private: int = 0
class _Inner:
    def seen(self, x): ...
def train(model, *args, resume=False): ...
"""


def test_the_symbols_of_a_file():
    found = read_symbols(TRAINER, "lib")
    assert {"Base", "assist", "LIMIT", "speed", "Trainer", "Options", "train"} <= found.names
    assert not {"os", "Elsewhere", "__all__"} & found.names
    assert found.exported == ("Trainer", "Options")
    assert found.attributes == {
        "Trainer.kind",
        "Trainer.state",
        "Trainer.compute_loss",
        "Trainer.build",
        "Options.rate",
    }
    assert found.parameters == {
        "Trainer(model", "Trainer(tokenizer", "Trainer(**", "Trainer.compute_loss(inputs", "Trainer.build(path", "Options(rate",
        "train(model", "train(resume",
    }  # fmt: skip


def test_tables_of_lazy_imports_are_names():
    found = read_symbols(
        '_import_structure = {"a": ["A"]}\n_import_structure["b"].extend(["B", "not a name"])\n', "lib"
    )
    assert {"A", "B"} <= found.names and "not a name" not in found.names


def test_a_parameter_that_a_decorator_takes_is_one():
    found = read_symbols('@deprecate_kwarg("old", new_name="new", version="5.0")\ndef call(new): ...\n', "lib")
    assert found.parameters == {"call(new", "call(old"}


def test_a_file_that_cannot_be_parsed_has_none():
    assert not read_symbols("def (", "lib").names


class FakeWheel:
    """A wheel of texts, which counts what is read."""

    read: ClassVar[list[str]] = []

    def __init__(self, **files: str):
        self.files = {f"lib/{name}.py": text for name, text in files.items()}
        self.members = {path: SimpleNamespace(CRC=zlib.crc32(text.encode())) for path, text in self.files.items()}

    def texts(self, members):
        FakeWheel.read += list(members)
        return [(path, self.files[path]) for path in members]


def test_spans_of_three_releases(monkeypatch):
    same = "def steady(x): ...\n"
    releases = {
        "1.0": FakeWheel(__init__="from .a import *\n", a=same + "def old(x, z): ...\n", b=same),
        "1.1": FakeWheel(
            __init__="from .a import *\n", a=same + "def old(x, y, **rest): ...\ndef new(): ...\n", b=same
        ),
        "2.0": FakeWheel(__init__="from .a import *\n", a=same + "def new(): ...\n", b=same, c="def late(z): ...\n"),
    }
    monkeypatch.setattr(symbol_history, "_one_per_minor", lambda *_: list(releases.items()))
    section = symbol_history._package_section(SimpleNamespace(wheel=lambda file: file), "lib", "")
    assert section.splitlines() == [
        "package lib 1.0 1.1 2.0",
        "module 2 3 lib.c",
        "name 0 2 lib.a:old lib:old",
        "name 1 3 lib.a:new lib:new",
        "parameter 1 2 old(** old(y",
    ]
    assert FakeWheel.read.count("lib/b.py") == 1, "a file that releases share is read once"


def test_packages_that_are_not_named_keep_their_section(monkeypatch, tmp_path, capsys):
    target = tmp_path / "symbols.txt.gz"
    monkeypatch.setattr(
        symbol_history, "_package_section", lambda index, name, since: f"package {name} 1.0\nmodule 0 1 {name}.x\n"
    )
    address = "https://index.example/simple"
    assert symbol_history.main(["b", "c", "--index", address, "--write", str(target)]) == 0
    assert symbol_history.main(["a", "--index", address, "--write", str(target)]) == 0
    assert "wrote" in capsys.readouterr().out
    assert list(symbol_history._read_sections(target)) == ["a", "b", "c"]
    assert symbol_history._read_sections(target)["b"] == "package b 1.0\nmodule 0 1 b.x\n"
