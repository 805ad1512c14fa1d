"""A finding on the screen: found, needs, so, fix."""

from __future__ import annotations

import shlex

import pytest

from gpuready.model import NOT_STATED, Fact, Finding, FixStep, Requirement
from gpuready.model.contract import describe_want
from gpuready.render.finding import describe_safety, format_finding, lowercase_opener
from gpuready.render.layout import Screen


def shown(width: int = 80, **fields) -> list[str]:
    return format_finding(Finding("DRV001", "error", "it is wrong", **fields), Screen(width))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (">=580", ">= 580"),
        (">=2.2.0,<=2.5.1", ">= 2.2.0, <= 2.5.1"),
        ("==2.6.0|==2.8.0", "2.6.0 or 2.8.0"),
        ("==2.6.0", "== 2.6.0"),
        (">=2,<3|==4", ">= 2, < 3 or == 4"),
        ("~=1.4", "~= 1.4"),
        (">=16GB", ">= 16 GB"),
        (">=1GiB", ">= 1 GiB"),
        ("linux|wsl", "linux or wsl"),
        ("true", "true"),
        ("*", "present"),
        ("", ""),
    ],
)
def test_a_want_in_words(written, said):
    assert describe_want(written) == said


def test_a_want_cannot_move_the_cursor():
    assert "\\x1b[2J" in "".join(shown(needs=(Requirement("a", "\x1b[2J"),)))


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (FixStep("x", safety="safe", note="n"), "safe"),
        (FixStep("x", safety="ask", note="n"), "asks first"),
        (FixStep("x", safety="manual", note="needs root"), "needs root"),
        (FixStep("x", safety="manual"), "by hand"),
    ],
)
def test_how_a_step_is_taken(step, word):
    assert describe_safety(step) == word


def test_found_says_unknown_absent_and_not_given_apart():
    lines = shown(
        found=(
            Fact("a.unknown", None, "nvml", gap="it hung"),
            Fact("a.absent", None, "/usr/bin"),
            Fact("a.open", None, gap=NOT_STATED),
        )
    )
    assert lines[1].split() == ["found", "a.unknown", "unknown", "it", "hung"]
    assert lines[2].split() == ["a.absent", "absent", "/usr/bin"]
    assert lines[3].split() == ["a.open", "not", "given"]


def test_found_and_needs_share_their_columns():
    lines = shown(
        found=(Fact("gpu.memory", (25757220864,) * 2, "NVML"),),
        needs=(Requirement("gpu.memory", ">=80GB", cite="the README"),),
    )
    assert lines[1].index("2 x 24 GiB") == lines[2].index(">= 80 GB")
    assert lines[1].index("NVML") == lines[2].index("the README")


def test_a_need_says_when_it_applies():
    assert shown(needs=(Requirement("a.b", "true", when="wants=fp8", cite="doc"),))[1].endswith("doc; when wants=fp8")
    alone = shown(needs=(Requirement("a.b", "true", when="wants=fp8|fp4,gpus>1"),))[1]
    assert alone.endswith("  when wants=fp8 or fp4, gpus>1")


def test_only_what_is_there_is_drawn():
    assert shown() == ["error[DRV001]: it is wrong"]


def test_long_text_wraps_under_itself():
    lines = shown(so="word " * 40, width=60)
    assert len(lines) > 3 and all(len(line) <= 60 for line in lines)
    assert all(line.startswith(" " * 9 + "word") for line in lines[2:])


def test_a_long_note_does_not_squeeze_the_step():
    lines = shown(fix=(FixStep("install the driver", note="needs root, a reboot and the consent of all the others"),))
    assert lines[1].startswith("    fix  install the driver") and lines[2].endswith("all the others")


def test_a_long_source_keeps_its_end():
    path = "/home/someone/" + "very/" * 30 + "torch/version.py"
    line = shown(found=(Fact("torch.cuda", "13.0", path),))[1]
    assert len(line) == 80 and line.endswith("/torch/version.py") and "…" in line


def test_a_command_can_be_pasted():
    words = ("pip", "install", "--index-url", "https://example.org/cu126", "torch==2.12.1", "it's; rm -rf", "")
    lines = Screen(60).format_command(words, 9)
    assert lines[0].startswith("         $ pip install") and all(line.startswith(" " * 11) for line in lines[1:])
    assert all(line.endswith(" \\") for line in lines[:-1]) and all(len(line) <= 60 for line in lines)
    assert tuple(shlex.split("\n".join(lines).replace("$ ", "", 1).replace("\\\n", ""))) == words


def test_a_path_in_a_command_is_never_shortened():
    path = "/home/someone/" + "very/" * 30 + "bin/python"
    lines = Screen(60).format_command(("uv", "pip", "install", "--python", path, "torch"), 2)
    assert lines[1] == f"    {path} \\" and "…" not in "".join(lines)


@pytest.mark.parametrize(
    ("title", "inside"),
    [
        ("The driver is old", "the driver is old"),
        ("A wheel is missing", "a wheel is missing"),
        ("NCCL is old", "NCCL is old"),
        ("Python is old", "Python is old"),
        ("There", "there"),
        ("", ""),
    ],
)
def test_a_title_inside_a_sentence(title, inside):
    assert lowercase_opener(title) == inside
