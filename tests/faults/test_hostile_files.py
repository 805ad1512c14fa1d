"""E02-E08, E24: contracts, configurations, dumps, checkpoints and archives that somebody made to do harm."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pickle
import resource
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from gpuready.logs.safe_pickle import safe_unpickle
from gpuready.system import redact_text
from tests.running import QUIET, SRC, call_gpuready, gpuready
from tests.secrets.seeded import leaked, seeds

MEBI = 1 << 20
GOOD = """\
framework = "kite"
version = "1.2.0"
origin = "a test"
platforms = ["cuda"]
[[needs]]
key = "package.torch"
want = ">=2.2"
level = "required"
cite = "kite, setup.py:1"
[[steps]]
does = "install it"
run = ["pip", "install", "kite-ml"]
safety = "ask"
"""


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that is there only if something was executed."""
    return tmp_path / "was-executed"


def refused(ran, *words: str) -> None:
    """One sentence, exit 2, nothing else."""
    assert ran.code == 2 and ran.out == "", (ran.code, ran.out[:300])
    assert ran.err.startswith("gpuready: ") and "Traceback" not in ran.err
    for word in words:
        assert word in ran.err, ran.err


# -- E02: secrets in disguise ------------------------------------------------------------------------------


def test_e02_forms_that_are_known_are_hidden():
    every = seeds()
    forms = {"url-encoded", "base64 of a token", "token over two lines", "option over two lines"}
    assert forms <= {seed.kind for seed in every}
    assert [found for s in every if s.kind in forms for found in leaked(redact_text(s.line), [s])] == []
    for seed in every:
        result = base64.b64encode(f"user:{seed.value}".encode()).decode()
        assert result[:24] not in redact_text(f"Authorization: Basic {result}"), seed.kind


def test_e02_the_limits_are_written_down():
    """What nobody could tell from chance is not hidden; the guide says so, and these are its examples."""
    guide = (Path(__file__).parents[2] / "docs/how-to/recordings.md").read_text()
    assert "split into two parts" in guide and "encoded again" in guide
    plain = base64.b64encode(b"correct horse battery").decode()
    assert plain in redact_text(f"the worker said {plain} and went on")


# -- E03, E04: contracts and configurations with something to run ------------------------------------------

SHELL = ["; touch {}", "$(touch {})", "`touch {}`", "| touch {}", "&& touch {}", "\\ntouch {}", "> {}"]
PLACES = {
    "framework": ('framework = "kite"', 'framework = "kite{}"'),
    "package": ('key = "package.torch"', 'key = "package.torch{}"'),
    "argument": ('"kite-ml"]', '"kite-ml{}"]'),
    "program": ('run = ["pip"', 'run = ["pip{}"'),
    "version": ('version = "1.2.0"', 'version = "1.2.0{}"'),
    "want": ('want = ">=2.2"', 'want = ">=2.2{}"'),
}


@pytest.mark.parametrize("place", PLACES)
def test_e03_words_of_a_shell_are_refused_wherever_they_stand(tmp_path, canary, place):
    old, new = PLACES[place]
    path = tmp_path / "mine.toml"
    for said in SHELL:
        path.write_text(GOOD.replace(old, new.format(said.format(canary)), 1))
        refused(call_gpuready("check", "--contract", str(path), cwd=tmp_path), "mine.toml")
    assert not canary.exists() and [p.name for p in tmp_path.iterdir()] == ["mine.toml"]


def test_e03_hosts_and_paths_with_words_of_a_shell(tmp_path, canary):
    for host in (f"a;touch {canary}", f"$(touch {canary})", "-oProxyCommand=id", "a\nb"):
        refused(call_gpuready("fleet", "check", "transformers", "--hosts", host, cwd=tmp_path))
    refused(call_gpuready("check", "transformers", "--python", f"$(touch {canary})", cwd=tmp_path))
    assert not canary.exists()


CODE = [
    "__import__('os').system('touch {}')",
    "lambda: open('{}', 'w')",
    "{{{{ ''.__class__.__mro__ }}}} {{% include '{}' %}}",
    "${{open('{}', 'w')}}",
    "!!python/object/apply:os.system ['touch {}']",
]


@pytest.mark.parametrize("said", CODE, ids=lambda said: said[:12])
def test_e04_an_expression_is_text_or_refused_and_never_evaluated(tmp_path, canary, said):
    text = said.format(canary)
    (tmp_path / "mine.toml").write_text(GOOD.replace('">=2.2"', json.dumps(text)))
    refused(call_gpuready("check", "--contract", "mine.toml", cwd=tmp_path), "mine.toml")
    (tmp_path / "hooks.toml").write_text(GOOD + f"[hooks]\nbefore = {json.dumps(text)}\n")
    refused(call_gpuready("check", "--contract", "hooks.toml", cwd=tmp_path), "hooks")
    (tmp_path / "job.yml").write_text(f"base_model: {text}\nmicro_batch_size: {text}\n")
    ran = call_gpuready("check", "axolotl", "--on", "h100", "--config", "job.yml", "--json", cwd=tmp_path)
    assert ran.code in (0, 1, 2, 3) and "Traceback" not in ran.err
    (tmp_path / "compose.yml").write_text(f"services:\n  a:\n    image: {text}\n    command: {text}\n")
    ran = call_gpuready("check", "axolotl", "--on", "h100", "--dockerfile", "compose.yml", "--json", cwd=tmp_path)
    assert ran.code in (0, 1, 2, 3) and "Traceback" not in ran.err
    assert not canary.exists()


# -- E05: bombs --------------------------------------------------------------------------------------------


def measured(*argv: str, cwd: Path) -> tuple[int, str, int, float]:
    """Exit code, what was said, the largest memory of a command in bytes, and its seconds of the processor."""
    code = "import sys\nfrom gpuready.cli import run_command_line\ncode = run_command_line(sys.argv[1:])\n"
    code += "high = [l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')][0]\n"
    code += "import time\nprint('PEAK', int(high) * 1024, time.process_time(), file=sys.stderr)\nsys.exit(code)"
    env = QUIET | {"PYTHONPATH": str(SRC)}
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # noqa: E731
    done = subprocess.run(
        [sys.executable, "-c", code, *argv],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=limit,
    )
    said, _, last = done.stderr.rpartition("PEAK ")
    peak, seconds = last.split()
    return done.returncode, said, int(peak), float(seconds)


BOMBS = {
    "100 MB": b"# " + b"x" * 100_000_000,
    "deep": b"a = " + b"[" * 10_000 + b"]" * 10_000,
    "huge integer": b"a = " + b"9" * 900_000,
    "twice": b'framework = "a"\nframework = "b"\n',
    "mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "nul": GOOD.replace("kite", "ki\0te").encode(),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_e05_a_bomb_of_a_contract_is_refused_within_bounds(tmp_path, seen, bomb):
    (tmp_path / "mine.toml").write_bytes(BOMBS[bomb])
    code, said, peak, taken = measured("check", "--contract", "mine.toml", cwd=tmp_path)
    seen("E05", f"{bomb}: refused in one second and 64 MiB", said.strip()[:160], taken)
    assert code == 2 and said.startswith("gpuready: mine.toml") and peak < 64 * MEBI, (said[:200], peak >> 20)


LAUGHS = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'lol'}]\n" for i in range(12))
CONFIGS = {
    "anchors.yml": LAUGHS.encode(),
    "deep.yml": b"a: " + b"[" * 10_000,
    "deep.json": b'{"a": ' + b"[" * 200_000,
    "number.json": b'{"hidden_size": ' + b"9" * 900_000 + b"}",
    "large.json": b'{"a": "' + b"x" * 100_000_000 + b'"}',
}


@pytest.mark.parametrize("name", CONFIGS)
def test_e05_a_bomb_of_a_configuration_too(tmp_path, seen, name):
    (tmp_path / name).write_bytes(CONFIGS[name])
    flag = "--config" if name.endswith(".yml") else "--model"
    code, said, peak, taken = measured("check", "axolotl", "--on", "h100", flag, name, cwd=tmp_path)
    seen("E05", f"{name}: read or refused in one second and 64 MiB", said.strip()[:160], taken)
    assert code in (0, 1, 2, 3) and "Traceback" not in said and "failed" not in said, said[:300]
    assert peak < 64 * MEBI, peak >> 20
    assert code == 2 or not name.startswith(("deep", "large"))


# -- E06: a contract that changed --------------------------------------------------------------------------


def test_e06_what_changed_in_a_contract_is_shown_before_it_is_used(tmp_path):
    (tmp_path / "approved.toml").write_text(GOOD)
    (tmp_path / "now.toml").write_text(GOOD.replace('">=2.2"', '">=2.9"').replace('"kite-ml"', '"kite-ml-evil"'))
    ran = gpuready("contract", "diff", "approved.toml", "now.toml", cwd=tmp_path)
    assert ran.code == 0 and ">=2.2" in ran.out and ">=2.9" in ran.out and "kite-ml-evil" in ran.out
    same = json.loads(gpuready("contract", "diff", "now.toml", "now.toml", "--json", cwd=tmp_path).out)
    assert not same.get("changes") and not same.get("rows")
    refused(gpuready("contract", "diff", "approved.toml", "gone.toml", cwd=tmp_path), "gone.toml")


# -- E07, E08: pickles -------------------------------------------------------------------------------------


class Evil:
    """Something whose pickle calls a function, in each of the ways that there are."""

    def __init__(self, how, *args):
        self.how, self.args = how, args

    def __reduce__(self):
        return self.how, self.args


def malicious(path: str) -> list[bytes]:
    """Twenty dumps that run something when Python reads them."""
    command = f"touch {path}"
    made = [pickle.dumps({"entries": [Evil(os.system, command)]}, protocol) for protocol in range(6)]
    calls = (Evil(exec, f"open({path!r}, 'w')"), Evil(eval, f"open({path!r}, 'w')"), Evil(open, path, "w"))
    calls += (Evil(subprocess.Popen, ["touch", path]), Evil(__import__, "os"))
    made += [pickle.dumps([call], 4) for call in calls]
    line = f"S'touch {path}'\n".encode()
    return [
        *made,
        b"cos\nsystem\n(" + line + b"tR.",
        b"(" + line + b"ios\nsystem\n.",
        b"(cos\nsystem\n" + line + b"o.",
        b"\x80\x02cos\nsystem\n" + line + b"\x85\x81.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93" + line + b"\x85R.",
        b"\x80\x02cbuiltins\nobject\n)\x81}(" + line + b"cos\nsystem\nub.",
        b"\x80\x02\x82\x01.",
        b"Pos.system\n.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02}(X\x07\x00\x00\x00entriescos\nsystem\n" + line + b"\x85Ru.",
    ]


def test_e07_twenty_malicious_dumps_are_refused_and_run_nothing(tmp_path, canary):
    every = malicious(str(canary))
    assert len(every) > 20
    for data in every:
        with pytest.raises(ValueError, match=r"code|not|cannot|unknown"):
            safe_unpickle(data)
    assert not canary.exists()


def test_e07_diagnose_tells_which_dumps_it_would_not_read(tmp_path, canary):
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank, data in enumerate(malicious(str(canary))):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    (folder / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    ran = gpuready("diagnose", str(folder), "--json", cwd=tmp_path)
    assert ran.code == 1 and "nccl_trace_rank_0" in ran.out and "code" in ran.out and not canary.exists()


CHECKPOINTS = ("model.pt", "model.pt2", "pytorch_model.bin", "model.ckpt", "data.pkl", "model.npy")
COMMANDS = (
    ("diagnose", "{}"),
    ("check", "transformers", "--on", "{}"),
    ("check", "transformers", "--on", "h100", "--model", "{}"),
    ("check", "axolotl", "--on", "h100", "--config", "{}"),
    ("check", "--contract", "{}"),
    ("check", "axolotl", "--on", "h100", "--dockerfile", "{}"),
    ("fit", "{}", "--on", "h100"),
    ("diff", "{}", "{}"),
    ("contract", "import", "{}"),
    ("install", "--lock", "{}", "--dry-run"),
    ("report", "-o", "x.html", "--on", "{}"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:3]))
def test_e08_no_command_loads_a_checkpoint(tmp_path, canary, command):
    data = pickle.dumps(Evil(os.system, f"touch {canary}"), 2)
    for name in CHECKPOINTS[:: 2 if command[0] in ("report", "install") else 1]:
        path = tmp_path / name
        if name.endswith((".pt", ".pt2")):
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("archive/data.pkl", data)
        else:
            path.write_bytes(data)
        ran = call_gpuready(*(word.format(path) for word in command), cwd=tmp_path)
        assert ran.code in (2, 3) and "Traceback" not in ran.out + ran.err, (name, ran.code, ran.out[:200])
        assert not canary.exists(), name


# -- E24: archives -----------------------------------------------------------------------------------------


def slipping(path: Path) -> Path:
    """A zip with every kind of entry that leads out of the folder it is unpacked in."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("../out", "/tmp/out", "C:\\out", "a/../../out", "A", "a", "nul\0l"):
            file.writestr(zipfile.ZipInfo(name), "x")
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")
        file.writestr("zeros", b"\0" * (64 * MEBI))
    return path


ASKED = (
    ("diagnose", "{}"),
    ("check", "transformers", "--on", "{}"),
    ("install", "--lock", "{}", "--dry-run"),
    ("check", "--contract", "{}"),
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return slipping(tmp_path_factory.mktemp("made") / "bundle.zip")


@pytest.mark.parametrize("command", ASKED, ids=lambda words: " ".join(words[:3]))
def test_e24_an_archive_is_never_unpacked(tmp_path, bundle, command):
    inside = tmp_path / "inside"
    inside.mkdir()
    path = Path(shutil.copy(bundle, inside))
    ran = gpuready(*(word.format(path) for word in command), cwd=inside)
    assert ran.code in (2, 3) and "Traceback" not in ran.err
    assert [p.name for p in inside.iterdir()] == ["bundle.zip"] and [p.name for p in tmp_path.iterdir()] == ["inside"]


def zeros_and(end: bytes, mebibytes: int) -> bytes:
    """One stream of gzip: a piece of zeros that is compressed once and stands there again and again, and an end."""
    zeros, stream = b"\0" * MEBI, zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = stream.compress(zeros) + stream.flush(zlib.Z_FULL_FLUSH)
    total = 0
    for part in (*[zeros] * mebibytes, end):
        total = zlib.crc32(part, total)
    trailer = struct.pack("<II", total, mebibytes * MEBI + len(end))
    return gzip.compress(b"")[:10] + piece * mebibytes + stream.compress(end) + stream.flush() + trailer


def test_a_stream_of_zeros_is_gzip():
    assert gzip.decompress(zeros_and(b"end", 2)) == b"\0" * 2 * MEBI + b"end"


def test_e24_a_compressed_log_is_read_in_a_little_memory(tmp_path):
    """A quarter of a GiB in a quarter of a MB: the stream is cut off, never kept, and nothing is called healthy."""
    path = tmp_path / "train.log.gz"
    path.write_bytes(zeros_and(b"\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", 256))
    code, said, peak, _ = measured("diagnose", str(path), cwd=tmp_path)
    assert code == 3 and peak < 128 * MEBI, (code, said[:200], peak >> 20)  # cut short, and so never healthy


def test_e24_a_folder_of_logs_with_links_pipes_and_twins(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "rank_0.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    (folder / "RANK_0.log").write_text("fine\n")
    (folder / "passwd.log").symlink_to("/etc/passwd")
    (folder / "loop.log").symlink_to(folder / "loop.log")
    os.mkfifo(folder / "pipe.log")
    os.link(folder / "rank_0.log", folder / "rank_1.log")
    ran = gpuready("diagnose", str(folder), "--json", cwd=tmp_path)
    assert ran.code == 1 and "Traceback" not in ran.err and "/bin/bash" not in ran.out
