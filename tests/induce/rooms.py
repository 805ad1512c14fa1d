"""The environments that failures happen in: real packages in versions that do not fit, made with uv.

A room is a virtual environment; an overlay is a folder of packages that goes before a room's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.induce.stage import Room, here

FRAMEWORKS = ["transformers", "accelerate", "deepspeed", "ray", "bitsandbytes", "peft", "trl", "datasets"]
BUILDERS = ["setuptools", "wheel", "pip", "ninja"]
VENVS: dict[str, tuple[str, list[str]]] = {
    "main": ("3.11", ["torch==2.13.0", "numpy", *FRAMEWORKS, *BUILDERS]),
    "cuda": ("3.11", ["torch==2.9.1", "numpy", "transformers==4.57.1", "accelerate==1.11.0", "setuptools", "pip", "ninja"]),
    "old": ("3.10", ["torch==2.2.2", "numpy<2", "transformers==4.40.2", "accelerate==0.29.3", "setuptools<80", "pip", "ninja"]),
    "old-numpy2": ("3.10", ["torch==2.2.2", "transformers==4.40.2", "pandas==2.1.4", "setuptools<80", "!numpy==2.2.6"]),
    "cuda-nccl": ("3.11", ["torch==2.9.1", "numpy", "setuptools", "!nvidia-nccl-cu12==2.18.3"]),
    "cuda-jitlink": ("3.11", ["torch==2.9.1", "numpy", "setuptools", "!nvidia-nvjitlink-cu12==12.1.105"]),
    "cuda-cudnn": ("3.11", ["torch==2.9.1", "numpy", "setuptools", "!nvidia-cudnn-cu12==8.9.7.29"]),
    "cuda-bnb": ("3.11", ["torch==2.9.1", "numpy", "scipy", "setuptools", "!bitsandbytes==0.43.3"]),
    "python38": ("3.8", ["pip"]),
    "python313": ("3.13", ["pip", "setuptools"]),
    "bare": ("3.11", ["pip", "setuptools", "wheel", "packaging", "psutil", "ninja"]),
}  # fmt: skip
"""Python and packages; ``!`` marks what is forced in at the end, against what the others ask for."""

OVERLAYS: dict[str, tuple[str, list[str]]] = {
    "transformers-4.46": ("main", ["transformers==4.46.3"]),
    "transformers-4.46-alone": ("main", ["--no-deps", "transformers==4.46.3", "tokenizers==0.20.3"]),
    "transformers-4.36": ("main", ["transformers==4.36.2", "accelerate==0.26.1"]),
    "accelerate-0.31": ("main", ["--no-deps", "accelerate==0.31.0"]),
    "trl-0.8": ("main", ["--no-deps", "trl==0.8.6"]),
    "deepspeed-0.8": ("main", ["--no-deps", "deepspeed==0.8.0"]),
    "deepspeed-0.14": ("main", ["--no-deps", "deepspeed==0.14.0"]),
    "deepspeed-new": ("cuda", ["--no-deps", "deepspeed==0.19.8", "hjson", "py-cpuinfo", "pydantic", "pydantic-core", "msgpack", "psutil",
                               "einops", "tqdm", "annotated-types", "typing-inspection"]),
    "torchvision-0.16": ("main", ["--no-deps", "torchvision==0.16.2", "pillow"]),
    "torchvision-0.20": ("main", ["--no-deps", "torchvision==0.20.1", "pillow"]),
    "torchaudio-2.1": ("main", ["--no-deps", "torchaudio==2.1.2"]),
    "lightning": ("main", ["--no-deps", "lightning", "pytorch-lightning", "torchmetrics", "lightning-utilities"]),
    "ray-2.59": ("main", ["--no-deps", "ray==2.59.0"]),
    "ptxas-11": ("cuda", ["--no-deps", "nvidia-cuda-nvcc-cu11==11.7.99"]),
    "headers-11": ("bare", ["--no-deps", "nvidia-cuda-runtime-cu11==11.7.99", "nvidia-cuda-nvcc-cu11==11.7.99"]),
}  # fmt: skip
"""The room below, and what goes before it."""


def home() -> Path:
    """Where rooms and jobs are kept: INDUCE_HOME, or a folder among the temporary ones."""
    return Path(os.environ.get("INDUCE_HOME") or "/tmp/gpuready-induce")


def room(name: str, also: str = "") -> Room:
    """The room of that name, made first if it is not there, and what it may look at besides.

    RuntimeError when one of them cannot be made.
    """
    if name == "here":
        return here()
    other = folder(also) if also else None
    if name in OVERLAYS:
        return Room(venv(OVERLAYS[name][0]) / "bin", (folder(name),), other)
    return Room(venv(name) / "bin", (), other)


def folder(name: str) -> Path:
    """Where that room or overlay is."""
    return overlay(name, *OVERLAYS[name]) if name in OVERLAYS else venv(name)


def venv(name: str) -> Path:
    python, packages = VENVS[name]
    made = home() / "rooms" / name
    if (made / "made").exists():
        return made
    shutil.rmtree(made, ignore_errors=True)
    uv("venv", "--quiet", "--python", interpreter(python), str(made))
    into = ("pip", "install", "--quiet", "--python", str(made / "bin" / "python"))
    wanted = [package for package in packages if not package.startswith("!")]
    if name == "main":
        without_cuda(into, wanted[0])
    uv(*into, *wanted)
    forced = [package[1:] for package in packages if package.startswith("!")]
    if forced:
        uv(*into, "--no-deps", *forced)
    (made / "made").write_text("\n".join(packages))
    return made


def interpreter(version: str) -> str:
    """A Python of that version from pyenv where there is one; else uv finds or fetches it."""
    found = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    return str(found[-1]) if found else version


def without_cuda(into: tuple[str, ...], torch: str) -> None:
    """torch for the CPU, from its own index, or else from where UV_FIND_LINKS says."""
    try:
        uv(*into, "--torch-backend", "cpu", torch)
    except RuntimeError:
        uv(*into, torch)


def overlay(name: str, below: str, packages: list[str]) -> Path:
    made = home() / "overlays" / name
    if not (made / "made").exists():
        shutil.rmtree(made, ignore_errors=True)
        python = str(venv(below) / "bin" / "python")
        uv("pip", "install", "--quiet", "--python", python, "--target", str(made), *packages)
        (made / "made").write_text("\n".join(packages))
    return made


def uv(*words: str) -> None:
    """Run uv; what it said goes into the error."""
    program = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}") or "uv"
    env = dict(os.environ, UV_CACHE_DIR=os.environ.get("UV_CACHE_DIR", str(home() / "cache")))
    if "PIP_FIND_LINKS" in env:
        env.setdefault("UV_FIND_LINKS", env["PIP_FIND_LINKS"])
    done = subprocess.run([program, *words], capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError(f"uv {' '.join(words)}: {done.stderr[-800:]}")


def build_all() -> dict[str, str]:
    """Make every room; what could not be made, and why."""
    failed = {}
    for name in (*VENVS, *OVERLAYS):
        try:
            room(name)
        except (RuntimeError, OSError) as why:
            failed[name] = str(why)
    return failed
