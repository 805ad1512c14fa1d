"""Redaction put to the test: how many of 200 secrets pass, how many harmless values are hidden, and what it costs.

``python benchmarks/score_secrets.py [-o FILE]`` prints the rates; ``tests/secrets`` holds them.
"""

from __future__ import annotations

import datetime
import json
import platform
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]


def ordinary_log() -> str:
    """One MiB as a training run writes it: steps, NCCL, warnings with addresses, bars."""
    lines = []
    for n in range(9000):
        lines.append(
            f"2026-11-15 12:{n // 60 % 60:02}:{n % 60:02} - INFO - train.py:{n % 300} - [Rank {n % 8}] {{'loss': {2.5 - n * 1e-5:.4f},"
            f" 'grad_norm': {1 + n % 7 * 0.13:.6f}, 'learning_rate': {1e-5 * (n % 100):.3e}, 'epoch': {n / 1000:.2f}}}"
        )
        if n % 50 == 0:
            lines.append(f"n{n % 8}:{n}:{n} [0] NCCL INFO Channel 0{n % 8}/0 : 0[0] -> 1[1] via P2P/CUMEM/read")
        if n % 97 == 0:
            lines.append(
                "/usr/lib/python3/dist-packages/transformers/tokenization_utils_base.py:2106: FutureWarning: "
                "`clean_up_tokenization_spaces` was not set. See https://github.com/huggingface/transformers/issues/31884"
            )
        if n % 131 == 0:
            lines.append(
                "model-00001-of-00004.safetensors eos_token_id=2 pad_token=None max_new_tokens=128 | 4/4 [00:12<00:00]"
            )
    return "\n".join(lines)[: 1 << 20]


def milliseconds(text: str) -> float:
    from gpuready.system import redact_text

    taken = []
    for _ in range(3):
        begun = time.process_time()
        redact_text(text)
        taken.append(time.process_time() - begun)
    return round(min(taken) * 1000, 1)


def main() -> None:
    from tests.secrets.harmless import values
    from tests.secrets.seeded import KINDS, leaked, seeds
    from tests.secrets.shown import HARMLESS, LEAKS
    from tests.secrets.test_everywhere import FORMS
    from tests.secrets.test_places import samples

    from gpuready.system import redact_text

    secrets, corpus = seeds(), values()
    passed = {form: sum(bool(leaked(redact_text(write(s)), [s])) for s in secrets) for form, write in FORMS.items()}
    passed["in further places"] = sum(
        any(secret in redact_text(text) for secret in secrets_) for where in LEAKS for text, secrets_ in samples(where)
    )
    corpus = [*corpus, *HARMLESS]
    hidden = sum(redact_text(value) != value for value in corpus)
    ordinary = "\n".join(corpus)
    one_line = " ".join(corpus)
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "command": "python benchmarks/score_secrets.py",
        "secrets": len(secrets),
        "kinds": len(KINDS),
        "further_places": len(LEAKS),
        "passed_by_form": passed,
        "harmless": len(corpus),
        "hidden": hidden,
        "hidden_share": round(hidden / len(corpus), 5),
        "ms_for_1_mib_of_an_ordinary_log": milliseconds(ordinary_log()),
        "ms_for_1_mib_of_lines": milliseconds((ordinary * 20)[: 1 << 20]),
        "ms_for_1_mib_in_one_line": milliseconds((one_line * 20)[: 1 << 20]),
        "ms_for_1_mib_of_hints": {
            p: milliseconds(p * ((1 << 20) // len(p))) for p in ("&key=", "token=", "hf_", "://")
        },
    }
    text = json.dumps(result, indent=1)
    print(text)
    if "-o" in sys.argv:
        Path(sys.argv[sys.argv.index("-o") + 1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
