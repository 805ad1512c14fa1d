"""Write the pictures of the report for the docs: ``python tools/report_pictures.py``, with Chromium and Playwright at hand."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.browser import chromium, shot  # noqa: E402

from gpuready.render import html, report  # noqa: E402
from gpuready.workflow import report_data  # noqa: E402

OLD = {"driver": "550.144.03", "torch": "2.12.1+cu130", "shm": "64MiB"}
PAGES = {
    "report": (lambda: report_data.gather_report(["axolotl"], on="h100x8", what_if=OLD), 1730),
    "report-h200": (
        lambda: report_data.gather_report(
            ["transformers"], on=str(ROOT / "tests/machines/h200.json"), fit=["llama-3.1-8b"]
        ),
        1960,
    ),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as fresh:
        for name, (gather, height) in PAGES.items():
            page = Path(folder, f"{name}.html")
            page.write_text(html.render_report_page(report.report_document_fields(gather())))
            for scheme in ("light", "dark"):
                seen = fresh(viewport={"width": 1100, "height": 900}, color_scheme=scheme).open(page.as_uri())
                seen.clean()
                path = ROOT / "docs" / "images" / f"{name}-{scheme}.png"
                path.parent.mkdir(exist_ok=True)
                shot(seen, path, height=height)
                print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
