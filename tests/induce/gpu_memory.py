"""Memory of the card, in all its ways of not being there. These fill the GPU, so each runs alone."""

from __future__ import annotations

from tests.induce.scripts import CUDA_DRIVER, PLAIN
from tests.induce.stage import Provoke

HOLDER = """
import time, torch
free, total = torch.cuda.mem_get_info()
held = torch.empty(int(free - LEFT), dtype=torch.uint8, device="cuda")
open("held", "w").write("yes")
time.sleep(100)
"""
"""Another process that has nearly all of the card."""

BESIDE = "python holder.py > holder.log 2>&1 & while [ ! -e held ]; do sleep 0.2; done; python train.py"

TRAIN = """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=8,
                     num_attention_heads=32, num_key_value_heads=32, max_position_embeddings=8192)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).to(torch.bfloat16)
log.info("model has %.1f B parameters", sum(p.numel() for p in model.parameters()) / 1e9)
"""

GLOO_GPU = """
import torch.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=25))
device = torch.device("cuda", 0)
model = nn.Linear(1024, 1024).to(device)
flag = torch.ones(1)
for step in range(1, 4):
    model(torch.randn(64, 1024, device=device)).sum().backward()
    dist.all_reduce(flag)
    log.info("[rank %d] step %d", rank, step)
"""

OOM = r"(OutOfMemoryError|AcceleratorError): CUDA (error: )?out of memory"

MEMORY = (
    Provoke("gpu-oom-growth", "cuda-oom", (r"OutOfMemoryError: CUDA out of memory\. Tried to allocate",), PLAIN + """
model = nn.Linear(8192, 8192, device="cuda")
kept = []
for step in range(1, 1000):
    out = model(torch.randn(131072, 8192, device="cuda"))
    kept.append(out)
    log.info("step %d loss %.4f", step, out.mean().item())
""", variant="own growth", alone=True),
    Provoke("gpu-oom-llama-long-sequence", "cuda-oom", (r"OutOfMemoryError: CUDA out of memory\. Tried to allocate",),
            PLAIN + TRAIN + """
ids = torch.randint(0, 32000, (16, 8192), device="cuda")
model.gradient_checkpointing_disable()
loss = model(input_ids=ids, labels=ids).loss
loss.backward()
""", variant="own growth", alone=True),
    Provoke("gpu-oom-optimizer", "cuda-oom", (r"OutOfMemoryError: CUDA out of memory\. Tried to allocate",), PLAIN + """
layers = nn.Sequential(*[nn.Linear(16384, 16384, bias=False, device="cuda") for _ in range(40)])
log.info("model has %.1f B parameters", sum(p.numel() for p in layers.parameters()) / 1e9)
optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-4)
layers(torch.randn(4, 16384, device="cuda")).sum().backward()
log.info("backward done")
optimizer.step()
""", variant="own growth", alone=True),
    Provoke("gpu-oom-one-huge", "cuda-oom", (r"OutOfMemoryError: CUDA out of memory\. Tried to allocate",), PLAIN + """
hidden = torch.randn(64, 32768, 128, device="cuda", dtype=torch.bfloat16)
scores = hidden @ hidden.transpose(1, 2)
log.info("scores %s", scores.shape)
probabilities = torch.softmax(scores.float(), dim=-1)
""", variant="own growth", alone=True),
    Provoke("gpu-oom-fraction", "cuda-oom", (r"OutOfMemoryError: CUDA out of memory\. Tried to allocate",), PLAIN + """
torch.cuda.set_per_process_memory_fraction(0.05)
cache = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(64)]
""", variant="own growth"),
    Provoke("gpu-oom-fragmentation", "cuda-oom", (r"reserved by PyTorch but unallocated",), PLAIN + """
free, _ = torch.cuda.mem_get_info()
blocks = [torch.empty(9 << 20, dtype=torch.uint8, device="cuda") for _ in range(int(free * 0.97) // (10 << 20))]
log.info("%d sequences cached", len(blocks))
blocks = blocks[::2]
log.info("every other one is done")
batch = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
""", variant="fragmentation", alone=True),
    Provoke("gpu-oom-cublas", "cuda-oom", (r"CUBLAS_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)|out of memory",),
            PLAIN + CUDA_DRIVER + """
layer = nn.Linear(512, 512, device="cuda")
data = torch.randn(16, 512, device="cuda")
fill()
log.info("forward")
layer(data)
torch.cuda.synchronize()
""", variant="cublas", alone=True),
    Provoke("gpu-oom-in-nccl", "cuda-oom-in-nccl", (r"(Failed to CUDA|Cuda failure).*(calloc|malloc|out of memory)",),
            PLAIN + CUDA_DRIVER + """
import torch.distributed as dist
dist.init_process_group("nccl")
gradient = torch.ones(1 << 20, device="cuda")
log.info("rank 0 ready, %d MiB left for the buckets", fill() >> 20)
dist.all_reduce(gradient)
torch.cuda.synchronize()
""", ranks=1, rank=0, env={"NCCL_DEBUG": "WARN"}, alone=True),
    Provoke("gpu-busy-other-process", "gpu-memory-busy", (r"Process \d+ has [\d.]+ GiB memory in use|" + OOM,), PLAIN + """
model = nn.Sequential(*[nn.Linear(8192, 8192, device="cuda") for _ in range(64)])
steps(model, torch.randn(8, 8192, device="cuda"), torch.randn(8, 8192, device="cuda"), 5)
""", BESIDE, files={"holder.py": HOLDER.replace("LEFT", "3e9")}, alone=True),
    Provoke("gpu-busy-at-first-call", "gpu-memory-busy", (r"out of memory",), PLAIN + """
torch.cuda.set_device(0)
model = nn.Linear(64, 64).to("cuda")
steps(model, torch.randn(8, 64, device="cuda"), torch.randn(8, 64, device="cuda"), 5)
""", BESIDE + "; code=$?; nvidia-smi --query-gpu=memory.used,memory.total --format=csv; exit $code",
            files={"holder.py": HOLDER.replace("LEFT", "1.5e8")}, alone=True),
    Provoke("gpu-busy-jax-preallocates", "gpu-memory-busy", (OOM + "|has [0-9.]+ GiB memory in use",), PLAIN + """
blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(100)]
""", "python loader.py > loader.log 2>&1 & while [ ! -e held ]; do sleep 0.2; [ -z \"$(jobs -r)\" ] && break; done; "
            "[ -e held ] || tail -3 loader.log; python train.py", files={"loader.py": """
import time
import jax, jax.numpy as jnp
jnp.ones((8, 8)).block_until_ready()
open("held", "w").write("yes")
time.sleep(100)
"""}, alone=True),
    Provoke("gpu-busy-sibling-rank", "gpu-memory-busy", (OOM,), PLAIN + GLOO_GPU + """
if rank == 0:
    kept = torch.empty(int(torch.cuda.mem_get_info()[0] - 2e9), dtype=torch.uint8, device=device)
    log.info("[rank 0] cache of %.1f GiB", kept.numel() / 2**30)
dist.all_reduce(flag)
if rank == 1:
    batch = torch.randn(1 << 31, device=device)
dist.all_reduce(flag)
""", ranks=2, rank=1, alone=True),
    Provoke("gpu-oom-rank0-peer-waits", "cuda-oom", (r"OutOfMemoryError: CUDA out of memory\. Tried to allocate",),
            PLAIN + GLOO_GPU + """
kept = []
while rank == 0:
    kept.append(torch.randn(1 << 30, device=device))
dist.all_reduce(flag)
""", ranks=2, rank=0, variant="own growth", alone=True),
    Provoke("gpu-oom-rank1-peers-wait-bare", "cuda-oom", (r"OutOfMemoryError: CUDA out of memory\. Tried to allocate",),
            PLAIN + GLOO_GPU + """
kept = []
while rank == 1:
    kept.append(torch.randn(1 << 30, device=device))
dist.all_reduce(flag)
""", ranks=3, rank=1, bare=True, variant="own growth", alone=True),
    Provoke("gpu-pinned-limit", "pinned-host-memory", (r"(AcceleratorError|RuntimeError): CUDA error: ",
                                                       r"pin_memory|pinned"), PLAIN + """
import resource
model = nn.Linear(64, 64, device="cuda")
log.info("%s free on the card", torch.cuda.mem_get_info()[0])
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (2 << 30),) * 2)
offload = [torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True) for _ in range(16)]
""", alone=True),
    Provoke("gpu-pinned-loader", "pinned-host-memory", (r"CUDA error: ", r"[Pp]in_?[Mm]emory|pin memory"), PLAIN + """
import resource
torch.zeros(1, device="cuda")
rows = torch.utils.data.TensorDataset(torch.zeros(64, 1 << 24))
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (3 << 30),) * 2)
for step, (batch,) in enumerate(torch.utils.data.DataLoader(rows, batch_size=32, pin_memory=True)):
    log.info("batch %d %s", step, batch.cuda().shape)
""", alone=True),
    Provoke("gpu-healthy-oom-handled", "healthy", (r"out of memory", r"training finished"), PLAIN + """
size = 1 << 38
while True:
    try:
        batch = torch.empty(size, dtype=torch.uint8, device="cuda")
        break
    except torch.cuda.OutOfMemoryError:
        log.warning("CUDA out of memory with a batch of %d bytes, trying half of it", size, exc_info=True)
        size //= 2
model = nn.Linear(64, 64, device="cuda")
steps(model, torch.randn(8, 64, device="cuda"), torch.randn(8, 64, device="cuda"), 5)
log.info("training finished")
""", ends="ok", alone=True),
)  # fmt: skip
