"""What is planned when the first choice cannot be had."""

from __future__ import annotations

from gpuready.model import Requirement
from gpuready.model.plan import LockedPackage, Plan, PlanConflict, RejectedChoice, UnresolvedCause
from gpuready.workflow.fallback import ask_index_once, resolve_or_fall_back
from gpuready.workflow.plan import _resolve_rest

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


def test_a_plan_for_the_cpu_keeps_its_build_where_that_index_cannot_be_read():
    first = FIRST.replace(torch="2.13.0+cpu", index="cpu", platform="x86_64-manylinux_2_36")

    def resolve(one):
        return one.replace(lock=ROW) if one.index == "pypi" else one.replace(unresolved=UNREAD)

    impossible = Plan("demo", "1", verdict="impossible")
    found = resolve_or_fall_back(first, lambda *_: impossible, resolve, ["torch"], [])
    assert found.torch == "2.13.0+cpu" and not found.lock


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


def test_a_conflict_of_exact_versions_of_others_tries_no_other_python():
    says = "sglang==0.5.8 depends on transformers==4.57.1 and verl[sglang]==0.9.0 depends on sglang[openai]==0.5.8"
    tried = []

    def resolve(one):
        tried.append(one.python)
        return one.replace(verdict="impossible", conflicts=(PlanConflict(says),))

    resolve_or_fall_back(FIRST, choose, resolve, ["torch", "python"], [])
    assert len(tried) == 1
    says = "tool==1 depends on torch==2.6.0 and x==2 depends on torch==2.7.0"
    resolve_or_fall_back(FIRST, choose, resolve, ["torch", "python"], [])
    assert len(tried) > 2


def test_a_python_without_a_wheel_gives_way_to_one_of_which_uv_could_not_say():
    def resolve(one):
        if one.python == FIRST.python:
            says = "torchvision 0.14.0 has no wheel with the Python ABI tag cp311 of this target"
            return one.replace(verdict="impossible", conflicts=(PlanConflict(says, kind="python-tag"),))
        return one.replace(
            resolved="not resolved here: future: no wheel", unresolved=UnresolvedCause("no-wheel", ("future",))
        )

    found = resolve_or_fall_back(FIRST, choose, resolve, ["torch", "python"], [])
    assert found.verdict == "plan" and found.python != FIRST.python and not found.lock


def test_what_uv_holds_against_other_packages_counts_though_torchs_index_cannot_be_read():
    first = FIRST.replace(torch="2.14.1+cu126", index="cu126")

    def refuse(says):
        return lambda one: one.replace(verdict="impossible", conflicts=(PlanConflict(says),))

    found = _resolve_rest(
        first, refuse("only certifi<=2026.10.18 is available and unsloth depends on certifi>=2026.10.19")
    )
    assert found.verdict == "impossible" and found.index == "cu126"
    assert _resolve_rest(first, refuse("there is no version of torch==2.14.1")).verdict == "plan"


def test_only_torch_its_companions_and_what_it_requires_are_left_to_its_index():
    names = ("torch", "torchvision", "torchmetrics", "torchsde", "torch-optimizer", "triton", "nvidia-nccl-cu12")
    rows = tuple(LockedPackage(name, "1.0") for name in names)
    first = FIRST.replace(index="cu126", packages={})
    found = _resolve_rest(first, lambda one: one.replace(lock=rows))
    assert [*found.packages] == ["torchmetrics", "torchsde", "torch-optimizer"]
