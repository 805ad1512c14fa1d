"""Machines as their drivers describe them: records of NVML, and the XML of nvidia-smi in its generations."""

from __future__ import annotations

from typing import Any

from tests.probe.fakes import BARE

GIB = 1 << 30
MIB = 1 << 20


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-1111-2222-3333-{index:012x}"


def record(index: int = 0, name: str = "NVIDIA H100 80GB HBM3", **changes: Any) -> dict[str, Any]:
    """One GPU as NVML gives it, a healthy H100 unless told otherwise."""
    return {
        "index": index,
        "name": name,
        "uuid": uuid(index),
        "pci": f"00000000:{index * 16 + 4:02x}:00.0",
        "memory_total": 80 * GIB,
        "memory_free": 79 * GIB,
        "memory_used": GIB,
        "capability": "9.0",
        "mode": "default",
        "persistence": True,
        "mig": False,
        "mig_devices": [],
        "ecc": True,
        "ecc_errors": 0,
        "remap_pending": False,
        "remap_failure": False,
        "recovery": 0,
        "pcie_gen": 5,
        "pcie_width": 16,
        "pcie_gen_max": 5,
        "pcie_width_max": 16,
        "power_limit": 700.0,
        "power_limit_default": 700.0,
        "throttle": ["gpu_idle"],
        "nvlink": 18,
        "nvlink_errors": 0,
        "processes": [],
        **changes,
    }


def answer(*gpus: dict[str, Any], driver: str = "580.95.05", cuda: str = "13.0") -> dict[str, Any]:
    return {"driver": driver, "cuda": cuda, "library": "/lib/libnvidia-ml.so.1", "gpus": list(gpus)}


def bus(count: int, vendor: str = "0x10de", kind: str = "0x030200") -> dict[str, str]:
    """GPUs on the PCI bus, at the addresses that the records have."""
    files = dict(BARE)
    for index in range(count):
        folder = f"/sys/bus/pci/devices/0000:{index * 16 + 4:02x}:00.0"
        files |= {f"{folder}/vendor": f"{vendor}\n", f"{folder}/class": f"{kind}\n"}
    return files


def machine(count: int, driver: str = "580.95.05", module: str = "Open Kernel Module for x86_64") -> dict[str, Any]:
    """The files of a machine with this many GPUs and a loaded driver."""
    banner = f"NVRM version: NVIDIA UNIX {module}  {driver}  Release Build  (builder@)\nGCC version: gcc 13.3.0\n"
    nodes = {f"/dev/nvidia{index}": "" for index in range(count)}
    return {
        **bus(count),
        **nodes,
        "/dev/nvidiactl": "",
        "/dev/nvidia-uvm": "",
        "/sys/module/nvidia/version": f"{driver}\n",
        "/proc/driver/nvidia/version": banner,
    }


def information(index: int, name: str, own: str | None = None) -> dict[str, str]:
    """What the kernel module lists of one GPU."""
    text = (
        f"Model: \t\t {name}\nIRQ:   \t\t 41\nGPU UUID: \t {own or uuid(index)}\nVideo BIOS: \t 96.00.a5\n"
        f"Bus Type: \t PCIe\nBus Location: \t 0000:{index * 16 + 4:02x}:00.0\nDevice Minor: \t {index}\n"
    )
    return {f"/proc/driver/nvidia/gpus/0000:{index * 16 + 4:02x}:00.0/information": text}


# -- nvidia-smi -q -x ---------------------------------------------------------------------------------


def smi_gpu(index: int = 0, **changes: str) -> str:
    """One <gpu> element; a change replaces the text of an element, or drops it where it is empty."""
    texts = {
        "product_name": "NVIDIA H200",
        "persistence_mode": "Enabled",
        "current_mig": "Disabled",
        "uuid": uuid(index),
        "pci_bus_id": f"00000000:{index * 16 + 4:02X}:00.0",
        "max_link_gen": "5",
        "current_link_gen": "5",
        "max_link_width": "16x",
        "current_link_width": "16x",
        "total": "143771 MiB",
        "used": "0 MiB",
        "free": "143156 MiB",
        "compute_mode": "Default",
        "current_ecc": "Enabled",
        "dram_uncorrectable": "0",
        "remapped_row_pending": "No",
        "remapped_row_failure": "No",
        "current_power_limit": "700.00 W",
        "default_power_limit": "700.00 W",
        "mig_devices": "None",
        "processes": "",
        "sw_power_cap": "Not Active",
        **changes,
    }
    return SMI_GPU.format(**texts)


SMI_GPU = """\
\t<gpu id="{pci_bus_id}">
\t\t<product_name>{product_name}</product_name>
\t\t<product_brand>NVIDIA</product_brand>
\t\t<display_mode>Requested functionality has been deprecated</display_mode>
\t\t<persistence_mode>{persistence_mode}</persistence_mode>
\t\t<mig_mode>
\t\t\t<current_mig>{current_mig}</current_mig>
\t\t\t<pending_mig>{current_mig}</pending_mig>
\t\t</mig_mode>
\t\t<mig_devices>
\t\t\t{mig_devices}
\t\t</mig_devices>
\t\t<uuid>{uuid}</uuid>
\t\t<minor_number>0</minor_number>
\t\t<pci>
\t\t\t<pci_bus_id>{pci_bus_id}</pci_bus_id>
\t\t\t<pci_gpu_link_info>
\t\t\t\t<pcie_gen>
\t\t\t\t\t<max_link_gen>{max_link_gen}</max_link_gen>
\t\t\t\t\t<current_link_gen>{current_link_gen}</current_link_gen>
\t\t\t\t</pcie_gen>
\t\t\t\t<link_widths>
\t\t\t\t\t<max_link_width>{max_link_width}</max_link_width>
\t\t\t\t\t<current_link_width>{current_link_width}</current_link_width>
\t\t\t\t</link_widths>
\t\t\t</pci_gpu_link_info>
\t\t</pci>
\t\t<fan_speed>N/A</fan_speed>
\t\t<clocks_event_reasons>
\t\t\t<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
\t\t\t<clocks_event_reason_sw_power_cap>{sw_power_cap}</clocks_event_reason_sw_power_cap>
\t\t</clocks_event_reasons>
\t\t<fb_memory_usage>
\t\t\t<total>{total}</total>
\t\t\t<reserved>616 MiB</reserved>
\t\t\t<used>{used}</used>
\t\t\t<free>{free}</free>
\t\t</fb_memory_usage>
\t\t<bar1_memory_usage>
\t\t\t<total>262144 MiB</total>
\t\t\t<used>1 MiB</used>
\t\t\t<free>262143 MiB</free>
\t\t</bar1_memory_usage>
\t\t<compute_mode>{compute_mode}</compute_mode>
\t\t<ecc_mode>
\t\t\t<current_ecc>{current_ecc}</current_ecc>
\t\t\t<pending_ecc>{current_ecc}</pending_ecc>
\t\t</ecc_mode>
\t\t<ecc_errors>
\t\t\t<volatile>
\t\t\t\t<sram_correctable>7</sram_correctable>
\t\t\t\t<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
\t\t\t\t<dram_uncorrectable>{dram_uncorrectable}</dram_uncorrectable>
\t\t\t</volatile>
\t\t\t<aggregate>
\t\t\t\t<dram_uncorrectable>55</dram_uncorrectable>
\t\t\t</aggregate>
\t\t</ecc_errors>
\t\t<remapped_rows>
\t\t\t<remapped_row_pending>{remapped_row_pending}</remapped_row_pending>
\t\t\t<remapped_row_failure>{remapped_row_failure}</remapped_row_failure>
\t\t</remapped_rows>
\t\t<gpu_power_readings>
\t\t\t<power_state>P0</power_state>
\t\t\t<current_power_limit>{current_power_limit}</current_power_limit>
\t\t\t<default_power_limit>{default_power_limit}</default_power_limit>
\t\t</gpu_power_readings>
\t\t<module_power_readings>
\t\t\t<current_power_limit>N/A</current_power_limit>
\t\t</module_power_readings>
\t\t<supported_clocks>
\t\t\t<supported_mem_clock>
\t\t\t\t<value>3201 MHz</value>
\t\t\t\t<supported_graphics_clock>1980 MHz</supported_graphics_clock>
\t\t\t</supported_mem_clock>
\t\t</supported_clocks>
\t\t<processes>{processes}
\t\t</processes>
\t</gpu>
"""

VERSIONS = "\t<driver_version>{driver}</driver_version>\n\t<cuda_version>{cuda}</cuda_version>\n"
RENAMED = (
    "\t<driver_version>{driver} [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]"
    "</driver_version>\n\t<cuda_version>{cuda} [Deprecated; will be removed in CUDA 14.0. "
    "Use CUDA UMD Version instead]</cuda_version>\n\t<kmd_version>{driver}</kmd_version>\n"
    "\t<cuda_umd_version>{cuda}</cuda_umd_version>\n"
)


def smi_xml(
    *gpus: str, driver: str = "580.159.04", cuda: str = "13.0", versions: str = VERSIONS, attached: int = -1
) -> str:
    """A whole answer of nvidia-smi -q -x."""
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
        "\t<timestamp>Sun Nov 15 00:50:46 2026</timestamp>\n"
        + versions.format(driver=driver, cuda=cuda)
        + f"\t<attached_gpus>{len(gpus) if attached < 0 else attached}</attached_gpus>\n"
        + "".join(gpus)
        + "\n</nvidia_smi_log>\n"
    )


OLD_V100 = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">
<nvidia_smi_log>
\t<timestamp>Tue Mar  7 10:11:12 2023</timestamp>
\t<driver_version>470.161.03</driver_version>
\t<cuda_version>11.4</cuda_version>
\t<attached_gpus>1</attached_gpus>
\t<gpu id="00000000:04:00.0">
\t\t<product_name>Tesla V100-SXM2-32GB</product_name>
\t\t<persistence_mode>Disabled</persistence_mode>
\t\t<mig_mode>
\t\t\t<current_mig>N/A</current_mig>
\t\t\t<pending_mig>N/A</pending_mig>
\t\t</mig_mode>
\t\t<mig_devices>
\t\t\tNone
\t\t</mig_devices>
\t\t<uuid>GPU-00000000-1111-2222-3333-000000000000</uuid>
\t\t<pci>
\t\t\t<pci_bus_id>00000000:04:00.0</pci_bus_id>
\t\t\t<pci_gpu_link_info>
\t\t\t\t<pcie_gen>
\t\t\t\t\t<max_link_gen>3</max_link_gen>
\t\t\t\t\t<current_link_gen>1</current_link_gen>
\t\t\t\t</pcie_gen>
\t\t\t\t<link_widths>
\t\t\t\t\t<max_link_width>16x</max_link_width>
\t\t\t\t\t<current_link_width>8x</current_link_width>
\t\t\t\t</link_widths>
\t\t\t</pci_gpu_link_info>
\t\t</pci>
\t\t<clocks_throttle_reasons>
\t\t\t<clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>
\t\t\t<clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown>
\t\t</clocks_throttle_reasons>
\t\t<fb_memory_usage>
\t\t\t<total>32510 MiB</total>
\t\t\t<used>3 MiB</used>
\t\t\t<free>32507 MiB</free>
\t\t</fb_memory_usage>
\t\t<compute_mode>Exclusive_Process</compute_mode>
\t\t<ecc_mode>
\t\t\t<current_ecc>Enabled</current_ecc>
\t\t\t<pending_ecc>Enabled</pending_ecc>
\t\t</ecc_mode>
\t\t<ecc_errors>
\t\t\t<volatile>
\t\t\t\t<single_bit>
\t\t\t\t\t<total>4</total>
\t\t\t\t</single_bit>
\t\t\t\t<double_bit>
\t\t\t\t\t<device_memory>2</device_memory>
\t\t\t\t\t<total>2</total>
\t\t\t\t</double_bit>
\t\t\t</volatile>
\t\t</ecc_errors>
\t\t<remapped_rows>N/A</remapped_rows>
\t\t<power_readings>
\t\t\t<power_limit>300.00 W</power_limit>
\t\t\t<default_power_limit>300.00 W</default_power_limit>
\t\t\t<enforced_power_limit>250.00 W</enforced_power_limit>
\t\t</power_readings>
\t\t<processes>
\t\t\t<process_info>
\t\t\t\t<pid>4242</pid>
\t\t\t\t<type>C</type>
\t\t\t\t<process_name>python &amp; friends</process_name>
\t\t\t\t<used_memory>1024 MiB</used_memory>
\t\t\t</process_info>
\t\t</processes>
\t</gpu>
</nvidia_smi_log>
"""

MIG_DEVICES = """<mig_device>
\t\t\t\t<index>0</index>
\t\t\t\t<gpu_instance_id>1</gpu_instance_id>
\t\t\t\t<compute_instance_id>0</compute_instance_id>
\t\t\t\t<fb_memory_usage>
\t\t\t\t\t<total>40448 MiB</total>
\t\t\t\t\t<used>298 MiB</used>
\t\t\t\t</fb_memory_usage>
\t\t\t</mig_device>
\t\t\t<mig_device>
\t\t\t\t<index>1</index>
\t\t\t\t<uuid>MIG-aaaaaaaa-1111-2222-3333-bbbbbbbbbbbb</uuid>
\t\t\t\t<gpu_instance_id>2</gpu_instance_id>
\t\t\t\t<compute_instance_id>0</compute_instance_id>
\t\t\t\t<fb_memory_usage>
\t\t\t\t\t<total>40448 MiB</total>
\t\t\t\t</fb_memory_usage>
\t\t\t</mig_device>"""
