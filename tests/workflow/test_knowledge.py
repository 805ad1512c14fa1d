"""Knowledge files: packed, verified, used; hostile ones are refused in one sentence."""

from __future__ import annotations

import copy
import hashlib
import json
import re

import pytest

from gpuready import catalog
from gpuready.contracts import load_contract
from gpuready.model.report import TRUSTED_DAYS, days_since, old_knowledge_note
from gpuready.workflow import knowledge
from gpuready.workflow.knowledge import find_command_problems
from gpuready.workflow.knowledge_shape import describe_shape, find_shape_problems, find_text_problems
from gpuready.workflow.refusal import Refused


@pytest.fixture(scope="module")
def packed():
    return knowledge.pack_knowledge()


FEW = ("causes", "cuda", "features", "gpus", "log_rules", "patterns", "systems", "torch", "xids")


@pytest.fixture(scope="module")
def small(packed):
    """A file with a few tables and two contracts: hashing all of them takes a while."""
    names = [*(f"catalog/{name}" for name in FEW), "contracts/trl_1_16", "contracts/axolotl_0_21"]
    patterns = {"rows": packed["parts"]["catalog/patterns"]["data"]["rows"][:9]}
    parts = {name: packed["parts"][name] for name in names}
    parts["catalog/patterns"] = {"sha256": knowledge.hash_part(patterns), "data": patterns}
    return {**packed, "parts": parts}


@pytest.fixture
def few(small, monkeypatch):
    monkeypatch.setattr(knowledge, "CATALOG_PARTS", FEW)
    monkeypatch.setattr(knowledge, "pack_knowledge", lambda: small)
    return small


@pytest.fixture
def changed(few):
    """A function that changes one part of the tables, with a right hash, and returns the text."""
    packed = few

    def change(part, edit, date=None):
        data = copy.deepcopy(packed["parts"][part]["data"])
        edit(data)
        new = {"sha256": knowledge.hash_part(data), "data": data}
        return json.dumps({**packed, "date": date or packed["date"], "parts": {**packed["parts"], part: new}})

    return change


def refusal(text):
    with pytest.raises(Refused) as error:
        knowledge.verify_knowledge(text, "k.json")
    assert "\n" not in str(error.value) and str(error.value).startswith("k.json ")
    return str(error.value)


def test_own_tables_come_back_as_they_are_compiled(packed):
    own = {(package, name) for package, _, name in (part.partition("/") for part in packed["parts"])}
    known = knowledge.verify_knowledge(json.dumps(packed), "k.json")
    assert set(known.tables) == own | {("contracts", "index")}
    same = [known.tables[key] == catalog.load_table(*key) for key in own]
    assert all(same)
    files = [row["file"] for row in known.tables["contracts", "index"]]
    assert sorted(files) == sorted(row["file"] for row in catalog.load_table("contracts", "index"))


def test_own_tables_have_no_problem_even_if_all_were_new(packed):
    own = {name: part["data"] for name, part in packed["parts"].items()}
    for name, data in own.items():
        assert not list(find_text_problems(data, name))
        if name.startswith("catalog/") and name != "catalog/patterns":
            assert not list(find_shape_problems(describe_shape([data]), data, name))
    assert not list(find_command_problems(own, own))


def test_a_newer_file_is_used(changed):
    def add_contract_row(data):
        data["needs"][0]["want"] = ">=3.12"

    known = knowledge.verify_knowledge(changed("contracts/trl_1_16", add_contract_row), "k.json")
    try:
        catalog.replace_tables(known.tables)
        assert load_contract("trl").needs[0].want == ">=3.12"
        assert load_contract("axolotl").framework == "axolotl"
    finally:
        catalog.replace_tables({})
    assert load_contract("trl").needs[0].want != ">=3.12"


def test_a_file_of_an_older_schema_is_used_without_the_parts_that_it_could_not_have(few):
    older = ("catalog/systems", "catalog/xids")
    parts = {name: part for name, part in few["parts"].items() if name not in older}
    known = knowledge.verify_knowledge(json.dumps({**few, "schema": 1, "parts": parts}), "k.json")
    own = catalog.load_catalog("xids")
    try:
        catalog.replace_tables(known.tables)
        assert ("catalog", "xids") not in known.tables and catalog.load_catalog("xids") == own
    finally:
        catalog.replace_tables({})
    assert "lacks the part catalog/systems" in refusal(json.dumps({**few, "parts": parts}))
    parts.pop("catalog/torch")
    assert "lacks the part catalog/torch" in refusal(json.dumps({**few, "schema": 1, "parts": parts}))


def test_new_xids_and_releases_of_a_system_are_used_and_no_driver_command(changed):
    """The commands that install a driver stay gpuready's own."""
    from gpuready.catalog import gpus, systems

    def add_release(data):
        data["system"][0]["glibc"]["26.04"] = "2.43"
        data["system"][0]["codenames"]["resolute"] = "26.04"

    before = systems.driver_command("ubuntu", "24.04", "580")
    try:
        catalog.replace_tables(knowledge.verify_knowledge(changed("catalog/systems", add_release), "k.json").tables)
        assert systems.system_glibc("ubuntu", "26.04") == "2.43"
        assert systems.find_codename("resolute") == ("ubuntu", "26.04")
        assert before[0] and systems.driver_command("ubuntu", "24.04", "580") == before
        new = changed("catalog/xids", lambda data: data["xid"][0].update(xid=999))
        catalog.replace_tables(knowledge.verify_knowledge(new, "k.json").tables)
        assert gpus.find_xid(999)
    finally:
        catalog.replace_tables({})


def test_the_sentence_says_newer_or_older(changed, tmp_path, monkeypatch):
    def set_day(day):
        return lambda data: data.update(as_of=day)

    monkeypatch.setattr(catalog, "replace_tables", lambda tables: None)
    for day, words in (
        ("2031-01-01", "newer than"),
        ("2020-01-01", "OLDER than"),
        (catalog.catalog_date(), "as old as"),
    ):
        (tmp_path / "k.json").write_text(changed("catalog/cuda", set_day(day), day))
        assert f"knowledge of {day} from {tmp_path}/k.json, {words} gpuready's own" in knowledge.use_knowledge_file(
            f"{tmp_path}/k.json"
        )


@pytest.mark.parametrize("use", [knowledge.use_knowledge_file, knowledge.pack_for_nodes])
def test_a_file_with_another_hash_is_refused_wherever_it_is_read(use, tmp_path):
    (tmp_path / "k.json").write_text("{}")
    for digest in ("", "00", "g" * 64, "0" * 65, "0" * 64 + "\n"):
        with pytest.raises(Refused, match="needs 64 hexadecimal digits"):
            use(f"{tmp_path}/k.json#sha256={digest}")
    with pytest.raises(Refused, match="has the SHA-256"):
        use(f"{tmp_path}/k.json#sha256={'0' * 64}")


def test_the_file_with_its_hash_is_packed(tmp_path):
    (tmp_path / "k.json").write_text("{}")
    name = f"{tmp_path}/k.json#sha256={hashlib.sha256(b'{}').hexdigest().upper()}"
    assert knowledge.pack_for_nodes(name) == knowledge.pack_for_nodes(f"{tmp_path}/k.json")


DOCUMENTS = {
    "": "not JSON",
    "[" * 100_000: "not JSON",
    '{"kind": NaN}': "not JSON",
    "[]": "not a knowledge file",
    '{"kind": "gpuready-knowledge", "schema": 4}': "upgrade gpuready",
    '{"kind": "gpuready-knowledge", "schema": 0}': "get a whole file",
    '{"kind": "gpuready-knowledge", "schema": true}': "has schema True",
    '{"kind": "gpuready-knowledge", "schema": "2"}': "has schema '2'",
    '{"kind": "gpuready-knowledge", "schema": 2, "date": "soon"}': "no date",
    '{"kind": "gpuready-knowledge", "schema": 2, "date": "2026-11-15"}': "no parts",
    '{"kind": "gpuready-knowledge", "schema": 2, "date": "2026-11-15", "parts": {}}': "lacks the part",
}


@pytest.mark.parametrize("text", DOCUMENTS)
def test_what_is_no_knowledge_file(text):
    assert DOCUMENTS[text] in refusal(text)


def test_parts_that_were_altered_or_may_not_come(few):
    packed = few

    def with_part(name, part):
        return json.dumps({**packed, "parts": {**packed["parts"], name: part}})

    altered = {**packed["parts"]["catalog/torch"], "data": {}}
    assert "the hash of catalog/torch does not match" in refusal(with_part("catalog/torch", altered))
    for name in (
        "catalog/indexes",
        "catalog/proofs",
        "catalog/variables",
        "contracts/index",
        "contracts/../x",
        "other",
    ):
        assert "may not bring" in refusal(with_part(name, {"sha256": knowledge.hash_part({}), "data": {}}))


def edit_row(table, **fields):
    return lambda data: data[table][0].update(fields)


PATTERN = [("GPU001", {"says": "a wholly new message", "cause": "no-such-cause"}), ("XXX999", "a wholly new message")]
REFUSED = [
    ("catalog/gpus", edit_row("gpu", vram_gib="80"), "vram_gib is a version, not a number"),
    ("catalog/torch", lambda data: data["torch"][0].pop("python"), "lacks 'python'"),
    ("catalog/torch", lambda data: data["torch"].append("2.99"), "is a version, not a table"),
    ("catalog/cuda", edit_row("cuda", version="soon"), "version is text, not a version"),
    ("catalog/gpus", edit_row("gpu", new_key=1), "schema does not know"),
    ("catalog/systems", edit_row("system", driver=[{"run": ["sudo", "sh", "-c", "x"]}]), "schema does not know"),
    ("catalog/gpus", edit_row("gpu", vram_gib=10**30), "a number that nothing has"),
    ("catalog/gpus", edit_row("gpu", name="H\u202e100"), "invisible"),
    ("catalog/causes", edit_row("cause", says="x" * 30_000), "more than 20000 characters"),
    ("contracts/trl_1_16", lambda data: data["needs"][0].update(level="maybe"), "level is 'maybe'"),
    ("contracts/trl_1_16", lambda data: data.update(framework="../x"), "is not a plain name"),
    ("catalog/cuda", lambda data: data.update(as_of="2000-01-01"), "its date is not that of its tables"),
    ("catalog/patterns", lambda data: data["rows"].append(list(PATTERN[0])), "a cause that the file does not have"),
    ("catalog/patterns", lambda data: data["rows"].append(list(PATTERN[1])), "which is no rule"),
    ("catalog/patterns", lambda data: data.update(rows=5), "not a list of codes"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "edit", "words"), REFUSED, ids=[words for _, _, words in REFUSED])
def test_tables_that_are_not_as_they_must_be(changed, part, edit, words):
    assert words in refusal(changed(part, edit))


def test_a_slow_pattern_is_refused():
    """By the same check as the shipped ones; the rest of the table is left out, which takes a second to compile."""
    for regex in (
        r"CUDA driver (a+)+ failed",
        r"CUDA driver .* failed",
        r"CUDA driver [a-z]{1,100}[a-z]{1,100} failed",
    ):
        with pytest.raises(Refused):
            knowledge._index_patterns([["GPU001", {"regex": regex, "cause": "x"}]], "k.json")


KERNEL = {
    "name": "flash-attn",
    "address": "https://github.com/Dao-AILab/flash-attention/releases/download/{tag}/{wheel}",
}
COMMANDS = [
    ({"address": "https://github.com/someone-else/flash-attention/{wheel}"}, "of no project"),
    ({"address": "https://example.org/{wheel}"}, "of no project"),
    ({"address": "https://github.com@example.org/Dao-AILab/flash-attention/{wheel}"}, "of no project"),
    ({"address": "https://github.com.example.org/Dao-AILab/flash-attention/{wheel}"}, "of no project"),
    ({"address": "http://github.com/Dao-AILab/flash-attention/{wheel}"}, "of no project"),
    ({"git": "git+ssh://git@github.com/Dao-AILab/flash-attention"}, "of no project"),
    ({"address": KERNEL["address"].replace("{wheel}", "{wheel.__class__}")}, "placeholder"),
    ({"build_needs": ["--index-url=evil"]}, "neither a package"),
    ({"build_needs": ["ninja", "wheel @ https://example.org/x.whl"]}, "of no project"),
    ({"environment": ["UV_INDEX_URL=file"]}, "neither a package"),
    ({"environment": ["LD_PRELOAD=x.so"]}, "neither a package"),
    ({"run": ["pip", "install", "--index-url", "https://example.org/simple"]}, "of no project"),
    ({"address": KERNEL["address"]}, ""),
    ({"build_needs": ["packaging", "ninja>=1.11", "setuptools"]}, ""),
    ({"environment": ["MAX_JOBS=4", "TORCH_CUDA_ARCH_LIST=8.0;9.0"]}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("row", "words"), COMMANDS)
def test_what_a_file_may_put_into_commands(row, words):
    found = list(find_command_problems({"catalog/kernels": {"kernel": [row]}}, {"catalog/kernels": [KERNEL]}))
    assert (words in found[0]) if words else not found


def test_the_age_is_told_only_when_old():
    day = catalog.catalog_date()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day)
    assert old_knowledge_note(TRUSTED_DAYS) == ""
    assert "181 days old" in old_knowledge_note(181)
    assert days_since("2026-11-15", 1795219200.0) in (5, 6)
