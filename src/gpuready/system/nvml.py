"""NVML, the driver's own library: what it reports about the driver and each GPU.

It is only ever loaded in a separate process: a driver may hang or crash.
"""

from __future__ import annotations

from gpuready.system.door import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from gpuready.system.nvml_calls import Nvml

LIBRARY = "libnvidia-ml.so.1"

_SCRIPT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from gpuready.system import nvml; nvml.script(sys.argv[2])"
)


def look(path: str) -> Iterator[dict[str, Any]]:
    """Yield the driver's part, then one part per GPU: {"gpu": {...}}. An error ends it: {"error", "says"}."""
    from gpuready.system.nvml_calls import Nvml, Refused
    from gpuready.system.nvml_gpu import field, gpu

    try:
        nvml = Nvml(path)
    except OSError as error:
        yield {"error": None, "says": f"{path} cannot be loaded: {str(error).splitlines()[0]}"}
        return
    try:
        nvml.call("nvmlInit_v2 nvmlInit")
        count = nvml.number("nvmlDeviceGetCount_v2 nvmlDeviceGetCount", ())
    except Refused as no:
        yield {"error": no.code, "says": no.says}
        return
    yield {
        "driver": field(lambda: nvml.words_of("nvmlSystemGetDriverVersion")),
        "cuda": field(lambda: _cuda(nvml)),
        "library": path,
        "count": count,
    }
    for index in range(count):
        yield {"gpu": gpu(nvml, index)}


def _cuda(nvml: Nvml) -> str:
    number = nvml.number("nvmlSystemGetCudaDriverVersion_v2 nvmlSystemGetCudaDriverVersion", (), kind="c_int")
    return f"{number // 1000}.{number % 1000 // 10}"


def gather(parts: list[dict[str, Any]], fault: str) -> dict[str, Any] | None:
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


def ask(path: str, deadline: float, fork: bool) -> dict[str, Any]:
    """Query NVML in a separate process; raises AccessError where nothing came back."""
    parts, fault = _forked(path, deadline) if fork else _spawned(path, deadline)
    whole = gather(parts, fault)
    if whole is None:
        raise Blind(fault)
    return whole


def _forked(path: str, deadline: float) -> tuple[list[dict[str, Any]], str]:
    from gpuready.system.child import alone
    from gpuready.system.files import why

    def work(emit: Callable[[Any], None]) -> None:
        for part in look(path):
            emit(part)

    try:
        child = alone(work, deadline)
    except OSError as error:
        return [], f"cannot start a process: {why(error)}"
    return [part for part in child.sent if part], child.fault


def _spawned(path: str, deadline: float) -> tuple[list[dict[str, Any]], str]:
    import json
    import os
    import sys

    from gpuready.system import runner

    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    argv = (sys.executable, "-I", "-S", "-c", _SCRIPT, here, path)
    env = runner.environment(os.environ, None)
    ran = runner.run(sys.executable, argv, env, deadline, 1 << 22)
    fault = f"no answer within {deadline:g} s" if ran.end == "deadline" else f"crashed: {ran.end}"
    return [json.loads(line) for line in ran.out.splitlines() if line.endswith("}")], fault


def script(path: str) -> None:
    """Query NVML in this interpreter and print one line of JSON per part."""
    import json
    import sys

    for part in look(path):
        sys.stdout.write(json.dumps(part) + "\n")
        sys.stdout.flush()
