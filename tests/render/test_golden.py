"""The screens, whole. ``pytest tests/render --update-golden`` writes them anew; read the difference."""

from __future__ import annotations

import re
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
    "wide": Screen(width=100),
    "narrow": Screen(width=48),
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


def held_to(golden: str, screen: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / golden
    shown = screen.replace("\x1b", "␛")
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown)
    assert shown == path.read_text(), f"{golden} differs; --update-golden writes it anew"


@pytest.mark.parametrize(("name", "kind"), [c for c in CASES if c[1] in ("plain", "colour", "ascii")])
def test_the_screen_is_the_golden_one(name, kind, request):
    held_to(f"{name}.{kind}.txt", drawn(name, kind), request)


def test_verbose_shows_the_evidence_of_what_holds(request):
    held_to("clear_h200.verbose.txt", drawn("clear_h200", "plain", verbose=True), request)


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_leaves_the_screen_and_nothing_moves_the_cursor(name, kind, verbose):
    screen = SGR.sub("", drawn(name, kind, verbose))
    for line in screen.splitlines():
        assert width(line) <= SCREENS[kind].width, line
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
    assert lines[0] == "axolotl 0.18.0 on gpu-07                             8 x H100 80GB, Ubuntu 22.04"
    for line in (
        "  ✓ gpu        capability 9.0, 640 GB, NVLink, no MIG                    7 rules",
        "  ✗ driver     550.144.03                                       1 error, 5 rules",
        "  ✓ packages   Python 3.12, torch 2.12.1+cu130, transformers 5.14.1      9 rules",
        "  ! system     docker, /dev/shm 64 MiB, 2.0 TB RAM            1 warning, 8 rules",
        "  ? proof      nothing executed yet                       gpuready prove axolotl",
        "error[DRV003]: the driver is older than the torch wheel needs",
        "  found  driver.version    550.144.03   /sys/module/nvidia/version",
        "         torch.cuda        13.0         torch/version.py",
        "  needs  driver.version    >= 580       CUDA 13.0 release notes, table 2",
        "     so  torch.cuda.is_available() is False; nothing runs on these GPUs",
        "  gpuready explain DRV003    the long story",
    ):
        assert line in lines, line
    assert any(line.startswith("    fix  install torch 2.12.1") and line.endswith("asks first") for line in lines)
    assert any(line.startswith("     or  install driver 580") and line.endswith("needs root") for line in lines)
    assert any(line.startswith("not ready: 1 error, 1 warning, 39 rules hold, 0 undecided ") for line in lines)


def test_the_screen_names_only_commands_that_exist():
    from gpuready.commands import COMMAND_MODULES

    for path in GOLDEN.glob("*.txt"):
        for named in re.findall(r"^  gpuready (\w+)", path.read_text(), flags=re.M):
            assert named in {name.split()[0] for name in COMMAND_MODULES}, (
                f"{path.name} sends the reader to `gpuready {named}`"
            )
