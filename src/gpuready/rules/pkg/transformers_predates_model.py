"""The installed transformers does not know the model.

A checkpoint names its kind in ``config.json`` (``model_type``), and transformers, or the engine that serves it, has a table of the kinds it
knows. A release from before the model looks the name up in vain: the error is a KeyError with the name, a class that cannot be imported, or the
sentence that the architecture is not recognised. Tokenizers have the same trouble with files that newer ones wrote.

Upgrade transformers (or vLLM, SGLang), within what the framework allows. A misspelt name of a repository is no case of this: then nothing
is found at all.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG026"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "but Transformers does not recognize this architecture",
    {
        "says": "KeyError: '{model}'",
        "in": "exception",
        "with": (
            "configuration_auto.py",
            "CONFIG_MAPPING",
            "AutoConfig.from_pretrained",
            "AutoProcessor.from_pretrained",
            "AutoTokenizer.from_pretrained",
            "get_config(",
        ),
    },
    "are not supported for now. Supported architectures",
    "has no vLLM implementation and the Transformers implementation is not compatible",
    {"says": "Model architectures {arch} are not supported", "in": "exception"},
    {"says": "Unsupported architectures: ", "in": "exception"},
    {"says": "Unrecognized configuration class <class", "in": "exception", "as": "clue"},
    {"says": "Tokenizer class {name} does not exist or is not currently imported", "in": "exception"},
    {"says": "data did not match any variant of untagged enum"},
    {"says": "`rope_scaling` must be a dictionary with", "in": "exception"},
    {"says": "`rope_scaling`'s type field must be one of", "in": "exception"},
    {"says": "Unknown RoPE scaling type", "in": "exception"},
    {
        "says": "cannot import name '{name}' from 'transformers",
        "in": "exception",
        "without": (
            "-packages/trl/",
            "-packages/peft/",
            "-packages/accelerate/",
            "-packages\\trl\\",
            "-packages\\peft\\",
        ),
    },
    {"says": "module 'transformers' has no attribute", "in": "exception"},
    {"says": "module transformers has no attribute", "in": "exception"},
    {"says": "module transformers.{} has no attribute", "in": "exception"},
    {"says": "No module named 'transformers.models.{model}'", "in": "exception"},
    {"says": "No module named 'transformers.", "in": "exception"},
    {
        "says": "Could not import module '{name}'. Are this object's requirements defined correctly?",
        "in": "exception",
        "as": "clue",
    },
    {
        "says": "transformers{}is required for a normal functioning of this module, but found transformers==",
        "in": "exception",
    },
    {
        "says": "tokenizers{}is required for a normal functioning of this module, but found tokenizers==",
        "in": "exception",
    },
    {"says": "This example requires a minimum version of {}, but the version found is", "in": "exception"},
    {"says": "Please upgrade transformers", "in": "exception"},
    {"says": "please upgrade transformers", "in": "exception"},
    {"says": "Unsloth: Your transformers version of {} does not support", "in": "exception"},
    {"says": "your version of Transformers is out of date", "in": "exception"},
    {"says": "Transformers version is too old", "in": "exception"},
    {"says": "Unrecognized processing class in", "in": "exception", "as": "clue"},
    {"says": "KeyError: 'qwen", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'mistral", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'mixtral", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'gemma", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'phi3", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'phi4", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'deepseek_v", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'llama4", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'mllama", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'cohere", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'starcoder2", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'glm4", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'chatglm", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'internlm", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'gpt_oss", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'minicpm", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'olmo", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'granite", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'falcon_", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'kimi_", "as": "clue", "in": "exception"},
    {"says": "KeyError: 'ernie4", "as": "clue", "in": "exception"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
