"""One rank of real sharded training beside our tape of it: births, sizes and deaths of storages, on the CPU with gloo.

    PYTHONPATH=src python benchmarks/fit_sharded.py [--modes RE] [-o FILE]

It runs in an interpreter with torch and transformers (and DeepSpeed for the zero modes). For every mode two or more
processes train one small Llama for two steps with the framework's own code, under a recorder of storages; rank 0 is held
against the engine's tape, played with the kernels of a CPU. Printed are, phase by phase, the errors of the peak and of what
lives at the end, and the largest births that only one side has. Sizes are as asked for; NCCL's own buffers are on no side.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
from collections import Counter
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fit_sharded_recorder
import fit_tape_diff
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers

from gpuready.fit.job.records import FitJob

CONFIG: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 2048, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
BATCH, SEQ = 2, 64
WORTH_TELLING = 0.001  # from this error on the births that differ are kept
BUCKET = 1_000_000  # values, on both sides: DeepSpeed's own default is larger than this model by far
PLAN = {"q_proj": "col", "k_proj": "col", "v_proj": "col", "o_proj": "row",
        "gate_proj": "col", "up_proj": "col", "down_proj": "row"}  # fmt: skip
QLORA: dict[str, Any] = {"method": "qlora", "quant": "nf4", "double_quant": True}
MODES: dict[str, dict[str, Any]] = {
    "ddp": {"world": 2},
    "ddp, 16 bit": {"world": 2, "precision": "bf16"},
    "ddp, checkpointing": {"world": 2, "checkpointing": "nonreentrant"},
    "fsdp2": {"world": 2, "fsdp": True},
    "fsdp2, 4 ranks": {"world": 4, "fsdp": True},
    "fsdp2, checkpointing": {"world": 2, "fsdp": True, "checkpointing": "nonreentrant"},
    "fsdp2, 16 bit": {"world": 2, "fsdp": True, "precision": "bf16"},
    "fsdp2, not resharded": {"world": 2, "fsdp": True, "reshard": False},
    "fsdp2, lora": {"world": 2, "fsdp": True, "method": "lora"},
    "fsdp2, qlora": {"world": 2, "fsdp": True, "precision": "bf16", **QLORA},
    "fsdp2, qlora, 4 ranks": {"world": 4, "fsdp": True, "precision": "bf16", **QLORA},
    "fsdp2, qlora, checkpointing": {
        "world": 2,
        "fsdp": True,
        "precision": "bf16",
        "checkpointing": "nonreentrant",
        **QLORA,
    },
    "fsdp1": {"world": 2, "fsdp": True, "fsdp_version": 1},
    "fsdp1, 4 ranks": {"world": 4, "fsdp": True, "fsdp_version": 1},
    "fsdp1, checkpointing": {"world": 2, "fsdp": True, "fsdp_version": 1, "checkpointing": "nonreentrant"},
    "fsdp1, 16 bit": {"world": 2, "fsdp": True, "fsdp_version": 1, "precision": "bf16"},
    "fsdp1, not resharded": {"world": 2, "fsdp": True, "fsdp_version": 1, "reshard": False},
    "fsdp1, lora": {"world": 2, "fsdp": True, "fsdp_version": 1, "method": "lora"},
    "fsdp1, qlora": {"world": 2, "fsdp": True, "fsdp_version": 1, "precision": "bf16", **QLORA},
    "fsdp1, qlora, checkpointing": {
        "world": 2,
        "fsdp": True,
        "fsdp_version": 1,
        "precision": "bf16",
        "checkpointing": "nonreentrant",
        **QLORA,
    },
    "tensor parallel": {"world": 2, "tensor_parallel": 2, "optimizer": "adamw_forloop"},
    "tensor parallel, 4 ranks": {"world": 4, "tensor_parallel": 4, "optimizer": "adamw_forloop"},
}
ZERO: dict[str, Any] = {"world": 2, "precision": "bf16", "reduce_bucket": BUCKET}
THIRD: dict[str, Any] = ZERO | {"zero": 3, "prefetch_bucket": 500_000, "persistence": 10_000,
                                "live_parameters": 1_500_000, "reuse_distance": 300_000}  # fmt: skip
MODES |= {
    "zero 1": ZERO | {"zero": 1},
    "zero 1, 4 ranks": ZERO | {"zero": 1, "world": 4},
    "zero 1, fp32": ZERO | {"zero": 1, "precision": "fp32"},
    "zero 1, accumulation": ZERO | {"zero": 1, "accumulation": 2},
    "zero 1, one rank": ZERO | {"zero": 1, "world": 1},
    "zero 2": ZERO | {"zero": 2},
    "zero 2, 4 ranks": ZERO | {"zero": 2, "world": 4},
    "zero 2, fp32": ZERO | {"zero": 2, "precision": "fp32"},
    "zero 2, accumulation": ZERO | {"zero": 2, "accumulation": 2},
    "zero 2, one rank": ZERO | {"zero": 2, "world": 1},
    "zero 2, small bucket": ZERO | {"zero": 2, "reduce_bucket": 150_000},
    "zero 2, overlap": ZERO | {"zero": 2, "overlap": True},
    "zero 2, checkpointing": ZERO | {"zero": 2, "checkpointing": "nonreentrant"},
    "zero 2, not contiguous": ZERO | {"zero": 2, "contiguous_gradients": False},
    "zero 1, optimizer offloaded": ZERO | {"zero": 1, "offload": "optimizer"},
    "zero 2, optimizer offloaded": ZERO | {"zero": 2, "offload": "optimizer"},
    "zero 2, lora": ZERO | {"zero": 2, "method": "lora"},
    "zero 2, qlora": ZERO | {"zero": 2, **QLORA},
    "zero 3, qlora": THIRD | QLORA,
    "zero 3, lora": THIRD | {"method": "lora"},
    "zero 3": THIRD,
    "zero 3, 4 ranks": THIRD | {"world": 4},
    "zero 3, fp32": THIRD | {"precision": "fp32"},
    "zero 3, all kept": THIRD | {"live_parameters": 10**9, "reuse_distance": 10**9},
    "zero 3, no prefetch": THIRD | {"prefetch_bucket": 1, "reuse_distance": 1},
    "zero 3, large prefetch": THIRD | {"prefetch_bucket": 50_000_000, "live_parameters": 10**9},
    "zero 3, persistent": THIRD | {"persistence": 100_000},
    "zero 3, checkpointing": THIRD | {"checkpointing": "nonreentrant"},
    "zero 3, accumulation": THIRD | {"accumulation": 2},
    "zero 3, one rank": THIRD | {"world": 1},
    "zero 3, optimizer offloaded": THIRD | {"offload": "optimizer"},
}


def job_of(fields: dict[str, Any]) -> FitJob:
    fields = {"precision": "fp32", "optimizer": "adamw", "clip": False, "attention": "eager", **fields}
    return FitJob(model={"model_type": "llama", **CONFIG}, micro_batch=BATCH, seq=SEQ, **fields)


def spread(model: Any, job: FitJob) -> tuple[Any, Any, Any]:
    """The model as the framework shards it, its optimizer, and how a backward is called."""
    settings = {"lr": 1e-4, "foreach": job.tensor_parallel == 1}  # which does not mix plain tensors and DTensors
    if job.zero:
        return by_deepspeed(model, job)
    if job.fsdp and job.fsdp_version == 1:
        model = by_fsdp1(model, job)
    elif job.fsdp:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (job.world,))
        for layer in (model if job.method == "full" else model.get_base_model()).model.layers:
            fully_shard(layer, mesh=mesh, reshard_after_forward=job.reshard)
        fully_shard(model, mesh=mesh)
    elif job.tensor_parallel > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        kinds = {"col": ColwiseParallel, "row": RowwiseParallel}
        mesh = init_device_mesh("cpu", (job.world,))
        for layer in model.model.layers:
            plan = {
                n: kinds[PLAN[n.rpartition(".")[2]]]() for n, _ in layer.named_modules() if n.rpartition(".")[2] in PLAN
            }
            parallelize_module(layer, mesh, plan)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    return model, torch.optim.AdamW(trained(model), **settings), None


def by_fsdp1(model: Any, job: FitJob) -> Any:
    """FSDP1 as accelerate wraps: a unit for every layer, and with peft one for every trained module."""
    from functools import partial

    from torch.distributed import fsdp
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    policy: Any = partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    if job.method != "full":
        from peft.utils.other import fsdp_auto_wrap_policy

        policy = fsdp_auto_wrap_policy(model)
    kind = fsdp.ShardingStrategy.FULL_SHARD if job.reshard else fsdp.ShardingStrategy.SHARD_GRAD_OP
    return fsdp.FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy,
        sharding_strategy=kind,
        use_orig_params=job.method == "full",
        device_id=torch.device("cpu"),
    )


def quantised(model: Any) -> Any:
    """The layers' linears in 4 bits, with codes in 16-bit storage, as FSDP and ZeRO 3 need them."""
    import bitsandbytes as bnb

    for layer in model.model.layers:
        for name, module in list(layer.named_modules()):
            if isinstance(module, torch.nn.Linear):
                made = bnb.nn.Linear4bit(
                    module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16,
                    compress_statistics=True, quant_type="nf4", quant_storage=torch.bfloat16,
                )  # fmt: skip
                made.weight = bnb.nn.Params4bit(
                    module.weight.data, requires_grad=False, quant_type="nf4", quant_storage=torch.bfloat16, module=made
                )
                outer, _, last = name.rpartition(".")
                setattr(layer.get_submodule(outer), last, made.to("cpu"))
    model.is_loaded_in_4bit = True
    return model


def scales(model: Any) -> list[Any]:
    """What bitsandbytes keeps beside the codes of every weight."""
    found = []
    for parameter in model.parameters():
        state = getattr(parameter, "quant_state", None)
        while state is not None:
            found += [t for t in (state.absmax, state.code, state.offset) if t is not None]
            state = state.state2
    return found


def trained(model: Any) -> list[Any]:
    return [p for p in model.parameters() if p.requires_grad]


def by_deepspeed(model: Any, job: FitJob) -> tuple[Any, Any, Any]:
    """The engine of DeepSpeed. Its collectives in shared memory are left out: a kernel that is built on the spot."""
    import deepspeed

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    zero: dict[str, Any] = {
        "stage": job.zero, "reduce_bucket_size": job.reduce_bucket, "contiguous_gradients": job.contiguous_gradients,
        "stage3_prefetch_bucket_size": job.prefetch_bucket, "stage3_param_persistence_threshold": job.persistence,
        "stage3_max_live_parameters": job.live_parameters, "stage3_max_reuse_distance": job.reuse_distance,
    }  # fmt: skip
    if job.zero < 3:
        zero["overlap_comm"] = job.overlap
    if job.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    settings = {"train_micro_batch_size_per_gpu": BATCH, "gradient_accumulation_steps": job.accumulation,
            "bf16": {"enabled": job.precision == "bf16"}, "zero_optimization": zero, "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False}  # fmt: skip
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, config=settings, optimizer=torch.optim.AdamW(trained(model), lr=1e-4, foreach=True)
    )
    return engine, optimizer, engine


def quiet() -> None:
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def work(rank: int, name: str, port: int, folder: str) -> None:
    job = job_of(MODES[name])
    quiet()
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank),
        WORLD_SIZE=str(job.world), DS_ACCELERATOR="cpu",
    )  # fmt: skip
    dist.init_process_group("gloo", rank=rank, world_size=job.world)
    torch.set_num_threads(1)
    kinds = {"attn_implementation": "eager", "dtype": torch.bfloat16 if job.precision == "bf16" else torch.float32}
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**CONFIG), **kinds).train()
    if job.quant:
        model = quantised(model)
    if job.method != "full":
        import peft

        settings = peft.LoraConfig(r=job.lora_r, target_modules="all-linear", task_type="CAUSAL_LM")
        model = peft.get_peft_model(model, settings)
    if job.checkpointing != "none":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    recorder = fit_sharded_recorder.Recorder()
    recorder.watch_resizing()
    recorder.ignore_transport()
    for tensor in (*model.parameters(), *model.buffers(), *scales(model)):
        recorder.add(tensor)
    with recorder:
        phases = steps(model, job, recorder)
    rows = {phase: [peak, now, sorted(births.items())] for phase, (peak, now, births) in phases.items()}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(rows), encoding="utf-8")
    dist.destroy_process_group()


def steps(model: Any, job: FitJob, recorder: fit_sharded_recorder.Recorder) -> dict[str, Any]:
    model, optimizer, engine = spread(model, job)
    for tensor in (*model.parameters(), *model.buffers()):
        recorder.add(tensor)
    import gc

    gc.collect()
    if job.offload:
        recorder.leave_out(optimizer)
    ids = torch.randint(1, CONFIG["vocab_size"], (BATCH, SEQ))
    recorder.mark("build")
    for step in range(2):
        for micro in range(job.accumulation):
            tag = f"{step}" if job.accumulation == 1 else f"{step}.{micro}"
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            recorder.mark(f"fwd{tag}")
            engine.backward(loss) if engine else loss.backward()
            del loss
            recorder.mark(f"bwd{tag}")
            if engine and micro < job.accumulation - 1:
                engine.step()
        engine.step() if engine else optimizer.step()
        recorder.mark(f"opt{step}")
        if not engine:
            optimizer.zero_grad(set_to_none=True)
        recorder.mark(f"zero{step}")
    return recorder.phases


def compared(name: str, port: int) -> dict[str, Any]:
    """A mode as the ranks played it, and how far our tape of each lies off."""
    job = job_of(MODES[name])
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, (name, port, folder), job.world, start_method="fork")
        theirs = [json.loads((Path(folder) / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(job.world)]
    ranks = []
    for rank in range(job.world if job.zero else 1):
        ours, rows = fit_tape_diff.played(job, rank), {}
        for phase, (peak, now, births) in theirs[rank].items():
            if phase not in ours or (phase == "build" and job.offload):
                continue
            mine, real = ours[phase], Counter(dict(births))
            if phase == "build":  # the whole model is there before it is spread; what counts is what is left
                peak, mine = now, (mine[1], *mine[1:])
            rows[phase] = {
                "peak": peak,
                "end": now,
                "errors": [round(mine[0] / peak - 1, 5), round(mine[1] / now - 1, 5)],
            }
            if max(map(abs, rows[phase]["errors"])) > WORTH_TELLING:
                rows[phase] |= {
                    "ours": fit_tape_diff.largest(mine[2] - real),
                    "theirs": fit_tape_diff.largest(real - mine[2]),
                }
        ranks.append(rows)
    return {"job": MODES[name], "ranks": ranks}


def warm(modes: str) -> None:
    """Import once, before the ranks are forked, what each of them would import."""
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel  # noqa: F401
    from transformers.models.llama import modeling_llama  # noqa: F401

    if any(MODES[name].get("zero") for name in MODES if re.search(modes, name)):
        os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed  # noqa: F401


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--modes", default="")
    parser.add_argument("-o", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    fit_tape_diff.on_a_cpu()
    quiet()
    warm(args.modes)
    modes: dict[str, Any] = {}
    for number, name in enumerate(MODES):
        if not re.search(args.modes, name):
            continue
        try:
            modes[name] = compared(name, 29600 + number)
        except Exception as wrong:
            print(f"{name} did not run: {type(wrong).__name__}: {str(wrong).strip()[-300:]}", flush=True)
            continue
        show(name, modes[name]["ranks"])
        if args.o:  # after every mode: what was compared is kept if it is broken off
            keep(Path(args.o), modes)
    return 0


def show(name: str, ranks: list[dict[str, Any]]) -> None:
    for rank, rows in enumerate(ranks):
        for phase, row in rows.items():
            peak, end = row["errors"]
            beside = f"  ours {row['ours']} | theirs {row['theirs']}" if "ours" in row else ""
            print(f"{name:28}{rank} {phase:7}{peak:+9.2%}{end:+9.2%}{beside}", flush=True)


def keep(path: Path, modes: dict[str, Any]) -> None:
    """The record of a run; modes that an earlier one compared stay."""
    if path.exists():
        modes = json.loads(path.read_text(encoding="utf-8"))["modes"] | modes
    names = ("torch", "transformers", "deepspeed", "peft")
    versions = {name: version(name) for name in names if find_spec(name)}
    whole = {
        "date": date.today().isoformat(), "command": "python benchmarks/fit_sharded.py -o FILE", "config": CONFIG,
        "batch": [BATCH, SEQ], "machine": f"{platform.machine()}, {os.cpu_count()} cores", "versions": versions,
        "modes": {name: modes[name] for name in MODES if name in modes},
    }  # fmt: skip
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
