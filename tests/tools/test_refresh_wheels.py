"""What tools/refresh_catalog.py finds inside wheels, on wheels made for it and served in pieces."""

from __future__ import annotations

import json
import random

import pytest
from refresh import packages
from refresh.index import Index
from refresh.packages import inside, loads
from refresh.releases import ARCHS, _table, companion, pins

from .test_refresh import served  # noqa: F401
from .test_refresh_text import library, opened  # noqa: F401

NOISE = random.Random(3).randbytes(5 << 20)  # does not compress: a library that is too large to read


def test_the_smallest_library_that_loads_cuda_decides(opened):  # noqa: F811
    wheel = opened(
        {
            "big.so": library("libcudart.so.12") + bytes(99_999),
            "a.so": library("libc.so.6"),
            "b.so": library("libcudart.so.13"),
        }
    )
    assert loads(wheel) == "libcudart.so.13"


def test_a_library_that_is_too_large_is_read_at_its_start(opened, monkeypatch):  # noqa: F811
    monkeypatch.setattr(packages, "BUDGET", 1 << 20)
    table = b"\0libtorch.so\0libcudart.so.12\0"
    wheel = opened({"huge.so": bytes(9000) + table + NOISE})
    assert loads(wheel) == "libcudart.so.12"


def test_a_name_without_libraries_beside_it_is_not_believed(opened, monkeypatch):  # noqa: F811
    monkeypatch.setattr(packages, "BUDGET", 1 << 20)
    assert loads(opened({"huge.so": bytes(9000) + b"\0libcudart.so.12\0" + NOISE})) == ""


def test_python_alone_loads_no_cuda(opened):  # noqa: F811
    assert loads(opened({"a.py": b"libcudart.so.12"})) == ""


class OneWheel:
    """An index with one wheel that is open already."""

    def __init__(self, wheel):
        self.wheel = lambda file: wheel


def test_the_ptxas_of_a_compiler(opened):  # noqa: F811
    said = b"Cuda compilation tools, release 12.9, V12.9.86\n"
    wheel = opened({"triton/backends/nvidia/bin/ptxas": bytes((1 << 20) - 45) + said + bytes(50)})
    assert inside({"kind": "compiler"}, None, OneWheel(wheel)) == {"ptxas": "12.9.86"}, "across two reads"


@pytest.mark.parametrize(
    ("note", "found"),
    [
        ({"version": {"torch": "2.9.0+cu130"}, "env": {"TORCH_CUDA_ARCH_LIST": "7.5 8.0+PTX 9.0a"}}, {"built_with": "2.9.0+cu130", "archs": ["7.5", "8.0+PTX", "9.0a"]}),
        ({"version": {"torch": "2.9.0+cu130"}, "env": {"TORCH_CUDA_ARCH_LIST": None}}, {}),
        ({"version": {"torch": "\x1b[2J"}, "env": {"TORCH_CUDA_ARCH_LIST": "7.5"}}, {}),
        ([], {}),
        ("not JSON", {}),
    ],
)  # fmt: skip
def test_the_note_of_a_build(opened, note, found):  # noqa: F811
    body = note if isinstance(note, str) else json.dumps(note)
    wheel = opened({"xformers/cpp_lib.json": body.encode()})
    assert inside({"kind": "cuda-extension"}, None, OneWheel(wheel)) == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"\0sm_75 sm_80 sm_90\0", b"sm_75 sm_80 sm_90"),
        (b"std::string ipc_hsm_70 sm_75 sm_120\0\0", b"sm_70 sm_75 sm_120"),
        (b"\0sm_90a compute_90\0", b"sm_90a compute_90"),
        (b"\0sm_90\0", None),
        (b"sm_70 sm_75 and more\0", None),
    ],
)
def test_the_string_of_architectures(opened, body, found):  # noqa: F811
    seen = opened({"a.so": bytes(3_000_000) + body}).find("a.so", ARCHS)
    assert (seen and seen[1]) == found


def test_both_forms_of_torchs_own_table():
    assert _table({"12.6": {50, 90}, "x": {1}}) == {"12.6": {"x86_64": ["5.0", "9.0"]}}
    assert _table({"13.0": {"aarch64": {110, 80}}}) == {"13.0": {"aarch64": ["8.0", "11.0"]}}


def test_the_pins_of_a_wheel(served):  # noqa: F811
    index = Index(served.address)
    newest = index.releases("torch")
    wheel = next(f for f in list(newest.values())[-1] if f.name in served.wheels and f.linux("x86_64"))
    found = pins(index.metadata(wheel))
    assert (found["nccl"], found["cudnn"], found["cuda_toolkit"]) == ("2.30.7", "9.26.0.51", "13.2.2")
    assert found["triton"] == "~=3.9.0" and 'platform_system == "Linux"' in found["triton_marker"]


def test_the_torchvision_of_a_torch_is_the_one_that_pins_it_else_goes_by_day(served):  # noqa: F811
    index = Index(served.address)
    assert companion("torchvision", "2.15.0", "2026-10-28", index) == ("0.29.2", False)
    assert companion("torchaudio", "2.15.0", "2026-10-28", index) == ("2.11.0", False)
    assert companion("torchvision", "2.13.0", "2026-10-28", index) == ("", False), "it asks for a newer torch"
    for name, body in served.wheels.items():
        if name.startswith("torchvision-0.29.1"):
            was = served.metadata(name)
            served.wheels[name] = _with(body, was, was.replace(b"torch (>=2.14.0)", b"torch (==2.15.0)"))
    assert companion("torchvision", "2.15.0", "2026-10-28", Index(served.address)) == ("0.29.1", True)


def _with(body: bytes, was: bytes, now: bytes) -> bytes:
    from .test_refresh_hostile import members, zipped

    return zipped({name: now if content == was else content for name, content in members(body).items()})
