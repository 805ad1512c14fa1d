"""The preflight of one node, run by the first agent there. Standard library only, Python 3.8 and newer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

PREFLIGHT_SECONDS = 30.0
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def preflight_node(
    command: Sequence[str], environ: Mapping[str, str], rank_variables: Sequence[Mapping[str, str]]
) -> dict[str, Any] | None:
    """Return this node's problems, or why they are unknown; None if another agent or none runs the preflight."""
    if not command or not _is_first_on_node(environ, rank_variables):
        return None
    try:
        items = _run_preflight_command(command, environ)
    except (OSError, ValueError) as error:
        return {"gap": str(error)[:300]}
    # A rank that sees only its own GPU cannot tell how many the node has.
    gpus_restricted = any(name in environ for name in _GPU_VARIABLES)
    return {"sights": [s for s in items if s["severity"] != "ok" and not (s["what"] == "ranks" and gpus_restricted)]}


def _is_first_on_node(environ: Mapping[str, str], rank_variables: Sequence[Mapping[str, str]]) -> bool:
    """Whether this agent is the first of its node. Ray's ranks with one GPU each are all local rank 0."""
    return environ.get("GPUREADY_FIRST", str(int(rank_variables[0].get("LOCAL_RANK", "0") == "0"))) == "1"


def _run_preflight_command(command: Sequence[str], environ: Mapping[str, str]) -> list[dict[str, Any]]:
    env = {k: v for k, v in environ.items() if k != "GPUREADY_ATTEND"}
    try:
        completed = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            timeout=PREFLIGHT_SECONDS,
            check=False,
        )
        items: list[dict[str, Any]] = json.loads(completed.stdout)["sights"]
    except subprocess.TimeoutExpired:
        raise ValueError(f"the look at it took longer than {PREFLIGHT_SECONDS:.0f} s") from None
    except (ValueError, KeyError):
        last = completed.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit {completed.returncode}"]
        raise ValueError(last[-1]) from None
    return items
