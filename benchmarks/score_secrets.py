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


def milliseconds(text: str) -> float:
    from tarmac.system import redact

    taken = []
    for _ in range(3):
        begun = time.process_time()
        redact(text)
        taken.append(time.process_time() - begun)
    return round(min(taken) * 1000, 1)


def main() -> None:
    from tests.secrets.harmless import values
    from tests.secrets.seeded import KINDS, leaked, seeds
    from tests.secrets.test_everywhere import FORMS

    from tarmac.system import redact

    secrets, corpus = seeds(), values()
    passed = {
        form: sum(bool(leaked(redact(write(s)), [s])) for s in secrets) for form, write in FORMS.items()
    }
    hidden = sum(redact(value) != value for value in corpus)
    ordinary = "\n".join(corpus)
    one_line = " ".join(corpus)
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "command": "python benchmarks/score_secrets.py",
        "secrets": len(secrets),
        "kinds": len(KINDS),
        "passed_by_form": passed,
        "harmless": len(corpus),
        "hidden": hidden,
        "hidden_share": round(hidden / len(corpus), 5),
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
