"""The host's time for a layer in eager mode, by architecture: what the constants of fit/time/device_speed.py come from.

    python benchmarks/eager_pace.py -o FILE [--device cuda] [--seconds 0.4] [--peft FOLDER] [--only KIND,...]
    python benchmarks/eager_pace.py --shares FILE

Runs in an interpreter with torch and transformers. Each architecture has a process of its own, in which it and the Llama of
`gpuready bench` run in turn: their ratio does not depend on which cores the process got, or on what disturbs them. ``--peft FOLDER`` adds LoRA.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src/gpuready/prove/scripts"))
EXPERTS = {"num_experts_per_tok": 2, "sliding_window": None}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {}),
    "gemma3": ("gemma3_text", {}),
    "mistral": ("mistral", {"sliding_window": None}),
    "phi": ("phi", {}),
    "phi3": ("phi3", {}),
    "gpt_neox": ("gpt_neox", {"num_key_value_heads": None}),
    "gpt2": ("gpt2", {"n_embd": 256, "n_head": 4}),
    "mixtral": ("mixtral", {"num_local_experts": 8, **EXPERTS}),
    "qwen3_moe": ("qwen3_moe", {"moe_intermediate_size": 128, "num_experts": 16, "mlp_only_layers": [], **EXPERTS}),
    "lora": ("llama", {}),
    "checkpointing": ("llama", {}),
}
PASSES = ("forward", "backward", "decode")
TURNS = ("step", "decode")
WARM_TURNS, FEWEST_TURNS = 2, 8


def measure_kind(name: str, device: str, seconds: float, queue: Any) -> None:
    try:
        queue.put(_measure(name, device, seconds))
    except Exception as error:
        queue.put({"kind": name, "error": f"{type(error).__name__}: {error}"[:300]})


def _measure(name: str, device: str, seconds: float) -> dict[str, Any]:
    import torch
    from bench_eager import EagerBench

    place = torch.device(device)
    kind, changes = KINDS[name]
    changes = {key: value for key, value in changes.items() if value is not None}
    benches = {"llama": EagerBench(torch, place), name: EagerBench(torch, place, kind, **changes)}
    if name == "lora":
        _add_adapters(benches[name])
    if name == "checkpointing":
        for model in benches[name].models.values():
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    row: dict[str, Any] = {"kind": name, "launch": [_time_launch(torch, place)]}
    for turn in TURNS if name not in ("lora", "checkpointing") else TURNS[:1]:
        row |= _time_side_by_side(benches, turn, seconds)
    row["launch"].append(_time_launch(torch, place))
    return row


def _time_side_by_side(benches: dict[str, Any], turn: str, seconds: float) -> dict[str, Any]:
    """Time both models at both depths in turn, so that what disturbs the host disturbs all four; quartiles by pass, model and depth."""
    turns: dict[tuple[str, int], list[dict[str, float]]] = {}
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or len(turns["llama", 1]) < WARM_TURNS + FEWEST_TURNS:
        for label, bench in benches.items():
            for depth, model in bench.models.items():
                turns.setdefault((label, depth), []).append(getattr(bench, f"time_{turn}")(model))
    found: dict[str, Any] = {}
    for (label, depth), times in turns.items():
        for what in times[0]:
            by_model = found.setdefault(what, {}).setdefault(label, {})
            by_model[str(depth)] = statistics.quantiles([one[what] for one in times[WARM_TURNS:]], n=4)
    return found


def _add_adapters(bench: Any) -> None:
    import peft

    for depth, model in bench.models.items():
        settings = peft.LoraConfig(r=16, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
        bench.models[depth] = peft.get_peft_model(model, settings)


def _time_launch(torch: Any, place: Any) -> float:
    one = torch.zeros(1, device=place)
    for _ in range(200):
        one.add_(1)
    begun = time.perf_counter()
    for _ in range(2000):
        one.add_(1)
    return (time.perf_counter() - begun) / 2000


def learn_shares(path: str) -> dict[str, dict[str, float]]:
    """Return what experts, adapters and checkpointing take beside their kernels, as a share of a layer: EXPERT_LAYERS, ADAPTER_LAYERS, CHECKPOINT_LAYERS.

    A layer's ratio to that of the Llama, by the lower quartiles, less what the number of its kernels on the tape explains.
    """
    from gpuready.fit.time.device_speed import FIXED_SHARES, LAYER_KERNELS

    beside: dict[str, dict[str, list[float]]] = {"experts": {}, "adapters": {}, "checkpoints": {}}
    for row in json.loads(Path(path).read_text())["rows"]:
        if row["kind"] == "checkpointing" and "error" not in row:
            forward, backward = (row[what][row["kind"]] for what in PASSES[:2])
            plain, back = (_layer_seconds(row[what]["llama"]) for what in PASSES[:2])
            again = (_layer_seconds(backward) - back) / plain - 1
            beside["checkpoints"] = {"fwd": [_layer_seconds(forward) / plain - 1], "again": [again]}
        group = {"mixtral": "experts", "qwen3_moe": "experts", "lora": "adapters"}.get(row["kind"])
        if group is None or "error" in row:
            continue
        kernels = _tape_kernels(row["kind"])
        for what, mark in zip(PASSES, ("fwd", "bwd", "decode"), strict=True):
            if what not in row:
                continue
            ratio = _layer_seconds(row[what][row["kind"]]) / _layer_seconds(row[what]["llama"])
            explained = FIXED_SHARES[mark] + (1 - FIXED_SHARES[mark]) * kernels[mark] / LAYER_KERNELS[mark]
            each = 7 if group == "adapters" else 1  # linear layers
            beside[group].setdefault(mark, []).append((ratio - explained) / each)
    return {
        group: {mark: round(max(0.0, sum(several) / len(several)), 4) for mark, several in found.items()}
        for group, found in beside.items()
    }


def _layer_seconds(quartiles: dict[str, list[float]]) -> float:
    (shallow, low), (deep, high) = ((int(depth), times[0]) for depth, times in quartiles.items())
    return (high - low) / (deep - shallow)


def _tape_kernels(name: str) -> dict[str, float]:
    """Return the kernels of a layer on the tape, by pass."""
    from bench_eager import DEEP, SHALLOW, SIZES

    from gpuready.fit import H200, FitJob
    from gpuready.fit.search.prediction import cached_job_tape
    from gpuready.fit.time.prediction import split_phases

    kind, changes = KINDS[name]
    counts: dict[str, list[int]] = {}
    for depth in (SHALLOW, DEEP):
        model = {**SIZES, **changes, "model_type": kind, "num_hidden_layers": depth}
        common: dict[str, Any] = {"model": model, "seq": 16, "precision": "bf16"}
        method = {"method": "lora", "lora_r": 16} if name == "lora" else {}
        steps = split_phases(cached_job_tape(FitJob(**common, **method, clip=False).validate_fields(), H200))
        answer = split_phases(cached_job_tape(FitJob(**common, task="generate", new_tokens=9).validate_fields(), H200))
        token = next(kernels for mark, kernels in answer.items() if mark.startswith("token"))
        for mark, kernels in (("fwd", steps["fwd0"]), ("bwd", steps["bwd0"]), ("decode", token)):
            counts.setdefault(mark, []).append(len(kernels))
    return {mark: (high - low) / (DEEP - SHALLOW) for mark, (low, high) in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="eager-pace.json")
    parser.add_argument("--shares")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--peft")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.shares:
        print(json.dumps(learn_shares(options.shares), indent=1))
        return
    if options.peft:
        sys.path.append(options.peft)
    import torch
    import transformers

    context = multiprocessing.get_context("fork")  # torch is imported once; CUDA is touched in the children only
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    rows: list[Any] = []
    for name in options.only.split(",") if options.only else KINDS:
        if name == "lora" and not options.peft:
            continue
        queue = context.Queue()
        child = context.Process(target=measure_kind, args=(name, options.device, options.seconds, queue))
        child.start()
        try:
            rows.append(queue.get(timeout=60))
        except Exception:
            rows.append({"kind": name, "error": "no answer within 60 s"})
            child.terminate()
        child.join(10)
        print(name, json.dumps(rows[-1])[:600], flush=True)
        Path(options.output).write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
