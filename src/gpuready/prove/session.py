"""Run many proofs, in parallel where that is safe; the GPU is checked again after a proof that broke on it."""

from __future__ import annotations

from gpuready.catalog import proofs
from gpuready.prove import ground
from gpuready.prove.ground import Task
from gpuready.prove.runner import Running
from gpuready.proven import Proof
from gpuready.system import Blind
from gpuready.system.processes import wait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuready.catalog.proofs import Row
    from gpuready.model import Facts

    Tell = Callable[[Proof, int, int], None]

BROKE = ("crashed", "hung")


def usual_jobs(cpus: int) -> int:
    """Return how many processes run in parallel: importing torch keeps a core busy for seconds."""
    return max(1, min(8, (cpus + 1) // 2))


class Session:
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
        tell: Tell | None = None,
    ):
        self.facts, self.python, self.variables = facts, python, variables
        self.cpus, self.jobs, self.deadline = cpus, jobs or usual_jobs(cpus), deadline
        self.tell = tell or (lambda proof, done, count: None)
        self.free, self.single = ground.free(facts), ground.exclusive(facts)
        self.waiting: list[Task] = []
        self.running: list[tuple[Task, Running]] = []
        self.done: list[Proof] = []
        self.count = 0

    def run(self, rows: Sequence[Row]) -> tuple[Proof, ...]:
        """Run all proofs; results are in the order of the rows."""
        found = [one for row in rows for one in ground.placed(row, self.facts, self.cpus)]
        self.count = len(found)
        for one in found:
            if isinstance(one, Proof):
                self._over(one)
        # The longest first, so that a slow one does not run alone at the end.
        tasks = [one for one in found if isinstance(one, Task)]
        self.waiting = sorted(tasks, key=lambda task: (task.row.alone, -task.row.deadline, -task.ranks))
        try:
            while self.waiting or self.running:
                self._turn()
        finally:
            for _, under_way in self.running:
                under_way.close()
        order = {row.name: number for number, row in enumerate(rows)}
        return tuple(sorted(self.done, key=lambda proof: order.get(proof.name.partition(",")[0], len(order))))

    def _turn(self) -> None:
        for task in [task for task in self.waiting if self._fits(task)]:
            if self._fits(task):
                self._start(task)
        wait([process for _, one in self.running for process in one.processes], 0.5)
        for pair in list(self.running):
            proof = pair[1].look()
            if proof is not None:
                self.running.remove(pair)
                self._ended(pair[0], proof)

    def _fits(self, task: Task) -> bool:
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

    def _start(self, task: Task) -> None:
        self.waiting.remove(task)
        together = max(1, min(self.jobs, len(self.waiting) + len(self.running) + 1))
        threads = max(1, self.cpus // max(together, task.ranks))
        try:
            one = Running(
                task.row,
                self.python,
                task.device,
                self.variables,
                deadline=self.deadline or task.row.deadline,
                ranks=task.ranks,
                threads=threads,
            )
        except (Blind, OSError) as trouble:
            self._over(ground.left(task.row, "skipped", f"it could not be started: {trouble}", task.device))
            return
        self.running.append((task, one))

    def _ended(self, task: Task, proof: Proof) -> None:
        if not task.counts:
            proof = proof.but(name=f"{proof.name}, cpu", capability=ground.aside(task.row))
        self._over(proof)
        broke = proof.verdict in BROKE or (proof.verdict == "failed" and "CUDA error" in proof.why)
        if broke and task.device.startswith("cuda") and ", after " not in task.row.name:
            self._prove_again(task)

    def _prove_again(self, broken: Task) -> None:
        """Check with the simplest proof, alone, that the GPU still works after a proof was killed on it."""
        simplest = proofs.named("cuda")
        if simplest is not None:
            self.count += 1
            again = simplest.but(name=f"cuda, after {broken.row.name}", alone=True)
            self.waiting.append(Task(again, broken.device, 1, again.memory + ground.CONTEXT))

    def _over(self, proof: Proof) -> None:
        self.done.append(proof)
        self.tell(proof, len(self.done), self.count)
