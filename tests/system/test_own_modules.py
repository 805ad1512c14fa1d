"""gpuready's own modules are imported in a shorter way, and with the same result as Python's."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuready
from gpuready.system import own_modules

SRC = Path(gpuready.__file__).parent
SCRIPT = """
import importlib.util, json, sys
sys.path.insert(0, sys.argv[1])
spec = importlib.util.spec_from_file_location("own_modules", sys.argv[2])
own = importlib.util.module_from_spec(spec)
spec.loader.exec_module(own)
own.install_finder()
own.install_finder()
general = []
real = own.SourceFileLoader.get_code
own.SourceFileLoader.get_code = lambda self, name: general.append(name) or real(self, name)
import gpuready.sub.leaf, gpuready.part
try:
    import gpuready.absent
except ModuleNotFoundError as error:
    absent = error.name
leaf = gpuready.sub.leaf
print(json.dumps({"value": leaf.VALUE, "general": [name for name in general if name.startswith("gpuready.")], "absent": absent, "file": leaf.__file__, "cached": leaf.__cached__,
    "package": [gpuready.sub.__path__, gpuready.sub.__package__, leaf.__package__], "text": leaf.__loader__.get_source("gpuready.sub.leaf"),
    "finders": [type(one).__name__ for one in sys.meta_path].count("type"), "kind": type(leaf.__loader__).__name__}))
"""


@pytest.fixture
def package(tmp_path):
    for name, text in {"__init__": "", "part": "", "sub/__init__": "", "sub/leaf": "VALUE = 1\n"}.items():
        path = tmp_path / "gpuready" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def load(package: Path, *flags: str) -> dict[str, object]:
    words = [sys.executable, "-I", "-S", *flags, "-c", SCRIPT, str(package), own_modules.__file__]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def test_byte_code_is_made_by_python_and_then_read_here(package):
    first = load(package)
    assert sorted(first["general"]) == ["gpuready.part", "gpuready.sub", "gpuready.sub.leaf"]
    second = load(package)
    assert second["general"] == [] and second | {"general": first["general"]} == first
    leaf = package / "gpuready/sub/leaf.py"
    assert second["file"] == str(leaf) and second["cached"] == importlib.util.cache_from_source(str(leaf))
    assert second["package"] == [[str(leaf.parent)], "gpuready.sub", "gpuready.sub"]
    assert second["text"] == "VALUE = 1\n" and second["absent"] == "gpuready.absent"
    assert second["kind"] == "OwnModuleLoader"


@pytest.mark.parametrize("text", ["VALUE = 2\n", "VALUE = 22\n"])
def test_a_changed_source_is_compiled_again(package, text):
    load(package)
    leaf = package / "gpuready/sub/leaf.py"
    before = leaf.stat()
    leaf.write_text(text)
    os.utime(leaf, (before.st_atime, before.st_mtime + (len(text) == before.st_size)))  # another size, or another time
    found = load(package)
    assert found["value"] == int(text[8:]) and found["general"] == ["gpuready.sub.leaf"]


@pytest.mark.parametrize("data", [b"", b"\0" * 40, None])
def test_spoiled_byte_code_is_made_again(package, data):
    load(package)
    cached = Path(importlib.util.cache_from_source(str(package / "gpuready/sub/leaf.py")))
    cached.write_bytes(data if data is not None else b"\0\0\0\0" + cached.read_bytes()[4:])
    assert load(package)["general"] == ["gpuready.sub.leaf"] and load(package)["general"] == []


def test_optimized_python_is_left_alone(package):
    assert load(package, "-O")["kind"] == "SourceFileLoader"


def test_a_program_that_imports_gpuready_has_no_finder_of_ours():
    code = "import sys, gpuready, gpuready.cli; print([f for f in sys.meta_path if 'gpuready' in getattr(f, '__module__', '')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_no_module_and_package_share_a_name():
    """Python would take the package, and the short way the module."""
    assert [path for path in SRC.rglob("*.py") if (path.with_suffix("") / "__init__.py").exists()] == []
