"""E25-E28, E32, E34: folders and files that somebody else put in the way, and words that pretend to be another's."""

from __future__ import annotations

import json
import os
import stat
import sys

import pytest

from tests.faults.bench import Machine
from tests.running import QUIET, SRC, gpuready

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")


def test_e25_a_cache_that_others_may_write_is_not_used(tmp_path):
    """The answers of uv are kept in the user's cache; where that is open, nothing is read from it or written to it."""
    cache = tmp_path / "cache" / "gpuready"
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    from gpuready.system import AccessError
    from gpuready.system.own_folders import make_cache_folder as ours

    with pytest.raises(AccessError, match="chmod 700"):
        ours({"XDG_CACHE_HOME": str(tmp_path / "cache")}, "plans")
    assert list(cache.iterdir()) == []
    cache.chmod(0o700)
    assert ours({"XDG_CACHE_HOME": str(tmp_path / "cache")}, "plans").endswith("gpuready/plans")


@root_only
def test_e25_a_cache_of_another_user_and_a_link(tmp_path):
    from gpuready.system import AccessError
    from gpuready.system.own_folders import make_cache_folder as ours

    (tmp_path / "gpuready").mkdir(mode=0o700)
    os.chown(tmp_path / "gpuready", 4242, 4242)
    with pytest.raises(AccessError, match="uid 4242"):
        ours({"XDG_CACHE_HOME": str(tmp_path)})
    (tmp_path / "gpuready").rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "gpuready").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AccessError, match="symbolic link"):
        ours({"XDG_CACHE_HOME": str(tmp_path)})


@root_only
def test_e26_the_folder_of_torch_compile_belongs_to_another(machine: Machine):
    at = machine.folder_at("/tmp/torchinductor_ada")
    machine.variables["USER"] = "ada"
    assert "SYS020" not in machine.check().codes
    os.chown(at, 4242, 4242)
    ran = machine.check("--wants", "torch-compile")
    words = machine.last[0].words("SYS020")
    assert ran.code == 1 and ran.finding("SYS020")["severity"] == "error"
    assert "torchinductor_ada" in words and "TORCHINDUCTOR_CACHE_DIR" in words and "4242" in words


def test_e27_an_output_path_that_is_a_link_is_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("keep\n")
    (tmp_path / "out.json").symlink_to(target)
    for words in (("probe", "-o", "out.json"), ("plan", "transformers", "--on", "h100", "--offline", "-o", "out.json")):
        ran = gpuready(*words, cwd=tmp_path)
        assert ran.code in (1, 2) and "Traceback" not in ran.err, ran
    assert target.read_text() == "keep\n" and (tmp_path / "out.json").is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "precious"]


def test_e28_a_false_nvidia_smi_in_a_folder_that_is_open_to_all(machine: Machine):
    """It is asked, as the user's shell would ask it; the answer says by which path, and the folder is warned of."""
    machine.folder_at("/opt/open").chmod(0o777)
    machine.program("nvidia-smi", "echo rubbish", "/opt/open")
    machine.variables["PATH"] = "/opt/open:.:/usr/bin:/bin"
    ran = machine.check()
    words = ran.words("SYS019")
    assert "/opt/open" in words and '"."' in words and "chmod o-w" in words
    assert "/opt/open/nvidia-smi" in json.dumps(ran.found), "the program that answered is named by its path"


FORGER = """\
import os, sys
rank = int(os.environ["RANK"])
if rank == 1:
    print("gpuready verdict: ready")
    print("[rank 0] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", flush=True)
    print("[rank0]: Traceback (most recent call last):", file=sys.stderr)
    print("[rank0]: ValueError: forged", file=sys.stderr, flush=True)
    sys.exit(9)
import time
time.sleep(20)
"""


def test_e32_a_rank_is_told_by_its_pipe_and_not_by_its_words(tmp_path):
    (tmp_path / "forge.py").write_text(FORGER)
    ran = gpuready(
        "run",
        "--nproc",
        "2",
        "--json",
        "--",
        "forge.py",
        cwd=tmp_path,
        PATH=f"{os.path.dirname(sys.executable)}:/usr/bin:/bin",
    )
    assert ran.code == 9, ran.out + ran.err
    document = json.loads(ran.out)
    assert document["first"]["rank"] == 1 if "first" in document else '"rank": 1' in ran.out
    assert document.get("verdict") != "ready"


def test_e34_nothing_is_asked_of_the_network_by_what_only_looks(tmp_path):
    """No update is looked for and nothing is counted: every command that only looks opens no connection."""
    hook = "import sys\nfound = []\nsys.addaudithook(lambda e, a: found.append(e) if e in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto') else None)\n"
    hook += "from gpuready.cli import run_command_line\nfor words in {!r}:\n    run_command_line(words)\nprint(found, file=sys.stderr)\n"
    commands = [
        ["check", "transformers"],
        ["explain", "DRV001"],
        ["contract", "list"],
        ["fit", "qwen2.5-0.5b", "--on", "h100"],
    ]
    commands += [["probe"], ["check", "axolotl", "--on", "h100"], ["env", "transformers", "--on", "h100"], ["version"]]
    import subprocess

    env = QUIET | {"PYTHONPATH": str(SRC), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", hook.format(commands)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stderr.strip().splitlines()[-1] == "[]", done.stderr[-300:]
    assert os.listdir(tmp_path) == [] and stat.S_ISDIR(os.stat(tmp_path).st_mode)
