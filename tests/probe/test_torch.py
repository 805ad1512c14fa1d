"""The patient's torch, from its files."""

from __future__ import annotations

import pytest

from gpuready.probe import torch
from gpuready.probe.target_environment import TargetEnvironment
from gpuready.probe.torch import parse_version_py
from gpuready.system import AccessError
from tests.probe.fakes import Fake, by_key

SITE = "/v/lib/python3.12/site-packages"
WHO = TargetEnvironment("/v", "/v/bin/python", "venv", "3.12.4", (SITE,), "--python")
PYTHON, C10 = f"{SITE}/torch/lib/libtorch_python.so", f"{SITE}/torch/lib/libc10.so"
VERSION = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda}
git_version = '70d99e998b4955e0049d13a98d77ae1b14db1f45'
hip: Optional[str] = {hip}
xpu: Optional[str] = {xpu}
"""
CXX11 = "_ZN3c1010IndexErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
OLD = "_ZN3c1010IndexErrorC1ENS_14SourceLocationESs"
NOISE = ["_get_sm_carveout_experimental", "sm_90 is not compatible with this build", "sm_", "compute_"]


def files(version="2.11.0+cu130", cuda="'13.0'", hip="None", xpu="None", *extra):
    return {
        f"{SITE}/torch/version.py": VERSION.format(version=version, cuda=cuda, hip=hip, xpu=xpu),
        f"{SITE}/torch-{version.partition('+')[0]}.dist-info/METADATA": "",
        **{f"{SITE}/{name}.dist-info/METADATA": "" for name in extra},
    }


def look(requested, elf=None, who=WHO, **more):
    return by_key(torch.probe_torch(Fake(requested, elf=elf or {}, **more), who))


def test_a_cuda_build():
    elf = {(PYTHON, ".rodata"): [*NOISE, "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"], (C10, ".dynstr"): [CXX11]}
    facts = look(
        files("2.11.0+cu130", "'13.0'", "None", "None", "nvidia_cudnn_cu13-9.19.0.56", "nvidia_nccl_cu13-2.28.9"), elf
    )
    assert set(facts) == set(torch.KEYS)
    assert facts["torch.version"].value == "2.11.0+cu130"
    assert facts["torch.cuda"].value == "13.0"
    assert facts["torch.build"].value == "cuda"
    assert facts["torch.hip"].value is facts["torch.xpu"].value is facts["torch.broken"].value is None
    assert facts["torch.arch"].value == ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
    assert facts["torch.arch"].source == PYTHON
    assert facts["torch.abi"].value is True
    assert facts["torch.path"].value == f"{SITE}/torch"
    assert facts["cudnn.version"].value == "9.19.0.56"
    assert facts["nccl.version"].value == "2.28.9"
    assert facts["nccl.version"].source == f"{SITE}/nvidia_nccl_cu13-2.28.9.dist-info"
    assert not [f for f in facts.values() if f.gap]


def test_ptx_is_kept():
    elf = {(PYTHON, ".rodata"): ["sm_80 sm_90 compute_120"]}
    assert look(files("2.7.1+cu128", "'12.8'"), elf)["torch.arch"].value == ("sm_80", "sm_90", "compute_120")


def test_a_list_that_lies_behind_a_constant_without_an_end():
    """As in the wheel of torch 2.8.0 for x86_64."""
    elf = {
        (PYTHON, ".rodata"): [*NOISE, "needs sm_90", "from_ipc(Device device, std::string ipc_hsm_70 sm_90 compute_120"]
    }
    fact = look(files("2.8.0+cu128", "'12.8'"), elf)["torch.arch"]
    assert (fact.value, fact.source) == (("sm_70", "sm_90", "compute_120"), PYTHON)


def test_the_catalogue_is_asked_for_the_machine_that_an_environment_is_for():
    """torch 2.8.0 for CUDA 12.8 has a wheel for x86_64 alone: on a machine of aarch64 its architectures were unknown."""
    here = {"uname": {"system": "Linux", "machine": "aarch64"}}
    elf = {(PYTHON, ".rodata"): []}
    assert look(files("2.8.0+cu128", "'12.8'"), elf, **here)["torch.arch"].gap
    foreign = WHO.replace(machine="x86_64")
    assert "sm_90" in look(files("2.8.0+cu128", "'12.8'"), elf, foreign, **here)["torch.arch"].value


def test_a_cpu_build():
    facts = look(files("2.13.0+cpu", "None"), {(C10, ".dynstr"): [CXX11]})
    assert facts["torch.build"].value == "cpu"
    assert facts["torch.cuda"].value is facts["cudnn.version"].value is None
    assert facts["torch.arch"].value == ()
    assert not [f for f in facts.values() if f.gap]


@pytest.mark.parametrize(("hip", "xpu", "build"), [("'6.4.43482'", "None", "rocm"), ("None", "'20250101'", "xpu")])
def test_other_builds(hip, xpu, build):
    facts = look(files("2.8.0", "None", hip, xpu))
    assert facts["torch.build"].value == build
    assert facts["torch.arch"].value == ()


def test_the_old_abi():
    assert look(files(), {(C10, ".dynstr"): [OLD]})["torch.abi"].value is False


def test_an_abi_that_nothing_tells():
    facts = look(files(), {(C10, ".dynstr"): []})
    assert facts["torch.abi"].gap and facts["torch.abi"].value is None
    assert look(files(), {(C10, ".dynstr"): AccessError("a damaged ELF file")})["torch.abi"].gap == "a damaged ELF file"


@pytest.mark.parametrize("rodata", [[], NOISE, AccessError("a damaged ELF file")])
def test_architectures_by_the_catalogue(rodata):
    facts = look(files("2.8.0+cu128", "'12.8'"), {(PYTHON, ".rodata"): rodata})
    fact = facts["torch.arch"]
    assert "sm_90" in fact.value and "sm_120" in fact.value
    assert fact.source.startswith("catalogue: torch 2.8.0 cu128 (") and fact.how == "stated"


@pytest.mark.parametrize("version", ["2.9.0a0+gitabc1234", "2.6.0+nv25.1", "9.9.9+cu999", "2.8.0.dev20250601+cu128"])
def test_a_build_that_is_nobodys_has_unknown_architectures(version):
    facts = look(files(version, "'12.8'"), {(PYTHON, ".rodata"): []})
    assert facts["torch.arch"].gap and facts["torch.arch"].value is None


# -- cuDNN and NCCL -----------------------------------------------------------------------------------


def test_the_wheel_of_the_same_cuda_wins():
    both = ("nvidia_nccl_cu12-2.21.5", "nvidia_nccl_cu13-2.28.9")
    assert look(files("2.11.0+cu130", "'13.0'", "None", "None", *both))["nccl.version"].value == "2.28.9"
    assert look(files("2.6.0+cu124", "'12.4'", "None", "None", *both))["nccl.version"].value == "2.21.5"


def test_else_the_loader_tells():
    links = {"/usr/lib/libcudnn.so.9": "libcudnn.so.9.5.1", "/usr/lib/libnccl.so.2": "libnccl.so.2.23.4"}
    facts = look(
        files(),
        libraries={"libcudnn.so.9": "/usr/lib/libcudnn.so.9", "libnccl.so.2": "/usr/lib/libnccl.so.2"},
        links=links,
    )
    assert (facts["cudnn.version"].value, facts["nccl.version"].value) == ("9.5.1", "2.23.4")
    assert facts["nccl.version"].source == "/usr/lib/libnccl.so.2.23.4"


def test_what_torch_was_built_with_is_not_what_is_there():
    facts = look(files("2.8.0+cu128", "'12.8'"))
    for key in ("cudnn.version", "nccl.version"):
        assert facts[key].value is None and "was found beside torch or by the loader" in facts[key].gap


def test_else_nobody_knows():
    facts = look(files("2.9.0a0+gitabc", "'12.8'"))
    assert facts["nccl.version"].gap and facts["cudnn.version"].gap


# -- absent, half, hostile ----------------------------------------------------------------------------


def test_no_torch_is_absent_and_not_unknown():
    facts = look({f"{SITE}/numpy/__init__.py": ""})
    assert all(f.value is None and not f.gap for f in facts.values())


def test_a_torch_whose_folder_is_gone():
    facts = look({f"{SITE}/torch-2.8.0.dist-info/METADATA": ""})
    assert facts["torch.broken"].value == "torch-2.8.0.dist-info is there, but torch/version.py is not"
    assert facts["torch.version"].gap and facts["torch.cuda"].gap


def test_a_folder_without_version():
    facts = look({f"{SITE}/torch/share/x": ""})
    assert facts["torch.broken"].value == "the folder torch has no version.py"


def test_a_folder_without_metadata():
    settings = {k: v for k, v in files().items() if "dist-info" not in k}
    facts = look(settings)
    assert facts["torch.broken"].value == "the folder torch has no dist-info"
    assert facts["torch.version"].value == "2.11.0+cu130"


def test_conda_writes_egg_info():
    settings = {f"{SITE}/torch/version.py": VERSION.format(version="2.5.1", cuda="'12.4'", hip="None", xpu="None")}
    assert look(settings | {f"{SITE}/torch-2.5.1-py3.12.egg-info/PKG-INFO": ""})["torch.broken"].value is None


def test_names_that_only_begin_like_torch():
    names = ("torchvision-0.26.0", "torch_geometric-2.8.0", "pytorch_lightning-2.6.6", "torchao-0.9")
    assert look({f"{SITE}/{n}.dist-info/METADATA": "" for n in names})["torch.version"].value is None


def test_the_first_site_folder_that_has_it():
    other = "/usr/lib/python3/dist-packages"
    requested = files() | {
        f"{other}/torch/version.py": VERSION.format(version="1.13", cuda="None", hip="None", xpu="None")
    }
    assert look(requested, who=WHO.replace(site=(SITE, other)))["torch.version"].value == "2.11.0+cu130"


def test_a_site_that_cannot_be_read():
    assert {f.gap for f in look({f"{SITE}/": AccessError("permission denied")}).values()} == {"permission denied"}


def test_a_patient_of_unknown_version():
    assert {f.gap for f in look({}, who=WHO.replace(site=(), version=None, gap="no answer")).values()} == {"no answer"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("__version__ = '2.1.0'\ncuda = '12.1'\nhip = None\n", {"__version__": "2.1.0", "cuda": "12.1", "hip": None}),
        ('__version__ = "2.1.0"  # the version\n', {"__version__": "2.1.0"}),
        ("cuda: Optional[str] = '13.0'\n", {"cuda": "13.0"}),
        ("cuda = os.system('reboot')\n", {"cuda": None}),
        ("    cuda = 'inside'\n", {}),
        ("", {}),
        ("= = =\n'\n", {"": None}),
    ],
)
def test_version_files_are_read_and_never_run(text, found):
    assert parse_version_py(text) == found


def test_a_version_file_without_a_version():
    assert look({f"{SITE}/torch/version.py": "cuda = None\n"})["torch.version"].gap == "the file names no version"


@pytest.mark.parametrize("is_edited", [True, False])
def test_an_edited_version_file_is_not_believed(is_edited):
    """One that is as recorded is: the metadata is of another torch."""
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    text = VERSION.format(version="1.13.1", cuda="None", hip="None", xpu="None")
    digest = urlsafe_b64encode(sha256((text if not is_edited else "else").encode()).digest()).decode().rstrip("=")
    info = f"{SITE}/torch-2.13.0+cpu.dist-info"
    requested = {f"{SITE}/torch/version.py": text, f"{info}/METADATA": ""}
    requested[f"{info}/RECORD"] = f"torch/version.py,sha256={digest},{len(text)}\n"
    assert look(requested)["torch.version"].value == ("2.13.0+cpu" if is_edited else "1.13.1")
