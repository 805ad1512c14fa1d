"""Areas: the properties by which nodes are compared, each hashed to eight hexadecimal digits.

A area is an ordered set of facts without what may differ between equal nodes (addresses, serial numbers, the
node's own name, idle clocks), written as canonical JSON and hashed. Unknown facts have the value UNKNOWN, so
that ``drift`` can tell *unknown* from *different*.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2s
from json import JSONEncoder
from typing import Any

from gpuready.model import Fact, Facts

SCHEMA = 1
MAX_ANSWER_BYTES = 512
"""Size limit of a healthy node's answer."""
MAX_DETAIL_BYTES = 240 << 10
"""Size limit of a node's details."""
UNKNOWN = "?"
"""Value of a fact that could not be read."""

AREAS: dict[str, tuple[str, ...]] = {
    "driver": ("driver.version", "driver.kind", "driver.library", "driver.cuda"),
    "torch": ("torch.version", "torch.build", "torch.cuda", "torch.hip", "torch.abi", "torch.broken"),
    "cuda": ("toolkit.version", "cudnn.version", "nccl.version"),
    "kernels": ("package.*", "extension.linked"),
    "packages": ("package.*",),
    "variables": ("env.*",),
    "kernel": ("os.release", "os.name", "os.version", "os.glibc", "os.arch"),
    "firmware": ("firmware.bios", "firmware.board", "firmware.nics", "gpu.vbios"),
    "gpus": ("gpu.count", "gpu.name", "gpu.memory", "gpu.mig", "gpu.ecc", "accelerator.name"),
    "topology": ("gpu.numa", "gpu.nvlink", "gpu.pcie", "gpu.pcie_max", "fabric.switches", "fabric.manager"),
    "nics": ("net.interfaces", "net.interface", "net.ib", "net.peermem"),
    "mounts": ("mount.table", "disk.kind", "hub.cache", "tmp.noexec"),
    "limits": ("limit.nofile", "limit.memlock", "limit.nproc", "limit.stack", "memory.limit"),
    "clocks": ("gpu.power_limit", "gpu.persistence", "gpu.mode", "cpu.governor"),
    "time": ("clock.zone", "clock.source", "clock.sync"),
    "python": ("python.version", "python.kind"),
}
"""In the order of the fingerprints in an answer. Add new areas at the end: older readers stop there."""

COMPARED_PREFIXES = (
    "NCCL_", "GLOO_", "UCX_", "FI_", "NVSHMEM", "NVTE_", "CUDA_", "CUDNN_", "CUBLAS_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_",
    "TRITON_", "OMP_", "MKL_", "KMP_", "HF_", "TRANSFORMERS_", "ACCELERATE_", "DS_", "VLLM_", "SGLANG_", "FLASH_", "XFORMERS_",
    "HSA_", "HIP_", "ROCM_", "HCCL_", "LD_", "PYTHONPATH", "PYTHONHASHSEED", "MALLOC_CONF", "OMPI_MCA_",
)  # fmt: skip
"""Prefixes of variables that should be equal on all nodes; ranks, paths and allocations are not among them."""
PER_NODE_SUFFIXES = ("_VISIBLE_DEVICES", "_RANK", "_HOSTID", "_NODE_ID", "_PORT", "_ADDR", "_JOB_ID")
SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "_KEY")
UNLIMITED_PROCESSES = 65536
"""Process limits above this count as unlimited; the exact value depends on the memory size."""


def area_values(area: str, facts: Facts, compiled: Collection[str] = ()) -> dict[str, Any]:
    """Return the facts of one area as they are compared."""
    return _collect_area_values(area, _NodeFacts(facts, compiled))


def _collect_area_values(area: str, node_facts: _NodeFacts) -> dict[str, Any]:
    collected: dict[str, Any] = {}
    facts = node_facts.facts
    for key in AREAS[area]:
        if key == "package.*":
            collected |= node_facts.kernels if area == "kernels" else node_facts.packages
        elif key == "env.*":
            collected |= node_facts.variables
        elif key in facts:
            fact = facts.fact(key)
            collected[key] = UNKNOWN if fact.gap else node_facts.clean_value(key, fact.value)
    return collected


def reference_values(area: str, reference: Facts, compiled: Collection[str] = ()) -> dict[str, Any]:
    """Return the same for a recorded reference; facts missing from it (an older recording, or of one machine)
    are UNKNOWN.
    """
    missing_keys = [key for key in AREAS[area] if not key.endswith("*") and key not in reference]
    return dict.fromkeys(missing_keys, UNKNOWN) | area_values(area, reference, compiled)


def area_fingerprints(facts: Facts, compiled: Collection[str] = ()) -> dict[str, str]:
    """Fingerprint every area. ``compiled`` packages belong to *kernels* instead of *packages*."""
    node_facts = _NodeFacts(facts, compiled)
    return {area: hash_value(_collect_area_values(area, node_facts)) for area in AREAS}


def hash_value(value: object) -> str:
    return blake2s(_canonical_json(value).encode(), digest_size=4).hexdigest()


def build_node_answer(
    node: str,
    facts: Facts,
    verdict: str = "",
    codes: Iterable[str] = (),
    *,
    run: str = "",
    do: str = "check",
    attempt: int = 1,
    at: float = 0.0,
    figures: Mapping[str, Any] | None = None,
    judged: str = "",
    compiled: Collection[str] = (),
) -> dict[str, Any]:
    """Build one node's answer without empty fields: at most MAX_ANSWER_BYTES if there is little to report."""
    answer: dict[str, Any] = {"schema": SCHEMA, "node": node, "run": run, "do": do, "try": attempt}
    answer |= {"at": round(at, 2), "kind": classify_node(facts), "gpus": facts.value_if_known("gpu.count") or 0}
    answer |= {"mem": _size_in_mib(facts, "memory.total"), "shm": _size_in_mib(facts, "system.shm")}
    answer |= {"print": "".join(area_fingerprints(facts, compiled).values()), "ids": hash_gpu_uuids(facts)}
    answer |= {
        "judged": judged[:200],
        "verdict": verdict,
        "codes": list(dict.fromkeys(codes))[:40],
        "figures": dict(figures or {}),
    }
    short = {name: value for name, value in answer.items() if value not in ("", None, [], {})}
    while len(str(short.get("ids", ""))) > 8 and len(_canonical_json(short)) > MAX_ANSWER_BYTES:
        short["ids"] = _merge_gpu_ids(str(short["ids"]))
    return short


def format_node_answer(node: str, facts: Facts, verdict: str = "", codes: Iterable[str] = (), **more: Any) -> str:
    return _canonical_json(build_node_answer(node, facts, verdict, codes, **more), ordered=False)


def build_node_details(
    node: str, facts: Facts, areas: Iterable[str], *, run: str = "", compiled: Collection[str] = ()
) -> dict[str, Any]:
    """Return the facts behind the areas; the largest are dropped until the size limit is met."""
    node_facts = _NodeFacts(facts, compiled)
    rows = {area: _collect_area_values(area, node_facts) for area in areas if area in AREAS}
    answer = {"schema": SCHEMA, "node": node, "run": run, "do": "details", "details": rows}
    while rows and len(_canonical_json(answer)) > MAX_DETAIL_BYTES:
        rows.pop(max(rows, key=lambda area: len(_canonical_json(rows[area]))))
    return answer


def format_node_details(node: str, facts: Facts, areas: Iterable[str], **more: Any) -> str:
    return _canonical_json(build_node_details(node, facts, areas, **more), ordered=False)


def classify_node(facts: Facts) -> str:
    """Return the names of the node's GPUs, ``no GPU``, or an empty string if it has GPUs that do not respond."""
    names = facts.value_if_known("gpu.name") or facts.value_if_known("accelerator.name")
    if names:
        return "+".join(sorted({str(name) for name in names}))[:40]
    hidden = facts.fact("gpu.count").gap or facts.value_if_known("gpu.pci_count")
    return "" if hidden else "no GPU"


def hash_gpu_uuids(facts: Facts) -> str:
    """Hash each GPU's UUID to eight characters, enough to notice one GPU under two node names."""
    uuids = sorted(str(uuid) for uuid in facts.value_if_known("gpu.uuid") or () if uuid)
    return "".join(urlsafe_b64encode(blake2s(u.encode(), digest_size=6).digest()).decode() for u in uuids)


def _merge_gpu_ids(ids: str) -> str:
    """Merge identities in pairs, so that nodes with many GPUs stay below the size limit and remain comparable."""
    both = (ids[at : at + 16] for at in range(0, len(ids), 16))
    return "".join(urlsafe_b64encode(blake2s(b.encode(), digest_size=6).digest()).decode() for b in both)


def _size_in_mib(facts: Facts, key: str) -> int | None:
    size = facts.value_if_known(key)
    return size >> 20 if isinstance(size, int) else None


def _canonical_json(value: object, ordered: bool = True) -> str:
    encoder = _ENCODERS.get(ordered)
    if encoder is None:
        encoder = _ENCODERS[ordered] = JSONEncoder(sort_keys=ordered, separators=(",", ":"), default=str)
    text: str = encoder.encode(value)
    return text


_ENCODERS: dict[bool, Any] = {}


# -- what may differ between equal nodes -----------------------------------------------------------------


class _NodeFacts:
    """The facts of one node with packages and variables separated and its own name masked."""

    def __init__(self, facts: Facts, compiled: Collection[str]):
        self.facts = facts
        own = facts.value_if_known("host.name") or facts.host
        self.own_name = own if isinstance(own, str) and len(own) >= 4 else ""
        self.home = str(facts.value_if_known("env.HOME") or "").rstrip("/")
        rows = [fact for fact in facts if fact.key.startswith(("package.", "env."))]
        self.variables = self._comparable_variables([fact for fact in rows if fact.key[0] == "e"])
        self.kernels: dict[str, Any] = {}
        self.packages: dict[str, Any] = {}
        self._split_packages([fact for fact in rows if fact.key[0] == "p"], compiled)

    def _split_packages(self, rows: list[Fact], compiled: Collection[str]) -> None:
        if self.facts.fact("python.packages").gap:
            self.kernels = self.packages = {"python.packages": UNKNOWN}
            return
        self.packages = {fact.key: UNKNOWN if fact.gap else fact.value for fact in rows}
        for name in {*compiled, *(self.facts.value_if_known("extension.linked") or ())}:
            if (key := f"package.{name}") in self.packages:
                self.kernels[key] = self.packages.pop(key)

    def _comparable_variables(self, rows: list[Fact]) -> dict[str, Any]:
        if self.facts.fact("env.names").gap and "env.names" in self.facts:
            return {"env.names": UNKNOWN}
        shared = [fact for fact in rows if _is_compared_variable(fact.key[4:])]
        return {fact.key: UNKNOWN if fact.gap else self._mask_own_name(fact.value) for fact in shared}

    def clean_value(self, key: str, value: Any) -> Any:
        """Remove what may differ between equal nodes."""
        if value is None:
            return None
        cleaner = _CLEANERS.get(key)
        return self._mask_own_name(cleaner(value) if cleaner else value)

    def _mask_own_name(self, value: Any) -> Any:
        """Replace the node's name, as a word: gpu1 is no part of gpu10; and the user's home, which may differ."""
        if isinstance(value, str) and self.home and self.home in value:
            value = re.sub(rf"(?<![\w/.-]){re.escape(self.home)}(?=[/:]|$)", "~", value)
        if not self.own_name or not isinstance(value, str) or self.own_name not in value:
            return value
        return re.sub(rf"(?<![A-Za-z0-9]){re.escape(self.own_name)}(?![A-Za-z0-9])", "{node}", value)


def _is_compared_variable(name: str) -> bool:
    return (
        name.startswith(COMPARED_PREFIXES)
        and not name.endswith(PER_NODE_SUFFIXES)
        and not any(word in name for word in SECRET_WORDS)
    )


def _clean_interfaces(table: Any) -> Any:
    """Drop addresses and the interfaces that containers create and remove."""
    transient_prefixes = ("lo", "veth", "docker", "cali", "cni", "flannel", "virbr", "br-", "lxc", "ifb", "dummy", "tap")  # fmt: skip
    if not isinstance(table, dict):
        return table
    lasting = {name: row for name, row in table.items() if not str(name).startswith(transient_prefixes)}
    return {name: _select_keys(row, ("up", "kind", "mtu", "speed")) for name, row in lasting.items()}


def _select_keys(row: Any, keys: Iterable[str]) -> Any:
    return {key: row.get(key) for key in keys} if isinstance(row, dict) else row


_CLEANERS: dict[str, Callable[[Any], Any]] = {
    "net.interfaces": _clean_interfaces,
    "net.ib": lambda table: {n: _select_keys(row, ("state", "rate", "link_layer")) for n, row in table.items()},
    # of PCIe links only the width: the generation drops while a GPU is idle
    "gpu.pcie": lambda links: (
        [str(one).rpartition(" ")[2] for one in links] if isinstance(links, (list, tuple)) else links
    ),
    "gpu.memory": lambda sizes: [f"{(size >> 28) / 4:g} GiB" for size in sizes],  # drivers reserve a little
    "limit.nproc": lambda count: count if 0 <= count < UNLIMITED_PROCESSES else -1,
    "extension.linked": lambda table: {
        name: _select_keys(row, ("cudart", "torch", "abi")) for name, row in table.items()
    },
}
