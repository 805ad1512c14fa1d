"""A compiled package was built for another torch.

## What it checks
The C++ ABI of a compiled package against torch's, read from both files. Most torch wheels up to 2.6 use the
old ABI; newer ones and NVIDIA's images use the C++11 ABI. It is an error if the framework or the job needs the
package, else a warning.

## Why it matters
The import fails with ``undefined symbol`` and a name such as ``_ZN3c105ErrorC2E…``. The same message appears
if the ABI agrees and torch was upgraded after the package was built: the minor release counts too.

## How to fix
Install the build for this torch, or build it here with ``--no-build-isolation``. Repeat after every change of
torch.

## References
- PyTorch 2.6 release notes, C++11 ABI
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fix_steps, torch_compatibility, visible_gpus

CODE = "PKG011"
SEVERITY = "error"
READS = ("torch.abi", "extension.linked", *torch_compatibility.READS)
REQUIRED_FACTS = ("extension.linked",)
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
    **{f"package.{name}": None for name in torch_compatibility.EXTENSIONS if name != "flash-attn"},
}
HEALTHY = BROKEN | {"torch.abi": True}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    known = torch_compatibility.linked_extensions(facts, contract)
    rows = {name: row for name, row in known.items() if row.get("torch") and row.get("abi")}
    if not rows:
        return None
    has_error = any(torch_compatibility.package_severity(facts, contract, name) == "error" for name in rows)
    abi = facts.value("torch.abi") if has_error else facts.value_if_known("torch.abi")
    torch_abi = None if abi is None else "cxx11" if abi else "old"
    mismatched = [name for name, row in rows.items() if torch_abi is not None and row["abi"] != torch_abi]
    if not mismatched:
        return None
    return make_finding(
        f"built for the other C++ ABI than this torch: {visible_gpus.join_names(mismatched)}",
        found=(facts.fact("extension.linked"), facts.fact("torch.abi"), facts.fact("torch.version")),
        needs=tuple(
            Requirement(f"package.{n}", f"{torch_abi} ABI", cite=_symbols_citation(rows[n])) for n in mismatched
        ),
        so="its import fails with an undefined symbol",
        fix=(_rebuild_step(facts, mismatched), FixStep("install the prebuilt wheel for this torch and ABI")),
        severity=torch_compatibility.worst_severity(
            torch_compatibility.package_severity(facts, contract, name) for name in mismatched
        ),
    )


def _symbols_citation(row: dict[str, Any]) -> str:
    return f"the symbols that {row.get('file') or 'its file'} needs"


def _rebuild_step(facts: Facts, names: list[str]) -> FixStep:
    source = [word for name in names for word in ("--no-binary", name)]
    pins = [fix_steps.pin_installed(facts, name) for name in names]
    words = ("--no-build-isolation", "--no-deps", "--no-cache", "--reinstall", *source, *pins)
    return fix_steps.install_step(facts, f"build {visible_gpus.join_names(names)} here, with this torch", *words)
