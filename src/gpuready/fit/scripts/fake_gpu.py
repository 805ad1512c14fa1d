"""Tensors of the meta device that say they are on a GPU or on the host. Runs in the target environment.

A tensor without memory is one of torch's meta device; ``Places`` knows of each storage where the script believes it to
be. Small tensors that come from the host keep their values (known_values.py). Nothing of a GPU build of torch is used, so
that a machine with a GPU and one without give the same answer.
"""

import contextlib
import functools
import types
import weakref

import torch
from emulation import Attention, RmsNorm, TorchAutocast, native_dropout
from known_values import find_tensors, value_limit
from losses import ctc_loss
from rnn_kernels import GATES, RnnLayers
from torch.overrides import TorchFunctionMode

Tensor = torch.Tensor
HOST, META = torch.device("cpu"), torch.device("meta")
PAGEABLE = 8.0  # bytes a nanosecond of a copy to the GPU from memory that is not pinned: 5.6 and 17 on an H200
GUARDS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
HOST_FIRST = {torch.tensor, torch.as_tensor, torch.asarray, torch.randint, torch.randperm}
FACTORIES = {
    getattr(torch, name)
    for name in (
        "empty", "zeros", "ones", "full", "arange", "range", "linspace", "logspace", "eye", "rand", "randn", "normal", "empty_strided",
        "tril_indices", "triu_indices", "hann_window", "hamming_window", "empty_permuted",
    )
} | HOST_FIRST  # fmt: skip
"""What ``torch.set_default_device`` places."""


class Places:
    """Where each storage of the meta device is; ``asked`` is where the function that runs now was asked to make its result."""

    def __init__(self, count=1):
        self.storages, self.asked, self.current, self.count = {}, None, 0, count

    def find(self, tensor):
        """Return the device that a tensor says; a real one says its own."""
        tensor = getattr(tensor, "_local_tensor", tensor)  # the shard of this rank
        if tensor.device.type != "meta":
            return tensor.device
        return self.storages.get(tensor.untyped_storage()._cdata, META) if tensor.layout is torch.strided else META

    def put(self, tensor, device):
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            weakref.finalize(storage, self.storages.pop, storage._cdata, None)
        self.storages[storage._cdata] = device

    def choose(self, args, kwargs):
        """Return where the results of an operation are: where it was asked to make them, else with its inputs on a GPU."""
        if self.asked is not None:
            return self.asked
        tensors = [x for x in find_tensors(args, kwargs) if x.device.type == "meta"]
        found = [self.find(x) for x in tensors]
        # What torch makes by itself, such as the indices of ``x[:, [0]]``, is nowhere: the script put none of it on the meta device.
        put = {self.storages.get(x.untyped_storage()._cdata) for x in tensors} if META in found else ()
        if META in put and any(one.type == "cuda" for one in found):
            raise RuntimeError("Expected all tensors to be on the same device, but found cuda and meta")
        return next((one for one in found if one.type == "cuda"), found[0] if found else self.gpu())

    def gpu(self, index=None):
        return torch.device("cuda", self.current if index is None else index)

    def read(self, device):
        """Return a device with its index, from any way to write it."""
        if isinstance(device, int):
            return self.gpu(device)
        device = torch.device(device)
        if device.type == "cuda" and (device.index or 0) >= self.count:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return self.gpu() if device.type == "cuda" and device.index is None else device


@functools.cache
def copy_globals(module_name):
    return vars(__import__(module_name, fromlist=["_"])) | dict.fromkeys(GUARDS, lambda *tensors: False)


@functools.cache
def remove_guard(func):
    """Return a Python function of torch that does not ask for torch functions again, so that a mode can be active inside; None for others."""
    if not isinstance(func, types.FunctionType) or not {"overrides", "super"}.isdisjoint(func.__code__.co_names):
        return None
    if not any(name in GUARDS for name in func.__code__.co_names) or func.__module__ not in func.__globals__.get(
        "__name__", ""
    ):
        return None
    made = types.FunctionType(
        func.__code__, copy_globals(func.__module__), func.__name__, func.__defaults__, func.__closure__
    )
    made.__kwdefaults__ = func.__kwdefaults__
    return made


class FakeGpu(TorchFunctionMode):
    """Answers for a GPU: devices in arguments, where tensors are, autocast, and functions that run otherwise there."""

    def __init__(self, places, recorder, known, capability):
        super().__init__()
        self.places, self.recorder, self.known = places, recorder, known
        self.autocast, self.default = TorchAutocast(), None
        self.rows, self.pins, self.blocks = (
            recorder.kernels.rows,
            False,
            True,
        )  # pins: whether a loader pins its batches
        self.attention = Attention(capability, self.autocast)
        functional = torch.nn.functional
        self.kernels = {
            functional.scaled_dot_product_attention: self.attention, functional.rms_norm: RmsNorm(self.autocast, self.rows),
            functional.dropout: native_dropout, functional.ctc_loss: ctc_loss,
        }  # fmt: skip
        self.kernels |= {getattr(torch, name): RnnLayers(name, recorder.kernels, self.autocast) for name in GATES}
        self.special = {
            Tensor.device.__get__: places.find, Tensor.to: self.to, Tensor.cuda: self.cuda,
            Tensor.is_cuda.__get__: lambda x: places.find(x).type == "cuda", Tensor.is_cpu.__get__: lambda x: places.find(x).type == "cpu",
            Tensor.is_meta.__get__: lambda x: places.find(x).type == "meta", Tensor.cpu: lambda x, **_: self.move(x, HOST),
            Tensor.get_device: lambda x: -1 if places.find(x).type == "cpu" else places.find(x).index, Tensor.type: self.change_type,
            Tensor.pin_memory: lambda x, *_: x, Tensor.is_pinned: lambda x, *_: False, Tensor.numpy: self.numpy,
            Tensor.__array__: lambda x, dtype=None: self.numpy(x) if dtype is None else self.numpy(x).astype(dtype),
            Tensor.data.__set__: self.set_data, Tensor.new_tensor: self.new_tensor, Tensor.record_stream: lambda *_: None,
            torch.isfinite: self.healthy(torch.isfinite, True), torch.isnan: self.healthy(torch.isnan, False),
            torch.isinf: self.healthy(torch.isinf, False), Tensor.isfinite: self.healthy(torch.isfinite, True),
            Tensor.isnan: self.healthy(torch.isnan, False), Tensor.isinf: self.healthy(torch.isinf, False),
            Tensor.__repr__: self.show, Tensor.share_memory_: lambda x: x, Tensor.data_ptr: self.find_address,
        }  # fmt: skip

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in self.special:
            return self.special[func](*args, **kwargs)
        if func in self.kernels and self.is_on_gpu(args, kwargs):
            return self.kernels[func](*args, **kwargs)
        if func in HOST_FIRST and args and isinstance(args[0], (Tensor, list, tuple)):
            args = (self.read_numbers(args[0]), *args[1:])
            if func is torch.tensor and isinstance(args[0], Tensor):
                return self.copy_tensor(*args, **kwargs)
        if kwargs.get("pin_memory"):
            kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
        if self.default is not None and func in FACTORIES and kwargs.get("device") is None:
            kwargs["device"] = self.default
        if kwargs.get("device") is not None:
            return self.make(func, args, kwargs, self.places.read(kwargs["device"]))
        return self.autocast.run(func, args, kwargs, self.call)

    def call(self, func, args, kwargs):
        inside = remove_guard(func)
        if inside is None:
            return func(*args, **kwargs)
        with self:
            return inside(*args, **kwargs)

    def is_on_gpu(self, args, kwargs):
        return any(self.places.find(x).type == "cuda" for x in find_tensors(args, kwargs))

    def make(self, func, args, kwargs, device):
        """Call a function that is asked for a device."""
        if device.type == "cpu" or func in HOST_FIRST:
            grad = kwargs.pop("requires_grad", False)
            if args and isinstance(args[0], Tensor) and func in (torch.as_tensor, torch.asarray):
                return self.move(args[0], device, kwargs.get("dtype"))
            made = self.call(
                func, args, kwargs | {"device": HOST} | ({"requires_grad": True} if grad and device == HOST else {})
            )
            made = made if device == HOST else self.move(made, device)
            return made.requires_grad_() if grad else made
        kwargs.pop("generator", None)
        with self.making(device):
            return self.call(func, args, kwargs | {"device": META})

    @contextlib.contextmanager
    def making(self, device):
        """Whatever is made inside lies on this device."""
        before, self.places.asked = self.places.asked, device
        try:
            yield
        finally:
            self.places.asked = before

    # -- moving ---------------------------------------------------------------------------------------------------

    def to(self, x, *args, **kwargs):
        self.blocks = not kwargs.pop("non_blocking", False)
        copy = kwargs.pop("copy", False)
        if args and isinstance(args[0], Tensor):
            return self.move(x, self.places.find(args[0]), args[0].dtype, copy, kwargs.get("memory_format"))
        if args and isinstance(args[0], int) and not isinstance(args[0], bool):
            args = (self.places.gpu(args[0]), *args[1:])
        if len(args) > 3:
            args, copy = args[:3], args[3]
        device, dtype, unblocked, layout = torch._C._nn._parse_to(*args, **kwargs)
        self.blocks = self.blocks and not unblocked
        return self.move(x, None if device is None else self.places.read(device), dtype, copy, layout)

    def cuda(self, x, device=None, non_blocking=False, memory_format=None):
        self.blocks = not non_blocking
        return self.move(x, self.places.gpu() if device is None else self.places.read(device))

    def move(self, x, device, dtype=None, copy=False, layout=None):
        """Return a tensor on a device: as it is where it is there already."""
        options = {} if layout is None else {"memory_format": layout}
        here = self.places.find(x)
        if device is None or device == here or (here.type == "meta" and device.type != "meta" and not x.numel()):
            return Tensor.to(x, dtype=dtype or x.dtype, copy=copy, **options)
        if x.device.type == "cpu":
            return self.send(x, device, dtype, options)
        if device.type == "cpu" and self.known.holds(x):
            return self.known.value_of(x).clone().to(dtype or x.dtype, **options)
        if here.type == "meta" and device.type != "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        with self.making(device):
            return x.clone(**options) if dtype in (None, x.dtype) else Tensor.to(x, dtype=dtype, copy=True, **options)

    def send(self, x, device, dtype, options):
        """Return a tensor without memory in the place of a real one; small ones keep their values."""
        x = x if dtype in (None, x.dtype) else x.to(dtype)
        if device.type == "cuda":
            self.note_copy(x)
        with self.making(device):
            made = Tensor.to(x, META, **options)
        if x.numel() <= value_limit(x.dtype) and device.type != "meta":
            self.known.keep(made, x.detach())
        return made

    def note_copy(self, x):
        """Copying from memory that is not pinned keeps the host, and it waits for the GPU unless it was asked not to."""
        if self.blocks:
            self.rows.append(["wait", 0])
        if not self.pins:
            self.rows.append(["host", int(x.numel() * x.element_size() / PAGEABLE)])
        self.blocks = True

    def hide(self, x):
        """Return a real tensor of the host as one without memory, that says it is on the host."""
        with torch._C.DisableTorchFunction():
            return self.send(x, HOST, None, {}) if x.device.type == "cpu" and x.layout is torch.strided else x

    def set_data(self, x, value):
        if x.device.type == "cpu" and value.device.type == "meta":  # a buffer that moves: it stays the same object
            return torch.utils.swap_tensors(x, value.detach())
        return Tensor.data.__set__(x, self.hide(value) if x.device.type == "meta" else value)

    def new_tensor(self, x, data, dtype=None, device=None, requires_grad=False):
        made = torch.tensor(data, dtype=dtype or x.dtype)
        made = self.move(made, self.places.find(x) if device is None else self.places.read(device))
        return made.requires_grad_(requires_grad)

    def copy_tensor(self, x, dtype=None, device=None, requires_grad=False, pin_memory=False):
        made = self.move(x.detach(), self.places.find(x) if device is None else self.places.read(device), dtype, True)
        return made.requires_grad_(requires_grad)

    # -- values ---------------------------------------------------------------------------------------------------

    def read_numbers(self, data):
        """Return the data of a new tensor, with numbers in the place of tensors in a list."""
        if isinstance(data, Tensor) or not any(isinstance(one, Tensor) for one in data):
            return data
        return [self.known.read(one.detach()).tolist() if isinstance(one, Tensor) else one for one in data]

    def show(self, x, **options):
        known = self.known.holds(x)
        return Tensor.__repr__(
            self.known.value_of(x.detach()) if known else torch.ones((), dtype=x.dtype).expand(x.shape), **options
        )

    def find_address(self, x):
        """Return an address that no other storage has."""
        address = x.untyped_storage().data_ptr()
        return address + x.storage_offset() * x.element_size() if address else 0

    def numpy(self, x, **named):
        return self.known.read(x.detach()).numpy()

    def change_type(self, x, dtype=None, non_blocking=False, **kwargs):
        kind = x.type() if x.device.type == "cpu" else str(torch.empty(0, dtype=x.dtype).type())
        on_gpu = self.places.find(x).type == "cuda"
        if dtype is None:
            return kind.replace("torch.", "torch.cuda.") if on_gpu else kind
        if isinstance(dtype, torch.dtype):
            return Tensor.to(x, dtype)
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        wanted = torch.empty(0).type(name.replace("torch.cuda.", "torch.")).dtype
        return self.move(x, self.places.gpu() if ".cuda." in name else HOST, wanted)

    def healthy(self, func, answer):
        """Return a check of values that finds a healthy run, where the values are not known."""

        def check(x, *args, **kwargs):
            made = func(x, *args, **kwargs)
            if x.device.type == "meta" and not self.known.holds(x) and made.numel() <= value_limit(torch.bool):
                self.known.forget(made)
                self.known.keep(made, torch.full(made.shape, answer))
            return made

        return check
