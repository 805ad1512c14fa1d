"""``make faults``: every case of cases.toml in one run, and one table of what was expected and seen.

``python -m tests.faults [--only A,D01] [--kept FILE] [--report FILE] [-- pytest's own words]``. With ``--kept`` a run may
be done in parts: what was seen is kept in a file, and the table is made from all of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests import ranks
from tests.faults import rows
from tests.faults.leftovers import Leftovers, own_shared_memory
from tests.faults.table import Watch, hardware, load

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests",)
"""Where further tests are marked ``faults``: they are of the run, though no case names them."""

HEAD = """# Faults, for real

How machines, launches, installs, inputs and fleets break: every case of tests/faults/cases.toml, what a user is to see,
and what was seen. *injected*: brought about here, in processes, files, sockets, variables, programs and libraries of a
machine made for it. *replayed*: carried by facts, a recording, a tape or a simulator. *recorded*: brought about on a real
GPU; the file is named. *not run*: the reason is named. Seconds are those of the slowest command or rank of a case, or of
its test where it runs none; *of* is the deadline, which may be missed by half a second.

- date: {date}
- hardware: {hardware}
- command: `make faults REPORT={path}`{who}

"""


def main(argv: list[str]) -> int:
    result = _flags(argv)
    own_shared_memory()
    cases = rows.cases(result["--only"])
    watch, left = Watch(load(result["--kept"])), Leftovers()
    os.environ.update(left.variables)
    tempfile.tempdir = left.folder  # Python has looked at TMPDIR already
    words = ["-m", "faults or not faults", "-p", "no:cacheprovider", "-rs", "-q", *result["more"]]
    names = rows.tests(cases) + ([] if result["--only"] else _marked())
    code = int(pytest.main([*words, *dict.fromkeys(names)], plugins=[watch]))
    ranks.close()
    found = left.after()
    if result["--kept"]:
        Path(result["--kept"]).write_text(json.dumps(watch.tests))
    table = rows.table(cases, watch.tests) + rows.besides(watch.tests)
    table += "\n" + rows.sums(cases, watch.tests, found)
    print(table)
    if result["--report"]:
        who = ", as root" if os.geteuid() == 0 else ""
        head = HEAD.format(date=date.today(), hardware=hardware(), path=result["--report"], who=who)
        Path(result["--report"]).write_text(head + table)
    return code or (1 if rows.bad(cases, watch.tests, found) else 0)


def _flags(argv: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {"--only": "", "--kept": "", "--report": "", "more": []}
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            settings["more"], words = words, []
        elif word in settings and words:
            settings[word] = words.pop(0)
        else:
            raise SystemExit(f"{word}: not understood; see the head of tests/faults/__main__.py")
    return settings


def _marked() -> list[str]:
    """The tests that are marked ``faults``, by a collection of their own: a case need not name each of them."""
    words = [sys.executable, "-m", "pytest", "-o", "addopts=", "-m", "faults", "--collect-only", "-q", *FOLDERS]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = [line.partition("[")[0] for line in said.splitlines() if "::" in line]
    if not found:
        raise SystemExit(f"pytest lists no test that is marked faults: {said[-400:]}")
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
