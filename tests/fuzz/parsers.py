"""Every reader of hostile text, by name: bytes in; out comes nothing, a refusal (ValueError, AccessError), or a bug.

The property tests and the coverage-guided harness (``tests/fuzz/run.py``) call the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuready.system import RunResult
from tests.fuzz import machines, ours
from tests.fuzz.paper import REFUSALS, Paper
from tests.fuzz.paper import file as _file
from tests.fuzz.paper import plain as _json
from tests.fuzz.paper import text as _text
from tests.fuzz.paper import tried as _tried


def smi(data: bytes) -> None:
    """nvidia-smi's XML and banner, up to the facts of the GPUs."""
    from gpuready.probe import gpu
    from gpuready.probe import nvidia_smi as reader

    text = _text(data)
    reader.parse_smi_run(RunResult(("nvidia-smi",), 9, text, text, "deadline"))
    silent = {"error": None, "says": "not found"}
    _json(gpu.probe_gpus(Paper(text, which="/usr/bin/nvidia-smi", nvml=silent), _seen()))


def _seen() -> Any:
    from gpuready.probe.device_detection import DetectedDevices

    return DetectedDevices(signs=("PCI 0000:01:00.0",), pci=("0000:01:00.0",))


def nvml(data: bytes) -> None:
    """What NVML answered, as its own process sends it on: JSON of any shape."""
    import json

    from gpuready.probe import gpu
    from gpuready.system.nvml import combine_parts
    from gpuready.system.nvml_gpu import decode_text

    decode_text(data)
    try:
        document = json.loads(_text(data))
    except (ValueError, RecursionError):
        return
    gpus = [one for one in document if isinstance(one, dict)] if isinstance(document, list) else []
    parts: list[dict[str, Any]] = [{"driver": "580.1", "cuda": "13.0", "library": "x", "count": 3}]
    answer = combine_parts(parts + [{"gpu": {"index": i, **one}} for i, one in enumerate(gpus[:3])], "hung")
    _json(gpu.probe_gpus(Paper("", nvml=answer), _seen()))


def nvcc(data: bytes) -> None:
    """What compilers say, and the version files of a toolkit."""
    from gpuready.probe import compilers, toolchain
    from gpuready.probe.driver import parse_libcuda_version, parse_proc_driver_version

    text = _text(data)
    toolchain.parse_nvcc_version(text)
    parse_proc_driver_version(text)
    parse_libcuda_version(text)
    for _, reader in toolchain.VERSION_FILES:
        reader(text)
    _json(toolchain.probe_toolchain(Paper(text)), compilers.probe_compilers(Paper(text)))


def metadata(data: bytes) -> None:
    """METADATA of a distribution, its requirements and its RECORD."""
    from gpuready import contracts
    from gpuready.apply import audit
    from gpuready.contracts.pins import merge_metadata_pins
    from gpuready.probe import packages

    text = _text(data)
    packages.split_metadata_name(text)
    read = packages._read_metadata(Paper(text), "/site/x-1.dist-info") or {}
    contract = contracts.load_contract("transformers")
    pins, python = read.get("requires_dist", ()), read.get("requires_python")
    merge_metadata_pins(contract, "5.22.0", pins, python, {"python_version": "3.12"})
    list(audit.parse_record_rows(text, "lib/python3.12/site-packages", "x"))


def contract(data: bytes) -> None:
    """A contract that somebody wrote."""
    from gpuready import contracts
    from gpuready.workflow import contract_draft

    path = _file(data, ".toml")
    contracts.read_contract_file(path)
    contract_draft.check_contract_file(path)


def recording(data: bytes) -> None:
    """A recording that somebody sent, judged and shown."""
    from gpuready import workflow
    from gpuready.render import check_report, json_document
    from gpuready.render.layout import Screen

    reports = workflow.check_machine(["transformers"], on=_file(data, ".json"))
    json_document.render_check_json(reports, True)
    for report in reports:
        check_report.render_check_screen(report, Screen(80, False))


def checkout(data: bytes) -> None:
    """The pyproject.toml of a checkout, and bytes that are no wheel, of which a contract is drafted."""
    from gpuready.workflow.contract_draft import draft_contract

    draft_contract("kite", _file(data, "-checkout", "pyproject.toml").rpartition("/")[0])
    draft_contract("kite==1.0", _file(data, ".whl"))


def log(data: bytes) -> None:
    """A log, read and judged."""
    from gpuready.logs.derived_lines import derive_lines
    from gpuready.logs.log_summary import LogSource, read_logs
    from gpuready.workflow import diagnose

    summary = read_logs([LogSource("x.log", [data[:1000], data[1000:]])], diagnose.load_pattern_table(), derive_lines)
    diagnose.diagnose_summary(summary, look=False).to_json()


def nodes(data: bytes) -> None:
    """Lists of nodes and hosts, as Slurm and people write them."""
    from gpuready.fleet import slurm, ssh_hosts
    from gpuready.model import node_names

    text = _text(data)
    for reader in (
        node_names.expand_nodelist,
        node_names.parse_tasks_per_node,
        ssh_hosts.parse_host_list,
        node_names.expand_node_set,
        slurm.parse_sinfo,
        slurm.nodes_blamed_by_srun,
    ):
        _tried(reader, text)
    _tried(lambda shown: ssh_hosts.parse_hostfile(shown, "hosts"), text)
    _tried(lambda shown: node_names.fold_node_names(shown.split()), text)


def model(data: bytes) -> None:
    """A model's config.json, for the check and for the fit."""
    from gpuready.fit.job import model_parser
    from gpuready.fit.job.records import FitUndecided
    from gpuready.jobs import job_files, model_config

    found = job_files.decode_json_object(_text(data), "--model config.json")
    _tried(lambda _: model_config.count_config_parameters(found, "config.json", "--model"), "")
    try:
        model_parser.parse_model_config(found)
    except FitUndecided:
        return


def training(data: bytes) -> None:
    """A training file in YAML, JSON or Python."""
    from gpuready.jobs import job_facts, job_files

    text = _text(data)
    for name in ("x.yml", "x.json", "x.py"):
        _tried(lambda shown, name=name: _settings(shown, name), text)  # type: ignore[misc]
    _json(job_facts.job_file_facts(Paper(text), job_files.load_job_file("x.yml", lambda _: text, "--config")))


def _settings(text: str, name: str) -> Any:
    from gpuready.jobs import job_files

    file = job_files.load_job_file(name, lambda _: text)
    return job_files.merge_settings(job_files.read_settings_with_nested(file, lambda _: text))


class _Ended:
    """A process that has ended well."""

    end, exit, seconds, size = "", 0, 1.0, 0

    def output_text(self) -> str:
        return ""


def proof(data: bytes) -> None:
    """The result that a proof's process left behind."""
    import json

    from gpuready.catalog import proofs
    from gpuready.prove import result

    outcome = result.read_rank_result(_file(data, ".json"), _Ended())  # type: ignore[arg-type]
    row = next(iter(proofs.list_proofs()))
    json.dumps(result.combine_ranks(row, "cpu", [outcome], 10.0).to_json(), allow_nan=False)


def fleet(data: bytes) -> None:
    """What a node of a fleet answered; ``heard`` never raises."""
    from gpuready.fleet.answer_collector import AnswerCollector
    from gpuready.model.fleet import ANSWERED, FleetNode, NodeAnswer

    gather = AnswerCollector([FleetNode("n1"), FleetNode("n2")], run="r", clock=lambda: 1.0)
    for part in data.split(b"\n\n"):
        gather.add_answer(NodeAnswer("n1", ANSWERED, body=_text(part)))
    gather.node_state("n1"), gather.node_state("n2"), gather.list_unanswered()


def dockerfile(data: bytes) -> None:
    """A Dockerfile."""
    from gpuready.containers import dockerfile_facts

    _json(dockerfile_facts.read_dockerfile_facts(lambda path: None, "Dockerfile", _text(data)))


def recorder(data: bytes) -> None:
    """Flight-recorder dumps, pickled or in JSON."""
    from gpuready.logs import flight_recorder as reader

    dumps = [reader.parse_recorder_dump(data, 0), reader.parse_recorder_dump(data, 1)]
    for one in reader.find_standstills(dumps):
        str(one.to_json())


def elf(data: bytes) -> None:
    """A library: its headers, strings and GPU code; and the loader's cache."""
    from gpuready.system import dynamic_loader, fatbin
    from gpuready.system import elf as reader

    path = _file(data, ".so")
    dynamic_loader.parse_loader_cache(data, "x86_64", "lib")
    for look in (
        reader.read_elf_headers,
        fatbin.list_gpu_targets,
        lambda at: reader.find_section_strings(at, ".rodata", ["GLIBC"]),
    ):
        _tried(look, path)


def reported(data: bytes) -> None:
    """A document that `gpuready report` is to make a page of."""
    import json

    from gpuready.model import report_document as reader

    try:
        document = json.loads(_text(data))
    except RecursionError:
        return
    reader.parse_report_document(document)


def settings(data: bytes) -> None:
    """pip's and uv's configuration."""
    from gpuready.apply import uv_config

    uv_config._parse_pip_config(_text(data))
    list(uv_config._settings_tables(uv_config.parse_toml(_text(data))))


def redaction(data: bytes) -> None:
    """Redaction of any text: what a pass hides may bring the next secret to light, but there is an end."""
    from gpuready.system import redact_text

    outcome = _text(data)
    for _ in range(64):
        before, outcome = outcome, redact_text(outcome)
        if outcome == before:
            return
    raise AssertionError("it never settles")


PARSERS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one
    for one in (
        smi, nvml, nvcc, metadata, contract, recording, checkout, log, nodes, model, training, proof, fleet, dockerfile,
        recorder, elf, reported, settings, redaction, *machines.EVERY, *ours.EVERY,
    )
}  # fmt: skip


def feed(name: str, data: bytes) -> None:
    """Give a reader some bytes; a refusal is an answer."""
    try:
        PARSERS[name](data)
    except REFUSALS:
        return
