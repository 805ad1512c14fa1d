"""A small language model: embedding, causal attention, gated MLP, cross entropy, AdamW. Its loss must fall.

The model memorises a fixed text; on a GPU with bf16 the step runs under autocast, as in real training.
"""

import proof

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH, STEPS = 256, 64, 4, 2, 32, 4, 40


def run_proof(p):
    torch = p.torch()
    p.begin_step("make the model")
    model = make_language_model(torch).to(p.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), device=p.device)
    narrow = p.cuda and torch.cuda.is_bf16_supported() and p.capability() >= (8, 0)
    p.record_note("precision", "bf16 autocast" if narrow else "fp32")
    p.begin_step("train %d steps" % STEPS)
    losses = [train_one_step(torch, p, model, optimizer, text, narrow) for _ in range(STEPS)]
    p.begin_step("compare")
    p.record_number("loss_first", losses[0])
    p.record_number("loss_last", losses[-1])
    if not all(loss == loss and abs(loss) < 1e6 for loss in losses):
        raise proof.WrongResult("the loss is not a number in step %d" % next(i for i, x in enumerate(losses) if x != x))
    # Before the first step the loss is that of a random guess, ln(256) = 5.55.
    p.record_number("loss_of_a_guess", losses[0], "most", 8.0)
    p.record_number("loss_left", losses[-1] / losses[0], "most", 0.5)


def make_language_model(torch):
    nn = torch.nn

    class TinyBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.gate = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
            self.down = nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            batch, length, _ = x.shape
            parts = self.into(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
            h = self.between(x)
            return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))

    class TinyModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.ModuleList([TinyBlock() for _ in range(LAYERS)])
            self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens):
            x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.last(x))

    return TinyModel()


def train_one_step(torch, p, model, optimizer, text, narrow):
    """Take one step (forward, loss, backward, optimizer) and return its loss."""
    with torch.autocast(p.device.type, dtype=torch.bfloat16, enabled=narrow):
        guessed = model(text[:, :-1])
    loss = torch.nn.functional.cross_entropy(guessed.float().reshape(-1, VOCABULARY), text[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())
