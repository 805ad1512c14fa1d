"""Reports built by hand, for the screens under golden/."""

from __future__ import annotations

from gpuready.model import (
    NOT_STATED,
    Capability,
    Contract,
    Fact,
    Facts,
    Finding,
    FixStep,
    IgnoredFinding,
    PassedRule,
    Report,
    Requirement,
    UndecidedRule,
)

AXOLOTL = Contract("axolotl", "0.18.0", distribution="axolotl")
TRANSFORMERS = Contract("transformers", "5.22", distribution="transformers")
HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\u202egpu\u2066\u200b\udcff\ud800\x9b31m\n\tevil\x00"
CATALOGUE = "2026-11-15"


def facts(host: str = "gpu-07", otherwise: str = "nothing looked for it", **values: object) -> Facts:
    """``gpu__count=8`` becomes the fact gpu.count."""
    known = [Fact(key.replace("__", "."), value, f"/proc/{key}") for key, value in values.items()]
    return Facts(known, host, otherwise)


H100 = facts(
    gpu__count=8,
    gpu__name=("NVIDIA H100 80GB HBM3",) * 8,
    gpu__capability=("9.0",) * 8,
    gpu__memory=(85520809984,) * 8,
    gpu__nvlink=(18,) * 8,
    gpu__mig=("off",) * 8,
    os__pretty="Ubuntu 22.04 LTS",
    os__container="docker",
    compiler__gcc="12.3",
    compiler__ninja="1.11",
    toolkit__version=None,
    python__version="3.12",
    python__packages=212,
    package__torch="2.12.1+cu130",
    package__transformers="5.14.1",
    package__axolotl="0.18.0",
    system__shm=64 << 20,
    memory__total=2113600000 * 1024,
    nccl__version="2.29",
    net__interface="eth0",
    net__ib=(),
).with_facts(
    Fact("driver.version", "550.144.03", "/sys/module/nvidia/version"), Fact("torch.cuda", "13.0", "torch/version.py")
)


def holding(*families: tuple[str, int, tuple[str, ...]]) -> tuple[PassedRule, ...]:
    """So many rules of each family that hold, with what they read."""
    return tuple(PassedRule(f"{letters}{500 + i}", reads) for letters, count, reads in families for i in range(count))


def old_driver() -> Report:
    """The example of the design: one error, one warning, 39 rules that hold."""
    driver = Finding(
        "DRV003",
        "error",
        "the driver is older than the torch wheel needs",
        found=(H100.fact("driver.version"), H100.fact("torch.cuda")),
        needs=(Requirement("driver.version", ">=580", cite="CUDA 13.0 release notes, table 2"),),
        so="torch.cuda.is_available() is False; nothing runs on these GPUs",
        fix=(
            FixStep("install torch 2.12.1 built for cu126", safety="ask", note="no root needed"),
            FixStep("install driver 580 or newer and reboot", note="needs root"),
        ),
    )
    shm = Finding(
        "SYS004",
        "warning",
        "/dev/shm is smaller than data loaders and NCCL need",
        found=(Fact("system.shm", 64 << 20, "statvfs /dev/shm"),),
        needs=(Requirement("system.shm", ">=1GiB", level="recommended", cite="PyTorch, torch.multiprocessing"),),
        so="workers die with a bus error",
        fix=(
            FixStep(
                "start the container with a larger /dev/shm",
                run=("docker", "run", "--shm-size", "16g", "--gpus", "all", "an image with spaces", "bash"),
                safety="safe",
            ),
            FixStep("share the memory of the host"),
        ),
    )
    held = holding(
        ("GPU", 7, ("gpu.capability",)),
        ("DRV", 4, ("driver.version",)),
        ("BLD", 6, ("compiler.gcc", "toolkit.version")),
        ("PKG", 9, ("package.torch",)),
        ("SYS", 7, ("system.shm",)),
        ("NET", 6, ("nccl.version", "net.ib")),
    )
    return Report(AXOLOTL, H100, (driver, shm), judged=held, catalog=CATALOGUE)


def clear_h200() -> Report:
    known = facts(
        "h200-1",
        gpu__count=1,
        gpu__name=("NVIDIA H200",),
        gpu__capability=("9.0",),
        gpu__memory=(150754820096,),
        gpu__mig=("off",),
        driver__version="580.95.05",
        driver__cuda="13.0",
        os__pretty="Ubuntu 24.04.3 LTS",
        os__container=None,
        toolkit__version="13.0.88",
        compiler__gcc="13.3.0",
        compiler__ninja=None,
        python__version="3.12.3",
        python__packages=93,
        package__torch="2.11.0+cu130",
        package__transformers="5.22.0",
        system__shm=64 << 30,
        memory__total=128 << 30,
        memory__limit=64 << 30,
        job__parameters=7_000_000_000,
        job__wants=("fp8", "flash-attn"),
        nccl__version="2.28.9",
        net__interface="eth0",
        net__ib=("mlx5_0", "mlx5_1"),
    )
    held = holding(
        ("GPU", 5, ("gpu.capability", "gpu.memory")),
        ("DRV", 3, ("driver.version", "driver.cuda")),
        ("BLD", 2, ("compiler.gcc", "compiler.ninja")),
        ("PKG", 6, ("package.torch", "package.nothing")),
        ("MEM", 1, ("gpu.memory", "job.parameters")),
        ("CAP", 2, ("job.wants",)),
        ("SYS", 4, ("system.shm", "memory.limit")),
        ("NET", 1, ("net.ib",)),
    )
    note = Finding("CAP007", "info", "fp4 needs compute capability 10.0 and this GPU has 9.0")
    return Report(TRANSFORMERS, known, (note,), judged=held, catalog=CATALOGUE)


def proven() -> Report:
    base = clear_h200()
    ran = base.facts.with_facts(
        Fact("can.matmul", True, "prove", "run"),
        Fact("can.nccl", True, "prove", "run"),
        Fact("can.fp8", False, "prove", "run"),
        Fact("can.compile", None, "prove", "run", gap="ran past 60 s"),
    )
    contract = base.contract.replace(capabilities=(Capability("matmul", "required"),))
    return base.replace(facts=ran, contract=contract, findings=())


def no_gpu() -> Report:
    known = facts(
        "laptop",
        gpu__count=0,
        driver__version=None,
        os__pretty="Debian GNU/Linux 12 (bookworm)",
        python__version="3.11.7",
        python__packages=12,
        system__shm=8 << 30,
        memory__total=16_500_000_000,
    )
    finding = Finding(
        "GPU001",
        "error",
        "this machine has no GPU that the framework can use",
        found=(Fact("gpu.count", 0, "/sys/bus/pci/devices"),),
        needs=(Requirement("platform.name", "cuda|rocm", cite="the contract of transformers 5.22"),),
        so="nothing of the framework runs on a GPU here",
        fix=(FixStep("use a machine that has one"),),
    )
    held = holding(("PKG", 1, ("python.version",)), ("SYS", 2, ("system.shm",)))
    return Report(TRANSFORMERS, known, (finding,), judged=held, catalog=CATALOGUE)


def undecided() -> Report:
    hidden = Fact("gpu.capability", None, "libnvidia-ml.so.1", gap="permission denied")
    known = facts("locked", os__pretty="Rocky Linux 9.5", system__shm=1 << 30).with_facts(
        Fact("gpu.count", None, "libnvidia-ml.so.1", gap="NVML did not answer within 2 s"),
        hidden,
        Fact("driver.version", None, "/sys/module/nvidia/version", gap="permission denied"),
        Fact("memory.total", None, "/proc/meminfo", gap="permission denied"),
        Fact("python.packages", None, "/opt/env", gap="not readable"),
        Fact("compiler.gcc", None, "gcc", gap="it hung"),
    )
    unreadable = (
        UndecidedRule("GPU004", "error", "The GPU is older than the wheel has code for", (hidden,)),
        UndecidedRule("DRV001", "error", "NVML and the driver disagree", (known.fact("driver.version"),)),
        UndecidedRule("SYS009", "warning", "No swap is set up", (known.fact("memory.total"),)),
        UndecidedRule("BLD001", "warning", "gcc is too new for nvcc", (known.fact("compiler.gcc"),)),
    )
    return Report(TRANSFORMERS, known, undecided=unreadable, judged=holding(("SYS", 1, ("system.shm",))))


def ignored() -> Report:
    base = old_driver()
    reason = "the driver is upgraded tonight; ticket 4711"
    aside = (IgnoredFinding(base.findings[0], reason),)
    return base.replace(findings=base.findings[1:], ignored=aside, strict=True)


def stated() -> Report:
    known = Facts(
        [
            Fact("gpu.count", 8, "--on", "stated"),
            Fact("gpu.name", ("NVIDIA H100 80GB HBM3",) * 8, "catalogue: H100", "stated"),
            Fact("gpu.capability", ("9.0",) * 8, "catalogue: H100", "stated"),
            Fact("gpu.memory", (80 << 30,) * 8, "catalogue: H100", "stated"),
        ],
        "h100x8",
        NOT_STATED,
    )
    waits = tuple(
        UndecidedRule(code, "error", "It is wrong", (Fact(key, None, gap=NOT_STATED),))
        for code, key in [("DRV001", "driver.version"), ("PKG001", "torch.cuda"), ("PKG002", "torch.cuda")]
    )
    says = "no requirements of 0.19.0: needs from its metadata, gates from 0.18.0"
    contract = AXOLOTL.replace(version="0.19.0", says=says)
    return Report(contract, known, unstated=waits, judged=holding(("GPU", 3, ("gpu.capability",))))


def hostile() -> Report:
    """Every text that a machine, a file or a user can choose is an attack on the terminal, or endless."""
    endless = "x" * 300
    path = "/opt/" + "deep/" * 40 + "version.py"
    bad = Fact("gpu.name", (HOSTILE, endless), HOSTILE)
    known = facts(HOSTILE, gpu__count=2, gpu__name=(HOSTILE, endless), os__pretty=endless).with_facts(
        Fact("package.torch", HOSTILE, path), Fact("python.version", "日本語" * 30), Fact("system.shm", "lots")
    )
    finding = Finding(
        "GPU002",
        "error",
        f"a name is {HOSTILE} and {endless}",
        found=(bad, Fact(endless, 10**400, path), Fact("a.b", {"k": ((HOSTILE,),)}, HOSTILE)),
        needs=(Requirement(HOSTILE, f">={HOSTILE}", when=HOSTILE, cite=path),),
        so="日本語" * 60,
        fix=(FixStep(HOSTILE, run=("sh", "-c", HOSTILE, endless), note=endless), FixStep(endless, note=HOSTILE)),
    )
    return Report(
        Contract(HOSTILE, endless, variant=HOSTILE, says=HOSTILE),
        known,
        (finding, finding.replace(severity="warning"), finding.replace(severity="info")),
        undecided=(UndecidedRule("GPU003", "error", HOSTILE, (Fact("gpu.pci", None, gap=HOSTILE),)),),
        unstated=(UndecidedRule("GPU005", "error", endless, (Fact(endless, None, gap=NOT_STATED),)),),
        judged=(PassedRule("GPU006", ("gpu.name", endless)),),
        ignored=(IgnoredFinding(finding, HOSTILE),),
        catalog=HOSTILE,
    )


REPORTS = {
    build.__name__: build() for build in (old_driver, clear_h200, proven, no_gpu, undecided, ignored, stated, hostile)
}
