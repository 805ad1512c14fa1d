"""What may be wrong with GPUs, drivers and environments."""

from __future__ import annotations

from tests.machines.altered import FOLDER, Changes
from tests.machines.parts import (
    CU12,
    ERROR,
    MIB,
    PCI,
    STRING,
    drivers,
    environment,
    fabric_manager,
    gpu,
    gpus,
    install,
    no_nvidia,
    system,
    xid,
)
from tests.machines.stacks import STACK, cu118, cu128, cu130, several, site


def mig_seven() -> Changes:
    """One H100 cut into seven instances."""
    parts = [
        {"uuid": f"MIG-00000000-0000-0000-0000-{i:012d}", "name": "1g.10gb", "memory_total": 9984 * MIB}
        for i in range(7)
    ]
    return Changes(system("ubuntu22"), gpus(gpu("h100", 0, mig=True, mig_devices=parts), driver="580.95.05"), cu130())


def mig_empty() -> Changes:
    """MIG is on and no instance was made."""
    return Changes(system("ubuntu22"), gpus(gpu("h100", 0, mig=True, mig_devices=[]), driver="580.95.05"), cu130())


def lost() -> Changes:
    """One of eight H100 has fallen off the bus."""
    cards = several("h100", 8)
    dead = {"index": 3, "gap": "GPU is lost (NVML 15)"}
    base = gpus(*cards, driver="580.95.05", switches=4)
    settings = {**base.answers['["nvml"]'], "gpus": [*cards[:3], dead, *cards[4:]]}
    line = "3,900,100,-;NVRM: Xid (PCI:0000:13:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    return Changes(
        system("ubuntu22", memory=2048), base, fabric_manager(True), cu130(), xid(line), Changes().say(settings, "nvml")
    )


def ecc_errors() -> Changes:
    """An A100 with uncorrected errors, a row that waits for a reset, and the Xids of it."""
    cards = several("a100-80", 8)
    cards[5] |= {"ecc_errors": 3, "remap_pending": True}
    lines = ("3,900,100,-;NVRM: Xid (PCI:0000:15:00): 48, pid=4711, name=python, DBE (double bit error)",
             "3,901,101,-;NVRM: Xid (PCI:0000:15:00): 63, pid=4711, name=python, Row Remapper")  # fmt: skip
    base = gpus(*cards, driver="580.95.05", switches=6)
    return Changes(system("ubuntu22", memory=2048), base, fabric_manager(True), cu130(), xid(*lines))


def no_manager() -> Changes:
    """8 x H100 with NVSwitches, and their manager does not run."""
    base = gpus(*several("h100", 8), driver="580.95.05", switches=4)
    return Changes(system("ubuntu22", memory=2048), base, fabric_manager(False), cu130())


def old_driver() -> Changes:
    """Driver 535 and torch cu130 on A100: too old for the wheel."""
    return Changes(system("ubuntu22"), gpus(*several("a100-80", 2), driver="535.274.02", cuda="12.2"), cu130())


def forward_compat() -> Changes:
    """Driver 535 with NVIDIA's compat libraries of 580 in front, on data-centre GPUs: that works."""
    path = "/usr/local/cuda/compat/libcuda.so.1"
    front = (
        Changes()
        .say(path, "library", "libcuda.so.1")
        .say("/usr/local/cuda-13.0/compat/libcuda.so.580.95.05", "real", path)
    )
    front.env(LD_LIBRARY_PATH="/usr/local/cuda/compat")
    return Changes(system("ubuntu22"), gpus(*several("a100-80", 2), driver="535.274.02", cuda="13.0"), cu130(), front)


def compat_geforce() -> Changes:
    """The same in front of a GeForce, where the compat libraries do not work."""
    path = "/usr/local/cuda/compat/libcuda.so.1"
    front = (
        Changes()
        .say(path, "library", "libcuda.so.1")
        .say("/usr/local/cuda-13.0/compat/libcuda.so.580.95.05", "real", path)
    )
    return Changes(system("ubuntu22"), gpus(gpu("rtx3090", 0), driver="535.274.02", cuda="13.0"), cu130(), front)


def halves() -> Changes:
    """The driver was upgraded and not reloaded: its two halves differ, and NVML refuses."""
    base = gpus(*several("a100-80", 4), driver="570.195.03", cuda="12.8")
    says = {"error": 18, "says": "Driver/library version mismatch"}
    return Changes(
        system("ubuntu22"),
        base,
        drivers("570.195.03", "12.8", library="580.95.05"),
        cu128(),
        Changes().say(says, "nvml"),
    )


def exclusive() -> Changes:
    """Two H100 in exclusive-process mode."""
    return Changes(system("rhel9"), gpus(*several("h100", 2, mode="exclusive_process"), driver="580.95.05"), cu130())


def held() -> Changes:
    """Somebody else's process holds nearly all memory of one GPU."""
    cards = several("a100-80", 4)
    cards[1] |= {
        "memory_free": 600 * MIB,
        "memory_used": 81320 * MIB,
        "processes": [{"pid": 4242, "used": 80000 * MIB}],
    }
    who = Changes().file("/proc/4242", {**FOLDER, "uid": 1001}).file("/proc/4242/cmdline", "python\0train.py\0")
    who.file("/proc/4242/stat", "4242 (python) S 1 1 1").file("/etc/passwd", "alice:x:1001:1001::/home/alice:/bin/sh\n")
    return Changes(system("ubuntu22"), gpus(*cards, driver="580.95.05"), cu130(), who)


def no_driver() -> Changes:
    """A card on the bus and no driver: a fresh install."""
    made = Changes(
        no_nvidia(),
        Changes().file(f"{PCI}/0000:10:00.0/vendor", "0x10de\n").file(f"{PCI}/0000:10:00.0/class", "0x030200\n"),
    )
    return Changes(system("debian13"), made, cu130())


def hidden() -> Changes:
    """CUDA_VISIBLE_DEVICES is empty: all GPUs are hidden."""
    return Changes(
        system("ubuntu22"),
        gpus(*several("h100", 2), driver="580.95.05"),
        cu130(),
        Changes().env(CUDA_VISIBLE_DEVICES=""),
    )


def half_installed() -> Changes:
    """An upgrade of torch that was stopped: pip's ~ folders, a METADATA that is missing."""
    broken = Changes().file(f"{site()}/~orch/x").file(f"{site()}/~orch-2.9.1+cu128.dist-info/METADATA", "")
    broken.file(f"{site()}/peft-0.21.0.dist-info/RECORD", "").remove(f"{site()}/peft-0.21.0.dist-info/METADATA")
    made = Changes(system("ubuntu22"), gpus(*several("a100-80", 2), driver="580.95.05"), cu130(), broken)
    made.files.pop(f"{site()}/peft-0.21.0.dist-info/METADATA")
    return made


def two_torches() -> Changes:
    """Two dist-info of torch in one folder."""
    twice = install(Changes(), site(), "torch", "2.9.1+cu128")
    return Changes(system("ubuntu22"), gpus(*several("a100-80", 2), driver="580.95.05"), cu130(), twice)


def cpu_torch() -> Changes:
    """The CPU build of torch beside two H100."""
    return Changes(
        system("ubuntu22"), gpus(*several("h100", 2), driver="580.95.05"), environment("2.13.0+cpu", None, **STACK)
    )


def wrong_abi() -> Changes:
    """flash-attn linked with the old C++ ABI beside a torch of the new one."""
    name = f"{site()}/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"
    header = {"needed": ["libc10.so", "libtorch.so", "libtorch_cuda.so", "libcudart.so.12", "libc.so.6"], "soname": None, "runpath": None,
              "rpath": False, "machine": "x86_64"}  # fmt: skip
    wrong = Changes().file(name).say(header, "elf", name)
    symbols = ["torchCheckFail", "torchInternalAssertFail", "_ZN3c105ErrorC", "_ZN3c107WarningC", "parseSchemaOrName"]
    wrong.say([ERROR + STRING[False]], "elf_text", name, ".dynstr", symbols)
    return Changes(
        system("ubuntu22"), gpus(*several("a100-80", 2), driver="580.95.05"), cu128(flash_attn="2.8.3"), wrong
    )


def old_numpy_torch() -> Changes:
    """numpy 2 beside a torch that was built against numpy 1."""
    return Changes(
        system("ubuntu22"), gpus(*several("a100-80", 2), driver="550.163.01", cuda="12.4"), cu118(numpy="2.2.6")
    )


def shadowed() -> Changes:
    """A toolkit's libraries on LD_LIBRARY_PATH in front of those of the wheels."""
    front = Changes().env(LD_LIBRARY_PATH="/usr/local/cuda-12.1/lib64")
    for names in CU12.values():
        for name in names:
            front.file(f"/usr/local/cuda-12.1/lib64/{name}")
    for folder, names in CU12.items():
        for name in names:
            header = {
                "needed": ["libnvJitLink.so.12"] if "cusparse" in name else [],
                "soname": name,
                "runpath": "$ORIGIN",
                "rpath": False,
                "machine": "x86_64",
            }
            front.say(header, "elf", f"{site()}/nvidia/{folder}/lib/{name}").say(
                header, "elf", f"/usr/local/cuda-12.1/lib64/{name}"
            )
    return Changes(system("ubuntu22"), gpus(*several("a100-80", 2), driver="580.95.05"), cu128(), front)
