"""One process with a real torch that forks for every script of these tests: they need no import of torch each, which takes seconds."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests import target_environment

SCRIPTS = target_environment.ROOT / "src" / "gpuready" / "fit" / "scripts"
SERVER = r"""
import json, os, runpy, sys, traceback
sys.path.insert(0, sys.argv[1])
import watch  # the script with the most imports: torch, torch._dynamo and sympy

for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        for name, number in (("out", 1), ("err", 2)):
            os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(job["cwd"])
        sys.path[:0], sys.argv, code = job["path"], job["words"], 1
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def start_server() -> subprocess.Popen[str]:
    words = [target_environment.python(), "-s", "-c", SERVER, str(SCRIPTS)]
    env = os.environ | {"PYTORCH_JIT": "0", "CUDA_VISIBLE_DEVICES": ""}
    server = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(lambda: (server.stdin.close(), server.wait(10)))
    return server


def run_in_torch(folder: Path, script: Path, *words: str, path: Sequence[Path] = ()) -> tuple[str, str]:
    """Run a script in a fork that has torch imported; what it printed."""
    server, out, err = start_server(), folder / "stdout", folder / "stderr"
    job: Mapping[str, object] = {
        "words": [str(script), *words], "path": [*map(str, path), str(SCRIPTS)], "cwd": str(folder), "out": str(out), "err": str(err)
    }  # fmt: skip
    server.stdin.write(json.dumps(job) + "\n")
    server.stdin.flush()
    code = server.stdout.readline()
    assert code == "0\n", err.read_text()[-2000:]
    return out.read_text(), err.read_text()
