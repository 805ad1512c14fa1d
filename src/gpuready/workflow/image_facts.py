"""Facts of an image that is on this machine: gpuready runs inside it, without a network and without writing."""

import json
import re
import secrets
from collections.abc import Mapping, Sequence

from gpuready import system
from gpuready.containers.dockerfile_facts import merge_container_facts
from gpuready.fleet.node_payload import pack_gpuready
from gpuready.model import NOT_STATED, Fact, Facts
from gpuready.system.host_access import RunResult
from gpuready.system.process.runner import ask_program
from gpuready.workflow.machine_facts import Probing, parse_recording, start_probing
from gpuready.workflow.refusal import Refused

ENGINES = ("podman", "docker")
SECONDS = 300.0
MAX_ANSWER_BYTES = 32 << 20
ISOLATION = (
    "--pull=never", "--network=none", "--read-only", "--tmpfs=/tmp", "--cap-drop=all",
    "--security-opt=no-new-privileges",
)  # fmt: skip
STARTER = """import runpy, sys
with open("/tmp/gpuready.pyz", "wb") as file:
    file.write(sys.stdin.buffer.read())
runpy.run_path("/tmp/gpuready.pyz", run_name="__main__")
"""
IMAGE_FACT_PREFIXES = (
    "python.", "package.", "torch.", "toolkit.", "compiler.", "cudnn.", "nccl.", "libcudart.", "libcudnn.", "libnccl.",
    "library.", "import.", "extension.", "env.", "os.system", "os.name", "os.version", "os.pretty", "os.glibc",
    "os.manager", "os.container",
)  # fmt: skip
"""What is the image's own; shared memory, limits and networks come with how a container is started."""


def start_image_facts(image: str, on: str | None, what_if: Mapping[str, str], words: Sequence[str]) -> Probing:
    """Start probing the host. Return functions to collect the facts, to tell whether they are ready, and to stop."""
    collect, ready, stop = start_probing(on, None, what_if, None)
    return lambda: image_facts(image, collect(), words), ready, stop


def image_facts(image: str, host: Facts, words: Sequence[str]) -> Facts:
    """Return the facts of an image on a host; ``words`` are those of the check that runs inside."""
    engine, identity = _find_image(image)
    found = parse_recording(_run_inside(engine, identity, image, words), f"the answer from {image}")
    kept = [fact for fact in found if fact.key.startswith(IMAGE_FACT_PREFIXES) and fact.key != "python.disk_free"]
    stated = [Fact("container.image", image, f"{engine} run", "run"), *_required_cuda(found)]
    merged = merge_container_facts(host, [*kept, *stated])
    return Facts(merged, f"{image} on {host.host}" if host.host else image, NOT_STATED)


def _find_image(image: str) -> tuple[str, str]:
    """Return the engine that has an image, and the image's identity."""
    host = system.LiveHost()
    engines = [engine for engine in ENGINES if host.find_program(engine)]
    if not engines:
        raise Refused("--image needs podman or docker, and neither is on PATH")
    reasons: list[str] = []
    for engine in engines:
        result = host.run([engine, "image", "inspect", "--format={{.Id}}", "--", image], 60.0)
        if result.rc == 0 and result.out.strip():
            return engine, result.out.split()[0]
        reason = _last_line(result)
        if not any(words in reason.lower() for words in ("no such", "not known", "not found")):
            reasons.append(f"{engine} does not answer: {reason}")
    if len(reasons) == len(engines):
        raise Refused(f"--image: {'; '.join(reasons)}")
    raise Refused(f"{image} is not an image of this machine, and gpuready pulls none: {engines[0]} pull {image}")


def _run_inside(engine: str, identity: str, image: str, words: Sequence[str]) -> str:
    """Run gpuready in a container of the image; return the report that it prints."""
    name = f"gpuready-{secrets.token_hex(4)}"
    start = [engine, "run", "--rm", "--interactive", f"--name={name}", *ISOLATION, "--entrypoint=python3", identity]
    argv = [*start, "-I", "-c", STARTER, "check", "--json", *words]
    ended = False
    try:
        result = ask_program(system.LiveHost(), argv, pack_gpuready(), SECONDS, MAX_ANSWER_BYTES)
        ended = not result.end
    finally:
        if not ended:  # its client was ended, which does not end the container
            system.LiveHost().run([engine, "rm", "--force", name], 30.0)
    try:
        answer = json.loads(result.out)
        return json.dumps({**answer, **answer["reports"][0]} if "reports" in answer else answer)
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Refused(f"gpuready could not run inside {image}: {_why_not(result)}") from None


def _why_not(result: RunResult) -> str:
    if result.end:
        return result.end if result.end != "deadline" else f"it was not done within {SECONDS:.0f} s"
    return "it has no python3 on its PATH" if result.rc == 127 else _last_line(result)


def _last_line(result: RunResult) -> str:
    lines = [line.strip() for line in result.err.splitlines() if line.strip()]
    return system.redact_text(lines[-1][:300]) if lines else result.end or f"exit code {result.rc}"


def _required_cuda(found: Facts) -> list[Fact]:
    """The CUDA that an image asks of the driver before it starts: ``NVIDIA_REQUIRE_CUDA=cuda>=12.8 brand=…``."""
    fact = found.fact("env.NVIDIA_REQUIRE_CUDA")
    asked = re.match(r"cuda>=(\d{1,2}\.\d)\b", str(fact.value or ""))
    return [Fact("container.cuda", asked[1], fact.source, "read")] if asked else []
