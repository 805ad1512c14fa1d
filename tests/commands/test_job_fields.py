"""The words of the job's flags, and the fields of a FitJob that they become."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuready.commands import load_command
from gpuready.commands.declaration import UsageError
from gpuready.commands.job_fields import job_fields


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"lora_targets": "q_proj, v_proj,"}, {"lora_targets": ("q_proj", "v_proj")}),
        ({"lora_targets": "all"}, {"lora_targets": "all"}),
        ({"gradient_checkpointing": False}, {"checkpointing": "none"}),
        ({"gradient_checkpointing": True}, {"checkpointing": "nonreentrant"}),
        ({"autocast": "off", "kbit": "on", "zero": "3"}, {"autocast": "", "kbit": True, "zero": 3}),
        ({"lora_dropout": "0.05", "micro_batch": None}, {"lora_dropout": 0.05}),
    ],
)
def test_words_become_fields(options, fields):
    assert job_fields(SimpleNamespace(command=load_command("fit"), options=options)) == fields


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lora_targets": " , "}, "--lora-targets takes"),
        ({"lora_targets": "../x"}, "--lora-targets takes"),
        ({"lora_dropout": "1"}, "--lora-dropout takes"),
        ({"kite": "1"}, "unexpected keyword argument 'kite'"),
    ],
)
def test_what_is_no_field_is_told(options, said):
    with pytest.raises((UsageError, TypeError), match=said):
        job_fields(SimpleNamespace(command=load_command("fit"), options=options))
