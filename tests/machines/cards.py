"""NVIDIA, one kind of card after the other."""

from __future__ import annotations

from tests.machines.altered import Changes
from tests.machines.parts import GIB, UNSAID, container, environment, fabric_manager, gpu, gpus, on_arm, system, toolkit
from tests.machines.stacks import STACK, cu118, cu126, cu128, cu130, several


def v100() -> Changes:
    """8 x V100 on Ubuntu 20.04, driver 470: CUDA 11.4, torch cu118 by minor version compatibility."""
    return Changes(system("ubuntu20"), gpus(*several("v100", 8), driver="470.256.02", cuda="11.4"), cu118())


def v100_cu130() -> Changes:
    """V100 with torch cu130: CUDA 13 has no code for capability 7.0."""
    return Changes(system("ubuntu22"), gpus(*several("v100", 4), driver="580.95.05"), cu130())


def t4() -> Changes:
    """One T4 in the cloud: no bf16, but all is well."""
    return Changes(system("ubuntu22", memory=15, cpus=4), gpus(gpu("t4", 0), driver="570.195.03", cuda="12.8"), cu128())


def a100_40() -> Changes:
    """8 x A100 40 GB with NVSwitches and their manager."""
    base = gpus(*several("a100-40", 8), driver="535.274.02", cuda="12.2", switches=6)
    return Changes(
        system("ubuntu22", memory=1024),
        base,
        fabric_manager(True),
        environment("2.5.1+cu121", "12.1", **STACK),
        toolkit("12.1.1"),
    )


def a100_80() -> Changes:
    """8 x A100 80 GB, driver 550 LTS, torch cu126."""
    base = gpus(*several("a100-80", 8), driver="550.163.01", cuda="12.4", switches=6)
    return Changes(system("ubuntu22", memory=2048), base, fabric_manager(True), cu126())


def a10g() -> Changes:
    """AWS g5 with Amazon Linux 2023."""
    return Changes(system("amazon2023", memory=192), gpus(*several("a10g", 4), driver="580.95.05"), cu130())


def l4() -> Changes:
    """GCP g2, Debian 12."""
    return Changes(system("debian12", memory=32, cpus=8), gpus(gpu("l4", 0), driver="570.195.03", cuda="12.8"), cu128())


def l40s() -> Changes:
    """4 x L40S, no peer memory hardware, RHEL 9."""
    return Changes(
        system("rhel9", memory=512), gpus(*several("l40s", 4), driver="580.95.05"), cu130(), toolkit("13.0.2")
    )


def rtx3090_pair() -> Changes:
    """Two RTX 3090 under a desk."""
    return Changes(
        system("ubuntu24", memory=64, cpus=24), gpus(*several("rtx3090", 2), driver="575.57.08", cuda="12.9"), cu128()
    )


def rtx4090_eight() -> Changes:
    """Eight RTX 4090: no NVLink, no peer access."""
    return Changes(system("ubuntu22", memory=512), gpus(*several("rtx4090", 8), driver="580.95.05"), cu130())


def rtx5090() -> Changes:
    """An RTX 5090 with torch cu128: the first that has code for it."""
    return Changes(system("ubuntu24", memory=96, cpus=32), gpus(gpu("rtx5090", 0), driver="580.95.05"), cu128())


def rtx5090_old_torch() -> Changes:
    """An RTX 5090 with a torch that has no code for it."""
    return Changes(system("ubuntu24", memory=96, cpus=32), gpus(gpu("rtx5090", 0), driver="580.95.05"),
                   environment("2.5.1+cu121", "12.1", **STACK))  # fmt: skip


def h100_pcie() -> Changes:
    """4 x H100 PCIe, SLES 15."""
    return Changes(system("sles15", memory=1024), gpus(*several("h100-pcie", 4), driver="580.95.05"), cu130())


def h100() -> Changes:
    """8 x H100 SXM, Ubuntu 22.04, driver 580, torch cu130, with manager."""
    base = gpus(*several("h100", 8), driver="580.95.05", switches=4)
    return Changes(system("ubuntu22", memory=2048, cpus=192), base, fabric_manager(True), cu130())


def h200() -> Changes:
    """8 x H200, the newest driver (615) and CUDA 13.3."""
    base = gpus(*several("h200", 8), driver="615.20.01", cuda="13.3", switches=4)
    return Changes(system("ubuntu24", memory=2048, cpus=192), base, fabric_manager(True), cu130())


def b200() -> Changes:
    """8 x B200, Ubuntu 24.04."""
    base = gpus(*several("b200", 8), driver="580.95.05")
    return Changes(system("ubuntu24", memory=2048, cpus=224), base, fabric_manager(True), cu130())


def gb200() -> Changes:
    """4 x GB200 on aarch64."""
    return on_arm(
        system("ubuntu24", "aarch64", memory=960, cpus=144), gpus(*several("gb200", 4), driver="580.95.05"), cu130()
    )


def gh200() -> Changes:
    """One GH200 on aarch64."""
    return on_arm(
        system("ubuntu22", "aarch64", memory=480, cpus=72),
        gpus(gpu("gh200", 0), driver="570.195.03", cuda="12.8"),
        cu128(),
    )


def dgx_spark() -> Changes:
    """DGX Spark: GB10, aarch64, memory shared with the processor; NVML has no figure for it."""
    card = gpu("gb10", 0, pcie_gen=UNSAID, pcie_gen_max=UNSAID)
    return on_arm(system("ubuntu24", "aarch64", memory=119, cpus=20), gpus(card, driver="580.95.05"), cu130())


def v100_new_driver() -> Changes:
    """V100 with driver 595, which drives no Volta any more: the cards are on the bus, and the driver lists none."""
    base = gpus(*several("v100", 2), driver="595.58.03", cuda="13.2")
    none = {**base.answers['["nvml"]'], "gpus": []}
    return Changes(system("ubuntu24"), base, cu126(), Changes().say(none, "nvml"))


def hgx_docker() -> Changes:
    """A container on an HGX H100: it sees the switches on the bus and not the manager of the host."""
    base = gpus(*several("h100", 8), driver="580.95.05", switches=4)
    return Changes(system("ubuntu22", memory=2048), base, container("docker", shm=64 * GIB), cu130())


def gtx1080ti() -> Changes:
    """A Pascal card with a torch of CUDA 12.8: no code for capability 6.1."""
    return Changes(
        system("ubuntu22", memory=32, cpus=8), gpus(gpu("gtx1080ti", 0), driver="570.195.03", cuda="12.8"), cu128()
    )


def consumer_mix() -> Changes:
    """An RTX 4090 beside a GTX 1080 Ti."""
    return Changes(
        system("ubuntu24", memory=64, cpus=24),
        gpus(gpu("rtx4090", 0), gpu("gtx1080ti", 1), driver="580.95.05"),
        cu126(),
    )


def unlike() -> Changes:
    """A100 40 GB and 80 GB in one machine."""
    cards = [*several("a100-80", 4), *(gpu("a100-40", index) for index in range(4, 8))]
    return Changes(system("ubuntu22", memory=1024), gpus(*cards, driver="580.95.05"), cu130())
