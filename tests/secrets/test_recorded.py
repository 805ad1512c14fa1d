"""What `gpuready probe -o` writes: only what rules and probes ask for, readable by its owner alone, and shown."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from gpuready import contracts, system, workflow
from gpuready.catalog.variables import is_asked_variable
from gpuready.probe.environment import VARIABLE_NAMES, is_relevant_variable
from tests.running import gpuready

SECRET = "Zw-plain words that have no form at all 7"
UNASKED = (
    "DATABASE_LOCATION", "BILLING", "SLACK_HOOK", "MY_APP_SETTINGS", "WANDB_NOTES", "RAY_CUSTOM_LOCATION", "HF_NOTE", "UV_INDEX_MINE",
    "PIP_EXTRA_NOTE", "SLURM_COMMENT_OF_MINE", "TORCH_STUFF", "CUDA_STUFF", "USE_MINE", "CONDA_MINE", "KUBERNETES_NOTE",
)  # fmt: skip


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("recorded") / "machine.json"
    path.write_text("{}")
    path.chmod(0o644)
    env = dict.fromkeys(UNASKED, SECRET) | {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0"}
    ran = gpuready("probe", "-o", str(path), **env)
    assert ran.code == 0, ran.err
    return path, ran.out + ran.err


def test_a_variable_that_nothing_asks_for_is_not_recorded(recording):
    text = recording[0].read_text()
    assert SECRET not in text and not [name for name in UNASKED if name in text]


def test_what_rules_ask_for_is_recorded(recording):
    data = json.loads(recording[0].read_text())
    facts = {fact["key"]: fact["value"] for fact in data["facts"]}
    assert facts["env.NCCL_DEBUG"] == "INFO" and facts["env.CUDA_VISIBLE_DEVICES"] == "0"
    assert data["tape"]['["environ"]']["NCCL_DEBUG"] == "INFO"


def test_only_its_owner_can_read_it(recording):
    assert stat.S_IMODE(recording[0].stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--json"],
        ["check", "--format", "sarif"],
        ["check", "--format", "junit"],
        ["check", "-v"],
        ["probe", "--json"],
    ],
)
def test_nor_is_it_in_any_answer_of_a_live_machine(words):
    """One filter for a recording, a report, JSON, SARIF and JUnit."""
    ran = gpuready(*words, **dict.fromkeys(UNASKED, SECRET), NCCL_DEBUG="INFO")
    assert SECRET not in ran.out + ran.err and not [name for name in UNASKED if name in ran.out]
    assert "--json" not in words or "env.NCCL_DEBUG" in ran.out


def test_every_file_that_holds_facts_is_for_its_owner_alone(tmp_path):
    """One mode, whatever was there before; what no machine's facts are in is named here."""
    for words in (
        ["report", "--on", "h100", "-o", "page.html"],
        ["plan", "vllm", "--on", "h100", "--no-resolve", "--json", "-o", "plan.json"],
        ["probe", "-o", "machine.json"],
    ):
        path = tmp_path / words[-1]
        gpuready(*words[:-1], str(path))
        path.chmod(0o666)
        ran = gpuready(*words[:-1], str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, ran.err


def test_what_is_written_for_others_is_a_short_list():
    """Files for other tools: of a plan, a contract and a bundle. A new writer is private unless it is added here."""
    source = Path(workflow.__file__).parents[1]
    calls = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"private=(?!private\b|True\b)", path.read_text())
    }
    assert calls == {"commands/plan.py", "commands/contract.py", "apply/bundle.py"}
    for name in ("private_files.py", "durable_files.py"):
        opened = re.findall(
            r"os\.open\([^\n]*O_CREAT[^\n]*|os\.open\(path, (?:flags|_APPEND_FLAGS), 0o\d+\)",
            (source / "system" / name).read_text(),
        )
        assert opened and all(call.endswith("0o600)") for call in opened if "FLAGS" in call or "flags" in call), opened


def test_it_is_shown_what_is_in_it(recording):
    says = " ".join(recording[1].split())
    assert re.search(r"\d+ facts", says) and re.search(r"\d+ files and folders", says)
    assert "NCCL_DEBUG" in says and "CUDA_VISIBLE_DEVICES" in says and "read it before you send it" in says


def test_every_variable_of_rules_and_contracts_is_asked_for():
    source = Path(workflow.__file__).parents[1]
    named = {
        name
        for path in (source / "rules").rglob("*.py")
        for name in re.findall(r"\benv\.([A-Z][A-Z0-9_]+)\b", path.read_text())
    }
    files = list((source / "contracts").glob("*.toml"))
    named |= {variable.name for path in files for variable in contracts.read_contract_file(str(path)).variables}
    lost = sorted(
        name for name in {*named, *VARIABLE_NAMES} if is_relevant_variable(name) and not is_asked_variable(name)
    )
    assert not lost
    assert is_asked_variable("ACCELERATE_USE_ANYTHING") and not is_asked_variable("WANDB_ANYTHING")


def test_a_recorder_keeps_what_it_is_told_to():
    host = system.LiveHost(environ={"NCCL_DEBUG": "INFO", "OTHER": "x"})
    recorder = system.RecordingHost(host, keeps_variable=lambda name: name == "NCCL_DEBUG")
    assert recorder.get_environment() == {"NCCL_DEBUG": "INFO"}
    assert recorder.branch_recording().get_environment() == {"NCCL_DEBUG": "INFO"}, "a probe sees what a replay sees"
