"""DeepSpeed: training steps of a tiny language model under ZeRO whose loss must fall, or one of its operators.

Argument: zero- and the stage, or fused-adam (compiled on first use).
"""

import os

import package_import
import proof
import tiny_llama as tiny
import training


def run_proof(p):
    torch = p.torch()
    kind = (p.arguments or ["zero-2"])[0]
    os.environ.setdefault("DS_ACCELERATOR", p.device.type)
    deepspeed = package_import.import_compiled(p, "deepspeed", "deepspeed")
    taken = deepspeed.get_accelerator().device_name()
    p.record_note("accelerator", taken)
    if taken != p.device.type:
        raise proof.WrongResult("DeepSpeed took %s instead of %s" % (taken, p.device.type))
    if kind.startswith("zero"):
        return train_with_zero(p, torch, deepspeed, int(kind[-1]))
    import colossal_kernels
    from deepspeed.ops.adam import FusedAdam

    return colossal_kernels.compare_adamw(p, torch, FusedAdam, p.device, adam_w_mode=True)


def train_with_zero(p, torch, deepspeed, stage):
    import colossal_step

    colossal_step.set_single_rank()
    half = p.cuda and p.capability() >= (8, 0)
    words = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": bool(half)},
        "fp16": {"enabled": bool(p.cuda and not half), "initial_scale_power": 8},
    }
    p.begin_step("make a tiny language model")
    model = training.make_language_model(torch, tiny.VOCABULARY, 48)  # of torch's own parts
    p.begin_step("initialize (ZeRO %d)" % stage)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=words)[0]
    p.begin_step("train")
    batch, losses = tiny.make_batch(p), []
    for _ in range(30):
        scores = engine(batch["input_ids"])[:, :-1].float()
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch["labels"][:, 1:].flatten())
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    tiny.check_weight_device(p, engine.module)
    tiny.check_loss_fell(p, losses, 0.8)
