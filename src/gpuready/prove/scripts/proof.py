"""The protocol of a proof. It runs in the target environment's Python; its only link to gpuready is the result file.

    def run_proof(p):
        torch = p.torch()
        p.begin_step("multiply")
        p.check_close("product", a @ b, a.double() @ b.double(), 1e-2)

It is started as ``proof.py SCRIPT --device DEVICE ARGUMENT ...``. A script without ``run_proof`` has a function
``check_WORD(p, torch)`` for each word that its first argument may be.

The result is a JSON file, named by GPUREADY_PROOF, that is replaced as a whole at every step: after a crash or a hang
it shows where that happened. A proof passes only if ``run_proof`` returns and at least one number was checked against
a bound. Standard library and Python 3.8 only.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Our own folder goes last, so that none of its files shadows a package of the same name.
sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != HERE] + [HERE]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SCHEMA = 1
BOUNDS = {"most": "<=", "least": ">=", "equal": "=="}


class Absent(Exception):
    """Something is missing. ``lacks``: "gpu", or the distribution that is not installed."""

    def __init__(self, why: str, lacks: str = ""):
        super().__init__(why)
        self.lacks = lacks


class Unsupported(Exception):
    """This hardware or build does not support it; the text names the gate."""


class WrongResult(Exception):
    """It ran, and the result is wrong."""


class ProofRun:
    """One run: its arguments, and what has been recorded so far."""

    def __init__(self, argv: list[str]):
        self.arguments = list(argv)
        self.requested_device = "cpu"
        if self.arguments[:1] == ["--device"]:
            self.requested_device = self.arguments[1]
            del self.arguments[:2]
        self.rank = int(os.environ.get("RANK", "0"))
        self.ranks = int(os.environ.get("WORLD_SIZE", "1"))
        self.deadline = float(os.environ.get("GPUREADY_PROOF_DEADLINE", "60"))
        self.started_at = time.monotonic()
        self.record = {
            "schema": SCHEMA,
            "verdict": "",
            "why": "",
            "device": self.requested_device,
            "steps": [],
            "numbers": {},
            "versions": {"python": ".".join(map(str, sys.version_info[:3]))},
            "hardware": {},
        }  # type: dict[str, Any]
        self._torch = None  # type: Any

    # -- recording ------------------------------------------------------------------------------------

    def begin_step(self, name: str) -> None:
        """Record the phase that begins now."""
        self.record["steps"].append(str(name)[:80])
        self.write()

    def record_number(self, name: str, value: Any, bound: str = "", limit: Any = None, unit: str = "") -> float:
        """Record a number; outside its bound (most, least or equal) the proof has failed."""
        value = float(value)
        row = {"value": value if math.isfinite(value) else str(value)}  # type: dict[str, Any]
        if unit:
            row["unit"] = unit
        if bound:
            row["bound"], row["limit"] = bound, float(limit)
        self.record["numbers"][name] = row
        if bound and not is_within_bound(value, bound, float(limit)):
            raise WrongResult("%s is %.4g, and has to be %s %.4g" % (name, value, BOUNDS[bound], float(limit)))
        return value

    def check_close(self, name: str, got: Any, reference: Any, relative: float) -> float:
        """Compare with a float64 reference: the largest error relative to the reference's largest value."""
        torch = self._torch
        got, reference = got.detach().double().cpu(), reference.detach().double().cpu()
        if got.shape != reference.shape:
            raise WrongResult(
                "%s has the shape %s, and has to have %s" % (name, tuple(got.shape), tuple(reference.shape))
            )
        if not bool(torch.isfinite(got).all()):
            raise WrongResult("%s has NaN or Inf in it" % name)
        scale = max(float(reference.abs().max()), 1e-30)
        return self.record_number("%s_error" % name, float((got - reference).abs().max()) / scale, "most", relative)

    def check_equal(self, name: str, got: Any, reference: Any) -> None:
        """Require every element to be equal; records how many differ."""
        got, reference = got.detach().cpu(), reference.detach().cpu()
        if got.shape != reference.shape:
            raise WrongResult(
                "%s has the shape %s, and has to have %s" % (name, tuple(got.shape), tuple(reference.shape))
            )
        self.record_number("%s_differ" % name, int((got != reference.to(got.dtype)).sum()), "equal", 0)

    def record_note(self, name: str, value: Any) -> None:
        """Record a detail of the hardware or of the code path taken."""
        self.record["hardware"][name] = value if isinstance(value, (int, float, bool)) else str(value)[:300]

    def record_version(self, distribution: str) -> str:
        """Return and record the version of an installed distribution; Absent if there is none."""
        from importlib import metadata

        try:
            installed = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            raise Absent("%s is not installed" % distribution, distribution) from None
        self.record["versions"][distribution] = str(installed)
        return str(installed)

    def import_module(self, name: str, distribution: str = "") -> Any:
        """Import a module as its own step. Absent if it is not installed; its other errors are not caught."""
        import importlib
        import importlib.util

        self.begin_step("import " + name)
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise Absent("%s is not installed" % (distribution or name), distribution or name)
        gc.disable()  # nothing is garbage so early, and looking for some takes a tenth of the time
        imported = importlib.import_module(name)
        gc.freeze()
        gc.enable()
        if distribution:
            self.record_version(distribution)
        return imported

    # -- torch --------------------------------------------------------------------------------------------

    def torch(self) -> Any:
        """Import torch as a step; Absent if the requested device is not available."""
        if self._torch is None:
            torch = self.import_module("torch")
            if not hasattr(torch, "__version__"):
                raise WrongResult(
                    "the module torch at %s is not PyTorch" % getattr(torch, "__path__", "an unknown place")
                )
            self._torch = torch
            self.record["versions"]["torch"] = str(torch.__version__)
            self.record["versions"]["cuda"] = str(getattr(torch.version, "cuda", None) or "")
            if self.requested_device.startswith("cuda"):
                self._open_gpu(torch)
            torch.manual_seed(20261115 + self.rank)
        return self._torch

    def _open_gpu(self, torch: Any) -> None:
        self.begin_step("open the GPU")
        if not torch.version.cuda and not getattr(torch.version, "hip", None):
            raise Absent("torch %s is a build without CUDA" % torch.__version__)
        torch.cuda.init()  # raises the driver's message, where is_available() only returns False
        if torch.cuda.device_count() == 0:
            raise Absent("torch sees no GPU", "gpu")
        index = self.device.index or 0
        if index >= torch.cuda.device_count():
            raise Absent("torch sees %d GPUs, and GPU %d was asked for" % (torch.cuda.device_count(), index), "gpu")
        torch.cuda.set_device(index)
        properties = torch.cuda.get_device_properties(index)
        self.record["hardware"].update(
            gpu=properties.name,
            capability="%d.%d" % (properties.major, properties.minor),
            memory=properties.total_memory,
        )
        uuid = getattr(properties, "uuid", None)
        if uuid is not None:
            self.record_note("uuid", uuid)

    @property
    def device(self) -> Any:
        """The requested torch.device; with several ranks on GPUs, that of this rank."""
        kind, _, index = self.requested_device.partition(":")
        if kind == "cpu":
            return self._torch.device("cpu") if self._torch else self.torch().device("cpu")
        torch = self._torch or self.torch()
        return torch.device(kind, self.rank if self.ranks > 1 else int(index or 0))

    @property
    def cuda(self) -> bool:
        """Whether a GPU was requested."""
        return not self.requested_device.startswith("cpu")

    def capability(self) -> tuple[int, int]:
        """Return the compute capability of the GPU; (0, 0) on a CPU."""
        return tuple(self.torch().cuda.get_device_capability(self.device)) if self.cuda else (0, 0)

    def wait_for_gpu(self) -> None:
        """Synchronise, so that asynchronous GPU errors appear here."""
        if self.cuda:
            self.torch().cuda.synchronize(self.device)

    def join_group(self, backend: str = "") -> Any:
        """Create the group of all ranks as a step; return torch.distributed."""
        from datetime import timedelta

        torch = self.torch()
        import torch.distributed as dist

        if not dist.is_available():
            raise Absent("torch %s is a build without torch.distributed" % torch.__version__)
        backend = backend or ("nccl" if self.cuda else "gloo")
        self.begin_step("make the group (%s, %d ranks)" % (backend, self.ranks))
        patience = timedelta(seconds=max(10.0, self.deadline - (time.monotonic() - self.started_at) - 5))
        dist.init_process_group(backend, rank=self.rank, world_size=self.ranks, timeout=patience)
        self.record_note("backend", backend)
        if backend == "nccl":
            self.record["versions"]["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        return dist

    # -- the result ---------------------------------------------------------------------------------------

    def write(self) -> None:
        path = os.environ.get("GPUREADY_PROOF")
        if not path:
            return
        draft = "%s.%d" % (path, os.getpid())
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(self.record, file)
        os.replace(draft, path)

    def write_verdict(self, verdict: str, why: str = "") -> None:
        self.record.update(verdict=verdict, why=why[:2000], seconds=time.monotonic() - self.started_at)
        self.write()


def is_within_bound(value: float, bound: str, limit: float) -> bool:
    """Whether a number is inside its bound; NaN never is."""
    return {"most": value <= limit, "least": value >= limit, "equal": value == limit}[bound]


def main(act: Callable[[ProofRun], None]) -> None:
    """Run one proof to its verdict. The exit code is 0 only if it passed."""
    import traceback

    _die_with_parent()
    _enable_stack_dumps()
    p = ProofRun(sys.argv[1:])
    verdict, why = "passed", ""
    p.begin_step("begin")
    try:
        act(p)
        p.wait_for_gpu() if p._torch is not None else None
        if not any("bound" in row for row in p.record["numbers"].values()):
            raise WrongResult("nothing was measured against a bound: nothing is proved")
    except Absent as gone:
        verdict, why, p.record["lacks"] = "absent", str(gone), gone.lacks
    except Unsupported as cannot:
        verdict, why = "unsupported", str(cannot)
    except WrongResult as wrong:
        verdict, why = "failed", str(wrong)
    except BaseException as error:  # sys.exit in a package is a failure too
        traceback.print_exc()
        verdict, why = "failed", describe_error(error)
    p.write_verdict(verdict, why)
    sys.stdout.flush()
    sys.stderr.flush()
    if verdict != "passed":
        os._exit(1)  # a failing shutdown would hide the first failure
    _leave_group()


def describe_error(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, lines[0]) if lines else type(error).__name__


def _die_with_parent() -> None:
    """Die with the parent process, however it ends."""
    if not sys.platform.startswith("linux"):
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
    except (OSError, ImportError, AttributeError):
        return


def _enable_stack_dumps() -> None:
    """Print the Python stack on a crash, and on a hang shortly before the deadline."""
    import faulthandler

    faulthandler.enable()
    left = float(os.environ.get("GPUREADY_PROOF_DEADLINE", "0"))
    if left > 2:
        faulthandler.dump_traceback_later(left - min(2.0, left / 4))


def _leave_group() -> None:
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def load_script(name: str) -> Callable[[ProofRun], None]:
    """Return what a script of this folder runs; it is loaded under a name that no package has."""
    from importlib import util

    spec = util.spec_from_file_location("proof_script", os.path.join(HERE, name + ".py"))
    assert spec is not None and spec.loader is not None
    sys.modules["proof_script"] = script = util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def run_check(p: ProofRun) -> None:
        getattr(script, "check_" + p.arguments[0].replace("-", "_"))(p, p.torch())

    return getattr(script, "run_proof", run_check)


if __name__ == "__main__":
    sys.modules["proof"] = sys.modules["__main__"]  # as the scripts import it
    main(load_script(sys.argv.pop(1)))
