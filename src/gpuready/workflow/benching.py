"""``gpuready bench``: measure the machine, and compare it with what its kind reaches."""

from __future__ import annotations

from gpuready import __version__, rules, system
from gpuready.benched import Benched, Measure, spread
from gpuready.catalog import as_of, bands
from gpuready.model import Contract, Fact
from gpuready.workflow import looking
from gpuready.workflow.refusal import Refused, nearest, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuready.catalog.bands import Band, Kind
    from gpuready.model import Facts
    from gpuready.prove.bench import Outcome, Task

JUDGES = ("GPU021", "GPU022")
ALONE = ("compute", "memory", "held", "launch")
"""Groups in which GPUs do not disturb each other: several GPUs are measured at once."""

TOGETHER = ("peers", "collective")
"""Groups that need several GPUs; left out of a quick run, as is the group that takes seconds."""

SIZES = (1 << 20, 16 << 20, 256 << 20)
MOST = 20


def bench(
    *,
    python: str | None = None,
    quick: bool = False,
    only: str | None = None,
    repeat: int = 2,
    gpu: int | None = None,
    folder: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    options: dict[str, Any] | None = None,
) -> Benched:
    """Measure this machine. ``options`` is passed to the scripts as it is: sizes and seconds, for tests."""
    door = system.Live()
    begun = door.now()
    kinds = chosen(only, quick)
    say("looking at the machine")
    facts = looking.start(None, python, {}, None)[0]()
    gpus = _gpus(facts, gpu, quick)
    places = _places(facts, gpus)
    given = {"quick": quick, "repeat": repeat, "folders": _folders(door, folder)} | (options or {})
    from gpuready.prove.bench import Outcome, run

    interpreter = str(facts.value("python.path"))
    outcomes = [Outcome(tuple(_without(kinds, gpus, facts)))]
    outcomes += [
        run(tasks, interpreter, _variables(door), door, say) for tasks in _phases(kinds, places, given)
    ]
    return _judged(facts, outcomes, places, kinds, quick, repeat, door.now() - begun)


def listed() -> list[dict[str, Any]]:
    """Return every measure, for --list."""
    return [kind.to_json() for kind in bands.every()]


# -- options --------------------------------------------------------------------------------------------


def chosen(only: str | None, quick: bool) -> list[Kind]:
    """Return the requested measures: by name, by prefix, or by group."""
    every = bands.every()
    if only is None:
        return [kind for kind in every if not (quick and kind.group in (*TOGETHER, "held"))]
    found: list[Kind] = []
    for word in [w.strip().lower() for w in only.split(",") if w.strip()]:
        hits = [k for k in every if k.name == word] or [
            k for k in every if k.group == word or k.name.startswith(word + "-")
        ]
        if not hits:
            names = [*(k.name for k in every), *{k.group for k in every}]
            raise Refused(
                f"--only {word}: nothing is measured under that name{nearest(word, names)}; `gpuready bench --list`"
            )
        found += [k for k in hits if k not in found]
    if not found:
        raise Refused("--only names no measure; `gpuready bench --list` shows them")
    return found


def _gpus(facts: Facts, asked: int | None, quick: bool) -> tuple[int, ...]:
    """Return the indexes of the GPUs to measure; (-1,) where only torch can tell whether there is one."""
    count, shown = facts.fact("gpu.count"), facts.known("gpu.visible")
    if count.gap:
        present = facts.known("gpu.nodes") or facts.known("gpu.pci_count") or facts.known("driver.version")
        known: tuple[int, ...] = (-1,) if present else ()
    else:
        known = tuple(shown or ()) if count.value else ()
    if asked is None:
        return known[:1] if quick else known
    if asked not in known:
        there = ", ".join(map(str, known)) or "none"
        raise Refused(f"--gpu {asked}: CUDA shows no such GPU here (it shows {there})")
    return (asked,)


def _places(facts: Facts, gpus: tuple[int, ...]) -> dict[int, str]:
    """Return torch's name of each GPU: its position among those that CUDA shows."""
    shown = list(facts.known("gpu.visible") or ())
    return {gpu: f"cuda:{shown.index(gpu) if gpu in shown else 0}" for gpu in gpus}


def _folders(door: system.Door, folder: str | None) -> list[str]:
    """Return where the disk is measured: the given folder; else the current and the temporary one."""
    here = refusing(door.cwd)
    if folder is None:
        return [here, door.env("TMPDIR") or "/tmp"]
    path = folder if folder.startswith("/") else f"{here}/{folder}"
    if (refusing(door.list, path)) is None:
        raise Refused(f"--folder {folder}: there is no such folder")
    return [path]


def _variables(door: system.Live) -> dict[str, str]:
    """Return the user's environment, with GPUs in PCI bus order as gpuready counts them."""
    return dict(door.variables) | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


# -- the tasks --------------------------------------------------------------------------------------------------


def _without(kinds: list[Kind], gpus: tuple[int, ...], facts: Facts) -> Iterable[dict[str, Any]]:
    """Return the rows of what cannot be measured here: no GPU, or too few."""
    from gpuready.prove.bench import _never

    for kind in kinds:
        if kind.device == "cuda" and not gpus:
            yield _never(f"{kind.name}@cuda", "absent", _no_gpu(facts))
        elif kind.gpus > 1 and gpus and len(gpus) < kind.gpus:
            yield _never(
                f"{kind.name}@cuda", "skipped", f"needs {kind.gpus} GPUs, and {len(gpus)} is measured"
            )


def _no_gpu(facts: Facts) -> str:
    count = facts.fact("gpu.count")
    if count.gap:
        return f"no GPU can be seen: {count.gap}"
    return "CUDA shows none of the GPUs" if count.value else "there is no GPU"


def _phases(kinds: list[Kind], places: dict[int, str], given: dict[str, Any]) -> list[tuple[Task, ...]]:
    """Group the tasks: those of a phase run at the same time, phases one after the other."""
    from gpuready.prove.bench import Task

    own = [
        [f"{kind.name}@{place}" for kind in kinds if kind.device == "cuda" and kind.group in ALONE]
        for place in places.values()
    ]
    shared = [f"{k.name}@{place}" for place in places.values() for k in kinds if k.group == "transfer"]
    shared += [f"{k.name}@cuda:0" for k in kinds if k.group == "peers" and len(places) > 1]
    shared += [f"{k.name}@cpu" for k in kinds if k.device == "cpu"]
    # With one GPU everything runs in one process: torch is imported once.
    rows = [[[*own[0], *shared]]] if len(own) == 1 else [own, [shared]]
    limit = 120.0 if given["quick"] else 900.0
    phases = [tuple(Task(tuple(words), given, deadline=limit) for words in row if words) for row in rows]
    return [phase for phase in [*phases, *_collectives(kinds, tuple(places), given)] if phase]


def _collectives(
    kinds: list[Kind], gpus: tuple[int, ...], given: dict[str, Any]
) -> Iterable[tuple[Task, ...]]:
    from gpuready.prove.bench import Task

    names = [kind.name for kind in kinds if kind.group == "collective"]
    if not names or len(gpus) == 1:
        return
    device, ranks = ("cuda", len(gpus)) if gpus else ("cpu", 2)
    sizes = list(given.get("sizes") or (SIZES if gpus else SIZES[:2]))
    words = tuple(f"{name}@{device}" for name in names)
    yield (Task(words, given | {"measures": names, "sizes": sizes}, "bench_ranks", device, ranks, 300.0),)


# -- the result -----------------------------------------------------------------------------------------------


def _judged(
    facts: Facts,
    outcomes: list[Outcome],
    places: dict[int, str],
    kinds: list[Kind],
    quick: bool,
    repeat: int,
    seconds: float,
) -> Benched:
    from gpuready.check import judge

    order = [kind.name for kind in kinds]
    raw = sorted((row for o in outcomes for row in o.rows), key=lambda row: order.index(row["name"]))
    names = {k: str(v) for o in outcomes for k, v in o.hardware.items() if k.startswith("cuda")}
    rows = tuple(placed(row, facts, places, names) for row in raw)
    samples = tuple(sample for o in outcomes for sample in o.samples)
    known = facts.also(
        Fact("bench.measures", rows, "gpuready bench", "run"),
        Fact("bench.samples", samples, "NVML while it was measured", "run"),
    )
    contract = Contract("bench", __version__, title="as fast as it should be", platforms=("cuda",))
    report = judge([rules.rule(code) for code in JUDGES], known, contract, catalog=as_of())
    versions = {k: v for o in outcomes for k, v in o.versions.items() if v}
    return Benched(
        facts.host,
        str(facts.known("python.path") or ""),
        report,
        tuple(measure(row, known) for row in rows),
        versions,
        _hardware(facts, outcomes),
        _today(),
        quick,
        repeat,
        round(seconds, 1),
    )


def placed(
    row: dict[str, Any], facts: Facts, places: dict[int, str], names: dict[str, str]
) -> dict[str, Any]:
    """Add what is known of a row's device: the catalogue's expected figure, the band of its records.

    ``names`` are torch's names of the GPUs, for one that the driver does not name.
    """
    kind = bands.named(row["name"])
    assert kind is not None
    index = _index(row["device"], places)
    name, link, memory = (_of(facts, key, index) for key in ("gpu.name", "gpu.pcie_max", "gpu.memory"))
    name = name or names.get(row["device"])
    figure, cite = (
        bands.expected(kind, str(name or ""), str(link or ""), memory) if index is not None else (None, "")
    )
    seen: Band | None = bands.band(str(name), kind.name) if index is not None and name else None
    passes = tuple(row["passes"])
    value = (min if kind.better == "less" else max)(passes) if passes else None
    return row | {
        "gpu": index,
        "unit": kind.unit,
        "group": kind.group,
        "better": kind.better,
        "value": value,
        "spread": spread(passes),
        "expected": figure,
        "cite": cite,
        "low": seen.low if seen else None,
        "high": seen.high if seen else None,
        "executed": kind.executed,
    }


def _index(device: str, places: dict[int, str]) -> int | None:
    """Return the machine's index of the GPU behind ``cuda:1``; None for the CPU, -1 where there is no GPU."""
    if not device.startswith("cuda"):
        return None
    return next((gpu for gpu, place in places.items() if place == device), next(iter(places), -1))


def _of(facts: Facts, key: str, index: int | None) -> Any:
    values = facts.fact(key).value or ()
    return values[index] if index is not None and 0 <= index < len(values) else None


def measure(row: dict[str, Any], facts: Facts) -> Measure:
    """Convert a row to a Measure, with its verdict and, where it is low, the reasons."""
    from gpuready.rules import pace, slowness

    verdict, why = pace.verdict(row, facts)
    low = verdict in ("slow", "noisy", "undecided") and row["raw"] == "measured"
    ratio = row["value"] / row["expected"] if row["value"] and row["expected"] else None
    return Measure(
        row["name"],
        verdict,
        _device(row),
        row["value"],
        row["unit"],
        row["expected"],
        ratio,
        (row["low"], row["high"]) if row["low"] is not None else (),
        why,
        row["spread"],
        row["at"],
        tuple(row["passes"]),
        row["best"],
        tuple(slowness.reasons(row, facts)) if low else (),
        row["cite"],
        row["executed"],
        round(sum(end - begin for begin, end in row["spans"]), 3),
        row.get("tried", 0),
    )


def _device(row: dict[str, Any]) -> str:
    if row["group"] in TOGETHER:
        return "GPUs" if row["gpu"] is not None else "cpu"
    return "cpu" if row["gpu"] is None else "GPU" if row["gpu"] < 0 else f"GPU {row['gpu']}"


def _hardware(facts: Facts, outcomes: list[Outcome]) -> dict[str, Any]:
    keys = ("gpu.name", "driver.version", "host.cpus", "memory.total", "os.arch", "os.pretty")
    known = {key: facts.known(key) for key in keys}
    found = {key: value for key, value in known.items() if value}
    return found | {k: v for o in outcomes for k, v in o.hardware.items() if k.startswith("cuda")}


def _today() -> str:
    from datetime import datetime, timezone

    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
