"""A build from source: toolkit, compiler, architectures, number of jobs, duration, and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import kernels as catalogue
from gpuready.catalog import torch
from gpuready.catalog.torch import TorchBuild
from gpuready.model import Facts, FixStep, Record, versions
from gpuready.model.facts import describe_gap

SAFE_JOBS = 4
"""flash-attn's README advises this below 96 GB of memory; used if the memory is unknown."""

SAFE_CORES = 8
EXACT_MINOR_SINCE = 13
"""From this CUDA on DeepSpeed accepts no other minor (op_builder/builder.py, 0.19.8)."""

COLOSSALAI_OLDEST_ARCH = 60
"""The oldest architecture for which ColossalAI compiles (extensions/utils.py:207)."""


class BuildRecipe(Record):
    """How one package would be compiled here; ``impossible`` says why it cannot be."""

    impossible: str = ""
    toolkit: str = ""
    compiler: str = ""
    arch_list: str = ""
    environment: tuple[str, ...] = ()  # NAME=VALUE
    max_jobs: int = 0
    seconds: tuple[int, ...] = ()
    says: str = ""


def make_build_recipe(
    facts: Facts, row: Mapping[str, Any], release: Mapping[str, Any], build: TorchBuild
) -> BuildRecipe:
    """Return how a package is compiled for this torch; ``release`` may override the package's arch list."""
    toolkit, lacking = _choose_toolkit(row, build)
    if lacking:
        return BuildRecipe(lacking)
    listed, variable, says, lacking = _choose_architectures(facts, row, release, build, toolkit)
    if lacking:
        return BuildRecipe(lacking)
    jobs, counted = choose_max_jobs(facts, row)
    known = toolkits.supported_gcc_range(toolkit)
    return BuildRecipe(
        toolkit=toolkit,
        compiler=f"gcc {known[0]} to {known[1]}" if known else "",
        arch_list=listed,
        environment=(*variable, f"MAX_JOBS={jobs}", *row.get("environment", ()), *_force_build_variables(row, release)),
        max_jobs=jobs,
        seconds=_estimate_build_seconds(facts, row, jobs),
        says="; ".join(part for part in (says, counted, _exact_toolkit_note(row, toolkit)) if part),
    )


def _exact_toolkit_note(row: Mapping[str, Any], toolkit: str) -> str:
    return str(row.get("toolkit_says", "")) if versions.major_version(toolkit) >= EXACT_MINOR_SINCE else ""


def _force_build_variables(row: Mapping[str, Any], release: Mapping[str, Any]) -> list[str]:
    """Stop setup.py from looking for a wheel if none is known to fit."""
    return [row["force"]] if release and "force" in row else []


def _choose_toolkit(row: Mapping[str, Any], build: TorchBuild) -> tuple[str, str]:
    """Return the CUDA that nvcc must have: torch's, within whose major the minor may differ."""
    if versions.compare_versions(build.cuda, row["toolkit_min"]) >= 0:
        return build.cuda, ""
    return ("", f"it compiles with CUDA {row['toolkit_min']} or newer, and this torch is built for {build.cuda}")


# -- architectures --------------------------------------------------------------------------------------


def list_gpu_capabilities(facts: Facts) -> tuple[str, ...]:
    """Return the distinct compute capabilities of the GPUs here; empty if unknown."""
    known = facts.value_if_known("gpu.capability") or ()
    return tuple(sorted({str(one) for one in known if one}, key=versions.major_minor))


def _choose_architectures(
    facts: Facts, row: Mapping[str, Any], release: Mapping[str, Any], build: TorchBuild, toolkit: str
) -> tuple[str, tuple[str, ...], str, str]:
    """Return the arch list, its variable assignment, a note, and the error if none works."""
    here = list_gpu_capabilities(facts)
    offered = _compilable_capabilities(row, release, build, toolkit)
    chosen = [_best_capability(offered, one, toolkit) for one in here]
    if None in chosen:
        missing = here[chosen.index(None)]
        floor = _explain_cuda_floor(row, release, missing)
        return "", (), "", floor or f"a build has no code for compute capability {missing}"
    wanted = list(dict.fromkeys(str(one) for one in chosen))
    style, variable = row.get("arch_style", ""), row.get("arch_variable", "")
    if style == "own":
        text = ";".join(_capabilities_up_to_gpu(offered, here))
        return text, (), "it sets the architectures itself, from what torch has up to the GPU", ""
    if not variable:
        return (";".join(offered), (), "its setup.py compiles for all of them, and no variable narrows that", "")
    text = ";".join((one.replace(".", "") if style == "sm" else one) for one in (wanted or offered))
    says = "" if here else "no GPU is known here, so the list has all that it can be compiled for"
    return text, (f"{variable}={text}",), says, ""


def _compilable_capabilities(
    row: Mapping[str, Any], release: Mapping[str, Any], build: TorchBuild, toolkit: str
) -> list[str]:
    """Return the capabilities it can be compiled for: its own list, else torch's that nvcc supports."""
    if row.get("arch_style") == "own":
        return [c for c in _dotted_capabilities(build.arch) if int(c.replace(".", "")) >= COLOSSALAI_OLDEST_ARCH]
    if "arch" in row:
        return sorted(
            catalogue.compiled_capabilities(release if "arch" in release else row, toolkit), key=versions.major_minor
        )
    targets = toolkits.list_nvcc_targets(toolkit) or ()
    return [c for c in targets if torch.covers_capability(build.arch, c, toolkit)[0]]


def _dotted_capabilities(arch: Sequence[str]) -> list[str]:
    bare = [one.removeprefix("sm_") for one in arch if one.startswith("sm_")]
    return [f"{one[:-1]}.{one[-1]}" for one in bare if one.isdigit()]


def _best_capability(offered: Sequence[str], capability: str, toolkit: str) -> str | None:
    """Return the newest entry whose code runs on a GPU, or None."""
    fits = [c for c in offered if torch.covers_capability([f"sm_{c.replace('.', '')}"], capability, toolkit)[0]]
    return max(fits, key=versions.major_minor, default=None)


def _explain_cuda_floor(row: Mapping[str, Any], release: Mapping[str, Any], capability: str) -> str:
    """Name the CUDA from which on it compiles for a GPU; empty if none does."""
    rows = (release if "arch" in release else row).get("arch", ())
    later = [r for r in rows if torch.covers_capability([f"sm_{r['cc'].replace('.', '')}"], capability)[0]]
    if not later:
        return ""
    least = min((r["cuda"] for r in later), key=versions.major_minor)
    return f"code for compute capability {capability} wants CUDA {least} or newer, and torch's is older"


def _capabilities_up_to_gpu(offered: Sequence[str], here: Sequence[str]) -> list[str]:
    """ColossalAI's choice: everything that torch has, up to the visible GPU."""
    top = max((versions.major_minor(one) for one in here), default=(99, 0))
    return [one for one in offered if versions.major_minor(one) <= top]


# -- jobs and time --------------------------------------------------------------------------------------


def choose_max_jobs(facts: Facts, row: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many compilers may run at once, and why; a safe number if the machine is unknown."""
    cores, room, each = (facts.value_if_known("host.cores_usable"), usable_build_memory(facts), row["job_bytes"])
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


def usable_build_memory(facts: Facts) -> int | None:
    """Return the memory available to a build: what is free, within the container's limit."""
    known = [facts.value_if_known(key) for key in ("memory.available", "memory.limit")]
    found = [int(size) for size in known if size] or [int(facts.value_if_known("memory.total") or 0)]
    return min(found) or None


def _estimate_build_seconds(facts: Facts, row: Mapping[str, Any], jobs: int) -> tuple[int, ...]:
    """Return the estimated duration (from, to); empty if unknown."""
    if "seconds" in row:
        return tuple(row["seconds"])
    if "core_seconds" not in row:
        return ()
    cores = int(facts.value_if_known("host.cores_usable") or SAFE_CORES)
    at_once = max(1, min(cores, jobs * row["threads"]))
    return tuple(int(work / at_once) for work in row["core_seconds"])


# -- steps ----------------------------------------------------------------------------------------------


def make_build_steps(
    facts: Facts, row: Mapping[str, Any], recipe: BuildRecipe, requirement: str
) -> tuple[FixStep, ...]:
    """Return the steps in order: toolkit and compiler if missing, build tools, the build."""
    needs = tuple(row.get("build_needs", ()))
    return (
        *_toolkit_step(facts, row, recipe),
        *_compiler_step(facts, recipe),
        FixStep(
            "install what the build needs",
            ("uv", "pip", "install", *needs),
            "ask",
            note="beside torch, which has to be there first",
        ),
        FixStep(
            f"compile {requirement.partition(' ')[0]}",
            ("env", *recipe.environment, *_compile_command(row, requirement)),
            "ask",
            note=_format_build_time(recipe.seconds),
        ),
    )


def _compile_command(row: Mapping[str, Any], requirement: str) -> tuple[str, ...]:
    """Return the build command. If an index has an unsuitable wheel, it is neither used nor kept."""
    name = requirement.partition("==")[0]
    source = ("--no-binary", name, "--reinstall-package", name) if row.get("comes") == "index" else ()
    return ("uv", "pip", "install", "--no-build-isolation", *source, requirement)


def _toolkit_step(facts: Facts, row: Mapping[str, Any], recipe: BuildRecipe) -> list[FixStep]:
    fact = facts.fact("toolkit.version")
    here = None if fact.gap else fact.value
    exact = row.get("toolkit_match") == "minor" and versions.major_version(recipe.toolkit) >= EXACT_MINOR_SINCE
    if here and _toolkit_matches(str(here), recipe.toolkit, exact):
        return []
    other_home = find_toolkit_home(facts, recipe.toolkit, exact)
    if other_home:
        return [FixStep(f"set CUDA_HOME to {other_home}", note="another toolkit is in use")]
    have = f"CUDA {here} is here" if here else "none is here" if not fact.gap else f"toolkit {describe_gap(fact.gap)}"
    return [FixStep(f"install the CUDA {recipe.toolkit} toolkit with nvcc, and set CUDA_HOME to it", note=have)]


def _toolkit_matches(here: str, wanted: str, exact: bool) -> bool:
    same = versions.major_minor if exact else versions.major_version
    return same(here) == same(wanted)


def find_toolkit_home(facts: Facts, wanted: str, exact: bool = False) -> str | None:
    """Return the folder of a fitting toolkit with nvcc, preferably the same minor."""
    rows = [r for r in facts.value_if_known("toolkit.others") or () if r.get("nvcc") and r.get("version")]
    fits = [r for r in rows if _toolkit_matches(str(r["version"]), wanted, exact)]
    fits.sort(key=lambda r: versions.major_minor(str(r["version"])) != versions.major_minor(wanted))
    return str(fits[0]["path"]) if fits else None


def _compiler_step(facts: Facts, recipe: BuildRecipe) -> list[FixStep]:
    gcc, known = facts.value_if_known("compiler.gcc"), toolkits.supported_gcc_range(recipe.toolkit)
    if gcc is None or known is None or known[0] <= versions.major_version(str(gcc)) <= known[1]:
        return []
    return [FixStep(f"install gcc {known[1]} and set CC and CXX to it", note=f"gcc {gcc} is here; {known[2]}")]


def _format_build_time(seconds: Sequence[int]) -> str:
    if not seconds:
        return "nobody tells how long it takes"
    return f"about {_format_duration(seconds[0])} to {_format_duration(seconds[1])}, an estimate"


def _format_duration(seconds: int) -> str:
    if seconds < 90:
        return f"{seconds} seconds"
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 90 else f"{seconds / 3600:.1f} hours"
