"""Recordings as the nodes of a fleet: judged and compared here, as they are or with another driver."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.running import gpuready

from gpuready.fleet.ssh_hosts import SshTransport, parse_host_list
from gpuready.model import Contract, Fact, Facts, Finding, Report
from gpuready.model.fleet import Drift, FleetReport, NodeGroup
from gpuready.render.fleet import drain_reason, render_fleet_screen
from gpuready.render.html.fleet_view import build_fleet_view
from gpuready.render.layout import Screen
from gpuready.workflow import fleet_node

H200 = Path(__file__).parent.parent / "machines" / "h200.json"


@pytest.fixture
def recorded(tmp_path):
    """Two machines that differ in their driver's version."""
    for name, driver in (("n1", "580.159.04"), ("n2", "580.95.05"), ("n3", "580.159.04")):
        document = json.loads((H200).read_text())
        for fact in document["facts"]:
            values = {"host.name": name, "gpu.uuid": [f"GPU-{name}"], "driver.version": driver}
            fact["value"] = values.get(fact["key"], fact["value"]) if "value" in fact else None
        (tmp_path / f"{name}.json").write_text(json.dumps({**document, "host": name}))
    return tmp_path


def test_recordings_are_compared_and_judged_with_another_driver(recorded):
    told = gpuready("fleet", "check", "transformers", "n1.json", "n2.json", "--json", cwd=recorded)
    document = json.loads(told.out)
    assert {row["area"] for row in document["drift"]} == {"driver"} and not told.err
    (recorded / "two").mkdir()
    for name in ("n1.json", "n2.json"):
        (recorded / "two" / name).symlink_to(recorded / name)
    folder = gpuready("fleet", "check", "transformers", "two", "--json", cwd=recorded)
    assert json.loads(folder.out)["drift"] == document["drift"], folder.out + folder.err
    old = gpuready("fleet", "check", "transformers", "n1.json", "n2.json", "--as", "driver=550.54.15", cwd=recorded)
    assert old.code == 1 and "2 of 2 nodes have DRV001" in old.out and "n[1-2]" in old.out
    hardware = gpuready("fleet", "check", "n1.json", "n2.json", "n3.json", "--hardware", cwd=recorded)
    assert "hardware on 3 nodes, 3 GPUs" in hardware.out and "in no environment" in hardware.out
    assert "not ready: 1 of 3 nodes with problems" in hardware.out, "only the node with another driver"
    login = gpuready("fleet", "check", "n1.json", str(H200.parent / "no-gpu.json"), "--hardware", cwd=recorded)
    assert login.code == 1 and "GPU001 no GPU" in login.out and "1 of 2 nodes" in login.out, login.out


def test_environments_are_checked_for_one_machine_with_another_driver(recorded):
    for name in ("a1", "a2"):
        (recorded / name / "bin").mkdir(parents=True)
        (recorded / name / "bin" / "python").symlink_to(sys.executable)
        (recorded / name / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\nversion = 3.11.7\n")
    words = ("trl", "./a1", "./a2", "n1.json", "--as", "driver=550.54.15")
    told = gpuready("fleet", "check", *words, cwd=recorded)
    assert told.code == 1 and "2 of 2 environments with problems" in told.out, told.out + told.err
    assert "check trl --python ./a1 --on n1.json --as driver=550.54.15" in " ".join(
        told.out.replace("\\\n", "").split()
    )
    assert "./a[1-2]" in told.out and "trl 1.16 on 2 environments, 1 GPU" in told.out and "PKG002" in told.out
    assert gpuready("fleet", "check", "./a1", "n1.json", "n2.json", cwd=recorded).code == 2


def test_one_bad_recording_or_environment_does_not_stop_the_rest(recorded):
    stray = {"n4.json": "", "n5.json": "{", "n6.json": '{"schema": 99, "facts": []}', "stray.json": "[]"}
    for name, text in stray.items():
        (recorded / name).write_text(text)
    document = json.loads(gpuready("fleet", "check", ".", "--hardware", "--json", cwd=recorded).out)
    assert document["exit"] == 1 and document["exclude"] == "n2" and document["states"]["answered"] == "n[1-3]"
    assert document["states"]["not read"] == "./n[4-6].json,./stray.json"
    assert document["reasons"]["not read: is empty"] == "./n4.json"
    sound = gpuready("fleet", "check", "n1.json", "n3.json", "n4.json", "--hardware", cwd=recorded)
    assert sound.code == 3 and "1 of 3 nodes with problems" in sound.out and "not read: is empty" in sound.out
    for words in (["n4.json", "n5.json"], ["n1.json", "--hardware", "--reference", "n4.json"]):
        refused = gpuready("fleet", "check", *words, cwd=recorded)
        assert refused.code == 2 and refused.err.startswith("gpuready: n4.json is empty"), refused.err
    (recorded / "e1" / "bin").mkdir(parents=True)
    (recorded / "e1" / "bin" / "python").symlink_to(sys.executable)
    (recorded / "two").mkdir()
    environments = json.loads(gpuready("fleet", "check", "trl", "./e1", "two", "--json", cwd=recorded).out)
    assert environments["states"] == {"answered": "./e1", "not read": "./two"} and environments["nodes"] == 2


def test_the_newest_recording_of_a_node_counts(recorded):
    newer = json.loads((recorded / "n2.json").read_text())
    newer["tape"]['["wall"]'] += 60
    for fact in newer["facts"]:
        fact["value"] = "580.159.04" if fact["key"] == "driver.version" else fact["value"]
    (recorded / "a-n2.json").write_text(json.dumps(newer))
    told = gpuready("fleet", "check", "n1.json", "n2.json", "a-n2.json", "n3.json", "--hardware", cwd=recorded)
    assert told.code == 0 and "3 nodes" in told.out.splitlines()[0]
    assert "n2 has 2 recordings: a-n2.json counts, which is newer than n2.json" in " ".join(told.out.split())


def test_a_node_to_avoid_has_problems_and_is_counted_once_everywhere(recorded):
    report = FleetReport(
        "check", "ssh", 9, verdicts={"clear": "n[1-9]"}, states={"answered": "n[1-9]"}, exclude="n7", findings=(Finding("FLT007", "error", "1 node shows 7 of 8 GPUs: n7"),),
        meanings={"FLT007": "A node shows fewer GPUs"}, blames={"FLT007": "n7"},
        drift=(Drift("gpus", "gpu.count", "8", (NodeGroup("7", "n[7-8]", 2),), 9),),
    )  # fmt: skip
    text = render_fleet_screen(report, Screen(80))
    assert text.startswith("not ready: 1 of 9 nodes with problems, 7 alike")
    rows = {words[0]: " ".join(words[1:]) for words in map(str.split, text.splitlines()) if words}
    assert (
        rows["n7"] == "to be avoided FLT007 a node shows fewer GPUs" and rows["n[1-6,"] == "8-9] no problems found"
    ), text
    counts = {kind: count for kind, _, _, count in build_fleet_view(report)["key"]}
    assert counts["bad"] == "1" and counts["ok"] == "7" and counts["differs"] == "1"
    like = gpuready("fleet", "check", "n1.json", "n3.json", "--reference", "n1.json", "--hardware", cwd=recorded)
    assert like.out.startswith("no problems found: 2 nodes, 2 like n1.json"), like.out
    other = gpuready("fleet", "check", "n1.json", "n3.json", "--reference", "n2.json", "--hardware", cwd=recorded)
    assert "2 nodes, 0 like n2.json" in other.out, other.out


def test_what_was_assumed_or_not_given_or_not_looked_at_is_told(recorded):
    assumed = gpuready("fleet", "check", "n1.json", "--hardware", "--as", "driver=595.10", cwd=recorded)
    assert "as if: driver 595.10" in assumed.out, assumed.out
    for words in (["--driver", "58O.95"], ["--as", "driver=58O.95"]):
        wrong = gpuready("check", "trl", "--on", "h100x8", *words, cwd=recorded)
        assert wrong.err.startswith("gpuready: driver=58O.95: not a version"), wrong.err
    (recorded / "e1" / "bin").mkdir(parents=True)
    (recorded / "e1" / "bin" / "python").symlink_to(sys.executable)
    (recorded / "e1" / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\nversion = 3.11.7\n")
    told = gpuready("fleet", "check", "trl", "e1", "--on", "h100x8", cwd=recorded)
    assert "not given: driver; state it with --as driver=VERSION" in told.out, told.out
    reason, unseen = drain_reason(Report(Contract("hardware", ""), Facts([Fact("gpu.count", 0, "nvml")])))
    assert not reason and unseen == "gpuready: no GPU found here: no GPU, driver or fabric was looked at"


def test_a_host_named_twice_is_asked_once():
    transport = SshTransport(parse_host_list("n1,n2,n1"), "t")
    assert [node.name for node in transport.list_nodes()] == ["n1", "n2"]
    assert transport.notes == ["n1 is named 2 times, and is asked once"]


def test_a_folder_without_recordings_is_named(recorded):
    (recorded / "empty").mkdir()
    for word in ("empty", "./empty"):
        told = gpuready("fleet", "check", word, cwd=recorded)
        assert told.code == 2 and told.err.startswith(f"gpuready: {word} holds no recordings (*.json)"), told.err


def test_what_only_a_node_can_do_is_refused(recorded):
    for words in (["prove", "trl", "n1.json"], ["check", "n1.json", "--hosts", "a"], ["check", "missing.json"]):
        told = gpuready("fleet", *words, cwd=recorded)
        assert told.code == 2 and len(told.err.strip().splitlines()) == 1, told.err


def test_hardware_of_a_node_is_judged_without_any_python():
    request = {"do": "check", "token": "t", "framework": ["trl"], "options": {"hardware": True}}
    answer = json.loads(fleet_node.check_node(request, "n1"))
    assert not [code for code in answer.get("codes", ()) if code.startswith(("PKG", "BLD"))]
