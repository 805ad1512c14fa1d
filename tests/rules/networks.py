"""Machines on a network, made of plain values."""

from __future__ import annotations

from tests.rules.worlds import H100, contract

TRAINER = contract(framework="transformers")
APART = {"job.wants": ("multi-node",)}


def cards(count, name="NVIDIA H100 80GB HBM3", **more):
    return H100 | {"gpu.count": count, "gpu.visible": tuple(range(count)), "gpu.name": (name,) * count, **more}
