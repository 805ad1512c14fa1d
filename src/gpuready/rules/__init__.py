"""The rules by their codes, which are assigned in order and never reused.

A rule is a module (``gpu/gpu_lost.py``). A rule that only a log can trigger stands in the file of its cause
(``catalog/causes/slurm-time-limit.toml``), which has the log patterns of all its codes: see ``log_rules``.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuready.model import Facts, Rule

FAMILIES = ("GPU", "DRV", "BLD", "PKG", "SYS", "NET", "MEM", "CAP", "RUN", "FLT")
"""In the order in which rules are listed."""

RULE_MODULES = {
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
    "GPU020": "gpu.nvlink_faulty",
    "GPU021": "gpu.gpu_slower_than_its_kind",
    "GPU022": "gpu.measurement_failed",
    "GPU023": "gpu.container_given_no_gpu",
    "GPU025": "gpu.recovery_action_due",
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
    "DRV014": "drv.image_newer_than_driver",
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
    "BLD018": "bld.ptxas_predates_gpu",
    "BLD022": "bld.arch_list_unreadable",
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
    "PKG041": "pkg.no_versions_fit",
    "PKG042": "pkg.import_fails",
    "PKG043": "pkg.files_differ_from_record",
    "PKG044": "pkg.requirement_not_met",
    "PKG045": "pkg.container_build_stops",
    "PKG046": "pkg.compiled_for_other_numpy",
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
    "SYS031": "sys.kernel_below_accelerate_floor",
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
    "MEM008": "mem.job_needs_more_memory_than_gpu",
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
    "CAP013": "cap.proof_failed",
    "CAP014": "cap.proof_crashed",
    "CAP015": "cap.proof_hung",
    "CAP016": "cap.capability_not_here",
    "CAP017": "cap.job_key_unknown",
    "CAP018": "cap.job_value_wrong",
    "FLT001": "flt.node_unreachable",
    "FLT002": "flt.driver_differs",
    "FLT003": "flt.software_differs",
    "FLT004": "flt.settings_differ",
    "FLT005": "flt.system_differs",
    "FLT006": "flt.fleet_is_split",
    "FLT007": "flt.gpus_missing",
    "FLT008": "flt.gpus_or_topology_differ",
    "FLT009": "flt.clocks_differ",
    "FLT010": "flt.memory_smaller",
    "FLT011": "flt.node_slower",
    "FLT012": "flt.nodes_claim_one_identity",
    "FLT013": "flt.widespread_check_in_question",
    "FLT014": "flt.node_changes_its_verdict",
    "FLT015": "flt.node_not_ready",
    "FLT016": "flt.node_fails_in_pairs",
    "FLT017": "flt.link_fails",
}

RANK_FACTS = (
    "env.RANK",
    "env.LOCAL_RANK",
    "env.WORLD_SIZE",
    "env.LOCAL_WORLD_SIZE",
    "env.MASTER_PORT",
    "env.MASTER_ADDR",
)
PROOF_FACTS = ("proof.results",)
BUILD_FACTS = ("job.wants", "env.BUILD_EXT")
ALLOCATOR_FACTS = ("env.PYTORCH_CUDA_ALLOC_CONF", "env.PYTORCH_ALLOC_CONF", "env.PYTORCH_HIP_ALLOC_CONF")
REQUIRED_FACTS: dict[str, tuple[str, ...]] = {
    "GPU": ("gpu.count",),
    "GPU001": (),
    "GPU013": (),
    "GPU021": ("bench.measures",),
    "GPU022": ("bench.measures",),
    "GPU023": ("container.gpus",),
    "DRV": ("gpu.count",),
    "DRV002": (),
    "DRV003": (),
    "DRV004": (),
    "DRV006": (),
    "DRV014": ("container.cuda",),
    "BLD006": BUILD_FACTS,
    "BLD008": BUILD_FACTS,
    "BLD009": ("env.TORCH_CUDA_ARCH_LIST",),
    "BLD010": ("env.TORCH_CUDA_ARCH_LIST",),
    "BLD011": BUILD_FACTS,
    "BLD012": BUILD_FACTS,
    "BLD013": BUILD_FACTS,
    "BLD014": BUILD_FACTS,
    "BLD015": ("cache.locks",),
    "BLD016": ("env.FORCE_CUDA",),
    "BLD017": ("env.BUILD_EXT",),
    "BLD018": ("gpu.count",),
    "BLD022": ("env.TORCH_CUDA_ARCH_LIST", "package.deepspeed"),
    "PKG005": ("job.wants", "job.device_map"),
    "PKG008": ("contract.others",),
    "PKG010": ("extension.linked",),
    "PKG011": ("extension.linked",),
    "PKG012": ("package.flash-attn", "job.wants"),
    "PKG013": ("package.xformers",),
    "PKG014": ("package.bitsandbytes", "job.wants"),
    "PKG017": ("library.shadowed",),
    "PKG020": ("python.shadowed", "import.hidden"),
    "PKG023": ("package.vllm",),
    "PKG042": ("import.damage", "import.hidden", "import.result"),
    "PKG043": ("import.damage",),
    "PKG044": ("import.damage",),
    "PKG045": ("container.refused",),
    "PKG046": ("import.damage",),
    "PKG041": ("contract.conflict",),
    "SYS007": ("net.ib",),
    "SYS010": ("hub.offline",),
    "SYS012": ALLOCATOR_FACTS,
    "SYS013": ALLOCATOR_FACTS,
    "SYS014": ALLOCATOR_FACTS,
    "SYS017": ("contract.variables",),
    "SYS019": ("path.unsafe",),
    "SYS020": ("cache.inductor",),
    "SYS021": ("kernel.xids",),
    "NET001": ("env.NCCL_SOCKET_IFNAME", "env.GLOO_SOCKET_IFNAME"),
    "NET003": ("job.wants", *RANK_FACTS),
    "NET004": ("net.ib",),
    "NET005": ("net.ib",),
    "NET006": RANK_FACTS,
    "NET007": RANK_FACTS,
    "NET008": RANK_FACTS,
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
    "CAP013": PROOF_FACTS,
    "CAP014": PROOF_FACTS,
    "CAP015": PROOF_FACTS,
    "CAP016": PROOF_FACTS,
    "CAP017": ("job.unknown_keys",),
    "CAP018": ("job.wrong_values",),
    "MEM003": ("job.parameters",),
    "MEM008": ("job.fit",),
    "FLT001": ("fleet.unreachable",),
    "FLT002": ("fleet.drift",),
    "FLT003": ("fleet.drift",),
    "FLT004": ("fleet.drift",),
    "FLT005": ("fleet.drift",),
    "FLT006": ("fleet.drift",),
    "FLT007": ("fleet.gpus",),
    "FLT008": ("fleet.drift",),
    "FLT009": ("fleet.clocks",),
    "FLT010": ("fleet.memory",),
    "FLT011": ("fleet.outliers",),
    "FLT012": ("fleet.conflicts",),
    "FLT013": ("fleet.widespread",),
    "FLT014": ("fleet.flaps",),
    "FLT015": ("fleet.codes",),
    "FLT016": ("fleet.suspects",),
    "FLT017": ("fleet.suspects",),
}
"""The facts that a rule, or a family of rules, requires. If all of them are known to be absent, zero or empty,
the rule is not even imported."""

_SUPPLIED_FAMILIES = ("job.", "contract.", "container.", "log.", "bench.", "proof.", "fleet.", "import.")
"""Families of facts that are not probed, or only where there is an environment: if not supplied, they are absent."""


def load_rule(code: str) -> Rule:
    """Load the rule of a code; KeyError for an unknown code."""
    if code not in RULE_MODULES:
        from gpuready.rules import log_rules

        return log_rules.LogRule(code)
    module = f"gpuready.rules.{RULE_MODULES[code]}"
    return import_module(module)


def load_all_rules() -> Iterator[Rule]:
    return (load_rule(code) for code in list_codes())


def list_codes() -> list[str]:
    """Return the codes of all rules, by family and number."""
    from gpuready.rules import log_rules

    codes = [*RULE_MODULES, *log_rules.load_log_rules()]
    return sorted(codes, key=lambda code: (FAMILIES.index(code[:3]), code))


def required_facts(code: str) -> tuple[str, ...]:
    if code not in RULE_MODULES:
        return ("log.signs",)
    return REQUIRED_FACTS.get(code, REQUIRED_FACTS.get(code[:3], ()))


def applicable_rules(facts: Facts) -> list[Rule]:
    """Return the rules that can have a finding for these facts."""
    codes = list_codes() if "log.signs" in facts else RULE_MODULES
    return [load_rule(code) for code in codes if not _cannot_apply(code, facts)]


def _cannot_apply(code: str, facts: Facts) -> bool:
    keys = required_facts(code)
    return bool(keys) and not any(_may_be_present(facts, key) for key in keys)


def _may_be_present(facts: Facts, key: str) -> bool:
    """Return whether a fact is present, or unknown and thus possibly present."""
    if key not in facts and key.startswith(_SUPPLIED_FAMILIES):
        return False
    fact = facts.fact(key)
    return bool(fact.gap or fact.value)


def preload_rules(should_stop: Callable[[], bool], gpu: bool = False) -> None:
    """Import the rules that every machine needs, and those that a GPU needs, until ``should_stop()``."""
    likely = [code for code in RULE_MODULES if not required_facts(code)]
    likely += [code for code in RULE_MODULES if gpu and "gpu.count" in required_facts(code)]
    for code in likely:
        if should_stop():
            return
        load_rule(code)


def rule_name(code: str) -> str:
    """Return ``driver-older-than-wheel`` for ``DRV001``."""
    if code not in RULE_MODULES:
        from gpuready.rules import log_rules

        return str(log_rules.load_log_rules()[code]["name"])
    return RULE_MODULES[code].rpartition(".")[2].replace("_", "-")
