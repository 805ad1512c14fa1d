"""What is compared between nodes, and what may differ between equal ones."""

from __future__ import annotations

import pytest

from gpuready.fleet import areas
from gpuready.model import Fact, Facts


def variable(host: str, value: str) -> object:
    facts = Facts([Fact("host.name", host), Fact("env.names", ("NCCL_TOPO_FILE",)), Fact("env.NCCL_TOPO_FILE", value)])
    return areas.reference_values("variables", facts)["env.NCCL_TOPO_FILE"]


@pytest.mark.parametrize("value", ["/mnt/gpu10/topo.xml", "/mnt/gpu1", "/mnt/topo"])
def test_the_same_value_is_the_same_on_nodes_whose_names_begin_alike(value):
    masked = {variable(host, value) for host in ("gpu2", "gpu11")}
    assert masked == {value}
    assert variable("gpu1", "/mnt/gpu10/topo.xml") == "/mnt/gpu10/topo.xml"


@pytest.mark.parametrize("form", ["/mnt/{}/topo.xml", "{}", "{}.cluster:2222", "topo-{}-ib0"])
def test_a_value_with_the_name_of_its_node_is_alike_on_all(form):
    assert variable("gpu1", form.format("gpu1")) == variable("gpu10", form.format("gpu10"))
