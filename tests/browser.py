"""A real browser for tests: Debian's Chromium, best its headless shell, driven by Playwright; every request that leaves the page is a failure.

``make test`` installs Chromium where it is missing and the user is root (``python -m tests.browser``), and with it the programs
that other tests drive. Where there is no browser all the same, the tests are skipped with a loud reason; with GPUREADY_BROWSER=required, as
in CI, they fail.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("fish", "zsh", "shellcheck", "podman", "runc")
PACKAGES = ("chromium-headless-shell", "chromium")
"""Debian's; the first draws the same pages in half the time, and older releases do not have it."""
NAMES = ("/usr/lib/chromium/chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--hide-scrollbars",
    "--force-color-profile=srgb", "--renderer-process-limit=1", "--disable-site-isolation-trials", "--in-process-gpu",
)  # fmt: skip


def found() -> str | None:
    """The browser of this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> str | None:
    """Install Debian's browser and programs where that can be done; the path of the browser that is there afterwards."""
    programs = [name for name in PROGRAMS if not shutil.which(name)]
    if (found() and not programs) or os.geteuid() != 0 or not shutil.which("apt-get"):
        return found()
    run_apt("update")
    for package in PACKAGES:
        wanted = [*([] if found() else [package, "fonts-dejavu-core"]), *(n for n in programs if not shutil.which(n))]
        if wanted:
            run_apt("install", "-y", "--no-install-recommends", *wanted)
    return found()


def run_apt(*words: str) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    subprocess.run([*apt, *words], env=quiet, stdout=subprocess.DEVNULL, check=False)


def missing(why: str) -> None:
    """Skip, loudly; in CI fail."""
    text = f"NO BROWSER TEST WAS RUN: {why}"
    if os.environ.get("GPUREADY_BROWSER") == "required":
        pytest.fail(text)
    print(text, file=sys.stderr)
    pytest.skip(text)


class Seen:
    """A page, and all that it asked for, said and threw."""

    def __init__(self, page: Any):
        self.page, self.requests, self.said, self.errors = page, [], [], []
        page.on("request", lambda one: self.requests.append(one.url))
        page.on("console", lambda one: self.said.append(f"{one.type}: {one.text}"))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: (self.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def open(self, address: str) -> Seen:
        """Go there. Of the requests only what is not the page itself stays noted."""
        self.page.goto(address, wait_until="load")
        return self

    @property
    def left(self) -> list[str]:
        """The requests that are not of the file itself and not its own download."""
        return [url for url in self.requests[1:] if not url.startswith(("blob:", "data:"))]

    def clean(self) -> None:
        """Nothing asked for, nothing said, nothing thrown."""
        assert self.left == []
        assert self.said == []
        assert self.errors == []


@contextlib.contextmanager
def chromium() -> Iterator[Callable[..., Seen]]:
    """A browser; call what comes for a new page in a context of its own (options are Playwright's)."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("the package playwright is not installed (pip install -e '.[test]')")
    path = found()
    if path is None:
        missing("there is no Chromium here: as root, apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, headless=True, args=list(FLAGS))
        contexts = []

        def fresh(**options: Any) -> Seen:
            contexts.append(browser.new_context(**options))
            return Seen(contexts[-1].new_page())

        try:
            yield fresh
        finally:
            for context in contexts:
                context.close()
            browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Callable[..., Seen]]:
    """One browser for a module of tests; each call is a fresh page."""
    with chromium() as fresh:
        yield fresh


def shot(seen: Seen, path: Path, *, height: int | None = None) -> None:
    """What is seen, as a picture: the whole page, or its upper part."""
    if height is None:
        seen.page.screenshot(path=str(path), full_page=True)
    else:
        size = seen.page.viewport_size
        seen.page.screenshot(
            path=str(path), clip={"x": 0, "y": 0, "width": size["width"], "height": height}, full_page=True
        )


if __name__ == "__main__":
    where = install()
    print(f"browser: {where or 'none; the tests that need one will be skipped'}")
