"""Which layers the trace takes in four bits: those that transformers quantises for bitsandbytes, by its own list."""

from __future__ import annotations

import json

import pytest

from tests.fit.torch_forks import run_in_torch

CODE = """
import json, os, sys, types
import torch

is_listed = not os.fork()
if not is_listed:
    os.wait()

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
if is_listed:
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
print(json.dumps(found), flush=True)
"""


@pytest.fixture(scope="module")
def quantised(tmp_path_factory) -> list[dict[str, list[int]]]:
    """The layers with a transformers that has such a list, and with one that has none."""
    folder = tmp_path_factory.mktemp("quantised")
    (folder / "code.py").write_text(CODE)
    out, _ = run_in_torch(folder, folder / "code.py")
    return [json.loads(line) for line in out.splitlines()]


def test_what_transformers_keeps_wide_is_not_quantised_and_a_turned_layer_is(quantised):
    assert quantised[0] == {"inner.wi": [64, 192, 64 * 96], "inner.mixed": [64, 96, 64 * 48]}


def test_a_transformers_without_such_a_list_keeps_the_head_alone(quantised):
    assert sorted(quantised[1]) == ["inner.mixed", "inner.wi", "inner.wo"]
