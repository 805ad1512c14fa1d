"""Our tape beside the births and deaths of real modules: small models of every family in every set-up, on the CPU.

    PYTHONPATH=src[:PEFT] python benchmarks/fit_tape_diff.py [--families a,b] [--setups RE] [--pairs SEED] [--worst 0.01] [-o FILE]

It runs in an interpreter with torch and transformers (and peft), and plays the steps of fit_measure.py there under a recorder
of storages. The engine's tape is played with the kernels of a CPU: one fused attention without scratch memory, no
workspaces. Printed is every phase whose peak or end lies further off than ``--worst``, with the largest births that only
one side has. Sizes are as asked for, not rounded. ``--pairs`` plays drawn combinations instead of the named set-ups, so many
that every two values of AXES meet somewhere. Products of 16-bit values are computed in fp32, which is faster here. Ours are
the layers of transformers 5.17: with another version, what differs may be the version.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import re
import sys
import weakref
from collections import Counter
from itertools import combinations, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fit_measure
import fit_play
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from gpuready.fit.job.records import H200, FitJob
from gpuready.fit.tape import attention, decoder, training
from gpuready.fit.tape import autograd as tensors
from gpuready.fit.tape.generation import GenerationRun
from gpuready.fit.tape.training import TrainingRun

COMMON = {
    "hidden_size": 128, "num_attention_heads": 8, "num_hidden_layers": 3, "intermediate_size": 320, "vocab_size": 1000,
    "max_position_embeddings": 512, "num_key_value_heads": 2, "tie_word_embeddings": False,
}  # fmt: skip
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 24},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32, "tie_word_embeddings": True},
    "gemma": {"head_dim": 32, "tie_word_embeddings": True},
    "gemma2": {"head_dim": 32, "tie_word_embeddings": True, "sliding_window": 24},
    "gemma3_text": {"head_dim": 32, "tie_word_embeddings": True, "sliding_window": 24, "num_hidden_layers": 6},
    "phi": {"num_key_value_heads": 8},
    "phi3": {"pad_token_id": 0, "sliding_window": None},
    "gpt_neox": {"num_key_value_heads": None},
    "gpt2": {},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen2_moe": {**MOE, "shared_expert_intermediate_size": 160},
    "qwen3_moe": {**MOE, "head_dim": 32, "norm_topk_prob": True},
}  # fmt: skip
GPT2 = {"n_embd": 128, "n_head": 8, "n_layer": 3, "vocab_size": 1000, "n_positions": 256}
LORA = {"method": "lora", "lora_r": 8}
SETUPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "fp32": {"precision": "fp32"},
    "eager": {"attention": "eager"},
    "padded": {"padded": True},
    "padded-eager": {"padded": True, "attention": "eager"},
    "padded-checkpoint": {"padded": True, "checkpointing": "nonreentrant"},
    "checkpoint": {"checkpointing": "nonreentrant"},
    "reentrant": {"checkpointing": "reentrant"},
    "reentrant-padded": {"checkpointing": "reentrant", "padded": True},
    "amp": {"precision": "amp-bf16"},
    "amp-eager": {"precision": "amp-bf16", "attention": "eager"},
    "amp-padded": {"precision": "amp-bf16", "padded": True},
    "amp-checkpoint": {"precision": "amp-bf16", "checkpointing": "nonreentrant"},
    "amp-reentrant": {"precision": "amp-bf16", "checkpointing": "reentrant"},
    "dpo": {"dpo": True},
    "dpo-checkpoint": {"dpo": True, "checkpointing": "nonreentrant"},
    "dpo-amp": {"dpo": True, "precision": "amp-bf16"},
    "dpo-padded-fp32": {"dpo": True, "padded": True, "precision": "fp32"},
    "dpo-lora": {"dpo": True, **LORA},
    "accumulation": {"accumulation": 3},
    "accumulation-checkpoint": {"accumulation": 2, "checkpointing": "nonreentrant"},
    "amp-accumulation": {"accumulation": 3, "precision": "amp-bf16"},
    "kept": {"keep_outputs": True},
    "kept-amp": {"keep_outputs": True, "precision": "amp-bf16"},
    "adamw": {"optimizer": "adamw"},
    "adamw-fp32": {"optimizer": "adamw", "precision": "fp32"},
    "forloop": {"optimizer": "adamw_forloop"},
    "momentum": {"optimizer": "sgd_momentum"},
    "adafactor": {"optimizer": "adafactor"},
    "adafactor-fp32": {"optimizer": "adafactor", "precision": "fp32"},
    "adafactor-torch": {"optimizer": "adafactor_torch", "precision": "fp32"},
    "lora": LORA,
    "lora-fp32": {**LORA, "precision": "fp32"},
    "lora-bf16": {**LORA, "lora_dtype": "bf16"},
    "lora-qv-dropout": {**LORA, "lora_targets": "qv", "lora_dropout": 0.1},
    "lora-dropout": {**LORA, "lora_dropout": 0.1},
    "lora-checkpoint": {**LORA, "checkpointing": "nonreentrant"},
    "lora-reentrant": {**LORA, "checkpointing": "reentrant"},
    "lora-amp": {**LORA, "precision": "amp-bf16"},
    "lora-autocast": {**LORA, "autocast": "bf16"},
    "lora-autocast-checkpoint": {**LORA, "autocast": "bf16", "checkpointing": "nonreentrant"},
    "dora": {**LORA, "dora": True},
    "dora-fp32": {**LORA, "dora": True, "precision": "fp32"},
    "dora-checkpoint": {**LORA, "dora": True, "checkpointing": "nonreentrant"},
    "dora-dropout": {**LORA, "dora": True, "lora_dropout": 0.1},
    "dora-autocast": {**LORA, "dora": True, "autocast": "bf16"},
    "dropout": {"drop": True},
    "dropout-eager": {"drop": True, "attention": "eager"},
    "dropout-amp": {"drop": True, "precision": "amp-bf16"},
    "dropout-checkpoint": {"drop": True, "checkpointing": "nonreentrant"},
    "experts": {"experts": "eager"},
    "generate": {"task": "generate", "new_tokens": 6},
    "generate-eager": {"task": "generate", "new_tokens": 6, "attention": "eager"},
    "generate-static": {"task": "generate", "new_tokens": 6, "cache": "static"},
    "generate-fp32": {"task": "generate", "new_tokens": 6, "precision": "fp32"},
}  # fmt: skip
DROPS = {
    "gpt2": {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
    "gpt_neox": {"hidden_dropout": 0.1, "attention_dropout": 0.1},
    "phi": {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attention_dropout": 0.1},
    "phi3": {"resid_pdrop": 0.1, "attention_dropout": 0.1},
}
ODD: dict[str, dict[str, Any]] = {
    "as-is": {}, "tied": {"tie_word_embeddings": True}, "untied": {"tie_word_embeddings": False},
    "bias": {"attention_bias": True}, "head_dim": {"head_dim": 24}, "one-kv": {"num_key_value_heads": 1},
    "no-window": {"sliding_window": None}, "serial": {"use_parallel_residual": False},
    "wide": {"intermediate_size": 777, "vocab_size": 1777}, "deep": {"num_hidden_layers": 5, "n_layer": 5},
}  # fmt: skip
NONE: dict[str, Any] = {}
AXES: dict[str, dict[str, dict[str, Any]]] = {
    "shape": {name: {"odd": name} for name in ODD},
    "drop": {"": NONE, "drop": {"drop": True}},
    "precision": {name: {"precision": name} for name in ("fp32", "bf16", "fp16", "amp-bf16", "amp-fp16")},
    "optimizer": {name: {"optimizer": name} for name in (
        "adamw", "adamw_fused", "adamw_forloop", "sgd", "sgd_momentum", "adafactor", "adafactor_torch")},
    "checkpointing": {name: {"checkpointing": name} for name in ("none", "nonreentrant", "reentrant")},
    "attention": {name: {"attention": name} for name in ("sdpa", "eager")},
    "accumulation": {str(n): {"accumulation": n} for n in (1, 2, 3)},
    "kept": {"": NONE, "kept": {"keep_outputs": True}},
    "padded": {"": NONE, "padded": {"padded": True}},
    "dpo": {"": NONE, "dpo": {"dpo": True}},
    "method": {
        "full": NONE, "lora": LORA, "qv": {**LORA, "lora_targets": "qv"}, "lora16": {**LORA, "lora_dtype": "bf16"},
        "lora-drop": {**LORA, "lora_dropout": 0.1}, "dora": {**LORA, "dora": True},
        "qv-dora-drop": {**LORA, "lora_targets": "qv", "dora": True, "lora_dropout": 0.1},
    },
    "experts": {"": NONE, "eager-experts": {"experts": "eager"}},
    "clip": {"": NONE, "no-clip": {"clip": False}},
    "size": {"2x48": NONE, "3x77": {"micro_batch": 3, "seq": 77}, "1x131": {"micro_batch": 1, "seq": 131}},
}  # fmt: skip
GENERATION: dict[str, dict[str, dict[str, Any]]] = {
    "task": {"generate": {"task": "generate", "new_tokens": 6}, "generate9": {"task": "generate", "new_tokens": 9}},
    "cache": {"": NONE, "static": {"cache": "static"}},
    **{axis: AXES[axis] for axis in ("shape", "attention", "experts", "size")},
    "precision": {name: {"precision": name} for name in ("fp32", "bf16", "fp16")},
}  # fmt: skip
HALF = (torch.bfloat16, torch.float16)
PRODUCTS = {f"aten::{name}" for name in (
    "mm", "bmm", "addmm", "baddbmm", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)}  # fmt: skip
NO_DROPS = {"gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}}


def quickly(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operation; products of 16-bit values by way of fp32, which leaves nothing behind."""
    halves = [a.dtype for a in args if isinstance(a, torch.Tensor) and a.dtype in HALF]
    if not halves or func.overloadpacket._qualified_op_name not in PRODUCTS:
        return func(*args, **kwargs)
    args, kwargs = tree_map_only(torch.Tensor, lambda a: a.float() if a.dtype in HALF else a, (args, kwargs))
    out = func(*args, **kwargs)
    if isinstance(out, torch.Tensor):
        return out.to(halves[0])
    keeps = 1 if "backward" not in str(func) else None  # the log-sum of attention is in fp32
    return tuple(o if n == keeps else o.to(halves[0]) for n, o in enumerate(out))


class Recorder(TorchDispatchMode):
    """Storages that live, the most there were, and the births of every phase."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}
        self.now = self.peak = 0
        self.phases: dict[str, tuple[int, int, Counter[int]]] = {}
        self.births: Counter[int] = Counter()
        self.times: list[Any] = []

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.live or not size or tensor.device.type != "cpu":
            return
        self.live[key] = size
        self.now += size
        self.births[size] += 1
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.drop, key)

    def drop(self, key: int) -> None:
        self.now -= self.live.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = quickly(func, args, kwargs or {})
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out

    def mark(self, phase: str, counts: bool = True) -> None:
        self.phases[phase] = (self.peak, self.now, self.births)
        self.peak, self.births = self.now, Counter()


def real(job: FitJob, config: dict[str, Any]) -> dict[str, tuple[int, int, Counter[int]]]:
    """The phases as real modules play them."""
    result = argparse.Namespace(**{name: getattr(job, name) for name in fit_measure.DEFAULTS})
    recorder = Recorder()
    torch.manual_seed(0)
    if job.task == "generate":
        model, other = fit_measure.built(result, config, "cpu").eval(), None
    else:
        model, other = fit_measure.ready(result, config, "cpu")
    gc.collect()
    for tensor in [t for m in (model, other) if m is not None for t in (*m.parameters(), *m.buffers())]:
        recorder.add(tensor)
    with recorder:
        recorder.mark("build")
        if job.task == "generate":
            fit_measure.generate(result, model, model.config.vocab_size, "cpu", recorder)
        else:
            fit_measure.train(result, model, other, model.config.vocab_size, "cpu", recorder)
    return recorder.phases


def played(job: FitJob, rank: int | None = None) -> dict[str, tuple[int, int, Counter[int]]]:
    """The phases as the engine plays them, on a CPU."""
    job = job.validate_fields()
    run = GenerationRun(job, H200, 0) if job.task == "generate" else TrainingRun(job, H200, rank)
    run.ops.workspace_size = run.ops.processors = 0
    tape = run.record_tape()
    sizes: list[int] = []
    now = peak = 0
    births: Counter[int] = Counter()
    found = {}
    for event in tape.events:
        if isinstance(event, str):
            found[event] = (peak, now, births)
            peak, births = now, Counter()
        elif event >= 0:
            sizes.append(event)
            births[event] += 1
            now += event
            peak = max(peak, now)
        else:
            now -= sizes[~event]
    return found


def on_a_cpu() -> None:
    """What differs from a GPU is taken out of the comparison.

    Ours: attention is torch's one kernel for the CPU, which asks for nothing beside its results; gradients are never added
    in place, since under a recorder torch does not; an fp32 softmax of fp16 copies beforehand. Theirs: dropout keeps a mask of
    bytes, attention drops nothing, the log-softmax of autocast is in fp32, inference is recorded operation by operation.
    """
    pick = decoder.pick_attention_kernel
    decoder.pick_attention_kernel = lambda query: "cpu" if query.implementation == "sdpa" else pick(query)
    fused = attention._fused_attention
    attention._fused_attention = lambda ops, kernel, *rest: fused(ops, "cudnn" if kernel == "cpu" else kernel, *rest)
    spelled = decoder.eager_attention
    decoder.eager_attention = lambda *requested: spelled(
        *requested[:-2], requested[-1], requested[-1]
    )  # upcast, widens
    attention.backward_scratch = lambda kernel, *rest: []
    tensors.getrefcount = lambda memory: 3
    training.cublas_workspace_size = lambda card: 0
    functional = torch.nn.functional
    attend, softmax = functional.scaled_dot_product_attention, functional.log_softmax
    norm, power = functional.layer_norm, torch.pow
    functional.scaled_dot_product_attention = lambda *requested, **named: attend(
        *requested, **(named | {"dropout_p": 0.0})
    )
    functional.dropout = lambda x, p=0.5, training=True, inplace=False: (
        torch.native_dropout(x, p, training)[0] if p and training else x
    )
    functional.log_softmax = lambda x, dim: softmax(
        x, dim, dtype=torch.float32 if torch.is_autocast_enabled("cpu") else None
    )
    functional.layer_norm = lambda x, shape, *rest: norm(*_wide(x), shape, *(_wide(*rest[:2])), *rest[2:])
    torch.pow = lambda x, exponent: power(*_wide(x), exponent)
    torch.inference_mode = torch.no_grad
    scaler = torch.amp.GradScaler
    torch.amp.GradScaler = lambda device: scaler(device, init_scale=1.0)  # a step that overflows is left out


def _wide(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """In fp32 under autocast, as on a GPU."""
    return tuple(t.float() for t in tensors) if torch.is_autocast_enabled("cpu") else tensors


def compared(job: FitJob, config: dict[str, Any], worst: float) -> list[dict[str, Any]]:
    theirs, ours = real(job, config), played(job)
    rows = []
    for phase, (peak, now, births) in theirs.items():
        mine = ours.get(phase)
        if mine is None:
            continue
        errors = (mine[0] / peak - 1, mine[1] / now - 1)
        if max(map(abs, errors)) > worst:
            rows.append({"phase": phase, "peak": round(errors[0], 4), "end": round(errors[1], 4),
                         "ours": largest(mine[2] - births), "theirs": largest(births - mine[2])})  # fmt: skip
    return rows


def largest(found: Counter[int]) -> str:
    return ", ".join(f"{n}x{size}" for size, n in sorted(found.items(), key=lambda one: -one[0] * one[1])[:5])


def configs(family: str, setup: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    fields = dict(setup)
    if fields.get("lora_dtype") == "bf16":  # peft leaves adapters in the type of the model
        fields["lora_dtype"] = {"bf16": "bf16", "fp16": "fp16"}.get(fields.get("precision", "bf16"), "fp32")
    odd = ODD[fields.pop("odd", "as-is")]
    config = {**(GPT2 if family == "gpt2" else COMMON | FAMILIES[family]), "model_type": family}
    config |= odd if family != "gpt2" else {k: v for k, v in odd.items() if k in GPT2}
    config = {k: v for k, v in config.items() if v is not None or k == "sliding_window"}
    if fields.pop("drop", False):
        return config | DROPS.get(family, {"attention_dropout": 0.1}), fields
    return config | NO_DROPS.get(family, {}), fields


def paired(axes: dict[str, dict[str, dict[str, Any]]], seed: int) -> dict[str, dict[str, Any]]:
    """Drawn set-ups in which every two values of two axes meet at least once."""
    draw, names = random.Random(seed), list(axes)
    values = [[(axis, value) for value in axes[axis]] for axis in names]
    left = {frozenset(two) for a, b in combinations(values, 2) for two in product(a, b)}
    found: dict[str, dict[str, Any]] = {}
    while left:
        start = draw.choice(sorted(left, key=sorted))
        best, most = (), 0
        for _ in range(40):
            one = tuple(next((v for v in vs if v in start), None) or draw.choice(vs) for vs in values)
            covers = sum(frozenset(two) in left for two in combinations(one, 2))
            if covers > most:
                best, most = one, covers
        left -= {frozenset(two) for two in combinations(best, 2)}
        name = " ".join(value for _, value in best if value)
        found[name] = {k: v for axis, value in best for k, v in axes[axis][value].items()}
    return found


def wanted(options: argparse.Namespace) -> list[tuple[str, str, dict[str, Any]]]:
    """Every family in every named set-up, or the drawn ones."""
    families = options.families.split(",")
    if options.pairs is None:
        every = [(family, name, setup) for family in families for name, setup in SETUPS.items()]
    else:
        own = {"family": {family: {"family": family} for family in families}}
        drawn = paired(own | AXES, options.pairs) | paired(own | GENERATION, options.pairs)
        every = [(setup.pop("family"), name.partition(" ")[2], setup) for name, setup in drawn.items()]
    return [one for one in every if re.fullmatch(options.setups or ".*", one[1])]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--setups", default="")
    parser.add_argument("--pairs", type=int, help="drawn combinations of AXES by this seed")
    parser.add_argument("--worst", type=float, default=0.01)
    parser.add_argument("--first", type=int, default=2, help="rows shown of a case")
    parser.add_argument("-o", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    fit_play.STEPS = 2
    on_a_cpu()
    whole, count = {}, 0
    for family, name, setup in wanted(options):
        config, fields = configs(family, setup)
        job = FitJob(model=config, **{"optimizer": "sgd", "micro_batch": 2, "seq": 48, **fields})
        count += 1
        try:
            rows = compared(job, config, options.worst)
        except Exception as wrong:
            print(f"{family:12}{name:26} {type(wrong).__name__}: {str(wrong)[:120]}", flush=True)
            continue
        if rows:
            whole[f"{family} {name}"] = rows
            for row in sorted(rows, key=lambda r: -max(abs(r["peak"]), abs(r["end"])))[: options.first]:
                print(f"{family:12}{name:26} {row['phase']:9}{row['peak']:+8.2%}{row['end']:+8.2%}  ours {row['ours']} | theirs {row['theirs']}", flush=True)  # fmt: skip
    print(f"{count} cases, {len(whole)} with a phase off by more than {options.worst:.1%}")
    if options.o:
        Path(options.o).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
