"""The screens, whole. ``pytest tests/render --update-golden`` writes them anew; read the difference."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from unicodedata import east_asian_width

import pytest

from gpuready.render import check_report
from gpuready.render.layout import Screen

from .machines import REPORTS

GOLDEN = Path(__file__).parent / "golden"
SCREENS = {
    "plain": Screen(),
    "colour": Screen(colour=True),
    "ascii": Screen(ascii=True),
    "wide": Screen(width=120),
    "narrow": Screen(width=60),
}
SGR = re.compile(r"\x1b\[[0-9;]*m")
CASES = [(name, kind) for name in REPORTS for kind in SCREENS]


def drawn(name: str, kind: str, verbose: bool = False) -> str:
    seconds = {"nvml": 0.016, "packages": 0.004} if verbose else None
    return check_report.render_check_screen(
        REPORTS[name], SCREENS[kind], elapsed=0.083, verbose=verbose, seconds=seconds
    )


def width(line: str) -> int:
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in line)


def is_one_command_word(line: str) -> bool:
    """A word of a command is never shortened, so it may be wider than the screen, alone on its line."""
    body = re.sub(r"^ *(\$ |[a-z ]+:  +)?", "", line).removesuffix(" \\")
    return len(shlex.split(body)) == 1


def check_against(golden: str, screen: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / golden
    shown = screen.replace("\x1b", "␛")
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown)
    assert shown == path.read_text(), f"{golden} differs; --update-golden writes it anew"


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_screen_is_the_golden_one(name, kind, request):
    check_against(f"{name}.{kind}.txt", drawn(name, kind), request)


@pytest.mark.parametrize("name", REPORTS)
def test_verbose_shows_all_the_evidence(name, request):
    check_against(f"{name}.verbose.txt", drawn(name, "plain", verbose=True), request)


def test_three_findings_are_at_most_24_lines():
    """Of the machines built by hand; tests/machines does the same for the golden ones."""
    for name, report in REPORTS.items():
        if len(report.findings) <= 3 and name != "hostile":
            assert drawn(name, "plain").count("\n") <= 24, name


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_leaves_the_screen_and_nothing_moves_the_cursor(name, kind, verbose):
    screen = SGR.sub("", drawn(name, kind, verbose))
    for line in screen.splitlines():
        assert width(line) <= SCREENS[kind].width or is_one_command_word(line), line
        assert line.isprintable(), line
        assert line == line.rstrip()
    assert screen.endswith("\n") and "\n\n\n" not in screen


@pytest.mark.parametrize("name", REPORTS)
def test_colour_adds_only_colour(name):
    painted = drawn(name, "colour")
    assert SGR.sub("", painted) == drawn(name, "plain")
    assert painted.count("\x1b[0m") * 2 == painted.count("\x1b["), "every colour is switched off again"


@pytest.mark.parametrize("name", REPORTS)
def test_ascii_is_ascii_where_the_machine_is(name):
    if name != "hostile":
        assert drawn(name, "ascii").isascii()


def test_the_example_of_the_design():
    lines = drawn("old_driver", "plain").splitlines()
    assert lines == [
        "not ready: 1 problem, 1 warning                 axolotl 0.18.0 on gpu-07, 8 GPUs",
        "  environment  Python 3.12, torch 2.12.1+cu130",
        "  machine      8x H100 80GB, driver 550.144.03, Ubuntu 22.04",
        "",
        "  1  the driver is older than the torch wheel needs                       DRV003",
        "         driver.version  550.144.03  needs >= 580",
        "         fix: install torch 2.12.1 built for cu126",
        "  2  /dev/shm is smaller than data loaders and NCCL need          warning SYS004",
        "         system.shm  64 MiB  needs >= 1 GiB",
        "         fix: start the container with a larger /dev/shm",
        "",
        "fix it:   gpuready fix axolotl",
        "details:  gpuready check axolotl -v",
    ]


def test_the_details_of_the_design():
    lines = drawn("old_driver", "plain", verbose=True).splitlines()
    assert lines[0] == "not ready: 1 problem, 1 warning                 axolotl 0.18.0 on gpu-07, 8 GPUs"
    for line in (
        "✓ gpu: 7 checks",
        "✗ driver: 1 error, 5 checks",
        "! system: 1 warning, 8 checks",
        "? proof: nothing executed yet: gpuready prove axolotl",
        "error[DRV003]: the driver is older than the torch wheel needs",
        "  found  driver.version    550.144.03   /sys/module/nvidia/version",
        "         torch.cuda        13.0         torch/version.py",
        "  needs  driver.version    >= 580       CUDA 13.0 release notes, table 2",
        "     so  torch.cuda.is_available() is False; nothing runs on these GPUs",
        "  judged by the catalogue of 2026-11-15",
    ):
        assert line in lines, line
    assert any(line.startswith("    fix  install torch 2.12.1") and line.endswith("asks first") for line in lines)
    assert any(line.startswith("     or  install driver 580") and line.endswith("needs root") for line in lines)
    assert any(line.startswith("1 error, 1 warning, 39 checks passed ") for line in lines)
