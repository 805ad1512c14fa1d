"""GPUs by name: as nvidia-smi writes them, and as people do."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import every

from gpuready.catalog import gpus, load_catalog, machine_names

ROWS = load_catalog("gpus")["gpu"]


@every("row", ROWS, ids=lambda r: f"{r['name']}-{r['vram_gib']}")
def test_every_gpu_is_found_by_what_nvidia_smi_prints(row):
    assert gpus.find_gpu(row["name"], memory=row["vram_gib"] * 2**30) is row
    for alias in row.get("aliases", ()):
        assert gpus.find_gpu(alias)["name"] == row["name"]


@every("row", ROWS, ids=lambda r: f"{r['name']}-{r['vram_gib']}")
def test_every_gpu_is_found_by_its_short_names(row):
    for name in [*row.get("short", ()), *row.get("default_for", ())]:
        for spelling in (name, name.upper(), name.replace("-", " "), f"NVIDIA {name}"):
            assert gpus.find_gpu(spelling) is row, spelling


@every(
    ("name", "found"),
    [
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("H100", "NVIDIA H100 80GB HBM3"),
        ("h100-sxm", "NVIDIA H100 80GB HBM3"),
        ("H100 SXM5", "NVIDIA H100 80GB HBM3"),
        ("h100-pcie", "NVIDIA H100 PCIe"),
        ("h100 nvl", "NVIDIA H100 NVL"),
        ("h200", "NVIDIA H200"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("4090d", "NVIDIA GeForce RTX 4090 D"),
        ("5090", "NVIDIA GeForce RTX 5090"),
        ("3090 ti", "NVIDIA GeForce RTX 3090 Ti"),
        ("1080ti", "NVIDIA GeForce GTX 1080 Ti"),
        ("4070 ti super", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("a100", "NVIDIA A100-SXM4-80GB"),
        ("a100-80gb", "NVIDIA A100-SXM4-80GB"),
        ("a100-40gb", "NVIDIA A100-SXM4-40GB"),
        ("a100-pcie", "NVIDIA A100 80GB PCIe"),
        ("t4", "Tesla T4"),
        ("Tesla T4", "Tesla T4"),
        ("NVIDIA T4", "Tesla T4"),
        ("v100", "Tesla V100-SXM2-16GB"),
        ("v100-32gb", "Tesla V100-SXM2-32GB"),
        ("p100", "Tesla P100-PCIE-16GB"),
        ("gb10", "NVIDIA GB10"),
        ("dgx spark", "NVIDIA GB10"),
        ("gh200", "NVIDIA GH200 480GB"),
        ("b200", "NVIDIA B200"),
        ("b300", "NVIDIA B300 SXM6 AC"),
        ("a6000", "NVIDIA RTX A6000"),
        ("RTX A6000", "NVIDIA RTX A6000"),
        ("rtx6000ada", "NVIDIA RTX 6000 Ada Generation"),
        ("rtx pro 6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
        ("l40s", "NVIDIA L40S"),
        ("titan rtx", "NVIDIA TITAN RTX"),
    ],
)
def test_how_people_write_them(name, found):
    assert gpus.find_gpu(name)["name"] == found


@pytest.mark.parametrize(
    "name",
    ["", " ", "nvidia", "geforce", "h1000", "rtx", "rtx9090", "x8", "8", "mi300x", "rtx6000",
     "NVIDIA GeForce RTX 4090 Laptop GPU", "../../etc/passwd", "h100; rm -rf /", "\x00", "ä" * 10_000],
)  # fmt: skip
def test_what_is_no_gpu_of_the_catalogue_is_none(name):
    assert gpus.find_gpu(name) is None


def test_a_mig_instance_is_found_by_its_gpu():
    assert gpus.find_gpu("NVIDIA A100-SXM4-80GB MIG 1g.10gb")["name"] == "NVIDIA A100-SXM4-80GB"


def test_memory_tells_cards_of_one_name_apart():
    assert gpus.find_gpu("NVIDIA GeForce RTX 3060")["vram_gib"] == 12
    assert gpus.find_gpu("NVIDIA GeForce RTX 3060", memory=8188 * 2**20)["vram_gib"] == 8
    assert gpus.find_gpu("rtx4060ti-16gb")["vram_gib"] == 16
    assert gpus.find_gpu("rtx 4060 ti")["vram_gib"] == 8


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("h100x8", "NVIDIA H100 80GB HBM3", 8),
        ("8xh100", "NVIDIA H100 80GB HBM3", 8),
        ("8 x H100", "NVIDIA H100 80GB HBM3", 8),
        ("h100", "NVIDIA H100 80GB HBM3", 1),
        ("H100*4", "NVIDIA H100 80GB HBM3", 4),
        ("h100×2", "NVIDIA H100 80GB HBM3", 2),
        ("rtx4090", "NVIDIA GeForce RTX 4090", 1),
        ("rtx4090x2", "NVIDIA GeForce RTX 4090", 2),
        ("2xrtx4090", "NVIDIA GeForce RTX 4090", 2),
        ("RTX 4090 x 2", "NVIDIA GeForce RTX 4090", 2),
        ("2x3090", "NVIDIA GeForce RTX 3090", 2),
        ("3090x2", "NVIDIA GeForce RTX 3090", 2),
        ("v100x4", "Tesla V100-SXM2-16GB", 4),
        ("a100-80gbx16", "NVIDIA A100-SXM4-80GB", 16),
        ("NVIDIA H100 80GB HBM3 x8", "NVIDIA H100 80GB HBM3", 8),
        ("h100:8", "NVIDIA H100 80GB HBM3", 8),
        ("h100:mig-3g.40gbx2", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", 2),
        ("h100:mig-1g.10gb+me", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 1),
        ("h100:mig-1g.10gb+mex4", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 4),
    ],
)
def test_a_machine(text, name, count):
    (group,) = machine_names.parse_machine_name(text)
    assert (group.name, group.count) == (name, count)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x8", "rtx9999", "h100x", "h100x-1", "h100x8x8", "a100 80", "foox8", "h100x" + "9" * 5000, "h100x0"),
        *("h100+", "+", "h100+mi300x", "h100x1024+h100", "t4 mig 1g.5gb", "h100:mig-1g.5gb", "mi300x:mig-1g.10gb"),
    ],
)
def test_what_is_no_machine_is_refused_in_one_sentence(text):
    with pytest.raises(ValueError, match=r"^[^\n]{10,300}$"):
        machine_names.parse_machine_name(text)


@given(st.text(max_size=40))
def test_no_text_is_too_strange(text):
    with contextlib.suppress(ValueError):
        assert all(group.count for group in machine_names.parse_machine_name(text))
    gpus.suggest_gpu_names(text)


@pytest.mark.parametrize(
    ("wrong", "right"), [("h10", "h100"), ("rtx409", "rtx4090"), ("a100-80g", "a100-80gb"), ("rtx6000", "rtx6000ada")]
)
def test_the_nearest_names(wrong, right):
    near = gpus.suggest_gpu_names(wrong)
    assert gpus.find_gpu(right) in [gpus.find_gpu(n) for n in near]
    assert len(near) <= 3 and all(gpus.find_gpu(n) is not None for n in near)
    assert len({gpus.find_gpu(n)["name"] for n in near}) == len(near)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("8H100", "8xh100"), ("H1OOx8", "h100x8"), ("H1OO", "h100"), ("4090ti", "4070ti"), ("h10", "h100"), ("nogpu", "")],
)
def test_the_nearest_machine_is_what_was_meant(wrong, right):
    """A count without its x, letters for digits; a name that is like no model has none that is near."""
    with pytest.raises(ValueError, match=f"nearest: {right}" if right else "write for example"):
        machine_names.parse_machine_name(wrong)


def test_nothing_is_near_to_nonsense():
    assert gpus.suggest_gpu_names("qqqqqqqqqq") == []


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("h100", "compute_capability", "9.0"),
        ("h100", "vram_gib", 80),
        ("h100", "bf16_tflops", 989.4),
        ("gb10", "host", "aarch64"),
        ("gb10", "compute_capability", "12.1"),
        ("gh200", "vram_gib", 96),  # not the 480 of its name
        ("v100", "compute_capability", "7.0"),
        ("rtx4090", "market", "geforce"),
        ("b300", "compute_capability", "10.3"),
    ],
)
def test_some_figures(name, field, value):
    assert gpus.find_gpu(name)[field] == value
