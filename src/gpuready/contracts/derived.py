"""A contract out of nothing but an installed distribution's own metadata.

Any package can be asked about. One without a contract is judged by what it says of itself: its pins, its
Python, and whether it stands on torch. Of gates on GPUs, of jobs and of variables its metadata knows nothing.
"""

from __future__ import annotations

from gpuready.contracts.pins import merged
from gpuready.model import Capability, Contract

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAYS = "no contract of its own: judged by the pins of its metadata alone"


def derived(
    name: str,
    version: str,
    requires_dist: Sequence[str],
    requires_python: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Contract:
    """The contract of a distribution, by its metadata; markers are read as in ``pins.merged``."""
    bare = Contract(name, version, distribution=name, title=name, origin=f"METADATA of {name} {version}")
    pinned = merged(bare, version, requires_dist, requires_python, environment)
    if not pinned.wants("package.torch"):
        return pinned.but(says=SAYS, platforms=("cpu",))
    # What stands on torch is ready once torch has been seen to work on the GPU.
    works = Capability("cuda", "required", cite=f"{bare.origin} requires torch")
    return pinned.but(says=SAYS, platforms=("cuda",), capabilities=(works,))
