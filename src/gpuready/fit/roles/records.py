"""Records of the roles of a job: what each runs, on which GPUs, and when it is on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.model.record import Record, field

UPDATE, GENERATE, REWARD, REFERENCE = "weight update", "generation", "rewards", "reference scores"
SCORE, VALUES, CRITIC, TRAIN = "scores", "values", "critic training", "training"
PHASES = (UPDATE, GENERATE, REWARD, REFERENCE, SCORE, VALUES, CRITIC, TRAIN)
"""Phases of an iteration, in their order."""


class RoleSettings(Record):
    """One role of a job's file."""

    name: str
    kind: str  # train, score or serve
    gpus: tuple[int, ...]
    model: str | Mapping[str, Any] = ""
    fields: Mapping[str, Any] = field(default_factory=dict)  # of FitJob, where it trains
    score: Mapping[str, Any] = field(default_factory=dict)  # micro_batch and seq, where it scores
    serving: Mapping[str, Any] = field(default_factory=dict)  # of ServingJob
    is_megatron: bool = False  # runs in Megatron, whose ranks nothing here can play
    leaves: str = "all"  # what leaves the GPU between its phases: all, weights or optimizer (the other stays), none
    phases: tuple[tuple[str, str], ...] = ()  # phase -> what it does there: train, score, serve, update
    shares_process: bool = False  # with the role before it: one CUDA context
    keys: Mapping[str, str] = field(default_factory=dict)  # field -> its key in the file


class RoleUse(Record):
    """The memory of one role on each of its GPUs, in bytes: at least, at most."""

    role: str
    gpus: tuple[int, ...]
    active: Mapping[str, tuple[int, int]]  # phase -> while the role works
    idle: tuple[int, int]
