"""Caches of compiled code: where they are, whose, and what was left locked."""

from __future__ import annotations

import pytest

from gpuready.probe import workspace
from tests.probe.fakes import DENIED, Fake, by_key

ROOT = "/home/u/.cache/torch_extensions"
OURS = {"HOME": "/home/u", "USER": "u"}


def looked(files=None, **settings):
    settings = {"env": OURS, "user": {"uid": 1000, "name": "u"}, **settings}
    found = workspace.probe_caches(Fake({"/dev/null": ""} | (files or {}), **settings))
    assert tuple(fact.key for fact in found) == workspace.CACHES
    return by_key(found)


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({}, ROOT),
        ({"XDG_CACHE_HOME": "/scratch/cache"}, "/scratch/cache/torch_extensions"),
        ({"TORCH_EXTENSIONS_DIR": "/fast/ext", "XDG_CACHE_HOME": "/x"}, "/fast/ext"),
    ],
)
def test_where_extensions_are_kept(env, path):
    assert looked(env=OURS | env)["cache.extensions"].value == path


def test_without_a_home():
    found = looked(env={})
    assert found["cache.extensions"].gap == found["cache.locks"].gap == "HOME is not set"


# -- locks


@pytest.mark.parametrize(
    "lock",
    [
        f"{ROOT}/py312_cu128/fused_adam/lock",
        f"{ROOT}/fused_adam/lock",
        "/home/u/.cache/colossalai/torch_extensions/torch2.5_cuda-12.4-ab12/lock",
    ],
)
def test_a_lock_that_was_left(lock):
    files = {lock: "", f"{lock.rpartition('/')[0]}/build.ninja": ""}
    assert looked(files)["cache.locks"].value == (lock,)


def test_locks_where_the_variable_points():
    files = {"/fast/ext/cpu_adam/lock": "", f"{ROOT}/py312_cu128/fused_adam/lock": ""}
    found = looked(files, env=OURS | {"TORCH_EXTENSIONS_DIR": "/fast/ext"})
    assert found["cache.locks"].value == ("/fast/ext/cpu_adam/lock",)


def test_a_cache_without_locks():
    assert looked({f"{ROOT}/py312_cu128/fused_adam/fused_adam.so": ""})["cache.locks"].value == ()
    assert looked()["cache.locks"].value == ()


def test_a_cache_that_cannot_be_seen():
    assert looked({f"{ROOT}/": DENIED})["cache.locks"].gap == "permission denied"


def test_the_search_is_bounded():
    files = {f"{ROOT}/py{n}/op{m}/lock": "" for n in range(40) for m in range(40)}
    host = Fake(files, env=OURS, user={"uid": 1000})
    found = by_key(workspace.probe_caches(host))["cache.locks"]
    assert 100 < len(found.value) <= 200
    assert host.count("stat") < 300


# -- compiled graphs


def test_no_folder_yet():
    found = looked()["cache.inductor"]
    assert (found.value, found.source, found.gap) == (None, "/tmp/torchinductor_u", "")


@pytest.mark.parametrize(("owner", "mine"), [(1000, True), (0, False), (1001, False)])
def test_whose_folder_it_is(owner, mine):
    path = "/tmp/torchinductor_u"
    found = looked({f"{path}/x": ""}, uids={path: owner})["cache.inductor"]
    assert found.value == {"path": path, "uid": owner, "mine": mine}
    assert found.source == path


@pytest.mark.parametrize(
    ("env", "user", "path"),
    [
        ({"LOGNAME": "l", "USER": "u"}, "p", "/tmp/torchinductor_l"),
        ({"USER": "", "USERNAME": "n"}, "p", "/tmp/torchinductor_n"),
        ({}, "p", "/tmp/torchinductor_p"),
        ({"USER": 'do\\main/u:*?"<>|'}, None, "/tmp/torchinductor_do_main_u_______"),
        ({"USER": "u", "TMPDIR": "/scratch/"}, None, "/scratch/torchinductor_u"),
        ({"USER": "u", "TORCHINDUCTOR_CACHE_DIR": "/fast/ind"}, None, "/fast/ind"),
    ],
)
def test_how_the_folder_is_called(env, user, path):
    found = looked({f"{path}/x": ""}, env=env | {"HOME": "/h"}, user={"uid": 0, "name": user})
    assert found["cache.inductor"].value["path"] == path


def test_a_user_without_a_name():
    found = looked(env={"HOME": "/h"}, user={"uid": 65534, "name": None})["cache.inductor"]
    assert found.value is None and found.gap == "the name of the user cannot be determined"


def test_a_folder_that_cannot_be_seen():
    path = "/tmp/torchinductor_u"
    assert looked({path: DENIED})["cache.inductor"].gap == "permission denied"
    assert looked({f"{path}/x": ""}, user={})["cache.inductor"].gap == "the user cannot be determined"
