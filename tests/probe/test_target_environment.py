"""Which Python environment is looked at."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready import probe
from gpuready.probe.environment_choice import choose_environment
from gpuready.probe.target_environment import parse_pyvenv_config
from gpuready.system import AccessError, LiveHost, RunResult
from tests.probe.fakes import Fake

VENV = {
    "/v/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.7\n",
    "/v/bin/python": "\x7fELF",
    "/v/lib/python3.11/site-packages/pip-23.2.1.dist-info/METADATA": "Name: pip\n",
}
CONDA = {
    "/c/conda-meta/history": "",
    "/c/conda-meta/python-3.10.14-h955ad1f_1.json": "{}",
    "/c/conda-meta/python_abi-3.10-2_cp310.json": "{}",
    "/c/bin/python": "\x7fELF",
    "/c/lib/python3.10/site-packages/x.py": "",
}
SYSTEM = {
    "/usr/bin/python3": "\x7fELF",
    "/usr/lib/python3/dist-packages/yaml/__init__.py": "",
    "/usr/local/lib/python3.11/dist-packages/x.py": "",
    "/usr/lib/python3.11/os.py": "",
}
RUNS = {"/usr/bin/python3 -V": "Python 3.11.2\n"}


def chosen(files, python=None, **requested):
    return choose_environment(Fake(files, **requested), python)


# -- choosing -----------------------------------------------------------------------------------------


def test_a_virtual_environment_by_its_folder_or_its_interpreter():
    for name in ("/v", "/v/", "/v/bin/python"):
        who = chosen(VENV, name)
        assert (who.prefix, who.path, who.kind, who.version) == ("/v", "/v/bin/python", "venv", "3.11.7")
        assert who.site == ("/v/lib/python3.11/site-packages",)
        assert (who.source, who.version_source) == ("--python", "/v/pyvenv.cfg")


def test_the_interpreter_of_a_venv_is_a_link_and_is_not_followed():
    files = {k: v for k, v in VENV.items() if k != "/v/bin/python"} | SYSTEM
    who = chosen(files, "/v/bin/python", links={"/v/bin/python": "/usr/bin/python3"})
    assert (who.prefix, who.kind) == ("/v", "venv")


def test_conda():
    who = chosen(CONDA, "/c")
    assert (who.kind, who.version) == ("conda", "3.10.14")
    assert who.site == ("/c/lib/python3.10/site-packages",)


def test_the_system():
    who = chosen(SYSTEM, "/usr/bin/python3", runs=RUNS)
    assert (who.prefix, who.kind, who.version) == ("/usr", "system", "3.11.2")
    assert who.site == ("/usr/local/lib/python3.11/dist-packages", "/usr/lib/python3/dist-packages")


def test_an_interpreter_by_its_name():
    assert chosen(SYSTEM, "python3", path={"python3": "/usr/bin/python3"}, runs=RUNS).prefix == "/usr"


def test_a_link_in_some_folder_leads_home():
    who = chosen(SYSTEM, "/home/ada/bin/py", links={"/home/ada/bin/py": "/usr/bin/python3"},
                 runs={"/home/ada/bin/py -V": "Python 3.11.2"})  # fmt: skip
    assert who.prefix == "/usr"


def test_relative_paths_and_home():
    files = {k.replace("/v/", "/home/ada/env/"): t for k, t in VENV.items()}
    for name in ("env", "./env", "~/env"):
        assert chosen(files, name, env={"HOME": "/home/ada"}).kind == "venv"


# -- site folders -------------------------------------------------------------------------------------


def test_a_venv_that_sees_the_system():
    files = (
        VENV | SYSTEM | {"/v/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.2\n"}
    )
    files["/home/ada/.local/lib/python3.11/site-packages/x.py"] = ""
    who = chosen(files, "/v", env={"HOME": "/home/ada"})
    assert who.site == (
        "/v/lib/python3.11/site-packages",
        "/home/ada/.local/lib/python3.11/site-packages",
        "/usr/local/lib/python3.11/dist-packages",
        "/usr/lib/python3/dist-packages",
    )


def test_the_users_own_packages_count_unless_they_are_switched_off():
    files = CONDA | {"/home/ada/.local/lib/python3.10/site-packages/x.py": ""}
    mine = "/home/ada/.local/lib/python3.10/site-packages"
    assert chosen(files, "/c", env={"HOME": "/home/ada"}).site[0] == mine
    assert mine not in chosen(files, "/c", env={"HOME": "/home/ada", "PYTHONNOUSERSITE": "1"}).site
    assert mine not in chosen(files, "/c", env={}).site


def test_lib64_counts_once_where_it_is_a_link_and_twice_where_it_is_none():
    assert len(chosen(VENV, "/v", links={"/v/lib64": "lib"}).site) == 1
    assert len(chosen(VENV | {"/v/lib64/python3.11/site-packages/x.py": ""}, "/v").site) == 2


def test_a_link_that_leads_to_another_python_by_now_counts_more_than_pyvenv_cfg():
    """As after an upgrade of the system: the packages of the old one are not on the path of the new one."""
    files = {k: v for k, v in VENV.items() if k != "/v/bin/python"} | {"/usr/bin/python3.13": "\x7fELF"}
    who = chosen(files, "/v", links={"/v/bin/python": "/usr/bin/python3.13"})
    assert (who.version, who.site, who.made_with) == ("3.13", (), "3.11.7")
    assert chosen(VENV, "/v").made_with == ""
    del files["/usr/bin/python3.13"]
    files |= {"/opt/py/bin/python": "\x7fELF", "/opt/py/lib/python3.12/os.py": ""}
    assert chosen(files, "/v", links={"/v/bin/python": "/opt/py/bin/python"}).made_with == "3.11.7"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("version = 3.12.3\n", "3.12.3"),
        ("version_info = 3.12.3.final.0\n", "3.12.3"),
        ("version_info = 3.13\n", "3.13"),
    ],
)
def test_versions_as_venv_virtualenv_and_uv_write_them(text, version):
    assert chosen(VENV | {"/v/pyvenv.cfg": f"home = /x\n{text}"}, "/v").version == version


def test_settings():
    assert parse_pyvenv_config("A = b\nInclude-System-Site-Packages= true\nnothing\n") == {
        "a": "b",
        "include-system-site-packages": "true",
    }


# -- refusals: D36 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/nowhere", "no such file or folder"),
        ("pythonX", "no such file or folder"),
        ("/empty", "a folder without bin/python"),
        ("/v/pyvenv.cfg", "not an executable file"),
        ("/dangling", "a link to nothing"),
        ("/two/bin/python", "is Python 2.7.18"),
        ("/broken/bin/python", "does not say which Python it is"),
        ("/shim/python", "a script that does not start a Python 3: pyenv: version `3.9' is not installed"),
        ("/dark", "cannot be seen: permission denied"),
    ],
)
def test_what_is_no_python_is_refused_in_one_sentence(python, words):
    files = VENV | {
        "/empty/x": "",
        "/two/bin/python": "\x7fELF",
        "/broken/bin/python": "\x7fELF",
        "/shim/python": "#!/bin/sh\n",
        "/dark": AccessError("permission denied"),
    }
    runs = {
        "/two/bin/python -V": RunResult((), 0, "", "Python 2.7.18\n"),
        "/broken/bin/python -V": RunResult((), 127, "", "error while loading shared libraries"),
    }
    host = Fake(files, runs=runs, links={"/dangling": "/nowhere/python"}, modes={"/v/pyvenv.cfg": 0o644})
    shim = RunResult((), 127, "", "pyenv: version `3.9' is not installed (set by /home/ada/.python-version)\n")
    host._run = lambda argv, *rest: (shim if argv[0] == "/shim/python" else runs[" ".join(argv)]).to_json()
    with pytest.raises(ValueError, match="--python") as refused:
        choose_environment(host, python)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_launcher_that_works_is_asked_where_it_leads():
    host = Fake(VENV | {"/shims/python": "#!/bin/sh\n"})
    host._run = lambda argv, *rest: RunResult(tuple(argv), 0, "/v\n/v/bin/python\n3.11.7").to_json()
    who = choose_environment(host, "/shims/python")
    assert (who.prefix, who.kind, who.version) == ("/v", "venv", "3.11.7")


def test_a_python_that_is_none_is_refused_once_it_was_looked_at():
    with pytest.raises(ValueError, match="no such file"):
        probe.probe(Fake({}), "/nowhere")


# -- the real thing -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real") / "my env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def test_a_real_environment(venv: Path):
    who = choose_environment(LiveHost(), str(venv))
    assert who.kind == "venv"
    assert who.version == ".".join(map(str, sys.version_info[:3]))
    assert [Path(s).resolve() for s in who.site] == [next((venv / "lib").glob("python3*")) / "site-packages"]
    assert choose_environment(LiveHost(), str(venv / "bin" / "python")) == who.replace(
        path=str(venv / "bin" / "python")
    )


def test_a_real_environment_whose_python_is_gone(venv: Path, tmp_path: Path):
    """F20."""
    broken = tmp_path / "broken"
    (broken / "bin").mkdir(parents=True)
    (broken / "bin" / "python").symlink_to(tmp_path / "removed")
    for name in (broken, broken / "bin" / "python"):
        with pytest.raises(ValueError, match=r"link to nothing|without bin/python"):
            choose_environment(LiveHost(), str(name))


def test_a_real_file_that_is_not_executable(tmp_path: Path):
    file = tmp_path / "python"
    file.write_text("")
    os.chmod(file, stat.S_IRUSR)
    with pytest.raises(ValueError, match="not an executable file"):
        choose_environment(LiveHost(), str(file))
