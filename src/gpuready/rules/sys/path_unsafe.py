"""A folder of PATH can be written by everybody.

## What it checks
Whether PATH has a folder that any user can write, a relative entry (``.``) or an empty one. Folders with the
sticky bit (/tmp) and Windows drives under WSL are not reported.

## Why it matters
Another user can put a program there that runs in your name: a false nvidia-smi, git or python. A relative
entry finds different programs in different folders.

## How to fix
Remove the entries from PATH, or close the folders with ``chmod o-w FOLDER``.

## References
- POSIX, 8.3 PATH
- CWE-426 and CWE-732
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, visible_gpus

CODE = "SYS019"
SEVERITY = "warning"
READS = ("path.unsafe", "os.wsl")
REQUIRED_FACTS = ("path.unsafe",)
BROKEN = {"path.unsafe": (".", "/opt/tools"), "os.wsl": False}
HEALTHY = BROKEN | {"path.unsafe": ()}
WINDOWS = "/mnt/"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "path.unsafe" not in facts:
        return None
    wsl = facts.value_if_known("os.wsl")
    entries = [str(e) for e in facts.value("path.unsafe") or () if not (wsl and str(e).startswith(WINDOWS))]
    if not entries:
        return None
    return make_finding(
        f"anybody can put a program into {visible_gpus.join_names([environment_variables.quote_value(e) for e in entries], 4)} of PATH",
        found=(facts.fact("path.unsafe"),),
        needs=(Requirement("path.unsafe", "none", level="recommended", cite="POSIX, 8.3 PATH; CWE-426 and CWE-732"),),
        so="another user of this machine can make your jobs run their programs",
        fix=(FixStep("remove these entries from PATH, or close the folders with chmod o-w"),),
    )
