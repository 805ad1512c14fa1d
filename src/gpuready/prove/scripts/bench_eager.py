"""The host's pace in eager mode: a small Llama of transformers, forward, backward and token by token. Standalone; torch is passed in.

Its kernels are shorter than their launches, so what is timed is Python, the dispatcher and the autograd engine of this
host. A shallow and a deep model tell the time of a layer from that of everything else.

Cores of one machine differ: one takes up to twice as long as another, for seconds, most likely by a neighbour on its other
hyperthread, a virtual machine or not. A process stays on the cores where it was started, so one placement says little. Each pass
moves the threads to other cores again and again, and returns the time of every placement.
"""

import contextlib
import os
import random
import time

from bench_matmul import NotSupportedHere

SHALLOW, DEEP = 1, 9
PROMPT, NEW_TOKENS = 16, 12
WARM_TURNS, FEWEST_PLACEMENTS, MOST_PLACEMENTS = 3, 3, 40
PASS_FACTOR = {"step": 8, "decode": 12}  # passes over many cores are longer than those of the GPU
AUTOGRAD_THREAD = "pt_autograd"  # torch's name of the thread of a backward pass
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1024,
    "pad_token_id": 0,
}
# Measure: the turn that times it, the pass in that turn, and whether the layer or the rest of the call is meant.
EAGER_MEASURES = {
    "eager-forward": ("step", "forward", "layer"),
    "eager-backward": ("step", "backward", "layer"),
    "eager-decode": ("decode", "decode", "layer"),
    "eager-call": ("step", "forward", "rest"),
    "eager-token": ("decode", "decode", "rest"),
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

    def measure(self, turn, seconds):
        """Return ``layer`` and ``rest`` of each pass of a turn (step or decode): a list, one for each placement, in seconds of the host."""
        once = getattr(self, f"time_{turn}")
        for model in self.models.values():
            for _ in range(WARM_TURNS):
                once(model)
        found, count = {}, 0
        until = time.perf_counter() + seconds
        while (time.perf_counter() < until or count < FEWEST_PLACEMENTS) and count < MOST_PLACEMENTS:
            move_threads()
            once(self.models[DEEP])  # into the caches of the new core
            shallow, deep = (once(self.models[depth]) for depth in (SHALLOW, DEEP))
            for what in deep:
                layer = max((deep[what] - shallow[what]) / (DEEP - SHALLOW), 1e-7)
                both = found.setdefault(what, {"layer": [], "rest": []})
                both["layer"].append(layer)
                both["rest"].append(max(shallow[what] - SHALLOW * layer, 1e-7))
            count += 1
        return found

    def time_step(self, model):
        """The passes of a step: the backward pass runs on a thread of its own, and leaves the forward pass cold caches."""
        model.config.use_cache = False
        losses = []
        forward = self._time(lambda: losses.append(model(input_ids=self.tokens, labels=self.tokens).loss))
        backward = self._time(losses.pop().backward)
        model.zero_grad()
        return {"forward": forward, "backward": backward}

    def time_decode(self, model):
        """One token: a long answer without a short one, divided by the tokens between them."""
        model.config.use_cache = True
        model.eval()
        with self.torch.no_grad():
            spent = [self._time(lambda count=count: self._generate(model, count)) for count in (1, 1 + NEW_TOKENS)]
        model.train()
        return {"decode": (spent[1] - spent[0]) / NEW_TOKENS}

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


def move_threads():
    """Move this thread and that of the backward passes to cores drawn at random; they are free to leave them again."""
    if not hasattr(os, "sched_setaffinity"):
        return
    allowed = os.sched_getaffinity(0)
    for thread in [0, *_autograd_threads()]:
        with contextlib.suppress(OSError):  # a thread that has ended, or a container that forbids it
            os.sched_setaffinity(thread, {random.choice(sorted(allowed))})
            os.sched_setaffinity(thread, allowed)


def _autograd_threads():
    found = []
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{name}/comm") as comm:
            if comm.read().startswith(AUTOGRAD_THREAD):
                found.append(int(name))
    return found


def eager_measure(bench, name):
    """Return the measure of one name over models that are already built: the times of all placements, and the best."""
    turn = EAGER_MEASURES[name][0]

    def measure_eager(seconds):
        # What one turn times is measured once, by the first of its measures; the others take what is left of it.
        if not bench.unread.get(name):
            found = bench.measure(turn, PASS_FACTOR[turn] * seconds)
            same = (one for one, row in EAGER_MEASURES.items() if row[0] == turn)
            bench.unread.update({one: found[EAGER_MEASURES[one][1]][EAGER_MEASURES[one][2]] for one in same})
        times = bench.unread.pop(name)
        return times, min(times)

    return measure_eager, f"llama, {SHALLOW} and {DEEP} layers"
