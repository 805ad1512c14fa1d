"""The commands of README, tutorial and how-to pages, in their order; ``python -m tests.docs_commands`` executes them.

A command is a line of an indented block or of a ``sh`` block, or of a sample (``$ gpuready ...``). Each page has a folder of its own with the
files that it mentions, and one shell, so that ``cd`` and ``source`` count for the next line. ``tests/docs_commands.toml`` says which line
is run smaller here and which is not run, each with its reason.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tests.docs_report import Ran, write_report

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/start").glob("*.md")), *sorted((ROOT / "docs/how-to").glob("*.md"))]
PROGRAMS = (
    "gpuready", "make", "uvx", "uv", "pip", "pipx", "python", "source", "eval", "git", "cd", "kubectl", "torchrun", "salloc", "curl", "mkdir",
)  # fmt: skip
COMMAND = re.compile(rf"(?:[A-Z_]+=(?:\$\([^)]*\)|\S+) )*(?:{'|'.join(PROGRAMS)})(?: |$)")
ROLL_JOB = {
    "pretrain": "Qwen/Qwen2.5-7B-Instruct", "prompt_length": 512, "response_length": 512, "rollout_batch_size": 8,
    "actor_train": {
        "model_args": {"dtype": "bf16"}, "training_args": {"per_device_train_batch_size": 1}, "device_mapping": "list(range(0,8))",
        "strategy_args": {"strategy_name": "fsdp2_train", "strategy_config": {"param_dtype": "bf16"}}, "infer_batch_size": 4,
    },
    "actor_infer": {
        "model_args": {"dtype": "bf16"}, "device_mapping": "${actor_train.device_mapping}",
        "strategy_args": {"strategy_name": "vllm", "strategy_config": {"gpu_memory_utilization": 0.6, "max_model_len": 1024}},
    },
}  # fmt: skip
VERL_JOB = {
    "algorithm": {"adv_estimator": "grpo"},
    "data": {"max_prompt_length": 512, "max_response_length": 512},
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen3-8B"},
        "actor": {"strategy": "fsdp2", "ppo_micro_batch_size_per_gpu": 1},
        "rollout": {"name": "vllm"},
    },
    "trainer": {"n_gpus_per_node": 8, "nnodes": 1},
}
"""Jobs of ROLL and verl as the guide of fit names them, as small as they can be."""
ANSWERS = (0, 1, 3)
"""Exit codes that answer a question: no problems, not ready, can't tell."""
ASKS = re.compile(
    r"(?:uvx --from \S+ |.*\| )?(?:gpuready (?:check|prove|bench|diagnose|fit|fleet|report)\b|make check)"
)
"""The commands that ask one; every other command has to succeed."""


def find_commands(page: Path) -> list[str]:
    """The commands of a page as a reader would paste them. Of a sample that of its comment, which names files that are here."""
    found, kind = [], ""
    sample = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            kind = "" if kind else line.removeprefix("```") or "text"
        elif match := re.match(r"<!-- sample: (gpuready .*) -->", line):
            sample = match[1]
        elif line.startswith("$ ") and sample:
            found.append(sample)
            sample = ""
        elif (kind == "sh" or (not kind and line.startswith("    "))) and COMMAND.match(line.strip()):
            found.append(line.strip())
    return found


def load_changes() -> dict[str, dict[str, str]]:
    """What is run in place of a line, or why it is not run, by the line."""
    rows = tomllib.loads((ROOT / "tests/docs_commands.toml").read_text(encoding="utf-8"))["command"]
    return {row["says"]: row for row in rows}


def strip_comment(command: str) -> str:
    return re.sub(r"\s+#.*$", "", command)


def prepare_folder(folder: Path, page: Path) -> None:
    """The files that the pages mention: recordings, a log, a job, a script, a contract of the page itself."""
    machine = (ROOT / "tests/machines/h200.json").read_text()
    log = "step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB\n"
    files = {
        **dict.fromkeys(("machine.json", "node7.json"), machine),
        **dict.fromkeys(("train.log", "slurm-1234.out", "logs/rank0.log"), log),
        "train.py": "import os\nprint('rank', os.environ.get('RANK', '0'))\n",
        "config.yml": "base_model: Qwen/Qwen2.5-0.5B\n",
        "axolotl.yml": "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\nsequence_len: 512\nadapter: lora\n",
        "args.json": '{"per_device_train_batch_size": 1, "bf16": true}',
        "ds_config.json": '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}',
        "rlvr_config.yaml": json.dumps(ROLL_JOB),
        "run_qwen3-8b.sh": "cat verl.json\n",
        "verl.json": json.dumps(VERL_JOB),
        "qwen3-8b.yaml": json.dumps(VERL_JOB),
        "Dockerfile": (ROOT / "docs/how-to/containers/Dockerfile").read_text(),
    }
    if contract := re.search(r"^```toml\n(.*?)^```", page.read_text(), re.S | re.M):
        files["kite.toml"] = contract[1]
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("tests", "docs", "tools", "requirements"):
        (folder / name).symlink_to(ROOT / name)


def run_page(page: Path, home: Path) -> list[Ran]:
    """Each command with its result in words, its seconds, and what was run in its place."""
    folder = home / page.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    prepare_folder(folder, page)
    changes, script = load_changes(), ["set +e"]
    results: list[Ran] = []
    commands = [(one, changes.get(strip_comment(one), {})) for one in find_commands(page)]
    for number, (command, change) in enumerate(commands):
        if "skip" not in change:
            script += [f"date +'@@start {number} %s.%N'", change.get("run", command).replace("@ROOT@", str(ROOT))]
            script.append(f'echo "@@end {number} $? $(date +%s.%N)"')
    environment = {**os.environ, "UV_TOOL_DIR": str(home / "tools"), "UV_TOOL_BIN_DIR": str(home / "bin")}
    environment |= {
        "PATH": f"{home / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "NO_COLOR": "1",
    }
    (folder / "docs-run.sh").write_text("\n".join(script) + "\n")
    done = subprocess.run(
        ["bash", "docs-run.sh"], cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800, check=False,
    )  # fmt: skip
    (folder / "docs-run.txt").write_text(done.stdout)
    ended = {int(m[1]): (int(m[2]), float(m[3])) for m in re.finditer(r"@@end (\d+) (\d+) (\S+)", done.stdout)}
    began = {int(m[1]): float(m[2]) for m in re.finditer(r"@@start (\d+) (\S+)", done.stdout)}
    for number, (command, change) in enumerate(commands):
        if "skip" in change:
            results.append(Ran(strip_comment(command), f"not run: {change['skip']}", 0.0))
        elif number not in ended:
            results.append(Ran(strip_comment(command), "FAILED: it did not end", 0.0))
        else:
            code, end = ended[number]
            output = done.stdout.partition(f"@@start {number} ")[2].partition("@@end ")[0]
            broken = "Traceback (most" in output or "\nerror: " in output
            result = "FAILED: it broke" if broken else judge_exit(change.get("run", command), code, change)
            results.append(Ran(strip_comment(command), result, end - began[number], change.get("run", "")))
    return results


def judge_exit(command: str, code: int, change: dict[str, Any]) -> str:
    allowed = change.get("exits") or (ANSWERS if ASKS.match(command) else (0,))
    return f"exit {code}" if code in allowed else f"FAILED: exit {code}"


def main() -> None:
    home = ROOT / "build" / "docs-run"
    home.mkdir(parents=True, exist_ok=True)
    wanted, report = sys.argv[1:], None
    if "--report" in wanted[:-1]:
        at = wanted.index("--report")
        report, wanted = Path(wanted[at + 1]), wanted[:at] + wanted[at + 2 :]
    rows: list[Ran] = []
    for page in PAGES:
        if wanted and page.stem not in wanted:
            continue
        print(f"{page.relative_to(ROOT)}", flush=True)
        began = time.monotonic()
        for row in run_page(page, home):
            instead = f" (as: {row.run_as})" if row.run_as else ""
            print(f"  {row.seconds:6.1f} s  {row.command}\n            {row.result}{instead}", flush=True)
            rows.append(row)
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
    failed = sum(row.result.startswith("FAILED") for row in rows)
    print(f"{len(rows)} commands, {failed} failed; their output is in build/docs-run/PAGE/docs-run.txt")
    if report is not None:
        write_report(report, rows)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
