"""The lock: a plan as JSON with everything needed to install it again and no explanations.

Indexes are stored by name without their URLs, so a lock can be shared and used behind a mirror.
"""

from __future__ import annotations

from gpuready.model import SCHEMA

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.planned import Plan

LEFT_OUT = ("because", "fell", "conflicts", "opens", "notes", "indexes", "machine", "host")


def document(plan: Plan) -> str:
    """The same plan gives the same bytes."""
    import json

    kept = {key: value for key, value in plan.to_json().items() if key not in LEFT_OUT}
    kept["lock"] = sorted(kept["lock"], key=lambda one: (one["name"], one["version"]))
    kept["packages"] = dict(sorted(kept["packages"].items()))
    return json.dumps({"schema": SCHEMA, "kind": "lock"} | kept, indent=1, ensure_ascii=True) + "\n"
