"""Wheels that a plan can use: those in the configured folders, and those that uv finds for another Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready import system
from gpuready.apply import uv
from gpuready.apply.index_release import find_index_release
from gpuready.apply.uv import UvSettings
from gpuready.apply.wheel_search import find_wheels
from gpuready.model.plan import Plan
from gpuready.workflow.fallback import FindTorch, FindWheels
from gpuready.workflow.refusal import call_or_refuse


def list_folder_wheels(host: system.HostAccess, resolve_options: Mapping[str, Any]) -> list[str]:
    """Return the file names in every configured folder of wheels."""
    folders = wheel_folders(host, resolve_options)
    return [name for folder in folders for name in host.list_directory(folder) or () if name.endswith(".whl")]


def wheel_folders(host: system.HostAccess, resolve_options: Mapping[str, Any]) -> tuple[str, ...]:
    return _make_uv_settings(host, resolve_options).folders


def make_wheel_finder(host: system.HostAccess, resolve_options: Mapping[str, Any]) -> FindWheels:
    """Return a function that says which packages of a lock have a wheel for the Python of a plan."""
    return lambda rows, plan: find_wheels(host, rows, plan, _make_uv_settings(host, resolve_options))


def make_torch_finder(host: system.HostAccess, resolve_options: Mapping[str, Any]) -> FindTorch:
    """Return a function that names the newest torch below a version that the configured indexes and folders have."""

    def find_torch(plan: Plan, below: str) -> str:
        settings = _make_uv_settings(host, resolve_options)
        release = find_index_release(host, "torch", f"<{below}", plan.python, settings, plan.platform)
        return release.version if release is not None and release.has_wheel else ""

    return find_torch


def _make_uv_settings(host: system.HostAccess, resolve_options: Mapping[str, Any]) -> UvSettings:
    names = ("find_links", "offline", "use_project_config")
    return call_or_refuse(uv.make_uv_settings, host, *(resolve_options[name] for name in names))
