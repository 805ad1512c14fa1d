"""One engine, many faces: the command line, Python and MCP give the same JSON for one recording, byte for byte.

The web does, too: tests/web/test_answers.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import gpuready
from gpuready.mcp import tools
from gpuready.workflow.allowed_paths import AllowedPaths
from tests import running

HERE = Path(__file__).parent.parent
H200 = "machines/h200.json"
LOG = "oom.log"

FACES = {
    "check one": (
        ("check", "transformers", "--on", H200),
        lambda: gpuready.check("transformers", on=H200),
        ("check", {"frameworks": ["transformers"], "on": H200}),
    ),
    "check several": (
        ("check", "transformers", "vllm", "--on", "h100x8", "--wants", "bf16", "--driver", "550.54", "--strict"),
        lambda: gpuready.check("transformers", "vllm", on="h100x8", wants="bf16", driver="550.54", strict=True),
        (
            "check",
            {"frameworks": ["transformers", "vllm"], "on": "h100x8", "wants": ["bf16"], "strict": True}
            | {"what_if": {"driver": "550.54"}},
        ),
    ),
    "check ignoring": (
        ("check", "transformers", "--on", "machines/old-driver.json", "--ignore", "DRV001=known"),
        lambda: gpuready.check("transformers", on="machines/old-driver.json", ignore={"DRV001": "known"}),
        ("check", {"frameworks": ["transformers"], "on": "machines/old-driver.json", "ignore": {"DRV001": "known"}}),
    ),
    "check a container": (
        ("check", "vllm", "--dockerfile", "Dockerfile", "--on", "h100", "--driver", "550.54"),
        lambda: gpuready.check("vllm", dockerfile="Dockerfile", on="h100", driver="550.54"),
        ("check", {"frameworks": ["vllm"], "dockerfile": "Dockerfile", "on": "h100", "what_if": {"driver": "550.54"}}),
    ),
    "plan": (
        ("plan", "vllm", "--on", H200, "--no-resolve"),
        lambda: gpuready.plan("vllm", on=H200, resolve=False),
        ("plan", {"frameworks": ["vllm"], "on": H200}),
    ),
    "plan several": (
        ("plan", "vllm", "trl", "--on", "h100", "--no-resolve"),
        lambda: gpuready.plan("vllm", "trl", on="h100", resolve=False),
        ("plan", {"frameworks": ["vllm", "trl"], "on": "h100"}),
    ),
    "fit": (
        ("fit", "qwen2.5-0.5b", "--on", H200, "--method", "lora", "--micro-batch", "2", "--gradient-checkpointing"),
        lambda: gpuready.fit("qwen2.5-0.5b", on=H200, method="lora", micro_batch=2, gradient_checkpointing=True),
        (
            "fit",
            {"model": ["qwen2.5-0.5b"], "on": H200}
            | {"job": {"micro_batch": 2, "method": "lora", "checkpointing": "nonreentrant"}},
        ),
    ),
    "diagnose": (
        ("diagnose", LOG, "--on", H200),
        lambda: gpuready.diagnose(LOG, on=H200),
        ("diagnose", {"logs": [LOG], "on": H200}),
    ),
    "env": (
        ("env", "vllm", "--on", H200, "--json"),
        lambda: gpuready.env("vllm", on=H200),
        ("env", {"framework": "vllm", "on": H200}),
    ),
    "explain": (("explain", "DRV001"), lambda: gpuready.explain("DRV001"), ("explain", {"code": "DRV001"})),
    "codes": (("explain",), gpuready.explain, ("explain", {})),
    "contract": (("contract", "show", "vllm"), lambda: gpuready.contract("vllm"), ("contract", {"framework": "vllm"})),
    "contracts": (("contract", "list"), gpuready.contract, ("contract", {})),
    "probe": (("probe", "--on", H200), lambda: gpuready.probe(H200), None),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("faces")
    (found / "machines").symlink_to(HERE / "machines")
    (found / "Dockerfile").write_text("FROM nvidia/cuda:13.0.1-devel-ubuntu24.04\nRUN pip install torch==2.9.0\n")
    (found / LOG).write_text("step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB\n")
    return found


@pytest.mark.parametrize("name", FACES)
def test_every_face_gives_the_same_bytes(name, folder, monkeypatch):
    argv, python, tool = FACES[name]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GPUREADY_HOSTNAME", "here")
    run = running.gpuready if name in ("check one", "diagnose") else running.call_gpuready
    ran = run(*dict.fromkeys((*argv, "--json")), cwd=folder)
    assert ran.code in (0, 1, 3), ran.err
    answer = python()
    assert answer.json() == ran.out and answer.exit == ran.code
    if tool is not None:
        workspace = AllowedPaths([str(folder), str(HERE / "machines")])
        result = tools.call_tool(tools.build_tool_table()[tool[0]], workspace, {**tool[1], "detail": "full"})
        assert result[0] == ran.out
