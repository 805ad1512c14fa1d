"""Probes beyond the basic ones, grouped by the process they share.

Those of rare devices are imported only if there is something to probe: most machines have no
switches, no second vendor and no compiled extension. A probe that fails loses only its own facts.
"""

from collections.abc import Callable, Sequence
from typing import Any

from gpuready.model import Fact
from gpuready.probe import fact_helpers, network, workspace
from gpuready.probe.device_detection import DetectedDevices
from gpuready.probe.fact_helpers import DRIVER_PATHS, gap_facts, is_driver_loaded, read_if_present
from gpuready.probe.target_environment import TargetEnvironment
from gpuready.system import HostAccess

PCI_DEVICES = "/sys/bus/pci/devices"
SEARCHED_FOLDERS = f"{PCI_DEVICES}, /dev, /sys/module"


def extend_gpu_facts(host: HostAccess, facts: list[Fact], detected: DetectedDevices) -> list[Fact]:
    """Add NUMA nodes, NVSwitches and other vendors' accelerators to the GPU facts."""
    return [*_add_numa_facts(host, facts), *_fabric_facts(host, detected), *_accelerator_facts(host, detected)]


def _add_numa_facts(host: HostAccess, facts: list[Fact]) -> list[Fact]:
    if not next((fact.value for fact in facts if fact.key == "gpu.count" and not fact.gap), None):
        listed = next((fact for fact in facts if fact.key == "gpu.count"), None)
        gap = listed.gap if listed else "nobody has counted them"
        return [*facts, Fact("gpu.numa", None if gap else (), PCI_DEVICES, gap=gap)]
    from gpuready.probe import fabric

    return [*facts, *_probe_or_gaps(fact_helpers.NUMA, fabric.probe_gpu_numa, host, facts)]


def machine_network_facts(host: HostAccess) -> list[Fact]:
    return _probe_or_gaps(fact_helpers.NETWORK, network.probe_network, host)


def _fabric_facts(host: HostAccess, detected: DetectedDevices) -> list[Fact]:
    if not detected.signs:
        return _absent_or_gap_facts(fact_helpers.FABRIC, (0, "absent"), detected)
    from gpuready.probe import fabric

    return _probe_or_gaps(fact_helpers.FABRIC, fabric.probe_fabric, host, detected)


def _accelerator_facts(host: HostAccess, detected: DetectedDevices) -> list[Fact]:
    darwin = read_if_present(host.get_uname, default={}).get("system") == "Darwin"
    if not detected.others and not detected.foreign and not darwin:
        return _absent_or_gap_facts(fact_helpers.ACCELERATORS, (None, 0, None, None, None), detected)
    from gpuready.probe import accelerators

    return _probe_or_gaps(fact_helpers.ACCELERATORS, accelerators.probe_accelerators, host, detected)


def extend_target_facts(host: HostAccess, target: TargetEnvironment, facts: list[Fact]) -> list[Fact]:
    """Add the libraries that the target environment and its extensions would load."""
    return [*facts, *_cuda_library_facts(host, facts), *_extension_facts(host, target, facts)]


def _cuda_library_facts(host: HostAccess, facts: list[Fact]) -> list[Fact]:
    torch_cuda = next((fact for fact in facts if fact.key == "torch.cuda"), None)
    if torch_cuda is not None and torch_cuda.value is None:  # no torch, or one that loads nothing of CUDA
        values: tuple[Any, ...] = (None, None, None if torch_cuda.gap else {})
        pairs = zip(fact_helpers.LIBRARIES, values, strict=True)
        return [Fact(key, value, torch_cuda.source, gap=torch_cuda.gap) for key, value in pairs]
    from gpuready.probe import cuda_libraries

    return _probe_or_gaps(fact_helpers.LIBRARIES, cuda_libraries.probe_cuda_libraries, host, facts)


def _extension_facts(host: HostAccess, target: TargetEnvironment, facts: list[Fact]) -> list[Fact]:
    listed = next((fact for fact in facts if fact.key == "python.packages"), None)
    source = ", ".join(target.site) or target.prefix
    if listed is None or listed.gap:
        return gap_facts(fact_helpers.LINKAGE, listed.gap if listed else "no list of packages", source)
    if not {fact.key for fact in facts}.intersection(f"package.{name}" for name in fact_helpers.EXTENSIONS):
        return [Fact("extension.linked", {}, source)]
    from gpuready.probe import torch_extensions

    return _probe_or_gaps(fact_helpers.LINKAGE, torch_extensions.probe_extensions, host, target, facts)


def workspace_and_log_facts(host: HostAccess, target: TargetEnvironment) -> list[Fact]:
    """Folders on disks that may hang, the clock, and the kernel log."""
    return [
        *_probe_or_gaps(fact_helpers.WORKSPACE, workspace.probe_workspace, host, target),
        *_probe_or_gaps(fact_helpers.CACHES, workspace.probe_caches, host),
        *_kernel_log_facts(host),
    ]


def _kernel_log_facts(host: HostAccess) -> list[Fact]:
    if not is_driver_loaded(host):
        return [Fact("kernel.xids", (), f"no driver that could write one: {', '.join(DRIVER_PATHS)}")]
    from gpuready.probe import kernel_log

    return _probe_or_gaps(fact_helpers.KERNEL, kernel_log.probe_kernel_log, host)


# -- helpers ------------------------------------------------------------------------------------------


def _absent_or_gap_facts(wanted_keys: Sequence[str], values: Sequence[Any], detected: DetectedDevices) -> list[Fact]:
    """Without any detected device: absent facts, or gaps if detection could not read everything."""
    if detected.read_errors:
        return gap_facts(wanted_keys, "; ".join(detected.read_errors), SEARCHED_FOLDERS)
    return [Fact(key, value, SEARCHED_FOLDERS) for key, value in zip(wanted_keys, values, strict=True)]


def _probe_or_gaps(wanted_keys: Sequence[str], probe_function: Callable[..., list[Fact]], *args: Any) -> list[Fact]:
    try:
        return probe_function(*args)
    except Exception as error:
        return gap_facts(
            wanted_keys, f"the look failed: {type(error).__name__}: {error}"[:200], probe_function.__module__
        )
