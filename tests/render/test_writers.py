"""One escaping for every writer: no text of a machine, a log or a peer reaches a reader with what he cannot see in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gpuready
from gpuready.apply.bundle import _format_readme
from gpuready.commands import load_command
from gpuready.model import Contract, Facts, Report
from gpuready.model.plan import Plan
from gpuready.model.visible_text import escape_lines, escape_unprintable, is_visible
from gpuready.render import env, html, junit, sarif
from gpuready.render.contract import _quote
from gpuready.render.files import quoting
from gpuready.rollcall import endpoint
from tests.running import call_gpuready

SOURCE = Path(gpuready.__file__).parent
MACHINE = json.loads((Path(__file__).parents[1] / "machines" / "old-driver.json").read_text())

IGNORABLE = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E),
    (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Default_Ignorable_Code_Point, DerivedCoreProperties.txt of Unicode 16: what is drawn as nothing."""
HIDDEN = (
    "\ufe0f\x1b\u3164\U000e0041\x00\x07\x08\x0b\x0c\x1b\x7f\x80\x85\x9b\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u180b\u180e\u200b\u200d\u200e\u202a\u202e\u2028\u2029\u2060\u2066\u2069"
    "\u2800\u3164\ufe00\ufe0f\ufeff\uffa0\ufffb\ufffc\ufffe\uffff\ue000\U0001d159\U0001d173\U000e0001\U000e0041\U000e007f\U000e0100\U000f0000\U0010ffff"
)  # fmt: skip
HOSTILE = f"a{HIDDEN}b<b>'\"&]]>`|\\z"


def unseen(text: str, kept: str = "\n") -> set[str]:
    """What of a text a reader could not see."""
    return {hex(ord(char)) for char in set(text) - set(kept) if not is_visible(char)}


def test_what_unicode_calls_ignorable_is_not_visible():
    assert not [hex(code) for first, last in IGNORABLE for code in range(first, last + 1) if is_visible(chr(code))]
    assert not [char for char in HIDDEN if is_visible(char)] and not is_visible("\ud800") and not is_visible("\udc80")
    assert all(map(is_visible, "aZ09 é ü 漢字 かな 한글 ✓ … × → “ ” 🙂 ́"))


def test_controls_formats_and_surrogates_are_not_visible():
    """Every character of the categories Cc, Cf, Cs, Co and Cn of the planes that are in use."""
    import unicodedata

    codes = [*range(0x30000), *range(0xE0000, 0xE0200)]
    seen = [hex(c) for c in codes if unicodedata.category(chr(c))[0] == "C" and is_visible(chr(c))]
    assert not seen, seen[:20]


def test_it_is_done_once():
    shown = escape_unprintable(HOSTILE + "\udc80\ud800\n")
    assert not unseen(shown, "") and escape_unprintable(shown) == shown and "\\x80\\ud800\\n" in shown
    assert escape_lines("a\n\x1bb") == "a\n\\x1bb"


# -- every writer


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Path:
    """A stranger's recording: sources, gaps, names and free values of facts are hostile."""
    whole = json.loads(json.dumps(MACHINE))
    for fact in whole["facts"]:
        fact["source"] += HOSTILE
        fact["gap"] = fact["gap"] + HOSTILE if fact.get("gap") else ""
        if isinstance(fact["value"], str) and fact["key"].startswith(("env.", "host", "gpu.name", "system.")):
            fact["value"] += HOSTILE
    whole["facts"] += [
        {"key": f"env.NCCL_{n}", "value": HOSTILE, "source": HOSTILE, "how": "read", "gap": ""} for n in range(2)
    ]
    whole["host"] = f"node{HOSTILE}"
    path = tmp_path_factory.mktemp("hostile") / "machine.json"
    path.write_text(json.dumps(whole))
    return path


def formats(command: str) -> list[list[str]]:
    """Every form in which a command answers, as it declares them: a new one is tried without a word here."""
    found = [["--json"], ["-o", "-"] if command == "report" else []]
    for one in load_command(command).parameters.values():
        if one.name in ("format", "shell"):
            found += [[f"--{one.name}", choice] for choice in one.choices if choice not in ("text", "json", "bash")]
    return found


ASKED = {
    "check": ["check", "--on", "{machine}", "-v"], "probe": ["probe", "--on", "{machine}"], "env": ["env", "vllm", "--on", "{machine}"], "report": ["report", "--on", "{machine}"],
    "diagnose": ["diagnose", "{log}"], "plan": ["plan", "vllm", "--on", "{machine}", "--no-resolve"], "diff": ["diff", "{machine}", "{machine}"], "fit": ["fit", "Qwen/Qwen2.5-7B", "--on", "{machine}"],
}  # fmt: skip


SHOWN = ("check", "probe", "diagnose", "report")
"""Commands whose answers have free text of the machine or the log in every form."""


@pytest.mark.parametrize(
    ("command", "form"),
    [(c, f) for c in ASKED for f in formats(c)],
    ids=lambda v: "_".join(v) if isinstance(v, list) else v,
)
def test_no_answer_of_a_command_has_what_cannot_be_seen(command, form, machine, tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        f'[rank0]: starting {HOSTILE}\nTraceback (most recent call last):\n  File "/x{HOSTILE}.py", line 1\nRuntimeError: CUDA error: out of memory {HOSTILE}\n',
        "utf-8",
    )
    words = [word.format(machine=machine, log=log) for word in ASKED[command]]
    ran = call_gpuready(*words, *form)
    assert "Traceback" not in ran.err
    answers = [ran.out, ran.err]
    if "sarif" in form:
        answers += [result["message"]["text"] for result in json.loads(ran.out)["runs"][0]["results"]]
    if "junit" in form:
        ElementTree.fromstring(ran.out)
    assert not set().union(*map(unseen, answers)), answers
    assert command not in SHOWN or "\\ufe0f" in ran.out, "the attack is in the answer, and can be seen"


def test_the_quoting_of_each_format_comes_after_it():
    told = junit.render_junit_xml([Report(Contract(HOSTILE, "1"), Facts([]))])
    assert not unseen(told) and ElementTree.fromstring(told)[0].get("name") == escape_unprintable(f"{HOSTILE} 1")
    assert not unseen(html.preformatted_html(HOSTILE)) and "<b>" not in html.preformatted_html(HOSTILE)
    assert (
        not unseen(_quote(HOSTILE)) and not quoting.is_single_line("a\ufe0f") and not quoting.is_single_line("a\u3164")
    )
    for shell in (env.bash_export_line, env.fish_set_line, env.systemd_env_line):
        assert not unseen(shell("A", HOSTILE.replace("\0", "")))
    with pytest.raises(ValueError, match="unseen"):
        env.docker_env_line("A", "x\ufe0f")
    assert not unseen(endpoint.quote_peer(HOSTILE, 200)) and not unseen(endpoint.quote_peer("plain\ufe0f"))
    plan = Plan("vllm", "0.1", HOSTILE, "3.12")
    assert not unseen(_format_readme(plan, HOSTILE, [HOSTILE]))
    assert not unseen(sarif.render_sarif([], {}))


OWN = {"model/visible_text.py", "web/query_parser.py", "commands/mcp.py", "plan/lock.py"}
"""The one function, and readers that refuse instead of showing."""


def test_there_is_no_second_escaping():
    """A writer that decides for itself what can be seen, or writes JSON with what cannot, fails here."""
    own = re.compile(r"\.isprintable\(\)|repr\([^\n]*\)\[1:-1\]|unicodedata|category\(")
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "/data/" not in str(path) and own.search(path.read_text())
    }
    assert found - OWN == {"render/layout.py"}, "layout.py asks for widths only"
    raw = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if "ensure_ascii=False" in path.read_text()
    }
    assert raw == {
        "render/contract.py",
        "render/files/compose.py",
        "render/files/kubernetes.py",
        "render/files/quoting.py",
    }, "their values are visible already"


def test_every_module_that_writes_markup_uses_it():
    """Whoever escapes markup makes the text visible in the same module, or gives our own text alone."""
    markup = re.compile(r"\bhtml\.escape|from html import escape|markupsafe|xml\.sax|ElementTree import .*tostring")
    users = {
        path.relative_to(SOURCE).as_posix(): path.read_text()
        for path in SOURCE.rglob("*.py")
        if "data" not in path.parts and markup.search(path.read_text())
    }
    without = {name for name, text in users.items() if "visible_text" not in text}
    assert without == {"system/listener.py"}, "it writes the address of gpuready serve alone"
    assert {"render/junit.py", "render/html/__init__.py", "render/html/template_engine.py"} <= set(users)


def test_the_formats_are_those_that_commands_declare():
    declared = {name for name in ASKED if formats(name)}
    assert (
        declared == set(ASKED)
        and ["--format", "junit"] in formats("check")
        and ["--shell", "systemd"] in formats("env")
    )
