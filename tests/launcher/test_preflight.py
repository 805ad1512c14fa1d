"""What is said before the start, from facts that are stated."""

from __future__ import annotations

import pytest

from tarmac.launcher import peers, preflight
from tarmac.launcher.job import Job
from tarmac.model import Fact, Facts

GIB = 1 << 30


def job(**more: object) -> Job:
    return Job("local", "/v/bin/python", "module", ("pack",), 4, **{"port": 1, **more})  # type: ignore[arg-type]


def said(job: Job, **facts: object) -> dict[str, object]:
    stated = Facts(
        [Fact(key.replace("__", "."), value, "test", "stated") for key, value in facts.items()], "here"
    )
    found = preflight.looked(job, stated, lambda name: f"/usr/bin/{name}", True)
    return {sight.what: sight for sight in found if sight.severity != "ok"}


def test_a_machine_without_trouble_says_nothing():
    assert not said(
        job(),
        gpu__count=4,
        gpu__visible=(0, 1, 2, 3),
        system__shm=8 * GIB,
        limit__nofile=65536,
        limit__nproc=-1,
    )


def test_more_ranks_than_gpus():
    sight = said(job(), gpu__count=2, gpu__visible=(0, 1))["ranks"]
    assert (
        sight.severity == "error" and "4 ranks for 2 visible GPUs" in sight.says and "--nproc 2" in sight.fix
    )
    assert not said(job(), gpu__count=2, gpu__visible=()), (
        "no GPU is to be used: then gloo may have as many ranks as it likes"
    )


def test_a46_little_shared_memory():
    sight = said(job(), system__shm=64 << 20, system__shm_free=16 << 20)["memory"]
    assert sight.severity == "error" and "64 MiB, 16 MiB free" in sight.says and "--shm-size" in sight.fix
    assert said(job(), system__shm=128 << 20)["memory"].severity == "warning"


def test_a47_low_limits_for_this_world():
    sight = said(job(nnodes=64), limit__nofile=1024)["limits"]
    assert (
        sight.severity == "error"
        and "1024 open files are allowed, and a world of 256 needs about 1280" in sight.says
    )
    assert not said(job(), limit__nofile=1024)
    assert said(job(), limit__memlock=64 << 10, net__ib=("mlx5_0",))["limits"].severity == "warning"


def test_memory_that_others_hold():
    holders = ({"gpu": 1, "pid": 4711, "command": "python old.py"},)
    sight = said(
        job(),
        gpu__count=4,
        gpu__memory=(80 * GIB,) * 4,
        gpu__free=(80 * GIB, 40 * GIB, 80 * GIB, 80 * GIB),
        gpu__processes=holders,
    )["memory"]
    assert (
        sight.severity == "warning"
        and "40.0 GiB of GPU 1" in sight.says
        and "pid 4711 python old.py" in sight.says
    )


def test_engines_that_are_not_there():
    made = Job("torchrun", "/v/bin/python", "module", ("pack",), 1, port=1)
    assert "has no torch" in said(made)["engine"].says


@pytest.mark.parametrize(
    ("master", "says"),
    [("127.0.0.1", "loopback"), ("192.0.2.7", "is no address of this node")],
)
def test_a04_a_master_that_the_others_cannot_reach(master, says):
    made = Job("torchrun", "/v/bin/python", "module", ("pack",), 1, nnodes=2, master=master, port=29500)
    assert says in said(made, torch__version="2.13.0")["peers"].says


def test_a02_a_master_that_does_not_resolve():
    made = Job(
        "torchrun",
        "/v/bin/python",
        "module",
        ("pack",),
        1,
        nnodes=2,
        node_rank=1,
        master="no-such-host.invalid",
        port=29500,
    )
    sight = said(made, torch__version="2.13.0")["peers"]
    assert sight.severity == "error" and "does not resolve" in sight.says and "/etc/hosts" in sight.fix


def test_who_is_connected(tmp_path):
    table = tmp_path / "tcp"
    rows = ["  sl  local_address rem_address   st", "   0: 0100000A:733C 0702000A:D431 01 x", "   1: 0100000A:733C 0302000A:D431 06 x",
            "   2: 0100000A:0050 0402000A:D431 01 x", "   3: 0100000A:733C 0100007F:D431 01 x"]  # fmt: skip
    table.write_text("\n".join(rows) + "\n")
    six = tmp_path / "tcp6"
    six.write_text(
        "sl\n 0: 00000000000000000000000000000000:733C 0000000000000000FFFF00000902000A:D431 01 x\n"
    )
    assert peers.connected(29500, (str(table), str(six), "/nonexistent")) == ["10.0.2.7", "10.0.2.9"]
