"""Symbols of real libraries: those that numpy takes of its OpenBLAS."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy
import pytest

from gpuready.system.elf import find_undefined, list_undefined_symbols
from gpuready.system.imports import libraries
from gpuready.system.imports.libraries import Loader
from gpuready.system.imports.search_path import SearchPath

SITE = Path(numpy.__file__).parent.parent
PREFIXES = ("cblas_", "scipy_cblas_")


def find_libraries() -> tuple[str, str, str]:
    """An extension module of numpy, the OpenBLAS that it needs, and one that defines none of its symbols."""
    (module,) = SITE.glob("numpy/_core/_multiarray_umath*.so")
    (blas,) = SITE.glob("numpy.libs/libscipy_openblas*")
    (other,) = SITE.glob("numpy/linalg/_umath_linalg*.so")
    return str(module), str(blas), str(other)


def test_what_a_module_needs_is_in_its_library_and_nowhere_else() -> None:
    module, blas, other = find_libraries()
    symbols = list_undefined_symbols(module, PREFIXES)
    assert len(symbols) > 5
    assert find_undefined(symbols, [other, blas]) == ""
    assert find_undefined(symbols, [other]) == symbols[0]
    assert find_undefined([*symbols, "cblas_of_nobody"], [blas]) == "cblas_of_nobody"
    assert list_undefined_symbols(blas, PREFIXES) == []


@pytest.mark.parametrize("has_them", [True, False])
def test_an_extension_of_another_torch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_them: bool
) -> None:
    """OpenBLAS stands for a library of torch."""
    module, blas, other = find_libraries()
    name = Path(blas).name
    monkeypatch.setattr(libraries, "TORCH_LIBRARIES", (name,))
    monkeypatch.setattr(libraries, "TORCH_SYMBOLS", PREFIXES)
    folder = tmp_path / "torch" / "lib"
    folder.mkdir(parents=True)
    shutil.copy(blas if has_them else other, folder / name)
    loader = Loader(SearchPath((), [str(tmp_path)]), "", "", "")
    loader.loaded[name] = ""  # torch has loaded it
    fault = loader.find_fault(module)
    assert fault is None if has_them else fault is not None and fault.kind == "other-torch"
