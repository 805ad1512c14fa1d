"""The ledger of codes: given out in order, never reused, each with the module that judges it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tarmac.model import Facts, Rule

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
    "PKG024": "pkg.contract_contradicts_itself",
    "SYS001": "sys.shm_too_small",
    "SYS002": "sys.disk_too_small",
    "SYS003": "sys.os_unsupported",
    "SYS004": "sys.need_not_met",
    "SYS005": "sys.glibc_older_than_wheel",
    "SYS006": "sys.open_files_limit_low",
    "SYS007": "sys.memlock_low",
    "SYS008": "sys.hub_cache_not_writable",
    "SYS009": "sys.hub_cache_too_small",
    "SYS010": "sys.offline_flags_set",
    "SYS011": "sys.clock_wrong",
    "SYS012": "sys.allocator_variable_name",
    "SYS013": "sys.allocator_value_wrong",
    "SYS014": "sys.allocator_against_vllm",
    "SYS015": "sys.variable_outside_allowed",
    "SYS016": "sys.variable_overridden",
    "SYS017": "sys.variables_two_frameworks_differ",
    "SYS018": "sys.tracing_variable_left_on",
    "SYS019": "sys.path_unsafe",
    "SYS020": "sys.cache_of_another_user",
    "SYS021": "sys.kernel_reports_gpu_faults",
    "SYS022": "sys.accelerate_leftovers",
    "NET001": "net.interface_named_missing",
    "NET002": "net.interface_down",
    "NET003": "net.interface_is_virtual",
    "NET004": "net.infiniband_port_down",
    "NET005": "net.peermem_missing",
    "NET006": "net.rank_variables_contradict",
    "NET007": "net.master_port_invalid",
    "NET008": "net.master_address_loopback",
    "NET009": "net.hostname_resolves_to_loopback",
    "NET010": "net.p2p_disabled",
    "NET011": "net.rtx40_needs_p2p_off",
    "NET012": "net.gpus_fewer_than_local_world",
    "MEM001": "mem.memory_below_job",
    "MEM002": "mem.memory_held_by_others",
    "MEM003": "mem.host_memory_below_weights",
    "CAP001": "cap.bf16_not_native",
    "CAP002": "cap.fp8_not_native",
    "CAP003": "cap.fp16_slow_here",
    "CAP004": "cap.tf32_not_native",
    "CAP005": "cap.flash_attn_not_for_gpu",
    "CAP006": "cap.quantisation_not_for_gpu",
    "CAP007": "cap.triton_not_for_gpu",
    "CAP008": "cap.xformers_not_for_gpu",
    "CAP009": "cap.package_for_want_missing",
    "CAP010": "cap.fp8_moe_by_block_only",
    "CAP011": "cap.bf16_and_fp16_together",
    "CAP012": "cap.capability_not_on_platform",
}

RANKS = (
    "env.RANK",
    "env.LOCAL_RANK",
    "env.WORLD_SIZE",
    "env.LOCAL_WORLD_SIZE",
    "env.MASTER_PORT",
    "env.MASTER_ADDR",
)
BUILD = ("job.wants", "env.BUILD_EXT")
ALLOCATOR = ("env.PYTORCH_CUDA_ALLOC_CONF", "env.PYTORCH_ALLOC_CONF", "env.PYTORCH_HIP_ALLOC_CONF")
ANCHORS: dict[str, tuple[str, ...]] = {
    "GPU": ("gpu.count",),
    "GPU001": (),
    "GPU013": (),
    "DRV": ("gpu.count",),
    "DRV002": (),
    "DRV003": (),
    "DRV004": (),
    "DRV006": (),
    "BLD006": BUILD,
    "BLD008": BUILD,
    "BLD009": ("env.TORCH_CUDA_ARCH_LIST",),
    "BLD010": ("env.TORCH_CUDA_ARCH_LIST",),
    "BLD011": BUILD,
    "BLD012": BUILD,
    "BLD013": BUILD,
    "BLD014": BUILD,
    "BLD015": ("cache.locks",),
    "BLD016": ("env.FORCE_CUDA",),
    "BLD017": ("env.BUILD_EXT",),
    "PKG005": ("job.wants", "job.device_map"),
    "PKG008": ("contract.others",),
    "PKG010": ("extension.linked",),
    "PKG011": ("extension.linked",),
    "PKG012": ("package.flash-attn", "job.wants"),
    "PKG013": ("package.xformers",),
    "PKG014": ("package.bitsandbytes", "job.wants"),
    "PKG017": ("library.shadowed",),
    "PKG020": ("python.shadowed",),
    "PKG023": ("package.vllm",),
    "SYS007": ("net.ib",),
    "SYS010": ("hub.offline",),
    "SYS012": ALLOCATOR,
    "SYS013": ALLOCATOR,
    "SYS014": ALLOCATOR,
    "SYS017": ("contract.variables",),
    "SYS019": ("path.unsafe",),
    "SYS020": ("cache.inductor",),
    "SYS021": ("kernel.xids",),
    "NET001": ("env.NCCL_SOCKET_IFNAME", "env.GLOO_SOCKET_IFNAME"),
    "NET003": ("job.wants", *RANKS),
    "NET004": ("net.ib",),
    "NET005": ("net.ib",),
    "NET006": RANKS,
    "NET007": RANKS,
    "NET008": RANKS,
    "NET010": ("gpu.count",),
    "NET011": ("gpu.count",),
    "NET012": ("gpu.count",),
    "MEM001": ("gpu.count",),
    "MEM002": ("gpu.count",),
    "CAP": ("gpu.count",),
    "CAP009": ("job.wants",),
    "CAP010": ("job.wants",),
    "CAP011": ("job.wants",),
    "CAP012": ("job.wants",),
    "MEM003": ("job.parameters",),
}
"""The facts without which a rule, or a family of rules, has nothing to say: where all of them are known to be
absent, zero or empty, it need not even be imported."""


def rule(code: str) -> Rule:
    """The rule behind one code. KeyError where the code was never given out."""
    module = f"tarmac.rules.{LEDGER[code]}"
    return __import__(module, fromlist=("CODE",))  # importlib would cost a millisecond more


def every() -> Iterator[Rule]:
    return (rule(code) for code in LEDGER)


def anchors(code: str) -> tuple[str, ...]:
    return ANCHORS.get(code, ANCHORS.get(code[:3], ()))


def awake(facts: Facts) -> list[Rule]:
    """The rules that may have something to say here."""
    return [rule(code) for code in LEDGER if not _asleep(code, facts)]


def _asleep(code: str, facts: Facts) -> bool:
    keys = anchors(code)
    return bool(keys) and not any(_holds(facts, key) for key in keys)


def _holds(facts: Facts, key: str) -> bool:
    """Whether a fact is there, or may be. What nobody states of the job, or of other contracts, is not."""
    fact = facts.fact(key)
    if key.startswith(("job.", "contract.")) and key not in facts:
        return False
    return bool(fact.gap or fact.value)


def warm(enough: Callable[[], bool], gpu: bool = False) -> None:
    """Import the rules that every machine wakes, and those that a GPU does, until somebody has had enough."""
    likely = [code for code in LEDGER if not anchors(code)]
    likely += [code for code in LEDGER if gpu and "gpu.count" in anchors(code)]
    for code in likely:
        if enough():
            return
        rule(code)


def name(code: str) -> str:
    """``DRV001`` -> ``driver-older-than-wheel``."""
    return LEDGER[code].rpartition(".")[2].replace("_", "-")
