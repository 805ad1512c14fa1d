"""``gpuready bench``: is this machine as fast as it should be?"""

from __future__ import annotations

import sys

from gpuready.cli.words import EVERYWHERE, Command, Flag, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuready.cli.words import Told
    from gpuready.render.layout import Screen

_FLAGS = (
    Flag("--python", "the environment whose torch measures: a Python, a venv or a conda prefix", "PATH"),
    Flag("--quick", "the first GPU, in a few seconds"),
    Flag("--only", "these measures or groups, such as matmul,memory-copy,disk", "LIST"),
    Flag("--repeat", "how many passes of each (2)", "N"),
    Flag("--gpu", "this GPU only, by its index", "INDEX"),
    Flag("--folder", "whose disk is measured (the current folder)", "DIR"),
    Flag("--list", "every measure there is; nothing is measured"),
    Flag("-o", "keep the answer in a file, as JSON", "FILE"),
    Flag("-q", "one line"),
    Flag("-v", "also shapes, passes, spreads and bands"),
)
COMMANDS = (Command("bench", "is this machine as fast as it should be?", _FLAGS + EVERYWHERE),)


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    flags = told.flags
    if flags.get("q") and flags.get("v"):
        raise Usage("-q and -v do not go together: choose one")
    from gpuready.render import answers
    from gpuready.render import bench as render
    from gpuready.workflow import benching, save

    if flags.get("list"):
        rows = benching.listed()
        return (answers.measures(rows) if flags.get("json") else render.listing(rows, screen)), 0
    found = benching.bench(
        python=flags.get("python"),
        quick=bool(flags.get("quick")),
        only=flags.get("only"),
        repeat=_count("repeat", flags.get("repeat", "2"), 1, benching.MOST),
        gpu=_count("gpu", flags["gpu"], 0, 1023) if "gpu" in flags else None,
        folder=flags.get("folder"),
        say=_watched(flags),
    )
    if "o" in flags:
        save(flags["o"], answers.bench(found))
    if flags.get("json"):
        return answers.bench(found), found.exit
    if flags.get("q"):
        return render.line(found), found.exit
    return render.page(found, screen, bool(flags.get("v"))), found.exit


def _count(name: str, word: str, least: int, most: int) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) < 6 and least <= int(word) <= most):
        raise Usage(f"--{name} takes a whole number from {least} to {most}, not {word!r}")
    return int(word)


def _watched(flags: dict[str, object]) -> Callable[[str], None]:
    """Return a callback that shows progress on one line of a terminal; a no-op elsewhere."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or flags.get("json") or flags.get("q"):
        return lambda _: None
    import atexit

    from gpuready.render.escape import visible

    def say(text: str) -> None:
        stream.write(f"\r\x1b[K{visible(text)[:70]}")
        stream.flush()

    def clear() -> None:
        stream.write("\r\x1b[K")
        stream.flush()

    atexit.register(clear)
    return say
