"""The ptxas of Triton does not know the GPU.

Triton brings its own ``ptxas``, the assembler that turns its code into code of one GPU. A Triton that is older than the card, or an older
``ptxas`` that was named in ``TRITON_PTXAS_PATH``, does not know the architecture and refuses it: ``torch.compile``, vLLM and every other user
of Triton fail at their first kernel, while plain torch works on the same card.

Upgrade torch and Triton together, or let ``TRITON_PTXAS_PATH`` name the ptxas of a newer toolkit. It is no case of this when nvcc refuses the
architecture while an extension is built: there the toolkit is too old.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "BLD018"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {
        "says": "ptxas fatal : Value '{arch}' is not defined for option 'gpu-name'",
        "without": ("bin/nvcc", "setup.py", "cpp_extension"),
    },
    {
        "says": "ptxas fatal : Value '{arch}' is not defined for option 'gpu-name'",
        "with": ("triton", "Triton", "inductor", "PTXAS"),
    },
    {
        "says": "Internal Triton PTX codegen error",
        "with": ("is not defined for option", "Unsupported .version", "unsupported .version"),
    },
    {"says": "PTXASError", "with": ("is not defined for option", "nsupported .version")},
    {"says": "Triton only support CUDA 10.0 or higher"},
    {"says": "Triton only supports CUDA 10.0 or higher"},
    {"says": "`ptxas` failed with error code {}: ptxas{}is not defined for option"},
    {
        "says": "Unsupported .version {have}; current version is",
        "with": ("triton", "Triton", "inductor", "PTXAS", "ptxas"),
    },
    {"says": "Unsupported .target", "with": ("triton", "Triton", "inductor", "PTXAS")},
    {"says": "Cannot find ptxas"},
    {"says": "RuntimeError: Cannot find ptxas"},
    {"says": "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm", "as": "clue"},
    {
        "says": "is not a recognized processor for this target",
        "as": "clue",
        "with": ("triton", "Triton", "LLVM", "sm_"),
    },
    {"says": "Internal Triton PTX codegen error", "as": "clue"},
    {"says": "PTXAS error: Internal Triton PTX codegen error", "as": "clue"},
    {"says": "/ptxas', {}'--gpu-name=sm_{arch}'{}returned non-zero exit status 255"},
    {"says": "ptxas', {}'--gpu-name=sm_", "as": "clue"},
    {"says": "ptxas-blackwell{}No such file"},
    {"says": "sm_{arch} is not a recognized processor"},
    {"says": "ptxas fatal : Unsupported .version"},
    {"says": "ptxas application ptx input, line {}; fatal : Unsupported .version", "without": ("bin/nvcc", "setup.py")},
    {"says": "NoTritonConfigsError{}ptxas"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
