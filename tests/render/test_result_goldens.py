"""The screens of diagnose, fit, fleet, install, prove, bench and run, whole, at 60, 80 and 120 columns."""

from __future__ import annotations

import pytest

from gpuready.model import NOT_STATED, Contract, Fact, Facts, Finding, FixStep, Report
from gpuready.model.bench import BenchMeasure, BenchResult
from gpuready.model.diagnosis import AlternativeCause, Consequence, Diagnosis, ExceptionLink, LogEvidence, LogTotals
from gpuready.model.fit import FitResult, GpuCandidate, Proposal
from gpuready.model.fleet import Drift, FleetReport, NodeGroup
from gpuready.model.plan import EnvironmentSettings, InstallResult, VariableConflict, VariableSetting
from gpuready.model.proof import ProofRecord
from gpuready.model.run import LaunchAttempt, LaunchJob, RankEnd, RunOutcome
from gpuready.render import bench, diagnosis, env, fit, fleet, install, prove, run
from gpuready.render.layout import Screen
from tests.prove.test_screen import PROOFS, REPORT

from .planned import UNRESOLVED
from .test_golden import check_against, is_one_command_word, width

SCREENS = {"narrow": Screen(width=60), "plain": Screen(), "wide": Screen(width=120)}
GIB = 1 << 30
CAUSE = Diagnosis(
    "cause", "cuda-oom", "MEM001", "the job needs more memory than the GPU has: it asked for 2.69 GiB more of 79.10 GiB",
    so="the allocation failed and the rank ended", rank=3, host="gpu-07", confidence=0.8,
    evidence=(LogEvidence("train.log", 4, "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.69 GiB", 3,
                          before=("step 12 loss 2.01",), after=("[rank0]: Traceback (most recent call last):",)),),
    consequences=(Consequence("Watchdog caught", "a rank waited for the others until its timeout", 9, ranks=(0, 1, 2), count=7),),
    fix=(FixStep("lower the batch size"),
         FixStep("train with LoRA", ("gpuready", "fit", "/home/somebody/projects/training/configs/axolotl of today.yml", "--method", "lora"), "safe")),
    alternatives=(AlternativeCause("gpu-memory-busy", "MEM002", "other processes use the memory of the GPU", 0.2, decide="nvidia-smi"),),
    frame={"file": "train.py", "line": 12, "function": "main"}, logs=(LogTotals("train.log", 812, 90000),), exit_code=1,
)  # fmt: skip
NO_CAUSE = Diagnosis(
    "unknown", says="the run failed, but the log does not show why", exit_code=-6,
    exceptions=(ExceptionLink("FancyError", "the widget is not aligned", 40, "widget.py", 7, "align"),),
    consequences=(Consequence("closed", "the connection was closed by the other side", 44),), logs=(LogTotals("train.log", 50, 900),),
)  # fmt: skip
H100 = GpuCandidate("NVIDIA H100 80GB HBM3", "9.0", (79 * GIB, 79 * GIB), needs=(61 * GIB, 62 * GIB), verdict="fits")
FITS = FitResult(
    "llama-3.1-8b", "axolotl",
    {"method": "lora", "lora_r": 16, "micro_batch": 1, "seq": 2048, "precision": "bf16", "optimizer": "adamw_fused",
     "checkpointing": "none", "attention": "sdpa", "loss": "plain", "accumulation": 1},
    {}, 58 * GIB, 60 * GIB, 62 * GIB, 61 * GIB, (GIB // 2, GIB), {"parameters": 15 * GIB, "activations": 43 * GIB},
    peak_at=("backward", "linear"), places=(H100,), notes=("an estimated range on this GPU",), machine="--on h100",
    judged_by="the templates of gpuready 0.1.0 (transformers 5.17)",
)  # fmt: skip
TOO_LARGE = FITS.replace(
    kind="flags", machine="--on rtx4090", places=(H100.replace(name="NVIDIA GeForce RTX 4090", memory=(23 * GIB, 24 * GIB), verdict="does not fit"),),
    proposals=(Proposal("gradient checkpointing", "each layer is computed twice", 1.0, {}, ("--gradient-checkpointing",),
                        ("gpuready", "fit", "llama-3.1-8b", "--on", "rtx4090", "--gradient-checkpointing"), "fits", minimum=21 * GIB),),
)  # fmt: skip
FLEET = FleetReport(
    "check", "ssh", 64,
    (Finding("FLT015", "error", "2 of 64 nodes have DRV001: n[7-8]", fix=(FixStep("read what it means", ("gpuready", "explain", "DRV001")),)),),
    verdicts={"not-ready": "n[7-8]", "clear": "n[1-6,9-62]"}, codes={"DRV001": "n[7-8]", "SYS001": "n8"},
    meanings={"DRV001": "The driver is older than the torch wheel needs", "SYS001": "The shared memory of this machine is small"},
    states={"answered": "n[1-62]", "dead": "n63", "drained": "n64"}, reasons={"dead: No route to host": "n63"},
    drift=(Drift("driver", "driver.version", "580.95.05", (NodeGroup("550.54.15", "n[7-8]", 2),), 62),),
    exclude="n[7-8,63]", seconds=12.3, notes=("ssh: --hosts names the nodes",),
    gpus=496, judged=("vllm 0.32",), environment="each node's own environment",
)  # fmt: skip
ON_H200 = Facts(
    [Fact("gpu.count", 1), Fact("gpu.name", ("NVIDIA H200",)), Fact("python.path", "/usr/bin/python3")], "", NOT_STATED
)
SLOW = Finding(
    "GPU021", "error", "matmul-bf16 is 43% below the expected range on GPU 0",
    so="no visible reason; in a multi-GPU job the slowest GPU sets the speed", fix=(FixStep("measure again after a reboot"),),
)  # fmt: skip
BENCH = BenchResult(
    "gpu-07", "/usr/bin/python3", Report(Contract("bench", ""), ON_H200, (SLOW,)),
    (BenchMeasure("matmul-bf16", "slow", "GPU 0", 4e14, "FLOP/s", 9.89e14, 0.4, (6.9e14, 8e14), executed="h200"),
     BenchMeasure("pcie-to-gpu", "as-expected", "GPU 0", 5e10, "B/s", 6.4e10, 0.78, executed="h200"),
     BenchMeasure("all-reduce", "absent", why="it needs 2 GPUs")),
    {"torch": "2.13.0"}, {"gpu.name": ("NVIDIA H200",)}, seconds=35.0,
)  # fmt: skip
RUN = RunOutcome(
    LaunchJob("local", "python", "script", ("train.py",), 2, logs="gpuready-logs/1"),
    (LaunchAttempt((RankEnd(1, "gpu-07", 77, 1, seconds=12.0, last=("Traceback (most recent call last):", "ValueError: no such column")),
                    RankEnd(0, "gpu-07", 76, 1, stopped=True)), (1,), code=1),),
    1, "failed", seconds=14.0,
)  # fmt: skip
INSTALLED = InstallResult(
    "installed", "/home/somebody/projects/training/.venv", "g-0007", "g-0006", UNRESOLVED, seconds=41.0,
    need={"size": 7_000_000_000, "files": 31000, "how": "linked from the cache"},
)  # fmt: skip
DRY_RUN = INSTALLED.replace(
    verdict="dry-run", steps=(FixStep("install the lock", ("uv", "pip", "sync", "--python", "/home/somebody/projects/training/.venv/bin/python", "lock.txt")),),
)  # fmt: skip
DRAWN = {
    "diagnose": lambda screen: diagnosis.render_diagnosis_screen(CAUSE, screen),
    "diagnose_verbose": lambda screen: diagnosis.render_diagnosis_screen(CAUSE, screen, True),
    "diagnose_no_cause": lambda screen: diagnosis.render_diagnosis_screen(NO_CAUSE, screen),
    "fit": lambda screen: fit.render_fit_screen(FITS, screen),
    "fit_too_large": lambda screen: fit.render_fit_screen(TOO_LARGE, screen),
    "fleet": lambda screen: fleet.render_fleet_screen(FLEET, screen),
    "prove": lambda screen: prove.render_proof_screen([REPORT], ProofRecord("host", "/py", PROOFS[:5], "2026-11-15T00:00:00Z").with_digest(), screen, elapsed=12.0),
    "bench": lambda screen: bench.render_bench_screen(BENCH, screen),
    "run_failed": lambda screen: run.render_post_mortem(RUN, screen),
    "install": lambda screen: install.render_install_screen(INSTALLED, screen),
    "install_dry_run": lambda screen: install.render_install_screen(DRY_RUN, screen),
}  # fmt: skip


@pytest.mark.parametrize("kind", SCREENS)
@pytest.mark.parametrize("name", DRAWN)
def test_the_screen_is_the_golden_one(name, kind, request):
    shown = DRAWN[name](SCREENS[kind])
    for line in shown.splitlines():
        assert width(line) <= SCREENS[kind].width or is_one_command_word(line), line
    check_against(f"{name}.{kind}.txt", shown, request)


ENV = EnvironmentSettings(
    "roll", "0.3.0", role="rollout", roles=("driver", "rollout"), machine="h100x8", torch="2.13.0+cu130",
    variables=(VariableSetting("NCCL_CUMEM_ENABLE", "0", "roll", "weights are updated in place, which cuMem's handles do not survive", "roll 0.3.0 roll/platforms/cuda.py:12"),
               VariableSetting("PYTORCH_ALLOC_CONF", "expandable_segments:True", "torch", "less memory is lost between allocations", state="held")),
    conflicts=(VariableConflict("CUDA_DEVICE_MAX_CONNECTIONS", "8", "1", "roll", "communication may overlap wrongly", "kernels are queued in order"),),
    left=(VariableSetting("RAY_CGRAPH_get_timeout", "600", "roll"),), notes=("the torch of this machine is not known",),
)  # fmt: skip


def test_a_script_of_variables_is_the_same_at_every_width(request):
    """It is made for files and pipes: its comments keep to 80 columns, and only an assignment may be longer."""
    shown = env.render_env_script(ENV, "bash", ("gpuready", "env", "roll", "--role", "rollout"))
    assert all(width(line) <= 80 for line in shown.splitlines() if line.startswith("#"))
    check_against("env.plain.txt", shown, request)


def test_nothing_is_expected_beyond_the_memory_of_the_gpu():
    shown = fit.explain_fit_verdict(FITS.replace(peak_device=90 << 30))
    assert shown.endswith("; expect a full GPU in nvidia-smi")


def test_the_answer_comes_first():
    first = {name: draw(Screen()).splitlines()[0] for name, draw in DRAWN.items()}
    assert first["diagnose"].startswith("cause (80 % sure): the job needs more memory") and first["diagnose"].endswith(
        "MEM001"
    )
    assert first["diagnose_no_cause"].startswith("no cause found: ")
    assert first["fit"].startswith("fits: llama-3.1-8b (axolotl) on 1x H100 80GB (--on h100), by the templates of")
    assert first["fit_too_large"].startswith("does not fit: llama-3.1-8b on 1x RTX 4090 (--on rtx4090), by")
    assert first["fleet"].startswith("not ready: 3 of 64 nodes with problems")
    assert first["bench"].startswith("not ready: ") and first["run_failed"].startswith("failed: rank 1 on gpu-07")
    assert first["install"].startswith("installed") and first["prove"].startswith(
        "some proofs failed: 2 passed, 1 failed"
    )


def test_what_followed_and_the_name_of_the_cause_are_details():
    brief, loud = DRAWN["diagnose"](Screen()), DRAWN["diagnose_verbose"](Screen())
    assert "(80 % sure)" in brief and "waited for the others" not in brief and "cuda-oom" not in brief
    assert "a rank waited for the others until its timeout (7 lines from line 9," in loud and "cuda-oom" in loud


def test_without_a_cause_all_that_there_is_is_shown():
    text = DRAWN["diagnose_no_cause"](Screen())
    assert "line 40: FancyError: the widget is not aligned (widget.py, line 7)" in text
    assert "code -6" in text and "the connection was closed by the other side" in text
