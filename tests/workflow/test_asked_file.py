"""Files in the place of a framework: what a check judges them by, on any machine."""

from __future__ import annotations

import pytest

from gpuready import workflow
from gpuready.apply.index_release import IndexRelease
from gpuready.apply.uv_output import InconclusiveResolution
from gpuready.model.plan import LockedPackage, PlanConflict, UnresolvedCause
from gpuready.workflow import asked_file, machine_facts
from gpuready.workflow.refusal import Refused

FILES = {
    "requirements.txt": "torch==2.6.0\nnumpy\n",
    "nested/requirements.txt": "-r ../base.in\n",
    "base.in": "--extra-index-url https://download.pytorch.org/whl/cu124\ntorch==2.6.0\n",
    "environment.yml": "dependencies: [python=3.10, pytorch=2.5.1, pytorch-cuda=12.4, {pip: [numpy]}]\n",
    "ranges.yml": "dependencies: ['pytorch>=2.4,<2.6']\n",
    "pyproject.toml": '[project]\nname = "x"\nrequires-python = ">=3.10"\ndependencies = ["torch>=2.4,<2.6"]\n',
    "poetry/pyproject.toml": '[tool.poetry.dependencies]\npython = "^3.10"\ntorch = "~2.5"\nnumpy = {version = "*", optional = true}\n',
    "uv.lock": 'version = 1\n[[package]]\nname = "torch"\nversion = "2.6.0"\n[[package]]\nname = "numpy"\nversion = "1.26.4"\n',
    "pylock.toml": 'lock-version = "1.0"\n[[packages]]\nname = "torch"\nversion = "2.6.0"\n'
    "[[packages]]\nname = \"torch\"\nversion = \"2.2.0\"\nmarker = \"sys_platform == 'darwin'\"\n",
    "Dockerfile": "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN apt-get install -y python3-pip\nRUN pip install torch==2.6.0\n",
    "train.yml": "base_model: meta-llama/Llama-3.2-1B\nflash_attention: true\n",
    "trainer.txt": "transformers<5\ntrl==0.12.0\ntorch==2.6.0\n",
}  # fmt: skip


def check(folder, word, on):
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    frameworks, files = workflow.sort_asked_files([str(folder / word)])
    frameworks = frameworks or machine_facts.frameworks_of_file(files.get("config"))
    return workflow.check_machine(frameworks, on=on, **files)


@pytest.mark.parametrize("word", [name for name in FILES if name not in ("train.yml", "trainer.txt", "base.in")])
def test_a_file_without_a_framework_is_judged_for_torch(word, tmp_path):
    """Its torch of CUDA 12.4 has no code for an RTX 5090, and runs on an H100; no framework is assumed."""
    (report,) = check(tmp_path, word, "rtx5090")
    assert report.contract.framework == "torch" and report.verdict == "not-ready"
    assert [one.code for one in report.findings if one.severity == "error"] == ["GPU004"]
    assert "driver" in check(tmp_path, word, "h100")[0].lacking


def test_a_job_and_a_file_with_frameworks_are_judged_for_them(tmp_path):
    assert [one.contract.framework for one in check(tmp_path, "train.yml", "t4")] == ["axolotl"]
    reports = check(tmp_path, "trainer.txt", "h100")
    assert [one.contract.framework for one in reports] == ["transformers", "trl"]
    assert reports[0].contract.version.startswith("4.") and reports[1].contract.version == "0.12.0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\nfrom trl import SFTTrainer\nimport transformers.utils\n", ["trl", "transformers"]),
        ("import torch\n", ["torch"]),
        ("def later():\n    import trl\n", ["torch"]),
    ],
)
def test_a_script_is_judged_for_the_frameworks_that_it_imports_else_for_torch(text, expected, tmp_path):
    (tmp_path / "train.py").write_text(text)
    assert workflow.sort_asked_files([str(tmp_path / "train.py")]) == (expected, {}), "in the order of the script"


@pytest.mark.parametrize(
    ("call", "codes"),
    [
        ("AutoModel.from_pretrained('x', attn_implementation='flash_attention_2')", ["GPU005"]),
        ("AutoModel.from_pretrained('x', torch_dtype=torch.bfloat16)", ["CAP001"]),
        ("AutoModel.from_pretrained('x', attn_implementation=chosen, bf16=False)", []),
    ],
)
def test_what_the_calls_of_a_script_ask_for_is_judged(call, codes, tmp_path):
    (tmp_path / "train.py").write_text(f"import torch\nfrom transformers import AutoModel\nmodel = {call}\n")
    frameworks, files = workflow.sort_asked_files([str(tmp_path / "train.py")])
    assert frameworks == ["transformers"] and ("config" in files) == bool(codes)
    (report,) = workflow.check_machine(frameworks, on="v100", **files)
    assert [one.code for one in report.findings if one.severity == "error"] == codes


def test_what_is_no_python_is_refused(tmp_path):
    (tmp_path / "train.py").write_text("import (\n")
    with pytest.raises(Refused, match="is not Python: invalid syntax"):
        workflow.sort_asked_files([str(tmp_path / "train.py")])


def test_a_stated_driver_changes_the_cuda_beside_it(tmp_path):
    (report,) = workflow.check_machine(["transformers"], on="tests/machines/h200.json", what_if={"driver": "550.54.15"})
    assert report.facts.value_if_known("driver.cuda") == "12.4"


def test_what_uv_holds_against_a_file_is_an_error_with_the_release_it_would_take(tmp_path, monkeypatch):
    """torchvision 0.20.1 is for torch 2.5.1; where the file leaves torchvision open, uv takes 0.21.0."""
    says = "torchvision 0.20.1 needs torch ==2.5.1, requirements.txt needs torch ==2.6.0"

    def ask(host, path, words, target, note):
        if "torchvision==0.20.1" in words:
            return PlanConflict(says)
        return (LockedPackage("torch", "2.6.0"), LockedPackage("torchvision", "0.21.0"))

    monkeypatch.setattr(asked_file, "resolve_requirements", ask)
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\ntorchvision==0.20.1\n")
    (report,) = workflow.check_machine(on="h100", packages=str(tmp_path / "requirements.txt"), ask_index=True)
    (found,) = [one for one in report.findings if one.code == "PKG041"]
    assert says in found.says and "torchvision==0.21.0" in found.fix[0].does
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\ntorchvision\n")
    (report,) = workflow.check_machine(on="h100", packages=str(tmp_path / "requirements.txt"), ask_index=True)
    assert report.verdict == "undecided" and report.lacking and not report.findings, "the driver was not given"
    assert report.facts.value_if_known("package.torchvision") == "0.21.0"


@pytest.mark.parametrize(("torch", "asked"), [("2.4.1", "2.4.1"), ("2.4.1+cu118", "2.4.1+cu118")])
def test_what_uv_proves_against_a_release_that_is_named_is_an_error(torch, asked, monkeypatch):
    """What it would take for the release adds nothing: an environment may have other packages."""
    says = "transformers 4.40.0 has no wheel with the platform tag manylinux_2_17_x86_64 of this target"
    answers = [PlanConflict(says), (LockedPackage("torch", "2.4.1"), LockedPackage("numpy", "2.9.9"))]

    def ask(host, path, words, target, note):
        assert words == ("transformers==4.40.0", f"torch=={asked}") or "transformers" in words
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(asked_file, "resolve_requirements", ask)
    stated = {"what_if": {"driver": "550.54.15", "torch": torch, "python-version": "3.11"}, "ask_index": True}
    monkeypatch.setattr("gpuready.workflow.index_contract.find_index_release", lambda *words: None)
    (report,) = workflow.check_machine(["transformers==4.40.0"], on="a100", **stated)
    assert [one.code for one in report.findings if one.severity == "error"] == ["PKG041"]
    (report,) = workflow.check_machine(["transformers==4.40.0"], on="a100", **stated)
    assert all(one.severity == "info" for one in report.findings) and "package.numpy" not in report.facts


@pytest.mark.parametrize(
    ("asked", "machine", "torch", "codes"),
    [
        ("bitsandbytes==0.45.0", "a100", "2.7.1+cu128", ["PKG014"]),
        ("bitsandbytes==0.45.0", "a100", "2.6.0+cu126", []),
        ("xformers==0.0.31", "v100", "2.7.1+cu126", ["CAP008"]),
    ],
)
def test_a_release_that_is_named_is_judged_as_if_it_were_installed(asked, machine, torch, codes, monkeypatch):
    release = IndexRelease(*asked.split("=="), ("torch",))
    monkeypatch.setattr("gpuready.workflow.index_contract.find_index_release", lambda *words: release)
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *words: InconclusiveResolution("unread"))
    stated = {"driver": "570.124.06", "torch": torch}
    (report,) = workflow.check_machine([asked], on=machine, what_if=stated, ask_index=True)
    assert [one.code for one in report.findings if one.severity == "error"] == codes


@pytest.mark.parametrize(
    ("asked", "brought", "verdict"),
    [
        (["deepspeed==0.14.0"], "pydantic==2.9.0", "not-ready"),  # beside the stated torch
        (["peft==0.17.1", "transformers==5.1.0"], "transformers==5.1.0", "not-ready"),
        (["peft==0.17.1"], "transformers==5.1.0", "undecided"),  # nobody stated a transformers
        (["peft==0.17.1"], "transformers==4.57.1", "clear"),
        (["faiss-gpu==1.7.2"], "", "clear"),  # without a torch
    ],
)
def test_releases_that_are_named_are_judged_by_what_they_import_of_each_other(asked, brought, verdict, monkeypatch):
    words = [*asked, brought] if brought else asked
    release = IndexRelease(*asked[0].split("=="), ("torch", "einops"))
    monkeypatch.setattr("gpuready.workflow.index_contract.find_index_release", lambda *words: release)
    rows = tuple(LockedPackage(*word.split("==")) for word in dict.fromkeys(words))
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *words: rows)
    stated = {"driver": "570.124.06"} | ({"torch": "2.6.0+cu124"} if brought else {})
    report, *_ = workflow.check_machine(asked, on="a100", what_if=stated, ask_index=True)
    assert [one.code for one in report.findings if one.severity == "error"] == ["PKG048"] * (verdict == "not-ready")
    assert ["package.transformers"] * (verdict == "undecided") == [one.missing[0].key for one in report.undecided]
    assert report.verdict == (verdict if brought else "undecided")


@pytest.mark.parametrize(
    ("asked", "setup", "toolkit", "verdict"),
    [
        ("natten==0.21.0", "setup.py", "", "undecided"),  # only its source is on the index
        ("natten==0.21.0", None, "", "undecided"),  # could not be read
        ("natten==0.21.0", "", "", "clear"),  # it has no CUDA code
        ("natten==0.21.0", "setup.py", "12.4", "clear"),
        ("natten==0.21.0", "setup.py", "11.8", "not-ready"),
        (
            "mamba-ssm==2.2.4",
            "setup.py",
            "",
            "undecided",
        ),  # a wheel elsewhere, which its set-up takes beside nvcc alone
        ("flash-attn==2.7.3", "setup.py", "", "clear"),  # takes the wheel of its release page
    ],
)
def test_a_release_that_has_to_be_compiled_needs_nvcc_of_the_cuda_of_its_torch(
    asked, setup, toolkit, verdict, monkeypatch
):
    release = IndexRelease(*asked.split("=="), ("torch",), has_wheel=False, url="x.tar.gz")
    monkeypatch.setattr("gpuready.workflow.index_contract.find_index_release", lambda *words: release)
    monkeypatch.setattr("gpuready.workflow.index_contract.search_code", lambda *words: setup)
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *words: InconclusiveResolution("unread"))
    stated = {"driver": "570.124.06", "torch": "2.6.0+cu124"} | ({"toolkit": toolkit} if toolkit else {})
    (report,) = workflow.check_machine([asked], on="a100", what_if=stated, ask_index=True)
    assert report.verdict == verdict
    says = [one.missing[0].gap for one in report.undecided]
    assert all("with nvcc of torch's CUDA 12.4" in gap for gap in says) and bool(says) == (verdict == "undecided")


@pytest.mark.parametrize(
    ("conda", "cuda", "word"),
    [
        ("pytorch=1.13.1, cudatoolkit=11.7", "11.7", "torch==1.13.1"),
        ("pytorch=2.1, pytorch-cuda=12.1", "12.1", "torch==2.1.*"),
        ("pytorch=2.1.2, cpuonly", None, "torch==2.1.2"),
    ],
)
def test_what_pip_adds_to_a_conda_file_is_resolved_beside_its_torch(tmp_path, monkeypatch, conda, cuda, word):
    asked = []
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *given: asked.append(given[2]) or ())
    path = tmp_path / "environment.yml"
    path.write_text(f"dependencies: [python=3.10, {conda}, {{pip: [accelerate]}}]\n")
    (report,) = workflow.check_machine(["torch"], on="a100", packages=str(path), ask_index=True)
    assert asked == [(word, "accelerate")] and report.facts.value_if_known("torch.cuda") == cuda


def test_what_needs_no_torch_is_judged_beside_a_stated_one_and_else_nothing_is_claimed(monkeypatch):
    found = {"numpy": IndexRelease("numpy", "2.2.6"), "pytorch": IndexRelease("pytorch", "1.0.2")}
    monkeypatch.setattr("gpuready.workflow.index_contract.find_index_release", lambda host, name, *words: found[name])
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *words: InconclusiveResolution("unread"))
    stated = {"driver": "550.54.15", "torch": "2.2.0+cu121"}
    (report,) = workflow.check_machine(["numpy==2.2.6"], on="a100", what_if=stated, ask_index=True)
    assert [one.code for one in report.findings if one.severity == "error"] == ["PKG021"]
    with pytest.raises(Refused, match="needs no torch, by its metadata and code; its own libraries are not judged"):
        workflow.check_machine(["numpy==2.2.6"], on="a100", ask_index=True)
    with pytest.raises(Refused, match="is not PyTorch, whose package is torch"):
        workflow.check_machine(["pytorch"], on="a100", ask_index=True)


@pytest.mark.parametrize(("machine", "codes"), [("t4", ["CAP005"]), ("a100", [])])
def test_what_a_container_file_installs_and_is_compiled_is_used(machine, codes, tmp_path):
    path = tmp_path / "Dockerfile"
    path.write_text(
        "FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel\n"
        "RUN pip install flash-attn==2.7.4.post1 --no-build-isolation\n"
    )
    (report,) = workflow.check_machine([], on=machine, dockerfile=str(path))
    assert [one.code for one in report.findings if one.severity == "error"] == codes


def test_a_build_that_the_catalogue_does_not_know_is_left_open_and_the_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *words: (LockedPackage("torch", "2.9.0+cu999"),))
    (tmp_path / "requirements.txt").write_text("torch==2.9.0+cu999\n")
    (report,) = workflow.check_machine(on="h100", packages=str(tmp_path / "requirements.txt"), ask_index=True)
    (open_rule,) = [one for one in report.undecided if one.code == "PKG041"]
    assert "does not know torch 2.9.0 built for cu999" in str(open_rule)
    assert report.facts.value_if_known("torch.cuda") == "99.9"


def test_where_the_index_of_a_build_cannot_be_read_its_release_is_asked_for_without_its_label(tmp_path, monkeypatch):
    asked = []

    def ask(host, path, words, target, note):
        asked.append((target.index, words))
        return InconclusiveResolution("unread", cause=UnresolvedCause("unread", ("rocm6.1",)))

    monkeypatch.setattr(asked_file, "resolve_requirements", ask)
    (tmp_path / "requirements.txt").write_text("torch==2.4.1+rocm6.1\n")
    workflow.check_machine(on="mi300x", packages=str(tmp_path / "requirements.txt"), ask_index=True)
    assert asked[:2] == [("rocm6.1", ("torch==2.4.1+rocm6.1",)), ("pypi", ("torch==2.4.1",))]


def test_a_release_of_torch_that_the_catalogue_does_not_know_is_left_open(tmp_path):
    (tmp_path / "requirements.txt").write_text("torch==1.9.1\n")
    (report,) = workflow.check_machine(on="v100", packages=str(tmp_path / "requirements.txt"))
    (open_rule,) = [one for one in report.undecided if one.code == "PKG041"]
    assert "does not know torch 1.9.1" in str(open_rule)


def test_a_container_file_that_upgrades_pip_is_resolved_and_what_has_to_be_compiled_needs_a_toolkit(
    tmp_path, monkeypatch
):
    asked = []
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *given: asked.append(given[2]) or ())
    install = "RUN pip install -U pip 'numpy<2'\nRUN pip install torch==2.0.1\nRUN pip install flash-attn\n"
    (tmp_path / "Dockerfile").write_text(f"FROM python:3.10-slim\n{install}")
    given = {"driver": "570.86.15"}
    (report,) = workflow.check_machine(
        on="a100", dockerfile=str(tmp_path / "Dockerfile"), what_if=given, ask_index=True
    )
    assert asked[0] == ("pip", "numpy<2", "torch==2.0.1", "flash-attn")
    assert "BLD006" in {one.code for one in report.findings}


@pytest.mark.parametrize(("named", "severity"), [("peft\n", "error"), ("", "warning")])
def test_what_a_file_names_and_cannot_be_imported_is_an_error(tmp_path, monkeypatch, named, severity):
    rows = (LockedPackage("torch", "2.9.1"), LockedPackage("peft", "0.17.1"), LockedPackage("transformers", "5.1.0"))
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *given: rows)
    (tmp_path / "requirements.txt").write_text(f"torch==2.9.1\n{named}")
    (report,) = workflow.check_machine(on="h100", packages=str(tmp_path / "requirements.txt"), ask_index=True)
    assert [one.severity for one in report.findings if one.code == "PKG048"] == [severity]


@pytest.mark.parametrize(
    ("base", "last", "brought"),
    [
        ("nvidia/cuda:11.7.1-devel-ubuntu22.04", "", True),
        ("nvidia/cuda:11.7.1-devel-ubuntu22.04", "RUN ./setup.sh", False),  # not looked at
        ("pytorch/pytorch:1.13.1-cuda11.6-cudnn8-devel", "", False),  # has a numpy of its own
    ],
)
def test_what_a_container_file_brings_along_is_resolved_where_nothing_else_can_be_there(
    tmp_path, monkeypatch, base, last, brought
):
    rows = (LockedPackage("torch", "1.13.1"), LockedPackage("numpy", "2.2.6"))
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *words: rows)
    text = (
        f"FROM {base}\nRUN apt-get update && apt-get install -y python3-pip\nRUN pip3 install torch==1.13.1\n{last}\n"
    )
    (tmp_path / "Dockerfile").write_text(text)
    (report,) = workflow.check_machine(on="a100", dockerfile=str(tmp_path / "Dockerfile"), ask_index=True)
    assert ("PKG021" in [one.code for one in report.findings]) is brought
    (report,) = workflow.check_machine(on="a100", dockerfile=str(tmp_path / "Dockerfile"))
    assert "PKG021" not in [one.code for one in report.findings], "a server asks no index"


@pytest.mark.parametrize("name", ["requirements.txt", "Dockerfile"])
def test_what_is_left_open_is_what_uv_takes_and_what_it_does_not_bring_is_not_needed(tmp_path, monkeypatch, name):
    rows = (
        LockedPackage("torch", "2.8.0"),
        LockedPackage("transformers", "4.57.1"),
        LockedPackage("tokenizers", "0.22.1"),
    )
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *words: rows)
    installs = (
        "FROM python:3.12-slim\nRUN pip install torch transformers\n"
        if name == "Dockerfile"
        else "torch\ntransformers\n"
    )
    (tmp_path / name).write_text(installs)
    given = {"dockerfile" if name == "Dockerfile" else "packages": str(tmp_path / name)}
    (report,) = workflow.check_machine(on="h100", what_if={"driver": "580.95.05"}, ask_index=True, **given)
    assert report.contract.framework == "transformers" and not report.findings, "and accelerate is no need of it"
    assert report.facts.value_if_known("package.torch") == "2.8.0+cu128"


def test_a_torch_that_its_only_channel_does_not_have(tmp_path):
    text = "channels: [pytorch, nvidia]\ndependencies: [python=3.11, pytorch=2.6.0, pytorch-cuda=12.4]\n"
    (tmp_path / "environment.yml").write_text(text)
    (report,) = workflow.check_machine(on="h100", packages=str(tmp_path / "environment.yml"), ask_index=True)
    assert report.verdict == "not-ready" and "ends with 2.5.1" in report.findings[0].says


@pytest.mark.parametrize(
    ("installs", "answer", "verdict", "says"),
    [
        (["torch==2.8.0 nosuch"], InconclusiveResolution("no index that was asked has nosuch", cause=UnresolvedCause("missing", ("nosuch",))), "undecided", "no index that was asked has nosuch"),
        (["torch==2.8.0 nosuch"], InconclusiveResolution("the network is off"), "clear", ""),
        (["torch==2.8.0 vllm==0.8.0"], PlanConflict("vllm 0.8.0 needs torch==2.6.0"), "not-ready", "vllm 0.8.0 needs torch==2.6.0"),
        (["torch==2.8.0", "vllm==0.8.0"], PlanConflict("vllm 0.8.0 needs torch==2.6.0"), "clear", ""),  # the later command wins
        (["--no-deps torch==2.8.0 vllm==0.8.0"], PlanConflict("vllm 0.8.0 needs torch==2.6.0"), "clear", ""),
    ],
)  # fmt: skip
def test_what_uv_holds_against_a_container_file_counts_where_pip_would_fail_too(
    tmp_path, monkeypatch, installs, answer, verdict, says
):
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda *words: answer)
    path = tmp_path / "Dockerfile"
    path.write_text("FROM python:3.12\n" + "".join(f"RUN pip install {words}\n" for words in installs))
    reports = workflow.check_machine(
        ["torch"], on="h100", what_if={"driver": "580.95.05"}, dockerfile=str(path), ask_index=True
    )
    shown = str([*reports[0].findings, *reports[0].undecided])
    assert reports[0].verdict == verdict and says in shown


def test_a_path_whose_name_says_no_kind_of_file_is_no_package_and_is_not_opened(monkeypatch):
    monkeypatch.setattr(asked_file, "read_named_file", lambda path: pytest.fail(f"{path} was opened"))
    for word in ("/etc/secret", "./image", "../.env"):
        with pytest.raises(Refused, match="says no kind of file: give it with --packages, --dockerfile or --config"):
            workflow.sort_asked_files([word])


@pytest.mark.parametrize(
    ("base", "pin", "codes"),
    [
        ("11.8.0-devel", "flash-attn==2.5.8", ["BLD001"]),  # no wheel is made for torch 2.6
        ("12.4.1-runtime", "flash-attn==2.5.8", ["BLD006"]),
        ("12.4.1-devel", "flash-attn==2.5.8", []),
        ("12.4.1-runtime", "flash-attn==2.7.4.post1", []),
    ],
)
def test_what_an_image_has_to_compile_needs_the_toolkit_of_its_torch(base, pin, codes, tmp_path):
    path = tmp_path / "Dockerfile"
    path.write_text(
        f"FROM nvidia/cuda:{base}-ubuntu22.04\nRUN apt-get install -y python3-pip\n"
        f"RUN pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu124\n"
        f"RUN pip install {pin} --no-build-isolation\n"
    )
    (report,) = workflow.check_machine([], on="h100", dockerfile=str(path))
    assert [one.code for one in report.findings if one.code[:3] == "BLD" and one.severity == "error"] == codes


@pytest.mark.parametrize(("machine", "verdict"), [("rtx5090", "not-ready"), ("a100", "clear")])
def test_torch_of_a_version_is_judged_as_what_would_be_installed(machine, verdict):
    (report,) = workflow.check_machine(["torch==2.5.1"], on=machine, what_if={"driver": "570.86.15"})
    assert report.verdict == verdict


@pytest.mark.parametrize(
    ("name", "text", "option"),
    [
        ("kite.toml", '# for kite\nframework = "kite"\nversion = "1"\n', "contract"),
        ("pyproject.toml", '[project]\nname = "kite"\n[tool.kite]\nframework = "kite"\n', "packages"),
        ("box.json", '{"kind": "recording", "facts": []}', "on"),
    ],
)
def test_a_file_of_requirements_or_of_a_machine_goes_to_its_option(name, text, option, tmp_path):
    (tmp_path / name).write_text(text)
    assert workflow.sort_asked_files([str(tmp_path / name)]) == ([], {option: str(tmp_path / name)})


def test_what_has_wheels_for_single_pythons_and_none_for_this_one_is_compiled(monkeypatch):
    wheels = {"3.12": True, "3.11": True}
    monkeypatch.setattr(
        asked_file,
        "ReleaseFinder",
        lambda python: lambda name, version: IndexRelease(name, version, has_wheel=wheels[python]),
    )
    rows = [LockedPackage("numpy", "1.26.4", built=True), LockedPackage("torch", "2.6.0")]
    assert asked_file._list_compiled(rows, "3.13") == ["numpy 1.26.4"]
    wheels["3.12"] = False  # a source alone
    assert asked_file._list_compiled(rows, "3.13") == []


@pytest.mark.parametrize("text", ["torch>=2.6", "torch==2.6.0", "transformers"])
def test_a_stated_torch_is_the_one_that_is_judged_and_asked_for_beside_a_file(tmp_path, monkeypatch, text):
    """uv resolves the file together with it; where the file asks for another, uv says so."""
    asked = []
    monkeypatch.setattr(asked_file, "resolve_requirements", lambda host, path, words, *more: asked.append(words) or ())
    (tmp_path / "requirements.txt").write_text(f"{text}\n")
    stated = {"driver": "580.95.05", "torch": "2.8.0"}
    path = str(tmp_path / "requirements.txt")
    (report,) = workflow.check_machine([], on="a100", what_if=stated, packages=path, ask_index=True)
    assert report.facts.value("torch.version") == "2.8.0+cu128" and set(asked[0]) == {text, "torch==2.8.0"}
