"""Rules that a proof, a measurement or a fleet wakes, and the test that injects a fault there."""

from __future__ import annotations

_JUDGED, _PAIRS = "tests/fleet/test_verdict.py::test_", "tests/fleet/test_pair_search.py::test_"
_DRIFT = f"{_JUDGED}g04_drift_in_any_area_is_found_on_exactly_the_nodes_that_have_it"
_SMALL = f"{_JUDGED}a_clock_that_is_off_and_shared_memory_that_is_small"
ELSEWHERE = {
    "BLD018": "tests/rules/test_crossed_facts.py::test_the_assembler_of_triton_knows_the_gpu_or_not",
    "PKG042": "tests/imports/test_real_imports.py::test_a_broken_environment_is_judged_as_python_judges_it",
    "PKG043": "tests/imports/test_real_imports.py::test_a_broken_environment_is_judged_as_python_judges_it",
    "PKG044": "tests/imports/test_real_imports.py::test_a_broken_environment_is_judged_as_python_judges_it",
    "PKG046": "tests/imports/test_numpy_abi.py::test_a_module_for_numpy_one_is_judged_as_numpy_judges_it",
    "PKG048": "tests/apply/test_resolve_again.py::test_a_lock_that_check_would_refuse_is_chosen_again",
    "PKG047": "tests/imports/test_real_imports.py::test_three_findings_with_their_own_words",
    "PKG041": "tests/plan/test_agreement.py::test_a_described_machine_that_nothing_fits_is_not_clear",
    "SYS031": "tests/rules/test_crossed_facts.py::test_the_kernel_that_accelerate_recommends",
    "GPU021": "tests/prove/test_bench_judged.py::test_clocks_locked_low",
    "GPU022": "tests/prove/test_bench_judged.py::test_what_breaks_on_a_gpu_is_not_ready",
    "CAP016": "tests/prove/test_real.py::test_without_a_gpu_a_gpu_proof_is_absent_and_not_ready",
    "CAP013": "tests/prove/test_fold.py::test_c13_what_the_kernel_says_of_the_gpu_is_attached_to_what_broke_on_it",
    "CAP014": "tests/prove/test_runner.py::test_an_import_that_segfaults",
    "CAP015": "tests/prove/test_runner.py::test_an_import_that_hangs_shows_where",
    "FLT001": f"{_JUDGED}g01_dead_and_hung_nodes_are_named_apart_and_the_rest_is_complete",
    **dict.fromkeys(("FLT002", "FLT003", "FLT004", "FLT005", "FLT008"), _DRIFT),
    "FLT006": f"{_JUDGED}g05_an_upgrade_half_way_is_a_split_and_nobody_is_broken",
    "FLT007": f"{_JUDGED}a_node_that_lost_its_gpus_is_no_kind_of_its_own",
    **dict.fromkeys(("FLT009", "FLT010"), _SMALL),
    "FLT011": f"{_JUDGED}g08_a_node_eight_percent_slower_is_found_in_noise_and_nobody_else_is",
    "FLT012": f"{_JUDGED}g09_two_nodes_with_one_gpu_are_a_conflict",
    "FLT013": f"{_JUDGED}g07_a_check_that_fails_on_a_third_of_the_nodes_is_itself_in_question",
    "FLT014": f"{_JUDGED}g16_a_node_that_changes_its_mind_is_listed_and_the_worse_counts",
    "FLT015": f"{_JUDGED}a_check_that_fails_where_the_driver_differs_is_believed",
    "FLT016": f"{_PAIRS}three_rounds_are_exact_for_faults_that_always_show",
    "FLT017": f"{_PAIRS}links_are_links",
}
