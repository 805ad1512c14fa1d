"""Whether compiled packages match the installed torch, and how much that matters to the job."""

from collections.abc import Iterable
from typing import Any

from gpuready.catalog import packages as catalogue
from gpuready.catalog import torch as torches
from gpuready.contracts import when as conditions
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import fix_steps, job_request

READS = ("torch.version", "python.requires", "python.kind", *fix_steps.READS)

EXTENSIONS = (
    "apex", "auto-gptq", "causal-conv1d", "fbgemm-gpu-genai", "flash-attn", "flash-attn-3", "mamba-ssm",
    "sgl-kernel", "sglang", "torchao", "torchaudio", "torchvision", "transformer-engine", "vllm", "xformers",
)  # fmt: skip
"""Packages with code linked to torch; if none is installed, there is nothing to check."""

PACKAGE_WANTS = {"flash-attn": ("ring-attention",), "mamba-ssm": ("mamba",), "causal-conv1d": ("mamba",)}
"""Wants of a job that imply a package, besides its own name."""


OPTIONAL_KERNELS = ("xformers",)
"""Packages that continue with a warning if their compiled part fails: a contract may require them unused."""


def package_severity(facts: Facts, contract: Contract, package: str) -> str:
    """Return error if the contract requires a package here, or the job or a file asks for it, else warning."""
    requested = job_request.job_asks_for(facts, package, *PACKAGE_WANTS.get(package, ()))
    if requested or package in OPTIONAL_KERNELS:
        return "error" if requested else "warning"
    fact = facts.fact(f"package.{package}")
    if fact.value and fact.how == "stated":
        return "error"
    required = [n for n in contract.requirements_for(f"package.{package}") if n.level == "required"]
    return "error" if any(conditions.certainly_applies(need.when, facts) for need in required) else "warning"


def linked_extensions(facts: Facts, contract: Contract) -> dict[str, dict[str, Any]]:
    """Return what the installed compiled packages link to, by distribution.

    Unknown is raised only if a package is installed for which this would be an error: a warning that cannot be
    verified must not leave the verdict undecided.
    """
    installed = [name for name in EXTENSIONS if (fact := facts.fact(f"package.{name}")).gap or fact.value]
    has_error = any(package_severity(facts, contract, name) == "error" for name in installed)
    extensions = (facts.value if has_error else facts.value_if_known)("extension.linked") if installed else None
    return dict(extensions or {})


def worst_severity(severities: Iterable[str]) -> str:
    return "error" if "error" in set(severities) else "warning"


def installed_torch_release(facts: Facts) -> str | None:
    """Return the installed torch release; None for no torch, a nightly or a custom build."""
    text = str(facts.value("torch.version") or "")
    version, variant = torches.parse_torch_version(text)
    own = "+" in text and variant is None
    return None if own or versions.parse_plain_release(version) is None else version


def pinned_torch(facts: Facts, package: str) -> tuple[str, str] | None:
    """Return the torch specifier that an installed package is built for, and the source.

    None if it is not installed, was built locally (a local part in its version), or the pin is unknown.
    """
    version = facts.value(f"package.{package}")
    if version is None or "+" in str(version):
        return None
    own = (facts.value_if_known("python.requires") or {}).get(package)
    if own is not None:
        # Its metadata takes precedence: a build against another torch has the pin removed.
        spec = _torch_pin_in_metadata(own.get("requires_dist") or ())
        return (spec, f"{package} {version} METADATA") if spec else None
    row = catalogue.find_package_release(package, str(version))
    spec = catalogue.required_torch(package, str(version))
    return (spec, str(row["source"])) if row and spec else None


def _torch_pin_in_metadata(lines: Iterable[str]) -> str | None:
    """Return the exact, unconditional torch pin in the lines of a package's metadata."""
    for line in lines:
        name, equals, version = line.replace(" ", "").replace("(", "").replace(")", "").partition("==")
        if name == "torch" and equals and ";" not in version and versions.parse_plain_release(version) is not None:
            return f"=={version}"
    return None


def unmet_torch_pin(facts: Facts, package: str) -> tuple[str, str] | None:
    """Return the pin of an installed package that the installed torch violates, and the source."""
    pin = pinned_torch(facts, package)
    torch = installed_torch_release(facts) if pin else None
    return None if pin is None or torch is None or versions.satisfies_specifier(torch, pin[0]) else pin


def judge_torch_pin(facts: Facts, contract: Contract, package: str, so: str) -> Finding | None:
    """Return the finding of a package that is made for another torch, with the releases that match."""
    pin = unmet_torch_pin(facts, package) if "cuda" in contract.platforms else None
    if pin is None:
        return None
    wanted, cite = pin
    return make_finding(
        f"{package} {facts.value(f'package.{package}')} is made for torch {wanted.removeprefix('==')}",
        found=(facts.fact(f"package.{package}"), facts.fact("torch.version")),
        needs=(Requirement("package.torch", wanted, cite=cite),),
        so=so,
        fix=tuple(matching_release_steps(facts, contract, package, wanted)),
        severity=soften_for_conda(facts, package_severity(facts, contract, package)),
    )


def soften_for_conda(facts: Facts, severity: str) -> str:
    """Return at most a warning in conda, whose packages are rebuilt for each torch under the same version."""
    return "warning" if severity == "error" and facts.value_if_known("python.kind") == "conda" else severity


def matching_release_steps(facts: Facts, contract: Contract, package: str, pin: str) -> list[FixStep]:
    """Return steps that install a release built for this torch, or the torch this release is built for."""
    torch = installed_torch_release(facts) or "0"
    releases = [row["version"] for row in (catalogue.find_package(package) or {}).get("version", ())]
    fitting = [v for v in releases if versions.satisfies_specifier(torch, catalogue.required_torch(package, v) or "<0")]
    steps = [
        fix_steps.install_step(facts, f"install {package} {v}, which is for torch {torch}", f"{package}=={v}")
        for v in fitting[-1:]
    ]
    narrower = contract.replace(needs=(*contract.needs, Requirement("package.torch", pin)))
    torch_step = fix_steps.replace_torch_step(facts, narrower)
    return [*steps, torch_step] if torch_step else steps
