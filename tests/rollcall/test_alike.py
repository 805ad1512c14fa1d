"""Ranks that meet and are not alike: versions, variables, devices, clocks, names."""

from __future__ import annotations

import json
import re
import time

import pytest

from gpuready.cluster import Rendezvous
from gpuready.rollcall.hello import Hello, shared_variables
from gpuready.rollcall.rank_register import RankRegister
from tests.ranks import world
from tests.rollcall.meeting import EARLY_S, meet, refused, together

# -- what they are ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"versions": {"torch": "2.12.1"}}, ("the version of torch differs", "2.13.0 on rank 0, 2.12.1 on rank 1")),
        ({"versions": {"torch": "2.13.0", "nccl": "2.27.3"}}, ("the version of nccl differs", "(not set) on rank 0")),
        ({"device": "cuda"}, ("the type of device differs", "cpu on rank 0, cuda on rank 1")),
        ({"code": {"script": "abc"}}, ("the script differs",)),
    ],
)
def test_a48_a50_ranks_that_are_not_alike(more, words):
    ranks = world(2, MORE=json.dumps({"versions": {"torch": "2.13.0"}}))
    ranks[1] |= {"MORE": json.dumps({"versions": {"torch": "2.13.0"}} | more)}
    answers = meet(*ranks)
    refused(answers, *words)
    assert all(a["s"] < EARLY_S for a in answers)


@together
def test_a48_skew_that_is_allowed_is_a_note():
    ranks = world(2, SKEW="1", MORE=json.dumps({"versions": {"torch": "2.13.0"}}))
    ranks[1] |= {"MORE": json.dumps({"versions": {"torch": "2.12.1"}})}
    answers = meet(*ranks)
    assert all(a["go"] for a in answers) and "2.12.1 on rank 1" in answers[1]["notes"][0]


@together
def test_a49_variables_that_differ():
    ranks = world(3, NCCL_ALGO="Ring")
    ranks[2] |= {"NCCL_ALGO": "Tree"}
    refused(meet(*ranks), "the variable NCCL_ALGO differs between ranks: Ring on ranks 0-1, Tree on rank 2")


def test_a49_variables_that_may_differ():
    names = shared_variables(
        {
            "NCCL_SOCKET_IFNAME": "eth0",
            "NCCL_DEBUG": "INFO",
            "NCCL_PROTO": "LL",
            "HOME": "x",
            "GLOO_SOCKET_IFNAME": "lo",
        }
    )
    assert names == {"NCCL_PROTO": "LL"}


@together
def test_two_ranks_on_one_device():
    ranks = world(2)
    for one in ranks:
        one["MORE"] = json.dumps({"device": "cuda", "gpu": "GPU-1234"})
    refused(meet(*ranks), "rank 0 (here, pid", "and rank 1 (here, pid", "are on one device", "GPU-1234", code="NET012")


@together
def test_a43_a_clock_that_is_wrong_is_only_noted():
    ranks = world(2)
    ranks[1] |= {"MORE": json.dumps({"clock": time.time() + 3600})}
    answers = meet(*ranks)
    assert all(a["go"] for a in answers) and re.search(
        r"the clock of rank 1 .* is \+3[56]\d\d s off", answers[0]["notes"][0]
    )


def test_a44_hosts_of_one_name():
    register = RankRegister(Rendezvous(0, 2, address="a", port=1))
    for rank in range(2):
        register.add_hello(Hello(rank, 2, 0, "node", 10 + rank, f"machine-{rank}", data=(f"10.0.0.{rank}", 1)))
    assert not register.broken and [name for _, name, _ in register.list_machines()] == [
        "node (10.0.0.0)",
        "node (10.0.0.1)",
    ]
    assert "2 machines call themselves node" in register.list_notes()[0]


@together
def test_a45_a_host_name_with_control_characters_moves_no_cursor():
    for name in ("<script>alert(1)</script>", "a\x1b[2Jb" + "x" * 300, "näme\u202e\na"):
        ranks = world(3, WINDOW="1", GPUREADY_HOSTNAME=name)
        ranks[1] |= {"WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 4}
        for one in meet(*ranks[:2]):
            assert not one["go"] and one["said"].isprintable() and len(one["said"]) < 1000
