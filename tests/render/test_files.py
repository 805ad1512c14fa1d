"""Each file of a plan is taken by its real reader: uv, pip, bash, YAML, TOML, the syntax of a Dockerfile."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tarmac.model import Step
from tarmac.planned import Kernel, Locked, Plan
from tarmac.render import files
from tests.render.dockerfiles import parsed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYTHON = "{}.{}".format(*sys.version_info[:2])


def wheel(folder: Path, name: str, version: str, *requires: str) -> str:
    """A tiny wheel with one module; its hash."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    asked = "".join(f"Requires-Dist: {line}\n" for line in requires)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{asked}"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def page(folder: Path, root: Path, names: list[str]) -> str:
    """A simple index of the wheels in a folder, as plain files; its address."""
    for name in names:
        place = root / name
        place.mkdir(parents=True)
        links = [p for p in folder.iterdir() if p.name.startswith(f"{name}-")]
        found = [f'<a href="{p.as_uri()}">{p.name}</a>' for p in links]
        (place / "index.html").write_text("<!DOCTYPE html><html><body>" + "".join(found) + "</body></html>")
    return root.as_uri()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Two indexes of tiny wheels: the default one, and one that alone has torch's build."""
    root = tmp_path_factory.mktemp("shop")
    (root / "wheels").mkdir()
    (root / "builds").mkdir()
    hashes = {
        "framework": wheel(root / "wheels", "framework", "5.22.0", "torch>=2", "helper-kit<2"),
        "helper-kit": wheel(root / "wheels", "helper_kit", "1.4.2"),
        "torch": wheel(root / "builds", "torch", "2.13.0+cu126"),
    }
    return {
        "hashes": hashes,
        "default": page(root / "wheels", root / "simple", ["framework", "helper_kit"]).replace("helper_kit", "helper-kit"),
        "cu126": page(root / "builds", root / "cu126", ["torch"]),
        "root": root,
    }  # fmt: skip


@pytest.fixture
def plan(shop) -> Plan:
    (shop["root"] / "simple" / "helper-kit").exists() or (shop["root"] / "simple" / "helper_kit").rename(
        shop["root"] / "simple" / "helper-kit"
    )
    rows = (
        Locked("framework", "5.22.0", (shop["hashes"]["framework"],), via=("the plan",)),
        Locked("helper-kit", "1.4.2", (shop["hashes"]["helper-kit"],), via=("framework",)),
        Locked("torch", "2.13.0+cu126", (shop["hashes"]["torch"], "sha256:" + "0" * 64), "cu126"),
    )
    return Plan(
        "framework", "5.22", "plan", machine="h100x8", python=PYTHON, torch="2.13.0+cu126", cuda="12.6",
        index="cu126", platform="x86_64-manylinux_2_28", packages={row.name: row.version for row in rows},
        lock=rows, resolved="resolved", image="nvidia/cuda:12.6.3-runtime-ubuntu24.04", tools={"uv": "0.13.7"},
        image_flags=("--gpus", "all", "--shm-size=10g", "--ulimit", "memlock=-1"), catalog="2026-11-15",
        indexes={"pypi": shop["default"], "cu126": shop["cu126"]},
        variables={"TOKENIZERS_PARALLELISM": "false", "ODD": "it's \"$HOME\" `x` \\"},
        unset=("FORCE_CUDA",), host={"gpus": 8, "cpus": 96, "memory": 1 << 40},
    )  # fmt: skip


UNRESOLVED = Plan(
    "transformers", "5.22", "plan", python="3.12", torch="2.13.0+cu126", cuda="12.6", index="cu126",
    packages={"transformers": "5.22.0", "torch": "2.13.0+cu126"}, image="nvidia/cuda:12.6.3-runtime-ubuntu24.04",
    resolved="not resolved here: no index was reached",
    steps=(
        Step("make it", ("uv", "venv", "--python", "3.12", ".venv"), "safe"),
        Step("install torch", ("uv", "pip", "install", "--python", ".venv", "--torch-backend", "cu126", "torch==2.13.0"), "ask"),
        Step("install it", ("uv", "pip", "install", "--python", ".venv", "transformers==5.22.0"), "ask"),
        Step("see that it is clear", ("tarmac", "check", "transformers"), "safe"),
    ),
)  # fmt: skip


def run(*words, cwd=None, **more):
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("UV_", "PIP_"))}
    nobody = {
        "XDG_CONFIG_HOME": "/nonexistent",
        "XDG_CONFIG_DIRS": "/nonexistent",
        "PIP_CONFIG_FILE": os.devnull,
    }
    env = plain | {"UV_PYTHON_DOWNLOADS": "never"} | nobody | more
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)


def uv() -> str:
    import uv as package

    return package.find_uv_bin()


# -- requirements ---------------------------------------------------------------------------------------


def test_requirements_are_taken_by_uv(plan, tmp_path):
    (tmp_path / "requirements.txt").write_text(files.document(plan, "requirements"))
    assert run(uv(), "venv", "--python", sys.executable, ".venv", cwd=tmp_path).returncode == 0
    flags = ("--index-strategy", "unsafe-best-match", "--python", ".venv", "--no-cache")
    ran = run(
        uv(),
        "pip",
        "install",
        "--dry-run",
        "--require-hashes",
        *flags,
        "-r",
        "requirements.txt",
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    for line in ("torch==2.13.0+cu126", "framework==5.22.0", "helper-kit==1.4.2"):
        assert f"+ {line}" in ran.stderr


def test_requirements_are_taken_by_pip(plan, tmp_path):
    (tmp_path / "requirements.txt").write_text(files.document(plan, "requirements"))
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--require-hashes",
        "--target",
        "t",
        "--no-cache-dir",
    )
    ran = run(*pip, "-r", "requirements.txt", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Would install" in ran.stdout and "torch-2.13.0+cu126" in ran.stdout


@pytest.mark.parametrize("reader", ["uv", "pip"])
def test_another_file_under_the_same_name_is_refused(plan, tmp_path, reader):
    forged = tuple(
        row.but(hashes=("sha256:" + "f" * 64,)) if row.name == "torch" else row for row in plan.lock
    )
    (tmp_path / "requirements.txt").write_text(files.document(plan.but(lock=forged), "requirements"))
    if reader == "pip":
        pip = (sys.executable, "-m", "pip", "install", "--dry-run", "--target", "t", "--no-cache-dir")
        ran = run(*pip, "--require-hashes", "-r", "requirements.txt", cwd=tmp_path)
    else:
        run(uv(), "venv", "--python", sys.executable, ".venv", cwd=tmp_path)
        flags = (
            "--index-strategy",
            "unsafe-best-match",
            "--python",
            ".venv",
            "--no-cache",
            "--require-hashes",
        )
        ran = run(uv(), "pip", "install", *flags, "-r", "requirements.txt", cwd=tmp_path)
    assert ran.returncode != 0 and "hash" in (ran.stdout + ran.stderr).lower()


def test_what_comes_from_no_index_is_said_and_not_listed(plan):
    rows = (*plan.lock, Locked("roll", "0.3.0", origin="/src/it's roll"))
    text = files.document(plan.but(lock=rows), "requirements")
    assert (
        not re.search(r"^roll", text, re.M) and "#   uv pip install --no-deps '/src/it'\"'\"'s roll'" in text
    )


# -- the project ----------------------------------------------------------------------------------------


def test_a_torch_from_a_folder_of_wheels_is_asked_of_its_index(plan):
    """The folder is of the machine that planned: no file may take its name for an index."""
    rows = tuple(row.but(index="find-links") if row.name == "torch" else row for row in plan.lock)
    for form in ("requirements", "pyproject", "conda", "dockerfile", "shell"):
        text = files.document(plan.but(lock=rows), form)
        assert "--torch-backend find-links" not in text and "index find-links" not in text
        assert plan.indexes["cu126"] in text and "add --find-links FOLDER" in text
    bare = files.document(plan.but(lock=rows, indexes={}), "shell")
    assert "--torch-backend cu126" in bare


def test_the_project_is_locked_by_uv_and_torch_comes_from_its_index_alone(plan, tmp_path):
    here = plan.but(platform="")  # the machine of the test, whatever it is
    (tmp_path / "pyproject.toml").write_text(files.document(here, "pyproject"))
    ran = run(uv(), "lock", "--no-cache", "--python", sys.executable, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    locked = tomllib.loads((tmp_path / "uv.lock").read_text())
    sources = {row["name"]: row["source"].get("registry", "") for row in locked["package"]}
    assert "cu126" in sources["torch"] and "cu126" not in sources["framework"]
    ran = run(uv(), "sync", "--dry-run", "--no-cache", "--python", sys.executable, cwd=tmp_path)
    assert ran.returncode == 0 and "torch==2.13.0+cu126" in ran.stderr


def test_the_project_says_which_machines_and_what_is_built(plan):
    built = plan.but(kernels=(Kernel("flash-attn", "2.8.3", "build", "no wheel"),))
    data = tomllib.loads(files.document(built, "pyproject"))
    assert data["project"]["requires-python"] == f"=={PYTHON}.*"
    assert data["tool"]["uv"]["no-build-isolation-package"] == ["flash-attn"]
    assert "x86_64" in data["tool"]["uv"]["environments"][0]
    assert data["tool"]["uv"]["sources"] == {"torch": {"index": "cu126"}}
    assert "flash-attn==2.8.3" in data["project"]["dependencies"]


# -- conda ----------------------------------------------------------------------------------------------


def test_the_conda_file_is_yaml_whose_pip_section_is_taken_as_conda_hands_it_over(plan, tmp_path):
    data = yaml.safe_load(files.document(plan, "conda"))
    assert data["channels"] == ["conda-forge", "nodefaults"]
    assert f"python={PYTHON}" in data["dependencies"]
    assert data["variables"] == plan.variables
    [pip] = [row["pip"] for row in data["dependencies"] if isinstance(row, dict)]
    (tmp_path / "condaenv.txt").write_text(
        "\n".join(pip) + "\n"
    )  # conda writes these lines to a file for pip
    words = (sys.executable, "-m", "pip", "install", "--dry-run", "--target", "t", "--no-cache-dir")
    ran = run(*words, "-r", "condaenv.txt", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "framework-5.22.0" in ran.stdout


# -- the Dockerfile -------------------------------------------------------------------------------------


def test_a_dockerfile(plan):
    text = files.document(plan, "dockerfile")
    steps = parsed(text)
    assert steps[0] == ("FROM", "nvidia/cuda:12.6.3-runtime-ubuntu24.04")
    names = [name for name, _ in steps]
    assert names[-1] == "CMD" and names.index("USER") > max(i for i, n in enumerate(names) if n == "RUN")
    assert ("USER", "1001") in steps
    assert any("--require-hashes" in rest for name, rest in steps if name == "RUN")
    assert "docker run --rm -it --gpus all --shm-size=10g --ulimit memlock=-1 framework" in text
    runs = [rest for name, rest in steps if name == "RUN"]
    apt = next(rest for rest in runs if "apt-get install" in rest)
    assert "--no-install-recommends" in apt and "rm -rf /var/lib/apt/lists/*" in apt and " -y " in apt
    assert not re.search(r":latest\b|\bsudo\b|ADD ", text)
    assert not re.search(r"(?i)(token|password|secret)\s*=", text)
    for words in runs:
        assert subprocess.run(["bash", "-n", "-c", words], check=False).returncode == 0


def test_the_requirements_inside_a_dockerfile_are_the_requirements(plan):
    [copied] = [rest for name, rest in parsed(files.document(plan, "dockerfile")) if name == "COPY"]
    inside = copied.partition("\n")[2]
    alone = files.document(plan, "requirements")
    assert inside.splitlines() == [x for x in alone.splitlines() if x and not x.lstrip().startswith("#")]


def test_no_line_of_a_dockerfile_is_longer_than_docker_reads(plan):
    many = tuple("sha256:" + hashlib.sha256(str(i).encode()).hexdigest() for i in range(2000))
    text = files.document(plan.but(lock=(plan.lock[0].but(hashes=many), *plan.lock[1:])), "dockerfile")
    assert max(map(len, text.splitlines())) < 65535


def test_a_framework_s_own_image_is_not_built_anew():
    roll = Plan("roll", "0.3.0", "plan", variant="torch280-vllm", torch="2.8.0+cu129", cuda="12.9", image="host/roll:1",
                image_has="torch 2.8.0, CUDA 12.9, vllm 0.11.0", image_flags=("--gpus", "all", "--shm-size=10gb"))  # fmt: skip
    text = files.document(roll, "dockerfile")
    steps = parsed(text)
    assert ("FROM", "host/roll:1") in steps and not any("apt-get" in rest for _, rest in steps)
    assert "--gpus all --shm-size=10gb" in text and any(
        "--no-deps -e /workspace/roll" in rest for _, rest in steps
    )


def test_kernels_are_built_after_torch_by_their_own_steps(plan):
    steps = (Step("by hand", (), "manual"), Step("build", ("env", "MAX_JOBS=4", "uv", "pip", "install", "--no-build-isolation", "flash-attn==2.8.3"), "ask"))  # fmt: skip
    rows = (*plan.lock, Locked("flash-attn", "2.8.3", ("sha256:" + "1" * 64,)))
    built = plan.but(kernels=(Kernel("flash-attn", "2.8.3", "build", "x", steps=steps),), lock=rows)
    runs = [rest for name, rest in parsed(files.document(built, "dockerfile")) if name == "RUN"]
    [layer] = [words for words in runs if "--require-hashes" in words]
    before, after = layer.split(" && ")[:2]
    assert (
        "flash-attn==" not in before
        and "env MAX_JOBS=4 uv pip install --python /opt/venv/bin/python" in after
    )
    assert not re.search(r"^flash-attn==", files.document(built, "requirements"), re.M)
    assert 'env MAX_JOBS=4 uv pip install --python "$PYTHON" --no-build' in files.document(built, "shell")


# -- Slurm and the shell --------------------------------------------------------------------------------


def is_shell(text: str) -> bool:
    return subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_the_slurm_head(plan, tmp_path):
    text = files.document(plan, "slurm")
    assert is_shell(text) and text.startswith("#!/bin/bash\n#SBATCH ")
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.M))
    assert asked["gpus-per-node"] == "8" and asked["cpus-per-task"] == "96" and asked["mem"] == "972G"
    assert (
        "module load" not in text
        and "export TOKENIZERS_PARALLELISM=false" in text
        and "unset FORCE_CUDA" in text
    )
    # Run for real, with Slurm's own programs played by two scripts.
    for name, body in (("srun", 'printf "%s\\n" "$@" "ODD=$ODD"'), ("scontrol", "echo node-1")):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\n{body}\n")
        tool.chmod(0o755)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").write_text("")
    (tmp_path / "job.sbatch").write_text(text)
    more = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n", "SLURM_JOB_ID": "7",
            "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "96"}  # fmt: skip
    ran = run("bash", "job.sbatch", "train.py", "--lr 1", cwd=tmp_path, **more)
    assert ran.returncode == 0, ran.stderr
    words = ran.stdout.splitlines()
    assert words[-3:] == ["train.py", "--lr 1", f"ODD={plan.variables['ODD']}"]
    assert "--rdzv-endpoint=node-1:20007" in words and "--nnodes=2" in words


def test_what_is_not_known_of_a_machine_is_not_asked_for(plan):
    text = files.document(plan.but(host={}), "slurm")
    assert "gpus-per-node" not in text and "--mem" not in text and "cpus-per-task" not in text


def test_the_script_makes_the_environment_and_can_run_again(plan, tmp_path):
    path = tmp_path / "make.sh"
    path.write_text(files.document(plan, "shell"))
    bin_folder = str(Path(uv()).parent)
    more = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "UV_NO_CACHE": "1", "UV_PYTHON": sys.executable}
    for _ in range(2):
        ran = run("bash", str(path), "an environment", cwd=tmp_path, **more)
        assert ran.returncode == 0, ran.stderr
    python = tmp_path / "an environment" / "bin" / "python"
    said = run(str(python), "-c", "import torch, framework; print(torch.VERSION, framework.VERSION)")
    assert said.stdout.split() == ["2.13.0+cu126", "5.22.0"]
    sourced = run(
        "bash", "-c", f'source {shlex.quote(str(python.parent.parent / "variables.sh"))}; printf %s "$ODD"'
    )
    assert sourced.stdout == plan.variables["ODD"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["an environment", "make.sh"]


def test_the_script_stops_where_a_hash_differs(plan, tmp_path):
    forged = tuple(row.but(hashes=("sha256:" + "f" * 64,)) for row in plan.lock)
    (tmp_path / "make.sh").write_text(files.document(plan.but(lock=forged), "shell"))
    more = {
        "PATH": f"{Path(uv()).parent}:{os.environ['PATH']}",
        "UV_NO_CACHE": "1",
        "UV_PYTHON": sys.executable,
    }
    ran = run("bash", "make.sh", cwd=tmp_path, **more)
    assert ran.returncode != 0 and "done" not in ran.stdout


def test_a_script_that_mends_is_its_steps(plan):
    steps = (
        Step("remove it", ("uv", "pip", "uninstall", "roll"), "ask"),
        Step(
            "install driver 580",
            ("sudo", "apt-get", "install", "nvidia-driver-580"),
            "manual",
            note="needs root",
        ),
    )
    text = files.document(plan.but(steps=steps, lock=(), options={"fix": True}), "shell")
    assert is_shell(text) and "\nuv pip uninstall roll\n" in text
    assert "\nsudo" not in text and "echo 'by hand: install driver 580 (needs root): sudo apt-get" in text
    with pytest.raises(ValueError, match="shell script or as JSON"):
        files.document(plan.but(options={"fix": True}), "conda")


# -- the lock -------------------------------------------------------------------------------------------


def test_the_lock_reads_back_as_the_plan_without_addresses(plan, shop):
    text = files.document(plan, "lock")
    data = json.loads(text)
    again = Plan.from_json(data)
    assert data["kind"] == "lock" and again.lock == plan.lock and again.torch == plan.torch
    assert not again.indexes and str(shop["root"]) not in text and "://" not in text
    assert files.document(plan.but(lock=plan.lock[::-1]), "lock") == text


# -- what cannot be written -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", files.FORMS)
def test_what_is_impossible_is_no_file(plan, form):
    with pytest.raises(ValueError, match=r"^there is no plan for framework 5.22 to write"):
        files.document(plan.but(verdict="impossible"), form)


@pytest.mark.parametrize("form", files.FORMS)
def test_what_is_not_resolved_says_so_or_is_refused(form):
    if form in files.HASHED:
        with pytest.raises(ValueError, match="not resolved here: no index was reached"):
            files.document(UNRESOLVED, form)
        return
    text = files.document(UNRESOLVED, form)
    assert "# UNRESOLVED: not resolved here: no index was reached" in text
    assert "--require-hashes" not in text


def test_an_unresolved_script_runs_the_steps_of_the_plan():
    text = files.document(UNRESOLVED, "shell")
    assert is_shell(text) and text.count("uv venv") == 1 and "tarmac check transformers --python" in text
    assert 'uv pip install --python "$PYTHON" --torch-backend cu126 torch==2.13.0' in text
    runs = [rest for name, rest in parsed(files.document(UNRESOLVED, "dockerfile")) if name == "RUN"]
    assert any("--torch-backend cu126 torch==2.13.0" in words for words in runs)
    data = tomllib.loads(files.document(UNRESOLVED, "pyproject"))
    assert data["project"]["dependencies"] == ["torch==2.13.0+cu126", "transformers==5.22.0"]


def test_a_form_that_there_is_not(plan):
    with pytest.raises(ValueError, match="choose lock, requirements"):
        files.document(plan, "nix")


def test_no_image_no_dockerfile(plan):
    with pytest.raises(ValueError, match="no container image is known"):
        files.document(plan.but(image=""), "dockerfile")


@pytest.mark.parametrize(
    ("path", "form"),
    [("Dockerfile", "dockerfile"), ("a/b/Dockerfile.gpu", "dockerfile"), ("x.lock", "lock"), ("job.sbatch", "slurm"),
     ("job.slurm", "slurm"), ("requirements.txt", "requirements"), ("requirements-gpu.txt", "requirements"),
     ("pyproject.toml", "pyproject"), ("environment.yml", "conda"), ("environment.yaml", "conda"), ("i.sh", "shell"),
     ("p.json", "json"), ("notes.txt", None), ("x.toml", None), (".sh", None), ("plan", None)],
)  # fmt: skip
def test_the_form_that_a_name_says(path, form):
    assert files.form_of(path) == form


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not here")
@pytest.mark.parametrize("form", ["shell", "slurm"])
def test_shellcheck(plan, form):
    text = files.document(plan.but(variables={"A": "b"}), form)
    ran = subprocess.run(["shellcheck", "-"], input=text, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not here")
@pytest.mark.parametrize("resolved", [True, False])
def test_hadolint(plan, resolved):
    text = files.document(plan.but(variables={}) if resolved else UNRESOLVED, "dockerfile")
    ran = subprocess.run(["hadolint", "-"], input=text, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stdout
