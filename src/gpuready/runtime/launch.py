"""``gpuready.launch()``: one call at the top of a training script, in place of ``init_process_group``.

Identify this process, take the device of the local rank, meet the other ranks at a roll-call, create the group,
verify it with one collective whose result is known, seed everything. A step that fails ends in one sentence, on
every rank, within the start window.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

from gpuready import cluster, contracts, rollcall
from gpuready.cluster import Rendezvous
from gpuready.rollcall import Attendance, Hello, RollcallFault, interface_check
from gpuready.rollcall import hello as hellos
from gpuready.rollcall.interface_check import choose_gloo_interface
from gpuready.rollcall.job_secret import find_job_token
from gpuready.rollcall.rank_register import own_trouble_fault
from gpuready.runtime import device as devices
from gpuready.runtime import group, seeds
from gpuready.runtime.code_fingerprints import code_fingerprints
from gpuready.runtime.device import Accelerator
from gpuready.runtime.platform import framework_variables
from gpuready.runtime.world import ACTIVE_WORLD, World

DEFAULT_SEED = 1024
WINDOW_VARIABLE = "GPUREADY_START_WINDOW"
LONGEST_WINDOW_S = 86400.0
OUT_OF_TURN_CODE, OWN_FAULT_CODE = "RUN021", "RUN019"
EXPORTED_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class LaunchRefused(RuntimeError):
    """The job does not start. The text says why and what to do, the same on every rank."""

    def __init__(self, *faults: RollcallFault) -> None:
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
    seed: int | None = DEFAULT_SEED,
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
    torch = _import_torch_checked()
    arguments = {"rank": rank, "world_size": world_size, "local_rank": local_rank, "host": host, "port": port}
    seconds = _read_start_window(window, environ)
    start = _discover_rendezvous(environ, launcher, framework, arguments)
    start.set_seed(seed)
    start.find_device(torch, device, backend, framework)
    if deterministic:
        seeds.enable_determinism(environ)
    skew = environ.get("GPUREADY_ALLOW_SKEW") == "1" if allow_skew is None else allow_skew
    job_group = group.JobGroup(torch, start.rendezvous, environ, seconds, timeout)
    attendance = _meet_ranks(start, job_group, skew, verbose)
    world = _join_group(start, job_group, attendance, verify)
    _report_world(world, time.monotonic() - begun, verbose)
    return world


def launch_from_torch(
    backend: str | None = None, seed: int | None = DEFAULT_SEED, verbose: bool = True, **more: Any
) -> World:
    """Like ColossalAI's: started by torchrun, or anything else that sets its variables."""
    return launch(
        backend=backend, seed=seed, verbose=verbose, **{"framework": "colossalai", "launcher": "torchrun"} | more
    )


def launch_from_slurm(
    host: str | None = None,
    port: int | None = None,
    backend: str | None = None,
    seed: int | None = DEFAULT_SEED,
    verbose: bool = True,
    **more: Any,
) -> World:
    """Like ColossalAI's: a task of srun. Default host and port: the first node, and a port from the job id."""
    options = {"host": host, "port": port, "backend": backend, "seed": seed, "verbose": verbose}
    return launch(**{"framework": "colossalai", "launcher": "slurm"} | options | more)


def launch_from_openmpi(
    host: str | None = None,
    port: int | None = None,
    backend: str | None = None,
    seed: int | None = DEFAULT_SEED,
    verbose: bool = True,
    **more: Any,
) -> World:
    """Like ColossalAI's: a process of mpirun. Several hosts need ``host``, that of rank 0."""
    options = {"host": host, "port": port, "backend": backend, "seed": seed, "verbose": verbose}
    return launch(**{"framework": "colossalai", "launcher": "openmpi"} | options | more)


# -- before any device is touched -----------------------------------------------------------------------------


def _import_torch_checked() -> Any:
    """Import torch; refuse if a group or a device context exists already."""
    if ACTIVE_WORLD.launched:
        raise LaunchRefused(
            RollcallFault(
                OUT_OF_TURN_CODE,
                "gpuready.launch() was called before in this process",
                "call it once, at the top of the script, and keep the World",
            )
        )
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        message = "a process group exists already: somebody called init_process_group before gpuready.launch()"
        raise LaunchRefused(
            RollcallFault(
                OUT_OF_TURN_CODE,
                message,
                "keep one of the two: remove that call (colossalai.launch… makes it too), or gpuready.launch()",
            )
        )
    for kind in devices.DEVICE_ORDER[:-1]:
        device_module = getattr(torch, kind, None)
        is_initialized = getattr(device_module, "is_initialized", None)
        if is_initialized is not None and is_initialized():
            message = f"this process used {kind} before gpuready.launch(), and so has a context on a device that may not be its own"
            raise LaunchRefused(
                RollcallFault(OUT_OF_TURN_CODE, message, "call gpuready.launch() before anything touches a device")
            )
    return torch


def _read_start_window(requested: float | None, environ: Mapping[str, str]) -> float:
    text = environ.get(WINDOW_VARIABLE, "60") if requested is None else str(requested)
    name = WINDOW_VARIABLE if requested is None else "the argument window"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_WINDOW_S:
        message = f"{name} is {text!r}: it must be a number of seconds, more than 0 and at most {LONGEST_WINDOW_S:g}"
        raise LaunchRefused(RollcallFault("SYS015", message, f"set it, for example, to {WINDOW_VARIABLE}=60"))
    return seconds


def _discover_rendezvous(
    environ: MutableMapping[str, str], launcher: str | None, framework: str | None, arguments: Mapping[str, object]
) -> LaunchState:
    """Return the launch state with the Rendezvous, or raise one error with all problems, reported to rank 0 too."""
    name = (framework or "").partition("==")[0].partition(":")[0]
    try:
        return LaunchState(cluster.discover_rendezvous(environ, launcher, framework=name, arguments=arguments), environ)
    except cluster.RendezvousUnclear as unclear:
        start = LaunchState(unclear.partial, environ)
        start.record_trouble(
            "; ".join(unclear.problems), "start with a launcher, or correct these variables", unclear.code
        )
        if unclear.partial.rank and unclear.partial.address:
            rollcall.report_trouble(unclear.partial, start.make_hello(), find_job_token(environ))
        refusal = LaunchRefused(RollcallFault("", str(unclear)))  # the text contains the code, before the table
        refusal.codes = (unclear.code,)
        raise refusal from None


class LaunchState:
    """The state of a launch; problems of this rank are kept and reported to all other ranks."""

    def __init__(self, rendezvous: Rendezvous, environ: MutableMapping[str, str]) -> None:
        self.rendezvous, self.environ = rendezvous, environ
        self.about: dict[str, object] = {}
        self.notes = list(rendezvous.notes)
        self.seed: int | None = None
        self.accelerator: Accelerator | None = None
        self.device_index = 0
        self.backend = "gloo"

    def record_trouble(self, message: str, fix: str = "", code: str = "") -> None:
        if "trouble" not in self.about:
            self.about |= {"trouble": message, "fix": fix, "trouble_code": code}

    def set_seed(self, seed: int | None) -> None:
        try:
            self.seed = None if seed is None else seeds.validate_seed(seed)
        except ValueError as error:
            self.record_trouble(str(error), "give all ranks one whole number", OWN_FAULT_CODE)

    def find_device(self, torch: Any, requested: str | None, backend: str | None, framework: str | None) -> None:
        """Choose device and backend, set the framework's variables, and only then touch the device."""
        try:
            accelerator = self.accelerator = devices.find_accelerator(torch, requested)
            hidden = (
                devices.note_hidden_devices(torch, self.environ)
                if accelerator.device_type == "cpu" and requested is None
                else ""
            )
            self._set_framework_variables(torch, accelerator, framework)
            self.backend = devices.choose_backend(accelerator, backend, group.available_backends(torch))
            self.device_index = devices.choose_device_index(accelerator, self.rendezvous, self.environ, requested)
        except devices.DeviceUnavailable as error:
            self.record_trouble(str(error), error.fix, error.code)
            return
        except ValueError as error:
            self.record_trouble(str(error), "write framework as gpuready contract list shows it", OWN_FAULT_CODE)
            return
        self.notes += [hidden] if hidden else []
        fault = interface_check.find_interface_fault(
            self.environ, f"rank {self.rendezvous.rank}", self.rendezvous.rank, self.backend
        )
        if fault is not None:
            self.record_trouble(fault.says, fault.fix, fault.code)
        self._take_device(torch, accelerator, interface_check.find_data_address(self.environ, self.backend))

    def _take_device(self, torch: Any, accelerator: Accelerator, address: str) -> None:
        """Make the device of this rank the current one, before a group could choose another."""
        try:
            name = accelerator.set_device(self.device_index)
        except RuntimeError as error:
            self.record_trouble(
                f"{accelerator.device_type}:{self.device_index} cannot be used: {str(error).splitlines()[0]}",
                "run gpuready check",
                "GPU018",
            )
            return
        alone = devices.backend_of_device(self.backend, accelerator.device_type) in devices.DEVICE_BACKENDS
        self.about |= {"device": accelerator.device_type, "backend": self.backend, "data": (address, 0)}
        self.about["gpu"] = (
            accelerator.device_identity(self.device_index) if alone and self.rendezvous.world_size > 1 else ""
        )
        self.about["versions"] = group.rank_versions(torch, name)

    def _set_framework_variables(self, torch: Any, accelerator: Accelerator, framework: str | None) -> None:
        """Set the variables of the framework's contract; torch is imported, but has no context yet."""
        if not framework:
            return
        name, version, variant = contracts.parse_contract_spec(framework)
        contracts.check_contract_exists(name, version, variant)
        contract = contracts.load_contract(name, version, variant, None)
        self.environ.update(framework_variables(accelerator.platform, contract, self.environ, str(torch.__version__)))

    def make_hello(self) -> Hello:
        code = {"seed": str(self.seed)} | code_fingerprints()
        return hellos.make_hello(self.rendezvous, self.environ, code=code, **self.about)


# -- joining the group ------------------------------------------------------------------------------------------


def _meet_ranks(start: LaunchState, job_group: group.JobGroup, allow_skew: bool, verbose: bool) -> Attendance:
    """Hold the roll-call; a single rank only reports its own problems."""
    mine, rendezvous = start.make_hello(), start.rendezvous
    if rendezvous.world_size == 1:
        if mine.trouble:
            raise LaunchRefused(own_trouble_fault(mine))
        return rollcall.Attendance(((mine.machine, mine.host, 1),))
    say = _write_progress if verbose or rendezvous.rank == 0 else None
    options: dict[str, Any] = {"window": job_group.window, "allow_skew": allow_skew, "on_progress": say}
    options["token"] = find_job_token(start.environ)
    try:
        if rendezvous.agent_store:
            return rollcall.attend_over_store(job_group.connect_agent_store(mine), rendezvous, mine, **options)
        return rollcall.attend_rollcall(rendezvous, mine, inquire=group.make_store_inquiry(job_group.torch), **options)
    except rollcall.RollcallRefused as refused:
        raise LaunchRefused(*refused.faults) from None


def _join_group(start: LaunchState, job_group: group.JobGroup, attendance: Attendance, verify: bool) -> World:
    """Create and verify the group on the device, and seed everything."""
    accelerator, rendezvous = start.accelerator, start.rendezvous
    assert accelerator is not None
    name = (
        f"{accelerator.device_type}:{start.device_index}"
        if accelerator.device_type not in ("cpu", "mps")
        else accelerator.device_type
    )
    if len(attendance.host_names) > 1 and "gloo" in start.backend:
        chosen = choose_gloo_interface(start.environ, rendezvous.address)
        start.notes += [chosen] if chosen else []
    try:
        job_group.open_group(attendance, start.backend, name)
        seed = job_group.share_seed(start.seed)
        if verify:
            job_group.verify_group(start.backend, name)
        job_group.restore_timeout()
    except group.GroupBroken as error:
        job_group.abandon_group()
        raise LaunchRefused(error.fault) from None
    seeds.seed_everything(seed)
    node, here = attendance.node_of_machine(hellos.machine_identity())
    notes = start.notes + list(attendance.notes)
    local = start.device_index if rendezvous.local_rank is None else rendezvous.local_rank
    world = World(rendezvous.rank, local, rendezvous.world_size, rendezvous.local_world_size or here, node,
                  attendance.host_names, name, start.backend, seed, rendezvous.launcher, tuple(notes))  # fmt: skip
    if rendezvous.launcher != "single":
        _export_rank_variables(start.environ, rendezvous, world)
    ACTIVE_WORLD.register_world(world, job_group.store, attendance.listener is not None)
    group.guard_process_group(job_group.torch.distributed, _refuse_second_group)
    return world


def _refuse_second_group() -> LaunchRefused:
    """Return the refusal of a second start in one script, such as colossalai.launch_from_torch() after ours."""
    message = "init_process_group was called after gpuready.launch(), which has made the process group"
    fix = "keep one of the two: remove that call (colossalai.launch… makes it too), or gpuready.launch()"
    return LaunchRefused(RollcallFault(OUT_OF_TURN_CODE, message, fix))


def _export_rank_variables(environ: MutableMapping[str, str], rendezvous: Rendezvous, world: World) -> None:
    """Set the variables that frameworks read, if the launcher uses others; existing values stay."""
    values = (
        world.rank,
        world.world_size,
        world.local_rank,
        world.local_world_size,
        rendezvous.address,
        rendezvous.port,
    )
    for name, value in zip(EXPORTED_VARIABLES, values, strict=True):
        environ.setdefault(name, str(value))


def _write_progress(message: str) -> None:
    sys.stderr.write(f"gpuready: {message}\n")
    sys.stderr.flush()


def _report_world(world: World, seconds: float, verbose: bool) -> None:
    if world.rank:
        return
    for note in world.notes:
        _write_progress(note)
    if verbose:
        where = f"{len(world.hosts)} host{'s' if len(world.hosts) > 1 else ''}"
        _write_progress(
            f"{world.world_size} ranks on {where}, {world.backend} on {world.device}, seed {world.seed}, {seconds:.2f} s"
        )
