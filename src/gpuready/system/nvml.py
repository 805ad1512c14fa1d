"""NVML, the driver's own library: what it reports about the driver and each GPU.

It is only ever loaded in a separate process: a driver may hang or crash.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpuready.system.files import error_reason
from gpuready.system.host_access import AccessError
from gpuready.system.nvml_gpu import NvmlError, NvmlLibrary, read_field, read_gpu
from gpuready.system.process import runner
from gpuready.system.process.isolation import run_in_child

LIBRARY_NAME = "libnvidia-ml.so.1"

_SCRIPT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from gpuready.system import nvml; nvml.print_nvml_parts(sys.argv[2])"
)


def iterate_nvml_parts(path: str) -> Iterator[dict[str, Any]]:
    """Yield the driver's part, then one part per GPU: {"gpu": {...}}. An error ends it: {"error", "says"}."""
    try:
        nvml = NvmlLibrary(path)
    except OSError as error:
        yield {"error": None, "says": f"{path} cannot be loaded: {str(error).splitlines()[0]}"}
        return
    try:
        nvml.call_newest("nvmlInit_v2 nvmlInit")
        count = nvml.get_number("nvmlDeviceGetCount_v2 nvmlDeviceGetCount", ())
    except NvmlError as refusal:
        yield {"error": refusal.code, "says": refusal.message}
        return
    yield {
        "driver": read_field(lambda: nvml.get_text("nvmlSystemGetDriverVersion")),
        "cuda": read_field(lambda: _cuda_version(nvml)),
        "library": path,
        "count": count,
    }
    for index in range(count):
        yield {"gpu": read_gpu(nvml, index)}


def _cuda_version(nvml: NvmlLibrary) -> str:
    number = nvml.get_number("nvmlSystemGetCudaDriverVersion_v2 nvmlSystemGetCudaDriverVersion", (), kind="c_int")
    return f"{number // 1000}.{number % 1000 // 10}"


def combine_parts(parts: list[dict[str, Any]], fault: str) -> dict[str, Any] | None:
    """Combine the parts; GPUs without a part carry the fault. None where there is no part."""
    if not parts:
        return None
    head = dict(parts[0])
    count = head.pop("count", 0)
    if "error" in head:
        return head
    gpus = [part["gpu"] for part in parts[1:]]
    rest = [{"index": index, "gap": fault} for index in range(len(gpus), count)]
    return {**head, "gpus": gpus + rest}


def query_in_process(path: str, deadline: float, fork: bool) -> dict[str, Any]:
    """Query NVML in a separate process; raises AccessError where nothing came back."""
    parts, fault = _query_forked(path, deadline) if fork else _query_spawned(path, deadline)
    answer = combine_parts(parts, fault)
    if answer is None:
        raise AccessError(fault)
    return answer


def _query_forked(path: str, deadline: float) -> tuple[list[dict[str, Any]], str]:
    def send_parts(emit: Callable[[Any], None]) -> None:
        for part in iterate_nvml_parts(path):
            emit(part)

    try:
        child = run_in_child(send_parts, deadline)
    except OSError as error:
        return [], f"cannot start a process: {error_reason(error)}"
    return [part for part in child.sent if part], child.fault


def _query_spawned(path: str, deadline: float) -> tuple[list[dict[str, Any]], str]:
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    argv = (sys.executable, "-I", "-S", "-c", _SCRIPT, here, path)
    env = runner.child_environment(os.environ, None)
    ran = runner.run_program(sys.executable, argv, env, deadline, 1 << 22)
    fault = f"no answer within {deadline:g} s" if ran.end == "deadline" else f"crashed: {ran.end}"
    return [json.loads(line) for line in ran.out.splitlines() if line.endswith("}")], fault


def print_nvml_parts(path: str) -> None:
    """Query NVML in this interpreter and print one line of JSON per part."""
    for part in iterate_nvml_parts(path):
        sys.stdout.write(json.dumps(part) + "\n")
        sys.stdout.flush()
