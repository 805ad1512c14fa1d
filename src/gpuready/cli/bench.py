"""``gpuready bench``: is this machine as fast as it should be?"""

from __future__ import annotations

import sys

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec, Flag, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuready.cli.command_spec import ParsedCommand
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
COMMANDS = (CommandSpec("bench", "is this machine as fast as it should be?", _FLAGS + COMMON_FLAGS),)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    flags = parsed.flags
    if flags.get("q") and flags.get("v"):
        raise UsageError("-q and -v do not go together: choose one")
    from gpuready.render import bench as render
    from gpuready.render import json_results
    from gpuready.workflow import bench, save_text_file

    if flags.get("list"):
        rows = bench.list_measures()
        return (
            json_results.render_measures_json(rows) if flags.get("json") else render.render_measure_list(rows, screen)
        ), 0
    result = bench.measure_machine(
        python=flags.get("python"),
        quick=bool(flags.get("quick")),
        only=flags.get("only"),
        repeat=_parse_bench_count("repeat", flags.get("repeat", "2"), 1, bench.MAX_REPEAT),
        gpu=_parse_bench_count("gpu", flags["gpu"], 0, 1023) if "gpu" in flags else None,
        folder=flags.get("folder"),
        show_step=_make_progress_line(flags),
    )
    if "o" in flags:
        save_text_file(flags["o"], json_results.render_bench_json(result))
    if flags.get("json"):
        return json_results.render_bench_json(result), result.exit
    if flags.get("q"):
        return render.format_bench_line(result), result.exit
    return render.render_bench_screen(result, screen, bool(flags.get("v"))), result.exit


def _parse_bench_count(name: str, word: str, least: int, most: int) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) < 6 and least <= int(word) <= most):
        raise UsageError(f"--{name} takes a whole number from {least} to {most}, not {word!r}")
    return int(word)


def _make_progress_line(flags: dict[str, object]) -> Callable[[str], None]:
    """Return a callback that shows progress on one line of a terminal; a no-op elsewhere."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or flags.get("json") or flags.get("q"):
        return lambda _: None
    import atexit

    from gpuready.render.escape import escape_unprintable

    def show_text(text: str) -> None:
        stream.write(f"\r\x1b[K{escape_unprintable(text)[:70]}")
        stream.flush()

    def clear_text() -> None:
        stream.write("\r\x1b[K")
        stream.flush()

    atexit.register(clear_text)
    return show_text
