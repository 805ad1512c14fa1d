"""The what-if page in a real browser: choosing, the address, back, the keyboard, a proposal, a log, a recording."""

from __future__ import annotations

import json
import time

import pytest

from tests.faces import WINDOWS, assert_layout
from tests.web.served import TOKEN
from tests.web.test_answers import MACHINE

DONE = "#answer[aria-busy=false]"


@pytest.fixture(scope="module")
def seen(browser, server):
    """A page that has exchanged the token."""
    found = browser(viewport={"width": 1280, "height": 900})
    found.page.goto(f"{server.address}/?token={TOKEN}")
    found.page.wait_for_selector(DONE)
    return found


@pytest.fixture
def page(seen, server):
    """The page with nothing chosen; in the end nothing was said, thrown, or asked of another origin."""
    seen.page.goto(f"{server.address}/?framework=")
    seen.page.wait_for_selector(DONE)
    yield seen.page
    assert seen.errors == []
    assert [text for text in seen.said if "status of 400" not in text] == []  # the browser notes each refusal
    assert [url for url in seen.requests if not url.startswith((server.address, "data:", "blob:"))] == []


def until(page, expression: str) -> None:
    """Wait for it. Playwright's own way evaluates a string inside the page, which our policy forbids."""
    end = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


def settled(page) -> str:
    """The verdict when all parts are there."""
    until(page, "document.querySelector('#answer').ariaBusy === 'false' && !document.querySelector('.waits')")
    return page.inner_text("#verdict .said")


def choose(page, **fields) -> None:
    for name, value in fields.items():
        field = page.locator(f"[name={name.replace('_', '-')}]")
        if field.evaluate("one => one.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
            field.press("Tab")


def test_it_opens_with_an_example_that_is_answered(page, server):
    page.goto(server.address)
    page.wait_for_selector(DONE)
    assert settled(page) == "no problems found, fits"
    assert "null" not in page.inner_text("main")


def test_the_token_does_not_stay_in_the_address(seen):
    assert "token" not in seen.page.url
    assert seen.page.title().endswith("gpuready: what if?")


def test_choosing_changes_answer_and_address(page, server):
    choose(page, framework="axolotl", gpu="h100", count="8")
    assert settled(page) == "can't tell"
    assert page.url == f"{server.address}/?framework=axolotl&gpu=h100&count=8"
    assert "torch 2." in page.inner_text("#verdict")
    assert "XFORMERS_IGNORE_FLASH_VERSION_CHECK" in page.inner_text("#variables")
    assert "gpuready install axolotl" in page.inner_text("#commands")
    assert "gpuready run axolotl --nproc 8" in page.inner_text("#commands")
    choose(page, gpu="v100", driver="470.57.02")
    assert "not ready" in settled(page)
    assert "DRV001" in page.inner_text("#findings")


def test_the_address_gives_the_same_page_and_back_goes_back(page, server):
    page.goto(f"{server.address}/?framework=vllm&gpu=v100&count=4&zero=2")
    assert "not ready" in settled(page) or "impossible" in settled(page)
    assert page.input_value("[name=framework]") == "vllm" and page.input_value("[name=zero]") == "2"
    choose(page, gpu="h100")
    first = settled(page)
    choose(page, framework="trl")
    settled(page)
    page.go_back()
    until(page, "document.querySelector('[name=framework]').value === 'vllm'")
    assert settled(page) == first and "gpu=h100" in page.url
    page.go_back()
    until(page, "document.querySelector('[name=gpu]').value === 'v100'")
    page.go_forward()
    until(page, "document.querySelector('[name=gpu]').value === 'h100'")


def test_a_proposal_is_applied_with_one_click(page):
    choose(page, gpu="rtx4090", count="2", model="qwen2.5-0.5b", micro_batch="64")
    assert settled(page) == "does not fit"
    assert "GiB" in page.inner_text("#memory") and page.locator("#memory svg rect").count() > 3
    page.locator("#proposals .apply").first.click()
    until(page, "document.querySelector('#verdict .said').textContent === 'fits'")
    assert settled(page) == "fits"
    assert "model=qwen2.5-0.5b" in page.url and len(page.url.split("&")) > 4
    page.go_back()
    until(page, "document.querySelector('#verdict .said').textContent === 'does not fit'")


def test_an_older_release_is_planned_where_the_newest_does_not_fit(page, server):
    page.goto(f"{server.address}/?framework=vllm&gpu=v100")
    settled(page)
    assert "impossible" not in settled(page) and "vllm 0." in page.inner_text("body")  # an older release


def test_a_refusal_is_told_where_the_answer_stands(page):
    choose(page, framework="trl", gpu="h1000")
    assert settled(page) == "not understood"
    assert "no GPU of the catalogue" in page.inner_text("#verdict")


def test_markup_in_a_choice_stays_text(page, server):
    page.goto(server.address + "/?framework=trl&gpu=%3Cimg%20src=x%20onerror=alert(1)%3E&wants=%3Cb%3E")
    page.wait_for_selector(DONE)
    assert page.locator("main img, main b").count() == 0


def test_the_keyboard_is_enough(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "framework":
            break
    page.keyboard.type("trl")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.name") == "gpu":
            break
    page.keyboard.type("h100")
    page.keyboard.press("Tab")
    assert settled(page) == "can't tell"
    assert "framework=trl" in page.url and "gpu=h100" in page.url
    page.locator("#commands .copy").first.focus()
    page.keyboard.press("Enter")
    until(page, "['copied', 'selected'].includes(document.querySelector('#said').textContent)")
    page.locator("#file").focus()
    assert page.evaluate("document.activeElement.id") == "file"


def test_every_field_has_a_name_for_those_who_do_not_see(page):
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select')].filter(one => !one.labels.length).map(one => one.name)"
    )
    assert unnamed == []
    assert page.evaluate("document.querySelectorAll('h1').length") == 1


def test_a_log_that_is_dropped_is_diagnosed(page):
    log = "step 3\\ntorch.OutOfMemoryError: CUDA out of memory. <img src=x onerror=alert(1)>\\n"
    page.evaluate(
        f"""() => {{ const box = new DataTransfer(); box.items.add(new File(["{log}"], "train.log"));
        document.querySelector("#drop").dispatchEvent(new DragEvent("drop", {{ dataTransfer: box, bubbles: true, cancelable: true }})); }}"""
    )
    page.wait_for_selector("#told .finding")
    assert "MEM001" in page.inner_text("#told") and page.locator("#told img").count() == 0


def test_a_recording_that_is_chosen_gives_its_report(page, server):
    document = json.loads(MACHINE.read_text())
    document["host"] = "<script>document.title='gone'</script>"
    page.set_input_files(
        "#file", {"name": "m.json", "mimeType": "application/json", "buffer": json.dumps(document).encode()}
    )
    page.wait_for_selector("#told a")
    with page.context.expect_page() as opened:
        page.locator("#told a").first.click()
    report = opened.value
    report.wait_for_selector("#main")
    assert report.url.startswith(f"{server.address}/report/") and "gpuready report" in report.title()
    assert report.evaluate("document.querySelector('.verdict') && getComputedStyle(document.body).margin") == "0px"


def test_light_and_dark(page):
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_the_layout_on_a_phone_and_on_a_desktop(browser, server):
    """With findings, a plan, and the memory of a job that does not fit."""
    page = browser(viewport={"width": 390, "height": WINDOWS[390]}).page
    page.goto(
        f"{server.address}/?token={TOKEN}&framework=trl&gpu=rtx4090&count=2&model=qwen2.5-0.5b&micro-batch=64&torch=2.11.0%2Bcu130&driver=525.60.13"
    )
    page.wait_for_selector(DONE)
    settled(page)
    assert "DRV001" in page.inner_text("#findings") and page.locator("#proposals .apply").count()
    for width, height in WINDOWS.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert_layout(page)
