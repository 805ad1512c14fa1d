"""Write the pictures of the pages for the docs: ``python tools/report_pictures.py``, with Chromium and Playwright at hand.

Report, fleet page and what-if page, on a phone and on a desktop, light and dark.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.browser import chromium, shot  # noqa: E402
from tests.faces import WINDOWS, assert_layout  # noqa: E402
from tests.render import pages  # noqa: E402
from tests.web.served import TOKEN, serving  # noqa: E402

from gpuready.render import html, report  # noqa: E402
from gpuready.workflow import report_data  # noqa: E402

OLD = {"driver": "550.144.03", "torch": "2.12.1+cu130", "shm": "64MiB"}
WHAT_IF = "framework=axolotl&gpu=rtx4090&model=qwen2.5-7b"
DONE = "#answer[aria-busy=false]"
READY = "!document.querySelector('.waits') && document.querySelector('#answer').ariaBusy === 'false'"


def write_pages(folder: Path) -> Iterator[tuple[str, str]]:
    """The name and the address of each page that is a file."""
    old = report_data.gather_report(["axolotl"], on="h100x8", what_if=OLD)
    documents = {"report": report.report_document_fields(old), "fleet": pages.of_fleet(pages.fleet(64))}
    for name, document in documents.items():
        path = folder / f"{name}.html"
        path.write_text(html.render_report_page(document), encoding="utf-8")
        yield name, path.as_uri()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as fresh, serving() as server:
        addresses = dict(write_pages(Path(folder)))
        addresses["whatif"] = f"{server.address}/?token={TOKEN}&{WHAT_IF}"
        for name, address in addresses.items():
            for width, height in WINDOWS.items():
                for scheme in ("light", "dark"):
                    seen = fresh(viewport={"width": width, "height": height}, color_scheme=scheme).open(address)
                    if name == "whatif":
                        seen.page.wait_for_selector(DONE)
                    while name == "whatif" and not seen.page.evaluate(READY):
                        seen.page.wait_for_timeout(50)
                    assert_layout(seen.page)
                    path = ROOT / "docs" / "images" / f"{name}-{width}-{scheme}.png"
                    shot(seen, path, height=height * (2 if width < 500 else 1))
                    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
