"""Libraries: which file the loader would take, and what is written in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys

import pytest

from gpuready.system import AccessError, LiveHost
from gpuready.system.dynamic_loader import default_folders, find_library_file, is_library_for, parse_loader_cache
from tests.deadlines import fastest

MACHINE = os.uname().machine
FLAG = {"x86_64": 0x0303, "aarch64": 0x0A03}
NUMBER = {"x86_64": 62, "aarch64": 183}


def head(machine="x86_64", bits=2, order=1):
    number = {"x86_64": 62, "aarch64": 183, "i386": 3}[machine]
    raw = b"\x7fELF" + bytes([bits, order, 1]) + b"\0" * 9
    return raw + struct.pack("<HH" if order == 1 else ">HH", 3, number) + b"\0" * 44


def cache(*rows, before=b"", count=None):
    """A cache file of (name, path, flags, hwcap) rows, as ldconfig lays it out."""
    strings, entries = b"", []
    base = 48 + 24 * len(rows)
    for name, path, flags, hwcap in rows:
        key = base + len(strings)
        strings += name.encode() + b"\0"
        value = base + len(strings)
        strings += path.encode() + b"\0"
        entries.append(struct.pack("=iIIIQ", flags, key, value, 0, hwcap))
    number = len(rows) if count is None else count
    top = b"glibc-ld.so.cache1.1" + struct.pack("=II", number, len(strings)) + b"\0" * 20
    return before + top + b"".join(entries) + strings


CUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


def test_the_entries_for_this_machine():
    data = cache(
        ("libcuda.so.1", "/usr/lib32/libcuda.so.1", 0x0003, 0),
        ("libcuda.so.1", "/usr/lib/aarch64/libcuda.so.1", 0x0A03, 0),
        ("libcuda.so.1", CUDA, 0x0303, 0),
        ("libcuda.so.1", "/opt/later/libcuda.so.1", 0x0303, 0),
    )
    assert parse_loader_cache(data, "x86_64") == {"libcuda.so.1": CUDA}
    assert parse_loader_cache(data, "aarch64") == {"libcuda.so.1": "/usr/lib/aarch64/libcuda.so.1"}


def test_a_library_for_some_processors_yields_to_the_plain_one():
    rows = (
        ("libm.so.6", "/lib/glibc-hwcaps/x86-64-v4/libm.so.6", 0x0303, 1 << 62),
        ("libm.so.6", "/lib/libm.so.6", 0x0303, 0),
    )
    assert parse_loader_cache(cache(*rows), "x86_64") == {"libm.so.6": "/lib/libm.so.6"}
    assert parse_loader_cache(cache(rows[0]), "x86_64") == {"libm.so.6": rows[0][1]}


def test_an_old_cache_may_stand_before_the_new_one():
    data = cache(("a.so", "/a.so", 0x0303, 0), before=b"ld.so-1.7.0\0" + b"\0" * 52)
    assert parse_loader_cache(data, "x86_64") == {"a.so": "/a.so"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        b"glibc-ld.so.cache1.1",
        cache(("a", "/a", 0x0303, 0))[:60],
        cache(count=1 << 31),
        b"glibc-ld.so.cache1.1" + b"\xff" * 200,
    ],
)
def test_a_damaged_cache_is_empty_or_partial_but_never_an_error(data):
    assert isinstance(parse_loader_cache(data, "x86_64"), dict)


def test_an_unknown_machine_takes_what_there_is():
    assert parse_loader_cache(cache(("a.so", "/a.so", 0x0703, 0)), "mips64") == {"a.so": "/a.so"}


# -- where the loader looks, and in which order


def found(name="libcuda.so.1", own="", known=None, files=()):
    there = {path: head() for path in files}
    return find_library_file(name, "x86_64", own, known or {}, there.get)


def test_the_order_of_places():
    mine, theirs, last = "/opt/x/libcuda.so.1", CUDA, "/lib64/libcuda.so.1"
    assert found(own="/opt/x", known={"libcuda.so.1": theirs}, files=(mine, theirs, last)) == mine
    assert found(own="/opt/y", known={"libcuda.so.1": theirs}, files=(mine, theirs, last)) == theirs
    assert found(files=(mine, last)) == last
    assert found(files=(mine,)) is None


def test_a_stale_cache_is_passed_over():
    assert found(known={"libcuda.so.1": "/gone"}, files=("/usr/lib/libcuda.so.1",)) == "/usr/lib/libcuda.so.1"


def test_wsl_has_a_place_of_its_own():
    assert found(files=("/usr/lib/wsl/lib/libcuda.so.1",)) == "/usr/lib/wsl/lib/libcuda.so.1"
    assert default_folders("x86_64")[0] == "/lib/x86_64-linux-gnu"
    assert default_folders("aarch64")[1] == "/usr/lib/aarch64-linux-gnu"


def test_empty_and_relative_entries_are_passed_over():
    assert found(own="::.:lib", files=("libcuda.so.1", "./libcuda.so.1", "/lib/libcuda.so.1")) == "/lib/libcuda.so.1"


def test_a_library_for_another_machine_is_passed_over():
    places = {
        "/a/l.so": head("i386", bits=1),
        "/b/l.so": head("aarch64"),
        "/c/l.so": b"GROUP ( l.so )",
        "/d/l.so": head(),
    }
    assert find_library_file("l.so", "x86_64", "/a:/b:/c:/d", {}, places.get) == "/d/l.so"
    assert find_library_file("l.so", "aarch64", "/a:/b:/c:/d", {}, places.get) == "/b/l.so"


def test_what_fits():
    assert is_library_for(head(), "x86_64")
    assert not is_library_for(head(bits=1), "x86_64")
    assert not is_library_for(None, "x86_64")
    assert not is_library_for(b"\x7fELF", "x86_64")
    assert is_library_for(head("i386", bits=1), "some-new-machine")


def test_a_path_is_no_search():
    assert found(name="/opt/l.so", files=("/opt/l.so",)) == "/opt/l.so"
    assert found(name="/opt/l.so") is None


# -- on this machine


def ldconfig():
    tool = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if not tool or not os.path.exists("/etc/ld.so.cache") or MACHINE not in FLAG:
        pytest.skip("no ldconfig here")
    return subprocess.run([tool, "-p"], capture_output=True, text=True, check=True).stdout


def test_the_real_cache_reads_as_ldconfig_prints_it():
    kind = {"x86_64": "libc6,x86-64", "aarch64": "libc6,AArch64"}[MACHINE] if MACHINE in FLAG else ""
    printed: dict[str, str] = {}
    for line in ldconfig().splitlines():
        if f"({kind}" in line and "hwcap" not in line:
            name, _, path = line.strip().partition(" => ")
            printed.setdefault(name.split()[0], path)
    assert printed
    assert LiveHost().list_libraries("") == printed


def test_a_real_library_is_found():
    if MACHINE not in FLAG:
        pytest.skip("a machine that this test does not know")
    path = LiveHost().find_library("libc.so.6")
    if path is None:
        pytest.skip("no glibc here")
    with open(path, "rb") as file:
        assert is_library_for(file.read(20), MACHINE)


def test_the_question_is_quick():
    host = LiveHost()
    start = fastest(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
    assert fastest(lambda: host.find_library("libcuda.so.1")) < start, "less than the start of Python"


def test_a_fake_machine_has_its_own_libraries(tmp_path):
    lib, cuda = tmp_path / "usr/lib", tmp_path / "opt/cuda"
    for folder, name in ((lib, "libcuda.so.1"), (cuda, "libcudart.so.12")):
        folder.mkdir(parents=True)
        (folder / name).write_bytes(head(MACHINE if MACHINE in NUMBER else "x86_64"))
    (tmp_path / "etc").mkdir()
    flag = FLAG.get(MACHINE, 0x0303)
    (tmp_path / "etc/ld.so.cache").write_bytes(cache(("libcudart.so.12", "/opt/cuda/libcudart.so.12", flag, 0)))
    host = LiveHost(root=str(tmp_path), environ={})
    assert host.find_library("libcuda.so.1") == "/usr/lib/libcuda.so.1"
    assert host.find_library("libcudart.so.12") == "/opt/cuda/libcudart.so.12"
    assert host.find_library("libnccl.so.2") is None
    assert host.list_libraries("libcud") == {"libcudart.so.12": "/opt/cuda/libcudart.so.12"}
    assert host.list_libraries("libnccl") == {}


def test_a_cache_that_may_not_be_read_is_not_an_empty_one(tmp_path):
    (tmp_path / "etc/ld.so.cache").mkdir(parents=True)
    with pytest.raises(AccessError, match="is a directory"):
        LiveHost(root=str(tmp_path)).list_libraries("lib")


# -- ELF


@pytest.fixture(scope="module")
def built(compiler, tmp_path_factory):
    """A small library with a name, a runpath and some strings in it."""
    folder = tmp_path_factory.mktemp("elf")
    (folder / "a.c").write_text(
        'const char *arch = "sm_75 sm_80 sm_86 sm_90 compute_90";\n'
        'const char *other = "unrelated";\n'
        'const char *tail = "before sm_100a after";\n'
        "extern double cos(double); double f(double x) { return cos(x); }\n"
    )
    flags = ["-shared", "-fPIC", "-Wl,-soname,libarch.so.7", "-Wl,-rpath,$ORIGIN/../lib", "-Wl,--no-as-needed"]
    out = folder / "libarch.so.7.1"
    subprocess.run([compiler, *flags, "-o", out, folder / "a.c", "-lm"], check=True, capture_output=True)
    return out


def test_what_a_library_says_of_itself(built):
    found = LiveHost().read_elf_headers(str(built))
    assert found["soname"] == "libarch.so.7"
    assert found["runpath"] == "$ORIGIN/../lib"
    assert "libm.so.6" in found["needed"] and "libc.so.6" in found["needed"]
    assert found["machine"] == MACHINE


def test_the_strings_of_a_section(built):
    host = LiveHost()
    assert host.find_elf_strings(str(built), ".rodata", ["sm_"]) == (
        "sm_75 sm_80 sm_86 sm_90 compute_90",
        "before sm_100a after",
    )
    assert host.find_elf_strings(str(built), ".rodata", ["compute_", "unrel"]) == (
        "sm_75 sm_80 sm_86 sm_90 compute_90",
        "unrelated",
    )
    assert host.find_elf_strings(str(built), ".rodata", ["nothing like it"]) == ()
    assert "cos" in host.find_elf_strings(str(built), ".dynstr", ["cos"])


def test_a_real_library_of_this_system():
    path = LiveHost().find_library("libc.so.6")
    if path is None:
        pytest.skip("no glibc here")
    found = LiveHost().read_elf_headers(path)
    assert (found["soname"], found["machine"]) == ("libc.so.6", MACHINE)
    assert any("GNU C Library" in text for text in LiveHost().find_elf_strings(path, ".rodata", ["GNU C Library"]))


def test_a_library_that_is_not_there():
    assert LiveHost().read_elf_headers("/no/such.so") is None
    assert LiveHost().find_elf_strings("/no/such.so", ".rodata", ["x"]) == ()


def test_what_cannot_be_read_is_said(built, tmp_path):
    def why(call, *args):
        with pytest.raises(AccessError) as caught:
            call(*args)
        return str(caught.value)

    (tmp_path / "text").write_text("a linker script")
    (tmp_path / "short").write_bytes(b"\x7fELF")
    (tmp_path / "cut").write_bytes(built.read_bytes()[:64])
    host = LiveHost()
    assert why(host.read_elf_headers, str(tmp_path / "text")) == "not an ELF file"
    assert why(host.read_elf_headers, str(tmp_path / "short")) == "not an ELF file"
    assert why(host.read_elf_headers, str(tmp_path)) == "not a regular file"
    assert why(host.find_elf_strings, str(built), ".nothing", ["x"]) == "no section .nothing"
    assert why(host.find_elf_strings, str(tmp_path / "cut"), ".rodata", ["x"]) == "no section table"


def test_no_damage_to_a_library_is_more_than_a_gap(built, tmp_path):
    whole, path, host = built.read_bytes(), tmp_path / "damaged", LiveHost()
    for at in [*range(16, 64), *range(64, 600, 7)]:
        for byte in (0x00, 0xFF):
            path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
            for call in (
                lambda: host.read_elf_headers(str(path)),
                lambda: host.find_elf_strings(str(path), ".rodata", ["sm_"]),
            ):
                with contextlib.suppress(AccessError):
                    call()


def test_the_number_of_strings_is_bounded(compiler, tmp_path):
    (tmp_path / "many.s").write_text('.section .rodata\n.rept 5000\n.string "sm_x"\n.endr\n')
    out = tmp_path / "many.so"
    subprocess.run([compiler, "-shared", "-nostdlib", "-o", out, tmp_path / "many.s"], check=True, capture_output=True)
    assert len(LiveHost().find_elf_strings(str(out), ".rodata", ["sm_"])) == 256
