"""An agent with its server, a person who is asked, and a project with traps in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio.from_thread
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.apply.wheels import Bench
from tests.mcp.agents import EVIL, START, Asked, open_fence

MACHINES = Path(__file__).parent.parent / "machines"


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A project, and beside it what nobody may read."""
    outside, inside = tmp_path_factory.mktemp("outside"), tmp_path_factory.mktemp("project")
    (outside / "secret.json").write_text((MACHINES / "h200.json").read_text())
    (outside / "secret.log").write_text("CUDA out of memory. Tried to allocate 2.00 GiB\n")
    (outside / "model").mkdir()
    (outside / "model" / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    (inside / "h200.json").write_text((MACHINES / "h200.json").read_text())
    (inside / "run.log").write_text(
        f"{EVIL}\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {EVIL}\n"
    )
    (inside / "out.json").symlink_to(outside / "secret.json")
    (inside / "out.log").symlink_to(outside / "secret.log")
    (inside / "out").symlink_to(outside)
    (inside / "logs").mkdir()
    (inside / "logs" / "rank0.log").symlink_to(outside / "secret.log")
    (inside / "logs" / "rank1.log").write_text("step 1\n")
    (inside / "same.json").symlink_to("h200.json")
    os.mkfifo(inside / "pipe.json")
    with open(inside / "large.json", "wb") as file:
        file.truncate(65 << 20)
    (inside / "job.yml").write_text(f"base_model: {outside}/model\nmicro_batch_size: 1\n")
    return inside


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="session")
def portal():
    with anyio.from_thread.start_blocking_portal() as found:
        yield found


@pytest.fixture(scope="session")
def person():
    return Asked()


@pytest.fixture(scope="session")
def agent(portal, place, bench, person):
    """One server over real stdio, with everything allowed; the client can ask its person."""
    words = ["mcp", "--allow-changes", "--root", str(bench.folder), "--python", sys.executable]
    started = StdioServerParameters(command=sys.executable, args=["-c", START, *words], env=bench.env, cwd=str(place))
    with portal.wrap_async_context_manager(Client(started, elicitation_callback=person)) as client:

        def call(name, /, **requested):
            found = portal.call(client.call_tool, name, requested)
            return found.is_error, open_fence([one.text for one in found.content])

        call.client, call.portal = client, portal
        yield call
