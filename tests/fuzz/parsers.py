"""Every reader of hostile text, by name: bytes in; out comes nothing, a refusal (ValueError, Blind), or a bug.

The property tests and the coverage-guided harness (``tests/fuzz/run.py``) call the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuready.system import Ran
from tests.fuzz import machines, ours
from tests.fuzz.paper import REFUSALS, Paper
from tests.fuzz.paper import file as _file
from tests.fuzz.paper import plain as _json
from tests.fuzz.paper import text as _text
from tests.fuzz.paper import tried as _tried


def smi(data: bytes) -> None:
    """nvidia-smi's XML and banner, up to the facts of the GPUs."""
    from gpuready.probe import gpu
    from gpuready.probe import smi as reader

    text = _text(data)
    reader.read(Ran(("nvidia-smi",), 9, text, text, "deadline"))
    silent = {"error": None, "says": "not found"}
    _json(gpu.look(Paper(text, which="/usr/bin/nvidia-smi", nvml=silent), _seen()))


def _seen() -> Any:
    from gpuready.probe.presence import Presence

    return Presence(signs=("PCI 0000:01:00.0",), pci=("0000:01:00.0",))


def nvml(data: bytes) -> None:
    """What NVML answered, as its own process sends it on: JSON of any shape."""
    import json

    from gpuready.probe import gpu
    from gpuready.system.nvml import gather
    from gpuready.system.nvml_calls import words

    words(data)
    try:
        told = json.loads(_text(data))
    except (ValueError, RecursionError):
        return
    gpus = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    parts: list[dict[str, Any]] = [{"driver": "580.1", "cuda": "13.0", "library": "x", "count": 3}]
    answer = gather(parts + [{"gpu": {"index": i, **one}} for i, one in enumerate(gpus[:3])], "hung")
    _json(gpu.look(Paper("", nvml=answer), _seen()))


def nvcc(data: bytes) -> None:
    """What compilers say, and the version files of a toolkit."""
    from gpuready.probe import compilers, toolchain
    from gpuready.probe.driver import in_banner, named

    text = _text(data)
    toolchain.spoken(text)
    in_banner(text)
    named(text)
    for _, reader in toolchain.FILES:
        reader(text)
    _json(toolchain.look(Paper(text)), compilers.look(Paper(text)))


def metadata(data: bytes) -> None:
    """METADATA of a distribution, its requirements and its RECORD."""
    from gpuready import contracts
    from gpuready.apply import audit
    from gpuready.probe import packages

    text = _text(data)
    packages.parsed(text)
    read = packages._read(Paper(text), "/site/x-1.dist-info") or {}
    contract = contracts.load("transformers")
    pins, python = read.get("requires_dist", ()), read.get("requires_python")
    contracts.with_pins(contract, "5.22.0", pins, python, {"python_version": "3.12"})
    list(audit._rows(text, "lib/python3.12/site-packages", "x"))


def contract(data: bytes) -> None:
    """A contract that somebody wrote."""
    from gpuready import contracts

    contracts.read(_file(data, ".toml"))


def recording(data: bytes) -> None:
    """A recording that somebody sent, judged and shown."""
    from gpuready import workflow
    from gpuready.render import answers, text
    from gpuready.render.layout import Screen

    reports = workflow.check(["transformers"], on=_file(data, ".json"))
    answers.check(reports, True)
    for report in reports:
        text.render(report, Screen(80, False))


def page(data: bytes) -> None:
    """An environment page."""
    from gpuready.contracts.page import import_page

    found, _ = import_page(_text(data), "page.md")
    found.to_json()


def log(data: bytes) -> None:
    """A log, read and judged."""
    from gpuready.logs.derived import derived
    from gpuready.logs.story import Source, read
    from gpuready.workflow import diagnosing

    story = read([Source("x.log", [data[:1000], data[1000:]])], diagnosing.wording(), derived)
    diagnosing.told(story, look=False).to_json()


def nodes(data: bytes) -> None:
    """Lists of nodes and hosts, as Slurm and people write them."""
    from gpuready.cluster import nodelist
    from gpuready.fleet import hosts, nodeset, slurm

    text = _text(data)
    for reader in (nodelist.expand, nodelist.tasks, hosts.listed, nodeset.expand, slurm.states, slurm.blamed):
        _tried(reader, text)
    _tried(lambda told: hosts.hostfile(told, "hosts"), text)
    _tried(lambda told: nodeset.fold(told.split()), text)


def model(data: bytes) -> None:
    """A model's config.json, for the check and for the fit."""
    from gpuready.fit import architecture
    from gpuready.fit.job import Undecided
    from gpuready.probe import modelfile

    found = modelfile.decoded(_text(data), "config.json", "--model")
    _tried(lambda _: modelfile.parameters(found, "config.json", "--model"), "")
    try:
        architecture.read(found)
    except Undecided:
        return


def training(data: bytes) -> None:
    """A training file in YAML, JSON or Python."""
    from gpuready.fit import files
    from gpuready.probe import jobfile

    text = _text(data)
    for name in ("x.yml", "x.json", "x.py"):
        _tried(lambda told, name=name: files.merged(files.opened(name, lambda _: told)), text)  # type: ignore[misc]
    _json(jobfile.look(Paper(text), "x.yml"))


class _Ended:
    """A process that has ended well."""

    end, exit, seconds, size = "", 0, 1.0, 0

    def text(self) -> str:
        return ""


def proof(data: bytes) -> None:
    """The result that a proof's process left behind."""
    import json

    from gpuready.catalog import proofs
    from gpuready.prove import result

    told = result.read(_file(data, ".json"), _Ended())  # type: ignore[arg-type]
    row = next(iter(proofs.every()))
    json.dumps(result.fold(row, "cpu", [told], 10.0).to_json(), allow_nan=False)


def fleet(data: bytes) -> None:
    """What a node of a fleet answered; ``heard`` never raises."""
    from gpuready.fleet.gather import Gather
    from gpuready.fleeted import ANSWERED, Answer, Node

    gather = Gather([Node("n1"), Node("n2")], run="r", clock=lambda: 1.0)
    for part in data.split(b"\n\n"):
        gather.heard(Answer("n1", ANSWERED, body=_text(part)))
    gather.state("n1"), gather.state("n2"), gather.missing()


def dockerfile(data: bytes) -> None:
    """A Dockerfile."""
    from gpuready.probe import container

    _json(container.look(lambda path: None, "Dockerfile", _text(data)))


def recorder(data: bytes) -> None:
    """Flight-recorder dumps, pickled or in JSON."""
    from gpuready.logs import recorder as reader

    dumps = [reader.dump(data, 0), reader.dump(data, 1)]
    for one in reader.standstill(dumps):
        str(one.to_json())


def elf(data: bytes) -> None:
    """A library: its headers, strings and GPU code; and the loader's cache."""
    from gpuready.system import elf as reader
    from gpuready.system import fatbin, loader

    path = _file(data, ".so")
    loader.cached(data, "x86_64", "lib")
    for look in (reader.headers, fatbin.targets, lambda at: reader.strings(at, ".rodata", ["GLIBC"])):
        _tried(look, path)


def reported(data: bytes) -> None:
    """A document that `gpuready report` is to make a page of."""
    import json

    from gpuready import reported as reader

    try:
        told = json.loads(_text(data))
    except RecursionError:
        return
    reader.read(told)


def settings(data: bytes) -> None:
    """pip's and uv's configuration."""
    from gpuready.apply import pipconf

    pipconf._ini(_text(data))
    list(pipconf._tables(pipconf._toml(_text(data))))


def redaction(data: bytes) -> None:
    """Redaction of any text: what a pass hides may bring the next secret to light, but there is an end."""
    from gpuready.system import redact

    told = _text(data)
    for _ in range(64):
        before, told = told, redact(told)
        if told == before:
            return
    raise AssertionError("it never settles")


PARSERS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one
    for one in (
        smi, nvml, nvcc, metadata, contract, recording, page, log, nodes, model, training, proof, fleet, dockerfile,
        recorder, elf, reported, settings, redaction, *machines.EVERY, *ours.EVERY,
    )
}  # fmt: skip


def feed(name: str, data: bytes) -> None:
    """Give a reader some bytes; a refusal is an answer."""
    try:
        PARSERS[name](data)
    except REFUSALS:
        return
