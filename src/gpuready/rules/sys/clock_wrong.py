"""The clock of this machine is years off.

## What it checks
Whether the clock shows a year from 2024 to 2099. It is a warning otherwise: no machine with a current driver
can be older.

## Why it matters
Certificates are not valid, so downloads over HTTPS fail; tokens and signed requests are refused; builds that
compare file times do too much or too little. It happens with an empty battery or without a time server.

## How to fix
Set the clock with ``timedatectl set-ntp true`` or ``chronyc makestep``. In a container the clock is the
host's.

## References
- RFC 5280, 4.1.2.5: validity
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding

CODE = "SYS011"
SEVERITY = "warning"
READS = ("clock.year",)
BROKEN = {"clock.year": 1970}
HEALTHY = {"clock.year": 2026}
FIRST_YEAR, LAST_YEAR = 2024, 2099


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "clock.year" not in facts:
        return None
    year = facts.value("clock.year")
    if year is None or FIRST_YEAR <= year <= LAST_YEAR:
        return None
    return make_finding(
        f"the clock shows the year {year}",
        found=(facts.fact("clock.year"),),
        needs=(
            Requirement(
                "clock.year", f">={FIRST_YEAR},<={LAST_YEAR}", level="recommended", cite="RFC 5280, 4.1.2.5: validity"
            ),
        ),
        so="certificates count as not yet valid or expired, and downloads over HTTPS fail",
        fix=(FixStep("set the clock: timedatectl set-ntp true, or chronyc makestep", note="needs root"),),
    )
