"""The scores from which transformers' generate() chooses tokens. Runs in the target environment."""

import torch


class ScoreKeeper:
    """The scores of the last token in fp32: transformers' generate() holds them until those of the next one are made."""

    def __init__(self, inputs, new_tokens):
        settings = getattr(inputs.model, "generation_config", None)
        forced = {0: "forced_bos_token_id", new_tokens - 1: "forced_eos_token_id"}
        self.forced = {place for place, name in forced.items() if getattr(settings, name, None) is not None}
        self.count, self.held, self.processed = 0, None, None

    def choose_token(self, logits):
        """Return the next token of each row; a token that is forced takes a second copy of the scores."""
        self.held = logits[:, -1, :].to(copy=True, dtype=torch.float32)
        self.processed = torch.full_like(self.held, float("-inf")) if self.count in self.forced else self.held
        self.count += 1
        return self.processed.argmax(-1, keepdim=True)
