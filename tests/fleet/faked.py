"""Programs that stand in for ssh, sinfo and srun on PATH; what is asked of a healthy node runs for real."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SSH = r"""
import os, sys, time, subprocess
words = sys.argv[1:]
at = words.index("--")
host, command = words[at + 1], words[at + 2:]
with open(os.environ["SSH_LOG"], "a") as log:
    log.write(repr(words) + "\n")
assert "BatchMode=yes" in words and any(w.startswith("ConnectTimeout=") for w in words), words
assert len(command) == 1, command
def end(code, text):
    sys.stderr.write(text + "\n")
    sys.exit(code)
def mark():
    import json
    sys.stdin.buffer.readline()
    return json.loads(sys.stdin.buffer.readline())["mark"]
kind = host.partition("@")[2] or host
kind = kind.rstrip("0123456789")
if kind == "changed":
    end(255, "@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nHost key verification failed.")
if kind == "stranger":
    end(255, "No ED25519 host key is known for stranger and you have requested strict checking.\nHost key verification failed.")
if kind == "password":
    end(255, "root@password: Permission denied (publickey,password).")
if kind == "off":
    end(255, "ssh: connect to host off port 22: Connection timed out")
if kind == "closed":
    end(255, "ssh: connect to host closed port 22: Connection refused")
if kind == "nameless":
    end(255, "ssh: Could not resolve hostname nameless: Name or service not known")
if kind in ("stuck", "dns"):
    if kind == "stuck":
        print("Welcome to stuck\n", flush=True)
    time.sleep(600)
if kind == "bare":
    end(127, "bash: line 1: exec: python3: not found")
if kind == "broken":
    end(3, "Fatal Python error: init_fs_encoding")
if kind == "silent":
    sys.exit(0)
if kind == "endless":
    piece = b"x" * (1 << 16)
    while True:
        os.write(1, piece)
if kind == "long":
    m = mark()
    print(m, "answer", host, "[" * 1200000, flush=True)
    time.sleep(600)
if kind in ("nan", "deep", "types", "liar"):
    m = mark()
    body = {"nan": '{"schema":1,"node":"nan","at":NaN}', "deep": "[" * 100000 + "]" * 100000,
            "types": '{"schema":"one","node":7}', "liar": '{"schema":1,"node":"good1","print":""}'}[kind]
    print(m, "answer", host, body, flush=True)
    sys.exit(0)
if kind == "old":
    data = sys.stdin.buffer.read().replace(b"MIN_PYTHON = (3, 10)", b"MIN_PYTHON = (9, 10)")
    sys.exit(subprocess.run(["sh", "-c", command[0]], input=data).returncode)
if kind == "banner":
    print("#" * 60 + "\n# Authorised use only\n@gpuready-wrong answer banner {}\n" + "motd " * 500)
    sys.stdout.flush()
    sys.stderr.write("Warning: banner on stderr\n")
if kind == "lone":  # a shared disk is not there: what the node needs has to be sent
    data = sys.stdin.buffer.read().replace(b'"path": "/', b'"path": "/not-here/')
    env = {"PATH": os.environ["PATH"], "TMPDIR": os.environ["LONE_TMP"]}
    sys.exit(subprocess.run([os.environ.get("LONE_SHELL", "sh"), "-c", command[0]], input=data, env=env).returncode)
os.execvp("sh", ["sh", "-c", command[0]])
"""


class Bin:
    """A folder of programs that comes first on PATH."""

    def __init__(self, folder: Path):
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.log = folder / "ssh.log"
        self.lone = folder / "lone"
        self.lone.mkdir()
        self.variables = {
            **os.environ,
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "SSH_LOG": str(self.log),
            "LONE_TMP": str(self.lone),
        }

    def put(self, name: str, source: str) -> None:
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\n{source}")
        path.chmod(0o755)

    def asked_lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []
