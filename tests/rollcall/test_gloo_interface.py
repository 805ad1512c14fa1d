"""gloo listens at the address of the host's name: where that is a loopback, an interface is chosen."""

from __future__ import annotations

import socket

import pytest

from gpuready.rollcall import endpoint, interface_check

INTERFACES = {"lo": (True, ("127.0.0.1",)), "eth7": (True, ("192.0.2.5",))}


@pytest.fixture
def named(monkeypatch):
    """A host whose name has some addresses, and that reaches every other by eth7."""

    def host(*addresses: str) -> None:
        def resolve(name, port, *more):
            if name == "master":
                return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", ("192.0.2.9", 9))]
            if not addresses:
                raise socket.gaierror
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in addresses]

        class Probe:
            def __init__(self, *more): ...
            def __enter__(self):
                return self

            def __exit__(self, *error): ...
            def connect(self, where): ...
            def getsockname(self):
                return ("192.0.2.5", 40000)

        monkeypatch.setattr(interface_check.socket, "getaddrinfo", resolve)
        monkeypatch.setattr(interface_check.socket, "socket", Probe)
        monkeypatch.setattr(endpoint, "list_interfaces", lambda: INTERFACES)

    return host


@pytest.mark.parametrize("addresses", [("127.0.1.1",), ("::1", "127.0.0.1"), ()])
def test_a_name_that_leads_to_a_loopback(named, addresses):
    named(*addresses)
    environ: dict[str, str] = {}
    note = interface_check.choose_gloo_interface(environ, "master", "gpu-1")
    assert environ == {"GLOO_SOCKET_IFNAME": "eth7"} and "gpu-1" in note and "eth7 (192.0.2.5)" in note


def test_a_name_that_others_can_use_and_a_choice_of_the_user(named):
    named("127.0.1.1", "192.0.2.5")
    environ: dict[str, str] = {}
    assert not interface_check.choose_gloo_interface(environ, "master", "gpu-1") and not environ
    named("127.0.1.1")
    environ = {"GLOO_SOCKET_IFNAME": "ib0"}
    assert not interface_check.choose_gloo_interface(environ, "master", "gpu-1")
