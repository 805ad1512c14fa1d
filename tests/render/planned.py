"""Plans whose files are written, and the readers that take them."""

from __future__ import annotations

import os
import subprocess
import sys

from gpuready.model import FixStep
from gpuready.model.plan import Plan

PYTHON = "{}.{}".format(*sys.version_info[:2])
UNRESOLVED = Plan(
    "transformers", "5.22", "plan", python="3.12", torch="2.13.0+cu126", cuda="12.6", index="cu126",
    packages={"transformers": "5.22.0", "torch": "2.13.0+cu126"}, image="nvidia/cuda:12.6.3-runtime-ubuntu24.04",
    resolved="not resolved here: no index was reached",
    steps=(
        FixStep("make it", ("uv", "venv", "--python", "3.12", ".venv"), "safe"),
        FixStep("install torch", ("uv", "pip", "install", "--python", ".venv", "--torch-backend", "cu126", "torch==2.13.0"), "ask"),
        FixStep("install it", ("uv", "pip", "install", "--python", ".venv", "transformers==5.22.0"), "ask"),
        FixStep("check it", ("gpuready", "check", "transformers"), "safe"),
    ),
)  # fmt: skip


def run(*words, cwd=None, **more):
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("UV_", "PIP_"))}
    nobody = {"XDG_CONFIG_HOME": "/nonexistent", "XDG_CONFIG_DIRS": "/nonexistent", "PIP_CONFIG_FILE": os.devnull}
    env = plain | {"UV_PYTHON_DOWNLOADS": "never"} | nobody | more
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)


def uv() -> str:
    import uv as package

    return package.find_uv_bin()


def is_shell(text: str) -> bool:
    return subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
