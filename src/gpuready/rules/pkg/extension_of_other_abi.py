"""A compiled package was built for another torch.

C++ has no names for functions that survive a change of compiler or of a class. Most wheels of torch up to
2.6 spell strings the old way, newer ones and those of NVIDIA's images the new way (the C++11 ABI); a
flash-attn that was built for the other spelling asks for functions that are not there. Both are read from
the files, which name what they need and what they offer.

The import ends with ``undefined symbol`` and a name such as ``_ZN3c105ErrorC2E…``. The same message comes
where the spelling agrees and torch was upgraded below a package: its minor release counts as well. It is an
error where the contract or the job needs the package, else a warning. Install the build for this torch, or
build it here with ``--no-build-isolation``; after every change of torch anew.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, fits, remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts

CODE = "PKG011"
SEVERITY = "error"
READS = ("torch.abi", "extension.linked", *fits.READS)
OWN = (
    "flash_attn_2_cuda",
    "flash_attn_3",
    "flash_attn_cuda",
    "torchvision",
    "torchaudio",
    "torchtext",
    "libcudnn",
    "rotary_emb.cpython",
    "dropout_layer_norm",
)
"""Extensions that have rules of their own."""
SIGNS = (
    {"says": ": undefined symbol: _Z", "without": OWN},
    {"says": ".so: undefined symbol: THP", "without": OWN},
    {"says": "undefined symbol: aoti_torch", "without": OWN},
    {"says": "undefined symbol: torch_", "without": OWN},
    {"says": "libtorch_cuda_cu.so: cannot open shared object file"},
    {"says": "libtorch_cuda_cpp.so: cannot open shared object file"},
    {"says": "libc10_cuda.so: cannot open shared object file", "without": OWN},
    {"says": "libc10.so: cannot open shared object file", "without": OWN},
    {"says": "libtorch_cuda.so: cannot open shared object file", "without": OWN},
    {"says": "libtorch.so: cannot open shared object file", "without": OWN},
    {"says": "libtorch_python.so: cannot open shared object file", "without": OWN},
    {"says": "libtorch_cpu.so: cannot open shared object file", "without": OWN},
    {
        "says": "'_OpNamespace' '{space}' object has no attribute",
        "in": "exception",
        "without": ("torchvision", "torchaudio"),
    },
    {"says": "No such operator {op}", "in": "exception", "without": ("torchvision::", "torchaudio::")},
    {
        "says": "DLL load failed while importing {module}:",
        "in": "exception",
        "as": "clue",
        "without": ("flash_attn", "bitsandbytes", "torchvision"),
    },
    {"says": "Could not load libtorchcodec", "as": "clue"},
    {"says": 'generic_type: type "{type}" is already registered', "as": "clue"},
)
BROKEN = {
    "job.wants": ("flash-attn",),
    "torch.abi": False,
    "package.flash-attn": "2.7.4.post1",
    "extension.linked": {
        "flash-attn": {
            "file": "/venv/lib/python3.12/site-packages/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so",
            "cudart": "12",
            "torch": True,
            "abi": "cxx11",
            "missing": (),
        }
    },
    **{f"package.{name}": None for name in fits.EXTENSIONS if name != "flash-attn"},
}
HEALTHY = BROKEN | {"torch.abi": True}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    known = fits.linked(facts, contract)
    rows = {name: row for name, row in known.items() if row.get("torch") and row.get("abi")}
    if not rows:
        return None
    grave = any(fits.weight(facts, contract, name) == "error" for name in rows)
    abi = facts.value("torch.abi") if grave else facts.known("torch.abi")
    mine = None if abi is None else "cxx11" if abi else "old"
    found = [name for name, row in rows.items() if mine is not None and row["abi"] != mine]
    if not found:
        return None
    return Finding(
        CODE,
        fits.graver(fits.weight(facts, contract, name) for name in found),
        f"built for the other C++ ABI than this torch: {cards.listed(found)}",
        found=(facts.fact("extension.linked"), facts.fact("torch.abi"), facts.fact("torch.version")),
        needs=tuple(Need(f"package.{n}", f"{mine} ABI", cite=_cite(rows[n])) for n in found),
        so="its import ends with an undefined symbol of torch's",
        fix=(_built(facts, found), Step("or take the ready-made wheel for this torch and this ABI")),
    )


def _cite(row: dict[str, Any]) -> str:
    return f"the symbols that {row.get('file') or 'its file'} asks for"


def _built(facts: Facts, names: list[str]) -> Step:
    words = ("--no-build-isolation", "--no-deps", "--reinstall", *names)
    return remedy.install(facts, f"build {cards.listed(names)} here, with this torch", *words)
