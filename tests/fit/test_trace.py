"""``gpuready fit --trace``: a real torch plays models on the meta device.

In ``make test`` it plays a model of small_transformers.py, and kept traces are replayed. In ``make faults`` a real transformers with peft
plays real classes: to install and to import them takes a minute. What that trace gives is held against the engine's own tape, for a model
that both know; the two share nothing but the rules for attention kernels and the optimizers.
"""

from __future__ import annotations

import fcntl
import json
import math
import re
import struct
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from gpuready.fit import H200, FitJob, FitUndecided, predict_memory
from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.parameter_counts import count_parameters
from gpuready.fit.search import traced_prediction
from gpuready.fit.tape.attention import AttentionQuery, pick_attention_kernel
from gpuready.workflow.fit_trace import Tracer
from tests import target_environment
from tests.fit.kites import KITE, KITE_COUNT, REFUSED_KITES, play
from tests.running import gpuready

HOME = target_environment.ROOT / ".venv" / "traced"
WANTED = ("transformers", "peft", "accelerate")
SCRIPTS = target_environment.ROOT / "src" / "gpuready" / "fit" / "scripts"
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 2048, "tie_word_embeddings": False,
}  # fmt: skip
KEPT = json.loads((Path(__file__).parent / "kept_traces.json").read_text())
"""What scripts/trace.py told of two small models under torch 2.13.0 and transformers 5.22.2, with the jobs that were asked."""
MEASURED = json.loads((Path(__file__).parent / "measured_architectures.json").read_text(encoding="utf-8"))


def kept(name: str) -> tuple[FitJob, dict]:
    return FitJob(KEPT[name]["model"], **KEPT[name]["job"]), traced_prediction.validate_trace(KEPT[name]["trace"])


def test_a_kept_trace_of_a_known_model_is_the_tape():
    """Needs no torch: reading and replaying a trace, with optimizer and clipping, ends where the engine's own tape does."""
    job, trace = kept("llama")
    seen, said = traced_prediction.predict_traced(job, H200, trace), predict_memory(job, H200)
    assert seen.phases == pytest.approx(dict(said.phases), rel=2e-4)
    assert seen.peak_allocated == pytest.approx(said.peak_allocated, rel=1e-4)
    assert (seen.peak_reserved, seen.minimum) == pytest.approx((said.peak_reserved, said.minimum), rel=0.02)
    assert (seen.versions["torch"], seen.versions["transformers"]) == ("2.13.0+cpu", "5.22.2")


def test_a_kept_trace_has_every_part():
    job, trace = kept("opt")
    fit = traced_prediction.predict_traced(job, H200, trace)
    assert fit.parts["parameters"] == pytest.approx(2 * trace["count"], rel=0.01)
    assert fit.parts["optimizer"] == pytest.approx(4 * trace["count"], rel=0.01)
    assert fit.peak_at[0] == "backward" and fit.minimum >= fit.peak_allocated
    assert "played as OPTForCausalLM" in fit.notes


def test_a_trace_with_other_parameters_than_the_config_counts_is_no_answer():
    job, trace = kept("llama")
    wrong = trace | {"class": "LlamaForCausalLM", "count": 2 * predict_count(job)}
    with pytest.raises(FitUndecided, match=r"was traced with [\d,]+ parameters, and its config counts"):
        traced_prediction.predict_traced(job, H200, wrong)


def predict_count(job: FitJob) -> int:
    return count_parameters(parse_model_config(job.model))


@pytest.mark.parametrize(
    ("fields", "kernel"),
    [
        ({}, "cudnn"),
        ({"dropout": 0.1}, "flash"),  # BERT: cuDNN's dropout is in sixteenths
        ({"dropout": 0.125}, "cudnn"),
        ({"fusable": False, "grouped": True}, "math"),  # Falcon: one key head, spread by broadcasting
        ({"size": 192, "value_size": 128}, "cudnn"),  # DeepSeek V3
        ({"size": 192, "value_size": 128, "dropout": 0.1}, "efficient"),
        ({"masked": True, "trains_mask": True}, "efficient"),  # BEiT: cuDNN has no gradient of a learned bias
        ({"masked": True, "trains_mask": True, "fusable": False}, "math"),  # T5: its rows are strided
        ({"masked": True, "dropout": 0.1}, "efficient"),
        ({"keys": 1}, "flash"),
        ({"switched_off": ("cudnn", "flash")}, "efficient"),  # torch.nn.attention.sdpa_kernel
        ({"switched_off": ("cudnn", "flash", "efficient")}, "math"),
        ({"size": 20}, "flash"),  # padded to whole eights
        ({"capability": (8, 0), "square": False, "size": 64}, "efficient"),
    ],
)
def test_the_attention_kernel_is_the_one_that_torch_picks(fields, kernel):
    plain = {
        "implementation": "sdpa", "capability": (9, 0), "width": 2, "bf16": True, "masked": False, "grouped": False, "size": 64,
    }  # fmt: skip
    assert pick_attention_kernel(AttentionQuery(**(plain | fields))) == kernel


# -- the scripts, in a torch without transformers -------------------------------------------------------


def test_the_trace_has_every_parameter_and_gradient(kites):
    """The widths are those of the job: two bytes in bf16, four where torch casts."""
    for name, width in (("kite", 2), ("autocast", 4)):
        trace = traced_prediction.validate_trace(kites[name])
        assert (trace["class"], trace["count"], trace["tables"]) == ("KiteForCausalLM", KITE_COUNT, [0])
        assert trace["parameters"] == [[[512, 64], width], [[192, 64], width], [[512, 64], width]]
        assert len(trace["gradients"]) >= 3 and "torch" in trace["versions"]


def test_the_trace_is_a_prediction(kites):
    job, trace = FitJob(KITE, seq=64).validate_fields(), traced_prediction.validate_trace(kites["kite"])
    fit = traced_prediction.predict_traced(job, H200, trace)
    logits = 64 * 512
    assert fit.parts["parameters"] == pytest.approx(2 * KITE_COUNT, rel=0.01)
    assert fit.parts["optimizer"] == pytest.approx(4 * KITE_COUNT, rel=0.01)
    assert fit.parts["loss"] == pytest.approx(4 * logits, rel=0.01), "in fp32, while those of bf16 are gone"
    assert fit.phases["bwd1"] - fit.phases["zero0"] > 2 * KITE_COUNT > 0, "the gradients are there"
    assert "played as KiteForCausalLM" in fit.notes


def test_layers_that_are_dropped_at_random_are_all_played(kites):
    assert kites["dropped"]["events"] == kites["kite"]["events"]


@pytest.mark.parametrize("name", REFUSED_KITES)
def test_a_config_that_cannot_be_traced_is_one_sentence(kites, name):
    ended = kites[name]["ended"]
    assert REFUSED_KITES[name][1] in ended and "\n" not in ended and "Traceback" not in ended


def test_the_command_reads_what_the_script_says(tmp_path):
    """In place of torch: a module that says what the trace of an OPT said, and ends."""
    home = tmp_path / "venv"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python3*/site-packages")
    (tmp_path / "said").write_text("a warning\n" + json.dumps(KEPT["opt"]["trace"]))
    (site / "torch.py").write_text(f"raise SystemExit(print(open({str(tmp_path / 'said')!r}).read()))\n")
    (tmp_path / "config.json").write_text(json.dumps(KEPT["opt"]["model"]))
    job = ("--micro-batch", "4", "--seq", "512", "--precision", "bf16", "--on", "h200")
    ran = gpuready("fit", str(tmp_path), *job, "--json", "--trace", "--python", str(home))
    document = json.loads(ran.out)
    assert (ran.code, document["verdict"]) == (0, "fits") and "played as OPTForCausalLM" in document["notes"]


# -- real classes ---------------------------------------------------------------------------------------


def has(interpreter: str) -> bool:
    code = "import importlib.util as u, sys; sys.exit(not (u.find_spec('torch') and u.find_spec('peft')))"
    return subprocess.run([interpreter, "-c", code], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def python() -> str:
    """The environment with transformers, and peft beside it: a venv that sees the packages of both, made once and kept."""
    assert target_environment.install_transformers().returncode == 0
    found, made = str(target_environment.TRANSFORMERS / "bin" / "python"), str(HOME / "bin" / "python")
    HOME.parent.mkdir(exist_ok=True)
    with open(HOME.parent / "traced.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (HOME / "bin" / "python").exists() or not has(made):
            make(found, made)
    return made


def make(found: str, made: str) -> None:
    said = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    subprocess.run([found, "-m", "venv", "--without-pip", str(HOME)], check=True)
    theirs, own = (
        subprocess.run([p, "-c", said], capture_output=True, text=True).stdout.strip() for p in (found, made)
    )
    with open(f"{own}/patient.pth", "w") as file:
        file.write(theirs + "\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", made, "install", "--quiet"]
    ran = subprocess.run([*pip, *WANTED], capture_output=True, text=True)
    if ran.returncode:
        pytest.skip(f"NO TRANSFORMERS: no model is traced ({ran.stderr.strip()[-300:]})")


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
}
MIXTURE = SMALL | {
    "model_type": "granitemoe", "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
BART = {
    "model_type": "bart", "d_model": 64, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 512,
}  # fmt: skip
FALCON = {
    "model_type": "falcon",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
}
AGREEING = {
    "autocast": {"precision": "amp-bf16", "checkpointing": "nonreentrant", "accumulation": 2},
    "lora": {"method": "lora", "lora_dropout": 0.1, "optimizer": "adamw_8bit"},
    "qlora": {"method": "qlora", "kbit": True, "autocast": "bf16", "lora_dropout": 0.05},
    "dpo": {"dpo": True},
    "padded": {"padded": True},
    "ranks": {"world": 4},
    "trainer": {"loop": "trainer", "optimizer": "adamw_8bit"},
}
"""Jobs that both the trace and the tape play."""
PLAYED = {
    "bert": ({"model_type": "bert"} | SMALL, {}, "BertForMaskedLM", ""),
    "classifier": (
        {"model_type": "bert", "architectures": ["BertForSequenceClassification"]} | SMALL, {}, "BertForSequenceClassification", "",
    ),
    "falcon": (FALCON, {}, "FalconForCausalLM", "no fused attention kernel"),
    "bart": (BART, {}, "BartForConditionalGeneration", ""),
    "bart-answer": (BART, {"task": "generate", "new_tokens": 2}, "BartForConditionalGeneration", ""),
    "bert-answer": (
        {"model_type": "bert", "architectures": ["BertLMHeadModel"]} | SMALL, {"task": "generate", "new_tokens": 2}, "BertLMHeadModel",
        "returns no cache: every token is played alone",
    ),
    "whisper": (
        {**BART, "model_type": "whisper", "num_mel_bins": 8, "max_source_positions": 32, "max_target_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
        {"seq": 16}, "WhisperForConditionalGeneration", "",
    ),
    "vit": ({"model_type": "vit", "image_size": 32} | SMALL, {}, "ViTForImageClassification", ""),
    "mae": (
        {"model_type": "vit_mae", "image_size": 32, "architectures": ["ViTMAEForPreTraining"]} | SMALL, {}, "ViTMAEForPreTraining", "",
    ),
    "mixture": (MIXTURE, {}, "GraniteMoeForCausalLM", "spread evenly"),
    "wide-mixture": (MIXTURE, {"precision": "amp-bf16"}, "GraniteMoeForCausalLM", "spread evenly"),
    "mamba2": (
        {"model_type": "mamba2", "hidden_size": 64, "num_heads": 4, "head_dim": 32, "num_hidden_layers": 1, "vocab_size": 512, "n_groups": 1},
        {}, "Mamba2ForCausalLM", "falling back",
    ),
    "no loader": (SMALL | {"model_type": "mistral4", "n_routed_experts": 4, "first_k_dense_replace": 0}, {}, "Mistral4ForCausalLM", "does not load mistral4"),
    "clip": ({"model_type": "clip"}, {}, "CLIPForImageClassification", ""),
}  # fmt: skip
"""Models by what a framework would load: the config, the job, the class, and what the notes must say."""
REFUSED = {
    "remote": ({"model_type": "llama", "auto_map": {"AutoConfig": "configuration_own.Own"}}, "brings code of its own"),
    "inside": (
        {"model_type": "llava", "text_config": {"auto_map": {"AutoConfig": "own.Own"}}},
        "brings code of its own",
    ),
    "unknown": ({"model_type": "nobody-has-this"}, "has no model type 'nobody-has-this'"),
    "empty": ({}, "has no model type"),
    "layers": ({"model_type": "opt", "num_hidden_layers": 10**9}, "1000000000 layers"),
    "words": ({"model_type": "opt", "hidden_size": "many"}, "is not one of opt|Error"),
    "class": ({"model_type": "opt", "architectures": ["OPTForNobody"]}, "has no class 'OPTForNobody'"),
    "foreign": ({"model_type": "opt", "architectures": ["os"]}, "has no class 'os'|OPTForCausalLM"),
    "negative": ({"model_type": "opt", "hidden_size": -4}, "Error|Refusal"),
    "mixed types": (
        {"model_type": "deberta", "relative_attention": True, "pos_att_type": ["c2p", "p2c"]} | SMALL,
        "modeling_deberta.py:.* mixes float32 and bfloat16 in bmm, which a GPU refuses",
    ),
}


@pytest.fixture(scope="module")
def replies(python, tmp_path_factory) -> dict[str, dict]:
    """Every request of this file, played in one process after one import of torch and transformers."""
    folder = tmp_path_factory.mktemp("traces")
    weights = folder / "weights"
    weights.mkdir()
    header = json.dumps({"w": {"dtype": "BF16", "shape": [1000, 1000], "data_offsets": [0, 2_000_000]}}).encode()
    (weights / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    asked = {name: FitJob(LLAMA, micro_batch=4, seq=512, **fields) for name, fields in AGREEING.items()}
    asked |= {
        name: FitJob(config, seq=fields.get("seq", 64), **{k: v for k, v in fields.items() if k != "seq"})
        for name, (config, fields, *_) in PLAYED.items()
    }
    asked |= {name: FitJob(config, seq=64) for name, (config, _) in REFUSED.items()}
    asked |= {row["config"]["model_type"]: measured_job(row) for row in MEASURED}
    bert = traced_prediction.build_trace_request(asked["bert"].validate_fields(), H200)
    return play(python, folder, asked, {"weights": bert | {"folder": str(weights)}})


@pytest.mark.faults
@pytest.mark.parametrize("name", AGREEING)
def test_a_trace_agrees_with_the_tape(replies, name):
    """Every phase, and what lives at the peak, within a hundredth of a percent: the tape rounds what is small otherwise."""
    assert "ended" not in replies[name], replies[name]
    job = FitJob(LLAMA, micro_batch=4, seq=512, **AGREEING[name]).validate_fields()
    seen = traced_prediction.predict_traced(job, H200, traced_prediction.validate_trace(replies[name]), False)
    said = predict_memory(job, H200, False)
    assert seen.phases == pytest.approx(dict(said.phases), rel=4e-4)
    assert seen.peak_allocated == pytest.approx(said.peak_allocated, rel=2e-4)
    assert seen.peak_at[0] == said.peak_at[0]
    if seen.parts.keys() == said.parts.keys():  # the trace has no kind of its own for the loss of DPO
        assert seen.parts == pytest.approx(dict(said.parts), rel=4e-3, abs=65536)


def measured_job(row: dict) -> FitJob:
    return FitJob(row["config"], micro_batch=row["micro_batch"], seq=row["seq"], steps=3, clip=False)


@pytest.mark.faults
@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["config"]["model_type"])
def test_a_trace_is_what_an_h200_measured(replies, row):
    """Three steps of bf16 training with torch's AdamW, transformers 5.17, of families without a template."""
    trace = traced_prediction.validate_trace(replies[row["config"]["model_type"]])
    fit = traced_prediction.predict_traced(measured_job(row).validate_fields(), H200, trace, False)
    assert fit.peak_allocated == pytest.approx(row["allocated"], rel=0.001)
    assert fit.peak_reserved == pytest.approx(row["reserved"], rel=0.015)


@pytest.mark.faults
@pytest.mark.parametrize("name", PLAYED)
def test_the_class_that_a_framework_loads_is_played(replies, name):
    _, _, wanted, note = PLAYED[name]
    assert replies[name].get("class") == wanted, replies[name]
    assert note in " ".join(replies[name]["notes"])
    traced_prediction.validate_trace(replies[name])


@pytest.mark.faults
def test_the_encoder_of_whisper_is_trained_too(replies):
    """Played as a decoder alone it was 58 % too low."""
    result = replies["whisper"]
    assert sum(math.prod(shape) for shape, _ in result["parameters"]) >= 0.9 * result["count"]


@pytest.mark.faults
@pytest.mark.parametrize("name", REFUSED)
def test_a_config_that_cannot_be_traced_is_refused_in_one_sentence(replies, name):
    ended = replies[name].get("ended", replies[name].get("class", ""))
    assert re.search(REFUSED[name][1], ended), replies[name]
    assert "\n" not in ended and "Traceback" not in ended


@pytest.mark.faults
def test_weights_of_another_model_are_refused(replies):
    assert re.search(
        r"have 1,000,000 parameters, and BertForMaskedLM of its config [\d,]+", replies["weights"]["ended"]
    )


@pytest.mark.faults
def test_the_command_traces_a_model(python, tmp_path):
    """An encoder-decoder: a verdict and its proof, by the class that its config names."""
    config = BART | {"architectures": ["BartForConditionalGeneration"], "max_position_embeddings": 512}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = [
        "fit",
        str(tmp_path),
        "--micro-batch",
        "4",
        "--seq",
        "512",
        "--precision",
        "bf16",
        "--on",
        "h200",
        "--json",
    ]
    ran = gpuready(*words, "--trace", "--python", python)
    document = json.loads(ran.out)
    attention, norm = 4 * (64 * 64 + 64), 2 * 64
    inner = 2 * 64 * 128 + 128 + 64
    layers = 2 * (attention + inner + 2 * norm) + 2 * attention + inner + 3 * norm
    weights = 2 * (layers + 512 * 64 + 2 * 514 * 64 + 2 * norm)
    assert (ran.code, document["verdict"]) == (0, "fits")
    assert document["parts"]["parameters"] == pytest.approx(weights, rel=0.05)  # blocks of 512 bytes
    assert document["parts"]["optimizer"] == pytest.approx(2 * weights, rel=0.05)
    assert any("transformers" in note for note in document["notes"])
    assert "played as BartForConditionalGeneration" in document["notes"]


def test_what_is_missing_in_the_target_environment_is_said():
    """This Python has no torch, or no transformers: the last words of the script are the reason."""
    with pytest.raises(FitUndecided, match=r"could not trace the model: ModuleNotFoundError: No module named"):
        Tracer(sys.executable)(FitJob(LLAMA), H200, False)
