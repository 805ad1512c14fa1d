"""The time of a job for ``gpuready fit``: on the GPUs at hand, on those of the catalogue, and for each proposal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from gpuready.catalog.gpus import find_gpu
from gpuready.fit import FitJob
from gpuready.fit.job import gpu_candidates
from gpuready.fit.job.records import GpuCard
from gpuready.fit.tape.autograd import Tape
from gpuready.fit.time.device_speed import EAGER_HIGH, EAGER_LOW, DeviceSpeed, calibrate_speed, speed_from_row
from gpuready.fit.time.prediction import predict_time
from gpuready.jobs.config_reader import JobSettings
from gpuready.model.bench import mean_of_middle, range_by_core
from gpuready.model.fit import FitResult, GpuCandidate, Proposal, TimePrediction
from gpuready.workflow.dataset_length import measure_datasets
from gpuready.workflow.fit_trace import Tracer
from gpuready.workflow.refusal import call_or_refuse, read_named_file

RANGE_MEASURES = ("eager-forward", "eager-backward", "eager-decode")
# Compute capabilities on which torch prefers cuDNN's attention, as sdpa_cudnn of the catalogue's features says.
CUDNN_FIRST = ("9", "10")
NEW_LENGTHS = (
    "the first answers of a process take 2 to 6 times as long: torch builds a cuDNN plan for every new length, about 60 ms each (measured on an H200, torch 2.11). "
    "TORCH_CUDNN_SDPA_DEPRIORITIZED=1, or torch.backends.cuda.enable_cudnn_sdp(False), avoids it"
)
HOST_MARGIN = (0.9, 1.1)  # of the ends of that range: other architectures than the one that was measured


class RunClock:
    """What the user says about time: a bench record, prices, and the length of the run."""

    def __init__(
        self,
        bench: str | None = None,
        prices: Sequence[str] = (),
        run_steps: int | None = None,
        samples: int | None = None,
        mean_tokens: int | None = None,
        epochs: float | None = None,
    ) -> None:
        self.measures, self.bench_gpu, self.bench = {}, "", bench  # type: dict[str, float], str, str | None
        if bench is not None:
            self.measures, self.bench_gpu = call_or_refuse(read_bench_record, bench)
        self.prices = dict(call_or_refuse(parse_price, price) for price in prices)
        self.run_steps, self.samples, self.epochs = run_steps, samples, epochs
        self.mean_tokens = None if mean_tokens is None else (float(mean_tokens), float(mean_tokens))
        # Of a trace; without it from the layers known here.
        self.make_tape: Callable[[FitJob, GpuCard], Tape | None] | None = None

    def with_length_of(self, spec: JobSettings) -> RunClock:
        """Take the length of the run from the job's file, where the command line does not state it."""
        if self.run_steps is None and self.samples is None:
            self.run_steps = spec.run_steps
        found = measure_datasets(spec.datasets, spec.path) if self.run_steps is None else None
        if found is not None:
            self.samples, self.mean_tokens = self.samples or found[0], self.mean_tokens or found[1]
        self.epochs = self.epochs or spec.epochs
        return self

    def with_tapes_of(self, tracer: Tracer | None) -> RunClock:
        """Take the kernels from traces, where the job is traced."""
        self.make_tape = None if tracer is None else tracer.make_tape
        return self

    def find_speed(self, place: GpuCandidate) -> DeviceSpeed | None:
        """Return the rates of a GPU: measured where the bench record is of that kind."""
        row = find_gpu(place.name, place.memory[1])
        speed = None if row is None else speed_from_row(row)
        if speed is not None and self.measures and self.bench_gpu in ("", place.name):
            return calibrate_speed(speed, self.measures)
        return speed

    def predict(self, job: FitJob, place: GpuCandidate) -> TimePrediction | None:
        """Return the time of a job on a GPU; None where its rates are not known."""
        speed = self.find_speed(place)
        if speed is None or job.task not in ("train", "generate"):
            return None
        card = gpu_candidates.to_gpu_card(place)
        tape = None if self.make_tape is None else self.make_tape(job, card)
        if self.make_tape is not None and tape is None:
            return None
        time = predict_time(job, card, speed, tape)
        source = f"bench record {self.bench}" if speed.measured else f"data sheet of {place.name}"
        unmeasured = "no bench record of this GPU: `gpuready bench --full -o FILE`, then --bench FILE"
        time = time.replace(source=source, notes=() if speed.measured else (unmeasured,))
        steps = self._steps_of_run(job)
        if not steps or time.step_seconds is None:
            return time.replace(steps=steps[-1] if steps else None)
        low, high = (count * time.step_seconds for count in steps)
        return time.replace(steps=steps[1], run_seconds=high, run_range=(low, high) if low < high else None)

    def _steps_of_run(self, job: FitJob) -> tuple[int, int] | None:
        """Return the fewest and the most steps of the run; packed samples count by their tokens, others by rows."""
        if self.run_steps is not None:
            return self.run_steps, self.run_steps
        if self.samples is None or job.task != "train":
            return None
        batch = job.micro_batch * job.accumulation * max(1, job.world // job.tensor_parallel)
        lengths = (self.mean_tokens or (1.0, float(job.seq))) if job.packing else (float(job.seq), float(job.seq))
        rows = [self.samples * (self.epochs or 1) * min(length / job.seq, 1.0) for length in lengths]
        low, high = (max(1, -(-round(count) // batch)) for count in rows)
        return low, high

    def price_of(self, place: GpuCandidate) -> float | None:
        """Return the price of one GPU an hour, by any name that means it."""
        for name, price in self.prices.items():
            row = find_gpu(name)
            if row is not None and row["name"] == place.name:
                return price
        return None


def note_new_lengths(job: FitJob, capability: str) -> tuple[str, ...]:
    """Say what the first answers of a process cost beside the time that is predicted, where cuDNN's attention is chosen first."""
    chosen = capability.partition(".")[0] in CUDNN_FIRST and job.attention == "sdpa" and job.precision != "fp32"
    return (NEW_LENGTHS,) if job.task == "generate" and job.cache == "dynamic" and chosen else ()


def add_times(result: FitResult, job: FitJob, clock: RunClock) -> FitResult:
    """Add the time to a result: on the GPU that decides, on every GPU listed, and for every proposal."""
    tightest = min(result.places, key=lambda one: one.available_memory[0] - one.needs[1], default=None)
    time = None if tightest is None else clock.predict(job, tightest)
    if tightest is not None and time is None and job.task in ("train", "generate"):
        unknown = f"no time: the rates of {tightest.name} are not known to the catalogue"
        result = result.replace(notes=(*result.notes, unknown))
    if tightest is not None:
        result = result.replace(notes=(*result.notes, *note_new_lengths(job, tightest.capability)))
    places = tuple(_add_place_time(place, job, clock) for place in result.places)
    listed = _add_listed_times(result.gpus, job, clock)
    if clock.prices:
        listed = tuple(sorted(listed, key=lambda one: (one.verdict != "fits", one.usd is None, one.usd or 0.0)))
    proposals = tuple(_add_proposal_time(one, job, clock, tightest, time) for one in result.proposals)
    return result.replace(time=time, places=places, gpus=listed, proposals=proposals)


def _add_listed_times(places: Sequence[GpuCandidate], job: FitJob, clock: RunClock) -> tuple[GpuCandidate, ...]:
    """Time every GPU, those of one capability together: they share a tape, and only the last few tapes are kept."""
    order = sorted(range(len(places)), key=lambda at: places[at].capability)
    timed = {at: _add_place_time(places[at], job, clock) for at in order}
    return tuple(timed[at] for at in range(len(places)))


def _add_place_time(place: GpuCandidate, job: FitJob, clock: RunClock) -> GpuCandidate:
    time = clock.predict(job, place)
    if time is None:
        return place
    spent = time.step_seconds if time.step_seconds is not None else time.decode_seconds
    price = clock.price_of(place)
    whole = time.run_seconds if time.run_seconds is not None else 1000 * (spent or 0.0)
    return place.replace(
        seconds=spent,
        tokens_per_second=time.tokens_per_second,
        usd=None if price is None else price * job.world * whole / 3600,
    )


def _add_proposal_time(
    one: Proposal, job: FitJob, clock: RunClock, place: GpuCandidate | None, before: TimePrediction | None
) -> Proposal:
    """Add what a change costs: tokens a second as they were, divided by what they become."""
    if place is None or before is None or not before.tokens_per_second:
        return one
    try:
        time = clock.predict(job.replace(**dict(one.changes)), place)
    except ValueError:
        return one
    if time is None:
        return one
    return one.replace(
        step_seconds=time.step_seconds, time_ratio=round(before.tokens_per_second / time.tokens_per_second, 3)
    )


def read_bench_record(path: str) -> tuple[dict[str, float], str]:
    """Return the measures of a record of ``gpuready bench``, and the GPU's name; ValueError says what is wrong."""
    text = read_named_file(path)
    try:
        record = json.loads(text)
    except ValueError:
        raise ValueError(f"{path} is not JSON: make one with `gpuready bench --json -o FILE`") from None
    rows = record.get("measures") if isinstance(record, dict) else None
    if not isinstance(rows, list) or record.get("kind", "bench") != "bench":
        raise ValueError(f"{path} is no record of `gpuready bench`: make one with `gpuready bench --json -o FILE`")
    values = {
        str(row["name"]): mean_of_middle(_eager_passes(row)) or float(row["value"])
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("value"), (int, float)) and row.get("name") and row["value"] > 0
    }
    if not any(name.startswith("matmul") for name in values) or "memory-copy" not in values:
        raise ValueError(
            f"{path} has no matrix products and no memory copy of a GPU: run `gpuready bench` without --only"
        )
    cited = next(
        (str(row.get("cite", "")).partition(":")[0] for row in rows if str(row.get("cite", "")).startswith("NVIDIA")),
        "",
    )
    return {**values, **_eager_range(rows)}, cited


def _eager_passes(row: dict[str, Any]) -> tuple[float, ...]:
    """Return the passes of a measure of the host's pace; none of any other."""
    if not str(row.get("name", "")).startswith("eager-"):
        return ()
    return tuple(one for one in row.get("passes") or () if isinstance(one, (int, float)) and one > 0)


def _eager_range(rows: list[Any]) -> dict[str, float]:
    """Return the range of the host's pace by core, as shares of what is typical; nothing where too few cores were measured."""
    shares = []
    for row in rows:
        passes = _eager_passes(row) if isinstance(row, dict) and row.get("name") in RANGE_MEASURES else ()
        limits, typical = range_by_core(passes), mean_of_middle(passes)
        if limits and typical:
            shares.append((limits[0] / typical, limits[1] / typical))
    if not shares:
        return {}
    lows, highs = zip(*shares, strict=True)
    return {EAGER_LOW: HOST_MARGIN[0] * sum(lows) / len(lows), EAGER_HIGH: HOST_MARGIN[1] * sum(highs) / len(highs)}


def parse_price(text: str) -> tuple[str, float]:
    """Return the name and the price of ``NAME=USD``, a GPU an hour."""
    name, _, price = text.partition("=")
    try:
        value = float(price.strip().lstrip("$"))
    except ValueError:
        value = -1.0
    if not name.strip() or value < 0 or value != value:
        raise ValueError(f"--price takes NAME=USD, the price of one GPU an hour, such as h100=2.49; not {text!r}")
    if find_gpu(name.strip()) is None:
        raise ValueError(
            f"--price {text}: no GPU of the catalogue is called {name.strip()}; `gpuready fit MODEL --gpus -v` lists them"
        )
    return name.strip(), value
