"""Trace every model type of the installed transformers: its own default config with two layers, a training step, and
a few generated tokens where it has them.

    python benchmarks/architecture_sweep.py [--out FOLDER] [--only RE] [--known causal|other] [--seconds 60]

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
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parent / "src" / "gpuready" / "fit" / "scripts"
LAYER_FIELDS = re.compile(
    r"(num_hidden_layers|num_layers|n_layers?|num_(encoder|decoder|blocks)(_layers)?|(encoder|decoder)_layers|depth|num_attention_layers)$"
)
REQUEST: dict[str, Any] = {
    "micro_batch": 2, "seq": 64, "precision": "bf16", "attention": "sdpa", "checkpointing": "none", "keep_outputs": False, "steps": 1,
    "capability": [9, 0], "accumulation": 1, "new_tokens": 2, "autocast": "", "scaled": False, "lora": None, "quant": "",
    "double_quant": False, "kbit": False, "padded": False, "dpo": False, "reference": False, "folder": "",
}  # fmt: skip
LONG_INPUTS = {"seq": 16000}  # samples of a waveform


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


def play_type(kind: str, task: str) -> dict[str, Any]:
    """Trace a type; the first config that is answered counts, else the first reason."""
    import known_values
    import model_inputs

    first: dict[str, Any] = {}
    for config in candidate_configs(kind):
        try:
            return run_trace(REQUEST | {"config": config, "task": task})
        except (model_inputs.Refusal, known_values.NeedsValues) as wrong:
            first = first or {"result": "refused", "why": str(wrong)[:300]}
        except Exception as wrong:
            why = f"{type(wrong).__name__}: {str(wrong).strip().partition(chr(10))[0][:240]}"
            first = first or {"result": "refused", "why": why, "at": find_frames(wrong)}
    return first


def find_frames(error: BaseException) -> str:
    """Return the innermost lines of models and of the trace, for whoever mends it."""
    rows, frame = [], error.__traceback__
    while frame is not None:
        path = frame.tb_frame.f_code.co_filename
        if "/transformers/" in path or "/scripts/" in path:
            rows.append(f"{path.rpartition('/')[2]}:{frame.tb_lineno}")
        frame = frame.tb_next
    return " < ".join(rows[::-1][:4])


def fork_trace(kind: str, task: str, seconds: int) -> dict[str, Any]:
    """Trace a type in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(seconds)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        found = play_type(kind, task)
        with os.fdopen(writer, "w") as file:
            file.write(json.dumps(found))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    if text:
        return dict(json.loads(text))
    ended = os.waitstatus_to_exitcode(status)
    if ended == -signal.SIGALRM:
        return {"result": "refused", "why": f"not traced within {seconds} s"}
    return {"result": "crashed", "why": f"the process ended with {ended}"}


def sweep(told: argparse.Namespace) -> dict[str, Any]:
    """Trace all types, and return the table."""
    sys.path.insert(0, str(SCRIPTS))
    warnings.filterwarnings("ignore")
    import importlib.util

    import torch
    import transformers
    from transformers import cache_utils, generation, masking_utils, modeling_utils  # noqa: F401
    from transformers.models.auto import modeling_auto
    from transformers.models.bert import modeling_bert  # noqa: F401
    from transformers.models.llama import modeling_llama  # noqa: F401

    spec = importlib.util.spec_from_file_location("trace_script", SCRIPTS / "trace.py")
    assert spec and spec.loader
    sys.modules["trace_script"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    causal = set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    rows = []
    for kind in sorted(transformers.CONFIG_MAPPING.keys()):
        group = "causal" if kind in causal else "other"
        if not re.search(told.only, kind) or told.known not in ("", group):
            continue
        if not any(
            kind in getattr(modeling_auto, name)
            for name in dir(modeling_auto)
            if name.endswith("_MAPPING_NAMES") and name != "CONFIG_MAPPING_NAMES"
        ):
            continue  # a part of other models, with no class of its own
        begun = time.monotonic()
        row = {"type": kind, "group": group, "train": fork_trace(kind, "train", told.seconds)}
        row["generate"] = fork_trace(kind, "generate", told.seconds) if told.generate else {}
        row["seconds"] = round(time.monotonic() - begun, 1)
        rows.append(row)
        print(
            kind,
            row["train"]["result"],
            row["train"].get("why", ""),
            row["train"].get("at", ""),
            "|",
            row["generate"].get("result", ""),
            row["generate"].get("why", ""),
            row["generate"].get("at", ""),
            flush=True,
        )
    return {"torch": torch.__version__, "transformers": transformers.__version__, "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=str(HERE / "results"))
    parser.add_argument("--only", default="")
    parser.add_argument("--known", default="", choices=("", "causal", "other"))
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--generate", action=argparse.BooleanOptionalAction, default=True)
    told = parser.parse_args()
    found = sweep(told)
    Path(told.out, "architecture-sweep.json").write_text(json.dumps(found, indent=1) + "\n")
    return int(any(row[task].get("result") == "crashed" for row in found["rows"] for task in ("train", "generate")))


if __name__ == "__main__":
    sys.exit(main())
