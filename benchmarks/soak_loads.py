"""What the soak asks of gpuready: a server under mixed requests, ranks that live long, worlds that do not, fleets.

Each load is a thread that goes on until ``done`` is set and counts what came back in ``counts``.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "a-token-of-the-soak"
H200 = ROOT / "tests" / "machines" / "h200.json"
FRAMEWORKS = ("transformers", "axolotl", "colossalai", "roll", "vllm", "trl")
GPUS = ("h100", "a100-80gb", "rtx4090", "l40s")
LOG = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB
"""
STEADY = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
value, end, at = torch.ones(8), time.time() + float(sys.argv[1]), 0
while True:
    go = torch.tensor([1.0 if time.time() < end else 0.0])
    dist.broadcast(go, 0)
    if not go.item():
        break
    dist.all_reduce(value)
    value /= dist.get_world_size()
    at += 1
    print(f"step {at} loss {value.mean().item():.3f} " + "x" * 60, flush=True)
    time.sleep(0.25)
dist.destroy_process_group()
"""
SMALL = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
print("sum", value.item(), flush=True)
if len(sys.argv) > 1 and dist.get_rank() == 1:
    raise RuntimeError("this rank was told to die")
dist.destroy_process_group()
"""
SSH = """
import os, sys
words = sys.argv[1:]
at = words.index("--")
host, command = words[at + 1], words[at + 2]
if host.startswith("off"):
    sys.exit("ssh: connect to host off port 22: Connection timed out")
os.execvp("sh", ["sh", "-c", command])
"""
SIMULATED = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tests.fleet.worlds import judge_all, machine, names
from benchmarks.simulated_fleet import SimulatedTransport
from gpuready.render import fleet as render
from gpuready.render.layout import Screen
end, runs = time.time() + float(sys.argv[2]), 0
while time.time() < end:
    nodes = names(200)
    odd = {nodes[5]: {"driver.version": "550.54.15"}, nodes[9]: {"gpu.count": 7}}
    report = judge_all(SimulatedTransport(nodes, machine(), odd, dead=nodes[50:52], hung=nodes[70:71]))
    text = render.render_fleet_screen(report, Screen(80))
    assert "550.54.15" in text and report.verdict == "not-ready", text
    runs += 1
    time.sleep(float(sys.argv[3]))
print(runs)
"""


class Place:
    """The folder of one soak, and the variables of everything that runs in it."""

    def __init__(self, folder: Path, mark: str, python: str):
        self.folder, self.mark, self.python = folder, mark, python
        for name in ("tmp", "home", "bin", "work"):
            (folder / name).mkdir()
        self.env = {
            **os.environ,
            "TMPDIR": str(folder / "tmp"),
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "home" / ".cache"),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "OMP_NUM_THREADS": "1",
            "GPUREADY_SOAK": mark,
        }
        self.write("bin/ssh", f"#!{sys.executable}\n{SSH}").chmod(0o755)
        for name, text in (("steady", STEADY), ("small", SMALL), ("simulated", SIMULATED)):
            self.write(f"work/{name}.py", text)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "gpuready", *words]

    def start(self, argv: list[str], **more: object) -> subprocess.Popen[str]:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "text": True}
        return subprocess.Popen(argv, env=self.env, cwd=self.folder / "work", **(quiet | more))  # type: ignore[call-overload, no-any-return]

    def run(self, *words: str) -> tuple[int, str]:
        argv = self.command(*words)
        done = subprocess.run(argv, env=self.env, cwd=self.folder / "work", capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


class Load(threading.Thread):
    """Something done again and again until it is stopped, at a steady beat: a busy neighbour must not look like growth."""

    def __init__(self, name: str, every: float):
        super().__init__(name=name, daemon=True)
        self.every, self.done = every, threading.Event()
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        turn, due = 0, time.monotonic() + self.every
        while not self.done.wait(max(0.0, due - time.monotonic())):
            due = max(due + self.every, time.monotonic())
            try:
                self.counts[self.once(turn)] += 1
            except Exception as error:
                self.counts[f"failed: {type(error).__name__}: {error}"[:120]] += 1
            turn += 1

    def once(self, turn: int) -> str:
        raise NotImplementedError


class Worlds(Load):
    """Small worlds of two ranks, one after the other; in every fifth a rank dies and is explained."""

    def __init__(self, place: Place, every: float):
        super().__init__("worlds", every)
        self.place = place

    def once(self, turn: int) -> str:
        dies = turn % 5 == 4
        words = ("run", "--python", self.place.python, "--nproc", "2", "--log-dir", f"logs/{turn % 10}")
        code, text = self.place.run(*words, "--", "small.py", *(["die"] if dies else []))
        right = ("told to die" in text and code == 1) if dies else code == 0
        if right:
            return "a rank died" if dies else "ended well"
        return f"wrong: {code} {text[-300:]!r}"


class Fleets(Load):
    """`gpuready fleet check` of six local nodes and one that is off, as a whole command."""

    def __init__(self, place: Place, every: float):
        super().__init__("fleet", every)
        self.place = place

    def once(self, turn: int) -> str:
        words = ("fleet", "check", "transformers", "--hosts", "n[1-6],off1", "--python", self.place.python)
        code, text = self.place.run(*words, "--json")
        if "{" not in text:
            return f"wrong: {code} {text[-300:]!r}"
        found = json.loads(text[text.index("{") : text.rindex("}") + 1])
        states = found["report"]["states"] if "report" in found else found["states"]
        return f"exit {code}, states {' '.join(sorted(states))}"


class Requests(Load):
    """Every kind of question to `gpuready serve`, good ones and bad ones, from a fixed set."""

    def __init__(self, port: int, every: float):
        super().__init__("requests", every)
        self.port, self.draw = port, random.Random(1)
        log = LOG.encode()
        self.recording = H200.read_bytes()
        self.posts = [("/api/diagnose", log), ("/api/diagnose", log * 200), ("/api/diagnose", os.urandom(5000))]
        self.bad = ("/api/check?framework=nonsense&on=h100", "/api/fit?model=../../etc/passwd", "/nowhere",
                    "/api/check?on=h100x999999&framework=vllm", "/api/explain?code=XYZ999", "/api/check?%00=1")  # fmt: skip

    def once(self, turn: int) -> str:
        kind = self.draw.random()
        if kind < 0.5:
            return self.ask("GET", self.question())
        if kind < 0.6:
            return self.ask("POST", *self.draw.choice(self.posts))
        if kind < 0.62:
            return self.ask("POST", "/api/report", self.recording)
        if kind < 0.64:
            return self.ask("POST", "/api/report", self.recording[: self.draw.randrange(1000)])
        if kind < 0.7:
            return self.ask("GET", self.question(), token="wrong")
        if kind < 0.8:
            return self.broken()
        return self.ask("GET", self.draw.choice(self.bad))

    def question(self) -> str:
        framework, gpu = self.draw.choice(FRAMEWORKS), self.draw.choice(GPUS)
        model, count = self.draw.choice(("qwen2.5-0.5b", "llama-3.2-1b")), self.draw.choice((1, 8))
        rest = f"gpu={gpu}&count={count}&model={model}&method={self.draw.choice(('lora', 'full'))}"
        return self.draw.choice(
            (
                f"/api/whatif?framework={framework}&{rest}&wait=5",
                f"/api/check?framework={framework}&on={gpu}x{count}&driver=580.65.06",
                f"/api/check?framework={framework}",
                f"/api/fit?model={model}&on={gpu}x{count}&method=lora",
                f"/api/plan?framework={framework}&on={gpu}",
                f"/api/env?framework={framework}&on={gpu}",
                "/api/explain?code=DRV001", "/api/contracts", "/api/gpus", "/",
            )
        )  # fmt: skip

    def ask(self, method: str, path: str, body: bytes | None = None, token: str = TOKEN) -> str:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            line.request(method, path, body, {"Authorization": f"Bearer {token}"})
            answer = line.getresponse()
            answer.read()
            return f"{method} {path.partition('?')[0]} {answer.status}"
        finally:
            line.close()

    def broken(self) -> str:
        """A connection that is dropped: before a word, within the head, or within the body."""
        pieces = (b"", b"GET /api/gpus HTT", b"\x16\x03\x01\x00\xff" * 9,
                  b"POST /api/report HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
                  b"Content-Length: 99999\r\n\r\n{\"half\":" % (self.port, TOKEN.encode()))  # fmt: skip
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as line:
            line.sendall(self.draw.choice(pieces))
        return "dropped connection"
