"""Megatron-Core: its parallel state with one rank, and training steps of a tiny GPT whose loss must fall."""

import package_import
import proof
import tiny_llama as tiny


def run_proof(p):
    torch = p.torch()
    package_import.import_compiled(p, "megatron.core", "megatron-core")
    import colossal_step

    colossal_step.set_single_rank()
    p.join_group()
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    p.begin_step("initialise the parallel state")
    parallel_state.initialize_model_parallel(1, 1)
    model_parallel_cuda_manual_seed(20261115)
    p.record_number("tensor_parallel", parallel_state.get_tensor_model_parallel_world_size(), "equal", 1)
    train_gpt(p, torch, make_tiny_gpt(p, torch))


def make_tiny_gpt(p, torch):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    p.begin_step("make a tiny GPT")
    config = TransformerConfig(
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    return GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=tiny.VOCABULARY,
        max_sequence_length=64,
    ).to(p.device)


def train_gpt(p, torch, model):
    p.begin_step("train")
    rows = tiny.make_rows(length=48)
    ids = torch.tensor([row["input_ids"] for row in rows], device=p.device)
    places = torch.arange(47, device=p.device).expand(len(rows), -1)
    hidden = torch.ones(47, 47, dtype=torch.bool, device=p.device).triu(1)[None, None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        loss = model(ids[:, :-1], places, hidden, labels=ids[:, 1:]).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    tiny.check_loss_fell(p, losses, 0.8)
    if proof.is_within_bound(losses[0], "most", 0.1):
        raise proof.WrongResult("the first loss of random weights is %.3g" % losses[0])
