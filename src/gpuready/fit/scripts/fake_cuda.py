"""What ``torch.cuda`` and ``torch.accelerator`` answer where a script is watched: the GPU that was asked for. Runs in the target environment."""

import collections
import contextlib
import types

import torch


class Moment:
    """A stream or an event: nothing runs, so nothing is waited for."""

    cuda_stream = stream_id = device_index = priority = 0
    device_type = 1

    def __init__(self, *args, **kwargs):
        pass

    @property
    def device(self):
        return torch.device("cuda", torch.cuda.current_device())

    def __enter__(self):
        return self

    def __exit__(self, *wrong):
        return None

    def query(self):
        return True

    def is_capturing(self):
        return False

    def elapsed_time(self, other):
        return 1.0

    def record_event(self, event=None):
        return event or Moment()

    def wait(self, *args, **kwargs):
        return None

    record = synchronize = wait_event = wait_stream = wait


class HostGenerator(torch._C.Generator):
    """A generator for a GPU: its numbers are not needed."""

    def __new__(cls, device="cpu"):
        made = super().__new__(cls, "cpu")
        made.told = torch.device(device)
        return made

    @property
    def device(self):
        return torch.cuda.current_device() if self.told is None else self.told


class DeviceSwitch(contextlib.ContextDecorator):
    """``with torch.cuda.device(n)``."""

    def __init__(self, device=None):
        self.index = read_index(device)

    def __enter__(self):
        self.before = torch.cuda.current_device()
        torch.cuda.set_device(self.index)

    def __exit__(self, *wrong):
        torch.cuda.set_device(self.before)
        return False


def read_index(device):
    """Return the number of a device, however it is written; of one on the host None."""
    if device is None or isinstance(device, int):
        return device
    if isinstance(device, torch.Tensor):
        device = device.device
    return torch.device(device).index if torch.device(device).type == "cuda" else None


class LegacyTensor:
    """``torch.cuda.FloatTensor(2, 3)`` or ``(array)``: a tensor of one type on the GPU."""

    dtype = torch.float32

    def __new__(cls, *args):
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.as_tensor(args[0]).to(cls.dtype).to("cuda")
        return torch.empty(*args or (0,), dtype=cls.dtype, device="cuda")


LEGACY_TYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16, "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64, "IntTensor": torch.int32, "ShortTensor": torch.int16, "ByteTensor": torch.uint8, "BoolTensor": torch.bool,
}  # fmt: skip


def describe_gpu(card):
    major, minor = card["capability"]
    return types.SimpleNamespace(
        name=card["name"], major=major, minor=minor, total_memory=card["memory"], multi_processor_count=card["processors"],
        max_threads_per_multi_processor=2048, warp_size=32, is_integrated=0, is_multi_gpu_board=0, L2_cache_size=50 << 20,
        regs_per_multiprocessor=65536, shared_memory_per_block=49152, shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472, gcnArchName=card["name"], uuid="GPU-0", pci_bus_id=0, pci_device_id=0, pci_domain_id=0,
    )  # fmt: skip


def replace_cuda(card, places, recorder):
    """Let torch.cuda answer for a GPU of the catalogue; every function that would look for a driver is replaced."""
    cuda, gpu, state = torch.cuda, describe_gpu(card), torch.get_rng_state

    def set_device(device):
        index = read_index(device)
        if index is not None and index >= 0:
            places.read(index)
            places.current = index

    def memory_stats(*_, **__):
        return collections.defaultdict(
            int,
            {
                "allocated_bytes.all.current": recorder.live,
                "allocated_bytes.all.peak": recorder.peak,
                "reserved_bytes.all.peak": recorder.peak,
            },
        )

    nothing = lambda *args, **kwargs: None  # noqa: E731
    live, peak = (lambda *_, **__: recorder.live), (lambda *_, **__: recorder.peak)
    stream = Moment()
    answers = {
        "is_available": lambda **__: True, "device_count": lambda **__: places.count, "current_device": lambda **__: places.current,
        "set_device": set_device, "get_device_name": lambda *_, **__: gpu.name, "get_device_capability": lambda *_, **__: (gpu.major, gpu.minor),
        "get_device_properties": lambda *_, **__: gpu, "is_initialized": lambda **__: True, "_is_in_bad_fork": lambda **__: False,
        "is_bf16_supported": lambda *_, **__: gpu.major >= 8, "is_tf32_supported": lambda **__: gpu.major >= 8,
        "mem_get_info": lambda *_, **__: (max(gpu.total_memory - recorder.live, 0), gpu.total_memory), "memory_allocated": live,
        "max_memory_allocated": peak, "memory_reserved": live, "max_memory_reserved": peak, "memory_stats": memory_stats,
        "memory_summary": lambda *_, **__: "", "memory_snapshot": lambda *_, **__: [], "reset_peak_memory_stats": recorder.reset_peak,
        "reset_max_memory_allocated": recorder.reset_peak, "empty_cache": lambda **__: recorder.mark("empty"), "current_stream": lambda *_, **__: stream,
        "default_stream": lambda *_, **__: stream, "Stream": Moment, "Event": Moment, "ExternalStream": Moment,
        "stream": lambda stream: stream or Moment(), "StreamContext": Moment, "device": DeviceSwitch, "device_of": DeviceSwitch,
        "get_rng_state": lambda *_, **__: state(), "get_rng_state_all": lambda **__: [state()] * places.count, "initial_seed": torch.initial_seed,
        "get_arch_list": lambda **__: [f"sm_{gpu.major}{gpu.minor}"], "can_device_access_peer": lambda *_, **__: True,
        "is_current_stream_capturing": lambda **__: False, "_exchange_device": lambda index: set_device(index) or 0,
        "_maybe_exchange_device": lambda index: set_device(index) or 0, "utilization": lambda *_, **__: 0, "_get_device_index": torch.cuda._utils._get_device_index,
    }  # fmt: skip
    silent = (
        "init", "_lazy_init", "_lazy_call", "synchronize", "ipc_collect", "manual_seed", "manual_seed_all", "seed", "seed_all",
        "set_rng_state", "set_rng_state_all", "set_stream", "set_sync_debug_mode", "set_per_process_memory_fraction",
        "reset_accumulated_memory_stats", "_sleep", "check_error",
    )  # fmt: skip
    answers |= dict.fromkeys(silent, nothing)
    for module in (cuda, cuda.memory, cuda.random):
        for name, answer in answers.items():
            if module is cuda or hasattr(module, name):
                setattr(module, name, answer)
    for name, dtype in LEGACY_TYPES.items():
        setattr(cuda, name, type(name, (LegacyTensor,), {"dtype": dtype, "__module__": "torch.cuda"}))
    cuda.amp.common.amp_definitely_not_available = lambda: False
    cuda.default_generators = tuple(HostGenerator("cuda") for _ in range(places.count))
    torch.Generator = HostGenerator
    torch.version.cuda = torch.version.cuda or "12.8"
    torch.backends.cudnn.is_available, torch.backends.cudnn.version = (lambda: True), (lambda: 91900)
    torch.backends.cuda.is_built = lambda: True
    torch.cuda.nvtx = types.SimpleNamespace(
        range_push=nothing, range_pop=nothing, mark=nothing, range=lambda *_: contextlib.nullcontext()
    )
    replace_accelerator(places, set_device, live, peak, nothing, stream)
    torch.Tensor.__cuda_array_interface__ = property(lambda x: None)
    return gpu


def replace_accelerator(places, set_device, live, peak, nothing, stream):
    """torch.accelerator, where torch has it."""
    if not hasattr(torch, "accelerator"):
        return
    answers = {
        "is_available": lambda: True, "device_count": lambda: places.count, "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": lambda: places.current, "set_device_index": set_device, "current_device_idx": lambda: places.current,
        "set_device_idx": set_device, "synchronize": nothing, "current_stream": lambda *_: stream, "set_stream": nothing,
        "empty_cache": torch.cuda.empty_cache, "memory_allocated": live, "max_memory_allocated": peak, "memory_reserved": live,
        "max_memory_reserved": peak, "device_index": DeviceSwitch, "memory_stats": torch.cuda.memory_stats,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.accelerator, name, answer)
    torch._C._accelerator_getAccelerator = lambda *_, **__: torch.device("cuda")
    group = torch._C._group_tensors_by_device_and_dtype

    def group_tensors(tensors, with_indices=False):
        found = group(tensors, with_indices).items()
        gpu = places.gpu()
        return {((gpu if device.type == "meta" else device), dtype): rows for (device, dtype), rows in found}

    torch._C._group_tensors_by_device_and_dtype = group_tensors
