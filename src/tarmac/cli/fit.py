"""``tarmac fit``: how much GPU memory a job needs, and what makes it fit."""

from __future__ import annotations

from tarmac.cli.grammar import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tarmac.cli.grammar import Told
    from tarmac.render.layout import Screen

COUNTS = ("micro-batch", "seq", "accumulation", "lora-r", "new-tokens", "world", "tensor-parallel")
WORDS = (
    "method", "precision", "optimizer", "attention", "loss", "lora-dtype", "quant", "alloc-conf", "task", "cache", "offload",
)  # fmt: skip
SWITCHES = ("keep-outputs", "padded", "dpo", "fsdp")


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    flags = told.flags
    if flags.get("q") and flags.get("v"):
        raise Usage("-q and -v do not go together: choose one")
    if flags.get("gpus") and "max" in flags:
        raise Usage("--gpus and --max do not go together: choose one")
    from tarmac.workflow.fitting import fit

    found = fit(
        list(told.arguments),
        fields(flags),
        on=flags.get("on"),
        every=bool(flags.get("gpus")),
        largest=flags.get("max"),
    )
    from tarmac.render import fit as render

    if flags.get("json"):
        from tarmac.render import json

        return json.document(render.fields(found)), found.exit
    if flags.get("q"):
        return render.line(found), found.exit
    return render.page(found, screen, bool(flags.get("v"))), found.exit


def fields(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What the flags say, as fields of a Job."""
    given: dict[str, Any] = {_field(name): _count(name, flags[name]) for name in COUNTS if name in flags}
    given |= {_field(name): flags[name] for name in WORDS if name in flags}
    given |= {_field(name): True for name in SWITCHES if flags.get(name)}
    if "zero" in flags:
        given["zero"] = int(flags["zero"])
    if "gradient-checkpointing" in flags:
        kind = flags["gradient-checkpointing"]
        given["checkpointing"] = {"reentrant": "reentrant", "off": "none"}.get(kind, "nonreentrant")
    if "lora-targets" in flags:
        given["lora_targets"] = _targets(flags["lora-targets"])
    return given


def _field(name: str) -> str:
    return name.replace("-", "_")


def _count(name: str, word: str) -> int:
    """A whole number from 1 up; ``8k`` is 8192, as people write lengths."""
    low = word.strip().lower()
    plain, scale = (low[:-1], 1024) if low.endswith("k") else (low, 1)
    if (
        not plain.isdecimal()
        or not plain.isascii()
        or len(plain) > 12
        or not 1 <= int(plain) * scale < 1 << 31
    ):
        raise Usage(f"--{name} takes a whole number from 1 up, not {word!r}")
    return int(plain) * scale


def _targets(word: str) -> str | tuple[str, ...]:
    if word in ("all", "qv"):
        return word
    names = tuple(part.strip() for part in word.split(",") if part.strip())
    if not names or not all(name.replace("_", "a").replace(".", "a").isalnum() for name in names):
        raise Usage(f"--lora-targets takes all, qv, or names such as q_proj,v_proj, not {word!r}")
    return names
