"""What a command line starts: the script, module or program behind torchrun, accelerate, deepspeed and Python, and how many ranks."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.model.record import Record

RANK_FLAGS = ("nproc_per_node", "num_processes", "num_gpus", "nproc-per-node", "num-processes")
NODE_FLAGS = ("nnodes", "num_machines", "num_nodes")
LAUNCHERS = {
    "torchrun": "torchrun",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "deepspeed": "deepspeed",
}
MODULES_OF_PROGRAMS = {("axolotl", "train"): "axolotl.cli.train"}
"""Programs that start a launcher themselves, by their first two words, and what that launcher starts."""
TRL_SCRIPTS = ("sft", "dpo", "grpo", "kto", "reward", "rloo")


PROGRAMS = ("torchrun", "accelerate", "deepspeed", "axolotl", "trl", "llamafactory-cli", "python", "-m")
"""What can stand before a script, or be one."""


def names_a_script(words: Sequence[str]) -> bool:
    """Whether a command line starts a script, and is not the name of a model or of a job's file."""
    name = os.path.basename(words[0]) if words else ""
    return name.endswith(".py") or name in PROGRAMS or name.rstrip("0123456789.") == "python"


class Launch(Record):
    """One command: ``kind`` is script, module or program; ``words`` begin with its name."""

    kind: str
    words: tuple[str, ...]
    ranks: int | None = None  # that the command line states; 0: one for each GPU
    launcher: str = ""
    launcher_words: tuple[str, ...] = ()  # the launcher's own
    python: str = ""


def parse_launch(words: Sequence[str]) -> Launch:
    """Return what a command line starts; ValueError where it names nothing that Python runs."""
    python, words = "", tuple(words)
    is_python = bool(words) and os.path.basename(words[0]).rstrip("0123456789.") == "python"
    if is_python and len(words) > 1 and (words[1] == "-m" or not words[1].startswith("-")):
        python, words = words[0], words[1:]
    if not words:
        raise ValueError("nothing is named to run")
    name = os.path.basename(words[0])
    if name == "-m" and len(words) > 1 and words[1] not in LAUNCHERS and words[1:3] != ("accelerate", "launch"):
        return Launch("module", words[1:], python=python)
    if name == "-m" and len(words) > 1:
        name, words = words[1], words[1:]
    if name == "accelerate" and words[1:2] == ("launch",):
        return _behind_launcher("accelerate", words[2:], python)
    if name in LAUNCHERS:
        return _behind_launcher(LAUNCHERS[name], words[1:], python)
    if name == "trl" and words[1:2] and words[1] in TRL_SCRIPTS:
        return Launch("module", (f"trl.scripts.{words[1]}", *words[2:]), launcher="accelerate", python=python)
    if (name, *words[1:2]) in MODULES_OF_PROGRAMS:
        return Launch("module", (MODULES_OF_PROGRAMS[name, words[1]], *words[2:]), launcher="accelerate", python=python)
    return Launch("script" if words[0].endswith(".py") else "program", words, python=python)


def _behind_launcher(launcher: str, words: tuple[str, ...], python: str) -> Launch:
    """Split the words of a launcher from what it starts: the first .py, or what follows -m."""
    for at, word in enumerate(words):
        if word in ("-m", "--module") and len(words) > at + 1:
            own, kind, rest = words[:at], "module", words[at + 1 :]
            break
        if word.endswith(".py") and not word.startswith("-"):
            own, kind, rest = words[:at], "script", words[at:]
            break
    else:
        raise ValueError(f"no script is named after {launcher}: it ends with .py, or stands after -m")
    ranks, nodes = _read_count(own, RANK_FLAGS), _read_count(own, NODE_FLAGS) or 1
    total = None if ranks is None else ranks if launcher == "accelerate" else ranks * nodes
    return Launch(kind, rest, total, launcher, own, python)


def _read_count(words: Sequence[str], names: Sequence[str]) -> int | None:
    """Return the number that one of these flags states; 0 for a word such as gpu."""
    for at, word in enumerate(words):
        flag, equals, value = word.lstrip("-").partition("=")
        if flag in names and word.startswith("-"):
            value = value if equals else words[at + 1] if len(words) > at + 1 else ""
            return int(value) if value.isdecimal() else 0
    return None


PLACES = ("nproc", "nnodes", "node-rank", "master")


def format_own_start(launch: Launch, framework: str, flags: Mapping[str, Any]) -> str:
    """Return the ``gpuready run``, with the flags that were given, that starts what a launcher would start."""
    ranks, nodes = _read_count(launch.launcher_words, RANK_FLAGS), _read_count(launch.launcher_words, NODE_FLAGS) or 1
    if ranks is not None and launch.launcher == "accelerate":
        ranks //= nodes  # which counts those of all nodes
    count = ranks or (1 if ranks is None and launch.launcher == "torchrun" else "gpu")
    several = ["--nnodes", str(nodes), "--node-rank", "R", "--master", "HOST:PORT"] if nodes > 1 else []
    given = [word for name, value in flags.items() if name not in PLACES and value for word in _flag_words(name, value)]
    module = ["-m"] if launch.kind == "module" else []
    own = ["gpuready", "run", *filter(None, [framework]), "--nproc", str(count)]
    return shlex.join([*own, *several, *given, "--", *module, *launch.words])


def _flag_words(name: str, value: Any) -> list[str]:
    flag = f"--{name}" if len(name) > 1 else f"-{name}"
    return [flag] if value is True else [flag, str(value)]
