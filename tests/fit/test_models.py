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


def test_a_known_model_that_sees_says_that_only_its_language_model_is_counted():
    answer = fit.fit_job(["google/gemma-3-4b-it"], {"seq": 128}, on="h200", search=False)
    assert answer.verdict == "undecided" and "vision_config" in answer.unmodelled[0]
    assert fit.fit_job(["gemma-3-4b"], {"seq": 8192}, on="rtx3060", search=False).verdict == "does not fit"
    assert not fit.fit_job(["gemma-3-1b"], {"seq": 128}, on="h200", search=False).unmodelled


def test_the_parameters_of_the_catalogue_are_what_their_configs_amount_to():
    from gpuready.catalog import load_catalog
    from gpuready.jobs.model_size import count_model_parameters

    for row in load_catalog("models")["model"]:
        count = count_model_parameters(row["config"])
        assert count == row["parameters"], row["name"]
