"""What a step that waits for the host takes, by process and by the cores that it may use, and which part of the step differs.

    python benchmarks/host_placement.py -o FILE [--device cuda] [--seconds 0.25] [--budget 280]

Runs in an interpreter with torch and transformers. Every placement (all cores, one core, two, a half of them, a fresh interpreter) has a
process of its own; in each the same models run in turn, in blocks: the small Llama of `gpuready bench` at three depths, a wider one, with and
without an optimizer, checkpointing, the backward pass on the thread of the forward pass, and generation. All times are of the host.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src/gpuready/prove/scripts")]
from benchmarks.host_cores import describe_machine, read_text, time_chase, time_cores, time_loop, time_wakes  # noqa: E402

TINY = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
WIDE = {"hidden_size": 1536, "intermediate_size": 4096, "num_attention_heads": 12, "num_key_value_heads": 4}
# Block: sizes, layers, tokens, and what is done.
BLOCKS: dict[str, tuple[dict[str, int], int, int, frozenset[str]]] = {
    "tiny1": (TINY, 1, 16, frozenset()),
    "tiny9": (TINY, 9, 16, frozenset()),
    "tiny24": (TINY, 24, 16, frozenset()),
    "tiny9 synced": (TINY, 9, 16, frozenset({"synced"})),
    "tiny9 adamw": (TINY, 9, 16, frozenset({"adamw"})),
    "tiny24 adamw": (TINY, 24, 16, frozenset({"adamw"})),
    "wide24 adamw": (WIDE, 24, 16, frozenset({"adamw"})),
    "wide24 256 adamw": (WIDE, 24, 256, frozenset({"adamw"})),
    "wide24 256": (WIDE, 24, 256, frozenset()),
    "wide24 256 adamw no gc": (WIDE, 24, 256, frozenset({"adamw", "no gc"})),
    "wide24 256 adamw one thread": (WIDE, 24, 256, frozenset({"adamw", "one thread"})),
    "wide24 256 adamw layers": (WIDE, 24, 256, frozenset({"adamw", "layers"})),
    "tiny24 checkpointing": (TINY, 24, 16, frozenset({"checkpointing"})),
    "wide24 256 checkpointing": (WIDE, 24, 256, frozenset({"adamw", "checkpointing"})),
    "tiny9 decode": (TINY, 9, 16, frozenset({"decode"})),
    "tiny24 decode": (TINY, 24, 16, frozenset({"decode"})),
    "wide24 256 decode": (WIDE, 24, 256, frozenset({"decode"})),
}
NEW_TOKENS = 12
LIBC = ctypes.CDLL(None)


def list_placements(count: int) -> list[dict[str, Any]]:
    """Return the cores of every process: none means all; ``fresh`` starts an interpreter anew, the others are forked."""
    half = max(1, count // 2)
    a, b, far = count // 4, min(count - 1, count // 4 + 1), (count // 4 + half) % count
    huge = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    return [
        {"name": "all cores"},
        {"name": "one core", "cpus": [a]},
        {"name": "all cores"},
        {"name": "two neighbours", "cpus": [a, b]},
        {"name": "two far apart", "cpus": [a, far]},
        {"name": "fresh", "fresh": True},
        {"name": "first half", "cpus": list(range(half))},
        {"name": "second half", "cpus": list(range(half, count))},
        {"name": "all cores"},
        {"name": "fresh, huge pages", "fresh": True, "env": huge},
        {"name": "one core", "cpus": [far]},
        {"name": "fresh", "fresh": True},
        {"name": "all cores"},
    ]


# -- in a process -----------------------------------------------------------------------------------------------------


def measure_placement(placement: dict[str, Any], device: str, seconds: float) -> dict[str, Any]:
    if placement.get("cpus"):
        os.sched_setaffinity(0, placement["cpus"])
    import torch

    row: dict[str, Any] = {**placement, "speed": [_core_speed()], "wakes": time_wakes(), "blocks": {}}
    bench = HostBench(torch, torch.device(device))
    row["bench"] = bench.measure_bench()
    for names in (BLOCKS, reversed(BLOCKS)):
        for name in names:
            row["blocks"].setdefault(name, []).append(bench.run_block(name, seconds))
    row["bench again"] = bench.measure_bench()
    row["speed"].append(_core_speed())
    row["stat"] = read_text("/proc/stat").splitlines()[0]
    return row


def _core_speed() -> dict[str, float]:
    return {"loop": min(time_loop() for _ in range(8)), "chase": min(time_chase() for _ in range(3))}


class HostBench:
    """The models of the blocks, and the host's times of their steps."""

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch, self.device, self.models = torch, device, {}  # type: Any, Any, dict[Any, Any]

    def measure_bench(self) -> dict[str, Any]:
        from bench_eager import DEEP, SHALLOW, EagerBench

        bench = EagerBench(self.torch, self.device)
        found: dict[str, Any] = {}
        for turn in ("step", "decode"):
            times = {
                depth: [getattr(bench, f"time_{turn}")(model) for _ in range(6)]
                for depth, model in bench.models.items()
            }
            for what in times[DEEP][0]:
                shallow, deep = (statistics.median(one[what] for one in times[depth][1:]) for depth in (SHALLOW, DEEP))
                layer = (deep - shallow) / (DEEP - SHALLOW)
                found[what] = {"layer": layer, "rest": shallow - SHALLOW * layer}
        return found

    def _model(self, sizes: dict[str, int], layers: int) -> tuple[Any, Any]:
        import transformers

        key = sizes["hidden_size"], layers
        if key not in self.models:
            config = transformers.AutoConfig.for_model(
                "llama", **sizes, num_hidden_layers=layers, vocab_size=32000 if sizes is WIDE else 1024, pad_token_id=0
            )
            self.torch.set_default_dtype(self.torch.bfloat16)
            with self.device:
                model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
            self.torch.set_default_dtype(self.torch.float32)
            self.models[key] = model, self.torch.optim.AdamW(model.parameters(), lr=1e-5)
        return self.models[key]

    def run_block(self, name: str, seconds: float) -> dict[str, Any]:
        sizes, layers, count, does = BLOCKS[name]
        model, optimizer = self._model(sizes, layers)
        tokens = self.torch.randint(5, 900, (1, count), device=self.device)
        if "decode" in does:
            return self._run_answers(model, tokens, seconds)
        model.train()
        model.config.use_cache = False
        if "checkpointing" in does:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        marks: list[float] = []
        hooks = [
            layer.register_forward_pre_hook(lambda *_: marks.append(time.perf_counter()))
            for layer in (model.model.layers if "layers" in does else ())
        ]
        if "no gc" in does:
            gc.disable()
        try:
            with self.torch.autograd.set_multithreading_enabled("one thread" not in does):
                steps = self._run_steps(model, optimizer if "adamw" in does else None, tokens, seconds, does, marks)
        finally:
            gc.enable()
            for hook in hooks:
                hook.remove()
            if "checkpointing" in does:
                model.gradient_checkpointing_disable()
        return {**_middles(steps), "threads": _thread_states()}

    def _run_steps(
        self, model: Any, optimizer: Any, tokens: Any, seconds: float, does: frozenset[str], marks: list[float]
    ) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(steps) < 5:
            marks.clear()
            self._wait()
            clock, cpu, cores = [time.perf_counter()], [time.thread_time()], [LIBC.sched_getcpu()]
            for call in ("forward", "backward", "optimizer"):
                if call == "forward":
                    loss = model(input_ids=tokens, labels=tokens).loss
                elif call == "backward":
                    loss.backward()
                elif optimizer is not None:
                    optimizer.step()
                if "synced" in does:
                    self._wait()
                clock.append(time.perf_counter())
                cpu.append(time.thread_time())
                cores.append(LIBC.sched_getcpu())
            self._wait()
            clock.append(time.perf_counter())
            model.zero_grad()
            del loss
            steps.append({"clock": clock, "cpu": cpu, "cores": cores, "marks": list(marks)})
        return steps[1:]

    def _run_answers(self, model: Any, tokens: Any, seconds: float) -> dict[str, Any]:
        model.eval()
        model.config.use_cache = True
        turns = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(turns) < 4:
            spent = []
            for count in (1, 1 + NEW_TOKENS):
                self._wait()
                begun = time.perf_counter()
                with self.torch.no_grad():
                    options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
                    model.generate(tokens, max_new_tokens=count, min_new_tokens=count, **options)
                self._wait()
                spent.append(time.perf_counter() - begun)
            turns.append((spent[1] - spent[0]) / NEW_TOKENS)
        return {"token": statistics.median(turns[1:]), "least": min(turns[1:]), "core": LIBC.sched_getcpu()}

    def _wait(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)


def _middles(steps: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"steps": len(steps)}
    for at, part in enumerate(("forward", "backward", "optimizer", "wait")):
        spent = [step["clock"][at + 1] - step["clock"][at] for step in steps]
        found[part] = [round(one * 1e6) for one in (statistics.median(spent), min(spent), max(spent))]
        if at < 3:
            found[part].append(round(statistics.median(step["cpu"][at + 1] - step["cpu"][at] for step in steps) * 1e6))
    found["cores"] = [len({step["cores"][at] for step in steps}) for at in range(3)] + steps[-1]["cores"]
    if steps[0]["marks"]:
        gaps = zip(*([b - a for a, b in zip(s["marks"], s["marks"][1:], strict=False)] for s in steps), strict=True)
        found["layers"] = [round(statistics.median(column) * 1e6) for column in gaps]
    return found


def _thread_states() -> dict[str, list[float]]:
    """Return run time, wait for a core (seconds), the last core and the switches of the busiest threads of this process."""
    found: dict[str, list[float]] = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):
            ran, waited, switches = map(int, (task / "schedstat").read_text().split())
            name = (task / "comm").read_text().strip()
            core = int((task / "stat").read_text().rpartition(")")[2].split()[36])
            if ran > 2e7:
                found[f"{name} {task.name}"] = [round(ran / 1e9, 3), round(waited / 1e9, 4), core, switches]
    return found


# -- all processes ----------------------------------------------------------------------------------------------------


def _put_placement(placement: dict[str, Any], device: str, seconds: float, queue: Any) -> None:
    try:
        queue.put(measure_placement(placement, device, seconds))
    except Exception as error:
        queue.put({**placement, "error": f"{type(error).__name__}: {error}"[:400]})


def run_placement(placement: dict[str, Any], requested: argparse.Namespace, limit: float) -> dict[str, Any]:
    begun = time.time()
    if placement.get("fresh"):
        asked = ["--one", json.dumps(placement), "--device", requested.device, "--seconds", str(requested.seconds)]
        environment = {**os.environ, **placement.get("env", {})}
        done = subprocess.run(
            [sys.executable, __file__, *asked], capture_output=True, text=True, timeout=limit, env=environment
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        row = json.loads(lines[-1]) if lines else {**placement, "error": done.stderr[-600:]}
    else:
        queue = multiprocessing.get_context("fork").Queue()
        asked_of = (placement, requested.device, requested.seconds, queue)
        child = multiprocessing.get_context("fork").Process(target=_put_placement, args=asked_of)
        child.start()
        row = queue.get(timeout=limit)
        child.join(15)
    return {**row, "wall": round(time.time() - begun, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="host-placement.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--budget", type=float, default=280)
    parser.add_argument("--most", type=int, default=99)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    requested = parser.parse_args()
    if requested.one:
        print(json.dumps(measure_placement(json.loads(requested.one), requested.device, requested.seconds)))
        return
    begun, count = time.time(), os.cpu_count() or 1
    whole: dict[str, Any] = {"machine": describe_machine(), "cores": time_cores(count), "rows": []}
    import torch
    import transformers

    whole["versions"] = {"torch": torch.__version__, "transformers": transformers.__version__}
    for placement in list_placements(count)[: requested.most]:
        left = requested.budget - (time.time() - begun)
        if left < 25:
            break
        try:
            whole["rows"].append(run_placement(placement, requested, left))
        except Exception as error:
            whole["rows"].append({**placement, "error": f"{type(error).__name__}: {error}"[:400]})
        row = whole["rows"][-1]
        print(placement["name"], row.get("wall"), row.get("error") or row["bench"], flush=True)
        Path(requested.output).write_text(json.dumps(whole) + "\n")


if __name__ == "__main__":
    main()
