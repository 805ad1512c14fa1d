"""What libraries do where a script is watched: no worker processes, no weights read, nothing saved, nothing compiled. Runs in the target environment."""

import contextlib
import functools
import importlib.abc
import importlib.machinery
import os
import pickle
import subprocess
import sys
import types

import torch
import torch.utils.checkpoint
from fake_gpu import HOST
from rnn_kernels import flatten_weights
from torch.utils._pytree import tree_map

COMPILED = "torch.compile: counted as the code runs without it; a compiled step mostly needs less"


def patch_libraries(watch):
    # The device is told differently inside of an operation.
    compared = torch.utils.checkpoint._allowed_determinism_checks_to_fns
    compared["default"] = lambda x: {"shape": x.shape, "dtype": x.dtype}
    torch._C._nn._parse_to = read_destination(torch._C._nn._parse_to, watch.places)
    torch.nn.DataParallel.forward = lambda self, *args, **kwargs: run_replica(self, args, kwargs, watch)
    torch.nn.RNNBase.flatten_parameters = flatten_weights
    patch_loader(watch)
    patch_compile(watch)
    patch_files(watch)
    keep_mark(subprocess.Popen)
    on_import("triton.runtime.jit", lambda module: patch_triton(module.JITFunction, watch))
    on_import("triton.runtime.autotuner", lambda module: patch_triton(module.Autotuner, watch))
    on_import("transformers.modeling_utils", lambda module: patch_transformers(module, watch))
    on_import("peft.peft_model", lambda module: patch_peft(module, watch))


def read_destination(parse, places):
    """What a module is asked to move to, as it was asked: ``to(device=...)`` makes no tensor, though it names a device."""

    def read(*args, **kwargs):
        args, kwargs = tree_map(lambda x: places.gpu(x) if type(x) is int else x, (args, kwargs))
        with torch._C.DisableTorchFunction():
            return parse(*args, **kwargs)

    return read


def keep_mark(programs):
    """Programs with an environment of their own keep the variable by which they are ended with the script."""
    start = programs.__init__

    @functools.wraps(start)
    def start_marked(self, *args, env=None, **kwargs):
        mark = {"GPUREADY_WATCH": os.environ.get("GPUREADY_WATCH", "")}
        return start(self, *args, env=None if env is None else {**env, **mark}, **kwargs)

    programs.__init__ = start_marked


def patch_triton(kernel_class, watch):
    """A kernel of Triton writes into tensors that are there: it is not run, and its time is told as missing."""

    def run(self, *args, **kwargs):
        watch.notes.append("kernels of Triton are counted without their time")

    kernel_class.run = run


def run_replica(parallel, args, kwargs, watch):
    """Run nn.DataParallel over one GPU: the module itself, with its inputs there."""
    if len(parallel.device_ids) > 1:
        watch.unmodelled.append("nn.DataParallel over several GPUs")
    args, kwargs = tree_map(lambda x: x.cuda() if isinstance(x, torch.Tensor) else x, (args, kwargs))
    return parallel.module(*args, **kwargs)


def patch_loader(watch):
    """Batches are made in this process: workers would fork it, and the memory of the GPU is the same. Their time is noted."""
    make, batches = torch.utils.data.DataLoader.__init__, torch.utils.data.dataloader._BaseDataLoaderIter
    advance = batches.__next__

    @functools.wraps(make)
    def init(self, dataset, *args, **kwargs):
        args = list(args)
        workers = args[4] if len(args) > 4 else kwargs.get("num_workers", 0)
        watch.gpu.pins |= bool(args[6] if len(args) > 6 else kwargs.get("pin_memory"))
        for place, name, value in ((4, "num_workers", 0), (6, "pin_memory", False)):
            if len(args) > place:
                args[place] = value
            else:
                kwargs[name] = value
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
            kwargs.pop(name, None)
        make(self, dataset, *args, **kwargs)
        object.__setattr__(self, "workers_asked", workers)

    def take_batch(self):
        with watch.recorder.timing(getattr(self, "workers_asked", 0)):
            while True:
                try:
                    batch = advance(self)
                except StopIteration:
                    watch.end_ahead()  # all batches were looked at
                    raise
                if not watch.passes_over(batch):
                    return batch

    def iterate(self):
        made = iterate_loader(self)
        made.workers_asked = getattr(self, "workers_asked", 0)
        return made

    iterate_loader = torch.utils.data.DataLoader._get_iterator
    torch.utils.data.DataLoader.__init__, torch.utils.data.DataLoader._get_iterator = init, iterate
    batches.__next__ = take_batch


def patch_compile(watch):
    """Compiled code runs as it is written, and the answer is undecided."""

    def note_compile():
        watch.unmodelled.append(COMPILED), watch.lessened.append(COMPILED)

    def compile(model=None, **options):
        if model is None:
            return compile
        note_compile()
        return model

    def compile_module(module, *args, **kwargs):
        note_compile()

    class CUDAGraph:
        def __new__(cls, *args, **kwargs):
            raise NotImplementedError("a CUDA graph is recorded, which is not modelled")

    torch.compile, torch.nn.Module.compile, torch.cuda.CUDAGraph = compile, compile_module, CUDAGraph


SAVED = b"saved without values: "


class SavedTensor:
    """Makes a tensor again that was saved, as large as it was, on its device or the one that is asked for."""

    watch = device = None

    def __new__(cls, shape, dtype, device):
        place = cls.watch.places.read(device if cls.device is None else cls.device)
        with torch._C.DisableTorchFunction(), cls.watch.gpu.making(place):
            return torch.empty(shape, dtype=dtype, device="meta")


class UnreadWeights(dict):
    """The weights of a checkpoint that is not read."""


def patch_files(watch):
    """What is saved, and what is loaded, has shapes and no values; downloads are not read at all."""
    nothing = lambda *args, **kwargs: None  # noqa: E731
    load, load_state, reduce = torch.load, torch.nn.Module.load_state_dict, torch.Tensor.__reduce_ex__
    address, save_values = torch.UntypedStorage.data_ptr, torch.save
    SavedTensor.watch = watch

    def hide_all(found, device):
        to = lambda x: watch.gpu.hide(x).to(device or "cpu") if isinstance(x, torch.Tensor) else x  # noqa: E731
        return tree_map(to, found) if isinstance(device, (str, int, torch.device)) else found

    def load_state_dict(self, state, *args, **kwargs):
        return ([], []) if isinstance(state, UnreadWeights) else load_state(self, state, *args, **kwargs)

    def reduce_tensor(self, protocol):
        with torch._C.DisableTorchFunction():
            if self.device.type != "meta" or self.layout is not torch.strided:
                return reduce(self, protocol)
            return SavedTensor, (self.shape, self.dtype, str(watch.places.find(self)))

    def save(what, file, *args, **kwargs):
        if isinstance(what, (torch.UntypedStorage, torch.storage.TypedStorage)):  # of a real tensor that is pickled
            return save_values(what, file, *args, **kwargs)
        with contextlib.nullcontext(file) if hasattr(file, "write") else open(file, "wb") as target:
            target.write(SAVED + pickle.dumps(what))

    def load_saved(read):
        """Return a function that loads what ``save`` wrote, or else reads a file whose tensors get no memory."""

        def run(file, map_location=None, *args, **kwargs):
            device = kwargs.pop("device", map_location)
            with contextlib.nullcontext(file) if hasattr(file, "read") else open(file, "rb") as source:
                begun = source.tell()
                if source.read(len(SAVED)) == SAVED:
                    SavedTensor.device = device if isinstance(device, (str, int, torch.device)) else None
                    try:
                        return pickle.loads(source.read())  # noqa: S301  (this process wrote it)
                    finally:
                        SavedTensor.device = None
                source.seek(begun)
            return hide_all(read(file, "cpu", *args, **kwargs), device)

        return run

    def patch_safetensors(module):
        module.save_file, module.save_model = save, lambda model, file, *args, **kwargs: save(model.state_dict(), file)
        module.save, module.load_file = lambda what, *args: SAVED + pickle.dumps(what), load_saved(module.load_file)

    torch.Tensor.__reduce_ex__, torch.save, torch.load = reduce_tensor, save, load_saved(load)
    torch.UntypedStorage.data_ptr = lambda self: address(self) or self._cdata  # tells tensors apart
    torch.nn.Module.load_state_dict = load_state_dict
    torch.hub.load_state_dict_from_url = lambda *args, **kwargs: UnreadWeights()
    on_import("safetensors.torch", patch_safetensors)
    on_import("timm.models._builder", lambda module: vars(module).update(load_pretrained=nothing))
    on_import("diffusers.models.modeling_utils", patch_diffusers)


def patch_diffusers(module):
    """A model of diffusers comes from its config alone, too."""

    def from_pretrained(cls, name, torch_dtype=None, **kwargs):
        known = ("subfolder", "cache_dir", "revision", "token", "local_files_only", "variant")
        config = cls.load_config(name, **{key: kwargs[key] for key in known if key in kwargs and key != "variant"})
        return cls.from_config(config).to(torch_dtype or torch.float32).eval()

    module.ModelMixin.from_pretrained = classmethod(from_pretrained)
    module.ModelMixin.save_pretrained = lambda self, folder, *args, **kwargs: self.save_config(folder)


# -- transformers --------------------------------------------------------------------------------------------------


def patch_transformers(module, watch):
    """A checkpoint gives its config alone: what is loaded has the shapes, and no values."""

    def from_pretrained(
        cls, name=None, *args, config=None, cache_dir=None, dtype=None, torch_dtype=None, device_map=None, **kwargs
    ):
        from transformers import AutoConfig, PreTrainedConfig

        hub = {
            key: kwargs.pop(key)
            for key in ("revision", "subfolder", "token", "trust_remote_code", "local_files_only")
            if key in kwargs
        }
        if not isinstance(config, PreTrainedConfig):
            hub.pop("local_files_only", None)
            found = cls.config_class or AutoConfig
            config, kwargs = found.from_pretrained(
                config or name, cache_dir=cache_dir, return_unused_kwargs=True, **hub, **kwargs
            )
        config.name_or_path = str(name or "")
        asked = dtype if dtype is not None else torch_dtype
        if asked in (None, "auto"):
            asked = config.dtype or torch.float32
        options = {key: kwargs[key] for key in ("attn_implementation", "experts_implementation") if key in kwargs}
        quantised = kwargs.get("quantization_config") or getattr(config, "quantization_config", None)
        config.quantization_config = None if quantised is None else quantised
        model = cls._from_config(config, dtype=getattr(torch, asked) if isinstance(asked, str) else asked, **options)
        from mixed_types import widen_kept_parameters

        widen_kept_parameters(model, model.dtype)
        if quantised is not None:
            quantise(model, quantised, watch)
        if device_map is not None or quantised is not None:
            model.to(choose_device(device_map, watch))
        return model.eval()

    module.PreTrainedModel.from_pretrained = classmethod(from_pretrained)

    def save_pretrained(self, folder, *args, **kwargs):
        self.config.architectures = [type(self).__name__]
        self.config.save_pretrained(folder)

    module.PreTrainedModel.save_pretrained = save_pretrained


def choose_device(device_map, watch):
    """Return the device of a model with a device map: a map over several GPUs is not played."""
    devices = set(device_map.values()) if isinstance(device_map, dict) else {device_map}
    if len(devices) > 1 or (
        watch.places.count > 1 and device_map in ("auto", "balanced", "balanced_low_0", "sequential")
    ):
        watch.unmodelled.append("a device map that spreads the model over several GPUs")
    one = next(iter(devices))
    return watch.places.gpu() if one in (None, "auto", "balanced", "balanced_low_0", "sequential") else one


def quantise(model, wanted, watch):
    """Replace linear layers as bitsandbytes would, in 4 bits; another kind is not played."""
    get = wanted.get if isinstance(wanted, dict) else lambda name, default=None: getattr(wanted, name, default)
    if not get("load_in_4bit", False):
        raise NotImplementedError(
            "the weights are quantised in a way that is not modelled (only 4 bits of bitsandbytes are)"
        )
    from quantised import quantise_layers

    dtype = get("bnb_4bit_compute_dtype", torch.float32)
    with watch.gpu.making(HOST), torch._C.DisableTorchFunction():
        quantise_layers(
            model,
            getattr(torch, dtype) if isinstance(dtype, str) else dtype,
            bool(get("bnb_4bit_use_double_quant", False)),
        )
    model.is_loaded_in_4bit = model.is_quantized = True
    model.hf_quantizer = types.SimpleNamespace(is_trainable=True, is_qat_trainable=False, quantization_config=wanted)


def patch_peft(module, watch):
    """Adapters over layers in 4 bits run as peft's own do over those of bitsandbytes."""
    from quantised import adapt_quantised_layers

    make = module.PeftModel.__init__

    def init(self, *args, **kwargs):
        make(self, *args, **kwargs)
        adapt_quantised_layers(self, watch.gpu.autocast)

    module.PeftModel.__init__ = init


# -- imports -------------------------------------------------------------------------------------------------------


class PatchAfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module when it has been imported."""

    def __init__(self):
        self.waiting = {}

    def find_spec(self, name, path, target=None):
        patch = self.waiting.pop(name, None)
        spec = None if patch is None else importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (run(module), patch(module))
        return spec


FINDER = PatchAfterImport()


def on_import(name, patch):
    """Patch a module when the script imports it, or now where torch has."""
    if name in sys.modules:
        return patch(sys.modules[name])
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    FINDER.waiting[name] = patch
