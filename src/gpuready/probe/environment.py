"""Environment variables relevant to GPUs, torch, frameworks and launchers."""

from collections.abc import Iterable

from gpuready.catalog.variables import is_asked_variable
from gpuready.model import Fact
from gpuready.probe.fact_helpers import gap_facts
from gpuready.system import AccessError, HostAccess

KEYS = ("env.names",)
SOURCE = "the environment"
MAX_VALUE_LENGTH = 4096
VARIABLE_PREFIXES = (
    # GPUs, their libraries and their compilers
    "CUDA", "CUDNN", "CUBLAS", "NCCL", "NVIDIA_", "NVTE_", "NVSHMEM", "NVCC", "UCX_", "FI_", "GLOO_", "HIP_",
    "ROCR_", "ROCM", "HSA_", "ASCEND", "HCCL", "ZE_", "ONEAPI", "SYCL", "HABANA", "MUSA",
    # torch and libraries built on it
    "PYTORCH", "TORCH", "TRITON", "OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "TOKENIZERS_", "XFORMERS",
    "FLASH", "HF_", "HUGGINGFACE", "HUGGING_FACE", "TRANSFORMERS_", "ACCELERATE_", "FSDP_", "DS_",
    "DEEPSPEED", "BNB_", "AXOLOTL", "COLOSSAL", "ROLL_", "VLLM", "SGL", "TRL_", "PEFT_", "UNSLOTH", "VERL",
    "MEGATRON", "RAY_", "WANDB_", "MLFLOW_", "MODELSCOPE", "LLAMAFACTORY", "USE_", "JE_", "TVM_", "KERNELS_",
    "PARALLELISM_CONFIG_", "PROFILER_",
    # launchers and clusters
    "MASTER_", "SLURM", "OMPI_", "PMIX_", "PMI_", "MPI_", "MV2_", "RDZV", "KUBERNETES", "JSM_",
    # paths, builds and downloads
    "CONDA_", "PYTHON", "VIRTUAL_ENV", "XDG_", "GPUREADY_", "LD_", "CMAKE_", "PIP_", "UV_",
)  # fmt: skip
COMPARED_PREFIXES = ("NCCL_", "UCX_", "GLOO_", "FI_")
"""Settings of network libraries: all are asked for, since any of them may differ between the nodes of a job."""
VARIABLE_NAMES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "NODE_WORLD_SIZE", "GROUP_RANK",
    "GROUP_WORLD_SIZE", "ROLE_RANK", "NNODES", "NPROC_PER_NODE", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS",
    "CLUSTER_NAME", "WORKER_ID", "WORKER_NAME", "MULTI_TENANT", "MAX_PORT_RETRY_COUNT", "TASK_QUEUE_ENABLE",
    "DISABLE_SAFETENSORS_CONVERSION", "ENABLE_NCCL_BASE_COLLECTIVES", "INFER_NTK_ALPHA", "LLAMA_CPP_DIR",
    "MAX_JOBS", "FORCE_CUDA", "BUILD_EXT", "DETERMINISTIC_MODE", "DASHBOARD_PORT", "MODEL_DOWNLOAD_TYPE",
    "PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "HOSTALIASES", "GPU_DEVICE_ORDINAL", "SINGULARITY_CONTAINER",
    "APPTAINER_CONTAINER", "MALLOC_CONF", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy",
    "ALLOW_EXTRA_ARGS",
    "DISABLE_VERSION_CHECK",
    "FORCE_TORCHRUN",
    "OPTIM_TORCH",
    "TLLM_DISABLE_NVLS_MNNVL",
    "https_proxy", "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
)  # fmt: skip


def is_relevant_variable(name: str) -> bool:
    """Whether a rule or a contract may use this variable; ``is_asked_variable`` says whether one does."""
    return name.startswith(VARIABLE_PREFIXES) or name in VARIABLE_NAMES


def probe_environment(host: HostAccess, extra_names: Iterable[str] = ()) -> list[Fact]:
    """Return the names of the variables that are set, and one fact each; ``HostAccess`` redacts secrets.

    Of others no fact is made: a secret without a form may be in any. ``extra_names`` are used by a user's own contract.
    """
    try:
        variables = host.get_environment()
    except AccessError as error:
        return gap_facts(KEYS, str(error), SOURCE)
    requested = set(extra_names)
    kept = {name: value for name, value in sorted(variables.items()) if is_asked_variable(name) or name in requested}
    facts = [Fact(f"env.{name}", value[:MAX_VALUE_LENGTH], SOURCE) for name, value in kept.items()]
    return [Fact("env.names", tuple(kept), SOURCE), *facts]
