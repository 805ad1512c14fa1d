"""The installed Ray does not go with the engine.

The processes of a Ray cluster speak with each other in a form that belongs to one release: a driver or a node of another Ray, or of another Python,
is refused when it joins. Engines on top of Ray (vLLM, OpenRLHF, verl, ROLL) use parts that are not stable, compiled graphs above all,
so a release of Ray can break them without a word: an attribute is gone, or tensors that travel between the stages of a pipeline are wrong.

Install the Ray that the engine names, the same on every node, and start the cluster anew. A Ray worker that died of want of memory is
another matter.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG036"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Version mismatch: The cluster was started with",
    {"says": "module 'ray' has no attribute", "in": "exception"},
    {"says": "module 'ray.{}' has no attribute", "in": "exception"},
    {"says": "cannot import name '{name}' from 'ray", "in": "exception"},
    {"says": "No module named 'ray.{name}'", "in": "exception"},
    {"says": "ray{}is required for a normal functioning of this module, but found ray==", "in": "exception"},
    {"says": "Ray version {want} is required, but found", "in": "exception"},
    {"says": "Current Ray version {} is required", "in": "exception"},
    {"says": "Ray version {} is not supported", "in": "exception"},
    {"says": "Ray {} or later is required", "in": "exception"},
    {"says": "requires Ray version", "in": "exception"},
    {
        "says": "an illegal memory access was encountered",
        "with": ("self.intermediate_tensors[k]", "ray/experimental/channel", "ray/dag/", "torch_tensor_nccl_channel"),
    },
    {
        "says": "'{type}' object has no attribute",
        "in": "exception",
        "with": ("ray/experimental/channel", "ray/dag/compiled_dag_node", "ray/experimental/compiled_dag_ref"),
    },
    {
        "says": "got an unexpected keyword argument",
        "in": "exception",
        "with": ("ray.remote(", "ray.init(", "ray/dag/", "placement_group(", "experimental_compile(", "-packages/ray/"),
    },
    {"says": "ray.exceptions.RayChannelError", "as": "clue"},
    {"says": "Ray version {want} or greater is required, but found", "in": "exception"},
    {"says": "No module named 'vllm.{name}'", "with": ("/ray/llm/", "ray.serve.llm", "ray/serve/llm", "/ray/")},
    {"says": "ray/experimental/compiled_dag_ref.py", "as": "clue"},
    {"says": "ray/dag/compiled_dag_node.py", "as": "clue"},
    {"says": "Neither vLLM nor SGLang is installed", "as": "clue"},
    {"says": "cannot import name '{name}' from 'vllm", "with": ("/ray/llm/", "/ray/")},
    {"says": "Ray version mismatch"},
    {"says": "Changing between Ray versions"},
    {"says": "version mismatch: Ray"},
    {"says": "Version mismatch: The cluster was started with{...}This process was started with"},
    {"says": "This process on node {} was started with"},
    {"says": "Python version mismatch", "with": ("ray", "Ray")},
    {"says": "unexpected keyword argument '_", "in": "exception", "with": ("ray/", "ray.")},
    {"says": "ray.dag{}has no attribute", "in": "exception"},
    {"says": "Ray Compiled Graph requires", "in": "exception"},
    {"says": "Ray Compiled Graph is not installed"},
    {"says": "is incompatible with Ray", "in": "exception"},
    {"says": "incompatible with the installed version of Ray"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
