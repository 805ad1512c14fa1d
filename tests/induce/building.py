"""Installing and compiling: pip, uv, setuptools, nvcc, ninja, Triton."""

from __future__ import annotations

from tests.induce.scripts import PLAIN
from tests.induce.stage import Provoke

CPP = (
    PLAIN
    + """
import torch.utils.cpp_extension as ext
fused = ext.load_inline("fused_add", "torch::Tensor add(torch::Tensor a) { return a + 1; }", functions=["add"], verbose=True)
log.info("%s", fused.add(torch.ones(2)))
"""
)
CUDA_SOURCE = (
    PLAIN
    + """
import torch.utils.cpp_extension as ext
source = "__global__ void scale(float* x) { x[threadIdx.x] *= 2; }\\nvoid run(torch::Tensor x) { scale<<<1, 64>>>(x.data_ptr<float>()); }"
fused = ext.load_inline("fused_scale", "void run(torch::Tensor x);", source, functions=["run"], verbose=True)
"""
)
SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
setup(name="fused-kernels", version="0.1", ext_modules=[CUDAExtension("fused_kernels", ["scale.cu"])],
      cmdclass={"build_ext": BuildExtension})
"""
SCALE = "#include <torch/extension.h>\n__global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n"
CUDA_HOME = "/usr/local/cuda-13.0"
FUSED_ADAM = PLAIN + "from deepspeed.ops.op_builder import FusedAdamBuilder\nFusedAdamBuilder().load()\n"
NO_TOOLKIT = "export PATH=$(dirname $(command -v python)):/usr/bin:/bin; unshare -m bash -c 'mount -t tmpfs none /usr/local; {run}'"
TRITON = (
    PLAIN
    + """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget

@triton.jit
def scale(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * 2)

source = triton.compiler.ASTSource(scale, signature={"x": "*fp32", "BLOCK": "constexpr"}, constexprs={(1,): 64})
triton.compile(source, target=GPUTarget("cuda", ARCH, 32))
log.info("compiled")
"""
)
COMPILE = (
    PLAIN
    + """
@torch.compile
def gelu(x):
    return x * torch.sigmoid(1.702 * x)

log.info("%s", gelu(torch.randn(64)).sum())
"""
)
NO_HEADERS = (
    "inc=$(python -c 'import sysconfig; print(sysconfig.get_paths()[\"include\"])'); "
    'unshare -m bash -c "mount -t tmpfs none $inc; python train.py"'
)
OWN_PACKAGE = (
    '[project]\nname = "our-trainer"\nversion = "0.1"\nrequires-python = "%s"\n[tool.setuptools]\npy-modules = []\n'
)
ISOLATED = {
    "setup.py": "import torch\n" + SETUP.lstrip(),
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
    "scale.cu": SCALE,
}

BUILDING = (
    Provoke("pip-flash-attn-isolated", "build-isolation", (r"No module named 'torch'",),
            command="pip install --no-cache-dir --no-binary :all: --no-deps flash-attn==2.6.3", room="main", deadline=150),
    Provoke("pip-own-isolated", "build-isolation", (r"No module named 'torch'",), command="pip install --no-cache-dir -v .",
            files=ISOLATED, deadline=150),
    Provoke("uv-own-isolated", "build-isolation", (r"No module named 'torch'",), command="uv pip install --python $(command -v python) .",
            files=ISOLATED, deadline=150, needs=("uv",)),
    Provoke("pip-python-too-old", "package-resolution", (r"[Rr]equires.*[Pp]ython|Could not find a version",),
            command="pip install --no-cache-dir 'transformers>=5'", room="python38", deadline=150),
    Provoke("pip-own-python", "python-version-unsupported", (r"requires a different Python: 3\.8",),
            command="pip install --no-cache-dir .", files={"pyproject.toml": OWN_PACKAGE % ">=3.10"}, room="python38", deadline=150),
    Provoke("pip-own-python-new", "python-version-unsupported", (r"requires a different Python: 3\.13",),
            command="pip install --no-cache-dir .", files={"pyproject.toml": OWN_PACKAGE % ">=3.9,<3.12"}, room="python313", deadline=150),
    Provoke("uv-own-python", "python-version-unsupported", (r"current Python version .* does not satisfy",), command="uv pip install --python $(command -v python) .",
            files={"pyproject.toml": OWN_PACKAGE % ">=3.10"}, room="python38", needs=("uv",), deadline=100),
    Provoke("python-syntax-too-old", "python-version-unsupported", (r"SyntaxError|TypeError: unsupported operand|not subscriptable",), """
from __future__ import print_function
import sys
print("python", sys.version)
def pick(name: str | None = None):
    match name:
        case None:
            return "llama"
print(pick())
""", "python --version; python train.py", room="python38"),
    Provoke("pip-no-wheel-for-python", "python-version-unsupported", (r"No matching distribution|from versions",),
            command="python --version; pip install --no-cache-dir --only-binary :all: torch==2.2.2", room="python313", deadline=150),
    Provoke("ext-no-cuda-home", "cuda-home-missing", (r"CUDA_HOME environment variable is not set",), CUDA_SOURCE, room="cuda",
            command=NO_TOOLKIT.replace("{run}", "python train.py"), env={"TORCH_CUDA_ARCH_LIST": "9.0"}, needs=("g++", "root")),
    Provoke("setup-no-cuda-home", "cuda-home-missing", (r"CUDA_HOME environment variable is not set",),
            command=NO_TOOLKIT.replace("{run}", "pip install --no-cache-dir --no-build-isolation ."),
            files=ISOLATED, room="cuda", deadline=150, needs=("root",)),
    Provoke("deepspeed-no-cuda-home", "cuda-home-missing", (r"CUDA_HOME does not exist|CUDA_HOME environment variable is not set",), FUSED_ADAM,
            NO_TOOLKIT.replace("{run}", "python train.py"), room="deepspeed-new", env={"DS_ACCELERATOR": "cuda", "TORCH_CUDA_ARCH_LIST": "9.0"},
            needs=("root",)),
    Provoke("deepspeed-no-device", "no-gpu-visible", (r"found no CUDA devices",), FUSED_ADAM, room="deepspeed-new", env={"DS_ACCELERATOR": "cuda"}),
    Provoke("setup-toolkit-differs", "toolkit-torch-mismatch", (r"The detected CUDA version .* mismatches the version",),
            command=f"CUDA_HOME={CUDA_HOME} pip install --no-cache-dir --no-build-isolation .", files=ISOLATED, room="cuda",
            needs=("nvcc",), deadline=150),
    Provoke("setup-toolkit-differs-old", "toolkit-torch-mismatch", (r"The detected CUDA version .* mismatches the version",),
            command=f"CUDA_HOME={CUDA_HOME} python setup.py build_ext --inplace", files=ISOLATED, room="old", needs=("nvcc",),
            deadline=150),
    Provoke("nvcc-arch-unknown", "toolkit-too-old-for-arch", (r"Unsupported gpu architecture 'compute_130'",),
            command="nvcc -gencode arch=compute_130,code=sm_130 -c plain.cu -o plain.o",
            files={"plain.cu": "__global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n"}, needs=("nvcc",), room="bare"),
    Provoke("ext-arch-unknown", "toolkit-too-old-for-arch", (r"Unknown CUDA arch \(13\.0\)|Unsupported gpu architecture",), CUDA_SOURCE, room="cuda",
            env={"TORCH_CUDA_ARCH_LIST": "13.0", "CUDA_HOME": CUDA_HOME}, needs=("nvcc", "g++"), deadline=150),
    Provoke("ninja-arch-unknown", "toolkit-too-old-for-arch", (r"Unsupported gpu architecture 'compute_\d+'",), CUDA_SOURCE.replace(
            'functions=["run"],', 'functions=["run"], extra_cuda_cflags=["-gencode=arch=compute_130,code=sm_130"],'), room="cuda",
            env={"TORCH_CUDA_ARCH_LIST": "9.0", "CUDA_HOME": CUDA_HOME}, needs=("nvcc", "g++"), deadline=200),
    Provoke("nvcc-gcc-too-new", "host-compiler-unsupported", (r"unsupported GNU version! gcc versions later than",),
            command="nvcc -I$(dirname $(find {other} -name cuda_runtime.h | head -1)) -I$(dirname $(dirname $(find {other} -name host_config.h "
            "-path '*crt*' | head -1))) -c plain.cu -o plain.o", files={"plain.cu": "#include <crt/host_config.h>\n__global__ void "
            "scale(float* x) { x[threadIdx.x] *= 2; }\n"}, room="headers-11", also="headers-11", needs=("nvcc", "gcc")),
    Provoke("triton-ptxas-old", "triton-ptxas-too-old", (r"ptxas.*(fatal|error)|is not defined for option 'gpu-name'|PTX.*version",), TRITON.replace("ARCH", "90"),
            command="TRITON_PTXAS_PATH=$(find {other} -name ptxas | head -1) python train.py", room="cuda",
            also="ptxas-11", deadline=150),
    Provoke("triton-ptxas-old-blackwell", "triton-ptxas-too-old", (r"ptxas.*(fatal|error)|is not defined for option 'gpu-name'",), TRITON.replace("ARCH", "120"),
            command="TRITON_PTXAS_PATH=$(find {other} -name ptxas | head -1) TRITON_PTXAS_BLACKWELL_PATH=$TRITON_PTXAS_PATH python train.py", room="cuda",
            also="ptxas-11", deadline=150),
    Provoke("ext-no-headers", "python-headers-missing", (r"Python\.h: No such file or directory",), CPP, NO_HEADERS,
            needs=("root", "g++"), deadline=240),
    Provoke("compile-no-headers", "python-headers-missing", (r"Python\.h: No such file or directory",), COMPILE, NO_HEADERS,
            needs=("root", "g++"), deadline=240),
    Provoke("compile-no-compiler", "triton-libcuda-missing", (r"No working C\+\+ compiler found|InvalidCxxCompiler|C compiler",), COMPILE,
            "PATH=$PWD/nothing $(command -v python) train.py", variant="no compiler"),
    Provoke("ext-lock-left", "jit-build-stuck", (r"file_baton|KeyboardInterrupt|PyTorch extensions root",), CPP,
            "d=home/.cache/torch_extensions; v=$(python -c 'import torch, sys; from torch.utils.cpp_extension import "
            "_get_build_directory as b; print(b(\"fused_add\", False))'); touch $v/lock; timeout -s INT 25 python train.py",
            needs=("g++",), deadline=100, room="main"),
    Provoke("ext-lock-left-old", "jit-build-stuck", (r"file_baton|KeyboardInterrupt|PyTorch extensions root",), CPP,
            "v=$(python -c 'import torch, sys; from torch.utils.cpp_extension import _get_build_directory as b; "
            "print(b(\"fused_add\", False))'); touch $v/lock; timeout -s INT 25 python train.py", needs=("g++",), deadline=100, room="old"),
    Provoke("ext-no-ninja", "missing-python-package", (r"Ninja is required to load C\+\+ extensions",), CPP,
            "PATH=$PWD/nothing $(command -v python) train.py"),
    Provoke("ext-user-error", "not-environment", (r"error: .*was not declared|error:",), CPP.replace("return a + 1", "return a + b"),
            needs=("g++",), deadline=240, variant="own code"),
    Provoke("nvcc-user-error", "not-environment", (r"error: identifier \"y\" is undefined",), command="nvcc -c plain.cu -o plain.o",
            files={"plain.cu": "__global__ void scale(float* x) { x[threadIdx.x] = y; }\n"}, needs=("nvcc",), room="bare",
            variant="own code"),
    Provoke("pip-disk-full", "disk-full", (r"No space left on device",), needs=("root",), deadline=150,
            command="mkdir full; unshare -m bash -c 'mount -t tmpfs -o size=4m none full; pip install --no-cache-dir --target full numpy'",
            room="bare"),
    Provoke("pip-healthy-warnings", "healthy", (r"Successfully installed",), command="pip install --no-cache-dir -v --target there tqdm", room="bare",
            ends="ok", deadline=100),
)  # fmt: skip
