"""A package whose pinned version has a wheel for some Pythons only: the plan takes one of those before a build."""

from __future__ import annotations

import pytest

from gpuready.apply import uv
from gpuready.apply.resolve import resolve_plan
from gpuready.apply.wheel_search import find_wheels
from gpuready.model.plan import LockedPackage
from gpuready.workflow.fallback import resolve_or_fall_back
from tests.apply.asking import contract, default, need, row
from tests.apply.test_project_config import sdist

PINNED = contract(need("kite", "==1.0"))
BUILT = (LockedPackage("kite", "1.0"),)


@pytest.fixture
def kite(index, tmp_path):
    """kite 1.0: a wheel for Python 3.12 on x86_64 and its source, which leaves a mark where its code is run."""
    index.add("kite", "1.0", tag="cp312-cp312-manylinux_2_17_x86_64")
    sdist(index.folder / "main", "kite", "1.0", tmp_path / "built")
    return tmp_path / "built"


def plan_kite(world, python="3.13", free=("torch", "python"), allow_build=False, asked=PINNED):
    def resolve(plan):
        return resolve_plan(world, plan, asked, allow_build=allow_build)

    def choose(torch, other, why):
        return default(python=other) if other != "3.10" else default(python=other).replace(verdict="impossible")

    settings = uv.make_uv_settings(world)
    return resolve_or_fall_back(
        default(python=python), choose, resolve, free, [], lambda rows, plan: find_wheels(world, rows, plan, settings)
    )


@pytest.mark.parametrize("allow_build", [False, True])
def test_the_python_with_a_wheel_is_taken_before_a_build(world, kite, allow_build):
    found = plan_kite(world, allow_build=allow_build)
    assert found.python == "3.12" and not row(found, "kite").built and not kite.exists()
    assert "not Python 3.13: kite 1.0 has a wheel for Python 3.12, and none for 3.13" in found.notes
    assert not any("builds them" in note for note in found.notes)


def test_a_newer_python_is_taken_where_no_older_one_has_the_wheel(world, kite):
    assert plan_kite(world, python="3.11").python == "3.12"


def test_a_named_python_stays_and_the_build_is_said_each_time(world, kite):
    for _ in range(2):  # the second answer is a kept one
        found = plan_kite(world, free=("torch",))
        assert found.python == "3.13" and row(found, "kite").built and not kite.exists()
        assert any("builds them" in note and "kite 1.0" in note for note in found.notes)


def test_a_package_without_any_wheel_moves_no_python(world, index, tmp_path):
    sdist(index.folder / "main", "kite", "1.0", tmp_path / "built")
    found = plan_kite(world)
    assert found.python == "3.13" and row(found, "kite").built and not (tmp_path / "built").exists()


def test_a_wheel_without_a_source_is_the_same_matter(world, index):
    index.add("kite", "1.0", tag="cp312-cp312-manylinux_2_17_x86_64")
    assert plan_kite(world).python == "3.12"


@pytest.mark.parametrize(
    ("target", "known"),
    [
        ({"python": "3.12"}, {"kite"}),
        ({"python": "3.11"}, set()),
        ({"python": "3.12", "platform": "aarch64-manylinux_2_28"}, set()),
    ],
)
def test_a_wheel_counts_for_its_python_and_platform(world, kite, target, known):
    settings = uv.make_uv_settings(world)
    for _ in range(2):
        assert find_wheels(world, BUILT, default(**target), settings) == known
    assert not kite.exists()


def test_what_no_index_has_is_unknown(world):
    assert find_wheels(world, BUILT, default(), uv.make_uv_settings(world)) is None
