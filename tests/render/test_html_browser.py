"""The page in a real browser: it opens from disk, asks for nothing, works by keyboard, prints, and runs no text."""

from __future__ import annotations

import json

import pytest

from gpuready.render import html
from gpuready.render import json_document as documents
from tests.browser import browser as browser
from tests.faces import WINDOWS, assert_layout
from tests.sampling import FUZZ

from . import pages
from .attacks import ATTACKS

SIZE = {"width": 1180, "height": 900}


@pytest.fixture(scope="module")
def document():
    return pages.whole()


@pytest.fixture(scope="module")
def files(tmp_path_factory, document):
    """The pages as files, by name."""
    folder = tmp_path_factory.mktemp("pages")
    made = {"whole": document, "fleet": pages.of_fleet(pages.fleet(1024))}
    for name, one in made.items():
        (folder / f"{name}.html").write_text(html.render_report_page(one))
    return folder


@pytest.fixture
def whole(browser, files):
    seen = browser(
        viewport=SIZE, offline=True, permissions=["clipboard-read", "clipboard-write"], accept_downloads=True
    )
    yield seen.open((files / "whole.html").as_uri())
    seen.clean()


@pytest.fixture
def fleet(browser, files):
    seen = browser(viewport=SIZE, offline=True)
    yield seen.open((files / "fleet.html").as_uri())
    seen.clean()


def test_it_opens_from_disk_without_a_word_or_a_request(whole, document):
    assert "not ready" in whole.page.title()
    assert whole.page.locator("h1").inner_text().startswith("not ready")
    assert whole.page.locator(".memory .phase").count() >= 3 and whole.page.locator("meter").count() == 2
    assert whole.page.locator(".drawing .card").count() >= 8
    card = whole.page.locator("section.verdict").inner_text()
    assert 0 < card.index("fix:") < card.index("H100 80GB"), "why it is not ready, with the fix, before the machine"


def test_without_a_script_it_still_tells_everything(browser, files):
    seen = browser(viewport=SIZE, java_script_enabled=False).open((files / "whole.html").as_uri())
    assert seen.page.locator("text=the driver is older than the torch wheel needs").first.is_visible()
    assert not seen.page.locator("#filter").is_visible() and seen.page.locator("#facts-rows tr").first.is_visible()
    assert seen.left == [] and seen.errors == []


def test_the_search_by_keyboard(whole):
    page = whole.page
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.type("nccl debug")
    rows = page.locator("#facts-rows tr:visible")
    assert rows.count() == 1 and "NCCL_DEBUG" in rows.first.inner_text()
    assert page.locator("#shown").inner_text().startswith("1 of ")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "group"
    page.locator("#filter").fill("")
    page.locator("#group").select_option("packages")
    assert set(page.locator("#facts-rows tr:visible td:first-child").all_inner_texts()) == {"packages"}
    page.locator("#filter").fill("no such thing <b>")
    assert rows.count() == 0 and page.locator("#shown").inner_text().startswith("0 of ")


def test_the_first_tab_leads_past_the_head_and_every_control_is_reached(whole):
    page = whole.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    wanted = page.evaluate(
        "() => [...document.querySelectorAll('button, input, select, summary, a[href]')].filter(e => e.offsetParent).length"
    )
    reached = set()
    for _ in range(3 * wanted):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("() => [...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        if len(reached) >= wanted:
            break
    assert len(reached) >= wanted


def test_copy_puts_the_command_into_the_clipboard(whole):
    page = whole.page
    button = page.locator(".finding button.copy").first
    wanted = page.locator(".finding .run code").first.inner_text()
    button.focus()
    page.keyboard.press("Enter")
    page.locator(
        ".finding button.copy", has_text="copied"
    ).first.wait_for()  # the page forbids the eval of wait_for_function
    assert (
        page.evaluate("navigator.clipboard.readText()")
        == wanted
        == "docker run --shm-size 16g --gpus all 'an image with spaces' bash"
    )
    assert page.locator("#said").inner_text() == "copied"


def test_the_theme_follows_the_system_until_it_is_chosen(whole):
    page, ground = whole.page, "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert light != dark
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(ground) == light and page.locator("#theme").inner_text() == "theme: light"
    page.keyboard.press("Enter")
    page.emulate_media(color_scheme="light")
    assert page.evaluate(ground) == dark and "dark" in page.locator("#theme").get_attribute("aria-label")


def test_the_download_is_the_json_of_the_command_byte_for_byte(whole, document):
    with whole.page.expect_download() as waiting:
        whole.page.locator("#download").click()
    assert waiting.value.suggested_filename == "gpuready-report.json"
    assert waiting.value.path().read_text() == documents.format_json_document(document)
    assert json.loads(waiting.value.path().read_text())["kind"] == "report"


def test_it_prints_light_and_whole(whole):
    page = whole.page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".top").is_visible() and not page.locator("button.copy").first.is_visible()
    assert page.evaluate(
        "document.querySelector('.scroll.tall').scrollHeight <= document.querySelector('.scroll.tall').clientHeight + 2"
    )
    assert page.pdf().count(b"/Type /Page\n") >= 2
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", ["whole", "fleet"])
def test_the_layout_on_a_phone_and_on_a_desktop(browser, files, name):
    """In a window that is 360 wide, and as it grows; on a phone and on a desktop in both colours with everything open."""
    page = browser(viewport={"width": 360, "height": 800}).open((files / f"{name}.html").as_uri()).page
    for width in (360, 768, 1600):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    for width, height in WINDOWS.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert_layout(page)


def test_a_word_that_breaks_is_found(browser, files):
    seen = browser(viewport={"width": 390, "height": 844}).open((files / "fleet.html").as_uri())
    seen.page.evaluate("document.querySelector('h2').style.cssText = 'width:3ch;overflow-wrap:anywhere'")
    with pytest.raises(AssertionError):
        assert_layout(seen.page)


CONTRAST = """() => {
  const rgb = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const light = ([r, g, b]) => { const f = [r, g, b].map(c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3]) return c; } return [255,255,255,1]; };
  const poor = [];
  for (const details of document.querySelectorAll('details')) details.open = true;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.getClientRects().length || e.closest('script, style, .aside, title')) continue;
    const style = getComputedStyle(e), svg = e.closest('svg');
    const part = e.closest('.part');
    const under = part ? rgb(getComputedStyle(part.querySelector('rect')).fill) : ground(e);
    const found = ratio(rgb(svg ? style.fill : style.color), under);
    if (found < 4.5) poor.push([found.toFixed(2), e.className.baseVal ?? e.className, walk.currentNode.data.trim().slice(0, 30)]);
  }
  return poor;
}"""


@pytest.mark.parametrize("name", ["whole", "fleet"])
def test_every_text_can_be_read(browser, files, name):
    page = browser(viewport=SIZE).open((files / f"{name}.html").as_uri()).page
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == []


ACCESSIBLE = """() => {
  const wrong = [], all = (s) => [...document.querySelectorAll(s)];
  for (const s of ['header', 'main', 'nav[aria-label]', 'footer', 'h1']) if (all(s).length !== 1) wrong.push('one ' + s);
  let level = 0;
  for (const h of all('h1, h2, h3, h4')) { const n = Number(h.tagName[1]); if (n > level + 1) wrong.push('skips to ' + h.textContent.trim().slice(0, 40)); level = n; }
  for (const e of all('input, select')) if (!e.labels.length) wrong.push('no label ' + e.id);
  for (const e of all('button')) if (!(e.getAttribute('aria-label') || e.textContent).trim()) wrong.push('no name');
  for (const e of all('svg')) if (e.getAttribute('aria-hidden') !== 'true' && !(e.getAttribute('role') === 'img' && (e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')))) wrong.push('svg ' + e.getAttribute('class'));
  for (const e of all('[aria-labelledby], [aria-describedby], [aria-controls]')) for (const a of ['aria-labelledby', 'aria-describedby', 'aria-controls']) for (const id of (e.getAttribute(a) || '').split(/\\s+/).filter(Boolean)) if (!document.getElementById(id)) wrong.push(a + ' ' + id);
  for (const e of all('table')) if (!e.querySelector('th[scope]')) wrong.push('table without heads');
  for (const e of all('.sign')) if (!e.textContent.trim()) wrong.push('a sign without a word');
  for (const e of all('section')) if (!document.getElementById(e.getAttribute('aria-labelledby'))) wrong.push('section without a name');
  return wrong;
}"""


def test_landmarks_headings_names_and_labels(whole, fleet):
    assert whole.page.evaluate(ACCESSIBLE) == []
    assert fleet.page.evaluate(ACCESSIBLE) == []


def test_a_thousand_nodes_are_found_drawn_and_pointed_at(fleet):
    page = fleet.page
    page.locator("#node").fill("n00011")
    assert "driver.version 550.54.15" in page.locator("#node-says").inner_text()
    assert page.locator("#map .here").count() == 1
    page.locator("#node").fill("nobody")
    assert page.locator("#node-says").inner_text() == "no such node"
    page.locator("#column").select_option(label="driver.version")
    drawn = {one.get_attribute("class"): one.get_attribute("d").count("M") for one in page.locator("#map path").all()}
    assert drawn == {"node ok": 1018, "node differs": 6}
    page.locator("#map").hover(position={"x": 14 * 10 + 5, "y": 5})
    assert page.locator("#node-says").inner_text().startswith("n00011: ")


ELEMENTS = """() => [...document.querySelectorAll('*:not(svg title, wbr)')]
  .map(e => e.tagName + [...e.attributes].map(a => a.name).sort()).join()"""
# A text of a drawing that was cut has a title: that goes by length alone. A wbr stands after a separator of a text.


def test_no_text_is_run_or_becomes_an_element(browser, tmp_path):
    """Attacks at every place, many in one text and some alone: the same elements, nothing run, nothing asked for.

    Each alone is what test_html_hostile reads with a parser. FUZZ=1 joins fewer, and has more of them alone.
    """
    joined, alone = (8, 12) if FUZZ else (26, 52)
    whole = pages.whole()
    document = {**whole, "reports": whole["reports"][:1], "plan": None, "bench": None, "fit": None}
    seen = browser(viewport=SIZE)
    seen.page.expose_function("owned", lambda *_: seen.errors.append("owned"))
    path = tmp_path / "page.html"

    def elements(page: str) -> str:
        path.write_text(page, encoding="utf-8")
        seen.page.goto(path.as_uri(), wait_until="load")
        found: str = seen.page.evaluate(ELEMENTS)
        return found

    calm = elements(html.render_report_page(pages.attacked(document, "x" * 40)))
    groups = [" ".join(ATTACKS[i : i + joined]) for i in range(0, len(ATTACKS), joined)]
    for attack in [*groups, *ATTACKS[::alone]]:
        assert elements(html.render_report_page(pages.attacked(document, attack))) == calm, attack
        assert seen.errors == [], attack
    quiet = elements(html.render_report_page(pages.of_fleet(pages.hostile_fleet("x" * 40))))
    for attack in ATTACKS[::alone]:
        assert elements(html.render_report_page(pages.of_fleet(pages.hostile_fleet(attack)))) == quiet, attack
        seen.page.locator("#node").fill("n")
        seen.page.locator("#column").select_option("2")
        assert seen.errors == [], attack
    assert [url for url in seen.requests if not url.startswith("file:")] == []
    assert seen.said == []
