"""The offline bundle: every file of a lock, with its hash, whole or not at all; and the lock read back."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile

import pytest

from gpuready.apply import uv
from gpuready.apply.bundle import format_lock_file, rank_target_tags, write_bundle
from gpuready.apply.install_steps import format_lock_requirements
from gpuready.apply.resolve import resolve_plan
from gpuready.plan.lock import read_lock
from tests.apply.asking import contract, default, need, plan
from tests.apply.wheels import wheel
from tests.every import every


@pytest.fixture
def locked(world, index):
    index.add("kestrel", "1.0", tag="cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64")
    index.add("kestrel", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    index.add("kestrel", "1.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    index.add("kestrel", "1.0", tag="cp312-cp312-manylinux_2_28_aarch64")
    found = resolve_plan(world, plan(), contract(need("kestrel", "*")))
    assert found.lock
    return found


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_bundle_has_the_file_for_the_target_and_no_other(world, locked, tmp_path):
    write_bundle(world, locked, str(tmp_path / "out"))
    assert names(tmp_path / "out") == {
        "README.txt", "requirements.txt", "gpuready.lock", "filelock-4.0-py3-none-any.whl", "sparrow-1.2.3-py3-none-any.whl",
        "torch-2.13.0+cu126-py3-none-any.whl", "triton-3.7-py3-none-any.whl", "kestrel-1.0-cp312-cp312-manylinux_2_28_x86_64.whl",
    }  # fmt: skip
    assert "--offline" in (tmp_path / "out/README.txt").read_text()


def test_uv_installs_the_bundle_with_hashes_and_without_network(world, index, tmp_path):
    found = resolve_plan(world, default(python="3.11"), contract())
    write_bundle(world, found, str(tmp_path / "out"))
    index.close()
    env = {"PATH": os.environ["PATH"], "UV_CACHE_DIR": str(tmp_path / "other-cache"), "HOME": str(tmp_path)}
    asked = [
        uv.find_uv(world),
        "pip",
        "install",
        "--offline",
        "--no-index",
        "--find-links",
        str(tmp_path / "out"),
        "--require-hashes",
    ]
    asked += [
        "--target",
        str(tmp_path / "site"),
        "--python",
        sys.executable,
        "-r",
        str(tmp_path / "out/requirements.txt"),
    ]
    ran = subprocess.run(asked, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "site/sparrow/__init__.py").exists()


def add_source(index, name: str, project: str) -> None:
    """A source archive on the index, whose PKG-INFO tells what it requires: nothing."""
    folder = index.folder / "main"
    result = f"Metadata-Version: 2.2\nName: {name}\nVersion: 1.0\nRequires-Python: >=3.9\n"
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        for path, text in (("PKG-INFO", result), ("pyproject.toml", project)):
            member = tarfile.TarInfo(f"{name}-1.0/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


def test_a_bundle_has_what_its_sources_are_built_with(world, index, tmp_path):
    """As setuptools for ColossalAI: offline nothing else brings it."""
    index.add("nest", "3.0", needs=["twig"])
    index.add("twig", "1.0")
    add_source(
        index,
        "osprey",
        '[build-system]\nrequires = ["nest>=2"]\nbuild-backend = "nest"\n[project]\nname = "osprey"\nversion = "1.0"\n',
    )
    found = resolve_plan(world, plan(options={"allow-build": True}), contract(need("osprey", "*")), allow_build=True)
    assert found.lock, (found.resolved, found.conflicts)
    notes = write_bundle(world, found, str(tmp_path / "out"))
    assert {"osprey-1.0.tar.gz", "nest-3.0-py3-none-any.whl", "twig-1.0-py3-none-any.whl"} <= names(tmp_path / "out")
    assert "osprey 1.0 has no wheel" in notes[0] and "--allow-build" in (tmp_path / "out/README.txt").read_text()
    assert not {"nest", "twig"} & {row.name for row in found.lock}


def test_a_file_with_another_hash_is_refused_and_nothing_appears(world, index, locked, tmp_path):
    path = index.folder / "main" / "filelock-4.0-py3-none-any.whl"
    index.hashes[path.name] = index.hash(path)
    wheel(index.folder / "main", "filelock", "4.0", {"filelock/__init__.py": "raise SystemExit('stolen')"})
    with pytest.raises(ValueError, match="another hash than the lock"):
        write_bundle(world, locked, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_second_call_keeps_what_is_there_and_finishes(world, index, locked, tmp_path, monkeypatch):
    from gpuready.apply import bundle as room
    from gpuready.system import AccessError

    real, count = room.download_file, []

    def breaks(*words):
        count.append(1)
        if len(count) > 2:
            raise AccessError("broke off")
        return real(*words)

    monkeypatch.setattr(room, "download_file", breaks)
    with pytest.raises(ValueError, match="run it again"):
        write_bundle(world, locked, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    count.clear()
    monkeypatch.setattr(room, "download_file", lambda *words: count.append(1) or real(*words))
    write_bundle(world, locked, str(tmp_path / "out"))
    assert len(count) == len(locked.lock) - 2
    assert write_bundle(world, locked, str(tmp_path / "out")) == (f"{tmp_path}/out has this bundle already",)


def test_a_folder_with_something_else_is_left_alone(world, locked, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("x")
    with pytest.raises(ValueError, match="holds something else"):
        write_bundle(world, locked, str(tmp_path / "out"))
    assert names(tmp_path / "out") == {"mine"}


def test_a_plan_that_is_not_resolved_has_no_bundle(world, tmp_path):
    with pytest.raises(ValueError, match="nothing to bundle"):
        write_bundle(world, plan(resolved="not resolved here: x"), str(tmp_path / "out"))


def test_a_full_disk_is_seen_before(world, locked, tmp_path, monkeypatch):
    monkeypatch.setattr("gpuready.system.download.FREE_SPACE_MARGIN", 1 << 60)
    with pytest.raises(ValueError, match="no space left"):
        write_bundle(world, locked, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_tags_of_a_target_are_ranked():
    ranks = rank_target_tags("3.12.4", "x86_64-manylinux_2_28")
    assert ranks["cp312-cp312-manylinux_2_28_x86_64"] < ranks["cp312-cp312-manylinux2014_x86_64"]
    assert ranks["cp312-abi3-manylinux_2_17_x86_64"] < ranks["py3-none-any"]
    assert not {"cp312-cp312-manylinux_2_34_x86_64", "cp311-cp311-manylinux_2_28_x86_64"} & set(ranks)


# -- the lock read back ---------------------------------------------------------------------------------------


def test_a_lock_comes_back_as_it_was(locked):
    assert read_lock(format_lock_file(locked), "x.lock") == locked
    assert "http:" not in format_lock_file(locked), "only the host of an index is named"
    assert all(f"--hash={one}" in format_lock_requirements(locked.lock) for row in locked.lock for one in row.hashes)


def test_resolving_a_lock_again_gives_the_same_rows(world, locked):
    again = read_lock(format_lock_file(locked), "x.lock")
    world.variables["XDG_CACHE_HOME"] = "/nonexistent-on-purpose/x"  # no answer of ours to fall back on
    assert resolve_plan(world, again.replace(lock=(), resolved=""), contract(need("kestrel", "*"))).lock == locked.lock


def tampered(change) -> str:
    row = {"name": "torch", "version": "2.13.0", "hashes": ["sha256:" + "a" * 64], "index": "", "origin": "", "via": []}
    data = {
        "schema": 1,
        "kind": "lock",
        "framework": "x",
        "version": "1",
        "verdict": "plan",
        "python": "3.12",
        "torch": "2.13.0+cu130",
    }
    data |= {"index": "pypi", "platform": "x86_64-manylinux_2_28", "lock": [row]}
    change(data, row)
    return json.dumps(data)


def test_the_sound_one_is_read():
    assert read_lock(tampered(lambda data, row: None), "x.lock").lock[0].name == "torch"


@every(
    "change",
    [
        lambda d, r: d.update(schema=2),
        lambda d, r: d.update(kind="plan"),
        lambda d, r: d.update(lock=[]),
        lambda d, r: d.update(lock=7),
        lambda d, r: d.update(lock=[r, r]),
        lambda d, r: d.update(python="--python"),
        lambda d, r: d.update(python=3.12),
        lambda d, r: d.update(platform="-x"),
        lambda d, r: d.update(index="evil"),
        lambda d, r: d.update(torch="2.12.0"),
        lambda d, r: r.update(name="--index-url=http://evil"),
        lambda d, r: r.update(name="torch @ http://evil/x.whl"),
        lambda d, r: r.update(name="../torch"),
        lambda d, r: r.update(name=7),
        lambda d, r: r.update(version="2.13.0 --pre"),
        lambda d, r: r.update(version="latest"),
        lambda d, r: r.update(version=None),
        lambda d, r: r.update(hashes=[]),
        lambda d, r: r.update(hashes=["md5:" + "a" * 32]),
        lambda d, r: r.update(hashes=["sha256:" + "a" * 63]),
        lambda d, r: r.update(hashes=["sha256:" + "a" * 64 + " --pre"]),
        lambda d, r: r.update(index="https://evil/simple"),
        lambda d, r: r.update(index=["x"]),
        lambda d, r: r.update(origin="http://evil/torch.whl"),
    ],
)
def test_a_lock_that_was_tampered_with_is_refused_in_a_sentence(change):
    with pytest.raises(ValueError, match=r"^x\.lock ") as said:
        read_lock(tampered(change), "x.lock")
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"lock"', "[" * 100000])
def test_a_file_that_is_no_lock_is_refused(text):
    with pytest.raises(ValueError, match=r"^x\.lock "):
        read_lock(text, "x.lock")


def test_the_real_locks_are_sound():
    from pathlib import Path

    folder = Path(__file__).parents[2] / "benchmarks/results"
    found = {path.stem: read_lock(path.read_text(), path.name) for path in folder.glob("*.lock")}
    assert {"roll-torch280-vllm", "roll-torch280-sglang"} <= set(found)
    for name, plan_ in found.items():
        assert "://" not in (folder / f"{name}.lock").read_text(), name
        assert len(plan_.lock) > 50 and all(row.hashes for row in plan_.lock), name
