"""A kernel of twenty lines, built ahead of time and on first use, loaded and run: its saxpy against float64."""

from __future__ import annotations

import importlib.util
import os
import sys

import proof

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COUNTS = (1, 255, 65537)
FACTOR = 2.5
LIMIT = 1e-6
"""Rounding of float32, relative to the reference's largest value."""


def import_own_gpuready() -> None:
    """Import the gpuready that contains this script, and nothing else from where it is installed."""
    if sys.version_info < (3, 10):  # noqa: UP036  the target's Python may be older than gpuready supports
        raise proof.Unsupported("gpuready's extensions want Python 3.10 or newer")
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    where = [folder]
    spec = importlib.util.spec_from_file_location(
        "gpuready", os.path.join(folder, "__init__.py"), submodule_search_locations=where
    )
    assert spec is not None and spec.loader is not None
    sys.modules["gpuready"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


def run_proof(p: proof.ProofRun) -> None:
    torch = p.torch()
    if p.cuda and torch.version.hip:
        raise proof.Unsupported("the kernel is CUDA, and this torch is built for ROCm")
    import_own_gpuready()
    from gpuready.extensions import CannotBuild

    try:
        for how, loaded in build_both_ways(p, torch):
            if loaded.how != how:
                raise proof.WrongResult("the kernel that was to be %s is %s" % (how, loaded.how))
            run_saxpy(p, torch, loaded)
    except CannotBuild as error:
        message = str(error)
        if "there is no C++ compiler" in message or ("nvcc" in message and "failed" not in message):
            raise proof.Absent(message) from None
        raise proof.WrongResult(message) from None


def build_both_ways(p: proof.ProofRun, torch: Any) -> Any:
    """Yield the kernel as it is built ahead of time, then on first use; folders of the proof's own, so both compile."""
    from gpuready import extensions
    from gpuready.extensions.example import SAXPY_CPU, SAXPY_CUDA

    kernel = SAXPY_CUDA if p.cuda else SAXPY_CPU
    ahead = os.path.join(os.getcwd(), "prebuilt")
    os.environ["GPUREADY_EXTENSIONS_PREBUILT"] = ahead
    os.environ["GPUREADY_EXTENSIONS_DIR"] = os.path.join(os.getcwd(), "extensions")
    p.begin_step("build ahead of time")
    (entry,), _ = extensions.build_extensions([kernel], ahead, torch=torch)
    p.record_number("build_seconds", entry.seconds, unit="s")
    p.record_note("built for", " ".join(entry.targets) or entry.inputs["machine"])
    p.record_note("compiler", " ".join(map(str, entry.inputs["compiler"])))
    yield "prebuilt", extensions.load_extension(kernel, torch)
    p.begin_step("build on first use")
    loaded = extensions.load_extension(kernel, torch, prebuilt=False)
    p.record_number("first_use_seconds", loaded.seconds, unit="s")
    yield "built", loaded


def run_saxpy(p: proof.ProofRun, torch: Any, loaded: Any) -> None:
    """Compare the kernel with torch's own result in float64."""
    from gpuready.extensions.example import SAXPY_ARGUMENTS

    saxpy = loaded.function("saxpy", SAXPY_ARGUMENTS)
    stream = torch.cuda.current_stream().cuda_stream if p.cuda else None
    for count in COUNTS:
        x, y = (torch.rand(count, device=p.device) for _ in range(2))
        reference = FACTOR * x.double().cpu() + y.double().cpu()
        if code := saxpy(count, FACTOR, x.data_ptr(), y.data_ptr(), stream):
            raise proof.WrongResult("the kernel could not be launched: CUDA error %d" % code)
        p.wait_for_gpu()
        p.check_close("%s_%d" % (loaded.how, count), y, reference, LIMIT)
