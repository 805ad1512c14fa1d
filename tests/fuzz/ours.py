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
    for form in files.FORMS:
        tried(lambda _, form=form: files.document(plan, form), "")  # type: ignore[misc]


def kept(data: bytes) -> None:
    """Journals, manifests, leases, answers, evidence and stores, as they lie on the disk."""
    from gpuready.apply import answers, generation, journal, lease
    from gpuready.extensions import store
    from gpuready.fleet import journal as heard
    from gpuready.prove import bench
    from gpuready.workflow import proving

    told = text(data)
    for name in (journal.NAME, generation.MANIFEST, generation.ORDER, heard.NAME, store.MANIFEST):
        path = file(data, "-kept", name)
    folder = path.rpartition("/")[0]
    journal.entries(folder)
    one = generation.Generation(1, "x", folder)
    one.manifest(), one.order
    lease._holder(told[:4096])
    answers._read(told)
    for answer, at in heard.Journal(folder).entries():
        json.dumps([answer.to_json(), at])
    store.read(folder)
    bench._measures(path)
    tried(lambda _: proving.evidence_of(path), "")


def run_folder(data: bytes) -> None:
    """The folder of a run of the fleet that is to be resumed."""
    from gpuready.workflow import fleeting

    path = file(data, "-run", "run.json").rpartition("/")[0]
    fleeting._folder(fleeting.Asked(do="check", frameworks=("transformers",), resume=path))


def _told(rows: object) -> None:
    """What a leader told of its trial connections; that it is a list is all that the host knows."""
    from gpuready.rollcall import dial

    if isinstance(rows, list):
        dial.slow({0: rows, 1: rows}, {0: "a", 1: "b"})


def wire(data: bytes) -> None:
    """Lines of the roll-call, of the launcher and of a pair of nodes, as a stranger may send them."""
    from gpuready.fleet import rounds
    from gpuready.fleeted import ANSWERED, Answer
    from gpuready.launcher import hub
    from gpuready.rollcall import hello, said
    from gpuready.rollcall import wire as reader

    for token in ("", "t"):
        for read in (hello.read, said.read, _told):
            try:
                read(reader.opened(data, token, "salt"))
            except (PermissionError, *REFUSALS):
                pass
    for line in data.split(b"\n"):
        message = hub._message(line)
        if message is not None:
            hub.knows(message, "the token")
    rounds.read(Answer("n1", ANSWERED, body=text(data)))


def trace(data: bytes) -> None:
    """The trace of a training step, as another process sends it."""
    from gpuready.fit import traced

    traced.checked(decoded(data))


def query(data: bytes) -> None:
    """A query of the web service: whatever it is, no path and no flag of its own gets through."""
    from urllib.parse import parse_qsl

    from gpuready.web import asked

    pairs = parse_qsl(text(data), keep_blank_values=True)
    for command in asked.FLAGS:
        try:
            words = asked.words(command, pairs)
        except asked.Wrong:
            continue
        assert words[: len(command.split())] == command.split()
        known = {f"--{flag}" for flag in (*asked.FLAGS[command], "json", "no-resolve")} | {"--"}
        flags = words[: words.index("--")] if "--" in words else words
        assert all(w.partition("=")[0] in known for w in flags if w.startswith("-")), words
        assert not any("/" in word for word in words[len(flags) :]), words
    for read in (asked.parts, asked.framework):
        try:
            read(pairs)
        except asked.Wrong:
            continue


def arguments(data: bytes) -> None:
    """The arguments of an agent's call, against the schema of every tool; no path leads out of the yard."""
    from gpuready.mcp import schema, tools
    from gpuready.system.fence import Fence

    given = decoded(data)
    for tool in tools.table(True).values():
        tried(lambda _, tool=tool: schema.checked(tool.takes, given, tool.name), "")  # type: ignore[misc]
    inside = FOLDER / "gpuready-fuzz-yard"
    inside.mkdir(exist_ok=True)
    fence = Fence([str(inside)])
    for word in [w for w in given.values() if isinstance(w, str)] if isinstance(given, dict) else []:
        tried(fence.file, word), tried(fence.log, word), tried(fence.folder, word)
        assert not fence.allows(word) or _within(word, str(inside)), word


def _within(path: str, root: str) -> bool:
    import os

    return os.path.realpath(path).startswith(os.path.realpath(root))


def words(data: bytes) -> None:
    """A command line: words that end with a zero."""
    from gpuready.cli import grammar
    from gpuready.cli.words import Usage

    try:
        grammar.parse(text(data).split("\0"))
    except Usage:
        return


EVERY: tuple[Any, ...] = (lock, kept, run_folder, wire, trace, query, arguments, words)
