"""The screen of a diagnosis: its decisive lines, each once."""

from __future__ import annotations

import re

from gpuready.model.diagnosis import Diagnosis, LogEvidence
from gpuready.render.diagnosis import render_diagnosis_screen


def test_a_decisive_line_is_not_also_shown_as_the_neighbour_of_another():
    first = LogEvidence("a.log", 8, "raise UsageError", before=("six", "seven"), after=("UsageError: no key", "ten"))
    second = LogEvidence("a.log", 9, "UsageError: no key")
    screen = render_diagnosis_screen(Diagnosis("cause", "no-key", "RUN033", "no key", evidence=(first, second)))
    assert re.findall(r"^ +(\d+)([> ]) ", screen, re.M) == [("6", " "), ("7", " "), ("8", ">"), ("9", ">")]
