"""A terminal screen as SVG, from what a real run prints: no screenshot tool, no font that is not there.

python tools/terminal_svg.py            write docs/images/check.svg
python tools/terminal_svg.py --check    exit 1 when it is stale
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools")]

import generated  # noqa: E402

PICTURES = {
    ROOT / "docs" / "images" / "check.svg": (
        "gpuready check transformers",
        "check transformers --on tests/machines/old-driver.json --color always",
    )
}
COLOURS = {
    "31": "#ff7b72", "32": "#56d364", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea", "90": "#8b949e",
    "91": "#ff7b72", "92": "#56d364", "93": "#e3b341", "94": "#79c0ff",
}  # fmt: skip
CODE = re.compile(r"\x1b\[([0-9;]*)m")
WIDE, HIGH, EDGE = 8.4, 19, 16


def screen(arguments: str) -> str:
    """What the command prints, with its colours; the seconds at the end of a line differ from run to run."""
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent", "GPUREADY_HOSTNAME": "here"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", "from gpuready.cli import main; main()", *shlex.split(arguments)],
        capture_output=True, cwd=ROOT, env=environment, check=False,
    )  # fmt: skip
    text = done.stdout.decode()
    return "\n".join(
        re.sub(r" +(?:\x1b\[[0-9;]*m)*\d+\.\d+ ?s(?:\x1b\[[0-9;]*m)*$", "", line) for line in text.splitlines()
    )


def svg(prompt: str, text: str) -> str:
    lines = [f"\x1b[90m$\x1b[0m {prompt}", *text.splitlines()]
    columns = max(80, *(len(CODE.sub("", line)) for line in lines))
    width, height = columns * WIDE + 2 * EDGE, len(lines) * HIGH + 2 * EDGE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14">'
    )
    body = [
        head,
        f"<title>{escape(prompt)}</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#0d1117"/>',
    ]
    for row, line in enumerate(lines):
        body += spans(line, EDGE + row * HIGH + 14)
    return "\n".join([*body, "</svg>"]) + "\n"


def spans(line: str, y: float) -> list[str]:
    """One line as pieces of one colour, each at its own column: no font decides where it stands."""
    found, column, style = [], 0, ("#e6edf3", "")
    for i, piece in enumerate(CODE.split(line)):
        if i % 2:
            style = painted(piece, style)
            continue
        for match in re.finditer(r"\S(?:.*?\S)?(?=  |\s*$)", piece):
            x = EDGE + (column + match.start()) * WIDE
            length = len(match[0]) * WIDE
            found.append(
                f'<text x="{x:.1f}" y="{y:.0f}" fill="{style[0]}"{style[1]} textLength="{length:.1f}" '
                f'xml:space="preserve">{escape(match[0])}</text>'
            )
        column += len(piece)
    return found


def painted(codes: str, style: tuple[str, str]) -> tuple[str, str]:
    colour, weight = style
    for code in codes.split(";"):
        if code in ("", "0"):
            colour, weight = "#e6edf3", ""
        elif code == "1":
            weight = ' font-weight="bold"'
        elif code == "2":
            colour = "#8b949e"
        elif code in COLOURS:
            colour = COLOURS[code]
    return colour, weight


def made() -> dict[Path, str]:
    return {path: svg(prompt, screen(arguments)) for path, (prompt, arguments) in PICTURES.items()}


def stale() -> list[Path]:
    return generated.stale(made())


if __name__ == "__main__":
    generated.settle(made())
