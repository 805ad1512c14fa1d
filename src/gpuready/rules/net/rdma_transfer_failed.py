"""A transfer over InfiniBand or RoCE failed.

The network card reports that a transfer ended with an error: it was repeated until the retries were used up, or a port changed its
state. A cable or transceiver that drops, a switch that is not set up for RoCE (flow control, traffic class), wrong GIDs, firmware, or
simply a peer that died: then that peer's own log has the cause, and this is only what followed.

Look at the peer first. Then at the link: ibstat, the counters of the port, and a bandwidth test between the two nodes. A call that
could not register memory is SYS007.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "NET015"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "NET/IB : Got completion from peer {peer} with"},
    {"says": "NET/IB : Got completion with error"},
    {"says": "NET/IB{}Got completion"},
    {"says": "Got async event : port error", "in": "nccl"},
    {"says": "Got async error event", "in": "nccl"},
    {"says": "Got non-fatal async event: port error", "in": "nccl"},
    {"says": "NET/IB {}fatal async event", "in": "nccl"},
    "Call to ibv_modify_qp failed",
    "Call to ibv_poll_cq failed",
    "Call to ibv_post_send failed",
    "IBV_WC_RETRY_EXC_ERR",
    "transport retry counter exceeded",
    "Transport retry count exceeded",
    "NET/OFI Request {} completed with error",
    {"says": "mlx5_core {}Link down", "as": "clue"},
    {"says": "Local QP operation err", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
