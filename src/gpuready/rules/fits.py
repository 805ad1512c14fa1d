"""Whether compiled packages match the installed torch, and how much that matters to the job."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import packages as catalogue
from gpuready.catalog import torch as torches
from gpuready.model import Need
from gpuready.rules import job, needs, remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuready.model import Contract, Facts, Step

READS = ("torch.version", "python.requires", "python.kind", *remedy.READS)

EXTENSIONS = (
    "apex", "auto-gptq", "causal-conv1d", "fbgemm-gpu-genai", "flash-attn", "flash-attn-3", "mamba-ssm",
    "sgl-kernel", "sglang", "torchao", "torchaudio", "torchvision", "transformer-engine", "vllm", "xformers",
)  # fmt: skip
"""Packages with code linked to torch; if none is installed, there is nothing to check."""

WORDS = {"flash-attn": ("ring-attention",), "mamba-ssm": ("mamba",), "causal-conv1d": ("mamba",)}
"""Wants of a job that imply a package, besides its own name."""


IMPORT_ALONE = ("xformers",)
"""Packages that continue with a warning if their compiled part fails: a contract may require them unused."""


def weight(facts: Facts, contract: Contract, package: str) -> str:
    """Return error if the contract requires a package here or the job asks for it, else warning."""
    asked = job.asks(facts, package, *WORDS.get(package, ()))
    if asked or package in IMPORT_ALONE:
        return "error" if asked else "warning"
    wanted = [n for n in contract.wants(f"package.{package}") if n.level == "required"]
    return "error" if any(needs.surely(facts, need) for need in wanted) else "warning"


def linked(facts: Facts, contract: Contract) -> dict[str, dict[str, Any]]:
    """Return what the installed compiled packages link to, by distribution.

    Unknown is raised only if a package is installed for which this would be an error: a warning that cannot be
    verified must not leave the verdict undecided.
    """
    there = [name for name in EXTENSIONS if (fact := facts.fact(f"package.{name}")).gap or fact.value]
    grave = any(weight(facts, contract, name) == "error" for name in there)
    found = (facts.value if grave else facts.known)("extension.linked") if there else None
    return dict(found or {})


def graver(severities: Iterable[str]) -> str:
    return "error" if "error" in set(severities) else "warning"


def release(facts: Facts) -> str | None:
    """Return the installed torch release; None for no torch, a nightly or a custom build."""
    text = str(facts.value("torch.version") or "")
    version, variant = torches.parse(text)
    own = "+" in text and variant is None
    return None if own or versions.plain(version) is None else version


def pinned(facts: Facts, package: str) -> tuple[str, str] | None:
    """Return the torch specifier that an installed package is built for, and the source.

    None if it is not installed, was built locally (a local part in its version), or the pin is unknown.
    """
    version = facts.value(f"package.{package}")
    if version is None or "+" in str(version):
        return None
    own = (facts.known("python.requires") or {}).get(package)
    if own is not None:
        # Its metadata takes precedence: a build against another torch has the pin removed.
        spec = _in_metadata(own.get("requires_dist") or ())
        return (spec, f"{package} {version} METADATA") if spec else None
    row = catalogue.release(package, str(version))
    spec = catalogue.torch_for(package, str(version))
    return (spec, str(row["source"])) if row and spec else None


def _in_metadata(lines: Iterable[str]) -> str | None:
    """Return the exact, unconditional torch pin in the lines of a package's metadata."""
    for line in lines:
        name, equals, version = line.replace(" ", "").replace("(", "").replace(")", "").partition("==")
        if name == "torch" and equals and ";" not in version and versions.plain(version) is not None:
            return f"=={version}"
    return None


def misfit(facts: Facts, package: str) -> tuple[str, str] | None:
    """Return the pin of an installed package that the installed torch violates, and the source."""
    pin = pinned(facts, package)
    torch = release(facts) if pin else None
    return None if pin is None or torch is None or versions.satisfies(torch, pin[0]) else pin


def softened(facts: Facts, severity: str) -> str:
    """Return at most a warning in conda, whose packages are rebuilt for each torch under the same version."""
    return "warning" if severity == "error" and facts.known("python.kind") == "conda" else severity


def another(facts: Facts, contract: Contract, package: str, pin: str) -> list[Step]:
    """Return steps that install a release built for this torch, or the torch this release is built for."""
    torch = release(facts) or "0"
    every = [row["version"] for row in (catalogue.package(package) or {}).get("version", ())]
    fitting = [v for v in every if versions.satisfies(torch, catalogue.torch_for(package, v) or "<0")]
    steps = [
        remedy.install(facts, f"install {package} {v}, made for torch {torch}", f"{package}=={v}")
        for v in fitting[-1:]
    ]
    narrower = contract.but(needs=(*contract.needs, Need("package.torch", pin)))
    other = remedy.another_torch(facts, narrower)
    return [*steps, other] if other else steps
