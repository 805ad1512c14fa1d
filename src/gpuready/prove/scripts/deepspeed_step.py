"""DeepSpeed: training steps of a tiny Llama under ZeRO whose loss must fall, or one of its operators.

Argument: zero-0, zero-1, zero-2, zero-3, or an operator: fused-adam, cpu-adam (compiled on first use).
"""

import os

import opening
import proof
import tiny_llama as tiny


def act(p):
    tiny.offline(os.getcwd())
    torch = p.torch()
    kind = (p.arguments or ["zero-2"])[0]
    os.environ.setdefault("DS_ACCELERATOR", p.device.type)
    deepspeed = opening.module(p, "deepspeed", "deepspeed")
    taken = deepspeed.get_accelerator().device_name()
    p.note("accelerator", taken)
    if taken != p.device.type:
        raise proof.Wrong("DeepSpeed took %s instead of %s" % (taken, p.device.type))
    if kind.startswith("zero"):
        return learned(p, torch, deepspeed, int(kind[-1]))
    return operator(p, torch, kind)


def operator(p, torch, kind):
    import colossal_kernels

    p.step("build or load " + kind)
    from deepspeed.ops import adam

    if kind == "cpu-adam":
        made, device, words = adam.DeepSpeedCPUAdam, "cpu", {"adamw_mode": True}
    else:
        made, device, words = adam.FusedAdam, p.device, {"adam_w_mode": True}
    colossal_kernels.walked(p, torch, made, device, **words)


def learned(p, torch, deepspeed, stage):
    import colossal_step

    colossal_step.alone()
    half = p.cuda and p.capability() >= (8, 0)
    words = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": bool(half)},
        "fp16": {"enabled": bool(p.cuda and not half), "initial_scale_power": 8},
    }
    model = tiny.model(p, **tiny.SMALL)
    p.step("initialize (ZeRO %d)" % stage)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=words)[0]
    p.step("train")
    batch, losses = tiny.batch(p), []
    for _ in range(30):
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    where = {x.device.type for x in engine.module.parameters()}
    if where != {p.device.type}:
        raise proof.Wrong("the weights are on %s" % ", ".join(sorted(where)))
    tiny.fell(p, losses, 0.8)


if __name__ == "__main__":
    proof.main(act)
