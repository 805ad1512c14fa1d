"""Where the checkout of a framework comes from, and what tells one from another."""

from __future__ import annotations

import subprocess

import pytest

from gpuready.apply.source_checkout import hash_checkout, is_git_address, open_checkout, split_revision
from gpuready.system import LiveHost


@pytest.mark.parametrize(
    ("source", "is_git", "address", "revision"),
    [
        ("https://host/ROLL.git", True, "https://host/ROLL.git", ""),
        ("https://host/ROLL.git@v0.3", True, "https://host/ROLL.git", "v0.3"),
        ("git+ssh://git@host/a/ROLL", True, "git+ssh://git@host/a/ROLL", ""),
        ("git@host:a/ROLL", True, "git@host:a/ROLL", ""),
        ("file:///srv/ROLL@main", True, "file:///srv/ROLL", "main"),
        ("/srv/ROLL", False, "/srv/ROLL", ""),
        ("ROLL@2", False, "ROLL@2", ""),
    ],
)
def test_addresses(source, is_git, address, revision):
    assert is_git_address(source) == is_git
    assert split_revision(source) == (address, revision)


def test_a_clone_is_made_once_and_an_edit_makes_another_hash(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "made"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(made)]
    subprocess.run(["git", "init", "-q", str(made)], check=True)
    (made / "setup.py").write_text("x\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    folder = open_checkout(LiveHost(), f"file://{made}")
    assert folder == open_checkout(LiveHost(), f"file://{made}") != str(made)
    assert hash_checkout(folder) == hash_checkout(str(made))
    (made / "setup.py").write_text("y\n")
    assert hash_checkout(folder) != hash_checkout(str(made))
    with pytest.raises(ValueError, match="cannot be cloned"):
        open_checkout(LiveHost(), f"file://{tmp_path}/nothing")
