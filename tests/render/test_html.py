"""The page without a browser: well formed, complete, in the same words as the terminal, and closed against the outside."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from gpuready.model import Fact, Facts, report_document
from gpuready.model.facts import verdict_words
from gpuready.render import check_report, html
from gpuready.render import json_document as documents
from gpuready.render.html import fleet_view as fleets
from gpuready.render.html import topology
from gpuready.render.html.template_engine import template_environment
from gpuready.render.layout import Screen

from . import pages
from .machines import REPORTS

VOID = {"meta", "br", "input", "link", "img", "hr", "rect", "line", "path"}


class Structure(HTMLParser):
    """The elements of a page with the names of their attributes, and its text; complains where tags do not match."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[str] = []
        self.addresses: list[str] = []
        self.said: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag == "wbr" and not attrs:
            return  # a place where a long word may break
        self.elements.append(f"{tag} {' '.join(sorted(name for name, _ in attrs))}")
        self.addresses += [
            value or "" for name, value in attrs if name in ("src", "href", "action", "data", "xlink:href")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.said.append(data)


def parsed(page: str) -> Structure:
    found = Structure()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


def words(page: str) -> str:
    return " ".join(" ".join(parsed(page).said).split())


@pytest.fixture(scope="module")
def document():
    return pages.whole()


@pytest.fixture(scope="module")
def page(document):
    return html.render_report_page(document)


def one_report(name: str) -> dict:
    return {
        "kind": "report",
        "reports": [json.loads(json.dumps(documents.report_json_fields(REPORTS[name]), default=str))],
    }


def test_it_is_well_formed_and_has_every_part(page):
    found = parsed(page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for part in ("machine", "checks", "findings", "proofs", "bench", "memory", "plan", "facts"):
        assert part in ids and f'href="#{part}"' in page
    assert [e.split()[0] for e in found.elements].count("h1") == 1


def test_nothing_is_loaded_from_anywhere(page):
    assert all(address.startswith("#") for address in parsed(page).addresses)
    assert not re.search(
        r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", page.partition('id="document"')[0]
    )
    assert "style=" not in page.partition('id="document"')[0], "the policy forbids it"
    assert not re.search(r"\son[a-z]+=", re.sub(r"<script.*?</script>", "", page, flags=re.S))


def test_the_policy_allows_its_own_style_and_script_and_nothing_else(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1].replace("&#39;", "'")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    script = re.search(r"<script>(.*?)</script>", page, re.S)[1]

    def digest(inside: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() + "'"

    assert rules["default-src"] == "'none'" and rules["base-uri"] == "'none'" and rules["form-action"] == "'none'"
    assert rules["style-src"] == digest(style) and rules["script-src"] == digest(script)


def test_the_document_inside_is_the_json_of_the_command(page, document):
    inside = re.search(r'<script type="application/json" id="document">(.*?)</script>', page, re.S)[1]
    assert json.loads(inside) == json.loads(documents.format_json_document(document))
    assert not re.search(r"[<>&\u2028\u2029]", inside)


@pytest.mark.parametrize("name", [n for n in REPORTS if n != "hostile"])
def test_the_words_are_those_of_the_terminal(name):
    report = REPORTS[name]
    shown = words(html.render_report_page(one_report(name)))
    assert verdict_words(report.verdict) in shown and ", ".join(check_report.count_phrases(report)) in shown
    for _, family, says in check_report.build_family_rows(
        report_document.parse_check_report(one_report(name)["reports"][0])
    ):
        assert family in shown and says in shown
    for finding in report.findings:
        assert f"{finding.severity}[{finding.code}] {finding.says}" in shown
        assert finding.so in shown or finding.severity == "info"
    for item in report.ignored:
        assert item.reason in shown


def test_every_fact_is_in_the_table_but_what_is_not_stated():
    facts = REPORTS["undecided"].facts
    page = html.render_report_page(one_report("undecided"))
    assert page.count("<tr data-group=") == len(list(facts))
    assert 'class="unknown"' in page


def test_numbers_of_proofs_stand_beside_their_bounds(page):
    shown = words(page)
    assert "relative error 0.0021 at most 0.01" in shown
    assert "signal 11 in the step scaled_mm" in shown and "Segmentation fault" in shown


def test_a_slow_measure_is_said_in_words_and_with_its_finding(page):
    shown = words(page)
    assert "error[GPU021] the GPU is slower than others of its kind" in shown
    assert "742 TFLOP/s · 75%" in shown and "1.40 TB/s · 42%" in shown


def test_the_stacks_of_a_step_add_up(document, page):
    fit = document["fit"]
    phases = {name.rstrip("0123456789.") for name in fit["phases"]}
    assert len(fit["stacks"]) == len(phases)
    highest = max(sum(parts.values()) for parts in fit["stacks"].values())
    # The allocator may split a block a little larger than was asked for, and no more.
    assert 0.99 * fit["peak_allocated"] <= highest <= fit["peak_allocated"]
    assert "zeroing of gradients" in words(page)


def test_the_same_document_gives_the_same_page(document, page):
    assert html.render_report_page(document) == page


def test_a_document_that_is_read_back_says_the_same(document):
    from gpuready.render import report

    again = json.loads(
        json.dumps(report.report_document_fields(report_document.parse_report_document(document)), default=str)
    )
    assert again == document


def test_nothing_undefined_passes():
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        template_environment().from_string("{{ nobody }}").render()


def test_what_deceives_a_reader_is_written_out():
    shown = words(html.render_report_page(one_report("hostile")))
    assert "\x1b" not in shown and "\u202e" not in shown and "\\x1b]0;owned\\x07" in shown and "\\u202e" in shown


NO_REPORT = {"contract": {"framework": "x", "version": "1"}}
BAD = [
    ([], "not a document"),
    ({"kind": "recording"}, "not a document"),
    ({"reports": {}}, None),
    ({"reports": [1]}, "must be an object"),
    ({"reports": "x"}, "must be a list"),
    ({"reports": [{"contract": 5}]}, "contract"),
    ({"reports": [{"contract": {"framework": 1, "version": "2"}}]}, "'framework' of a contract must be str"),
    ({"fit": 7}, "must be an object"),
    ({"fit": {"model": "m", "kind": "k", "job": [], "said": {}}}, "'job' of a fit result"),
    (
        {"fit": {"model": "m", "kind": "k", "job": {}, "said": {}, "stacks": {"a": {"b": "c"}}}},
        "'stacks' of a fit result",
    ),
    ({"fleet": {"did": "check", "transport": "ssh", "nodes": "many"}}, "'nodes' of a fleet report"),
    ({"fleet": {"did": "check", "transport": "ssh", "nodes": 1, "verdicts": {"clear": 3}}}, "'verdicts'"),
    ({"bench": {"host": "h", "python": "p"}}, "a report must be an object"),
    (
        {"bench": {"host": "h", "python": "p", "measures": [{"name": "m", "verdict": 3}], "report": NO_REPORT}},
        "'verdict' of a bench measure",
    ),
    (
        {"proofs": {"host": "h", "python": "p", "proofs": [{"name": "a", "verdict": "passed", "seconds": "long"}]}},
        "'seconds'",
    ),
]


@pytest.mark.parametrize(("document", "says"), BAD, ids=[str(n) for n in range(len(BAD))])
def test_a_document_that_cannot_be_is_refused_in_one_sentence(document, says):
    if says is None:
        assert "undecided" in html.render_report_page(document)
        return
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        html.render_report_page(document)
    assert "\n" not in str(refused.value)


# -- the machine drawn ------------------------------------------------------------------------------------------


def drawn(count: object, **more: object) -> dict | None:
    known = {"gpu.count": count, "host.cpus": 8, **{key.replace("__", "."): value for key, value in more.items()}}
    return topology.build_topology_view(Facts([Fact(key, value, "test") for key, value in known.items()]))


@pytest.mark.parametrize("count", [0, 1, 9, 72])
@pytest.mark.parametrize("nodes", [0, 1, 4, 20])
def test_every_gpu_is_drawn_once_in_its_numa_node(count, nodes):
    numa = tuple(n % nodes if nodes else -1 for n in range(count))
    view = drawn(count, gpu__numa=numa, gpu__nvlink=(18,) * count, gpu__pcie=("5 x16",) * count)
    assert sorted(gpu["index"] for node in view["nodes"] for gpu in node["gpus"]) == list(range(count))
    for node in view["nodes"]:
        assert {numa[gpu["index"]] for gpu in node["gpus"]} == {int(node["name"].split()[-1]) if nodes else -1}


@pytest.mark.parametrize("count", [None, -1, True, "eight", 10**9, 3.5])
def test_a_count_that_cannot_be_draws_no_gpu(count):
    assert drawn(count)["nodes"] == []


def test_lists_of_another_length_and_of_other_types_leave_cells_empty():
    view = drawn(
        2,
        gpu__name=("H100",),
        gpu__memory=("lots", None),
        gpu__nvlink="no",
        gpu__numa=(None, "x"),
        net__ib=[1],
        net__interfaces={"a": 3},
    )
    assert [gpu["memory"] for gpu in view["gpus"]] == ["", ""] and view["nics"] == []


def test_a_link_below_its_best_and_a_lost_gpu_are_said_in_words(page):
    shown = words(page)
    assert (
        "PCIe 3 x8 of 5 x16" in shown and "off the bus" in shown and "NUMA node 1" in shown and "4 NVSwitches" in shown
    )


def test_nothing_known_draws_nothing():
    assert topology.build_topology_view(Facts([])) is None


# -- a fleet ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet():
    return pages.fleet(1024)


def test_a_thousand_nodes_stay_light(fleet):
    page = html.render_report_page(pages.of_fleet(fleet))
    found = parsed(page)
    assert len(page.encode()) < 250_000
    assert len(found.elements) < 900, "a sign is no element of its own"
    shown = " ".join(found.said)
    assert "n[00011-00016]" in shown and "550.54.15" in shown and "n00100" in shown and "n[00201-00204]" in shown


def test_each_node_has_a_row_with_the_meaning_of_its_codes():
    base = pages.fleet(32)
    found = base.replace(codes={"DRV001": "n00002"}, meanings={"DRV001": "The driver is too old."})
    said = " ".join(" ".join(parsed(html.render_report_page(pages.of_fleet(found))).said).split())
    assert "n 00002" not in said and "n00002 no problems found DRV001 The driver is too old." in said
    assert "driver. version 550. 54. 15 instead of 580." in said.partition("Each node")[2]
    assert "n00032 no problems found none found" in said


def test_ten_thousand_nodes_too():
    page = html.render_report_page(pages.of_fleet(pages.many(10_000)))
    assert len(page.encode()) < 1_000_000 and len(parsed(page).elements) < 900
    assert "and 4936 more nodes" in page


def test_every_node_has_one_sign(fleet):
    view = fleets.build_fleet_view(fleet)
    assert sum(path.count("M") for path in view["map"]["paths"].values()) == 1024
    assert sum(row["count"] for row in view["sets"]) == 1024
    assert len(view["map"]["data"]["kinds"]) == len(view["map"]["data"]["names"]) == 1024


# -- a notebook -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTS)
def test_a_fragment_is_well_formed_and_has_no_script(name):
    for requested in (REPORTS[name], json.loads(json.dumps(documents.report_json_fields(REPORTS[name]), default=str))):
        found = parsed(html.render_report_fragment(requested))
        assert not any(element.startswith(("script", "link", "meta")) for element in found.elements)
        assert verdict_words(REPORTS[name].verdict) in " ".join(found.said)


def test_a_page_shows_what_the_screen_shows(document):
    shown = words(html.render_report_page(document))
    assert "axolotl 0.18.0" in check_report.render_check_screen(REPORTS["old_driver"], Screen()).splitlines()[0]
    assert "axolotl 0.18.0" in shown
