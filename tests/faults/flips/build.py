"""Faults of what a build needs: toolkits, compilers, folders, variables."""

from __future__ import annotations

import os

from tests.faults.bench import SITE
from tests.faults.flips.machine import BreakableMachine, Fault


def toolkit_of_another_major(p: BreakableMachine) -> None:
    p.toolkit("11.8.89")
    p.wants("build")


def toolkit_of_another_minor(p: BreakableMachine) -> None:
    p.toolkit("12.1.66")
    p.wants("build")


def ninja_too_old(p: BreakableMachine) -> None:
    p.contract('key = "compiler.ninja"\nwant = ">=9.0"')


def nvcc_too_old_for_the_gpu(p: BreakableMachine) -> None:
    p.gpu(name="NVIDIA GeForce RTX 5090", capability="12.0")
    p.torch("2.8.0+cu128", "12.8")
    p.toolkit("12.4.99")
    p.wants("build")


def gcc_too_new(p: BreakableMachine) -> None:
    p.toolkit("12.1.66")
    p.machine.program("gcc", "echo 15.1.0")
    p.machine.program("g++", "echo 15.1.0")
    p.wants("build")


def stale_lock(p: BreakableMachine) -> None:
    at = p.machine.file("/home/ada/.cache/torch_extensions/py312_cu126/own/lock")
    os.utime(at, (1_000_000_000, 1_000_000_000))
    p.wants("build")


FAULTS: dict[str, Fault] = {
    "BLD001": toolkit_of_another_major,
    "BLD002": toolkit_of_another_minor,
    "BLD003": ninja_too_old,
    "BLD004": nvcc_too_old_for_the_gpu,
    "BLD005": gcc_too_new,
    "BLD006": lambda p: p.wants("build"),
    "BLD007": lambda p: (p.toolkit("12.6.20"), p.set(CUDA_HOME="/opt/nowhere"), p.wants("build")),
    "BLD008": lambda p: (p.machine.gone(f"{SITE}/torch", f"{SITE}/torch-2.13.0+cu126.dist-info"), p.wants("build")),
    "BLD009": lambda p: (p.toolkit("12.6.20"), p.set(TORCH_CUDA_ARCH_LIST="7.0"), p.wants("build")),
    "BLD010": lambda p: (p.toolkit("12.6.20"), p.set(TORCH_CUDA_ARCH_LIST="99.9"), p.wants("build")),
    "BLD011": lambda p: (
        p.toolkit("12.6.20"),
        p.machine.gone("/usr/bin/gcc", "/usr/bin/g++", "/usr/bin/ninja"),
        p.wants("build"),
    ),
    "BLD012": lambda p: (p.toolkit("12.6.20"), p.wants("build")),
    "BLD013": lambda p: (p.set(TMPDIR="/gone"), p.toolkit("12.6.20"), p.wants("build")),
    "BLD014": lambda p: (p.set(MAX_JOBS="512"), p.toolkit("12.6.20"), p.wants("build")),
    "BLD015": stale_lock,
    "BLD016": lambda p: (p.set(FORCE_CUDA="0"), setattr(p, "frameworks", ["colossalai"])),
    "BLD017": lambda p: (p.set(BUILD_EXT="yes"), setattr(p, "frameworks", ["colossalai"])),
    "BLD022": lambda p: (p.set(TORCH_CUDA_ARCH_LIST="9.0a"), p.package("deepspeed", "0.19.8")),
}
