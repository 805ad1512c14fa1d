"""The choice on the examples that must come out right, and what it says of them."""

from __future__ import annotations

import pytest

from gpuready import contracts
from gpuready.catalog import packages
from gpuready.contracts.catalogued_release import contract_from_metadata
from gpuready.model import Fact, Facts, versions
from gpuready.plan.choose import choose_plan
from gpuready.plan.limits import find_macos_version
from gpuready.plan.search_space import smallest_failing_set
from gpuready.workflow import Refused
from gpuready.workflow import plan as planning

LAST_TORCH_OF_CUDA_12 = "2.14.1"


def plan(*frameworks: str, on: str = "h100x8", **flags: str):
    wants, contract = flags.pop("wants", None), flags.pop("contract", None)
    what_if = {name.replace("_", "-"): value for name, value in flags.items()}
    return planning.plan_frameworks(frameworks, on=on, wants=wants, contract=contract, what_if=what_if, resolve=False)


def one(framework: str, on: str = "h100x8", **flags: str):
    return plan(framework, on=on, **flags).plans[0]


def test_colossalai_on_a_gpu_that_its_torch_has_no_code_for():
    found = one("colossalai==0.5.0", "rtx5090")
    assert (found.verdict, found.exit) == ("impossible", 1)
    (conflict,) = found.conflicts
    assert {need.key for need in conflict.needs} == {"package.torch", "torch.arch"}
    assert "12.0" in conflict.says and "2.5.1" in conflict.says
    assert "gpu.capability" in {fact.key for fact in conflict.facts}
    assert all(need.cite for need in conflict.needs)
    assert found.opens and found.opens[0].kind == "gpu"


def test_an_opening_opens():
    found = one("colossalai", "rtx5090x4")
    for opening in found.opens:
        words = list(opening.run[3:])
        flags = dict(zip(words[::2], words[1::2], strict=True))
        again = one(opening.run[2], flags.pop("--on"), **{k.lstrip("-"): v for k, v in flags.items()})
        assert again.verdict == "plan" and again.torch in opening.then


@pytest.mark.parametrize(("framework", "torch"), [("vllm", "2.10.0"), ("sglang", "2.9.1")])
def test_an_older_release_is_offered_for_a_driver_that_the_newest_does_not_take(framework, torch):
    """Its wheels of CUDA 13 do not start with such a driver; the last ones of CUDA 12 do, and their command names them."""
    opens = one(f"{framework}=={contracts.load_contract(framework).version}", driver="550.54.15").opens
    (release,) = [opening for opening in opens if opening.kind == "release"]
    (compat,) = [opening for opening in opens if opening.kind == "compat"]
    assert "cuda-compat-13-0" in compat.change
    again, taken = one(release.run[2], driver="550.54.15"), one(framework, driver="550.54.15")
    assert (again.verdict, again.torch) == ("plan", f"{torch}+cu128") and torch in release.then
    assert (taken.verdict, taken.version, taken.torch) == ("plan", again.version, again.torch)
    assert any(note.startswith(f"not {framework} ") for note in taken.notes)
    assert not any("recommends" in note for note in taken.notes), "what another release recommends is not its own"


def test_a_release_that_does_not_exist_is_told():
    assert any("0.16.12 is not among its releases" in note for note in one("deepspeed==0.16.12").notes)


def test_a_release_between_two_is_built_for_the_cuda_of_the_one_with_its_torch():
    """vLLM 0.20.1 stands between 0.19.1, of CUDA 12, and 0.20.2, of CUDA 13, which pins the same torch."""
    assert one("vllm==0.20.1", driver="550.54.15").verdict == "impossible"
    assert one("vllm==0.20.1", driver="580.95.05").verdict == "plan"


def test_axolotl_on_v100_takes_the_one_build_that_carries_it():
    found = one("axolotl==0.21", "v100")
    assert (found.verdict, found.cuda, found.index) == ("plan", "12.6", "cu126")
    assert found.torch.endswith("+cu126")
    assert any("7.0" in reason.says and reason.cite for reason in found.because)


@pytest.mark.parametrize("framework", ["transformers", "axolotl", "unsloth", "trl"])
def test_an_older_driver_takes_a_build_for_an_older_cuda(framework):
    old, new = one(framework, driver="550.54.15"), one(framework, driver="580.95.05")
    assert (old.verdict, versions.major_version(old.cuda)) == ("plan", 12)
    newest = min(new.torch.partition("+")[0], LAST_TORCH_OF_CUDA_12, key=versions.parse_release)
    assert old.torch.partition("+")[0] == newest, "the release itself is not older than it must be"
    assert any("580.65.06" in fallen.why for fallen in old.fell)


def test_the_default_build_is_that_of_the_package_index():
    found = one("transformers", driver="580.95.05")
    assert found.index == "pypi" and versions.major_version(found.cuda) == 13


def test_minor_version_compatibility_lets_a_525_run_cuda_12_8():
    assert one("transformers", torch="2.10.0+cu128", driver="525.60.13").cuda == "12.8"


def test_roll_whose_pins_contradict_each_other():
    """No resolver accepts them. For x86_64 the project has an image; elsewhere nothing is left."""
    by_image = one("roll:torch260-vllm")
    assert by_image.verdict == "plan" and "as an image" in by_image.resolved
    assert [step.run[:2] for step in by_image.steps] == [("docker", "run")]
    assert one("roll:torch260-vllm", on="gh200").verdict == "impossible"


def test_roll_whose_vllm_no_index_of_releases_has():
    found = one("roll:torch2100-vllm")
    assert found.verdict == "plan" and found.torch == "2.10.0+cu130", "the nightly builds are for CUDA 13"
    assert found.resolved.startswith("not resolved here") and "nightly" in found.resolved
    assert "vllm" not in found.packages or versions.compare_versions(found.packages["vllm"], "0.15") >= 0


def test_what_is_compiled_is_there_before_the_requirement_files_that_name_it():
    does = [step.does for step in one("roll:torch2100-vllm").steps]
    compiled = next(i for i, said in enumerate(does) if said.startswith(("compile flash-attn", "install flash-attn")))
    assert does.index("install the checkout") < compiled < does.index("install its requirements")


def test_a_torch_that_is_laid_down_is_not_called_the_newest():
    reason = next(b for b in one("transformers", torch="2.8.0").because if b.about == "torch")
    assert reason.says == "2.8.0: --as torch asks for it"


def test_look_alikes_never_enter():
    for variant in ("", ":torch280-vllm", ":torch2100-vllm"):
        assert not {"roll", "mcore-adapter"} & set(one("roll" + variant).packages)


def test_two_frameworks_that_cannot_share():
    found = plan("colossalai", "axolotl")
    assert found.verdict == "plan" and len(found.environments) == 2
    (conflict,) = found.conflicts
    assert "colossalai" in conflict.says and "axolotl" in conflict.says
    assert {"package.torch"} <= {need.key for need in conflict.needs} and all(n.cite for n in conflict.needs)


def test_two_frameworks_that_share():
    found = plan("transformers", "trl")
    assert len(found.environments) == 1 and not found.conflicts
    assert len({(p.torch, p.python) for p in found.plans}) == 1


def test_no_gpu_takes_a_torch_for_the_cpu():
    found = planning.plan_frameworks(["transformers"], on="tests/machines/no-gpu.json", resolve=False).plans[0]
    assert (found.verdict, found.cuda, found.index) == ("plan", "", "cpu")
    assert found.torch.endswith("+cpu") and "cpu" in found.options["wants"]


def test_a_contract_that_names_no_platform_is_planned_on_every_one(tmp_path):
    (tmp_path / "kiosk.toml").write_text(
        'framework = "kiosk"\nversion = "0"\norigin = "README of kiosk"\nplatforms = []\n'
    )
    for wants in (None, "cpu"):
        found = one("kiosk", contract=str(tmp_path / "kiosk.toml"), wants=wants)
        assert found.verdict == "plan", found.conflicts


def test_no_gpu_is_no_machine_for_a_framework_that_needs_one():
    found = planning.plan_frameworks(["axolotl==0.21"], on="tests/machines/no-gpu.json", resolve=False).plans[0]
    assert found.verdict == "impossible" and "gpu.count" in {n.key for n in found.conflicts[0].needs}
    assert found.opens and found.opens[0].kind == "gpu"


def test_the_newest_release_inside_a_contract_is_planned_in_whatever_order_the_catalogue_has_them():
    known = [row["version"] for row in packages.find_package("deepspeed")["version"]]
    line = [version for version in known if version.startswith("0.19.")]
    assert len(line) > 1 and one("deepspeed").packages["deepspeed"] == max(line, key=versions.parse_release)


def test_a_wheel_of_the_release_page_serves_where_that_of_the_index_is_for_another_cuda():
    """ROLL's image takes vLLM for CUDA 13 from its release page: not impossible, and no note says that it cannot load."""
    found = one("roll:torch291-vllm")
    assert (found.verdict, found.torch) == ("plan", "2.9.1+cu130")
    assert any("vllm-0.15.1+cu130" in word for kernel in found.kernels for step in kernel.steps for word in step.run)
    assert not [note for note in found.notes if "do not load" in note]


@pytest.mark.parametrize("machine", ["gb10", "b300x8", "gh200", "h200x8", "rtx4090x2"])
def test_machines_of_today(machine):
    found = one("transformers", machine)
    assert found.verdict == "plan" and found.platform.split("-")[0] in ("x86_64", "aarch64")


def test_an_unversioned_ask_falls_back_to_an_older_version():
    found = one("axolotl", python_version="3.11")
    assert (found.verdict, found.version) == ("plan", "0.19")
    assert found.fell[0].choice == "axolotl 0.21"


def test_what_the_user_lays_down_holds():
    found = one("transformers", torch="2.9.1", python_version="3.12", driver="550.54.15")
    assert found.python == "3.12" and found.torch.startswith("2.9.1+")
    kept = one("axolotl==0.21", torch="2.8.0")
    assert kept.verdict == "impossible" and kept.opens[0].kind == "flag"


def test_an_old_system_has_no_torch_and_a_newer_one_opens():
    found = one("axolotl==0.21", os="centos7")
    assert found.verdict == "impossible" and "system" in [opening.kind for opening in found.opens]
    assert "os.glibc" in {fact.key for fact in found.conflicts[0].facts}


def test_every_step_is_an_argument_list():
    found = one("colossalai")
    assert all(isinstance(step.run, tuple) for step in found.steps)
    assert next(step.run[:2] for step in found.steps if step.run) == ("uv", "venv")
    assert found.steps[-1].run[:2] == ("gpuready", "check")


def test_a_framework_that_nobody_knows_is_refused():
    with pytest.raises(Refused):
        one("no-such-framework")


@pytest.mark.parametrize(
    ("system", "newest", "note"),
    [
        ("macos13", "2.10.0", ""),
        ("macos14", "", ""),
        ("macos26", "", ""),
        ("macos", "", "planned for macOS 14 or newer"),
    ],
)
def test_an_older_macos_takes_an_older_torch(system, newest, note):
    found = one("transformers", "m4", os=system)
    newest = newest or one("transformers", "m4").torch.partition("+")[0]
    assert found.torch.partition("+")[0] == newest
    result = [text for text in found.notes if "macOS" in text]
    assert len(result) == bool(note) and note in " ".join(result)
    assert found.options.get("macos", "") == system.removeprefix("macos")
    assert "+" not in found.torch  # PyPI's wheels for macOS have no suffix


def test_a_torch_that_needs_a_newer_macos_is_a_conflict():
    found = one("transformers", "m4", os="macos13", torch="2.15.0")
    assert found.exit == 1 and "needs macOS 14, and this machine has 13" in found.conflicts[0].says


@pytest.mark.parametrize(
    ("kernel", "here"), [("22.6.0", "13"), ("24.1.0", "15"), ("25.0.0", "26"), ("", ""), ("9", "")]
)
def test_the_macos_of_a_recorded_mac_is_known_by_its_kernel(kernel, here):
    values = {"os.system": "darwin", "os.version": None, "os.release": kernel or None}
    assert find_macos_version(Facts([Fact(key, value, "uname") for key, value in values.items()])) == here


# -- the smallest set ------------------------------------------------------------------------------------


def hits(masks, numbers):
    return all(any(mask >> n & 1 for n in numbers) for mask in masks)


@pytest.mark.parametrize("masks", [[0b1], [0b011, 0b110], [0b001, 0b010], [0b0110, 0b1010, 0b0101], [0b111, 0b100]])
def test_the_set_is_smallest(masks):
    found = smallest_failing_set(masks, 4)
    assert hits(masks, found)
    for left_out in found:
        assert not hits(masks, [n for n in found if n != left_out])


def test_there_is_none_where_something_fits():
    assert smallest_failing_set([0b1, 0], 2) == ()


def test_a_package_that_only_its_metadata_describes_is_planned_for_a_cpu_on_demand():
    """Metadata names no GPU. A contract that names GPUs alone is refused there, as is a wheel compiled for CUDA."""
    stated = {"os.arch": "x86_64", "platform.name": "cpu", "gpu.count": 0, "job.wants": ("cpu",)}
    machine = Facts([Fact(key, value, "test", "stated") for key, value in stated.items()])
    derived = contract_from_metadata("kite", "1.0", ["torch>=2.4"], None)
    found = choose_plan(machine, [derived])
    assert (found.verdict, found.index, found.cuda) == ("plan", "cpu", "")
    refused = choose_plan(machine, [derived.replace(says="it is for GPUs")])
    assert refused.verdict == "impossible" and "not for a CPU alone" in refused.conflicts[0].says
    compiled = contract_from_metadata("vllm", "0.32.0", ["torch>=2.4"], None)
    assert choose_plan(machine, [compiled]).verdict == "impossible"


@pytest.mark.parametrize(
    ("framework", "verdict"), [("unsloth", "impossible"), ("vllm", "impossible"), ("verl", "plan")]
)
def test_a_framework_whose_own_command_starts_on_a_gpu_alone_is_not_planned_for_a_cpu(framework, verdict):
    found = one(framework, on="h100x8", wants="cpu")
    assert found.verdict == verdict
    assert verdict == "plan" or any("not for a CPU alone" in conflict.says for conflict in found.conflicts)
