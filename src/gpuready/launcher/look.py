"""The preflight of one node, run by the first agent there. Standard library only, Python 3.8 and newer."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LOOK_S = 30.0
_GIVEN = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def at_node(
    words: Sequence[str], environ: Mapping[str, str], seats: Sequence[Mapping[str, str]]
) -> dict[str, Any] | None:
    """Return this node's problems, or why they are unknown; None if another agent or none runs the preflight."""
    if not words or not _first(environ, seats):
        return None
    try:
        sights = _asked(words, environ)
    except (OSError, ValueError) as error:
        return {"gap": str(error)[:300]}
    # A rank that sees only its own GPU cannot tell how many the node has.
    given = any(name in environ for name in _GIVEN)
    return {"sights": [s for s in sights if s["severity"] != "ok" and not (s["what"] == "ranks" and given)]}


def _first(environ: Mapping[str, str], seats: Sequence[Mapping[str, str]]) -> bool:
    """Whether this agent is the first of its node. Ray's ranks with one GPU each are all local rank 0."""
    return environ.get("GPUREADY_FIRST", str(int(seats[0].get("LOCAL_RANK", "0") == "0"))) == "1"


def _asked(words: Sequence[str], environ: Mapping[str, str]) -> list[dict[str, Any]]:
    import subprocess

    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    env = {k: v for k, v in environ.items() if k != "GPUREADY_ATTEND"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (home, environ.get("PYTHONPATH", ""))))
    try:
        ran = subprocess.run(
            list(words), stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=LOOK_S, check=False
        )
        found: list[dict[str, Any]] = json.loads(ran.stdout)["sights"]
    except subprocess.TimeoutExpired:
        raise ValueError(f"the look at it took longer than {LOOK_S:.0f} s") from None
    except (ValueError, KeyError):
        last = ran.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit {ran.returncode}"]
        raise ValueError(last[-1]) from None
    return found
