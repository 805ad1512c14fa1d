"""`gpuready run` harms nobody: signals, lost logs, long lines, grace, and what --hang-timeout and --on-hang do."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time

import pytest

from gpuready.launcher.rank_logs import RankLogs
from gpuready.system import private_files
from gpuready.workflow.launch_job import _choose_hang_action
from gpuready.workflow.refusal import Refused
from tests.deadlines import GENEROUS_S, HANG_S
from tests.launcher.test_run_failures import failing

READY = "import os, signal, sys, time\n{}\nprint('pid', os.getpid(), flush=True)\nend = time.monotonic() + 120\n"


def started(stage, *flags: str, ranks: int = 2):
    process = stage.start("--nproc", str(ranks), *flags, "--", "train.py")
    for rank in range(ranks):
        stage.until("pid", rank)
    return process


def test_sigusr1_reaches_the_ranks_and_one_that_ignores_none_dies_by_it(stage):
    stage.script(
        READY.format("got = []; signal.signal(signal.SIGUSR1, lambda *a: got.append(1))")
        + "while not got and time.monotonic() < end: time.sleep(0.02)\nprint('requeued', len(got))\n"
    )
    process = started(stage)
    process.send_signal(signal.SIGUSR1)
    done = stage.ended(process)
    assert done.code == 0 and done.out.count("requeued 1") == 2


def test_sigterm_waits_for_a_rank_that_saves(stage):
    stage.script(
        READY.format("signal.signal(signal.SIGTERM, lambda *a: (time.sleep(1.5), open(f\"saved-{os.environ['RANK']}\", 'w'), os._exit(0)))")
        + "while True: time.sleep(0.05)\n"
    )  # fmt: skip
    process = started(stage, "--grace", "10")
    process.terminate()
    assert (
        stage.ended(process).code == 143 and (stage.folder / "saved-0").exists() and (stage.folder / "saved-1").exists()
    )


def test_grace_ends_who_goes_on(stage):
    stage.script(READY.format("signal.signal(signal.SIGTERM, signal.SIG_IGN)") + "while True: time.sleep(0.05)\n")
    process = started(stage, "--grace", "0.5")
    process.terminate()
    done = stage.ended(process)
    assert done.code == 143 and done.seconds < HANG_S / 2


@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_a_log_is_written_through_no_link_and_into_no_pipe(tmp_path, kind):
    (tmp_path / "own").write_text("untouched\n")
    path = tmp_path / "logs" / "rank-0.log"
    path.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "own" if kind == "link" else "/dev/null")
    book = RankLogs(str(path.parent))
    assert "incomplete from here on" in book.write_lines("rank-0", ["a"])
    book.close()
    assert (tmp_path / "own").read_text() == "untouched\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
@pytest.mark.parametrize("owner", [0, 65534])
def test_a_folder_of_logs_that_is_a_link_is_not_used_whoever_made_it(stage, owner):
    (stage.folder / "elsewhere").mkdir()
    os.symlink("elsewhere", stage.folder / "gpuready-logs")
    os.lchown(stage.folder / "gpuready-logs", owner, owner)
    stage.script("print('trained')\n")
    done = stage.run("--nproc", "1", "--no-preflight", "--log-dir", "gpuready-logs/x", "--", "train.py")
    assert done.code == 0 and not list((stage.folder / "elsewhere").iterdir())
    assert "gpuready-logs is a link; name the folder that it leads to" in done.words


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_temporary_folder_that_another_user_made_is_not_used(stage):
    """Its name can be foreseen."""
    folder = stage.folder / "gpuready-me"
    folder.mkdir(mode=0o777)
    os.chown(folder, 65534, 65534)
    stage.script("print('trained')\n")
    nobody = {"USER": "me", "HOME": str(stage.folder / "none")}
    done = stage.run("--nproc", "1", "--no-preflight", "--log-dir", "/dev/null/logs", "--", "train.py", **nobody)
    assert done.code == 2 and "the logs cannot be kept in /dev/null/logs" in done.words and not list(folder.iterdir())


def test_logs_that_have_no_folder_go_elsewhere(stage):
    stage.script("print('trained')\n")
    done = stage.run("--nproc", "2", "--log-dir", "/dev/null/logs", "--", "train.py")
    assert done.code == 0 and done.out.count("trained") == 2
    assert "the logs cannot be kept in /dev/null/logs (Not a directory): they are in" in done.words


def test_a_folder_of_logs_that_is_used_again_keeps_the_earlier_ones_apart(stage):
    """The cause of an earlier run is not this run's."""
    for number, error in enumerate(("RuntimeError('CUDA error: no kernel image is available')", "KeyError('label')")):
        stage.script(f"raise {error}\n")
        done = stage.run("--nproc", "1", "--no-preflight", "--log-dir", "logs", "--", "train.py")
        assert done.code == 1 and ("no kernel image" in done.words) == (number == 0)
    logs = stage.folder / "logs"
    assert "no kernel image" in (logs / "rank-0.log.1").read_text() and "label" in (logs / "rank-0.log").read_text()
    assert "no kernel image" not in (logs / "rank-0.log").read_text() and (logs / "gpuready.log.1").exists()


def test_logs_that_cannot_be_written_are_lost_and_told_once(tmp_path, monkeypatch):
    book = RankLogs(str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(private_files, "open_to_append", lambda path: os.open("/dev/full", os.O_WRONLY))
        assert "incomplete from here on: No space left on device" in book.write_lines("rank-0", ["a"])
    assert book.write_lines("rank-0", ["b"]) == "" and book.write_lines("rank-1", ["c"]) == ""
    book.close()
    assert (tmp_path / "rank-1.log").read_text() == "c\n"


def test_logs_that_are_deleted_are_told_once(tmp_path):
    logs = RankLogs(str(tmp_path / "logs"))
    assert logs.write_lines("rank-0", ["one"]) == ""
    shutil.rmtree(tmp_path / "logs")
    assert logs.write_lines("rank-0", ["two"]).endswith("logs are incomplete from here on: they were deleted")
    assert logs.write_lines("rank-0", ["three"]) == ""
    logs.close()


def test_a_rank_that_leaves_with_0_is_told_with_its_last_lines(stage):
    lost = "raise RuntimeError('Connection closed by peer')"
    stage.script(
        "import os, time\nif os.environ['RANK'] == '1':\n    print('early stop'); open('pid.new', 'w').write(str(os.getpid())); os.rename('pid.new', 'pid')\n"
        "else:\n    while not os.path.exists('pid'): time.sleep(0.02)\n"
        f"    while os.path.exists('/proc/' + open('pid').read()): time.sleep(0.02)\n    time.sleep(1); {lost}\n"
    )
    done = stage.run("--nproc", "3", "--", "train.py")
    assert done.code == 1 and "failed: rank 1 on here" in done.words and "left first: exit 0" in done.words
    assert "early stop" in done.out.partition("failed: ")[2]


def test_a_rank_that_still_cleans_up_is_waited_for(stage):
    stage.script(
        "import os, sys, time\nif os.environ['RANK'] == '1':\n    time.sleep(0.5)\n    try:\n        raise KeyError('lost column')\n"
        "    except KeyError:\n        open('closed', 'w'); time.sleep(3); raise\n"
        "while not os.path.exists('closed'): time.sleep(0.02)\nraise RuntimeError('Connection reset by peer')\n"
    )
    done = stage.run("--nproc", "2", "--", "train.py")
    assert "failed: rank 1 on here" in done.words and "KeyError: 'lost column'" in done.out


def test_the_end_of_an_agent_is_told_as_that(stage):
    stage.script("import os, time\nprint('pid', os.getppid(), flush=True)\ntime.sleep(60)\n")
    process = stage.start("--nproc", "2", "--", "train.py")
    for rank in (0, 1):
        stage.until("pid", rank)
    os.kill(stage.pid(0), signal.SIGKILL)
    done = stage.ended(process)
    assert done.code == 1 and "no longer heard of" in done.words


def test_on_hang_report_says_it_and_lets_it_go_on(stage):
    os.mkfifo(stage.folder / "go")
    stage.script("def load():\n    open('go').read()\nload()\nprint('went on')\n")
    process = stage.start("--nproc", "1", "--hang-timeout", "1.5", "--on-hang", "report", "--", "train.py")
    end = threading.Timer(GENEROUS_S, process.kill)
    end.start()
    for line in process.stderr:
        if b"nothing has moved" in line and b"(load)" in line:
            break
    end.cancel()
    go = os.open(stage.folder / "go", os.O_RDWR)  # does not wait for a reader
    os.write(go, b"x")
    os.close(go)
    done = stage.ended(process)
    assert done.code == 0 and "went on" in done.out and "nothing has moved" in done.words and "(load)" in done.words


def test_hang_timeout_holds_though_somebody_writes(stage):
    stage.script(
        "import os, threading, time\ndef chatter():\n    while True: print('alive', flush=True); time.sleep(0.3)\n"
        "threading.Thread(target=chatter, daemon=True).start()\ndef stuck():\n    time.sleep(100)\nstuck()\n"
    )
    began = time.monotonic()
    done = stage.run("--nproc", "2", "--hang-timeout", "2", "-q", "--", "train.py")
    assert done.code == 124 and "(stuck)" in done.words, (done.words[-400:], time.monotonic() - began)


@pytest.mark.parametrize(
    ("flags", "action"),
    [
        ({}, "report"), ({"hang-timeout": "9"}, "kill"), ({"hang-timeout": "0"}, "off"), ({"on-hang": "kill"}, "kill"),
        ({"hang-timeout": "9", "restarts": "2"}, "restart"), ({"hang-timeout": "9", "on-hang": "report"}, "report"),
    ],
)  # fmt: skip
def test_what_a_standstill_gets(flags, action):
    assert _choose_hang_action(flags) == action


def test_a_restart_needs_restarts():
    with pytest.raises(Refused, match="--restarts N"):
        _choose_hang_action({"on-hang": "restart"})


def test_a_failure_of_several_kinds_is_one_answer(stage):
    stage.script(failing("print('x' * 200_000, flush=True); sys.exit(3)"))
    done = stage.run("--nproc", "2", "--", "train.py")
    assert done.code == 3 and "x" * 200_000 in stage.log(1)
