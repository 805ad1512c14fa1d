"""A module that the program imports is not installed.

A program imports a module, or a framework looks for an optional package, that is in no folder of this environment. It was never installed, or it was installed into
another Python than the one that runs: another virtual environment, the system's, that of a notebook or of another node.

Install the package into this environment, with the same Python that runs the job. Modules of the user's own (``utils``, ``models``) are no case of
this: they are found only from the right folder, or with ``PYTHONPATH``. Nor are modules that a package once had and has no more: those are
matters of versions.
"""

from __future__ import annotations

from tarmac.rules import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.model import Contract, Facts, Finding

CODE = "PKG034"
SEVERITY = "error"
READS = told.READS
APART = (
    "No module named 'flash_attn",
    "No module named 'triton.",
    "No module named 'torch._six",
    "No module named 'huggingface_hub.",
    "No module named 'transformers.",
    "No module named 'accelerate.",
    "No module named 'peft.",
    "No module named 'trl.",
    "No module named 'torchvision.",
    "No module named 'numpy.",
    "No module named 'torch.",
    "No module named 'ray.",
    "No module named 'vllm._",
    "No module named 'vllm.",
    "No module named 'deepspeed.",
    "No module named 'resource'",
    "No module named 'fcntl'",
    "No module named 'termios'",
    "No module named 'pwd'",
    "No module named 'grp'",
    "No module named 'distutils",
    "No module named 'imp'",
    "No module named 'tomllib",
    "No module named 'zoneinfo'",
    "No module named 'graphlib'",
    "No module named 'utils'",
    "No module named 'models'",
    "No module named 'model'",
    "No module named 'config'",
    "No module named 'configs'",
    "No module named 'data'",
    "No module named 'dataset'",
    "No module named 'src'",
    "No module named 'lib'",
    "No module named 'common'",
    "No module named 'train'",
    "No module named 'trainer'",
    "No module named 'modules'",
    "No module named 'tools'",
    "No module named 'scripts'",
    "No module named 'core'",
    "No module named 'helpers'",
    "No module named 'networks'",
    "No module named 'losses'",
    "No module named 'options'",
    "No module named 'engine'",
    "No module named 'custom'",
    "No module named 'main'",
    "No module named 'eval'",
    "No module named 'layers'",
    "No module named 'utils.",
    "No module named 'models.",
    "No module named 'src.",
    "No module named 'tools.",
    "No module named 'scripts.",
    "No module named 'data.",
    "No module named 'configs.",
    "No module named 'lib.",
    "No module named 'common.",
    "No module named 'modules.",
    "build_meta",
    "Getting requirements to build",
    "get_requires_for_build",
)
"""Modules that have their own causes, and names that are the user's own."""
SIGNS = (
    {"says": "ModuleNotFoundError: No module named '{module}'", "in": "exception", "without": APART},
    {"says": "ImportError: No module named {module}", "in": "exception", "without": APART},
    {"says": "requires the {package} library but it was not found in your environment", "in": "exception"},
    {"says": "library. But that was not found in your environment", "in": "exception"},
    {"says": "library, but it was not found in your environment", "in": "exception"},
    {
        "says": "This modeling file requires the following packages that were not found in your environment: {package}",
        "in": "exception",
        "without": ("flash_attn",),
    },
    {"says": "Please install it with `pip install {package}`", "in": "exception", "without": ("flash",)},
    {"says": "distribution was not found and is required by", "in": "exception", "without": ("flash",)},
    {
        "says": "PackageNotFoundError: No package metadata was found for",
        "in": "exception",
        "without": ("flash",),
    },
    {"says": "PackageNotFoundError: {package}", "in": "exception", "without": ("flash",)},
    {"says": "DistributionNotFound: The '{package}' distribution was not found", "in": "exception"},
    {"says": "requires the latest version of bitsandbytes", "in": "exception"},
    {"says": "TensorBoardCallback requires tensorboard to be installed", "in": "exception"},
    {"says": "requires wandb to be installed", "in": "exception"},
    {"says": "Callback requires {package} to be installed", "in": "exception"},
    {"says": "is not installed. Please install it", "in": "exception", "without": ("lash",)},
    {"says": "is not installed, please install", "in": "exception", "without": ("lash",)},
    {"says": "is not installed. Run `pip install", "in": "exception", "without": ("lash",)},
    {"says": "requires you to install", "in": "exception", "as": "clue"},
    {"says": "to be installed. Please install", "in": "exception", "as": "clue", "without": ("lash",)},
    {"says": "but it was not found in your environment", "in": "exception", "as": "clue"},
    {"says": "Unable to import required dependencies", "in": "exception", "as": "clue"},
    {"says": "you need to install", "in": "exception", "as": "clue", "without": ("lash",)},
    {"says": "You need to install", "in": "exception", "as": "clue", "without": ("lash",)},
    {"says": "lease install ", "in": "exception", "as": "clue", "without": ("lash",)},
    {
        "says": "pip install ",
        "in": "exception",
        "as": "clue",
        "without": ("lash", "huggingface-hub", "accelerate", "transformers"),
    },
    {"says": "No module named 'utils'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'models'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'model'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'config'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'configs'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'data'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'dataset'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'src'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'lib'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'common'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'train'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'trainer'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'modules'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'tools'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'scripts'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'core'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'helpers'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'networks'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'losses'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'options'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'engine'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'custom'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'main'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'eval'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'layers'", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'utils.", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'models.", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'src.", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'tools.", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'scripts.", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'data.", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'configs.", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'lib.", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'common.", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'modules.", "in": "exception", "cause": "not-environment"},
    {"says": "No module named 'datasets_local.", "in": "exception", "cause": "not-environment"},
    {"says": "vLLM is not installed or not properly configured"},
    {"says": "is not installed or not properly configured", "in": "exception"},
)
BROKEN, HEALTHY = told.examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return told.finding(facts, contract, CODE, SEVERITY)
