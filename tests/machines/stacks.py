"""The environments that derived machines have."""

from __future__ import annotations

from typing import Any

from tests.machines.altered import Changes
from tests.machines.parts import VENV, environment, gpu

STACK = {
    "transformers": "5.22.0", "accelerate": "1.15.0", "peft": "0.21.0", "tokenizers": "0.23.0", "huggingface_hub": "1.9.0",
    "safetensors": "0.7.0", "numpy": "2.4.1", "packaging": "26.0", "pyyaml": "6.0.3", "regex": "2026.1.1", "tqdm": "4.70.1",
    "typer": "0.27.2", "datasets": "4.8.0",
}  # fmt: skip
OLD = STACK | {"transformers": "4.36.2", "accelerate": "0.25.0", "peft": "0.7.1", "numpy": "1.26.4", "huggingface_hub": "0.20.3",
               "tokenizers": "0.15.0", "datasets": "2.16.0"}  # fmt: skip


def several(kind: str, count: int, **changed: Any) -> list[dict[str, Any]]:
    return [gpu(kind, index, **changed) for index in range(count)]


def cu130(**more: str) -> Changes:
    return environment("2.13.0+cu130", "13.0", **(STACK | more))


def cu128(**more: str) -> Changes:
    return environment("2.9.1+cu128", "12.8", **(STACK | more))


def cu126(**more: str) -> Changes:
    return environment("2.7.1+cu126", "12.6", **(STACK | more))


def cu118(**more: str) -> Changes:
    return environment("2.1.2+cu118", "11.8", "3.10.12", abi=False, **(OLD | more))


def site(minor: str = "3.12") -> str:
    return f"{VENV}/lib/python{minor}/site-packages"
