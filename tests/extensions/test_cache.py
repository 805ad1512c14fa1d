"""The cache: its key, whose folder it is, many builders at once, builders that are killed, entries that are damaged."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuready.extensions import Extension, assess_build, build_cache, loader, prebuild, recipe
from gpuready.extensions.recipe import CannotBuild
from gpuready.system import LiveHost, native_library
from tests.extensions.test_judging import HERE

SOURCE = 'extern "C" int twice(int x) { return TIMES * x; }\n'
LOAD = """
import sys
sys.path[:0] = sys.argv[2].split(":")
from gpuready.extensions import Extension, load_extension
found = load_extension(Extension("twice", (sys.argv[1],), flags=("-DTIMES=2",)))
print(found.how, found.function("twice", "i")(21))
"""


class FakeService:
    """A source, a compiler that writes down each of its runs, and an environment of its own."""

    def __init__(self, folder: Path):
        self.folder, self.log = folder, folder / "runs"
        self.source = folder / "twice.cpp"
        self.source.write_text(SOURCE)
        self.compiler()
        self.home = folder / "cache"
        self.environ = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "CXX": str(folder / "g++"),
            "GPUREADY_EXTENSIONS_DIR": str(self.home),
        }  # fmt: skip

    def compiler(self, before: str = "") -> None:
        script = self.folder / "g++"
        body = f'#!/bin/sh\ncase "$*" in *-o*) echo run >> {self.log};{before} esac\nexec g++ "$@"\n'
        script.write_text(body)
        script.chmod(0o755)

    @property
    def runs(self) -> int:
        return len(self.log.read_text().split()) if self.log.exists() else 0

    def extension(self, **more) -> Extension:
        return Extension("twice", (str(self.source),), flags=("-DTIMES=2",)).replace(**more)

    def load(self, **more):
        loader._loaded_extensions.clear()
        return loader.load_extension(self.extension(**more), host=LiveHost(environ=self.environ))

    def start(self) -> subprocess.Popen:
        path = ":".join(p for p in sys.path if p)
        words = [sys.executable, "-c", LOAD, str(self.source), path]
        return subprocess.Popen(words, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def entry(self) -> Path:
        (found,) = self.home.glob("twice-*/")
        return found


def put(path: Path, data: bytes) -> None:
    """Another file under the name: what is loaded here lies in the old one, and its end would take this process with it."""
    path.unlink()
    path.write_bytes(data)


@pytest.fixture
def service(tmp_path):
    return FakeService(tmp_path)


def test_built_once_then_cached(service):
    first, again = service.load(), service.load()
    assert (first.how, again.how, service.runs) == ("built", "cached", 1)
    assert again.function("twice", "i")(4) == 8
    assert sorted(p.name for p in service.entry().iterdir()) == ["entry.json", "library.so"]
    assert service.home.stat().st_mode & 0o777 == 0o700


def test_another_source_or_flag_is_another_entry(service):
    service.load()
    service.source.write_text(SOURCE.replace("TIMES", "1 + TIMES"))
    assert service.load().function("twice", "i")(2) == 5
    assert service.load(flags=("-DTIMES=5",)).function("twice", "i")(2) == 11
    assert service.runs == 3 and len(list(service.home.glob("twice-*/"))) == 3


@pytest.mark.parametrize(
    ("extension", "ground"),
    [
        ({"name": "other"}, {}),
        ({"flags": ("-O2",)}, {}),
        ({"cuda_flags": ("-lineinfo",)}, {}),
        ({"includes": ("/opt",)}, {}),
        ({"libraries": ("m",)}, {}),
        ({"openmp": True}, {}),
        ({}, {"machine": "aarch64"}),
        ({}, {"libc": "2.39"}),
        ({}, {"compiler_version": "13.1"}),
        ({}, {"torch": "2.12.0+cu130"}),
        ({}, {"abi": "cxx11=1"}),
        ({}, {"cuda": "13.1"}),
        ({}, {"torch_cuda": "13.1"}),
        ({}, {"capabilities": ("8.0",)}),
        ({}, {"variables": {"NVCC_APPEND_FLAGS": "-G"}}),
    ],
)
def test_everything_that_decides_is_in_the_key(tmp_path, extension, ground):
    source = tmp_path / "k.cu"
    source.write_text("//")
    one = Extension("k", (str(source),))

    def key(which, where):
        return recipe.build_key(recipe.build_inputs(which, where, assess_build("cuda", where)))

    assert key(one, HERE) == key(one, HERE.replace(memory=1 << 40, cores=2))
    assert key(one.replace(**extension), HERE.replace(**ground)) != key(one, HERE)


def test_many_at_once_are_one_build(service):
    service.compiler(" sleep 0.3;")
    ranks = [service.start() for _ in range(8)]
    result = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 8, result
    assert sorted(out.strip() for out, _ in result) == ["built 42"] + ["cached 42"] * 7
    assert service.runs == 1 and {out.split()[1] for out, _ in result} == {"42"}


def test_a_killed_builder_is_taken_over(service):
    service.compiler(" sleep 20;")
    first = service.start()
    while service.runs == 0:
        assert first.poll() is None and not time.sleep(0.02)
    second = service.start()
    time.sleep(0.5)
    assert second.poll() is None, "it waits for the first"
    service.compiler()
    first.send_signal(signal.SIGKILL)
    out, err = second.communicate(timeout=60)
    assert out.strip() == "built 42", err
    first.wait()


@pytest.mark.parametrize("harm", ["cut", "flip", "no library", "no manifest", "rubbish", "other inputs", "empty"])
def test_a_damaged_entry_is_built_again(service, harm):
    service.load()
    library, manifest = service.entry() / "library.so", service.entry() / "entry.json"
    library.chmod(0o700)
    data = library.read_bytes()
    if harm == "cut":
        put(library, data[:100])
    elif harm == "flip":
        put(library, data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    elif harm == "no library":
        library.unlink()
    elif harm == "no manifest":
        manifest.unlink()
    elif harm == "other inputs":
        document = json.loads(manifest.read_text())
        document["inputs"]["sources"] = "0"
        manifest.write_text(json.dumps(document))
    else:
        manifest.write_text("" if harm == "empty" else '{"path": [')
    again = service.load()
    assert (again.how, service.runs, again.function("twice", "i")(3)) == ("built", 2, 6)
    assert service.load().how == "cached"


# -- whose it is --------------------------------------------------------------------------------------


def refused(service) -> str:
    with pytest.raises(CannotBuild) as raised:
        service.load()
    assert service.runs == 0
    return str(raised.value)


def test_a_folder_that_is_open_to_others(service):
    service.home.mkdir()
    service.home.chmod(0o777)
    assert "open to others; chmod 700" in refused(service)


def test_a_folder_that_is_a_link(service):
    (service.folder / "elsewhere").mkdir(0o700)
    service.home.symlink_to("elsewhere")
    assert "is a symbolic link" in refused(service)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else(service):
    service.home.mkdir(0o700)
    os.chown(service.home, 65534, 65534)
    assert "belongs to uid 65534" in refused(service)


def test_a_relative_folder(service):
    service.environ["GPUREADY_EXTENSIONS_DIR"] = "cache"
    assert "not an absolute path" in refused(service)


def test_what_is_loaded_is_what_was_checked(service):
    entry = service.load().entry
    library = Path(entry.path)
    me = (os.geteuid(),)
    for mode, said in ((0o722, "others can write to it"), (0o702, "others can write to it")):
        library.chmod(mode)
        with pytest.raises(Exception, match=said):
            native_library.load_checked_library(entry.path, entry.digest, me)
    library.chmod(0o700)
    with pytest.raises(Exception, match="belongs to uid"):
        native_library.load_checked_library(entry.path, entry.digest, (os.geteuid() + 1,))
    with pytest.raises(Exception, match="its content is not what was built"):
        native_library.load_checked_library(entry.path, "0" * 64, me)
    link = service.folder / "link.so"
    link.symlink_to(entry.path)
    with pytest.raises(Exception, match="is a symbolic link"):
        native_library.load_checked_library(str(link), entry.digest, me)
    with pytest.raises(Exception, match="has no function nothing"):
        native_library.load_checked_library(entry.path, entry.digest, me).bind_function("nothing", "")


# -- what fails ---------------------------------------------------------------------------------------


def test_a_compiler_that_fails_is_quoted(service):
    service.source.write_text("int twice( {\n")
    with pytest.raises(CannotBuild, match=r"compiling twice failed \(exit status 1\)(.|\n)*expected"):
        service.load()
    assert not list(service.home.glob("twice-*/")) and not list(service.home.glob("gpuready-*"))


def test_no_compiler(service):
    service.environ.update(PATH=str(service.folder / "none"), CXX="")
    assert "there is no C++ compiler" in refused(service)


def test_openmp_is_left_out_where_the_compiler_has_none(service):
    service.compiler(' case "$*" in *fopenmp*) exit 1;; esac;')
    found = service.load(openmp=True)
    assert found.how == "built" and service.runs == 2 and "-fopenmp" not in found.entry.argv


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a b", "x" * 99, "a.b"])
def test_a_name_is_no_path(service, name):
    with pytest.raises(CannotBuild, match="is not a valid name of an extension"):
        service.load(name=name)


def test_a_source_that_is_not_there(service):
    with pytest.raises(CannotBuild, match="which is not a file"):
        service.load(sources=(str(service.folder / "gone.cpp"),))


# -- ahead of time ------------------------------------------------------------------------------------


def ahead_of_time(service) -> Path:
    into = service.folder / "ready"
    made, left = prebuild.build_extensions([service.extension()], str(into), host=LiveHost(environ=service.environ))
    assert not left and Path(made[0].path) == into / "twice.so"
    into.chmod(0o755)
    service.environ["GPUREADY_EXTENSIONS_PREBUILT"] = f"/nowhere:{into}"
    return into


def test_what_was_built_ahead_of_time_is_taken_first(service):
    ahead_of_time(service)
    service.environ["CXX"] = "/nowhere/g++"
    found = service.load()
    assert found.how == "prebuilt" and found.function("twice", "i")(8) == 16 and not service.home.exists()
    assert str(service.folder) + "/ready" not in (service.folder / "ready" / "twice.json").read_text()


@pytest.mark.parametrize(
    "harm", ["others can write", "damaged", "cannot be loaded", "other sources", "for another machine"]
)
def test_what_is_not_trusted_or_does_not_fit_is_built_here(service, harm):
    into = ahead_of_time(service)
    if harm == "others can write":
        into.chmod(0o777)
    elif harm == "cannot be loaded":
        put(into / "twice.so", b"no library")
        document = json.loads((into / "twice.json").read_text())
        document["digest"] = hashlib.sha256(b"no library").hexdigest()
        (into / "twice.json").write_text(json.dumps(document))
    elif harm == "damaged":
        put(into / "twice.so", b"\x7fELF")
    elif harm == "other sources":
        service.source.write_text(SOURCE + "// more\n")
    else:
        document = json.loads((into / "twice.json").read_text())
        document["inputs"]["machine"] = "riscv64"
        (into / "twice.json").write_text(json.dumps(document))
    assert service.load().how == "built"


def test_nothing_that_can_be_built_is_an_error(service):
    service.environ.update(PATH=str(service.folder / "none"), CXX="")
    with pytest.raises(CannotBuild, match="no extension can be built here: twice: there is no C"):
        prebuild.build_extensions(
            [service.extension()], str(service.folder / "ready"), host=LiveHost(environ=service.environ)
        )


@pytest.mark.parametrize(("value", "asked"), [("1", True), ("0", False), ("", False)])
def test_build_ext(value, asked):
    assert prebuild.is_build_requested({"BUILD_EXT": value}) is asked
    with pytest.raises(ValueError, match="BUILD_EXT='x'"):
        prebuild.is_build_requested({"BUILD_EXT": "x"})


def test_drafts_of_the_dead_are_swept(service):
    service.home.mkdir(0o700)
    old, fresh = service.home / "gpuready-old", service.home / "gpuready-fresh"
    for one in (old, fresh):
        one.mkdir()
    os.utime(old, (1, 1))
    service.load()
    assert not old.exists() and fresh.exists() and build_cache.DRAFT_MAX_AGE > build_cache.LOCK_TIMEOUT
