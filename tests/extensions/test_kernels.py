"""The kernels themselves, compiled for real: on the CPU run and compared, for GPUs cross-compiled and read back."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from array import array
from functools import cache
from pathlib import Path

import pytest

from gpuready.extensions import adamw_kernels, loader, prebuild
from gpuready.system import LiveHost, elf, fatbin
from tests import target_environment
from tests.extensions import toolkit

SRC = Path(adamw_kernels.SOURCES_FOLDER).parent.parent.parent
SIZES = [1, 15, 16, 17, 1000, 65536, 65537, 0]
GPUS = ("7.5", "12.0")


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """The CPU kernel, built ahead of time by the command, and a door that finds it."""
    into = tmp_path_factory.mktemp("ready")
    words = [sys.executable, "-m", "gpuready.extensions", "--only", "cpu", "-o", str(into)]
    environ = {**os.environ, "PYTHONPATH": str(SRC)}
    ran = subprocess.run(words, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"{into}/gpuready_adamw_cpu.so")
    return LiveHost(environ={"PATH": os.environ["PATH"], "GPUREADY_EXTENSIONS_PREBUILT": str(into), "HOME": str(into)})


@pytest.fixture(scope="module")
def kernel(ready):
    return adamw_kernels.AdamWKernel(loader.load_extension(adamw_kernels.ADAMW_CPU, host=ready), "cpu")


def expected(p, g, m, v, s):
    """One element, in double precision."""
    g = g * s.scale * (-1 if s.maximize else 1)
    if s.decoupled:
        p *= 1 - s.lr * s.weight_decay
    else:
        g += s.weight_decay * p
    m = m * s.beta1 + (1 - s.beta1) * g
    v = v * s.beta2 + (1 - s.beta2) * g * g
    p -= s.lr / (1 - s.beta1**s.step) * m / (math.sqrt(v) / math.sqrt(1 - s.beta2**s.step) + s.eps)
    return p, m, v


@cache
def drawn_columns() -> list[list[array]]:
    """Parameters, gradients and both moments, of every size; the second moment is not negative."""
    dice = random.Random(5)
    columns = [[array("f", [dice.gauss(0, 1) for _ in range(n)]) for n in SIZES] for _ in range(3)]
    return [*columns, [array("f", [abs(dice.gauss(0, 1)) for _ in range(n)]) for n in SIZES]]


@pytest.mark.parametrize("flavour", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "settings",
    [
        adamw_kernels.AdamWSettings(1e-3),
        adamw_kernels.AdamWSettings(1e-2, 0.8, 0.95, 1e-6, 0.1, 7),
        adamw_kernels.AdamWSettings(1e-2, weight_decay=0.1, step=2, decoupled=False, maximize=True, scale=0.25),
    ],
)
def test_against_double_precision_without_torch(kernel, flavour, settings):
    before = drawn_columns()
    columns = [[one[:] for one in column] for column in before]
    rows = adamw_kernels.AdamWTensors(
        *([one.buffer_info()[0] for one in column] for column in columns), SIZES, ("float32",) * 3
    )
    try:
        kernel.step(rows, settings, 2, flavour)
    except adamw_kernels.CannotBuild as cannot:
        assert flavour > 1 and "does not have the instruction set" in str(cannot)
        pytest.skip(f"this processor: {cannot}")
    p, g, m, v = columns
    for t, n in enumerate(SIZES):
        for i in sorted({*range(0, n, 61), *range(min(n, 50)), *range(max(n - 50, 0), n)}):
            right = expected(*(column[t][i] for column in before), settings)
            for got, wanted in zip((p[t][i], m[t][i], v[t][i]), right, strict=True):
                assert math.isclose(got, wanted, rel_tol=2e-6, abs_tol=2e-7), (t, i)
        assert g[t] == before[1][t]


def test_types_that_are_not_compiled_are_named(kernel):
    empty = array("f", [0.0])
    rows = adamw_kernels.AdamWTensors(
        *([empty.buffer_info()[0]] for _ in range(4)), [1], ("bfloat16", "float16", "float32")
    )
    with pytest.raises(adamw_kernels.CannotBuild, match="parameters in bfloat16, gradients in float16"):
        kernel.step(rows, adamw_kernels.AdamWSettings(1e-3))


def test_how_it_came(kernel):
    assert kernel.loaded.how == "prebuilt" and kernel.instruction_set() in ("plain", "AVX2", "AVX-512")
    assert elf.read_elf_headers(kernel.loaded.entry.path)["machine"] == kernel.loaded.entry.inputs["machine"]
    assert fatbin.list_gpu_targets(kernel.loaded.entry.path) == ()


@pytest.mark.parametrize("how", ["prebuilt", pytest.param("built", marks=pytest.mark.faults)])
def test_in_a_real_torch(ready, tmp_path, how):
    """Compiled on first use in ``make faults``; test_cache.py has that for a small kernel."""
    script = str(Path(__file__).with_name("in_target_environment.py"))
    environ = {
        **os.environ,
        "GPUREADY_EXTENSIONS_DIR": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "passive",
    }
    environ["GPUREADY_EXTENSIONS_PREBUILT"] = (
        ready.get_env_var("GPUREADY_EXTENSIONS_PREBUILT") if how == "prebuilt" else ""
    )
    ran = subprocess.run([target_environment.python(), script, str(SRC)], env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout.splitlines()[-1])
    assert document["how"] == how and document["kept"] is True and document["conversions"] > 100_000
    assert max(document[name] for name in ("float64", "torch", "adam", "resumed")) < 5e-6
    halves = {name: units for name, units in document.items() if name.startswith("torch.")}
    assert len(halves) == 3 and max(halves.values()) <= 1.01, halves
    assert "not torch.float64" in document["refused"][0] and "one is on meta" in document["refused"][1]
    assert "no GPU is visible, and FORCE_CUDA is not set" in document["cuda"]


# -- for GPUs that are not here -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    """The CUDA kernel for the oldest and the newest GPU, on a machine without any."""
    environ = {"PATH": os.environ["PATH"], "CUDA_HOME": toolkit.home(), "TORCH_CUDA_ARCH_LIST": ";".join(GPUS) + "+PTX"}
    into = str(tmp_path_factory.mktemp("crossed"))
    access = LiveHost(environ={**environ, "FORCE_CUDA": "1"})
    made, left = prebuild.build_extensions([adamw_kernels.ADAMW_CUDA], into, host=access)
    assert not left
    return made[0]


def test_the_embedded_targets_are_read_back(crossed):
    code = tuple(f"sm_{one.replace('.', '')}" for one in GPUS)
    assert fatbin.list_gpu_targets(crossed.path) == crossed.targets == (*code, "compute_120")
    assert elf.read_elf_headers(crossed.path)["machine"] == os.uname().machine
    needed = elf.read_elf_headers(crossed.path)["needed"]
    assert not any(name.startswith(("libtorch", "libc10", "libpython", "libcudart")) for name in needed)


def test_force_cuda_zero_builds_nothing(tmp_path):
    access = LiveHost(environ={"PATH": os.environ["PATH"], "CUDA_HOME": toolkit.home(), "FORCE_CUDA": "0"})
    if not loader.build_environment.read_build_environment(access, "cuda").capabilities:
        with pytest.raises(adamw_kernels.CannotBuild, match="no GPU is visible, and FORCE_CUDA is not set"):
            prebuild.build_extensions([adamw_kernels.ADAMW_CUDA], str(tmp_path), host=access)


def test_targets_of_one_architecture_and_of_a_family(tmp_path):
    source = tmp_path / "one.cu"
    source.write_text('__global__ void k(float *x) { *x = 1; }\nextern "C" void go(float *x) { k<<<1, 1>>>(x); }\n')
    access = LiveHost(environ={"PATH": os.environ["PATH"], "CUDA_HOME": toolkit.home(), "FORCE_CUDA": "1"})
    one = adamw_kernels.Extension("one", (str(source),))
    made, _ = prebuild.build_extensions([one], str(tmp_path / "made"), "9.0a;10.0f+PTX", host=access)
    assert made[0].targets == ("sm_90a", "sm_100f", "compute_100f")


def test_a_damaged_fat_binary_is_read_as_far_as_it_goes(crossed, tmp_path):
    data = bytearray(Path(crossed.path).read_bytes())
    start, size = elf.locate_section(crossed.path, fatbin.SECTION)
    for at in range(start + 16, start + size, 997):
        data[at] ^= 0xFF
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(data)
    assert isinstance(fatbin.list_gpu_targets(str(damaged)), tuple)
