"""What a number is worth: bands, noise, and the reasons for a low one, from facts alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuready import rules
from gpuready.catalog import bands
from gpuready.check.evaluate import judge
from gpuready.model import Contract, Fact, Facts, UnknownFactError
from gpuready.model.bench import relative_spread
from gpuready.rules import bench_verdict, slowness_reasons
from gpuready.workflow import bench

ROOT = Path(__file__).parents[2]
CONTRACT = Contract("bench", "1", platforms=("cuda",))
HEALTHY = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA H200",),
    "gpu.memory": (150_754_820_096,),
    "gpu.free": (150_000_000_000,),
    "gpu.power_limit": (700,),
    "gpu.power_limit_default": (700,),
    "gpu.pcie": ("5 x16",),
    "gpu.pcie_max": ("5 x16",),
    "gpu.ecc": ("on",),
    "gpu.ecc_errors": (0,),
    "gpu.mig": ("off",),
    "gpu.nvlink": (18,),
    "gpu.processes": (),
}
LOAD = {
    "gpu": 0,
    "at": 5.0,
    "clock_sm": 1980,
    "clock_sm_max": 1980,
    "power_draw": 650.0,
    "temperature": 60,
    "throttle": [],
}
LOAD |= {"pcie_gen": 5, "pcie_width": 16}


def row(name="matmul-bf16", *passes, low=700e12, high=850e12, **more):
    """A measured row as the workflow makes it."""
    kind = bands.find_measure(name)
    passes = passes or (770e12, 768e12)
    made = {"name": name, "device": "cuda:0", "gpu": 0, "raw": "measured", "why": "", "at": "", "best": max(passes)}
    made |= {"passes": passes, "value": max(passes), "spread": relative_spread(passes), "spans": ((0.0, 10.0),)}
    made |= {"unit": kind.unit, "group": kind.group, "better": kind.better, "low": low, "high": high}
    return made | {"expected": 989.4e12 if kind.group == "compute" else None, "cite": "", "executed": ""} | more


def world(*rows, samples=(LOAD,), **changes):
    values = HEALTHY | {key.replace("__", "."): value for key, value in changes.items()}
    values |= {"bench.measures": rows, "bench.samples": samples}
    return Facts([Fact(key, value, "test", "run") for key, value in values.items()])


def report(facts):
    return judge([rules.load_rule(code) for code in bench.BENCH_RULES], facts, CONTRACT)


SLOW = row("matmul-bf16", 400e12, 399e12)


# -- one line ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (row(), "as-expected"),
        (row("matmul-bf16", 900e12, 899e12), "as-expected"),
        (SLOW, "slow"),
        (row("matmul-bf16", 400e12, 500e12), "slow"),
        (row("matmul-bf16", 690e12, 710e12), "noisy"),
        (row("matmul-bf16", 770e12, 750e12), "noisy"),
        (row(low=None, high=None), "undecided"),
        (row(low=None, high=None, expected=None), "undecided"),
        (row("kernel-launch", 4e-6, 4e-6, low=None, high=None), "measured"),
        (row("disk-read", 4e9, 4e9, gpu=None, low=None, high=None, expected=None), "measured"),
        (row("kernel-launch", 9e-6, 9.01e-6, low=3e-6, high=6e-6), "slow"),
        (row("kernel-launch", 4e-6, 4.01e-6, low=3e-6, high=6e-6), "as-expected"),
        (row("matmul-bf16", 5e15, 5e15), "undecided"),
        (row(raw="unsupported", why="no such thing"), "unsupported"),
        (row("matmul-bf16", 770e12), "as-expected"),
    ],
)
def test_the_verdict_on_one_line(one, verdict):
    assert bench_verdict.judge_measure(one, world(one))[0] == verdict


def test_two_passes_that_differ_by_more_than_two_in_a_hundred_are_noisy():
    assert not bench_verdict.is_noisy(row("matmul-bf16", 100.0, 98.1))
    assert bench_verdict.is_noisy(row("matmul-bf16", 100.0, 97.9))
    assert relative_spread((100.0,)) is None and relative_spread((100.0, 99.0, 95.0)) == pytest.approx(0.05)


def test_noise_inside_the_band_decides_nothing_against_the_gpu():
    inside, across = row("matmul-bf16", 770e12, 740e12), row("matmul-bf16", 690e12, 720e12)
    assert report(world(inside)).verdict == "clear"
    assert report(world(across)).verdict == "undecided"


def test_more_than_the_gpu_can_do_is_not_believed():
    assert "catalogue" in bench_verdict.judge_measure(row("matmul-bf16", 5e15, 5e15), world())[1]


# -- the fold -----------------------------------------------------------------------------------------------------


def test_all_as_expected_is_clear():
    found = report(world(row(), row("memory-copy", 4.2e12, 4.21e12, low=4e12, high=4.5e12)))
    assert (found.verdict, found.exit) == ("clear", 0)


def test_slow_is_not_ready_and_says_how_much():
    found = report(world(row("matmul-fp16"), SLOW))
    assert (found.verdict, found.exit) == ("not-ready", 1)
    assert (
        found.findings[0].code == "GPU021" and "matmul-bf16 is 43% below the expected range" in found.findings[0].says
    )


@pytest.mark.parametrize("raw", ["failed", "crashed", "hung"])
def test_what_breaks_on_a_gpu_is_not_ready(raw):
    broken = row(raw=raw, why="RuntimeError: CUDA error", passes=(), value=None, spread=None)
    found = report(world(row(), broken))
    assert found.verdict == "not-ready" and found.findings[0].code == "GPU022"
    assert "CUDA error" in found.findings[0].so


def test_a_broken_disk_is_not_ready_either():
    host = row("disk-read", gpu=None, raw="failed", why="OSError: [Errno 5]", passes=(), value=None, spread=None)
    assert report(world(host)).findings[0].says == "disk-read failed on the host"


def test_without_a_record_it_stays_undecided():
    found = report(world(row(low=None, high=None)))
    assert (found.verdict, found.exit) == ("undecided", 3)
    assert "no record of this GPU" in found.undecided[0].missing[0].gap


def test_absent_is_never_passed():
    gone = row(raw="absent", why="there is no GPU", passes=(), value=None, spread=None, gpu=-1)
    assert report(world(gone, gpu__count=0)).verdict == "undecided"


def test_what_the_gpu_cannot_do_is_no_fault():
    lacks = row("matmul-fp8", raw="unsupported", why="needs 8.9", passes=(), value=None, spread=None)
    assert report(world(row(), lacks)).verdict == "clear"


def test_what_is_held_is_judged_only_where_there_is_a_record():
    known = row("matmul-bf16-held", 400e12, 399e12, group="held")
    assert bench_verdict.judge_measure(known, world())[0] == "slow"
    assert bench_verdict.judge_measure(known | {"low": None, "high": None}, world()) == ("measured", "")


def test_the_host_is_not_judged():
    host = row("disk-read", 1e6, 9e6, gpu=None, low=None, high=None, expected=None)
    assert report(world(host)).verdict == "clear"


def test_the_page_of_a_gpu(monkeypatch):
    """A machine with a record: every kind of line, in 80 columns."""
    from gpuready import catalog
    from gpuready.prove.bench import BenchOutcome, check_measure_row
    from gpuready.render import bench as render
    from gpuready.render.layout import Screen

    seen = [("matmul-bf16", 700e12, 850e12), ("matmul-fp8", 1200e12, 1500e12), ("memory-copy", 4e12, 4.5e12)]
    band = [{"gpu": "NVIDIA H200", "measure": m, "low": a, "high": b, "records": 2, "source": "x"} for m, a, b in seen]
    monkeypatch.setitem(catalog.load_catalog("bands"), "band", band)
    numbers = {"matmul-bf16": [500e12, 499e12], "matmul-fp8": [1333e12, 1330e12], "memory-copy": [4.2e12, 4.0e12]}
    numbers |= {"matmul-tf32": [366e12, 365e12], "kernel-launch": [3.1e-6, 3.1e-6]}
    raw = [
        check_measure_row(
            {"name": n, "device": "cuda:0", "verdict": "measured", "passes": p, "best": p[0], "spans": [[1, 9]]}
        )
        for n, p in numbers.items()
    ]
    values = HEALTHY | {"gpu.power_limit": (350,), "python.path": "/venv/bin/python"}
    known = Facts([Fact(key, value, "NVML") for key, value in values.items()], "node1")
    found = bench._judge_measures(
        known, [BenchOutcome(tuple(raw), (LOAD,))], {0: "cuda:0"}, list(bands.list_measures()), False, 2, 48.0
    )
    words = {m.name: m.verdict for m in found.measures}
    assert words["matmul-bf16"] == "slow" and words["matmul-fp8"] == "as-expected" and words["memory-copy"] == "noisy"
    assert words["matmul-tf32"] == "undecided" and words["kernel-launch"] == "measured"
    page = render.render_bench_screen(found, Screen(), verbose=True)
    assert all(len(line) <= 80 for line in page.splitlines()), page
    for piece in ("GPU 0  NVIDIA H200", "500 TFLOP/s of    989   51%", "1333 TFLOP/s of   1979   67%", "3.10 µs"):
        assert piece in page
    assert "error[GPU021]" in page and "nvidia-smi -i 0 -pl 700" in page and found.exit == 1
    assert render.format_bench_line(found) == "bench: not ready (matmul-bf16 slow)\n"


# -- the reasons -------------------------------------------------------------------------------------------------------


def said(one, **changes):
    samples = changes.pop("samples", (LOAD,))
    return [
        reason.says for reason in slowness_reasons.find_slowness_reasons(one, world(one, samples=samples, **changes))
    ]


def test_a_healthy_gpu_has_no_reason():
    assert said(SLOW) == []
    assert "no visible reason" in report(world(SLOW)).findings[0].so


def test_clocks_locked_low():
    """C17: nvidia-smi -lgc 345."""
    locked = LOAD | {"clock_sm": 345, "power_draw": 130.0}
    found = report(world(SLOW, samples=(locked, locked))).findings[0]
    assert "345 of 1980 MHz" in found.so and any("-rgc" in step.does for step in found.fix)


def test_clocks_that_power_holds_down_are_not_locked():
    capped = LOAD | {"clock_sm": 1200, "power_draw": 699.0, "throttle": ["sw_power_cap"]}
    assert said(SLOW, samples=(capped,)) == []


def test_a_gpu_that_rests_between_measures_is_not_locked():
    resting = LOAD | {"clock_sm": 345, "power_draw": 80.0, "at": 99.0}
    assert said(SLOW, samples=(LOAD, resting)) == []


def test_a_power_cap():
    """C18: nvidia-smi -pl 200."""
    found = report(world(SLOW, gpu__power_limit=(200,))).findings[0]
    assert "200 W" in found.so and any("-pl 700" in step.does for step in found.fix)
    assert {fact.key for fact in found.found} >= {"gpu.power_limit", "gpu.power_limit_default"}


def test_other_work_makes_the_measurement_invalid_and_not_the_gpu_bad():
    """C19: a second process computes on the same GPU."""
    other = ({"gpu": 0, "pid": 4711, "used": 1 << 30, "user": "eve", "command": "train"},)
    found = report(world(SLOW, gpu__processes=other))
    assert found.verdict == "undecided" and found.findings == ()
    assert "pid 4711 of eve" in found.undecided[0].missing[0].gap
    assert bench_verdict.judge_measure(row(), world(row(), gpu__processes=other))[0] == "as-expected"


def test_somebody_who_came_while_it_was_measured():
    found = report(world(SLOW, samples=(LOAD | {"processes": 1}, LOAD | {"processes": 2})))
    assert found.verdict == "undecided" and "1 more during" in found.undecided[0].missing[0].gap
    assert said(SLOW, samples=(LOAD | {"processes": 1},)) == []


def test_memory_held_by_processes_that_are_not_visible():
    """C10: the holder is in another container."""
    assert "not visible" in said(SLOW, gpu__free=(100_000_000_000,))[0]


@pytest.mark.parametrize(
    ("word", "says"),
    [("hw_thermal", "much too hot"), ("sw_thermal_slowdown", "too hot"), ("hw_power_brake", "power brake")],
)
def test_heat_and_the_power_brake(word, says):
    hot = LOAD | {"throttle": ["hw_slowdown", word], "temperature": 91, "clock_sm": 900}
    assert says in said(SLOW, samples=(LOAD, hot))[0] and "1 of 2 samples" in said(SLOW, samples=(LOAD, hot))[0]


def test_application_clocks():
    found = slowness_reasons.find_slowness_reasons(
        SLOW, world(SLOW, samples=(LOAD | {"throttle": ["application_clocks"]},))
    )
    assert "application clocks" in found[0].says and "-rac" in found[0].fix[0].does


def test_mig():
    assert "MIG" in said(SLOW, gpu__mig=("on",))[0]


def test_ecc_slows_gddr_and_not_hbm():
    copy = row("memory-copy", 3e12, 3e12, low=4e12, high=4.5e12)
    assert said(copy) == []
    assert "ECC" in said(copy, gpu__name=("NVIDIA L4",))[0]
    assert "uncorrected" in said(copy, gpu__ecc_errors=(3,))[0]


def test_a_narrow_or_slow_link():
    copy = row("host-to-device", 12e9, 12e9, low=50e9, high=58e9)
    assert "8 of 16 lanes" in said(copy, samples=(LOAD | {"pcie_width": 8},))[0]
    assert "generation 3 under load" in said(copy, samples=(LOAD | {"pcie_gen": 3},))[0]
    assert "8 of 16 lanes" in said(copy, samples=(), gpu__pcie=("1 x8",))[0]
    assert said(copy, samples=(), gpu__pcie=("1 x16",)) == []  # a link that rests
    assert said(SLOW, samples=(LOAD | {"pcie_width": 8},)) == []  # it does not slow a product down


def test_nvlink_that_is_down():
    peers = row("peer-to-peer", 20e9, 20e9, low=300e9, high=450e9)
    assert "no link is up" in said(peers, gpu__nvlink=(0,))[0]


def test_what_nvml_does_not_tell_explains_nothing():
    bare = dict.fromkeys(("gpu__power_limit", "gpu__pcie", "gpu__mig", "gpu__ecc", "gpu__processes"))
    assert said(SLOW, samples=({"gpu": 0, "at": 1.0},), **bare) == []


def test_a_launch_that_is_noisy_leaves_nothing_open():
    """How fast a kernel is launched is the host's business, and no band judges it."""
    from gpuready.rules.gpu import gpu_slower_than_its_kind as rule

    steady = dict(rule._ROW, value=770e12, passes=(770e12, 768e12))
    launch = {"name": "kernel-launch", "gpu": 0, "raw": "measured", "group": "launch", "better": "less"}
    launch |= {"value": 6e-6, "passes": (6e-6, 7e-6), "spread": 0.15}
    facts = Facts([Fact("bench.measures", (steady, launch), "gpuready bench", "run")])
    assert rule.judge(facts, Contract("any", "1")) is None
    unsteady = launch | {"name": "memory-copy", "group": "memory", "better": "more"}
    with pytest.raises(UnknownFactError):
        rule.judge(Facts([Fact("bench.measures", (steady, unsteady), "", "run")]), Contract("any", "1"))
