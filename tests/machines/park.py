"""The machines of the golden reports, by name: each is a few changes to the recorded one."""

from __future__ import annotations

from tests.machines import cards, faulty, places, vendors
from tests.machines.altered import Changes

MACHINES = {
    build.__name__.replace("_", "-"): build
    for build in (
        cards.v100,
        cards.v100_cu130,
        cards.v100_new_driver,
        cards.hgx_docker,
        cards.t4,
        cards.a100_40,
        cards.a100_80,
        cards.a10g,
        cards.l4,
        cards.l40s,
        cards.rtx3090_pair,
        cards.rtx4090_eight,
        cards.rtx5090,
        cards.rtx5090_old_torch,
        cards.h100_pcie,
        cards.h100,
        cards.h200,
        cards.b200,
        cards.gb200,
        cards.gh200,
        cards.dgx_spark,
        cards.gtx1080ti,
        cards.consumer_mix,
        cards.unlike,
        faulty.mig_seven,
        faulty.mig_empty,
        faulty.lost,
        faulty.ecc_errors,
        faulty.no_manager,
        faulty.old_driver,
        faulty.forward_compat,
        faulty.compat_geforce,
        faulty.halves,
        faulty.exclusive,
        faulty.held,
        faulty.no_driver,
        faulty.hidden,
        places.wsl2,
        places.docker,
        places.podman,
        places.kubernetes,
        places.apptainer,
        places.gvisor,
        places.ubuntu26,
        places.rhel8,
        places.centos7,
        places.alpine,
        places.amazon2,
        places.tiny,
        places.bare,
        faulty.half_installed,
        faulty.two_torches,
        faulty.cpu_torch,
        faulty.wrong_abi,
        faulty.old_numpy_torch,
        faulty.shadowed,
        vendors.mi250,
        vendors.mi300x,
        vendors.mi300x_cuda_torch,
        vendors.intel,
        vendors.ascend,
        vendors.gaudi,
        vendors.moore_threads,
        vendors.apple,
    )
}


def changes(name: str) -> Changes:
    made = MACHINES[name]()
    made.host = name
    return made
