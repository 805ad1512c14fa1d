"""What is told where Ray has no room for the ranks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuready.launcher.ray_driver import describe_room


@pytest.mark.parametrize(
    ("nodes", "bundle", "free", "every", "said"),
    [
        (2, {"CPU": 8, "GPU": 8}, {"CPU": 3.0, "GPU": 4.0}, {"CPU": 64.0, "GPU": 16.0}, "asked for 8 CPU and 8 GPU on each of 2 nodes; free are 3 of 64 CPU, 4 of 16 GPU"),
        (4, {"CPU": 1}, {}, {"CPU": 3.0}, "asked for 1 CPU on each of 4 nodes; free are 0 of 3 CPU"),
    ],
)  # fmt: skip
def test_what_is_asked_for_and_what_is_free(nodes, bundle, free, every, said):
    ray = SimpleNamespace(available_resources=lambda: free, cluster_resources=lambda: every)
    assert describe_room(ray, nodes, bundle) == f"Ray has no room for the ranks: {said}"
