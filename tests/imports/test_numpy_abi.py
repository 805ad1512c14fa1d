"""Modules that were compiled for numpy 1, beside numpy 2: found in their files, and refused by a real import."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuready.system.imports.distributions import Distribution, find_distributions
from gpuready.system.imports.libraries import Loader
from gpuready.system.imports.numpy_abi import OLDEST_NUMPY, leaves_numpy_open, list_refused_modules
from gpuready.system.imports.search_path import SearchPath
from tests.imports.copies import EnvironmentCopy

NEW, OLD = b"numpy._core._multiarray_umath\0", b"numpy.core._multiarray_umath\0\0"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentCopy:
    return EnvironmentCopy(tmp_path_factory.mktemp("numpy") / "whole").make()


def add_arrow(env: EnvironmentCopy, requirement: str, is_old: bool) -> None:
    """Install a package with an extension module that uses numpy: one of numpy's own; an old one imports ``numpy.core``."""
    source = env.path("numpy/linalg/_umath_linalg*.so")
    env.install("arrow", "14.0", {"arrow/__init__.py": "from arrow.lib import _umath_linalg\n"}, (requirement,))
    data = source.read_bytes()
    assert NEW in data
    (env.site / "arrow/lib").mkdir()  # as deep as numpy's, for its RPATH
    old = data.replace(NEW, OLD).replace(b"numpy._core.", b"numpy.-core.")  # the others are in messages
    (env.site / "arrow/lib" / source.name).write_bytes(old if is_old else data)
    record = env.site / "arrow-14.0.dist-info" / "RECORD"
    record.write_text(record.read_text() + f"arrow/lib/{source.name},,{len(data)}\n")
    metadata = env.site / "demo-1.0.dist-info" / "METADATA"
    text = metadata.read_text()
    metadata.unlink()
    metadata.write_text(text + "Requires-Dist: arrow\n")


@pytest.mark.parametrize("is_old", [True, False])
def test_a_module_for_numpy_one_is_judged_as_numpy_judges_it(
    whole: EnvironmentCopy, tmp_path: Path, is_old: bool
) -> None:
    copy = whole.clone(tmp_path / "copy")
    add_arrow(copy, "numpy>=1.16.6", is_old)
    copy.use("import arrow")
    assert copy.judge() == ({"PKG046": "error"} if is_old else {})
    assert copy.really_imports() is not is_old


def test_a_module_that_nobody_imports_is_a_warning(whole: EnvironmentCopy, tmp_path: Path) -> None:
    copy = whole.clone(tmp_path / "copy")
    add_arrow(copy, "numpy", is_old=True)
    assert copy.judge() == {"PKG046": "warning"}
    assert copy.really_imports() and not copy.really_imports("arrow")


@pytest.mark.parametrize(
    ("requirement", "is_open"),
    [
        ("numpy", True),
        ("numpy>=1.16.6", True),
        ("numpy (<2,>=1.21)", True),
        ('numpy<2.0,>=1.17.3; python_version >= "3.8"', True),
        ("numpy!=1.21.0,>=1.17", True),
        ("numpy>=1.23.5,<2.3", False),
        ("numpy<3,>=1.26", False),
        ("numpy>=2", False),
        ("numpydoc>=1.2", False),
    ],
)
def test_who_says_numpy_two_knows_it(requirement: str, is_open: bool) -> None:
    assert leaves_numpy_open(requirement) is is_open


def make_distribution(site: Path, name: str, version: str, *requires: str) -> Distribution:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
    return find_distributions(SearchPath((), [str(site)]))[name][0]


def make_loader(site: Path) -> Loader:
    return Loader(SearchPath((), [str(site)]), "x86_64", "", "")


@pytest.mark.parametrize(("version", "is_refused"), [("26.0.1", True), ("25.0.0", False)])
def test_a_package_that_refuses_numpy_one(tmp_path: Path, version: str, is_refused: bool) -> None:
    copy, loader = make_distribution(tmp_path, "pyarrow", version), make_loader(tmp_path)
    found = list_refused_modules(copy, ["/site/pyarrow/lib.abi3.so"], [], loader, "1.26.4")
    assert bool(found) is is_refused
    assert not list_refused_modules(copy, ["/site/pyarrow/lib.abi3.so"], [], loader, "2.2.6")


@pytest.mark.parametrize(("oldest", "is_refused"), [(b"2.00", True), (b"1.20", False), (b"1.27", True)])
def test_the_oldest_numpy_that_a_module_was_compiled_for(
    whole: EnvironmentCopy, tmp_path: Path, oldest: bytes, is_refused: bool
) -> None:
    data = whole.path("numpy/linalg/_umath_linalg*.so").read_bytes()
    (at,) = {match.start(1) for match in OLDEST_NUMPY.finditer(data)}
    library = tmp_path / "lib.abi3.so"
    library.write_bytes(data[:at] + oldest + data[at + 4 :])
    copy = make_distribution(tmp_path, "arrow", "14.0", "numpy")
    found = list_refused_modules(copy, [str(library)], [str(library)], make_loader(tmp_path), "1.26.4")
    assert found == ([(str(library), f">={oldest.decode()}")] if is_refused else [])
