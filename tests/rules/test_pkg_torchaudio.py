"""PKG010 and torchaudio: it compares the whole CUDA version, and a plan takes a torch of the same."""

from __future__ import annotations

import pytest

from gpuready.probe.torch_extensions import parse_build_cuda
from tests.rules.worlds import H100, judged


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("__version__ = '2.11.0+cu130'\ngit_version = '34c52a'\n", "13.0"),
        ('__version__ = "2.5.1+cu124"\n', "12.4"),
        ("__version__ = '2.8.0+cpu'\n", None),
        ("__version__ = '2.8.0a0+git34c5+cu'\n", None),
        ("", None),
    ],
)
def test_the_cuda_of_a_build(text, cuda):
    assert parse_build_cuda(text) == cuda


@pytest.mark.parametrize(
    ("torch", "audio", "wants", "severity"),
    [
        ("13.2", "13.0", ("torchaudio",), "error"),
        ("13.2", "13.0", (), "warning"),
        ("13.0", "13.0", ("torchaudio",), None),
        ("12.4", "12.1", ("torchaudio",), "error"),
        ("13.2", None, ("torchaudio",), None),
    ],
)
def test_torchaudio_of_another_cuda(torch, audio, wants, severity):
    row = {"file": "/site/torchaudio/lib/libtorchaudio.so", "cudart": None, "missing": (), "cuda": audio}
    found = judged(
        "PKG010",
        H100
        | {
            "torch.cuda": torch,
            "job.wants": wants,
            "package.torchaudio": "2.11.0",
            "extension.linked": {"torchaudio": row},
        },
    )
    assert (found.severity if found else None) == severity
    if found:
        assert f"torchaudio (CUDA {audio})" in found.says and "different CUDA versions" in found.so
