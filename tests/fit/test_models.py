"""Models that are known by name."""

from __future__ import annotations

from gpuready.fit.job import known_models
from gpuready.workflow import fit


def test_the_models_of_the_catalogue_are_known_by_how_people_write_them():
    for name in (
        "meta-llama/Llama-3.1-8B-Instruct",
        "NousResearch/Meta-Llama-3-8B",
        "Qwen/Qwen2.5-7B-Instruct",
        "google/gemma-2-9b-it",
    ):
        assert known_models.find_model_config(name), name
    assert (
        known_models.find_model_config("Qwen/Qwen2.5-7B") != known_models.find_model_config("Qwen/Qwen2.5-0.5B")
        and known_models.find_model_config("no-such-model") is None
    )
    assert len(known_models.list_model_names()) == len(set(known_models.list_model_names())) >= 50


def test_a_known_model_that_sees_says_what_is_counted():
    answer = fit.fit_job(["google/gemma-3-4b-it"], {"seq": 128}, on="h200", search=False)
    assert answer.verdict == "undecided" and "vision_config and what it feeds in" in answer.unmodelled[0]
    assert fit.fit_job(["gemma-3-4b"], {"seq": 8192}, on="rtx3060", search=False).verdict == "does not fit"
    assert not fit.fit_job(["gemma-3-1b"], {"seq": 128}, on="h200", search=False).unmodelled
    scout = fit.fit_job(["meta-llama/Llama-4-Scout-17B-16E"], {"seq": 128, "method": "lora"}, on="h200", search=False)
    assert scout.verdict == "undecided" and "--trace" in scout.why


TRACED = {
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "modernbert", "vit", "whisper", "bart", "mbart", "pegasus", "marian",
    "m2m_100", "t5", "mt5", "umt5", "falcon", "gpt_neo", "mamba2", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "llama4_text", "qwen3_vl_moe_text", "deepseek_v2", "deepseek_v3", "glm4_moe",
    "cohere", "cohere2", "opt", "seed_oss", "stablelm", "arcee", "exaone4",
}  # fmt: skip


def test_the_parameters_of_the_catalogue_are_what_their_configs_amount_to():
    from gpuready.catalog import load_catalog
    from gpuready.jobs.model_config import count_model_parameters

    for row in load_catalog("models")["model"]:
        count = count_model_parameters(row["config"])
        if count is None or "depth" in (tower := row["config"].get("vision_config", ())) or "patch_size" in tower:
            assert (count or 0) < row["parameters"] and (count or row["config"]["model_type"] in TRACED), row["name"]
        else:
            assert count == row["parameters"], row["name"]


def test_models_beyond_the_first_families_are_known_by_their_hub_id():
    for name in (
        "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1", "zai-org/GLM-4.5-Air",
        "meta-llama/Llama-4-Scout-17B-16E-Instruct", "allenai/OLMo-2-1124-7B-Instruct", "bigcode/starcoder2-7b",
        "tiiuae/falcon-7b-instruct", "HuggingFaceTB/SmolLM3-3B", "google-bert/bert-base-uncased", "openai/whisper-small",
        "FacebookAI/roberta-base", "answerdotai/ModernBERT-base", "google/vit-base-patch16-224", "ibm-granite/granite-3.3-8b-instruct",
        "CohereForAI/c4ai-command-r-v01", "google-t5/t5-small", "EleutherAI/gpt-neo-1.3B", "distilbert/distilbert-base-uncased",
        "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3-VL-8B-Instruct",
        "Qwen/Qwen3-VL-30B-A3B-Thinking", "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-V2", "google/flan-t5-xl",
        "google-t5/t5-3b", "openai/whisper-small.en", "google/vit-huge-patch14-224-in21k", "CohereForAI/c4ai-command-r-plus",
        "FacebookAI/xlm-roberta-large", "google-bert/bert-base-multilingual-cased", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
    ):  # fmt: skip
        assert known_models.find_model_config(name), name


def test_absurd_sizes_of_every_family_are_refused_in_one_sentence():
    import json
    from pathlib import Path

    import pytest

    from gpuready.fit import FitJob, predict_memory

    rows = json.loads(Path(__file__).with_name("traces.json").read_text(encoding="utf-8"))
    configs = {row["config"]["model_type"]: row["config"] for row in rows}
    for config in configs.values():
        for key in (
            "hidden_size",
            "d_model",
            "num_attention_heads",
            "vocab_size",
            "num_hidden_layers",
            "encoder_layers",
        ):
            for value in ("x", -1, 10**30, [1], {}):
                if key in config and (key, config["model_type"]) != ("vocab_size", "vit"):
                    with pytest.raises(ValueError) as refusal:
                        predict_memory(FitJob(model={**config, key: value}, seq=16), search=False)
                    assert "\n" not in str(refusal.value)
