"""Rank 0's store on the socket of the roll-call, for each kind of torch: what it is given and what it refuses."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from gpuready.runtime import group, launch


def make_torch(version: str, refuses: str = "") -> tuple[SimpleNamespace, list[dict]]:
    """Return a torch whose store refuses a socket as that version does, and the options of every try."""
    tries: list[dict] = []

    def make_store(*_, **options):
        tries.append(options)
        if refuses == "always" or (refuses == "libuv" and options.get("use_libuv", True)):
            raise NotImplementedError(f"The libuv TCPStore backend {group.LISTEN_FD_ERROR}.")
        if refuses == "keyword" and "master_listen_fd" in options:
            raise TypeError("incompatible constructor arguments")
        return "store"

    return SimpleNamespace(__version__=version, distributed=SimpleNamespace(TCPStore=make_store)), tries


def open_store(torch: SimpleNamespace) -> object:
    with socket.socket() as listener:
        return group._open_store_on_socket(torch, "127.0.0.1", 1, listener, {"wait_for_workers": False})


@pytest.mark.parametrize(
    ("version", "refuses", "tries"),
    [
        ("2.2.2+cu121", "", [None]),
        ("2.3.1", "", [None]),
        ("2.4.0+cpu", "libuv", [False]),
        ("2.5.1+cu124", "libuv", [False]),
        ("2.7.1", "libuv", [False]),
        ("2.8.0a0+34c6371d24.nv25.8", "libuv", [None, False]),
        ("2.8.0", "", [None]),
        ("2.15.0+cu132", "", [None]),
        ("1.13.1", "keyword", [None, None]),
    ],
)
def test_the_server_of_each_torch(version, refuses, tries):
    torch, seen = make_torch(version, refuses)
    assert open_store(torch) == "store"
    assert [options.get("use_libuv") for options in seen] == tries


def test_another_error_is_not_hidden():
    torch, seen = make_torch("2.8.0", "always")
    with pytest.raises(NotImplementedError):
        open_store(torch)
    assert len(seen) == 2


def test_a_second_group_is_refused_while_there_is_one():
    made: list[str] = []
    dist = SimpleNamespace(is_initialized=lambda: bool(made), init_process_group=made.append)
    group.guard_process_group(dist, launch._refuse_second_group)
    dist.init_process_group("gloo")
    with pytest.raises(launch.LaunchRefused, match=r"called after gpuready.launch\(\)") as refused:
        dist.init_process_group("gloo")
    assert refused.value.codes == ("RUN021",) and made == ["gloo"]
