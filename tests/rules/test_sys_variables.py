"""The environment that a job inherits: what contracts say of it, what was left in it."""

from __future__ import annotations

import pytest

from gpuready.model import UnknownFactError
from gpuready.rules import environment_variables
from gpuready.rules.sys import variables_two_frameworks_differ as two
from tests.rules.worlds import GAP, contract, env, facts, judged, variable

# -- what the rules share -----------------------------------------------------------------------------


def test_a_variable_is_unset_empty_or_has_a_value():
    known = facts(env(A=" 1 ", B="", C="  "))
    assert [environment_variables.read_variable(known, name) for name in "ABCD"] == ["1", None, None, None]
    with pytest.raises(UnknownFactError):
        environment_variables.read_variable(facts({}, env_names=GAP), "A")


@pytest.mark.parametrize(
    "text, number",
    [("8", 8), ("-1", -1), ("", None), (None, None), ("--5", None), ("1.5", None), ("x", None), ("9" * 30, None)],
)
def test_numbers_in_variables(text, number):
    assert environment_variables.parse_integer(text) == number


@pytest.mark.parametrize("text, on", [("1", True), ("0", False), ("2", True), ("yes", False), ("", False)])
def test_switches_are_numbers(text, on):
    assert environment_variables.is_switch_on(facts(env(X=text)), "X") is on


def test_long_values_are_cut():
    assert (
        environment_variables.quote_value("short") == "'short'"
        and len(environment_variables.quote_value("x" * 100)) < 50
    )


def test_only_variables_under_a_condition_that_holds():
    agreed = contract(variables=[variable("A"), variable("B", when="wants=fp8"), variable("C", when="os.name=ubuntu")])
    assert [v.name for v in environment_variables.variables_in_force(facts({}), agreed)] == ["A"], (
        "an unseen condition is none"
    )
    both = facts({"job.wants": ("fp8",), "os.name": "ubuntu"})
    assert [v.name for v in environment_variables.variables_in_force(both, agreed)] == ["A", "B", "C"]


# -- SYS015, SYS016, SYS017: variables of contracts ---------------------------------------------------


def test_a_word_that_the_framework_does_not_take():
    agreed = contract(
        variables=[
            variable("MODE", allowed=["fast", "safe"]),
            variable("OWN", "set", allowed=["a"]),
            variable("FREE"),
            variable("LATER", allowed=["1"], when="wants=fp8"),
            variable("BUILD_EXT", allowed=["0", "1"]),
        ]
    )
    values = env(MODE="FAST", OWN="z", FREE="z", LATER="z", BUILD_EXT="yes")
    found = judged("SYS015", values, agreed)
    assert found.severity == "warning" and found.says.endswith("MODE")
    assert found.fix[0].does == "set MODE to fast or safe, or unset it"
    assert "LATER" in judged("SYS015", values | {"job.wants": ("fp8",)}, agreed).says
    assert judged("SYS015", env(MODE="fast"), agreed) is None and judged("SYS015", env(MODE=""), agreed) is None


@pytest.mark.parametrize("traits, reported", [(("forced",), True), (("emptied-for-vllm",), False), ((), False)])
def test_only_what_the_framework_forces_is_lost(traits, reported):
    agreed = contract(variables=[variable("X", "set", value="1", traits=traits)])
    found = judged("SYS016", env(X="8"), agreed)
    assert (found is not None) is reported
    assert judged("SYS016", env(X="1"), agreed) is None and judged("SYS016", env(), agreed) is None


def test_the_shipped_contracts_say_which_value_wins():
    from gpuready import contracts

    colossal, roll = contracts.load_contract("colossalai"), contracts.load_contract("roll")
    found = judged("SYS016", env(CUDA_DEVICE_MAX_CONNECTIONS="8"), colossal)
    assert "sets CUDA_DEVICE_MAX_CONNECTIONS to 1" in found.says
    values = env(NCCL_NVLS_ENABLE="1", NCCL_CUMEM_ENABLE="1") | {"gpu.vendor": ("nvidia",)}
    found = judged("SYS016", values, roll)
    assert "NCCL_NVLS_ENABLE to 0" in found.says and "CUMEM" not in found.says


def test_two_frameworks_and_one_variable():
    mine = contract(variables=[variable("X", "set", value="1"), variable("Y", "set", value="1", when="wants=fp8")])
    other = contract(framework="other", variables=[variable("X", "set", value="4"), variable("Y", "set", value="2")])
    table = {"requirements.variables": two.variables_of_others(mine, [mine, other])}
    assert table["requirements.variables"] == {"other 1.0": {"X": "4", "Y": "2"}}
    found = judged("SYS017", table, mine)
    assert found.severity == "warning" and found.says == "set by demo and to another value by other 1.0: X"
    assert found.needs[0].want == "1"


def test_frameworks_that_agree_or_do_not_meet():
    mine = contract(variables=[variable("X", "set", value="1")])
    assert judged("SYS017", {"requirements.variables": {"other 1.0": {"X": "1", "Z": "9"}}}, mine) is None
    assert judged("SYS017", {"requirements.variables": {"demo 1.0": {"X": "9"}, "demo": {"X": "9"}}}, mine) is None
    assert judged("SYS017", {"requirements.variables": {}}, mine) is None and judged("SYS017", {}, mine) is None
    assert isinstance(judged("SYS017", {}, mine, requirements_variables=GAP), UnknownFactError)


# -- SYS018: tracing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables, reported",
    [
        ({"CUDA_LAUNCH_BLOCKING": "1"}, True),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, False),
        ({"NCCL_DEBUG": "trace"}, True),
        ({"NCCL_DEBUG": "INFO"}, False),
        ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, True),
        ({"TORCH_DISTRIBUTED_DEBUG": "INFO"}, False),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, True),
        ({}, False),
    ],
)
def test_what_was_set_for_a_search(variables, reported):
    found = judged("SYS018", env(**variables))
    assert (found.severity if found else None) == ("info" if reported else None)


def test_determinism_sets_launch_blocking_itself():
    values = env(CUDA_LAUNCH_BLOCKING="1", NCCL_DEBUG="TRACE") | {"job.wants": ("determinism",)}
    assert judged("SYS018", values).fix[0].does == "unset NCCL_DEBUG"


# -- SYS022: leftovers of accelerate ------------------------------------------------------------------

TRAINER = contract(framework="transformers")


@pytest.mark.parametrize(
    "variables, severity",
    [
        ({"ACCELERATE_USE_CPU": "true"}, "warning"),
        ({"ACCELERATE_USE_FSDP": "1"}, "warning"),
        ({"ACCELERATE_USE_FSDP": "false"}, None),
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, "info"),
        ({"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_DEEPSPEED": "true"}, "warning"),
        ({"ACCELERATE_USE_CPU": "true", "LOCAL_RANK": "0"}, None),
        ({"FSDP_VERSION": "2"}, None),
        ({}, None),
    ],
)
def test_leftovers(variables, severity):
    found = judged("SYS022", env(**variables), TRAINER)
    assert (found.severity if found else None) == severity
    assert judged("SYS022", env(**variables)) is None, "only frameworks that read them"


@pytest.mark.parametrize(
    "name, want",
    [("ACCELERATE_USE_FSDP", "fsdp2"), ("ACCELERATE_USE_DEEPSPEED", "deepspeed"), ("ACCELERATE_USE_CPU", "cpu")],
)
def test_what_the_job_asks_for_is_no_leftover(name, want):
    assert judged("SYS022", env(**{name: "true"}) | {"job.wants": (want,)}, TRAINER) is None
