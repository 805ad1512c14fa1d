"""Normalize addresses and ports as people and templates write them, or reject them in a sentence; the nodes of pods."""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Mapping

from gpuready.model.record import Record

LAST_PORT = 65535
FREE_PORT_START, FREE_PORT_COUNT = 20000, 10000
# Ports below those that the kernel gives to outgoing connections.


def parse_whole_number(text: str, name: str) -> int:
    """Parse at most nine ASCII digits; ValueError says what the variable contains instead."""
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    if not text.strip():
        raise ValueError(f"{name} is empty")
    raise ValueError(f"{name} is {text!r}, which is not a whole number")


def parse_port(text: str, name: str = "MASTER_PORT") -> int:
    """Parse a port from 1 to 65535."""
    try:
        number = parse_whole_number(text, name)
    except ValueError as error:
        raise ValueError(f"{error}{_kubernetes_link_hint(text)}: a port is a number from 1 to {LAST_PORT}") from None
    if not number:
        raise ValueError(f"{name} is 0, which means any port: the other ranks cannot guess it")
    if number > LAST_PORT:
        raise ValueError(f"{name} is {number}: a port is a number from 1 to {LAST_PORT}")
    return number


def _kubernetes_link_hint(text: str) -> str:
    return " (Kubernetes links a service called master so: rename it)" if text.startswith("tcp://") else ""


def derive_job_port(key: str) -> int:
    """Derive a port that all ranks of one job agree on if the launcher gives none."""
    return FREE_PORT_START + zlib.crc32(key.encode("utf-8", "surrogateescape")) % FREE_PORT_COUNT


def parse_host_address(text: str, name: str = "MASTER_ADDR") -> tuple[str, str]:
    """Return the normalized address, and a note if it was changed; ValueError if it is invalid."""
    plain = text.strip()
    if not plain:
        raise ValueError(f"{name} is empty")
    note = f"{name} is {text!r}: the spaces around it are dropped" if plain != text else ""
    if plain.startswith("[") and plain.endswith("]"):
        plain = plain[1:-1]
    if "://" in plain:
        raise ValueError(f"{name} is {text!r}, a URL: write the host alone")
    if ":" in plain or all(c.isdigit() or c == "." for c in plain):  # these are never a name
        return _check_ip_address(plain, text, name), note
    return _check_host_name(plain, text, name), note


def _check_ip_address(plain: str, text: str, name: str) -> str:
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        before, _, after = plain.rpartition(":")
        if before and ":" not in before and after.isdecimal():
            message = f"{name} is {text!r}: write {before} there, and {after} to MASTER_PORT"
            raise ValueError(message) from None
        raise ValueError(f"{name} is {text!r}, which is not an address") from None
    if address.is_unspecified:
        raise ValueError(f"{name} is {text!r}, which means all addresses of a host: name one of them")
    if address.version == 6 and address.is_link_local and "%" not in plain:
        message = f"{name} is {text!r}, a link-local address: add the interface, such as {plain}%eth0"
        raise ValueError(message)
    return plain


def _check_host_name(plain: str, text: str, name: str) -> str:
    labels = plain.removesuffix(".").split(".")
    fits = all(0 < len(one) < 64 and all(c.isalnum() or c in "-_" for c in one) for one in labels)
    if not fits or len(plain) > 253 or plain.startswith("-"):  # which a program would take for a flag
        raise ValueError(f"{name} is {text[:80]!r}, which is not a host name")
    return plain


class PodNodes(Record):
    """The nodes of a job as a pod sees them; None and empty where nothing is said."""

    nodes: int | None = None
    node: int | None = None
    master: str = ""  # HOST:PORT
    nproc: str = ""  # a number, or auto, gpu or cpu, as torchrun takes them
    problem: str = ""  # a number of nodes that is none


def is_pod(environ: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environ


def read_pod_nodes(environ: Mapping[str, str]) -> PodNodes:
    """Return what the variables say about nodes; nothing inside of a rank that a launcher has started."""
    outside = not is_pod(environ) and "PET_NNODES" not in environ
    if outside or "LOCAL_RANK" in environ:
        return PodNodes()
    found = PodNodes(master=_find_master(environ), nproc=environ.get("PET_NPROC_PER_NODE", "").strip())
    try:
        return found.replace(nodes=_count_nodes(environ), node=_find_node(environ))
    except ValueError as error:
        return found.replace(problem=str(error))


def _count_nodes(environ: Mapping[str, str]) -> int | None:
    """PET_NNODES, or WORLD_SIZE where every pod is one process."""
    text = environ.get("PET_NNODES", "").strip()
    if not text:
        alone = "RANK" in environ and "WORLD_SIZE" in environ
        return parse_whole_number(environ["WORLD_SIZE"], "WORLD_SIZE") if alone else None
    least, _, most = text.partition(":")
    if most and most != least:
        raise ValueError(f"PET_NNODES is {text}, and gpuready run starts a fixed number of nodes")
    return parse_whole_number(least, "PET_NNODES")


def _find_node(environ: Mapping[str, str]) -> int | None:
    for name in ("PET_NODE_RANK", "RANK", "JOB_COMPLETION_INDEX"):
        if environ.get(name, "").strip():
            return parse_whole_number(environ[name], name)
    return None


def _find_master(environ: Mapping[str, str]) -> str:
    for prefix in ("PET_", ""):
        host, port = environ.get(f"{prefix}MASTER_ADDR", "").strip(), environ.get(f"{prefix}MASTER_PORT", "").strip()
        if host and port:
            return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
    return environ.get("PET_RDZV_ENDPOINT", "").strip()
