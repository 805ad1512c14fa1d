"""The machine inside a container, from its Dockerfile or compose file and its host."""

from collections.abc import Mapping

from gpuready import system
from gpuready.containers import compose, dockerfile_facts
from gpuready.model import NOT_STATED, Fact, Facts
from gpuready.probe import stated_machine
from gpuready.workflow.refusal import Refused, call_or_refuse, host_for_named_files, read_named_file

MAX_FILE_BYTES = 1 << 20


def container_facts(path_and_service: str, host: Facts | None, what_if: Mapping[str, str]) -> Facts:
    """Return the facts of a Dockerfile, ``compose.yml`` or ``compose.yml#SERVICE`` on a host; flags override the file."""
    path, service = _split_service(path_and_service)
    text = read_named_file(path)
    host_facts = host or Facts(
        call_or_refuse(stated_machine.what_if_facts, what_if, _stated_arch(what_if)), "", NOT_STATED
    )
    arch = host_facts.value_if_known("os.arch") or _stated_arch(what_if)
    shares: tuple[str, ...] = ()
    try:
        if compose.is_compose_file(path, text):
            file_facts, shares = compose.read_compose_service(read_referenced_file, path, text, service, arch)
        else:
            file_facts = dockerfile_facts.read_dockerfile_facts(read_referenced_file, path, text, arch, {}, service)
    except ValueError as error:
        raise Refused(f"{path}: {error}") from None
    if host is None and "driver" in what_if:
        host_facts = host_facts.with_facts(*_unnamed_gpu_facts(file_facts))
    facts = dockerfile_facts.merge_container_facts(
        host_facts, [*file_facts, *call_or_refuse(stated_machine.what_if_facts, what_if, arch)], shares
    )
    name = path.rpartition("/")[2] + (f"#{service}" if service else "")
    return Facts(facts, f"{name} on {host.host}" if host is not None and host.host else name, NOT_STATED)


def _split_service(path_and_service: str) -> tuple[str, str]:
    """Split off the service or stage after #; a file whose own name has a # is taken as it is."""
    path, _, service = path_and_service.rpartition("#")
    if not path or host_for_named_files().stat_path(path_and_service) is not None:
        return path_and_service, ""
    return path, service


def _stated_arch(what_if: Mapping[str, str]) -> str:
    return what_if.get("arch", "x86_64")


def _unnamed_gpu_facts(file: list[Fact]) -> list[Fact]:
    """Return facts for one GPU of unknown model: a host with a stated driver has a GPU."""
    count = next((f.value for f in file if f.key == "job.gpus"), 1)
    stated = {"gpu.count": count, "gpu.visible": tuple(range(count)), "platform.name": "cuda"}
    return [Fact(key, value, "--as driver", "stated") for key, value in stated.items()]


def read_referenced_file(path: str) -> str | None:
    """Read a file that another one names; None where it is missing, too large or not allowed."""
    try:
        return host_for_named_files().read_text(path, MAX_FILE_BYTES)
    except system.AccessError:
        return None
