"""What a line states in one of many wordings, in one: patterns match it by ``stated:``, at the place of the line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from gpuready.logs.error_numbers import find_cuda_errors, find_nccl_chains
from gpuready.logs.http_status import find_hub_refusals
from gpuready.logs.log_lines import LogLine
from gpuready.logs.stated_packages import find_asked_packages


def state_errors(lines: Sequence[LogLine]) -> dict[int, str]:
    """``stated: CUDA reports cudaErrorNoDevice``, ``stated: the hub answers 403``: by the index of the line."""
    found: dict[int, str] = {}
    readers = (find_cuda_errors, find_nccl_chains, find_hub_refusals, find_asked_packages)
    for index, words in chain.from_iterable(reader(lines) for reader in readers):
        found[index] = f"{found[index]}; {words}" if index in found else f"stated: {words}"
    return found
