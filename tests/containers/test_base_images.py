"""Which Python a Dockerfile installs into, on which system: what its base and its commands state, and what they leave open."""

from __future__ import annotations

import pytest

from gpuready import workflow
from gpuready.containers import base_image, dockerfile_facts
from tests.every import every
from tests.running import gpuready

OPEN = "nothing"


def facts_of(text, files=None):
    read = dockerfile_facts.read_dockerfile_facts((files or {}).get, "Dockerfile", text)
    return {fact.key: fact.value for fact in read if not fact.gap}


BASES = {
    "debian:12-slim": ("debian", "12", "2.36", OPEN, OPEN),
    "debian:trixie": ("debian", "13", "2.41", OPEN, OPEN),
    "debian": ("debian", OPEN, OPEN, OPEN, OPEN),
    "ubuntu:noble": ("ubuntu", "24.04", "2.39", OPEN, OPEN),
    "ubuntu:latest": ("ubuntu", OPEN, OPEN, OPEN, OPEN),
    "alpine:3.20.3": ("alpine", "3.20", None, OPEN, OPEN),
    "alpine": ("alpine", OPEN, None, OPEN, OPEN),
    "centos:7.9.2009": ("centos", "7.9", "2.17", OPEN, OPEN),
    "quay.io/centos/centos:stream9": ("centos", "9", "2.34", OPEN, OPEN),
    "rockylinux:9.3-minimal": ("rocky", "9.3", "2.34", OPEN, OPEN),
    "almalinux:8": ("almalinux", "8", "2.28", OPEN, OPEN),
    "amazonlinux:2023": ("amzn", "2023", "2.34", OPEN, OPEN),
    "registry.access.redhat.com/ubi9/python-311:1-77": ("rhel", "9", "2.34", OPEN, OPEN),
    "python:3.12-slim-bookworm": ("debian", "12", "2.36", "3.12", "/usr/local/bin/python"),
    "python:3.13-alpine": ("alpine", OPEN, None, "3.13", "/usr/local/bin/python"),
    "python:3.11-alpine3.19": ("alpine", "3.19", None, "3.11", "/usr/local/bin/python"),
    "python:3-slim-bookworm": ("debian", "12", "2.36", OPEN, "/usr/local/bin/python"),
    "python:slim": ("debian", OPEN, OPEN, OPEN, "/usr/local/bin/python"),
    "docker.io/library/python:3.10": ("debian", OPEN, OPEN, "3.10", "/usr/local/bin/python"),
    "nvidia/cuda:12.6.3-base-ubi9": ("rhel", "9", "2.34", OPEN, OPEN),
    "nvidia/cuda:12.3.1-base-rockylinux8": ("rocky", "8", "2.28", OPEN, OPEN),
    "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime": ("ubuntu", "22.04", "2.35", "3.11", "/opt/conda/bin/python"),
    "pytorch/pytorch:2.10.0-cuda13.0-cudnn9-devel": ("ubuntu", "24.04", "2.39", "3.12", "/usr/bin/python3"),
    "vllm/vllm-openai:v0.9.2": ("ubuntu", "22.04", "2.35", "3.12", "/usr/bin/python3"),
    "lmsysorg/sglang:v0.5.3.post1-cu126": ("ubuntu", "22.04", "2.35", "3.12", "/usr/bin/python3"),
    "nvcr.io/nvidia/pytorch:25.06-py3": ("ubuntu", "24.04", "2.39", "3.12", "/usr/bin/python3"),
    "rocm/pytorch:rocm6.4_ubuntu22.04_py3.10_pytorch_release_2.6.0": ("ubuntu", "22.04", "2.35", "3.10", OPEN),
    "rocm/dev-ubuntu-22.04:6.2": ("ubuntu", "22.04", "2.35", OPEN, OPEN),
    "axolotlai/axolotl:main-py3.11-cu126-2.7.1": ("ubuntu", "22.04", "2.35", "3.11", "/root/miniconda3/envs/py3.11/bin/python"),
    "quay.io/pypa/manylinux_2_28_x86_64": ("almalinux", "8", "2.28", OPEN, OPEN),
    "vllm/vllm-openai:latest": (OPEN, OPEN, OPEN, OPEN, OPEN),
    "ghcr.io/somebody/train:2025": (OPEN, OPEN, OPEN, OPEN, OPEN),
    "myteam/ubuntu22.04": (OPEN, OPEN, OPEN, OPEN, OPEN),
}  # fmt: skip


@every("image", BASES)
def test_a_base_states_its_system_its_c_library_and_its_python(image):
    found = facts_of(f"FROM {image}\n")
    keys = ("os.name", "os.version", "os.glibc", "python.version", "python.path")
    assert tuple(found.get(key, OPEN) for key in keys) == BASES[image]


def test_images_of_frameworks_bring_the_framework_and_its_torch():
    found = facts_of("FROM vllm/vllm-openai:v0.9.2\n")
    assert found["package.vllm"] == "0.9.2" and found["torch.cuda"] == "12.8" and found["toolkit.version"] == "12.8"
    assert facts_of("FROM rocm/pytorch:rocm6.4_ubuntu22.04_py3.10_pytorch_release_2.6.0\n")["torch.build"] == "rocm"
    assert base_image.parse_image_name("lmsysorg/sglang:v0.4.6.post1-rocm630").system == ""


APT = "RUN apt-get update && apt-get install -y python3 python3-pip python3-venv\n"
INTERPRETERS = {
    "the system's pip": ("FROM ubuntu:22.04\n" + APT + "RUN pip3 install numpy==1.26.4\n", "/usr/bin/python3", "3.10"),
    "a venv by its path": ("FROM debian:12\n" + APT + "RUN python3 -m venv /v && /v/bin/pip install numpy==1.26.4\n", "/v/bin/python", "3.11"),
    "a venv by PATH": ("FROM python:3.12\nRUN python -m venv /v\nENV PATH=/v/bin:$PATH\nRUN pip install numpy==1.26.4\n", "/v/bin/python", "3.12"),
    "uv into the system": ("FROM python:3.13-slim\nRUN pip install uv && uv pip install --system numpy==1.26.4\n", "/usr/local/bin/python", "3.13"),
    "uv by its variable": ("FROM python:3.13-slim\nENV UV_SYSTEM_PYTHON=1\nRUN uv pip install numpy==1.26.4\n", "/usr/local/bin/python", "3.13"),
    "uv's own venv": ("FROM ubuntu:22.04\nWORKDIR /app\nRUN uv venv -p 3.12 && uv pip install numpy==1.26.4\n", "/app/.venv/bin/python", "3.12"),
    "uv's venv by VIRTUAL_ENV": ("FROM ubuntu:22.04\nRUN uv venv --python=3.11 /opt/e\nENV VIRTUAL_ENV=/opt/e\nRUN uv pip install numpy==1.26.4\n", "/opt/e/bin/python", "3.11"),
    "uv --python": ("FROM ubuntu:22.04\nRUN uv venv -p 3.12 /opt/e && uv pip install --python /opt/e/bin/python numpy==1.26.4\n", "/opt/e/bin/python", "3.12"),
    "an apt Python that is not the system's": ("FROM ubuntu:22.04\nRUN apt-get install -y python3.12 python3.12-venv\nRUN python3.12 -m pip install numpy==1.26.4\n", "/usr/bin/python3.12", "3.12"),
    "Red Hat's second Python": ("FROM rockylinux:9\nRUN dnf install -y python3.12 python3.12-pip\nRUN pip3.12 install numpy==1.26.4\n", "/usr/bin/python3.12", "3.12"),
    "conda in an image": ("FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime\nRUN pip install numpy==1.26.4\n", "/opt/conda/bin/python", "3.11"),
    "uv by UV_PYTHON": ("FROM python:3.13-slim\nENV UV_PYTHON=/usr/local/bin/python\nRUN uv pip install numpy==1.26.4\n", "/usr/local/bin/python", "3.13"),
    "apt's python3 behind python's": ("FROM python:3.12-slim\n" + APT + "RUN pip install numpy==1.26.4\n", "/usr/local/bin/python", "3.12"),
    "two stages, the venv copied": ("FROM python:3.12 AS b\nRUN python -m venv /v && /v/bin/pip install numpy==1.26.4\nFROM python:3.12-slim\nCOPY --from=b /v /opt/v\nENV PATH=/opt/v/bin:$PATH\n", "/opt/v/bin/python", "3.12"),
    "an image that nobody knows": ("FROM team/train:1\nRUN pip install numpy==1.26.4\n", OPEN, OPEN),
}  # fmt: skip


@pytest.mark.parametrize("case", INTERPRETERS)
def test_a_pip_means_one_python(case):
    text, path, version = INTERPRETERS[case]
    found = facts_of(text)
    assert (found.get("python.path", OPEN), found.get("python.version", OPEN)) == (path, version)
    assert found["package.numpy"] == "1.26.4"


def test_what_conda_installs_by_name():
    found = facts_of(
        "FROM continuumio/miniconda3:latest\n"
        "RUN conda install -y -c pytorch python=3.11 pytorch==2.5.1 pytorch-cuda=12.4 cuda-toolkit=12.4.1 numpy=1.26.4\n"
    )
    expected = {
        "python.version": "3.11",
        "package.torch": "2.5.1+cu124",
        "package.numpy": "1.26.4",
        "toolkit.version": "12.4",
    }
    assert {key: found.get(key) for key in expected} == expected


def test_a_stage_that_is_not_copied_gives_nothing():
    text = "FROM python:3.12 AS b\nRUN pip install numpy==1.26.4\nFROM python:3.12-slim\nCOPY --from=b /srv/app /app\n"
    assert "package.numpy" not in facts_of(text)


def test_a_venv_does_not_have_the_packages_of_the_image():
    text = "FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime\nRUN python -m venv {}/v\nENV PATH=/v/bin:$PATH\nRUN pip install peft==0.17.0\n"
    assert "package.torch" not in facts_of(text.format(""))
    assert facts_of(text.format("--system-site-packages "))["package.torch"] == "2.6.0+cu124"


REFUSED = {
    "ubuntu 24.04": ("FROM ubuntu:24.04\n" + APT + "RUN pip3 install numpy\n", True),
    "debian 12": ("FROM debian:bookworm\n" + APT + "RUN python3 -m pip install -U pip\n", True),
    "alpine 3.21": ("FROM alpine:3.21\nRUN apk add --no-cache py3-pip\nRUN pip install numpy\n", True),
    "CUDA on ubuntu 24.04": ("FROM nvidia/cuda:12.8.1-devel-ubuntu24.04\n" + APT + "RUN pip install torch==2.8.0\n", True),
    "uv without a venv, which is not judged": ("FROM python:3.12\nRUN uv pip install numpy\n", False),
    "uv --system into the system's": ("FROM ubuntu:24.04\n" + APT + "RUN uv pip install --system numpy\n", True),
    "uv by UV_PYTHON": ("FROM python:3.12\nENV UV_PYTHON=/usr/local/bin/python\nRUN uv pip install numpy\n", False),
    "the flag": ("FROM ubuntu:24.04\n" + APT + "RUN pip3 install --break-system-packages numpy\n", False),
    "the variable": ("FROM ubuntu:24.04\nENV PIP_BREAK_SYSTEM_PACKAGES=1\n" + APT + "RUN pip3 install numpy\n", False),
    "the variable of one command": ("FROM ubuntu:24.04\n" + APT + "RUN PIP_BREAK_SYSTEM_PACKAGES=1 pip3 install numpy\n", False),
    "the marker removed": ("FROM ubuntu:24.04\n" + APT + "RUN rm /usr/lib/python3.12/EXTERNALLY-MANAGED && pip3 install numpy\n", False),
    "the marker found and deleted": ("FROM ubuntu:24.04\n" + APT + "RUN find / -name EXTERNALLY-MANAGED -delete; pip3 install numpy\n", False),
    "the variable exported": ("FROM ubuntu:24.04\n" + APT + "RUN export PIP_BREAK_SYSTEM_PACKAGES=1 && pip3 install numpy\n", False),
    "pip config": ("FROM ubuntu:24.04\n" + APT + "RUN pip3 config set global.break-system-packages true\nRUN pip3 install numpy\n", False),
    "pip.conf written": ("FROM ubuntu:24.04\n" + APT + "RUN printf '[global]\\nbreak-system-packages = true\\n' > /etc/pip.conf && pip3 install numpy\n", False),
    "pip.conf copied": ("FROM ubuntu:24.04\nCOPY pip.conf /etc/pip.conf\n" + APT + "RUN pip3 install numpy\n", False),
    "a failure that is caught": ("FROM ubuntu:24.04\n" + APT + "RUN pip3 install numpy && echo done || true\n", False),
    "help": ("FROM ubuntu:24.04\n" + APT + "RUN pip3 install --help\n", False),
    "a venv": ("FROM ubuntu:24.04\n" + APT + "RUN python3 -m venv /v && /v/bin/pip install numpy\n", False),
    "ubuntu 22.04": ("FROM ubuntu:22.04\n" + APT + "RUN pip3 install numpy\n", False),
    "python's own image": ("FROM python:3.12\n" + APT + "RUN pip3 install numpy\n", False),
    "rocky": ("FROM rockylinux:9\nRUN dnf install -y python3-pip && pip3 install numpy\n", False),
    "behind a condition": ("FROM ubuntu:24.04\n" + APT + "RUN if [ -n \"$X\" ]; then pip3 install numpy; fi\n", False),
    "no release": ("FROM ubuntu\n" + APT + "RUN pip3 install numpy\n", False),
    "PyTorch's image": ("FROM pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime\nRUN pip install numpy\n", True),
    "PyTorch's image, allowed": ("FROM pytorch/pytorch:2.12.0-cuda12.6-cudnn9-devel\nENV PIP_BREAK_SYSTEM_PACKAGES=1\nRUN pip install numpy\n", False),
    "PyTorch's image with conda": ("FROM pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime\nRUN pip install numpy\n", False),
}  # fmt: skip


@every("case", REFUSED)
def test_an_install_that_pip_refuses_is_seen(case):
    text, refused = REFUSED[case]
    assert ("container.refused" in facts_of(text)) is refused


def test_a_build_that_stops_is_an_error_that_names_its_line(tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text(REFUSED["ubuntu 24.04"][0])
    (finding,) = [f for f in checked(file).findings if f.code == "PKG045"]
    assert finding.says.startswith("the build stops at line 3: pip refuses") and finding.severity == "error"


def checked(file):
    return workflow.check_machine(["transformers"], on="h100", what_if={"driver": "580.95.05"}, dockerfile=str(file))[0]


LITERAL = "FROM python:3.12-slim-bookworm\n{}RUN pip install torch==2.8.0 transformers==5.5.0 accelerate==1.10.0\n"
UNREAD = {
    "a script": "RUN ./setup.sh",
    "a pipe": "RUN curl -fsSL https://x.example/install.sh | sh",
    "a condition": 'RUN if [ -n "$X" ]; then pip install torch==2.6.0; fi',
    "an alternative": "RUN pip install torch==2.6.0 || true",
    "a loop": "RUN for p in torch vllm; do pip install $p; done",
    "a here-document": "RUN <<EOF\npip install torch==2.6.0\nEOF",
    "the output of a command": "RUN pip install torch==$(cat version)",
    "a variable that nobody states": "RUN pip install $PACKAGE",
    "a variable of the script": "RUN V=2.6.0; pip install torch==$V",
    "an environment activated": "RUN . /opt/venv/bin/activate && pip install torch==2.6.0",
    "a folder": "RUN git clone https://x.example/x && cd x && pip install .",
    "a repository": "RUN pip install git+https://x.example/x.git",
    "requirements that are not there": "RUN pip install -r requirements.txt",
    "a named environment of conda": "RUN conda install -n train pytorch==2.6.0",
    "a project": "RUN uv sync --frozen",
    "a shell in the JSON form": 'RUN ["bash", "-c", "pip install torch==2.6.0"]',
    "another shell": 'SHELL ["conda", "run", "-n", "train"]\nRUN pip install torch==2.6.0',
    "packages of another stage": "COPY --from=x /usr/local/lib/python3.12/site-packages /usr/local/lib/python3.12/site-packages",
    "a link": "RUN ln -sf /usr/bin/python3.11 /usr/local/bin/python",
}


@pytest.mark.parametrize("case", UNREAD)
def test_what_is_not_literal_is_listed_and_leaves_the_verdict_open(case, tmp_path):
    """It may have changed what was stated before it; what is stated after it stands."""
    file = tmp_path / "Dockerfile"
    file.write_text("FROM python:3.12 AS x\n" + LITERAL.format("") + UNREAD[case] + "\n")
    report = checked(file)
    (row, *more) = report.facts.value("container.unread")
    assert (row["line"], more) == (4 + UNREAD[case].startswith("SHELL"), [])
    assert report.verdict == "undecided" and "was not looked at" in report.facts.fact("package.torch").gap
    file.write_text("FROM python:3.12 AS x\n" + LITERAL.format(UNREAD[case] + '\nSHELL ["/bin/sh"]\n'))
    stated = checked(file).facts
    assert stated.value("package.torch") == "2.8.0+cu128" and stated.fact("python.version").gap


REQUIREMENTS = {
    "copied by name": ("COPY requirements.txt /tmp/\nRUN pip install -r /tmp/requirements.txt", True),
    "copied with its folder": ("COPY . .\nRUN pip install -r requirements.txt", True),
    "mounted": (
        "RUN --mount=type=bind,source=requirements.txt,target=requirements.txt pip install -r requirements.txt",
        True,
    ),
    "of a repository": (
        "COPY . .\nRUN git clone https://x.example/x && cd x && pip install -r requirements.txt",
        False,
    ),
    "never copied": ("RUN pip install -r /src/requirements.txt", False),
}


@pytest.mark.parametrize("case", REQUIREMENTS)
def test_requirements_are_those_that_the_build_sees(case):
    lines, is_read = REQUIREMENTS[case]
    found = facts_of(f"FROM python:3.12\nWORKDIR /app\n{lines}\n", {"requirements.txt": "numpy==1.26.4\n"})
    assert ("package.numpy" in found) is is_read is ("container.unread" not in found)


@pytest.mark.parametrize(
    "line",
    [
        "RUN apt-get update && apt-get install -y git && rm -rf /var/lib/apt/lists/*",
        "RUN set -eux; mkdir -p /data; chmod 700 /data",
        "RUN git clone https://x.example/x /srv/x && cd /srv && pip cache purge",
        "COPY --from=x /app /app",
        "RUN pip install --no-deps -e .",
    ],
)
def test_what_touches_no_package_leaves_the_verdict(line, tmp_path):
    file = tmp_path / "Dockerfile"
    file.write_text("FROM python:3.12 AS x\n" + LITERAL.format("") + line + "\n")
    report = checked(file)
    assert "container.unread" not in report.facts and report.verdict == "clear"


def test_what_was_not_looked_at_shows_without_its_secrets(tmp_path):
    token = "hf_abcdefghijklmnopqrstuvwxyz012345"
    (tmp_path / "Dockerfile").write_text(LITERAL.format("") + f"RUN ./login.sh {token}\n")
    ran = gpuready("check", "transformers", "--dockerfile", "Dockerfile", "--on", "h100", cwd=tmp_path)
    assert "not read     line 3: ./login.sh" in ran.out and "--image NAME" in ran.out and token not in ran.out


def test_an_unknown_base_is_never_clear(tmp_path):
    file = tmp_path / "Dockerfile"
    verdicts = {}
    for base in ("team/train:1", "team/train:1-ubuntu22.04-py3.12", "python:3.12-slim-bookworm"):
        file.write_text(f"FROM {base}\nRUN pip install torch==2.8.0 transformers==5.5.0 accelerate==1.10.0\n")
        verdicts[base] = checked(file).verdict
    assert [verdicts.pop("python:3.12-slim-bookworm"), *set(verdicts.values())] == ["clear", "undecided"]


def test_what_is_no_instruction_is_refused():
    with pytest.raises(ValueError, match="line 2: 'P' is not a Dockerfile instruction"):
        facts_of("FROM python:3.12\np\n")


@pytest.mark.parametrize(("on", "verdict"), [("v100", "not-ready"), ("a100", "clear")])
def test_the_torch_of_an_ngc_image_is_built_with_its_cuda(tmp_path, on, verdict):
    """CUDA 13 compiles for nothing before 7.5, whatever the list of the build is."""
    file = tmp_path / "Dockerfile"
    file.write_text("FROM nvcr.io/nvidia/pytorch:25.12-py3\nRUN pip install transformers==4.57.1\n")
    report = workflow.check_machine(["transformers"], on=on, dockerfile=str(file), what_if={"driver": "580.95.05"})[0]
    errors = [finding.code for finding in report.findings if finding.severity == "error"]
    assert (report.verdict, errors) == (verdict, ["GPU004"] if verdict == "not-ready" else [])
