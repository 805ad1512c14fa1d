"""Each command calls its workflow with what was said, and renders what comes back."""

from __future__ import annotations

import json
import signal
import types

import pytest

import gpuready
from gpuready import workflow as real
from gpuready.cli import main
from gpuready.cli import run_command_line as run
from gpuready.commands import COMMAND_MODULES, load_command_module
from gpuready.model import Contract, Fact, Facts, Finding, Report, UndecidedRule

FACTS = Facts([Fact("gpu.count", 0, "sysfs")], "here")
ERROR = Finding("GPU001", "error", "there is no GPU")
VERDICTS = {
    "not-ready": Report(Contract("demo", "1.0"), FACTS, (ERROR,)),
    "clear": Report(Contract("other", "2.0"), FACTS),
    "undecided": Report(Contract("third", "3.0"), FACTS, undecided=(UndecidedRule("GPU002", "error", "It is"),)),
}
SUMMARY = {"schema": 1, "code": "GPU001", "name": "no-gpu", "severity": "error", "title": "There is no GPU"}
SUMMARY |= {"text": "Long.", "reads": ["gpu.count"], "signs": []}


@pytest.fixture
def workflow(monkeypatch):
    """A workflow that notes how it was called."""
    fake = types.SimpleNamespace()
    modules = [real, *(load_command_module(name) for name in set(COMMAND_MODULES.values()))]
    calls: list[tuple[str, tuple, dict]] = []

    def noted(name, answer):
        def call(*args, **named):
            calls.append((name, args, named))
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def answer(name, answer):
        for module in modules:
            if name in vars(module):
                monkeypatch.setattr(module, name, noted(name, answer))

    fake.Refused, fake.calls, fake.answer = real.Refused, calls, answer
    fake.answer("check_machine", [VERDICTS["not-ready"]])
    monkeypatch.setattr(real, "make_fixes_runnable", lambda reports, here: reports)
    fake.answer("explain_rule", SUMMARY)
    fake.answer("explain_all_rules", [SUMMARY])
    fake.answer("probe_machine", FACTS)
    fake.answer(
        "record_machine", {"schema": 1, "kind": "recording", "facts": [], "tape": {'["environ"]': {"NCCL_DEBUG": ""}}}
    )
    fake.answer("save_text_file", None)
    fake.answer("contract_list", [{"framework": "demo", "version": "1.0"}])
    fake.answer("contract_show", Contract("demo", "1.0"))
    fake.answer("contract_diff", [{"table": "needs", "change": "added", "name": "x"}])
    return fake


@pytest.fixture
def reported(workflow, capsys):
    """Run a command line: exit code, stdout, stderr."""

    def call(*argv):
        code = run(argv)
        out, err = capsys.readouterr()
        return code, out, err

    return call


# -- check ----------------------------------------------------------------------------------------------


def test_check_passes_on_what_was_said(reported, workflow):
    reported(
        *("check", "demo", "other==2:x", "--on", "h100x8", "--python", "/venv", "--wants", "fp8"),
        *("--model", "7b", "--config", "c.yml", "--contract", "c.toml", "--strict", "--driver", "580"),
        *("--python-version", "3.12", "--ignore", "gpu001=a login node"),
    )
    ((name, args, named),) = workflow.calls
    assert (name, args) == ("check_machine", (["demo", "other==2:x"],))
    assert named.pop("seconds") == {} and callable(named.pop("note"))
    assert named == {
        "on": "h100x8",
        "python": "/venv",
        "wants": "fp8",
        "model": "7b",
        "partial": True,
        "look_beside": True,
        "settings": None,
        "config": "c.yml",
        "contract": "c.toml",
        "dockerfile": None,
        "image": None,
        "ignore": {"GPU001": "a login node"},
        "strict": True,
        "what_if": {"driver": "580", "python-version": "3.12"},
        "deep": False,
        "imports": "needed",
        "run_python": False,
        "packages": None,
        "ask_index": True,
    }


def test_check_alone_leaves_the_choice_to_the_workflow(reported, workflow):
    reported("check")
    ((_, args, named),) = workflow.calls
    assert args == ([],) and named["on"] is None and named["what_if"] == {} and named["strict"] is False


def test_every_what_if_flag_reaches_the_workflow(reported, workflow):
    from gpuready.commands.parameters import WHAT_IF

    reported("check", *(f"{flag.flag}=1" for flag in WHAT_IF.values()))
    assert workflow.calls[0][2]["what_if"] == {flag.flag[2:]: "1" for flag in WHAT_IF.values()}


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["not-ready"], 1),
        (["clear"], 0),
        (["undecided"], 3),
        (["clear", "undecided"], 3),
        (["undecided", "not-ready", "clear"], 1),
    ],
)
@pytest.mark.parametrize("how", [[], ["-q"], ["-v"], ["--json"]])
def test_the_exit_code_is_that_of_the_worst(reported, workflow, verdicts, code, how):
    workflow.answer("check_machine", [VERDICTS[v] for v in verdicts])
    got, out, err = reported("check", *how)
    assert got == code and out and not err


def test_the_screen_of_several_shows_each_and_one_time(reported, workflow):
    workflow.answer("check_machine", [VERDICTS["not-ready"], VERDICTS["clear"]])
    _, out, _ = reported("check", "demo", "other")
    assert "demo 1.0 on here" in out and "other 2.0 on here" in out
    assert out.count("\n\nno problems found") == 1 and "gpuready check demo other -v" in out
    assert reported("check", "demo", "other", "-v")[1].count(" ms\n") == 1, "one time for all"


def test_quiet(reported, workflow):
    workflow.answer("check_machine", [VERDICTS["not-ready"], VERDICTS["undecided"]])
    assert reported("check", "-q")[1] == "demo 1.0: not ready (GPU001)\nthird 3.0: can't tell (GPU002)\n"


def test_quiet_and_verbose_contradict_each_other(reported, workflow):
    assert reported("check", "-q", "-v") == (2, "", "gpuready: -q and -v cannot be combined: choose one\n")
    assert not workflow.calls


def test_json_of_the_one_that_was_named(reported):
    document = json.loads(reported("check", "demo", "--json")[1])
    assert document["verdict"] == "not-ready" and document["exit"] == 1 and document["schema"] == 1
    assert document["contract"]["framework"] == "demo" and document["findings"][0]["code"] == "GPU001"
    assert document["gpuready"] == gpuready.__version__ and document["host"] == "here"


def test_json_of_a_contract_in_a_file(reported):
    assert "contract" in json.loads(reported("check", "--contract", "c.toml", "--json")[1])


def test_json_of_several_or_of_none_named_is_a_list(reported, workflow):
    """Its shape follows from the command line, not from what happens to be installed."""
    document = json.loads(reported("check", "--json")[1])
    assert document["verdict"] == "not-ready" and len(document["reports"]) == 1
    workflow.answer("check_machine", [VERDICTS["clear"], VERDICTS["undecided"]])
    document = json.loads(reported("check", "other", "third", "--json")[1])
    assert document["verdict"] == "undecided" and document["exit"] == 3
    assert [r["contract"]["framework"] for r in document["reports"]] == ["other", "third"]


@pytest.mark.parametrize("requested", ["GPU001", "GPU001=", "GPU001=  ", "=why"])
def test_ignoring_needs_a_reason(reported, workflow, requested):
    code, out, err = reported("check", "--ignore", requested)
    assert code == 2 and not out and err.startswith("gpuready: --ignore ") and "needs a reason" in err
    assert err.count("\n") == 1 and not workflow.calls


# -- the others -----------------------------------------------------------------------------------------


def test_explain(reported, workflow):
    assert "error[GPU001]: There is no GPU" in reported("explain", "GPU001")[1]
    assert workflow.calls == [("explain_rule", ("GPU001",), {})]
    assert json.loads(reported("explain", "GPU001", "--json")[1])["name"] == "no-gpu"


def test_explain_alone_lists_all(reported):
    assert reported("explain") == (0, "GPU001  error  There is no GPU\n", "")
    assert json.loads(reported("explain", "--json")[1])["rules"][0]["code"] == "GPU001"


def test_probe(reported, workflow):
    code, out, _ = reported("probe", "--python", "/venv", "--on", "m.json", "--ram", "64GB")
    assert code == 0 and "gpu.count" in out
    assert workflow.calls[0][2] == {"python": "/venv", "on": "m.json", "what_if": {"ram": "64GB"}, "run_python": False}
    assert json.loads(reported("probe", "--json")[1])["facts"][0]["key"] == "gpu.count"


def test_probe_records(reported, workflow):
    code, out, err = reported("probe", "-o", "machine.json", "--python", "/venv", "--run-python")
    assert code == 0 and "variables: NCCL_DEBUG" in out and "machine.json" in err
    (_, _, named), (name, (path, text), how) = workflow.calls
    assert named == {"python": "/venv", "run_python": True} and (name, path) == ("save_text_file", "machine.json")
    assert how == {}  # for its owner alone
    assert json.loads(text)["kind"] == "recording"
    code, out, err = reported("probe", "-o", "-")
    assert json.loads(out)["kind"] == "recording" and not err


@pytest.mark.parametrize("more", [["--on", "h100x8"], ["--driver", "580"]])
def test_only_the_machine_itself_can_be_recorded(reported, workflow, more):
    code, out, err = reported("probe", "-o", "m.json", *more)
    assert code == 2 and not out and "-o records" in err and not workflow.calls


def test_contract(reported, workflow):
    assert reported("contract", "list")[1] == "framework  version  variant\ndemo       1.0\n"
    assert json.loads(reported("contract", "list", "--json")[1])["contracts"] == [
        {"framework": "demo", "version": "1.0"}
    ]
    assert reported("contract", "show", "demo==1.0")[1].startswith("demo 1.0 ")
    assert json.loads(reported("contract", "show", "demo", "--json")[1])["framework"] == "demo"
    assert reported("contract", "show", "--contract", "c.toml")[0] == 0
    assert reported("contract", "diff", "a", "b")[1] == "a -> b\n\nneeds\n  added x\n"
    assert json.loads(reported("contract", "diff", "a", "b", "--json")[1])["changes"] == [
        {"table": "needs", "change": "added", "name": "x"}
    ]
    shown = [args for name, args, _ in workflow.calls if name == "contract_show"]
    assert shown == [("demo==1.0", None), ("demo", None), ("", "c.toml")]


@pytest.mark.parametrize("argv", [[], ["demo", "--contract", "c.toml"]])
def test_contract_show_takes_one_of_two(reported, argv):
    assert reported("contract", "show", *argv)[0] == 2


# -- what goes wrong ------------------------------------------------------------------------------------


def test_a_refusal_is_one_sentence(reported, workflow):
    workflow.answer("check_machine", workflow.Refused("m.json is not a recording\x1b[2J\nmake one"))
    code, out, err = reported("check", "--on", "m.json")
    assert (code, out) == (2, "") and err == "gpuready: m.json is not a recording\\x1b[2J\\nmake one\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("a\nb"), "ValueError: a\\nb"),
        (RecursionError(), "RecursionError"),
        (MemoryError(), "MemoryError"),
        (OSError(13, "Permission denied"), "Permission denied"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "No such file or directory: /x"),
    ],
)
def test_the_unexpected_is_one_sentence_too(reported, workflow, error, words):
    workflow.answer("check_machine", error)
    code, out, err = reported("check")
    assert (code, out) == (2, "")
    assert err == f"gpuready failed: {words}; please report with gpuready probe -o machine.json\n"


def test_debug_shows_where(reported, workflow, monkeypatch):
    monkeypatch.setenv("GPUREADY_DEBUG", "1")
    workflow.answer("check_machine", ValueError("odd"))
    code, _, err = reported("check")
    assert code == 2 and "Traceback" in err and err.splitlines()[-1].startswith("gpuready failed: ")


def test_the_own_deadline_and_the_interrupt(reported, workflow, monkeypatch):
    workflow.answer("check_machine", TimeoutError("NVML did not answer within 10 s"))
    assert reported("check") == (124, "", "gpuready: out of time: NVML did not answer within 10 s\n")

    def interrupted(*args, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(real, "check_machine", interrupted)
    assert reported("check") == (130, "", "gpuready: interrupted: nothing was changed\n")


def test_a_signal_keeps_its_exit_code_whatever_fails_after_it(reported, monkeypatch):
    def ended(*args, **named):
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException:
            raise OSError(5, "Input/output error") from None

    monkeypatch.setattr(real, "check_machine", ended)
    assert reported("check")[0] == 143
    assert reported("no-such-command")[0] == 2


def test_usage(reported):
    code, out, err = reported("check", "--stict")
    assert (code, out) == (2, "") and err.startswith("gpuready: gpuready check has no flag '--stict'")


def test_help_and_version_need_no_workflow(reported, workflow):
    assert reported()[0] == 0 and reported("--help")[0] == 0
    assert reported("--version") == (0, f"gpuready {gpuready.__version__}\n", "")
    assert "--strict" in reported("check", "--help")[1]
    assert not workflow.calls


def test_main_leaves_at_once_with_the_code_and_all_that_was_said(workflow, capsys, monkeypatch):
    left, bye = [], []
    monkeypatch.setattr("os._exit", left.append)
    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setattr("atexit._run_exitfuncs", lambda: bye.append("bye"))
    main(["check"])
    assert left == [1] and bye == ["bye"] and capsys.readouterr().out
