"""Guard the order of allocations and frees.

The engine frees memory where the last reference to it goes, as torch does. So the variables of its layers mirror those
of the real modules, and a refactoring that keeps a tensor a line longer, or drops it a line earlier, changes the
predicted bytes without any other test noticing. Every tape is therefore kept as a hash: what changes one must be meant.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from gpuready.fit.job.records import H200, FitJob
from gpuready.fit.search.prediction import record_job_tape
from gpuready.fit.tape.autograd import Tensor

HERE = Path(__file__).parent
KEPT = HERE / "tape_hashes.json"
ROWS = json.loads((HERE / "traces.json").read_text(encoding="utf-8"))
CONFIGS = {row["config"]["model_type"]: row["config"] for row in ROWS}
JOBS = {
    "step": {},
    "checkpointed": {"checkpointing": "nonreentrant"},
    "qlora": {"method": "qlora", "kbit": True, "autocast": "bf16"},
}
LLAMA_JOBS = {
    "reentrant": {"checkpointing": "reentrant"},
    "dpo": {"dpo": True},
    "liger": {"loss": "liger"},
    "eager": {"attention": "eager"},
    "int8": {"method": "qlora", "quant": "int8"},
    "zero2": {"zero": 2, "world": 2},
    "zero3": {"zero": 3, "world": 2},
    "fsdp": {"fsdp": True, "world": 2},
}
REASON = (
    "the order of allocations and frees of {0} is no longer the kept one. A variable that holds a tensor longer, or drops "
    "it earlier, moves memory: compare with the variables of the real module. If the change is meant, and the tests against "
    "measurements pass, write the new hashes with: python -m tests.fit.test_lifetimes"
)


def list_jobs() -> dict[str, FitJob]:
    made = {
        f"{family} {name}": FitJob(model=config, micro_batch=2, seq=48, **fields)
        for family, config in CONFIGS.items()
        for name, fields in JOBS.items()
    }
    llama = {
        f"llama {name}": FitJob(model=CONFIGS["llama"], micro_batch=2, seq=48, **fields)
        for name, fields in LLAMA_JOBS.items()
    }
    return made | llama


def hash_tape(job: FitJob) -> str:
    events = record_job_tape(job.validate_fields(), H200).events
    return hashlib.sha256(" ".join(map(str, events)).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", list_jobs())
def test_the_order_of_allocations_and_frees_is_kept(name):
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert hash_tape(list_jobs()[name]) == kept.get(name), REASON.format(name)


def test_a_tensor_frees_its_graph_before_its_memory():
    assert sorted(Tensor.__slots__).index("fn") < sorted(Tensor.__slots__).index("memory"), (
        "Python clears slots in alphabetical order: with these names a tensor would free its memory before its graph, "
        "and torch does it the other way round"
    )


def test_every_job_has_its_hash():
    assert set(json.loads(KEPT.read_text(encoding="utf-8"))) == set(list_jobs())


if __name__ == "__main__":
    hashes = {name: hash_tape(job) for name, job in list_jobs().items()}
    KEPT.write_text(json.dumps(hashes, indent=0) + "\n", encoding="utf-8")
