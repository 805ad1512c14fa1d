"""What stands beside torch: lookalikes, libraries, pairs of versions, names that hide others."""

from __future__ import annotations

import pytest

from gpuready import rules
from gpuready.model import NOT_STATED, Fact, Facts, Finding, UnknownFactError
from gpuready.rules.pkg import import_fails
from tests.rules.installed import row, torch
from tests.rules.worlds import H100, contract, judged, need, outcome

CODES = [f"PKG{n:03}" for n in range(8, 24)]
ASKS = {"job.wants": ("flash-attn", "xformers", "vllm", "bnb-4bit", "torch-compile")}


@pytest.mark.parametrize("code", CODES)
def test_a_healthy_machine_hears_nothing(code):
    fit = {
        "package.torchvision": "0.23.0+cu128",
        "package.torchaudio": "2.8.0",
        "package.triton": "3.4.0",
        "package.xformers": "0.0.32.post2",
        "package.vllm": "0.10.2",
        "package.flash-attn": "2.8.3",
        "package.bitsandbytes": "0.49.2",
        "package.numpy": "2.3.1",
        "package.nvidia-cublas-cu12": "12.8.4.1",
        "package.nvidia-nccl-cu12": "2.27.3",
        "extension.linked": {
            **{name: row() for name in ("torchvision", "torchaudio", "xformers", "vllm", "flash-attn")},
            "bitsandbytes": row(None, None, carries=("11.8", "12.4", "12.8")),
        },
    }
    for job in ({}, ASKS):
        agreed = contract(need("cudnn.version", ">=9.1"), need("nccl.version", "*"))
        assert judged(code, H100 | fit | job, agreed) is None


@pytest.mark.parametrize("code", CODES)
def test_a_machine_without_packages_hears_nothing(code):
    bare = {"python.packages": 0, "torch.version": None, "torch.cuda": None, "torch.build": None}
    assert judged(code, H100 | bare | {"package.torch": None, "torch.abi": None}) is None


# -- PKG009 -------------------------------------------------------------------------------------------

ROLL = contract(
    need("package.mcore-adapter", ">=0.10.0.dev0", level="recommended"), framework="roll", distribution="roll"
)


def test_a_web_framework_in_the_place_of_roll():
    assert judged("PKG009", H100 | {"package.roll": "0.13.4"}, ROLL).severity == "error"
    assert judged("PKG009", H100 | {"package.roll": "0.3.0"}, ROLL) is None
    web = {"roll": {"requires_dist": ("autoroutes==0.3.4", "httptools"), "version": "0.3.0"}}
    by_metadata = judged("PKG009", H100 | {"package.roll": "0.3.0", "python.requires": web}, ROLL)
    assert by_metadata.severity == "error" and by_metadata.fix[0].run[:3] == ("uv", "pip", "uninstall")
    real = {"roll": {"requires_dist": ("ray", "torch"), "version": "0.13.4"}}
    assert isinstance(judged("PKG009", H100 | {"package.roll": "0.13.4", "python.requires": real}, ROLL), Finding)


def test_who_does_not_name_it_does_not_mind():
    assert judged("PKG009", H100 | {"package.roll": "0.13.4", "package.mcore-adapter": "0.0.1"}) is None


def test_the_adapter_of_a_stranger():
    found = judged("PKG009", H100 | {"package.roll": "0.3.0", "package.mcore-adapter": "0.0.1"}, ROLL)
    assert found.severity == "warning" and "mcore-adapter 0.0.1" in found.says
    real = H100 | {"package.roll": "0.3.0", "package.mcore-adapter": "0.10.0.dev0"}
    assert judged("PKG009", real, ROLL) is None


def test_a_nightly_that_stands_still():
    agreed = contract(framework="colossalai", distribution="colossalai")
    assert judged("PKG009", H100 | {"package.colossalai-nightly": "2025.7.12"}, agreed).severity == "warning"


def test_a_placeholder():
    agreed = contract(need("package.flash-attn-3", "*", when="wants=flash-attn-3"))
    assert judged("PKG009", H100 | {"package.flash-attn-3": "3.0.0b1"}, agreed) is None
    empty = H100 | {"package.flash-attn-3": "0.0.0"}
    assert judged("PKG009", empty, agreed).severity == "warning"
    assert judged("PKG009", empty | {"job.wants": ("flash-attn-3",)}, agreed).severity == "error"


def test_two_modules_of_one_name():
    both = H100 | {"package.pynvml": "11.5.3", "package.nvidia-ml-py": "13.580.65"}
    assert judged("PKG009", both).severity == "info"
    assert judged("PKG009", both | {"package.pynvml": "12.0.0"}) is None
    assert judged("PKG009", H100 | {"package.pynvml": "11.5.3"}) is None


# -- PKG015, PKG016 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code, key", [("PKG015", "cudnn.version"), ("PKG016", "nccl.version")])
def test_a_library_below_what_is_asked(code, key):
    old = H100 | {key: "1.0"}
    assert judged(code, old) is None
    assert judged(code, old, contract(need(key, ">=2.0"))).severity == "error"
    assert judged(code, old, contract(need(key, ">=2.0", level="recommended"))).severity == "warning"
    assert judged(code, old, contract(need(key, ">=2.0", when="gpus>1"))) is None
    assert isinstance(judged(code, H100, contract(need(key, "*")), **{key.replace(".", "_"): "gone"}), UnknownFactError)


def test_without_a_torch_for_cuda_there_is_neither():
    bare = H100 | {"nccl.version": None, "torch.cuda": None}
    assert judged("PKG016", bare, contract(need("nccl.version", "*"))) is None
    assert (
        "there is no NCCL" in judged("PKG016", bare | {"torch.cuda": "12.8"}, contract(need("nccl.version", "*"))).says
    )


# -- PKG017 -------------------------------------------------------------------------------------------


def shadow(taken, because="LD_LIBRARY_PATH, for libtorch_cuda.so"):
    return {"taken": taken, "instead_of": "/site/nvidia/lib/own.so", "because": because}


def test_a_library_from_elsewhere():
    values = H100 | {"library.shadowed": {"libnccl.so.2": shadow("/usr/lib/libnccl.so.2")}}
    found = judged("PKG017", values)
    assert found.severity == "warning" and found.fix[0].does == "remove /usr/lib from LD_LIBRARY_PATH"
    assert judged("PKG017", values | {"torch.cuda": None}) is None


@pytest.mark.parametrize(
    "path, severity",
    [
        ("/usr/local/cuda-12.1/lib64/libnvJitLink.so.12", "error"),
        ("/usr/local/cuda-12.8/lib64/libnvJitLink.so.12", "warning"),
        ("/usr/local/cuda-12.9/targets/x86_64-linux/lib/libnvJitLink.so.12", "warning"),
        ("/usr/local/cuda/lib64/libnvJitLink.so.12", "warning"),
    ],
)
def test_an_older_nvjitlink_cannot_be_linked(path, severity):
    assert judged("PKG017", H100 | {"library.shadowed": {"libnvJitLink.so.12": shadow(path)}}).severity == severity


# -- PKG018, PKG019, PKG021 ---------------------------------------------------------------------------

COMPILES = {"job.wants": ("torch-compile",)}


@pytest.mark.parametrize(
    "of, triton, severity",
    [
        ("2.8.0+cu128", "3.4.0", None),
        ("2.8.0+cu128", "3.1.0", "error"),
        ("2.15.0", "3.9.2", None),
        ("2.15.0", "3.8.1", "error"),
        ("2.8.0+cu128", None, "error"),
        ("2.8.0+cu128", "3.4.0+git5389ed79", None),
        ("2.9.0.dev20250801+cu128", "3.1.0", None),
        ("99.0", "3.1.0", None),
    ],
)
def test_the_triton_of_torch(of, triton, severity):
    values = H100 | torch(of) | {"package.triton": triton}
    found = judged("PKG018", values | COMPILES)
    assert (found.severity if found else None) == severity
    quiet = judged("PKG018", values)
    assert (quiet.severity if quiet else None) == ("warning" if severity and triton else None)


def test_triton_by_another_name_or_for_another_platform():
    broken = H100 | COMPILES | {"package.triton": None}
    assert judged("PKG018", broken | {"package.pytorch-triton": "3.4.0"}) is None
    assert judged("PKG018", broken | {"torch.build": "cpu"}) is None


@pytest.mark.parametrize(
    "of, vision, audio, severity",
    [
        ("2.8.0+cu128", "0.23.0+cu128", "2.8.0", None),
        ("2.8.0+cu128", "0.21.0", None, "error"),
        ("2.5.1", "0.20.0", None, "warning"),
        ("2.8.0", None, "2.6.0", "warning"),
        ("2.5.1", None, "2.5.0", "warning"),
        ("2.14.0", "0.29.2", None, None),
        ("2.14.1", "0.29.0", None, "warning"),
        ("2.13.0", "0.29.2", None, "error"),
        ("2.13.0", None, "2.9.0", None),
        ("2.8.0", "0.99.0", "9.9", None),
        ("2.8.0", "0.22.0a0", None, None),
        ("2.8.0a0+nv25.5", "0.21.0", None, None),
    ],
)
def test_pairs(of, vision, audio, severity):
    values = H100 | torch(of) | {"package.torchvision": vision, "package.torchaudio": audio}
    found = judged("PKG019", values)
    assert (found.severity if found else None) == severity


def test_the_pair_is_installed_for_the_same_cuda():
    found = judged("PKG019", H100 | {"package.torchvision": "0.21.0", "package.torchaudio": None})
    assert found.fix[0].run[-3:] == ("--torch-backend", "cu128", "torchvision==0.23.0")


@pytest.mark.parametrize(
    "of, numpy, fires",
    [
        ("2.2.2", "2.0.1", True),
        ("2.2.2", "1.26.4", False),
        ("2.3.0", "2.0.1", False),
        ("2.2.0a0+81ea7a4", "2.1", False),
    ],
)
def test_numpy_two(of, numpy, fires):
    assert isinstance(judged("PKG021", H100 | torch(of) | {"package.numpy": numpy}), Finding) is fires


# -- PKG020 -------------------------------------------------------------------------------------------

NAMES = contract(
    need("package.transformers", ">=4"), need("package.flash-attn", "*", level="optional"), distribution="demo"
)


@pytest.mark.parametrize(
    "path, severity",
    [
        ("/w/torch.py", "error"),
        ("/w/numpy", "error"),
        ("/w/transformers.py", "error"),
        ("/w/transformers", "warning"),
        ("/w/flash_attn", "warning"),
        ("/w/random.py", "warning"),
        ("/w/demo", None),
        ("/w/test", None),
        ("/w/pandas.py", None),
    ],
)
def test_what_hides_what(path, severity):
    found = judged("PKG020", H100 | {"python.shadowed": (path,)}, NAMES)
    assert (found.severity if found else None) == severity


def test_every_file_is_named():
    found = judged("PKG020", H100 | {"python.shadowed": ("/w/random.py", "/w/torch.py", "/w/pandas.py")}, NAMES)
    assert found.severity == "error" and "random and torch" in found.says and len(found.fix) == 2


# -- PKG022 -------------------------------------------------------------------------------------------


def test_leftovers_take_room():
    found = judged("PKG022", H100 | {"torch.cuda": "13.0", "package.nvidia-cublas-cu12": "12.8.4.1"})
    assert found.severity == "info" and found.fix[0].run[-1] == "nvidia-cublas-cu12"


def test_two_that_write_one_file():
    both = {"torch.cuda": "13.0", "package.nvidia-nccl-cu12": "2.27.3", "package.nvidia-nccl-cu13": "2.28.3"}
    found = judged("PKG022", H100 | both)
    assert found.severity == "warning" and found.fix[1].run[-1] == "nvidia-nccl-cu13==2.28.3"
    apart = {"torch.cuda": "13.0", "package.nvidia-cublas-cu12": "1", "package.nvidia-cublas-cu13": "1"}
    assert judged("PKG022", H100 | apart).severity == "info"


@pytest.mark.parametrize("name", ["nvidia-ml-py", "nvidia-cublas", "nvidia-modelopt", "nvidia-cuda-runtime-cu12"])
def test_packages_that_are_no_leftovers(name):
    assert judged("PKG022", H100 | {f"package.{name}": "1.0"}) is None


def test_what_is_not_stated_stays_open():
    stated = Facts([Fact(k, H100[k]) for k in H100 if k.startswith("gpu.")], "h100", NOT_STATED)
    for code in CODES:
        found = outcome(rules.load_rule(code), stated, contract())
        assert found is None or (isinstance(found, UnknownFactError) and found.fact.gap == NOT_STATED)


def test_operators_that_were_never_registered_are_of_another_build_of_that_package():
    """torchvision for CUDA beside torch for the CPU: torch raises, and torchvision is what has to be replaced."""
    failed = import_fails.FAILED | {"error": "RuntimeError: operator torchvision::nms does not exist", "name": ""}
    failed |= {"file": "/venv/lib/python3.12/site-packages/torch/library.py", "packages": ("torch",)}
    packages = {"package.torch": "2.13.0+cpu", "package.torchvision": "0.28.0"}
    known = H100 | packages | {"import.damage": (), "import.hidden": (), "import.result": {"demo": failed}}
    (step,) = judged("PKG042", known, contract(distribution="demo")).fix
    assert step.run[-5:] == ("--torch-backend", "cpu", "--reinstall", "--no-deps", "torchvision==0.28.0")
    gone = judged("PKG042", known | {"package.torchvision": None}, contract(distribution="demo")).fix
    assert "reinstall torch" in gone[0].does
