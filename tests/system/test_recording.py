"""A machine in a file: what was recorded is what is played, and no secret is on the tape."""

from __future__ import annotations

import json
import os

import pytest

from gpuready.model import Fact
from gpuready.system import AccessError, HostAccess, LiveHost, RecordingHost, ReplayHost, RunResult, run_probes
from gpuready.system.recording import query_key

SECRETS = (
    "hf_QwErTyUiOpAsDfGhJkLzXcVbNm123456",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "correct-horse-battery",
    "AKIAIOSFODNN7EXAMPLE",
    "sk-ant-api03-abcdefghijklmnop1234567890",
)


def everything(host):
    """One of each question."""

    def see(call, *args, **options):
        try:
            return call(*args, **options)
        except AccessError as why:
            return f"refused: {why}"

    return [
        see(host.get_env_var, "PATH"),
        see(host.get_env_var, "NO_SUCH_VARIABLE"),
        see(host.get_environment),
        see(host.read_text, "/proc/version"),
        see(host.read_text, "/proc/version", limit=5),
        see(host.read_text, "/no/such"),
        see(host.read_text, "/"),
        see(host.list_directory, "/proc/self/task"),
        see(host.stat_path, "/dev/null"),
        see(host.resolve_path, "/proc/self/cwd"),
        see(host.get_disk_space, "/proc"),
        see(host.find_program, "sh"),
        see(host.run, ["sh", "-c", "echo hi"]),
        see(host.run, ["no-such-program"], deadline=60),
        see(host.find_library, "libc.so.6"),
        see(host.list_libraries, "libc.so"),
        see(host.read_elf_headers, "/proc/version"),
        see(host.find_elf_strings, "/proc/version", ".rodata", ["x"]),
        see(host.query_nvml),
        see(host.get_uname),
        see(host.get_hostname),
        see(host.get_resource_limits),
        see(host.count_cpus),
        see(host.get_glibc_version),
        see(host.get_user),
        see(host.get_cwd),
        see(host.get_interpreter),
    ]


def through_json(tape):
    return json.loads(json.dumps(tape))


def test_what_is_recorded_is_what_is_played():
    recorder = RecordingHost(LiveHost())
    before = everything(recorder)
    assert everything(ReplayHost(through_json(recorder.recording))) == before


def test_recording_changes_no_answer():
    host = LiveHost()
    for query in ("get_uname", "count_cpus", "get_glibc_version", "get_resource_limits", "get_cwd", "get_interpreter"):
        assert getattr(RecordingHost(host), query)() == getattr(host, query)()


def test_a_question_that_was_not_asked():
    host = ReplayHost({})
    for ask in (host.get_uname, host.get_environment, host.get_glibc_version, host.query_nvml):
        with pytest.raises(AccessError, match=r"^not recorded$"):
            ask()
    with pytest.raises(AccessError, match=r"^not recorded$"):
        host.read_text("/etc/os-release")


def test_a_run_never_raises_not_even_from_a_tape():
    assert ReplayHost({}).run(["nvidia-smi"]) == RunResult(("nvidia-smi",), None, end="not recorded")


def test_a_program_is_the_same_question_however_long_it_may_take():
    recorder = RecordingHost(LiveHost())
    ran = recorder.run(["echo", "x"], deadline=60)
    assert ReplayHost(recorder.recording).run(["echo", "x"], deadline=9, limit=5) == ran
    assert ReplayHost(recorder.recording).run(["echo", "x"], env={"A": "1"}).end == "not recorded"


def test_keys_can_be_written_by_hand():
    assert query_key("read", "/etc/os-release") == '["read", "/etc/os-release"]'
    assert query_key("run", ["nvcc", "--version"], 3.0, 100, None) == '["run", ["nvcc", "--version"]]'
    assert query_key("nvml", 5.0) == '["nvml"]'
    tape = {'["read", "/etc/os-release"]': "ID=debian\n", '["nvml"]': {"access_error": "no answer within 20 s"}}
    assert ReplayHost(tape).read_text("/etc/os-release") == "ID=debian\n"
    with pytest.raises(AccessError, match=r"^no answer within 20 s$"):
        ReplayHost(tape).query_nvml()


def test_no_secret_reaches_the_tape(monkeypatch, tmp_path, script):
    token, github, password, aws, model = SECRETS
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setenv("DB_PASSWORD", password)
    monkeypatch.setenv("PIP_INDEX_URL", f"https://me:{password}@host/simple")
    (tmp_path / "config").write_text(f"[remote]\nurl = https://{github}@github.com/a/b\nkey = {aws}\n")
    recorder = RecordingHost(LiveHost())
    for name in ("HF_TOKEN", "DB_PASSWORD", "PIP_INDEX_URL"):
        recorder.get_env_var(name)
    recorder.get_environment()
    recorder.read_text(str(tmp_path / "config"))
    recorder.run([script(f"echo using {model}; echo {aws} >&2"), "--token", token, f"--password={password}"])
    recorder.run(["echo", "x"], env={"WANDB_API_KEY": password})
    with pytest.raises(AccessError):
        recorder.read_text(f"/tmp/\0{token}")
    text = json.dumps(recorder.recording)
    for secret in SECRETS:
        assert secret not in text
    assert "@host/simple" in text
    assert "@github.com/a/b" in text


def test_a_question_with_a_secret_in_it_is_found_again():
    recorder = RecordingHost(LiveHost())
    ran = recorder.run(["echo", "--token", SECRETS[0]])
    assert ReplayHost(recorder.recording).run(["echo", "--token", SECRETS[0]]) == ran
    assert SECRETS[0] not in ran.out


@pytest.mark.parametrize("answer", [5, 1.5, True, ["a", 1], {"a": 1}, [["a"]], "text"])
def test_a_tape_that_somebody_else_wrote(answer):
    """Whatever stands where an answer should be, it is an answer of the right kind or AccessError."""
    tape = {
        query_key(v): answer for v in ("environ", "uname", "hostname", "limits", "cpus", "libc", "user", "cwd", "nvml")
    }
    paths = {
        query_key(v, "/x"): answer for v in ("read", "list", "stat", "real", "disk", "elf", "library", "libraries")
    }
    host = ReplayHost(
        {
            **tape,
            **paths,
            query_key("run", ["x"]): answer,
            query_key("env", "X"): answer,
            query_key("which", "x"): answer,
        }
    )
    kinds = {
        (host.read_text, "/x"): (str, type(None)),
        (host.list_directory, "/x"): (tuple, type(None)),
        (host.stat_path, "/x"): (dict, type(None)),
        (host.resolve_path, "/x"): (str,),
        (host.get_disk_space, "/x"): (dict, type(None)),
        (host.read_elf_headers, "/x"): (dict, type(None)),
        (host.find_library, "/x"): (str, type(None)),
        (host.list_libraries, "/x"): (dict,),
        (host.get_env_var, "X"): (str, type(None)),
        (host.find_program, "x"): (str, type(None)),
        (host.get_environment,): (dict,),
        (host.get_uname,): (dict,),
        (host.get_hostname,): (str,),
        (host.get_resource_limits,): (dict,),
        (host.get_glibc_version,): (str, type(None)),
        (host.query_nvml,): (dict,),
    }
    for (ask, *args), wanted in kinds.items():
        try:
            assert isinstance(ask(*args), wanted)
        except AccessError as why:
            assert "damaged" in str(why)
    assert host.run(["x"]).rc is None


@pytest.mark.parametrize(
    "record", [{"argv": ["x"]}, {"argv": ["x"], "rc": "0"}, {"argv": [1], "rc": 0}, {"argv": ["x"], "rc": 0, "out": 5}]
)
def test_a_run_that_somebody_else_wrote(record):
    assert ReplayHost({query_key("run", ["x"]): record}).run(["x"]).end == "the recorded answer is damaged"


def test_a_failed_look_fails_the_same_way_from_the_tape():
    def crash(_):
        os.kill(os.getpid(), 11)

    def well(host):
        return [Fact("host.kernel", host.get_uname()["release"], "uname")]

    looks = [("crashing", crash, ("gpu.count", "gpu.name"), 2.0), ("well", well, ("host.kernel",), 2.0)]
    recorder = RecordingHost(LiveHost())
    facts = run_probes(recorder, looks)
    assert facts[0].gap == "crashed: signal SEGV"
    assert run_probes(ReplayHost(through_json(recorder.recording)), looks) == facts


def test_the_bare_door_answers_nothing():
    with pytest.raises(NotImplementedError):
        HostAccess().get_uname()


def test_a_recorder_is_as_live_as_what_it_records():
    assert RecordingHost(LiveHost()).is_live is True
    assert RecordingHost(ReplayHost({})).is_live is False
