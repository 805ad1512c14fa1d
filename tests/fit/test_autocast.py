"""What autocast and quantisation leave alone: each was wrong once, and is wrong again if its line goes."""

from __future__ import annotations

import pytest

from gpuready.fit import H200, FitJob, predict_memory

T5 = {
    "model_type": "t5", "d_model": 256, "d_kv": 32, "d_ff": 512, "num_layers": 2, "num_heads": 8, "vocab_size": 2000,
    "dropout_rate": 0.0,
}  # fmt: skip
FALCON = {
    "model_type": "falcon", "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 4, "vocab_size": 4000,
}  # fmt: skip
SPEECH = {
    "model_type": "whisper", "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "vocab_size": 2000,
}  # fmt: skip
BART = {**SPEECH, "model_type": "bart", "vocab_size": 30000, "dropout": 0.0}


def live_activations(model: dict, **fields) -> int:
    fit = predict_memory(FitJob(model=model, micro_batch=8, clip=False, **fields), H200, search=False)
    return fit.parts["activations"] + fit.parts.get("loss", 0)


def test_attention_that_is_written_out_has_fp32_scores_under_autocast_too():
    """torch casts the arguments and excludes autocast inside of scaled_dot_product_attention."""
    plain, cast = (live_activations(T5, seq=512, autocast=word) for word in ("", "bf16"))
    assert cast == pytest.approx(plain, rel=0.05)


def test_linear_layers_of_a_class_of_their_own_are_not_quantised():
    job = FitJob(model=FALCON, seq=128, method="qlora", kbit=True, autocast="bf16")
    parameters = predict_memory(job, H200, search=False).parts["parameters"]
    assert parameters > 4 * 4 * 12 * 1024 * 1024 * 0.9  # four layers of 12 x 1024 x 1024 weights, in fp32


def test_cross_attention_keeps_all_keys_of_a_longer_encoder():
    """1500 frames against 16 tokens: the casts of keys and values are those of the frames."""
    short, long = (
        live_activations(SPEECH, seq=16, method="qlora", kbit=True, autocast="bf16"),
        live_activations({**SPEECH, "decoder_layers": 3}, seq=16, method="qlora", kbit=True, autocast="bf16"),
    )
    frames = 8 * 1500 * 128 * 2
    assert long - short > 4 * frames  # keys and values of one more layer, and what their adapters keep


def test_the_logits_of_an_encoder_decoder_are_fp32_under_autocast():
    """The bias of the logits is an fp32 buffer beside fp32 weights, and cross entropy is fp32."""
    logits = 8 * 64 * 30000
    plain, cast = (live_activations(BART, seq=64, precision=word) for word in ("bf16", "amp-bf16"))
    assert cast - plain > 2 * 2 * logits * 0.9  # scores and their gradient, 4 bytes instead of 2


def test_the_loss_of_a_masked_language_model_keeps_its_scores_in_both_types_under_autocast():
    """log_softmax stays in 16 bits, its copy in fp32 is kept for the loss: with the fp32 gradient, 2 + 4 + 4 bytes a score, and 12 if all were fp32."""
    few, many = ({"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": words} for words in (20000, 40000))  # fmt: skip
    low, high = (live_activations(model, seq=64, precision="amp-bf16") for model in (few, many))
    assert high - low == pytest.approx(10 * 8 * 64 * 20000, rel=0.05)
