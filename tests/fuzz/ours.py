"""What gpuready itself has written, or is asked: files in its folders, lines on its wires, queries, arguments. Anybody may have forged them."""

from __future__ import annotations

import json
from typing import Any

from tests.fuzz.paper import FOLDER, REFUSALS, decoded, file, text, tried


def lock(data: bytes) -> None:
    """A lock, read back and written out as every kind of file that is made of one."""
    from gpuready.plan.lock import read_lock
    from gpuready.render import files

    plan = read_lock(text(data), "gpuready.lock")
    for form in files.FILE_FORMATS:
        tried(lambda _, form=form: files.render_plan_file(plan, form), "")  # type: ignore[misc]


def kept(data: bytes) -> None:
    """Journals, manifests, locks, answers, evidence and stores, as they lie on the disk."""
    from gpuready.apply import generation, install_lock, resolution_cache
    from gpuready.extensions import build_cache
    from gpuready.fleet import journal as heard
    from gpuready.prove import bench
    from gpuready.workflow import prove

    result = text(data)
    for name in (
        generation.JOURNAL_FILE,
        generation.MANIFEST_FILE,
        generation.ORDER_FILE,
        heard.NAME,
        build_cache.MANIFEST_NAME,
    ):
        path = file(data, "-kept", name)
    folder = path.rpartition("/")[0]
    one = generation.EnvironmentGeneration(1, "x", folder)
    one.read_manifest(), one.install_order
    install_lock._read_holder(path)
    resolution_cache._decode_answer(result)
    for answer, at in heard.AnswerJournal(folder).read_entries():
        json.dumps([answer.to_json(), at])
    build_cache.read_manifest(folder)
    bench._read_measures(path)
    tried(lambda _: prove.read_evidence(path), "")


def run_folder(data: bytes) -> None:
    """The folder of a run of the fleet that is to be resumed."""
    from gpuready.workflow import fleet_run

    path = file(data, "-run", "run.json").rpartition("/")[0]
    fleet_run._read_run_file(fleet_run.FleetTask(do="check", frameworks=("transformers",), resume=path))


def _reported(rows: object) -> None:
    """What a leader told of its trial connections; that it is a list is all that the host knows."""
    from gpuready.rollcall import trial_connections

    if isinstance(rows, list):
        trial_connections.find_slow_links({0: rows, 1: rows}, {0: "a", 1: "b"})


def wire(data: bytes) -> None:
    """Lines of the roll-call, of the launcher and of a pair of nodes, as a stranger may send them."""
    from gpuready.fleet import pair_rounds
    from gpuready.launcher import agent_hub
    from gpuready.model.fleet import ANSWERED, NodeAnswer
    from gpuready.rollcall import hello, wire
    from gpuready.rollcall import wire as reader

    for token in ("", "t"):
        for read in (hello.parse_hello, wire.parse_server_message, _reported):
            try:
                read(reader.decode_message(data, token, "salt"))
            except (PermissionError, *REFUSALS):
                pass
    for line in data.split(b"\n"):
        message = agent_hub._parse_message(line)
        if message is not None:
            agent_hub.is_valid_hello(message, "the token")
    pair_rounds.parse_pair_answer(NodeAnswer("n1", ANSWERED, body=text(data)))


def trace(data: bytes) -> None:
    """The trace of a training step, as another process sends it."""
    from gpuready.fit.search import traced_prediction

    traced_prediction.validate_trace(decoded(data))


def query(data: bytes) -> None:
    """A query of the web service: whatever it is, no path and no flag of its own gets through."""
    from urllib.parse import parse_qsl

    from gpuready.web import query_parser

    pairs = parse_qsl(text(data), keep_blank_values=True)
    for command in query_parser.WEB_COMMANDS:
        try:
            words = query_parser.build_command_words(command, pairs)
        except query_parser.InvalidQuery:
            continue
        assert words[: len(command.split())] == command.split()
        known = {f"--{flag}" for flag in (*query_parser.query_parameters(command), "json", "no-resolve")} | {"--"}
        flags = words[: words.index("--")] if "--" in words else words
        assert all(w.partition("=")[0] in known for w in flags if w.startswith("-")), words
        assert not any("/" in word for word in words[len(flags) :]), words
    for read in (query_parser.build_page_commands, query_parser.parse_framework_query):
        try:
            read(pairs)
        except query_parser.InvalidQuery:
            continue


def arguments(data: bytes) -> None:
    """The arguments of an agent's call, against the schema of every tool; no path leads out of the yard."""
    from gpuready.mcp import argument_schema, tools
    from gpuready.system.path_allowlist import PathAllowlist

    requested = decoded(data)
    for tool in tools.build_tool_table(True).values():
        tried(lambda _, tool=tool: argument_schema.validate_arguments(tool.takes, requested, tool.name), "")  # type: ignore[misc]
    inside = FOLDER / "gpuready-fuzz-yard"
    inside.mkdir(exist_ok=True)
    fence = PathAllowlist([str(inside)])
    for word in [w for w in requested.values() if isinstance(w, str)] if isinstance(requested, dict) else []:
        tried(fence.check_file, word), tried(fence.check_log, word), tried(fence.check_folder, word)
        assert not fence.allows_path(word) or _within(word, str(inside)), word


def _within(path: str, root: str) -> bool:
    import os

    return os.path.realpath(path).startswith(os.path.realpath(root))


def words(data: bytes) -> None:
    """A command line: words that end with a zero."""
    from gpuready.cli import parser
    from gpuready.commands.declaration import UsageError

    try:
        parser.parse_command_line(text(data).split("\0"))
    except UsageError:
        return


EVERY: tuple[Any, ...] = (lock, kept, run_folder, wire, trace, query, arguments, words)
