"""A build from source: toolkit, compiler, architectures, number of jobs, duration, and steps."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import cuda as toolkits
from gpuready.catalog import kernels as catalogue
from gpuready.catalog import torch
from gpuready.model import Noun, Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.catalog.torch import Build
    from gpuready.model import Facts

SAFE_JOBS = 4
"""flash-attn's README advises this below 96 GB of memory; used if the memory is unknown."""

SAFE_CORES = 8
EXACT_SINCE = 13
"""From this CUDA on DeepSpeed accepts no other minor (op_builder/builder.py, 0.19.8)."""

OLDEST_OWN = 60
"""The oldest architecture for which ColossalAI compiles (extensions/utils.py:207)."""


class Recipe(Noun):
    """How one package would be compiled here; ``impossible`` says why it cannot be."""

    impossible: str = ""
    toolkit: str = ""
    compiler: str = ""
    arch_list: str = ""
    environment: tuple[str, ...] = ()  # NAME=VALUE
    max_jobs: int = 0
    seconds: tuple[int, ...] = ()
    says: str = ""


def recipe(facts: Facts, row: Mapping[str, Any], release: Mapping[str, Any], build: Build) -> Recipe:
    """Return how a package is compiled for this torch; ``release`` may override the package's arch list."""
    toolkit, lacking = _toolkit(row, build)
    if lacking:
        return Recipe(lacking)
    listed, variable, says, lacking = _architectures(facts, row, release, build, toolkit)
    if lacking:
        return Recipe(lacking)
    jobs, counted = max_jobs(facts, row)
    known = toolkits.gcc_range(toolkit)
    return Recipe(
        toolkit=toolkit,
        compiler=f"gcc {known[0]} to {known[1]}" if known else "",
        arch_list=listed,
        environment=(*variable, f"MAX_JOBS={jobs}", *row.get("environment", ()), *_forced(row, release)),
        max_jobs=jobs,
        seconds=_seconds(facts, row, jobs),
        says="; ".join(part for part in (says, counted, _exactly(row, toolkit)) if part),
    )


def _exactly(row: Mapping[str, Any], toolkit: str) -> str:
    return str(row.get("toolkit_says", "")) if versions.major(toolkit) >= EXACT_SINCE else ""


def _forced(row: Mapping[str, Any], release: Mapping[str, Any]) -> list[str]:
    """Stop setup.py from looking for a wheel if none is known to fit."""
    return [row["force"]] if release and "force" in row else []


def _toolkit(row: Mapping[str, Any], build: Build) -> tuple[str, str]:
    """Return the CUDA that nvcc must have: torch's, within whose major the minor may differ."""
    if versions.compare(build.cuda, row["toolkit_min"]) >= 0:
        return build.cuda, ""
    return (
        "",
        f"it compiles with CUDA {row['toolkit_min']} or newer, and this torch is built for {build.cuda}",
    )


# -- architectures --------------------------------------------------------------------------------------


def capabilities(facts: Facts) -> tuple[str, ...]:
    """Return the distinct compute capabilities of the GPUs here; empty if unknown."""
    known = facts.known("gpu.capability") or ()
    return tuple(sorted({str(one) for one in known if one}, key=versions.minor))


def _architectures(
    facts: Facts, row: Mapping[str, Any], release: Mapping[str, Any], build: Build, toolkit: str
) -> tuple[str, tuple[str, ...], str, str]:
    """Return the arch list, its variable assignment, a note, and the error if none works."""
    here = capabilities(facts)
    offered = _offered(row, release, build, toolkit)
    chosen = [_best(offered, one, toolkit) for one in here]
    if None in chosen:
        missing = here[chosen.index(None)]
        floor = _floor(row, release, missing)
        return "", (), "", floor or f"a build has no code for compute capability {missing}"
    wanted = list(dict.fromkeys(str(one) for one in chosen))
    style, variable = row.get("arch_style", ""), row.get("arch_variable", "")
    if style == "own":
        text = ";".join(_below(offered, here))
        return text, (), "it sets the architectures itself, from what torch has up to the GPU", ""
    if not variable:
        return (
            ";".join(offered),
            (),
            "its setup.py compiles for all of them, and no variable narrows that",
            "",
        )
    text = ";".join(_written(one, style) for one in (wanted or offered))
    says = "" if here else "no GPU is known here, so the list has all that it can be compiled for"
    return text, (f"{variable}={text}",), says, ""


def _offered(row: Mapping[str, Any], release: Mapping[str, Any], build: Build, toolkit: str) -> list[str]:
    """Return the capabilities it can be compiled for: its own list, else torch's that nvcc supports."""
    if row.get("arch_style") == "own":
        return [c for c in _dotted(build.arch) if int(c.replace(".", "")) >= OLDEST_OWN]
    if "arch" in row:
        return sorted(
            catalogue.compiled_for(release if "arch" in release else row, toolkit), key=versions.minor
        )
    targets = toolkits.targets(toolkit) or ()
    return [c for c in targets if torch.covers(build.arch, c, toolkit)[0]]


def _dotted(arch: Sequence[str]) -> list[str]:
    bare = [one.removeprefix("sm_") for one in arch if one.startswith("sm_")]
    return [f"{one[:-1]}.{one[-1]}" for one in bare if one.isdigit()]


def _best(offered: Sequence[str], capability: str, toolkit: str) -> str | None:
    """Return the newest entry whose code runs on a GPU, or None."""
    fits = [c for c in offered if torch.covers([f"sm_{c.replace('.', '')}"], capability, toolkit)[0]]
    return max(fits, key=versions.minor, default=None)


def _floor(row: Mapping[str, Any], release: Mapping[str, Any], capability: str) -> str:
    """Name the CUDA from which on it compiles for a GPU; empty if none does."""
    rows = (release if "arch" in release else row).get("arch", ())
    later = [r for r in rows if torch.covers([f"sm_{r['cc'].replace('.', '')}"], capability)[0]]
    if not later:
        return ""
    least = min((r["cuda"] for r in later), key=versions.minor)
    return f"code for compute capability {capability} wants CUDA {least} or newer, and torch's is older"


def _below(offered: Sequence[str], here: Sequence[str]) -> list[str]:
    """ColossalAI's choice: everything that torch has, up to the visible GPU."""
    top = max((versions.minor(one) for one in here), default=(99, 0))
    return [one for one in offered if versions.minor(one) <= top]


def _written(capability: str, style: str) -> str:
    return capability.replace(".", "") if style == "sm" else capability


# -- jobs and time --------------------------------------------------------------------------------------


def max_jobs(facts: Facts, row: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many compilers may run at once, and why; a safe number if the machine is unknown."""
    cores, room, each = facts.known("host.cores_usable"), memory(facts), row["job_bytes"]
    by_cores = max(1, int(cores) // row["job_cores"]) if cores else None
    by_room = max(1, int(room) // each) if room else None
    if by_cores is None and by_room is None:
        return SAFE_JOBS, f"processors and memory are not known: MAX_JOBS={SAFE_JOBS} is a careful guess"
    if by_room is None:
        jobs = min(by_cores or 1, SAFE_JOBS)
        return jobs, f"the memory is not known: MAX_JOBS={jobs} is a careful guess"
    if by_cores is None:
        jobs = min(by_room, SAFE_JOBS)
        return jobs, f"the processors are not known: MAX_JOBS={jobs} is a careful guess"
    assert room is not None
    jobs = min(by_cores, by_room)
    gigabytes = f"{each / 2**30:.3g} GiB a job"
    if by_room < by_cores:
        return jobs, f"MAX_JOBS={jobs}: {room / 2**30:.0f} GiB of memory hold no more at {gigabytes}"
    return jobs, f"MAX_JOBS={jobs}: {cores} processors, and memory for {by_room} at {gigabytes}"


def memory(facts: Facts) -> int | None:
    """Return the memory available to a build: what is free, within the container's limit."""
    known = [facts.known(key) for key in ("memory.available", "memory.limit")]
    found = [int(size) for size in known if size] or [int(facts.known("memory.total") or 0)]
    return min(found) or None


def _seconds(facts: Facts, row: Mapping[str, Any], jobs: int) -> tuple[int, ...]:
    """Return the estimated duration (from, to); empty if unknown."""
    if "seconds" in row:
        return tuple(row["seconds"])
    if "core_seconds" not in row:
        return ()
    cores = int(facts.known("host.cores_usable") or SAFE_CORES)
    at_once = max(1, min(cores, jobs * row["threads"]))
    return tuple(int(work / at_once) for work in row["core_seconds"])


# -- steps ----------------------------------------------------------------------------------------------


def steps(facts: Facts, row: Mapping[str, Any], made: Recipe, requirement: str) -> tuple[Step, ...]:
    """Return the steps in order: toolkit and compiler if missing, build tools, the build."""
    needs = tuple(row.get("build_needs", ()))
    return (
        *_toolkit_step(facts, row, made),
        *_compiler_step(facts, made),
        Step(
            "install what the build stands on",
            ("uv", "pip", "install", *needs),
            "ask",
            note="beside torch, which has to be there first",
        ),
        Step(
            f"compile {requirement.partition(' ')[0]}",
            ("env", *made.environment, *_compiling(row, requirement)),
            "ask",
            note=_about(made.seconds),
        ),
    )


def _compiling(row: Mapping[str, Any], requirement: str) -> tuple[str, ...]:
    """Return the build command. If an index has an unsuitable wheel, it is neither used nor kept."""
    name = requirement.partition("==")[0]
    source = ("--no-binary", name, "--reinstall-package", name) if row.get("comes") == "index" else ()
    return ("uv", "pip", "install", "--no-build-isolation", *source, requirement)


def _toolkit_step(facts: Facts, row: Mapping[str, Any], made: Recipe) -> list[Step]:
    fact = facts.fact("toolkit.version")
    here = None if fact.gap else fact.value
    exact = row.get("toolkit_match") == "minor" and versions.major(made.toolkit) >= EXACT_SINCE
    if here and _matches(str(here), made.toolkit, exact):
        return []
    found = home(facts, made.toolkit, exact)
    if found:
        return [Step(f"set CUDA_HOME to {found}", note="another toolkit is in use")]
    have = f"CUDA {here} is here" if here else "none is here" if not fact.gap else f"toolkit: {fact.gap}"
    return [
        Step(f"install the CUDA {made.toolkit} toolkit with nvcc, and set CUDA_HOME to it", note=have),
    ]


def _matches(here: str, wanted: str, exact: bool) -> bool:
    same = versions.minor if exact else versions.major
    return same(here) == same(wanted)


def home(facts: Facts, wanted: str, exact: bool = False) -> str | None:
    """Return the folder of a fitting toolkit with nvcc, preferably the same minor."""
    rows = [r for r in facts.known("toolkit.others") or () if r.get("nvcc") and r.get("version")]
    fits = [r for r in rows if _matches(str(r["version"]), wanted, exact)]
    fits.sort(key=lambda r: versions.minor(str(r["version"])) != versions.minor(wanted))
    return str(fits[0]["path"]) if fits else None


def _compiler_step(facts: Facts, made: Recipe) -> list[Step]:
    gcc, known = facts.known("compiler.gcc"), toolkits.gcc_range(made.toolkit)
    if gcc is None or known is None or known[0] <= versions.major(str(gcc)) <= known[1]:
        return []
    return [Step(f"install gcc {known[1]} and set CC and CXX to it", note=f"gcc {gcc} is here; {known[2]}")]


def _about(seconds: Sequence[int]) -> str:
    if not seconds:
        return "nobody tells how long it takes"
    return f"about {_duration(seconds[0])} to {_duration(seconds[1])}, an estimate"


def _duration(seconds: int) -> str:
    if seconds < 90:
        return f"{seconds} seconds"
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 90 else f"{seconds / 3600:.1f} hours"
