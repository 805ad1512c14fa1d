"""Runs in the target environment: runs steps of a job on torch's meta device and records every allocation and
free.

The job is JSON in the first argument; the output is one line of JSON. Differences between the meta device and a
GPU are handled in emulation.py.
"""

import contextlib
import json
import logging
import sys

import torch
import transformers
from allocation_recorder import AllocationRecorder
from checkpoint_header import explain_difference
from convolutions import CONVOLUTION_NOTE
from emulation import Attention, AttentionKernel, Autocast, RmsNorm, native_dropout
from kernel_recorder import KernelRecorder
from known_values import KnownNumbers, KnownValues, Refusal, format_number
from losses import ctc_loss
from mixed_types import widen_kept_parameters
from model_inputs import ModelInputs, choose_class, last_line, note_missing_loader, read_config
from quantised import adapt_quantised_layers, prepare_kbit_training, quantise_layers
from token_scores import ScoreKeeper
from torch.utils._pytree import tree_leaves

HALF_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CACHE_NAMES = ("past_key_values", "cache_params", "state", "mems")
FALLBACK_WORDS = ("fall", "fast path", "fast implementation", "kernel", "not installed", "slow")


def build_class(found, config, options, notes):
    """Return a model of the class; a part of it without sdpa attention gets the eager one."""
    try:
        return found._from_config(config, **options)
    except Exception as error:
        if "attention implementation" not in str(error):
            raise Refusal(f"transformers cannot build {found.__name__} from this config: {last_line(error)}") from None
    notes.append(f"a part of {found.__name__} has no sdpa attention: its eager attention was played")
    return found._from_config(config, **(options | {"attn_implementation": "eager"}))


def build_meta_model(job, config, autocast, notes):
    found = choose_class(config, job["task"])
    notes += note_missing_loader(config, found)
    if job["attention"] == "sdpa" and not getattr(found, "_supports_sdpa", True):
        notes.append(f"{found.__name__} has no sdpa attention: its eager attention was played")
    # By default each part decides.
    asked = {} if job["attention"] == "sdpa" else {"attn_implementation": job["attention"]}
    half = HALF_DTYPES.get(job["precision"])
    options = {"dtype": half or (torch.bfloat16 if job["quant"] else torch.float32)}
    with torch.device("meta"):
        model = build_class(found, config, options | asked, notes)
        model = model.to("meta")  # torch.Tensor(n) does not follow the default device
        model.tie_weights()
        widen_kept_parameters(model, options["dtype"])
        if why := explain_difference(job.get("folder"), model):
            raise Refusal(why)
        if job["quant"]:
            quantise_layers(model, options["dtype"], job["double_quant"])
        if job["quant"] and job["kbit"]:
            prepare_kbit_training(model)
        if job["lora"]:
            model = add_lora_adapters(model, job["lora"])
        if job["quant"]:
            adapt_quantised_layers(model, autocast)
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
    kind = "CAUSAL_LM" if type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")) else None
    made = LoraConfig(
        r=lora["r"], lora_alpha=2 * lora["r"], target_modules=targets, lora_dropout=lora["dropout"], task_type=kind,
        use_dora=lora["dora"],
    )  # fmt: skip
    adapted = get_peft_model(model, made, autocast_adapter_dtype=lora["wide"])
    for parameter in adapted.parameters():
        if parameter.requires_grad and not lora["wide"]:  # peft leaves what lies on the meta device as it is
            parameter.data = parameter.data.to(model.dtype)
    return adapted


def row_log_probabilities(model, batch):
    """Log-probability of every row, one row after the other, as trl computes it for 16-bit logits."""
    logits = model(**batch).logits[:, :-1]
    rows = []
    for row, label in zip(logits, batch["input_ids"][:, 1:], strict=True):
        scores = torch.nn.functional.log_softmax(row, dim=-1)
        rows.append(scores.gather(-1, label.unsqueeze(-1)).squeeze(-1))
        del scores
    return torch.stack(rows).sum(-1)


def preference_loss(model, reference, batch, recorder, tag):
    """The DPO loss: the reference's log-probabilities first, without a graph."""
    batch = {name: value for name, value in batch.items() if name != "labels"}
    with torch.no_grad(), contextlib.nullcontext() if reference else model.disable_adapter():
        theirs = row_log_probabilities(reference or model, batch)
    recorder.mark(f"ref{tag}")
    mine = row_log_probabilities(model, batch)
    chosen, rejected = (mine - theirs).chunk(2)
    return -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()


def compute_loss(job, model, reference, batch, recorder, tag, inputs):
    """Return the loss of one pass, and the outputs where the job keeps them."""
    if job["dpo"]:
        return preference_loss(model, reference, batch, recorder, tag), None
    outputs = model(**batch)
    loss = outputs.get("loss")
    if loss is None:
        inputs.notes.append(f"{inputs.class_name} has no loss of its own: the mean of its output was played")
        loss = find_output(outputs)
    return loss, outputs if job["keep_outputs"] else None


def find_output(outputs):
    """Return the mean of the first output with a graph: the loss of a class that has none."""
    for leaf in tree_leaves(list(outputs.values())):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            return leaf.float().mean()
    raise Refusal("the model computes no loss, and nothing that has a gradient")


def train_steps(job, model, inputs, recorder, autocast, reference=None):
    batch = inputs.make()
    batch |= inputs.labels(batch)
    for tensor in tree_leaves(batch):
        if isinstance(tensor, torch.Tensor):
            recorder.add(tensor)
    if "use_cache" in inputs.parameters:
        batch["use_cache"] = False
    several = job["accumulation"] > 1
    for step in range(job["steps"]):
        start, births, live = len(recorder.events), len(recorder.by), len(recorder.numbers)
        for micro in range(min(job["accumulation"], 2)):  # from the second on they are the same
            tag = f"{step}.{micro}" if several else f"{step}"
            autocast.forward = True
            loss, *kept = compute_loss(job, model, reference, batch, recorder, tag, inputs)
            if several:
                loss = loss / job["accumulation"]
            autocast.forward, autocast.copies = False, {}
            recorder.mark(f"fwd{tag}", "=activations")
            recorder.backward = True
            (loss * 2.0 if job["scaled"] else loss).backward()
            del loss, kept
            recorder.backward = False
            recorder.mark(f"bwd{tag}")
        recorder.mark(f"step{step}")
        model.zero_grad(set_to_none=True)
        recorder.mark(f"zero{step}")
        if len(recorder.numbers) == live:  # nothing of this step is left: those that follow are the same
            return births, recorder.repeat_step(start, births, range(step + 1, job["steps"]))
    return 0, []


def generate_tokens(job, model, inputs, recorder):
    """Run a prefill alone, then generate token by token over a growing cache."""
    batch = inputs.make()
    for tensor in batch.values():
        recorder.add(tensor)
    last = {"logits_to_keep": 1} if "logits_to_keep" in inputs.parameters else {}
    with torch.no_grad():
        if inputs.takes_decoder_text():
            return generate_from_encoder(job, model, inputs, batch, recorder)
        first = model(**batch, use_cache=True, **last)
        kept = next((name for name in CACHE_NAMES if name in first and name in inputs.parameters), None)
        recorder.mark("prefill")
        del first
        recorder.mark("freed", "=activations")
        if kept is None:
            return generate_without_cache(job, model, inputs, batch, last, recorder)
        ids = batch["input_ids"]
        more = torch.empty_like(ids), torch.empty_like(ids)
        cache, scores = None, ScoreKeeper(inputs, job["new_tokens"])
        for count in range(job["new_tokens"]):
            batch |= inputs.follow_tokens(batch["input_ids"], job["seq"] + count)
            outputs = model(**batch, use_cache=True, **{kept: cache}, **last)
            cache = outputs[kept]
            batch = {"input_ids": scores.choose_token(outputs["logits"])}
            del outputs
        del cache, more
        recorder.mark("generate")


def generate_without_cache(job, model, inputs, batch, last, recorder):
    """Generate with a class that returns no cache: transformers passes one, which the class may fill.

    A class with a way of its own to prepare its inputs gets the whole row for every token, any other the last token alone.
    """
    if "input_ids" not in batch:  # of sound: one pass for all tokens
        if not inputs.class_name.endswith("ForCTC"):
            raise Refusal(f"{inputs.class_name} returns no cache that it takes again")
        model(**batch)["logits"].argmax(-1)
        return recorder.mark("generate")
    plain = transformers.GenerationMixin.prepare_inputs_for_generation
    whole = type(inputs.model).prepare_inputs_for_generation is not plain
    how = "every token takes the whole row" if whole else "every token is played alone"
    inputs.notes.append(f"{inputs.class_name} returns no cache: {how}")
    passed = {}
    if "past_key_values" in inputs.parameters:
        passed["past_key_values"] = transformers.DynamicCache(config=inputs.config.get_text_config(decoder=True))
    ids, scores = batch["input_ids"], ScoreKeeper(inputs, job["new_tokens"])
    for count in range(job["new_tokens"]):
        more = inputs.follow_tokens(ids, job["seq"] + count)
        logits = model(**(batch | more | {"input_ids": ids}), use_cache=True, **passed, **last)["logits"]
        token = scores.choose_token(logits)
        del logits
        ids = torch.cat([ids, token], -1) if whole else token
    return recorder.mark("generate")


def generate_from_encoder(job, model, inputs, batch, recorder):
    """Run the encoder once, then the decoder token by token."""
    encoder = model.get_encoder()
    states = encoder(**batch)
    recorder.mark("prefill", "=activations")
    ids, cache, scores = inputs.tokens(seq=1), None, ScoreKeeper(inputs, job["new_tokens"])
    for _ in range(job["new_tokens"]):
        outputs = model(encoder_outputs=states, decoder_input_ids=ids, past_key_values=cache, use_cache=True)
        cache, ids = outputs.past_key_values, scores.choose_token(outputs.logits)
        del outputs
    del cache, states
    recorder.mark("generate")


class WarningNotes(logging.Handler):
    """Keeps what transformers warns of: a kernel that is missing, an attention that falls back."""

    def __init__(self, notes):
        super().__init__(logging.WARNING)
        self.notes = notes

    def emit(self, record):
        text = " ".join(record.getMessage().split())
        if any(word in text.lower() for word in FALLBACK_WORDS):
            self.notes.append(f"transformers says: {text[:240]}")


def main():
    job = json.loads(sys.argv[1])
    notes = []
    transformers.utils.logging.get_logger("transformers").addHandler(WarningNotes(notes))
    torch.autocast = autocast = Autocast(HALF_DTYPES.get(job["autocast"]))
    attention = Attention(job["capability"], autocast)
    if job["attention"] == "sdpa":
        torch.nn.functional.scaled_dot_product_attention = attention
    torch.nn.functional.dropout, torch.nn.functional.ctc_loss = native_dropout, ctc_loss
    torch.nn.functional.rms_norm = RmsNorm(autocast)
    torch.Tensor.__format__ = format_number(torch.Tensor.__format__)
    config = read_config(job["config"])
    known = KnownValues()
    with known, KnownNumbers():
        model = build_meta_model(job, config, autocast, notes)
        reference = None
        if job["reference"]:
            alone = job | {"lora": None, "quant": "", "checkpointing": "none", "task": "train"}
            reference = build_meta_model(alone, config, autocast, notes).eval().requires_grad_(False)
        reply = record_any(job, model, reference, config, known, autocast, notes)
    if "math" in attention.kernels:
        notes.append("no fused attention kernel takes this model's shapes: torch writes all scores out")
    if known.spread:
        notes.append("what depends on scores (which expert gets which token) is spread evenly")
    notes += [f"{place} asks about values that are not known here: taken as no" for place in list(known.decisions)[:3]]
    print("\n" + json.dumps(reply | {"notes": list(dict.fromkeys(notes))[:12]}))


def record_any(*arguments):
    """Record the job with the main input; where the model refuses that, with the other ways to call it.

    A refusal is raised rather than an error of torch, and the first of each.
    """
    first = None
    for variant in ("main", "everything", "turned"):
        try:
            return record_job(*arguments, variant)
        except Exception as error:
            says_more = isinstance(error, Refusal) and not isinstance(first, Refusal)
            first = error if first is None or says_more else first
    raise first


def record_job(job, model, reference, config, known, autocast, notes, variant):
    """Run the job's steps under the recorder, and return what the trace tells."""
    recorder = AllocationRecorder(KernelRecorder(job["task"] == "generate"))
    AttentionKernel.note = recorder.kernels.note_attention
    recorder.mark("=parameters")
    trained = [p for p in model.parameters() if p.requires_grad]
    mine = {id(p) for p in trained} if job["lora"] else set()
    others = (*reference.parameters(), *reference.buffers()) if reference else ()
    for tensor in (*model.parameters(), *model.buffers(), *others):
        if id(tensor) not in mine:
            recorder.add(tensor)
    recorder.mark("=adapters")
    for tensor in trained:
        recorder.add(tensor)
    recorder.mark("build", "=activations")
    gradients, reached = [], set()

    def on_gradient(parameter):
        reached.add(id(parameter))
        gradients.append(recorder.numbers.get(parameter.grad.untyped_storage()._cdata, -1))

    for parameter in trained:
        parameter.register_post_accumulate_grad_hook(on_gradient)
    head = model.get_output_embeddings()
    if head is not None:
        head.register_forward_pre_hook(lambda *args: recorder.mark("=loss") if autocast.forward else None)
    inner = model.get_base_model() if job["lora"] else model
    inputs = ModelInputs(inner, config, job, known, variant)
    autocast.forward, autocast.off = False, 0
    with autocast if job["autocast"] else contextlib.nullcontext(), recorder:
        if job["task"] == "generate":
            generate_tokens(job, model, inputs, recorder)
        else:
            births, offsets = train_steps(job, model, inputs, recorder, autocast, reference)
            gradients += [number + more for more in offsets for number in gradients if number >= births]
        events = list(recorder.events)
    notes += inputs.notes
    if "convolution" in recorder.names:
        notes.append(f"{CONVOLUTION_NOTE}: a tenth more or less may be reserved")
    if job["task"] == "train":
        note_idle_parameters(trained, reached, notes)
        trained = [p for p in trained if id(p) in reached]
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    if job["lora"]:
        versions["peft"] = sys.modules["peft"].__version__
    return {
        "events": events,
        "parameters": [[list(p.shape), p.element_size()] for p in trained],
        "versions": versions,
        "gradients": sorted({g for g in gradients if g >= 0}),
        "by": recorder.by,
        "kernels": recorder.kernels.rows,
        "names": list(recorder.names),
        "class": inputs.class_name,
        "count": sum(p.numel() for p in inner.parameters() if id(p) not in mine),
        "tables": [n for n, p in enumerate(trained) if id(p) in tables],
    }


def note_idle_parameters(trained, reached, notes):
    """Say how many parameters no gradient reaches: these inputs do not use them."""
    idle = sum(p.numel() for p in trained if id(p) not in reached)
    if idle:
        notes.append(f"{idle:,} trained parameters get no gradient from these inputs, and no optimizer state")


def trace_or_exit():
    """Run the trace; the process ends with one sentence where it fails."""
    try:
        main()
    except Refusal as wrong:
        raise SystemExit(str(wrong)) from None
    except Exception as wrong:  # the first line names the error, the rest is advice
        raise SystemExit(f"{type(wrong).__name__}: {str(wrong).strip().partition(chr(10))[0]}") from None


if __name__ == "__main__":
    trace_or_exit()
