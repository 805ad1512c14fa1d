"""A kept answer does not outlive a change of what it rests on, and an entry that is wrong is not there."""

from __future__ import annotations

import ast
import os
import sys
import time
import types
from pathlib import Path

import pytest

from gpuready.system import imports
from gpuready.system.imports import damage, survey_cache

SITE = "env/lib/python3.12/site-packages"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def install(site: Path, name: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> None:
    """A distribution as pip leaves it: its files, METADATA and RECORD."""
    info = site / f"{name}-1.0.dist-info"
    for path, text in files.items():
        write(site / path, text)
    needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
    write(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}\n")
    write(info / "RECORD", "".join(f"{path},sha256=x,{len(text)}\n" for path, text in files.items()))


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A small environment with a folder of PYTHONPATH, one of a .pth file, one of LD_LIBRARY_PATH and a current folder."""
    site = tmp_path / SITE
    install(site, "torch", {"torch/__init__.py": "import kite\n", "torch/deep/part.py": "x = 1\n"}, ("kite>=1",))
    install(site, "kite", {"kite/__init__.py": "y = 2\n", "kite/_wing.abi3.so": "no ELF"})
    for name in ("first", "added", "libraries", "cwd"):
        (tmp_path / name).mkdir()
    write(site / "more.pth", f"{tmp_path}/added\n")
    write(tmp_path / "cwd/notes.txt", "")
    os.symlink(write(tmp_path / "python3.12", "no ELF"), tmp_path / "python")
    monkeypatch.setattr(survey_cache, "SETTLED_SECONDS", -60.0)  # all of it was just made
    monkeypatch.setattr(survey_cache, "is_single_threaded", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def request(world: Path, **changes: object) -> dict[str, object]:
    return {
        "python": "3.12.1",
        "machine": os.uname().machine,
        "release": "6.1",
        "interpreter": str(world / "python"),
        "first": [str(world / "first")],
        "sites": [str(world / SITE)],
        "cwd": str(world / "cwd"),
        "library_path": str(world / "libraries"),
        "stdlib": "",
        "roots": ["torch"],
        "beside": [],
        "starts": {},
    } | changes


def ask(world: Path, **changes: object) -> tuple[dict[str, object], bool]:
    """The answer, and whether it took a survey."""
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(damage, "survey_below_root", lambda *a, real=damage.survey_below_root: made.append(a) or real(*a))
        answer = survey_cache.survey_imports("", {"XDG_CACHE_HOME": str(world / "cache")}, request(world, **changes))
    answer.pop("kept", None)  # the name of the entry, which differs
    return answer, bool(made)


def entries(world: Path) -> list[Path]:
    return sorted((world / "cache/gpuready/imports").glob("*"))


def test_an_answer_is_kept_while_nothing_changes(world):
    first, is_new = ask(world)
    assert is_new and first["roots"] == ["torch"] and first["files"] == 4
    assert ask(world) == (first, False)
    assert [path.stat().st_mode & 0o777 for path in entries(world)] == [0o600]


def test_another_request_has_an_answer_of_its_own(world):
    ask(world)
    for change in ({"cwd": str(world)}, {"python": "3.11.2"}, {"roots": ["kite"]}, {"library_path": ""}):
        assert ask(world, **change)[1], change


def touch(path: Path) -> None:
    os.utime(path)


def change_silently(path: Path) -> None:
    """Other contents of the same size, with the old time: only ctime tells."""
    status = path.stat()
    path.write_text("z" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(path: Path) -> None:
    write(path.with_name("draft"), path.read_text()).replace(path)


def retarget(link: Path) -> None:
    link.unlink()
    link.symlink_to("/bin/sh")


CHANGES = {
    "touched": lambda at: touch(at / SITE / "torch/deep/part.py"),
    "changed silently": lambda at: change_silently(at / SITE / "kite/__init__.py"),
    "replaced": lambda at: replace(at / SITE / "torch/__init__.py"),
    "truncated": lambda at: os.truncate(at / SITE / "torch/deep/part.py", 2),
    "removed": lambda at: os.remove(at / SITE / "torch/deep/part.py"),
    "mode": lambda at: os.chmod(at / SITE / "torch/deep/part.py", 0o200),
    "library": lambda at: write(at / SITE / "kite/_wing.abi3.so", "other"),
    "metadata": lambda at: install(at / SITE, "torch", {"torch/__init__.py": "import kite\n"}, ("kite>=2",)),
    "removed distribution": lambda at: os.rename(at / SITE / "kite-1.0.dist-info", at / "gone"),
    "new distribution": lambda at: install(at / SITE, "torch", {"torch/new.py": ""}),
    "shadowed in the current folder": lambda at: write(at / "cwd/kite.py", ""),
    "shadowed in PYTHONPATH": lambda at: write(at / "first/torch.py", ""),
    "shadowed by a package": lambda at: write(at / "first/kite/__init__.py", ""),
    "changed .pth": lambda at: write(at / SITE / "more.pth", f"{at}/first\n"),
    "new .pth": lambda at: write(at / SITE / "zz.pth", f"{at}/libraries\n"),
    "distribution in a .pth folder": lambda at: install(at / "added", "kite", {"kite/__init__.py": ""}),
    "editable": lambda at: write(at / SITE / "kite-1.0.dist-info/direct_url.json", '{"url":"file:///gone","editable":true}'),
    "a folder comes into being": lambda at: write(at / SITE / "os/__init__.py", ""),
    "a package is gone": lambda at: os.rename(at / SITE / "torch/deep", at / "gone"),
    "interpreter": lambda at: retarget(at / "python"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_is_seen(world, change):
    ask(world)
    assert not ask(world)[1]
    time.sleep(0.02)  # a tick of the file system's clock
    CHANGES[change](world)
    answer, is_new = ask(world)
    assert is_new and answer == damage.survey_below_root("", request(world))


def test_files_of_the_current_folder_that_can_hide_nothing_change_nothing(world):
    ask(world)
    write(world / "cwd/output.log", "")
    write(world / "cwd/a-folder/kite.py", "")
    assert not ask(world)[1]
    for name in ("folder/x", "script.py", "_x.abi3.so"):
        write(world / "cwd" / name, "")
        assert ask(world)[1] and not ask(world)[1]


def test_a_further_link_to_a_file_changes_nothing(world):
    """uv links one file into many environments, and each link moves its ctime."""
    part = world / SITE / "torch/deep/part.py"
    os.link(part, world / "other.py")
    ask(world)
    os.link(part, world / "another.py")
    assert not ask(world)[1]
    for change in (lambda: part.write_text("x = 2\n"), lambda: part.chmod(0o400), lambda: os.truncate(part, 1)):
        time.sleep(0.02)
        change()
        assert ask(world)[1] and not ask(world)[1]


def test_a_changed_gpuready_asks_again(world, monkeypatch):
    module = types.ModuleType("gpuready.system.own_part")
    module.__file__ = str(write(world / "own_part.py", ""))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    ask(world)
    assert not ask(world)[1]
    write(world / "own_part.py", "changed")
    assert ask(world)[1]


def test_what_has_just_changed_is_not_kept(world, monkeypatch):
    monkeypatch.setattr(survey_cache, "SETTLED_SECONDS", 2.0)
    ask(world)
    assert not entries(world) and ask(world)[1]


def test_a_file_system_without_ctime_keeps_nothing():
    assert survey_cache._are_settled({"/a": (1, 2, 3), "/b": None}, 1.0)
    assert not survey_cache._are_settled({"/a": (1, 2, 0)}, 1.0)


def put_back(path: Path, data: bytes, mode: int = 0o600) -> None:
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)


def link_elsewhere(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


SPOILED = {
    "cut": lambda path: put_back(path, path.read_bytes()[:-9]),
    "empty": lambda path: put_back(path, b""),
    "one bit": lambda path: put_back(path, path.read_bytes()[:-30] + b"~" + path.read_bytes()[-29:]),
    "other contents": lambda path: put_back(path, b"\0\0\0\0i\1\0\0\0"),
    "readable by others": lambda path: path.chmod(0o644),
    "writable by others": lambda path: path.chmod(0o602),
    "a link": link_elsewhere,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_spoiled_entry_is_not_there(world, spoil):
    answer, _ = ask(world)
    SPOILED[spoil](entries(world)[0])
    assert ask(world) == (answer, True)


def test_an_entry_of_another_user_is_not_there(world, monkeypatch):
    ask(world)
    key = survey_cache._make_key(request(world))
    assert survey_cache._load_answer(str(entries(world)[0]), key) is not None
    monkeypatch.setattr(survey_cache.os, "geteuid", lambda: 12345)
    assert survey_cache._load_answer(str(entries(world)[0]), key) is None


def test_the_cache_is_bounded(world, monkeypatch):
    for number in range(survey_cache.MAX_ENTRIES + 4):
        ask(world, release=str(number))
    assert len(entries(world)) == survey_cache.MAX_ENTRIES
    monkeypatch.setattr(survey_cache, "MAX_ENTRY_BYTES", 100)
    assert ask(world, release="x")[1] and ask(world, release="x")[1]


@pytest.mark.parametrize(
    "variables", [{}, {"HOME": "/nonexistent"}, {"XDG_CACHE_HOME": "/proc/version"}, {"HOME": "x"}]
)
def test_without_a_cache_it_only_takes_longer(world, variables):
    found = survey_cache.survey_imports("", variables, request(world))
    assert {key: found[key] for key in found if key != "kept"} == ask(world)[0]


def test_what_is_not_kept(world, monkeypatch):
    assert ask(world, deep=True)[1] and ask(world, deep=True)[1], "contents may rot without a trace"
    monkeypatch.setattr(survey_cache, "is_single_threaded", lambda: False)
    assert ask(world)[1] and not entries(world), "notes are for one survey at a time"
    monkeypatch.setattr(survey_cache, "is_single_threaded", lambda: True)
    assert ask(world, roots=["absent"]) == ({"roots": []}, False) and not entries(world)


def test_a_survey_is_made_of_the_modules_that_are_noted():
    for path in sorted(Path(imports.__file__).parent.glob("*.py")):
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        ours = [node.module for node in nodes if (node.module or "").startswith("gpuready.")]
        assert all(f"{name}.".startswith(survey_cache.OWN_MODULES) for name in ours), path.name


ACCESS = {"stat", "lstat", "access", "listdir", "scandir", "walk", "open", "readlink"}
PATH_ACCESS = {"exists", "lexists", "isfile", "isdir", "islink", "getsize", "getmtime", "realpath", "samefile"}
OTHERS = {
    "watched_files.py": "is the access",
    "survey_cache.py": "its own files",
    "package_source.py": "no part of a survey",
}


@pytest.mark.parametrize(
    "name", ["wind-1.0.dist-info/METADATA", "wind.egg-info/PKG-INFO", "zz.pth", "libwing.so.12", "wing.py"]
)
def test_the_current_folder_may_be_one_of_the_search_path(world, name):
    """Of the current folder only names are compared; those that matter to an import are among them."""
    at = str(world / "cwd")
    ask(world, first=[at], library_path=at)
    assert not ask(world, first=[at], library_path=at)[1]
    write(world / "cwd/train.log", "")
    assert not ask(world, first=[at], library_path=at)[1]
    write(world / "cwd" / name, "")
    assert ask(world, first=[at], library_path=at)[1]


def test_a_survey_touches_files_only_where_that_is_noted():
    for path in sorted(Path(imports.__file__).parent.glob("*.py")):
        if path.name in OTHERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            used = name in {*(f"os.{one}" for one in ACCESS), *(f"os.path.{one}" for one in PATH_ACCESS)}
            assert not used, f"{path.name}: {name} is not noted; watched_files has the same"
            if isinstance(node, ast.ImportFrom) and node.module in (
                "os",
                "os.path",
                "glob",
                "pathlib",
                "gpuready.system.files",
            ):
                raise AssertionError(f"{path.name} imports from {node.module}")
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
                assert "open_regular" in {ast.unparse(word.value) for word in node.keywords}, path.name


def test_who_requires_a_damaged_package_is_found_though_no_root_does(world):
    """A fix that removes it would break them."""
    site = world / SITE
    install(site, "torch", {"torch/__init__.py": ""}, ("jaxish; extra == 'jax'",))
    install(site, "jaxish", {"jaxish/__init__.py": "y = 2\n"})
    install(site, "mytool", {"mytool/__init__.py": "import jaxish\n"}, ("jaxish",))
    install(site, "other", {"other/__init__.py": ""}, ("jaxish; extra == 'x'",))
    (site / "jaxish/__init__.py").unlink()
    (row,) = [row for row in damage.survey_below_root("", request(world))["rows"] if row["distribution"] == "jaxish"]
    assert (row["roots"], row["users"]) == ([], ["mytool"])


def test_an_import_that_ended_well_is_not_repeated(world, monkeypatch):
    variables, asked = {"XDG_CACHE_HOME": str(world / "cache"), "HF_HOME": "/hub"}, ["/venv/bin/python", "torch"]
    well = {"torch": {"module": "torch", "error": ""}}

    def survey() -> str:
        return str(survey_cache.survey_imports("", variables, request(world))["kept"])

    kept = survey()
    survey_cache.keep_imports(variables, kept, asked, {"torch": {"module": "torch", "error": "ImportError"}})
    assert survey_cache.recall_imports(variables, kept, asked) is None, "what fails is tried again"
    survey_cache.keep_imports(variables, kept, asked, well)
    assert survey() == kept and survey_cache.recall_imports(variables, kept, asked) == well
    assert survey_cache.recall_imports(variables | {"SHLVL": "2"}, kept, asked) == well
    assert survey_cache.recall_imports(variables | {"HF_HOME": "/other"}, kept, asked) is None
    assert survey_cache.recall_imports(variables, kept, [*asked, "trl"]) is None
    with monkeypatch.context() as later:
        later.setattr(survey_cache, "IMPORTS_SECONDS", 0.0)
        assert survey_cache.recall_imports(variables, kept, asked) is None
    touch(world / SITE / "torch/__init__.py")
    again = survey()
    assert again != kept and survey_cache.recall_imports(variables, again, asked) is None, "a file has changed"
