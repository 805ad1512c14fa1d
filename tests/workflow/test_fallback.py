"""What is planned when the first choice cannot be had."""

from __future__ import annotations

import pytest

from gpuready.model import Requirement
from gpuready.model.plan import LockedPackage, Plan, PlanConflict, RejectedChoice, UnresolvedCause
from gpuready.workflow.fallback import ask_index_once, resolve_or_fall_back

FIRST = Plan("x", "1", "plan", python="3.13", torch="2.15.0+cpu", index="cpu")
ROW = (LockedPackage("x", "1"),)
UNREAD = UnresolvedCause("index-unread", ("cpu",))
HERE = ["torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl", "torch-2.9.0+cpu-cp312-cp312-linux_x86_64.whl",
        "torch-2.14.0+cu126-cp311-cp311-linux_x86_64.whl", "numpy-2.0-cp311-cp311-linux_x86_64.whl", "odd.whl"]  # fmt: skip


def choose(torch, python, why):
    fell = (RejectedChoice("torch 2.15.0", why), RejectedChoice("torch 2.0.0", "too old"))
    return FIRST.replace(torch=torch, python=python, fell=fell)


def resolving(**answers):
    """Resolves a Python or a torch that is named here, and says no to all others in the way given."""

    def resolve(plan):
        if plan.python in answers.get("good", ()) or plan.torch in answers.get("good", ()):
            return plan.replace(lock=ROW, resolved="resolved")
        if answers.get("conflict"):
            return plan.replace(verdict="impossible", conflicts=(PlanConflict("a wants b"),), resolved="resolved")
        return plan.replace(resolved="not resolved here: the index cpu cannot be reached", unresolved=UNREAD)

    return resolve


def test_what_resolves_is_taken_as_it_is():
    found = resolve_or_fall_back(FIRST, choose, resolving(good=["3.13"]), ["torch", "python"], HERE)
    assert found.python == "3.13" and found.lock and not found.fell


def test_the_next_python_that_resolves():
    found = resolve_or_fall_back(FIRST, choose, resolving(good=["3.11"], conflict=True), ["torch", "python"], HERE)
    assert (found.python, found.torch) == ("3.11", FIRST.torch)
    assert found.fell[0] == RejectedChoice("Python 3.13", "a wants b")
    assert [one.choice for one in found.fell] == ["Python 3.13", "torch 2.0.0"]
    assert "not Python 3.13: a wants b" in found.notes


def test_a_python_that_was_named_stays():
    found = resolve_or_fall_back(FIRST, choose, resolving(good=["3.11"], conflict=True), ["torch"], HERE)
    assert found.verdict == "impossible" and found.python == "3.13"


def test_when_nothing_resolves_the_first_answer_stands():
    found = resolve_or_fall_back(FIRST, choose, resolving(conflict=True), ["torch", "python"], HERE)
    assert found.verdict == "impossible" and found.conflicts == (PlanConflict("a wants b"),)
    found = resolve_or_fall_back(FIRST, choose, resolving(), ["torch", "python"], [])
    assert found.verdict == "plan" and not found.lock and "cannot be reached" in found.resolved


def pinned_to(release, is_readable=True):
    """Resolves with the torch that a package pins, as a release does whose requirements its build works out; says which it pins."""

    def resolve(plan):
        if not plan.torch.startswith(release):
            says = f"x 1.0 needs torch =={release}, x needs torch =={plan.torch.partition('+')[0]}"
            needs = (
                Requirement("package.torch", f"=={release}"),
                Requirement("package.torch", f"=={plan.torch.partition('+')[0]}"),
            )
            return plan.replace(verdict="impossible", conflicts=(PlanConflict(says, needs=needs),), resolved="resolved")
        unread = "not resolved here: the index cu129: its name does not resolve from here"
        return plan.replace(lock=ROW, resolved="resolved") if is_readable else plan.replace(resolved=unread)

    return resolve


def test_the_torch_that_a_conflict_names_is_tried_however_old():
    found = resolve_or_fall_back(FIRST, choose, pinned_to("2.6.0"), ["torch", "python"], [])
    assert found.lock and found.torch == "2.6.0"
    unread = resolve_or_fall_back(FIRST, choose, pinned_to("2.6.0", is_readable=False), ["torch", "python"], [])
    assert (unread.verdict, unread.torch) == ("plan", "2.6.0") and "cu129" in unread.resolved
    named = resolve_or_fall_back(FIRST, choose, pinned_to("2.6.0"), ["python"], [])
    assert named.verdict == "impossible" and named.torch == FIRST.torch


def test_a_torch_in_a_folder_of_the_same_kind_the_newest_first():
    found = resolve_or_fall_back(FIRST, choose, resolving(good=["2.13.0+cpu", "2.9.0+cpu"]), ["torch", "python"], HERE)
    assert (found.torch, found.python) == ("2.13.0+cpu", "3.11")
    found = resolve_or_fall_back(FIRST, choose, resolving(good=["2.9.0+cpu"]), ["torch", "python"], HERE)
    assert (found.torch, found.python) == ("2.9.0+cpu", "3.12")
    assert not resolve_or_fall_back(FIRST, choose, resolving(good=["2.14.0+cu126"]), ["torch", "python"], HERE).lock


def test_a_torch_that_was_named_stays():
    assert resolve_or_fall_back(FIRST, choose, resolving(good=["2.13.0+cpu"]), ["python"], HERE).torch == "2.15.0+cpu"


def cpu_plan(cause=UNREAD, free=("torch",), **changes):
    """A plan for the CPU of which only the build on PyPI resolves; what came of it."""
    first = Plan(
        "demo", "1", verdict="plan", python="3.12", torch="2.13.0+cpu", index="cpu",
        platform="x86_64-manylinux_2_36", packages={"torch": "2.13.0+cpu", "torchvision": "0.28.0+cpu", "demo": "1"},
    ).replace(**changes)  # fmt: skip

    def resolve(one):
        if one.index == "pypi":
            return one.replace(lock=(LockedPackage("torch", "2.13.0"),), resolved="resolved")
        return one.replace(
            resolved="not resolved here: the index cpu: its name does not resolve from here", unresolved=cause
        )

    impossible = Plan("demo", "1", verdict="impossible")
    return resolve_or_fall_back(first, lambda *_: impossible, resolve, free, [])


def test_without_the_index_of_the_cpu_build_pypis_torch_is_taken():
    found = cpu_plan()
    assert found.lock and found.index == "pypi" and not found.cuda
    assert found.torch == found.packages["torch"] and found.torch.startswith("2.13.0+cu")
    assert found.packages["torchvision"] == "0.28.0" and found.packages["demo"] == "1"
    assert any("not torch 2.13.0+cpu: the index cpu" in note for note in found.notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"cause": None},
        {"cause": UnresolvedCause("index-unread", ("pypi",))},
        {"platform": "aarch64-apple-darwin"},
        {"torch": "2.13.0+rocm7.2", "index": "rocm7.2"},
        {"python": "3.7"},
    ],
)
def test_no_other_build_is_taken_where_that_would_not_help(changes):
    assert not cpu_plan(**changes).lock


def test_an_index_that_does_not_answer_is_asked_once_but_a_local_torch_needs_none():
    asked = []

    def resolve(plan):
        asked.append((plan.index, plan.torch))
        if plan.torch == "2.9.0+cpu" or plan.index == "pypi":
            return plan.replace(lock=ROW, resolved="resolved")
        return plan.replace(
            resolved=f"not resolved here: the index {plan.index}: its name does not resolve",
            unresolved=UnresolvedCause("index-unread", (plan.index,)),
        )

    clock = [0.0]
    once = ask_index_once(resolve, lambda plan: plan.torch == "2.9.0+cpu", lambda: clock[0])
    assert not once(FIRST).lock and once(FIRST.replace(python="3.12")).resolved == once(FIRST).resolved
    assert once(FIRST.replace(torch="2.9.0+cpu")).lock and once(FIRST.replace(index="pypi")).lock
    assert asked == [("cpu", FIRST.torch), ("cpu", "2.9.0+cpu"), ("pypi", FIRST.torch)]
    clock[0] = 1000.0
    assert "not tried" in once(FIRST.replace(index="pypi")).resolved and len(asked) == 3


def test_a_build_of_pypi_that_a_check_would_object_to_gives_way_to_an_older_torch():
    first = Plan(
        "demo", "1", verdict="plan", python="3.12", torch="2.13.0+cpu", index="cpu", platform="x86_64-manylinux_2_36"
    )

    def resolve(one):
        if one.index == "pypi":
            return one.replace(lock=ROW, resolved="resolved")
        return one.replace(
            resolved="not resolved here: the index cpu: its name does not resolve from here", unresolved=UNREAD
        )

    def choose_older(torch, python, why):
        return first.replace(torch=f"{torch}+cpu")

    def find(accepts):
        return resolve_or_fall_back(first, choose_older, resolve, ["torch"], [], accepts=accepts)

    assert find(lambda plan: True).torch.startswith("2.13.0+cu")
    found = find(lambda plan: not plan.torch.startswith("2.13.0"))
    assert found.lock and found.torch.startswith("2.12.1+cu") and found.index == "pypi"
    assert not find(lambda plan: False).lock


def test_a_named_release_of_torch_is_taken_in_pypis_build_and_a_named_build_is_not():
    found = cpu_plan(free=("build",))
    assert found.lock and found.index == "pypi" and found.torch.startswith("2.13.0+cu")
    assert not cpu_plan(free=()).lock and not cpu_plan(free=("python",)).lock


ON_GPU = Plan("x", "1", "plan", python="3.12", torch="2.15.0+cu132", index="pypi", platform="x86_64-manylinux_2_28")


def lacking_torch(*there):
    def resolve(plan):
        if plan.torch in there:
            return plan.replace(lock=ROW, resolved="resolved")
        release = f"torch {plan.torch[:6]}"
        cause = UnresolvedCause("missing", (release,))
        return plan.replace(resolved=f"not resolved here: no index that was asked has {release}", unresolved=cause)

    return resolve


def choose_for_gpu(torch, python, why):
    return ON_GPU.replace(torch=torch, python=python)


def test_a_mirror_without_the_newest_torch_gives_the_newest_that_it_has():
    listed = {"2.15.0": "2.11.0", "2.11.0": "2.9.1"}
    found = resolve_or_fall_back(
        ON_GPU,
        choose_for_gpu,
        lacking_torch("2.9.1+cu128"),
        ["torch"],
        [],
        find_torch=lambda _, below: listed.get(below, ""),
    )
    assert found.torch == "2.9.1+cu128" and found.lock, "2.11.0 was tried first, and did not resolve"
    assert "not torch 2.15.0+cu132: no index that was asked has torch 2.15.0" in found.notes
    named = resolve_or_fall_back(
        ON_GPU, choose_for_gpu, lacking_torch("2.9.1+cu128"), [], [], find_torch=lambda _, below: listed.get(below, "")
    )
    assert not named.lock, "a torch that was named stays"


def test_a_folder_with_pypis_torch_or_that_of_another_cuda_serves():
    bare = ["torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl"]
    found = resolve_or_fall_back(ON_GPU, choose_for_gpu, lacking_torch("2.11.0+cu130"), ["torch"], bare)
    assert found.torch == "2.11.0+cu130"
    other = [
        "torch-2.11.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.13.0+cpu-cp312-cp312-linux_x86_64.whl",
    ]
    found = resolve_or_fall_back(ON_GPU, choose_for_gpu, lacking_torch("2.11.0+cu128", "2.13.0+cpu"), ["torch"], other)
    assert found.torch == "2.11.0+cu128", "a build for the CPU is none for a GPU"
