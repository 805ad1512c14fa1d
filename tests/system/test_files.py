"""Files through the door: what is there, what is not, and what cannot be seen are three things."""

from __future__ import annotations

import os

import pytest

from gpuready.system import AccessError, LiveHost
from tests.deadlines import fastest


@pytest.fixture
def host():
    return LiveHost()


def unreadable(call, *args):
    with pytest.raises(AccessError) as caught:
        call(*args)
    return str(caught.value)


# -- read


def test_a_file_is_read(host, tmp_path):
    (tmp_path / "a").write_text("driver 580\n")
    assert host.read_text(str(tmp_path / "a")) == "driver 580\n"


def test_an_empty_file_is_empty_and_not_absent(host, tmp_path):
    (tmp_path / "a").touch()
    assert host.read_text(str(tmp_path / "a")) == ""


@pytest.mark.parametrize("path", ["/no/such/file", "/etc/passwd/below-a-file", "/proc/999999999/stat"])
def test_what_is_not_there_is_none(host, path):
    assert host.read_text(path) is None
    assert host.list_directory(path) is None
    assert host.stat_path(path) is None
    assert host.get_disk_space(path) is None


def test_proc_is_read_though_it_claims_to_be_empty(host):
    assert os.stat("/proc/self/status").st_size == 0
    assert "Name:" in host.read_text("/proc/self/status")


def test_bytes_that_are_not_text_are_escaped(host, tmp_path):
    (tmp_path / "a").write_bytes(b"H\xff\xfe200 \xc3\xa9")
    assert host.read_text(str(tmp_path / "a")) == "H\\xff\\xfe200 é"


def test_a_large_file_is_capped_and_quick(host, tmp_path):
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.write(b"x" * 1000)
        file.truncate(100 << 20)  # a hundred megabytes, most of them a hole
    assert len(host.read_text(str(path))) == 65536
    assert fastest(lambda: host.read_text(str(path))) < fastest(path.read_bytes) / 4
    assert host.read_text(str(path), limit=10) == "x" * 10
    assert len(host.read_text(str(path), limit=3 << 20)) == 3 << 20


def test_a_directory_is_no_file(host, tmp_path):
    assert unreadable(host.read_text, str(tmp_path)) == "is a directory"


def test_a_pipe_is_never_waited_for(host, tmp_path):
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    assert unreadable(host.read_text, path) == "not a regular file"  # who waits for it waits for ever
    assert host.stat_path(path)["kind"] == "other"


def test_a_device_is_never_opened(host):
    assert unreadable(host.read_text, "/dev/zero") == "not a regular file"
    assert host.stat_path("/dev/null")["kind"] == "char"


def test_a_path_with_a_nul_is_no_path(host):
    for ask in (
        host.read_text,
        host.list_directory,
        host.stat_path,
        host.get_disk_space,
        host.resolve_path,
        host.read_elf_headers,
    ):
        assert unreadable(ask, "/tmp/\0x") == "not a path"


def test_permission_denied_is_not_absence(open_folder, as_nobody):
    shut, inside = open_folder / "shut", open_folder / "folder"
    shut.write_text("secret")
    shut.chmod(0o000)
    inside.mkdir()
    (inside / "a").touch()
    inside.chmod(0o000)

    def look():
        host, said = LiveHost(), []
        for ask, path in (
            (host.read_text, shut),
            (host.list_directory, inside),
            (host.read_text, inside / "a"),
            (host.stat_path, inside / "a"),
        ):
            try:
                said.append(ask(str(path)))
            except AccessError as why:
                said.append(f"refused: {why}")
        return said

    assert as_nobody(look) == ["refused: permission denied"] * 4


def test_a_loop_of_links_is_refused(host, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert unreadable(host.read_text, str(tmp_path / "a")) == "too many levels of symbolic links"


def test_a_file_that_the_kernel_will_not_give_is_refused(host):
    # /proc/self/mem is a regular file whose first page cannot be read.
    assert "error" in unreadable(host.read_text, "/proc/self/mem")


# -- list, stat, real, disk


def test_names_are_sorted_and_unprintable_ones_escaped(host, tmp_path):
    for name in (b"b", b"a", b"\xffodd", "é".encode()):
        with open(os.path.join(os.fsencode(tmp_path), name), "w"):
            pass
    assert host.list_directory(str(tmp_path)) == ("\\xffodd", "a", "b", "é")


def test_a_file_has_no_names_in_it(host, tmp_path):
    (tmp_path / "a").touch()
    assert host.list_directory(str(tmp_path / "a")) is None


def test_stat(host, tmp_path):
    path = tmp_path / "a"
    path.write_text("12345")
    path.chmod(0o640)
    os.utime(path, (1000, 2000))
    assert host.stat_path(str(path)) == {"kind": "file", "mode": 0o640, "uid": os.geteuid(), "size": 5, "mtime": 2000.0}
    assert host.stat_path(str(tmp_path))["kind"] == "dir"


def test_a_link_is_followed_and_named_only_where_it_leads_nowhere(host, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "good").symlink_to("file")
    (tmp_path / "broken").symlink_to("nowhere")
    assert host.stat_path(str(tmp_path / "good"))["kind"] == "file"
    assert host.stat_path(str(tmp_path / "broken"))["kind"] == "link"
    assert host.resolve_path(str(tmp_path / "good")) == str(tmp_path / "file")


def test_disk(host):
    found = host.get_disk_space("/")
    assert 0 <= found["free"] <= found["total"]
    assert found["total"] > 0
    assert set(found) == {"free", "total", "free_inodes"}


# -- a machine made of files


@pytest.fixture
def fake(tmp_path):
    root = tmp_path / "root"
    for folder in ("proc", "sys/module/nvidia", "usr/local/cuda-12.8/bin", "etc", "usr/bin"):
        (root / folder).mkdir(parents=True)
    (root / "sys/module/nvidia/version").write_text("580.1\n")
    (root / "usr/local/cuda").symlink_to("/usr/local/cuda-12.8")
    (root / "usr/local/cuda-12.8/version.json").write_text("{}")
    (root / "etc/outside").symlink_to("../../../../../../../../etc/passwd")
    return root


def test_a_root_of_our_own(fake):
    host = LiveHost(root=str(fake))
    assert host.read_text("/sys/module/nvidia/version") == "580.1\n"
    assert host.list_directory("/usr/local") == ("cuda", "cuda-12.8")
    assert host.stat_path("/sys/module/nvidia")["kind"] == "dir"
    assert host.read_text("/proc/version") is None
    assert host.get_disk_space("/usr")["total"] > 0


def test_links_are_resolved_inside_the_root(fake):
    host = LiveHost(root=str(fake))
    assert host.read_text("/usr/local/cuda/version.json") == "{}"
    assert host.resolve_path("/usr/local/cuda/version.json") == "/usr/local/cuda-12.8/version.json"
    assert host.resolve_path("/usr/local/../local/./cuda") == "/usr/local/cuda-12.8"


def test_no_link_leads_out_of_the_root(fake):
    assert LiveHost(root=str(fake)).read_text("/etc/outside") is None
    assert LiveHost(root=str(fake)).read_text("/../../../../../etc/passwd") is None


def test_a_broken_link_below_a_root_is_a_link(fake):
    (fake / "usr/local/old").symlink_to("/usr/local/cuda-11.0")
    assert LiveHost(root=str(fake)).stat_path("/usr/local/old")["kind"] == "link"
    assert LiveHost(root=str(fake)).stat_path("/usr/local/none") is None


def test_a_loop_of_links_below_a_root(fake):
    (fake / "etc/a").symlink_to("/etc/b")
    (fake / "etc/b").symlink_to("/etc/a")
    assert unreadable(LiveHost(root=str(fake)).read_text, "/etc/a") == "too many levels of symbolic links"
    assert LiveHost(root=str(fake), environ={"PATH": "/etc"}).find_program("a") is None


def test_programs_are_found_below_the_root_and_run(fake):
    nvcc = fake / "usr/local/cuda-12.8/bin/nvcc"
    nvcc.write_text("#!/bin/sh\necho release 12.8\n")
    nvcc.chmod(0o755)
    host = LiveHost(root=str(fake), environ={"PATH": "/usr/bin:/usr/local/cuda/bin"})
    assert host.find_program("nvcc") == "/usr/local/cuda/bin/nvcc"
    ran = host.run(["nvcc", "--version"])
    assert (ran.out, ran.argv) == ("release 12.8\n", ("/usr/local/cuda/bin/nvcc", "--version"))
    assert host.run(["/usr/local/cuda/bin/nvcc"]).rc == 0
    assert host.find_program("sh") is None
