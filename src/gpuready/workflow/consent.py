"""Confirm installs in two steps: a dry run gets an id bound to this host and to its content, valid once and for a short time."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from typing import Any

from gpuready import system
from gpuready.model.plan import InstallResult
from gpuready.model.record import Record
from gpuready.workflow.install import InstallOrder
from gpuready.workflow.refusal import Refused

PLAN_ID_SECONDS = 900.0
"""Lifetime of a plan id."""
MAX_OPEN_PLAN_IDS = 32


class PendingInstall(Record):
    """What a plan id stands for."""

    order: Any
    content: str
    until: float


class PlanIdRegistry:
    """Plan ids that were issued, and those that were used."""

    def __init__(self, lifetime: float = PLAN_ID_SECONDS, now: Callable[[], float] = time.monotonic, host: str = ""):
        self.lifetime, self.now = lifetime, now
        self.host = _sha256_hex(host or _describe_this_host())[:12]
        self.pending: dict[str, PendingInstall] = {}
        self.used_ids: set[str] = set()

    def issue_plan_id(self, order: InstallOrder) -> tuple[str, InstallResult]:
        """Return an id for what this order would do, and the dry run itself. Nothing is changed."""
        dry_result = order.dry_run()
        content = _hash_dry_run(dry_result)
        plan_id = f"{self.host}-{content[:16]}-{secrets.token_hex(16)}"
        while len(self.pending) >= MAX_OPEN_PLAN_IDS:
            self.pending.pop(next(iter(self.pending)))
        self.pending[plan_id] = PendingInstall(order, content, self.now() + self.lifetime)
        return plan_id, dry_result

    def find_pending_install(self, plan_id: str) -> PendingInstall:
        """Return what an id stands for; Refused where it is not valid here and now."""
        parts = plan_id.split("-")
        if plan_id in self.used_ids:
            raise Refused("this plan id was used already, and is good once: plan again")
        if len(parts) == 3 and parts[0] != self.host:
            raise Refused("this plan id was given on another host, and is good only there")
        pending_install = self.pending.get(plan_id)
        if pending_install is None:
            raise Refused("no plan has this id here: call install_plan first, and give the id that it returns")
        if self.now() > pending_install.until:
            self.pending.pop(plan_id)
            raise Refused(f"this plan id is older than {self.lifetime:.0f} s: plan again")
        return pending_install

    def redeem_plan_id(self, plan_id: str) -> InstallOrder:
        """Return the order behind an id and use the id up. Refused where the order would do something else by now."""
        pending_install = self.find_pending_install(plan_id)
        self.pending.pop(plan_id)
        self.used_ids.add(plan_id)
        order: InstallOrder = pending_install.order
        if _hash_dry_run(order.dry_run()) != pending_install.content:
            raise Refused("what this plan would do has changed since it was made: plan again, and look at it again")
        return order


def _hash_dry_run(dry_result: InstallResult) -> str:
    return _sha256_hex(json.dumps(dry_result.replace(seconds=0.0).to_json(), sort_keys=True, default=str))


def _sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _describe_this_host() -> str:
    """Identify this host uniquely: its name and its machine-id."""
    host = system.LiveHost()
    try:
        machine_id = host.read_text("/etc/machine-id", 64) or ""
    except system.AccessError:
        machine_id = ""
    return f"{host.get_hostname()} {machine_id.strip()}"
