"""A small language model: embedding, causal attention, MLP, cross entropy, AdamW. Its loss must fall.

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


def make_language_model(torch, vocabulary=VOCABULARY, length=LENGTH):
    nn = torch.nn

    class TinyModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(length, WIDTH)
            layer = nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, 0.0, nn.functional.silu, batch_first=True, norm_first=True
            )
            self.blocks = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
            self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary)

        def forward(self, tokens):
            count = tokens.shape[1]
            hidden = torch.ones(count, count, dtype=torch.bool, device=tokens.device).triu(1)
            x = self.words(tokens) + self.places.weight[:count]
            return self.head(self.last(self.blocks(x, hidden)))

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
