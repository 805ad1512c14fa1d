"""``gpuready.configure`` in the job's own process: real metadata of torch in real folders, a process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuready
from gpuready.runtime.configure import TorchAlreadyImported, configure
from tests.running import SRC


def folder(where: Path, **distributions: str) -> Path:
    """Installed distributions as their files show them; torch is a package whose import would fail."""
    for name, version in distributions.items():
        info = where / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (where / name).mkdir()
        (where / name / "__init__.py").write_text("raise SystemExit('it was imported')\n")
    return where


def run(site: Path, code: str, **environ: str):
    """Run Python with only these distributions beside gpuready."""
    ran = subprocess.run(
        [sys.executable, "-S", "-W", "always", "-c", f"import sys; sys.path[:0] = {[str(site), str(SRC)]!r}\n{code}"],
        env={"PATH": "/usr/bin:/bin"} | environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ran


SHOW = """
import json, os, gpuready
found = gpuready.configure({spec})
keys = [k for k in os.environ if k.startswith(("PYTORCH", "TOKEN", "NCCL", "VLLM", "RAY", "CUDA"))]
print(json.dumps({{"env": {{k: os.environ[k] for k in keys}}, "torch": found.torch, "version": found.version,
                   "conflicts": [c.name for c in found.conflicts], "modules": sorted(sys.modules)}}))
"""


def configured(site: Path, spec: str, **environ: str) -> dict:
    ran = run(site, SHOW.format(spec=spec), **environ)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout) | {"stderr": ran.stderr}


@pytest.mark.parametrize(
    ("torch", "name"),
    [("2.8.0", "PYTORCH_CUDA_ALLOC_CONF"), ("2.9.0", "PYTORCH_ALLOC_CONF"), ("2.13.0+cpu", "PYTORCH_ALLOC_CONF")],
)
def test_the_right_name_without_importing_torch(tmp_path, torch, name):
    result = configured(folder(tmp_path, torch=torch, axolotl="0.21.0"), '"axolotl"')
    assert "expandable_segments:True" in result["env"][name] and result["torch"] == torch
    assert len([k for k in result["env"] if "ALLOC_CONF" in k]) == 1
    assert "torch" not in result["modules"] and "axolotl" not in result["modules"] and result["stderr"] == ""


def test_the_users_value_stays_and_a_warning_says_so(tmp_path):
    result = configured(folder(tmp_path, torch="2.13.0"), '"axolotl"', TOKENIZERS_PARALLELISM="true")
    assert result["env"]["TOKENIZERS_PARALLELISM"] == "true" and result["conflicts"] == ["TOKENIZERS_PARALLELISM"]
    assert "TOKENIZERS_PARALLELISM is 'true'" in result["stderr"]


def test_the_installed_version_has_its_contract(tmp_path):
    assert configured(folder(tmp_path, torch="2.8.0", axolotl="0.14.0"), '"axolotl"')["version"] == "0.14.0"


def test_roles_of_roll(tmp_path):
    site = folder(tmp_path, torch="2.8.0")
    worker = configured(site, '"roll", "worker"')["env"]
    engine = configured(site, '"roll", role="vllm"')["env"]
    assert worker["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert engine["PYTORCH_CUDA_ALLOC_CONF"] == "" and engine["VLLM_ALLREDUCE_USE_SYMM_MEM"] == "0"


def test_a_rocm_torch_is_for_rocm(tmp_path):
    result = configured(folder(tmp_path, torch="2.10.0+rocm7.0"), '"roll"')
    assert "PYTORCH_HIP_ALLOC_CONF" in result["env"] and "NCCL_NVLS_ENABLE" not in result["env"]


def test_too_late(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    ran = run(tmp_path, "import torch, gpuready\ngpuready.configure('axolotl')")
    assert ran.returncode == 1 and "TorchAlreadyImported: torch is imported already" in ran.stderr
    assert issubclass(TorchAlreadyImported, RuntimeError)


def test_nothing_is_imported_with_gpuready_itself(tmp_path):
    ran = run(tmp_path, "import gpuready; print([m for m in sys.modules if m.startswith('gpuready')])")
    assert ran.stdout.strip() == "['gpuready']"


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.mark.parametrize(("spec", "near"), [("axolotll", "axolotl"), ("colosalai", "colossalai"), ("roll:x", "torch")])
def test_an_unknown_framework_is_a_sentence(no_torch, spec, near):
    environ: dict[str, str] = {}
    with pytest.raises(ValueError, match=near) as raised:
        configure(spec, environ=environ)
    assert "\n" not in str(raised.value) and environ == {}


def test_an_unknown_role_sets_nothing(no_torch):
    environ: dict[str, str] = {}
    with pytest.raises(ValueError, match="worker"):
        configure("roll", "boss", environ)
    assert environ == {}


def test_another_mapping_than_the_environment(no_torch):
    environ = {"RAY_DEDUP_LOGS": "0"}
    before = dict(os.environ)
    with pytest.warns(UserWarning, match="RAY_DEDUP_LOGS"):
        found = gpuready.configure("roll", environ=environ)
    assert environ["RAY_DEDUP_LOGS"] == "0" and environ["NCCL_NVLS_ENABLE"] == "0" and dict(os.environ) == before
    again = {k: v for k, v in environ.items() if k != "RAY_DEDUP_LOGS"}
    held = configure("roll", environ=dict(again) | {"RAY_DEDUP_LOGS": "1"})
    assert not held.conflicts and {one.state for one in held.variables} == {"held"} and found.conflicts


@pytest.mark.parametrize(
    ("environ", "several"),
    [
        ({"WORLD_SIZE": "8"}, True),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, True),
        ({"CUDA_VISIBLE_DEVICES": "3"}, False),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, False),
        ({"LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "x"}, False),
    ],
)
def test_how_many_gpus_the_job_has(no_torch, environ, several):
    """sglang sets NCCL_CUMEM_ENABLE for more than one."""
    environ = dict(environ)
    configure("sglang", environ=environ)
    assert ("NCCL_CUMEM_ENABLE" in environ) is several


def test_a_name_that_gpuready_does_not_have():
    with pytest.raises(AttributeError, match="configur"):
        gpuready.configur  # noqa: B018
    assert "configure" in dir(gpuready)
