"""Measure what jobs really hold on a GPU, case by case, each in a process of its own.

    python benchmarks/fit_measure.py [--out DIR] [--predictions FILE] [--only RE] [--skip RE] [--deadline 440]
                                     [--beside 5 --room 95] [--dry]

It runs in the interpreter that is measured: torch, transformers and peft, and bitsandbytes where it is there; the package
itself is not needed. The cases are those of fit_cases.json, in the words of ``gpuready.fit.FitJob``. Every case is a process of its
own. Written are ``exam.jsonl``, one line a case as soon as it ends (bytes: ``allocated``, ``reserved``, ``device``, ``phases``),
and ``exam-tapes.jsonl.gz``, what the allocator was asked (a number is an allocation, its complement frees the n-th one, text
ends a phase) and where its segments lay (``segments``: after how many events, size, address; a size below zero is given back).

With the frozen predictions (``fit_exam.py freeze``) the cases marked ``caps`` run again under two caps: just over the
smallest reserve that is said to survive, and clearly under it. ``--beside`` runs that many at once, as long as what is predicted
for them stays within ``--room`` GiB; what needs more runs alone. ``--dry`` plays tiny models on the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import gc
import gzip
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fit_play import built, by_trainer, generate, ready, train

HERE = Path(__file__).resolve().parent
OVER, UNDER = 1.004, 0.975  # caps, as shares of the smallest reserve that is said to survive
LARGEST_TAPE = 300_000  # events
LARGEST_LINE, LARGEST_FILE = 1 << 20, 14 << 20  # bytes of one tape, and of the file of all
TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "moe_intermediate_size": 32, "num_experts": 4,
    "num_experts_per_tok": 2, "num_local_experts": 4, "head_dim": 16, "sliding_window": 8, "shared_expert_intermediate_size": 32,
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "micro_batch": 1, "seq": 2048, "method": "full", "precision": "bf16", "optimizer": "adamw", "checkpointing": "none", "attention": "sdpa",
    "accumulation": 1, "loss": "plain", "lora_r": 16, "lora_targets": "all", "lora_dtype": "fp32", "lora_dropout": 0.0,
    "dora": False, "autocast": "", "quant": "", "double_quant": False, "kbit": False, "keep_outputs": False,
    "padded": False, "dpo": False, "clip": True, "loop": "plain", "alloc_conf": "", "task": "train", "new_tokens": 32,
    "cache": "dynamic",
}  # fmt: skip


class Meter:
    """The allocator's own peaks, phase by phase."""

    def __init__(self, torch: Any, device: str) -> None:
        self.cuda = torch.cuda if device == "cuda" else None
        self.phases: dict[str, list[int]] = {}
        self.times: list[tuple[int, str]] = []
        self.allocated = self.reserved = 0

    def mark(self, phase: str, counts: bool = True) -> None:
        """A phase ends: its peaks are kept and start anew."""
        self.times.append((time.time_ns() // 1000, phase))
        if self.cuda is None:
            return
        said = self.cuda.memory_stats()
        peaks = said["allocated_bytes.all.peak"], said["reserved_bytes.all.peak"]
        self.phases[phase] = [*peaks, said["allocated_bytes.all.current"]]
        if counts:
            self.allocated, self.reserved = max(self.allocated, peaks[0]), max(self.reserved, peaks[1])
        self.cuda.reset_peak_memory_stats()


# --------------------------------------------------------------------------------------------- one process
def play(case: dict[str, Any], config: dict[str, Any], device: str, out: str) -> dict[str, Any]:
    """One case from the bare process on."""
    import torch

    job = argparse.Namespace(**(DEFAULTS | case["job"]))
    if job.method == "qlora" and not job.quant:
        job.quant, job.double_quant = "nf4", True
    cuda, meter = device == "cuda", Meter(torch, device)
    if cuda:
        if job.alloc_conf:
            torch.cuda.memory._set_allocator_settings(job.alloc_conf)
        total = torch.cuda.get_device_properties(0).total_memory
        if case.get("cap"):
            torch.cuda.set_per_process_memory_fraction(min(1.0, case["cap"] / total))
        else:
            torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=LARGEST_TAPE)
    torch.manual_seed(0)
    status, said = "ok", ""
    try:
        model, other = (
            (built(job, config, device).eval(), None) if job.task == "generate" else ready(job, config, device)
        )
        gc.collect()
        if cuda:
            torch.cuda.empty_cache()
        meter.mark("build", counts=False)
        if job.task == "generate":
            generate(job, model, (1, model.config.vocab_size), device, meter)
        elif job.loop == "trainer":
            by_trainer(job, model, model.config.vocab_size, device, meter, out)
        else:
            train(job, model, other, model.config.vocab_size, device, meter)
    except Exception as wrong:
        status = (
            "oom"
            if isinstance(wrong, torch.OutOfMemoryError)
            else "absent"
            if isinstance(wrong, ImportError)
            else "error"
        )
        said = f"{type(wrong).__name__}: {wrong}"[:600]
    found = {**case, "config": config, "status": status, "said": said, "allocated": meter.allocated}
    found |= {"reserved": meter.reserved, "phases": meter.phases, "versions": versions()}
    if cuda and not case.get("cap") and status == "ok":
        keep_tape(torch, case["id"], meter, out)
    if cuda:
        said_now = torch.cuda.memory_stats()
        found["retries"] = said_now.get("num_alloc_retries", 0)
        found["device"], own = used(), held()
        if own:
            found["outside"] = own - said_now["reserved_bytes.all.current"]
    return found


def keep_tape(torch: Any, name: str, meter: Meter, out: str) -> None:
    """What the allocator was asked, in its own order."""
    events: list[int | str] = []
    segments: list[tuple[int, int, int]] = []
    numbers: dict[int, int] = {}
    marks, births = list(meter.times), 0
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        while marks and entry.get("time_us", 0) > marks[0][0]:
            events.append(marks.pop(0)[1])
        if entry["action"] == "alloc":
            numbers[entry["addr"]] = births
            births += 1
            events.append(entry["size"])
        elif entry["action"] == "free_completed" and entry["addr"] in numbers:
            events.append(~numbers.pop(entry["addr"]))
        elif entry["action"] in ("segment_alloc", "segment_map"):
            segments.append((len(events), entry["size"], entry["addr"]))
        elif entry["action"] in ("segment_free", "segment_unmap"):
            segments.append((len(events), -entry["size"], entry["addr"]))
    settings = {"id": name, "events": events, "segments": segments}
    line = gzip.compress((json.dumps(settings, separators=(",", ":")) + "\n").encode(), 6)
    with (Path(out) / "exam-tapes.jsonl.gz").open("ab") as file:  # members one after the other are one gzip file
        fcntl.flock(file, fcntl.LOCK_EX)
        if len(line) <= LARGEST_LINE and os.fstat(file.fileno()).st_size + len(line) <= LARGEST_FILE:
            file.write(line)


def versions() -> dict[str, str]:
    """Of the libraries that decide."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("torch", "transformers", "accelerate", "peft", "bitsandbytes", "liger_kernel", "triton"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def used() -> int:
    """Bytes in use on the first GPU, by NVML; 0 where there is none."""
    found = nvml()
    sizes = (ctypes.c_ulonglong * 3)()
    if not found or found[0].nvmlDeviceGetMemoryInfo(found[1], ctypes.byref(sizes)):
        return 0
    return int(sizes[2])


class Holder(ctypes.Structure):
    """A process on a GPU, as NVML has it."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    )


def held() -> int:
    """Bytes that this process holds on the first GPU; 0 where NVML does not say."""
    found, count, rows = nvml(), ctypes.c_uint(64), (Holder * 64)()
    if not found or found[0].nvmlDeviceGetComputeRunningProcesses_v3(found[1], ctypes.byref(count), rows):
        return 0
    own = [int(row.bytes) for row in rows[: count.value] if row.pid == os.getpid()]
    return own[0] if own and own[0] < 1 << 50 else 0


def nvml() -> tuple[Any, Any] | None:
    """The library and its first GPU."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    handle = ctypes.c_void_p()
    library.nvmlInit_v2()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    return library, handle


def one() -> int:
    """The process of one case: it imports, then waits to be told which."""
    import torch  # noqa: F401
    from transformers import AutoModelForCausalLM  # noqa: F401

    document = json.loads(sys.stdin.read())
    print(
        "\n" + json.dumps(play(document["case"], document["config"], document["device"], document["out"])), flush=True
    )
    os._exit(0)


# -------------------------------------------------------------------------------------------------- parent
class Waiting:
    """A process that imports what a case needs while another is measured.

    Not a fork of a parent with torch imported: something among the imports asks CUDA for its devices, and no child may.
    """

    def __init__(self) -> None:
        words = [sys.executable, __file__, "--one"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def reported(self, line: str, seconds: float) -> dict[str, Any]:
        """What it found; nothing where it was ended at the deadline, or died."""
        try:
            out, _ = self.process.communicate(line, timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return {}
        last = out.strip().rpartition("\n")[2]
        return dict(json.loads(last)) if last.startswith("{") else {}


class Turns:
    """Which case runs next, so that what is predicted for all that run at once stays within the room."""

    def __init__(self, cases: list[dict[str, Any]], sizes: list[float], room: float) -> None:
        self.left = sorted(zip(sizes, range(len(cases)), cases, strict=True), key=lambda one: -one[0])
        self.room, self.held, self.running = room, 0.0, 0
        self.changed = threading.Condition()

    def take(self) -> tuple[float, dict[str, Any]] | None:
        """The largest that has room now, or waits for it; one too large for the room runs alone."""
        with self.changed:
            while self.left:
                for entry in self.left:
                    if self.held + entry[0] <= self.room or not self.running:
                        self.left.remove(entry)
                        self.held, self.running = self.held + entry[0], self.running + 1
                        return entry[0], entry[2]
                self.changed.wait()
        return None

    def give(self, size: float) -> None:
        with self.changed:
            self.held, self.running = self.held - size, self.running - 1
            self.changed.notify_all()


def wanted(options: argparse.Namespace, whole: dict[str, Any]) -> tuple[list[dict[str, Any]], list[float]]:
    """The cases, those under caps where predictions are frozen, and what each is said to hold (GiB)."""
    cases = [
        c
        for c in whole["cases"]
        if re.search(options.only, c["id"]) and not (options.skip and re.search(options.skip, c["id"]))
    ]
    if not options.predictions:
        return cases, [0.0] * len(cases)
    frozen = json.loads(Path(options.predictions).read_text())["cases"]
    if options.beside > 1:
        cases = [c for c in cases if "reserved" in frozen.get(c["id"], {})]
    for case in [c for c in cases if c.get("caps") and not options.no_caps]:
        least = frozen[case["id"]]["minimum"]
        for share in (OVER, UNDER):
            cases.append({**case, "cap": int(least * share), "says": "fits" if share > 1 else "does not fit"})
    sizes = []
    for case in cases:
        said = frozen.get(case["id"], {})
        held = case.get("cap") or said.get("reserved", 0)
        sizes.append((held + max(said.get("overhead", (0,)))) / 2**30)
    return cases, sizes


def worker(options: argparse.Namespace, turns: Turns, models: dict[str, Any], write: Callable[..., None]) -> None:
    """One case after the other, the next process importing already."""
    begun, ready = options.begun, Waiting()
    while turn := turns.take():
        size, case = turn
        left, start = options.deadline - (time.monotonic() - begun), time.monotonic()
        if left < 5:
            print(f"{case['id']} not run: the deadline", flush=True)
            turns.give(size)
            continue
        config = dict(models[case["model"]])
        if options.dry:
            config = {k: TINY.get(k, v) if v is not None else v for k, v in config.items()}
            case = {**case, "job": {**case["job"], "seq": 16, "micro_batch": 2, "new_tokens": 3}}
        line = json.dumps(
            {"case": case, "config": config, "device": "cpu" if options.dry else "cuda", "out": options.out}
        )
        now, ready = ready, Waiting()
        found = now.reported(line, min(options.each, left))
        found = found or {**case, "config": config, "status": "killed", "allocated": 0, "reserved": 0}
        turns.give(size)
        write({**found, "beside": options.beside, "seconds": round(time.monotonic() - start, 2)})
    ready.process.kill()
    ready.process.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", default=os.environ.get("OUT") or ".")
    parser.add_argument("--predictions", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="")
    parser.add_argument("--deadline", type=float, default=440.0)
    parser.add_argument("--each", type=float, default=60.0)
    parser.add_argument("--beside", type=int, default=1)
    parser.add_argument("--room", type=float, default=120.0)
    parser.add_argument("--no-caps", action="store_true")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--one", action="store_true")
    options = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "disabled"}
    if options.one:
        return one()
    if options.beside > 1 and not options.predictions:
        parser.error("--beside needs --predictions: only so is it known what has room at once")
    options.begun = time.monotonic()
    whole = json.loads((HERE / "fit_cases.json").read_text())
    cases, sizes = wanted(options, whole)
    turns, lock = Turns(cases, sizes, options.room), threading.Lock()
    print(f"{len(cases)} cases", flush=True)
    with (Path(options.out) / "exam.jsonl").open("w", buffering=1) as file:

        def write(found: dict[str, Any]) -> None:
            with lock:
                file.write(json.dumps(found) + "\n")
                print(f"{found['id']} {found['model']:20}{found['status']:8}{found['allocated'] / 2**30:9.3f}{found['reserved'] / 2**30:9.3f}"
                      f"{found['seconds']:6.1f} s  {found.get('says', '')} {found.get('said', '')[:90]}", flush=True)  # fmt: skip

        threads = [
            threading.Thread(target=worker, args=(options, turns, whole["models"], write))
            for _ in range(options.beside)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"done after {time.monotonic() - options.begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
