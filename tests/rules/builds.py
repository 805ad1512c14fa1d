"""Jobs and contracts that build something, made of plain values."""

from __future__ import annotations

from tests.rules.worlds import H100, contract, need

BUILDS = {"job.wants": ("build",)}
FORCE = {"name": "FORCE_CUDA", "access": "read", "cite": "extensions/cuda_extension.py:33"}
EXT = {"name": "BUILD_EXT", "access": "read", "cite": "setup.py:16"}
COLOSSAL = contract(
    need("toolkit.version", ">=11.0"), framework="colossalai", distribution="colossalai", variables=[FORCE, EXT]
)
OPEN = contract(framework="colossalai", distribution="colossalai", variables=[FORCE, EXT])
"""The same without a word on the toolkit."""


def card(capability, **more):
    return H100 | {"gpu.capability": (capability,), "gpu.name": ("a GPU",)} | more
