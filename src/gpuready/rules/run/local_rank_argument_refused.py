"""The script does not take the argument that the launcher gives.

torch.distributed.launch hands every process its place as an argument. Until torch 1.13 it was written --local_rank, since torch 2.0
it is --local-rank, and a script that only knows the old spelling, or none, refuses it and ends before it begins.

Start the script with torchrun, which sets LOCAL_RANK instead and passes no argument, and read that variable; or let the script accept
both spellings. Other arguments that a script does not know are the user's own.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN003"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "unrecognized arguments: --local-rank",
    "unrecognized arguments: --local_rank",
    {"says": "unrecognized arguments: {}--local-rank="},
    {"says": "unrecognized arguments: {}--local_rank="},
    "not used by the HfArgumentParser: ['--local-rank",
    "not used by the HfArgumentParser: ['--local_rank",
    {"says": "not used by the HfArgumentParser: {}--local-rank"},
    {"says": "not used by the HfArgumentParser: {}--local_rank"},
    "No such option: --local-rank",
    "No such option: --local_rank",
    "no such option: --local-rank",
    "no such option: --local_rank",
    "Unknown command line flag 'local-rank'",
    "Unknown command line flag 'local_rank'",
    {"says": "Could not consume arg: --local-rank"},
    {"says": "Could not consume arg: --local_rank"},
    {"says": "Got unexpected arguments: --local-rank"},
    {"says": "Unknown arguments: {}--local-rank"},
    {"says": "LexerNoViableAltException: --local", "as": "root"},
    {"says": "following arguments are required: --local_rank"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
