"""One line on each family, from facts alone."""

from __future__ import annotations

import pytest

from gpuready.catalog import facts as declared
from gpuready.model import NOT_STATED, Contract, Fact, Facts
from gpuready.render import facts_summary

from .machines import H100, REPORTS, facts

DEMO = Contract("demo", "1.0")


def said(name: str, known: Facts, contract: Contract = DEMO) -> str:
    return facts_summary.summarize_family(name, known, contract)


def unknown(*keys: str) -> Facts:
    return Facts([Fact(key, None, gap="permission denied") for key in keys])


@pytest.mark.parametrize(
    ("known", "line"),
    [
        (H100, "8x H100 80GB, driver 550.144.03, Ubuntu 22.04"),
        (REPORTS["clear_h200"].facts, "1x H200 (141 GB), driver 580.95.05 (CUDA 13.0), Ubuntu 24.04.3"),
        (facts(gpu__count=0, os__pretty="Debian 12", driver__version=None), "no GPU, Debian 12"),
        (facts(gpu__count=2, os__pretty=None, driver__version=None), "2 GPUs, no NVIDIA driver"),
        (
            facts(
                gpu__count=0,
                accelerator__vendor="amd",
                accelerator__count=2,
                accelerator__name=("gfx942",) * 2,
                os__pretty=None,
                driver__version=None,
            ),
            "2x amd gfx942",
        ),
        (unknown("gpu.count", "driver.version"), "GPU unknown (permission denied), driver unknown, OS unknown"),
        (Facts([], otherwise=NOT_STATED), ""),
    ],
)
def test_the_hardware(known, line):
    assert facts_summary.summarize_hardware(known) == line


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"python.prefix": "/v", "python.kind": "venv", "python.chosen_by": "active venv"},
            "/v (active venv): Python 3.12",
        ),
        (
            {"python.prefix": "/usr", "python.kind": "system", "python.path": "/usr/bin/python3"},
            "/usr/bin/python3: Python 3.12",
        ),
        ({}, "none looked at; Python 3.12"),
    ],
)
def test_the_environment(values, line):
    known = [Fact(key, value) for key, value in {"python.version": "3.12", **values}.items()]
    assert facts_summary.summarize_environment(Facts(known, otherwise=NOT_STATED)) == line


def test_no_environment_is_said_so():
    gap = "no Python environment found to examine: gpuready install FRAMEWORK -e DIR makes one"
    known = Facts([Fact("python.path", None, gap=gap)], otherwise=gap)
    assert facts_summary.summarize_environment(known) == gap


def test_the_settings():
    known = facts(settings__file="gpuready.toml", settings__applied=("framework", "strict"))
    assert facts_summary.summarize_settings(known) == "gpuready.toml (framework, strict)"
    assert facts_summary.summarize_settings(facts()) == ""


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
        ("HBM", "HBM"),
        ("", ""),
    ],
)
def test_a_short_name(name, short):
    assert facts_summary.shorten_gpu_name(name) == short


@pytest.mark.parametrize(
    ("known", "line"),
    [
        (H100, "capability 9.0, 640 GB, NVLink, no MIG"),
        (REPORTS["clear_h200"].facts, "capability 9.0, 141 GB, no MIG"),
        (facts(gpu__count=0), "no GPU"),
        (unknown("gpu.count"), "unknown, permission denied"),
        (Facts([], otherwise=NOT_STATED), "not given"),
        (
            facts(gpu__count=2, gpu__capability=("9.0", "8.0"), gpu__memory="much").with_facts(
                Fact("gpu.nvlink", (0, 0)), Fact("gpu.mig", ("on", "off"))
            ),
            "capability 9.0 and 8.0, much, no NVLink, MIG on",
        ),
        (facts(gpu__count=1), "capability unknown, memory unknown, MIG unknown"),
    ],
)  # fmt: skip
def test_gpu(known, line):
    assert said("gpu", known) == line


@pytest.mark.parametrize(
    ("known", "line"),
    [
        (facts(driver__version="580.95.05", driver__cuda="13.0"), "580.95.05 (CUDA 13.0)"),
        (facts(driver__version="580.95.05"), "580.95.05"),
        (facts(driver__version=None), "no NVIDIA driver"),
        (unknown("driver.version"), "unknown, permission denied"),
        (
            facts(driver__version="550.1", driver__compat="/usr/local/cuda/compat", driver__wsl=True),
            "550.1, from Windows, cuda-compat in use",
        ),
    ],
)
def test_driver(known, line):
    assert said("driver", known) == line


@pytest.mark.parametrize(
    ("known", "line"),
    [
        (H100, "gcc 12.3, ninja 1.11; no nvcc"),
        (facts(toolkit__version=None, compiler__gcc=None, compiler__ninja=None), "no nvcc, no gcc, no ninja"),
        (unknown("toolkit.version"), "nvcc unknown, gcc unknown, ninja unknown"),
        (Facts([], otherwise=NOT_STATED), "not given"),
    ],
)
def test_toolchain(known, line):
    assert said("toolchain", known) == line


def test_packages():
    assert said("packages", H100, Contract("axolotl", "0.18.0")) == (
        "Python 3.12, torch 2.12.1+cu130, transformers 5.14.1"
    )
    other = Contract("axolotl", "0.17.0")
    assert said("packages", H100, other).endswith("transformers 5.14.1, axolotl 0.18.0")
    assert said("packages", H100, DEMO).endswith(", no demo")
    assert said("packages", H100, DEMO.replace(distribution="transformers")).endswith("transformers 5.14.1")
    unreadable = unknown("python.packages").with_facts(Fact("python.version", "3.12"))
    assert said("packages", unreadable) == "Python 3.12, torch unknown, transformers unknown, demo unknown"


def test_memory_and_capability():
    known = REPORTS["clear_h200"].facts
    assert said("memory", known) == "141 GB on 1 GPU, model of 7B parameters"
    assert said("capability", known) == "the job asks for fp8, flash-attn"
    assert said("capability", facts()) == "the job asks for nothing special"
    assert said("memory", facts(gpu__count=0)) == "no GPU"


def test_system_and_network():
    assert said("system", H100) == "docker, /dev/shm 64 MiB, 2.0 TB RAM"
    assert said("system", REPORTS["clear_h200"].facts) == "/dev/shm 64 GiB, 128 GB RAM, limit 64 GB"
    assert said("system", facts(os__container="none", system__shm=None)) == "no /dev/shm, RAM unknown"
    assert said("network", H100) == "NCCL 2.29, eth0, no RDMA"
    assert said("network", REPORTS["clear_h200"].facts) == "NCCL 2.28.9, eth0, 2 RDMA devices"
    assert said("network", unknown("nccl.version")) == "NCCL unknown, interface unknown, RDMA unknown"


def test_a_family_without_a_line():
    assert said("fleet", H100) == ""


def test_only_declared_facts_are_read():
    asked = set()

    class Watched(Facts):
        def fact(self, key: str) -> Fact:
            asked.add(key)
            return super().fact(key)

    for known in (H100, REPORTS["clear_h200"].facts, Facts([])):
        for name in ("gpu", "driver", "toolchain", "packages", "memory", "capability", "system", "network"):
            said(name, Watched(known))
        facts_summary.summarize_hardware(Watched(known))
    assert len(asked) > 15 and not [key for key in asked if declared.find_declaration(key) is None]
