"""The node program: one request in, one line of JSON out. The actions are passed in, to keep this module
small.

A healthy node's line has at most 512 bytes (``areas.MAX_ANSWER_BYTES``): fingerprints of its areas, a
verdict with codes, and figures if it was asked to measure. Details are sent only on request.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gpuready.cluster.address import parse_host_address, parse_port
from gpuready.fleet.areas import SCHEMA

NodeAction = Callable[[Mapping[str, Any], str], str]


ACTIONS = ("fingerprint", "check", "prove", "bench", "details", "pair")


def answer_request(request: object, node: str, actions: Mapping[str, NodeAction]) -> str:
    """Return this node's answer; ValueError, shown by the controller, for a request that it cannot handle."""
    if not isinstance(request, dict):
        raise ValueError("the request is not an object")
    schema = request.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema > SCHEMA:
        raise ValueError(f"the request has schema {schema!r} and this node knows {SCHEMA}")
    action = request.get("do")
    if action not in ACTIONS or action not in actions:
        raise ValueError(f"this node cannot do {action!r}")
    return actions[action](request, node)


def parse_pair_request(request: Mapping[str, Any], node: str) -> dict[str, Any]:
    """Return this node's part in a round of pairs: rank, peer and meeting point."""
    part = (request.get("pairs") or {}).get(node)
    if not isinstance(part, dict):
        raise ValueError("the round has no part for this node")
    rank = part.get("rank")
    if rank not in (0, 1) or isinstance(rank, bool):
        raise ValueError(f"the rank {rank!r} is not 0 or 1")
    backend = part.get("backend")
    if backend not in ("gloo", "nccl"):
        raise ValueError(f"the backend {backend!r} is none of gloo and nccl")
    address = parse_host_address(str(part.get("address", "")), "the address")[0]
    return {**part, "address": address, "port": parse_port(str(part.get("port", "")), "the port")}
