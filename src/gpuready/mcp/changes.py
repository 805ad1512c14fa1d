"""Tools that change this machine, in two steps: plan (returns an id), then apply (takes the id).

Offered only with ``--allow-changes``.
"""

from __future__ import annotations

from gpuready.mcp import schema
from gpuready.mcp.tools import _FRAMEWORK, _WANTS, Tool
from gpuready.workflow.agreeing import LASTS, Ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.planned import Installed
    from gpuready.workflow.fencing import Yard

PLAN, APPLY = "install_plan", "install_apply"
_ID = "The id that install_plan returned: good once, on this host, for exactly what that plan showed."


class Changes:
    """The plan and apply tools, and the ledger of pending plans between them."""

    def __init__(self, ledger: Ledger | None = None):
        self.ledger = ledger or Ledger()

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                PLAN,
                "What an install would do",
                "Plan the install of a framework into an environment: which packages, where, how much room. Changes nothing, and "
                f"returns a plan_id for install_apply, good for {LASTS:.0f} s. Show the plan to the person before applying it.",
                schema.whole(
                    {
                        "framework": schema.text(_FRAMEWORK, 120),
                        "environment": schema.text(
                            "The folder of the environment, inside the allowed folders."
                        ),
                        "lock": schema.text("Install what this lock says, in place of a new choice."),
                        "wants": _WANTS,
                        "find_links": schema.texts("Folders of wheels to take packages from as well.", 8),
                        "offline": schema.switch("Ask no index."),
                    },
                    "environment",
                ),
                self.plan,
                outside=True,
            ),
            Tool(
                APPLY,
                "Install what was planned",
                "Install exactly what install_plan showed. The person is asked first, by the client where it can ask. The old "
                "environment or the new one stands at every moment, never half; `gpuready install --rollback` goes back.",
                schema.whole(
                    {
                        "plan_id": schema.text(_ID, 120),
                        "agreed": schema.switch(
                            "The person has seen the plan and said yes. Only where the client cannot ask them itself."
                        ),
                    },
                    "plan_id",
                ),
                self.apply,
                reads_only=False,
                outside=True,
            ),
        )

    def plan(self, yard: Yard, given: Mapping[str, Any]) -> list[str]:
        """Return the JSON of ``gpuready install --dry-run`` and the plan id."""
        import json

        from gpuready.render import answers
        from gpuready.workflow.installing import Order

        order = Order(
            given.get("framework", ""),
            yard.folder(given["environment"]),
            python=yard.python,
            lock=yard.file(given["lock"]) if "lock" in given else None,
            wants=",".join(given["wants"]) if "wants" in given else None,
            find_links=[yard.folder(one) for one in given.get("find_links", ())],
            offline=given.get("offline", False),
        )
        name, dry = self.ledger.promise(order)
        return [answers.install(dry), json.dumps({"plan_id": name, "seconds": self.ledger.lasts})]

    def question(self, given: Mapping[str, Any]) -> str:
        """Return the question for the person. Refused where the plan id is unknown or expired."""
        order = self.ledger.seen(given["plan_id"]).order
        return asked(order.dry())

    def apply(self, yard: Yard, given: Mapping[str, Any]) -> list[str]:
        from gpuready.render import answers

        return [answers.install(self.ledger.redeem(given["plan_id"]).install())]


def asked(dry: Installed) -> str:
    from gpuready.render.escape import visible

    plan = dry.plan
    what = f"{plan.framework} {plan.version}".strip() if plan else "the lock"
    count = len(plan.lock) if plan else 0
    return visible(f"Install {what or 'the lock'} ({count} packages) into {dry.environment}?")
