"""An argument of a trainer was renamed or moved.

The trainers of transformers and of TRL change their arguments between releases: ``tokenizer`` became ``processing_class``, ``evaluation_strategy``
became ``eval_strategy``, and what SFTTrainer took itself (``dataset_text_field``, ``max_seq_length``, ``packing``) moved to SFTConfig. A script
that was written for one release fails under another at the call, with an unexpected keyword argument, or when a class is imported that has gone.

Install the TRL and transformers that the script was written for, or adapt the call to the installed ones. An argument of the user's own
function that is misspelt is no case of this.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG028"
SEVERITY = "error"
READS = log_findings.READS
TRAINER_MARKERS = ("Trainer", "TrainingArguments", "trl")
"""Phrases by which a trainer call is recognised."""
ACCELERATOR_MARKERS = ("Accelerator.__init__", "Accelerator(")
"""Phrases of accelerate's own interface."""
PATTERNS = (
    {"says": "SFTTrainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "SFTConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "DPOTrainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "DPOConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "PPOTrainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "PPOConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "PPOv2Trainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "GRPOTrainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "GRPOConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "RewardTrainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "RewardConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "KTOTrainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "KTOConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "ORPOTrainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "ORPOConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "CPOTrainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "CPOConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "RLOOTrainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "RLOOConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "OnlineDPOTrainer.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "OnlineDPOConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "ModelConfig.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {"says": "ScriptArguments.__init__() got an unexpected keyword argument '{argument}'", "in": "exception"},
    {
        "says": "__init__() got an unexpected keyword argument 'tokenizer'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'processing_class'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'evaluation_strategy'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'eval_strategy'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'dataset_text_field'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'max_seq_length'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'packing'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'no_cuda'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'use_ipex'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'use_mps_device'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'per_gpu_train_batch_size'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'fp16_backend'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'half_precision_backend'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'push_to_hub_token'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'logging_dir'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'overwrite_output_dir'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'include_inputs_for_metrics'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'group_by_length'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'save_safetensors'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'include_tokens_per_second'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'jit_mode_eval'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'tpu_num_cores'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'past_index'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'ray_scope'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'warmup_ratio'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'dispatch_batches'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'split_batches'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument 'deepspeed_plugin'",
        "in": "exception",
        "with": TRAINER_MARKERS,
        "without": ACCELERATOR_MARKERS,
    },
    {
        "says": "__init__() got an unexpected keyword argument",
        "in": "exception",
        "with": (
            "-packages/trl/",
            "SFTTrainer(",
            "SFTConfig(",
            "DPOTrainer(",
            "DPOConfig(",
            "PPOTrainer(",
            "PPOConfig(",
            "GRPOTrainer(",
            "GRPOConfig(",
            "RewardTrainer(",
            "KTOTrainer(",
        ),
        "without": ("LoraConfig.__init__", "Accelerator.__init__"),
    },
    {"says": "cannot import name '{name}' from 'trl", "in": "exception"},
    {"says": "No module named 'trl.{name}'", "in": "exception"},
    {"says": "module 'trl' has no attribute", "in": "exception"},
    {"says": "Failed to import trl.", "in": "exception"},
    {
        "says": "cannot import name '{name}' from 'transformers",
        "in": "exception",
        "with": ("-packages/trl/", "-packages\\trl\\"),
    },
    {"says": "compute_loss() got an unexpected keyword argument 'num_items_in_batch'", "in": "exception"},
    {"says": "compute_loss() got an unexpected keyword argument 'return_outputs'", "in": "exception"},
    {"says": "training_step() takes {} positional arguments but", "in": "exception"},
    {"says": "_get_train_sampler() takes 1 positional argument but 2 were given", "in": "exception"},
    {"says": "_maybe_log_save_evaluate() takes", "in": "exception"},
    {"says": "_maybe_log_save_evaluate() missing", "in": "exception"},
    {"says": "log() takes {} positional arguments but", "in": "exception", "with": ("Trainer", "trainer")},
    {"says": "'TrainingArguments' object has no attribute", "in": "exception", "as": "clue"},
    {"says": "'SFTConfig' object has no attribute", "in": "exception"},
    {"says": "'DPOConfig' object has no attribute", "in": "exception"},
    {"says": "'GRPOConfig' object has no attribute", "in": "exception"},
    {"says": "'PPOConfig' object has no attribute", "in": "exception"},
    {"says": "'SFTTrainer' object has no attribute", "in": "exception"},
    {"says": "'DPOTrainer' object has no attribute", "in": "exception"},
    {"says": "'PPOTrainer' object has no attribute", "in": "exception"},
    {"says": "'GRPOTrainer' object has no attribute", "in": "exception"},
    {"says": "trl{}is required for a normal functioning of this module, but found trl==", "in": "exception"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
