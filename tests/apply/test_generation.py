"""The folder of an environment, its lease and its journal, without any install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready.apply import space
from gpuready.apply.build import identity, kernels, lock_text
from gpuready.apply.generation import MANIFEST, Home
from gpuready.apply.journal import Journal, entries
from gpuready.apply.lease import Held, Lease, Lost
from gpuready.planned import Kernel, Locked, Plan
from gpuready.system import durable
from tests.apply.wheels import wheel

ROW = Locked("alpha", "1.0", ("sha256:aa", "sha256:bb"))


def plan(*rows: Locked, **more) -> Plan:
    return Plan("alpha", "1.0", "plan", lock=rows or (ROW,), **more)


def made(home: Home, plan: str, complete: bool = True):
    generation = home.next(plan)
    os.makedirs(f"{generation.path}/bin")
    (open(f"{generation.path}/pyvenv.cfg", "w")).close()
    if complete:
        durable.write(f"{generation.path}/{MANIFEST}", "{}")
    return generation


@pytest.fixture
def home(tmp_path):
    found = Home(str(tmp_path / "env"))
    found.occupy()
    return found


def test_generations_are_counted_and_published(home):
    assert home.current() is None and home.previous() is None
    first, second = made(home, "aaa"), made(home, "bbb")
    home.publish(first)
    assert home.current() == first and os.readlink(home.at("bin")) == "current/bin"
    home.publish(second)
    assert home.current() == second and home.previous() == first
    assert home.made_from("aaa") == [first] and home.made_from("ccc") == []


def test_what_is_unfinished_is_swept_and_never_current(home):
    first, half = made(home, "aaa"), made(home, "bbb", complete=False)
    home.publish(first)
    open(home.at("current.1234.draft"), "w").close()
    assert home.made_from("bbb") == [] and home.sweep() == [half.name]
    assert [g.name for g in home.generations()] == [first.name] and not os.path.exists(
        home.at("current.1234.draft")
    )


def test_old_ones_go_and_the_published_one_stays(home):
    every = [made(home, f"p{i}") for i in range(6)]
    home.publish(every[0])
    gone, busy = home.tidy(3)
    assert gone == [g.name for g in every[1:4]] and busy == {}
    assert home.current() == every[0]


def test_one_that_is_in_use_stays(home, tmp_path):
    first = made(home, "aaa")
    home.publish(made(home, "bbb"))
    job = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], cwd=first.path, text=True,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    job.stdout.readline()
    gone, busy = home.tidy(1)
    assert busy == {first.name: job.pid} and first.name not in gone
    job.communicate("\n")
    assert first.name in home.tidy(1)[0]


def test_the_same_plan_has_the_same_name_and_any_other_another():
    assert identity(plan()) == identity(plan(machine="other", notes=("x",)))
    others = [
        plan(ROW.but(version="1.1")),
        plan(ROW.but(hashes=("sha256:cc",))),
        plan(python="3.12"),
        plan(ROW, ROW.but(name="beta")),
        plan(kernels=(Kernel("flash-attn", "2.8", "build", "why"),)),
    ]
    assert len({identity(p) for p in [plan(), *others]}) == 6


def test_a_lock_is_written_as_uv_reads_it():
    text = lock_text([ROW, Locked("beta", "2", ("sha256:cc",), origin="/a b/beta-2-py3-none-any.whl")])
    assert text.startswith("alpha==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n")
    assert "beta @ file:///a%20b/beta-2-py3-none-any.whl \\\n    --hash=sha256:cc\n" in text


def test_only_kernels_that_the_lock_lacks_are_built():
    built = Kernel("flash-attn", "2.8", "build", "no wheel")
    assert kernels(
        plan(kernels=(built, Kernel("alpha", "1.0", "build", ""), Kernel("x", "1", "jit", "")))
    ) == [built]


def test_the_journal_survives_a_torn_line(home):
    journal = Journal(home.path, lambda: 1.0)
    journal.note("one")
    with open(journal.path, "a") as file:
        file.write('{"step": "tor')
    journal.note("two", token="hf_abcdefghijklmnopqrstuvwxyz123456")
    assert [e["step"] for e in entries(home.path)] == ["one", "two"]
    assert "hf_abc" not in Path(journal.path).read_text()


def test_one_lease_at_a_time(home):
    first, second = (Lease(home.at(".gpuready"), "here") for _ in range(2))
    first.take()
    with pytest.raises(Held, match="process"):
        second.take(wait=False)
    first.leave()
    second.take(wait=False)
    second.leave()
    assert os.listdir(home.at(".gpuready")) == ["lock"]


def test_a_lease_that_was_taken_over_is_noticed(home):
    lease = Lease(home.at(".gpuready"), "here")
    lease.take()
    text = json.loads(Path(lease.path).read_text()) | {"token": "another"}
    Path(lease.path).write_text(json.dumps(text))
    lease.renewed = -100
    with pytest.raises(Lost):
        lease.beat()
    with pytest.raises(Lost):
        lease.confirm()
    lease.leave()
    assert "another" in Path(lease.path).read_text(), "what is not ours is left"


def test_a_lease_that_is_no_lease_is_replaced(home):
    lease = Lease(home.at(".gpuready"), "here")
    for text in ("", "nonsense", "[]", '{"pid": "x"}'):
        Path(lease.path).write_text(text)
        lease.take(wait=False)
        lease.leave()


def test_room_is_measured_in_the_wheels_and_estimated_without(tmp_path):
    wheel(tmp_path, "alpha", "1.0", {"alpha/__init__.py": "x" * 100_000})
    exact = space.need(plan(), [str(tmp_path)])
    assert exact.estimated == 0 and 100_000 < exact.size - space.SPARE[0] < 101_000
    guess = space.need(plan(Locked("torch", "2.13.0", ("sha256:x",)), cuda="13.0"), [])
    assert guess.estimated == 1 and guess.size > 1 << 30 and "1 of 1" in guess.how
    told = space.need(plan(ROW.but(size=10 << 20)), [])
    assert told.size - space.SPARE[0] == 30 << 20
