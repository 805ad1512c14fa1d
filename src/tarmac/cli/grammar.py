"""The command line: its commands and flags as one table, and the parser that reads it.

``argparse`` is not used: importing it and building one parser costs 21 ms, more than the start of Python.
"""

from __future__ import annotations

from tarmac.model import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any


class Usage(Exception):
    """A command line that is not understood, in one sentence."""


class Flag(Noun):
    """One flag; without ``takes`` it is a switch. ``bare``: it may stand alone, and a value only follows =."""

    name: str
    says: str
    takes: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False
    bare: bool = False


class Command(Noun):
    """One command: its arguments by name, at least and at most so many, and its flags."""

    name: str
    says: str
    flags: tuple[Flag, ...] = ()
    arguments: str = ""
    least: int = 0
    most: int = 0
    rest: str = ""  # what follows --, word for word, where a command takes that


class Told(Noun):
    """What a command line says."""

    command: str
    arguments: tuple[str, ...] = ()
    flags: dict[str, Any] = {}
    help: bool = False
    rest: tuple[str, ...] = ()


_COLOR = ("auto", "always", "never")
_EVERYWHERE = (
    Flag("--json", "the same answer as a JSON document"),
    Flag("--color", "colour the answer", "WHEN", _COLOR),
)
_PATIENT = (
    Flag("--on", "a recorded machine (FILE.json) or a name such as h100x8", "MACHINE"),
    Flag("--python", "the environment to look at: a Python, a venv or a conda prefix", "PATH"),
)
WHAT_IF = (
    Flag("--driver", "as if the driver were this one", "VERSION"),
    Flag("--toolkit", "as if this CUDA toolkit were there", "VERSION"),
    Flag("--torch", "as if this torch were installed, such as 2.8.0+cu128", "VERSION"),
    Flag("--ram", "as if the machine had this much memory, such as 512GB", "SIZE"),
    Flag("--os", "as if it ran this system, such as ubuntu22.04", "NAME"),
    Flag("--arch", "as if it were x86_64 or aarch64", "ARCH"),
    Flag("--kernel", "as if it ran this kernel", "VERSION"),
    Flag("--disk", "as if this much disk were free", "SIZE"),
    Flag("--shm", "as if /dev/shm had this size", "SIZE"),
    Flag("--python-version", "as if the environment had this Python", "VERSION"),
)
_CHECK = (
    *_PATIENT,
    Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST"),
    Flag("--model", "the job's model: a size such as 7b, or its config.json", "MODEL"),
    Flag("--config", "the job's own configuration file", "FILE"),
    Flag("--contract", "judge by this contract too, or by it alone", "FILE"),
    Flag("--strict", "count warnings and everything undecided as errors"),
    Flag("--ignore", "set a finding aside; the reason shows in the report", "CODE=REASON", many=True),
    Flag("--since", "a recording from when it worked: also what changed since", "FILE"),
    Flag("--format", "the answer for other tools", "FORMAT", ("text", "json", "sarif", "junit")),
    Flag("-q", "one line for each framework"),
    Flag("-v", "also the facts that held, and the timings"),
    *WHAT_IF,
)
_DIFF = (Flag("--for", "judge both for this framework", "FRAMEWORK"),)
_RECORD = Flag("-o", "record this machine in a file, for --on or a bug report; - is stdout", "FILE")
_FILE = Flag("--contract", "a contract in a file", "FILE")
_RESOLVE = (
    Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST"),
    Flag("--contract", "plan by this contract", "FILE"),
    Flag("--source", "where the framework's own sources are, if no index has it", "DIR"),
    Flag("--find-links", "a folder of wheels to take packages from as well", "DIR", many=True),
    Flag("--offline", "ask no index: what is in the cache and the folders must do"),
)
_PLAN = (
    *_PATIENT,
    *_RESOLVE,
    Flag("--no-resolve", "choose only: torch, CUDA, Python and kernels, without asking an index"),
    Flag("--fix", "the least change that turns off the findings of the environment there is"),
    Flag(
        "--format",
        "the plan as a file",
        "FORMAT",
        ("text", "json", "lock", "requirements", "pyproject", "conda", "dockerfile", "slurm", "shell"),
    ),
    Flag("-o", "write it to a file; the name may say the format", "FILE"),
    Flag("--bundle", "download every wheel into a folder, for a machine without network", "DIR"),
    Flag("-q", "one line"),
    Flag("-v", "also every choice that fell"),
    *WHAT_IF,
)
_INSTALL = (
    Flag("-e", "the folder of the environment (default .venv)", "DIR"),
    *_PATIENT,
    *_RESOLVE,
    Flag("--lock", "install what this lock says", "FILE"),
    Flag("--dry-run", "show what would run; changes nothing"),
    Flag("--rollback", "go back to the environment before this one"),
    Flag("--verify", "is every file of the environment there and unchanged?"),
    Flag("--keep", "how many environments to keep for a rollback (default 2)", "N"),
    Flag("--yes", "do not ask"),
    *WHAT_IF,
)
_ENV = (
    *_PATIENT,
    Flag("--contract", "the variables of this contract", "FILE"),
    Flag("--shell", "for which reader", "SHELL", ("bash", "fish", "json", "docker", "slurm", "systemd")),
    Flag("--role", "the process that they are for, where a framework has several", "ROLE"),
    Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST"),
    *WHAT_IF,
)
_DIAGNOSE = (
    Flag("--for", "the framework that wrote it, where the log does not say", "FRAMEWORK"),
    Flag("--on", "the machine that it ran on: a recording", "FILE"),
    Flag("--config", "the job's own configuration file: out of memory, it gives the exact change", "FILE"),
    Flag("--watch", "follow a log that is still being written", "FILE"),
    Flag("-q", "one line"),
    Flag("-v", "also every sign that was seen"),
)
_FIT = (
    Flag("--method", "what is trained", "METHOD", ("full", "lora", "qlora")),
    Flag("--micro-batch", "sequences on one GPU at once", "N"),
    Flag("--seq", "tokens in a sequence", "N"),
    Flag("--precision", "of weights and of the step", "P", ("fp32", "bf16", "fp16", "amp-bf16", "amp-fp16")),
    Flag(
        "--optimizer",
        "its state is often the largest part",
        "NAME",
        (
            "adamw",
            "adamw_fused",
            "adamw_forloop",
            "sgd",
            "sgd_momentum",
            "adafactor",
            "adafactor_torch",
            "adamw_8bit",
            "paged_adamw_8bit",
            "paged_adamw",
        ),
    ),
    Flag(
        "--gradient-checkpointing",
        "compute activations again instead of keeping them",
        "KIND",
        ("reentrant", "off"),
        bare=True,
    ),
    Flag("--attention", "which attention is asked for", "KIND", ("sdpa", "eager", "flash")),
    Flag("--accumulation", "micro-batches to one step", "N"),
    Flag("--loss", "plain, or without the logits in memory", "KIND", ("plain", "fused", "liger")),
    Flag("--lora-r", "the rank of the adapter", "N"),
    Flag("--lora-targets", "all, qv, or names with commas between", "all|qv|LIST"),
    Flag("--lora-dtype", "of the adapter", "DTYPE", ("fp32", "bf16", "fp16")),
    Flag("--quant", "the base in 4 or 8 bits", "KIND", ("nf4", "fp4", "int8")),
    Flag("--keep-outputs", "the loop keeps the model's outputs through the backward"),
    Flag("--padded", "sequences are padded, so that there is a mask"),
    Flag("--dpo", "preference training with a reference model"),
    Flag("--alloc-conf", "what PYTORCH_ALLOC_CONF says", "CONF"),
    Flag("--task", "train, or generate with a cache", "TASK", ("train", "generate")),
    Flag("--new-tokens", "how many are generated", "N"),
    Flag("--cache", "the kind of the cache", "KIND", ("dynamic", "static")),
    Flag("--on", "a GPU such as rtx4090 or h100x8, or a recorded machine (FILE.json)", "NAME"),
    Flag("--world", "GPUs that share the job", "N"),
    Flag("--zero", "the stage of ZeRO", "STAGE", ("0", "1", "2", "3")),
    Flag("--fsdp", "everything is sharded, as FSDP2 does it"),
    Flag("--tensor-parallel", "GPUs that share each layer", "N"),
    Flag("--offload", "what lies in host memory", "WHAT", ("optimizer", "parameters", "activations")),
    Flag("--gpus", "which GPUs of the catalogue would do"),
    Flag("--max", "the largest that fits", "WHAT", ("micro-batch", "seq")),
    Flag("-q", "one line"),
    Flag("-v", "also every default, and the phases of a step"),
)
_RUN = (
    Flag("--nproc", "ranks on each node: a number, or gpu (default: one for each GPU)", "N"),
    Flag("--nnodes", "how many nodes", "N"),
    Flag("--node-rank", "which of them this is, from 0 on", "R"),
    Flag("--master", "where rank 0 listens; without it a free port is chosen", "HOST:PORT"),
    Flag(
        "--engine", "what starts the ranks underneath", "ENGINE", ("local", "torchrun", "slurm", "mpi", "ray")
    ),
    Flag("--python", "the environment that the script runs in", "PATH"),
    Flag("--log-dir", "where each rank's log is kept (default tarmac-logs/RUN)", "DIR"),
    Flag("--restarts", "start again after a failure, where that can help", "N"),
    Flag("--hang-timeout", "end the run when no rank has written for so long", "SECONDS"),
    Flag("--window", "how long to wait for every rank to begin (default 60)", "SECONDS"),
    Flag("--fork", "import torch once and fork the ranks, or refuse"),
    Flag("--reap", "first end ranks of yours that outlived their launcher"),
    Flag("--no-preflight", "start without looking first"),
    Flag("--dry-run", "show what would start where, with every variable"),
    Flag("-q", "only what the ranks write, and one line at the end"),
)

COMMANDS = {
    command.name: command
    for command in (
        Command(
            "check",
            "is this machine clear for a framework?",
            _CHECK + _EVERYWHERE,
            "[FRAMEWORK ...]",
            most=999,
        ),
        Command(
            "plan",
            "what to install, and why; changes nothing",
            _PLAN + _EVERYWHERE,
            "[FRAMEWORK ...]",
            0,
            999,
        ),
        Command(
            "install",
            "make it so: the old or the new, never half",
            _INSTALL + _EVERYWHERE,
            "[FRAMEWORK]",
            0,
            1,
        ),
        Command(
            "fit",
            "how much GPU memory a job needs, and what makes it fit",
            _FIT + _EVERYWHERE,
            "MODEL|FILE ...",
            1,
            9,
        ),
        Command("env", "the variables that a framework wants", _ENV + _EVERYWHERE, "FRAMEWORK", 1, 1),
        Command(
            "run",
            "start a script on every GPU, and say why it died",
            _RUN + _EVERYWHERE,
            "[FRAMEWORK]",
            0,
            1,
            "SCRIPT [ARGS ...]",
        ),
        Command("diagnose", "why did this run die?", _DIAGNOSE + _EVERYWHERE, "[LOG ...]", 0, 99999),
        Command("diff", "what changed between two machines", _DIFF + _EVERYWHERE, "A B", 2, 2),
        Command("explain", "the long story behind a code, or all codes", _EVERYWHERE, "[CODE]", most=1),
        Command("probe", "what tarmac sees of this machine", (*_PATIENT, _RECORD, *WHAT_IF, *_EVERYWHERE)),
        Command("contract list", "the frameworks and versions that tarmac knows", _EVERYWHERE),
        Command("contract show", "what a framework asks for", (_FILE, *_EVERYWHERE), "[FRAMEWORK]", 0, 1),
        Command("contract diff", "what changed between two contracts", _EVERYWHERE, "A B", 2, 2),
        Command("contract import", "an environment page as a contract", _EVERYWHERE, "PAGE", 1, 1),
    )
}


def parse(argv: Sequence[str]) -> Told:
    """What the words after ``tarmac`` say. Usage, in one sentence, where they cannot be understood."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        return Told("help", help=True)
    if argv[0] in ("--version", "-V"):
        return Told("version")
    if argv[0] == "contract" and argv[1:2] in (["-h"], ["--help"]):
        return Told("contract", help=True)
    name, rest = _command(argv)
    return _arguments(COMMANDS[name], rest)


def _command(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    first = argv[0]
    if first in COMMANDS:
        return first, argv[1:]
    inner = [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{first} ")]
    if not inner:
        raise Usage(f"tarmac has no command {first!r}{nearest(first, _words())}; `tarmac --help` lists them")
    if not argv[1:] or argv[1] not in inner:
        given = f", not {argv[1]!r}{nearest(argv[1], inner)}" if argv[1:] else ""
        raise Usage(f"tarmac {first} takes one of {', '.join(inner)}{given}")
    return f"{first} {argv[1]}", argv[2:]


def _arguments(command: Command, words: Sequence[str]) -> Told:
    known = {flag.name: flag for flag in command.flags}
    flags: dict[str, Any] = {}
    arguments: list[str] = []
    waiting = list(reversed(words))
    while waiting:
        word = waiting.pop()
        if command.rest and (word == "--" or _is_script(word)):
            rest = tuple(reversed(waiting)) if word == "--" else (word, *reversed(waiting))
            _counted(command, arguments)
            return Told(command.name, tuple(arguments), flags, rest=rest)
        if word == "--":
            arguments += reversed(waiting)
            break
        if word in ("-h", "--help"):
            return Told(command.name, help=True)
        if word.startswith("-") and word != "-":
            _flag(command, known, word, waiting, flags)
        else:
            arguments.append(word)
    _counted(command, arguments)
    return Told(command.name, tuple(arguments), flags)


def _is_script(word: str) -> bool:
    """A script that stands without -- before it, as people write it for torchrun."""
    return word.endswith((".py", ".sh")) and not word.startswith("-")


def _flag(
    command: Command, known: dict[str, Flag], word: str, waiting: list[str], flags: dict[str, Any]
) -> None:
    name, equals, value = word.partition("=")
    if name not in known:
        near = nearest(name, known)
        raise Usage(
            f"tarmac {command.name} has no flag {name!r}{near}; `tarmac {command.name} --help` lists them"
        )
    flag = known[name]
    key = name.lstrip("-")
    if not flag.takes:
        if equals:
            raise Usage(f"{name} takes no value")
        flags[key] = True
        return
    if flag.bare and not equals:
        flags[key] = True
        return
    if not equals:
        value = _value(flag, waiting)
    if flag.choices and value not in flag.choices:
        raise Usage(f"{name} takes {', '.join(flag.choices[:-1])} or {flag.choices[-1]}, not {value!r}")
    if flag.many:
        flags.setdefault(key, []).append(value)
    else:
        flags[key] = value


def _value(flag: Flag, waiting: list[str]) -> str:
    if not waiting or (waiting[-1].startswith("-") and not waiting[-1][1:2].isdigit() and waiting[-1] != "-"):
        raise Usage(f"{flag.name} needs a value: {flag.name} {flag.takes}")
    return waiting.pop()


def _counted(command: Command, arguments: list[str]) -> None:
    if command.least <= len(arguments) <= command.most:
        return
    if not command.arguments:
        raise Usage(f"tarmac {command.name} takes no arguments, and was given {arguments[0]!r}")
    raise Usage(
        f"tarmac {command.name} takes {command.arguments}, and was given {len(arguments) or 'nothing'}"
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """``; the nearest is NAME``, or nothing where nothing is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), 1, 0.6)
    return f"; the nearest is {near[0]}" if near else ""


def _words() -> list[str]:
    return list(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS))
