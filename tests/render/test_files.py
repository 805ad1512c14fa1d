"""Each file of a plan is taken by its real reader: uv, pip, conda's YAML, TOML; and what cannot be written is refused."""

from __future__ import annotations

import json
import re
import sys

import pytest
import yaml

from gpuready.model.plan import KernelPlan, LockedPackage, Plan
from gpuready.render import files
from tests.render.dockerfiles import parsed
from tests.render.planned import PYTHON, UNRESOLVED, is_shell, run, uv

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# -- requirements ---------------------------------------------------------------------------------------


def test_requirements_are_taken_by_uv(plan, tmp_path):
    (tmp_path / "requirements.txt").write_text(files.render_plan_file(plan, "requirements"))
    assert run(uv(), "venv", "--python", sys.executable, ".venv", cwd=tmp_path).returncode == 0
    flags = ("--index-strategy", "unsafe-best-match", "--python", ".venv", "--no-cache")
    ran = run(uv(), "pip", "install", "--dry-run", "--require-hashes", *flags, "-r", "requirements.txt", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    for line in ("torch==2.13.0+cu126", "framework==5.22.0", "helper-kit==1.4.2"):
        assert f"+ {line}" in ran.stderr


def test_requirements_are_taken_by_pip(plan, tmp_path):
    (tmp_path / "requirements.txt").write_text(files.render_plan_file(plan, "requirements"))
    pip = (sys.executable, "-m", "pip", "install", "--dry-run", "--require-hashes", "--target", "t", "--no-cache-dir")
    ran = run(*pip, "-r", "requirements.txt", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Would install" in ran.stdout and "torch-2.13.0+cu126" in ran.stdout


@pytest.mark.parametrize("reader", ["uv", "pip"])
def test_another_file_under_the_same_name_is_refused(plan, tmp_path, reader):
    forged = tuple(row.replace(hashes=("sha256:" + "f" * 64,)) if row.name == "torch" else row for row in plan.lock)
    (tmp_path / "requirements.txt").write_text(files.render_plan_file(plan.replace(lock=forged), "requirements"))
    if reader == "pip":
        pip = (sys.executable, "-m", "pip", "install", "--dry-run", "--target", "t", "--no-cache-dir")
        ran = run(*pip, "--require-hashes", "-r", "requirements.txt", cwd=tmp_path)
    else:
        run(uv(), "venv", "--python", sys.executable, ".venv", cwd=tmp_path)
        flags = ("--index-strategy", "unsafe-best-match", "--python", ".venv", "--no-cache", "--require-hashes")
        ran = run(uv(), "pip", "install", *flags, "-r", "requirements.txt", cwd=tmp_path)
    assert ran.returncode != 0 and "hash" in (ran.stdout + ran.stderr).lower()


def test_what_comes_from_no_index_is_said_and_not_listed(plan):
    rows = (*plan.lock, LockedPackage("roll", "0.3.0", origin="/src/it's roll"))
    text = files.render_plan_file(plan.replace(lock=rows), "requirements")
    assert not re.search(r"^roll", text, re.M) and "#   uv pip install --no-deps '/src/it'\"'\"'s roll'" in text


# -- the project ----------------------------------------------------------------------------------------


def test_a_torch_from_a_folder_of_wheels_is_asked_of_its_index(plan):
    """The folder is of the machine that planned: no file may take its name for an index."""
    rows = tuple(row.replace(index="find-links") if row.name == "torch" else row for row in plan.lock)
    for form in ("requirements", "pyproject", "conda", "dockerfile", "shell"):
        text = files.render_plan_file(plan.replace(lock=rows), form)
        text += "".join(files.companion_files(plan.replace(lock=rows), form).values())
        assert "--torch-backend find-links" not in text and "index find-links" not in text
        assert plan.indexes["cu126"] in text and "add --find-links FOLDER" in text
    bare = files.render_plan_file(plan.replace(lock=rows, indexes={}), "shell")
    assert "--torch-backend cu126" in bare


def test_the_project_is_locked_by_uv_and_torch_comes_from_its_index_alone(plan, tmp_path):
    here = plan.replace(platform="")  # the machine of the test, whatever it is
    (tmp_path / "pyproject.toml").write_text(files.render_plan_file(here, "pyproject"))
    ran = run(uv(), "lock", "--no-cache", "--python", sys.executable, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    locked = tomllib.loads((tmp_path / "uv.lock").read_text())
    sources = {row["name"]: row["source"].get("registry", "") for row in locked["package"]}
    assert "cu126" in sources["torch"] and "cu126" not in sources["framework"]
    ran = run(uv(), "sync", "--dry-run", "--no-cache", "--python", sys.executable, cwd=tmp_path)
    assert ran.returncode == 0 and "torch==2.13.0+cu126" in ran.stderr


def test_the_project_says_which_machines_and_what_is_built(plan):
    built = plan.replace(kernels=(KernelPlan("flash-attn", "2.8.3", "build", "no wheel"),))
    data = tomllib.loads(files.render_plan_file(built, "pyproject"))
    assert data["project"]["requires-python"] == f"=={PYTHON}.*"
    assert data["tool"]["uv"]["no-build-isolation-package"] == ["flash-attn"]
    assert "x86_64" in data["tool"]["uv"]["environments"][0]
    assert data["tool"]["uv"]["sources"] == {"torch": {"index": "cu126"}}
    assert "flash-attn==2.8.3" in data["project"]["dependencies"]


# -- conda ----------------------------------------------------------------------------------------------


def test_the_conda_file_is_yaml_whose_pip_section_is_taken_as_conda_hands_it_over(plan, tmp_path):
    data = yaml.safe_load(files.render_plan_file(plan, "conda"))
    assert data["channels"] == ["conda-forge", "nodefaults"]
    assert f"python={PYTHON}" in data["dependencies"]
    assert data["variables"] == plan.variables
    [pip] = [row["pip"] for row in data["dependencies"] if isinstance(row, dict)]
    (tmp_path / "condaenv.txt").write_text("\n".join(pip) + "\n")  # conda writes these lines to a file for pip
    words = (sys.executable, "-m", "pip", "install", "--dry-run", "--target", "t", "--no-cache-dir")
    ran = run(*words, "-r", "condaenv.txt", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "framework-5.22.0" in ran.stdout


# -- the lock -------------------------------------------------------------------------------------------


def test_the_lock_reads_back_as_the_plan_without_addresses(plan, shop):
    text = files.render_plan_file(plan, "lock")
    data = json.loads(text)
    again = Plan.from_json(data)
    assert data["kind"] == "lock" and again.lock == plan.lock and again.torch == plan.torch
    assert not again.indexes and str(shop["root"]) not in text and "://" not in text
    assert files.render_plan_file(plan.replace(lock=plan.lock[::-1]), "lock") == text


# -- what cannot be written -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", files.FILE_FORMATS)
def test_what_is_impossible_is_no_file(plan, form):
    with pytest.raises(ValueError, match=r"^there is no plan for framework 5.22 to write"):
        files.render_plan_file(plan.replace(verdict="impossible"), form)


@pytest.mark.parametrize("form", files.FILE_FORMATS)
def test_what_is_not_resolved_says_so_or_is_refused(form):
    if form in files.HASHED_FORMATS:
        with pytest.raises(ValueError, match="not resolved here: no index was reached"):
            files.render_plan_file(UNRESOLVED, form)
        return
    text = files.render_plan_file(UNRESOLVED, form)
    assert "# UNRESOLVED: not resolved here: no index was reached" in text
    assert "--require-hashes" not in text


def test_an_unresolved_script_runs_the_steps_of_the_plan():
    text = files.render_plan_file(UNRESOLVED, "shell")
    assert is_shell(text) and text.count("uv venv") == 1 and "gpuready check transformers --python" in text
    assert 'uv pip install --python "$PYTHON" --torch-backend cu126 torch==2.13.0' in text
    runs = [rest for name, rest in parsed(files.render_plan_file(UNRESOLVED, "dockerfile")) if name == "RUN"]
    assert any("--torch-backend cu126 torch==2.13.0" in words for words in runs)
    data = tomllib.loads(files.render_plan_file(UNRESOLVED, "pyproject"))
    assert data["project"]["dependencies"] == ["torch==2.13.0+cu126", "transformers==5.22.0"]


def test_a_form_that_there_is_not(plan):
    with pytest.raises(ValueError, match="choose lock, requirements"):
        files.render_plan_file(plan, "nix")


def test_no_image_no_dockerfile(plan):
    with pytest.raises(ValueError, match="no container image is known"):
        files.render_plan_file(plan.replace(image=""), "dockerfile")


@pytest.mark.parametrize(
    ("path", "form"),
    [("Dockerfile", "dockerfile"), ("a/b/Dockerfile.gpu", "dockerfile"), ("x.lock", "lock"), ("job.sbatch", "slurm"),
     ("job.slurm", "slurm"), ("requirements.txt", "requirements"), ("requirements-gpu.txt", "requirements"),
     ("pyproject.toml", "pyproject"), ("environment.yml", "conda"), ("environment.yaml", "conda"), ("i.sh", "shell"),
     ("p.json", "json"), ("notes.txt", None), ("compose.yaml", "compose"), ("a/docker-compose.yml", "compose"), ("compose.gpu.yml", "compose"),
     ("job.yaml", "kubernetes"), ("train.k8s.yaml", "kubernetes"), ("config.yaml", None), ("x.toml", None), (".sh", None), ("plan", None)],
)  # fmt: skip
def test_the_form_that_a_name_says(path, form):
    assert files.guess_file_format(path) == form
