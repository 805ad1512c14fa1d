"""``gpuready fit`` as a user meets it: the screen, the JSON and the exit codes."""

from __future__ import annotations

import json

import pytest

from gpuready.render import fit as render
from gpuready.render.layout import Screen
from gpuready.workflow import fit
from tests.fit.asking import AXOLOTL, SMALL, document
from tests.render.test_golden import is_one_command_word
from tests.running import gpuready

PLACE = {"name", "capability", "memory", "held", "indexes", "source", "needs", "peak", "verdict", "room"}


# -- the answer ---------------------------------------------------------------------------------------------------


def test_the_json_has_the_fields_of_the_issue(folder):
    found, code = document("model", "--micro-batch", "2", "--seq", "512", "--on", "h200", cwd=folder)
    assert (code, found["schema"], found["verdict"], found["fits"]) == (0, 1, "fits", True)
    for key in ("peak_allocated", "peak_reserved", "peak_device", "minimum"):
        assert isinstance(found[key], int) and found[key] > 0
    assert found["peak_allocated"] <= found["minimum"] <= found["peak_reserved"] < found["peak_device"]
    assert found["parts"]["parameters"] > 0 and found["phases"] and found["proposals"] == []
    assert all(isinstance(size, int) for size in (*found["parts"].values(), *found["phases"].values()))
    assert set(found["places"][0]) >= PLACE and found["job"]["micro_batch"] == 2
    assert found["said"]["seq"] == "the command line"


def test_a_job_that_does_not_fit_is_exit_1_with_the_change_in_the_words_of_its_file(folder):
    found, code = document("axolotl.yml", "--on", "rtx3060", cwd=folder)
    assert (code, found["verdict"], found["fits"], found["kind"]) == (1, "does not fit", False, "axolotl")
    first = found["proposals"][0]
    assert (
        first["verdict"] == "fits"
        and first["changes"]
        and first["settings"]
        and first["run"][:3] == ["gpuready", "fit", "axolotl.yml"]
    )
    again = gpuready(*first["run"][1:], "-q", cwd=folder)
    assert again.code == 0 and "fits on NVIDIA GeForce RTX 3060" in again.out
    ranks = [one["rank"] for one in found["proposals"]]
    assert ranks == sorted(ranks) == [round(rank, 2) for rank in ranks]


def test_inside_the_band_it_is_undecided_and_exit_3(folder):
    """The box of the card is between what the job needs at least and at most."""
    answer = fit.fit_job([str(folder / "model")], {"micro_batch": 2, "seq": 512}, on="h200")
    assert answer.minimum is not None
    need = answer.minimum + answer.overhead[1]
    edge = answer.places[0].replace(memory=(need - 1, need + 1), verdict="undecided")
    undecided = answer.replace(places=(edge,))
    assert (undecided.verdict, undecided.fits, undecided.exit) == ("undecided", None, 3)
    headline = " ".join(render.render_fit_screen(undecided, Screen()).splitlines()[:4])
    assert headline.startswith("can't tell: model on 1x H200 (--on h200), by the templates of gpuready")
    assert "; no environment looked at   needs" in headline and ", too close to call" in headline


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--world", "16", "--on", "h100x8"), "on 16x H100 80GB (--on h100x8), by"),
        (("--world", "4", "--on", "h100x8"), "on 4 of 8x H100 80GB (--on h100x8), by"),
        (("--world", "2"), "can't tell: model on 2 unnamed GPUs, by"),
        (("--world", "2", "--gpus"), "on 2 GPUs of the catalogue, by"),
    ],
)
def test_the_headline_counts_the_gpus_that_were_asked_for(folder, flags, words):
    assert words in " ".join(gpuready("fit", "model", "--seq", "512", *flags, cwd=folder).out.split())


def test_without_a_gpu_it_tells_which_would_do(folder):
    found, code = document("model", "--seq", "512", cwd=folder)
    if found["places"]:
        pytest.skip("there is a GPU here")
    assert (code, found["verdict"]) == (3, "undecided") and "--on" in found["why"]
    sizes = [place["memory"][1] for place in found["gpus"]]
    assert sizes == sorted(sizes) and {"fits"} <= {place["verdict"] for place in found["gpus"]}


def test_gpus_of_the_catalogue(folder):
    found, code = document("model", "--micro-batch", "16", "--seq", "2048", "--gpus", cwd=folder)
    assert code == 0 and found["verdict"] == "fits"
    by_verdict = {v: [p["memory"][0] for p in found["gpus"] if p["verdict"] == v] for v in ("fits", "does not fit")}
    assert by_verdict["fits"] and by_verdict["does not fit"]
    assert "NVIDIA GeForce RTX 4090" in {place["name"] for place in found["gpus"]}


@pytest.mark.parametrize(("what", "field", "unit"), [("micro-batch", "micro_batch", 1), ("seq", "seq", 64)])
def test_the_largest(folder, what, field, unit):
    found, code = document("model", "--seq", "1024", "--max", what, "--on", "rtx3060", cwd=folder)
    most = found["largest"]
    assert code == 0 and most["field"] == field and most["value"] >= unit and most["fails"] == most["value"] + unit
    assert found["job"][field] == most["value"] and found["verdict"] == "fits"


def test_the_screen_is_80_columns_and_in_order(folder):
    out = gpuready("fit", "axolotl.yml", "--on", "rtx3060", cwd=folder).out
    assert max(map(len, out.splitlines())) <= 80
    order = [
        "does not fit: ",
        "  needs",
        "NVIDIA GeForce RTX 3060",
        "at the peak",
        "total",
        "what would make it fit",
        "costs:",
    ]
    assert [out.index(word) for word in order] == sorted(out.index(word) for word in order)
    assert gpuready("fit", "axolotl.yml", "--on", "rtx3060", "-q", cwd=folder).out.count("\n") == 1


@pytest.mark.parametrize("width", [40, 80, 100])
def test_every_screen_fits_and_colour_changes_no_word(folder, width):
    answer = fit.fit_job([str(folder / "axolotl.yml")], {}, on="rtx3060", every=True)
    for verbose in (False, True):
        plain = render.render_fit_screen(answer, Screen(width), verbose)
        assert all(len(line) <= width or is_one_command_word(line) for line in plain.splitlines())
        painted = render.render_fit_screen(answer, Screen(width, colour=True), verbose)
        import re

        assert re.sub(r"\x1b\[[\d;]*m", "", painted) == plain


def test_what_a_file_says_cannot_move_the_cursor(folder):
    (folder / "model" / "config.json").write_text(json.dumps(SMALL))
    (folder / "axolotl.yml").write_text(AXOLOTL.replace("./model", '"./model\\e[2J"'))
    ran = gpuready("fit", "axolotl.yml", cwd=folder)
    assert ran.code == 2 and "\x1b" not in ran.err + ran.out


# -- where the numbers come from ---------------------------------------------------------------------------------


def test_flags_come_after_the_file(folder):
    found, _ = document("axolotl.yml", "--micro-batch", "1", "--on", "h200", cwd=folder)
    assert found["job"]["micro_batch"] == 1 and found["job"]["seq"] == 4096
    assert found["said"]["micro_batch"] == "the command line" and "sequence_len" in found["said"]["seq"]


def test_a_model_and_files_together(folder):
    (folder / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}))
    args = {"per_device_train_batch_size": 2, "bf16": True, "max_length": 512, "gradient_checkpointing": True}
    (folder / "args.json").write_text(json.dumps(args))
    answer = fit.fit_job(
        ["llama-3.2-1b", str(folder / "args.json"), str(folder / "ds.json")], {}, on="h100x8", search=False
    )
    assert (answer.kind, answer.job["zero"], answer.job["world"], answer.job["precision"]) == ("trainer", 2, 8, "bf16")


def test_what_others_hold_is_not_there(folder, tmp_path):
    def machine(free: int) -> str:
        facts = {"gpu.count": 1, "gpu.visible": [0], "gpu.name": ["NVIDIA H200"], "gpu.capability": ["9.0"]}
        facts |= {"gpu.memory": [150754820096], "gpu.free": [free]}
        path = tmp_path / f"{free}.json"
        rows = [{"key": key, "value": value, "source": "nvml"} for key, value in facts.items()]
        path.write_text(json.dumps({"schema": 1, "host": "x", "facts": rows}))
        return str(path)

    job = {"micro_batch": 4, "seq": 1024}
    idle = fit.fit_job([str(folder / "model")], job, on=machine(150109880320))
    busy = fit.fit_job([str(folder / "model")], job, on=machine(2 << 30), search=False)
    assert (idle.verdict, busy.verdict) == ("fits", "does not fit")
    assert busy.places[0].held == 150754820096 - (2 << 30)


def test_what_is_not_counted_never_fits(folder):
    (folder / "axolotl.yml").write_text(AXOLOTL + "lora_modules_to_save: [lm_head]\nadapter: lora\n")
    answer = fit.fit_job([str(folder / "axolotl.yml")], {"micro_batch": 1}, on="h200")
    assert answer.verdict == "undecided" and "lora_modules_to_save" in answer.unmodelled[0]


def test_an_unknown_architecture_is_undecided_in_words(folder):
    (folder / "model" / "config.json").write_text(json.dumps(SMALL | {"model_type": "mamba9"}))
    found, code = document("model", "--on", "h200", cwd=folder)
    assert (code, found["verdict"], found["fits"], found["peak_allocated"]) == (3, "undecided", None, None)
    assert "--trace" in found["why"]
    assert "mamba9" in found["why"] and "mamba9" in gpuready("fit", "model", "--on", "h200", cwd=folder).out


# -- check and diagnose ------------------------------------------------------------------------------------------


def test_check_says_when_the_job_of_its_file_cannot_fit(folder):
    ran = gpuready("check", "axolotl", "--config", "axolotl.yml", "--on", "rtx3060", "--json", cwd=folder)
    codes = {finding["code"]: finding for finding in json.loads(ran.out)["findings"]}
    assert codes["MEM008"]["fix"][0]["run"] == ["gpuready", "fit", "axolotl.yml", "--on", "rtx3060"]
    ran = gpuready("check", "axolotl", "--config", "axolotl.yml", "--on", "h200", "--json", cwd=folder)
    assert "MEM008" not in {finding["code"] for finding in json.loads(ran.out)["findings"]}


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 11.63 GiB of which "
    "1.10 GiB is free. Including non-PyTorch memory, this process has 10.50 GiB memory in use. Of the allocated memory 9.80 GiB "
    "is allocated by PyTorch, and 112.00 MiB is reserved by PyTorch but unallocated.\n"
)


def test_diagnose_gives_the_exact_change_for_the_file(folder):
    (folder / "train.log").write_text("Traceback (most recent call last):\n" + OOM)
    ran = gpuready("diagnose", "train.log", "--config", "axolotl.yml", "--json", cwd=folder)
    found = json.loads(ran.out)
    assert found["code"] == "MEM001"
    step = found["fix"][0]
    assert step["run"][:3] == ["gpuready", "fit", "axolotl.yml"] and "costs:" in step["note"]
    assert any("by gpuready fit" in note for note in found["notes"])
    assert not any(one["does"].startswith("let gpuready fit find") for one in found["fix"]), "it has"
    assert not any("disagree" in note for note in found["notes"])


def test_diagnose_gives_a_command_where_no_tried_change_fits(folder):
    """Far too large for the card of the log, whose name is told by its memory."""
    (folder / "train.log").write_text(
        "Traceback (most recent call last):\n" + OOM.replace("11.63", "79.10").replace("10.50", "70.00")
    )
    (folder / "full.yml").write_text(
        "base_model: NousResearch/Meta-Llama-3-8B\nmicro_batch_size: 4\nsequence_len: 4096\nbf16: true\n"
    )
    found = json.loads(gpuready("diagnose", "train.log", "--config", "full.yml", "--json", cwd=folder).out)
    assert any("and --on names another" in note for note in found["notes"]), "nobody named its GPU"
    assert found["fix"][0]["run"][:5] == ["gpuready", "fit", "full.yml", "--on", "a100"]


def test_diagnose_says_when_the_file_and_the_log_disagree(folder):
    """The job of the file is far smaller than what the log holds: no change of the file is offered as the fix."""
    large = OOM.replace("11.63", "79.10").replace("1.10 GiB is free", "0.10 GiB is free").replace("10.50", "79.00")
    (folder / "train.log").write_text("Traceback (most recent call last):\n" + large)
    (folder / "tiny.yml").write_text(
        "base_model: model\nadapter: lora\nmicro_batch_size: 1\nsequence_len: 256\nbf16: true\n"
    )
    found = json.loads(gpuready("diagnose", "train.log", "--config", "tiny.yml", "--json", cwd=folder).out)
    (note,) = [note for note in found["notes"] if "disagree" in note]
    assert "GiB: the two disagree" in note and "81.0 GiB" in note
    assert not any((step["run"] or [""])[:2] == ["gpuready", "fit"] for step in found["fix"])


# -- what is asked -------------------------------------------------------------------------------------------------


def test_flags_without_a_bearing_are_named():
    found = fit.fit_job(["llama-3.2-1b"], {"cache": "static", "lora_r": 4}, on="h200", search=False)
    idle = {note.split()[0] for note in found.notes if note.endswith("it changes nothing")}
    assert idle == {"--lora-r", "--cache"}
    found = fit.fit_job(["llama-3.2-1b"], {"method": "lora", "lora_r": 4}, on="h200", search=False)
    assert not any("it changes nothing" in note for note in found.notes)


def test_a_named_model_comes_before_that_of_a_file_and_a_byte_order_mark_is_passed_over(folder):
    (folder / "args.json").write_bytes(
        b"\xef\xbb\xbf" + json.dumps({"model_name_or_path": "gpt2", "per_device_train_batch_size": 2}).encode()
    )
    found = fit.fit_job(["llama-3.2-1b", str(folder / "args.json")], {}, on="h200", search=False)
    assert (found.model, found.job["micro_batch"]) == ("llama-3.2-1b", 2)


def test_another_allocator_is_undecided():
    found = fit.fit_job(["llama-3.2-1b"], {"alloc_conf": "backend:cudaMallocAsync"}, on="h200", search=False)
    assert found.verdict == "undecided" and "cudaMallocAsync" in found.why


def test_generation_over_several_gpus_is_shared_and_proposed():
    whole, half = (
        fit.fit_job(["llama-3.2-1b"], {"task": "generate", "tensor_parallel": n}, on="h100x2", search=False)
        for n in (1, 2)
    )
    assert half.parts["parameters"] < 0.75 * whole.parts["parameters"]
    assert half.parts["cache"] == whole.parts["cache"] // 2
    found = fit.fit_job(["llama-3.1-70b"], {"task": "generate"}, on="h100x8")
    assert found.proposals[0].changes == {"world": 2, "tensor_parallel": 2}
