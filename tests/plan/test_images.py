"""Which image a plan stands on: by CUDA, by driver, by what is built, and by the framework's own."""

from __future__ import annotations

import pytest

from gpuready.catalog import cuda, images, torch
from gpuready.model import Fact, Facts, versions
from gpuready.model.plan import KernelPlan, Plan
from gpuready.plan.deployment import add_container_image
from tests.every import every


def plan(cuda_release="12.6", **fields) -> Plan:
    known = {"torch": "2.13.0+cu126", "cuda": cuda_release, "platform": "x86_64-manylinux_2_28"} | fields
    return Plan("transformers", "5.22", "plan", **known)


def on(driver: str) -> Facts:
    return Facts([Fact("driver.version", driver)])


def test_runtime_where_nothing_is_built_and_devel_where_something_is():
    assert add_container_image(plan()).image == "nvidia/cuda:12.6.3-runtime-ubuntu24.04"
    for how, kind in (("build", "devel"), ("jit", "devel"), ("index", "runtime"), ("release", "runtime")):
        found = add_container_image(plan(kernels=(KernelPlan("flash-attn", "2.8.3", how, "why"),)))
        assert found.image == f"nvidia/cuda:12.6.3-{kind}-ubuntu24.04"


def test_a_driver_that_has_less_gets_an_image_that_it_starts():
    """torch for 12.8 runs on 550 by minor-version compatibility; NVIDIA's image of 12.8 does not start there."""
    found = add_container_image(plan("12.8", torch="2.8.0+cu128"), on("550.144.03"))
    assert found.image.startswith("nvidia/cuda:12.4.1-")
    assert "minor-compatible" in next(b.says for b in found.because if b.about == "image")
    assert add_container_image(plan("12.8"), on("580.95.05")).image.startswith("nvidia/cuda:12.8.1-")


@every(
    "build",
    [b for r in torch.list_torch_releases() for b in torch.list_torch_builds(r)],
    ids=lambda b: f"{b.version}+{b.variant}",
)
def test_every_build_of_the_catalogue_has_an_image_of_its_major(build):  # fmt: skip
    found = add_container_image(plan(build.cuda, torch=f"{build.version}+{build.variant}"))
    tag = found.image.partition(":")[2].partition("-")[0]
    assert versions.major_version(tag) == versions.major_version(build.cuda)
    assert versions.major_minor(tag) == versions.major_minor(build.cuda), (
        "each CUDA that torch is built for has its own"
    )


@pytest.mark.parametrize("driver", cuda.list_release_drivers())
def test_no_image_asks_for_more_than_the_driver_has(driver):
    for release in ("11.8", "12.4", "12.9", "13.0", "13.2"):
        if not cuda.driver_runs_cuda(driver, release):
            continue
        found = add_container_image(plan(release), on(driver))
        tag = found.image.partition(":")[2].partition("-")[0]
        first = next(
            r for r in images.list_cuda_images() if versions.major_version(r["cuda"]) == versions.major_version(release)
        )
        has = cuda.newest_cuda_for_driver(driver)
        assert versions.major_minor(tag) <= versions.major_minor(has) or tag in first["image"]


def test_no_gpu_no_cuda():
    found = add_container_image(plan("", torch="2.13.0+cpu"))
    assert found.image == "ubuntu:24.04" and "--gpus" not in found.image_flags and "all" not in found.image_flags


def test_roll_stands_on_its_own_image_with_the_flags_of_its_page():
    roll = Plan("roll", "0.3.0", "plan", variant="torch280-vllm", torch="2.8.0+cu128", cuda="12.8")
    found = add_container_image(roll, on("580.95.05"))
    assert found.image.endswith("nvcr-25.06-py3-torch280-vllm0110") and "vllm 0.11.0" in found.image_has
    assert found.image_flags == ("--gpus", "all", "--ipc=host", "--shm-size=10gb")
    assert any("single_node_quick_start" in b.cite for b in found.because)


@pytest.mark.parametrize(
    ("fields", "driver"),
    [
        ({"variant": "torch280-vllm", "torch": "2.9.0+cu128"}, "580.95.05"),  # another torch than it has
        ({"variant": "torch2100-vllm", "torch": "2.10.0+cu128"}, "550.144.03"),  # its CUDA 13 does not start
        ({"variant": "torch280-vllm", "torch": "2.8.0+cu128", "platform": "aarch64-manylinux_2_28"}, "580.95.05"),
        ({"variant": "torch291-vllm", "torch": "2.9.1+cu130"}, "580.95.05"),  # none is published
    ],
)
def test_where_roll_s_image_does_not_fit(fields, driver):
    found = add_container_image(Plan("roll", "0.3.0", "plan", cuda="12.8", **fields), on(driver))
    assert found.image.startswith("nvidia/cuda:") and not found.image_has


def test_axolotl_is_started_as_its_documentation_says():
    found = add_container_image(plan().replace(framework="axolotl"))
    assert found.image_flags[4:6] == ("--ulimit", "memlock=-1") and "--shm-size=10g" in found.image_flags


def test_what_is_impossible_stands_on_nothing():
    nothing = Plan("transformers", "5.22", "impossible")
    assert add_container_image(nothing) == nothing


def test_a_cuda_of_which_no_image_is_known():
    found = add_container_image(plan("10.2"))
    assert not found.image and "10.2" in found.notes[-1]
