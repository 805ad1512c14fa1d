"""Record what one rank of a real FSDP2 run allocates: two processes on the CPU with gloo, one small Llama.

Run it with an interpreter that has torch and transformers; it writes sharded.json beside itself.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers

sys.path.insert(0, str(Path(__file__).parent))
from record_traces import Meter

CONFIG: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 2048, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
WORLD, BATCH, SEQ = 2, 1, 32


def local(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def watch_resizing(meter: Meter) -> None:
    """FSDP2 lets gathered weights go by shrinking their storage to nothing."""
    resize = torch.UntypedStorage.resize_

    def watched(storage: Any, size: int) -> Any:
        done = resize(storage, size)
        if storage._cdata in meter.live:
            meter.now += size - meter.live[storage._cdata]
            meter.live[storage._cdata] = size
            meter.peak = max(meter.peak, meter.now)
        return done

    torch.UntypedStorage.resize_ = watched  # type: ignore[method-assign]


def work(rank: int, checkpointing: bool, out: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    config = transformers.LlamaConfig(**CONFIG)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    )
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    mesh = init_device_mesh("cpu", (WORLD,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    meter = Meter()
    watch_resizing(meter)
    for tensor in (*model.parameters(), *model.buffers()):
        meter.add(local(tensor))
    found: dict[str, Any] = {"checkpointing": checkpointing, "static": meter.now}
    ids = torch.randint(1, config.vocab_size, (BATCH, SEQ))
    with meter:
        for step in range(2):
            meter.turn()
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            found[f"fwd{step}"] = meter.turn()
            loss.backward()
            del loss
            found[f"bwd{step}"] = meter.turn()
            optimizer.zero_grad(set_to_none=True)
    if rank == 0:
        Path(out).write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def main() -> None:
    rows = []
    for checkpointing in (False, True):
        out = Path(__file__).with_name("sharded.tmp")
        mp.spawn(work, args=(checkpointing, str(out)), nprocs=WORLD)
        rows.append(
            {"config": {"model_type": "llama", **CONFIG}, **json.loads(out.read_text(encoding="utf-8"))}
        )
        out.unlink()
    text = "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
    Path(__file__).with_name("sharded.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
