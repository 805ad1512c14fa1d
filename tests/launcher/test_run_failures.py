"""`gpuready run` with real processes that fail, hang or are ended: who was first, how it ends, and that nothing is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuready.launcher import preflight, process_status
from gpuready.launcher.supervisor import INTERRUPT_GRACE_SECONDS
from tests.deadlines import GENEROUS_S, HANG_S, wait_until
from tests.launcher.stage import MAIN, kill
from tests.running import SRC

FOREVER = "import os, time\nprint('pid', os.getpid(), flush=True)\nwhile True: time.sleep(0.05)\n"
RANK_1 = "import os, sys, time, signal\nif os.environ['RANK'] == '1':\n    {}\ntime.sleep(120)\n"


def failing(line: str) -> str:
    return RANK_1.format(line)


def test_a21_a_rank_that_exits_is_the_first_and_its_code_is_ours(stage):
    stage.script(failing("print('about to leave', file=sys.stderr); sys.exit(7)"))
    done = stage.run("--nproc", "3", "--", "train.py")
    assert done.code == 7
    assert "failed: rank 1 on here" in done.out and "exit 7" in done.out and "about to leave" in done.out
    # Under load one of the two may not have begun by then, and is told apart.
    assert "waited until gpuready ended the run" in done.words


def test_a22_an_import_that_fails_is_shown_with_its_package(stage):
    (stage.folder / "wanted.py").write_text("import nothing_of_this_name\n")
    stage.script(failing("import wanted"))
    done = stage.run("--nproc", "2", "--", "train.py")
    assert done.code == 1 and "rank 1 on here" in done.out
    assert "ModuleNotFoundError: No module named 'nothing_of_this_name'" in done.out and "wanted.py" in done.out


def test_a23_a_crash_shows_its_python_stack(stage):
    (stage.folder / "native.py").write_text("import ctypes\nctypes.string_at(0)\n")
    stage.script(failing("import native"))
    done = stage.run("--nproc", "2", "--", "train.py")
    assert done.code == 139 and "rank 1 on here" in done.out and "SIGSEGV" in done.out
    assert "native.py" in done.out and "gpuready/launcher" not in done.out


def test_a24_a_rank_that_is_killed(stage):
    stage.script(failing("os.kill(os.getpid(), signal.SIGKILL)"))
    done = stage.run("--nproc", "2", "--", "train.py")
    assert done.code == 137 and "rank 1 on here" in done.out and "SIGKILL" in done.out


def test_a27_a_stopped_rank_is_named_while_it_runs(stage, record_property):
    stage.script(FOREVER)
    process = stage.start("--nproc", "2", "--", "train.py")
    stage.until("pid", 1)
    stopped = stage.pid(1)
    kill(stopped, signal.SIGSTOP)
    began = time.monotonic()
    assert process.stderr is not None
    said = process.stderr.readline().decode()
    assert f"rank 1 on here is stopped (state T, pid {stopped})" in said
    record_property("seen", ("A27", "", said.strip(), time.monotonic() - began))
    assert f"kill -CONT {stopped}" in process.stderr.readline().decode()
    process.send_signal(signal.SIGINT)
    assert stage.ended(process).code == 130


def test_a54_rank_0_is_gone_and_all_others_end(stage):
    stage.script(FOREVER)
    process = stage.start("--nproc", "3", "--", "train.py")
    for rank in range(3):
        stage.until("pid", rank)
    kill(stage.pid(0))
    done = stage.ended(process)
    assert done.code == 137 and "rank 0 on here (pid" in done.out and done.seconds < HANG_S / 2


def test_a55_the_ranks_die_with_their_supervisor(stage, record_property):
    stage.script("import subprocess, sys\nworker = subprocess.Popen(['sleep', '1000'])\n" + FOREVER)
    process = stage.start("--nproc", "2", "--", "train.py")
    stage.until("pid", 0)
    stage.until("pid", 1)
    assert len(stage.left()) >= 5
    process.kill()
    process.communicate()
    began = time.monotonic()
    assert wait_until(lambda: not stage.left())
    record_property("seen", ("A55", "", "no rank and no worker is left", time.monotonic() - began))


def test_a56_ctrl_c_is_graceful(stage, record_property):
    stage.script("try:\n    " + FOREVER.replace("\n", "\n    ") + "\nfinally:\n    print('saved', flush=True)\n")
    process = stage.start("--nproc", "2", "--", "train.py")
    stage.until("pid", 0)
    stage.until("pid", 1)
    process.send_signal(signal.SIGINT)
    done = stage.ended(process)
    assert done.code == 130 and "interrupted" in done.out
    assert "saved" in stage.log(0) and "saved" in stage.log(1)
    said = "exit 130, and both ranks saved their state; a second Ctrl-C ends ranks that ignore the first"
    record_property("seen", ("A56", "", said, done.seconds))


def test_a56_ctrl_c_twice_is_immediate(stage):
    stage.script(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + FOREVER
    )
    process = stage.start("--nproc", "2", "--", "train.py")
    stage.until("pid", 0)
    stage.until("pid", 1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.4)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    done = stage.ended(process)
    assert done.code == 130 and done.seconds < INTERRUPT_GRACE_SECONDS


def test_sigterm_ends_all_and_is_told(stage):
    stage.script(FOREVER)
    process = stage.start("--nproc", "2", "--", "train.py")
    stage.until("pid", 1)
    process.terminate()
    assert stage.ended(process).code == 143


def test_under_nohup_a_terminal_that_closes_ends_nothing(stage):
    stage.script(FOREVER)
    stage.before = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    process = stage.start("--nproc", "2", "--", "train.py")
    stage.until("pid", 1)
    process.send_signal(signal.SIGHUP)
    time.sleep(1)
    assert process.poll() is None
    process.terminate()
    assert stage.ended(process).code == 143


def test_a58_the_same_failure_three_times_is_the_last(stage):
    stage.script(
        "import os\nopen(f\"started-{os.environ['TORCHELASTIC_RESTART_COUNT']}-{os.environ['RANK']}\", 'w')\nraise SystemExit(3)\n"
    )
    done = stage.run("--nproc", "2", "--restarts", "10", "--", "train.py")
    assert done.code == 93 and "no restart: it failed 3 times in the same way without any progress" in done.words
    assert not (stage.folder / "started-3-0").exists()


def test_a_restart_that_helps(stage):
    stage.script(
        "import os, sys\nn = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\nprint('port', os.environ['MASTER_PORT'])\nprint('step', n)\nsys.exit(0 if n == 2 else 5)\n"
    )
    done = stage.run("--nproc", "2", "--restarts", "4", "--", "train.py")
    assert done.code == 0 and "3 starts" in done.out
    logs = [(stage.folder / "logs" / name / "rank-1.log").read_text() for name in (".", "attempt-1", "attempt-2")]
    assert [log.split()[3] for log in logs] == ["0", "1", "2"] and len({log.split()[1] for log in logs}) == 3, logs


def test_without_restarts_the_code_is_kept_whatever_the_cause(stage):
    stage.script("import torch_of_another_world\n")
    assert stage.run("--nproc", "1", "--", "train.py").code == 1


CRASH_AT_EXIT = (
    "import atexit, os, time\ndef crash():\n    os.write(2, b'{said}\\n')\n    os.abort()\n"
    "if os.environ['RANK'] == '1': atexit.register(crash)\n"
    "else: time.sleep(2)\nprint('trained', flush=True)\n"
)
LEFT_OPEN = "[rank1]:[W1119 ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not called before program exit"


def test_b08_a_crash_of_a_group_that_was_left_open_is_a_warning(stage):
    stage.script(CRASH_AT_EXIT.format(said=LEFT_OPEN))
    done = stage.run("--nproc", "2", "--", "train.py")
    assert done.code == 0 and "rank 1 had finished and then crashed while exiting" in done.words
    assert "end the script with torch.distributed.destroy_process_group()" in done.words


def test_b08_another_crash_after_the_end_is_a_failure_that_ends_no_other_rank(stage):
    stage.script(CRASH_AT_EXIT.format(said="free(): double free detected in tcache 2"))
    done = stage.run("--nproc", "2", "--max-restarts", "2", "--", "train.py")
    assert done.code == 93 and "rank 1 on here" in done.words and "starts" not in done.words
    assert "crashed while exiting, after its script had ended well: ended by SIGABRT" in done.words
    assert "double free detected" in done.out and "destroy_process_group" not in done.out
    assert "trained" in stage.log(0) and "rank 0 finished" in done.words
    assert stage.run("--nproc", "2", "--log-dir", "once", "--", "train.py").code == 134


def test_b09_ranks_that_fail_together_are_told_as_a_tie_or_by_receipt(stage):
    """The clocks of the ranks lie by minutes: they are never asked."""
    stage.script(
        "import os, time\nrank = int(os.environ['RANK'])\n"
        "print(time.strftime('%H:%M:%S', time.localtime(time.time() + 300 * rank)), flush=True)\n"
        "if rank == 3: open('failed', 'w')\n"
        "if rank == 1:\n    while not os.path.exists('failed'): time.sleep(0.02)\n    time.sleep(0.5)\n"
        "if rank in (1, 3): raise ValueError(f'rank {rank}')\ntime.sleep(60)\n"
    )
    done = stage.run("--nproc", "4", "--json", "--", "train.py")
    assert done.code == 1 and done.found["attempts"][0]["first"] == [3]


def test_hang_timeout_ends_a_silent_run_and_says_where_each_rank_stood(stage):
    stage.script(
        "import os, time\ndef load():\n    time.sleep(100)\ndef wait():\n    time.sleep(100)\nload() if os.environ['RANK'] == '1' else wait()\n"
    )
    done = stage.run("--nproc", "2", "--hang-timeout", "1.5", "--", "train.py")
    assert done.code == 124 and "longer than --hang-timeout allows" in done.words
    assert "rank 1 in train.py:3 (load)" in done.words and "rank 0 in train.py:5 (wait)" in done.words


def test_json_is_one_document(stage):
    stage.script(failing("raise ValueError('bad data')"))
    done = stage.run("--nproc", "2", "--json", "--", "train.py")
    assert done.code == done.found["exit"] == 1 and done.found["attempts"][0]["first"] == [1]
    assert done.found["diagnosis"]["rank"] == 1 and "[rank1]: ValueError: bad data" in done.err


def test_what_a_rank_leaves_running_is_ended(stage):
    stage.script("import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nprint('off')\n")
    done = stage.run("--nproc", "2", "--", "train.py")
    assert done.code == 0  # and Stage.ended has looked for processes


def test_shared_memory_of_the_dead_is_swept(stage):
    stage.script(
        "import os, time\nname = f'/dev/shm/torch_{os.getpid()}_1_0'\nopen(name, 'w').write('x')\nprint(name, flush=True)\n"
        "os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else time.sleep(30)\n"
    )
    stage.run("--nproc", "2", "--", "train.py")
    for rank in (0, 1):
        assert not Path(stage.log(rank).strip()).exists()


ORPHAN = """
import os, subprocess, sys
from gpuready.launcher import process_status
env = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "old", "STAGE_MARK": sys.argv[1]}
own = {process_status.AGENT_PROCESS: process_status.describe_own_process()} if sys.argv[2] == "recorded" else {}
words = [sys.executable, "-c", "import time; time.sleep(1000)"]
print(subprocess.Popen(words, env={**env, **own}, start_new_session=True, stdout=-3, stderr=-3).pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["recorded", "unknown"])
def test_a36_a_rank_is_left_over_only_where_its_launcher_is_proven_to_be_gone(stage, kind):
    """A parent of 1 proves nothing: in a pod that is the launcher itself."""
    words = [sys.executable, "-c", ORPHAN, stage.mark, kind]
    launcher = subprocess.Popen(words, env={"PYTHONPATH": str(SRC)}, stdin=-1, stdout=-1)
    assert launcher.stdin and launcher.stdout
    pid = int(launcher.stdout.readline())
    try:
        assert pid not in [one.pid for one in preflight.find_orphan_ranks()], "its launcher lives"
        launcher.stdin.close()
        launcher.wait()
        found = {one.pid: one.proven for one in preflight.find_orphan_ranks()}
        assert found.get(pid) in ((True,) if kind == "recorded" else (False, None)), "only an init starts no ranks"
        (row,) = [one for one in preflight._check_leftovers() if str(pid) in one.says] or [None]
        if row is not None:
            assert row.severity == ("error" if kind == "recorded" else "warning"), row
            assert ("kill" in row.fix) == (kind == "recorded")
        assert (pid in preflight.end_orphan_ranks()) == (kind == "recorded")
        assert (process_status.read_process_stat(pid)[0] in ("", "Z")) == (kind == "recorded")
    finally:
        subprocess.run(["kill", "-9", str(pid)], capture_output=True, check=False)


WITHOUT_STDERR = """
import json, os, sys, time
if os.environ["RANK"] == "1":
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
        sys.exit(9)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    stack = "Traceback (most recent call last):\\n  File 't.py', line 7, in main\\nValueError: only in the file\\n"
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:  # as torch's @record writes it
        json.dump({"message": {"message": "ValueError: only in the file", "extraInfo": {"py_callstack": stack}}}, file)
    os._exit(1)
print("step 3", repr(sys.stdin.read()), flush=True)
time.sleep(60)
"""


def test_error_files_stdin_restarts_and_events(stage):
    """A lost stderr, what rank 0 reads, the cause of the first start before that of the last, one line for each event."""
    stage.script(WITHOUT_STDERR)
    words = stage._words(("--nproc", "2", "--max-restarts", "1", "--events", "events.jsonl", "--", "train.py"))
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *words], input="given", env=stage._variables({}), cwd=stage.folder,
        capture_output=True, text=True, timeout=2 * GENEROUS_S,
    )  # fmt: skip
    assert done.returncode == 9 and "step 3 'given'" in done.stdout, done.stderr
    text = " ".join(done.stdout.split())
    first = text.index("failed: start 1 failed after"), text.index("failed: rank 1 on")
    assert first[0] < first[1] and "ValueError: only in the file" in stage.log(1)
    assert "ValueError" in text[first[0] : first[1]] and "restart 1 of 1" in done.stderr
    events = [json.loads(line) for line in (stage.folder / "events.jsonl").read_text().splitlines()]
    kinds = [event["event"] for event in events]
    assert {"progress", "first", "restart"} <= set(kinds) and all("at" in event for event in events), events
    assert not stage.left()


def test_a_working_folder_that_was_deleted_is_one_sentence(stage):
    (stage.folder / "gone").mkdir()
    code = f"import os; os.rmdir({str(stage.folder / 'gone')!r}); {MAIN}"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--", "t.py"], env=stage._variables({}), cwd=stage.folder / "gone",
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr == (
        "gpuready: the current folder was deleted: change to one that exists, and start again\n"
    )
