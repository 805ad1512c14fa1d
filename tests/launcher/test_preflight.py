"""What is said before the start, from facts that are stated."""

from __future__ import annotations

import socket
import sys

import pytest

from gpuready.launcher import preflight, rank_process
from gpuready.model import Fact, Facts
from gpuready.model.run import LaunchJob
from gpuready.rollcall import endpoint
from gpuready.workflow import launch_job

GIB = 1 << 30


def job(**more: object) -> LaunchJob:
    settings = {"engine": "local", "kind": "module", "words": ("pack",), "port": 1, **more}
    return LaunchJob(python="/v/bin/python", nproc=4, **settings)  # type: ignore[arg-type]


def said(job: LaunchJob, **facts: object) -> dict[str, object]:
    stated = Facts([Fact(key.replace("__", "."), value, "test", "stated") for key, value in facts.items()], "here")
    found = preflight.run_preflight(job, stated, lambda name: f"/usr/bin/{name}", True)
    return {sight.what: sight for sight in found if sight.severity != "ok"}


def test_a_machine_without_trouble_says_nothing():
    assert not said(
        job(), gpu__count=4, gpu__visible=(0, 1, 2, 3), system__shm=8 * GIB, limit__nofile=65536, limit__nproc=-1
    )


def test_more_ranks_than_gpus():
    sight = said(job(), gpu__count=2, gpu__visible=(0, 1))["ranks"]
    assert sight.severity == "error" and "4 ranks for 2 visible GPUs" in sight.says and "--nproc 2" in sight.fix
    assert not said(job(), gpu__count=2, gpu__visible=()), (
        "no GPU is to be used: then gloo may have as many ranks as it likes"
    )


def test_a46_little_shared_memory():
    sight = said(job(), system__shm=64 << 20, system__shm_free=16 << 20)["memory"]
    assert sight.severity == "error" and "64 MiB, 16 MiB free" in sight.says and "--shm-size" in sight.fix
    assert said(job(), system__shm=128 << 20)["memory"].severity == "warning"


def test_a47_low_limits_for_this_world():
    sight = said(job(nnodes=64), limit__nofile=1024)["limits"]
    assert (
        sight.severity == "error" and "1024 open files are allowed, and a world of 256 needs about 1280" in sight.says
    )
    assert not said(job(), limit__nofile=1024)
    assert said(job(), limit__memlock=64 << 10, net__ib=("mlx5_0",))["limits"].severity == "warning"


def test_memory_that_others_hold():
    holders = ({"gpu": 1, "pid": 4711, "command": "python old.py"},)
    sight = said(
        job(),
        gpu__count=4,
        gpu__memory=(80 * GIB,) * 4,
        gpu__free=(80 * GIB, 40 * GIB, 80 * GIB, 80 * GIB),
        gpu__processes=holders,
    )["memory"]
    assert sight.severity == "warning" and "40.0 GiB of GPU 1" in sight.says and "pid 4711 python old.py" in sight.says


def test_engines_that_are_not_there():
    made = LaunchJob("torchrun", "/v/bin/python", "module", ("pack",), 1, port=1)
    assert "has no torch" in said(made)["engine"].says


@pytest.mark.parametrize(
    ("master", "severity", "says"),
    [
        ("127.0.0.1", "warning", "loopback"),
        ("localhost", "warning", "loopback"),
        ("192.0.2.7", "error", "is not an address of this node"),
        ("no-such-host.invalid", "error", "does not resolve"),
    ],
)
def test_a04_a_master_that_the_others_cannot_reach(master, severity, says):
    made = LaunchJob("torchrun", "/v/bin/python", "module", ("pack",), 1, nnodes=2, master=master, port=29500)
    found = said(made, torch__version="2.13.0")["peers"]
    assert says in found.says and found.severity == severity, "two nodes may be on one host, where torchrun starts too"


def test_a_name_of_this_node_is_an_address_of_it(monkeypatch):
    own = next(iter(endpoint.list_own_addresses()), "")
    if not own:
        pytest.skip("this machine has no address but its loopback")
    asked = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: asked(own if host == b"node-a" else host, *rest, **more))  # fmt: skip
    made = LaunchJob("torchrun", "/v/bin/python", "module", ("pack",), 1, nnodes=2, master="node-a", port=29500)
    assert "peers" not in said(made, torch__version="2.13.0")


def test_a02_a_master_that_does_not_resolve():
    made = LaunchJob(
        "torchrun",
        "/v/bin/python",
        "module",
        ("pack",),
        1,
        nnodes=2,
        node_rank=1,
        master="no-such-host.invalid",
        port=29500,
    )
    sight = said(made, torch__version="2.13.0")["peers"]
    assert sight.severity == "error" and "does not resolve" in sight.says and "/etc/hosts" in sight.fix
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    found = preflight.run_preflight(made, Facts([], "here"), str, True, pod)
    assert [sight.severity for sight in found if sight.what == "peers"] == ["warning"], "names of pods appear late"
    assert not [
        s
        for s in preflight.run_preflight(made.replace(node_rank=0), Facts([], "here"), str, True, pod)
        if s.what == "peers"
    ]


# -- nodes that looked at themselves ------------------------------------------------------------------------


def sight(severity: str, says: str, code: str = "SYS006") -> dict[str, str]:
    return {"what": "limits", "severity": severity, "says": says, "fix": "ulimit -n 4096", "code": code}


def test_what_several_nodes_have_is_told_once():
    looked = {
        f"n{i:02}": {"sights": [sight("error", "few files"), sight("warning", "little room", "SYS001")]}
        for i in range(12)
    }
    looked["n03"]["sights"].append(sight("error", "no GPU", "GPU001"))
    looked["n99"] = {"gap": "python: No such file or directory"}
    says, fix, code = preflight.summarize_errors(looked)
    assert says == "nodes n[00-11]: few files; node n03: no GPU [GPU001]"
    assert (fix, code) == ("ulimit -n 4096", "SYS006")
    assert preflight.summarize_warnings(looked)[0] == "nodes n[00-11]: little room [SYS001]"
    assert (
        preflight.summarize_warnings(looked)[1]
        == "node n99 could not be looked at before the start: python: No such file or directory"
    )
    assert preflight.summarize_errors({"n01": {"sights": []}}) == ("", "", "")


def test_only_the_first_attendant_of_a_node_looks():
    words = [
        sys.executable,
        "-c",
        'print(\'{"sights": [{"severity": "error", "what": "ranks"}, {"severity": "ok", "what": "script"}]}\')',
    ]
    assert (
        rank_process.preflight_node(words, {}, [{"LOCAL_RANK": "1"}]) is None
        and rank_process.preflight_node([], {}, [{}]) is None
    )
    assert rank_process.preflight_node(words, {"GPUREADY_FIRST": "0"}, [{"LOCAL_RANK": "0"}]) is None
    assert [s["what"] for s in rank_process.preflight_node(words, {}, [{"LOCAL_RANK": "0"}])["sights"]] == ["ranks"]
    assert not rank_process.preflight_node(words, {"CUDA_VISIBLE_DEVICES": "3"}, [{}])["sights"], (
        "it sees only what it was given"
    )
    assert "No such file" in rank_process.preflight_node(["/none/python"], {}, [{}])["gap"]
    assert (
        rank_process.preflight_node([sys.executable, "-c", "import sys; sys.exit('no way')"], {}, [{}])["gap"]
        == "no way"
    )


def test_one_fix_of_several_problems_is_told_once():
    from gpuready.model.run import PreflightItem
    from gpuready.render.run import render_run_refusal

    fix = "gpuready check demo"
    rows = [PreflightItem("framework", "error", f"problem {number}", fix, code="PKG002") for number in (1, 2, 3)]
    text = render_run_refusal([*rows, PreflightItem("script", "error", "gone", "the nearest name there is b.py")])
    assert text.count("$ gpuready check demo") == 1 and text.index("problem 3") < text.index("gpuready check demo")
    assert "the nearest name" in text and "4 problems" in text


@pytest.mark.parametrize("name", ["cfg.yml", "my job.yaml", "ds.json"])
def test_a_configuration_is_no_script(name, tmp_path, monkeypatch):
    """Making it executable would help nobody."""
    from gpuready.launcher.script import why_not_runnable

    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("base_model: m\n")
    launch = launch_job.parse_command([name])
    says, fix = why_not_runnable(launch.kind, launch.words, "x86_64", lambda word: word)
    assert "configuration file" in says and "chmod" not in fix and "gpuready run -- " in fix


def test_a_file_that_a_job_reads_is_no_leftover(tmp_path):
    """It was once taken for a store of an earlier run, refused, and to be removed."""
    data = tmp_path / "train.jsonl"
    data.write_text("{}")
    found = said(job(words=("pack", f"--data=file://{data}")))
    assert "leftovers" not in found or found["leftovers"].severity == "ok", found


def test_a_store_that_an_earlier_run_has_left_is_named(tmp_path):
    store, script = tmp_path / "store", tmp_path / "train.py"
    script.write_text(f"dist.init_process_group('gloo', init_method='file://{store}', rank=0, world_size=2)\n")
    train = job(kind="script", words=(str(script),))
    assert "leftovers" not in said(train)
    store.write_bytes(b"\x09\0\0\0refcount/\x01\0\0\x001")
    assert str(store) in said(train)["leftovers"].says
    store.write_bytes(b"a data set")
    assert "leftovers" not in said(train)
