"""Faults of the system around: disks, limits, clocks, variables, the kernel's log."""

from __future__ import annotations

import os

from tests.faults.bench import SITE
from tests.faults.flips.machine import GIB, BreakableMachine, Fault


def an_old_libc(p: BreakableMachine) -> None:
    p.machine.gone(f"{SITE}/torch", f"{SITE}/torch-2.13.0+cu126.dist-info")
    p.answers.update(libc="2.17")
    p.contract('key = "package.torch"\nwant = ">=2.13.0"')


FAULTS: dict[str, Fault] = {
    "SYS001": lambda p: (p.machine.file("/.dockerenv"), p.disk.update(free=64 << 20, total=64 << 20)),
    "SYS002": lambda p: p.disk.update(free=GIB),
    "SYS003": lambda p: p.contract('key = "os.system"\nwant = "windows"'),
    "SYS004": lambda p: p.contract('key = "os.arch"\nwant = "riscv64"'),
    "SYS005": an_old_libc,
    "SYS006": lambda p: p.limits.update(nofile=64),
    "SYS007": lambda p: (p.infiniband("4: ACTIVE"), p.limits.update(memlock=8 << 20)),
    "SYS008": lambda p: p.machine.file("/home/ada/.cache/huggingface", "no folder"),
    "SYS009": lambda p: (p.disk.update(free=50 * 10**9), p.asked.update(model="70b"), p.wants("bf16")),
    "SYS010": lambda p: p.set(HF_HUB_OFFLINE="1"),
    "SYS011": lambda p: p.answers.update(wall=1000.0),
    "SYS012": lambda p: (p.set(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), p.torch("2.13.0+cu126", "12.6")),
    "SYS013": lambda p: p.set(PYTORCH_ALLOC_CONF="expandable_segment:Yes"),
    "SYS014": lambda p: (
        p.torch("2.8.0+cu128", "12.8"),
        p.package("vllm", "0.10.2"),
        p.set(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
        p.wants("vllm"),
    ),
    "SYS015": lambda p: (p.set(MODEL_DOWNLOAD_TYPE="huggingface"), setattr(p, "frameworks", ["roll"])),
    "SYS016": lambda p: (p.set(CUDA_DEVICE_MAX_CONNECTIONS="8"), setattr(p, "frameworks", ["colossalai"])),
    "SYS017": lambda p: (
        p.contract(more='[[variables]]\nname = "CUDA_DEVICE_MAX_CONNECTIONS"\naccess = "set"\nvalue = "4"\n'),
        setattr(p, "frameworks", ["colossalai"]),
    ),
    "SYS019": lambda p: (p.machine.folder_at("/opt/open").chmod(0o777), p.set(PATH="/opt/open:/usr/bin:/bin")),
    "SYS020": lambda p: (
        os.chown(p.machine.folder_at("/tmp/torchinductor_ada"), 4242, 4242),
        p.set(USER="ada"),
        p.wants("torch-compile"),
    ),
    "SYS021": lambda p: p.machine.file(
        "/var/log/kern.log",
        "Nov 15 10:00:00 here kernel: [ 1.0] NVRM: Xid (PCI:0000:04:00): 79, pid=1, GPU has fallen off the bus.\n",
    ),
    "SYS022": lambda p: p.set(ACCELERATE_USE_FSDP="true"),
}
