"""Contents of files: short ways to sizes, real paths and hashes say what the long ones do."""

from __future__ import annotations

import base64
import hashlib
import os

import pytest

from gpuready.system.file_contents import (
    LARGE_READ,
    SMALL_READ,
    file_size,
    hash_as_recorded,
    leads_outside,
    resolve_folders,
)


@pytest.mark.parametrize("size", [0, 1, SMALL_READ - 1, SMALL_READ, SMALL_READ + 1, LARGE_READ + SMALL_READ + 7])
def test_a_hash_is_that_of_the_whole_file(tmp_path, size):
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    assert hash_as_recorded(str(tmp_path / "file")) == expected


def test_a_pipe_is_not_hashed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        hash_as_recorded(str(tmp_path / "pipe"))


def test_sizes_and_links_that_lead_out(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_bytes(b"four")
    (tmp_path / "file").write_bytes(b"outside")
    for name, target in {"in": root / "file", "out": tmp_path / "file", "gone": root / "none", "up": tmp_path}.items():
        (root / name).symlink_to(target)
    names = ("file", "in", "out", "gone", "up", "none")
    assert [name for name in names if leads_outside(f"{root}/{name}", str(root))] == ["out", "up"]
    assert [file_size(f"{root}/{name}") for name in names] == [4, 4, 7, None, -1, None]


def test_folders_are_resolved_as_realpath_does(tmp_path):
    root = tmp_path / "root"
    (root / "lib/site/pkg").mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "lib/site/link").symlink_to("../../bin")
    (root / "lib/site/loop").symlink_to("loop")
    folders = ["", "lib/site/pkg", "lib/site/link", "lib/site/link/deep", "lib/site/loop/x", "absent/folder", "lib/../bin", "..", "../other", "lib//site"]  # fmt: skip
    assert resolve_folders(str(root), folders) == {folder: os.path.realpath(f"{root}/{folder}") for folder in folders}
