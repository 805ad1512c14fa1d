"""``gpuready fit --trace``: a real torch and a real transformers play models on the meta device.

What the trace gives is held against the engine's own tape, for a model that both know; the two share nothing but the rules
for attention kernels and the optimizers.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready.fit import H200, FitJob, FitUndecided, predict_memory
from gpuready.fit.search import traced_prediction
from gpuready.workflow.fit_trace import Tracer
from tests import target_environment
from tests.running import gpuready

HOME = target_environment.ROOT / ".venv" / "traced"
WANTED = ("transformers", "peft", "accelerate")
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 2048, "tie_word_embeddings": False,
}  # fmt: skip
KEPT = json.loads((Path(__file__).parent / "kept_traces.json").read_text())
"""What scripts/trace.py told of two small models under torch 2.13.0 and transformers 5.22.2, with the jobs that were asked."""


def kept(name: str) -> tuple[FitJob, dict]:
    return FitJob(KEPT[name]["model"], **KEPT[name]["job"]), traced_prediction.validate_trace(KEPT[name]["trace"])


def test_a_kept_trace_of_a_known_model_is_the_tape():
    """Needs no torch: reading and replaying a trace, with optimizer and clipping, ends where the engine's own tape does."""
    job, trace = kept("llama")
    seen, said = traced_prediction.predict_traced(job, H200, trace), predict_memory(job, H200)
    assert seen.phases == pytest.approx(dict(said.phases), rel=2e-4)
    assert seen.peak_allocated == pytest.approx(said.peak_allocated, rel=1e-4)
    assert (seen.peak_reserved, seen.minimum) == pytest.approx((said.peak_reserved, said.minimum), rel=0.02)
    assert any("torch 2.13.0" in note and "transformers 5.22.2" in note for note in seen.notes)


def test_a_kept_trace_of_an_unknown_model_has_every_part():
    job, trace = kept("olmo2")
    with pytest.raises(FitUndecided):
        predict_memory(job, H200)
    fit = traced_prediction.predict_traced(job, H200, trace)
    weights = 2 * (2 * (4 * 256 * 256 + 3 * 256 * 512 + 4 * 256) + 2 * 2048 * 256 + 256)
    assert fit.parts["parameters"] == pytest.approx(weights, rel=0.001)
    assert fit.parts["optimizer"] == pytest.approx(2 * weights, rel=0.001)
    assert fit.peak_at[0] == "backward" and fit.minimum >= fit.peak_allocated


def has(interpreter: str) -> bool:
    code = "import importlib.util as u, sys; sys.exit(not (u.find_spec('torch') and u.find_spec('peft')))"
    return subprocess.run([interpreter, "-c", code], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def python() -> str:
    """the torch of the target environment with transformers and peft beside it: in a venv that sees the target environment's, made once and kept."""
    found, made = target_environment.python(), str(HOME / "bin" / "python")
    if has(found):
        return found
    HOME.parent.mkdir(exist_ok=True)
    with open(HOME.parent / "traced.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (HOME / "bin" / "python").exists() or not has(made):
            make(found, made)
    return made


def make(found: str, made: str) -> None:
    said = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    subprocess.run([found, "-m", "venv", str(HOME)], check=True)
    theirs, own = (
        subprocess.run([p, "-c", said], capture_output=True, text=True).stdout.strip() for p in (found, made)
    )
    with open(f"{own}/patient.pth", "w") as file:
        file.write(theirs + "\n")
    ran = subprocess.run(
        [made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *WANTED], capture_output=True, text=True
    )  # fmt: skip
    if ran.returncode:
        pytest.skip(f"NO TRANSFORMERS: no model is traced ({ran.stderr.strip()[-300:]})")


@pytest.mark.parametrize(
    ("fields", "card"),
    [
        ({"precision": "amp-bf16", "checkpointing": "nonreentrant", "accumulation": 2}, H200),
        ({"method": "lora", "lora_dropout": 0.1, "optimizer": "adamw_8bit"}, H200),
    ],
    ids=("autocast-checkpointing-accumulation", "lora"),
)
def test_a_trace_agrees_with_the_tape(python, fields, card):
    """Every phase, and what lives at the peak, within a hundredth of a percent: the tape rounds what is small otherwise."""
    job = FitJob(LLAMA, micro_batch=4, seq=512, **fields)
    seen, said = Tracer(python)(job, card, False), predict_memory(job, card, False)
    assert seen.phases == pytest.approx(dict(said.phases), rel=2e-4)
    assert seen.peak_allocated == pytest.approx(said.peak_allocated, rel=1e-4)
    assert seen.peak_at[0] == said.peak_at[0]
    assert seen.parts == pytest.approx(dict(said.parts), rel=1e-3, abs=8192)


def test_a_model_that_is_not_known_here(python, tmp_path):
    """OLMo 2 is no architecture of the engine: undecided without a trace, a verdict and its proof with one."""
    config = {**LLAMA, "model_type": "olmo2", "num_key_value_heads": 8, "architectures": ["Olmo2ForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ["fit", str(tmp_path), "--micro-batch", "4", "--seq", "512", "--on", "h200", "--json"]
    assert gpuready(*words).code == 3
    ran = gpuready(*words, "--trace", "--python", python)
    told = json.loads(ran.out)
    layer = 4 * 256 * 256 + 3 * 256 * 512 + 4 * 256  # the norms of queries and keys run over all heads
    weights = 2 * (3 * layer + 2 * 2048 * 256 + 256)
    assert (ran.code, told["verdict"]) == (0, "fits")
    assert told["parts"]["parameters"] == pytest.approx(weights, rel=0.001)
    assert told["parts"]["optimizer"] == pytest.approx(2 * weights, rel=0.001)
    assert any("transformers" in note for note in told["notes"])


def test_what_is_missing_in_the_target_environment_is_said():
    """This Python has no torch, or no transformers: the last words of the script are the reason."""
    with pytest.raises(FitUndecided, match=r"could not trace the model: ModuleNotFoundError: No module named"):
        Tracer(sys.executable)(FitJob(LLAMA), H200, False)


def test_real_steps_of_a_job_are_timed(python):
    """``bench --job`` runs this script on a GPU; here on the CPU, with a LoRA adapter under checkpointing."""
    from gpuready.workflow.bench_job import run_real_steps

    job = FitJob(LLAMA, method="lora", lora_r=4, micro_batch=1, seq=16, precision="fp32", checkpointing="nonreentrant")
    report = run_real_steps(job, python, "cpu", steps=1, warm=0)
    parts = report["seconds"]
    assert set(parts) >= {"step", "forward", "backward", "optimizer"} and parts["step"] >= parts["forward"] > 0
