"""tools/refresh_catalog.py on recorded answers: what it learns, what it writes, and what it leaves alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import refresh_catalog
from refresh.text import list_rows, loads

from .indexed import RECORDED, Served


@pytest.fixture
def served():
    index = Served()
    yield index
    index.close()


@pytest.fixture
def room(tmp_path):
    """A catalogue of a few rows, cut out of the real one."""
    shutil.copytree(RECORDED / "catalog", tmp_path / "catalog")
    return tmp_path / "catalog"


@pytest.fixture
def refresh(served, room, capsys):
    def run(*words: str) -> tuple[int, str, str]:
        code = refresh_catalog.main(["--index", served.address, "--catalog", str(room), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def data(room: Path, name: str) -> dict:
    return loads((room / f"{name}.toml").read_text())


def without(room: Path, name: str, table: str, key: str, value: str) -> None:
    """Take a row, and what stands under it, out of a file."""
    path = room / f"{name}.toml"
    text = path.read_text()
    rows = list_rows(text)
    at = next(i for i, row in enumerate(rows) if row.name == table and row.values.get(key) == value)
    after = [row for row in rows[at + 1 :] if not row.name.startswith(table + ".")]
    path.write_text(text[: rows[at].start] + (text[after[0].start :] if after else ""))


def texts(room: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in room.glob("*.toml")}


# -- torch --------------------------------------------------------------------------------------------


@pytest.fixture
def before_215(room):
    """The catalogue as it was before torch 2.15.0, and the row that a person then wrote."""
    row = next(r for r in data(room, "torch")["torch"] if r["version"] == "2.15.0")
    without(room, "torch", "torch", "version", "2.15.0")
    path = room / "torch.toml"
    path.write_text(path.read_text().replace('newest = "2.15.0"', 'newest = "2.14.1"'))
    return row


def test_a_new_torch_gets_the_row_that_a_person_wrote(refresh, room, before_215):
    code, said, _ = refresh("--write", "--only", "torch")
    assert code == 0 and "torch/2.15.0: 2026-10-28, cu132, Python 3.11 to 3.15t" in said
    row = data(room, "torch")["torch"][-1]
    builds, known = row.pop("build"), before_215.pop("build")
    by_hand = {"note", "unconfirmed_fields"}
    assert row == {k: v for k, v in before_215.items() if k not in by_hand} | {
        "unconfirmed_fields": ["builds", "torchvision", "torchaudio"]
    }
    assert [b["variant"] for b in builds] == ["cu126", "cu130", "cu132", "cu134"]
    for one, other in zip(builds, known, strict=False):
        fields = ("cuda", "variant", "pypi", "arch", "aarch64", "confirmed")
        assert {f: one[f] for f in fields} == {f: other[f] for f in fields}
    assert data(room, "torch")["newest"] == "2.15.0"


def test_only_pieces_of_the_wheels_are_read(refresh, served, before_215):
    refresh("--only", "torch")
    asked = [(path, piece) for path, piece in served.seen if path.startswith("/files/")]
    assert asked and all(piece.startswith("bytes=") for _, piece in asked)
    opened = {path.rpartition("/")[2] for path, _ in asked}
    assert {n.partition("-")[0] for n in opened} == {"torch", "torchvision", "torchaudio"}
    assert served.sent < sum(len(served.wheels[name]) for name in opened) / 4


def test_what_stood_in_the_file_stays_as_it_was(refresh, room, before_215):
    old = (room / "torch.toml").read_text()
    refresh("--write", "--only", "torch")
    new = (room / "torch.toml").read_text()
    dated = [line for line in old.splitlines() if not line.startswith(("as_of", "newest"))]
    rest = iter(new.splitlines())
    assert all(line in rest for line in dated), "every line, in its order"
    assert new.endswith("\n") and "\n\n\n" not in new


def test_writing_twice_changes_nothing_more(refresh, room, before_215):
    refresh("--write")
    first = texts(room)
    assert refresh("--write")[0] == 0
    assert texts(room) == first


def test_without_a_flag_nothing_is_written(refresh, room, before_215):
    first = texts(room)
    code, said, _ = refresh()
    assert code == 0 and "torch/2.15.0" in said and texts(room) == first


# -- packages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version"), [("fbgemm-gpu-genai", "1.9.0"), ("bitsandbytes", "0.50.2"), ("flash-attn", "2.8.3.post2")]
)
def test_a_new_release_of_a_package_gets_the_row_that_a_person_wrote(refresh, room, name, version):
    rows = (one for p in data(room, "packages")["package"] if p["name"] == name for one in p["version"])
    row = next(one for one in rows if one["version"] == version)
    without(room, "packages", "package.version", "version", version)
    code, said, _ = refresh("--write", "--only", f"packages/{name}")
    assert code == 0 and f"packages/{name}/{version}: date {row['date']}" in said
    made = next(p for p in data(room, "packages")["package"] if p["name"] == name)["version"][-1]
    by_hand = {"for_torch", "unconfirmed_fields", "note", "pinned_by", "archs_by_cuda", "confirmed"}
    assert {k: v for k, v in made.items() if k != "confirmed"} == {k: v for k, v in row.items() if k not in by_hand}


def test_what_no_metadata_has_is_left_to_a_person(refresh, room):
    without(room, "packages", "package.version", "version", "1.9.0")
    _, said, _ = refresh("--only", "packages/fbgemm-gpu-genai")
    assert "packages/fbgemm-gpu-genai/1.9.0: for_torch: the row before has it, and no metadata does" in said


def test_withdrawn_files_early_releases_and_foreign_names_do_not_count(refresh, served):
    rows = served.pages["peft"]
    like = rows[0] | {"name": "peft-0.99.0-py3-none-any.whl"}
    rows += [
        like | {"yanked": True},
        like | {"name": "peft-0.99.0rc1-py3-none-any.whl"},
        like | {"name": "left-0.99.0-py3-none-any.whl"},
        like | {"name": "peft-0.99.0+cu130-py3-none-any.whl"},
        like | {"name": "\x1b[2Jpeft"},
    ]
    assert refresh("--only", "packages/peft")[1].count("nothing") == 2


def test_a_release_without_a_day_is_not_written(refresh, served, room):
    without(room, "packages", "package.version", "version", "0.50.2")
    for row in served.pages["bitsandbytes"]:
        row["upload-time"] = ""
    first = texts(room)
    code, said, _ = refresh("--only", "packages/bitsandbytes")
    assert code == 0 and "new, and not written: the index does not say when it came out" in said
    assert texts(room) == first


# -- CUDA ---------------------------------------------------------------------------------------------


def test_an_update_of_a_toolkit_is_added_with_its_compiler(refresh, room):
    code, said, _ = refresh("--write", "--only", "cuda")
    assert code == 0 and "cuda/13.4/updates/13.4.3: 13.4.3, date 2026-10-14, nvcc 13.4.92" in said
    row = data(room, "cuda")["cuda"][-1]
    assert row["updates"][-1] == {"version": "13.4.3", "date": "2026-10-14", "nvcc": "13.4.92"}
    assert row["source"]["updates"] == "PyPI metadata of cuda_toolkit-13.4.3-py2.py3-none-any.whl"


def test_a_new_cuda_is_told_and_never_invented(refresh, served, room):
    without(room, "cuda", "cuda", "version", "13.4")
    first = texts(room)["cuda.toml"]
    _, said, _ = refresh("--write", "--only", "cuda")
    assert "cuda/13.4: new: 13.4.3" in said and "driver_floor" in said and "which no package carries" in said
    assert [r["version"] for r in data(room, "cuda")["cuda"]] == ["13.2"]
    dated = [line for line in first.splitlines() if not line.startswith("as_of")]
    assert dated == [line for line in texts(room)["cuda.toml"].splitlines() if not line.startswith("as_of")]


# -- the ways an index answers --------------------------------------------------------------------------


def test_metadata_beside_the_wheel_gives_the_same_as_that_inside(refresh, served, before_215):
    inside = refresh("--only", "torch")[1]
    served.pep658 = True
    assert refresh("--only", "torch")[1] == inside
    assert any(path.endswith(".metadata") for path, _ in served.seen)


def test_metadata_with_another_hash_is_refused(refresh, served, room, before_215):
    served.pep658 = True
    true = served.metadata
    served.special["/files/torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl.metadata"] = lambda h: h.say(
        200, true("torch-2.14.1-cp311-cp311-manylinux_2_28_x86_64.whl")
    )
    code, _, err = refresh("--write", "--only", "torch")
    assert code == 2 and "its hash is not the one that the index gives" in err


# -- the date, the flags, the index -----------------------------------------------------------------------


def test_the_date_moves_only_when_it_is_written_and_the_file_was_looked_at_whole(refresh, room):
    for name in ("torch", "packages", "cuda"):
        path = room / f"{name}.toml"
        path.write_text(path.read_text().replace("2026-11-15", "2020-01-01"))
    refresh()
    refresh("--write", "--only", "torch/2.15.0")
    assert {data(room, n)["as_of"] for n in ("torch", "packages", "cuda")} == {"2020-01-01"}
    refresh("--write", "--only", "torch")
    assert data(room, "torch")["as_of"] > "2026" and data(room, "cuda")["as_of"] == "2020-01-01"


def test_a_broken_catalogue_is_one_sentence(refresh, room):
    (room / "cuda.toml").write_text("as_of = ")
    code, _, err = refresh("--write")
    assert code == 2 and err.count("\n") == 1 and "cuda.toml cannot be read" in err


def test_the_index_of_the_environment_is_taken(served, room, monkeypatch, capsys):
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", served.address)
    assert refresh_catalog.main(["--catalog", str(room), "--only", "packages/peft"]) == 0
    monkeypatch.setenv("UV_DEFAULT_INDEX", "mine=http://127.0.0.1:1/simple")
    assert refresh_catalog.main(["--catalog", str(room), "--only", "packages/peft"]) == 2
    assert "peft: " in capsys.readouterr().err, "uv's comes first, and nobody answers there"


def test_the_index_of_pips_file_is_taken(served, room, monkeypatch, tmp_path):
    pytest.importorskip("pip")
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {served.address}\n")
    assert refresh_catalog.main(["--catalog", str(room), "--only", "packages/peft"]) == 0


def test_no_index_is_one_sentence(room, monkeypatch, tmp_path, capsys):
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("UV_CONFIG_FILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path))
    assert refresh_catalog.main(["--catalog", str(room)]) == 2
    assert "no index is known here: give --index URL" in capsys.readouterr().err
