"""The tape of a real machine, replayed: today's probes read from it what was recorded then."""

from __future__ import annotations

import json
from pathlib import Path

from gpuready import probe
from gpuready.catalog import facts as catalogue
from gpuready.catalog import packages
from gpuready.catalog.variables import is_asked_variable
from gpuready.system import ReplayHost

H200 = json.loads((Path(__file__).parent.parent / "machines" / "h200.json").read_text())


def test_a_real_h200_is_read_from_its_tape_as_it_was_recorded():
    again = probe.probe(ReplayHost(H200["tape"]), "/opt/torch/.venv", packages.list_packages())
    then = {fact["key"]: fact for fact in H200["facts"]}
    now = {fact["key"]: fact for fact in json.loads(json.dumps(again.to_json()))}
    unasked = {key for key in then if key.startswith("env.") and not is_asked_variable(key[4:])} - {"env.names"}
    assert set(then) - unasked <= set(now), "a fact that was recorded then is not read now"
    assert all(catalogue.find_declaration(key) for key in set(now) - set(then)), "looked at only since then"
    ninja = now["compiler.ninja"]  # its program was started then, and is not now
    assert ninja["value"] == then["compiler.ninja"]["value"] and ninja["source"].endswith(".dist-info")
    linked = now["extension.linked"]["value"]  # since then with the minor release of CUDA, where a wheel has it
    assert linked.keys() == then["extension.linked"]["value"].keys()
    assert {key for key in set(then) - unasked if now[key] != then[key]} == {
        "compiler.ninja",
        "extension.linked",
        "env.names",
    }
    assert now["user.root"]["value"] is True


def test_the_recording_holds_no_secret_and_no_home():
    from gpuready.system.redaction.text import may_contain_secret

    assert not may_contain_secret(H200["facts"])
    assert "/home/user/.cache" in json.dumps(H200), "the home folder is a made-up one"
