"""Measures of a page in a browser: nothing runs over, the header is small, no word is broken or cut."""

from __future__ import annotations

from typing import Any

WINDOWS = {390: 844, 1280: 900}
"""Width and height: a phone, and a desktop."""
MAX_HEADER_SHARE = 0.2
LAYOUT = """() => {
  const broken = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, box = node.parentElement;
    if (!box.checkVisibility() || box.closest('.aside, .skip, script, style')) continue;
    for (const word of node.data.matchAll(/[A-Za-z0-9]+/g)) {
      if (word[0].length > 24) continue;  // a digest is longer than a line
      const range = document.createRange();
      range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].filter(r => r.width > 0).map(r => Math.round(r.top)));
      if (lines.size > 1) broken.push(word[0] + ': ' + node.data.slice(0, 60));
    }
  }
  const header = document.querySelector('header').getBoundingClientRect().height / innerHeight;
  const whole = [...document.querySelectorAll('header a, header button, #map, .bar:not(svg *), .phase > svg, .drawing')].filter(one => one.checkVisibility());
  const cut = whole.filter(one => one.getBoundingClientRect().right > innerWidth).map(one => one.textContent.trim() || one.id);
  return {over: document.documentElement.scrollWidth - innerWidth, header, broken, cut};
}"""


def assert_layout(page: Any) -> None:
    """The page fits its window, its header is small, and no word of it is broken."""
    seen = page.evaluate(LAYOUT)
    assert seen["over"] <= 0
    assert seen["header"] <= MAX_HEADER_SHARE
    assert seen["broken"] == [], seen["broken"][:5]
    assert seen["cut"] == [], f"to be seen by scrolling only: {seen['cut'][:5]}"
