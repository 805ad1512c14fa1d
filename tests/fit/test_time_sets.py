"""The sets of step times that were measured on an H200: what they have in common with those before, and how they are measured."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from benchmarks.step_time import make_job, read_measured, seconds_of
from benchmarks.step_time_cases import MODELS, list_cases
from benchmarks.step_time_measure import merge_rounds, plan_rounds

from gpuready.catalog.gpus import find_gpu
from gpuready.fit import H200
from gpuready.fit.time.device_speed import calibrate_speed, speed_from_row
from gpuready.fit.time.prediction import predict_time

MEASURED = Path(__file__).parents[2] / "benchmarks/results/step-time-h200.json"
CASES, _ = read_measured(str(MEASURED), None)
SHEET = speed_from_row(find_gpu("h200"))


@pytest.mark.parametrize(("names", "later"), [("XY", "ZA"), ("ZA", "")])
def test_a_set_has_other_shapes_than_all_before(names, later):
    one_set = [case for case in list_cases() if case["id"][0] in names]
    shapes = {json.dumps(case["config"], sort_keys=True) for case in one_set}
    before = [case["config"] for case in [*CASES, *list_cases()] if case["id"][0] not in names + later]
    assert not shapes & {json.dumps(config, sort_keys=True) for config in before}
    assert {case["model"] for case in one_set} <= MODELS.keys()


def test_the_newest_set_is_inside_of_its_ranges_and_close_where_it_waits_for_the_gpu():
    cases, measures = read_measured(str(MEASURED.with_name("step-time-6-h200.json")), None)
    speed = calibrate_speed(SHEET, measures)
    errors, outside = [], 0
    for case in cases:
        time = predict_time(make_job(case), H200, speed)
        measured = case.get("step_s") or case["decode_s"]
        outside += not time.range[0] <= measured <= time.range[1]
        if case["kind"] == "train" and time.bound_by != "launches":
            errors.append(abs(seconds_of(time) / measured - 1))
    assert len(errors) == 18 and statistics.median(errors) <= 0.03 and max(errors) <= 0.10 and outside <= 1


def test_what_waits_for_the_host_is_measured_in_more_processes_than_the_rest():
    cases = [{"id": name} for name in "abcd"]
    rounds = [sorted(case["id"] for case in one) for one in plan_rounds(cases, {"b", "d"}, 3)]
    assert rounds == [["a", "b", "c", "d"], ["b", "d"], ["b", "d"], ["a", "c"]]
    marks = {case["id"]: case["waits"] for one in plan_rounds(cases, {"b"}, 2) for case in one}
    assert marks == {"a": False, "b": True, "c": False, "d": False}


def test_rounds_of_a_case_become_their_median_and_failed_ones_do_not_count():
    rounds = [{"status": "ok", "step_s": one, "moved_s": 2.0, "params": 7} for one in (1.0, 5.0, 3.0)]
    merged = merge_rounds([{"status": "error", "error": "gone"}, *rounds])
    assert (merged["step_s"], merged["rounds"], merged["params"]) == (3.0, [1.0, 5.0, 3.0], 7)
    assert merge_rounds([{"status": "timeout"}]) == {"status": "timeout"}
