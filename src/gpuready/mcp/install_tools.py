"""Tools that change this machine, in two steps: plan (returns an id), then apply (takes the id).

Offered only with ``--allow-changes``.
"""

import json
from collections.abc import Mapping
from typing import Any

from gpuready.commands.install import INSTALL
from gpuready.mcp import argument_schema
from gpuready.mcp.argument_schema import parameter_schema
from gpuready.mcp.tools import DETAIL_SCHEMA, Tool
from gpuready.model.plan import InstallResult
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import json_results
from gpuready.workflow.allowed_paths import AllowedPaths
from gpuready.workflow.consent import PLAN_ID_SECONDS, PlanIdRegistry
from gpuready.workflow.install import InstallOrder

PLAN_TOOL, APPLY_TOOL = "install_plan", "install_apply"
_PLAN_ID_HELP = "The id that install_plan returned: good once, on this host, for exactly what that plan showed."


def _plan_install_schema() -> dict[str, Any]:
    names = ("environment", "lock", "wants", "find_links", "offline")
    schemas = {name: parameter_schema(INSTALL.parameters[name]) for name in names}
    assert INSTALL.argument is not None
    return argument_schema.object_schema(
        {"framework": parameter_schema(INSTALL.argument), **schemas, "detail": DETAIL_SCHEMA}, "environment"
    )


class InstallTools:
    """The plan and apply tools, and the ledger of pending plans between them."""

    def __init__(self, ledger: PlanIdRegistry | None = None):
        self.ledger = ledger or PlanIdRegistry()

    def list_tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                PLAN_TOOL,
                "What an install would do",
                "Plan the install of a framework into an environment: which packages, where, how much room. Changes nothing, and "
                f"returns a plan_id for install_apply, good for {PLAN_ID_SECONDS:.0f} s. Show the plan to the person before applying it.",
                _plan_install_schema(),
                self.plan_install,
                outside=True,
            ),
            Tool(
                APPLY_TOOL,
                "Install what was planned",
                "Install exactly what install_plan showed. The person is asked first, by the client where it can ask. Installs "
                "atomically; `gpuready install --rollback` goes back.",
                argument_schema.object_schema(
                    {
                        "plan_id": argument_schema.string_schema(_PLAN_ID_HELP, 120),
                        "agreed": argument_schema.boolean_schema(
                            "The person has seen the plan and said yes. Only where the client cannot ask them itself."
                        ),
                    },
                    "plan_id",
                ),
                self.apply_install,
                reads_only=False,
                outside=True,
            ),
        )

    def plan_install(self, allowed_paths: AllowedPaths, arguments: Mapping[str, Any]) -> list[str]:
        """Return the JSON of ``gpuready install --dry-run`` and the plan id."""
        order = InstallOrder(
            arguments.get("framework", ""),
            allowed_paths.check_folder(arguments["environment"]),
            python=allowed_paths.python,
            lock=allowed_paths.check_file(arguments["lock"]) if "lock" in arguments else None,
            wants=",".join(arguments["wants"]) if "wants" in arguments else None,
            find_links=[allowed_paths.check_folder(one) for one in arguments.get("find_links", ())],
            offline=arguments.get("offline", False),
        )
        plan_id, dry_run = self.ledger.issue_plan_id(order)
        return [
            json_results.render_json("install", dry_run),
            json.dumps({"plan_id": plan_id, "seconds": self.ledger.lifetime}),
        ]

    def consent_question(self, arguments: Mapping[str, Any]) -> str:
        """Return the question for the person. Refused where the plan id is unknown or expired."""
        order = self.ledger.find_pending_install(arguments["plan_id"]).order
        return format_consent_question(order.dry_run())

    def apply_install(self, allowed_paths: AllowedPaths, arguments: Mapping[str, Any]) -> list[str]:
        return [json_results.render_json("install", self.ledger.redeem_plan_id(arguments["plan_id"]).run_install())]


def format_consent_question(dry_run: InstallResult) -> str:
    plan = dry_run.plan
    target = f"{plan.framework} {plan.version}".strip() if plan else "the lock"
    count = len(plan.lock) if plan else 0
    return escape_unprintable(f"Install {target or 'the lock'} ({count} packages) into {dry_run.environment}?")
