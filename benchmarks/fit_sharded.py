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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fit_tape_diff
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers

from tarmac.fit import sharding
from tarmac.fit.job import Job

CONFIG: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 2048, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
BATCH, SEQ = 2, 64
BUCKET = 1_000_000  # values, on both sides: DeepSpeed's own default is larger than this model by far
PLAN = {"q_proj": "col", "k_proj": "col", "v_proj": "col", "o_proj": "row",
        "gate_proj": "col", "up_proj": "col", "down_proj": "row"}  # fmt: skip
MODES: dict[str, dict[str, Any]] = {
    "ddp": {"world": 2},
    "ddp, 16 bit": {"world": 2, "precision": "bf16"},
    "ddp, checkpointing": {"world": 2, "checkpointing": "nonreentrant"},
    "fsdp2": {"world": 2, "fsdp": True},
    "fsdp2, 4 ranks": {"world": 4, "fsdp": True},
    "fsdp2, checkpointing": {"world": 2, "fsdp": True, "checkpointing": "nonreentrant"},
    "fsdp2, 16 bit": {"world": 2, "fsdp": True, "precision": "bf16"},
    "tensor parallel": {"world": 2, "tensor_parallel": 2, "optimizer": "adamw_forloop"},
    "tensor parallel, 4 ranks": {"world": 4, "tensor_parallel": 4, "optimizer": "adamw_forloop"},
    "zero 1": {"world": 2, "zero": 1, "precision": "bf16"},
    "zero 2": {"world": 2, "zero": 2, "precision": "bf16"},
    "zero 3": {"world": 2, "zero": 3, "precision": "bf16"},
    "zero 2, optimizer offloaded": {"world": 2, "zero": 2, "precision": "bf16", "offload": "optimizer"},
}


class Recorder(fit_tape_diff.Recorder):
    """Sees as well that FSDP2 shrinks the storage of gathered weights to nothing, and DTensor's local parts."""

    def add(self, tensor: torch.Tensor) -> None:
        super().add(local(tensor))

    def watch_resizing(self) -> None:
        resize, mine = torch.UntypedStorage.resize_, self

        def watched(storage: Any, size: int) -> Any:
            done, key = resize(storage, size), storage._cdata
            if key not in mine.live and size:
                mine.live[key] = 0
            if key in mine.live:
                mine.now += size - mine.live[key]
                mine.births[size] += 1 if size else 0
                mine.live[key] = size
                mine.peak = max(mine.peak, mine.now)
            return done

        torch.UntypedStorage.resize_ = watched  # type: ignore[method-assign]


def local(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def job_of(fields: dict[str, Any]) -> Job:
    fields = {"precision": "fp32", "optimizer": "adamw", "clip": False, "attention": "eager", **fields}
    return Job(model={"model_type": "llama", **CONFIG}, micro_batch=BATCH, seq=SEQ, **fields)


def spread(model: Any, job: Job) -> tuple[Any, Any, Any]:
    """The model as the framework shards it, its optimizer, and how a backward is called."""
    told = {"lr": 1e-4, "foreach": job.tensor_parallel == 1}  # which does not mix plain tensors and DTensors
    if job.zero:
        return by_deepspeed(model, job)
    if job.fsdp:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (job.world,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif job.tensor_parallel > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        kinds = {"col": ColwiseParallel, "row": RowwiseParallel}
        mesh = init_device_mesh("cpu", (job.world,))
        for layer in model.model.layers:
            plan = {
                n: kinds[PLAN[n.rpartition(".")[2]]]()
                for n, _ in layer.named_modules()
                if n.rpartition(".")[2] in PLAN
            }
            parallelize_module(layer, mesh, plan)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    return model, torch.optim.AdamW(model.parameters(), **told), None


def by_deepspeed(model: Any, job: Job) -> tuple[Any, Any, Any]:
    import deepspeed
    import deepspeed.comm.torch

    deepspeed.comm.torch.build_shm_op = lambda: (
        None
    )  # a kernel for collectives in shared memory, built on the spot
    zero: dict[str, Any] = {"stage": job.zero, "reduce_bucket_size": BUCKET}
    if job.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    told = {"train_micro_batch_size_per_gpu": BATCH, "bf16": {"enabled": True}, "zero_optimization": zero,
            "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}  # fmt: skip
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, config=told, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    )
    return engine, optimizer, engine


def work(rank: int, name: str, port: int, out: str) -> None:
    job = job_of(MODES[name])
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(job.world),
    )
    dist.init_process_group("gloo", rank=rank, world_size=job.world)
    torch.set_num_threads(1)
    kinds = {
        "attn_implementation": "eager",
        "dtype": torch.bfloat16 if job.precision == "bf16" else torch.float32,
    }
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**CONFIG), **kinds).train()
    if job.checkpointing != "none":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    recorder = Recorder()
    recorder.watch_resizing()
    for tensor in (*model.parameters(), *model.buffers()):
        recorder.add(tensor)
    with recorder:
        phases = steps(model, job, recorder)
    if rank == 0:
        rows = {phase: [peak, now, sorted(births.items())] for phase, (peak, now, births) in phases.items()}
        Path(out).write_text(json.dumps(rows), encoding="utf-8")
    dist.destroy_process_group()


def steps(model: Any, job: Job, recorder: Recorder) -> dict[str, Any]:
    model, optimizer, engine = spread(model, job)
    for tensor in (*model.parameters(), *model.buffers()):
        recorder.add(tensor)
    import gc

    gc.collect()
    ids = torch.randint(1, CONFIG["vocab_size"], (BATCH, SEQ))
    recorder.mark("build")
    for step in range(2):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        recorder.mark(f"fwd{step}")
        engine.backward(loss) if engine else loss.backward()
        del loss
        recorder.mark(f"bwd{step}")
        engine.step() if engine else optimizer.step()
        recorder.mark(f"opt{step}")
        if not engine:
            optimizer.zero_grad(set_to_none=True)
        recorder.mark(f"zero{step}")
    return recorder.phases


def compared(name: str, port: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rank0.json"
        mp.start_processes(work, (name, port, str(out)), job_of(MODES[name]).world, start_method="fork")
        theirs = json.loads(out.read_text(encoding="utf-8"))
    ours = fit_tape_diff.played(job_of(MODES[name]))
    rows = []
    for phase, (peak, now, births) in theirs.items():
        if phase in ours:
            mine, real = ours[phase], Counter(dict(births))
            rows.append({"phase": phase, "peak": peak, "peak_error": round(mine[0] / peak - 1, 5),
                         "end": now, "end_error": round(mine[1] / now - 1, 5),
                         "ours": fit_tape_diff.largest(mine[2] - real), "theirs": fit_tape_diff.largest(real - mine[2])})  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--modes", default="")
    parser.add_argument("-o", default="")
    told = parser.parse_args()
    torch.set_num_threads(1)
    fit_tape_diff.on_a_cpu()
    sharding.BUCKET = BUCKET
    modes: dict[str, Any] = {}
    for number, name in enumerate(MODES):
        if not re.search(told.modes, name):
            continue
        try:
            modes[name] = compared(name, 29600 + number)
        except Exception as wrong:
            modes[name] = f"did not run: {type(wrong).__name__}: {str(wrong).strip()[-300:]}"
            print(name, modes[name], flush=True)
            continue
        for row in modes[name]:
            print(f"{name:28}{row['phase']:7}{row['peak_error']:+9.2%}{row['end_error']:+9.2%}  ours {row['ours']} | theirs {row['theirs']}", flush=True)  # fmt: skip
    whole = {
        "date": date.today().isoformat(), "command": "python benchmarks/fit_sharded.py", "config": CONFIG, "batch": [BATCH, SEQ],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores", "torch": torch.__version__,
        "transformers": transformers.__version__, "modes": modes,
    }  # fmt: skip
    if told.o:
        Path(told.o).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
