"""Runs in the target environment: runs a script, unchanged, with every tensor of the GPU on torch's meta device, and records every
allocation and free until its optimizers have made their steps; then the process ends.

The first argument is a file with the request as JSON: ``kind`` (script, module or program), ``words`` (its command line), ``card``,
``world``, ``steps``, and ``reply``, the file for the answer. What the script itself prints stays on stdout and stderr.
"""

import collections.abc
import contextlib
import ctypes
import gc
import importlib.metadata
import json
import math
import os
import re
import runpy
import sys
import threading
import time
import traceback
import weakref

import kernel_recorder
import known_values
import mixed_types
import torch
import torch._dynamo  # before anything is replaced: it lists the functions of torch
from convolutions import CONVOLUTION_NOTE
from emulation import AttentionKernel
from fake_cuda import replace_cuda
from fake_gpu import FakeGpu, Places, remove_guard
from fake_world import apply_launcher, join_world
from healthy_values import HealthyValues
from known_values import Refusal, format_number
from library_patches import patch_libraries
from rnn_kernels import RnnLayers
from script_recorder import ScriptRecorder, UserLines
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves
from watched_files import watch_files

# Of an optimizer: what comes every 16 steps is seen twice; where sizes change, reserved memory grows.
MOST_STEPS, VARIED_STEPS = (34, 120)
LEAVE = os._exit
ALIKE_STEPS = 6  # in a row, after which they are taken to differ no more
MOST_EVENTS = 3_000_000
LONGEST_LOOK, LONGEST_WAIT = (
    120.0,
    360.0,
)  # seconds of the processor, with batches that are looked through; of the clock
LONG_LOOK, MANY_EVENTS = 10.0, 300_000  # seconds, and events, after which steps that are alike are watched no longer


class Watch:
    """One run of a script: its phases, its optimizers, and the end."""

    def __init__(self, request):
        self.request, self.begun, self.process, self.started = (
            request,
            time.process_time(),
            os.getpid(),
            time.monotonic(),
        )
        kind, words = request["kind"], request["words"]
        self.lines = UserLines(os.path.dirname(os.path.abspath(words[0])) if kind == "script" else os.getcwd())
        known_values.find_place = mixed_types.find_place = self.lines.describe
        kernel_recorder.HAS_TF32 = request["card"]["capability"][0] >= 8
        sys.modules["healthy_values"].find_place = self.lines.describe
        self.places = Places(request["count"])
        self.recorder = ScriptRecorder(self.places, self.lines)
        self.kernels, self.known = self.recorder.kernels, HealthyValues()
        self.gpu = FakeGpu(self.places, self.recorder, self.known, request["card"]["capability"])
        self.recorder.hide = lambda x: self.gpu.hide(x) if isinstance(x, torch.Tensor) and x.dim() else x
        self.recorder.read_values = lambda x: self.known.read(x) if isinstance(x, torch.Tensor) else x
        self.notes, self.unmodelled, self.lessened = [], [], []
        self.steps, self.micro, self.depth, self.made, self.counts = 0, 0, 0, weakref.WeakSet(), {}
        self.sizes, self.alike, self.step_start, self.varied, self.enough_at = {}, {}, 0, False, None
        self.batches, self.given, self.ahead, self.largest = 0, 0, None, [0, 0]
        self.parameters, self.loader, self.order, self.numbers = weakref.WeakSet(), [], [], {}

    # -- phases ---------------------------------------------------------------------------------------------------

    def follow_backward(self, run):
        """Return ``torch.autograd.backward`` or ``grad`` with marks before and after; the mode stays active inside."""
        run = remove_guard(run) or run

        def backward(*args, **kwargs):
            if not self.depth:
                self.recorder.mark(f"fwd{self.steps}.{self.micro}")
            self.depth, before, self.recorder.backward = self.depth + 1, self.recorder.backward, True
            try:
                return run(*args, **kwargs)
            finally:
                self.depth, self.recorder.backward = self.depth - 1, before
                if not self.depth:
                    self.recorder.mark(f"bwd{self.steps}.{self.micro}")
                    self.micro += 1

        return backward

    def before_step(self, optimizer, args, kwargs):
        self.recorder.mark(f"clip{self.steps}")
        for parameter in self.parameters:
            if parameter.grad is not None:
                self.recorder.set_kind(parameter.grad, "gradients")

    def after_step(self, optimizer, args, kwargs):
        if os.getpid() != self.process:  # a child that the script forked
            return
        for one in tree_leaves(list(optimizer.state.values())):
            if isinstance(one, torch.Tensor):
                self.recorder.set_kind(one, "optimizer")
        self.recorder.mark(f"opt{self.steps}", f"zero{self.steps}")
        self.loader.append(self.recorder.loader_seconds)
        self.recorder.loader_seconds = 0.0
        self.steps, self.micro = self.steps + 1, 0
        self.counts[id(optimizer)] = self.counts.get(id(optimizer), 0) + 1
        self.order.append(self.numbers.setdefault(id(optimizer), len(self.numbers)))
        if self.is_enough(id(optimizer)):
            self.end()

    def is_enough(self, stepped):
        """Whether every optimizer has made its steps, and the last two of each were alike; a script whose batches change is watched for longer.

        Some seconds more are looked for what comes every few steps: an evaluation, a penalty.
        """
        asked, now = self.request["steps"], time.process_time()
        sizes = hash(
            tuple(event for event in self.recorder.events[self.step_start :] if isinstance(event, int) and event >= 0)
        )
        self.step_start = len(self.recorder.events)
        same = sizes == self.sizes.get(stepped)
        self.alike[stepped], self.sizes[stepped] = self.alike.get(stepped, 0) + 1 if same else 0, sizes
        self.varied = self.varied or (not same and self.counts[stepped] > 2)
        waiting = any(self.counts.get(id(one), 0) < asked for one in self.made)
        late = self.is_late(now, self.request["seconds"]) or self.step_start > MOST_EVENTS
        most = VARIED_STEPS if self.varied and self.step_start < MANY_EVENTS else MOST_STEPS
        if self.steps >= most * max(1, len(self.made)) or (late and self.steps >= asked):
            return not self.looks_ahead(now)
        wanted = ALIKE_STEPS if self.varied else 1
        if waiting or self.request["exact"] or not all(count >= wanted for count in self.alike.values()):
            return not waiting and self.request["exact"]
        self.enough_at = self.enough_at or now
        return self.step_start > MANY_EVENTS or now - self.enough_at > LONG_LOOK

    def looks_ahead(self, now):
        """Whether batches to come are looked through for larger ones: as many as are watched where steps are light."""
        if self.varied and self.batches and self.ahead is None and not self.request["exact"]:
            self.ahead = self.batches * VARIED_STEPS // self.steps
        return self.batches < (self.ahead or 0) and not self.is_late(now, LONGEST_LOOK)

    def is_late(self, now, seconds):
        """Whether so many seconds were computed, or too many were waited, where other work keeps the processor."""
        return now - self.begun > seconds or time.monotonic() - self.started > LONGEST_WAIT

    def passes_over(self, batch):
        """Whether a batch is left out: while looking ahead, one that is no larger than those before."""
        leaves = tree_leaves(dict(batch) if isinstance(batch, collections.abc.Mapping) else batch)
        shapes = [x.shape for x in leaves if isinstance(x, torch.Tensor)]
        sizes = [sum(math.prod(shape) * max(shape, default=1) ** power for shape in shapes) for power in (0, 1)]
        larger = any(size > before for size, before in zip(sizes, self.largest, strict=False))
        self.largest, self.batches = [max(pair) for pair in zip(sizes, self.largest, strict=False)], self.batches + 1
        if self.ahead is None or larger:
            self.given = self.steps
            return False
        looks = self.batches < self.ahead and not self.is_late(time.process_time(), LONGEST_LOOK)
        return looks or self.end_ahead()

    def end_ahead(self):
        """End the watch if it looks ahead; with the next step where the last batch may still wait, as loaders that take one early have it."""
        if self.ahead is not None:
            self.ahead = 0
            if self.steps > self.given + 1:
                self.end()
        return False

    # -- running --------------------------------------------------------------------------------------------------

    def install(self):
        replace_cuda(self.request["card"], self.places, self.recorder)
        AttentionKernel.note = self.kernels.note_attention
        torch.Tensor.__format__ = format_number(torch.Tensor.__format__)
        torch.autograd.backward = self.follow_backward(torch.autograd.backward)
        torch.autograd.grad = self.follow_backward(torch.autograd.grad)
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)
        new, prepare = torch.nn.Parameter.__new__, torch.optim.Optimizer.__init__

        def make_parameter(cls, data=None, requires_grad=True):
            made = new(cls, data if data is None else self.gpu.hide(data), requires_grad)
            self.parameters.add(made)
            return made

        def make_optimizer(optimizer, *args, **kwargs):
            prepare(optimizer, *args, **kwargs)
            self.made.add(optimizer)

        def set_default(device):
            self.gpu.default = None if device is None else self.places.read(device)

        torch.nn.Parameter.__new__, torch.optim.Optimizer.__init__ = make_parameter, make_optimizer
        torch.set_default_device = set_default
        torch.get_default_device = lambda: self.gpu.default or torch.device("cpu")
        patch_libraries(self)
        join_world(self)
        os._exit, run_thread = self.leave_at_once, threading.Thread._bootstrap_inner

        def run_watched(thread):  # a mode of torch is one thread's
            with self.modes():
                run_thread(thread)

        threading.Thread._bootstrap_inner = run_watched

    def modes(self):
        entered = contextlib.ExitStack()
        for mode in (self.known, self.recorder, self.gpu):
            entered.enter_context(mode)
        return entered

    def run(self):
        """Run the script to its end, or to the end of the watch."""
        kind, words = self.request["kind"], self.request["words"]
        apply_launcher(self)
        sys.argv = list(words)
        if kind == "script":
            sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
            return runpy.run_path(words[0], run_name="__main__")
        sys.path.insert(0, os.getcwd())
        if kind == "module":
            return runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        name = os.path.basename(words[0])
        found = [one for one in importlib.metadata.entry_points(group="console_scripts") if one.name == name]
        if not found:
            raise Refusal(f"{words[0]} is no program of this Python environment")
        return found[0].load()()

    def start(self):
        self.recorder.mark("build")
        try:
            with self.modes():
                self.run()
        except SystemExit as left:
            self.leave(left.code)
        except BaseException as error:
            if self.ahead is not None:  # it saw fewer batches than it has
                self.end()
            self.end(self.explain(error), traceback.format_exc())
        self.leave(0)

    def leave(self, code):
        """The script ends, or ends itself: with an optimizer, but without a step of it, that is no answer."""
        failed = code not in (None, 0) and self.steps < self.request["steps"]
        if not failed and (self.steps or not self.made):
            self.end()
        said = f": {code[:300]}" if isinstance(code, str) else f" (exit code {code})" if failed and self.steps else ""
        self.end(f"the script ended itself before {'another' if self.steps else 'an'} optimizer step{said}")

    def leave_at_once(self, code):
        LEAVE(code) if os.getpid() != self.process else self.leave(code)

    def explain(self, error):
        """Return one sentence: the error, and the line of the script that it came from."""
        if isinstance(error, EOFError) and "EOF when reading a line" in str(error):
            return "the script reads from standard input, and nothing comes from there while it is watched"
        where = ""
        for frame, line in traceback.walk_tb(error.__traceback__):
            kind = self.lines.classify(frame.f_code.co_filename)
            if kind == "user" or (kind == "library" and not where):
                where = f" ({os.path.basename(frame.f_code.co_filename)}:{line})"
        text = str(error).strip().partition("\n")[0][:300]
        if "multiprocessing.popen_spawn_posix" in sys.modules:
            where += ", and processes that it starts by spawn see no GPU while it is watched"
        known = "not watched: a tensor without memory cannot do this: " * bool(re.search(r"\b[Mm]eta\b", text))
        return f"{known}{type(error).__name__}: {text}{where}"

    def end(self, error="", trace=""):
        """Write what was seen, and leave at once: nothing of the script runs after this."""
        if os.getpid() != self.process:
            LEAVE(0)
        for parameter in self.parameters:
            self.recorder.set_kind(parameter, "parameters")
            if parameter.grad is not None:
                self.recorder.set_kind(parameter.grad, "gradients")
        recorder, known = self.recorder, self.known
        if self.varied:
            self.notes.append("batches differ in size: those of these steps are counted, and a larger one needs more")
        if "convolution" in recorder.names:
            self.notes.append(f"{CONVOLUTION_NOTE}: with kernels of 7x7 a quarter more was reserved")
        if self.kernels.saw_second_backward:
            self.unmodelled.append("the workspaces of cuDNN for convolutions in the backward pass of a backward pass")
        if RnnLayers.saw_packed:
            self.unmodelled.append("what cuDNN needs for packed sequences of a recurrent layer")
        reply = {
            "events": recorder.events, "by": recorder.by, "names": list(recorder.names), "lines": recorder.lines,
            "places": [[path, line, read_line(path, line)] for path, line in recorder.user_lines.numbers],
            "kinds": [[number, kind] for number, kind in recorder.kinds.items()], "kernels": self.kernels.rows, "steps": self.steps, "optimizers": self.order,
            "versions": find_versions(), "notes": list(dict.fromkeys(self.notes)), "unmodelled": list(dict.fromkeys(self.unmodelled)), "lessened": list(dict.fromkeys(self.lessened)),
            "assumed": list(known.assumed.items())[:20], "larger": list(known.larger.items())[:20], "error": error, "traceback": trace, "alloc_conf": find_alloc_conf(),
            "math": "math" in self.gpu.attention.kernels, "spread": known.spread, "seconds": time.process_time() - self.begun,
            "tried": len(recorder.tried),
            "loader_seconds": sorted(self.loader[1:])[len(self.loader[1:]) // 2] if self.loader[1:] else 0.0,
        }  # fmt: skip
        with open(self.request["reply"], "w", encoding="utf-8") as file:
            json.dump(reply, file)
        with contextlib.suppress(ValueError, OSError):  # the script may have closed them
            sys.stdout.flush()
            sys.stderr.flush()
        LEAVE(0)


def read_line(path, number):
    """Return the text of a line of the script."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return next((text.strip()[:100] for n, text in enumerate(file, 1) if n == number), "")
    except OSError:
        return ""


def find_alloc_conf():
    """Return the settings of the allocator, which the script may have set itself."""
    return os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""


def find_versions():
    names = ("torch", "transformers", "accelerate", "peft", "trl", "lightning", "diffusers", "timm")
    return {name: str(getattr(sys.modules[name], "__version__", "")) for name in names if name in sys.modules}


def main():
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL: it ends with gpuready, however that ends
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    gc.freeze()
    watch = Watch(request)
    watch.install()
    if request.get("journal"):
        watch_files(request["journal"], request["backups"])
    watch.start()


if __name__ == "__main__":
    main()
