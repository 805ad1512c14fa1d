"""Short hashes of the code that a rank runs, which reveal ranks that run other code."""

import hashlib
import os
import sys

PATCHING_MODULES = ("accelerate", "apex", "bitsandbytes", "colossalai", "deepspeed", "flash_attn", "horovod", "liger_kernel",
                    "lightning", "megatron", "peft", "transformer_engine", "transformers", "unsloth", "vllm", "xformers")  # fmt: skip
"""Modules that change what torch does: ranks should all have imported them, or none."""


def code_fingerprints() -> dict[str, str]:
    """Return short hashes of the script and the packages, which reveal ranks that run other code."""
    digests = {}
    script = sys.argv[0] if sys.argv and os.path.isfile(sys.argv[0]) else ""
    if script:
        with open(script, "rb") as file:
            digests["script"] = hashlib.sha256(file.read(1 << 22)).hexdigest()[:12]
    names = sorted(name for path in sys.path if path.endswith("-packages") for name in _list_distributions(path))
    digests["set of packages"] = hashlib.sha256("\n".join(names).encode("utf-8", "replace")).hexdigest()[:12]
    digests["arguments"] = hashlib.sha256("\n".join(_shared_arguments()).encode("utf-8", "replace")).hexdigest()[:12]
    digests["imported modules"] = " ".join(name for name in PATCHING_MODULES if name in sys.modules)
    return digests


RANK_OPTIONS = {"rank", "local_rank", "global_rank", "node_rank", "machine_rank"}


def _shared_arguments() -> list[str]:
    """The script's arguments but for those that tell its rank, in one word or two."""
    words = sys.argv[1:]
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if not _names_rank(word) and not (_names_rank(before) and "=" not in before)
    ]


def _names_rank(word: str) -> bool:
    """Whether a word is ``--local_rank``, ``--node-rank=1`` or ``rank=0``; ``--lora_rank`` is none."""
    option = word.partition("=")[0].lstrip("-").rpartition(".")[2]
    is_option = word.startswith("-") or "=" in word
    return is_option and option.replace("-", "_") in RANK_OPTIONS


def _list_distributions(path: str) -> list[str]:
    try:
        return [name for name in os.listdir(path) if name.endswith(".dist-info")]
    except OSError:
        return []
