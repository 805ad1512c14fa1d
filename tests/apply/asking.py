"""Questions to the resolver."""

from __future__ import annotations

from gpuready.catalog import indexes
from gpuready.model import Contract, Requirement
from gpuready.model.plan import Plan

TARGET = "x86_64-manylinux_2_28"


def _places(monkeypatch, **at: str) -> None:
    real = indexes.index_url
    monkeypatch.setattr(indexes, "index_url", lambda name: at.get(name) or real(name))


def contract(*needs: Requirement, **fields) -> Contract:
    return Contract("sparrow", "1.2", distribution="sparrow", needs=needs, **fields)


def need(name: str, want: str, level: str = "required", **fields) -> Requirement:
    return Requirement(f"package.{name}", want, level=level, **fields)


def plan(**fields) -> Plan:
    settings = {"python": "3.12", "torch": "2.13.0+cu126", "cuda": "12.6", "index": "cu126", "platform": TARGET}
    return Plan("sparrow", "1.2", "plan", **settings | fields)


def default(**fields) -> Plan:
    return plan(torch="2.13.0+cu130", cuda="13.0", index="pypi", **fields)


def row(found: Plan, name: str):
    assert found.lock, (found.resolved, found.conflicts)
    return next(one for one in found.lock if one.name == name)


def own_name(index) -> str:
    """The name in a lock of a test's index, which is one that the user configured."""
    return "own:" + index.url().partition("://")[2].partition("/")[0]
