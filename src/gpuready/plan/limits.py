"""The limits on a choice of torch, CUDA and Python, each with its evidence.

A limit is a pure function of a choice and keeps the facts and needs it comes from, so that a set of limits
that nothing satisfies is also the explanation.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import cuda as toolkits
from gpuready.catalog import remembered
from gpuready.catalog import torch as torches
from gpuready.contracts import want as wanting
from gpuready.contracts.sharing import apart
from gpuready.model import Need
from gpuready.plan import extensions
from gpuready.plan.ground import CHOSEN, Ground, Limit, axes, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.catalog.torch import Build
    from gpuready.model import Contract, Facts
    from gpuready.plan.ground import Asked, Test

BROUGHT = ("toolkit.", "compiler.", "disk.", "system.", "env.", "can.", "log.", "fit.", "fleet.", "package.")
"""Provided by the user, the resolver or a later command: no choice of torch depends on it."""

GLIBC, GLIBC_SINCE = "2.28", "2.7"
GLIBC_CITE = "torch 2.7.0 on PyPI: wheels for manylinux_2_28, none for musl"
LINUX = "the catalogue lists the wheels of torch for Linux alone"


def limits(ground: Ground, contract: Contract, asked: Asked) -> list[Limit]:
    """List every limit for one contract on one machine, the simplest first."""
    found = [*_of_user(asked), *_of_needs(ground, contract), *_platform(ground, contract)]
    found += [*_own_pins(ground, contract), *_python_tags(), *_glibc(ground.facts)]
    if not ground.cpu:
        found += [*_architecture(ground.facts), *_driver(ground.facts)]
    return [*found, *extensions.limits(ground, contract)]


# -- the user -------------------------------------------------------------------------------------------


def _of_user(asked: Asked) -> Iterator[Limit]:
    if asked.torch:
        version, _, variant = asked.torch.partition("+")
        fact = asked.fact("package.torch", asked.torch, "--torch")
        says = asked.why or f"--torch asks for {asked.torch}"

        def other(build: Build, python: str) -> str:
            same = versions.compare(build.version, version) == 0 and variant in ("", build.variant)
            return "" if same else says

        yield Limit("torch-asked", says, other, (fact,))
    if asked.python:
        wanted = versions.minor(asked.python)
        fact = asked.fact("python.version", asked.python, asked.python_source)
        told = asked.why or f"{asked.python_source} asks for Python {asked.python}"
        yield Limit(
            "python-asked",
            told,
            lambda b, p: "" if versions.minor(p) == wanted else told,
            (fact,),
            axes="python",
        )


# -- the contract ---------------------------------------------------------------------------------------


def _of_needs(ground: Ground, contract: Contract) -> Iterator[Limit]:
    """Yield a limit for each required need on a chosen or an unchangeable machine fact."""
    for need in contract.needs:
        if need.level == "required" and _counts(need, ground.cpu):
            yield _of_need(ground, contract, need)


def _counts(need: Need, cpu: bool) -> bool:
    if need.key in CHOSEN:
        return need.want != "*"
    if cpu and need.key.startswith(("gpu.", "driver.")):
        return False
    if need.key == "gpu.memory":
        return "wants" in need.when  # a floor for jobs of usual size is only advice, as in a check
    return not need.key.startswith(BROUGHT)


def _of_need(ground: Ground, contract: Contract, need: Need) -> Limit:
    label = _label(need.key)
    wanted = wanting.describe(need.want)
    by_choice = need.key in CHOSEN or need.key.startswith("torch.")

    def fails(build: Build, python: str) -> str:
        if not ground.applies(need.when, build, python):
            return ""
        value = ground.value(need.key, build, python)
        if value is ground.open or _met(need, _boxed(value) if need.key == "gpu.memory" else value):
            return ""
        return f"{label} {_said(value).partition('+')[0]} is outside {wanted}"

    machine = "" if by_choice else _here(ground.facts, need.key)
    facts = () if by_choice else (ground.facts.fact(need.key),)
    says = f"{contract.name} asks for {label} {wanted}{machine}"
    return Limit(f"need {need.key}", says, fails, facts, (need,), axes=axes(need.key, need.when))


def _met(need: Need, value: object) -> bool:
    try:
        return wanting.holds(need.want, value)
    except ValueError:
        return True  # not comparable: treat as unknown, which rules out nothing


def _boxed(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the nominal memory of each GPU: ECC and the driver reserve up to a sixteenth."""
    return tuple(int(size * 16 / 15) for size in sizes)


def _label(key: str) -> str:
    names = {"package.torch": "torch", "python.version": "Python", "torch.cuda": "CUDA in torch"}
    names |= {"gpu.capability": "compute capability", "gpu.count": "GPUs", "driver.version": "driver"}
    return names.get(key, key.removeprefix("package."))


def _said(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return " and ".join(dict.fromkeys(map(str, value))) or "none"
    return "absent" if value is None else str(value)


def _here(facts: Facts, key: str) -> str:
    value = shown(facts, key) if key.startswith("gpu.") else facts.known(key)
    return f", and this machine has {_said(value)}"


def _own_pins(ground: Ground, contract: Contract) -> Iterator[Limit]:
    """Yield a limit for two pins of one contract that no version satisfies."""
    for pairs in apart(contract):
        for a, b in pairs:
            package = a.key.removeprefix("package.")
            says = (
                f"{contract.name} asks for {package} {a.want} and for {package} {b.want}, which no version is"
            )

            def fails(build: Build, python: str, both: tuple[Need, Need] = (a, b), says: str = says) -> str:
                return says if all(ground.applies(n.when, build, python) for n in both) else ""

            yield Limit(f"own pins on {package}", says, fails, (), (a, b), axes=axes("", a.when, b.when))


# -- the machine ----------------------------------------------------------------------------------------


def _platform(ground: Ground, contract: Contract) -> Iterator[Limit]:
    """Yield limits where the catalogue has no torch for this system or device."""
    facts, named = ground.facts, " and ".join(contract.platforms)
    system = facts.known("os.system")
    if system not in (None, "linux"):
        why = f"this machine runs {system}, and {LINUX}"
        yield Limit("system", why, _always(why), (facts.fact("os.system"),), (_linux(),))
    here = facts.known("platform.name")
    why = ""
    if ground.cpu and set(contract.platforms) == {"cuda"}:
        why = f"{contract.name} is for NVIDIA GPUs, not for a CPU alone"
    elif not ground.cpu and "cuda" not in contract.platforms:
        why = f"{contract.name} is for {named}, and the catalogue has no torch for that to choose from"
    elif not ground.cpu and here == "cpu":
        why = f"{contract.name} is for {named}, and this machine has only a CPU"
    elif not ground.cpu and here not in (None, "cuda"):
        why = f"this machine computes on {here}, and the catalogue has no torch for that to choose from"
    if why:
        cite = f"{contract.name}, platforms: {', '.join(contract.platforms)}"
        need = Need("platform.name", "|".join(contract.platforms), cite=cite)
        yield Limit("platform", why, _always(why), (facts.fact("platform.name"),), (need,))


def _always(why: str) -> Test:
    return lambda build, python: why


def _linux() -> Need:
    return Need("os.system", "linux", cite=LINUX)


def _python_tags() -> Iterator[Limit]:
    def fails(build: Build, python: str) -> str:
        minor = "{}.{}".format(*versions.minor(python))
        return "" if minor in build.python else f"torch {build.version} has no wheel for Python {minor}"

    need = Need("python.version", "one that the wheel of torch is built for", cite="wheel tags of torch")
    yield Limit("python tags", "torch comes as a wheel for certain Pythons", fails, (), (need,), axes="both")


def _glibc(facts: Facts) -> Iterator[Limit]:
    fact = facts.fact("os.glibc")
    if fact.gap or facts.known("os.system") not in (None, "linux"):
        return
    glibc = fact.value
    if glibc is not None and versions.compare(str(glibc), GLIBC) >= 0:
        return

    def fails(build: Build, python: str) -> str:
        if glibc is None:
            return "torch has no wheels for a system without glibc"
        late = build.version.startswith("2.6") and (build.variant == "cu126" or build.machine == "aarch64")
        if versions.compare(build.version, GLIBC_SINCE) < 0 and not late:
            return ""
        return f"its wheel is built for glibc {GLIBC}, and {glibc} is here"

    need = Need("os.glibc", f">={GLIBC}", cite=GLIBC_CITE)
    says = f"torch from {GLIBC_SINCE} on is built for glibc {GLIBC}, and this machine has {glibc or 'none'}"
    yield Limit("glibc", says, fails, (fact,), (need,), GLIBC_CITE)


def _architecture(facts: Facts) -> Iterator[Limit]:
    """Require code in the wheel for every visible GPU."""
    capabilities = dict.fromkeys(map(str, shown(facts, "gpu.capability")))
    names = facts.known("gpu.name") or ()
    cite = str(toolkits.rule("cubin_compat")["source"])
    for capability in capabilities:
        own = next(
            (n for n, c in zip(names, facts.known("gpu.capability") or (), strict=False) if c == capability),
            "",
        )
        what = f"{own} ({capability})" if own else capability

        def fails(build: Build, python: str, capability: str = capability, what: str = what) -> str:
            if _covers(build.arch, capability, build.cuda):
                return ""
            return f"it has no code for {what}: {' '.join(build.arch) or 'nothing is listed'}"

        arch = "sm_" + capability.replace(".", "")
        says = f"torch needs code for {what}, {arch} or what runs there"
        facts_ = tuple(facts.fact(key) for key in ("gpu.name", "gpu.capability") if key in facts)
        yield Limit(
            f"code for {capability}", says, fails, facts_, (Need("torch.arch", arch, cite=cite),), cite
        )


@remembered
def _covers(arch: tuple[str, ...], capability: str, cuda: str) -> bool:
    return torches.covers(arch, capability, cuda)[0]


def _driver(facts: Facts) -> Iterator[Limit]:
    driver = facts.known("driver.version")
    if driver is None or not facts.known("gpu.count"):
        return
    fact, compat = facts.fact("driver.version"), bool(facts.known("driver.compat"))

    def fails(build: Build, python: str) -> str:
        if toolkits.runs(str(driver), build.cuda, compat=compat) is not False:
            return ""
        return f"CUDA {build.cuda} needs driver {build.driver_floor}, and {driver} is here"

    cuda = toolkits.driver_cuda(str(driver)) or "none that the catalogue knows"
    floor = next(
        (f for f, _ in map(toolkits.driver_floor, toolkits.releases()) if f and _above(f, str(driver))), ""
    )
    need = Need("driver.version", f">={floor}" if floor else "*", cite=toolkits.driver_floor("13.0")[1])
    says = f"driver {driver} starts programs of CUDA {cuda} and of other minors of its major, no newer ones"
    yield Limit("driver", says, fails, (fact,), (need,), need.cite)
    yield from _branches(facts, str(driver))


def _above(floor: str, driver: str) -> bool:
    return versions.compare(floor, driver) > 0


def _branches(facts: Facts, driver: str) -> Iterator[Limit]:
    """Yield limits where the driver is too old or too new for a GPU."""
    memory = facts.fact("gpu.memory")
    if memory.value and memory.how == "read":
        return  # memory was read, so the driver supports these GPUs
    fact = (facts.fact("driver.version"), facts.fact("gpu.capability"))
    for capability in dict.fromkeys(map(str, shown(facts, "gpu.capability"))):
        first, says_first = toolkits.driver_branch_min_for(capability)
        last, says_last = toolkits.driver_branch_max_for(capability)
        branch = versions.major(driver)
        if first is not None and branch < first:
            why = f"driver {driver} is older than GPUs of capability {capability}, which it does not know"
            yield Limit("driver of gpu", why, _always(why), fact, (_bound(f">={first}", says_first),))
        if last is not None and branch > last:
            why = f"driver {driver} no longer drives GPUs of capability {capability}"
            yield Limit("driver of gpu", why, _always(why), fact, (_bound(f"<{last + 1}", says_last),))


def _bound(want: str, cite: object) -> Need:
    return Need("driver.version", want, cite=str(cite[0] if isinstance(cite, (list, tuple)) else cite))
