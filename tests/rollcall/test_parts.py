"""The parts of a roll-call, one by one."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from gpuready.cluster import Rendezvous
from gpuready.rollcall import endpoint, trial_connections, wire
from gpuready.rollcall.hello import Hello
from gpuready.rollcall.rank_register import RankRegister, RollcallFault, format_rank_ranges
from tests.ranks import free_port

# -- parts --------------------------------------------------------------------------------------------


def test_ranks_in_short():
    assert format_rank_ranges([3, 1, 2, 7, 0]) == "0-3, 7" and format_rank_ranges([]) == ""
    assert format_rank_ranges(range(0, 100, 2)).endswith("…")


def test_a_fault_reads_as_a_sentence():
    assert (
        str(RollcallFault("NET018", "the port is taken", "take another"))
        == "the port is taken [NET018]; fix: take another"
    )


def test_a_thousand_faults_are_a_short_text():
    register = RankRegister(Rendezvous(0, 2, address="a", port=1))
    for rank in range(1000):
        register.add_hello(Hello(rank, 3, 0, "node", rank))
    assert len(register.list_faults()) == 9 and "992 faults more, of ranks 8-999" in str(register.list_faults()[-1])


def test_a41_small_pieces_pass_and_large_ones_do_not():
    from gpuready.rollcall import trial_connections

    def stall():
        conn, _ = made.accept()
        conn.sendall(conn.recv(trial_connections.SMALL_BYTES))
        kept.append(conn)

    kept: list = []
    made = endpoint.listen_on_port(0)
    with made:
        stalling = threading.Thread(target=stall)
        stalling.start()
        heard = {0: trial_connections.run_trial_calls([(1, "127.0.0.1", made.getsockname()[1])]), 1: [[0, "", 0.1]]}
        stalling.join()
        kept[0].close()
    plan = {0: [(1, "10.0.0.2", 5)], 1: [(0, "10.0.0.1", 5)]}
    (found,) = trial_connections.find_link_faults(plan, heard, {0: "rank 0 (a)", 1: "rank 1 (b)"})
    assert "64 B pass, 64 KiB stall" in found.says and "the other way works" in found.says and "MTU" in found.fix


def test_a42_a_slow_link_is_told_by_its_peers():
    from gpuready.rollcall import trial_connections

    names = {rank: f"rank {rank} (host-{rank})" for rank in range(4)}
    fast, slow = 0.001, 0.5
    heard = {0: [[1, "", fast], [3, "", fast]], 1: [[0, "", fast], [2, "", slow]], 2: [[1, "", slow], [3, "", fast]], 3: [[0, "", fast], [2, "", 9.9]]}  # fmt: skip
    (said,) = trial_connections.find_slow_links(heard, names)
    assert (
        said
        == "the link between rank 1 (host-1) and rank 2 (host-2) is slow: 0.262 MB/s, and the others 131 MB/s [NET019]"
    )
    heard[2][0][2] = heard[1][1][2] = 0.004
    assert not trial_connections.find_slow_links(heard, names), "four times its peers is no reason to speak"
    assert (
        "0.262 MB/s [NET019]" in trial_connections.find_slow_links({0: [[1, "", slow]], 1: [[0, "", slow]]}, names)[0]
    )
    assert not trial_connections.find_slow_links({0: [[1, "no route", 0.0]], 1: ["x", [0], [2, 3, "4"]]}, names)


def test_who_holds_a_port():
    with endpoint.listen_on_port(0) as made:
        found = endpoint.find_port_holder(made.getsockname()[1])
    assert found.pid == os.getpid() and found.command and found.state == "listening"
    assert endpoint.find_port_holder(1) is None


def test_interfaces_and_addresses():
    found = endpoint.list_interfaces()
    assert set(found) == set(os.listdir("/sys/class/net")) & {name for _, name in socket.if_nameindex()}
    for name, (up, _) in found.items():
        assert up is bool(int(Path("/sys/class/net", name, "flags").read_text(), 16) & 1), name
    assert "127.0.0.1" in found["lo"][1] or not found["lo"][0]
    assert endpoint.is_local_address("127.0.0.1") and not endpoint.is_local_address("198.51.100.7")
    assert not any(map(endpoint.is_loopback_address, endpoint.list_own_addresses()))


def test_reaching_never_hangs():
    assert endpoint.test_reachability("127.0.0.1", free_port(), 1).why == "refused"
    assert endpoint.test_reachability("no-such-host.invalid", 80, 1).why == "name"


def test_a15_rank_0_listens_in_both_families():
    with endpoint.listen_on_port(0) as made:
        for address in ("127.0.0.1", "::1") if endpoint.is_local_address("::1") else ("127.0.0.1",):
            assert endpoint.test_reachability(address, made.getsockname()[1], 1).ok


def test_a16_a_family_that_does_not_work_is_passed_over(monkeypatch):
    """The resolver gives IPv6 first, and nothing is there."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        port = made.getsockname()[1]
        both = [(int(socket.AF_INET6), ("::1", port, 0, 0)), (int(socket.AF_INET), ("127.0.0.1", port))]
        monkeypatch.setattr(endpoint, "resolve_host", lambda *_: both)
        conn, reported = endpoint.connect_to_host("rank-zero", port, 3)
        assert reported.ok and conn.getpeername()[0] == "127.0.0.1"
        conn.close()


def test_a_seal_is_of_its_token_and_number():
    line = wire.encode_message({"a": 1}, "token", "salt").rstrip(b"\n")
    assert wire.decode_message(line, "token", "salt") == {"a": 1}
    for token, salt in (("other", "salt"), ("token", "other"), ("", "salt")):
        with pytest.raises(PermissionError):
            wire.decode_message(line, token, salt)


def test_silent_callers_do_not_keep_a_peer_from_its_trial_connection():
    """Strangers fill the echo port and say nothing: threads stay few, and the two neighbours get their echo."""
    before, server = threading.active_count(), trial_connections.EchoServer()
    server.start_serving()
    silent = [socket.create_connection(("127.0.0.1", server.port), 2) for _ in range(3 * trial_connections.MAX_CALLERS)]
    assert trial_connections.run_trial_calls([(1, "127.0.0.1", server.port)])[0][1] == ""
    assert threading.active_count() - before <= trial_connections.MAX_CALLERS + 2
    for conn in silent:
        conn.close()
    server.close()


def test_a_caller_that_trickles_is_left(monkeypatch):
    monkeypatch.setattr(trial_connections, "CALL_SECONDS", 0.5)
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=trial_connections._echo_connection, args=(ours,))
    thread.start()
    theirs.settimeout(60)
    echoed = 0
    while True:
        try:
            theirs.sendall(b"t")
            if not theirs.recv(1):
                break
        except OSError:
            break
        echoed += 1
        threading.Event().wait(0.03)
    thread.join(60)
    assert not thread.is_alive() and 0 < echoed < 100
    theirs.close()
