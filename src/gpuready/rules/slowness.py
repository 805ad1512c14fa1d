"""Why a GPU may be slower than it should be: from the probe, and from NVML while it was measured.

Samples (``bench.samples``) are rows: gpu, at (seconds since 1970), clock_sm, clock_sm_max, power_draw, temperature,
throttle (names), pcie_gen, pcie_width, processes (count). Only samples taken while the measure ran are used.
"""

from __future__ import annotations

from gpuready.benched import Reason
from gpuready.model import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuready.model import Fact, Facts

    Row = dict[str, Any]

READS = (
    *("gpu.name", "gpu.power_limit", "gpu.power_limit_default", "gpu.throttle", "gpu.pcie", "gpu.pcie_max"),
    *(
        "gpu.ecc",
        "gpu.ecc_errors",
        "gpu.mig",
        "gpu.processes",
        "gpu.memory",
        "gpu.free",
        "gpu.nvlink",
        "bench.samples",
    ),
)
HOT = {
    "sw_thermal": "it is too hot",
    "hw_thermal": "it is much too hot",
    "hw_power_brake": "the power supply brakes it",
}
LOWERED, HELD, FULL = 0.98, 0.85, 0.9
"""Shares: of the default power limit, of the maximum clock, and of the power limit (a clock that is low while less
power than this is drawn is locked)."""

UNSEEN = 3 << 29
"""Bytes of GPU memory that the driver itself never exceeds."""


def reasons(row: Row, facts: Facts) -> list[Reason]:
    """Return every known reason that slows down one measure."""
    gpu = row.get("gpu")
    if gpu is None:
        return []
    samples = _samples(facts, row)
    found = [*_shared(facts, gpu)]
    if row["group"] in ("compute", "memory", "held"):
        found += [*_power(facts, gpu), *_heat(facts, samples), *_clocks(facts, gpu, samples)]
    if row["group"] == "memory":
        found += _ecc(facts, gpu)
    if row["group"] in ("transfer", "peers", "collective"):
        found += _links(facts, gpu, samples, row["group"])
    return found


def _of(facts: Facts, key: str, gpu: int) -> Any:
    """Return one value of one GPU, if known."""
    values = facts.fact(key).value
    return values[gpu] if isinstance(values, (list, tuple)) and 0 <= gpu < len(values) else None


def _samples(facts: Facts, row: Row) -> list[Row]:
    rows = facts.known("bench.samples") or ()
    mine = [one for one in rows if one.get("gpu") == row["gpu"]]
    spans = row.get("spans") or ()
    inside = [one for one in mine if any(a <= one.get("at", 0) <= b for a, b in spans)]
    return inside if spans else mine


def _fact(facts: Facts, key: str) -> tuple[Fact, ...]:
    return (facts.fact(key),) if key in facts else ()


# -- other processes ------------------------------------------------------------------------------------


def others(facts: Facts, gpu: int) -> str:
    """Describe other users of a GPU before or during the measurement; empty if none is known."""
    rows = [p for p in facts.fact("gpu.processes").value or () if p.get("gpu") == gpu]
    if rows:
        named = [f"pid {p.get('pid')}" + (f" of {p['user']}" if p.get("user") else "") for p in rows[:3]]
        return ", ".join(named) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")
    came = max(
        (s.get("processes") or 0 for s in facts.known("bench.samples") or () if s.get("gpu") == gpu),
        default=0,
    )
    if came > 1:  # one is our own
        return f"{came - 1} that came while it was measured"
    total, free = _of(facts, "gpu.memory", gpu), _of(facts, "gpu.free", gpu)
    if isinstance(total, int) and isinstance(free, int) and total - free > UNSEEN:
        return f"{(total - free) >> 20} MiB held by processes that are not visible here"
    return ""


def _shared(facts: Facts, gpu: int) -> Iterator[Reason]:
    held = others(facts, gpu)
    if held:
        yield Reason(
            f"other processes use GPU {gpu}: {held}",
            _fact(facts, "gpu.processes"),
            (Step("end them, or measure when they are done"),),
        )
    if _of(facts, "gpu.mig", gpu) == "on":
        yield Reason(
            f"GPU {gpu} is divided by MIG: an instance has a part of its units and of its memory",
            _fact(facts, "gpu.mig"),
            (Step(f"measure the whole GPU after nvidia-smi -i {gpu} -mig 0", note="needs root"),),
        )


# -- power, heat, clocks ------------------------------------------------------------------------------------


def _power(facts: Facts, gpu: int) -> Iterator[Reason]:
    limit, own = _of(facts, "gpu.power_limit", gpu), _of(facts, "gpu.power_limit_default", gpu)
    if limit and own and limit < LOWERED * own:
        yield Reason(
            f"the power limit is {limit:g} W, and its own is {own:g} W",
            (*_fact(facts, "gpu.power_limit"), *_fact(facts, "gpu.power_limit_default")),
            (
                Step(
                    f"if nobody meant it, set it back: nvidia-smi -i {gpu} -pl {own:g}",
                    note="needs root",
                ),
            ),
        )


def _names(sample: Row) -> set[str]:
    words = sample.get("throttle")
    return {str(w).removesuffix("_slowdown") for w in words} if isinstance(words, (list, tuple)) else set()


def _heat(facts: Facts, samples: list[Row]) -> Iterator[Reason]:
    for word, says in HOT.items():
        times = [s for s in samples if word in _names(s)]
        if times:
            degrees = max((s["temperature"] for s in times if s.get("temperature")), default=None)
            warm = f" ({degrees} degrees Celsius)" if degrees else ""
            yield Reason(
                f"the GPU held its clocks down in {len(times)} of {len(samples)} samples: {says}{warm}",
                _fact(facts, "bench.samples"),
                (
                    Step(
                        "look at fans, air flow and power cables: nvidia-smi -q -d TEMPERATURE",
                        note="needs hands",
                    ),
                ),
            )


def _clocks(facts: Facts, gpu: int, samples: list[Row]) -> Iterator[Reason]:
    """Application clocks, and locked clocks: low under load although neither power nor heat limits them."""
    if any("application_clocks" in _names(s) or "applications_clocks_setting" in _names(s) for s in samples):
        yield Reason(
            "application clocks are set lower than the GPU can run",
            _fact(facts, "bench.samples"),
            (Step(f"set them back: nvidia-smi -i {gpu} -rac", note="needs root"),),
        )
        return
    known = [s for s in samples if s.get("clock_sm") and s.get("clock_sm_max")]
    if not known or any(_names(s) & {"sw_power_cap", *HOT, "hw"} for s in known):
        return
    top, limit = max(known, key=lambda s: s["clock_sm"]), _of(facts, "gpu.power_limit", gpu)
    drawn = max((s["power_draw"] for s in known if s.get("power_draw")), default=0)
    if top["clock_sm"] < HELD * top["clock_sm_max"] and not (limit and drawn > FULL * limit):
        yield Reason(
            f"the clock stayed at {top['clock_sm']} of {top['clock_sm_max']} MHz, with no limit of power or heat: it is locked",
            _fact(facts, "bench.samples"),
            (Step(f"unlock it: nvidia-smi -i {gpu} -rgc", note="needs root"),),
        )


# -- memory and links ----------------------------------------------------------------------------------------


def _ecc(facts: Facts, gpu: int) -> Iterator[Reason]:
    from gpuready.catalog import gpus

    row = gpus.find(str(_of(facts, "gpu.name", gpu) or ""))
    if _of(facts, "gpu.ecc", gpu) == "on" and row and str(row.get("mem_type", "")).startswith("GDDR"):
        yield Reason(
            "ECC is on, and on GDDR memory it takes a part of the bandwidth",
            _fact(facts, "gpu.ecc"),
            (Step(f"if you can do without it: nvidia-smi -i {gpu} -e 0, then reboot", note="needs root"),),
        )
    if _of(facts, "gpu.ecc_errors", gpu):
        yield Reason(
            f"GPU {gpu} has {_of(facts, 'gpu.ecc_errors', gpu)} uncorrected memory errors",
            _fact(facts, "gpu.ecc_errors"),
            (Step("see gpuready explain GPU008", ("gpuready", "explain", "GPU008"), "safe"),),
        )


def _links(facts: Facts, gpu: int, samples: list[Row], group: str) -> Iterator[Reason]:
    from gpuready.catalog import bands, gpus

    gen, width = bands.parsed(_of(facts, "gpu.pcie_max", gpu))
    seen = [(s["pcie_gen"], s["pcie_width"]) for s in samples if s.get("pcie_gen") and s.get("pcie_width")]
    now = (
        (max(g for g, _ in seen), max(w for _, w in seen))
        if seen
        else (0, bands.parsed(_of(facts, "gpu.pcie", gpu))[1])
    )
    row = gpus.find(str(_of(facts, "gpu.name", gpu) or "")) or {}
    if group != "transfer" and row.get("nvlink_gbs") and _of(facts, "gpu.nvlink", gpu) == 0:
        yield Reason(
            f"GPU {gpu} has NVLink, and no link is up",
            _fact(facts, "gpu.nvlink"),
            (Step("look at the links and the fabric manager: nvidia-smi nvlink -s"),),
        )
    if 0 < now[1] < width:
        yield _narrow(facts, f"the PCIe link has {now[1]} of {width} lanes")
    if 0 < now[0] < max(gen, int(row.get("pcie_gen") or 0)):
        most = max(gen, int(row.get("pcie_gen") or 0))
        yield _narrow(facts, f"the PCIe link runs at generation {now[0]} under load, and the GPU has {most}")


def _narrow(facts: Facts, says: str) -> Reason:
    return Reason(
        says,
        (*_fact(facts, "gpu.pcie"), *_fact(facts, "gpu.pcie_max")),
        (
            Step(
                "seat the card again, try another slot or riser, look at the firmware's settings",
                note="needs hands",
            ),
        ),
    )
