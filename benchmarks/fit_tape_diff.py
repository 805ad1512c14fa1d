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
import re
import sys
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fit_measure
import fit_play
import torch
from fit_tape_setups import AXES, FAMILIES, GENERATION, SETUPS, configs, paired
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from gpuready.fit.job.records import H200, FitJob
from gpuready.fit.tape import attention, decoder, training
from gpuready.fit.tape import autograd as tensors
from gpuready.fit.tape.generation import GenerationRun
from gpuready.fit.tape.training import TrainingRun

HALF = (torch.bfloat16, torch.float16)
PRODUCTS = {f"aten::{name}" for name in (
    "mm", "bmm", "addmm", "baddbmm", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)}  # fmt: skip


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
