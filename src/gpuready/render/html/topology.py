"""The machine drawing: GPUs in their NUMA nodes, their links, the host and its network, from facts alone."""

from typing import Any

from gpuready.model import Facts
from gpuready.render import facts_summary, units

MAX_NETWORK_CARDS = 7
"""Drawn; more are counted."""


def build_topology_view(facts: Facts) -> dict[str, Any] | None:
    """What is drawn from top to bottom (GPU fabric, GPUs, host, network), and the same as rows; None where nothing is known."""
    cards, nics = list_gpu_rows(facts), list_network_rows(facts)
    host = _describe_host(facts)
    if not cards and not nics and not host:
        return None
    return {
        "fabric": _describe_fabric(facts, cards) if cards else _describe_missing_gpus(facts),
        "is_linked": any(card["nvlink"] for card in cards),
        "nodes": _group_by_numa_node(facts, cards),
        "host": host or ["host"],
        "drawn_nics": nics[:MAX_NETWORK_CARDS],
        "more_nics": max(len(nics) - MAX_NETWORK_CARDS, 0),
        "gpus": cards,
        "nics": nics,
        "says": _describe_topology(facts, cards, nics),
    }


# -- facts ------------------------------------------------------------------------------------------------------


def list_gpu_rows(facts: Facts) -> list[dict[str, Any]]:
    """One row per GPU. A fact that is unknown or has another number of values leaves its cell empty."""
    count = facts.value_if_known("gpu.count")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= 1024:
        return []
    several = {key: _values_per_gpu(facts, f"gpu.{key}", count) for key in _GPU_FACTS}
    rows = []
    for index in range(count):
        row = {key: values[index] for key, values in several.items()}
        numa = row["numa"]
        rows.append(
            {
                "index": index,
                "name": facts_summary.shorten_gpu_name(str(row["name"] or "GPU")),
                "memory": units.format_nominal_memory(row["memory"]) if units.is_byte_count(row["memory"]) else "",
                "capability": str(row["capability"] or ""),
                "pcie": str(row["pcie"] or ""),
                "pcie_max": str(row["pcie_max"] or ""),
                "nvlink": row["nvlink"] if isinstance(row["nvlink"], int) else None,
                "numa": numa if isinstance(numa, int) and numa >= 0 else None,
                "pci": str(row["pci"] or ""),
                "mig": str(row["mig"] or ""),
                "state": _gpu_fault_text(facts, index),
            }
        )
    return rows


_GPU_FACTS = ("name", "memory", "capability", "pcie", "pcie_max", "nvlink", "numa", "pci", "mig")


def _values_per_gpu(facts: Facts, key: str, count: int) -> list[Any]:
    value = facts.value_if_known(key)
    many = list(value) if isinstance(value, (list, tuple)) else []
    return many if len(many) == count else [None] * count


def _gpu_fault_text(facts: Facts, index: int) -> str:
    fault_words = {
        "gpu.lost": "off the bus",
        "gpu.remap_failure": "no spare rows",
        "gpu.remap_pending": "waits for a reset",
    }
    for key, says in fault_words.items():
        value = facts.value_if_known(key)
        if isinstance(value, (list, tuple)) and index in value:
            return says
    return ""


def _describe_fabric(facts: Facts, cards: list[dict[str, Any]]) -> str:
    """What connects the GPUs with each other; empty for a single GPU."""
    if len(cards) < 2:
        return ""
    fact, switches = facts.fact("gpu.nvlink"), facts.value_if_known("fabric.switches")
    if isinstance(switches, int) and switches > 0:
        return units.format_count(switches, "NVSwitch").replace("NVSwitchs", "NVSwitches")
    if fact.gap:
        return f"NVLink {units.format_fact_value(fact)}"
    return "NVLink" if any(card["nvlink"] for card in cards) else "no NVLink: GPUs meet through PCIe"


def _describe_missing_gpus(facts: Facts) -> str:
    """The text where no GPU can be drawn: none present, or unknown."""
    fact = facts.fact("gpu.count")
    return "no GPU" if not fact.gap else f"GPUs {units.format_fact_value(fact)}"


def _describe_unknown_numa(facts: Facts) -> str:
    """The label of GPUs whose NUMA node is unknown, with the reason."""
    fact = facts.fact("gpu.numa")
    return f"NUMA node {units.format_fact_value(fact)}" if fact.gap else "NUMA node not named"


def _describe_host(facts: Facts) -> list[str]:
    cpus, memory, limit = (facts.value_if_known(key) for key in ("host.cpus", "memory.total", "memory.limit"))
    first = [units.format_count(cpus, "CPU")] if isinstance(cpus, int) else []
    first += [f"{units.format_nominal_memory(memory)} RAM"] if units.is_byte_count(memory) else []
    first += [f"limit {units.format_nominal_memory(limit)}"] if units.is_byte_count(limit) and limit else []
    named = [str(facts.value_if_known(key)) for key in ("os.pretty", "os.container") if facts.value_if_known(key)]
    driver = facts.value_if_known("driver.version")
    named += [f"driver {driver}"] if driver else []
    return [", ".join(part) for part in (first, named) if part]


def list_network_rows(facts: Facts) -> list[dict[str, str]]:
    """RDMA ports and interfaces that are up, without loopback and those behind a listed RDMA port."""
    ports, interfaces = facts.value_if_known("net.ib"), facts.value_if_known("net.interfaces")
    rows, rdma_netdevs = [], set()
    for name, port in ports.items() if isinstance(ports, dict) else ():
        port = port if isinstance(port, dict) else {}
        rdma_netdevs.add(port.get("netdev"))
        kind = str(port.get("link_layer") or "RDMA")
        rows.append(_network_row(str(name), kind, port.get("rate"), str(port.get("state") or "")))
    for name, one in interfaces.items() if isinstance(interfaces, dict) else ():
        if not isinstance(one, dict) or not one.get("up") or name in rdma_netdevs or one.get("kind") == "loopback":
            continue
        rows.append(_network_row(str(name), str(one.get("kind") or ""), one.get("speed"), "up"))
    return rows


def _network_row(name: str, kind: str, rate: Any, state: str) -> dict[str, str]:
    fast = isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0
    speed = f"{rate * 8 / 1e9:.4g} Gbit/s" if fast else "speed unknown"
    return {"name": name, "kind": kind, "speed": speed, "state": state}


def _describe_topology(facts: Facts, cards: list[dict[str, Any]], nics: list[dict[str, str]]) -> str:
    """The drawing in one sentence, for screen readers."""
    parts = list(filter(None, [facts_summary.summarize_hardware(facts)]))
    nodes = {card["numa"] for card in cards if card["numa"] is not None}
    parts += [f"on {units.format_count(len(nodes), 'NUMA node')}"] if nodes else []
    parts += [_describe_fabric(facts, cards)] if _describe_fabric(facts, cards) else []
    return ", ".join([*parts, units.format_count(len(nics), "network card")])


def _group_by_numa_node(facts: Facts, cards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The GPUs of each NUMA node, with the links of each above and below it."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for card in cards:
        links = {"nvlink": units.format_count(card["nvlink"], "link") if card["nvlink"] else ""}
        groups.setdefault(card["numa"], []).append(card | links | {"link": _describe_pcie(card)})
    unknown = _describe_unknown_numa(facts)
    return [
        {"name": unknown if node is None else f"NUMA node {node}", "gpus": several} for node, several in groups.items()
    ]


def _describe_pcie(card: dict[str, Any]) -> dict[str, str]:
    now, most = card["pcie"], card["pcie_max"]
    if now and most and now != most:
        return {"says": f"PCIe {now} of {most}", "kind": "less"}
    return {"says": f"PCIe {now}" if now else "", "kind": ""}
