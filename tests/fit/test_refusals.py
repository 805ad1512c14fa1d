"""What ``gpuready fit`` is given that makes no sense is refused in one sentence; what is only large has an answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuready.model.fit import FitResult
from gpuready.render import fit as render
from gpuready.render.layout import Screen
from gpuready.workflow import Refused, fit
from tests.fit.asking import SMALL, document
from tests.running import gpuready


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["llama-9"], "no model is known as 'llama-9' (nearest: "),
        (["llama-3.1-8b", "--gpus", "8"], "; --world 8 states how many GPUs share the job"),
        (["7b"], "no model is known as '7b' (nearest: llama-2-7b, "),
        (["gone.yml"], "gone.yml does not exist"),
        (["llama-3.1-8b", "--on", "h1000"], "--on h1000: no GPU of the catalogue has the name 'h1000'"),
        (["llama-3.1-8b", "--seq", "-5"], "--seq takes a whole number from 1 to 67108864, not '-5'"),
        (["llama-3.1-8b", "--micro-batch", "1e9"], "--micro-batch takes a whole number from 1 to 65536"),
        (["llama-3.1-8b", "--lora-targets", "../x;"], "--lora-targets takes all, qv, or names"),
        (["gpt2", "--seq", "2048"], "the model has 1024 positions"),
        (["llama-3.1-8b", "--gpus", "--max", "seq"], "--gpus and --max cannot be combined"),
        (["llama-3.1-8b", "-q", "-v"], "-q and -v cannot be combined"),
        (["llama-3.1-8b", "qwen2.5-7b"], "one job has one model, and 'llama-3.1-8b' and 'qwen2.5-7b' are two"),
        (["llama-3.1-8b", "--zero", "3", "--fsdp", "--on", "h100x8"], "ZeRO and FSDP"),
        (["llama-3.1-8b", "--accumulation", "99999999999"], "--accumulation takes a whole number from 1 to 16777216"),
        (["llama-3.1-8b", "--on", "h200", "--alloc-conf", "roundup_power2_divisions:3"], "cannot be '3'"),
        (["llama-3.1-8b", "--alloc-conf", "nonsense"], "'nonsense' has no value"),
        (["llama-3.1-8b", "--alloc-conf", "expandable_segment:True"], "has no setting 'expandable_segment'"),
        (["llama-3.1-8b", "--on", "h100", "--tensor-parallel", "8", "--world", "4"], "8 GPUs cannot share"),
        (["llama-3.1-8b", "--on", "h100", "--tensor-parallel", "4", "--world", "6"], "multiple of tensor"),
    ],
)
def test_bad_words_are_one_sentence_and_exit_2(words, sentence, tmp_path):
    ran = gpuready("fit", *words, cwd=tmp_path)
    assert "Traceback" not in ran.err and "gpuready failed" not in ran.err
    assert ran.code == 2 and ran.err.startswith("gpuready: ") and sentence in ran.err and ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": -1}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"num_key_value_heads": 3}, "num_attention_heads"),
        ({"hidden_size": None}, "hidden_size"),
        ({"intermediate_size": 1.5}, "intermediate_size"),
        ({"hidden_size": 1020}, "hidden_size (1020) must be a multiple of the heads (8)"),
        ({"head_dim": 7}, "must be even"),
        ({"tie_word_embeddings": "no"}, "must be true or false, not 'no'"),
    ],
)
def test_an_absurd_config_is_one_sentence(folder, change, sentence):
    (folder / "model" / "config.json").write_text(json.dumps(SMALL | change))
    with pytest.raises(Refused) as refused:
        fit.fit_job([str(folder / "model")], {}, on="h200")
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_a_model_of_a_trillion_parameters_has_an_answer(folder):
    huge = SMALL | {
        "hidden_size": 32768,
        "intermediate_size": 131072,
        "num_hidden_layers": 64,
        "num_attention_heads": 256,
    }
    (folder / "model" / "config.json").write_text(json.dumps(huge | {"num_key_value_heads": 16}))
    found, code = document("model", "--on", "h100x8", cwd=folder)
    assert (code, found["fits"]) == (1, False) and found["minimum"] > 5 * 10**12


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=6)
    | st.lists(st.integers(), max_size=2)
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from([*SMALL, "head_dim", "sliding_window", "rope_parameters", "attention_dropout"]),
        VALUES,
        max_size=3,
    )
)
def test_any_config_is_an_answer_or_one_sentence(folder, change):
    (folder / "model" / "config.json").write_text(json.dumps(SMALL | {"num_hidden_layers": 2} | change))
    try:
        answer = fit.fit_job([str(folder / "model")], {"seq": 128}, on="h200", search=False)
    except Refused as refused:
        assert "\n" not in str(refused) and str(refused)
        return
    assert (
        isinstance(answer, FitResult)
        and render.render_fit_screen(answer, Screen())
        and render.fit_json_fields(answer)["verdict"] == answer.verdict
    )
