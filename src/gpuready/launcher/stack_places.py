"""Where a rank stands, in words: the user's own line, and what it waits for there. Pure: stacks in, places out."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gpuready.launcher.rank_ledger import RankState
from gpuready.launcher.rank_watch import LOCK, SLEEP

COLLECTIVE, MESSAGE, OTHER = "collective", "message", "other"
_MESSAGE_CALLS = ("recv", "send", "irecv", "isend", "batch_isend_irecv", "recv_object_list", "send_object_list")
_LIBRARY_PATHS = ("site-packages/", "dist-packages/", "/lib/python3", "/torch/", "<frozen", "<string>")
_DISTRIBUTED = "/torch/distributed/"
_DATA_PARALLEL, _AUTOGRAD = "/torch/nn/parallel/distributed.py", "/torch/autograd/"
WORKER, PROGRAM, CHILD_END = "worker", "program", "a child process to end"
"""What kind of child a rank waits for."""
_OF_THREADS = ("a worker of its own", "a queue", "a thread or a lock", LOCK)
_WAITS = (
    ("/torch/utils/data/", "its DataLoader", WORKER),
    ("/subprocess.py", "a program that it started", PROGRAM),
    ("/multiprocessing/", "another process of its own", PROGRAM),
    ("/concurrent/futures/", _OF_THREADS[0], ""),
    ("/queue.py", _OF_THREADS[1], ""),
    ("/threading.py", _OF_THREADS[2], ""),
    ("/socket.py", "a connection", ""),
    ("/ssl.py", "a connection", ""),
    ("/selectors.py", "a connection", ""),
    ("/asyncio/", "a coroutine", ""),
    (_AUTOGRAD, "the backward pass", ""),
)


class Place:
    """Where a main thread stands: the kind of wait, its words, and the user's line."""

    def __init__(self, kind: str, text: str):
        self.kind, self.text = kind, text


def describe_place(state: RankState) -> Place:
    """Describe where a rank's main thread stands, with what it waits for."""
    frames = main_thread_frames(state.stack)
    own = user_frame(frames)
    at = format_frame(own)
    calls = _distributed_calls(frames)
    if not calls and frames and _AUTOGRAD in frames[0] and state.waits == LOCK:
        return Place(COLLECTIVE, f"the backward pass at {at}, where it waits for the gradients of others")
    if calls:
        kind = MESSAGE if calls[0] in _MESSAGE_CALLS else COLLECTIVE
        call = state.call.partition(" at ")[0] if state.call.startswith(f"{calls[0]}(") else calls[0]
        return Place(kind, f"{call} at {at}" if at else call)
    waits = _describe_wait(frames, own, state.children) or _describe_system_call(state)
    if waits.endswith(_OF_THREADS):
        waits += _describe_threads(state.stack)
    return Place(OTHER, ((at or format_frame(frames[0] if frames else "")) + waits).removeprefix(", "))


def _describe_system_call(state: RankState) -> str:
    if state.polled and state.waits == SLEEP:
        return f", which looks again and again at {state.polled}"
    child = state.children[0] if state.waits == CHILD_END and len(state.children) == 1 else None
    return f", waiting for {state.waits}{_describe_child(child, PROGRAM) if child else ''}" if state.waits else ""


def _describe_threads(stack: Sequence[str]) -> str:
    """Where its other threads stand: one of them has the lock, or is to do what is waited for."""
    starts = [at for at, line in enumerate(stack) if line.startswith(("Thread 0x", "Current thread 0x"))]
    frames = [main_thread_frames(stack[at:end]) for at, end in pairwise(starts)]
    places = dict.fromkeys(
        format_frame(own) for some in frames if (own := user_frame(some)) in some and "-packages/" not in own
    )
    return f" (its other threads are in {', '.join(list(places)[:3])})" if places else ""


def _distributed_calls(frames: Sequence[str]) -> list[str]:
    """The functions of torch.distributed that a thread is in, innermost first; those that it calls by itself only if there are no others."""
    calls = [function_name(f) for f in frames if _DISTRIBUTED in f and function_name(f) not in ("wrapper", "wait")]
    calls += [function_name(f).lstrip("_") for f in frames[:1] if _DATA_PARALLEL in f]  # DDP, as it broadcasts buffers
    return [name for name in calls if not name.startswith("_")] or calls


def _describe_wait(frames: Sequence[str], own: str, children: Sequence[dict[str, Any]]) -> str:
    above = frames[: frames.index(own)] if own in frames else []
    waits, awaited = next(((words, kind) for part, words, kind in _WAITS for frame in above if part in frame), ("", ""))
    if not waits:
        return ""
    child = next((one for one in children if one["command"] != "unknown"), None)  # one that has ended has none
    if child is None or not awaited:
        return f", waiting for {waits}"
    return f", waiting for {waits}{_describe_child(child, awaited)}"


def _describe_child(child: dict[str, Any], kind: str) -> str:
    frames = main_thread_frames(child["stack"])
    inside, calls = format_frame(user_frame(frames)), _distributed_calls(frames)
    inside = f"{calls[0]} at {inside}" if calls and inside else inside
    what = f"worker pid {child['pid']}" if kind == WORKER else f"{child['command'][:60]!r}, pid {child['pid']}"
    return f" ({what}, state {child['state']}{', in ' + inside if inside else ''})"


def main_thread_frames(stack: Sequence[str]) -> list[str]:
    """Return the frames of the last thread of the last dump: the main thread comes last."""
    frames: list[str] = []
    for line in stack:
        if line.startswith(("Thread 0x", "Current thread 0x")):
            frames = []
        elif line.startswith("  File "):
            frames.append(line.strip())
    return frames


def user_frame(frames: Sequence[str]) -> str:
    """Return the innermost frame of the user's own code; where there is none, that of a package other than torch."""
    own = next((f for f in frames if not any(part in f for part in _LIBRARY_PATHS)), "")
    return own or next((f for f in frames if "-packages/" in f and "/torch/" not in f), "")


def function_name(frame: str) -> str:
    return frame.rpartition(" in ")[2]


def format_frame(frame: str) -> str:
    """Format ``File "/x/train.py", line 12 in step`` as ``train.py:12 (step)``."""
    path = frame.partition('"')[2].partition('"')[0]
    line = frame.partition(", line ")[2].partition(" in ")[0]
    return f"{path.rsplit('/', 1)[-1]}:{line} ({function_name(frame)})" if path else ""


def list_ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(ranks)[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
