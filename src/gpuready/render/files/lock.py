"""The lock: a plan as JSON with everything needed to install it again and no explanations.

Indexes are stored by name without their URLs, so a lock can be shared and used behind a mirror.
"""

import json

from gpuready.model import SCHEMA
from gpuready.model.plan import Plan

EXCLUDED_FIELDS = ("because", "fell", "conflicts", "opens", "notes", "indexes", "machine", "host")


def render(plan: Plan) -> str:
    """The same plan gives the same bytes."""
    fields = {key: value for key, value in plan.to_json().items() if key not in EXCLUDED_FIELDS}
    fields["lock"] = sorted(fields["lock"], key=lambda one: (one["name"], one["version"]))
    fields["packages"] = dict(sorted(fields["packages"].items()))
    return json.dumps({"schema": SCHEMA, "kind": "lock"} | fields, indent=1, ensure_ascii=True) + "\n"
