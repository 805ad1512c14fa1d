"""Names that shell completion offers."""

from __future__ import annotations

from gpuready import contracts, rules
from gpuready.catalog import proofs
from gpuready.workflow import catalog_lists
from gpuready.workflow.refusal import Refused

NAME_KINDS = ("frameworks", "gpus", "models", "codes", "torch", "proofs")


def list_completion_names(kind: str) -> list[str]:
    """Return every name of a kind."""
    if kind == "frameworks":
        return contracts.list_frameworks()
    if kind == "codes":
        return rules.list_codes()
    if kind == "proofs":
        every = (
            *contracts.list_frameworks(),
            *proofs.list_proof_capabilities(),
            *(row.name for row in proofs.list_proofs()),
        )
        return list(dict.fromkeys(every))
    if kind == "gpus":
        return [row["on"] for row in catalog_lists.gpu_list()]
    if kind == "models":
        return [row["name"] for row in catalog_lists.model_list()]
    if kind == "torch":
        return catalog_lists.torch_list()
    raise Refused(f"there are the names of {', '.join(NAME_KINDS)}, not of {kind!r}")
