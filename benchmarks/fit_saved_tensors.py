"""What a forward pass saves for its backward under autocast: the trace of ``fit`` beside torch's own autocast for CUDA.

    python benchmarks/fit_saved_tensors.py [--out FOLDER] [--only RE] [--every N] [--seconds 40] [--resume]

No GPU is needed: torch's fake tensors have the device cuda, and its own autocast, dropout and types run on them. A build of
torch with CUDA is. Both sides play the default config of a type with two layers, in fp32 under autocast to bf16, with eager
attention: which fused kernel a card takes is measured elsewhere. Written are ``fit-saved-tensors.json`` and lines of types
that differ. A type whose forward pass reads values is not compared: fake tensors have none.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from architecture_sweep import REQUEST, candidate_configs, list_types, load_libraries

HERE = Path(__file__).resolve().parent
TOLERANCE = 0.001


class SavedTensors:
    """The storages that autograd keeps, without those that were there before."""

    def __init__(self, known: Any) -> None:
        self.known = {one.untyped_storage()._cdata for one in known}
        self.kept: dict[int, tuple[Any, str]] = {}

    def pack(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.known:
            name = f"{str(tensor.dtype).removeprefix('torch.')} {storage.nbytes()}"
            self.kept.setdefault(storage._cdata, (storage, name))
        return tensor

    def sizes(self) -> Counter[str]:
        return Counter(name for _, name in self.kept.values())


def save_forward(model: Any, batch: dict[str, Any]) -> Counter[str]:
    """Run one forward pass, and return what it saves."""
    import torch
    from torch.utils._pytree import tree_leaves

    inputs = [one for one in tree_leaves(batch) if isinstance(one, torch.Tensor)]
    saved = SavedTensors([*model.parameters(), *model.buffers(), *inputs])
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
        outputs = model(**batch)
    found = saved.sizes()
    del outputs
    return found


def save_traced(trace: Any, job: dict[str, Any]) -> tuple[Counter[str], Any, dict[str, Any]]:
    """Return what the trace saves, its model, and its batch."""
    import torch

    torch.autocast = autocast = trace.Autocast(torch.bfloat16)  # type: ignore[assignment,misc]
    functional = torch.nn.functional
    functional.dropout, functional.rms_norm = trace.native_dropout, trace.RmsNorm(autocast)
    config, known = trace.read_config(job["config"]), trace.KnownValues()
    with known, trace.KnownNumbers():
        model = trace.build_meta_model(job, config, autocast, [])
        inputs = trace.ModelInputs(model, config, job, known)
        batch = inputs.make()
        batch |= inputs.labels(batch)
        if "use_cache" in inputs.parameters:
            batch["use_cache"] = False
        autocast.forward = True
        with autocast:
            return save_forward(model, batch), model, batch


def move_to_fake(model: Any) -> None:
    """Replace parameters and buffers of the meta device by fake ones of a GPU, those that are shared once."""
    import torch

    made: dict[int, Any] = {}
    for module in model.modules():
        for name, one in module._parameters.items():
            if one is not None:
                fake = made.setdefault(
                    id(one), torch.nn.Parameter(torch.empty_like(one, device="cuda"), one.requires_grad)
                )
                module._parameters[name] = fake
        for name, one in module._buffers.items():
            if one is not None:
                module._buffers[name] = made.setdefault(id(one), torch.empty_like(one, device="cuda"))


def save_fake(model: Any, batch: dict[str, Any]) -> Counter[str]:
    """Return what torch itself saves, on fake tensors of a GPU."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_map

    with FakeTensorMode(allow_non_fake_inputs=True):
        move_to_fake(model)
        batch = tree_map(lambda x: torch.empty_like(x, device="cuda") if isinstance(x, torch.Tensor) else x, batch)
        torch.set_autocast_dtype("cuda", torch.bfloat16)  # torch.autocast does nothing where no GPU is
        torch.set_autocast_enabled("cuda", True)
        return save_forward(model, batch)


def compare_type(kind: str) -> dict[str, Any]:
    """Compare one type by the first config that the trace plays."""
    import torch
    import trace_script as trace

    functional, last = torch.nn.functional, {}
    before = torch.autocast, functional.dropout, functional.rms_norm
    for fields in candidate_configs(kind):
        job = REQUEST | {
            "config": fields,
            "task": "train",
            "precision": "fp32",
            "autocast": "bf16",
            "attention": "eager",
        }
        try:
            ours, model, batch = save_traced(trace, job)
        except Exception as wrong:
            last = {"result": "not traced", "why": f"{type(wrong).__name__}: {str(wrong).strip()[:160]}"}
            continue
        finally:
            torch.autocast, functional.dropout, functional.rms_norm = before  # type: ignore[misc]
        try:
            theirs = save_fake(model, batch)
        except Exception as wrong:
            return {"result": "not compared", "why": f"{type(wrong).__name__}: {str(wrong).strip()[:160]}"}
        return describe_difference(ours, theirs)
    return last


def describe_difference(ours: Counter[str], theirs: Counter[str]) -> dict[str, Any]:
    sums = [sum(int(name.split()[1]) * count for name, count in one.items()) for one in (ours, theirs)]
    error = sums[0] / sums[1] - 1 if sums[1] else 0.0
    found: dict[str, Any] = {"result": "differs" if abs(error) > TOLERANCE else "same", "error": round(error, 5)}
    if found["result"] == "differs":
        found |= {"only ours": (ours - theirs).most_common(4), "only theirs": (theirs - ours).most_common(4)}
    return found


def compare_apart(kind: str, seconds: int) -> dict[str, Any]:
    """Compare one type in a forked process with a deadline."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(writer, json.dumps(compare_type(kind)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    return dict(json.loads(text)) if text else {"result": "not traced", "why": f"the process ended with {status}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", default=str(HERE / "results"))
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    load_libraries()
    import torch
    import transformers

    data = Path(options.out, "fit-saved-tensors.json")
    rows: dict[str, Any] = json.loads(data.read_text())["types"] if options.resume and data.exists() else {}
    for kind in [one for one in list_types() if re.search(options.only, one) and one not in rows][:: options.every]:
        rows[kind] = compare_apart(kind, options.seconds)
        print(kind, json.dumps(rows[kind]), flush=True)
        counts = dict(Counter(row["result"] for row in rows.values()))
        found = {"torch": torch.__version__, "transformers": transformers.__version__, "counts": counts, "types": rows}
        data.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
