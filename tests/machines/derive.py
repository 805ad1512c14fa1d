"""Machines derived from the real one in h200.json: the same facts but for what each name says.

    python tests/machines/derive.py

The real recording was made with `gpuready probe -o h200.json` on a machine with one H200.
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
H100 = "NVIDIA H100 80GB HBM3"


def derived() -> dict[str, dict[str, object]]:
    """What differs from the H200 machine, by fact key."""
    return {
        "old-driver": {
            "driver.version": "550.144.03",
            "driver.library": "550.144.03",
            "driver.cuda": "12.4",
            **gpus(8, H100, "9.0", 85520809984),
            "system.shm": 67108864,
            "system.shm_free": 67108864,
        },
        "no-gpu": {
            **gpus(0, "", "", 0),
            "gpu.pci_count": 0,
            "gpu.nodes": [],
            "platform.name": "cpu",
            "driver.version": None,
            "driver.library": None,
            "driver.cuda": None,
            "driver.kind": None,
            "libcuda.path": None,
            "os.container": None,
        },
    }


def gpus(count: int, name: str, capability: str, memory: int) -> dict[str, object]:
    each = {
        "gpu.name": name,
        "gpu.capability": capability,
        "gpu.memory": memory,
        "gpu.free": memory - 2**29,
        "gpu.vendor": "nvidia",
        "gpu.mode": "default",
        "gpu.persistence": "on",
        "gpu.mig": "off",
        "gpu.ecc": "on",
        "gpu.ecc_errors": 0,
        "gpu.pcie": "5 x16",
        "gpu.pcie_max": "5 x16",
        "gpu.power_limit": 700,
        "gpu.power_limit_default": 700,
        "gpu.numa": 0,
        "gpu.throttle": "none",
    }
    facts: dict[str, object] = {key: [value] * count for key, value in each.items()}
    facts |= {"gpu.uuid": [f"GPU-00000000-0000-0000-0000-00000000000{i}" for i in range(count)]}
    facts |= {"gpu.pci": [f"0000:{i:02x}:00.0" for i in range(count)], "gpu.nvlink": [18] * count}
    return facts | {"gpu.count": count, "gpu.visible": list(range(count)), "gpu.processes": []}


def machine(name: str, differs: dict[str, object]) -> str:
    real = json.loads((HERE / "h200.json").read_text())
    facts = {fact["key"]: fact for fact in real["facts"]}
    for key, value in differs.items():
        if key in facts:
            facts[key] = facts[key] | {"value": value, "gap": ""}
    made = {"schema": real["schema"], "kind": "recording", "gpuready": real["gpuready"], "host": name}
    return json.dumps(made | {"facts": list(facts.values())}, indent=1) + "\n"


def main() -> None:
    for name, differs in derived().items():
        (HERE / f"{name}.json").write_text(machine(name, differs))


if __name__ == "__main__":
    main()
