"""Why a GPU may be slower than it should be: from the probe, and from NVML while it was measured.

Samples (``bench.samples``) are rows: gpu, at (seconds since 1970), clock_sm, clock_sm_max, power_draw, temperature,
throttle (names), pcie_gen, pcie_width, processes (count). Only samples taken while the measure ran are used.
"""

from collections.abc import Iterator
from typing import Any

from gpuready.catalog import bands, gpus
from gpuready.model import Fact, Facts, FixStep
from gpuready.model.bench import SlowReason

BenchRow = dict[str, Any]


READS = (
    *("gpu.name", "gpu.power_limit", "gpu.power_limit_default", "gpu.throttle", "gpu.pcie", "gpu.pcie_max"),
    *("gpu.ecc", "gpu.ecc_errors", "gpu.mig", "gpu.processes", "gpu.memory", "gpu.free", "gpu.nvlink", "bench.samples"),
)
HEAT_REASONS = {"sw_thermal": "it is too hot", "hw_thermal": "it is much too hot", "hw_power_brake": "power brake"}
LOWERED_POWER_SHARE, LOCKED_CLOCK_SHARE, FULL_POWER_SHARE = 0.98, 0.85, 0.9
"""Shares: of the default power limit, of the maximum clock, and of the power limit (a clock that is low while less
power than this is drawn is locked)."""

MAX_DRIVER_MEMORY = 3 << 29
"""Bytes of GPU memory that the driver itself never exceeds."""


def find_slowness_reasons(row: BenchRow, facts: Facts) -> list[SlowReason]:
    """Return every known reason that slows down one measure."""
    gpu = row.get("gpu")
    if gpu is None:
        return []
    samples = _samples_of_measure(facts, row)
    collected = [*_sharing_reasons(facts, gpu)]
    if row["group"] in ("compute", "memory", "held"):
        collected += [
            *_power_limit_reasons(facts, gpu),
            *_heat_reasons(facts, samples),
            *_clock_reasons(facts, gpu, samples),
        ]
    if row["group"] == "memory":
        collected += _ecc_reasons(facts, gpu)
    if row["group"] in ("transfer", "peers", "collective"):
        collected += _link_reasons(facts, gpu, samples, row["group"])
    return collected


def _gpu_value(facts: Facts, key: str, gpu: int) -> Any:
    """Return one value of one GPU, if known."""
    values = facts.fact(key).value
    return values[gpu] if isinstance(values, (list, tuple)) and 0 <= gpu < len(values) else None


def _samples_of_measure(facts: Facts, row: BenchRow) -> list[BenchRow]:
    rows = facts.value_if_known("bench.samples") or ()
    gpu_rows = [one for one in rows if one.get("gpu") == row["gpu"]]
    spans = row.get("spans") or ()
    inside = [one for one in gpu_rows if any(a <= one.get("at", 0) <= b for a, b in spans)]
    return inside if spans else gpu_rows


def _fact_if_present(facts: Facts, key: str) -> tuple[Fact, ...]:
    return (facts.fact(key),) if key in facts else ()


# -- other processes ------------------------------------------------------------------------------------


def describe_other_users(facts: Facts, gpu: int) -> str:
    """Describe other users of a GPU before or during the measurement; empty if none is known."""
    rows = [p for p in facts.fact("gpu.processes").value or () if p.get("gpu") == gpu]
    if rows:
        labels = [f"pid {p.get('pid')}" + (f" of {p['user']}" if p.get("user") else "") for p in rows[:3]]
        return ", ".join(labels) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")
    process_count = max(
        (s.get("processes") or 0 for s in facts.value_if_known("bench.samples") or () if s.get("gpu") == gpu), default=0
    )
    if process_count > 1:  # one is our own
        return f"{process_count - 1} more during the measurement"
    total, free = _gpu_value(facts, "gpu.memory", gpu), _gpu_value(facts, "gpu.free", gpu)
    if isinstance(total, int) and isinstance(free, int) and total - free > MAX_DRIVER_MEMORY:
        return f"{(total - free) >> 20} MiB used by processes that are not visible here"
    return ""


def _sharing_reasons(facts: Facts, gpu: int) -> Iterator[SlowReason]:
    users = describe_other_users(facts, gpu)
    if users:
        yield SlowReason(
            f"other processes use GPU {gpu}: {users}",
            _fact_if_present(facts, "gpu.processes"),
            (FixStep("end them, or measure when they have finished"),),
        )
    if _gpu_value(facts, "gpu.mig", gpu) == "on":
        yield SlowReason(
            f"GPU {gpu} is split by MIG: an instance has only part of its units and memory",
            _fact_if_present(facts, "gpu.mig"),
            (FixStep(f"measure the whole GPU after nvidia-smi -i {gpu} -mig 0", note="needs root"),),
        )


# -- power, heat, clocks ------------------------------------------------------------------------------------


def _power_limit_reasons(facts: Facts, gpu: int) -> Iterator[SlowReason]:
    limit, own = _gpu_value(facts, "gpu.power_limit", gpu), _gpu_value(facts, "gpu.power_limit_default", gpu)
    if limit and own and limit < LOWERED_POWER_SHARE * own:
        yield SlowReason(
            f"the power limit is {limit:g} W, the default is {own:g} W",
            (*_fact_if_present(facts, "gpu.power_limit"), *_fact_if_present(facts, "gpu.power_limit_default")),
            (FixStep(f"if not intended, set it back: nvidia-smi -i {gpu} -pl {own:g}", note="needs root"),),
        )


def _throttle_names(sample: BenchRow) -> set[str]:
    words = sample.get("throttle")
    return {str(w).removesuffix("_slowdown") for w in words} if isinstance(words, (list, tuple)) else set()


def _heat_reasons(facts: Facts, samples: list[BenchRow]) -> Iterator[SlowReason]:
    for word, meaning in HEAT_REASONS.items():
        times = [s for s in samples if word in _throttle_names(s)]
        if times:
            degrees = max((s["temperature"] for s in times if s.get("temperature")), default=None)
            temperature_note = f" ({degrees} degrees Celsius)" if degrees else ""
            yield SlowReason(
                f"reduced clocks in {len(times)} of {len(samples)} samples: {meaning}{temperature_note}",
                _fact_if_present(facts, "bench.samples"),
                (
                    FixStep(
                        "check fans, air flow and power cables: nvidia-smi -q -d TEMPERATURE",
                        note="needs physical access",
                    ),
                ),
            )


def _clock_reasons(facts: Facts, gpu: int, samples: list[BenchRow]) -> Iterator[SlowReason]:
    """Application clocks, and locked clocks: low under load although neither power nor heat limits them."""
    if any(
        "application_clocks" in _throttle_names(s) or "applications_clocks_setting" in _throttle_names(s)
        for s in samples
    ):
        yield SlowReason(
            "application clocks are set below the maximum",
            _fact_if_present(facts, "bench.samples"),
            (FixStep(f"set them back: nvidia-smi -i {gpu} -rac", note="needs root"),),
        )
        return
    known = [s for s in samples if s.get("clock_sm") and s.get("clock_sm_max")]
    if not known or any(_throttle_names(s) & {"sw_power_cap", *HEAT_REASONS, "hw"} for s in known):
        return
    top, limit = max(known, key=lambda s: s["clock_sm"]), _gpu_value(facts, "gpu.power_limit", gpu)
    drawn = max((s["power_draw"] for s in known if s.get("power_draw")), default=0)
    if top["clock_sm"] < LOCKED_CLOCK_SHARE * top["clock_sm_max"] and not (limit and drawn > FULL_POWER_SHARE * limit):
        yield SlowReason(
            f"the clock stayed at {top['clock_sm']} of {top['clock_sm_max']} MHz without a power or heat limit: it is locked",
            _fact_if_present(facts, "bench.samples"),
            (FixStep(f"unlock it: nvidia-smi -i {gpu} -rgc", note="needs root"),),
        )


# -- memory and links ----------------------------------------------------------------------------------------


def _ecc_reasons(facts: Facts, gpu: int) -> Iterator[SlowReason]:
    row = gpus.find_gpu(str(_gpu_value(facts, "gpu.name", gpu) or ""))
    if _gpu_value(facts, "gpu.ecc", gpu) == "on" and row and str(row.get("mem_type", "")).startswith("GDDR"):
        yield SlowReason(
            "ECC is on, which reduces the bandwidth of GDDR memory",
            _fact_if_present(facts, "gpu.ecc"),
            (FixStep(f"if you do not need it: nvidia-smi -i {gpu} -e 0, then reboot", note="needs root"),),
        )
    if _gpu_value(facts, "gpu.ecc_errors", gpu):
        yield SlowReason(
            f"GPU {gpu} has {_gpu_value(facts, 'gpu.ecc_errors', gpu)} uncorrected memory errors",
            _fact_if_present(facts, "gpu.ecc_errors"),
            (FixStep("see gpuready explain GPU008", ("gpuready", "explain", "GPU008"), "safe"),),
        )


def _link_reasons(facts: Facts, gpu: int, samples: list[BenchRow], group: str) -> Iterator[SlowReason]:
    gen, width = bands.parse_pcie_link(_gpu_value(facts, "gpu.pcie_max", gpu))
    seen = [(s["pcie_gen"], s["pcie_width"]) for s in samples if s.get("pcie_gen") and s.get("pcie_width")]
    now = (
        (max(g for g, _ in seen), max(w for _, w in seen))
        if seen
        else (0, bands.parse_pcie_link(_gpu_value(facts, "gpu.pcie", gpu))[1])
    )
    row = gpus.find_gpu(str(_gpu_value(facts, "gpu.name", gpu) or "")) or {}
    if group != "transfer" and row.get("nvlink_gbs") and _gpu_value(facts, "gpu.nvlink", gpu) == 0:
        yield SlowReason(
            f"GPU {gpu} has NVLink, but no link is up",
            _fact_if_present(facts, "gpu.nvlink"),
            (FixStep("check the links and the fabric manager: nvidia-smi nvlink -s"),),
        )
    if 0 < now[1] < width:
        yield _narrow_link_reason(facts, f"the PCIe link has {now[1]} of {width} lanes")
    if 0 < now[0] < max(gen, int(row.get("pcie_gen") or 0)):
        most = max(gen, int(row.get("pcie_gen") or 0))
        yield _narrow_link_reason(
            facts, f"the PCIe link runs at generation {now[0]} under load, the GPU supports {most}"
        )


def _narrow_link_reason(facts: Facts, message: str) -> SlowReason:
    return SlowReason(
        message,
        (*_fact_if_present(facts, "gpu.pcie"), *_fact_if_present(facts, "gpu.pcie_max")),
        (
            FixStep(
                "reseat the card, try another slot or riser, check the firmware settings", note="needs physical access"
            ),
        ),
    )
