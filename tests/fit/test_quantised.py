"""Which layers the trace takes in four bits: those that transformers quantises for bitsandbytes, by its own list."""

from __future__ import annotations

import json
import subprocess

from tests import target_environment

SCRIPTS = target_environment.ROOT / "src" / "gpuready" / "fit" / "scripts"
CODE = """
import json, sys, types
import torch

class Conv1D(torch.nn.Module):
    def __init__(self, out, size):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.empty(size, out, device="meta")), None

class HfQuantizer:
    @staticmethod
    def get_modules_to_not_convert(model, skip_modules, kept):
        return ["head", *kept]

def should_convert_module(path, names):
    return not path.endswith(tuple(names))

def stand_for(name, **holds):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(holds)

for name in ("transformers", "transformers.quantizers"):
    stand_for(name, __path__=[])
stand_for("transformers.pytorch_utils", Conv1D=Conv1D)
if sys.argv[1] == "listed":
    stand_for("transformers.quantizers.base", HfQuantizer=HfQuantizer)
    stand_for("transformers.quantizers.quantizers_utils", should_convert_module=should_convert_module)

import quantised

class Model(torch.nn.Module):
    _keep_in_fp32_modules = ["wo"]

    def __init__(self):
        super().__init__()
        with torch.device("meta"):
            self.inner = torch.nn.ModuleDict({"wi": torch.nn.Linear(64, 192), "wo": torch.nn.Linear(192, 64), "mixed": Conv1D(96, 64)})
            self.head = torch.nn.Linear(64, 512)

    def get_output_embeddings(self):
        return self.head

model = Model()
quantised.quantise_layers(model, torch.bfloat16, True)
found = {path: [one.in_features, one.out_features, one.weight.numel()]
         for path, one in model.named_modules() if isinstance(one, quantised.FourBitLinear)}
print(json.dumps(found))
"""


def list_quantised(which: str) -> dict[str, list[int]]:
    words = [target_environment.python(), "-s", "-c", CODE, which]
    ran = subprocess.run(words, env={"PYTHONPATH": str(SCRIPTS)}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-1000:]
    return dict(json.loads(ran.stdout))


def test_what_transformers_keeps_wide_is_not_quantised_and_a_turned_layer_is():
    assert list_quantised("listed") == {"inner.wi": [64, 192, 64 * 96], "inner.mixed": [64, 96, 64 * 48]}


def test_a_transformers_without_such_a_list_keeps_the_head_alone():
    assert sorted(list_quantised("plain")) == ["inner.mixed", "inner.wi", "inner.wo"]
