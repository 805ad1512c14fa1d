"""The machine drawing: GPUs in their NUMA nodes, their links, the host and its network, from facts alone."""

from __future__ import annotations

from typing import Any

from gpuready.model import Facts
from gpuready.render import facts_summary, units

DRAWING_WIDTH = 1000
EDGE_MARGIN = 8
CARD_WIDTH, BOX_GAP = 112, 10
CARD_HEIGHT = 86
MIN_NUMA_WIDTH = 160
"""Wide enough for the name of a NUMA node."""
MAX_GPUS_PER_ROW = 8
MAX_NETWORK_CARDS = 7
"""Drawn; more are counted."""
LETTER_WIDTH = 6.4
"""Approximate, in drawing units."""


def build_topology_view(facts: Facts) -> dict[str, Any] | None:
    """Positioned boxes and lines, and the same as rows; None where nothing is known of the machine."""
    cards, nics = list_gpu_rows(facts), list_network_rows(facts)
    host = _describe_host(facts)
    if not cards and not nics and not host:
        return None
    drawing = _TopologyDrawing()
    drawing.unknown_numa_text = _describe_unknown_numa(facts)
    drawing.draw_machine(cards, _describe_fabric(facts, cards), host, nics, _describe_missing_gpus(facts))
    return {
        "width": DRAWING_WIDTH,
        "height": drawing.bottom,
        "boxes": drawing.boxes,
        "lines": drawing.lines,
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
    parts = [facts_summary.summarize_machine(facts)] if facts_summary.summarize_machine(facts) else []
    nodes = {card["numa"] for card in cards if card["numa"] is not None}
    parts += [f"on {units.format_count(len(nodes), 'NUMA node')}"] if nodes else []
    parts += [_describe_fabric(facts, cards)] if _describe_fabric(facts, cards) else []
    return ", ".join([*parts, units.format_count(len(nics), "network card")])


# -- drawing ----------------------------------------------------------------------------------------------------


class _TopologyDrawing:
    """Boxes and lines from top to bottom: GPU fabric, GPUs, host, network."""

    def __init__(self) -> None:
        self.boxes: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self.bottom = EDGE_MARGIN
        self.card_width: float = CARD_WIDTH
        self.unknown_numa_text = ""

    def draw_machine(
        self, cards: list[dict[str, Any]], fabric: str, host: list[str], nics: list[dict[str, str]], no_gpu_text: str
    ) -> None:
        if not cards and no_gpu_text:
            self._add_bar(no_gpu_text, "fabric open")
            self.bottom += BOX_GAP
        fabric_bar = self._add_bar(fabric, "fabric" if _has_nvlink(cards) else "fabric open") if fabric else None
        groups = self._add_numa_groups(cards, 44 if fabric else 0)
        if fabric_bar is not None:
            for group in groups:
                self._add_group_links(group, fabric_bar, up=True)
        self.bottom += 44 if groups else 0
        host_bar = self._add_bar(host[0] if host else "host", "host", host[1:])
        for group in groups:
            self._add_group_links(group, host_bar, up=False)
        self._add_network_cards(nics, host_bar)
        self.bottom += EDGE_MARGIN

    def _add_bar(self, says: str, kind: str, more: list[str] | None = None) -> dict[str, Any]:
        lines = [says, *(more or [])]
        width, height = DRAWING_WIDTH - 2 * EDGE_MARGIN, 18 + 16 * len(lines)
        box = self._add_box(EDGE_MARGIN, self.bottom, width, height, kind, lines)
        self.bottom += box["h"]
        return box

    def _add_box(self, x: float, y: float, w: float, h: float, kind: str, says: list[str]) -> dict[str, Any]:
        room = int((w - 12) / LETTER_WIDTH)
        rows = [
            {"text": _truncate_label(line, room), "whole": line, "y": y + 21 + 16 * n} for n, line in enumerate(says)
        ]
        box = {"x": x, "y": y, "w": w, "h": h, "kind": kind, "rows": rows, "middle": x + w / 2}
        self.boxes.append(box)
        return box

    def _add_numa_groups(self, cards: list[dict[str, Any]], above: int) -> list[dict[str, Any]]:
        """The GPUs by NUMA node, side by side, in several rows where needed."""
        if not cards:
            return []
        by_node: dict[Any, list[dict[str, Any]]] = {}
        for card in cards:
            by_node.setdefault(card["numa"], []).append(card)
        nodes, groups = list(by_node.items()), []
        self.bottom += above
        for start in range(0, len(nodes), MAX_GPUS_PER_ROW):
            groups += self._add_group_row(nodes[start : start + MAX_GPUS_PER_ROW])
            self.bottom += BOX_GAP if start + MAX_GPUS_PER_ROW < len(nodes) else 0
        return groups

    def _add_group_row(self, nodes: list[tuple[Any, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
        """NUMA nodes side by side, as wide as their GPUs and names need."""
        across = max(1, MAX_GPUS_PER_ROW // len(nodes))
        columns = [min(across, len(group)) for _, group in nodes]
        room = DRAWING_WIDTH - 2 * EDGE_MARGIN - BOX_GAP * (len(nodes) - 1)
        self.card_width = min(CARD_WIDTH, (room - sum(n + 1 for n in columns) * BOX_GAP) / sum(columns))
        group_widths = [
            max(n * self.card_width + (n + 1) * BOX_GAP, min(MIN_NUMA_WIDTH, room / len(nodes))) for n in columns
        ]
        x = max((DRAWING_WIDTH - sum(group_widths) - BOX_GAP * (len(group_widths) - 1)) / 2, EDGE_MARGIN)
        y, tallest, groups = self.bottom, 0.0, []
        for (node, group), n, w in zip(nodes, columns, group_widths, strict=True):
            groups.append(self._add_numa_group(node, group, n, x, y, w))
            tallest = max(tallest, groups[-1]["h"])
            x += w + BOX_GAP
        self.bottom = int(y + tallest)
        return groups

    def _add_numa_group(
        self, node: Any, cards: list[dict[str, Any]], across: int, x: float, y: float, w: float
    ) -> dict[str, Any]:
        rows = -(-len(cards) // across)
        inset = (w - across * self.card_width - (across + 1) * BOX_GAP) / 2
        says = f"NUMA node {node}" if node is not None else self.unknown_numa_text
        box = self._add_box(x, y, w, 30 + rows * (CARD_HEIGHT + BOX_GAP), "numa", [says])
        box["rows"][0]["y"] = y + box["h"] - 9
        box["cards"], box["deep"], box["gpus"] = [], rows, cards
        for at, card in enumerate(cards):
            left = x + BOX_GAP + inset + (at % across) * (self.card_width + BOX_GAP)
            top = y + BOX_GAP + (at // across) * (CARD_HEIGHT + BOX_GAP)
            box["cards"].append(self._add_gpu_card(card, left, top))
        return box

    def _add_gpu_card(self, card: dict[str, Any], x: float, y: float) -> dict[str, Any]:
        says = [f"GPU {card['index']}", card["name"], card["memory"]]
        says.append(card["state"] or (f"capability {card['capability']}" if card["capability"] else ""))
        return self._add_box(x, y, self.card_width, CARD_HEIGHT, "lost" if card["state"] else "gpu", says)

    def _add_group_links(self, group: dict[str, Any], bar: dict[str, Any], up: bool) -> None:
        """A line from each GPU of a single row, or one from the whole group."""
        many = group["deep"] > 1
        ends = [group] if many else group["cards"]
        for end, card in zip(ends, group["gpus"], strict=False):
            start = end["y"] if up else group["y"] + group["h"]
            stop = bar["y"] + bar["h"] if up else bar["y"]
            label, kind = _link_label_and_kind(card, up)
            if many and label:
                label = f"{len(group['gpus'])} x {label}"
            self._add_line(end["middle"], start if not up or many else end["y"], end["middle"], stop, label, kind)

    def _add_line(self, x: float, y: float, to: float, down: float, label: str, kind: str) -> None:
        at = (max(y, down) if kind.startswith("pcie") else min(y, down)) + (-14 if kind.startswith("pcie") else 26)
        self.lines.append({"x1": x, "y1": y, "x2": to, "y2": down, "label": label, "kind": kind, "y": at})

    def _add_network_cards(self, nics: list[dict[str, str]], host: dict[str, Any]) -> None:
        if not nics:
            return
        shown = nics[:MAX_NETWORK_CARDS]
        cells = [[nic["name"], nic["kind"], nic["speed"], nic["state"]] for nic in shown]
        if len(nics) > MAX_NETWORK_CARDS:
            cells.append([f"and {len(nics) - MAX_NETWORK_CARDS} more", "see the table", "", ""])
        w = min(170.0, (DRAWING_WIDTH - 2 * EDGE_MARGIN - BOX_GAP * (len(cells) - 1)) / len(cells))
        x = (DRAWING_WIDTH - len(cells) * w - BOX_GAP * (len(cells) - 1)) / 2
        y = self.bottom + 26
        for cell in cells:
            box = self._add_box(x, y, w, 82, "nic", cell)
            self._add_line(box["middle"], host["y"] + host["h"], box["middle"], y, "", "net")
            x += w + BOX_GAP
        self.bottom = int(y + 82)


def _has_nvlink(cards: list[dict[str, Any]]) -> bool:
    return any(card["nvlink"] for card in cards)


def _link_label_and_kind(card: dict[str, Any], up: bool) -> tuple[str, str]:
    if up:
        links = card["nvlink"]
        return (units.format_count(links, "link"), "nvlink") if links else ("", "none")
    now, most = card["pcie"], card["pcie_max"]
    if now and most and now != most:
        return f"PCIe {now} of {most}", "pcie less"
    return (f"PCIe {now}" if now else "", "pcie")


def _truncate_label(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 1)] + "…"
