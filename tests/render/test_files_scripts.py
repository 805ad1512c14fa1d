"""The files of a plan that run: the Dockerfile, the shell script, the head of a Slurm job."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpuready.model import FixStep
from gpuready.model.plan import KernelPlan, LockedPackage, Plan
from gpuready.render import files
from tests.render.dockerfiles import parsed
from tests.render.planned import UNRESOLVED, is_shell, run, uv

BESIDE = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
HADOLINT = shutil.which("hadolint", path=BESIDE)

# -- the Dockerfile -------------------------------------------------------------------------------------


def test_a_dockerfile(plan):
    text = files.render_plan_file(plan, "dockerfile")
    steps = parsed(text)
    assert steps[0] == ("FROM", "nvidia/cuda:12.6.3-runtime-ubuntu24.04")
    names = [name for name, _ in steps]
    assert names[-1] == "CMD" and names.index("USER") > max(i for i, n in enumerate(names) if n == "RUN")
    assert ("USER", "1001") in steps
    assert any("--require-hashes" in rest for name, rest in steps if name == "RUN")
    assert "docker run --rm -it --gpus all --shm-size=10g --ulimit memlock=-1 -v .:/workspace framework" in text
    runs = [rest for name, rest in steps if name == "RUN"]
    apt = next(rest for rest in runs if "apt-get install" in rest)
    assert "--no-install-recommends" in apt and "rm -rf /var/lib/apt/lists/*" in apt and " -y " in apt
    assert not re.search(r":latest\b|\bsudo\b|ADD ", text)
    assert not re.search(r"(?i)(token|password|secret)\s*=", text)
    for words in runs:
        assert subprocess.run(["bash", "-n", "-c", words], check=False).returncode == 0


def test_a_dockerfile_is_short_and_its_hashes_are_in_a_file_beside_it(plan):
    many = tuple("sha256:" + hashlib.sha256(str(i).encode()).hexdigest() for i in range(2000))
    long = plan.replace(lock=(plan.lock[0].replace(hashes=many), *plan.lock[1:]))
    text = files.render_plan_file(long, "dockerfile")
    [(name, requirements)] = files.companion_files(long, "dockerfile").items()
    assert len(text.splitlines()) < 60 and ("COPY", f"{name} /opt/{name}") in parsed(text)
    assert requirements == files.render_plan_file(long, "requirements") and requirements.count("--hash=") > 2000
    assert files.guess_file_format(name) == "requirements"
    open_plan = plan.replace(lock=(), resolved="not resolved here: --no-resolve was asked for")
    assert files.companion_files(open_plan, "dockerfile") == {} == files.companion_files(plan, "slurm")


def test_a_compose_file(plan):
    started = plan.replace(start=("axolotl", "train", "my $cfg.yml"))
    text = files.render_plan_file(started, "compose")
    (service,) = yaml.safe_load(text)["services"].values()
    assert service["command"] == ["axolotl", "train", "my $$cfg.yml"], "compose replaces one dollar"
    inside = service["build"]["dockerfile_inline"].replace("$$", "$")
    assert parsed(inside) == parsed(files.render_plan_file(started, "dockerfile"))
    assert service["shm_size"] == "10g" and service["ulimits"] == {"memlock": -1}
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    amd = plan.replace(image_flags=("--device=/dev/kfd", "--device", "/dev/dri", "--group-add", "video"))
    (service,) = yaml.safe_load(files.render_plan_file(amd, "compose"))["services"].values()
    assert service["devices"] == ["/dev/kfd", "/dev/dri"] and service["group_add"] == ["video"]
    assert "deploy" not in service


def test_a_kubernetes_job(plan):
    text = files.render_plan_file(plan.replace(start=("axolotl", "train", "a: b.yml")), "kubernetes")
    job = yaml.safe_load(text)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (job["kind"], job["metadata"]["name"]) == ("Job", "framework")
    assert container["command"] == ["axolotl", "train", "a: b.yml"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert {row["name"]: row["value"] for row in container["env"]} == plan.variables
    cpu = yaml.safe_load(files.render_plan_file(plan.replace(cuda="", torch="2.13.0+cpu"), "kubernetes"))
    assert "resources" not in cpu["spec"]["template"]["spec"]["containers"][0]


def test_a_batch_job_ends_in_the_framework_s_own_command(plan, tmp_path):
    text = files.render_plan_file(plan.replace(start=("axolotl", "train", "it's.yml")), "slurm")
    assert "torchrun" not in text and "MASTER_ADDR" not in text
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "activate").write_text("")
    stub = 'srun() { printf "%s\\n" "$@"; }\n'
    for words, last in (([], ["axolotl", "train", "it's.yml"]), (["other", "a b"], ["other", "a b"])):
        argv = ["bash", "-c", stub + text, "job", *words]
        env = {"VENV": str(tmp_path), "PATH": os.environ["PATH"], "SLURM_CPUS_PER_TASK": "4"}
        ran = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        assert ran.stdout.splitlines()[-len(last) :] == last
    script = files.render_plan_file(plan.replace(start=("torchrun", "--nproc-per-node", "8", "train.py")), "slurm")
    assert "--rdzv-endpoint" in script, "a script is started on every node"


def test_no_line_of_a_dockerfile_is_longer_than_docker_reads(plan):
    many = tuple("sha256:" + hashlib.sha256(str(i).encode()).hexdigest() for i in range(2000))
    text = files.render_plan_file(plan.replace(lock=(plan.lock[0].replace(hashes=many), *plan.lock[1:])), "dockerfile")
    assert max(map(len, text.splitlines())) < 65535


def test_a_framework_s_own_image_is_not_built_anew():
    roll = Plan("roll", "0.3.0", "plan", variant="torch280-vllm", torch="2.8.0+cu129", cuda="12.9", image="host/roll:1",
                image_has="torch 2.8.0, CUDA 12.9, vllm 0.11.0", image_flags=("--gpus", "all", "--shm-size=10gb"))  # fmt: skip
    text = files.render_plan_file(roll, "dockerfile")
    steps = parsed(text)
    assert ("FROM", "host/roll:1") in steps and not any("apt-get" in rest for _, rest in steps)
    assert "--gpus all --shm-size=10gb" in text and any("--no-deps -e /workspace/roll" in rest for _, rest in steps)


def test_kernels_are_built_after_torch_by_their_own_steps(plan):
    steps = (FixStep("by hand", (), "manual"), FixStep("build", ("env", "MAX_JOBS=4", "uv", "pip", "install", "--no-build-isolation", "flash-attn==2.8.3"), "ask"))  # fmt: skip
    rows = (*plan.lock, LockedPackage("flash-attn", "2.8.3", ("sha256:" + "1" * 64,)))
    built = plan.replace(kernels=(KernelPlan("flash-attn", "2.8.3", "build", "x", steps=steps),), lock=rows)
    runs = [rest for name, rest in parsed(files.render_plan_file(built, "dockerfile")) if name == "RUN"]
    [layer] = [words for words in runs if "--require-hashes" in words]
    before, after = layer.split(" && ")[:2]
    assert "flash-attn==" not in before and "env MAX_JOBS=4 uv pip install --python /opt/venv/bin/python" in after
    assert not re.search(r"^flash-attn==", files.render_plan_file(built, "requirements"), re.M)
    assert 'env MAX_JOBS=4 uv pip install --python "$PYTHON" --no-build' in files.render_plan_file(built, "shell")


def test_the_slurm_head(plan, tmp_path):
    text = files.render_plan_file(plan, "slurm")
    assert is_shell(text) and text.startswith("#!/bin/bash\n#SBATCH ")
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.M))
    assert asked["gpus-per-node"] == "8" and asked["cpus-per-task"] == "96" and asked["mem"] == "972G"
    assert "module load" not in text and "export TOKENIZERS_PARALLELISM=false" in text and "unset FORCE_CUDA" in text
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
    text = files.render_plan_file(plan.replace(host={}), "slurm")
    assert "gpus-per-node" not in text and "--mem" not in text and "cpus-per-task" not in text


def test_the_script_makes_the_environment_and_can_run_again(plan, tmp_path):
    path = tmp_path / "make.sh"
    path.write_text(files.render_plan_file(plan, "shell"))
    bin_folder = str(Path(uv()).parent)
    more = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "UV_NO_CACHE": "1", "UV_PYTHON": sys.executable}
    for _ in range(2):
        ran = run("bash", str(path), "an environment", cwd=tmp_path, **more)
        assert ran.returncode == 0, ran.stderr
    python = tmp_path / "an environment" / "bin" / "python"
    said = run(str(python), "-c", "import torch, framework; print(torch.VERSION, framework.VERSION)")
    assert said.stdout.split() == ["2.13.0+cu126", "5.22.0"]
    sourced = run("bash", "-c", f'source {shlex.quote(str(python.parent.parent / "variables.sh"))}; printf %s "$ODD"')
    assert sourced.stdout == plan.variables["ODD"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["an environment", "make.sh"]


def test_the_script_stops_where_a_hash_differs(plan, tmp_path):
    forged = tuple(row.replace(hashes=("sha256:" + "f" * 64,)) for row in plan.lock)
    (tmp_path / "make.sh").write_text(files.render_plan_file(plan.replace(lock=forged), "shell"))
    more = {"PATH": f"{Path(uv()).parent}:{os.environ['PATH']}", "UV_NO_CACHE": "1", "UV_PYTHON": sys.executable}
    ran = run("bash", "make.sh", cwd=tmp_path, **more)
    assert ran.returncode != 0 and "done" not in ran.stdout


def test_a_script_that_mends_is_its_steps(plan):
    steps = (
        FixStep("remove it", ("uv", "pip", "uninstall", "roll"), "ask"),
        FixStep("install driver 580", ("sudo", "apt-get", "install", "nvidia-driver-580"), "manual", note="needs root"),
    )
    text = files.render_plan_file(plan.replace(steps=steps, lock=(), options={"fix": True}), "shell")
    assert is_shell(text) and "\nuv pip uninstall roll\n" in text
    assert "\nsudo" not in text and "echo 'by hand: install driver 580 (needs root): sudo apt-get" in text
    with pytest.raises(ValueError, match="shell script or as JSON"):
        files.render_plan_file(plan.replace(options={"fix": True}), "conda")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not here")
@pytest.mark.parametrize("form", ["shell", "slurm"])
def test_shellcheck(plan, form):
    text = files.render_plan_file(plan.replace(variables={"A": "b"}), form)
    ran = subprocess.run(["shellcheck", "-"], input=text, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not here: tests/render/dockerfiles.py reads the same files")
@pytest.mark.parametrize("resolved", [True, False])
def test_hadolint(plan, resolved):
    text = files.render_plan_file(plan.replace(variables={}) if resolved else UNRESOLVED, "dockerfile")
    ran = subprocess.run([HADOLINT, "-"], input=text, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stdout
