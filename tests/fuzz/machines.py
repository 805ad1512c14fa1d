"""What a machine, its scheduler and its user say, piece by piece."""

from __future__ import annotations

from typing import Any

from tests.fuzz.paper import Doctored, plain, text, tried


def host(data: bytes) -> None:
    """A whole machine, all of whose answers but one are real: files of /proc and /sys, the loader, programs, variables."""
    from gpuready import probe
    from gpuready.system import AccessError

    access = Doctored(int.from_bytes(data[:2], "big"), text(data[2:]))
    for name, look, _, _ in probe.list_probes(access, None, ["transformers"], ["NCCL_DEBUG"]):
        try:
            found = look(access)
            plain(*([found] if isinstance(found, list) else found))
        except AccessError:
            continue
        except RecursionError:
            raise AssertionError(f"the look {name} is too deep") from None


def variables(data: bytes) -> None:
    """What launchers and schedulers set: lines of NAME=VALUE."""
    from gpuready import cluster
    from gpuready.probe import network, visibility

    lines = [line.partition("=") for line in text(data).split("\n")]
    environ = {name: value for name, _, value in lines if name}
    for launcher in (None, *cluster.LAUNCHERS):
        tried(lambda _, launcher=launcher: cluster.discover_rendezvous(environ, launcher), "")  # type: ignore[misc]
    for value in list(environ.values())[:4]:
        visibility.parse_visible_devices(value, 8, [f"GPU-{n}" for n in range(8)])
        (
            list(network.parse_local_addresses(value)),
            list(network.parse_routes(value)),
            list(network.parse_inet6_addresses(value)),
        )


def stated(data: bytes) -> None:
    """A machine in words, and the flags that change it."""
    from gpuready.jobs import model_config
    from gpuready.model import sizes
    from gpuready.probe import stated_machine as reader

    result = text(data)
    name, _, rest = result.partition("\n")
    what_if = dict(zip(reader._FLAG_STATERS, rest.split("\n"), strict=False))
    tried(lambda _: plain(list(reader.stated_machine_facts(name, {}))), "")
    for flag, value in what_if.items():
        tried(lambda _, f=flag, v=value: plain(reader.what_if_facts({f: v}, "x86_64")), "")  # type: ignore[misc]
    sizes.parse_count(name), sizes.parse_size(name), model_config.find_size_in_name(name)


def versions(data: bytes) -> None:
    """Versions, ranges, wants and conditions, as contracts and indexes write them."""
    from gpuready.catalog import torch
    from gpuready.contracts import want, when
    from gpuready.model import versions as reader

    one, _, two = text(data).partition("\n")
    tried(lambda v: reader.compare_versions(v, two or "1.0"), one)
    tried(lambda v: reader.satisfies_specifier("2.8.0", v), one)
    tried(lambda v: reader.satisfies_specifier(v, two or ">=1"), one)
    for read in (
        reader.is_version,
        reader.find_version,
        reader.major_minor,
        reader.parse_release,
        torch.parse_torch_version,
        torch.parse_arch_list,
    ):
        tried(read, one)
    for kind in ("", "version", "bytes", "count", "flag", "text"):
        tried(lambda v, kind=kind: want.check_want(v, kind), one)  # type: ignore[misc]
    for value in ("2.8.0", 3, 2.5, True, "x", ("a", "b")):
        tried(lambda v, value=value: want.value_meets_want(v, value), one)  # type: ignore[misc]
    for check in (when.check_condition, when.condition_keys, when.wanted_words, when.parse_model_size):
        tried(check, one)


def compose(data: bytes) -> None:
    """A compose file, with the Dockerfile that it builds from."""
    from gpuready.containers import compose as reader

    result = text(data)
    reader.is_compose_file("x", result)
    plain(reader.read_compose_service(lambda path: result, "compose.yml", result)[0])


def stream(data: bytes) -> None:
    """A log as bytes: compressed, in UTF-16, binary; what swells is cut."""
    from gpuready.system import log_streams
    from tests.fuzz.paper import file

    for one in log_streams.open_log_streams(file(data, ".log")):
        size = 0
        log_streams.unreadable_reason(one.read_head())
        for piece in one:
            size += len(piece)
        assert size < (1 << 30), "it swells without an end"


EVERY: tuple[Any, ...] = (host, variables, stated, versions, compose, stream)
