"""The step times of a log beside the prediction for its file."""

from __future__ import annotations

import json

import pytest

from gpuready.commands.diagnose import diagnose
from gpuready.workflow.step_pace import describe_pace, describe_slow_pattern, judge_run_pace, read_step_times

CONFIG = "base_model: llama-3.2-1b\nmicro_batch_size: 1\nsequence_len: 2048\nadapter: lora\nlora_r: 8\nbf16: true\n"


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (b" 12%|##   | 12/100 [00:10<01:20,  1.25it/s]", 0.8),
        (b" 12%|##   | 12/100 [00:24<02:56,  2.00s/it]", 2.0),
        (b"{'train_runtime': 10.0, 'train_steps_per_second': 0.5}", 2.0),
        (b"a\r 50%| 50/100 [00:10<00:10, 4.00it/s]\r", 0.25),
        (b" iteration       20/     100 | consumed samples: 80 | elapsed time per iteration (ms): 512.5 | lr", 0.5125),
        (b"steps: 10 loss: 2.1034 iter time (s): 1.250 samples/sec: 25.600", 1.25),
    ],
)
def test_rates_of_a_log(line, seconds):
    assert read_step_times([line]) == [pytest.approx(seconds)]


def test_the_first_steps_and_broken_rates_do_not_count():
    assert (
        read_step_times([b"2/100 [00:10<01:20, 9.0s/it]", b"9/100 [00:10<01:20, 0.0.1s/it]", b"9/100 [?<?, 0it/s]"])
        == []
    )


def test_slow_steps_are_told_and_no_cause_is_guessed():
    assert "3.0 times as long as predicted. Steps slowed" in describe_pace(3.0, 1.0, (0.9, 1.2), "x", "steps slowed")
    assert "as fast as it should be" in describe_pace(1.3, 1.0, (0.9, 1.2), "matmul", "")
    assert "Look at the loading of data" in describe_pace(3.0, 1.0, (0.9, 1.2), "matmul", "")


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([1.0] * 20 + [2.0] * 40, "slowed down (2 s): the GPU's temperature"),
        ([1.0, 3.0, 3.0, 3.0] * 10, "some steps were as fast as they should be (1 s)"),
        ([3.0] * 40, ""),
        ([1.0, 3.0], ""),
    ],
)
def test_the_times_themselves_are_evidence(times, words):
    found = describe_slow_pattern(times, 1.2)
    assert words in found and bool(words) == bool(found)


def test_diagnose_with_the_file_of_the_job(tmp_path):
    log, config = tmp_path / "train.log", tmp_path / "axolotl.yml"
    config.write_text(CONFIG)
    log.write_text("\n".join(f" {n}%|#| {n}/100 [00:{n:02d}<01:20, 4.00s/it]" for n in range(10, 60)) + "\n")
    found = json.loads(diagnose(str(log), config=str(config), on="h200", look=False).json())
    assert any("times as long as predicted" in note for note in found["notes"]), found["notes"]


def test_run_tells_it_at_its_end_where_its_command_line_has_the_job(tmp_path):
    log, config = tmp_path / "rank-0.log", tmp_path / "axolotl.yml"
    config.write_text(CONFIG)
    log.write_text("\n".join(f" {n}%|#| {n}/100 [00:{n:02d}<01:20, 4.00s/it]" for n in range(10, 60)) + "\n")
    words = ("axolotl.cli.train", str(config))
    assert "a step took 4 s" in judge_run_pace(str(log), words, "h200")
    assert not judge_run_pace(str(log), ("train.py", "--lr", "1"), "h200"), "no job is known"
    config.write_text("a: file\nof: another kind\n")
    assert not judge_run_pace(str(log), words, "h200") and not judge_run_pace(str(tmp_path / "none"), words, "h200")
