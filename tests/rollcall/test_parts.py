"""The parts of a roll-call, one by one."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from gpuready.cluster import Rendezvous
from gpuready.rollcall import endpoint, wire
from gpuready.rollcall.hello import Hello
from gpuready.rollcall.register import Fault, Register, spans
from tests.ranks import free_port

# -- parts --------------------------------------------------------------------------------------------


def test_ranks_in_short():
    assert spans([3, 1, 2, 7, 0]) == "0-3, 7" and spans([]) == ""
    assert spans(range(0, 100, 2)).endswith("…")


def test_a_fault_reads_as_a_sentence():
    assert (
        str(Fault("NET018", "the port is taken", "take another"))
        == "the port is taken [NET018]; fix: take another"
    )


def test_a_thousand_faults_are_a_short_text():
    register = Register(Rendezvous(0, 2, address="a", port=1))
    for rank in range(1000):
        register.enter(Hello(rank, 3, 0, "node", rank))
    assert len(register.faults()) == 9 and "992 faults more, of ranks 8-999" in str(register.faults()[-1])


def test_a41_small_pieces_pass_and_large_ones_do_not():
    from gpuready.rollcall import dial

    def stall():
        conn, _ = made.accept()
        conn.sendall(conn.recv(dial.SMALL))
        kept.append(conn)

    kept: list = []
    made = endpoint.listen(0)
    with made:
        stalling = threading.Thread(target=stall)
        stalling.start()
        heard = {0: dial.all_of([(1, "127.0.0.1", made.getsockname()[1])]), 1: [[0, "", 0.1]]}
        stalling.join()
        kept[0].close()
    plan = {0: [(1, "10.0.0.2", 5)], 1: [(0, "10.0.0.1", 5)]}
    (found,) = dial.faults(plan, heard, {0: "rank 0 (a)", 1: "rank 1 (b)"})
    assert (
        "64 B pass, 64 KiB stall" in found.says and "the other way works" in found.says and "MTU" in found.fix
    )


def test_a42_a_slow_link_is_told_by_its_peers():
    from gpuready.rollcall import dial

    names = {rank: f"rank {rank} (host-{rank})" for rank in range(4)}
    fast, slow = 0.001, 0.5
    heard = {0: [[1, "", fast], [3, "", fast]], 1: [[0, "", fast], [2, "", slow]], 2: [[1, "", slow], [3, "", fast]], 3: [[0, "", fast], [2, "", 9.9]]}  # fmt: skip
    (said,) = dial.slow(heard, names)
    assert (
        said
        == "the link between rank 1 (host-1) and rank 2 (host-2) is slow: 0.262 MB/s, and the others 131 MB/s [NET019]"
    )
    heard[2][0][2] = heard[1][1][2] = 0.004
    assert not dial.slow(heard, names), "four times its peers is no reason to speak"
    assert "0.262 MB/s [NET019]" in dial.slow({0: [[1, "", slow]], 1: [[0, "", slow]]}, names)[0]
    assert not dial.slow({0: [[1, "no route", 0.0]], 1: ["x", [0], [2, 3, "4"]]}, names)


def test_who_holds_a_port():
    with endpoint.listen(0) as made:
        found = endpoint.holder(made.getsockname()[1])
    assert found.pid == os.getpid() and found.command and found.state == "listening"
    assert endpoint.holder(1) is None


def test_interfaces_and_addresses():
    assert endpoint.interfaces()["lo"][0] in (True, False)
    assert endpoint.is_local("127.0.0.1") and not endpoint.is_local("198.51.100.7")
    assert not any(map(endpoint.is_loopback, endpoint.addresses()))


def test_reaching_never_hangs():
    assert endpoint.reach("127.0.0.1", free_port(), 1).why == "refused"
    assert endpoint.reach("no-such-host.invalid", 80, 1).why == "name"


def test_a15_rank_0_listens_in_both_families():
    with endpoint.listen(0) as made:
        for address in ("127.0.0.1", "::1") if endpoint.is_local("::1") else ("127.0.0.1",):
            assert endpoint.reach(address, made.getsockname()[1], 1).ok


def test_a16_a_family_that_does_not_work_is_passed_over(monkeypatch):
    """The resolver gives IPv6 first, and nothing is there."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        port = made.getsockname()[1]
        both = [(int(socket.AF_INET6), ("::1", port, 0, 0)), (int(socket.AF_INET), ("127.0.0.1", port))]
        monkeypatch.setattr(endpoint, "resolve", lambda *_: both)
        conn, told = endpoint.connect("rank-zero", port, 3)
        assert told.ok and conn.getpeername()[0] == "127.0.0.1"
        conn.close()


def test_a_seal_is_of_its_token_and_number():
    line = wire.packed({"a": 1}, "token", "salt").rstrip(b"\n")
    assert wire.opened(line, "token", "salt") == {"a": 1}
    for token, salt in (("other", "salt"), ("token", "other"), ("", "salt")):
        with pytest.raises(PermissionError):
            wire.opened(line, token, salt)
