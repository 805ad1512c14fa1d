"""The figures of the catalogue, and the bands that records give."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuready.catalog import bands, load_catalog
from gpuready.model import Facts
from gpuready.workflow import bench
from tests.prove.test_bench_judged import report, world

ROOT = Path(__file__).parents[2]


def test_the_figures_of_the_h200():
    figures = {kind.name: bands.expected_rate(kind, "NVIDIA H200", "5 x16")[0] for kind in bands.list_measures()}
    assert figures["matmul-bf16"] == 989.4e12 and figures["memory-copy"] == 4800e9
    assert figures["host-to-device"] == pytest.approx(63.0e9, rel=0.01) and figures["peer-to-peer"] == 450e9
    assert figures["matmul-int8"] is None and figures["disk-read"] is None


def test_the_figure_of_an_unknown_gpu_is_its_link_or_nothing():
    copy, product = bands.find_measure("host-to-device"), bands.find_measure("matmul-bf16")
    assert bands.expected_rate(copy, "NVIDIA Z9000", "4 x8")[0] == pytest.approx(15.75e9, rel=0.01)
    assert bands.expected_rate(copy, "NVIDIA Z9000", "nonsense") == (None, "")
    assert bands.expected_rate(product, "NVIDIA Z9000", "") == (None, "")


def test_a_gpu_that_only_torch_names_has_its_figure():
    raw = {
        "name": "matmul-bf16",
        "device": "cuda:0",
        "raw": "measured",
        "passes": (7e14,),
        "at": "",
        "best": 7e14,
        "spans": (),
    }
    placed = bench.add_expectations(raw, Facts([]), {-1: "cuda:0"}, {"cuda:0": "NVIDIA H200"})
    assert placed["expected"] == 989.4e12 and placed["gpu"] == -1
    assert report(world(placed | {"low": None})).verdict == "undecided"


def test_every_figure_of_a_measure_is_a_column_of_some_gpu():
    columns = {key for row in load_catalog("gpus")["gpu"] for key in row}
    for kind in bands.list_measures():
        assert kind.figure in {"", "pcie", "nvlink", *columns} and kind.source and kind.says
        assert kind.better in ("more", "less") and kind.unit in ("FLOP/s", "OP/s", "B/s", "s")


def test_only_a_gpu_with_a_record_has_a_band():
    rows = [{"gpu": "NVIDIA H200", "measure": "matmul-bf16", "low": 1.0, "high": 2.0, "records": 1, "source": "x"}]
    assert bands.find_band("NVIDIA H200", "matmul-bf16", rows).low == 1.0
    assert bands.find_band("h200", "matmul-bf16", rows) is not None
    assert bands.find_band("NVIDIA H100 80GB HBM3", "matmul-bf16", rows) is None
    assert bands.find_band("NVIDIA H200", "matmul-fp16", rows) is None
