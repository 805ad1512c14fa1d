"""A machine in a file: what was recorded is what is played, and no secret is on the tape."""

from __future__ import annotations

import json
import os

import pytest

from gpuready.model import Fact
from gpuready.system import Blind, Door, Live, Ran, Recorder, Replay, together
from gpuready.system.tape import key

SECRETS = (
    "hf_QwErTyUiOpAsDfGhJkLzXcVbNm123456",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "correct-horse-battery",
    "AKIAIOSFODNN7EXAMPLE",
    "sk-ant-api03-abcdefghijklmnop1234567890",
)


def everything(door):
    """One of each question."""

    def see(call, *args, **options):
        try:
            return call(*args, **options)
        except Blind as why:
            return f"blind: {why}"

    return [
        see(door.env, "PATH"),
        see(door.env, "NO_SUCH_VARIABLE"),
        see(door.environ),
        see(door.read, "/proc/version"),
        see(door.read, "/proc/version", limit=5),
        see(door.read, "/no/such"),
        see(door.read, "/"),
        see(door.list, "/proc/self/task"),
        see(door.stat, "/dev/null"),
        see(door.real, "/proc/self/cwd"),
        see(door.disk, "/proc"),
        see(door.which, "sh"),
        see(door.run, ["sh", "-c", "echo hi"]),
        see(door.run, ["no-such-program"], deadline=1),
        see(door.library, "libc.so.6"),
        see(door.libraries, "libc.so"),
        see(door.elf, "/proc/version"),
        see(door.elf_text, "/proc/version", ".rodata", ["x"]),
        see(door.nvml),
        see(door.uname),
        see(door.hostname),
        see(door.limits),
        see(door.cpus),
        see(door.libc),
        see(door.user),
        see(door.cwd),
        see(door.interpreter),
    ]


def through_json(tape):
    return json.loads(json.dumps(tape))


def test_what_is_recorded_is_what_is_played():
    recorder = Recorder(Live())
    before = everything(recorder)
    assert everything(Replay(through_json(recorder.tape))) == before


def test_recording_changes_no_answer():
    door = Live()
    for verb in ("uname", "cpus", "libc", "limits", "cwd", "interpreter"):
        assert getattr(Recorder(door), verb)() == getattr(door, verb)()


def test_a_question_that_was_not_asked():
    door = Replay({})
    for ask in (door.uname, door.environ, door.libc, door.nvml):
        with pytest.raises(Blind, match=r"^not recorded$"):
            ask()
    with pytest.raises(Blind, match=r"^not recorded$"):
        door.read("/etc/os-release")


def test_a_run_never_raises_not_even_from_a_tape():
    assert Replay({}).run(["nvidia-smi"]) == Ran(("nvidia-smi",), None, end="not recorded")


def test_a_program_is_the_same_question_however_long_it_may_take():
    recorder = Recorder(Live())
    ran = recorder.run(["echo", "x"], deadline=1)
    assert Replay(recorder.tape).run(["echo", "x"], deadline=9, limit=5) == ran
    assert Replay(recorder.tape).run(["echo", "x"], env={"A": "1"}).end == "not recorded"


def test_keys_can_be_written_by_hand():
    assert key("read", "/etc/os-release") == '["read", "/etc/os-release"]'
    assert key("run", ["nvcc", "--version"], 3.0, 100, None) == '["run", ["nvcc", "--version"]]'
    assert key("nvml", 5.0) == '["nvml"]'
    tape = {'["read", "/etc/os-release"]': "ID=debian\n", '["nvml"]': {"blind": "no answer within 20 s"}}
    assert Replay(tape).read("/etc/os-release") == "ID=debian\n"
    with pytest.raises(Blind, match=r"^no answer within 20 s$"):
        Replay(tape).nvml()


def test_no_secret_reaches_the_tape(monkeypatch, tmp_path, script):
    token, github, password, aws, model = SECRETS
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setenv("DB_PASSWORD", password)
    monkeypatch.setenv("PIP_INDEX_URL", f"https://me:{password}@host/simple")
    (tmp_path / "config").write_text(f"[remote]\nurl = https://{github}@github.com/a/b\nkey = {aws}\n")
    recorder = Recorder(Live())
    for name in ("HF_TOKEN", "DB_PASSWORD", "PIP_INDEX_URL"):
        recorder.env(name)
    recorder.environ()
    recorder.read(str(tmp_path / "config"))
    recorder.run([script(f"echo using {model}; echo {aws} >&2"), "--token", token, f"--password={password}"])
    recorder.run(["echo", "x"], env={"WANDB_API_KEY": password})
    with pytest.raises(Blind):
        recorder.read(f"/tmp/\0{token}")
    text = json.dumps(recorder.tape)
    for secret in SECRETS:
        assert secret not in text
    assert "@host/simple" in text
    assert "@github.com/a/b" in text


def test_a_question_with_a_secret_in_it_is_found_again():
    recorder = Recorder(Live())
    ran = recorder.run(["echo", "--token", SECRETS[0]])
    assert Replay(recorder.tape).run(["echo", "--token", SECRETS[0]]) == ran
    assert SECRETS[0] not in ran.out


@pytest.mark.parametrize("answer", [5, 1.5, True, ["a", 1], {"a": 1}, [["a"]], "text"])
def test_a_tape_that_somebody_else_wrote(answer):
    """Whatever stands where an answer should be, it is an answer of the right kind or Blind."""
    tape = {
        key(v): answer
        for v in ("environ", "uname", "hostname", "limits", "cpus", "libc", "user", "cwd", "nvml")
    }
    paths = {
        key(v, "/x"): answer for v in ("read", "list", "stat", "real", "disk", "elf", "library", "libraries")
    }
    door = Replay(
        {**tape, **paths, key("run", ["x"]): answer, key("env", "X"): answer, key("which", "x"): answer}
    )
    kinds = {
        (door.read, "/x"): (str, type(None)),
        (door.list, "/x"): (tuple, type(None)),
        (door.stat, "/x"): (dict, type(None)),
        (door.real, "/x"): (str,),
        (door.disk, "/x"): (dict, type(None)),
        (door.elf, "/x"): (dict, type(None)),
        (door.library, "/x"): (str, type(None)),
        (door.libraries, "/x"): (dict,),
        (door.env, "X"): (str, type(None)),
        (door.which, "x"): (str, type(None)),
        (door.environ,): (dict,),
        (door.uname,): (dict,),
        (door.hostname,): (str,),
        (door.limits,): (dict,),
        (door.libc,): (str, type(None)),
        (door.nvml,): (dict,),
    }
    for (ask, *args), wanted in kinds.items():
        try:
            assert isinstance(ask(*args), wanted)
        except Blind as why:
            assert "damaged" in str(why)
    assert door.run(["x"]).rc is None


@pytest.mark.parametrize(
    "record",
    [{"argv": ["x"]}, {"argv": ["x"], "rc": "0"}, {"argv": [1], "rc": 0}, {"argv": ["x"], "rc": 0, "out": 5}],
)
def test_a_run_that_somebody_else_wrote(record):
    assert Replay({key("run", ["x"]): record}).run(["x"]).end == "the recorded answer is damaged"


def test_a_failed_look_fails_the_same_way_from_the_tape():
    def crash(_):
        os.kill(os.getpid(), 11)

    def well(door):
        return [Fact("host.kernel", door.uname()["release"], "uname")]

    looks = [("crashing", crash, ("gpu.count", "gpu.name"), 2.0), ("well", well, ("host.kernel",), 2.0)]
    recorder = Recorder(Live())
    facts = together(recorder, looks)
    assert facts[0].gap == "crashed: signal SEGV"
    assert together(Replay(through_json(recorder.tape)), looks) == facts


def test_the_bare_door_answers_nothing():
    with pytest.raises(NotImplementedError):
        Door().uname()


def test_a_recorder_is_as_live_as_what_it_records():
    assert Recorder(Live()).live is True
    assert Recorder(Replay({})).live is False
