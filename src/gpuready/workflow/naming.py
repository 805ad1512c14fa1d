"""Names that shell completion offers."""

from __future__ import annotations

from gpuready.workflow.refusal import Refused

KINDS = ("frameworks", "gpus", "models", "codes", "torch", "proofs")


def names(kind: str) -> list[str]:
    """Return every name of a kind."""
    if kind == "frameworks":
        from gpuready import contracts

        return contracts.frameworks()
    if kind == "codes":
        from gpuready import rules

        return list(rules.LEDGER)
    if kind == "proofs":
        from gpuready import contracts
        from gpuready.catalog import proofs

        every = (*contracts.frameworks(), *proofs.capabilities(), *(row.name for row in proofs.every()))
        return list(dict.fromkeys(every))
    from gpuready.workflow import offering

    if kind == "gpus":
        return [row["on"] for row in offering.gpu_list()]
    if kind == "models":
        return [row["name"] for row in offering.model_list()]
    if kind == "torch":
        return offering.torch_list()
    raise Refused(f"there are the names of {', '.join(KINDS)}, not of {kind!r}")
