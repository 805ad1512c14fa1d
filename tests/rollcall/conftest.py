"""What the tests of the roll-call share."""

from __future__ import annotations

import pytest

from gpuready import rollcall
from gpuready.rollcall import beacon, endpoint


@pytest.fixture
def other_hosts(monkeypatch, tmp_path):
    """The ranks are on different hosts: no beacon of the other is here, and its address is not ours."""
    monkeypatch.setattr(beacon, "find_beacon", lambda name: "")
    monkeypatch.setattr(endpoint, "is_local_address", lambda address: False)
    monkeypatch.setattr(rollcall, "_check_master_address", lambda rendezvous, hello, resolved: (hello, None))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path
