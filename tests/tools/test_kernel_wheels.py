"""Rows of wheels from a workflow's matrix and setup.py."""

from __future__ import annotations

import kernel_wheels

MATRIX = {
    "os": ["ubuntu-22.04", "ubuntu-22.04-arm"],
    "python-version": ["3.11", "3.12"],
    "torch-version": ["1.13.1", "2.3.1", "2.4.0.dev20240505"],
    "cuda-version": ["11.8.0", "12.2.2"],
    "cxx11_abi": ["FALSE", "TRUE"],
    "exclude": [
        {"torch-version": "1.13.1", "cuda-version": "12.2.2"},
        {"torch-version": "2.3.1", "os": "ubuntu-22.04-arm"},
    ],
}
SETUP = """
        # cuda_version = f"{cuda_version_raw.major}{cuda_version_raw.minor}"
        cuda_version = f"{torch_cuda_version.major}"
        if bare_metal_version <= Version("12.9"):
            cc_flag.append("arch=compute_70,code=sm_70")
        # cc_flag.append("arch=compute_75,code=sm_75")
        cc_flag.append("arch=compute_80,code=sm_80")
        if bare_metal_version >= Version("12.8"):
            cc_flag.append("arch=compute_100,code=sm_100")
"""


def test_a_matrix():
    row = kernel_wheels.read_matrix(MATRIX, SETUP)
    assert row["torch"] == ["2.3", "2.4"] and row["machine"] == ["x86_64", "aarch64"]
    assert row["cuda"] == {"11": "11", "12": "12"} and row["built"] == {"11": "11.8", "12": "12.2"}
    assert row["without"] == [{"torch": "2.3", "machine": "aarch64"}]
    full = SETUP.replace("# cuda_version", "cuda_version")
    assert kernel_wheels.read_matrix(MATRIX, full)["cuda"] == {"11": "118", "12": "122"}


def test_architectures_have_their_cuda():
    assert kernel_wheels.read_architectures(SETUP) == [
        {"cc": "7.0", "cuda": "11.6", "until": "12.9"},
        {"cc": "8.0", "cuda": "11.6"},
        {"cc": "10.0", "cuda": "12.8"},
    ]
