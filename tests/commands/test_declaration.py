"""Each parameter is declared once, and every face shows what its declaration says."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import gpuready
from gpuready import commands
from gpuready.cli.help import format_help
from gpuready.cli.parser import parse_command_line
from gpuready.commands import job_fields, load_all_commands, load_command, load_function, parameters
from gpuready.commands.completion import complete_words
from gpuready.commands.declaration import Command, Parameter, UsageError, call_command, collect_parameters
from gpuready.commands.result import Result
from gpuready.fit.job.records import FIELD_CHOICES, FIELD_MAXIMA, FitJob
from gpuready.mcp import tools
from gpuready.render.layout import Screen
from gpuready.web import query_parser
from gpuready.workflow.refusal import Refused

SRC = Path(gpuready.__file__).parent
WHAT_IF_NAMES = ("driver", "toolkit", "torch", "ram", "os", "arch", "kernel", "disk", "shm", "python_version")
SPELLINGS = {spelling: name for name in WHAT_IF_NAMES for spelling in (name, "--" + name.replace("_", "-"))} | {
    "python-version": "python_version"
}
PYTHON_FUNCTIONS = (
    "bench",
    "check",
    "contract",
    "diagnose",
    "env",
    "explain",
    "fit",
    "plan",
    "probe",
    "prove",
    "report",
)


# -- declared once ------------------------------------------------------------------------------------------


def tables_of_names(path: Path) -> list[set[str]]:
    """The what-if names that stand together: as fields, parameters, keys, elements or flags of one construct."""
    found: list[set[str]] = []
    text = path.read_text()
    if len({real for name, real in SPELLINGS.items() if name in text}) < 5:
        return found  # parsing every file takes seconds
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.ClassDef):
            names = [
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            ]
        elif isinstance(node, ast.FunctionDef):
            names = [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            inside = [one.args[0] if isinstance(one, ast.Call) and one.args else one for one in node.elts]
            names = [one.value for one in inside if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        elif isinstance(node, ast.Dict):
            names = [one.value for one in node.keys if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        found.append({SPELLINGS[name] for name in names if name in SPELLINGS})
    return found


def test_every_what_if_name_is_declared_in_one_place():
    files = [path for path in SRC.rglob("*.py") if "data" not in path.parts]
    places = {str(path.relative_to(SRC)): names for path in files for names in tables_of_names(path) if len(names) >= 5}
    assert places.pop("commands/parameters.py") == set(WHAT_IF_NAMES) == set(parameters.WHAT_IF)
    assert set(places) <= {"probe/stated_machine.py"}, "what each name does to the facts; nothing else may list them"


def test_what_is_declared_is_what_the_probe_applies():
    from gpuready.probe import stated_machine

    assert {one.query for one in parameters.WHAT_IF.values()} == set(stated_machine.WHAT_IF_FLAGS)


def test_the_fields_of_a_job_have_the_choices_bounds_and_defaults_of_fit_job():
    for name, one in load_command("fit").parameters.items():
        if one.group != "job" or name in ("gradient_checkpointing", "autocast", "kbit"):
            continue
        assert one.default == FitJob._defaults[name]
        assert one.choices == tuple(str(choice) for choice in FIELD_CHOICES.get(name, ()) if choice != "")
        assert (one.kind == "count", one.most) == (name in FIELD_MAXIMA, FIELD_MAXIMA.get(name, 0))
        assert (not one.metavar) == (type(one.default) is bool)
    assert set(job_fields.job_json_schema()) < set(FitJob._fields)


# -- every face derives from the declaration ----------------------------------------------------------------


@pytest.fixture
def changed(monkeypatch):
    """A command of one argument and a few parameters, in place of ``explain``."""
    seen = []

    def run(request):
        seen.append((request.arguments, request.options, request.what_if))
        return Result(request.arguments, lambda found: "{}\n", lambda found, screen: "text\n")

    own = {
        "colour_depth": Parameter("how many bits", "BITS", kind="count", least=2, most=16, mcp=True, web="any"),
        "paper": Parameter("what it is printed on", "KIND", ("a4", "letter"), mcp=True, web="any"),
        "in_reverse": Parameter("from the end", mcp=True, web="any"),
        "secret": Parameter("for the command line alone", "FILE", python=False),
    }
    command = Command(
        "explain",
        "changed",
        run,
        collect_parameters(own, parameters.WHAT_IF),
        "[CODE]",
        most=1,
        argument=Parameter("A code.", name="code", flag="code", least=0, mcp=True, web="code"),
    )
    module = commands.load_command_module("explain")
    monkeypatch.setattr(module, "COMMANDS", (command,))
    monkeypatch.setattr(module, "explain", lambda *code, **options: call_command(command, code, options))
    return command, seen


def test_the_command_line_shows_a_change(changed):
    parsed = parse_command_line(["explain", "--colour-depth", "8", "--in-reverse", "x"])
    assert parsed.flags == {"colour-depth": "8", "in-reverse": True}
    text = format_help("explain", Screen(), everything=True)
    assert "--colour-depth BITS" in text and "--paper a4|letter" in text and "--driver VERSION" in text
    with pytest.raises(UsageError, match="--paper takes a4 or letter"):
        parse_command_line(["explain", "--paper", "a3"])


def test_python_shows_a_change(changed):
    function = load_function("explain")
    assert list(inspect.signature(function).parameters)[:4] == ["code", "colour_depth", "paper", "in_reverse"]
    assert "secret" not in inspect.signature(function).parameters
    function("X1", colour_depth=4, driver=550)
    assert changed[1] == [(["X1"], {"colour_depth": 4, "driver": "550"}, {"driver": "550"})]
    for bad in ({"colour_depth": 99}, {"paper": "a3"}):
        with pytest.raises(Refused):
            function(**bad)
    with pytest.raises(TypeError, match="secret"):
        function(secret="x")


def test_mcp_shows_a_change(changed):
    schema = tools.build_tool_table()["explain"].takes["properties"]
    assert list(schema) == ["code", "colour_depth", "paper", "in_reverse", "what_if", "answer", "detail"]
    assert schema["paper"]["enum"] == ["a4", "letter"] and schema["in_reverse"]["type"] == "boolean"
    assert (schema["colour_depth"]["type"], schema["colour_depth"]["maximum"]) == ("integer", 16)
    assert set(schema["what_if"]["properties"]) == set(WHAT_IF_NAMES)


def test_the_web_shows_a_change(changed):
    pairs = [("code", "X1"), ("paper", "a4"), ("in-reverse", "1"), ("driver", "550")]
    words = query_parser.build_command_words("explain", pairs)
    assert words == ["explain", "--json", "--paper=a4", "--in-reverse", "--driver=550", "--", "X1"]
    with pytest.raises(query_parser.InvalidQuery, match="secret"):
        query_parser.build_command_words("explain", [("secret", "x")])


def test_completion_shows_a_change(changed):
    offered = [word for word, _ in complete_words(["explain", ".-"])]
    assert offered[:5] == ["--colour-depth", "--paper", "--in-reverse", "--secret", "--driver"]


# -- the commands as they are -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PYTHON_FUNCTIONS)
def test_a_python_signature_has_the_parameters_of_the_command(name):
    shown = set(inspect.signature(getattr(gpuready, name)).parameters)
    command = load_command("contract show" if name == "contract" else name)
    assert {one.name for one in command.parameters.values() if one.python} <= shown
    assert not {one.name for one in command.parameters.values() if not one.python} & shown
    assert inspect.getdoc(load_function(name))


@pytest.mark.parametrize("name", ["check", "plan", "env", "prove", "diagnose", "explain", "contract", "fit"])
def test_a_tool_takes_what_the_command_offers_to_agents(name):
    command = load_command("contract show" if name == "contract" else name)
    taken = set(tools.build_tool_table()[name].takes["properties"]) - {"answer", "detail", "what_if", "job"}
    offered = {one.name for one in command.parameters.values() if one.mcp and not one.group}
    assert taken == offered | {command.argument.name}


def test_every_parameter_has_a_help_and_one_meaning_for_each_flag():
    for command in load_all_commands().values():
        flags = [one.flag for one in command.flags]
        assert len(set(flags)) == len(flags) and all(one.help for one in command.flags)
        assert all(one.metavar for one in command.flags if one.choices or one.kind != "text" or one.many)


def test_every_command_has_examples_that_are_understood():
    import shlex

    from gpuready.cli import make_request

    for name, command in load_all_commands().items():
        assert command.examples, name
        for example in command.examples:
            parsed = parse_command_line([*name.split(), *shlex.split(example)])
            assert not parsed.help and make_request(parsed, Screen(), 0.0).command == command
