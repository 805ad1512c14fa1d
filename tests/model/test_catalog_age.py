"""How old what gpuready knows is."""

from __future__ import annotations

import re

from gpuready import catalog
from gpuready.model.report import TRUSTED_DAYS, days_since, old_knowledge_note


def test_the_age_is_told_only_when_old():
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", catalog.catalog_date())
    assert old_knowledge_note(TRUSTED_DAYS) == ""
    assert "181 days old" in old_knowledge_note(181)
    assert days_since("2026-11-15", 1795219200.0) in (5, 6)
