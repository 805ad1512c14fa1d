"""Run one proof to its verdict, in its own processes and folder, with a guaranteed end.

Whatever a proof does (crash, hang, endless output, a false result) is a result, not an error of gpuready, and
nothing of it is left afterwards.
"""

from __future__ import annotations

import os
import sys

from gpuready.prove import result
from gpuready.system import redact
from gpuready.system.processes import Process, end_marked, free_port, wait
from gpuready.system.scratch import Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuready.catalog.proofs import Row
    from gpuready.proven import Proof

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scripts")

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "AXOLOTL_DO_NOT_TRACK": "1",
    "WANDB_MODE": "disabled",
    "WANDB_DISABLED": "true",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""A proof uses no network and leaves nothing in the target environment."""

NOT_OURS = (
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
NOT_OURS_EITHER = ("TORCHELASTIC_", "OMPI_COMM_WORLD_", "ACCELERATE_", "FSDP_")
"""Variables of the caller (Python paths, a job's ranks) that would change what a proof does."""

CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "HF_DATASETS_CACHE": "datasets",
    "HF_MODULES_CACHE": "modules",
}
"""Fresh caches, so that everything is compiled now. Read-only caches (the hub) stay the user's."""


def argv_of(row: Row, python: str, device: str) -> list[str]:
    """Return the command line of a proof's process."""
    script = row.script if row.script.startswith("/") else os.path.join(SCRIPTS, f"{row.script}.py")
    return [python, script, "--device", device, *row.arguments]


def environment(ours: Mapping[str, str], folder: str, deadline: float, threads: int = 0) -> dict[str, str]:
    """Return the user's environment without variables of other runs, with cache folders of its own."""
    kept = {n: v for n, v in ours.items() if n not in NOT_OURS and not n.startswith(NOT_OURS_EITHER)}
    own = {name: os.path.join(folder, below) for name, below in CACHES.items()}
    env = kept | OFFLINE | own
    env["TMPDIR"] = os.path.join(folder, "tmp")
    env["GPUREADY_PROOF_DEADLINE"] = f"{deadline:g}"
    env["GPUREADY_PROOF_SCRIPTS"] = SCRIPTS
    if threads:
        env.setdefault("OMP_NUM_THREADS", str(threads))
    return env


class Running:
    """One running proof: its processes (one per rank) and its folder."""

    def __init__(
        self,
        row: Row,
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
        self._scratch = Scratch(variables)
        self.folder = self._scratch.__enter__()
        self.mark = f"GPUREADY_PROOF={self.folder}/"
        for name in ("work", "tmp"):
            os.mkdir(os.path.join(self.folder, name), 0o700)
        env = environment(variables, self.folder, self.deadline, threads)
        words = argv_of(row, python, device)
        port = str(free_port()) if ranks > 1 or row.ranks == 0 else ""
        self.processes = [self._start(words, env, rank, ranks, port) for rank in range(ranks)]

    def _start(
        self, words: Sequence[str], env: Mapping[str, str], rank: int, ranks: int, port: str
    ) -> Process:
        own = dict(env) | {"GPUREADY_PROOF": self._result(rank)}
        if port:
            own |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }
        return Process(words, own, os.path.join(self.folder, "work"), self.deadline)

    def _result(self, rank: int) -> str:
        return os.path.join(self.folder, f"result-{rank}.json")

    def look(self) -> Proof | None:
        """Return the verdict once it is over, else None. One failed rank ends the others soon after."""
        over = [process.look() for process in self.processes]
        if not all(over):
            if any(p.over and p.exit != 0 for p in self.processes):
                self._hurry()
            return None
        return self._finish()

    def _hurry(self) -> None:
        """Give the remaining ranks, which wait for one that is gone, a few seconds to report it."""
        import time

        for process in self.processes:
            process.until = min(process.until, time.monotonic() + 3.0)

    def _finish(self) -> Proof:
        try:
            told = [result.read(self._result(rank), process) for rank, process in enumerate(self.processes)]
            proof = result.fold(self.row, self.device, told, self.deadline)
            if proof.verdict == "hung" and not proof.steps:
                proof = proof.but(output=proof.output + self._start_up())
            return proof.but(output=redact(proof.output), why=redact(proof.why))
        finally:
            self.close()

    def _start_up(self) -> str:
        """If the interpreter hangs before the script begins: list what it imports."""
        env = environment({}, self.folder, 5.0)
        one = Process([self.python, "-X", "importtime", "-c", "pass"], env, self.folder, 3.0)
        while not one.look():
            wait([one], 0.2)
        last = "\n".join(one.text().splitlines()[-12:])
        return f"\n-- python -X importtime -c pass, its last lines --\n{last}\n" if one.end else ""

    def close(self) -> None:
        """Stop all remaining processes and remove the folder."""
        for process in self.processes:
            process.stop("ended")
        end_marked(self.mark)
        self._scratch.__exit__()


def run(
    row: Row,
    python: str = "",
    device: str = "cpu",
    variables: Mapping[str, str] | None = None,
    *,
    deadline: float = 0.0,
    ranks: int = 1,
) -> Proof:
    """Run one proof and wait for its verdict."""
    given = os.environ if variables is None else variables
    one = Running(row, python or sys.executable, device, given, deadline=deadline, ranks=ranks)
    try:
        while True:
            found = one.look()
            if found is not None:
                return found
            wait(one.processes, 0.5)
    finally:
        one.close()
