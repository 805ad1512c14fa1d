"""The build of this container file stops at a command that installs packages.

## What it checks
Whether each ``RUN pip install`` and ``RUN uv pip install`` has a Python that it may install into. It is an error
where pip would install into the Python of the distribution and the distribution forbids it (PEP 668: Debian from
12 on, Ubuntu from 23.04 on, Alpine from 3.19 on). Nothing is reported where ``--break-system-packages`` or its variable is set, after a command that was not looked
at, or on a base image that the catalogue does not know.

## Why it matters
The command ends with ``error: externally-managed-environment``, and so does the build of the image.

## How to fix
Make a virtual environment before the first install and put it first on PATH: ``RUN python3 -m venv /opt/venv`` and
``ENV PATH=/opt/venv/bin:$PATH``. In an image that runs one program, ``--break-system-packages`` is the shorter way.

## References
- PEP 668: marking Python base environments as externally managed
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding

CODE = "PKG045"
SEVERITY = "error"
READS = ("container.refused",)
REQUIRED_FACTS = ("container.refused",)
BROKEN = {"container.refused": ({"line": 3, "why": "pip refuses to install into this Python (PEP 668)"},)}
HEALTHY = {"container.refused": None}
CITE = "PEP 668: marking Python base environments as externally managed"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "container.refused" not in facts:
        return None
    rows = facts.value("container.refused")
    if not rows:
        return None
    more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
    return make_finding(
        f"the build stops at line {rows[0]['line']}{more}: {rows[0]['why']}",
        found=(facts.fact("container.refused"),),
        needs=(Requirement("container.refused", "absent", cite=CITE),),
        so="the command ends with an error, and no image is built",
        fix=(
            FixStep("before it, add RUN python3 -m venv /opt/venv and ENV PATH=/opt/venv/bin:$PATH"),
            FixStep("add --break-system-packages to pip, or --system to uv, where the image runs one program only"),
        ),
    )
