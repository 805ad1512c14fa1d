"""Fixes fit the system and the versions that the log shows."""

from __future__ import annotations

import pytest

from gpuready.diagnose.logged_system import detect_systems, find_logged_versions
from gpuready.logs.log_summary import LogSource, read_logs
from gpuready.model import FixStep
from gpuready.workflow.diagnose import diagnose_logs, load_pattern_table
from gpuready.workflow.diagnosis_fixes import fit_steps

PORT = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"


def summary(text: str):
    return read_logs([LogSource("log", [text.encode()])], load_pattern_table())


@pytest.mark.parametrize(
    ("text", "systems"),
    [
        ('  File "C:\\Users\\me\\train.py", line 3, in <module>', {"windows"}),
        ("[WinError 126] The specified module could not be found", {"windows"}),
        ('  File "/mnt/c/Users/me/train.py", line 3, in <module>', {"linux", "wsl", "debian"}),
        ('  File "/Users/me/train.py", line 3, in <module>', {"macos"}),
        ('  File "/home/me/train.py", line 3, in <module>', {"linux", "debian"}),
        ("Linux gpu1 4.18.0-553.el8.x86_64\n/usr/bin/python3", {"linux", "rhel"}),
        ("KeyError: 'labels'", set()),
    ],
)
def test_the_system_of_a_log(text, systems):
    assert detect_systems(summary(text)) == systems


def test_versions_that_a_log_states():
    found = find_logged_versions(
        summary("vLLM API server version 0.8.5\ntorch==2.6.0 installed\ntrl 0.11.4 and trl 0.12.0\nloss 2.1 at 3.5 s")
    )
    assert found == {"vllm": "0.8.5", "torch": "2.6.0"}


def test_programs_of_another_system_are_replaced_or_left_out():
    steps = (
        FixStep("look who was killed", ("dmesg", "-T"), "safe"),
        FixStep("see the links", ("ibstat",), "safe"),
        FixStep("install a compiler", ("apt-get", "install", "-y", "gcc", "g++"), "ask"),
        FixStep("start the container with --shm-size=16g"),
        FixStep("lower the batch size"),
    )
    windows = fit_steps(steps, frozenset(("windows",)))
    assert [step.run[:1] for step in windows] == [("wevtutil",), (), ()]
    assert [step.does for step in windows][1:] == ["install a compiler", "lower the batch size"]
    red_hat = fit_steps(steps, frozenset(("linux", "rhel")))
    assert red_hat[2].run == ("dnf", "install", "-y", "gcc", "gcc-c++")
    assert fit_steps(steps, frozenset()) == steps


@pytest.mark.parametrize(
    ("file", "program"), [("C:\\\\Users\\\\me\\\\train.py", "netstat"), ("/home/me/train.py", "ss")]
)
def test_a_diagnosis_calls_what_its_system_has(file, program):
    text = f'Traceback (most recent call last):\n  File "{file}", line 3, in <module>\n    main()\n{PORT}\n'
    one = diagnose_logs([[text.encode()]], look=False)
    assert one.cause == "port-in-use"
    assert [step.run[0] for step in one.fix if step.run] == [program]
