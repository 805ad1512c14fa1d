"""The command line, frozen: what is in this file is a promise to scripts."""

from __future__ import annotations

import shlex

import pytest

from gpuready.cli.help import format_help
from gpuready.cli.parser import ParsedCommand, parse_command_line
from gpuready.commands import UNLISTED_COMMANDS, load_all_commands
from gpuready.commands.declaration import UsageError
from gpuready.render.layout import Screen
from gpuready.workflow.guides import list_guides
from tests.every import every

COMMANDS = load_all_commands()

WHAT_IF = {
    "--driver": "VERSION",
    "--toolkit": "VERSION",
    "--torch": "VERSION",
    "--ram": "SIZE",
    "--os": "NAME",
    "--arch": "ARCH",
    "--kernel": "VERSION",
    "--disk": "SIZE",
    "--shm": "SIZE",
    "--python-version": "VERSION",
    "--as": "NAME=VALUE,...",
}
RESOLVE = {"--wants": "LIST", "--contract": "FILE", "--config": "FILE", "--source": "DIR|GIT"}
RESOLVE |= {"--find-links": "DIR", "--offline": "", "--allow-build": "", "--use-project-config": ""}
ALWAYS = {"--json": "", "--color": "WHEN"}
FLEET = {"--image": "IMAGE", "--namespace": "NAME", "--pods": "SELECTOR", "--retries": "N"} | {
    "--engine": "ENGINE",
    "--hosts": "LIST",
    "--hostfile": "FILE",
    "--nodes": "SET",
    "--address": "ADDRESS",
    "--python": "PATH",
    "--timeout": "SECONDS",
    "--parallel": "N",
    "--resume": "DIR",
    "--runs": "DIR",
    "--exclude": "",
    "--strict": "",
    "-o": "FILE",
    "-q": "",
    "-v": "",
}
FROZEN = {
    "check": (
        (0, 999),
        {"--on": "MACHINE", "--python": "PATH", "--wants": "LIST", "--model": "MODEL", "--config": "FILE"}
        | {"--run-python": ""}
        | {"--contract": "FILE", "--strict": "", "--ignore": "CODE=REASON", "-q": "", "-v": ""}
        | {"--since": "FILE", "--format": "FORMAT", "--dockerfile": "FILE"}
        | WHAT_IF
        | {"--deep": "", "--import": "", "--image": "NAME", "--packages": "FILE"}
        | ALWAYS,
    ),
    "serve": (
        (0, 0),
        {
            "--host": "ADDRESS",
            "--port": "PORT",
            "--token": "TOKEN",
            "--open-to-others": "",
            "--no-open": "",
            "--color": "WHEN",
        },
    ),
    "report": (
        (0, 999),
        {"-o": "FILE", "--on": "MACHINE", "--python": "PATH", "--proofs": "FILE", "--bench": "FILE"}
        | {"--run-python": ""}
        | {"--fit": "MODEL|FILE", "--plan": "", "--fleet": "FILE"}
        | WHAT_IF
        | ALWAYS,
    ),
    "prove": (
        (0, 999),
        {"--python": "PATH", "--wants": "LIST", "--model": "MODEL", "--config": "FILE", "--contract": "FILE"}
        | {
            "--cpu": "",
            "--deadline": "SECONDS",
            "--jobs": "N",
            "--list": "",
            "--strict": "",
            "-o": "FILE",
            "-q": "",
            "-v": "",
        }
        | ALWAYS,
    ),
    "plan": (
        (0, 999),
        {"--on": "MACHINE", "--python": "PATH", "--no-resolve": "", "--fix": "", "--format": "FORMAT"}
        | {"--run-python": ""}
        | {"-o": "FILE", "--bundle": "DIR", "-q": "", "-v": ""}
        | RESOLVE
        | WHAT_IF
        | ALWAYS,
    ),
    "install": (
        (0, 64),
        {"-e": "DIR", "--on": "MACHINE", "--python": "PATH", "--lock": "FILE", "--dry-run": ""}
        | {"--rollback": "", "--verify": "", "--keep": "N", "--yes": ""}
        | RESOLVE
        | WHAT_IF
        | ALWAYS,
    ),
    "fix": (
        (0, 1),
        {"--python": "PATH", "--wants": "LIST", "--model": "MODEL", "--config": "FILE", "--contract": "FILE"}
        | {"--find-links": "DIR", "--offline": "", "--only": "CODES", "--dry-run": "", "--undo": "", "--yes": ""}
        | {"-q": "", "-v": "", "--on": "MACHINE"}
        | {"--allow-build": "", "--use-project-config": ""}
        | ALWAYS,
    ),
    "fit": (
        (1, 9),
        {"--method": "METHOD", "--micro-batch": "N", "--seq": "N", "--precision": "P", "--optimizer": "NAME"}
        | {"--gradient-checkpointing": "KIND", "--attention": "KIND", "--accumulation": "N", "--loss": "KIND"}
        | {"--lora-r": "N", "--lora-targets": "all|qv|LIST", "--lora-dtype": "DTYPE", "--quant": "KIND"}
        | {"--keep-outputs": "", "--padded": "", "--dpo": "", "--alloc-conf": "CONF", "--task": "TASK"}
        | {"--new-tokens": "N", "--cache": "KIND", "--on": "NAME", "--world": "N", "--zero": "STAGE"}
        | {
            "--fsdp": "",
            "--packing": "KIND",
            "--mean-tokens": "N",
            "--tensor-parallel": "N",
            "--offload": "WHAT",
            "--trace": "",
            "--python": "PATH",
            "--read-only": "",
            "--steps": "N",
            "--gpus": "",
            "--max": "WHAT",
        }
        | {"-q": "", "-v": ""}
        | {
            "--lora-dropout": "P",
            "--dora": "",
            "--double-quant": "",
            "--kbit": "on|off",
            "--autocast": "DTYPE",
            "--trainer": "NAME",
        }
        | {
            "--context-parallel": "N",
            "--serve": "ENGINE",
            "--memory-fraction": "SHARE",
            "--max-sequences": "N",
            "--kv-dtype": "DTYPE",
        }
        | {
            "--download": "",
            "--no-time": "",
            "--bench": "FILE",
            "--price": "NAME=USD",
            "--run-steps": "N",
            "--samples": "N",
            "--epochs": "N",
        }
        | ALWAYS,
    ),
    "env": (
        (1, 1),
        {"--on": "MACHINE", "--python": "PATH", "--contract": "FILE", "--shell": "SHELL", "--role": "ROLE"}
        | {"--run-python": "", "--allow-variable": "NAME"}
        | {"--wants": "LIST"}
        | WHAT_IF
        | ALWAYS,
    ),
    "run": (
        (0, 1),
        {"--nproc": "N", "--nnodes": "N", "--node-rank": "R", "--master": "HOST:PORT", "--engine": "ENGINE"}
        | {"--python": "PATH", "--wants": "LIST", "--log-dir": "DIR", "--restarts": "N", "--hang-timeout": "SECONDS"}
        | {
            "--window": "SECONDS",
            "--check-collectives": "",
            "--fork": "",
            "--reap": "",
            "--no-preflight": "",
            "--preflight": "",
            "--dry-run": "",
            "-q": "",
        }
        | {"--on-hang": "WHAT", "--grace": "SECONDS", "--max-restarts": "N", "--events": "FILE"}
        | ALWAYS,
    ),
    "diagnose": (
        (0, 99999),
        {
            "--for": "FRAMEWORK",
            "--on": "FILE|GPU",
            "--config": "FILE",
            "--ask": "COMMAND",
            "--watch": "FILE",
            "-q": "",
            "-v": "",
        }
        | ALWAYS,
    ),
    "diff": ((2, 2), {"--for": "FRAMEWORK"} | ALWAYS),
    "explain": ((0, 1), ALWAYS),
    "probe": ((0, 0), {"--on": "MACHINE", "--python": "PATH", "--run-python": "", "-o": "FILE"} | WHAT_IF | ALWAYS),
    "issue": ((0, 16), {"--on": "MACHINE", "--python": "PATH", "--config": "FILE"} | ALWAYS),
    "docs": ((0, 1), ALWAYS),
    "bench": (
        (0, 0),
        {"--python": "PATH", "--full": "", "--quick": "", "--only": "LIST", "--repeat": "N", "--gpu": "INDEX"}
        | {"--folder": "DIR", "--list": "", "-o": "FILE", "-q": "", "-v": ""}
        | {"--job": "FILE", "--bench": "FILE"}
        | ALWAYS,
    ),
    "mcp": (
        (0, 0),
        {"--root": "DIR", "--python": "PATH", "--allow-changes": "", "--http": "", "--port": "PORT"}
        | {"--token": "TOKEN"}
        | ALWAYS,
    ),
    "completion": ((0, 999), {"--list": "KIND", "--words": ""} | ALWAYS),
    "fleet check": (
        (0, 999),
        {"--wants": "LIST", "--reference": "FILE", "--prolog": "", "--hardware": "", "--on": "MACHINE"}
        | WHAT_IF
        | FLEET
        | ALWAYS,
    ),
    "fleet prove": ((0, 99), {"--reference": "FILE"} | FLEET | ALWAYS),
    "fleet bench": ((0, 0), {"--only": "LIST"} | FLEET | ALWAYS),
    "fleet drift": ((0, 0), {"--reference": "FILE"} | FLEET | ALWAYS),
    "fleet bisect": ((0, 0), FLEET | ALWAYS),
    "contract list": ((0, 0), ALWAYS),
    "contract show": ((0, 1), {"--contract": "FILE"} | ALWAYS),
    "contract diff": ((2, 2), ALWAYS),
    "contract new": ((1, 2), {"-o": "FILE"} | ALWAYS),
    "contract check": ((1, 1), ALWAYS),
}


def test_the_command_line_is_frozen():
    table = {name: ((c.least, c.most), {flag.flag: flag.metavar for flag in c.flags}) for name, c in COMMANDS.items()}
    assert table == FROZEN


@every(
    ("argv", "reported"),
    [
        ([], ParsedCommand("help", help=True)),
        (["--help"], ParsedCommand("help", help=True)),
        (["help"], ParsedCommand("help", help=True)),
        (["--version"], ParsedCommand("version")),
        (["version"], ParsedCommand("version")),
        (["check"], ParsedCommand("check")),
        (["check", "a", "b"], ParsedCommand("check", ("a", "b"))),
        (["check", "--strict", "a", "--json"], ParsedCommand("check", ("a",), {"strict": True, "json": True})),
        (["check", "a", "--on", "h100x8", "b"], ParsedCommand("check", ("a", "b"), {"on": "h100x8"})),
        (["check", "--on=h100x8"], ParsedCommand("check", (), {"on": "h100x8"})),
        (["check", "--on=-x"], ParsedCommand("check", (), {"on": "-x"})),
        (["check", "--on", "a", "--on", "b"], ParsedCommand("check", (), {"on": "b"})),
        (["check", "--", "--on"], ParsedCommand("check", ("--on",))),
        (["check", "--python-version", "3.12"], ParsedCommand("check", (), {"python-version": "3.12"})),
        (["check", "--ignore", "A=b=c", "--ignore=D=e"], ParsedCommand("check", (), {"ignore": ["A=b=c", "D=e"]})),
        (["check", "--color", "never"], ParsedCommand("check", (), {"color": "never"})),
        (["check", "a", "-h"], ParsedCommand("check", help=True)),
        (["run", "--", "a.py", "--json"], ParsedCommand("run", rest=("a.py", "--json"))),
        (
            ["run", "trl", "--nproc", "2", "a.py", "-q"],
            ParsedCommand("run", ("trl",), {"nproc": "2"}, rest=("a.py", "-q")),
        ),
        (["run", "--", "--", "x"], ParsedCommand("run", rest=("--", "x"))),
        (
            ["fit", "m", "--gradient-checkpointing", "--seq", "8"],
            ParsedCommand("fit", ("m",), {"gradient-checkpointing": True, "seq": "8"}),
        ),
        (["fit", "--gradient-checkpointing", "m"], ParsedCommand("fit", ("m",), {"gradient-checkpointing": True})),
        (
            ["fit", "m", "--gradient-checkpointing=reentrant"],
            ParsedCommand("fit", ("m",), {"gradient-checkpointing": "reentrant"}),
        ),
        (["probe", "-o", "-"], ParsedCommand("probe", (), {"o": "-"})),
        (["contract", "show", "a", "--json"], ParsedCommand("contract show", ("a",), {"json": True})),
        (["contract", "diff", "a", "b"], ParsedCommand("contract diff", ("a", "b"))),
        (["contract", "--help"], ParsedCommand("contract", help=True)),
        (["contract", "diff", "--help"], ParsedCommand("contract diff", help=True)),
    ],
)
def test_what_is_understood(argv, reported):
    assert parse_command_line(argv) == reported


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["chek"], "gpuready has no command 'chek'; the nearest is check; `gpuready --help` lists them"),
        (["zzzz"], "gpuready has no command 'zzzz'; `gpuready --help` lists them"),
        (["check", "--on="], "--on was given an empty value: --on MACHINE"),
        (["check", "--python", " "], "--python was given an empty value: --python PATH"),
        (["check", ""], "gpuready check was given an empty argument: leave it out, or name [FRAMEWORK|FILE ...]"),
        (["--jsn"], "gpuready has no command '--jsn'; `gpuready --help` lists them"),
        (
            ["check", "--stict"],
            "gpuready check has no flag '--stict'; the nearest is --strict; `gpuready check --help` lists them",
        ),
        (["check", "--on"], "--on needs a value: --on MACHINE"),
        (["check", "--on", "--json"], "--on needs a value: --on MACHINE"),
        (["check", "--strict=yes"], "--strict takes no value"),
        (["check", "--color", "blue"], "--color takes auto, always or never, not 'blue'"),
        (
            ["fit", "m", "--gradient-checkpointing=maybe"],
            "--gradient-checkpointing takes reentrant or off, not 'maybe'",
        ),
        (["fit"], "gpuready fit takes MODEL|FILE ..., and was given nothing; --help has examples"),
        (["explain", "a", "b"], "gpuready explain takes [CODE], and was given 2; --help has examples"),
        (["probe", "x"], "gpuready probe takes no arguments, and was given 'x'"),
        (
            ["contract"],
            "gpuready contract takes one of list, show, diff, new, check; `gpuready contract --help` lists them",
        ),
        (
            ["fit", "--lora"],
            "gpuready fit has no flag '--lora'; it is a value: --method lora; `gpuready fit --help` lists them",
        ),
        (["fleet"], "gpuready fleet takes one of check, prove, bench, bisect; `gpuready fleet --help` lists them"),
        (
            ["contract", "shw"],
            "gpuready contract takes one of list, show, diff, new, check, not 'shw'; the nearest is show; `gpuready contract --help` lists them",
        ),
        (["contract", "diff", "a"], "gpuready contract diff takes A B, and was given 1; --help has examples"),
        (["contract", "new"], "gpuready contract new takes NAME [SOURCE], and was given nothing; --help has examples"),
    ],
)
def test_what_is_not_understood_is_said_in_one_sentence(argv, sentence):
    with pytest.raises(UsageError) as refused:
        parse_command_line(argv)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("command", [*COMMANDS, "help", "contract", "fleet"])
@pytest.mark.parametrize("width", [40, 80])
def test_help_names_everything_and_fits(command, width):
    text = format_help(command, Screen(width), everything=True)
    assert all(len(line) <= width for line in text.splitlines())
    if command in COMMANDS:
        assert all(flag.flag in text for flag in COMMANDS[command].flags)
    else:
        named = [n for n in COMMANDS if (command == "help" or n.startswith(command)) and n not in UNLISTED_COMMANDS]
        assert all(name in " ".join(text.split()) for name in named)


def test_a_default_is_not_shared():
    parse_command_line(["check", "--json"])
    assert ParsedCommand("x").flags == {} and parse_command_line(["check"]).flags == {}


@every("name", COMMANDS)
def test_every_command_has_three_examples_that_parse_and_that_its_help_shows(name):
    examples = COMMANDS[name].examples
    assert len(set(examples)) >= 3
    shown = format_help(name, Screen(100))
    for example in examples:
        words = [*name.split(), *shlex.split(example)]
        assert parse_command_line(words).command == name
        assert shlex.join(["gpuready", *words]) in shown


def test_the_help_names_what_is_known():
    for command in ("help", "check", "plan", "install"):
        shown = format_help(command, Screen(80), everything=True)
        assert "axolotl" in shown and "vllm" in shown
    assert "llama-3.1-8b" in format_help("fit", Screen(80), everything=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_one_screen_and_ends_with_its_guide(name):
    shown = format_help(name, Screen(80)).splitlines()
    assert len(shown) <= 40
    assert name == "docs" or list_guides()[shown[-1].removeprefix("  guide: gpuready docs ")]


def test_the_first_help_is_short_and_says_where_the_rest_is():
    first = format_help("help", Screen(80))
    assert len(first.splitlines()) <= 25 and first.count("gpuready --help-all") == 1
    usual = COMMANDS["fit"].usual.split()
    assert len(usual) == 12 and all(f"--{name} " in format_help("fit", Screen(80)) for name in usual)
    assert "--as NAME=VALUE" in format_help("check", Screen(80)) and "--kernel" not in format_help("check", Screen(80))


def test_one_flag_states_many_values_of_a_machine():
    parsed = parse_command_line(["check", "--as", "driver=550.54, os=ubuntu20.04", "--as", "python=3.12"])
    assert parsed.flags == {"driver": "550.54", "os": "ubuntu20.04", "python-version": "3.12"}
    for bad in ("drivr=550", "driver", "driver=", "=", "driver=550,,"):
        with pytest.raises(UsageError, match="--as takes NAME=VALUE"):
            parse_command_line(["check", "--as", bad])
