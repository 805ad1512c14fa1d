"""Beginnings that the provoking scripts share: what an ordinary training script prints and does."""

from __future__ import annotations

PLAIN = """
import logging, os, sys, time
import torch
from torch import nn

rank = int(os.environ.get("RANK", 0))
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("trainer")
torch.manual_seed(0)
log.info("torch %s, arguments: batch_size=8 lr=3e-4 epochs=1", torch.__version__)


def steps(model, data, target, count, first=1):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(first, first + count):
        loss = ((model(data) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log.info("step %d loss %.4f", step, loss.item())
"""
"""A model in training, on one process."""

GLOO = (
    PLAIN
    + """
from datetime import timedelta
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ.get("PG_TIMEOUT", 20))))
world = dist.get_world_size()
log.info("rank %d of %d ready", rank, world)
model = DDP(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)))
data, target = torch.randn(8, 64), torch.randn(8, 64)
steps(model, data, target, 3)
"""
)
"""The same on several ranks over gloo, three steps done."""

LLAMA = (
    PLAIN
    + """
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128)
"""
)
"""A very small Llama."""

CUDA_DRIVER = '''
import ctypes


class Kernel:
    """A kernel in PTX on the context that torch made."""

    def __init__(self, body):
        ptx = f""".version 7.0
.target sm_70
.address_size 64
.visible .entry fused_scale(.param .u64 where) {{
    .reg .u64 %rd<3>;
    .reg .u32 %r<3>;
    ld.param.u64 %rd1, [where];
    mov.u32 %r1, 1;
    {body}
    ret;
}}
""".encode() + bytes(1)
        self.cuda = ctypes.CDLL("libcuda.so.1")
        module = ctypes.c_void_p()
        self.function = ctypes.c_void_p()
        assert self.cuda.cuModuleLoadData(ctypes.byref(module), ptx) == 0, "the kernel did not load"
        assert self.cuda.cuModuleGetFunction(ctypes.byref(self.function), module, b"fused_scale") == 0

    def __call__(self, address):
        where = ctypes.c_uint64(address)
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(where), ctypes.c_void_p))
        self.cuda.cuLaunchKernel(self.function, 1, 1, 1, 32, 1, 1, 0, None, arguments, None)


def fill(leave=0):
    """Take the card's memory from below torch until nothing but ``leave`` bytes can be had."""
    cuda, size, taken = ctypes.CDLL("libcuda.so.1"), 1 << 36, 0
    while size >= 1 << 20:
        free, _ = torch.cuda.mem_get_info()
        pointer = ctypes.c_uint64()
        if free - size < leave or cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) != 0:
            size //= 2
        else:
            taken += size
    return taken
'''
"""Ways below torch to the driver: a kernel written in PTX, and all memory of the card."""
