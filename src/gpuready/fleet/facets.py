"""Facets: the properties by which nodes are compared, each hashed to eight hexadecimal digits.

A facet is an ordered set of facts without what may differ between equal nodes (addresses, serial numbers, the
node's own name, idle clocks), written as canonical JSON and hashed. Unknown facts have the value UNKNOWN, so
that ``drift`` can tell *unknown* from *different*.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any

    from gpuready.model import Fact, Facts

SCHEMA = 1
LIMIT = 512
"""Size limit of a healthy node's answer."""
DETAILS = 240 << 10
"""Size limit of a node's details."""
UNKNOWN = "?"
"""Value of a fact that could not be read."""

FACETS: dict[str, tuple[str, ...]] = {
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
"""In the order of the fingerprints in an answer. Add new facets at the end: older readers stop there."""

FAMILIES = (
    "NCCL_", "GLOO_", "UCX_", "FI_", "NVSHMEM", "NVTE_", "CUDA_", "CUDNN_", "CUBLAS_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_",
    "TRITON_", "OMP_", "MKL_", "KMP_", "HF_", "TRANSFORMERS_", "ACCELERATE_", "DS_", "VLLM_", "SGLANG_", "FLASH_", "XFORMERS_",
    "HSA_", "HIP_", "ROCM_", "HCCL_", "LD_", "PYTHONPATH", "PYTHONHASHSEED", "MALLOC_CONF", "OMPI_MCA_",
)  # fmt: skip
"""Prefixes of variables that should be equal on all nodes; ranks, paths and allocations are not among them."""
OWN = ("_VISIBLE_DEVICES", "_RANK", "_HOSTID", "_NODE_ID", "_PORT", "_ADDR", "_JOB_ID")
SECRET = ("TOKEN", "SECRET", "PASSWORD", "_KEY")
MANY = 65536
"""Process limits above this count as unlimited; the exact value depends on the memory size."""


def values(facet: str, facts: Facts, compiled: Collection[str] = ()) -> dict[str, Any]:
    """Return the facts of one facet as they are compared."""
    return _values(facet, _Seen(facts, compiled))


def _values(facet: str, seen: _Seen) -> dict[str, Any]:
    found: dict[str, Any] = {}
    facts = seen.facts
    for key in FACETS[facet]:
        if key == "package.*":
            found |= seen.kernels if facet == "kernels" else seen.packages
        elif key == "env.*":
            found |= seen.variables
        elif key in facts:
            fact = facts.fact(key)
            found[key] = UNKNOWN if fact.gap else seen.clean(key, fact.value)
    return found


def compared(facet: str, reference: Facts, compiled: Collection[str] = ()) -> dict[str, Any]:
    """Return the same for a recorded reference; facts missing from it (an older recording, or of one machine)
    are UNKNOWN.
    """
    untold = [key for key in FACETS[facet] if not key.endswith("*") and key not in reference]
    return dict.fromkeys(untold, UNKNOWN) | values(facet, reference, compiled)


def prints(facts: Facts, compiled: Collection[str] = ()) -> dict[str, str]:
    """Fingerprint every facet. ``compiled`` packages belong to *kernels* instead of *packages*."""
    seen = _Seen(facts, compiled)
    return {facet: fingerprint(_values(facet, seen)) for facet in FACETS}


def fingerprint(value: object) -> str:
    from hashlib import blake2s

    return blake2s(_canonical(value).encode(), digest_size=4).hexdigest()


def told(
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
    compiled: Collection[str] = (),
) -> dict[str, Any]:
    """Build one node's answer without empty fields: at most MAX_ANSWER_BYTES if there is little to report."""
    whole: dict[str, Any] = {"schema": SCHEMA, "node": node, "run": run, "do": do, "try": attempt}
    whole |= {"at": round(at, 2), "kind": kind(facts), "gpus": facts.known("gpu.count") or 0}
    whole |= {"mem": _mebibytes(facts, "memory.total"), "shm": _mebibytes(facts, "system.shm")}
    whole |= {"print": "".join(prints(facts, compiled).values()), "ids": identities(facts)}
    whole |= {"verdict": verdict, "codes": list(dict.fromkeys(codes))[:40], "figures": dict(figures or {})}
    short = {name: value for name, value in whole.items() if value not in ("", None, [], {})}
    while len(str(short.get("ids", ""))) > 8 and len(_canonical(short)) > LIMIT:
        short["ids"] = _coarser(str(short["ids"]))
    return short


def line(node: str, facts: Facts, verdict: str = "", codes: Iterable[str] = (), **more: Any) -> str:
    return _canonical(told(node, facts, verdict, codes, **more), ordered=False)


def detailed(
    node: str, facts: Facts, facets: Iterable[str], *, run: str = "", compiled: Collection[str] = ()
) -> dict[str, Any]:
    """Return the facts behind the facets; the largest are dropped until the size limit is met."""
    seen = _Seen(facts, compiled)
    rows = {facet: _values(facet, seen) for facet in facets if facet in FACETS}
    whole = {"schema": SCHEMA, "node": node, "run": run, "do": "details", "details": rows}
    while rows and len(_canonical(whole)) > DETAILS:
        rows.pop(max(rows, key=lambda facet: len(_canonical(rows[facet]))))
    return whole


def details(node: str, facts: Facts, facets: Iterable[str], **more: Any) -> str:
    return _canonical(detailed(node, facts, facets, **more), ordered=False)


def kind(facts: Facts) -> str:
    """Return the names of the node's GPUs, ``no GPU``, or an empty string if it has GPUs that do not respond."""
    names = facts.known("gpu.name") or facts.known("accelerator.name")
    if names:
        return "+".join(sorted({str(name) for name in names}))[:40]
    hidden = facts.fact("gpu.count").gap or facts.known("gpu.pci_count")
    return "" if hidden else "no GPU"


def identities(facts: Facts) -> str:
    """Hash each GPU's UUID to eight characters, enough to notice one GPU under two node names."""
    from base64 import urlsafe_b64encode
    from hashlib import blake2s

    uuids = sorted(str(uuid) for uuid in facts.known("gpu.uuid") or () if uuid)
    return "".join(urlsafe_b64encode(blake2s(u.encode(), digest_size=6).digest()).decode() for u in uuids)


def _coarser(ids: str) -> str:
    """Merge identities in pairs, so that nodes with many GPUs stay below the size limit and remain comparable."""
    from base64 import urlsafe_b64encode
    from hashlib import blake2s

    both = (ids[at : at + 16] for at in range(0, len(ids), 16))
    return "".join(urlsafe_b64encode(blake2s(b.encode(), digest_size=6).digest()).decode() for b in both)


def _mebibytes(facts: Facts, key: str) -> int | None:
    size = facts.known(key)
    return size >> 20 if isinstance(size, int) else None


def _canonical(value: object, ordered: bool = True) -> str:
    encoder = _ENCODERS.get(ordered)
    if encoder is None:
        from json import JSONEncoder

        encoder = _ENCODERS[ordered] = JSONEncoder(sort_keys=ordered, separators=(",", ":"), default=str)
    text: str = encoder.encode(value)
    return text


_ENCODERS: dict[bool, Any] = {}


# -- what may differ between equal nodes -----------------------------------------------------------------


class _Seen:
    """The facts of one node with packages and variables separated and its own name masked."""

    def __init__(self, facts: Facts, compiled: Collection[str]):
        self.facts = facts
        own = facts.known("host.name") or facts.host
        self.own = own if isinstance(own, str) and len(own) >= 4 else ""
        rows = [fact for fact in facts if fact.key.startswith(("package.", "env."))]
        self.variables = self._variables([fact for fact in rows if fact.key[0] == "e"])
        self.kernels: dict[str, Any] = {}
        self.packages: dict[str, Any] = {}
        self._packages([fact for fact in rows if fact.key[0] == "p"], compiled)

    def _packages(self, rows: list[Fact], compiled: Collection[str]) -> None:
        if self.facts.fact("python.packages").gap:
            self.kernels = self.packages = {"python.packages": UNKNOWN}
            return
        self.packages = {fact.key: UNKNOWN if fact.gap else fact.value for fact in rows}
        for name in {*compiled, *(self.facts.known("extension.linked") or ())}:
            if (key := f"package.{name}") in self.packages:
                self.kernels[key] = self.packages.pop(key)

    def _variables(self, rows: list[Fact]) -> dict[str, Any]:
        if self.facts.fact("env.names").gap and "env.names" in self.facts:
            return {"env.names": UNKNOWN}
        shared = [fact for fact in rows if _shared(fact.key[4:])]
        return {fact.key: UNKNOWN if fact.gap else self._named(fact.value) for fact in shared}

    def clean(self, key: str, value: Any) -> Any:
        """Remove what may differ between equal nodes."""
        if value is None:
            return None
        clean = _CLEAN.get(key)
        return self._named(clean(value) if clean else value)

    def _named(self, value: Any) -> Any:
        return value.replace(self.own, "{node}") if self.own and isinstance(value, str) else value


def _shared(name: str) -> bool:
    return name.startswith(FAMILIES) and not name.endswith(OWN) and not any(word in name for word in SECRET)


def _interfaces(table: Any) -> Any:
    """Drop addresses and the interfaces that containers create and remove."""
    passing = ("lo", "veth", "docker", "cali", "cni", "flannel", "virbr", "br-", "lxc", "ifb", "dummy", "tap")
    if not isinstance(table, dict):
        return table
    kept = {name: row for name, row in table.items() if not str(name).startswith(passing)}
    return {name: _only(row, ("up", "kind", "mtu", "speed")) for name, row in kept.items()}


def _only(row: Any, keys: Iterable[str]) -> Any:
    return {key: row.get(key) for key in keys} if isinstance(row, dict) else row


def _widths(links: Any) -> Any:
    """Keep only the width of each PCIe link; its generation drops while a GPU is idle."""
    return [str(link).rpartition(" ")[2] for link in links] if isinstance(links, (list, tuple)) else links


_CLEAN: dict[str, Callable[[Any], Any]] = {
    "net.interfaces": _interfaces,
    "net.ib": lambda table: {n: _only(row, ("state", "rate", "link_layer")) for n, row in table.items()},
    "gpu.pcie": _widths,
    "gpu.memory": lambda sizes: [f"{(size >> 28) / 4:g} GiB" for size in sizes],  # drivers reserve a little
    "limit.nproc": lambda count: count if 0 <= count < MANY else -1,
    "extension.linked": lambda table: {
        name: _only(row, ("cudart", "torch", "abi")) for name, row in table.items()
    },
}
