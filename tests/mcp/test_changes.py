"""Changes by an agent: planned, asked of a person, done once."""

from __future__ import annotations

import json

import pytest
from mcp.client.client import Client
from mcp_types import ElicitResult

from gpuready.mcp import server
from gpuready.model.plan import InstallResult
from gpuready.workflow import refusal
from gpuready.workflow.allowed_paths import AllowedPaths
from gpuready.workflow.consent import PlanIdRegistry
from tests.mcp.agents import Asked

# -- changes (E17) ------------------------------------------------------------------------------------------


def planned(agent, bench, version="1.0"):
    wrong, texts = agent(
        "install_plan",
        framework="alpha",
        environment=str(bench.home),
        lock=str(bench.locks[version]),
        find_links=[str(bench.wheels)],
        offline=True,
    )
    assert not wrong, texts
    assert json.loads(texts[0])["verdict"] == "dry-run"
    return json.loads(texts[1])["plan_id"]


def test_an_install_is_planned_asked_and_done_once(agent, bench, person):
    plan = planned(agent, bench)
    assert not bench.home.exists()
    person.says = ElicitResult(action="decline")
    assert agent("install_apply", plan_id=plan) == (True, ["nothing was changed: the person did not agree"])
    person.says = ElicitResult(action="accept", content={"install": False})
    assert agent("install_apply", plan_id=plan, agreed=True)[0] and not bench.home.exists()
    assert "alpha" in person.questions[-1] and str(bench.home) in person.questions[-1]
    person.says = ElicitResult(action="accept", content={"install": True})
    wrong, texts = agent("install_apply", plan_id=plan)
    assert not wrong and json.loads(texts[0])["verdict"] == "installed" and bench.version() == "1.0"
    asked = len(person.questions)
    assert "used already" in agent("install_apply", plan_id=plan)[1][0] and len(person.questions) == asked


def test_a_plan_whose_ground_moved_is_refused(agent, bench, person):
    person.says = ElicitResult(action="accept", content={"install": True})
    first, second = planned(agent, bench, "2.0"), planned(agent, bench, "2.0")
    assert not agent("install_apply", plan_id=first)[0]
    assert "changed since" in agent("install_apply", plan_id=second)[1][0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "plan_id"),
        ({"plan_id": "x"}, "no plan has this id here"),
        ({"plan_id": "a-b-c", "agreed": True}, "given on another host"),
    ],
)
def test_no_change_without_an_id_of_this_host(agent, bench, person, arguments, reason):
    person.says = ElicitResult(action="accept", content={"install": True})
    asked, files = len(person.questions), sorted(bench.home.rglob("*"))
    failed, texts = agent("install_apply", **arguments)
    assert failed and reason in texts[0]
    assert len(person.questions) == asked and sorted(bench.home.rglob("*")) == files


class DryOrder:
    """An order as far as a ledger sees it."""

    def __init__(self, content):
        self.content = content

    def dry_run(self):
        return InstallResult("dry-run", self.content)

    def run_install(self):
        return InstallResult("installed", self.content)


def test_an_id_is_good_once_here_and_for_a_while():
    now = [0.0]
    here, there = (PlanIdRegistry(60, lambda: now[0], host) for host in ("here", "there"))
    name, _ = here.issue_plan_id(DryOrder("env"))
    with pytest.raises(refusal.Refused, match="another host"):
        there.redeem_plan_id(name)
    assert here.redeem_plan_id(name).content == "env"
    with pytest.raises(refusal.Refused, match="used already"):
        here.redeem_plan_id(name)
    late, _ = here.issue_plan_id(DryOrder("env"))
    now[0] = 61.0
    with pytest.raises(refusal.Refused, match="older than"):
        here.redeem_plan_id(late)
    moved = DryOrder("env")
    name, _ = here.issue_plan_id(moved)
    moved.content = "other"
    with pytest.raises(refusal.Refused, match="changed since"):
        here.redeem_plan_id(name)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("says", "agreed", "done"),
    [
        (ElicitResult(action="accept", content={"install": True}), False, True),
        (ElicitResult(action="accept", content={"install": False}), True, False),
        (ElicitResult(action="cancel"), True, False),
        (None, False, False),  # a client that cannot ask
        (None, True, True),
    ],
)
def test_a_person_is_asked_by_old_and_new_clients(portal, mode, says, agreed, done):
    service = server.ToolServer(AllowedPaths(["."]), allow_changes=True)
    plan, _ = service.install_tools.ledger.issue_plan_id(DryOrder("env"))
    person = Asked()
    person.says = says

    async def call():
        async with Client(
            server.build_mcp_server(service), mode=mode, elicitation_callback=person if says is not None else None
        ) as client:
            return await client.call_tool("install_apply", {"plan_id": plan, "agreed": agreed})

    found = portal.call(call)
    assert found.is_error is not done and len(person.questions) == (says is not None)
    assert ('"installed"' if done else "nothing was changed") in found.content[1].text
