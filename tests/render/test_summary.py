"""One line on the machine and one on the environment, from facts alone."""

from __future__ import annotations

import pytest

from gpuready.catalog import facts as declared
from gpuready.model import NOT_STATED, Fact, Facts
from gpuready.render import facts_summary

from .machines import H100, REPORTS, facts


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


def test_only_declared_facts_are_read():
    asked = set()

    class Watched(Facts):
        def fact(self, key: str) -> Fact:
            asked.add(key)
            return super().fact(key)

    for known in (H100, REPORTS["clear_h200"].facts, Facts([])):
        facts_summary.summarize_hardware(Watched(known))
        facts_summary.summarize_environment(Watched(known))
    assert len(asked) > 8 and not [key for key in asked if declared.find_declaration(key) is None]
