"""Failures on the card that are not about its memory: devices, kernels, libraries, processes."""

from __future__ import annotations

from tests.induce.scripts import CUDA_DRIVER, PLAIN
from tests.induce.stage import Provoke

ON_GPU = """
model = nn.Linear(64, 64).cuda()
data, target = torch.randn(8, 64, device="cuda"), torch.randn(8, 64, device="cuda")
steps(model, data, target, 3)
"""
XID = "; code=$?; dmesg 2>/dev/null | grep -i 'NVRM: Xid' | tail -2; exit $code"
NCCL = """
import torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(DEVICE)
log.info("[rank %d] on device %d", rank, torch.cuda.current_device())
flag = torch.ones(1, device="cuda")
dist.all_reduce(flag)
torch.cuda.synchronize()
log.info("[rank %d] sum %s", rank, flag.item())
"""
EXTENSION = """
import torch.utils.cpp_extension as ext
source = r'''
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
__global__ void scale(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }
void run(torch::Tensor x) { scale<<<1, 256>>>(x.data_ptr<float>(), x.numel()); C10_CUDA_KERNEL_LAUNCH_CHECK(); }
'''
fused = ext.load_inline("fused_scale", "void run(torch::Tensor x);", source, functions=["run"], verbose=True)
x = torch.ones(64, device="cuda")
fused.run(x)
torch.cuda.synchronize()
"""
COMPILED = """
@torch.compile
def gelu(x):
    return x * torch.sigmoid(1.702 * x)

log.info("compiled %s", gelu(torch.randn(1024, device="cuda")).sum())
"""
HIDE_HEADERS = (
    "inc=$(python -c 'import sysconfig; print(sysconfig.get_paths()[\"include\"])'); "
    'unshare -m bash -c "mount -t tmpfs none $inc; python train.py"'
)
STUB = (
    "stub=$(find /usr/local/cuda*/ -path '*stubs/libcuda.so' 2>/dev/null | head -1); mkdir stubs; "
    "ln -s $stub stubs/libcuda.so.1; LD_LIBRARY_PATH=$PWD/stubs python train.py"
)

FAULTS = (
    Provoke("gpu-illegal-address", "not-environment", (r"an illegal memory access was encountered",), PLAIN + CUDA_DRIVER
            + ON_GPU + """
fused_scale = Kernel("st.global.u32 [%rd1], %r1;")
fused_scale(data.data_ptr() + (1 << 44))
torch.cuda.synchronize()
""", "python train.py" + XID, variant="own kernel"),
    Provoke("gpu-misaligned-address", "not-environment", (r"misaligned address",), PLAIN + CUDA_DRIVER + ON_GPU + """
fused_scale = Kernel("st.global.u32 [%rd1], %r1;")
fused_scale(data.data_ptr() + 1)
torch.cuda.synchronize()
""", "python train.py" + XID, variant="own kernel"),
    Provoke("gpu-trap", "not-environment", (r"unspecified launch failure|CUDA error",), PLAIN + CUDA_DRIVER + ON_GPU + """
fused_scale = Kernel("trap;")
fused_scale(data.data_ptr())
torch.cuda.synchronize()
""", "python train.py" + XID, variant="own kernel"),
    Provoke("gpu-triton-illegal-address", "not-environment", (r"an illegal memory access was encountered",), PLAIN + """
import triton, triton.language as tl

@triton.jit
def scale(x, stride: tl.int64, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * stride + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * 2)

x = torch.ones(4096, device="cuda")
scale[(64,)](x, 1 << 40, BLOCK=64)
torch.cuda.synchronize()
""", variant="own kernel", needs=("gcc",)),
    Provoke("gpu-assert-embedding", "not-environment", (r"Assertion .* failed",
            r"device-side assert triggered"), PLAIN + """
table = nn.Embedding(32000, 64, device="cuda")
ids = torch.randint(0, 32000, (4, 128), device="cuda")
ids[0, 5] = 32000
log.info("hidden %s", table(ids).sum().item())
"""),
    Provoke("gpu-assert-labels-blocking", "not-environment", (r"Assertion .* failed",
            r"device-side assert triggered"), PLAIN + """
logits = torch.randn(16, 4, device="cuda", requires_grad=True)
labels = torch.arange(16, device="cuda") % 5
loss = nn.functional.cross_entropy(logits, labels)
loss.backward()
log.info("loss %s", loss.item())
""", env={"CUDA_LAUNCH_BLOCKING": "1"}),
    Provoke("gpu-ordinal", "invalid-device-ordinal", (r"invalid device ordinal",), PLAIN + """
torch.cuda.set_device(3)
"""),
    Provoke("gpu-ordinal-device-map", "invalid-device-ordinal", (r"invalid device ordinal",), PLAIN + """
model = nn.Linear(64, 64).to("cuda:1")
"""),
    Provoke("gpu-ordinal-rank1", "invalid-device-ordinal", (r"invalid device ordinal",), PLAIN
            + NCCL.replace("DEVICE", "int(os.environ['LOCAL_RANK'])"), ranks=2, rank=1),
    Provoke("gpu-ordinal-four-ranks", "invalid-device-ordinal", (r"invalid device ordinal",), PLAIN + """
import torch.distributed as dist
time.sleep(0 if rank == 2 else 2)
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
""", ranks=4, rank=2, bare=True),
    Provoke("gpu-duplicate", "duplicate-gpu", (r"Duplicate GPU detected",), PLAIN + NCCL.replace("DEVICE", "0"), ranks=2),
    Provoke("gpu-duplicate-debug", "duplicate-gpu", (r"Duplicate GPU detected",), PLAIN + NCCL.replace("DEVICE", "0"),
            ranks=2, env={"NCCL_DEBUG": "INFO"}, bare=True),
    Provoke("gpu-ifname", "nccl-socket-ifname", (r"Bootstrap : no socket interface found|no socket interface",),
            PLAIN + NCCL.replace("DEVICE", "0"), ranks=1, env={"NCCL_SOCKET_IFNAME": "ib7", "NCCL_DEBUG": "WARN"}),
    Provoke("gpu-ifname-debug", "nccl-socket-ifname", (r"NCCL_SOCKET_IFNAME", r"no socket interface"),
            PLAIN + NCCL.replace("DEVICE", "0"), ranks=2, env={"NCCL_SOCKET_IFNAME": "=bond0", "NCCL_DEBUG": "INFO"}),
    Provoke("gpu-visible-empty", "no-gpu-visible", (r"No CUDA GPUs are available|no CUDA-capable device",), PLAIN + ON_GPU,
            env={"CUDA_VISIBLE_DEVICES": ""}),
    Provoke("gpu-visible-wrong", "no-gpu-visible", (r"No CUDA GPUs are available|no CUDA-capable device",), PLAIN + ON_GPU,
            env={"CUDA_VISIBLE_DEVICES": "7"}),
    Provoke("gpu-visible-rank1", "no-gpu-visible", (r"No CUDA GPUs are available|no CUDA-capable device",), PLAIN + """
import torch.distributed as dist
if rank == 1:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
dist.init_process_group("gloo")
x = torch.zeros(1, device="cuda")
dist.barrier()
""", ranks=2, rank=1),
    Provoke("gpu-device-nodes-hidden", "no-gpu-visible", (r"no NVIDIA driver|No CUDA GPUs|no CUDA-capable device|CUDA.*[Ii]nit",),
            PLAIN + ON_GPU, "unshare -m bash -c 'for f in /dev/nvidia*; do [ -c $f ] && mount --bind /dev/null $f; done; "
            "python train.py'", needs=("root",)),
    Provoke("gpu-driver-library-hidden", "no-gpu-visible", (r"Found no NVIDIA driver",), PLAIN + ON_GPU,
            "touch empty; unshare -m bash -c 'for f in $(ldconfig -p | grep -o \"/.*libcuda.so.1$\") "
            "/usr/local/nvidia/lib*/libcuda.so.1; do [ -e $f ] && mount --bind empty $(realpath $f); done; python train.py'",
            needs=("root",)),
    Provoke("gpu-fork", "fork-after-cuda", (r"Cannot re-initialize CUDA in forked subprocess",), PLAIN + ON_GPU + """
import multiprocessing

def score(index):
    return torch.full((1,), float(index), device="cuda").item()

with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(score, range(4)))
"""),
    Provoke("gpu-fork-loader", "fork-after-cuda", (r"Cannot re-initialize CUDA in forked subprocess|initialization error",),
            PLAIN + ON_GPU + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.full((64,), float(index), device="cuda")

for batch in torch.utils.data.DataLoader(Rows(), batch_size=8, num_workers=2, multiprocessing_context="fork"):
    log.info("batch %s", batch.shape)
"""),
    Provoke("gpu-mixed-devices", "mixed-devices", (r"Expected all tensors to be on the same device",), PLAIN + """
model = nn.Linear(64, 64).cuda()
steps(model, torch.randn(8, 64), torch.randn(8, 64), 3)
"""),
    Provoke("gpu-mixed-llama", "mixed-devices", (r"Expected all tensors to be on the same device",), PLAIN + """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=4)
model = LlamaForCausalLM(config).cuda()
model.generate(torch.randint(0, 512, (1, 16)), max_new_tokens=8)
"""),
    Provoke("gpu-fp16-unscale", "fp16-unscale", (r"Attempting to unscale FP16 gradients",), PLAIN + """
model = nn.Linear(64, 64).cuda().half()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda")
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(torch.randn(8, 64, device="cuda")).pow(2).mean()
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""),
    Provoke("gpu-dtype", "dtype-mismatch", (r"(same dtype|expected scalar type|but found)",), PLAIN + """
model = nn.Linear(64, 64).cuda().to(torch.bfloat16)
model(torch.randn(8, 64, device="cuda"))
"""),
    Provoke("gpu-deterministic", "not-environment", (r"CUBLAS_WORKSPACE_CONFIG|does not have a deterministic implementation",),
            PLAIN + """
torch.use_deterministic_algorithms(True)
x = torch.randn(64, 64, device="cuda", requires_grad=True)
y = x @ x
torch.histc(y.detach(), bins=10)
pooled = nn.functional.adaptive_max_pool2d(y.view(1, 1, 64, 64), 7).sum().backward()
nn.functional.ctc_loss(torch.randn(50, 16, 20, device="cuda", requires_grad=True).log_softmax(2),
    torch.randint(1, 20, (16, 30), device="cuda"), torch.full((16,), 50), torch.full((16,), 30)).backward()
"""),
    Provoke("gpu-graph-capture", "not-environment", (r"captur",), PLAIN + ON_GPU + """
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    log.info("loss %s", model(data).sum().item())
""", variant="own code"),
    Provoke("gpu-ext-arch", "ext-arch-missing", (r"no kernel image is available for execution on the device",),
            PLAIN + EXTENSION, env={"TORCH_CUDA_ARCH_LIST": "8.0", "MAX_JOBS": "4"}, deadline=240, needs=("nvcc", "ninja", "g++")),
    Provoke("gpu-nvcc-unknown-arch", "toolkit-too-old-for-arch", (r"Unsupported gpu architecture|Unknown CUDA arch",),
            PLAIN + EXTENSION, env={"NVCC_APPEND_FLAGS": "-gencode=arch=compute_130,code=sm_130", "TORCH_CUDA_ARCH_LIST": "9.0"},
            deadline=240, needs=("nvcc", "ninja", "g++")),
    Provoke("gpu-no-compiler", "triton-libcuda-missing", (r"Failed to find C compiler",), PLAIN + COMPILED,
            "PATH=$PWD/nothing $(command -v python) train.py"),
    Provoke("gpu-no-headers", "python-headers-missing", (r"Python\.h: No such file",), PLAIN + COMPILED, HIDE_HEADERS,
            needs=("root", "gcc"), deadline=120),
    Provoke("gpu-stub-driver", "cuda-compat-lib-conflict", (r"stub library|no NVIDIA driver|CUDA.*error",), PLAIN + ON_GPU,
            STUB, variant="stub"),
    Provoke("gpu-triton-shared-memory", "not-environment", (r"out of resource: shared memory",), PLAIN + """
import triton, triton.language as tl

@triton.jit
def product(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))

a = torch.randn(512, 512, device="cuda")
product[(1,)](a, a, torch.empty_like(a), N=512)
torch.cuda.synchronize()
""", deadline=150, variant="own kernel", needs=("gcc",)),
    Provoke("gpu-flash-attn-missing", "flash-attn-missing", (r"ImportError: .*[Ff]lash",), PLAIN + """
from transformers import LlamaConfig, AutoModelForCausalLM
config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
model = AutoModelForCausalLM.from_config(config, attn_implementation="flash_attention_2", dtype=torch.bfloat16).cuda()
model(torch.zeros(1, 8, dtype=torch.long, device="cuda"))
"""),
    Provoke("gpu-shm-loader", "shm-too-small", (r"[Bb]us error|shm_open|No space left on device|unable to (write|mmap)",), PLAIN + ON_GPU + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.randn(3, 512, 512)

for step, batch in enumerate(torch.utils.data.DataLoader(Rows(), batch_size=16, num_workers=2, pin_memory=True)):
    log.info("batch %d %s", step, batch.cuda().shape)
""", "unshare -m bash -c 'mount -t tmpfs -o size=2m none /dev/shm; python train.py'", needs=("root",)),
    Provoke("gpu-nccl-shm", "shm-too-small", (r"[Ss]hm|shared memory|No space left",), PLAIN + NCCL.replace("DEVICE", "0"),
            "unshare -m bash -c 'mount -t tmpfs -o size=64k none /dev/shm; python train.py'",
            env={"NCCL_DEBUG": "INFO", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": "29611"}, needs=("root",), variant="nccl"),
    Provoke("gpu-nccl-cpu-tensor", "not-environment", (r"No backend type associated with device type cpu",), PLAIN
            + NCCL.replace("DEVICE", "0").replace('device="cuda"', 'device="cpu"'), ranks=1, rank=0),
    Provoke("gpu-assert-rank1", "not-environment", (r"Assertion .* failed", r"device-side assert triggered"), PLAIN + """
import torch.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=25))
table = nn.Embedding(1000, 64, device="cuda:0")
flag = torch.ones(1)
for step in range(1, 6):
    ids = torch.randint(0, 1000, (4, 16), device="cuda:0")
    if rank == 1 and step == 4:
        ids[0, 0] = 1000
    flag += table(ids).sum().cpu()
    dist.all_reduce(flag)
    log.info("[rank %d] step %d", rank, step)
""", ranks=2, rank=1),
    Provoke("gpu-user-shape", "not-environment", (r"mat1 and mat2 shapes cannot be multiplied",), PLAIN + """
model = nn.Sequential(nn.Linear(64, 128), nn.Linear(64, 8)).cuda()
model(torch.randn(8, 64, device="cuda"))
"""),
    Provoke("gpu-healthy-nccl", "healthy", (r"finished",), PLAIN + NCCL.replace("DEVICE", "0") + """
log.info("finished")
""", ranks=1, env={"NCCL_DEBUG": "INFO"}, ends="ok"),
    Provoke("gpu-healthy-compile", "healthy", (r"finished",), PLAIN + ON_GPU + """
model = torch.compile(model)
for size in (8, 16, 24):
    log.info("%s", model(torch.randn(size, 64, device="cuda")).shape)
log.info("finished")
""", ends="ok", deadline=150, env={"TORCH_LOGS": "recompiles"}, needs=("gcc",)),
)  # fmt: skip
