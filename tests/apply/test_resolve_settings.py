"""Resolutions that see nothing, and the user's own settings of pip and uv."""

from __future__ import annotations

import base64
import json

import pytest

from gpuready.apply.resolve import resolve_plan
from tests.apply.asking import _places, contract, default, need, plan, row
from tests.apply.wheels import wheel

# -- what cannot be seen is no conflict -----------------------------------------------------------------------


@pytest.mark.parametrize("where", ["refused", "absent", "dying", "login"])
def test_an_index_that_cannot_be_asked_never_looks_like_a_conflict(world, index, monkeypatch, where):
    if where == "refused":
        _places(monkeypatch, cu126="http://127.0.0.1:9/none")
    elif where == "absent":
        _places(monkeypatch, cu126=index.url("empty"))
    elif where == "dying":
        index.dying.add("cu126")
    else:
        index.login = "Basic nobody"
    before = plan()
    found = resolve_plan(world, before, contract(), deadline=60)
    assert found.verdict == "plan" and not found.conflicts and not found.lock
    assert found.resolved.startswith("not resolved here: ")
    assert found.replace(resolved="", unresolved=before.unresolved, notes=()) == before
    assert "127.0.0.1" not in found.resolved


def test_a_version_that_the_index_lacks_is_not_resolved_here(world):
    found = resolve_plan(world, plan(torch="2.14.0+cu126"), contract())
    assert found.verdict == "plan" and "torch 2.14.0+cu126" in found.resolved


def test_offline_says_so(world):
    found = resolve_plan(world, plan(), contract(), offline=True)
    assert found.verdict == "plan" and "the network is off" in found.resolved


def test_a_slow_answer_ends_at_the_deadline(world, tmp_path, monkeypatch):
    slow = tmp_path / "uv"
    slow.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'uv 0.13.0' && exit\nsleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr("gpuready.apply.uv.find_own_uv", lambda: str(slow))
    found = resolve_plan(world, plan(), contract(), deadline=1.0)
    assert found.resolved.startswith("not resolved here: uv gave no answer in")


@pytest.mark.parametrize("says", ["uv 0.4.0", "nonsense", ""])
def test_a_uv_that_is_too_old_or_none_is_named(world, tmp_path, monkeypatch, says):
    old = tmp_path / "uv"
    old.write_text(f"#!/bin/sh\necho '{says}'\n")
    old.chmod(0o755)
    monkeypatch.setattr("gpuready.apply.uv.find_own_uv", lambda: str(old))
    with pytest.raises(ValueError, match=r"older than 0\.9|does not say its version"):
        resolve_plan(world, plan(), contract())


# -- the user's own configuration -----------------------------------------------------------------------------


def test_an_empty_answer_proves_nothing(world, tmp_path, monkeypatch):
    fake = tmp_path / "uv"
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo uv 0.13.7\nexit 0\n')
    fake.chmod(0o755)
    monkeypatch.setattr("gpuready.apply.uv.find_own_uv", lambda: str(fake))
    found = resolve_plan(world, plan(), contract())
    assert found.verdict == "plan" and "named no package" in found.resolved


def test_pips_find_links_reach_uv(world, tmp_path):
    wheel(tmp_path / "wheels", "kestrel", "7.0")
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nfind-links =\n  {tmp_path}/nowhere\n  {tmp_path}/wheels\n")
    world.variables["PIP_CONFIG_FILE"] = str(config)
    found = resolve_plan(world, plan(), contract(need("kestrel", "*")))
    assert (row(found, "kestrel").version, row(found, "kestrel").index) == ("7.0", "find-links")
    assert any("nowhere is not there" in note for note in found.notes)


def test_pips_index_serves_where_uv_was_told_none(world, index):
    world.variables["PIP_INDEX_URL"] = world.variables.pop("UV_DEFAULT_INDEX")
    assert resolve_plan(world, plan(), contract()).lock


def test_uvs_own_settings_go_before_pips(world, index):
    world.variables["PIP_INDEX_URL"] = "http://127.0.0.1:9/none"
    assert resolve_plan(world, plan(), contract()).lock


def test_an_extra_index_is_asked_only_for_what_the_others_lack(world, index):
    index.add("private", "1.0", on="extra")
    index.add("filelock", "77.0", on="extra")
    world.variables["PIP_EXTRA_INDEX_URL"] = index.url("extra")
    found = resolve_plan(world, plan(), contract(need("private", "*")))
    assert row(found, "private").version == "1.0" and row(found, "filelock").version == "4.0"
    assert not [path for path in index.asked if path.startswith("/extra/") and "private" not in path]


def test_uv_settings_cannot_undo_the_pinning(world):
    world.variables |= {"UV_NO_SOURCES": "1", "UV_INDEX_STRATEGY": "unsafe-best-match", "UV_TORCH_BACKEND": "cpu"}
    assert row(resolve_plan(world, plan(), contract()), "torch").index == "cu126"


def test_a_password_is_seen_by_nobody(world, index, tmp_path, monkeypatch):
    index.login = "Basic " + base64.b64encode(b"me:s3cr3t-pw").decode()
    logged = tmp_path / "argv"
    from gpuready.apply import uv

    real = uv.find_own_uv()
    shim = tmp_path / "uv"
    shim.write_text(f'#!/bin/sh\necho "$@" >> {logged}\nexec {real} "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setattr("gpuready.apply.uv.find_own_uv", lambda: str(shim))
    host = index.url("main").partition("://")[2]
    del world.variables["UV_DEFAULT_INDEX"]
    world.variables["PIP_INDEX_URL"] = f"http://me:s3cr3t-pw@{host}"
    result: list[str] = []
    found = resolve_plan(world, default(), contract(), note=result.append)
    assert found.lock
    kept = "".join(p.read_text() for p in (tmp_path / "home").rglob("*.json"))
    assert kept
    for text in (logged.read_text(), json.dumps(found.to_json()), "".join(result), kept):
        assert "s3cr3t-pw" not in text


@pytest.mark.parametrize("folder", ["/nowhere/at/all", "a,b"])
def test_a_folder_that_is_none_is_refused(world, tmp_path, folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b").mkdir()
    with pytest.raises(ValueError, match="--find-links"):
        resolve_plan(world, plan(), contract(), find_links=(folder,))


def test_wheels_for_the_macos_that_torch_needs_are_taken(world, index):
    """uv resolves for macOS 13 where nothing else is said, and torch's wheels are for 14."""
    index.add("plume", "1.0", tag="py3-none-macosx_14_0_arm64")
    asked = contract(need("plume", "*"))
    found = resolve_plan(world, default(platform="aarch64-apple-darwin"), asked)
    assert row(found, "plume").version == "1.0"


def test_a_stated_older_macos_gets_the_wheels_that_it_takes(world, index):
    index.add("plume", "1.0", tag="py3-none-macosx_13_0_arm64")
    index.add("plume", "2.0", tag="py3-none-macosx_14_0_arm64")
    asked, mac = contract(need("plume", "*")), default(platform="aarch64-apple-darwin")
    for stated, taken in (("", "2.0"), ("13", "1.0"), ("13.6.1", "1.0"), ("14", "2.0"), ("26", "2.0")):
        found = resolve_plan(world, mac.replace(options={"macos": stated} if stated else {}), asked)
        assert row(found, "plume").version == taken
