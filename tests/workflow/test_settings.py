"""The settings file of the current folder: what it may say, who reads it, and what it can never do."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from gpuready import commands
from gpuready.cli import run_command_line, run_parsed_command
from gpuready.cli.parser import parse_command_line
from gpuready.render.layout import Screen
from gpuready.workflow import settings
from gpuready.workflow.refusal import Refused

OLD_DRIVER = ("--on", "h100x8", "--driver", "525.60.13")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, text, name="gpuready.toml"):
    (folder / name).write_text(text)


def checked(capsys, *words):
    code = run_command_line(["check", *words, "--json"])
    said = json.loads(capsys.readouterr().out)
    return code, said[0] if isinstance(said, list) else said


def facts(report):
    return {fact["key"]: fact["value"] for fact in report["facts"] if fact["key"].startswith("settings.")}


def make_venv(folder, name=".venv", config="home = /usr/bin\nversion = 3.11.7\n"):
    for inner in ("bin", "lib/python3.11/site-packages"):
        (folder / name / inner).mkdir(parents=True, exist_ok=True)
    (folder / name / "pyvenv.cfg").write_text(config)
    (folder / name / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    return folder / name


def test_no_file_is_no_settings_and_no_toml_is_loaded(folder, monkeypatch):
    write(folder, "[project]\nname = 'gpuready'\n", "pyproject.toml")
    monkeypatch.setitem(sys.modules, "tomllib", None)
    assert settings.read_settings() is None


def test_the_parents_are_not_looked_at(folder, monkeypatch):
    write(folder, 'framework = "trl"')
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / "inner")
    assert settings.read_settings() is None


def test_pyproject_is_read_unless_there_is_a_file_of_its_own(folder):
    write(folder, '[tool.gpuready]\nframework = ["trl", "vllm"]\n', "pyproject.toml")
    assert settings.read_settings().framework == ("trl", "vllm")
    write(folder, "strict = true")
    assert settings.read_settings() == settings.Settings("gpuready.toml", strict=True)


def test_a_check_takes_them_and_names_the_file(folder, capsys):
    write(folder, 'framework = "trl"\nstrict = true\nignore = { drv001 = "updated tonight" }\n')
    _, report = checked(capsys, *OLD_DRIVER)
    assert report["contract"]["framework"] == "trl" and report["strict"] is True
    assert facts(report) == {"settings.file": "gpuready.toml", "settings.applied": ["framework", "strict"]}


def test_an_ignored_finding_is_in_the_report_with_its_reason(folder, capsys):
    (folder / "Dockerfile").write_text("FROM nvidia/cuda:12.8.0-runtime-ubuntu22.04\nRUN pip install torch==2.0.0\n")
    _, before = checked(capsys, "vllm", "--dockerfile", "Dockerfile")
    code = before["findings"][0]["code"]
    write(folder, f'[tool.gpuready.ignore]\n{code} = "updated tonight"\n', "pyproject.toml")
    _, after = checked(capsys, "vllm", "--dockerfile", "Dockerfile")
    assert ("updated tonight", code) in [(one["reason"], one["finding"]["code"]) for one in after["ignored"]]
    assert facts(after)["settings.applied"] == ["ignore"]


@pytest.mark.parametrize("words", [OLD_DRIVER, ("--python", sys.prefix)], ids=["on", "python"])
@pytest.mark.parametrize("name", ["gpuready.toml", "pyproject.toml"])
def test_who_wrote_this_folder_silences_nothing_about_another(folder, capsys, words, name):
    """A checkout that says what to ignore does not know what --on and --python name."""
    _, before = checked(capsys, "vllm", *words)
    codes = {finding["code"] for finding in before["findings"]}
    rows = "".join(f'{code} = "hush"\n' for code in codes)
    write(folder, ("[ignore]\n" if name == "gpuready.toml" else "[tool.gpuready.ignore]\n") + rows, name)
    code = run_command_line(["check", "vllm", *words, "--json"])
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert codes and {finding["code"] for finding in report["findings"]} == codes and not report["ignored"]
    assert code == before["exit"] and f"ignore of {name} is not applied" in said.err
    one = sorted(codes)[0]
    _, asked = checked(capsys, "vllm", *words, "--ignore", f"{one}=my own word")
    assert [row["finding"]["code"] for row in asked["ignored"]][:1] == [one]


def test_the_words_of_the_command_line_win(folder, capsys):
    write(folder, 'framework = "trl"\nstrict = true\n')
    _, report = checked(capsys, "vllm", "--strict", *OLD_DRIVER)
    assert report["contract"]["framework"] == "vllm" and not facts(report)


def test_no_other_face_reads_them(folder, capsys):
    """serve answers queries through run_parsed_command, MCP and Python through call_command."""
    code = checked(capsys, "vllm", *OLD_DRIVER)[1]["findings"][0]["code"]
    write(folder, f'framework = "trl"\nignore = {{ {code} = "hide it" }}\n')
    text, _ = run_parsed_command(
        parse_command_line(["check", "vllm", *OLD_DRIVER, "--json"]), Screen(), time.perf_counter()
    )
    python = commands.load_function("check")("vllm", on="h100x8", driver="525.60.13").data
    for report in (json.loads(text), python):
        assert code in [finding["code"] for finding in report["findings"]] and not report["ignored"]


def test_an_environment_inside_the_folder_is_taken(folder, capsys):
    make_venv(folder)
    write(folder, 'python = ".venv/bin/python"')
    assert settings.read_settings().python == ".venv"
    _, report = checked(capsys, "trl")
    assert facts(report)["settings.applied"] == ["python"]
    assert {f["value"] for f in report["facts"] if f["key"] == "python.prefix"} == {str(folder / ".venv")}


@pytest.mark.parametrize("words", [("--on", "h100"), ("--python", sys.prefix)])
def test_another_machine_or_environment_leaves_it_out(folder, words, capsys):
    make_venv(folder)
    write(folder, 'python = ".venv"')
    assert not facts(checked(capsys, "trl", *words)[1])


def test_an_environment_outside_is_refused_also_through_a_link(folder, tmp_path_factory):
    outside = make_venv(tmp_path_factory.mktemp("elsewhere"))
    (folder / "link").symlink_to(outside)
    for named in (str(outside), "../x", "link", "/usr", ".", "/"):
        write(folder, f'python = "{named}"')
        with pytest.raises(Refused, match="must lie inside this folder"):
            settings.read_settings()


def test_no_setting_runs_an_interpreter(folder, capsys):
    """An environment that does not tell its version in a file would have to be run."""
    inside = make_venv(folder, config="home = /usr/bin\n")
    (inside / "bin" / "python").unlink()
    (inside / "bin" / "python").write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    (inside / "bin" / "python").chmod(0o755)
    for named in (".venv", ".venv/bin/python"):
        write(folder, f'python = "{named}"')
        assert run_command_line(["check", "trl"]) == 2
        assert "states its version in a file" in capsys.readouterr().err
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('frame = "x"', "has a setting 'frame' that gpuready does not know (nearest: framework)"),
        ("index = 'x'", "the settings are framework, python, ignore, strict"),
        ("yes = true", "does not know"),
        ("framework = 3", "framework must be a name or a list of names"),
        ("strict = 'yes'", "strict must be true or false"),
        ("ignore = ['GPU001']", "must give each code a reason"),
        ("ignore = { GPU001 = '' }", "must give each code a reason"),
        ("ignore = { GPU999 = 'x' }", "no rule has that code"),
        ("python = 3", "python must be the folder of an environment"),
        ("python = ''", "python must be the folder of an environment"),
        ("x = [", "is not TOML"),
        ("x = " + "[" * 99, "nested more than 8 deep, which no settings file is"),
        ("# " + "x" * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_a_bad_setting_is_one_sentence(folder, capsys, text, says):
    write(folder, text)
    assert run_command_line(["check", "trl", "--on", "h100"]) == 2
    said = capsys.readouterr().err
    assert says in said and said.startswith("gpuready: gpuready.toml") and said.count("\n") == 1


def test_a_file_that_is_no_file_is_one_sentence(folder, capsys):
    (folder / "gpuready.toml").mkdir()
    assert run_command_line(["check", "trl", "--on", "h100"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    (folder / "gpuready.toml").rmdir()
    os.mkfifo(folder / "gpuready.toml")
    assert run_command_line(["check", "trl", "--on", "h100"]) == 2


def test_only_commands_that_change_and_run_nothing_take_them():
    taking = {name: one.settings for name, one in commands.load_all_commands().items() if one.settings}
    assert "ignore" not in {setting for name, all in taking.items() if name != "check" for setting in all}
    assert not {"install", "prove", "bench", "run", "serve", "mcp", "fit"} & set(taking)


def test_a_command_for_one_framework_takes_no_list_and_an_undo_none(folder):
    from gpuready.commands.declaration import Request
    from gpuready.commands.settings import apply_settings

    fix = commands.load_command("fix")
    for text, options, arguments in (
        ('framework = "trl"', {}, ["trl"]),
        ('framework = "trl"', {"undo": True}, []),
        ('framework = ["trl", "vllm"]', {}, []),
    ):
        write(folder, text)
        request = Request(fix, [], dict(options))
        apply_settings(request)
        assert request.arguments == arguments
