"""The host's pace in eager mode: a small Llama of transformers, forward, backward and token by token. Standalone; torch is passed in.

Its kernels are shorter than their launches, so what is timed is Python, the dispatcher and the autograd engine of this
host. A shallow and a deep model tell the time of a layer from that of everything else.
"""

import statistics
import time

from bench_matmul import NotSupportedHere

SHALLOW, DEEP = 1, 9
PROMPT, NEW_TOKENS = 16, 12
WARM_TURNS, FEWEST_TURNS = 3, 6
PASS_FACTOR = 4  # other work disturbs a host for a second or two: a pass is longer than those of the GPU
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1024,
    "pad_token_id": 0,
}
# Measure: the pass that it times, and whether the layer or the rest of the call is meant.
EAGER_MEASURES = {
    "eager-forward": ("forward", "layer"),
    "eager-backward": ("backward", "layer"),
    "eager-decode": ("decode", "layer"),
    "eager-call": ("forward", "rest"),
    "eager-token": ("decode", "rest"),
}


class EagerBench:
    """The same model at two depths, and the times of its passes."""

    def __init__(self, torch, device, kind="llama", **changes):
        self.torch, self.device, self.unread = torch, device, {}
        try:
            import transformers

            self.models = {depth: self._build(transformers, kind, depth, changes) for depth in (SHALLOW, DEEP)}
        except Exception as error:  # an optional package: its faults are not the GPU's
            raise NotSupportedHere(f"needs transformers: {type(error).__name__}: {error}"[:200]) from None
        self.tokens = torch.randint(5, 900, (1, PROMPT), device=device)

    def _build(self, transformers, kind, depth, changes):
        words = {**SIZES, **changes, "num_hidden_layers": depth}
        config = transformers.AutoConfig.for_model(kind, **words)
        before = self.torch.get_default_dtype()
        self.torch.set_default_dtype(self.torch.bfloat16 if self.device.type == "cuda" else before)
        try:
            with self.device:
                return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()
        finally:
            self.torch.set_default_dtype(before)

    def measure(self, what, seconds):
        """Return ``layer`` and ``rest`` of a pass, each as the median and the best, in seconds of the host."""
        once = getattr(self, f"time_{what}")
        for model in self.models.values():
            for _ in range(WARM_TURNS):
                once(model)
        turns = {depth: [] for depth in self.models}
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(turns[DEEP]) < FEWEST_TURNS:
            for depth, model in self.models.items():
                turns[depth].append(once(model))
        found = {}
        for name, middle in (("median", statistics.median), ("best", min)):
            shallow, deep = middle(turns[SHALLOW]), middle(turns[DEEP])
            layer = (deep - shallow) / (DEEP - SHALLOW)
            found[name] = {"layer": layer, "rest": shallow - SHALLOW * layer}
        return found

    def time_forward(self, model):
        """A forward pass of training: the backward pass in between, on a thread of its own, leaves the host's caches cold."""
        model.config.use_cache = False
        losses = []
        spent = self._time(lambda: losses.append(model(input_ids=self.tokens, labels=self.tokens).loss))
        losses.pop().backward()
        model.zero_grad()
        return spent

    def time_backward(self, model):
        model.config.use_cache = False
        model.zero_grad()
        loss = model(input_ids=self.tokens, labels=self.tokens).loss
        return self._time(loss.backward)

    def time_decode(self, model):
        """One token: a long answer without a short one, divided by the tokens between them."""
        model.config.use_cache = True
        model.eval()
        with self.torch.no_grad():
            spent = [self._time(lambda count=count: self._generate(model, count)) for count in (1, 1 + NEW_TOKENS)]
        model.train()
        return (spent[1] - spent[0]) / NEW_TOKENS

    def _generate(self, model, count):
        return model.generate(
            self.tokens, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0, eos_token_id=None
        )

    def _time(self, call):
        self._wait()
        begun = time.perf_counter()
        call()
        self._wait()
        return time.perf_counter() - begun

    def _wait(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)


def eager_measure(bench, name):
    """Return the measure of one name over models that are already built."""
    what, part = EAGER_MEASURES[name]

    def measure_eager(seconds):
        # What stands beside the layers comes from the same turns as the layer, where that was measured just before.
        found = (part == "rest" and bench.unread.pop(what, None)) or bench.measure(what, PASS_FACTOR * seconds)
        if part == "layer":
            bench.unread[what] = found
        middle, best = (max(found[kind][part], 1e-7) for kind in ("median", "best"))
        return middle, best

    return measure_eager, f"llama, {SHALLOW} and {DEEP} layers"
