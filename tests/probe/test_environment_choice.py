"""Which environment is examined where none is named, on machines out of dictionaries; real ones: tests/supply/test_user_environments.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuready import workflow
from gpuready.probe.environment_choice import NO_ENVIRONMENT, choose_environment, choose_interpreter
from gpuready.system import ReplayHost, RunResult
from tests.probe.fakes import Fake

MACHINES = Path(__file__).parents[1] / "machines"
HOME = "/home/ada"
PROJECT = f"{HOME}/work/app"


def venv(prefix: str, *packages: str, config: str = "home = /usr/bin\nversion = 3.11.7\n") -> dict[str, str]:
    inside = {f"{prefix}/lib/python3.11/site-packages/{name}/__init__.py": "" for name in ("pip", *packages)}
    return {
        f"{prefix}/pyvenv.cfg": config,
        f"{prefix}/bin/python": "\x7fELF",
        f"{prefix}/bin/python3": "\x7fELF",
        **inside,
    }


def conda(prefix: str) -> dict[str, str]:
    files = ("conda-meta/history", "conda-meta/python-3.10.14-h955ad1f_1.json", "lib/python3.10/site-packages/x.py")
    return {f"{prefix}/{name}": "" for name in files} | {
        f"{prefix}/bin/python": "\x7fELF",
        f"{prefix}/bin/python3": "\x7fELF",
    }


SYSTEM = {"/usr/bin/python3": "\x7fELF", "/usr/lib/python3/dist-packages/yaml/__init__.py": ""}
RUNS = {"/usr/bin/python3 -V": "Python 3.11.2\n"}
UVX = f"{HOME}/.cache/uv/archive-v0/rwYi-x4IUyEJeSed"
PIPX = f"{HOME}/.local/share/pipx/venvs/gpuready"
UV_TOOL = f"{HOME}/.local/share/uv/tools/gpuready"
BARE = "/opt/own"
TOOLS = {
    UVX: venv(UVX),
    PIPX: venv(PIPX) | {f"{PIPX}/pipx_metadata.json": "{}"},
    UV_TOOL: venv(UV_TOOL) | {f"{UV_TOOL}/uv-receipt.toml": "[tool]\n"},
}


def machine(
    *files: dict[str, str], own: str = BARE, role: str = "command", path: str = "/usr/bin", **requested: object
) -> Fake:
    everything = {} if own == "/usr" else {**TOOLS.get(own, venv(own))}
    for one in files:
        everything |= one
    env = {"HOME": HOME, "PATH": path, **requested.pop("env", {})}  # type: ignore[dict-item]
    running = {"executable": f"{own}/bin/python", "prefix": own, "version": "3.11.7", "role": role}
    return Fake(everything, env=env, interpreter=running, **{"cwd": PROJECT, "runs": RUNS, **requested})


def chosen(*files: dict[str, str], **requested: object) -> tuple[str, str]:
    found = choose_environment(machine(*files, **requested))
    return found.prefix, found.chosen_by


# -- the order ----------------------------------------------------------------------------------------


def test_the_order_is_active_project_path():
    active, here = venv("/v"), venv(f"{PROJECT}/.venv")
    env = {"VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c"}
    assert chosen(active, conda("/c"), here, SYSTEM, env=env) == ("/v", "active venv")
    env["VIRTUAL_ENV"] = "/gone"
    prefix, why = chosen(active, conda("/c"), here, SYSTEM, env=env)
    assert prefix == "/c" and why.startswith("active conda environment; ")
    assert chosen(active, conda("/c"), here, SYSTEM) == (f"{PROJECT}/.venv", "./.venv")
    assert chosen(active, conda("/c"), SYSTEM) == ("/usr", "python3 on PATH")


LOST = {f"{PROJECT}/.venv/pyvenv.cfg": "home = /gone\n", f"{PROJECT}/.venv/lib/python3.11/site-packages/x.py": ""}


@pytest.mark.parametrize(
    ("files", "env", "said"),
    [
        (LOST, {}, "no working Python in ./.venv"),
        ({}, {"VIRTUAL_ENV": "/gone"}, "no working Python in /gone (VIRTUAL_ENV)"),
        ({"/c/conda-meta/history": ""}, {"CONDA_PREFIX": "/c"}, "no working Python in /c (CONDA_PREFIX)"),
        (LOST, {"VIRTUAL_ENV": "/gone"}, "no working Python in /gone (VIRTUAL_ENV) or ./.venv"),
        (LOST, {"VIRTUAL_ENV": f"{PROJECT}/.venv/"}, f"no working Python in {PROJECT}/.venv (VIRTUAL_ENV)"),
    ],
)
def test_an_environment_without_its_python_is_passed_over_and_named(files: dict[str, str], env: dict[str, str], said):
    assert chosen(files, SYSTEM, env=env) == ("/usr", f"python3 on PATH; {said}")
    nothing = choose_environment(machine(files, env=env, path="/none"))
    assert not nothing.prefix and nothing.gap == f"{said}; {NO_ENVIRONMENT}"


def test_a_folder_that_is_no_environment_is_not_named():
    assert chosen({f"{PROJECT}/.venv/notes.txt": ""}, SYSTEM) == ("/usr", "python3 on PATH")


def test_a_conda_base_that_every_shell_activates_yields_to_the_project():
    env = {"CONDA_PREFIX": "/c", "CONDA_DEFAULT_ENV": "base"}
    assert chosen(conda("/c"), venv(f"{PROJECT}/.venv"), env=env)[0] == f"{PROJECT}/.venv"
    assert chosen(conda("/c"), SYSTEM, env=env) == ("/c", "active conda environment")


def test_where_there_is_none_the_answer_says_so_and_offers_install():
    for path in ("", "/usr/bin", f"{BARE}/bin", "relative:/opt/own/bin:"):
        found = choose_environment(machine(path=path))
        assert (found.prefix, found.path, found.gap) == ("", "", NO_ENVIRONMENT)
    assert choose_environment(ReplayHost({})).gap != NO_ENVIRONMENT, "what was not recorded is unknown, not absent"
    with pytest.raises(ValueError, match="gpuready install FRAMEWORK -e DIR"):
        choose_interpreter(machine(path=""))


def test_without_an_environment_no_machine_is_clear(tmp_path):
    recording = json.loads((MACHINES / "h200.json").read_text())
    assert workflow.check_machine(["transformers"], on=str(MACHINES / "h200.json"))[0].verdict == "clear"
    for fact in recording["facts"]:
        if fact["key"].startswith(("python.", "package.", "torch.")):
            fact |= {"value": None, "gap": NO_ENVIRONMENT}
    (tmp_path / "dark.json").write_text(json.dumps({**recording, "tape": []}))
    for frameworks in (["transformers"], []):
        assert workflow.check_machine(frameworks, on=str(tmp_path / "dark.json"))[0].verdict == "undecided"


# -- ours ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [*TOOLS, BARE])
def test_the_environment_made_for_gpuready_is_never_examined_by_path(own: str):
    assert chosen(SYSTEM, own=own, path=f"{own}/bin:/usr/bin") == ("/usr", "python3 on PATH")


@pytest.mark.parametrize("own", TOOLS)
def test_the_environment_of_a_tool_is_not_the_users_even_if_it_is_active(own: str):
    assert chosen(SYSTEM, own=own, env={"VIRTUAL_ENV": own})[0] == "/usr"


def test_an_environment_the_user_activated_is_theirs_though_gpuready_is_in_it():
    assert chosen(SYSTEM, own="/v", env={"VIRTUAL_ENV": "/v"}) == ("/v", "active venv")
    here = f"{PROJECT}/.venv"
    assert chosen(SYSTEM, own=here) == (here, "./.venv")


def test_an_environment_with_torch_is_theirs_though_gpuready_runs_from_it():
    own = venv("/opt/train", "torch")
    assert chosen(own, SYSTEM, own="/opt/train") == ("/opt/train", "gpuready is installed in it")
    assert chosen(own, SYSTEM, own="/opt/train", path="/opt/train/bin:/usr/bin")[0] == "/opt/train"


def test_a_system_python_is_the_users_though_gpuready_is_installed_in_it():
    assert chosen(SYSTEM, own="/usr", path="/usr/bin") == ("/usr", "python3 on PATH")


def test_in_a_notebook_it_is_the_python_of_the_notebook():
    assert chosen(SYSTEM, role="library", env={"VIRTUAL_ENV": "/v"}) == (BARE, "this Python process")
    assert chosen(SYSTEM, role="library", own=UVX)[0] == "/usr"


def test_uv_run_with_is_seen_through_to_the_project():
    overlay = f"{HOME}/.cache/uv/builds-v0/.tmpJg6fzk"
    config = f"home = /usr/bin\nversion_info = 3.11.7\nextends-environment = {PROJECT}/.venv\n"
    files = venv(overlay, config=config) | venv(f"{PROJECT}/.venv")
    path = f"{overlay}/bin:{UVX}/bin:{PROJECT}/.venv/bin"
    assert chosen(files, own=overlay, path=path, env={"VIRTUAL_ENV": overlay}) == (f"{PROJECT}/.venv", "active venv")
    del files[f"{PROJECT}/.venv/bin/python"], files[f"{PROJECT}/.venv/bin/python3"]
    assert (
        chosen(files, TOOLS[UVX], SYSTEM, own=overlay, path=f"{path}:/usr/bin", env={"VIRTUAL_ENV": overlay})[0]
        == "/usr"
    )


def test_gpuready_s_own_checkout_is_no_project_of_the_user():
    files = venv(f"{PROJECT}/.venv") | {f"{PROJECT}/src/gpuready/__init__.py": ""}
    assert chosen(files, SYSTEM)[0] == "/usr"
    assert chosen(files, SYSTEM, own=f"{PROJECT}/.venv")[0] == "/usr"


# -- projects -----------------------------------------------------------------------------------------


def test_a_folder_of_a_repository_has_the_environment_of_its_top():
    files = venv(f"{HOME}/work/.venv") | {f"{HOME}/work/.git/HEAD": ""}
    assert chosen(files, SYSTEM) == (f"{HOME}/work/.venv", f"{HOME}/work/.venv")
    assert chosen(venv(f"{HOME}/work/.venv"), SYSTEM)[0] == "/usr", "no repository: somebody may have put it there"


def test_nothing_of_a_project_s_environment_is_run():
    host = machine(venv(f"{PROJECT}/.venv", config="home = /usr/bin\n"))
    found = choose_environment(host)
    assert (found.version, host.ran()) == ("3.11", [])


@pytest.mark.parametrize(("configured", "prefix"), [("/envs/app", "/envs/app"), ("my env/", f"{PROJECT}/my env")])
def test_uv_says_where_the_project_s_environment_is(configured: str, prefix: str):
    files = venv(prefix) | venv(f"{PROJECT}/.venv") | {f"{PROJECT}/pyproject.toml": ""}
    assert chosen(files, env={"UV_PROJECT_ENVIRONMENT": configured}) == (prefix, "uv project")
    del files[f"{PROJECT}/pyproject.toml"]
    assert chosen(files, env={"UV_PROJECT_ENVIRONMENT": configured})[0] == f"{PROJECT}/.venv"


def test_pixi():
    prefix = f"{PROJECT}/.pixi/envs/default"
    assert chosen(conda(prefix), SYSTEM) == (prefix, "pixi project")


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({f"{PROJECT}/poetry.lock": ""}, "poetry env info --executable"),
        ({f"{PROJECT}/pyproject.toml": "[tool.hatch.envs.default]\n"}, "hatch env find"),
    ],
)
def test_where_only_its_tool_knows_the_environment_nothing_is_guessed(files: dict[str, str], command: str):
    found = choose_environment(machine(SYSTEM, files))
    assert not found.prefix and f'--python "$({command})"' in found.gap
    assert chosen(SYSTEM, files, venv(f"{PROJECT}/.venv"))[0] == f"{PROJECT}/.venv"


# -- launchers on PATH --------------------------------------------------------------------------------


def pyenv(**more: str) -> dict[str, str]:
    root = f"{HOME}/.pyenv"
    files = {f"{root}/versions/{version}/bin/python3": "\x7fELF" for version in ("3.11.7", "3.12.1")}
    return {f"{root}/shims/python3": "#!/usr/bin/env bash\n", f"{root}/version": "3.11.7\n", **files, **more}


@pytest.mark.parametrize(
    ("files", "env", "version"),
    [
        ({}, {}, "3.11.7"),
        ({f"{HOME}/work/.python-version": "3.12.1\n"}, {}, "3.12.1"),
        ({}, {"PYENV_VERSION": "gone:3.12.1"}, "3.12.1"),
    ],
)
def test_pyenv_is_read_and_not_run(files: dict[str, str], env: dict[str, str], version: str):
    root = f"{HOME}/.pyenv"
    runs = {f"{root}/versions/{v}/bin/python3 -V": f"Python {v}" for v in ("3.11.7", "3.12.1")}
    host = machine(pyenv(**files), SYSTEM, path=f"{root}/shims:/usr/bin", env=env, runs=runs)
    assert choose_environment(host).prefix == f"{root}/versions/{version}"
    assert not [line for line in host.ran() if "shims" in line]


def test_a_launcher_that_starts_nothing_is_passed_by():
    host = machine({"/shims/python3": "#!/bin/sh\n"}, SYSTEM, path="/shims:/usr/bin")
    answers = {"/usr/bin/python3": RunResult((), 0, "Python 3.11.2\n")}
    host._run = lambda argv, *rest: answers.get(argv[0], RunResult((), 127, "", "no version is set")).to_json()
    assert choose_environment(host).prefix == "/usr"


def test_mise_is_a_link_and_is_asked():
    host = machine({"/usr/bin/mise": "\x7fELF"}, venv("/v"), path="/shims", links={"/shims/python3": "/usr/bin/mise"})
    host._run = lambda argv, *rest: RunResult(tuple(argv), 0, "/usr\n/v/bin/python\n3.11.7").to_json()
    assert choose_environment(host).prefix == "/v"
