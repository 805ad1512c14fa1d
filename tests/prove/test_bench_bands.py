"""The figures of the catalogue, and the bands that records give."""

from __future__ import annotations

import json
import sys
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


@pytest.fixture
def learn():
    sys.path.append(str(ROOT / "tools"))
    import learn_bands

    sys.path.remove(str(ROOT / "tools"))
    return learn_bands


def test_the_bands_are_what_the_records_give(learn):
    before = learn.BANDS.read_text()
    assert learn.text(learn.bands(), before) == before


def test_how_a_band_is_learned(learn, tmp_path):
    measures = [
        {"name": "matmul-bf16", "device": "GPU 0", "verdict": "undecided", "passes": [780e12, 776e12]},
        {"name": "memory-copy", "device": "GPU 0", "verdict": "noisy", "passes": [4.2e12, 3.9e12]},
        {"name": "kernel-launch", "device": "GPU 0", "verdict": "measured", "passes": [4e-6, 4e-6]},
        {"name": "matmul-fp8", "device": "GPU 0", "verdict": "failed", "passes": []},
        {"name": "disk-read", "device": "cpu", "verdict": "measured", "passes": [1e9]},
    ]
    run = {"hardware": {"gpu.name": ["NVIDIA H200"]}, "measures": measures}
    (tmp_path / "bench-h200.json").write_text(json.dumps({"runs": [run, run]}))
    rows = {one["measure"]: one for one in learn.bands(tmp_path)}
    assert set(rows) == {"matmul-bf16", "memory-copy"} and rows["matmul-bf16"]["records"] == 2
    assert rows["matmul-bf16"]["low"] == pytest.approx(776e12 * 0.95, rel=0.005)
    assert rows["memory-copy"]["low"] == pytest.approx(3.9e12 * (1 - 2 * 0.3 / 4.2), rel=0.005)
    whole = learn.text(list(rows.values()), learn.BANDS.read_text(), tmp_path)
    data = _toml(whole)
    assert {m["name"] for m in data["measure"] if m.get("executed") == "h200"} >= {"matmul-bf16", "kernel-launch"}
    assert data["band"][0]["source"] == "benchmarks/results/bench-h200.json"


def _toml(text):
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    return tomllib.loads(text)
