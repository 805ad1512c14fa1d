"""Where the checkout of a framework comes from, and what tells one from another."""

from __future__ import annotations

import subprocess

import pytest

from gpuready import contracts
from gpuready.apply.install_steps import InstallInputs, list_install_steps
from gpuready.apply.source_checkout import add_left_out, hash_checkout, is_git_address, open_checkout, split_revision
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


def test_a_checkout_follows_its_branch_and_survives_a_broken_fetch(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "made"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(made)]
    subprocess.run(["git", "init", "-q", str(made)], check=True)

    def commit_text(text):
        (made / "setup.py").write_text(text)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", text], check=True)

    commit_text("one")
    subprocess.run([*git, "tag", "v1"], check=True)
    folder = open_checkout(LiveHost(), f"file://{made}")
    assert folder == open_checkout(LiveHost(), f"file://{made}") != str(made)
    assert hash_checkout(folder) == hash_checkout(str(made))
    (made / "setup.py").write_text("edited")
    assert hash_checkout(folder) != hash_checkout(str(made))
    commit_text("two")
    (tmp_path / folder / "setup.py").unlink()  # as after a fetch that was killed
    assert open_checkout(LiveHost(), f"file://{made}") == folder
    assert hash_checkout(folder) == hash_checkout(str(made))
    tagged = open_checkout(LiveHost(), f"file://{made}@v1")
    assert (tmp_path / tagged / "setup.py").read_text() == "one"
    with pytest.raises(ValueError, match="cannot be fetched"):
        open_checkout(LiveHost(), f"file://{tmp_path}/nothing")


@pytest.mark.parametrize("place", ["roll", "build/roll"])
def test_modules_that_the_build_of_a_checkout_leaves_out_are_taken_from_it(tmp_path, place):
    """As ROLL's roll/pipeline/sft, which has no __init__.py: find_packages does not see it, Python does."""
    source, site = tmp_path / place, tmp_path / "site"
    for inside in ("demo/__init__.py", "demo/one/__init__.py", "demo/one/sft/train.py", "demo/one/sft/deep/more.py",
                   "demo/tests/test_a.py", "examples/start.py", "build/lib/demo/two/x.py"):  # fmt: skip
        (source / inside).parent.mkdir(parents=True, exist_ok=True)
        (source / inside).write_text("X = 1\n")
    (site / "demo" / "one").mkdir(parents=True)
    for inside in ("demo/__init__.py", "demo/one/__init__.py"):
        (site / inside).write_text("X = 1\n")
    assert add_left_out(str(source), str(site)) == ["demo/one/sft", "demo/one/sft/deep"]
    assert (site / "demo/one/sft/train.py").read_text() == "X = 1\n" and (site / "demo/one/sft/deep/more.py").exists()
    assert not (site / "examples").exists() and not (site / "demo/tests").exists() and not (site / "demo/two").exists()
    assert add_left_out(str(source), str(site)) == []


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


@pytest.mark.parametrize(
    ("torch", "variant", "pin"),
    [("2.6.0+cu124", "guide", "2.6.0"), ("2.8.0+cu128", "guide", "2.8.0"), ("", "guide", "2.6.0"), ("2.9.0", "guide", "2.6.0"), ("2.6.0", "torch280-vllm", "2.8.0")],
)  # fmt: skip
def test_of_several_files_the_one_for_the_planned_torch_counts(tmp_path, torch, variant, pin):
    """ROLL's page names files for torch 2.6 and 2.8: the first was taken, and no plan with torch 2.8 was possible."""
    root = make_checkout(tmp_path / "ROLL")
    for name, version in {"torch260_vllm": "2.6.0", "torch280_vllm": "2.8.0"}.items():
        (tmp_path / f"ROLL/requirements_{name}.txt").write_text(f"torch=={version}.*\n")
    contract = contracts.load_contract("roll", None, variant)
    assert read_source_requirements(LiveHost(), root, contract, torch)[0] == (f"torch=={pin}.*",)


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


def read_requirements(root):
    return read_source_requirements(LiveHost(), root, contracts.load_contract("roll", None, "torch280-vllm"))


@pytest.mark.parametrize(
    ("pin", "kept"),
    [
        ("torch==2.5.1; sys_platform == 'darwin'", True),
        ("torch==2.5.1; python_version < '3.9'", True),
        ("torch==2.5.1", False),
    ],
)
def test_a_pin_with_a_marker_replaces_no_other_requirement(tmp_path, pin, kept):
    root = make_checkout(tmp_path / "ROLL", f"{pin}\ntorch>=2.4")
    requires, notes = read_requirements(root)
    assert pin in requires and ("torch>=2.4" in requires) == kept and not notes


def test_what_a_package_inside_requires_from_elsewhere_is_named(tmp_path):
    project = 'dependencies = ["dacite", "priv @ git+https://me:secret@host/priv"]\n'
    requires, notes = read_requirements(make_checkout(tmp_path / "ROLL", project=project))
    assert requires == ("vllm==0.10.2", "dacite")
    assert notes[0].startswith("mcore_adapter/pyproject.toml: priv @ git+https://") and "not installed" in notes[0]
    assert len(notes) == 1 and "secret" not in notes[0]


def test_what_a_checkout_without_a_requirement_file_requires_from_elsewhere_is_named(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\ndependencies = ['dacite', 'priv @ git+https://host/priv']\n")
    requires, notes = read_requirements(str(tmp_path))
    assert requires == ("dacite",) and notes[0].startswith(
        "pyproject.toml: priv @ git+https://host/priv is not installed"
    )


EXTRAS = """dependencies = ["numpy; python_version >= '3.9'"]
[project.optional-dependencies]
fast = ["kernels>=1"]
docs = ["sphinx"]
Every_One = ["mcore-adapter[fast,every-one]", "rich"]
"""


@pytest.mark.parametrize("option", ["", "-e "])
def test_extras_and_the_marker_of_a_package_inside_are_kept(tmp_path, option):
    marker = 'sys_platform == "linux"'
    root = make_checkout(tmp_path / "ROLL", f"{option}./mcore_adapter[every-one]; {marker}", EXTRAS)
    requires, notes = read_requirements(root)
    both = f'numpy; python_version >= "3.9" and {marker}'
    assert [one.replace("(", "").replace(")", "") for one in requires[2:]] == [
        both, f"rich; {marker}", f"kernels>=1; {marker}"
    ] and not notes  # fmt: skip
    parts = list_local_packages(LiveHost(), root, contracts.load_contract("roll", None, "torch280-vllm"))
    assert parts == (f"{root}/mcore_adapter ; {marker}",)


def test_an_or_in_a_marker_stays_together(tmp_path):
    project = "dependencies = [\"numpy; python_version < '3.9' or os_name == 'nt'\"]\n"
    requires, _ = read_requirements(make_checkout(tmp_path / "ROLL", "./mcore_adapter; os_name == 'posix'", project))
    assert requires[-1] == 'numpy; (python_version < "3.9" or os_name == "nt") and os_name == "posix"'


def test_a_marker_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"requirements_common\.txt has a line that is not a requirement"):
        read_requirements(make_checkout(tmp_path / "ROLL", "./mcore_adapter; platform is linux"))
