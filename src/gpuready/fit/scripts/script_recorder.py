"""Records what a watched script allocates on its GPU, with the line of its own code. Runs in the target environment."""

import contextlib
import math
import os
import sys
import time

import torch
from allocation_recorder import AllocationRecorder
from convolutions import CONVOLUTION_OPS, Convolution
from kernel_recorder import KernelRecorder
from known_values import find_tensors, touches_meta
from torch.utils._pytree import tree_map

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = os.path.dirname(torch.__file__)
PLAN = 52_000_000  # nanoseconds, forward and again backward: 50 and 55 ms on the host of an H200
SHORT_WORK = 2e-5  # seconds that are not noted
LARGE_WEIGHT = 64  # values for each channel: more than a layer has that slides over a picture


class UserLines:
    """The lines of the script and of what lies beside it; where none is on the stack, the innermost outside of torch."""

    def __init__(self, folder):
        self.folder, self.kinds, self.numbers = os.path.realpath(folder) + os.sep, {}, {}

    def classify(self, path):
        """Return user, library, or none (torch and this emulation)."""
        if path not in self.kinds:
            real = os.path.realpath(path)
            inside = real.startswith(self.folder) and "site-packages" not in real[len(self.folder) :]
            ours = real.startswith((HERE, TORCH)) or path.startswith("<")
            self.kinds[path] = "" if ours else "user" if inside else "library"
        return self.kinds[path]

    def find(self):
        """Return the file and the number of the line that runs."""
        frame, library, kinds = sys._getframe(1), None, self.kinds
        while frame is not None:
            path = frame.f_code.co_filename
            kind = kinds[path] if path in kinds else self.classify(path)
            if kind == "user":
                return frame.f_code.co_filename, frame.f_lineno
            if kind == "library" and library is None:
                library = frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return library or ("", 0)

    def number(self):
        return self.numbers.setdefault(self.find(), len(self.numbers))

    def describe(self):
        path, line = self.find()
        return f"{os.path.basename(path)}:{line}" if path else "the script"


class ScriptRecorder(AllocationRecorder):
    """Notes what lies on the GPU of this rank; ``places`` knows where each storage is."""

    def __init__(self, places, lines):
        super().__init__(ScriptKernels(self))
        self.places, self.user_lines = places, lines
        self.lines, self.kinds, self.sizes = [], {}, []
        self.live = self.peak = 0
        self.host_seconds = self.loader_seconds = 0.0
        self.target, self.tried = None, set()
        self.hide = self.read_values = lambda x: x  # set by the watch

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        # Of several tensors, such as a shard: those come one by one.
        if any(hasattr(one, "__tensor_flatten__") for one in types):
            return NotImplemented
        with torch._C.DisableTorchFunction():  # else tensors say here what they say to the script
            if not touches_meta(args, kwargs):
                return self.run_on_host(func, args, kwargs)
            before, self.target = self.target, self.places.choose(args, kwargs)
            try:
                if self.target.type != "cuda":
                    return self.run_elsewhere(func, args, kwargs)
                out = super().__torch_dispatch__(func, types, args, kwargs)
                name = func._schema.name.partition("::")[2]
                if torch.backends.cudnn.benchmark and name in CONVOLUTION_OPS:
                    self.try_algorithms(Convolution(name, args))
                return out
            finally:
                self.target = before

    def try_algorithms(self, made):
        """Convolutions of a new form: cuDNN tries algorithms in what is free, and torch empties its cache."""
        form = made.backward, made.x.shape, made.weight.shape, made.x.dtype, made.stride, made.groups, made.transposed
        if form not in self.tried:
            self.tried.add(form)
            self.mark("empty")

    def run_on_host(self, func, args, kwargs):
        """Run an operation on real tensors: the script's own work on the host, which is timed."""
        with torch._C._DisableTorchDispatch(), self.timing():
            return func(*args, **kwargs)

    @contextlib.contextmanager
    def timing(self, workers=0):
        """What runs inside is the host's own work, done by so many other processes."""
        begun, before = time.thread_time(), self.host_seconds
        try:
            yield
        finally:
            spent = time.thread_time() - begun
            self.host_seconds = before + (0.0 if workers else spent)
            self.loader_seconds += spent / workers if workers else 0.0

    def run_elsewhere(self, func, args, kwargs):
        """Run an operation of the host; tensors with and without memory meet there."""
        tensors = find_tensors(args, kwargs)
        if self.target.type == "cpu" and any(x.dim() and x.device.type == "cpu" for x in tensors):
            writes = func._schema.is_mutable and tensors[0].device.type == "cpu"
            change = self.read_values if writes else self.hide
            args, kwargs = tree_map(change, args), tree_map(change, kwargs)
        out = func(*args, **kwargs)
        for one in out if isinstance(out, (list, tuple)) else (out,):
            if isinstance(one, torch.Tensor) and one.device.type == "meta":
                self.place(one)
        return out

    def place(self, tensor):
        if tensor.untyped_storage()._cdata not in self.places.storages:
            self.places.put(tensor, self.target)

    def add(self, tensor, name=""):
        if tensor.untyped_storage()._cdata not in self.places.storages:
            self.places.put(tensor, self.target or self.places.gpu())
        if self.places.find(tensor).type != "cuda" or not super().add(tensor, name):
            return False
        self.lines.append(self.user_lines.number())
        size = -(-tensor.untyped_storage().nbytes() // 512) * 512
        self.sizes.append(size)
        self.live += size
        self.peak = max(self.peak, self.live)
        return True

    def drop(self, key):
        number = self.numbers[key]
        merged = self.sum is not None and self.sum[0] == key
        super().drop(key)
        self.live -= self.sizes[number]
        if merged:
            del self.lines[-1], self.sizes[-1]

    def reset_peak(self, *_):
        self.peak = self.live

    def set_kind(self, tensor, kind):
        """Say what a tensor on the GPU is."""
        number = self.numbers.get(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else None
        if number is not None:
            self.kinds[number] = kind


class ScriptKernels(KernelRecorder):
    """The kernels of the GPU alone, with what the host does before them."""

    def __init__(self, recorder):
        super().__init__()
        self.recorder, self.saw_second_backward, self.planned = recorder, False, set()

    def note_attention(self, kind, attended):
        """The host makes a plan of cuDNN for every form of attention that is new."""
        if attended[0] == "cudnn" and (kind, *attended) not in self.planned:
            self.planned.add((kind, *attended))
            self.rows.append(["host", PLAN])
        super().note_attention(kind, attended)

    def record(self, func, name, args, out):
        self.note_host()
        self.saw_second_backward |= self.recorder.backward and is_of_second_backward(name, args)
        super().record(func, name, args, out)

    def note_host(self):
        """Note the host's own work since the last kernel, in nanoseconds."""
        if self.recorder.host_seconds > SHORT_WORK:
            self.rows.append(["host", int(self.recorder.host_seconds * 1e9)])
            self.recorder.host_seconds = 0.0


def is_of_second_backward(name, args):
    """Whether a convolution takes a picture of gradients for its weight, as the backward pass of a backward pass does."""
    return name == "convolution" and math.prod(args[1].shape[2:]) >= LARGE_WEIGHT and math.prod(args[3]) == 1
