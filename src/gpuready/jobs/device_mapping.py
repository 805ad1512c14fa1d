"""The GPUs that a role of a job is mapped to."""

from __future__ import annotations

import re

MAX_DEVICES = 1 << 16
"""The largest number of GPUs accepted from a device mapping."""


def parse_device_mapping(value: object) -> set[int]:
    """Parse ``list(range(0,8))``, ``[0, 1]`` or a list into GPU indexes, without evaluating it."""
    if isinstance(value, list):
        return {item for item in value if isinstance(item, int) and not isinstance(item, bool)}
    if not isinstance(value, str) or len(value) > 500:
        return set()
    indexes: set[int] = set()
    for start, stop in re.findall(r"range\(\s*(?:(\d{1,5})\s*,\s*)?(\d{1,5})\s*(?:,\s*1\s*)?\)", value):
        indexes |= set(range(int(start or 0), min(int(stop), MAX_DEVICES)))
    if not indexes and re.fullmatch(r"\[?[\d,\s]+\]?", value.strip()):
        indexes = {int(number) for number in re.findall(r"\d{1,5}", value)}
    return indexes
