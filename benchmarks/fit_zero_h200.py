"""What DeepSpeed's ZeRO really holds on one GPU, phase by phase, beside what the tape said before.

    PYTHONPATH=src python benchmarks/fit_zero_h200.py --freeze FILE          without a GPU, without torch: the predictions
    PYTHONPATH=DEEPSPEED python benchmarks/fit_zero_h200.py --out DIR [--only RE] [--dry]
    python benchmarks/fit_zero_h200.py --score FILE --measured DIR/zero.jsonl [-o FILE]

One rank is a group of its own: nothing is shared out, but the flat copies, the buckets, the fp32 weights and the steps over them
are DeepSpeed's. Every case is a process of its own; ``--dry`` plays tiny ones on the CPU. A line of ``zero.jsonl`` has the peaks
of torch's allocator for each phase and for the whole (bytes).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 16, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 96, "vocab_size": 64_000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip
TINY = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "vocab_size": 512}  # fmt: skip
JOB: dict[str, Any] = {"micro_batch": 2, "seq": 1024, "precision": "bf16", "optimizer": "adamw", "clip": False}
SMALL = {"reduce_bucket": 20_000_000}
CASES: dict[str, dict[str, Any]] = {
    "zero1": {"zero": 1},
    "zero2": {"zero": 2},
    "zero2-small-bucket": {"zero": 2, **SMALL},
    "zero2-checkpointing": {"zero": 2, "checkpointing": "nonreentrant", "micro_batch": 4, **SMALL},
    "zero2-accumulation": {"zero": 2, "accumulation": 2, **SMALL},
    "zero2-overlap": {"zero": 2, "overlap": True, **SMALL},
    "zero2-fp32": {"zero": 2, "precision": "fp32", **SMALL},
    "zero2-offload": {"zero": 2, "offload": "optimizer", **SMALL},
    "zero1-fused": {"zero": 1, "optimizer": "adamw_fused", **SMALL},
    "zero3": {"zero": 3},
    "zero3-small-bucket": {"zero": 3, **SMALL},
    "zero3-checkpointing": {"zero": 3, "checkpointing": "nonreentrant", "micro_batch": 4, **SMALL},
    "zero3-offload": {"zero": 3, "offload": "optimizer", **SMALL},
    "zero3-again-accumulation": {"zero": 3, "accumulation": 3, "reduce_bucket": 60_000_000},
    "zero3-again-fp32": {"zero": 3, "precision": "fp32", **SMALL},
    "zero3-again-fused": {"zero": 3, "optimizer": "adamw_fused", "micro_batch": 3, "seq": 777},
    "zero3-again-long-offload": {"zero": 3, "offload": "optimizer", "micro_batch": 1, "seq": 4000},
}
STEPS = 3
LIMIT = 90  # seconds that one case may take


def settings(job: dict[str, Any]) -> dict[str, Any]:
    """The case in DeepSpeed's words."""
    zero: dict[str, Any] = {"stage": job["zero"]}
    if job["zero"] < 3:
        zero["overlap_comm"] = job.get("overlap", False)
    if "reduce_bucket" in job:
        zero["reduce_bucket_size"] = job["reduce_bucket"]
    if job.get("offload"):
        zero["offload_optimizer"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": job["micro_batch"], "gradient_accumulation_steps": job.get("accumulation", 1),
        "bf16": {"enabled": job["precision"] == "bf16"}, "zero_optimization": zero,
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
    }  # fmt: skip


def play(name: str, device: str, out: str) -> dict[str, Any]:
    """One case from the bare process on."""
    port = 29700 + list(CASES).index(name)
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", DS_ACCELERATOR=device
    )
    sys.path.insert(0, str(HERE))
    import deepspeed
    import torch
    import transformers
    from fit_measure import LARGEST_TAPE, Meter, keep_tape, used

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    job, cuda = JOB | CASES[name], device == "cuda"
    if not cuda:
        job = job | {"micro_batch": 1, "seq": 32}
    deepspeed.init_distributed("nccl" if cuda else "gloo")
    if cuda:
        torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=LARGEST_TAPE)
    torch.manual_seed(0)
    meter = Meter(torch, device)
    config = transformers.LlamaConfig(**(CONFIG | ({} if cuda else TINY)))
    dtype = torch.bfloat16 if job["precision"] == "bf16" else torch.float32
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").train()
    if job.get("checkpointing"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    fused = job["optimizer"] == "adamw_fused"
    stepping = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=fused, foreach=not fused)
    engine = deepspeed.initialize(model=model, config=settings(job), optimizer=stepping)[0]
    del model
    meter.mark("build")
    ids = torch.randint(1, config.vocab_size, (job["micro_batch"], job["seq"]), device=device)
    for step in range(STEPS):
        for micro in range(job.get("accumulation", 1)):
            tag = f"{step}" if job.get("accumulation", 1) == 1 else f"{step}.{micro}"
            loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
            meter.mark(f"fwd{tag}")
            engine.backward(loss)
            del loss
            meter.mark(f"bwd{tag}")
            engine.step()
        meter.mark(f"opt{step}")
    found = {"id": name, "job": job, "config": CONFIG, "allocated": meter.allocated, "reserved": meter.reserved,
             "phases": meter.phases, "status": "ok", "torch": torch.__version__, "deepspeed": deepspeed.__version__}  # fmt: skip
    if cuda:
        found |= {"device": used(), "gpu": torch.cuda.get_device_name(0)}
        keep_tape(torch, name, meter, out)
    return found


def measured(out: Path, only: str, device: str) -> int:
    out.mkdir(parents=True, exist_ok=True)
    bad = 0
    for name in CASES:
        if not re.search(only, name):
            continue
        command = [sys.executable, __file__, "--one", name, "--device", device, "--out", str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
            line = next((text for text in done.stdout.splitlines() if text.startswith('{"id"')), "")
            wrong = (done.stderr or done.stdout)[-1500:]
        except subprocess.TimeoutExpired:
            line, wrong = "", f"not done in {LIMIT} s"
        if not line:
            bad += 1
            line = json.dumps({"id": name, "status": "error", "said": wrong})
        with (out / "zero.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(
            name,
            json.loads(line).get("allocated"),
            json.loads(line)["status"],
            json.loads(line).get("said", "")[-400:],
            flush=True,
        )
    return 1 if bad else 0


def frozen(path: str) -> int:
    """The predictions, without torch."""
    from gpuready.fit.job.records import H200, FitJob
    from gpuready.fit.search.prediction import predict_job

    rows = {}
    for name, fields in CASES.items():
        fit = predict_job(FitJob(model=CONFIG, **(JOB | fields)).validate_fields(), H200)
        rows[name] = {"allocated": fit.peak_allocated, "reserved": fit.peak_reserved, "phases": dict(fit.phases)}
    said = {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python benchmarks/fit_zero_h200.py --freeze FILE",
        "config": CONFIG,
        "job": JOB,
        "cases": rows,
    }
    Path(path).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return 0


def scored(said: str, real: str, out: str) -> int:
    """Predicted beside measured."""
    frozen = json.loads(Path(said).read_text(encoding="utf-8"))
    cases, rows, about = frozen["cases"], [], {}
    for line in Path(real).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["status"] != "ok":
            continue
        mine = cases[row["id"]]
        about = {key: row[key] for key in ("gpu", "torch", "deepspeed") if key in row}
        errors = {what: round(mine[what] / row[what] - 1, 5) for what in ("allocated", "reserved")}
        phases = {
            p: round(mine["phases"][p] / v[0] - 1, 5) for p, v in row["phases"].items() if p in mine["phases"] and v[0]
        }
        rows.append(
            {"id": row["id"], **errors, "phases": phases, "measured": row["allocated"], "predicted": mine["allocated"]}
        )
        print(f"{row['id']:24}{errors['allocated']:+9.2%}{errors['reserved']:+9.2%}  {phases}")
    if out:
        whole = {
            "command": "python benchmarks/fit_zero_h200.py --out DIR, then --score", "predicted": frozen.get("written", ""),
            "measured": date.fromtimestamp(Path(real).stat().st_mtime).isoformat(), **about,
            "not_measured": [name for name in cases if name not in {row["id"] for row in rows}], "cases": rows,
        }  # fmt: skip
        Path(out).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--freeze", default="")
    parser.add_argument("--out", default="zero")
    parser.add_argument("--only", default="")
    parser.add_argument("--one", default="")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--score", default="")
    parser.add_argument("--measured", default="")
    parser.add_argument("-o", default="")
    args = parser.parse_args()
    if args.freeze:
        return frozen(args.freeze)
    if args.score:
        return scored(args.score, args.measured, args.o)
    if args.one:
        print(json.dumps(play(args.one, args.device, args.out)), flush=True)
        return 0
    return measured(Path(args.out), args.only, "cpu" if args.dry else args.device)


if __name__ == "__main__":
    sys.exit(main())
