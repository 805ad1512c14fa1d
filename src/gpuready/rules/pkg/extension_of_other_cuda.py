"""A compiled package is linked to another CUDA than torch.

An extension of torch loads the CUDA runtime that it was built with, libcudart.so.12 or .13, and torch
brings the one of its own major alone. Wheels from the package index are built for the CUDA that torch had
there at the time: since torch 2.11 came with CUDA 13, an older xformers or vllm beside it asks for a
library that is nowhere. What it is linked to is read from its file, without loading it.

Where the library is missing it is an error if the contract or the job needs the package, and else a
warning. A package that finds the other CUDA's runtime somewhere loads, with two runtimes in one process: a
warning. torchao goes on in Python alone, and so does xformers, which matters where the job asks for it;
torchvision refuses any other major. bitsandbytes, which brings a library for each CUDA, has a rule of its
own. Install the package's build for torch's CUDA, or a torch of the package's.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, fits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts

CODE = "PKG010"
SEVERITY = "error"
READS = ("torch.cuda", "extension.linked", *fits.READS)
SIGNS = (
    {
        "says": "libcudart.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "bitsandbytes",
            "torchaudio",
            "torchvision",
            "flash_attn_2_cuda",
            "flash_attn_cuda",
            "flash_attn_3_cuda",
        ),
    },
    {
        "says": "libcublas.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "bitsandbytes",
            "flash_attn_2_cuda",
        ),
    },
    {
        "says": "libcublasLt.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "bitsandbytes",
            "flash_attn_2_cuda",
        ),
    },
    {
        "says": "libcusparse.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "bitsandbytes",
        ),
    },
    {
        "says": "libcufft.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "Could not load dynamic library",
        ),
    },
    {
        "says": "libcurand.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "Could not load dynamic library",
        ),
    },
    {
        "says": "libcusolver.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "Could not load dynamic library",
        ),
    },
    {
        "says": "libcupti.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "Could not load dynamic library",
        ),
    },
    {
        "says": "libnvrtc.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "Could not load dynamic library",
        ),
    },
    {
        "says": "libnvToolsExt.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "Could not load dynamic library",
        ),
    },
    {
        "says": "libcusparseLt.so.{major}: cannot open shared object file",
        "without": (
            "dlerror",
            "Could not load dynamic library",
        ),
    },
    {
        "says": "were compiled with different CUDA versions",
        "without": ("torchvision", "TorchAudio", "torchaudio"),
    },
    {
        "says": "were compiled with different CUDA major versions",
        "without": ("torchvision", "TorchAudio", "torchaudio"),
    },
)
BROKEN = {
    "job.wants": ("xformers",),
    "torch.cuda": "13.0",
    "package.xformers": "0.0.33.post2",
    "extension.linked": {
        "xformers": {
            "file": "/venv/lib/python3.12/site-packages/xformers/_C.so",
            "cudart": "12",
            "torch": True,
            "abi": "cxx11",
            "missing": ("libcudart.so.12",),
        }
    },
    **{f"package.{name}": None for name in fits.EXTENSIONS if name != "xformers"},
}
HEALTHY = BROKEN | {"torch.cuda": "12.8"}
OWN_MAJOR = ("libcudart.so.", "libcublas.so.", "libcublasLt.so.", "libnvrtc.so.")
"""Libraries whose number is their CUDA major."""

SETTLED = {"torchvision": "error", "torchao": "warning"}
"""Severities that do not depend on the job: torchvision is imported by many packages, torchao is optional."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    cuda = facts.value("torch.cuda") if "cuda" in contract.platforms else None
    if cuda is None:
        return None
    mine = versions.major(cuda)
    rows = fits.linked(facts, contract)
    majors = {name: _major(row) for name, row in rows.items() if name != "bitsandbytes"}
    found = {name: major for name, major in majors.items() if major is not None and major != mine}
    if not found:
        return None
    return _finding(facts, contract, found, mine)


def _finding(facts: Facts, contract: Contract, found: dict[str, int], mine: int) -> Finding:
    rows = fits.linked(facts, contract)
    named = cards.listed([f"{name} (CUDA {major})" for name, major in found.items()])
    majors = cards.listed([str(major) for major in dict.fromkeys(found.values())])
    return Finding(
        CODE,
        fits.graver(_weight(facts, contract, name, rows[name]) for name in found),
        f"linked to another CUDA than torch's {facts.value('torch.cuda')}: {named}",
        found=(facts.fact("extension.linked"), facts.fact("torch.cuda")),
        needs=tuple(Need(f"package.{n}", f"CUDA {mine}", cite=_cite(rows[n])) for n in found),
        so="its import ends with libcudart: cannot open shared object file, or loads a second CUDA",
        fix=(
            Step(f"install {cards.listed(list(found))} built for CUDA {mine}, or build it here"),
            Step(f"or install a torch built for CUDA {majors}"),
        ),
    )


def _major(row: dict[str, Any]) -> int | None:
    """Return the CUDA major a file links to, by its runtime or by a library it misses."""
    if row.get("cudart"):
        return int(row["cudart"]) if str(row["cudart"]).isdecimal() else None
    missing = [str(name) for name in row.get("missing") or () if str(name).startswith(OWN_MAJOR)]
    numbers = [name.rpartition(".so.")[2].partition(".")[0] for name in missing]
    return next((int(number) for number in numbers if number.isdecimal()), None)


def _weight(facts: Facts, contract: Contract, name: str, row: dict[str, Any]) -> str:
    if name in SETTLED:
        return SETTLED[name]
    return fits.weight(facts, contract, name) if row.get("missing") else "warning"


def _cite(row: dict[str, Any]) -> str:
    return f"the libraries that {row.get('file') or 'its file'} names"
