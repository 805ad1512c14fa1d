"""Run many proofs, in parallel where that is safe; the GPU is checked again after a proof that broke on it."""

from collections.abc import Callable, Mapping, Sequence

from gpuready.catalog import proofs
from gpuready.catalog.proofs import ProofSpec
from gpuready.model import Facts
from gpuready.model.proof import ProofResult
from gpuready.prove import placement
from gpuready.prove.placement import ProofTask
from gpuready.prove.runner import RunningProof
from gpuready.system import AccessError
from gpuready.system.process.runner import wait_for_any
from gpuready.system.process.termination import note_interrupt

ProofCallback = Callable[[ProofResult, int, int], None]


BROKEN_VERDICTS = ("crashed", "hung")


def default_job_count(cpus: int) -> int:
    """Return how many processes run in parallel: importing torch keeps a core busy for seconds."""
    return max(1, min(8, (cpus + 1) // 2))


class ProofSession:
    """The proofs of one machine."""

    def __init__(
        self,
        facts: Facts,
        python: str,
        variables: Mapping[str, str],
        *,
        jobs: int = 0,
        deadline: float = 0.0,
        cpus: int = 1,
        tell: ProofCallback | None = None,
    ):
        self.facts, self.python, self.variables = facts, python, variables
        self.cpus, self.jobs, self.deadline = cpus, jobs or default_job_count(cpus), deadline
        self.on_proof = tell or (lambda proof, done, count: None)
        self.free, self.single = placement.free_gpu_bytes(facts), placement.is_gpu_exclusive(facts)
        self.waiting: list[ProofTask] = []
        self.running: list[tuple[ProofTask, RunningProof]] = []
        self.done: list[ProofResult] = []
        self.count = 0

    def run(self, rows: Sequence[ProofSpec]) -> tuple[ProofResult, ...]:
        """Run all proofs; results are in the order of the rows."""
        placed = list(filter(None, (placement.place_proof(row, self.facts, self.cpus) for row in rows)))
        self.count = len(placed)
        for item in placed:
            if isinstance(item, ProofResult):
                self._add_result(item)
        # The longest first, so that a slow one does not run alone at the end.
        tasks = [item for item in placed if isinstance(item, ProofTask)]
        self.waiting = sorted(tasks, key=lambda task: (task.row.alone, -task.row.deadline, -task.ranks))
        try:
            while self.waiting or self.running:
                self._run_turn()
        except BaseException as error:
            ended = f"{len(self.done)} of {self.count} proofs had ended"
            note_interrupt(error, f"{ended}, the running ones were stopped, and no evidence was written")
            raise
        finally:
            for _, under_way in self.running:
                under_way.close()
        order = {row.name: number for number, row in enumerate(rows)}
        return tuple(sorted(self.done, key=lambda proof: order.get(proof.name.partition(",")[0], len(order))))

    def _run_turn(self) -> None:
        for task in [task for task in self.waiting if self._may_start_now(task)]:
            if self._may_start_now(task):
                self._start_task(task)
        wait_for_any([process for _, one in self.running for process in one.processes], 0.5)
        for pair in list(self.running):
            proof = pair[1].poll_proof()
            if proof is not None:
                self.running.remove(pair)
                self._finish_task(pair[0], proof)

    def _may_start_now(self, task: ProofTask) -> bool:
        """Whether a task may start beside the running ones."""
        if not self.running:
            return True
        busy = [other for other, _ in self.running]
        if task.row.alone or any(other.row.alone for other in busy):
            return False
        if sum(other.ranks for other in busy) + task.ranks > self.jobs:
            return False
        on_gpu = [other for other in busy if other.memory]
        if not task.memory or not on_gpu:
            return True
        return not self.single and sum(other.memory for other in on_gpu) + task.memory <= self.free

    def _start_task(self, task: ProofTask) -> None:
        self.waiting.remove(task)
        together = max(1, min(self.jobs, len(self.waiting) + len(self.running) + 1))
        threads = max(1, self.cpus // max(together, task.ranks))
        try:
            running_proof = RunningProof(
                task.row,
                self.python,
                task.device,
                self.variables,
                deadline=self.deadline or task.row.deadline,
                ranks=task.ranks,
                threads=threads,
            )
        except (AccessError, OSError) as error:
            self._add_result(
                placement.unstarted_proof(task.row, "skipped", f"it could not be started: {error}", task.device)
            )
            return
        self.running.append((task, running_proof))

    def _finish_task(self, task: ProofTask, proof: ProofResult) -> None:
        self._add_result(proof)
        broke = proof.verdict in BROKEN_VERDICTS or (proof.verdict == "failed" and "CUDA error" in proof.why)
        if broke and task.device.startswith("cuda") and ", after " not in task.row.name:
            self._recheck_gpu(task)

    def _recheck_gpu(self, broken: ProofTask) -> None:
        """Check with the simplest proof, alone, that the GPU still works after a proof was killed on it."""
        simplest = proofs.find_proof("cuda")
        if simplest is not None:
            self.count += 1
            again = simplest.replace(name=f"cuda, after {broken.row.name}", alone=True)
            self.waiting.append(ProofTask(again, broken.device, 1, again.memory + placement.CONTEXT_BYTES))

    def _add_result(self, proof: ProofResult) -> None:
        self.done.append(proof)
        self.on_proof(proof, len(self.done), self.count)
