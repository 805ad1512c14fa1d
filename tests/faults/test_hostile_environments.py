"""Environments, project files and recordings of a stranger: pipes and devices in place of files, escape codes, variables of ours."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.running import gpuready

MACHINES = Path(__file__).parents[1] / "machines"
ESCAPES = "\x1b]0;x\x07\x1b[31mX\x9b2J\u202e"
UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
EMPTY_HASH = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
WITHIN = 20.0  # a reader that waits for a pipe waits for ever


def assert_answered(*words: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command that must end by itself, in words that a terminal can be shown."""
    ran = gpuready(*map(str, words), cwd=cwd, timeout=WITHIN, **variables)
    said = ran.out + ran.err
    assert ran.code in (0, 1, 2, 3) and "Traceback" not in said and "gpuready failed" not in said, said[-500:]
    assert not UNPRINTABLE.search(said), UNPRINTABLE.findall(said)
    return said


@pytest.fixture
def site(tmp_path) -> Path:
    """The site-packages of an environment that is found, with torch and transformers in it."""
    folder = tmp_path / ".venv/lib/python3.11/site-packages"
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to("/usr/bin/python3")
    (tmp_path / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    for name, version in (("torch", "2.15.0"), ("transformers", "5.0")):
        info = folder / f"{name}-{version}.dist-info"
        (folder / name).mkdir(parents=True)
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


FILES = [
    "../../../pyvenv.cfg",
    "extra.pth",
    "sitecustomize.py",
    "torch-2.15.0.dist-info/METADATA",
    "torch-2.15.0.dist-info/RECORD",
    "transformers-5.0.dist-info/entry_points.txt",
    "transformers-5.0.dist-info/direct_url.json",
    "torch/__init__.py",
    "torch/version.py",
    "torch/_C.cpython-311-x86_64-linux-gnu.so",
]


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_in_an_environment_keeps_nobody_waiting(site, tmp_path, kind):
    for name in FILES:
        (site / name).unlink(missing_ok=True)
        os.mkfifo(site / name) if kind == "pipe" else (site / name).symlink_to("/dev/zero")
    assert_answered("check", "transformers", "--deep", cwd=tmp_path)


@pytest.mark.parametrize("name", ["extra.pth", "torch-2.15.0.dist-info/METADATA", "torch-2.15.0.dist-info/RECORD"])
def test_one_pipe_among_good_files(site, tmp_path, name):
    (site / name).unlink(missing_ok=True)
    os.mkfifo(site / name)
    assert "2.15.0" in assert_answered("check", "transformers", "--deep", cwd=tmp_path)


@pytest.mark.parametrize("path", ["/dev/zero", "../../../../../../../../../../../../dev/zero"])
def test_a_record_that_names_a_device(site, tmp_path, path):
    (site / "torch-2.15.0.dist-info/RECORD").write_text(f"{path},{EMPTY_HASH},\n")
    assert_answered("check", "transformers", "--deep", cwd=tmp_path)


def test_escape_codes_in_an_environment(site, tmp_path):
    (tmp_path / ".venv/pyvenv.cfg").write_text(f"home = /usr/bin{ESCAPES}\nversion = 3.11{ESCAPES}\n")
    info = site / "torch-2.15.0.dist-info"
    info.joinpath("METADATA").write_text(
        f"Name: torch{ESCAPES}\nVersion: 2.15{ESCAPES}\nRequires-Dist: numpy{ESCAPES}>1\n"
    )
    info.joinpath("RECORD").write_text(f"{ESCAPES},{EMPTY_HASH},1\n../../../../../../etc/shadow,{EMPTY_HASH},1\n")
    site.joinpath(f"kit{ESCAPES}-1.0.dist-info").mkdir()
    assert_answered("check", "transformers", "--deep", "-v", cwd=tmp_path)


@pytest.mark.parametrize("name", ["gpuready.toml", "pyproject.toml", "pixi.toml", ".python-version", ".venv"])
@pytest.mark.parametrize("kind", ["pipe", "loop"])
def test_project_files_that_are_none(tmp_path, name, kind):
    os.mkfifo(tmp_path / name) if kind == "pipe" else (tmp_path / name).symlink_to(name)
    assert_answered("check", "transformers", cwd=tmp_path)


@pytest.mark.parametrize(
    "words", [("check", "transformers", "-v"), ("probe",), ("plan", "transformers", "--no-resolve")]
)
def test_escape_codes_in_a_recording(tmp_path, words):
    data = json.loads((MACHINES / "h200.json").read_text())
    names = ("gpu.name", "os.name", "python.path", "python.prefix", "gpu.uuid")
    for fact in data["facts"]:
        fact["source"] = f"{fact.get('source', '')}{ESCAPES}"
        if fact["key"] in names and isinstance(fact["value"], (str, list)):
            one = isinstance(fact["value"], str)
            fact["value"] = f"{fact['value']}{ESCAPES}" if one else [f"{text}{ESCAPES}" for text in fact["value"]]
    (tmp_path / "machine.json").write_text(json.dumps({**data, "host": f"node{ESCAPES}"}))
    assert_answered(*words, "--on", "machine.json", cwd=tmp_path)


CONFIGS = {
    "roll": "pretrain: ${oc.env:PLANTED}\nbase_model: ${oc.env:PLANTED}\n",
    "axolotl": "base_model: ${PLANTED}\nadapter: $PLANTED\ndatasets: !include /etc/hostname\n",
}


@pytest.mark.parametrize("framework", CONFIGS)
def test_a_configuration_gets_no_variable_of_ours(tmp_path, framework):
    (tmp_path / "job.yml").write_text(CONFIGS[framework])
    words = ("check", framework, "--on", "h100", "--config", "job.yml", "--json")
    assert "zebra-77" not in assert_answered(*words, cwd=tmp_path, PLANTED="zebra-77")


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml"])
def test_a_container_file_gets_no_variable_of_ours(tmp_path, name):
    text = (
        "ARG T=$PLANTED\nFROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nENV A=${PLANTED}\nRUN pip install torch==$PLANTED\n"
    )
    if name == "compose.yaml":
        text = "services:\n  a:\n    image: x:${PLANTED}\n    environment: [A=$PLANTED, PLANTED]\n    env_file: /etc/hostname\n"
    (tmp_path / name).write_text(text)
    words = ("check", "transformers", "--dockerfile", name, "--json")
    assert "zebra-77" not in assert_answered(*words, cwd=tmp_path, PLANTED="zebra-77")
