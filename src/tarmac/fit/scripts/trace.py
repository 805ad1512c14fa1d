"""Runs in the patient: one model without data on torch's meta device, two steps of training, every birth and death.

The job comes as JSON in the first argument; one line of JSON goes out. Attention is one fused kernel's memory where the card
has one, since the meta device has none.
"""

import json
import sys
import weakref

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Recorder(TorchDispatchMode):
    """A number is a birth, its complement the death of the n-th one; text ends a phase."""

    def __init__(self):
        super().__init__()
        self.events, self.known, self.births = [], set(), 0

    def add(self, tensor):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.known or not size:
            return
        self.known.add(key)
        self.events.append(size)
        weakref.finalize(storage, self.drop, key, self.births)
        self.births += 1

    def drop(self, key, number):
        self.known.discard(key)
        self.events.append(~number)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out


class Fused(torch.autograd.Function):
    """What a fused attention kernel keeps, and asks for backwards."""

    @staticmethod
    def forward(ctx, q, k, v):
        out = torch.empty_like(q)
        sums = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
        ctx.save_for_backward(q, k, v, out, sums)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, _, _ = ctx.saved_tensors
        made = [torch.empty_like(x) for x in (q, k, v)]
        torch.empty(q.shape, dtype=torch.float32, device=q.device)
        return tuple(made)


def fused(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return Fused.apply(q, k, v)


def built(job):
    fields = dict(job["config"])
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(job["precision"], torch.float32)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=job["attention"]
        )
    model.tie_weights()
    model.train()
    if job["checkpointing"] != "none":
        kinds = {"use_reentrant": job["checkpointing"] == "reentrant"}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kinds)
        if kinds["use_reentrant"]:
            model.enable_input_require_grads()
    return model


def without_data():
    """The meta device has no values to look at: nothing is packed."""
    try:
        from transformers import masking_utils
    except ImportError:  # an older one, which does not look
        return
    masking_utils.find_packed_sequence_indices = lambda *given, **named: None


def steps(job, model, recorder):
    ids = torch.empty((job["micro_batch"], job["seq"]), dtype=torch.long, device="meta")
    recorder.add(ids)
    for step in range(job["steps"]):
        outputs = model(input_ids=ids, labels=ids, use_cache=False)
        loss = outputs.loss
        if not job["keep_outputs"]:
            del outputs
        recorder.events.append(f"fwd{step}")
        loss.backward()
        loss = outputs = None
        recorder.events.append(f"bwd{step}")
        recorder.events.append(f"step{step}")
        model.zero_grad(set_to_none=True)
        recorder.events.append(f"zero{step}")


def main():
    job = json.loads(sys.argv[1])
    if job["fused"]:
        torch.nn.functional.scaled_dot_product_attention = fused
    without_data()
    model = built(job)
    recorder = Recorder()
    for tensor in (*model.parameters(), *model.buffers()):
        recorder.add(tensor)
    recorder.events.append("build")
    with recorder:
        steps(job, model, recorder)
        events = list(recorder.events)
    parameters = [[list(p.shape), p.element_size()] for p in model.parameters() if p.requires_grad]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print("\n" + json.dumps({"events": events, "parameters": parameters, "versions": versions}))


main()
