"""Packages that a framework imports without requiring them: because its source does, or because they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.imports.breakages import require
from tests.imports.copies import EnvironmentCopy
from tests.imports.test_numpy_abi import add_arrow

ASK = "import importlib.util\nif importlib.util.find_spec('arrow') is not None:\n    import arrow"
NEW_NAME = "import numpy as np\n\ntext_dtype = np.dtypes.{}()\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentCopy:
    return EnvironmentCopy(tmp_path_factory.mktemp("undeclared") / "whole").make()


def name_in_extra(env: EnvironmentCopy, extra: str = "arrow") -> None:
    """Let the framework name the package in an extra only."""
    env.rewrite("demo-1.0.dist-info/METADATA", lambda data: data.replace(b"Requires-Dist: arrow\n", b""))
    require(env, f"arrow ; extra == '{extra}'")


@pytest.mark.parametrize("is_imported", [True, False])
def test_an_installed_package_of_an_extra_for_another_numpy(
    whole: EnvironmentCopy, tmp_path: Path, is_imported: bool
) -> None:
    copy = whole.clone(tmp_path / "copy")
    add_arrow(copy, "numpy", is_old=True)
    name_in_extra(copy)
    if is_imported:
        copy.use(ASK)
    assert copy.judge() == ({"PKG046": "error"} if is_imported else {})
    assert copy.really_imports() is not is_imported


@pytest.mark.parametrize(("name", "is_there"), [("StringDTypeOfNumpyThree", False), ("Float64DType", True)])
def test_an_installed_package_that_takes_a_newer_numpy(
    whole: EnvironmentCopy, tmp_path: Path, name: str, is_there: bool
) -> None:
    copy = whole.clone(tmp_path / "copy")
    copy.install("arrow", "14.0", {"arrow/__init__.py": NEW_NAME.format(name)}, ("numpy>=90",))
    name_in_extra(copy)
    copy.use(ASK)
    assert copy.judge() == ({} if is_there else {"PKG042": "error"})
    assert copy.really_imports() is is_there


def test_a_framework_without_requirements_is_followed_by_its_imports(whole: EnvironmentCopy, tmp_path: Path) -> None:
    """As frameworks are that are installed from their source, with their requirements in files of their own."""
    copy = whole.clone(tmp_path / "copy")
    copy.rewrite("demo-1.0.dist-info/METADATA", lambda data: data.partition(b"Requires-Dist")[0])
    assert copy.judge() == {}
    copy.delete("safetensors/_safetensors_rust*.so")
    assert copy.judge() == {"PKG042": "error"}
    assert not copy.really_imports()


def test_tools_of_developers_are_not_looked_at(whole: EnvironmentCopy, tmp_path: Path) -> None:
    copy = whole.clone(tmp_path / "copy")
    copy.install("arrow", "14.0", {"arrow/__init__.py": "x = 1\n"}, ("left-pad",))
    name_in_extra(copy, "testing")
    copy.judge()
    assert not copy.facts.value("import.damage")
