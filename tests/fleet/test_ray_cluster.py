"""Ray: whom it asks, whom it asks again with gpuready, and who counts as dead."""

from __future__ import annotations

from types import SimpleNamespace

from gpuready.fleet.ray_cluster import RayTransport
from gpuready.model.fleet import FleetNode


class Stage(RayTransport):
    def __init__(self, says, trouble="", end=""):
        self.token, self.says, self.asked = "t", says, []
        self.ray_ids = dict.fromkeys(("well", "bare", "mute", "off", "other"), "1f")
        self.trouble, self.end = trouble, end

    def _send_orders(self, names, orders, line):
        self.asked.append((names, orders.send))
        for name in names:
            for word, text in self.says.get(name, [[], []])[orders.send]:
                line(word, name, text)
        return self.trouble, SimpleNamespace(end=self.end)


def heard(stage, *nodes):
    answers = []
    stage.ask_nodes(nodes, {"do": "look"}, 5.0, answers.append)
    return {one.node: (one.kind, one.body or one.why) for one in answers}


def test_each_node_has_one_answer():
    stage = Stage(
        {"well": [[("answer", "{}")], []], "bare": [[("need", "")], [("answer", "[]")]], "mute": [[("hello", "")], []]}
    )
    nodes = [
        FleetNode("well"),
        FleetNode("bare"),
        FleetNode("mute"),
        FleetNode("stranger"),
        FleetNode("off", "down", "its plug is out"),
    ]
    found = heard(stage, *nodes)
    assert found["well"] == ("answered", "{}") and found["bare"] == ("answered", "[]")
    assert found["mute"] == ("dead", "no word of its task") and found["stranger"] == ("dead", "Ray does not know it")
    assert found["off"] == ("dead", "its plug is out")
    assert stage.asked == [(["well", "bare", "mute"], False), (["bare"], True)]


def test_the_engines_own_trouble_is_told_of_who_is_left():
    says = {"well": [[("answer", "{}")], []]}
    found = heard(Stage(says, "it fell over"), FleetNode("well"), FleetNode("other"))
    assert found == {"well": ("answered", "{}"), "other": ("dead", "Ray: it fell over")}
    late = heard(Stage({}, "no answer within 5 s", "deadline"), FleetNode("other"))
    assert late == {"other": ("slow", "Ray: no answer within 5 s")}


def test_where_nobody_can_be_asked_the_script_is_not_started():
    stage = Stage({})
    assert heard(stage, FleetNode("stranger")) == {"stranger": ("dead", "Ray does not know it")} and stage.asked == []
