"""Traces of a small model, by the scripts in a real torch without transformers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from gpuready.fit import H200, FitJob
from gpuready.fit.search import traced_prediction
from tests.fit.torch_forks import SCRIPTS, run_in_torch

KITE = {"model_type": "kite", "hidden_size": 64, "vocab_size": 512}
KITE_COUNT = 2 * 512 * 64 + 3 * 64 * 64
REFUSED_KITES = {
    "remote": ({"auto_map": {"AutoConfig": "configuration_own.Own"}}, "brings code of its own"),
    "inside": ({"text_config": {"auto_map": {"AutoConfig": "own.Own"}}}, "brings code of its own"),
    "unknown": ({"model_type": "nobody-has-this"}, "has no model type 'nobody-has-this'"),
    "layers": ({"num_hidden_layers": 10**9}, "1000000000 layers"),
    "words": ({"hidden_size": "many"}, "is not one of kite: TypeError"),
    "class": ({"architectures": ["KiteForNobody"]}, "has no class 'KiteForNobody'"),
    "no class": ({"model_type": "stone"}, "no class of the type stone that can be trained"),
    "negative": ({"hidden_size": -4}, "cannot build KiteForCausalLM from this config: ValueError"),
    "mixed types": ({"wide_head": True}, "mixes bfloat16 and float32 in mm, which a GPU refuses"),
    "kept in fp32": ({"kept": ["he*d"]}, "mixes bfloat16 and float32 in mm, which a GPU refuses"),
}


PLAYER = Path(__file__).with_name("play_traces.py")


def play(python: str, folder: Path, asked: dict[str, FitJob], more: dict[str, dict] | None = None) -> dict[str, dict]:
    """The replies of the trace script to these jobs, played after one import of torch by this Python, or by the one that forks."""
    requests = {name: traced_prediction.build_trace_request(job.validate_fields(), H200) for name, job in asked.items()}
    requests |= more or {}
    (folder / "asked").write_text(json.dumps(requests))
    words = str(SCRIPTS), str(folder / "asked")
    if python:
        ran = subprocess.run([python, "-s", str(PLAYER), *words], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr[-1000:]
    else:
        run_in_torch(folder, PLAYER, *words, path=[folder])
    return {name: json.loads((folder / f"asked.{name}").read_text()) for name in requests}
