"""Faults of the packages that are installed."""

from __future__ import annotations

from tests.faults.bench import SITE
from tests.faults.flips.machine import BreakableMachine, Fault

NEW_SPELLING = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
OLD_SPELLING = "_ZN3c105ErrorC1ENS_14SourceLocationESs"
"""Functions of torch that take a string, as the two ABIs of C++ spell it."""


def linked_to_another_cuda(p: BreakableMachine) -> None:
    p.torch("2.13.0+cu130", "13.0")
    p.package("xformers", "0.0.33.post2")
    p.library(f"{SITE}/xformers/_C.so", "libc10.so", "libtorch.so", "libcudart.so.12")
    p.wants("xformers")


def built_for_another_spelling(p: BreakableMachine) -> None:
    p.library(f"{SITE}/torch/lib/libc10.so", calls=OLD_SPELLING)
    p.package("flash-attn", "2.7.4.post1")
    at = f"{SITE}/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"
    p.library(at, "libc10.so", "libtorch.so", "libcudart.so.12", calls=NEW_SPELLING)
    p.wants("flash-attn")


def another_cudnn_comes_first(p: BreakableMachine) -> None:
    p.library(f"{SITE}/torch/lib/libtorch_cuda.so", "libcudnn.so.9")
    for folder in (f"{SITE}/nvidia/cudnn/lib", "/opt/cudnn"):
        p.library(f"{folder}/libcudnn.so.9")
    p.set(LD_LIBRARY_PATH="/opt/cudnn")


def dockerfile_that_pip_refuses(p: BreakableMachine) -> None:
    p.machine.file("/Dockerfile", "FROM ubuntu:24.04\nRUN apt-get install -y python3-pip\nRUN pip install numpy\n")
    p.asked.update(dockerfile="/Dockerfile", on="h100", what_if={"driver": "580.95.05"})


FAULTS: dict[str, Fault] = {
    "PKG010": linked_to_another_cuda,
    "PKG011": built_for_another_spelling,
    "PKG017": another_cudnn_comes_first,
    "PKG001": lambda p: p.torch("2.13.0+cpu", None),
    "PKG002": lambda p: p.machine.gone(f"{SITE}/transformers-5.22.0.dist-info"),
    "PKG003": lambda p: p.package("tokenizers", "0.10.0"),
    "PKG004": lambda p: p.machine.file("/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.7.4\n"),
    "PKG005": lambda p: (p.machine.gone(f"{SITE}/accelerate-1.12.0.dist-info"), p.wants("device-map")),
    "PKG006": lambda p: p.machine.gone(f"{SITE}/tokenizers-0.23.1.dist-info/METADATA"),
    "PKG007": lambda p: p.contract('key = "torch.cuda"\nwant = ">=13.0"'),
    "PKG008": lambda p: setattr(p, "frameworks", ["vllm", "sglang"]),
    "PKG009": lambda p: (p.machine.packages("roll-0.13.4"), setattr(p, "frameworks", ["roll"])),
    "PKG012": lambda p: (
        p.torch("2.9.1+cu128", "12.8"),
        p.package("flash-attn", "2.8.3+cu12torch2.8cxx11abitrue"),
        p.wants("flash-attn"),
    ),
    "PKG013": lambda p: p.package("xformers", "0.0.20"),
    "PKG014": lambda p: p.package("bitsandbytes", "0.37.0"),
    "PKG015": lambda p: (
        p.contract('key = "cudnn.version"\nwant = ">=99.0"'),
        p.machine.packages("nvidia_cudnn_cu12-9.5.1.17"),
    ),
    "PKG016": lambda p: (
        p.contract('key = "nccl.version"\nwant = ">=99.0"'),
        p.machine.packages("nvidia_nccl_cu12-2.21.5"),
    ),
    "PKG018": lambda p: p.package("triton", "2.0.0"),
    "PKG019": lambda p: (p.torch("2.8.0+cu128", "12.8"), p.package("torchvision", "0.21.0+cu124")),
    "PKG020": lambda p: p.machine.file(f"{p.machine.home}/random.py", "x = 1\n"),
    "PKG021": lambda p: (p.torch("2.1.0+cu121", "12.1"), p.package("numpy", "2.2.6")),
    "PKG022": lambda p: p.machine.packages("nvidia_cublas_cu12-12.6.4.1", "nvidia_cublas_cu11-11.10.3.66"),
    "PKG023": lambda p: (p.torch("2.10.0+cu128", "12.8"), p.package("vllm", "0.11.2", "torch==2.9.0"), p.wants("vllm")),
    "PKG024": lambda p: setattr(p, "frameworks", ["roll:torch260-vllm"]),
    "PKG045": dockerfile_that_pip_refuses,
}
