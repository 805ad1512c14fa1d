"""Where the checkout of a framework comes from, and what tells one from another."""

from __future__ import annotations

import subprocess

import pytest

from gpuready import contracts
from gpuready.apply.install_steps import InstallInputs, list_install_steps
from gpuready.apply.source_checkout import hash_checkout, is_git_address, open_checkout, split_revision
from gpuready.apply.source_requirements import list_local_packages, read_source_requirements
from gpuready.model.plan import Plan
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


# -- packages inside a checkout, as ROLL's requirements_common.txt names ./mcore_adapter -----------------------


MEGATRON = 'dependencies = ["megatron-core>=0.15.0,<0.19.0", "vllm>=0.9", "dacite"]\n'
"""What it requires besides is pinned, or named already: a yanked release is only taken where its pin stands alone."""


def make_checkout(root, line="./mcore_adapter", project=MEGATRON):
    (root / "mcore_adapter").mkdir(parents=True)
    (root / "setup.py").write_text("from setuptools import setup\nsetup(name='roll', version='0.3.0')\n")
    (root / "requirements_torch280_vllm.txt").write_text("vllm==0.10.2\n-r requirements_common.txt\n")
    (root / "requirements_common.txt").write_text(f"dacite\n{line}\n")
    (root / "mcore_adapter/pyproject.toml").write_text(f"[project]\nname = 'mcore_adapter'\nversion = '0.1'\n{project}")
    return str(root)


@pytest.mark.parametrize("line", ["./mcore_adapter", "-e ./mcore_adapter", "./mcore_adapter[dev]  # of ours", "."])
def test_a_package_inside_the_checkout_is_installed_with_what_it_requires(tmp_path, line):
    root = make_checkout(tmp_path / "ROLL", line)
    contract = contracts.load_contract("roll", None, "torch280-vllm")
    requires, notes = read_source_requirements(LiveHost(), root, contract)
    parts = list_local_packages(LiveHost(), root, contract)
    own = line != "."
    assert requires == ("vllm==0.10.2", "dacite", *(("megatron-core>=0.15.0,<0.19.0",) if own else ())) and not notes
    assert parts == ((f"{root}/mcore_adapter",) if own else ())
    inputs = InstallInputs("uv", "3.12", "env", source=root, source_parts=parts)
    (step,) = (
        step for step in list_install_steps(Plan("roll", "0.3.0", "possible"), "/env/1", inputs) if root in step.run
    )
    assert step.run[-len(parts) - 1 :] == (root, *parts) and "--no-deps" in step.run


def test_a_package_elsewhere_is_named_and_left_out(tmp_path):
    root = make_checkout(tmp_path / "ROLL", "../other", "")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/setup.py").write_text("")
    contract = contracts.load_contract("roll", None, "torch280-vllm")
    requires, notes = read_source_requirements(LiveHost(), root, contract)
    assert requires == ("vllm==0.10.2", "dacite") and "../other" in notes[0]
    assert list_local_packages(LiveHost(), root, contract) == ()


def test_requirements_that_only_a_build_tells_are_said_to_be_unknown(tmp_path):
    root = make_checkout(tmp_path / "ROLL", project='dynamic = ["dependencies"]\n')
    _, notes = read_source_requirements(LiveHost(), root, contracts.load_contract("roll", None, "torch280-vllm"))
    assert "mcore_adapter" in notes[0] and "when it is built" in notes[0]
