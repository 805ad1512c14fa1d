"""Trace every model type of the installed transformers: its own default config with two layers, a training step, and
a few generated tokens where it has them.

    python benchmarks/architecture_sweep.py [--out FOLDER] [--only RE] [--known causal|other] [--workers 2] [--resume]

It runs in the interpreter whose torch and transformers are swept. Every trace is a forked process with a deadline: a type is
answered, or refused with a reason; a crash is a failure of the sweep. Written are ``architecture-sweep.json`` and
``architecture-sweep.md``.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import resource
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parent / "src" / "gpuready" / "fit" / "scripts"
LAYER_FIELDS = re.compile(
    r"(num_hidden_layers|num_layers|n_layers?|num_(encoder|decoder|blocks)(_layers)?|(encoder|decoder)_layers|depth|num_attention_layers)$"
)
NO_TRAINING = re.compile(
    r"raining is not implemented|is not trainable|does not support training|Training of \S+ is not supported|_forward_unimplemented|required positional argument: 'inference_session'|no class of the type \S+ that can be trained"
)
REQUEST: dict[str, Any] = {
    "micro_batch": 2, "seq": 64, "precision": "bf16", "attention": "sdpa", "checkpointing": "none", "keep_outputs": False, "steps": 1,
    "capability": [9, 0], "accumulation": 1, "new_tokens": 2, "autocast": "", "scaled": False, "lora": None, "quant": "",
    "double_quant": False, "kbit": False, "padded": False, "dpo": False, "reference": False, "folder": "",
}  # fmt: skip


def shrink_config(fields: dict[str, Any], layers: int = 2) -> dict[str, Any]:
    """Return a config with two layers, and without the lists that have one entry per layer."""
    old = {
        value for name, value in fields.items() if LAYER_FIELDS.match(name) and type(value) is int and value > layers
    }
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict) and ("model_type" in value or name.endswith("_config")):
            made[name] = shrink_config(value, layers)
        elif LAYER_FIELDS.match(name) and type(value) is int and value > layers:
            made[name] = layers
        elif not (isinstance(value, list) and len(value) in old):
            made[name] = value
    return made


def candidate_configs(kind: str) -> list[dict[str, Any]]:
    """Return the configs to try: shrunk, and as it comes."""
    import transformers

    plain = {"model_type": kind}
    try:
        fields = transformers.AutoConfig.for_model(kind).to_dict()
    except Exception:
        return [plain]
    fields = {k: v for k, v in fields.items() if k not in ("transformers_version", "architectures")}
    return [shrink_config(fields) | plain, {"num_hidden_layers": 2} | plain, plain]


def run_trace(request: dict[str, Any]) -> dict[str, Any]:
    """Run one trace in this process, and return what counts of its reply."""
    import trace_script

    sys.argv = ["trace", json.dumps(request)]
    sys.stdout = said = io.StringIO()
    trace_script.main()
    reply = json.loads(said.getvalue().strip().rpartition("\n")[2])
    return {
        "result": "answered", "class": reply["class"], "events": len(reply["events"]), "parameters": reply["count"],
        "notes": [note for note in reply["notes"] if not note.startswith("transformers says")],
    }  # fmt: skip


def play_type(kind: str, task: str, precision: str = "bf16") -> dict[str, Any]:
    """Trace a type; the first config that is answered counts, else the reason of the default one.

    A type that transformers itself cannot run in bf16, because it mixes types inside a product, is traced in fp32.
    """
    import known_values

    last: dict[str, Any] = {}
    for config in candidate_configs(kind):
        try:
            return run_trace(REQUEST | {"config": config, "task": task, "precision": precision})
        except known_values.Refusal as wrong:
            last = {"result": "refused", "why": str(wrong)[:300]}
        except Exception as wrong:
            why = f"{type(wrong).__name__}: {str(wrong).strip().partition(chr(10))[0][:240]}"
            last = {"result": "refused", "why": why, "at": find_frames(wrong)}
    if precision == "bf16" and "which a GPU refuses" in last.get("why", ""):
        return play_type(kind, task, "fp32")
    return last


def find_frames(error: BaseException) -> str:
    """Return the innermost lines of models and of the trace, for whoever mends it."""
    rows, frame = [], error.__traceback__
    while frame is not None:
        path = frame.tb_frame.f_code.co_filename
        if "/transformers/" in path or "/scripts/" in path:
            rows.append(f"{path.rpartition('/')[2]}:{frame.tb_lineno}")
        frame = frame.tb_next
    return " < ".join(rows[::-1][:4])


class TraceProcess:
    """A type traced in a forked process with a deadline."""

    def __init__(self, kind: str, task: str, seconds: int) -> None:
        self.kind, self.task, self.seconds = kind, task, seconds
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reader)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(writer, json.dumps(play_type(kind, task)).encode())
            os._exit(0)
        os.close(writer)

    def read_result(self, status: int) -> dict[str, Any]:
        """Return what it found, after its end."""
        with os.fdopen(self.reader) as file:
            text = file.read()
        if text:
            return dict(json.loads(text))
        ended = os.waitstatus_to_exitcode(status)
        if ended in (-signal.SIGXCPU, -signal.SIGKILL):
            return {"result": "refused", "why": f"not traced within {self.seconds} s of CPU time"}
        return {"result": "crashed", "why": f"the process ended with {ended}"}


def load_libraries() -> Any:
    """Import once what every trace needs, and return the trace script as a module."""
    sys.path.insert(0, str(SCRIPTS))
    warnings.filterwarnings("ignore")
    import importlib.util

    from transformers import cache_utils, generation, masking_utils, modeling_utils  # noqa: F401
    from transformers.models.bert import modeling_bert  # noqa: F401
    from transformers.models.llama import modeling_llama  # noqa: F401

    spec = importlib.util.spec_from_file_location("trace_script", SCRIPTS / "trace.py")
    assert spec and spec.loader
    sys.modules["trace_script"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def list_types() -> dict[str, str]:
    """Return every type that has a class of its own, with its group."""
    import transformers
    from transformers.models.auto import modeling_auto

    tables = [n for n in dir(modeling_auto) if n.endswith("_MAPPING_NAMES") and n != "CONFIG_MAPPING_NAMES"]
    owned = {kind for name in tables for kind in getattr(modeling_auto, name)}
    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return {k: "causal" if k in causal else "other" for k in sorted(transformers.CONFIG_MAPPING.keys()) if k in owned}


def sweep(args: argparse.Namespace, rows: dict[str, Any], save: Any) -> None:
    """Trace all types that are not in the rows yet, several at once."""
    load_libraries()
    types = [
        (kind, group)
        for kind, group in list_types().items()
        if re.search(args.only, kind) and args.known in ("", group)
    ]
    tasks = ("train", "generate") if args.generate else ("train",)
    wanted = [(kind, task, group) for task in tasks for kind, group in sorted(types, key=lambda row: row[1])]
    wanted = [row for row in wanted if row[1] not in rows.get(row[0], {})]
    running: dict[int, tuple[TraceProcess, str]] = {}
    while wanted or running:
        while wanted and len(running) < args.workers:
            kind, task, group = wanted.pop(0)
            process = TraceProcess(kind, task, args.seconds)
            running[process.pid] = process, group
        pid, status = os.wait()
        process, group = running.pop(pid)
        found = process.read_result(status)
        rows.setdefault(process.kind, {"group": group})[process.task] = found
        if found.get("why", "").endswith("generates text"):
            found["result"] = "none"
        elif found.get("why", "").startswith(("transformers cannot build", "its config is not one of")):
            found["result"] = "not built"  # the default config of the type makes no model
        elif process.task == "train" and NO_TRAINING.search(found.get("why", "")):
            found["result"] = "no training"  # transformers has no forward with a loss for it, and says so
        print(process.kind, process.task, found["result"], found.get("why", ""), found.get("at", ""), flush=True)
        save()


def count_answered(rows: dict[str, Any], group: str, task: str) -> tuple[int, int]:
    """Return how many of a group were answered, and how many were asked."""
    results = [row[task]["result"] for row in rows.values() if row["group"] == group and task in row]
    results = [one for one in results if one not in ("none", "not built", "no training")]
    return results.count("answered"), len(results)


def format_table(found: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    rows = found["types"]
    lines = [
        "# Every model type of transformers, traced", "",
        f"Made by `benchmarks/architecture_sweep.py` with torch {found['torch']} and transformers {found['transformers']}: the default",
        "config of each type with two layers, two rows of 64 tokens, on the meta device. Listed and not counted: a type whose default config makes no",
        "model (*not built*), and one whose classes transformers itself does not train (*no training*).", "",
        "| group | task | answered | asked |", "|---|---|---|---|",
    ]  # fmt: skip
    for group in ("causal", "other"):
        for task in ("train", "generate"):
            answered, asked = count_answered(rows, group, task)
            share = f"{100 * answered / asked:.1f} %" if asked else ""
            lines.append(f"| {group} | {task} | {answered} ({share}) | {asked} |")
    lines += ["", "| type | class | train | generate |", "|---|---|---|---|"]
    for kind, row in sorted(rows.items()):
        cells = [describe_result(row.get(task)) for task in ("train", "generate")]
        lines.append(f"| {kind} | {row.get('train', {}).get('class', '')} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def describe_result(found: dict[str, Any] | None) -> str:
    if not found or found["result"] == "none":
        return ""
    why = found.get("why", "").replace("|", "/").replace("\n", " ")
    return found["result"] if found["result"] == "answered" else f"{found['result']}: {why[:160]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=str(HERE / "results"))
    parser.add_argument("--only", default="")
    parser.add_argument("--known", default="", choices=("", "causal", "other"))
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--generate", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    import torch
    import transformers

    data = Path(args.out, "architecture-sweep.json")
    rows: dict[str, Any] = json.loads(data.read_text())["types"] if args.resume and data.exists() else {}
    found = {"torch": torch.__version__, "transformers": transformers.__version__, "types": rows}
    sweep(args, rows, lambda: data.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n"))
    Path(args.out, "architecture-sweep.md").write_text(format_table(found))
    return int(
        any(row[task]["result"] == "crashed" for row in rows.values() for task in ("train", "generate") if task in row)
    )


if __name__ == "__main__":
    sys.exit(main())
