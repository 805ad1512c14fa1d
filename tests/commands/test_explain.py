"""``gpuready explain``: one code, one family, or all."""

from __future__ import annotations

import pytest

import gpuready
from gpuready.rules import list_codes


@pytest.mark.parametrize("family", ["NET", "net", " Net "])
def test_a_family_lists_its_codes_alone(family):
    listed = [row["code"] for row in gpuready.explain(family).found]
    assert listed == [code for code in list_codes() if code.startswith("NET")] and listed


def test_a_word_that_only_begins_like_a_family_is_refused():
    with pytest.raises(gpuready.Refused, match="no rule is called 'NETS'"):
        gpuready.explain("NETS")
