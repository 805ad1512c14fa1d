"""Starts that fail, with real torch and gloo: every rank is told who, where, why and what to do, in time."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.ranks import LAUNCH, free_port, ranks, world

__all__ = ["ranks"]

LATE = 5.0
"""What the issue grants beyond the start window, and to faults that one host can see by itself."""

OWN = 2.5
"""Faults that are seen before anybody is asked."""


def slack() -> float:
    """How much longer everything takes beside other tests; `make faults` holds the deadlines themselves, where nothing else runs."""
    return max(4.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def reported(found, *words: str, within: float = LATE, codes: str = "") -> list[str]:
    """Every rank was refused with these words, in time, without a traceback."""
    texts = []
    for one in found:
        assert one.code == 1 and "LaunchRefused: " in one.err and "Traceback" not in one.err, one
        assert one.seconds < within * slack(), one
        texts.append(one.err.partition("LaunchRefused: ")[2])
        for word in words:
            assert word in texts[-1], texts[-1]
        assert not codes or codes in texts[-1]
    return texts


@pytest.mark.parametrize("value", ["0", "99999", "abc", "", " 29500 "])
def test_a10_a11_a_port_that_is_none(ranks, value):
    found = ranks.run(world(2)[0] | {"MASTER_PORT": value})
    reported(found, "MASTER_PORT is", "NET007", within=OWN)


def test_a12_an_address_with_spaces_around_it_works_with_a_note(ranks):
    found = ranks.run(*world(2, MASTER_ADDR=" 127.0.0.1 "))
    assert [one.code for one in found] == [0, 0] and "the spaces around it are dropped" in found[0].err


def test_a12_a_newline_within_an_address(ranks):
    reported(ranks.run(world(2)[1] | {"MASTER_ADDR": "127.0.0.1\nx"}), "MASTER_ADDR is '127.0.0.1\\nx'", within=OWN)


def test_a13_a14_ipv6_in_brackets(ranks):
    assert [one.code for one in ranks.run(*world(2, MASTER_ADDR="[::1]"))] == [0, 0]


def test_a17_a_link_local_address_needs_its_interface(ranks):
    reported(ranks.run(world(2)[1] | {"MASTER_ADDR": "fe80::1"}), "add the interface", within=OWN)


def test_a18_a_rank_is_missing(ranks):
    found = ranks.run(*world(3)[:2], GPUREADY_START_WINDOW="5")
    reported(found, "2 of 3 ranks came within 5 s", "missing: rank 2", within=5 + LATE, codes="NET016")


def test_a21_a25_a_rank_that_ends_or_hangs_before_it_calls(ranks):
    """Without a launcher nobody sees its end; the window does."""
    each = world(3, GPUREADY_START_WINDOW="5")
    found = ranks.run(each[0], each[1] | {"_code": "raise SystemExit(7)"}, each[2])
    assert found[1].code == 7
    reported([found[0], found[2]], "missing: rank 1", within=5 + LATE)


def test_a28_world_sizes_differ(ranks):
    each = world(2)
    each[1] |= {"WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3}
    reported(ranks.run(*each), "rank 1 (here, pid", "believes that there are 3 ranks", codes="NET006")


def test_a29_a_rank_outside_the_world_stops_all(ranks, seen):
    each = world(2)
    found = ranks.run(each[0], each[1] | {"RANK": 5, "_delay": 0.5})
    text = reported(found, "RANK is 5 and WORLD_SIZE 2")[0]
    seen("A29", "on all ranks", text.strip(), max(found[0].seconds - 0.5, found[1].seconds))


def test_a30_a31_two_processes_are_one_rank(ranks):
    each = world(3)
    for twin in (0, 1):
        found = ranks.run(each[0], each[1], each[twin])
        text = reported(found, f"two processes claim to be rank {twin}", codes="NET006")[0]
        assert {str(found[twin].pid), str(found[2].pid)} == set(re.findall(r"here:(\d+)", text))


def test_a32_all_mistakes_at_once(ranks):
    wrong = {"RANK": "0x1", "WORLD_SIZE": "1.0", "LOCAL_RANK": "", "MASTER_PORT": "abc", "MASTER_ADDR": "a b"}
    reported(
        ranks.run(wrong),
        "RANK is '0x1'",
        "WORLD_SIZE is '1.0'",
        "LOCAL_RANK is empty",
        "MASTER_PORT is 'abc'",
        "MASTER_ADDR is 'a b'",
        within=OWN,
    )


def test_a33_launchers_that_contradict_each_other(ranks):
    more = {
        "SLURM_PROCID": 1,
        "SLURM_NTASKS": 4,
        "SLURM_STEP_ID": 0,
        "OMPI_COMM_WORLD_RANK": 0,
        "OMPI_COMM_WORLD_SIZE": 3,
    }
    reported(
        ranks.run(world(2)[0] | more),
        "source",
        "torchrun",
        "openmpi",
        "slurm",
        "would win",
        "launcher='torchrun'",
        within=OWN,
    )


def test_a34_a_node_list_of_another_length(ranks):
    slurm = {
        "SLURM_PROCID": 0,
        "SLURM_NTASKS": 3,
        "SLURM_NNODES": 3,
        "SLURM_LOCALID": 0,
        "SLURM_NODELIST": "n[01-03,7]",
    }
    reported(ranks.run(slurm), "names 4 hosts (n01, n02, n03, n7) and the job has 3", within=OWN, codes="RUN004")


def test_a06_a36_the_port_is_held_by_a_rank_that_was_left_over(ranks, seen):
    """A bare store of torch, as a job leaves it behind; the holder is named."""
    port = free_port()
    left = f"import datetime, time, torch.distributed as d\ns = d.TCPStore('127.0.0.1', {port}, None, True, datetime.timedelta(seconds=9), False)\ntime.sleep(9)"
    each = world(2, port, GPUREADY_START_WINDOW="4")
    found = ranks.run({"_code": left}, each[0] | {"_delay": 1.5}, each[1])
    text = reported(
        [found[1]], f"cannot listen on port {port}", f"pid {found[0].pid} of", f"kill {found[0].pid}", codes="NET018"
    )[0]
    seen("A06, A36", "the holder and a free port", text.strip(), found[1].seconds)
    reported([found[2]], "something else than rank 0 answers", f"pid {found[0].pid} of", within=4 + LATE)


WAIT = """
import atexit, os, time
def mark(name):
    open(os.path.join(os.environ["MARKS"], name), "w").close()
def wait_for(*names):
    end = time.monotonic() + 60
    while not all(os.path.exists(os.path.join(os.environ["MARKS"], name)) for name in names) and time.monotonic() < end:
        time.sleep(0.02)
"""
STAY = WAIT + LAUNCH.format(arguments="") + "\nmark(f'begun-{world.rank}')\nwait_for('over')\n"
LATER = WAIT + "atexit.register(mark, 'over')\n" + LAUNCH.format(arguments="")
"""A job that goes on until one has ended that starts when the first has begun."""


def when_begun(folder: Path) -> dict:
    """A rank that starts when both ranks of the first job have begun."""
    return {"_code": LATER, "_after": [str(folder / f"begun-{rank}") for rank in range(2)]}


def test_a09_the_store_of_another_job_that_has_begun(ranks, seen, tmp_path):
    port = free_port()
    first = world(2, port, GPUREADY_RUN_ID="first", _code=STAY)
    second = world(2, port, GPUREADY_RUN_ID="second")[1]
    found = ranks.run(*first, second | when_begun(tmp_path), MARKS=str(tmp_path))
    assert [one.code for one in found[:2]] == [0, 0]
    text = reported(
        [found[2]], f"belongs to another start: run first of 2 ranks, whose rank 0 is pid {found[0].pid}", within=10
    )[0]
    seen("A09", "whose store it is", text.strip(), found[2].seconds)


def test_a37_an_interface_that_is_not_there(ranks):
    each = world(2, GLOO_SOCKET_IFNAME="eth77")
    reported(ranks.run(*each), "GLOO_SOCKET_IFNAME=eth77", "lo", codes="NET001")


def test_a47_too_few_files(ranks):
    each = world(200, GPUREADY_START_WINDOW="2")
    reported(
        ranks.run(each[0] | {"_limits": {"RLIMIT_NOFILE": 64}}),
        "may open 64 files",
        "200 ranks need 328",
        codes="SYS006",
    )


def test_a48_another_torch(ranks):
    each = world(2)
    each[1] |= {"_code": "import torch; torch.__version__ = '2.12.1'\n" + LAUNCH.format(arguments="")}
    reported(
        ranks.run(*each),
        "the version of torch differs between ranks",
        "2.12.1 on rank 1",
        "GPUREADY_ALLOW_SKEW=1",
        codes="RUN020",
    )
    found = ranks.run(*each, GPUREADY_ALLOW_SKEW="1", MASTER_PORT=str(free_port()))
    assert [one.code for one in found] == [0, 0] and "2.12.1 on rank 1" in found[0].err


def test_a49_another_variable(ranks):
    each = world(2)
    each[1] |= {"NCCL_PROTO": "Simple"}
    reported(ranks.run(*each), "the variable NCCL_PROTO differs between ranks: (not set) on rank 0, Simple on rank 1")


def test_a50_another_script(ranks, tmp_path):
    each = world(2)
    for one in each:
        script = tmp_path / f"train-{one['RANK']}.py"
        script.write_text(f"# {one['RANK']}\n")
        one["_script"] = str(script)
    reported(ranks.run(*each), "the script differs between ranks", "start the same code everywhere")


def test_another_seed_is_no_silent_launch(ranks):
    each = world(2)
    each[1] |= {"_code": LAUNCH.format(arguments="seed=7")}
    reported(ranks.run(*each), "the seed differs between ranks: 1024 on rank 0, 7 on rank 1")


def test_a_device_that_one_rank_does_not_have_stops_all(ranks):
    each = world(2)
    each[1] |= {"_code": LAUNCH.format(arguments="device='cuda'")}
    reported(ranks.run(*each), "rank 1 (here, pid", "cannot start: ", "torch has no cuda here", codes="GPU001")


BENT = """
import torch.distributed as d
real = d.all_reduce
def bent(x, **k):
    {change}
    return real(x, **k)
d.all_reduce = bent
"""
"""A rank that changes what it sends; nothing else of it is wrong."""

BENDS = {
    "b05": ("x[3] += 1", "changes data, and does so alone too"),
    "b06": ("x.view(torch.int32)[8 + 4 * d.get_rank() % (len(x) - 8)] ^= 1", "changes data"),
    "b07": ("x[-1] = float('nan')", "sends NaN"),
}


@pytest.mark.parametrize("case", BENDS)
def test_b05_b06_b07_a_rank_that_changes_data_is_named(ranks, case):
    """A wrong sum is no success: a bit that flips, a wrong number, a NaN; the rank is found by trying again alone and in pairs."""
    change, said = BENDS[case]
    each = world(3)
    each[1] |= {"_code": "import torch\n" + BENT.format(change=change) + LAUNCH.format(arguments="")}
    found = ranks.run(*each)
    reported(found, "the first sum over 3 ranks is wrong: rank 1 (here, pid", said, codes="RUN022")
    assert str(found[1].pid) in found[0].err


def test_b03_a_rank_that_never_comes_to_the_first_collective(ranks):
    inactive = (
        "import time\nfrom gpuready.runtime import group\ngroup.JobGroup.verify_group = lambda *_: time.sleep(8)\n"
        + LAUNCH.format(arguments="")
    )
    short = "from gpuready.runtime import group_proof\ngroup_proof.PROOF_S = 3\n" + LAUNCH.format(arguments="")
    each = world(3, GPUREADY_START_WINDOW="5", _code=short)
    each[1] |= {"_code": inactive}
    found = ranks.run(*each)
    reported([found[0], found[2]], "rank 1 did not come to the first collective", within=5 + LATE, codes="NET014")
