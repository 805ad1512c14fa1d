"""``gpuready.launch()``: one call at the top of a training script, in place of ``init_process_group``.

Identify this process, take the device of the local rank, meet the other ranks at a roll-call, create the group,
verify it with one collective whose result is known, seed everything. A step that fails ends in one sentence, on
every rank, within the start window.
"""

from __future__ import annotations

import os
import sys
import time

from gpuready import cluster, rollcall
from gpuready.rollcall import Fault
from gpuready.rollcall import hello as hellos
from gpuready.runtime import device as devices
from gpuready.runtime import group, seeds
from gpuready.runtime.world import STANDING, World

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from typing import Any

    from gpuready.cluster import Rendezvous
    from gpuready.rollcall import Attendance, Hello
    from gpuready.runtime.device import Accelerator

SEED = 1024
WINDOW = "GPUREADY_START_WINDOW"
LONGEST_WINDOW_S = 86400.0
OUT_OF_TURN, OWN_FAULT = "RUN021", "RUN019"
EXPORTED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class LaunchRefused(RuntimeError):
    """The job does not start. The text says why and what to do, the same on every rank."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        self.codes = tuple(fault.code for fault in faults if fault.code)
        lines = [str(fault) for fault in faults]
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} faults:", *lines]))


def launch(
    rank: int | None = None,
    world_size: int | None = None,
    host: str | None = None,
    port: int | None = None,
    backend: str | None = None,
    local_rank: int | None = None,
    seed: int | None = SEED,
    verbose: bool = False,
    *,
    launcher: str | None = None,
    framework: str | None = None,
    device: str | None = None,
    deterministic: bool = False,
    timeout: float | None = None,
    window: float | None = None,
    verify: bool = True,
    allow_skew: bool | None = None,
) -> World:
    """Join this process to its job; LaunchRefused, in a sentence, if that is impossible.

    Without arguments everything is read from the launcher's variables. ``seed=None`` draws one for all ranks.
    ``window`` (GPUREADY_START_WINDOW, 60 s) is how long ranks wait for each other; ``timeout`` is that of later
    collectives, in seconds. ``framework`` sets the variables of its contract. Call it exactly once.
    """
    begun = time.monotonic()
    environ = os.environ
    torch = _ready()
    given = {"rank": rank, "world_size": world_size, "local_rank": local_rank, "host": host, "port": port}
    seconds = _window(window, environ)
    start = _discovered(environ, launcher, framework, given)
    start.fix_seed(seed)
    start.find_device(torch, device, backend, framework)
    if deterministic:
        seeds.deterministic(environ)
    skew = environ.get("GPUREADY_ALLOW_SKEW") == "1" if allow_skew is None else allow_skew
    made = group.Group(torch, start.rendezvous, environ, seconds, timeout)
    attendance = _met(start, made, skew, verbose)
    world = _joined(start, made, attendance, verify)
    _say(world, time.monotonic() - begun, verbose)
    return world


def launch_from_torch(
    backend: str | None = None, seed: int | None = SEED, verbose: bool = True, **more: Any
) -> World:
    """Like ColossalAI's: started by torchrun, or anything else that sets its variables."""
    return launch(
        backend=backend,
        seed=seed,
        verbose=verbose,
        **{"framework": "colossalai", "launcher": "torchrun"} | more,
    )


def launch_from_slurm(
    host: str | None = None,
    port: int | None = None,
    backend: str | None = None,
    seed: int | None = SEED,
    verbose: bool = True,
    **more: Any,
) -> World:
    """Like ColossalAI's: a task of srun. Default host and port: the first node, and a port from the job id."""
    told = {"host": host, "port": port, "backend": backend, "seed": seed, "verbose": verbose}
    return launch(**{"framework": "colossalai", "launcher": "slurm"} | told | more)


def launch_from_openmpi(
    host: str | None = None,
    port: int | None = None,
    backend: str | None = None,
    seed: int | None = SEED,
    verbose: bool = True,
    **more: Any,
) -> World:
    """Like ColossalAI's: a process of mpirun. Several hosts need ``host``, that of rank 0."""
    told = {"host": host, "port": port, "backend": backend, "seed": seed, "verbose": verbose}
    return launch(**{"framework": "colossalai", "launcher": "openmpi"} | told | more)


# -- before any device is touched -----------------------------------------------------------------------------


def _ready() -> Any:
    """Import torch; refuse if a group or a device context exists already."""
    if STANDING.once:
        raise LaunchRefused(
            Fault(
                OUT_OF_TURN,
                "gpuready.launch() was called before in this process",
                "call it once, at the top of the script, and keep the World",
            )
        )
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        said = "a process group exists already: somebody called init_process_group before gpuready.launch()"
        raise LaunchRefused(Fault(OUT_OF_TURN, said, "remove that call; gpuready.launch() makes the group"))
    for kind in devices.ORDER[:-1]:
        found = getattr(torch, kind, None)
        asked = getattr(found, "is_initialized", None)
        if asked is not None and asked():
            said = f"this process used {kind} before gpuready.launch(), and so has a context on a device that may not be its own"
            raise LaunchRefused(
                Fault(OUT_OF_TURN, said, "call gpuready.launch() before anything touches a device")
            )
    return torch


def _window(asked: float | None, environ: Mapping[str, str]) -> float:
    text = environ.get(WINDOW, "60") if asked is None else str(asked)
    name = WINDOW if asked is None else "the argument window"
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= LONGEST_WINDOW_S:
        said = f"{name} is {text!r}: it must be a number of seconds, more than 0 and at most {LONGEST_WINDOW_S:g}"
        raise LaunchRefused(Fault("SYS015", said, f"set it, for example, to {WINDOW}=60"))
    return found


def _discovered(
    environ: MutableMapping[str, str],
    launcher: str | None,
    framework: str | None,
    given: Mapping[str, object],
) -> Start:
    """Return the launch state with the Rendezvous, or raise one error with all problems, reported to rank 0 too."""
    name = (framework or "").partition("==")[0].partition(":")[0]
    try:
        return Start(cluster.discover(environ, launcher, framework=name, given=given), environ)
    except cluster.Unclear as unclear:
        start = Start(unclear.partial, environ)
        start.trouble(
            "; ".join(unclear.problems), "start with a launcher, or correct these variables", unclear.code
        )
        if unclear.partial.rank and unclear.partial.address:
            rollcall.complain(unclear.partial, start.hello(), environ.get("GPUREADY_TOKEN", ""))
        refusal = LaunchRefused(Fault("", str(unclear)))  # the text contains the code, before the table
        refusal.codes = (unclear.code,)
        raise refusal from None


class Start:
    """The state of a launch; problems of this rank are kept and reported to all other ranks."""

    def __init__(self, rendezvous: Rendezvous, environ: MutableMapping[str, str]) -> None:
        self.rendezvous, self.environ = rendezvous, environ
        self.about: dict[str, object] = {}
        self.notes = list(rendezvous.notes)
        self.seed: int | None = None
        self.accelerator: Accelerator | None = None
        self.number = 0
        self.backend = "gloo"

    def trouble(self, said: str, fix: str = "", code: str = "") -> None:
        if "trouble" not in self.about:
            self.about |= {"trouble": said, "fix": fix, "trouble_code": code}

    def fix_seed(self, seed: int | None) -> None:
        try:
            self.seed = None if seed is None else seeds.checked(seed)
        except ValueError as wrong:
            self.trouble(str(wrong), "give all ranks one whole number", OWN_FAULT)

    def find_device(self, torch: Any, asked: str | None, backend: str | None, framework: str | None) -> None:
        """Choose device and backend, set the framework's variables, and only then touch the device."""
        from gpuready.rollcall import ways

        try:
            on = self.accelerator = devices.here(torch, asked)
            hidden = devices.hidden(torch, self.environ) if on.device == "cpu" and asked is None else ""
            self._variables(torch, on, framework)
            self.backend = devices.backend(on, backend, group.built_with(torch))
            self.number = devices.index(on, self.rendezvous, self.environ, asked)
        except devices.NoDevice as wrong:
            self.trouble(str(wrong), wrong.fix, wrong.code)
            return
        except ValueError as wrong:
            self.trouble(str(wrong), "write framework as gpuready contract list shows it", OWN_FAULT)
            return
        self.notes += [hidden] if hidden else []
        bad = ways.fault(self.environ, f"rank {self.rendezvous.rank}", self.rendezvous.rank, self.backend)
        if bad is not None:
            self.trouble(bad.says, bad.fix, bad.code)
        self._take(torch, on, ways.address(self.environ, self.backend))

    def _take(self, torch: Any, on: Accelerator, address: str) -> None:
        """Make the device of this rank the current one, before a group could choose another."""
        try:
            name = on.take(self.number)
        except RuntimeError as wrong:
            self.trouble(
                f"{on.device}:{self.number} cannot be used: {str(wrong).splitlines()[0]}",
                "run gpuready check",
                "GPU018",
            )
            return
        alone = devices.of_device(self.backend, on.device) in devices.OWN_LIBRARY
        self.about |= {"device": on.device, "backend": self.backend, "data": (address, 0)}
        self.about["gpu"] = on.identity(self.number) if alone and self.rendezvous.world_size > 1 else ""
        self.about["versions"] = group.versions(torch, name)

    def _variables(self, torch: Any, on: Accelerator, framework: str | None) -> None:
        """Set the variables of the framework's contract; torch is imported, but has no context yet."""
        if not framework:
            return
        from gpuready import contracts
        from gpuready.runtime.platform import variables

        name, version, variant = contracts.parse(framework)
        contracts.known(name, version, variant)
        contract = contracts.load(name, version, variant, None)
        self.environ.update(variables(on.platform, contract, self.environ, str(torch.__version__)))

    def hello(self) -> Hello:
        code = {"seed": str(self.seed)} | fingerprints()
        return hellos.of(self.rendezvous, self.environ, code=code, **self.about)


def fingerprints() -> dict[str, str]:
    """Return short hashes of the script and the packages, which reveal ranks that run other code."""
    import hashlib

    found = {}
    script = sys.argv[0] if sys.argv and os.path.isfile(sys.argv[0]) else ""
    if script:
        with open(script, "rb") as file:
            found["script"] = hashlib.sha256(file.read(1 << 22)).hexdigest()[:12]
    names = sorted(name for path in sys.path if path.endswith("-packages") for name in _distributions(path))
    found["set of packages"] = hashlib.sha256("\n".join(names).encode("utf-8", "replace")).hexdigest()[:12]
    return found


def _distributions(path: str) -> list[str]:
    try:
        return [name for name in os.listdir(path) if name.endswith(".dist-info")]
    except OSError:
        return []


# -- joining the group ------------------------------------------------------------------------------------------


def _met(start: Start, made: group.Group, allow_skew: bool, verbose: bool) -> Attendance:
    """Hold the roll-call; a single rank only reports its own problems."""
    mine, rendezvous = start.hello(), start.rendezvous
    if rendezvous.world_size == 1:
        if mine.trouble:
            raise LaunchRefused(
                Fault(mine.trouble_code, f"{mine.who} cannot start: {mine.trouble}", mine.fix, (0,))
            )
        return rollcall.Attendance(((mine.machine, mine.host, 1),))
    say = _progress if verbose or rendezvous.rank == 0 else None
    options: dict[str, Any] = {"window": made.window, "allow_skew": allow_skew, "say": say}
    try:
        if rendezvous.agent_store:
            return rollcall.on_board(made.agent_store(mine), rendezvous, mine, **options)
        token = start.environ.get("GPUREADY_TOKEN", "")
        return rollcall.attend(rendezvous, mine, token=token, inquire=group.inquire(made.torch), **options)
    except rollcall.Refused as no:
        raise LaunchRefused(*no.faults) from None


def _joined(start: Start, made: group.Group, attendance: Attendance, verify: bool) -> World:
    """Create and verify the group on the device, and seed everything."""
    on, rendezvous = start.accelerator, start.rendezvous
    assert on is not None
    name = f"{on.device}:{start.number}" if on.device not in ("cpu", "mps") else on.device
    try:
        made.open(attendance, start.backend, name)
        seed = made.shared_seed(start.seed)
        if verify:
            made.prove(start.backend, name)
        made.relax()
    except group.Broken as wrong:
        made.abandon()
        raise LaunchRefused(wrong.fault) from None
    seeds.everywhere(seed)
    node, here = attendance.place(hellos.machine())
    told = start.notes + list(attendance.notes)
    local = start.number if rendezvous.local_rank is None else rendezvous.local_rank
    world = World(rendezvous.rank, local, rendezvous.world_size, rendezvous.local_world_size or here, node,
                  attendance.hosts, name, start.backend, seed, rendezvous.launcher, tuple(told))  # fmt: skip
    if rendezvous.launcher != "single":
        _export(start.environ, rendezvous, world)
    STANDING.rise(world, made.store, attendance.listener is not None)
    return world


def _export(environ: MutableMapping[str, str], rendezvous: Rendezvous, world: World) -> None:
    """Set the variables that frameworks read, if the launcher uses others; existing values stay."""
    values = (
        world.rank,
        world.world_size,
        world.local_rank,
        world.local_world_size,
        rendezvous.address,
        rendezvous.port,
    )
    for name, value in zip(EXPORTED, values, strict=True):
        environ.setdefault(name, str(value))


def _progress(said: str) -> None:
    sys.stderr.write(f"gpuready: {said}\n")
    sys.stderr.flush()


def _say(world: World, seconds: float, verbose: bool) -> None:
    if world.rank:
        return
    for note in world.notes:
        _progress(note)
    if verbose:
        where = f"{len(world.hosts)} host{'s' if len(world.hosts) > 1 else ''}"
        _progress(
            f"{world.world_size} ranks on {where}, {world.backend} on {world.device}, seed {world.seed}, {seconds:.2f} s"
        )
