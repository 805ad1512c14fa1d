"""Runs in the target environment: runs steps of a job on torch's meta device and records every allocation and
free.

The job is JSON in the first argument; the output is one line of JSON. Differences between the meta device and a
GPU are handled in emulation.py.
"""

import inspect
import json
import sys
import weakref

import torch
import transformers
from emulation import Attention, Autocast
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

HALF_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
ADD_TENSOR_OP = torch.ops.aten.add.Tensor
PRODUCT_MARKS = {
    "mm": "!product",
    "bmm": "!product",
    "addmm": "!biased",
    "baddbmm": "!product",
    "_grouped_mm": "!product",
}


class AllocationRecorder(TorchDispatchMode):
    """Records events: a number is an allocation, its complement frees the n-th one.

    Text ends a phase; ``=kind`` sets the kind of what follows, ``!`` marks a matrix product.
    """

    def __init__(self):
        super().__init__()
        self.events, self.numbers, self.by, self.names = [], {}, [], {}
        self.sum = None  # the last sum, and the position of its allocation
        self.backward, self.products = False, set()

    def add(self, tensor, name=""):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.numbers or not size:
            return False
        self.sum = None
        self.numbers[key] = len(self.by)
        self.by.append(self.names.setdefault(name, len(self.names)))
        self.events.append(size)
        weakref.finalize(storage, self.drop, key)
        return True

    def drop(self, key):
        number = self.numbers.pop(key)
        if self.sum is None or self.sum[0] != key:
            self.events.append(~number)
            return
        # The summand is freed at once: on a GPU, without this recorder, torch would have added in place.
        _, new, at = self.sum
        self.sum = None
        del self.events[at], self.by[-1]
        self.numbers[new] = number

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and self.add(leaf, name) and func is ADD_TENSOR_OP:
                self.added(args[0], leaf)
        if name == "_softmax_backward_data":  # the CUDA kernel first multiplies gradient and result
            beside = torch.empty(args[0].shape, dtype=args[0].dtype, device="meta")
            self.add(beside, name)
            del beside
        if name in PRODUCT_MARKS and (name, self.backward) not in self.products:
            self.products.add((name, self.backward))
            self.events.append(PRODUCT_MARKS[name])
        return out

    def added(self, old, new):
        if self.backward and not torch.is_grad_enabled() and isinstance(old, torch.Tensor) and old._base is None:
            keys = [one.untyped_storage() for one in (old, new)]
            if keys[0].nbytes() == keys[1].nbytes():
                self.sum = keys[0]._cdata, keys[1]._cdata, len(self.events) - 1

    def mark(self, *several):
        self.sum = None
        self.events.extend(several)


def build_meta_model(job, autocast):
    fields = dict(job["config"])
    if "auto_map" in fields:
        raise SystemExit("its config brings code of its own (auto_map), which is not run here")
    config = transformers.AutoConfig.for_model(fields.pop("model_type", ""), **fields)
    options = {"dtype": HALF_DTYPES.get(job["precision"], torch.float32), "attn_implementation": job["attention"]}
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, **options)
        model.tie_weights()
        if job["lora"]:
            model = add_lora_adapters(model, job["lora"])
    if job["task"] == "generate":
        return model.eval()
    model.train()
    if job["checkpointing"] != "none":
        kinds = {"use_reentrant": job["checkpointing"] == "reentrant"}
        if job["autocast"]:
            autocast.again(kinds)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kinds)
        if job["lora"] or kinds["use_reentrant"]:
            model.enable_input_require_grads()
    return model


def add_lora_adapters(model, lora):
    from peft import LoraConfig, get_peft_model

    targets = "all-linear" if lora["targets"] in ("all", "all-linear") else lora["targets"]
    if targets == "qv":
        targets = ["q_proj", "v_proj"]
    made = LoraConfig(
        r=lora["r"], lora_alpha=2 * lora["r"], target_modules=targets, lora_dropout=lora["dropout"], task_type="CAUSAL_LM",
        use_dora=lora["dora"],
    )  # fmt: skip
    return get_peft_model(model, made, autocast_adapter_dtype=lora["wide"])


def disable_packing_lookup():
    """The meta device has no values to inspect: nothing is packed."""
    try:
        from transformers import masking_utils
    except ImportError:  # an older transformers, which does not inspect them
        return
    masking_utils.find_packed_sequence_indices = lambda *args, **named: None


def native_dropout(x, p=0.5, training=True, inplace=False):
    """On a GPU one kernel, which keeps a byte mask."""
    return torch.native_dropout(x, p, True)[0] if training and p else x


def train_steps(job, model, recorder, autocast):
    ids = torch.empty((job["micro_batch"], job["seq"]), dtype=torch.long, device="meta")
    recorder.add(ids)
    several = job["accumulation"] > 1
    for step in range(job["steps"]):
        for micro in range(min(job["accumulation"], 2)):  # from the second on they are the same
            tag = f"{step}.{micro}" if several else f"{step}"
            autocast.forward = True
            outputs = model(input_ids=ids, labels=ids, use_cache=False)
            loss = outputs.loss
            if not job["keep_outputs"]:
                del outputs
            if several:
                loss = loss / job["accumulation"]
            autocast.forward, autocast.copies = False, {}
            recorder.mark(f"fwd{tag}", "=activations")
            recorder.backward = True
            (loss * 2.0 if job["scaled"] else loss).backward()
            loss = outputs = None
            recorder.backward = False
            recorder.mark(f"bwd{tag}")
        recorder.mark(f"step{step}")
        model.zero_grad(set_to_none=True)
        recorder.mark(f"zero{step}")


def generate_tokens(job, model, recorder, autocast):
    """Run a prefill alone, then generate token by token over a growing cache."""
    ids = torch.empty((job["micro_batch"], job["seq"]), dtype=torch.long, device="meta")
    recorder.add(ids)
    last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    with torch.no_grad():
        first = model(input_ids=ids, use_cache=True, **last)
        recorder.mark("prefill")
        del first
        recorder.mark("freed", "=activations")
        more = torch.empty_like(ids), torch.empty_like(ids)
        cache, input_ids = None, ids
        for _ in range(job["new_tokens"]):
            outputs = model(input_ids=input_ids, use_cache=True, past_key_values=cache, **last)
            cache, logits = outputs.past_key_values, outputs.logits[:, -1:].float()
            del outputs
            input_ids = logits.argmax(-1)
            del logits
        del cache, more
        recorder.mark("generate")


def main():
    job = json.loads(sys.argv[1])
    torch.autocast = autocast = Autocast(HALF_DTYPES.get(job["autocast"]))
    if job["attention"] == "sdpa":
        torch.nn.functional.scaled_dot_product_attention = Attention(job["capability"], autocast)
    torch.nn.functional.dropout = native_dropout
    disable_packing_lookup()
    model = build_meta_model(job, autocast)
    recorder = AllocationRecorder()
    recorder.mark("=parameters")
    trained = [p for p in model.parameters() if p.requires_grad]
    mine = {id(p) for p in trained} if job["lora"] else set()
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in mine:
            recorder.add(tensor)
    recorder.mark("=adapters")
    for tensor in trained:
        recorder.add(tensor)
    recorder.mark("build", "=activations")
    gradients = []
    for parameter in trained:
        parameter.register_post_accumulate_grad_hook(
            lambda p: gradients.append(recorder.numbers.get(p.grad.untyped_storage()._cdata, -1))
        )
    head = model.get_output_embeddings()
    if head is not None:
        head.register_forward_pre_hook(lambda *args: recorder.mark("=loss") if autocast.forward else None)
    if job["autocast"]:
        autocast.__enter__()
    with recorder:
        (generate_tokens if job["task"] == "generate" else train_steps)(job, model, recorder, autocast)
        events = list(recorder.events)
    shapes = [[list(p.shape), p.element_size()] for p in trained]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    if job["lora"]:
        versions["peft"] = sys.modules["peft"].__version__
    reply = {
        "events": events,
        "parameters": shapes,
        "versions": versions,
        "gradients": sorted({g for g in gradients if g >= 0}),
    }
    print("\n" + json.dumps(reply | {"by": recorder.by, "names": list(recorder.names)}))


try:
    main()
except Exception as wrong:  # the first line names the error, the rest is advice
    raise SystemExit(f"{type(wrong).__name__}: {str(wrong).strip().partition(chr(10))[0]}") from None
