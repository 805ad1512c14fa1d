"""The modules of a target's standard library, read from its folders by another build of Python."""

from __future__ import annotations

import pytest

from gpuready.system.imports.search_path import SearchPath, list_stdlib_names


@pytest.mark.parametrize(
    ("files", "has", "lacks"),
    [
        (
            ("_ctypes", "_ssl", "_lzma"),
            ("math", "binascii", "_ctypes"),
            ("_sqlite3",),
        ),  # math inside of the interpreter, sqlite left out
        ((), ("math", "_ctypes", "_lzma"), ()),  # everything inside of the interpreter
        (("math", "_ssl"), ("math", "_ssl"), ("_ctypes", "_lzma", "_bz2")),  # built where libraries were missing
    ],
)
def test_what_is_built_into_another_python(tmp_path, files, has, lacks):
    (tmp_path / "lib-dynload").mkdir()
    (tmp_path / "os.py").touch()
    for name in files:
        (tmp_path / "lib-dynload" / f"{name}.cpython-311-x86_64-linux-gnu.so").touch()
    names = list_stdlib_names(SearchPath((), []), str(tmp_path))
    assert set(has) <= names
    assert not set(lacks) & names
