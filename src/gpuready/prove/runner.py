"""Run one proof to its verdict, in its own processes and folder, with a guaranteed end.

Whatever a proof does (crash, hang, endless output, a false result) is a result, not an error of gpuready, and
nothing of it is left afterwards.
"""

import os
import time
from collections.abc import Mapping, Sequence

from gpuready.catalog.proofs import ProofSpec
from gpuready.model.proof import ProofResult
from gpuready.prove import result
from gpuready.system import make_private_folder, redact_text
from gpuready.system.listener import find_free_port
from gpuready.system.own_folders import TemporaryFolder
from gpuready.system.process.runner import BackgroundProcess, wait_for_any
from gpuready.system.process.termination import kill_marked_processes

SCRIPTS_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scripts")

OFFLINE_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "AXOLOTL_DO_NOT_TRACK": "1",
    "WANDB_MODE": "disabled",
    "WANDB_DISABLED": "true",
    "RAY_USAGE_STATS_DISABLED": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""A proof uses no network and leaves nothing in the target environment."""

DROPPED_VARIABLES = (
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONINSPECT",
    "LD_PRELOAD",
    "LD_AUDIT",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "PMI_RANK",
    "PMI_SIZE",
)
DROPPED_PREFIXES = ("TORCHELASTIC_", "OMPI_COMM_WORLD_", "ACCELERATE_", "FSDP_")
"""Variables of the caller (Python paths, a job's ranks) that would change what a proof does."""

CACHE_FOLDERS = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "HF_DATASETS_CACHE": "datasets",
    "HF_MODULES_CACHE": "modules",
}
"""Fresh caches, so that everything is compiled now. Read-only caches (the hub) stay the user's."""


def proof_command(row: ProofSpec, python: str, device: str) -> list[str]:
    """Return the command line of a proof's process."""
    script = [row.script] if row.script.startswith("/") else [os.path.join(SCRIPTS_FOLDER, "proof.py"), row.script]
    return [python, *script, "--device", device, *row.arguments]


def proof_environment(ours: Mapping[str, str], folder: str, deadline: float, threads: int = 0) -> dict[str, str]:
    """Return the user's environment without variables of other runs, with cache folders of its own."""
    kept = {n: v for n, v in ours.items() if n not in DROPPED_VARIABLES and not n.startswith(DROPPED_PREFIXES)}
    own = {name: os.path.join(folder, below) for name, below in CACHE_FOLDERS.items()}
    env = kept | OFFLINE_VARIABLES | own
    env["TMPDIR"] = os.path.join(folder, "tmp")
    env["GPUREADY_PROOF_DEADLINE"] = f"{deadline:g}"
    env["GPUREADY_PROOF_SCRIPTS"] = SCRIPTS_FOLDER
    if threads:
        env.setdefault("OMP_NUM_THREADS", str(threads))
    return env


class RunningProof:
    """One running proof: its processes (one per rank) and its folder."""

    def __init__(
        self,
        row: ProofSpec,
        python: str,
        device: str,
        variables: Mapping[str, str],
        *,
        deadline: float = 0.0,
        ranks: int = 1,
        threads: int = 0,
    ):
        self.row, self.python, self.device = row, python, device
        self.deadline = deadline or row.deadline
        self._scratch = TemporaryFolder(variables)
        self.folder = self._scratch.__enter__()
        self.mark = f"GPUREADY_PROOF={self.folder}/"
        for name in ("work", "tmp"):
            make_private_folder(os.path.join(self.folder, name))
        env = proof_environment(variables, self.folder, self.deadline, threads)
        words = proof_command(row, python, device)
        port = str(find_free_port()) if ranks > 1 or row.ranks == 0 else ""
        self.processes = [self._start_rank(words, env, rank, ranks, port) for rank in range(ranks)]

    def _start_rank(
        self, words: Sequence[str], env: Mapping[str, str], rank: int, ranks: int, port: str
    ) -> BackgroundProcess:
        own = dict(env) | {"GPUREADY_PROOF": self._result_path(rank)}
        if port:
            own |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }
        return BackgroundProcess(words, own, os.path.join(self.folder, "work"), self.deadline)

    def _result_path(self, rank: int) -> str:
        return os.path.join(self.folder, f"result-{rank}.json")

    def poll_proof(self) -> ProofResult | None:
        """Return the verdict once it is over, else None. One failed rank ends the others soon after."""
        finished = [process.check_ended() for process in self.processes]
        if not all(finished):
            if any(p.has_ended and p.exit != 0 for p in self.processes):
                self._shorten_deadlines()
            return None
        return self._make_proof()

    def _shorten_deadlines(self) -> None:
        """Give the remaining ranks, which wait for one that is gone, a few seconds to report it."""
        for process in self.processes:
            process.ends_at = min(process.ends_at, time.monotonic() + 3.0)

    def _make_proof(self) -> ProofResult:
        try:
            rank_results = [
                result.read_rank_result(self._result_path(rank), process) for rank, process in enumerate(self.processes)
            ]
            proof = result.combine_ranks(self.row, self.device, rank_results, self.deadline)
            if proof.verdict == "hung" and not proof.steps:
                proof = proof.replace(output=proof.output + self._trace_startup())
            return proof.replace(output=redact_text(proof.output), why=redact_text(proof.why))
        finally:
            self.close()

    def _trace_startup(self) -> str:
        """If the interpreter hangs before the script begins: list what it imports."""
        env = proof_environment({}, self.folder, 5.0)
        process = BackgroundProcess([self.python, "-X", "importtime", "-c", "pass"], env, self.folder, 3.0)
        while not process.check_ended():
            wait_for_any([process], 0.2)
        last = "\n".join(process.output_text().splitlines()[-12:])
        return f"\n-- python -X importtime -c pass, its last lines --\n{last}\n" if process.end else ""

    def close(self) -> None:
        """Stop all remaining processes and remove the folder."""
        for process in self.processes:
            process.stop_process("ended")
        kill_marked_processes(self.mark)
        self._scratch.__exit__()
