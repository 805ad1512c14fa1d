"""The node program: one request in, one line of JSON out. The actions are passed in, to keep this module
small.

A healthy node's line has at most 512 bytes (``facets.MAX_ANSWER_BYTES``): fingerprints of its facets, a
verdict with codes, and figures if it was asked to measure. Details are sent only on request.
"""

from __future__ import annotations

from gpuready.fleet.facets import SCHEMA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Act = Callable[[Mapping[str, Any], str], str]

DOES = ("fingerprint", "check", "prove", "bench", "details", "pair")


def line(request: object, node: str, acts: Mapping[str, Act]) -> str:
    """Return this node's answer; ValueError, shown by the controller, for a request that it cannot handle."""
    if not isinstance(request, dict):
        raise ValueError("the request is no object")
    schema = request.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema > SCHEMA:
        raise ValueError(f"the request has schema {schema!r} and this node knows {SCHEMA}")
    do = request.get("do")
    if do not in DOES or do not in acts:
        raise ValueError(f"this node cannot do {do!r}")
    return acts[do](request, node)


def pair_of(request: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return this node's part in a round of pairs: rank, peer and meeting point."""
    from gpuready.cluster.address import host, port

    part = (request.get("pairs") or {}).get(node)
    if not isinstance(part, dict):
        raise ValueError("the round has no part for this node")
    rank = part.get("rank")
    if rank not in (0, 1) or isinstance(rank, bool):
        raise ValueError(f"the rank {rank!r} is none of two")
    backend = part.get("backend")
    if backend not in ("gloo", "nccl"):
        raise ValueError(f"the backend {backend!r} is none of gloo and nccl")
    where = host(str(part.get("address", "")), "the address")[0]
    return {**part, "address": where, "port": port(str(part.get("port", "")), "the port")}
