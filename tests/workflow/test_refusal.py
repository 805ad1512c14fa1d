"""What is advised to add to gpuready's own environment, by what made that environment."""

from __future__ import annotations

import sys

import pytest

from gpuready.workflow import refusal


@pytest.mark.parametrize(
    ("made_by", "command"),
    [
        ("pipx", "pipx inject gpuready 'mcp>=2'"),
        ("pip", "{} -m pip install 'mcp>=2'"),
        ("uv", "uv pip install --python {} 'mcp>=2'"),
    ],
)
def test_the_advice_is_for_what_made_the_environment(tmp_path, monkeypatch, made_by, command):
    if made_by == "pipx":
        (tmp_path / "pipx_metadata.json").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(refusal, "find_spec", lambda name: made_by != "uv" or None)
    assert refusal.own_install_command("mcp>=2") == command.format(sys.executable)
