"""The job that the flags of ``gpuready run`` ask for: engine, ranks, nodes, port, time-outs."""

import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from itertools import dropwhile, groupby
from types import MappingProxyType
from typing import Any

from gpuready import system
from gpuready.catalog.releases import own_commands
from gpuready.cluster import address
from gpuready.cluster.address import parse_whole_number
from gpuready.launcher import preflight, script
from gpuready.launcher.launch_words import Launch, format_own_start, parse_launch
from gpuready.model import Facts
from gpuready.model.node_names import expand_nodelist
from gpuready.model.run import ENGINES, HANG_ACTIONS, LaunchJob, RankVariable
from gpuready.rollcall import endpoint
from gpuready.workflow import machine_facts
from gpuready.workflow.env import framework_variables
from gpuready.workflow.refusal import Refused, call_or_refuse

ENGINE_OF_PROGRAM = {"srun": "slurm", "mpirun": "mpi", "mpiexec": "mpi"}


def parse_command(words: Sequence[str], flags: Mapping[str, Any] = MappingProxyType({}), framework: str = "") -> Launch:
    """Return what is to be run; Refused for a launcher, which would start all ranks once for each of ours."""
    engine = ENGINE_OF_PROGRAM.get(os.path.basename(words[0]))
    launch = call_or_refuse(parse_launch, words)
    if engine or launch.launcher:
        own = f"gpuready run --engine {engine} -- SCRIPT" if engine else format_own_start(launch, framework, flags)
        raise Refused(
            f"{launch.launcher or words[0]} would start all ranks in each rank: gpuready run does it itself: {own}"
        )
    return launch


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_SHELL_WORDS = ("exec", "time", "nohup", "env", "then", "do", "else", "if", "!")
"""What may stand before a command in a shell script."""


def find_launcher_in_script(words: Sequence[str]) -> str:
    """Say which launcher a shell script starts, as in ``exec torchrun --nproc-per-node 8 train.py``; empty if none is seen."""
    named = words[1:] if os.path.basename(words[0]) in _SHELLS else words
    text = script.read_script(named[0]) if named else None
    is_shell = named is not words or any(name in (text or "").partition("\n")[0] for name in _SHELLS)
    for line in (text or "").replace("\\\n", " ").splitlines() if is_shell else ():
        try:
            tokens = shlex.shlex(re.sub(r"\s\d(?=>)", " ", line), posix=True, punctuation_chars=True)
            tokens.whitespace_split = True
            for is_sign, command in groupby(tokens, lambda word: set(word) <= set("();<>|&")):
                parts = () if is_sign else tuple(dropwhile(_comes_before_command, command))
                parse_command(parts) if parts else None
        except ValueError:  # a quote that another line ends
            continue
        except Refused as refusal:
            return f"{named[0]}: {refusal}"
    return ""


def _comes_before_command(word: str) -> bool:
    return word in _SHELL_WORDS or re.match(r"\w+=", word) is not None


def make_launch_job(
    kind: str,
    words: tuple[str, ...],
    python: str | None,
    facts: Facts,
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
) -> tuple[LaunchJob, bool]:
    """Return the requested job, and whether its port was named."""
    engine, nnodes, node_rank, (master, port, port_requested) = parse_places(flags, environ)
    nproc = _ranks_per_node(flags.get("nproc") or _pod_nproc(engine, environ), facts, engine, environ)
    if nnodes > 1 and engine in ("local", "torchrun") and not port_requested:
        raise Refused(f"--nnodes {nnodes} needs --master HOST:PORT, the same on every node, and --node-rank R on each")
    if node_rank >= nnodes:
        raise Refused(f"--node-rank {node_rank} is outside the {nnodes} nodes: ranks count from 0")
    if flags.get("spares") and engine not in ("slurm", "ray"):
        raise Refused(f"{engine} has no spare nodes: --nnodes {nnodes}, or --engine slurm in an allocation with more")
    forks, why = script.can_fork_ranks(kind, words, nproc, _has_torch(facts))
    if flags.get("fork") and (not forks or engine != "local"):
        raise Refused(f"--fork cannot be: {why if engine == 'local' else f'{engine} starts each rank by itself'}")
    run_id = environ.get("GPUREADY_RUN_ID") or time.strftime("%Y%m%d-%H%M%S-") + os.urandom(2).hex()
    job = LaunchJob(
        engine=engine,
        python=machine_facts.require_interpreter(facts),
        kind=kind,
        words=words,
        nproc=nproc,
        nnodes=nnodes,
        node_rank=node_rank,
        master=master,
        port=port,
        run_id=shared_id(run_id, engine, nnodes, master, port, environ),
        logs=os.path.abspath(str(flags.get("log-dir") or os.path.join("gpuready-logs", run_id))),
        restarts=_count_restarts(flags),
        spares=flags.get("spares", 0),
        window=_parse_seconds_flag(flags, "window", environ.get("GPUREADY_START_WINDOW"), 60.0),
        hang=_parse_seconds_flag(flags, "hang-timeout", None, 0.0, least=0.0),
        on_hang=_choose_hang_action(flags),
        grace=_parse_seconds_flag(flags, "grace", None, 0.0),
        preload=forks and engine == "local",
        start=why if engine == "local" else f"started by {engine}",
    )
    return job, port_requested


def parse_places(flags: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[str, int, int, tuple[str, int, bool]]:
    """Return the engine, the number of nodes and of this one, and where rank 0 listens, with whether that was named."""
    nodes, node = parse_count_flag(flags, "nnodes", None, 1), parse_count_flag(flags, "node-rank", None, 0)
    engine, nodes, node, slurm_master = choose_run_engine(flags.get("engine"), nodes, node, environ)
    return engine, nodes or 1, node or 0, parse_master(flags.get("master") or slurm_master, nodes or 1, engine)


def split_spare_nodes(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Split ``--nnodes 4:6``, as torchrun has it, into four nodes and two spare ones."""
    least, colon, most = str(flags.get("nnodes") or "").partition(":")
    if not colon:
        return dict(flags)
    count, total = (parse_count_flag({"nnodes": text}, "nnodes", None, 1) or 1 for text in (least, most))
    if total < count:
        raise Refused(
            f"--nnodes {least}:{most}: the first is the number of nodes, the second those with the spare ones"
        )
    return {**flags, "nnodes": least, "spares": total - count}


def choose_run_engine(
    requested: str | None, nnodes: int | None, node: int | None, environ: Mapping[str, str]
) -> tuple[str, int | None, int | None, str]:
    """Choose the engine; inside Slurm also the nodes and the first node's address."""
    if requested is not None and requested not in ENGINES:
        raise Refused(f"--engine takes {', '.join(ENGINES)}, not {requested!r}")
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    slurm_nodes = _read_count(environ, 1, "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
    if job and step and requested in (None, "torchrun") and slurm_nodes > 1 and nnodes is None:
        return _nodes_in_slurm_step(environ, slurm_nodes)
    if requested == "slurm" or (requested is None and job and not step and slurm_nodes > 1):
        return "slurm", nnodes or slurm_nodes, 0, ""
    if requested is not None:
        if requested == "local" and (nnodes or 1) > 1:
            raise Refused(f"--engine local starts ranks on this node alone: leave it out for --nnodes {nnodes}")
        if requested != "torchrun":
            return requested, nnodes, node, ""
    nnodes, node, master = _complete_from_pod(nnodes, node, environ)
    return requested or ("torchrun" if (nnodes or 1) > 1 else "local"), nnodes, node, master


def _complete_from_pod(
    nnodes: int | None, node: int | None, environ: Mapping[str, str]
) -> tuple[int | None, int | None, str]:
    """Take what no flag says from the pod of a PyTorchJob, TrainJob or JobSet."""
    pod = address.read_pod_nodes(environ)
    if pod.problem and (nnodes is None or node is None):
        raise Refused(f"{pod.problem}; give --nnodes N and --node-rank R")
    nnodes = nnodes if nnodes is not None else pod.nodes
    return nnodes, node if node is not None else pod.node, pod.master if (nnodes or 1) > 1 else ""


def _pod_nproc(engine: str, environ: Mapping[str, str]) -> str | None:
    """Return torchrun's PET_NPROC_PER_NODE, where this gpuready starts the ranks itself."""
    return (address.read_pod_nodes(environ).nproc or None) if engine in ("local", "torchrun") else None


def _nodes_in_slurm_step(environ: Mapping[str, str], nodes: int) -> tuple[str, int, int, str]:
    """Return the nodes of an srun step with one gpuready per node: torchrun's agents find each other."""
    tasks = _read_count(environ, 1, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    if tasks != nodes:
        raise Refused(
            f"gpuready run is a task of srun ({tasks} tasks on {nodes} nodes): start it once in the batch script, "
            "or once on each node with srun --ntasks-per-node=1"
        )
    hosts = call_or_refuse(
        expand_nodelist, environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or ""
    )
    port = 20000 + _read_count(environ, 0, "SLURM_JOB_ID") % 10000
    return "torchrun", nodes, _read_count(environ, 0, "SLURM_NODEID"), f"{hosts[0]}:{port}" if hosts else ""


def _read_count(environ: Mapping[str, str], default: int, *names: str) -> int:
    """Return the first of some variables that is set; Refused where it is no whole number."""
    name = next((name for name in names if environ.get(name)), None)
    return default if name is None else call_or_refuse(parse_whole_number, environ[name], name)


def _ranks_per_node(requested: str | None, facts: Facts, engine: str, environ: Mapping[str, str]) -> int:
    if requested is not None and requested not in ("gpu", "auto"):
        return parse_count_flag({"nproc": requested}, "nproc", None, 1) or 1
    gpus = preflight.visible_gpu_count(facts)
    if requested == "gpu" and not gpus:
        raise Refused("--nproc gpu: no GPU is visible here; name a number of ranks")
    if engine == "slurm" and not gpus and environ.get("SLURM_NTASKS_PER_NODE", "").isdigit():
        return int(environ["SLURM_NTASKS_PER_NODE"])
    return gpus or 1


def parse_count_flag(flags: Mapping[str, Any], name: str, default: int | None, least: int) -> int | None:
    text = flags.get(name)
    if text is None:
        return default
    if not str(text).isascii() or not str(text).isdigit() or not least <= int(text) <= 1_000_000:
        raise Refused(f"--{name} takes a whole number from {least} on, not {text!r}")
    return int(text)


def _count_restarts(flags: Mapping[str, Any]) -> int:
    return parse_count_flag(flags, "restarts", 0, 0) or parse_count_flag(flags, "max-restarts", 0, 0) or 0


def _parse_seconds_flag(
    flags: Mapping[str, Any], name: str, other: str | None, default: float, least: float = 1e-9
) -> float:
    text = flags.get(name) or other
    if text is None:
        return default
    try:
        value = float(text) if str(text).isascii() and "_" not in str(text) else -1.0
    except ValueError:
        value = -1.0
    if not least <= value < 1e9:
        raise Refused(f"--{name} takes seconds, not {text!r}")
    return value


def _choose_hang_action(flags: Mapping[str, Any]) -> str:
    """Return what a run that stands still gets: by default a report, and its end where there is a time-out."""
    requested, timeout = flags.get("on-hang"), _parse_seconds_flag(flags, "hang-timeout", None, -1.0, least=0.0)
    restarts = _count_restarts(flags)
    if requested not in (None, *HANG_ACTIONS):
        raise Refused(f"--on-hang takes {', '.join(HANG_ACTIONS)}, not {requested!r}")
    if timeout == 0:
        return "off"
    if requested == "restart" and not restarts:
        raise Refused("--on-hang restart needs --restarts N")
    return requested or ("report" if timeout < 0 else "restart" if restarts else "kill")


def parse_master(text: str | None, nnodes: int, engine: str) -> tuple[str, int, bool]:
    if not text:
        free = endpoint.find_free_port() if engine in ("local", "torchrun") else 0
        return "127.0.0.1", free, False
    host, colon, port = text.rpartition(":")
    if not colon or (host.count(":") and not host.endswith("]")):
        raise Refused(f"--master takes HOST:PORT, not {text!r} (an IPv6 address in brackets)")
    return (
        call_or_refuse(address.parse_host_address, host, "--master")[0],
        call_or_refuse(address.parse_port, port, "--master"),
        True,
    )


def _has_torch(facts: Facts) -> bool:
    return bool(facts.value_if_known("torch.version"))


def shared_id(own: str, engine: str, nnodes: int, master: str, port: int, environ: Mapping[str, str]) -> str:
    """Return a run id known to all nodes: under torchrun each node has a gpuready of its own."""
    if engine != "torchrun" or nnodes < 2 or environ.get("GPUREADY_RUN_ID"):
        return own
    return f"{master}-{port}"


def add_contract_variables(
    job: LaunchJob, framework: str | None, python: str | None, environ: Mapping[str, str], facts: Facts
) -> LaunchJob:
    """Add the contract's variables that the user has not set, where a framework is named."""
    if not framework:
        return job
    own = runs_framework_command(job.kind, job.words, framework.partition("==")[0].partition(":")[0])
    wanted = framework_variables(framework, python=python, in_process=not own)
    rows = [
        RankVariable(s.name, s.value, s.why or f"{s.by} wants it") for s in wanted.variables if s.name not in environ
    ]
    return job.replace(variables=tuple(rows), framework=framework)


def runs_framework_command(kind: str, words: Sequence[str], framework: str) -> bool:
    """Whether a framework's own command is started, which sets defaults that a script of the user never gets."""
    commands = own_commands(framework)
    modules = (
        [words[0]] if kind == "module" else [word for at, word in enumerate(words) if words[at - 1 : at] == ("-m",)]
    )
    programs = [os.path.basename(words[0])] if kind == "program" else []
    tops = [module.partition(".")[0].replace("_", "-") for module in modules]
    return any(name in commands for name in (*programs, *tops))


def detect_mpi() -> str:
    result = system.LiveHost().run(["mpirun", "--version"], 3.0)
    return "open" if "open mpi" in (result.out or "").lower() or "open-mpi" in (result.out or "").lower() else "other"
