"""The model was placed on another GPU than its rank has.

In distributed training every rank holds the model, or its shard, on its own GPU. A device map spreads one model over all GPUs
instead, and a quantised model stays where it was loaded: with device_map="auto", or with the default device, ranks find their model
on GPU 0 or on several GPUs, and accelerate or DDP refuse to train it.

Load it with device_map={"": LOCAL_RANK}, or without a device map and let the trainer move it. Tensors of one step that lie on
different devices are RUN009.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN008"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "precision on a different device than the one",
    "You can't train a model that has been loaded with `device_map='auto'` in any distributed mode",
    "on multiple devices in any distributed mode",
    {"says": "You can't train a model that has been loaded in {} precision with CPU or disk offload"},
    "is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`",
    "is not compatible with passing a `device_map`",
    "DistributedDataParallel device_ids and output_device arguments only work with",
    "DistributedDataParallel's input module must be on the same type of devices",
    "`device_map='auto'` in any distributed mode",
    {"says": 'device_map="auto" is not supported', "as": "root"},
    {"says": "Make sure you loaded the model on the correct device using for example `device_map", "as": "root"},
    {"says": "DDP{}device_map='auto'", "in": "exception"},
    {"says": "You can't move a model that has some modules offloaded to cpu or disk", "as": "root"},
    {"says": "You shouldn't move a model that is dispatched using accelerate hooks", "as": "clue"},
    {"says": "You shouldn't move a model when it is dispatched on multiple devices", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
