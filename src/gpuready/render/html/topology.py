"""The machine drawing: GPUs in their NUMA nodes, their links, the host and its network, from facts alone."""

from __future__ import annotations

from gpuready.render import summary, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Facts

WIDE = 1000
EDGE = 8
CARD, GAP = 112, 10
TALL = 86
LEAST = 160
"""Wide enough for the name of a NUMA node."""
ACROSS = 8
NICS = 7
"""Drawn; more are counted."""
LETTER = 6.4
"""Approximate, in drawing units."""


def view(facts: Facts) -> dict[str, Any] | None:
    """Positioned boxes and lines, and the same as rows; None where nothing is known of the machine."""
    cards, nics = gpus(facts), network(facts)
    host = _host(facts)
    if not cards and not nics and not host:
        return None
    drawing = _Drawing()
    drawing.unnamed = _unnamed(facts)
    drawing.draw(cards, _fabric(facts, cards), host, nics, _none(facts))
    return {
        "width": WIDE,
        "height": drawing.bottom,
        "boxes": drawing.boxes,
        "lines": drawing.lines,
        "gpus": cards,
        "nics": nics,
        "says": _says(facts, cards, nics),
    }


# -- facts ------------------------------------------------------------------------------------------------------


def gpus(facts: Facts) -> list[dict[str, Any]]:
    """One row per GPU. A fact that is unknown or has another number of values leaves its cell empty."""
    count = facts.known("gpu.count")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= 1024:
        return []
    several = {key: _each(facts, f"gpu.{key}", count) for key in _CELLS}
    rows = []
    for index in range(count):
        row = {key: values[index] for key, values in several.items()}
        numa = row["numa"]
        rows.append(
            {
                "index": index,
                "name": summary.short(str(row["name"] or "GPU")),
                "memory": units.memory(row["memory"]) if units.countable(row["memory"]) else "",
                "capability": str(row["capability"] or ""),
                "pcie": str(row["pcie"] or ""),
                "pcie_max": str(row["pcie_max"] or ""),
                "nvlink": row["nvlink"] if isinstance(row["nvlink"], int) else None,
                "numa": numa if isinstance(numa, int) and numa >= 0 else None,
                "pci": str(row["pci"] or ""),
                "mig": str(row["mig"] or ""),
                "state": _state(facts, index),
            }
        )
    return rows


_CELLS = ("name", "memory", "capability", "pcie", "pcie_max", "nvlink", "numa", "pci", "mig")


def _each(facts: Facts, key: str, count: int) -> list[Any]:
    value = facts.known(key)
    many = list(value) if isinstance(value, (list, tuple)) else []
    return many if len(many) == count else [None] * count


def _state(facts: Facts, index: int) -> str:
    told = {
        "gpu.lost": "off the bus",
        "gpu.remap_failure": "no spare rows",
        "gpu.remap_pending": "waits for a reset",
    }
    for key, says in told.items():
        value = facts.known(key)
        if isinstance(value, (list, tuple)) and index in value:
            return says
    return ""


def _fabric(facts: Facts, cards: list[dict[str, Any]]) -> str:
    """What connects the GPUs with each other; empty for a single GPU."""
    if len(cards) < 2:
        return ""
    fact, switches = facts.fact("gpu.nvlink"), facts.known("fabric.switches")
    if isinstance(switches, int) and switches > 0:
        return units.counted(switches, "NVSwitch").replace("NVSwitchs", "NVSwitches")
    if fact.gap:
        return f"NVLink {units.value(fact)}"
    return "NVLink" if any(card["nvlink"] for card in cards) else "no NVLink: GPUs meet through PCIe"


def _none(facts: Facts) -> str:
    """The text where no GPU can be drawn: none present, or unknown."""
    fact = facts.fact("gpu.count")
    return "no GPU" if not fact.gap else f"GPUs {units.value(fact)}"


def _unnamed(facts: Facts) -> str:
    """The label of GPUs whose NUMA node is unknown, with the reason."""
    fact = facts.fact("gpu.numa")
    return f"NUMA node {units.value(fact)}" if fact.gap else "NUMA node not named"


def _host(facts: Facts) -> list[str]:
    cpus, memory, limit = (facts.known(key) for key in ("host.cpus", "memory.total", "memory.limit"))
    first = [units.counted(cpus, "CPU")] if isinstance(cpus, int) else []
    first += [f"{units.memory(memory)} RAM"] if units.countable(memory) else []
    first += [f"limit {units.memory(limit)}"] if units.countable(limit) and limit else []
    named = [str(facts.known(key)) for key in ("os.pretty", "os.container") if facts.known(key)]
    driver = facts.known("driver.version")
    named += [f"driver {driver}"] if driver else []
    return [", ".join(part) for part in (first, named) if part]


def network(facts: Facts) -> list[dict[str, str]]:
    """RDMA ports and interfaces that are up, without loopback and those behind a listed RDMA port."""
    ports, plain = facts.known("net.ib"), facts.known("net.interfaces")
    rows, shown = [], set()
    for name, port in ports.items() if isinstance(ports, dict) else ():
        port = port if isinstance(port, dict) else {}
        shown.add(port.get("netdev"))
        kind = str(port.get("link_layer") or "RDMA")
        rows.append(_nic(str(name), kind, port.get("rate"), str(port.get("state") or "")))
    for name, one in plain.items() if isinstance(plain, dict) else ():
        if not isinstance(one, dict) or not one.get("up") or name in shown or one.get("kind") == "loopback":
            continue
        rows.append(_nic(str(name), str(one.get("kind") or ""), one.get("speed"), "up"))
    return rows


def _nic(name: str, kind: str, rate: Any, state: str) -> dict[str, str]:
    fast = isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0
    speed = f"{rate * 8 / 1e9:.4g} Gbit/s" if fast else "speed unknown"
    return {"name": name, "kind": kind, "speed": speed, "state": state}


def _says(facts: Facts, cards: list[dict[str, Any]], nics: list[dict[str, str]]) -> str:
    """The drawing in one sentence, for screen readers."""
    parts = [summary.machine(facts)] if summary.machine(facts) else []
    nodes = {card["numa"] for card in cards if card["numa"] is not None}
    parts += [f"on {units.counted(len(nodes), 'NUMA node')}"] if nodes else []
    parts += [_fabric(facts, cards)] if _fabric(facts, cards) else []
    return ", ".join([*parts, units.counted(len(nics), "network card")])


# -- drawing ----------------------------------------------------------------------------------------------------


class _Drawing:
    """Boxes and lines from top to bottom: GPU fabric, GPUs, host, network."""

    def __init__(self) -> None:
        self.boxes: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self.bottom = EDGE
        self.card: float = CARD
        self.unnamed = ""

    def draw(
        self,
        cards: list[dict[str, Any]],
        fabric: str,
        host: list[str],
        nics: list[dict[str, str]],
        none: str = "",
    ) -> None:
        if not cards and none:
            self._bar(none, "fabric open")
            self.bottom += GAP
        top = self._bar(fabric, "fabric" if _linked(cards) else "fabric open") if fabric else None
        groups = self._groups(cards, 44 if fabric else 0)
        if top is not None:
            for group in groups:
                self._links(group, top, up=True)
        self.bottom += 44 if groups else 0
        under = self._bar(host[0] if host else "host", "host", host[1:])
        for group in groups:
            self._links(group, under, up=False)
        self._network(nics, under)
        self.bottom += EDGE

    def _bar(self, says: str, kind: str, more: list[str] | None = None) -> dict[str, Any]:
        box = self._box(
            EDGE, self.bottom, WIDE - 2 * EDGE, 34 + 16 * len(more or []), kind, [says, *(more or [])]
        )
        self.bottom += box["h"]
        return box

    def _box(self, x: float, y: float, w: float, h: float, kind: str, says: list[str]) -> dict[str, Any]:
        room = int((w - 12) / LETTER)
        rows = [
            {"text": _cut(line, room), "whole": line, "y": y + 21 + 16 * n} for n, line in enumerate(says)
        ]
        box = {"x": x, "y": y, "w": w, "h": h, "kind": kind, "rows": rows, "middle": x + w / 2}
        self.boxes.append(box)
        return box

    def _groups(self, cards: list[dict[str, Any]], above: int) -> list[dict[str, Any]]:
        """The GPUs by NUMA node, side by side, in several rows where needed."""
        if not cards:
            return []
        by_node: dict[Any, list[dict[str, Any]]] = {}
        for card in cards:
            by_node.setdefault(card["numa"], []).append(card)
        nodes, groups = list(by_node.items()), []
        self.bottom += above
        for start in range(0, len(nodes), ACROSS):
            groups += self._beside(nodes[start : start + ACROSS])
            self.bottom += GAP if start + ACROSS < len(nodes) else 0
        return groups

    def _beside(self, nodes: list[tuple[Any, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
        """NUMA nodes side by side, as wide as their GPUs and names need."""
        across = max(1, ACROSS // len(nodes))
        columns = [min(across, len(group)) for _, group in nodes]
        room = WIDE - 2 * EDGE - GAP * (len(nodes) - 1)
        self.card = min(CARD, (room - sum(n + 1 for n in columns) * GAP) / sum(columns))
        wide = [max(n * self.card + (n + 1) * GAP, min(LEAST, room / len(nodes))) for n in columns]
        x = max((WIDE - sum(wide) - GAP * (len(wide) - 1)) / 2, EDGE)
        y, tallest, groups = self.bottom, 0.0, []
        for (node, group), n, w in zip(nodes, columns, wide, strict=True):
            groups.append(self._group(node, group, n, x, y, w))
            tallest = max(tallest, groups[-1]["h"])
            x += w + GAP
        self.bottom = int(y + tallest)
        return groups

    def _group(
        self, node: Any, cards: list[dict[str, Any]], across: int, x: float, y: float, w: float
    ) -> dict[str, Any]:
        rows = -(-len(cards) // across)
        inset = (w - across * self.card - (across + 1) * GAP) / 2
        says = f"NUMA node {node}" if node is not None else self.unnamed
        box = self._box(x, y, w, 30 + rows * (TALL + GAP), "numa", [says])
        box["rows"][0]["y"] = y + box["h"] - 9
        box["cards"], box["deep"], box["gpus"] = [], rows, cards
        for at, card in enumerate(cards):
            left = x + GAP + inset + (at % across) * (self.card + GAP)
            top = y + GAP + (at // across) * (TALL + GAP)
            box["cards"].append(self._card(card, left, top))
        return box

    def _card(self, card: dict[str, Any], x: float, y: float) -> dict[str, Any]:
        says = [f"GPU {card['index']}", card["name"], card["memory"]]
        says.append(card["state"] or (f"capability {card['capability']}" if card["capability"] else ""))
        box = self._box(x, y, self.card, TALL, "lost" if card["state"] else "gpu", says)
        return box

    def _links(self, group: dict[str, Any], bar: dict[str, Any], up: bool) -> None:
        """A line from each GPU of a single row, or one from the whole group."""
        many = group["deep"] > 1
        ends = [group] if many else group["cards"]
        for end, card in zip(ends, group["gpus"], strict=False):
            start = end["y"] if up else group["y"] + group["h"]
            stop = bar["y"] + bar["h"] if up else bar["y"]
            label, kind = _link(card, up)
            if many and label:
                label = f"{len(group['gpus'])} x {label}"
            self._line(end["middle"], start if not up or many else end["y"], end["middle"], stop, label, kind)

    def _line(self, x: float, y: float, to: float, down: float, label: str, kind: str) -> None:
        at = (max(y, down) if kind.startswith("pcie") else min(y, down)) + (
            -14 if kind.startswith("pcie") else 26
        )
        self.lines.append({"x1": x, "y1": y, "x2": to, "y2": down, "label": label, "kind": kind, "y": at})

    def _network(self, nics: list[dict[str, str]], host: dict[str, Any]) -> None:
        if not nics:
            return
        shown = nics[:NICS]
        cells = [[nic["name"], nic["kind"], nic["speed"], nic["state"]] for nic in shown]
        if len(nics) > NICS:
            cells.append([f"and {len(nics) - NICS} more", "see the table", "", ""])
        w = min(170.0, (WIDE - 2 * EDGE - GAP * (len(cells) - 1)) / len(cells))
        x = (WIDE - len(cells) * w - GAP * (len(cells) - 1)) / 2
        y = self.bottom + 26
        for cell in cells:
            box = self._box(x, y, w, 82, "nic", cell)
            self._line(box["middle"], host["y"] + host["h"], box["middle"], y, "", "net")
            x += w + GAP
        self.bottom = int(y + 82)


def _linked(cards: list[dict[str, Any]]) -> bool:
    return any(card["nvlink"] for card in cards)


def _link(card: dict[str, Any], up: bool) -> tuple[str, str]:
    if up:
        links = card["nvlink"]
        return (units.counted(links, "link"), "nvlink") if links else ("", "none")
    now, most = card["pcie"], card["pcie_max"]
    if now and most and now != most:
        return f"PCIe {now} of {most}", "pcie less"
    return (f"PCIe {now}" if now else "", "pcie")


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 1)] + "…"
