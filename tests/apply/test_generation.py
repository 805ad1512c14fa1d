"""The folder of an environment, its lock and its journal, without any install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready.apply import disk_space, install_lock
from gpuready.apply.generation import MANIFEST_FILE, EnvironmentHome, InstallJournal
from gpuready.apply.install_lock import InstallLock, InstallLockBusyError
from gpuready.apply.install_steps import format_lock_requirements, kernels_to_build, plan_identity
from gpuready.model.plan import KernelPlan, LockedPackage, Plan
from gpuready.system import durable_files
from tests.apply.wheels import wheel

ROW = LockedPackage("alpha", "1.0", ("sha256:aa", "sha256:bb"))


def plan(*rows: LockedPackage, **more) -> Plan:
    return Plan("alpha", "1.0", "plan", lock=rows or (ROW,), **more)


def made(home: EnvironmentHome, plan: str, complete: bool = True):
    generation = home.next_generation(plan)
    os.makedirs(f"{generation.path}/bin")
    (open(f"{generation.path}/pyvenv.cfg", "w")).close()
    if complete:
        durable_files.replace_file(f"{generation.path}/{MANIFEST_FILE}", "{}")
    return generation


@pytest.fixture
def home(tmp_path):
    found = EnvironmentHome(str(tmp_path / "env"))
    found.claim_folder()
    found.prepare_folder()
    return found


def test_generations_are_counted_and_published(home):
    assert home.current_generation() is None and home.previous_generation() is None
    first, second = made(home, "aaa"), made(home, "bbb")
    home.publish_generation(first)
    assert home.current_generation() == first and os.readlink(home.join_path("bin")) == "current/bin"
    home.publish_generation(second)
    assert home.current_generation() == second and home.previous_generation() == first
    assert home.generations_of_plan("aaa") == [first] and home.generations_of_plan("ccc") == []


def test_what_is_unfinished_is_swept_and_never_current(home):
    first, half = made(home, "aaa"), made(home, "bbb", complete=False)
    home.publish_generation(first)
    open(home.join_path("current.1234.draft"), "w").close()
    assert home.generations_of_plan("bbb") == [] and home.remove_unfinished() == [half.name]
    assert [g.name for g in home.list_generations()] == [first.name] and not os.path.exists(
        home.join_path("current.1234.draft")
    )


def test_old_ones_go_and_the_published_one_stays(home):
    every = [made(home, f"p{i}") for i in range(6)]
    home.publish_generation(every[0])
    gone, busy = home.remove_old_generations(3)
    assert gone == [g.name for g in every[1:4]] and busy == {}
    assert home.current_generation() == every[0]


def test_one_that_is_in_use_stays(home, tmp_path):
    first = made(home, "aaa")
    home.publish_generation(made(home, "bbb"))
    job = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], cwd=first.path, text=True,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    job.stdout.readline()
    gone, busy = home.remove_old_generations(1)
    assert busy == {first.name: job.pid} and first.name not in gone
    job.communicate("\n")
    assert first.name in home.remove_old_generations(1)[0]


def test_the_same_plan_has_the_same_name_and_any_other_another():
    assert plan_identity(plan()) == plan_identity(plan(machine="other", notes=("x",)))
    others = [
        plan(ROW.replace(version="1.1")),
        plan(ROW.replace(hashes=("sha256:cc",))),
        plan(python="3.12"),
        plan(ROW, ROW.replace(name="beta")),
        plan(kernels=(KernelPlan("flash-attn", "2.8", "build", "why"),)),
    ]
    assert len({plan_identity(p) for p in [plan(), *others]}) == 6


def test_a_lock_is_written_as_uv_reads_it():
    text = format_lock_requirements(
        [ROW, LockedPackage("beta", "2", ("sha256:cc",), origin="/a b/beta-2-py3-none-any.whl")]
    )
    assert text.startswith("alpha==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n")
    assert "beta @ file:///a%20b/beta-2-py3-none-any.whl \\\n    --hash=sha256:cc\n" in text


def test_only_kernels_that_the_lock_lacks_are_built():
    built = KernelPlan("flash-attn", "2.8", "build", "no wheel")
    assert kernels_to_build(
        plan(kernels=(built, KernelPlan("alpha", "1.0", "build", ""), KernelPlan("x", "1", "jit", "")))
    ) == [built]


def test_the_journal_survives_a_torn_line(home):
    journal = InstallJournal(home.path, lambda: 1.0)
    journal.record_step("one")
    with open(journal.path, "a") as file:
        file.write('{"step": "tor')
    journal.record_step("two", token="hf_abcdefghijklmnopqrstuvwxyz123456")
    first, torn, last = Path(journal.path).read_text().splitlines()
    assert (json.loads(first)["step"], torn, json.loads(last)["step"]) == ("one", '{"step": "tor', "two")
    assert "hf_abc" not in last


def test_one_builder_at_a_time(home):
    first, second = (InstallLock(home.join_path(".gpuready"), "here") for _ in range(2))
    first.acquire()
    with pytest.raises(InstallLockBusyError, match=f"process {os.getpid()} on here"):
        second.acquire(wait=False)
    first.release()
    for text in ("", "nonsense", "[]", '{"pid": "x"}'):
        Path(first.path).write_text(text)
        second.acquire(wait=False)
        second.release()
    assert os.listdir(home.join_path(".gpuready")) == ["lock"]


def test_on_a_disk_without_locks_a_file_is_the_lock(home, monkeypatch):
    def refuse(path):
        raise durable_files.LocksUnsupported("no locks")

    monkeypatch.setattr(durable_files, "take_lock", refuse)
    first, second = (InstallLock(home.join_path(".gpuready"), "here") for _ in range(2))
    first.acquire()
    with pytest.raises(InstallLockBusyError, match=f"process {os.getpid()} on here"):
        second.acquire(wait=False)
    dead = json.loads(Path(first.path).read_text()) | {"started": 1}
    Path(first.path).write_text(json.dumps(dead))
    second.acquire(wait=False)
    far = json.loads(Path(first.path).read_text()) | {"boot": "of another machine", "host": "far"}
    Path(first.path).write_text(json.dumps(far))
    with pytest.raises(InstallLockBusyError, match="on far"):
        first.acquire(wait=False)
    monkeypatch.setattr(install_lock, "EXPIRY", 0.0)
    first.acquire(wait=False)


def test_room_is_measured_in_the_wheels_and_estimated_without(tmp_path):
    wheel(tmp_path, "alpha", "1.0", {"alpha/__init__.py": "x" * 100_000})
    exact = disk_space.estimate_space(plan(), [str(tmp_path)])
    assert exact.estimated == 0 and 100_000 < exact.size - disk_space.OVERHEAD[0] < 101_000
    guess = disk_space.estimate_space(plan(LockedPackage("torch", "2.13.0", ("sha256:x",)), cuda="12.8"), [])
    assert guess.estimated == 1 and guess.size > 1 << 30 and "1 of 1" in guess.how_measured
    result = disk_space.estimate_space(plan(ROW.replace(size=10 << 20)), [])
    assert result.size - disk_space.OVERHEAD[0] == 30 << 20


CUDA_12 = "cublas cuda-cupti cuda-nvrtc cuda-runtime cudnn cufft curand cusolver cusparse nccl nvjitlink nvtx"
SMALL = "numpy sympy networkx mpmath filelock fsspec jinja2 markupsafe typing-extensions"
COLOSSALAI = f"torch setuptools ray bitsandbytes transformers {SMALL} " + " ".join(f"other-{n}" for n in range(74))


@pytest.mark.parametrize(
    ("cuda", "libraries", "others", "mib", "machine"),
    [
        ("12.4", CUDA_12, f"torch triton {SMALL}", 5064, "x86_64"),
        ("12.8", f"{CUDA_12} cufile cusparselt", f"torch triton setuptools {SMALL}", 6440, "x86_64"),
        ("13.0", f"{CUDA_12} cufile cusparselt nvshmem", f"torch triton setuptools {SMALL}", 4490, "x86_64"),
        ("13.2", f"{CUDA_12} cufile cusparselt nvshmem", f"torch triton setuptools {SMALL}", 5290, "x86_64"),
        ("", "", f"torch setuptools {SMALL}", 761, "x86_64"),
        ("", "", COLOSSALAI, 1010, "aarch64"),
    ],
)
def test_sizes_are_within_a_fifth_of_what_was_measured(cuda, libraries, others, mib, machine):
    """Environments of torch 2.5.1, 2.8.0, 2.13.0 for CUDA 13.0, 2.15.0 for 13.2 and 2.13.0+cpu, their files added up;
    colossalai 0.5.0 with torch 2.5.1 on aarch64, which was told as 1.33 GiB."""
    names = [*(f"nvidia-{name}-cu{cuda[:2]}" for name in libraries.split()), *others.split()]
    rows = [LockedPackage(name, "1.0", ("sha256:x",)) for name in names]
    result = disk_space.estimate_space(plan(*rows, cuda=cuda, platform=f"{machine}-manylinux_2_36"), [])
    assert 0.8 <= (result.size >> 20) / mib <= 1.21
