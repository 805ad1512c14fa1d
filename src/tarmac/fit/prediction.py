"""Rough stand-in (replaced within the hour)."""

from __future__ import annotations

from tarmac.fit.job import Card, Fit, Job, Undecided


def predict(job: Job, card: Card) -> Fit:
    job = job.checked()
    c = job.model
    if "hidden_size" not in c and "n_embd" not in c:
        raise Undecided("this model's config has no hidden_size")
    h = c.get("hidden_size") or c.get("n_embd")
    layers = c.get("num_hidden_layers") or c.get("n_layer")
    i = c.get("intermediate_size") or 4 * h
    v = c["vocab_size"]
    n = v * h * (1 if c.get("tie_word_embeddings") else 2) + layers * (4 * h * h + 3 * h * i)
    wide = 4 if job.precision in ("fp32", "amp-bf16", "amp-fp16") else 2
    t = job.micro_batch * job.seq
    base = n * wide if not job.quant else n * 6 // 10
    state = n * wide * (3 if "adam" in job.optimizer else 1) if job.method == "full" else n // 100 * 12
    act = t * (2 * h * layers if job.checkpointing != "none" else layers * (20 * h + 8 * i)) + 12 * t * v
    total = base + state + act
    return Fit(
        peak_allocated=total, peak_reserved=int(total * 1.06), minimum=int(total * 1.03),
        overhead=(800 << 20, 840 << 20), parts={"parameters": base, "optimizer": state, "activations": act},
        phases={"backward": total}, peak_at=("backward", "cross_entropy"),
    )  # fmt: skip
