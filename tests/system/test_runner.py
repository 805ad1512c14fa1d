"""Programs: every way in which one can fail to answer is named, and none costs more than its deadline."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from gpuready.system import LiveHost, RunResult
from gpuready.system.process import runner, termination
from tests.deadlines import AFTER_S, GENEROUS_S, HANG_S, wait_until


@pytest.fixture
def host():
    return LiveHost()


def timed(host, *args, **options):
    """What it took, too; what hangs here would take half a minute."""
    begun = time.monotonic()
    ran = host.run(*args, **options)
    return ran, time.monotonic() - begun


# -- ends


def test_a_program_that_answers(host):
    ran = host.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (ran.rc, ran.out, ran.err, ran.end, ran.cut) == (3, "out\n", "err\n", "", False)
    assert ran.argv[0] == host.find_program("sh")
    assert ran.seconds > 0


def test_success_without_a_word_is_told_as_it_is(host):
    ran = host.run(["true"])
    assert (ran.rc, ran.out, ran.err, ran.end) == (0, "", "", "")


def test_a_hang_ends_at_the_deadline(host):
    ran, seconds = timed(host, ["sleep", "60"], deadline=0.3)
    assert (ran.rc, ran.end) == (None, "deadline")
    assert 0.27 <= seconds < HANG_S / 2  # it includes what ending it takes


def test_what_was_said_before_the_hang_is_kept(host, script):
    ran, seconds = timed(host, [script("printf 'GPU 0: H200\\nGPU 1'; exec sleep 60")], deadline=AFTER_S)
    assert (ran.out, ran.end, ran.rc) == ("GPU 0: H200\nGPU 1", "deadline", None)
    assert seconds < HANG_S / 2


def test_a_crash_is_named(host):
    ran = host.run(["sh", "-c", "echo before; kill -SEGV $$"])
    assert (ran.rc, ran.end, ran.out) == (-11, "signal SEGV", "before\n")


def test_a_program_that_ignores_the_polite_signal(host, script, alive):
    path = script("trap '' TERM INT HUP; while :; do sleep 0.05; done", name="stubborn-program")
    ran, seconds = timed(host, [path], deadline=0.3)
    assert ran.end == "deadline"
    assert seconds < HANG_S / 2
    assert alive("stubborn-program") == []


def test_a_grandchild_that_holds_the_pipe_delays_nothing(host, alive):
    ran, seconds = timed(host, ["sh", "-c", "sleep 314.159 & echo done"], deadline=GENEROUS_S)
    assert (ran.rc, ran.out, ran.end) == (0, "done\n", "")
    assert seconds < 314.159 / 2
    assert alive("314.159") == []


def test_the_whole_family_is_ended_at_the_deadline(host, alive):
    ran, seconds = timed(host, ["sh", "-c", "sleep 271.828 & sleep 271.828 & wait"], deadline=0.3)
    assert ran.end == "deadline"
    assert seconds < 271.828 / 2
    assert alive("271.828") == []


def test_output_that_never_ends(host):
    ran, _ = timed(host, ["yes"], deadline=GENEROUS_S)
    assert (len(ran.out), ran.cut, ran.end, ran.rc) == (1 << 20, True, "endless output", None)


def test_errors_that_never_end(host):
    ran, _ = timed(host, ["sh", "-c", "yes >&2"], deadline=GENEROUS_S, limit=1000)
    assert (len(ran.err), ran.cut, ran.end) == (1000, True, "endless output")


def test_long_output_is_cut_and_the_program_still_ends_well(host):
    ran = host.run(["sh", "-c", "head -c 3000 /dev/zero; exit 4"], limit=1000)
    assert (len(ran.out), ran.cut, ran.rc, ran.end) == (1000, True, 4, "")


def test_output_to_the_limit_is_not_cut(host):
    assert host.run(["head", "-c", "1000", "/dev/zero"], limit=1000).cut is False


def test_more_output_than_a_pipe_holds(host):
    ran = host.run(["head", "-c", "900000", "/dev/zero"])
    assert (len(ran.out), ran.rc, ran.cut) == (900000, 0, False)


def test_bytes_that_are_not_text(host):
    assert host.run(["printf", r"\377\376ok"]).out == "\\xff\\xfeok"


# -- programs that never start


def test_a_program_that_is_not_there(host, tmp_path):
    for argv in (["no-such-program-anywhere"], [str(tmp_path / "nope")], [""], []):
        ran = host.run(argv)
        assert (ran.rc, ran.end) == (None, "not found"), argv


def test_a_file_that_may_not_be_executed(host, tmp_path):
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    assert host.run([str(tmp_path / "plain")]).end == "cannot execute: permission denied"


def test_a_directory_is_no_program(host, tmp_path):
    assert host.run([str(tmp_path)]).end == "cannot execute: permission denied"


def test_a_file_that_is_no_program(host, tmp_path):
    path = tmp_path / "junk"
    path.write_bytes(b"\0\1\2\3 not a program")
    path.chmod(0o755)
    assert host.run([str(path)]).end == "cannot execute: exec format error"


def test_a_script_whose_interpreter_is_gone(host, script):
    assert host.run([script("", interpreter="/no/such/python")]).end == "not found"


def test_an_argument_that_cannot_be_passed(host):
    assert host.run(["true", "a\0b"]).end == "cannot execute: not an argument list"


# -- a child that cannot be killed


def test_an_unkillable_child_is_left_and_named(host, monkeypatch):
    real = os.killpg
    pids = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: pids.append(pid))
    monkeypatch.setattr(os, "kill", lambda *_: None)
    ran, seconds = timed(host, ["sleep", "60"], deadline=0.3)
    assert seconds < HANG_S / 2
    assert ran.rc is None
    assert ran.end.startswith(f"unkillable: pid {pids[0]} in state S")
    real(pids[0], 9)
    assert termination.ends_within(pids[0], GENEROUS_S)
    termination.collect_unkillable()  # it is collected later, when it does end
    assert pids[0] not in termination._unkillable


def test_a_killed_child_that_waits_for_a_processor_is_waited_for(monkeypatch):
    """It is killed after the first look only, as if it had got no processor until then."""
    child = subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True)
    looks = []

    def look(pid: int) -> bool:
        looks.append(pid)
        child.send_signal(9)
        return True

    monkeypatch.setattr(termination, "kill_group", lambda pid: None)
    monkeypatch.setattr(termination, "_is_ending", look)
    status, end = termination.kill_and_collect(child.pid, 0.05)
    child.returncode = 0  # it was collected above
    assert looks and status == 9 and end == ""


def test_a_process_whose_threads_still_end_is_ending():
    """Its leader is in state Z before the last thread of it has gone."""
    child = subprocess.Popen(["true"])
    while termination.read_process_stat(child.pid)[0] != "Z":
        time.sleep(0.01)
    assert termination._is_ending(child.pid)
    assert child.wait() == 0 and not termination._is_ending(child.pid)


def test_where_a_process_is_stuck():
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert wait_until(lambda: termination.describe_stuck_process(child.pid).startswith("in state S"))
    finally:
        child.kill()
        child.wait()
    assert termination.describe_stuck_process(child.pid) == "in an unknown state"


def test_signals_have_names():
    assert (termination.signal_name(11), termination.signal_name(9), termination.signal_name(250)) == (
        "SEGV",
        "KILL",
        "250",
    )


# -- what a child inherits


def show_environment(host, **options):
    return dict(line.split("=", 1) for line in host.run(["env"], **options).out.splitlines() if "=" in line)


def test_the_environment_is_scrubbed_and_the_locale_is_plain(monkeypatch):
    hostile = {"PYTHONHOME": "/x", "PYTHONPATH": "/x", "LD_PRELOAD": "", "BASH_ENV": "/x", "ENV": "/x"}
    for name, value in {**hostile, "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de", "KEPT": "yes"}.items():
        monkeypatch.setenv(name, value)
    seen = show_environment(LiveHost())
    assert not set(seen) & set(hostile)
    assert (seen["LC_ALL"], seen["KEPT"]) == ("C", "yes")
    assert "LANGUAGE" not in seen


def test_the_caller_may_add_and_take_away(monkeypatch):
    monkeypatch.setenv("GOES", "away")
    monkeypatch.setenv("STAYS", "here")
    seen = show_environment(LiveHost(), env={"CUDA_VISIBLE_DEVICES": "", "GOES": None})
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    assert "GOES" not in seen
    assert seen["STAYS"] == "here"


def test_an_environment_too_large_to_hand_on():
    huge = {f"VARIABLE_{i}": "x" * 300 for i in range(10_000)}
    seen = show_environment(LiveHost(environ={**huge, "PATH": os.environ["PATH"], "HOME": "/home/me"}))
    assert seen["PATH"] == os.environ["PATH"]
    assert seen["HOME"] == "/home/me"
    assert "VARIABLE_0" not in seen


def test_there_is_nothing_to_read_on_standard_input(host):
    ran, _ = timed(host, ["cat"], deadline=GENEROUS_S)
    assert (ran.out, ran.rc, ran.end) == ("", 0, "")


def test_a_session_of_its_own(host):
    ran = host.run(["sh", "-c", "ps -o pid=,pgid=,sid= -p $$ 2>/dev/null || cut -d' ' -f1,5,6 /proc/$$/stat"])
    pid, group, session = ran.out.split()
    assert pid == group == session


def test_a_broken_pipe_ends_a_child_as_it_should(host):
    # Python ignores SIGPIPE; a child that inherited that would see write errors instead.
    ran = host.run(["bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[0]}"]) if host.find_program("bash") else None
    if ran is None:
        pytest.skip("no bash here")
    assert ran.out.splitlines() == ["y", "141"]


CLOSED = """
import os, sys
from gpuready.system import LiveHost
out = os.dup(1)
for fd in (0, 1, 2):
    os.close(fd)
ran = LiveHost().run(["sh", "-c", "cat; echo fine; echo bad >&2"])
os.write(out, f"{ran.rc} {ran.out!r} {ran.err!r} {ran.end!r}".encode())
"""


def test_our_own_standard_streams_may_be_closed():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", CLOSED], capture_output=True, text=True, env=env)
    assert done.stdout == r"0 'fine\n' 'bad\n' ''"


def test_nothing_outlives_an_interrupt(host, monkeypatch, alive):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "wait_for_any", interrupt)
    with pytest.raises(KeyboardInterrupt):
        host.run(["sleep", "161.803"])
    assert alive("161.803") == []


def test_an_old_c_library_without_sessions(host, monkeypatch):
    real = os.posix_spawn

    def old(*args, setsid=False, **options):
        if setsid:
            raise NotImplementedError
        return real(*args, **options)

    monkeypatch.setattr(os, "posix_spawn", old)
    assert host.run(["echo", "yes"]).out == "yes\n"
    ran, seconds = timed(host, ["sh", "-c", "sleep 60 & sleep 60"], deadline=0.2)
    assert ran.end == "deadline"
    assert seconds < HANG_S / 2


IGNORING = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from gpuready.model import Fact
from gpuready.system import LiveHost, run_probes
ran = LiveHost().run(["sh", "-c", "echo x; exit 3"])
print(ran.rc, ran.end, ran.out.strip())
looks = [("a", lambda d: [Fact("rc", d.run(["sh", "-c", "exit 3"]).rc)], ("rc",), 60)]
print(run_probes(LiveHost(), looks)[0].value)
"""


def test_where_the_kernel_collects_our_children_nothing_is_made_up():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", IGNORING], capture_output=True, text=True, env=env)
    assert done.stdout.splitlines() == ["None exit status lost: SIGCHLD is ignored x", "3"], done.stderr


def test_no_shell_ever_sees_the_arguments(host):
    assert host.run(["echo", "$(id)", "; rm -rf x", "`id`", "a b"]).out == "$(id) ; rm -rf x `id` a b\n"


# -- which


def test_which_takes_the_first_on_the_path(tmp_path, script):
    script("echo mine", name="ls")
    host = LiveHost(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert host.find_program("ls") == f"{tmp_path}/ls"
    assert host.run(["ls"]).out == "mine\n"


def test_which_passes_over_what_cannot_be_run(tmp_path):
    (tmp_path / "ls").mkdir()
    (tmp_path / "sh").write_text("not executable")
    host = LiveHost(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert host.find_program("ls") in ("/usr/bin/ls", "/bin/ls")
    assert host.find_program("sh") in ("/usr/bin/sh", "/bin/sh")


def test_a_relative_entry_of_the_path_is_never_followed(tmp_path, script, monkeypatch):
    script("echo planted", name="nvidia-smi")
    monkeypatch.chdir(tmp_path)
    for path in (".", "", ":", ".:", "bin:."):
        host = LiveHost(environ={"PATH": path})
        assert host.find_program("nvidia-smi") is None
        assert host.run(["nvidia-smi"]).end == "not found"


def test_which_of_a_path(host, script):
    path = script("")
    assert host.find_program(path) == path
    assert host.find_program("/etc/passwd") is None


def test_no_path_at_all():
    assert LiveHost(environ={}).find_program("sh") is not None  # the system's own default


def test_a_run_is_a_plain_record(host):
    ran = host.run(["echo", "x"])
    assert RunResult.from_json(ran.to_json()) == ran
