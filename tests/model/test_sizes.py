"""Sizes and counts: every reader agrees with the one parser, under the convention that it names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.commands.declaration import Parameter
from gpuready.commands.declaration import parse_count as parse_count_flag
from gpuready.containers.compose import _parse_docker_size
from gpuready.contracts.want import BYTE_UNITS, parse_quantity
from gpuready.contracts.when import parse_model_size
from gpuready.logs.conditions import parse_number
from gpuready.model.sizes import parse_count, parse_size
from gpuready.probe.machine import parse_meminfo_bytes
from gpuready.probe.nvidia_smi import _parse_smi_bytes
from gpuready.probe.stated_machine import parse_byte_size

WHOLE = st.integers(1, 10**6)


@pytest.mark.parametrize(
    ("text", "decimal", "binary"),
    [
        ("16GB", 16 * 10**9, 16 << 30),
        ("16 gb", 16 * 10**9, 16 << 30),
        ("16GiB", 16 << 30, 16 << 30),
        ("16g", 16 << 30, 16 << 30),
        ("1.5 MiB", 3 << 19, 3 << 19),
        (" 7 ", 7, 7),
        ("3 bytes", 3, 3),
        ("0.3", 0.3, 0.3),
    ],
)
def test_sizes(text, decimal, binary):
    assert parse_size(text) == decimal
    assert parse_size(text, 1024) == binary


@pytest.mark.parametrize(
    "text", ["", "GB", "-1GB", "1e3", "inf", "nan", "1_000", "1.2.3", ".5", "5.", "1 2", "7 XB", "\u0667", "9" * 99]
)
def test_what_is_no_size(text):
    assert parse_size(text) is None
    assert parse_size(text, 1024) is None
    assert parse_count(text) is None


@given(WHOLE, st.sampled_from(BYTE_UNITS))
def test_contracts_and_flags_use_powers_of_1000(number, unit):
    assert (
        parse_quantity(f"{number}{unit}")
        == parse_byte_size("--ram", f"{number}{unit}")
        == parse_size(f"{number}{unit}")
    )


@given(WHOLE, st.sampled_from(["kB", "MiB", "GiB", "MB", "GB"]))
def test_docker_torch_and_the_driver_use_powers_of_1024(number, unit):
    size = parse_size(f"{number} {unit}", 1024)
    assert size == _parse_docker_size(f"{number} {unit}", "shm_size", 1) == parse_number(f"{number}.00 {unit}")
    assert size == _parse_smi_bytes(f"{number} {unit}")
    assert size == parse_meminfo_bytes(f"MemTotal:   {number} {unit}\n", "MemTotal")


@given(st.floats(0.1, 999), st.sampled_from("kmbtKMBT"))
def test_counts_of_parameters(number, unit):
    text = f"{number:.1f}{unit}"
    assert parse_model_size(text) == parse_count(text)


@given(st.integers(1, 64))
def test_counts_of_tokens(number):
    assert parse_count_flag(Parameter("tokens", most=1 << 20), f"{number}k") == 1024 * number


@given(st.text(max_size=30))
def test_any_text_is_a_size_or_none(text):
    for base in (1000, 1024):
        assert (parse_size(text, base) or 0) >= 0
    assert (parse_count(text) or 0) >= 0
