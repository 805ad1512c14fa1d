"""The ledger of codes: given out in order, never reused, each with the module that judges it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from tarmac.model import Rule

LEDGER = {
    "GPU001": "gpu.no_gpu_visible",
    "GPU002": "gpu.visibility_hides_gpus",
    "GPU003": "gpu.visibility_truncates",
    "GPU004": "gpu.capability_not_in_wheel",
    "GPU005": "gpu.capability_below_framework_floor",
    "GPU006": "gpu.gpu_in_exclusive_mode",
    "GPU007": "gpu.mig_without_instance",
    "GPU008": "gpu.ecc_errors_uncorrected",
    "GPU009": "gpu.row_remap_pending",
    "GPU010": "gpu.pcie_link_narrow",
    "GPU011": "gpu.clocks_held_down",
    "GPU012": "gpu.power_limit_lowered",
    "GPU013": "gpu.gpu_lost",
    "GPU014": "gpu.gpu_count_differs",
    "GPU015": "gpu.fewer_gpus_than_job",
    "GPU016": "gpu.gpus_of_unequal_kind",
    "GPU017": "gpu.unified_memory_device_missing",
    "DRV001": "drv.driver_older_than_wheel",
    "DRV002": "drv.driver_and_library_differ",
    "DRV003": "drv.driver_below_framework_floor",
    "DRV004": "drv.driver_silent",
    "DRV005": "drv.libcuda_is_stub",
    "DRV006": "drv.driver_older_than_toolkit",
    "DRV007": "drv.driver_dropped_gpu",
    "DRV008": "drv.driver_predates_gpu",
    "DRV009": "drv.kernel_module_of_wrong_kind",
    "DRV010": "drv.fabric_manager_absent",
    "DRV011": "drv.compat_library_in_use",
    "DRV012": "drv.wsl_without_its_library",
    "DRV013": "drv.persistence_off",
    "BLD001": "bld.toolkit_torch_major_differs",
    "BLD002": "bld.toolkit_torch_minor_differs",
    "BLD003": "bld.build_tools_fall_short",
    "BLD004": "bld.nvcc_cannot_target_gpu",
    "BLD005": "bld.host_compiler_out_of_range",
    "BLD006": "bld.cuda_home_missing",
    "BLD007": "bld.cuda_home_wrong",
    "BLD008": "bld.build_without_torch",
    "BLD009": "bld.arch_list_excludes_gpu",
    "BLD010": "bld.arch_list_not_buildable",
    "BLD011": "bld.compiler_or_ninja_missing",
    "BLD012": "bld.python_headers_missing",
    "BLD013": "bld.tmp_unusable",
    "BLD014": "bld.too_many_jobs",
    "BLD015": "bld.stale_extension_lock",
    "BLD016": "bld.force_cuda_zero",
    "BLD017": "bld.build_ext_not_integer",
    "PKG001": "pkg.torch_is_cpu_only",
    "PKG002": "pkg.framework_or_torch_missing",
    "PKG003": "pkg.package_outside_pins",
    "PKG004": "pkg.python_outside_range",
    "PKG005": "pkg.accelerate_missing_for_device_map",
    "PKG006": "pkg.half_installed_or_duplicate",
    "PKG007": "pkg.torch_cuda_outside_pins",
    "PKG008": "pkg.contracts_cannot_share_environment",
    "PKG009": "pkg.lookalike_installed",
    "PKG010": "pkg.extension_of_other_cuda",
    "PKG011": "pkg.extension_of_other_abi",
    "PKG012": "pkg.flash_attn_does_not_fit",
    "PKG013": "pkg.xformers_does_not_fit",
    "PKG014": "pkg.bitsandbytes_lacks_cuda",
    "PKG015": "pkg.cudnn_below_need",
    "PKG016": "pkg.nccl_below_need",
    "PKG017": "pkg.library_shadowed",
    "PKG018": "pkg.triton_differs_from_torch",
    "PKG019": "pkg.torchvision_torchaudio_differ",
    "PKG020": "pkg.module_shadowed",
    "PKG021": "pkg.numpy_two_with_old_torch",
    "PKG022": "pkg.nvidia_wheels_mixed",
    "PKG023": "pkg.vllm_does_not_fit",
    "SYS001": "sys.shm_too_small",
    "SYS002": "sys.disk_too_small",
    "SYS003": "sys.os_unsupported",
    "SYS004": "sys.need_not_met",
    "MEM001": "mem.memory_below_job",
    "MEM002": "mem.memory_held_by_others",
    "CAP001": "cap.bf16_not_native",
    "CAP002": "cap.fp8_not_native",
}


def rule(code: str) -> Rule:
    """The rule behind one code. KeyError where the code was never given out."""
    module = f"tarmac.rules.{LEDGER[code]}"
    return __import__(module, fromlist=("CODE",))  # importlib would cost a millisecond more


def every() -> Iterator[Rule]:
    return (rule(code) for code in LEDGER)


def name(code: str) -> str:
    """``DRV001`` -> ``driver-older-than-wheel``."""
    return LEDGER[code].rpartition(".")[2].replace("_", "-")
