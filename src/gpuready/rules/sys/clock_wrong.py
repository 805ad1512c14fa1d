"""The clock of this machine is years off.

A machine whose battery is empty, or that has no way to a time server, starts in 1970 or on the day its board
was made. Certificates are then not yet valid, so every download over HTTPS fails; tokens and signed requests
are refused; and builds that compare the ages of files do too much or too little.

It is a warning when the clock shows a year before 2024, which no machine with a current driver can be in, or
after 2099. Set the clock with ``timedatectl set-ntp true`` or ``chronyc makestep``. In a container the clock
is that of the host.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement

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
    return Finding(
        CODE,
        SEVERITY,
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
