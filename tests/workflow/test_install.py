"""What an install is told by the environment."""

from __future__ import annotations

import pytest

from gpuready.workflow.install import InstallOrder
from gpuready.workflow.refusal import Refused


class _Told:
    def __init__(self, value: str):
        self.value = value

    def get_env_var(self, name: str) -> str:
        return self.value


def _order(value: str) -> InstallOrder:
    order = InstallOrder.__new__(InstallOrder)
    order.host = _Told(value)
    return order


@pytest.mark.parametrize("value", ["nan", "inf", "-5", "0", "soon", "1e99"])
def test_a_deadline_that_is_none_is_refused(value):
    with pytest.raises(Refused, match="GPUREADY_INSTALL_DEADLINE"):
        _order(value)._install_deadline()


def test_a_deadline_is_kept():
    assert _order("90")._install_deadline() == 90.0 and _order("")._install_deadline() > 3600
