"""The example kernel, compiled for real: on the CPU run and compared, for GPUs cross-compiled and read back."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from gpuready.extensions import CannotBuild, Extension, loader, prebuild, read_recipe
from gpuready.extensions.example import SAXPY_ARGUMENTS, SAXPY_CPU, SAXPY_CUDA
from gpuready.system import LiveHost, elf, fatbin
from tests.extensions import toolkit

SRC = Path(prebuild.__file__).parents[2]
GPUS = ("7.5", "12.0")
RECIPE = """
name = "mine"
sources = ["mine.cpp"]
depends = ["mine.h"]
flags = ["-DADDED=2"]
"""


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "gpuready.extensions", *words]
    return subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True, text=True)


def load_prebuilt(extension: Extension, folder: Path) -> loader.LoadedExtension:
    environ = {"PATH": "/nowhere", "GPUREADY_EXTENSIONS_PREBUILT": str(folder), "HOME": str(folder)}
    return loader.load_extension(extension, host=LiveHost(environ=environ))


@pytest.fixture
def recipe(tmp_path) -> Path:
    (tmp_path / "mine.h").write_text("#define START 40\n")
    (tmp_path / "mine.cpp").write_text('#include "mine.h"\nextern "C" int sum() { return START + ADDED; }\n')
    file = tmp_path / "mine.toml"
    file.write_text(RECIPE)
    return file


def test_the_example_built_by_the_command_and_run(tmp_path):
    ran = run_command("--only", "cpu", "-o", str(tmp_path))
    assert ran.returncode == 0 and ran.stdout.startswith(f"{tmp_path}/gpuready_saxpy_cpu.so"), ran.stderr
    loaded = load_prebuilt(SAXPY_CPU, tmp_path)
    x, y = array("f", [1.0, 2.0, 3.0]), array("f", [0.5, 0.25, -6.0])
    code = loaded.function("saxpy", SAXPY_ARGUMENTS)(3, 2.0, x.buffer_info()[0], y.buffer_info()[0], None)
    assert (code, list(y), loaded.how) == (0, [2.5, 4.25, 0.0], "prebuilt")
    assert elf.read_elf_headers(loaded.entry.path)["machine"] == loaded.entry.inputs["machine"]
    assert fatbin.list_gpu_targets(loaded.entry.path) == ()


def test_a_recipe_of_somebody_else(recipe, tmp_path):
    ran = run_command(str(recipe), "-o", str(tmp_path / "made"))
    assert ran.returncode == 0, ran.stderr
    extension = read_recipe(str(recipe))
    assert load_prebuilt(extension, tmp_path / "made").function("sum", "")() == 42
    (tmp_path / "mine.h").write_text("#define START 50\n")
    with pytest.raises(CannotBuild, match="is of other sources"):
        load_prebuilt(extension, tmp_path / "made")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name =", "not the recipe of an extension"),
        ("sources = ['a.cpp']", "needs the key 'name'"),
        ("name = 'a'\nsources = 'a.cpp'", "'sources' of"),
        ("name = 'a'\nsources = ['a.cpp']\nsource = 1", "unknown keys: source"),
        ("name = 'a'\nsources = ['gone.cpp']", "which is not a file"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_recipe_is_one_sentence(recipe, text, says):
    recipe.unlink() if text is None else recipe.write_text(text)
    ran = run_command(str(recipe))
    assert ran.returncode == 1 and ran.stderr.startswith("error: ") and says in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_what_was_built_here_and_ahead_of_time_are_two(recipe, tmp_path):
    extension = read_recipe(str(recipe))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GPUREADY_EXTENSIONS_PREBUILT": f"{tmp_path}/made"}
    host = LiveHost(environ=environ)
    prebuild.build_extensions([extension], f"{tmp_path}/made", host=host)
    assert loader.load_extension(extension, host=host).how == "prebuilt"
    assert loader.load_extension(extension, host=host, prebuilt=False).how == "built"


# -- for GPUs that are not here -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    """The CUDA kernel for the oldest and the newest GPU, on a machine without any."""
    environ = {"PATH": os.environ["PATH"], "CUDA_HOME": toolkit.home(), "TORCH_CUDA_ARCH_LIST": ";".join(GPUS) + "+PTX"}
    into = str(tmp_path_factory.mktemp("crossed"))
    access = LiveHost(environ={**environ, "FORCE_CUDA": "1"})
    made, left = prebuild.build_extensions([SAXPY_CUDA], into, host=access)
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
        with pytest.raises(CannotBuild, match="no GPU is visible, and FORCE_CUDA is not set"):
            prebuild.build_extensions([SAXPY_CUDA], str(tmp_path), host=access)


def test_targets_of_one_architecture_and_of_a_family(tmp_path):
    source = tmp_path / "one.cu"
    source.write_text('__global__ void k(float *x) { *x = 1; }\nextern "C" void go(float *x) { k<<<1, 1>>>(x); }\n')
    access = LiveHost(environ={"PATH": os.environ["PATH"], "CUDA_HOME": toolkit.home(), "FORCE_CUDA": "1"})
    one = Extension("one", (str(source),))
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
