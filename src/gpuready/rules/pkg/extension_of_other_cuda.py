"""A compiled package is linked to another CUDA than torch.

## What it checks
The CUDA runtime that a compiled package needs (libcudart.so.12 or .13), read from its file without loading
it, against torch's CUDA major release. If the library is missing, it is an error if the framework or the job
needs the package, else a warning. If the other runtime is found, it is a warning. torchao and xformers
continue without their kernels; torchvision refuses another major release. torchaudio compares the whole CUDA
version that it was built for, read from its version.py. bitsandbytes is PKG014.

## Why it matters
The import fails with ``libcudart: cannot open shared object file``, or the process loads two CUDA runtimes.
Wheels are built for the CUDA that torch had at the time: since torch 2.11 uses CUDA 13, an older xformers or
vllm needs a library that is not there. torchaudio refuses: ``PyTorch and TorchAudio were compiled with different
CUDA versions``.

## How to fix
Install the package's build for torch's CUDA, or a torch for the package's CUDA.

## References
- ELF specification, dynamic section (DT_NEEDED)
- PyTorch release notes
- torchaudio 2.11 torchaudio/_extension/utils.py, _check_cuda_version
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import torch_compatibility, visible_gpus

CODE = "PKG010"
SEVERITY = "error"
READS = ("torch.cuda", "extension.linked", *torch_compatibility.READS)
REQUIRED_FACTS = ("extension.linked",)
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
    **{f"package.{name}": None for name in torch_compatibility.EXTENSIONS if name != "xformers"},
}
HEALTHY = BROKEN | {"torch.cuda": "12.8"}
CUDA_NUMBERED_LIBRARIES = ("libcudart.so.", "libcublas.so.", "libcublasLt.so.", "libnvrtc.so.")
"""Libraries whose number is their CUDA major."""

FIXED_SEVERITY = {"torchvision": "error", "torchao": "warning"}
"""Severities that do not depend on the job: torchvision is imported by many packages, torchao is optional."""

EXACT_CUDA = ("torchaudio",)
"""Packages that refuse to be imported beside a torch of another minor release of CUDA."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    cuda = facts.value("torch.cuda") if "cuda" in contract.platforms else None
    if cuda is None:
        return None
    rows = torch_compatibility.linked_extensions(facts, contract)
    others = {name: _other_cuda(name, row, cuda) for name, row in rows.items() if name != "bitsandbytes"}
    mismatched = {name: other for name, other in others.items() if other}
    return _other_cuda_finding(facts, contract, mismatched, cuda) if mismatched else None


def _other_cuda(name: str, row: dict[str, Any], cuda: str) -> str:
    """Return the CUDA that a package is built for, where torch's does not do; empty where it does."""
    if name in EXACT_CUDA and row.get("cuda"):
        return str(row["cuda"]) if versions.major_minor(row["cuda"]) != versions.major_minor(cuda) else ""
    major = _cuda_major_of_file(row)
    return str(major) if major is not None and major != versions.major_version(cuda) else ""


def _other_cuda_finding(facts: Facts, contract: Contract, mismatched: dict[str, str], cuda: str) -> Finding:
    rows = torch_compatibility.linked_extensions(facts, contract)
    named = visible_gpus.join_names([f"{name} (CUDA {other})" for name, other in mismatched.items()])
    others = visible_gpus.join_names(list(dict.fromkeys(mismatched.values())))
    wanted = {name: cuda if name in EXACT_CUDA else str(versions.major_version(cuda)) for name in mismatched}
    return make_finding(
        f"linked to another CUDA than torch's {cuda}: {named}",
        found=(facts.fact("extension.linked"), facts.fact("torch.cuda")),
        needs=tuple(
            Requirement(f"package.{n}", f"CUDA {want}", cite=_libraries_citation(rows[n])) for n, want in wanted.items()
        ),
        so="its import fails with libcudart: cannot open shared object file, or loads a second CUDA"
        if mismatched.keys() - set(EXACT_CUDA)
        else "its import fails: PyTorch and TorchAudio were compiled with different CUDA versions",
        fix=(
            FixStep(
                f"install {visible_gpus.join_names(list(mismatched))} built for CUDA {max(wanted.values(), key=len)}, or build it here"
            ),
            FixStep(f"install a torch built for CUDA {others}"),
        ),
        severity=torch_compatibility.worst_severity(
            _extension_severity(facts, contract, name, rows[name]) for name in mismatched
        ),
    )


def _cuda_major_of_file(row: dict[str, Any]) -> int | None:
    """Return the CUDA major a file links to, by its runtime or by a library it misses."""
    if row.get("cudart"):
        return int(row["cudart"]) if str(row["cudart"]).isdecimal() else None
    missing = [str(name) for name in row.get("missing") or () if str(name).startswith(CUDA_NUMBERED_LIBRARIES)]
    numbers = [name.rpartition(".so.")[2].partition(".")[0] for name in missing]
    return next((int(number) for number in numbers if number.isdecimal()), None)


def _extension_severity(facts: Facts, contract: Contract, name: str, row: dict[str, Any]) -> str:
    if name in FIXED_SEVERITY:
        return FIXED_SEVERITY[name]
    fails = row.get("missing") or name in EXACT_CUDA
    return torch_compatibility.package_severity(facts, contract, name) if fails else "warning"


def _libraries_citation(row: dict[str, Any]) -> str:
    return f"the libraries that {row.get('file') or 'its file'} names"
