"""What a machine, its scheduler and its user say, piece by piece."""

from __future__ import annotations

from typing import Any

from tests.fuzz.paper import Doctored, plain, text, tried


def host(data: bytes) -> None:
    """A whole machine, all of whose answers but one are real: files of /proc and /sys, the loader, programs, variables."""
    from gpuready import probe
    from gpuready.system import Blind

    door = Doctored(int.from_bytes(data[:2], "big"), text(data[2:]))
    for name, look, _, _ in probe.looks(door, None, ["transformers"], ["NCCL_DEBUG"]):
        try:
            found = look(door)
            plain(*([found] if isinstance(found, list) else found))
        except Blind:
            continue
        except RecursionError:
            raise AssertionError(f"the look {name} is too deep") from None


def variables(data: bytes) -> None:
    """What launchers and schedulers set: lines of NAME=VALUE."""
    from gpuready import cluster
    from gpuready.probe import addresses, visibility

    lines = [line.partition("=") for line in text(data).split("\n")]
    environ = {name: value for name, _, value in lines if name}
    for launcher in (None, *cluster.LAUNCHERS):
        tried(lambda _, launcher=launcher: cluster.discover(environ, launcher), "")  # type: ignore[misc]
    for value in list(environ.values())[:4]:
        visibility.parse(value, 8, [f"GPU-{n}" for n in range(8)])
        list(addresses.local(value)), list(addresses.routes(value)), list(addresses.inet6(value))


def stated(data: bytes) -> None:
    """A machine in words, and the flags that change it."""
    from gpuready.probe import size
    from gpuready.probe import stated as reader

    told = text(data)
    name, _, rest = told.partition("\n")
    what_if = dict(zip(reader._STATERS, rest.split("\n"), strict=False))
    tried(lambda _: plain(list(reader.machine(name, {}))), "")
    for flag, value in what_if.items():
        tried(lambda _, f=flag, v=value: plain(reader.variations({f: v}, "x86_64")), "")  # type: ignore[misc]
    size.written(name), size.in_name(name)


def versions(data: bytes) -> None:
    """Versions, ranges, wants and conditions, as contracts and indexes write them."""
    from gpuready import versions as reader
    from gpuready.catalog import architectures, torch
    from gpuready.contracts import want, when

    one, _, two = text(data).partition("\n")
    tried(lambda v: reader.compare(v, two or "1.0"), one)
    tried(lambda v: reader.satisfies("2.8.0", v), one)
    tried(lambda v: reader.satisfies(v, two or ">=1"), one)
    for read in (
        reader.is_version,
        reader.first,
        reader.minor,
        reader.release,
        torch.parse,
        architectures.entries,
    ):
        tried(read, one)
    for kind in ("", "version", "bytes", "count", "flag", "text"):
        tried(lambda v, kind=kind: want.check(v, kind), one)  # type: ignore[misc]
    for value in ("2.8.0", 3, 2.5, True, "x", ("a", "b")):
        tried(lambda v, value=value: want.holds(v, value), one)  # type: ignore[misc]
    for check in (when.check, when.keys, when.words, when.parameters):
        tried(check, one)


def compose(data: bytes) -> None:
    """A compose file, with the Dockerfile that it builds from."""
    from gpuready.probe import compose as reader

    told = text(data)
    reader.is_compose("x", told)
    plain(reader.look(lambda path: told, "compose.yml", told)[0])


def stream(data: bytes) -> None:
    """A log as bytes: compressed, in UTF-16, binary; what swells is cut."""
    from gpuready.system import streams
    from tests.fuzz.paper import file

    for one in streams.streams(file(data, ".log")):
        size = 0
        streams.sealed(one.head())
        for piece in one:
            size += len(piece)
        assert size < (1 << 30), "it swells without an end"


EVERY: tuple[Any, ...] = (host, variables, stated, versions, compose, stream)
