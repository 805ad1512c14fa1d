"""Confirm installs in two steps: a dry run gets an id bound to this host and to its content, valid once and for a short time."""

from __future__ import annotations

import time

from gpuready import system
from gpuready.noun import Noun
from gpuready.workflow.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuready.planned import Installed
    from gpuready.workflow.installing import Order

LASTS = 900.0
"""Lifetime of a plan id."""
MOST = 32


class Promise(Noun):
    """What a plan id stands for."""

    order: Any
    content: str
    until: float


class Ledger:
    """Plan ids that were issued, and those that were used."""

    def __init__(self, lasts: float = LASTS, now: Callable[[], float] = time.monotonic, host: str = ""):
        self.lasts, self.now = lasts, now
        self.host = _digest(host or _host())[:12]
        self.open: dict[str, Promise] = {}
        self.used: set[str] = set()

    def promise(self, order: Order) -> tuple[str, Installed]:
        """Return an id for what this order would do, and the dry run itself. Nothing is changed."""
        import secrets

        dry = order.dry()
        content = _content(dry)
        name = f"{self.host}-{content[:16]}-{secrets.token_hex(16)}"
        while len(self.open) >= MOST:
            self.open.pop(next(iter(self.open)))
        self.open[name] = Promise(order, content, self.now() + self.lasts)
        return name, dry

    def seen(self, name: str) -> Promise:
        """Return what an id stands for; Refused where it is not valid here and now."""
        parts = name.split("-")
        if name in self.used:
            raise Refused("this plan id was used already, and is good once: plan again")
        if len(parts) == 3 and parts[0] != self.host:
            raise Refused("this plan id was given on another host, and is good only there")
        found = self.open.get(name)
        if found is None:
            raise Refused(
                "no plan has this id here: call install_plan first, and give the id that it returns"
            )
        if self.now() > found.until:
            self.open.pop(name)
            raise Refused(f"this plan id is older than {self.lasts:.0f} s: plan again")
        return found

    def redeem(self, name: str) -> Order:
        """Return the order behind an id and use the id up. Refused where the order would do something else by now."""
        found = self.seen(name)
        self.open.pop(name)
        self.used.add(name)
        order: Order = found.order
        if _content(order.dry()) != found.content:
            raise Refused(
                "what this plan would do has changed since it was made: plan again, and look at it again"
            )
        return order


def _content(dry: Installed) -> str:
    import json

    return _digest(json.dumps(dry.but(seconds=0.0).to_json(), sort_keys=True, default=str))


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _host() -> str:
    """Identify this host uniquely: its name and its machine-id."""
    door = system.Live()
    try:
        number = door.read("/etc/machine-id", 64) or ""
    except system.Blind:
        number = ""
    return f"{door.hostname()} {number.strip()}"
