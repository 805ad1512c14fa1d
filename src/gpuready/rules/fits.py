"""Whether compiled packages fit the torch beside them, and how much that matters to this job."""

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
"""Packages with code that is linked to torch; where none is installed, there is nothing to look at."""

WORDS = {"flash-attn": ("ring-attention",), "mamba-ssm": ("mamba",), "causal-conv1d": ("mamba",)}
"""What a job asks for besides a package's own name."""


IMPORT_ALONE = ("xformers",)
"""Packages that go on without their compiled part, with a warning: whoever requires them need not use it."""


def weight(facts: Facts, contract: Contract, package: str) -> str:
    """An error where the contract requires a package here or the job asks for it, else a warning."""
    asked = job.asks(facts, package, *WORDS.get(package, ()))
    if asked or package in IMPORT_ALONE:
        return "error" if asked else "warning"
    wanted = [n for n in contract.wants(f"package.{package}") if n.level == "required"]
    return "error" if any(needs.surely(facts, need) for need in wanted) else "warning"


def linked(facts: Facts, contract: Contract) -> dict[str, dict[str, Any]]:
    """What the compiled packages here are linked to, by distribution.

    Unknown only where one is here that would be an error: a warning that cannot be seen holds nothing back.
    """
    there = [name for name in EXTENSIONS if (fact := facts.fact(f"package.{name}")).gap or fact.value]
    grave = any(weight(facts, contract, name) == "error" for name in there)
    found = (facts.value if grave else facts.known)("extension.linked") if there else None
    return dict(found or {})


def graver(severities: Iterable[str]) -> str:
    return "error" if "error" in set(severities) else "warning"


def release(facts: Facts) -> str | None:
    """The release of torch that is installed; None for none, a nightly, or a build of one's own."""
    text = str(facts.value("torch.version") or "")
    version, variant = torches.parse(text)
    own = "+" in text and variant is None
    return None if own or versions.plain(version) is None else version


def pinned(facts: Facts, package: str) -> tuple[str, str] | None:
    """The torch that an installed package is made for, as a specifier, and who says so.

    None where it is not installed, was built here (a local part in its version), or nobody says.
    """
    version = facts.value(f"package.{package}")
    if version is None or "+" in str(version):
        return None
    own = (facts.known("python.requires") or {}).get(package)
    if own is not None:
        # Its own metadata knows best: who builds against another torch takes the pin out.
        spec = _in_metadata(own.get("requires_dist") or ())
        return (spec, f"{package} {version} METADATA") if spec else None
    row = catalogue.release(package, str(version))
    spec = catalogue.torch_for(package, str(version))
    return (spec, str(row["source"])) if row and spec else None


def _in_metadata(lines: Iterable[str]) -> str | None:
    """The exact pin on torch in the lines of a package's metadata, where it holds everywhere."""
    for line in lines:
        name, equals, version = line.replace(" ", "").replace("(", "").replace(")", "").partition("==")
        if name == "torch" and equals and ";" not in version and versions.plain(version) is not None:
            return f"=={version}"
    return None


def misfit(facts: Facts, package: str) -> tuple[str, str] | None:
    """The pin of an installed package that the installed torch is outside of, and who says so."""
    pin = pinned(facts, package)
    torch = release(facts) if pin else None
    return None if pin is None or torch is None or versions.satisfies(torch, pin[0]) else pin


def softened(facts: Facts, severity: str) -> str:
    """At most a warning in conda, whose packages are built anew for each torch under the same version."""
    return "warning" if severity == "error" and facts.known("python.kind") == "conda" else severity


def another(facts: Facts, contract: Contract, package: str, pin: str) -> list[Step]:
    """The release of a package that is made for this torch, and the torch that this release is made for."""
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
