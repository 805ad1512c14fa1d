"""The resolution, by the real uv on a local index of tiny wheels: what comes from where, and what is refused."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from tarmac.apply.resolve import resolve
from tarmac.catalog import indexes
from tarmac.model import Contract, Need
from tarmac.planned import Plan
from tarmac.system import Live
from tests.apply.local_index import Index, wheel

TARGET = "x86_64-manylinux_2_28"


@pytest.fixture
def index(tmp_path):
    made = Index(tmp_path / "index")
    yield made
    made.close()


@pytest.fixture
def world(tmp_path, index, monkeypatch):
    """A door to a machine whose only indexes are local, and whose torch index cu126 is one of them."""
    kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    environ = kept | {
        "HOME": str(tmp_path / "home"),
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
        "UV_DEFAULT_INDEX": index.url("main"),
        "UV_HTTP_RETRIES": "0",
        "TMPDIR": str(tmp_path),
        "PIP_CONFIG_FILE": "/dev/null",
    }
    (tmp_path / "home").mkdir()
    _places(monkeypatch, cu126=index.url("cu126"), **{"vllm-nightly-cu130": index.url("nightly")})
    index.add("sparrow", "1.2.3", ["torch>=2", "filelock"])
    index.add("filelock", "4.0")
    index.add("torch", "2.13.0")
    index.add("torch", "99.0", extra="raise SystemExit('stolen')")
    index.add("torch", "2.13.0+cu126", ["triton==3.7"], on="cu126")
    index.add("filelock", "66.0", on="cu126")
    index.add("triton", "3.7")
    return Live(environ=environ)


def _places(monkeypatch, **at: str) -> None:
    real = indexes.url
    monkeypatch.setattr(indexes, "url", lambda name: at.get(name) or real(name))


def contract(*needs: Need, **fields) -> Contract:
    return Contract("sparrow", "1.2", distribution="sparrow", needs=needs, **fields)


def need(name: str, want: str, level: str = "required", **fields) -> Need:
    return Need(f"package.{name}", want, level=level, **fields)


def plan(**fields) -> Plan:
    told = {"python": "3.12", "torch": "2.13.0+cu126", "cuda": "12.6", "index": "cu126", "platform": TARGET}
    return Plan("sparrow", "1.2", "plan", **told | fields)


def default(**fields) -> Plan:
    return plan(torch="2.13.0+cu130", cuda="13.0", index="pypi", **fields)


def row(found: Plan, name: str):
    assert found.lock, (found.resolved, found.conflicts)
    return next(one for one in found.lock if one.name == name)


# -- where things come from -----------------------------------------------------------------------------------


def test_torch_comes_from_its_index_and_nothing_else_does(world):
    found = resolve(world, plan(), contract())
    assert found.resolved == "resolved" and found.verdict == "plan"
    assert (row(found, "torch").version, row(found, "torch").index) == ("2.13.0+cu126", "cu126")
    assert (row(found, "filelock").version, row(found, "filelock").index) == ("4.0", "")
    assert row(found, "torch").via == ("sparrow",)
    assert found.packages["sparrow"] == "1.2.3"


def test_every_row_has_hashes_and_no_row_an_address(world, index):
    found = resolve(world, plan(), contract())
    assert all(h.startswith("sha256:") for one in found.lock for h in one.hashes)
    assert all(one.hashes for one in found.lock)
    assert "127.0.0.1" not in json.dumps(found.to_json())


def test_a_torch_on_the_default_index_never_wins_over_the_pinned_one(world, index):
    index.add("torch", "2.13.0+cu126", extra="raise SystemExit('stolen')")
    found = resolve(world, plan(), contract())
    assert row(found, "torch").index == "cu126"
    assert row(found, "torch").hashes == (
        f"sha256:{index.hash(index.folder / 'cu126' / 'torch-2.13.0+cu126-py3-none-any.whl')}",
    )


def test_a_torchvision_that_only_a_dependency_asks_for_comes_from_torchs_index_too(world, index):
    index.add("sparrow", "1.2.4", ["torch>=2", "torchvision"])
    index.add("torchvision", "0.30")
    index.add("torchvision", "0.28+cu126", on="cu126")
    found = resolve(world, plan(), contract())
    assert (row(found, "torchvision").version, row(found, "torchvision").index) == ("0.28+cu126", "cu126")


def test_another_build_in_a_folder_of_wheels_is_not_the_torch_of_the_default_index(world, tmp_path):
    wheel(tmp_path / "wheels", "torch", "2.13.0+cpu")
    found = resolve(world, default(), contract(), find_links=(str(tmp_path / "wheels"),))
    assert (row(found, "torch").version, row(found, "torch").index) == ("2.13.0", "")


def test_a_folder_that_has_the_build_serves_where_the_index_cannot(world, index, tmp_path, monkeypatch):
    _places(monkeypatch, cu126="http://127.0.0.1:9/none")
    wheel(tmp_path / "wheels", "torch", "2.13.0+cu126")
    found = resolve(world, plan(), contract(), find_links=(str(tmp_path / "wheels"),))
    assert (row(found, "torch").version, row(found, "torch").index) == ("2.13.0+cu126", "find-links")
    assert str(tmp_path) not in json.dumps([one.to_json() for one in found.lock])


def test_nightly_wheels_come_from_their_index_and_an_ancient_release_never_stands_in(world, index):
    index.add("vllm", "0.1.2")
    asked = Contract(
        "roll", "0.3.0", variant="torch2100-vllm", distribution="roll", needs=(need("vllm", ">=0.15"),)
    )
    stand = default().but(framework="roll", variant="torch2100-vllm")
    missing = resolve(world, stand, asked)
    assert missing.verdict == "plan" and not missing.lock
    assert missing.resolved.startswith("not resolved here: no index that was asked has vllm")
    index.add("vllm", "0.16.0.dev5+cu130", ["torch"], on="nightly")
    found = resolve(world, stand, asked)
    assert (row(found, "vllm").version, row(found, "vllm").index) == (
        "0.16.0.dev5+cu130",
        "vllm-nightly-cu130",
    )


# -- what the contract says -----------------------------------------------------------------------------------


def test_the_framework_is_pinned_so_that_no_older_one_hides_a_conflict(world, index):
    index.add("sparrow", "0.3", [])
    index.add("sparrow", "1.2.3", ["torch<2"])
    found = resolve(world, plan(), contract())
    assert found.verdict == "impossible"
    assert "torch" in found.conflicts[0].says and "sparrow" in found.conflicts[0].says


def test_needs_become_requirements_and_optional_ones_do_not(world, index):
    index.add("kestrel", "1.0")
    index.add("kestrel", "3.0")
    index.add("wren", "1.0")
    found = resolve(world, plan(), contract(need("kestrel", "<2"), need("wren", "*", "optional")))
    assert row(found, "kestrel").version == "1.0"
    assert not [one for one in found.lock if one.name == "wren"]


def test_a_need_that_another_python_or_job_brings_in_is_left_alone(world, index):
    index.add("kestrel", "1.0")
    old = need("kestrel", "*", when="python<3.10")
    job = need("kestrel", "*", when="wants=fp8")
    assert not [r for r in resolve(world, plan(), contract(old, job)).lock if r.name == "kestrel"]
    asked = resolve(world, plan(options={"wants": "fp8"}), contract(old, job))
    assert row(asked, "kestrel").version == "1.0"


def test_two_sides_of_a_conflict_are_named(world, index):
    index.add("heron", "0.8.4", ["otel>=1.26,<1.27"])
    index.add("crane", "2.48.0", ["otel>=1.30"])
    for version in ("1.26.0", "1.30.0"):
        index.add("otel", version)
    found = resolve(world, plan(), contract(need("heron", "==0.8.4"), need("crane", "==2.48.0")))
    assert found.verdict == "impossible" and not found.lock
    says = found.conflicts[0].says
    assert all(word in says for word in ("heron 0.8.4", "crane 2.48.0", "otel", ">=1.30", "<1.27")), says
    assert {n.key for n in found.conflicts[0].needs} == {"package.otel"}


def test_a_contract_that_contradicts_itself_needs_no_index(world, index):
    sides = (
        need("otel", ">=1.30", cite="crane 2.48.0, which A pins"),
        need("otel", "<1.27", cite="heron 0.8.4, which B pins"),
    )
    found = resolve(world, plan(), contract(*sides))
    assert found.verdict == "impossible" and not index.asked
    assert found.conflicts[0].says == "crane 2.48.0 needs otel >=1.30, heron 0.8.4 needs otel <1.27"
    assert found.conflicts[0].needs == sides


def test_a_look_alike_never_enters(world, index):
    index.add("sparrow", "1.2.9", ["mcore-adapter"])
    index.add("mcore-adapter", "0.0.1")
    found = resolve(world, plan(), contract())
    assert found.verdict == "impossible"
    assert "mcore-adapter" in found.conflicts[0].says and "sparrow" in found.conflicts[0].says


def test_what_must_be_built_against_torch_is_left_to_the_kernels(world, index):
    index.add("sparrow", "1.2.9", ["flash-attn", "torch"])
    found = resolve(world, plan(), contract(need("flash-attn", "*")))
    assert found.lock and not [one for one in found.lock if one.name == "flash-attn"]
    assert any("flash-attn is not resolved" in note for note in found.notes)
    assert not any("flash-attn" in path for path in index.asked)


def test_a_wheel_for_another_python_is_one_line(world, index):
    index.add("torch", "2.13.0", tag="cp39-cp39-manylinux_2_28_x86_64", on="only")
    world.variables["UV_DEFAULT_INDEX"] = index.url("only")
    index.add("sparrow", "1.2.3", ["torch"], on="only")
    found = resolve(world, default(), contract())
    assert found.verdict == "impossible"
    says = found.conflicts[0].says
    assert "torch 2.13.0 has no wheel" in says and "\n" not in says and len(says) < 160


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
    found = resolve(world, before, contract(), deadline=60)
    assert found.verdict == "plan" and not found.conflicts and not found.lock
    assert found.resolved.startswith("not resolved here: ")
    assert found.but(resolved="", notes=()) == before
    assert "127.0.0.1" not in found.resolved


def test_a_version_that_the_index_lacks_is_not_resolved_here(world):
    found = resolve(world, plan(torch="2.14.0+cu126"), contract())
    assert found.verdict == "plan" and "torch 2.14.0+cu126" in found.resolved


def test_offline_says_so(world):
    found = resolve(world, plan(), contract(), offline=True)
    assert found.verdict == "plan" and "the network is off" in found.resolved


def test_a_slow_answer_ends_at_the_deadline(world, tmp_path, monkeypatch):
    slow = tmp_path / "uv"
    slow.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'uv 0.13.0' && exit\nsleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr("tarmac.apply.uv._own", lambda: str(slow))
    found = resolve(world, plan(), contract(), deadline=1.0)
    assert found.resolved.startswith("not resolved here: uv gave no answer in")


@pytest.mark.parametrize("says", ["uv 0.4.0", "nonsense", ""])
def test_a_uv_that_is_too_old_or_none_is_named(world, tmp_path, monkeypatch, says):
    old = tmp_path / "uv"
    old.write_text(f"#!/bin/sh\necho '{says}'\n")
    old.chmod(0o755)
    monkeypatch.setattr("tarmac.apply.uv._own", lambda: str(old))
    with pytest.raises(ValueError, match=r"older than 0\.9|does not say its version"):
        resolve(world, plan(), contract())


# -- the user's own configuration -----------------------------------------------------------------------------


def test_an_empty_answer_proves_nothing(world, tmp_path, monkeypatch):
    fake = tmp_path / "uv"
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo uv 0.13.7\nexit 0\n')
    fake.chmod(0o755)
    monkeypatch.setattr("tarmac.apply.uv._own", lambda: str(fake))
    found = resolve(world, plan(), contract())
    assert found.verdict == "plan" and "named no package" in found.resolved


def test_pips_find_links_reach_uv(world, tmp_path):
    wheel(tmp_path / "wheels", "kestrel", "7.0")
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nfind-links =\n  {tmp_path}/nowhere\n  {tmp_path}/wheels\n")
    world.variables["PIP_CONFIG_FILE"] = str(config)
    found = resolve(world, plan(), contract(need("kestrel", "*")))
    assert (row(found, "kestrel").version, row(found, "kestrel").index) == ("7.0", "find-links")
    assert any("nowhere is not there" in note for note in found.notes)


def test_pips_index_serves_where_uv_was_told_none(world, index):
    world.variables["PIP_INDEX_URL"] = world.variables.pop("UV_DEFAULT_INDEX")
    assert resolve(world, plan(), contract()).lock


def test_uvs_own_settings_go_before_pips(world, index):
    world.variables["PIP_INDEX_URL"] = "http://127.0.0.1:9/none"
    assert resolve(world, plan(), contract()).lock


def test_an_extra_index_is_asked_only_for_what_the_others_lack(world, index):
    index.add("private", "1.0", on="extra")
    index.add("filelock", "77.0", on="extra")
    world.variables["PIP_EXTRA_INDEX_URL"] = index.url("extra")
    found = resolve(world, plan(), contract(need("private", "*")))
    assert row(found, "private").version == "1.0" and row(found, "filelock").version == "4.0"
    assert not [path for path in index.asked if path.startswith("/extra/") and "private" not in path]


def test_uv_settings_cannot_undo_the_pinning(world):
    world.variables |= {
        "UV_NO_SOURCES": "1",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_TORCH_BACKEND": "cpu",
    }
    assert row(resolve(world, plan(), contract()), "torch").index == "cu126"


def test_a_password_is_seen_by_nobody(world, index, tmp_path, monkeypatch):
    index.login = "Basic " + base64.b64encode(b"me:s3cr3t-pw").decode()
    logged = tmp_path / "argv"
    from tarmac.apply import uv

    real = uv._own()
    shim = tmp_path / "uv"
    shim.write_text(f'#!/bin/sh\necho "$@" >> {logged}\nexec {real} "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setattr("tarmac.apply.uv._own", lambda: str(shim))
    host = index.url("main").partition("://")[2]
    del world.variables["UV_DEFAULT_INDEX"]
    world.variables["PIP_INDEX_URL"] = f"http://me:s3cr3t-pw@{host}"
    told: list[str] = []
    found = resolve(world, default(), contract(), note=told.append)
    assert found.lock
    kept = "".join(p.read_text() for p in (tmp_path / "home").rglob("*.json"))
    assert kept
    for text in (logged.read_text(), json.dumps(found.to_json()), "".join(told), kept):
        assert "s3cr3t-pw" not in text


@pytest.mark.parametrize("folder", ["/nowhere/at/all", "a,b"])
def test_a_folder_that_is_none_is_refused(world, tmp_path, folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b").mkdir()
    with pytest.raises(ValueError, match="--find-links"):
        resolve(world, plan(), contract(), find_links=(folder,))


# -- the framework's own sources ------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "requirements_x.txt").write_text(
        "-r common.txt\nkestrel[fast]>=1 ; python_version >= '3.9'\n./mine\n"
    )
    (folder / "common.txt").write_text("# shared\nwren==2.0  # why\nkestrel<3\nold ; python_version < '3'\n")
    (folder / "setup.py").write_text("raise SystemExit('it was run')")
    return folder


def roll(**fields) -> Contract:
    from tarmac.model import Step

    step = Step("install", ("pip", "install", "-r", "requirements_x.txt"))
    return Contract("roll", "0.3.0", distribution="roll", steps=(step,), **fields)


def test_the_requirement_files_of_a_checkout_are_read_and_never_run(world, index, checkout):
    for version in ("1.0", "2.5", "3.5"):
        index.add("kestrel", version)
    index.add("wren", "2.0")
    found = resolve(world, plan().but(framework="roll"), roll(), source=str(checkout))
    assert {(one.name, one.version) for one in found.lock} >= {("kestrel", "2.5"), ("wren", "2.0")}
    assert not [one for one in found.lock if one.name in ("roll", "old")]
    assert any("./mine" in note for note in found.notes)
    assert any("roll itself is not resolved here" in note for note in found.notes)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements_x.txt", "-r ../secret.txt\n"),
        ("requirements_x.txt", "-r requirements_x.txt\n"),
        ("requirements_x.txt", "not a requirement !!\n"),
    ],
)
def test_requirement_files_that_lead_astray_are_refused(world, checkout, file, text):
    (checkout / file).write_text(text)
    (checkout.parent / "secret.txt").write_text("wren\n")
    with pytest.raises(ValueError, match=r"requirements_x|secret"):
        resolve(world, plan(), roll(), source=str(checkout))


def test_a_folder_without_requirements_is_refused(world, tmp_path):
    with pytest.raises(ValueError, match=r"requirements_x\.txt"):
        resolve(world, plan(), roll(), source=str(tmp_path / "home"))


# -- the same again -------------------------------------------------------------------------------------------


def test_the_same_question_is_answered_from_the_cache_and_gives_the_same_rows(world, index):
    first = resolve(world, plan(), contract())
    asked = len(index.asked)
    assert resolve(world, plan(), contract()).lock == first.lock
    assert len(index.asked) == asked


def test_another_question_is_another_answer(world, index, tmp_path):
    resolve(world, plan(), contract())
    asked = len(index.asked)
    index.add("kestrel", "1.0")
    assert row(resolve(world, plan(), contract(need("kestrel", "*"))), "kestrel")
    assert len(index.asked) > asked


def answers(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "home/.cache/tarmac/answers").glob("*.json"))


@pytest.mark.parametrize(
    "damage", ["", "{", "[1]", '{"schema": 1, "digest": "0", "at": 1, "answer": {"rows": []}}']
)
def test_a_damaged_answer_is_dropped_and_asked_again(world, tmp_path, damage):
    first = resolve(world, plan(), contract())
    (kept,) = answers(tmp_path)
    kept.write_text(damage)
    assert resolve(world, plan(), contract()).lock == first.lock
    assert json.loads(answers(tmp_path)[0].read_text())["answer"]["rows"]


def test_an_answer_of_yesterday_is_asked_again(world, index, tmp_path):
    resolve(world, plan(), contract())
    (kept,) = answers(tmp_path)
    body = json.loads(kept.read_text())
    kept.write_text(json.dumps(body | {"at": body["at"] - 25 * 3600}))
    index.add("filelock", "5.0")
    world.variables["UV_NO_CACHE"] = "1"
    assert row(resolve(world, plan(), contract()), "filelock").version == "5.0"


def test_without_a_home_it_works_and_keeps_nothing(world, tmp_path):
    world.variables.pop("HOME")
    assert resolve(world, plan(), contract()).lock
    assert not answers(tmp_path)


def test_the_answers_are_the_users_alone(world, tmp_path):
    resolve(world, plan(), contract())
    assert (tmp_path / "home/.cache/tarmac/answers").stat().st_mode & 0o777 == 0o700


def test_nothing_is_left_behind(world, tmp_path):
    resolve(world, plan(), contract())
    assert not list(tmp_path.glob("tarmac-*"))


def test_an_impossible_plan_is_not_asked_about(world, index):
    before = plan().but(verdict="impossible")
    assert resolve(world, before, contract()) is before and not index.asked
