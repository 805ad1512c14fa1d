"""Whatever a proof does is a result: named, on time, confined to its process, and nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpuready
from gpuready.prove import runner
from gpuready.system.process import runner as program_runner
from tests.prove.scripts import GOOD, PYTHON, dump_soon, fake_torch, row, run_single_proof

SRC = str(Path(gpuready.__file__).parent.parent)
ROOT = str(Path(__file__).parent.parent.parent)
STACK = "in main"
"""The frame of a stack that calls the proof: those below it, which are asserted, are written before it."""


def prove(
    folder: Path, body: str, *, ranks: int = 1, variables: dict[str, str] | None = None, hung_at: str = "", **columns
):
    return run_single_proof(row(folder, body, **columns), PYTHON, "cpu", variables, ranks=ranks, hung_at=hung_at)


def test_a_proof_that_passes(tmp_path):
    found = prove(tmp_path, GOOD)
    assert (found.verdict, found.exit, found.why) == ("passed", 0, "")
    assert found.numbers == {"sum": {"value": 2.0, "bound": "equal", "limit": 2.0}}
    assert found.steps == ("begin", "count") and found.seconds > 0
    assert found.versions["python"] == ".".join(map(str, sys.version_info[:3]))


# -- crashes and hangs ------------------------------------------------------------------------------------


def test_a_segfault_is_named_with_its_step_and_its_stack(tmp_path):
    body = "def run_proof(p):\n    import ctypes\n    p.begin_step('fall')\n    ctypes.string_at(0)\n"
    found = prove(tmp_path, body)
    assert (found.verdict, found.exit) == ("crashed", -signal.SIGSEGV)
    assert found.why == "ended by SIGSEGV, in the step: fall"
    assert "in run_proof" in found.output


def test_an_import_that_segfaults(tmp_path):
    found = prove(tmp_path, fake_torch(tmp_path, "import ctypes\nctypes.string_at(0)\n"))
    assert found.verdict == "crashed" and found.last_step == "import torch"
    assert "torch/__init__.py" in found.output


def test_an_import_that_hangs_shows_where(tmp_path):
    body = dump_soon(fake_torch(tmp_path, "import time\ntime.sleep(600)\n"))
    found = prove(tmp_path, body, hung_at=STACK, deadline=120.0)
    assert found.verdict == "hung" and "in the step: import torch" in found.why
    assert "torch/__init__.py" in found.output and found.seconds < 600 / 2


def test_an_interpreter_that_hangs_before_any_script_begins(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    site = next((tmp_path / "v").glob("lib/python*/site-packages"))
    (site / "slow.pth").write_text("import time; time.sleep(600)\n")
    found = run_single_proof(row(tmp_path, GOOD, deadline=0.2), str(tmp_path / "v" / "bin" / "python"))
    assert found.verdict == "hung" and found.why.endswith("before the script began")
    assert "importtime" in found.output and "site" in found.output


def test_a_loop_in_c_that_holds_the_lock_of_python(tmp_path):
    """A call into a library with the lock held, which sleeps so that the test takes no processor."""
    body = "def run_proof(p):\n    import ctypes\n    p.begin_step('call')\n    ctypes.PyDLL(None).sleep(600)\n"
    found = prove(tmp_path, dump_soon(body), hung_at=STACK, deadline=120.0)
    assert found.verdict == "hung" and found.last_step == "call" and found.exit is None
    assert "in run_proof" in found.output, "the stack of a hang is shown"


def test_a_process_that_will_not_hear_is_ended_all_the_same(tmp_path):
    body = """
def run_proof(p):
    import signal, time
    for number in range(1, 32):
        if number not in (9, 19):
            signal.signal(number, signal.SIG_IGN)
    p.begin_step("wait")
    print("deaf", flush=True)
    time.sleep(600)
"""
    found = prove(tmp_path, body, hung_at="deaf", deadline=120.0)
    assert found.verdict == "hung" and found.last_step == "wait"


def test_a_crash_at_the_very_end_is_not_a_pass(tmp_path):
    body = GOOD + "import atexit, os\natexit.register(os.abort)\n"
    found = prove(tmp_path, body)
    assert found.verdict == "crashed" and "(after it had passed)" in found.why
    found = prove(tmp_path, GOOD + "import atexit, os\natexit.register(os._exit, 3)\n")
    assert (found.verdict, found.why) == ("failed", "it passed, and then ended with exit 3")


# -- output -----------------------------------------------------------------------------------------------


def test_a_hundred_megabytes_of_output_do_not_hurt(tmp_path):
    body = """
def run_proof(p):
    print("the beginning")
    line = b"x" * 99 + b"\\n"
    for _ in range(1000):
        os.write(1, line * 1000)
    sys.stderr.write("the end\\n")
    p.record_number("written", 1, "equal", 1)
"""
    found = prove(tmp_path, body)
    assert found.verdict == "passed"
    assert len(found.output) < 4 * program_runner.KEPT_BYTES
    assert found.output.startswith("the beginning") and "the end" in found.output[-200:]
    assert "bytes left out" in found.output


def test_output_that_is_no_text_and_secrets_in_it(tmp_path):
    body = """
def run_proof(p):
    os.write(1, b"\\xff\\xfe\\x00 HF_TOKEN=hf_" + b"abcdefghijklmnopqrstuvwxyzABCDEFGH" + b"\\n")
    p.record_number("x", 1, "equal", 1)
"""
    found = prove(tmp_path, body)
    assert found.verdict == "passed" and "abcdefghijklmnop" not in found.output


# -- results that lie -------------------------------------------------------------------------------------


def test_a_wrong_number_with_exit_0(tmp_path):
    """The script says that it passed; its own numbers say otherwise."""
    body = """
def run_proof(p):
    p.record_number("sum", 2, "equal", 2)
    p.record["numbers"]["sum"]["value"] = 5
"""
    found = prove(tmp_path, body)
    assert found.exit == 0 and found.verdict == "failed" and "sum is 5" in found.why


def test_a_number_outside_its_bound(tmp_path):
    found = prove(tmp_path, "def run_proof(p):\n    p.record_number('error', 0.5, 'most', 0.01)\n")
    assert (found.verdict, found.why) == ("failed", "error is 0.5, and has to be <= 0.01")
    found = prove(tmp_path, "def run_proof(p):\n    p.record_number('error', float('nan'), 'most', 0.01)\n")
    assert found.verdict == "failed"


def test_a_proof_that_measures_nothing_proves_nothing(tmp_path):
    found = prove(tmp_path, "def run_proof(p):\n    p.record_number('seconds', 3)\n")
    assert found.verdict == "failed" and "nothing is proved" in found.why


WRITE = """
import os
path = os.environ["GPUREADY_PROOF"]
{}
"""
LIES = {
    "garbage": ("open(path, 'wb').write(os.urandom(5000))", "not one"),
    "no record": ("open(path, 'w').write('[1, 2]')", "not one"),
    "a verdict of its own": (
        """open(path, 'w').write('{"schema": 1, "verdict": "ready", "numbers": {}}')""",
        "no such verdict",
    ),
    "passed without a number": (
        """open(path, 'w').write('{"schema": 1, "verdict": "passed", "numbers": {}}')""",
        "held no number",
    ),
    "NaN inside its bound": (
        """open(path, 'w').write('{"schema": 1, "verdict": "passed", "numbers": {"x": {"value": NaN, "bound": "most", "limit": 1}}}')""",
        "NaN",
    ),
    "a text for a number": (
        """open(path, 'w').write('{"schema": 1, "verdict": "passed", "numbers": {"x": {"value": "0", "bound": "most", "limit": 1}}}')""",
        "not a number",
    ),
    "a bound that is none": (
        """open(path, 'w').write('{"schema": 1, "verdict": "passed", "numbers": {"x": {"value": 1, "bound": "any", "limit": 1}}}')""",
        "the bound",
    ),
    "nested without end": ("open(path, 'w').write('[' * 100000)", "not one"),
    "fifty megabytes": ("open(path, 'w').write('x' * 50_000_000)", "larger than"),
    "a pipe": ("os.mkfifo(path)", "cannot be read"),
    "a folder": ("os.mkdir(path)", "cannot be read"),
    "nothing": ("pass", "no result was written"),
    "an exit in the middle": ("os._exit(0)", "no result was written"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_result_that_is_none(tmp_path, lie):
    code, why = LIES[lie]
    found = prove(tmp_path, WRITE.format(code))
    assert found.verdict == "failed" and why in found.why, found.why


@pytest.mark.parametrize("code", ["import os; os._exit(0)", "import sys; sys.exit(0)", "raise SystemExit"])
def test_a_package_that_ends_the_process_with_success(tmp_path, code):
    found = prove(tmp_path, fake_torch(tmp_path, code + "\n"))
    assert found.verdict == "failed" and found.last_step == "import torch"


def test_a_broken_package_and_one_that_is_not_there(tmp_path):
    (tmp_path / "shattered.py").write_text("import no_such_module_anywhere\n")
    body = f"sys.path.insert(0, {str(tmp_path)!r})\n\ndef run_proof(p):\n    p.import_module('shattered')\n"
    found = prove(tmp_path, body)
    assert found.verdict == "failed" and "no_such_module_anywhere" in found.why
    assert found.last_step == "import shattered"
    found = prove(tmp_path, "def run_proof(p):\n    p.import_module('no_such_module_anywhere', 'no-such')\n")
    assert (found.verdict, found.why, found.lacks) == ("absent", "no-such is not installed", "no-such")


# -- what surrounds it ------------------------------------------------------------------------------------


def test_a_package_that_disturbs_its_process_disturbs_nobody_else(tmp_path):
    code = """
import os, signal, sys
print("hello from the import")
os.chdir("/")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.close(0)
version = type("v", (), {"cuda": None})
__version__ = "0"
def manual_seed(n): pass
"""
    found = prove(tmp_path, fake_torch(tmp_path, code))
    assert found.verdict == "passed" and "hello" in found.output


def test_its_environment_is_the_users_without_another_run(tmp_path):
    body = """
def run_proof(p):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "PYTHONPATH", "LD_PRELOAD", "OMPI_COMM_WORLD_SIZE"):
        assert name not in os.environ, name
    assert os.environ["HF_HUB_OFFLINE"] == "1" and os.environ["MINE"] == "yes"
    assert p.rank == 0 and p.ranks == 1
    assert os.path.realpath(os.getcwd()).startswith(os.path.dirname(os.path.realpath(os.environ["TMPDIR"])))
    assert not os.listdir(".")
    open("left.txt", "w").write("x")
    p.record_note("folder", os.getcwd())
    p.record_number("x", 1, "equal", 1)
"""
    ours = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "h", "PYTHONPATH": "/x", "OMPI_COMM_WORLD_SIZE": "2"}
    ours |= {"MINE": "yes", "PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    found = prove(tmp_path, body, variables=ours)
    assert found.verdict == "passed", found.why + found.output
    assert not os.path.exists(found.hardware["folder"]), "its folder is gone"


def test_our_scripts_stand_in_for_no_package(tmp_path):
    """The folder of the scripts is searched last: a file there hides no module of that name."""
    (tmp_path / "matmul.py").write_text("mine = True\n")
    body = f"sys.path.insert(0, {str(tmp_path)!r})\n\ndef run_proof(p):\n    import matmul\n    p.record_number('x', matmul.mine, 'equal', 1)\n"
    assert prove(tmp_path, body).verdict == "passed"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_what_a_proof_leaves_running_is_ended(tmp_path):
    body = """
def run_proof(p):
    import subprocess
    one = subprocess.Popen(["sleep", "300"], start_new_session=True)
    two = subprocess.Popen(["sleep", "300"])
    p.record_note("pids", "%d %d" % (one.pid, two.pid))
    p.record_number("x", 1, "equal", 1)
"""
    found = prove(tmp_path, body)
    assert found.verdict == "passed"
    until = time.monotonic() + 60
    pids = [int(word) for word in found.hardware["pids"].split()]
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(alive, pids))


def test_a_proof_dies_with_gpuready_itself(tmp_path):
    body = f"def run_proof(p):\n    import time\n    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n    time.sleep(300)\n"
    one = row(tmp_path, body, deadline=200.0)
    code = "import json, sys\nfrom gpuready.catalog.proofs import ProofSpec\nfrom tests.prove.scripts import run_single_proof\nrun_single_proof(ProofSpec.from_json(json.loads(sys.argv[1])))\n"
    ours = subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(one.to_json())], env={**os.environ, "PYTHONPATH": f"{SRC}:{ROOT}"}
    )
    pid = tmp_path / "pid"
    until = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    child = int(pid.read_text())
    ours.kill()
    ours.wait()
    while alive(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(child)


def test_an_interpreter_that_is_none(tmp_path):
    found = run_single_proof(row(tmp_path, GOOD), str(tmp_path / "no-python"))
    assert found.verdict == "failed" and "cannot execute" in found.why


# -- ranks ------------------------------------------------------------------------------------------------


def test_ranks_know_each_other_and_all_must_pass(tmp_path):
    body = "def run_proof(p):\n    p.record_number('ranks', int(os.environ['WORLD_SIZE']), 'equal', 3)\n    p.record_number('rank', p.rank, 'most', 2)\n"
    found = prove(tmp_path, body, ranks=3)
    assert found.verdict == "passed" and found.hardware["ranks"] == 3


def test_the_rank_that_fails_is_named_and_the_others_do_not_wait_for_the_deadline(tmp_path):
    body = """
def run_proof(p):
    import time
    p.begin_step("meet")
    if p.rank == 1:
        os.kill(os.getpid(), 11)
    time.sleep(300)
"""
    found = prove(tmp_path, body, ranks=3, deadline=120.0)
    assert found.verdict == "crashed" and found.why.startswith("rank 1 of 3: ended by SIGSEGV")
    assert found.seconds < 120 / 2


def test_the_caches_of_the_user_stay_readable_and_nobody_is_asked():
    """Kernels of the hub that were fetched before are where the user has them; what is compiled has a folder of its own."""
    ours = {"HF_HOME": "/data/hf", "HF_HUB_CACHE": "/data/hub", "TRITON_CACHE_DIR": "/data/triton"}
    env = runner.proof_environment(ours, "/private", 60.0)
    assert (env["HF_HOME"], env["HF_HUB_CACHE"]) == ("/data/hf", "/data/hub")
    assert env["HF_HUB_OFFLINE"] == env["TRANSFORMERS_OFFLINE"] == env["HF_DATASETS_OFFLINE"] == "1"
    assert env["TRITON_CACHE_DIR"] == "/private/triton" and "HF_HUB_CACHE" not in runner.proof_environment(
        {}, "/private", 60.0
    )
