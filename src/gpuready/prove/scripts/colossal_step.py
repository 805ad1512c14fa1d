"""ColossalAI: launch, a Booster with one of its plugins, and training steps of a tiny Llama whose loss must fall.

Argument: ddp (TorchDDPPlugin; the only one of these that supports a CPU), zero (LowLevelZeroPlugin), gemini.
"""

import os

import package_import
import proof
import tiny_llama as tiny


def run_proof(p):
    torch = p.torch()
    kind = (p.arguments or ["ddp"])[0]
    colossalai = package_import.import_compiled(p, "colossalai", "colossalai")
    launch_colossalai(p, colossalai)
    from colossalai.booster import Booster

    p.begin_step("make the plugin: " + kind)
    plugin = make_plugin(p, kind)
    model = tiny.make_llama(p, **tiny.SMALL_SIZES)
    optimizer = make_optimizer(p, torch, kind, model)
    p.begin_step("boost")
    booster = Booster(plugin=plugin)
    model, optimizer, *_ = booster.boost(model, optimizer)
    p.begin_step("train")
    train_boosted(p, booster, model, optimizer)


def set_single_rank():
    """Set the variables of a single-rank torchrun, where no launcher has set them."""
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1")):
        os.environ.setdefault(name, value)
    if "MASTER_PORT" not in os.environ:
        import socket

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])


def launch_colossalai(p, colossalai):
    """Call ColossalAI's launch; it must detect the requested device."""
    set_single_rank()
    p.begin_step("launch")
    colossalai.launch_from_torch(seed=20261115, verbose=False)
    from colossalai.accelerator import get_accelerator

    taken = get_accelerator().name
    p.record_note("accelerator", taken)
    if taken != p.device.type:
        raise proof.WrongResult("ColossalAI took the %s instead of %s" % (taken, p.device.type))


def make_plugin(p, kind):
    from colossalai.booster import plugin

    if kind == "ddp":
        return plugin.TorchDDPPlugin()
    if kind == "zero":
        return plugin.LowLevelZeroPlugin(stage=2, precision="bf16" if p.capability() >= (8, 0) else "fp16")
    return plugin.GeminiPlugin(precision="bf16" if p.capability() >= (8, 0) else "fp16", initial_scale=2**8)


def make_optimizer(p, torch, kind, model):
    """Use HybridAdam where the plugin needs it; that compiles an extension on first use."""
    if kind != "gemini":
        return torch.optim.AdamW(model.parameters(), lr=3e-3)
    p.begin_step("make HybridAdam")
    from colossalai.nn.optimizer import HybridAdam

    return HybridAdam(model.parameters(), lr=3e-3)


def train_boosted(p, booster, model, optimizer):
    batch, losses = tiny.make_batch(p), []
    model.train()
    for _ in range(30):
        loss = model(**batch).loss
        booster.backward(loss, optimizer)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    tiny.check_weight_device(p, model)
    tiny.check_loss_fell(p, losses, 0.8)
