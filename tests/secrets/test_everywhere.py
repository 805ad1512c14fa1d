"""Two hundred secrets in every place that gpuready reads; none in anything that it writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpuready.system import redact_text
from tests.running import Run, call_gpuready, gpuready
from tests.secrets.seeded import EACH, KINDS, leaked, seeds

SEEDS = seeds()
MACHINES = Path(__file__).parents[1] / "machines"


def shown(*texts: str) -> list[tuple[str, str]]:
    """What any of the texts gives away."""
    return [found for text in texts for found in leaked(text, SEEDS)]


def reported(run: Run) -> list[tuple[str, str]]:
    assert "Traceback" not in run.err, run.err
    assert run.out or run.err
    return shown(run.out, run.err)


def _environment() -> dict[str, str]:
    """Every secret twice: in the text of a variable that gpuready reports, and under its own name."""
    lines = {f"NCCL_NOTE_{i}": seed.line for i, seed in enumerate(SEEDS)}
    named = {f"HF_{i}_{seed.name}": seed.value for i, seed in enumerate(SEEDS)}
    ours = {s.name: s.value for s in SEEDS if s.name.startswith(("HF_", "WANDB_", "MLFLOW_", "PIP_INDEX"))}
    return {**lines, **named, **ours, "GPUREADY_HOSTNAME": f"node-{SEEDS[0].value}"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A home and a project in which every file that could hold a secret holds some."""
    home = tmp_path_factory.mktemp("home")
    everything = "\n".join(seed.line for seed in SEEDS)
    urls = [seed for seed in SEEDS if seed.kind == "pip index url"]
    extra = "\n  ".join(seed.value for seed in urls)
    indexes = "\n".join(f'[[index]]\nname = "i{n}"\nurl = "{seed.value}"' for n, seed in enumerate(urls))
    for name, text in {
        ".netrc": "".join(s.line for s in SEEDS if s.kind == "netrc"),
        ".config/pip/pip.conf": f"[global]\nindex-url = {urls[0].value}\nextra-index-url =\n  {extra}\n",
        ".config/uv/uv.toml": indexes,
        ".docker/config.json": next(s.line for s in SEEDS if s.kind == "docker config"),
        ".aws/credentials": "\n".join(s.line for s in SEEDS if s.kind == "aws pair"),
        ".cache/huggingface/token": SEEDS[0].value,
        ".git/config": "".join(f'[remote "r{n}"]\n\turl = {s.value}\n' for n, s in enumerate(SEEDS) if s.kind == "git remote"),
        "requirements.txt": f"--index-url {urls[0].value}\ntorch\n",
        "train.log": everything + "\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n" + everything,
        "machine.json": _recording(),
        "contract.toml": _contract(),
        "train.py": _script(),
    }.items():  # fmt: skip
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return home


def _recording() -> str:
    """A machine that somebody recorded with another tool, secrets and all."""
    data = json.loads((MACHINES / "h200.json").read_text())
    data["host"] = f"node-{SEEDS[0].value}"
    data["facts"] += [
        {"key": f"env.NCCL_{i}", "value": seed.line, "source": seed.line, "how": "read", "gap": ""}
        for i, seed in enumerate(SEEDS)
    ]
    data["facts"] += [
        {"key": f"env.{seed.name}", "value": seed.value, "source": "x", "how": "read", "gap": ""} for seed in SEEDS
    ]
    for fact in data["facts"]:
        if fact["key"] == "gpu.processes":
            fact["value"] = [
                {"gpu": 0, "pid": i, "command": seed.line, "user": "me", "used": 1} for i, seed in enumerate(SEEDS)
            ]
        if fact["key"] == "torch.version":
            fact.update(value=None, gap="\n".join(seed.line for seed in SEEDS))
    data.pop("tape", None)
    return json.dumps(data)


def _contract() -> str:
    """A contract whose notes and sources have the secrets of whoever wrote it."""
    lines = "\n".join(f"  {json.dumps(seed.line)}," for seed in SEEDS)
    needs = "\n".join(
        f'[[needs]]\nkey = "torch.version"\nwant = ">={9 + i}.0"\nso = {json.dumps(" ".join(seed.line.split()))}\n'
        f"source = {json.dumps('see ' + ' '.join(seed.line.split()))}"
        for i, seed in enumerate(SEEDS[:40])
    )
    return f'framework = "mine"\nversion = "1.0"\nnotes = [\n{lines}\n]\n{needs}\n'


def _script() -> str:
    """A training script that prints secrets and dies of them."""
    everything = json.dumps("\n".join(seed.line for seed in SEEDS))
    return f"import json, sys\nsaid = json.loads({everything!r})\nprint(said)\nprint(said, file=sys.stderr)\nraise ValueError(said)\n"


def test_there_are_two_hundred_of_forty_kinds():
    assert len(SEEDS) == 200 == EACH * len(KINDS)
    assert len({needle for seed in SEEDS for needle in seed.needles}) >= 200
    assert all(leaked(seed.line, [seed]) for seed in SEEDS), "the search finds what is there"


FORMS = {
    "plain": lambda s: s.line,
    "among others": lambda s: f"worker 3 said\n{s.line}\nand went on",
    "assigned": lambda s: f"{s.name}={s.value}",
    "json": lambda s: json.dumps({s.name: s.value, "text": f"a\n{s.line}"}),
    "json in json": lambda s: json.dumps(json.dumps([f"a\n{s.line}"])),
    "repr": lambda s: repr(f"a\n{s.line}"),
    "html": lambda s: s.line.replace("&", "&amp;").replace('"', "&#34;"),
    "colour": lambda s: f"\x1b[1;31m{s.line}\x1b[0m",
    "traceback": lambda s: f"Traceback (most recent call last):\n  x\nValueError: {s.line}\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_writing_shows_one(form):
    assert [found for s in SEEDS for found in leaked(redact_text(FORMS[form](s)), [s])] == []


def test_what_stands_around_stays():
    for seed in SEEDS:
        text = redact_text(f"worker 3 said\n{seed.line}\nand went on")
        assert text.startswith("worker 3 said\n") and text.endswith("\nand went on"), seed.kind
        assert redact_text(text) == text, seed.kind


def test_check_and_its_json(place):
    env = _environment() | {"HOME": str(place)}
    assert reported(gpuready("check", "transformers", "--json", "-v", cwd=place, **env)) == []


def test_the_page_and_the_recording_of_this_machine(place, tmp_path):
    env = _environment() | {"HOME": str(place)}
    assert reported(gpuready("probe", "-o", str(tmp_path / "m.json"), cwd=place, **env)) == []
    assert reported(gpuready("report", "transformers", "-o", str(tmp_path / "r.html"), cwd=place, **env)) == []
    assert shown((tmp_path / "m.json").read_text(), (tmp_path / "r.html").read_text()) == []
    assert "HF_199_" not in (tmp_path / "m.json").read_text(), "no rule asks for it"
    assert "NCCL_NOTE_199" in gpuready("probe", cwd=place, **env).out


def test_a_recording_that_somebody_sent(place, tmp_path):
    assert reported(call_gpuready("check", "transformers", "--on", "machine.json", "--json", cwd=place)) == []
    assert reported(call_gpuready("check", "transformers", "--on", "machine.json", "-v", cwd=place)) == []
    page = str(tmp_path / "r.html")
    assert reported(call_gpuready("report", "transformers", "--on", "machine.json", "-o", page, cwd=place)) == []
    assert shown(Path(page).read_text()) == []


def test_a_plan_with_the_indexes_of_pip_and_uv(place):
    env = {"HOME": str(place), **{s.name: s.value for s in SEEDS if s.kind == "pip index url"}}
    words = ("plan", "transformers", "--on", "machine.json", "--offline", "--json")
    assert reported(gpuready(*words, cwd=place, **env)) == []


def test_a_contract_that_somebody_wrote(place):
    assert (
        reported(call_gpuready("check", "--contract", "contract.toml", "--on", "machine.json", "--json", cwd=place))
        == []
    )
    assert reported(call_gpuready("contract", "show", "--contract", "contract.toml", cwd=place)) == []


def test_a_log_and_what_is_said_of_it(place):
    assert reported(call_gpuready("diagnose", "train.log", "--json", cwd=place)) == []
    assert reported(call_gpuready("diagnose", "train.log", "-v", cwd=place)) == []


def test_a_run_and_its_post_mortem(place):
    env = {"HOME": str(place), "PATH": os.environ["PATH"]}
    words = ("run", "--nproc", "1", "--no-preflight", "--", "train.py", "--token", SEEDS[0].value)
    run = gpuready(*words, cwd=place, **env)
    assert run.code != 0 and "ValueError" in run.out
    assert shown(run.out, run.err) == []


def test_what_a_node_of_a_fleet_answers(monkeypatch, place):
    from gpuready.fleet import node_program
    from gpuready.workflow import fleet_node

    for name, value in _environment().items():
        monkeypatch.setenv(name, value)
    acts = {"details": fleet_node.describe_node_areas, "check": fleet_node.check_node}
    for request in ({"do": "details"}, {"do": "check", "framework": ["transformers"]}):
        assert shown(node_program.answer_request({"schema": 1, "token": "t", **request}, "n1", acts)) == []


def test_what_an_agent_is_told(place):
    pytest.importorskip("mcp")
    from gpuready.mcp import tools
    from gpuready.workflow.allowed_paths import AllowedPaths

    folder = AllowedPaths([str(place)])
    asked = {
        "check": {"frameworks": ["transformers"], "on": str(place / "machine.json")},
        "diagnose": {"logs": [str(place / "train.log")]},
    }
    table = tools.build_tool_table()
    for name, arguments in asked.items():
        answer = table[name].does(folder, arguments)
        assert shown(json.dumps(answer.json(), default=str), str(answer)) == []


def test_the_command_lines_of_other_processes():
    from gpuready.probe import gpu
    from gpuready.probe.device_detection import DetectedDevices
    from gpuready.system import RecordingHost, run_probes
    from tests.probe.fakes import Fake

    argvs = [s.line.replace("\\\n", " ").split(" ") for s in SEEDS]
    files = {f"/proc/{i}/cmdline": "\0".join(filter(None, argv)) for i, argv in enumerate(argvs, 1)}
    pids = [{"pid": i, "used": 1} for i in range(1, len(SEEDS) + 1)]
    card = {"index": 0, "name": "NVIDIA H200", "processes": pids, "pci": "0000:01:00.0"}
    host = RecordingHost(Fake(files, nvml={"driver": "580.1", "cuda": "13.0", "gpus": [card]}))
    found = DetectedDevices(signs=("PCI 0000:01:00.0",), pci=("0000:01:00.0",))
    facts = run_probes(host, [("gpu", lambda at: gpu.probe_gpus(at, found), ("gpu.count",), 10.0)])
    assert any(fact.key == "gpu.processes" and fact.value for fact in facts)
    assert shown(str([fact.to_json() for fact in facts]), json.dumps(host.recording)) == []


@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_crash_and_a_refusal(debug, monkeypatch, capsys):
    from gpuready import cli, workflow

    monkeypatch.setenv("GPUREADY_DEBUG", debug)

    def crash(*_, **__):
        raise RuntimeError("\n".join(seed.line for seed in SEEDS))

    monkeypatch.setattr(workflow, "check_machine", crash)
    assert cli.run_command_line(["check", "transformers"]) == 2
    for seed in SEEDS[:40]:
        cli.run_command_line(["check", "--on", seed.line])
        cli.run_command_line(["diagnose", seed.line])
        cli.run_command_line([seed.line])
    said = capsys.readouterr()
    assert said.err and shown(said.out, said.err) == []
