"""Files that a stranger may name: inside the folders that were named, and nowhere else."""

from __future__ import annotations

import os

import pytest

from gpuready.system import AccessError
from gpuready.system.log_streams import open_log_streams
from gpuready.system.path_allowlist import PathAllowlist, RestrictedHost
from gpuready.workflow import refusal
from gpuready.workflow.allowed_paths import AllowedPaths
from gpuready.workflow.refusal import Refused


@pytest.fixture
def folder(tmp_path, monkeypatch):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.json").write_text("{}")
    (tmp_path / "inside-not").mkdir()
    (tmp_path / "inside-not" / "b.json").write_text("{}")
    monkeypatch.chdir(inside)
    return AllowedPaths([str(inside)])


@pytest.mark.parametrize(
    "path",
    [
        "../inside-not/b.json",
        "/etc/passwd",
        "/",
        "..",
        "",
        "a\0.json",
        "a.json/../../inside-not/b.json",
        "x" * 5000,
        "~/x.json",
    ],
)
def test_what_is_outside_is_refused(folder, path):
    with pytest.raises(Refused):
        folder.check_file(path)


def test_what_is_inside_is_read_by_any_name(folder, tmp_path):
    for path in ("a.json", "./a.json", "../inside/a.json", str(tmp_path / "inside" / "a.json")):
        assert folder.check_file(path) == path
    assert folder.check_machine_name("h100x8") == "h100x8" and folder.check_model("llama-3.1-8b") == "llama-3.1-8b"


@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/1/root/etc/passwd", "/proc/self/fd/0", "/sys/class", "/dev/null"]
)
def test_what_the_kernel_answers_is_no_file_even_where_all_is_allowed(path):
    with pytest.raises(Refused, match="outside"):
        AllowedPaths(["/"]).check_file(path)


def test_a_link_made_later_is_seen(folder, tmp_path):
    os.symlink(tmp_path / "inside-not" / "b.json", tmp_path / "inside" / "c.json")
    with pytest.raises(Refused, match="outside"):
        folder.check_file("c.json")


@pytest.mark.parametrize("read", ["host", "log", "folder"])
def test_a_link_that_changes_after_it_was_checked_leads_nowhere(folder, tmp_path, monkeypatch, read):
    """What was opened counts: a path may lead elsewhere between the check and the reading."""
    (tmp_path / "inside-not" / "b.json").write_text("secret of another\n")
    link, outside = tmp_path / "inside" / "link.json", tmp_path / "inside-not" / "b.json"
    fence = PathAllowlist([str(tmp_path / "inside")])
    if read == "host":
        link.symlink_to(outside)
        monkeypatch.setattr(fence, "allows_path", lambda path: True)  # it led inside a moment ago
        assert RestrictedHost(fence).read_text(str(link)) is None
        assert RestrictedHost(fence).read_text("a.json") == "{}"
        return
    (tmp_path / "inside" / "logs").mkdir()
    named = tmp_path / "inside" / ("logs" if read == "folder" else "a.log")
    path = named / "a.log" if read == "folder" else named
    path.write_text("RuntimeError: x\n")
    (stream,) = open_log_streams(str(named), fence)
    assert b"".join(stream) == b"RuntimeError: x\n"
    path.unlink()
    path.symlink_to(outside)
    for look in (stream.read_head, lambda: b"".join(stream)):
        with pytest.raises(AccessError, match="outside"):
            look()


def test_files_that_files_name_are_held_to_the_fence(folder, tmp_path):
    outside = str(tmp_path / "inside-not" / "b.json")
    assert refusal.read_named_file(outside) == "{}"
    folder.restrict_named_files()
    try:
        with pytest.raises(Refused, match="does not exist"):
            refusal.read_named_file(outside)
        assert refusal.read_named_file("a.json") == "{}"
        host = RestrictedHost(PathAllowlist([str(tmp_path / "inside")]))
        assert host.stat_path(outside) is None and host.stat_path("a.json") and host.list_directory("/etc") is None
    finally:
        refusal.set_fence(None)
    assert refusal.read_named_file(outside) == "{}"


def test_an_environment_is_a_folder_inside(folder, tmp_path):
    (tmp_path / "inside" / "python").write_text("#!/bin/sh\ntouch ran\n")
    (tmp_path / "inside" / "python").chmod(0o755)
    (tmp_path / "inside" / "venv").mkdir()
    assert folder.check_environment("venv") == "venv"
    for path in ("python", "nothing", "/usr"):
        with pytest.raises(Refused):
            folder.check_environment(path)


def test_the_python_of_a_server_is_found_as_check_finds_it(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("")
    (tmp_path / "bin" / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("python3", "~/bin", str(tmp_path / "bin/python3")):
        assert AllowedPaths([str(tmp_path)], name).python == name
    for name in ("python9", "~/gone", "bin/python3"):
        with pytest.raises(Refused, match=f"--python {name}: there is no such file or folder"):
            AllowedPaths([str(tmp_path)], name)
