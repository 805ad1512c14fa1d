"""An engine behind one script: whom it asks, whom it asks again with gpuready, and who counts as dead."""

from __future__ import annotations

from types import SimpleNamespace

from gpuready.fleet.driver import Scripted
from gpuready.fleeted import Node


class Stage(Scripted):
    called, stranger, silent = "the stage", "not of this stage", "no word of it"

    def __init__(self, says, trouble="", end=""):
        self.token, self.says, self.asked = "t", says, []
        self.trouble, self.end = trouble, end

    def _knows(self, name):
        return name != "stranger"

    def _send(self, names, orders, line):
        self.asked.append((names, orders.send))
        for name in names:
            for word, text in self.says.get(name, [[], []])[orders.send]:
                line(word, name, text)
        return self.trouble, SimpleNamespace(end=self.end)


def heard(stage, *nodes):
    answers = []
    stage.ask(nodes, {"do": "look"}, 5.0, answers.append)
    return {one.node: (one.kind, one.body or one.why) for one in answers}


def test_each_node_has_one_answer():
    stage = Stage(
        {
            "well": [[("answer", "{}")], []],
            "bare": [[("need", "")], [("answer", "[]")]],
            "mute": [[("hello", "")], []],
        }
    )
    nodes = [
        Node("well"),
        Node("bare"),
        Node("mute"),
        Node("stranger"),
        Node("off", "down", "its plug is out"),
    ]
    found = heard(stage, *nodes)
    assert found["well"] == ("answered", "{}") and found["bare"] == ("answered", "[]")
    assert found["mute"] == ("dead", "no word of it") and found["stranger"] == ("dead", "not of this stage")
    assert found["off"] == ("dead", "its plug is out")
    assert stage.asked == [(["well", "bare", "mute"], False), (["bare"], True)]


def test_the_engines_own_trouble_is_told_of_who_is_left():
    says = {"well": [[("answer", "{}")], []]}
    found = heard(Stage(says, "it fell over"), Node("well"), Node("other"))
    assert found == {"well": ("answered", "{}"), "other": ("dead", "the stage: it fell over")}
    late = heard(Stage({}, "no answer within 5 s", "deadline"), Node("other"))
    assert late == {"other": ("slow", "the stage: no answer within 5 s")}


def test_where_nobody_can_be_asked_the_script_is_not_started():
    stage = Stage({})
    assert heard(stage, Node("stranger")) == {"stranger": ("dead", "not of this stage")} and stage.asked == []
