"""A tiny Llama made from a configuration, its tokenizer and its sentences: nothing is downloaded.

The sizes are the smallest that the strictest kernels accept: blocks of 128 for fp8, heads of 64, groups of 128.
"""

import proof

HIDDEN, INTER, LAYERS, HEADS, KV_HEADS, VOCABULARY, LENGTH = 256, 512, 2, 4, 2, 384, 128
PAD, BOS, EOS = 256, 257, 258
# For training steps, which must also be fast on a CPU.
SMALL_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}
# LoRA targets. They include the head: it is random here, and adapters in front of a random head learn next to
# nothing.
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
TRAINER_SETTINGS = {
    "output_dir": "out",  # below the folder of the proof
    "per_device_train_batch_size": 4,
    "learning_rate": 5e-3,
    "report_to": [],
    "save_strategy": "no",
    "disable_tqdm": True,
}
SENTENCES = (
    "the quick brown fox jumps over the lazy dog",
    "pack my box with five dozen liquor jugs",
    "how vexingly quick daft zebras jump",
    "sphinx of black quartz judge my vow",
)


def make_llama_config(p, **changes):
    """Make the configuration; ``changes`` override it."""
    p.begin_step("import transformers")
    import transformers

    p.record_version("transformers")
    words = {
        "hidden_size": HIDDEN,
        "intermediate_size": INTER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HIDDEN // HEADS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4 * LENGTH,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "tie_word_embeddings": False,
        "use_cache": False,
    }
    return transformers.LlamaConfig(**{**words, **changes})


def make_llama(p, **changes):
    """Make the model with random weights, the same at every call."""
    torch = p.torch()
    llama_config = make_llama_config(p, **changes)
    from transformers import LlamaForCausalLM

    p.begin_step("make a tiny Llama from its configuration")
    torch.manual_seed(0)
    return LlamaForCausalLM(llama_config)


def make_tokenizer(p):
    """Make a tokenizer with one token per byte and three special ones."""
    p.begin_step("make a tokenizer of bytes")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: place for place, letter in enumerate(letters)}
    words.update({"<pad>": PAD, "<s>": BOS, "</s>": EOS})
    made = Tokenizer(models.BPE(vocab=words, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>", model_max_length=4 * LENGTH
    )


def save_llama(p, folder, **changes):
    """Save model and tokenizer as a checkpoint; return the model."""
    made = make_llama(p, **changes)
    p.begin_step("save it")
    made.save_pretrained(folder)
    make_tokenizer(p).save_pretrained(folder)
    return made


def make_rows(words=None, length=48):
    """Return the sentences as padded token ids with labels; plain Python."""
    token_rows = []
    for text in SENTENCES if words is None else words:
        ids = ([BOS] + list(text.encode())[: length - 2] + [EOS])[:length]
        spare = length - len(ids)
        token_rows.append(
            {
                "input_ids": ids + [PAD] * spare,
                "attention_mask": [1] * len(ids) + [0] * spare,
                "labels": ids + [-100] * spare,
            }
        )
    return token_rows


def make_batch(p, length=48):
    """Return the sentences as one batch of tensors on the device."""
    torch = p.torch()
    made = make_rows(length=length)
    return {key: torch.tensor([row[key] for row in made], device=p.device) for key in made[0]}


def check_loss_fell(p, losses, by=0.8):
    """Require finite losses that fall: the last is at most ``by`` times the first."""
    import math

    if len(losses) < 2 or not all(math.isfinite(x) for x in losses):
        raise proof.WrongResult("the losses are " + ", ".join("%.4g" % x for x in losses[:8]))
    p.record_number("first_loss", losses[0])
    p.record_number("last_loss", losses[-1])
    p.record_number("loss_ratio", losses[-1] / losses[0], "most", by)


def check_weight_device(p, model):
    """Check that the weights are on the requested device: a trainer may fall back to the CPU silently."""
    where = {str(x.device.type) for x in model.parameters()}
    if where != {p.device.type}:
        raise proof.WrongResult("the weights are on %s instead of %s" % (", ".join(sorted(where)), p.device.type))
