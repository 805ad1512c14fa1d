"""gpuready's own kernel, compiled and loaded here without torch headers: its AdamW step against float64."""

from __future__ import annotations

import importlib.util
import os
import sys

import proof

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHAPES = ((4099,), (257, 129), (3,), (64, 1024))
STEPS = 3
LIMITS = {"float32": 2e-6, "bfloat16": 1e-2, "float16": 2e-3}
"""Rounding of the parameter, relative to the reference's largest value."""


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
    from gpuready import extensions
    from gpuready.runtime import optimizers

    # Always compile here: a prebuilt library would test another machine's compiler.
    os.environ["GPUREADY_EXTENSIONS_DIR"] = os.path.join(os.getcwd(), "extensions")
    p.begin_step("compile")
    kernel = next(one for one in extensions.BUNDLED_EXTENSIONS if one.kind == ("cuda" if p.cuda else "cpu"))
    try:
        loaded = extensions.load_extension(kernel, torch, prebuilt=False)
    except extensions.CannotBuild as error:
        message = str(error)
        if "there is no C++ compiler" in message or ("nvcc" in message and "failed" not in message):
            raise proof.Absent(message) from None
        raise proof.WrongResult(message) from None
    p.record_number("build_seconds", loaded.seconds, unit="s")
    p.record_note("built for", " ".join(loaded.entry.targets) or loaded.entry.inputs["machine"])
    p.record_note("compiler", " ".join(map(str, loaded.entry.inputs["compiler"])))
    optimizer = optimizers.FusedAdamW if p.cuda else optimizers.CPUAdam
    for name in ("float32", "bfloat16", "float16"):
        p.begin_step(f"step in {name}")
        compare_with_float64(p, torch, optimizer, name)


def compare_with_float64(p: proof.ProofRun, torch: Any, optimizer: Any, name: str) -> None:
    """Take a few steps beside torch's AdamW in float64, which starts each step from our values."""
    kind = getattr(torch, name)
    mine = [torch.randn(shape, device=p.device).to(kind).requires_grad_() for shape in SHAPES]
    settings = {"lr": 1e-2, "betas": (0.9, 0.99), "weight_decay": 0.1}
    ours = optimizer(mine, state_dtype=torch.float32, **settings)
    reference = [one.detach().cpu().double().requires_grad_() for one in mine]
    theirs = torch.optim.AdamW(reference, **settings)
    for _ in range(STEPS):
        for one, other in zip(mine, reference, strict=True):
            other.data.copy_(one.detach().cpu())
            one.grad = torch.randn(one.shape, device=p.device).to(kind)
            other.grad = one.grad.cpu().double()
        ours.step()
        theirs.step()
        p.wait_for_gpu()
    for at, (one, other) in enumerate(zip(mine, reference, strict=True)):
        p.check_close(f"{name}_{at}", one, other, LIMITS[name])


if __name__ == "__main__":
    proof.main(run_proof)
