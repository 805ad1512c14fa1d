"""Looks that go well, hang or fail."""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.system import run_probes
from tests.deadlines import GENEROUS_S


def well(key, value="fine"):
    return lambda host: [Fact(key, value, "a source", "run")]


def raises(_):
    raise ValueError("cannot read token=abcdefgh12345678\nand a second line")


def one(host, look, *keys, deadline=GENEROUS_S):
    facts = run_probes(host, [("probe", look, keys or ("a.key",), deadline)])
    return facts[0]
