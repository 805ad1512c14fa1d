"""Every cause by a log in its emitter's words: the files of ``causes``, whose first line says what has to be found.

``# cause: cuda-oom`` or ``# cause: cuda-oom rank: 3``. Several logs in one file are parted by such lines.
"""

from __future__ import annotations

import re
from pathlib import Path

from gpuready.workflow.diagnose import diagnose_logs
from tests.every import every

FOLDER = Path(__file__).parent / "causes"


def cases():
    for path in sorted(FOLDER.iterdir()):
        title, lines = "", []
        for line in [*path.read_text(encoding="utf-8").splitlines(), "# cause: end"]:
            if line.startswith("# cause:"):
                if title:
                    yield f"{path.stem}: {title}", "\n".join(lines)
                title, lines = line, []
            else:
                lines.append(line)


@every(("title", "text"), list(cases()))
def test_the_cause_is_found(title, text):
    words = title.partition("# cause:")[2].split()
    found = diagnose_logs([[text.encode()]], look=False)
    assert (found.cause or found.verdict) == words[0], [e.text for e in found.evidence]
    if "rank:" in words:
        assert found.rank == int(words[words.index("rank:") + 1])
    if words[0] not in ("healthy", "not-environment", "unknown"):
        assert found.says
        decides = [other.decide for other in found.alternatives] + [n for n in found.notes if "to find out" in n]
        assert found.fix if found.confidence >= 0.8 else any(decides), "a fix of what is sure, else what decides"
    assert not [step for step in found.fix if re.search(r"\{[a-z_]+\}|FRAMEWORK", step.does)], (
        "nothing is left unfilled"
    )
