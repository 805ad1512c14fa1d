"""``gpuready bench``: measure the machine, and compare it with what its kind reaches."""

from collections.abc import Callable, Iterable
from typing import Any

from gpuready import __version__, rules, system, workflow
from gpuready.catalog import bands, catalog_date
from gpuready.catalog.bands import Band, MeasureSpec
from gpuready.check.evaluate import judge
from gpuready.model import Contract, Fact, Facts
from gpuready.model.bench import BenchMeasure, BenchResult, range_by_core, relative_spread, typical_pass
from gpuready.prove.bench import BenchOutcome, BenchTask, _unmeasured_row, run_benchmarks
from gpuready.rules import bench_verdict, slowness_reasons
from gpuready.workflow import machine_facts
from gpuready.workflow.refusal import Refused, call_or_refuse, suggest_nearest

BENCH_RULES = ("GPU021", "GPU022")
INDEPENDENT_GROUPS = ("compute", "memory", "held", "launch", "eager")
"""Groups in which GPUs do not disturb each other: several GPUs are measured at once."""

MULTI_GPU_GROUPS = ("peers", "collective")
"""Groups that need several GPUs; only a full run has them and the groups that take seconds."""

SLOW_GROUPS = ("held", "eager")

COLLECTIVE_SIZES = (1 << 20, 16 << 20, 256 << 20)
MAX_REPEAT = 20
UNEQUAL_CORES = 1.3  # times that a layer may take longer on one core than on another before a note says so


def measure_machine(
    *,
    python: str | None = None,
    full: bool = False,
    only: str | None = None,
    repeat: int = 2,
    gpu: int | None = None,
    folder: str | None = None,
    show_progress: Callable[..., None] = lambda *_: None,
    options: dict[str, Any] | None = None,
) -> BenchResult:
    """Measure this machine: what gives a first answer, or all of it. ``options``, for tests: sizes and seconds."""
    host, is_brief = system.LiveHost(), not (full or only)
    begun = host.get_monotonic_time()
    kinds = choose_measures(only, is_brief)
    show_progress("looking at the machine")
    facts = machine_facts.start_probing(None, python, {}, None, run_python=True)[0]()
    gpus = _choose_gpus(facts, gpu)
    places = _torch_devices(facts, gpus)
    settings = {"quick": is_brief, "repeat": repeat, "folders": _disk_folders(host, folder)} | (options or {})
    interpreter = machine_facts.require_interpreter(facts)
    outcomes = [BenchOutcome(tuple(_unmeasurable_rows(kinds, gpus, facts)))]
    phases = _plan_phases(kinds, places, settings)
    show_step = _count_measures(show_progress, sum(len(task.words) for phase in phases for task in phase))
    outcomes += [run_benchmarks(tasks, interpreter, _bench_environment(host), host, show_step) for tasks in phases]
    return _judge_measures(facts, outcomes, places, kinds, is_brief, repeat, host.get_monotonic_time() - begun)


def _count_measures(show_progress: Callable[..., None], total: int) -> Callable[[str], None]:
    """Return what shows the measure that runs, and how many have run before it."""
    begun: dict[str, None] = {}

    def show_step(step: str) -> None:
        begun[step.removesuffix(" again")] = None
        show_progress(f"measuring {step}", min(len(begun), total) - 1, total)

    return show_step


def list_measures() -> list[dict[str, Any]]:
    """Return every measure, for --list."""
    return [kind.to_json() for kind in bands.list_measures()]


# -- options --------------------------------------------------------------------------------------------


def choose_measures(only: str | None, quick: bool) -> list[MeasureSpec]:
    """Return the requested measures: by name, by prefix, or by group."""
    all_kinds = bands.list_measures()
    if only is None:
        return [kind for kind in all_kinds if not (quick and kind.group in (*MULTI_GPU_GROUPS, *SLOW_GROUPS))]
    chosen_kinds: list[MeasureSpec] = []
    for word in [w.strip().lower() for w in only.split(",") if w.strip()]:
        matches = [k for k in all_kinds if k.name == word] or [
            k for k in all_kinds if k.group == word or k.name.startswith(word + "-")
        ]
        if not matches:
            names = [*(k.name for k in all_kinds), *{k.group for k in all_kinds}]
            raise Refused(
                f"--only {word}: nothing is measured under that name{suggest_nearest(word, names)}; `gpuready bench --list`"
            )
        chosen_kinds += [k for k in matches if k not in chosen_kinds]
    if not chosen_kinds:
        raise Refused("--only names no measure; `gpuready bench --list` shows them")
    return chosen_kinds


def _choose_gpus(facts: Facts, requested: int | None) -> tuple[int, ...]:
    """Return the indexes of the GPUs to measure; (-1,) where only torch can tell whether there is one."""
    count, shown = facts.fact("gpu.count"), facts.value_if_known("gpu.visible")
    if count.gap:
        present = (
            facts.value_if_known("gpu.nodes")
            or facts.value_if_known("gpu.pci_count")
            or facts.value_if_known("driver.version")
        )
        known: tuple[int, ...] = (-1,) if present else ()
    else:
        known = tuple(shown or ()) if count.value else ()
    if requested is None:
        return known
    if requested not in known:
        visible_text = ", ".join(map(str, known)) or "none"
        raise Refused(f"--gpu {requested}: CUDA shows no such GPU here (it shows {visible_text})")
    return (requested,)


def _torch_devices(facts: Facts, gpus: tuple[int, ...]) -> dict[int, str]:
    """Return torch's name of each GPU: its position among those that CUDA shows."""
    shown = list(facts.value_if_known("gpu.visible") or ())
    return {gpu: f"cuda:{shown.index(gpu) if gpu in shown else 0}" for gpu in gpus}


def _disk_folders(host: system.HostAccess, folder: str | None) -> list[str]:
    """Return where the disk is measured: the named folder; else the current and the temporary one."""
    here = call_or_refuse(host.get_cwd)
    if folder is None:
        return [here, host.get_env_var("TMPDIR") or "/tmp"]
    path = folder if folder.startswith("/") else f"{here}/{folder}"
    if (call_or_refuse(host.list_directory, path)) is None:
        raise Refused(f"--folder {folder}: there is no such folder")
    return [path]


def _bench_environment(host: system.LiveHost) -> dict[str, str]:
    """Return the user's environment, with GPUs in PCI bus order as gpuready counts them."""
    return dict(host.variables) | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


# -- the tasks --------------------------------------------------------------------------------------------------


def _unmeasurable_rows(kinds: list[MeasureSpec], gpus: tuple[int, ...], facts: Facts) -> Iterable[dict[str, Any]]:
    """Return the rows of what cannot be measured here: no GPU, or too few."""
    for kind in kinds:
        if kind.device == "cuda" and not gpus:
            yield _unmeasured_row(f"{kind.name}@cuda", "absent", _no_gpu_reason(facts))
        elif kind.gpus > 1 and gpus and len(gpus) < kind.gpus:
            yield _unmeasured_row(
                f"{kind.name}@cuda", "skipped", f"needs {kind.gpus} GPUs, and {len(gpus)} is measured"
            )


def _no_gpu_reason(facts: Facts) -> str:
    count = facts.fact("gpu.count")
    if count.gap:
        return f"no GPU can be seen: {count.gap}"
    return "CUDA shows none of the GPUs" if count.value else "there is no GPU"


def _plan_phases(
    kinds: list[MeasureSpec], places: dict[int, str], settings: dict[str, Any]
) -> list[tuple[BenchTask, ...]]:
    """Group the tasks: those of a phase run at the same time, phases one after the other."""
    own = [
        [f"{kind.name}@{place}" for kind in kinds if kind.device == "cuda" and kind.group in INDEPENDENT_GROUPS]
        for place in places.values()
    ]
    shared = [f"{k.name}@{place}" for place in places.values() for k in kinds if k.group == "transfer"]
    shared += [f"{k.name}@cuda:0" for k in kinds if k.group == "peers" and len(places) > 1]
    shared += [f"{k.name}@cpu" for k in kinds if k.device == "cpu"]
    # With one GPU everything runs in one process: torch is imported once.
    rows = [[[*own[0], *shared]]] if len(own) == 1 else [own, [shared]]
    limit = 120.0 if settings["quick"] else 900.0
    phases = [tuple(BenchTask(tuple(words), settings, deadline=limit) for words in row if words) for row in rows]
    return [phase for phase in [*phases, *_plan_collectives(kinds, tuple(places), settings)] if phase]


def _plan_collectives(
    kinds: list[MeasureSpec], gpus: tuple[int, ...], settings: dict[str, Any]
) -> Iterable[tuple[BenchTask, ...]]:
    names = [kind.name for kind in kinds if kind.group == "collective"]
    if not names or len(gpus) == 1:
        return
    device, ranks = ("cuda", len(gpus)) if gpus else ("cpu", 2)
    sizes = list(settings.get("sizes") or (COLLECTIVE_SIZES if gpus else COLLECTIVE_SIZES[:2]))
    words = tuple(f"{name}@{device}" for name in names)
    yield (BenchTask(words, settings | {"measures": names, "sizes": sizes}, "bench_ranks", device, ranks, 300.0),)


# -- the result -----------------------------------------------------------------------------------------------


def _judge_measures(
    facts: Facts,
    outcomes: list[BenchOutcome],
    places: dict[int, str],
    kinds: list[MeasureSpec],
    quick: bool,
    repeat: int,
    seconds: float,
) -> BenchResult:
    order = [kind.name for kind in kinds]
    raw = sorted((row for o in outcomes for row in o.rows), key=lambda row: order.index(row["name"]))
    names = {k: str(v) for o in outcomes for k, v in o.hardware.items() if k.startswith("cuda")}
    rows = tuple(add_expectations(row, facts, places, names) for row in raw)
    samples = tuple(sample for o in outcomes for sample in o.samples)
    known = facts.with_facts(
        Fact("bench.measures", rows, "gpuready bench", "run"),
        Fact("bench.samples", samples, "NVML while it was measured", "run"),
    )
    contract = Contract("bench", __version__, title="as fast as it should be", platforms=("cuda",))
    report = judge([rules.load_rule(code) for code in BENCH_RULES], known, contract, catalog=catalog_date())
    versions = {k: v for o in outcomes for k, v in o.versions.items() if v}
    measures = tuple(make_measure(row, known) for row in rows)
    return BenchResult(
        facts.host,
        str(facts.value_if_known("python.path") or ""),
        report,
        measures,
        versions,
        _describe_hardware(facts, outcomes),
        workflow.utc_timestamp(),
        quick,
        repeat,
        round(seconds, 1),
        _note_unequal_cores(measures),
    )


def _note_unequal_cores(measures: Iterable[BenchMeasure]) -> tuple[str, ...]:
    """Say that the host's cores differ, where they do: steps that wait for the host differ as much."""
    for one in measures:
        limits = range_by_core(one.passes) if one.name == "eager-forward" else None
        if limits is not None and limits[1] >= UNEQUAL_CORES * limits[0]:
            low, high = (round(limit * 1e3, 2) for limit in limits)
            return (
                f"the host takes {low} to {high} ms for a layer, depending on the cores: most likely other processes or virtual machines share them. "
                "Steps of small batches vary as much from one start to the next; larger batches, torch.compile or CUDA graphs need fewer launches",
            )
    return ()


def add_expectations(
    row: dict[str, Any], facts: Facts, places: dict[int, str], names: dict[str, str]
) -> dict[str, Any]:
    """Add what is known of a row's device: the catalogue's expected figure, the band of its records.

    ``names`` are torch's names of the GPUs, for one that the driver does not name.
    """
    kind = bands.find_measure(row["name"])
    assert kind is not None
    index = _gpu_index(row["device"], places)
    name, link, memory = (_gpu_value(facts, key, index) for key in ("gpu.name", "gpu.pcie_max", "gpu.memory"))
    name = name or names.get(row["device"])
    expected, cite = (
        bands.expected_rate(kind, str(name or ""), str(link or ""), memory) if index is not None else (None, "")
    )
    band: Band | None = bands.find_band(str(name), kind.name) if index is not None and name else None
    passes = tuple(row["passes"])
    return row | {
        "gpu": index,
        "unit": kind.unit,
        "group": kind.group,
        "better": kind.better,
        "value": typical_pass(passes, kind.group, kind.better),
        "spread": relative_spread(passes),
        "expected": expected,
        "cite": cite,
        "low": band.low if band else None,
        "high": band.high if band else None,
        "executed": kind.executed,
    }


def _gpu_index(device: str, places: dict[int, str]) -> int | None:
    """Return the machine's index of the GPU behind ``cuda:1``; None for the CPU, -1 where there is no GPU."""
    if not device.startswith("cuda"):
        return None
    return next((gpu for gpu, place in places.items() if place == device), next(iter(places), -1))


def _gpu_value(facts: Facts, key: str, index: int | None) -> Any:
    values = facts.fact(key).value or ()
    return values[index] if index is not None and 0 <= index < len(values) else None


def make_measure(row: dict[str, Any], facts: Facts) -> BenchMeasure:
    """Convert a row to a Measure, with its verdict and, where it is low, the reasons."""
    verdict, why = bench_verdict.judge_measure(row, facts)
    is_low = verdict in ("slow", "noisy", "undecided") and row["raw"] == "measured"
    ratio = row["value"] / row["expected"] if row["value"] and row["expected"] else None
    return BenchMeasure(
        row["name"],
        verdict,
        _device_label(row),
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
        tuple(slowness_reasons.find_slowness_reasons(row, facts)) if is_low else (),
        row["cite"],
        row["executed"],
        round(sum(end - begin for begin, end in row["spans"]), 3),
        row.get("tried", 0),
    )


def _device_label(row: dict[str, Any]) -> str:
    if row["group"] in MULTI_GPU_GROUPS:
        return "GPUs" if row["gpu"] is not None else "cpu"
    return "cpu" if row["gpu"] is None else "GPU" if row["gpu"] < 0 else f"GPU {row['gpu']}"


def _describe_hardware(facts: Facts, outcomes: list[BenchOutcome]) -> dict[str, Any]:
    keys = ("gpu.name", "driver.version", "host.cpus", "memory.total", "os.arch", "os.pretty")
    known = {key: facts.value_if_known(key) for key in keys}
    found = {key: value for key, value in known.items() if value}
    return found | {k: v for o in outcomes for k, v in o.hardware.items() if k.startswith("cuda")}
