"""Text stays text (faults E09, E10, E12): the elements of a page are the same, whatever its texts say."""

from __future__ import annotations

import json
import re

import pytest

from gpuready.render import html
from gpuready.render import json_document as documents
from tests.sampling import FUZZ

from . import pages
from .attacks import ATTACKS, UNUSUAL_BYTES
from .machines import REPORTS
from .test_html import parsed


def harmless(attack: str) -> str:
    """As many letters, in as many lines: what a page does by length or by lines, it does for both."""
    return "".join(c if c in "\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029" else "x" for c in attack)


@pytest.fixture(scope="module")
def document():
    whole = pages.whole()
    return {**whole, "reports": whole["reports"][:1]}


def test_there_are_sixty_and_more():
    assert len(set(ATTACKS)) >= 60


TRIED = ATTACKS if FUZZ else [*ATTACKS[: -len(UNUSUAL_BYTES) : 4], *UNUSUAL_BYTES]
"""Without FUZZ=1 one tag, quote or template in four, and all unusual bytes."""


@pytest.mark.parametrize("attack", TRIED if FUZZ else TRIED[::2], ids=ATTACKS.index)
def test_the_elements_are_the_same_whatever_the_texts_say(document, attack):
    """A page with everything."""
    calm, hostile = (html.render_report_page(pages.attacked(document, text)) for text in (harmless(attack), attack))
    found = parsed(hostile)
    assert found.elements == parsed(calm).elements
    assert "evil.example" not in " ".join(found.addresses)
    inside = re.search(r'id="document">(.*?)</script>', hostile, re.S)[1]
    assert json.loads(inside) == json.loads(documents.format_json_document(pages.attacked(document, attack)))


@pytest.mark.parametrize("attack", TRIED, ids=ATTACKS.index)
def test_nodes_of_a_fleet_that_choose_their_names(attack):
    attack = attack.encode("utf-8", "backslashreplace").decode()
    calm, hostile = (
        html.render_report_page(pages.of_fleet(pages.hostile_fleet(text))) for text in (harmless(attack), attack)
    )
    assert parsed(hostile).elements == parsed(calm).elements
    nodes = json.loads(re.search(r'id="nodes">(.*?)</script>', hostile, re.S)[1])
    assert len(nodes["names"]) == len(nodes["set"])


@pytest.mark.parametrize("attack", TRIED, ids=ATTACKS.index)
def test_a_fragment_of_a_notebook(attack):
    one = json.loads(json.dumps(documents.report_json_fields(REPORTS["old_driver"]), default=str))
    calm, hostile = (html.render_report_fragment(pages.poisoned(one, text)) for text in (harmless(attack), attack))
    assert parsed(hostile).elements == parsed(calm).elements
