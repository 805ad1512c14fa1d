"""CUDA_VISIBLE_DEVICES, as the driver reads it.

Each row of MEASURED was given to cuInit on driver 580.159.04 with one GPU, and shows how many it counted.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.model import Fact
from gpuready.probe import visibility
from gpuready.probe.visibility import parse_visible_devices
from gpuready.system import AccessError
from tests.every import every
from tests.probe.fakes import Fake, by_key
from tests.probe.samples import uuid

OWN = "GPU-833a5eea-6504-8683-5c2b-1bf44550ac3a"
BARE = OWN[4:]
SHORT = OWN[:12]
MEASURED = {
    None: 1, "": 0, "-1": 0, " ": 0, "0": 1, " 0": 1, "0 ": 1, "\t0": 1, "0\n": 1, "0,": 1, ",0": 0, ",,": 0,
    "0,,0": 1, "0,99": 1, "99,0": 0, "0,-1": 1, "-1,0": 0, "0,abc": 1, "abc,0": 0, "abc": 0, "0,0": 0,
    "0,99,0": 1, "0,abc,0": 1, "0,-1,0": 1, "0,0,99": 0, "0,99,99": 1, "0abc": 1, "0gpu,1": 1, "+0": 1,
    "-0": 1,
    "00": 1, "0x0": 1, "0x1": 1, "01": 0, "000,0": 0, "0,-0": 0, "0,+0": 0, "0.5": 1, "0;1": 1, "0 1": 1,
    "0-3": 1, "1e0": 0, "1": 0, "0,1": 1, "0,1,0": 1, "0 ,99": 1, "all": 0, "none": 0, "NoDevFiles": 0,
    "- 0": 0, "+ 0": 0, "+-0": 0, "--0": 0, "٠": 0, '"0"': 0, "'0'": 0,
    "4294967296": 1, "-4294967296": 1, "4294967295": 0, "4294967297": 0, "2147483648": 0, "0,4294967296": 0,
    "18446744073709551616": 0, "9999999999999999999999": 0, "-18446744073709551616": 0,
    OWN: 1, f"{OWN},{OWN}": 0, OWN.upper(): 1, f"gpu-{BARE}": 0, f"Gpu-{BARE[:8]}": 0, SHORT: 1, "GPU-8": 1,
    "GPU-": 0, "GPU": 0, BARE: 0, f" {OWN}": 0, f"{OWN} ": 1, f"{OWN}, {OWN}": 1, f"{OWN},0": 1,
    f"0,{OWN}": 1,
    f"{OWN},1": 1, f"{OWN},GPU-dead": 1, f"GPU-dead,{OWN}": 0, f"{OWN},abc": 1, f"{OWN},": 1, f",{OWN}": 0,
    f"{OWN},,{OWN}": 1, f"{OWN},{OWN},0": 0, f"{OWN},GPU-": 1, f"GPU-,{OWN}": 0, f"{OWN}x": 1, f"{OWN};x": 1,
    f"{OWN} x": 1, f"{SHORT},{OWN}": 0, f"{SHORT}x": 0, f"{SHORT}-": 1, f"{SHORT}6504": 1,
    f"{SHORT}-6504x": 0,
    f"{SHORT} 6504": 0, "GPU-x": 0, "GPU-8x": 0, f"GPU-{BARE.replace('-', '')}": 1, f"{OWN}-{BARE}": 1,
    f"GPU -{BARE[:8]}": 0, f"MIG-{BARE}": 1, f"MIG-{BARE[:8]}": 1, "MIG-8": 1, "MIG-x": 0,
    f"mig-{BARE[:8]}": 0,
    f"MIG-{OWN}": 0, f"MIG-{OWN}/0/0": 0, f"GPU-MIG-{BARE}": 0, f"{OWN},MIG-x": 1, "0,MIG-x": 1,
    f"{SHORT},MIG-{BARE[:8]}": 0, f"MIG-{BARE[:8]},{SHORT}": 0,
}  # fmt: skip


@every("value", MEASURED, ids=repr)
def test_as_measured(value):
    assert len(parse_visible_devices(value, 1, (OWN,)).shown) == MEASURED[value]


UUIDS = tuple(uuid(i) for i in range(4))


@pytest.mark.parametrize(
    ("value", "shown", "ignored"),
    [
        (None, (0, 1, 2, 3), ()),
        ("", (), ()),
        ("-1", (), ()),
        ("2,0", (2, 0), ()),
        ("3, 1", (3, 1), ()),
        ("0,99,1", (0,), ("99", "1")),
        ("0,abc,1", (0,), ("abc", "1")),
        ("0,-1,1", (0,), ("-1", "1")),
        ("abc", (), ("abc",)),
        ("99", (), ("99",)),
        ("-1,0", (), ("-1", "0")),
        ("0,1,0", (), ("0", "1", "0")),
        (UUIDS[2], (2,), ()),
        (f"{UUIDS[3]},{UUIDS[0]}", (3, 0), ()),
        (UUIDS[1][:12], (1,), ()),
        ("GPU-deadbeef", (), ("GPU-deadbeef",)),
        (f"{UUIDS[0]},1", (0,), ("1",)),
        (f"1,{UUIDS[0]}", (1,), (UUIDS[0],)),
    ],
)
def test_four_gpus(value, shown, ignored):
    found = parse_visible_devices(value, 4, UUIDS)
    assert (found.shown, found.ignored) == (shown, ignored)
    assert found.why


def test_a_beginning_that_fits_several():
    """C05: the ambiguity is told."""
    found = parse_visible_devices("GPU-0000", 4, UUIDS)
    assert found.shown == () and "several" in found.why


def test_what_is_wrong_is_said():
    assert parse_visible_devices("0,99", 4).why == "'99' is no GPU of this machine"
    assert "dropped in silence" in parse_visible_devices("0,99,1", 4).why
    assert "twice" in parse_visible_devices("0,0", 4).why
    assert "hides all GPUs" in parse_visible_devices("", 4).why
    assert "indices cannot follow" in parse_visible_devices(f"{UUIDS[0]},1", 4, UUIDS).why


def test_mig_devices_by_uuid():
    mig = [(1, "MIG-aaaaaaaa-0000-1111-2222-333333333333"), (1, "MIG-bbbbbbbb-0000-1111-2222-333333333333")]
    assert parse_visible_devices(mig[1][1], 4, UUIDS, mig).shown == (1,)
    assert parse_visible_devices("MIG-aaaa", 4, UUIDS, mig).shown == (1,)
    assert parse_visible_devices(f"{mig[0][1]},{mig[1][1]}", 4, UUIDS, mig).shown == (1, 1)
    assert parse_visible_devices("MIG-cccc", 4, UUIDS, mig).shown == ()


VALUES = st.one_of(
    st.text(max_size=30),
    st.lists(st.one_of(st.integers(-3, 12).map(str), st.sampled_from([*UUIDS, "", "abc", " 1"])), max_size=6).map(
        ",".join
    ),
)


@given(VALUES, st.integers(0, 8))
def test_it_never_shows_what_is_not_there(value, count):
    found = parse_visible_devices(value, count, UUIDS[:count])
    assert all(0 <= index < count for index in found.shown)
    assert len(set(found.shown)) == len(found.shown)
    assert set(found.ignored) <= set(value.split(","))


@given(st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True), VALUES)
def test_good_entries_keep_their_order_and_rubbish_only_ends_them(indices, rest):
    text = ",".join(map(str, indices))
    assert parse_visible_devices(text, 8).shown == tuple(indices)
    assert parse_visible_devices(f"{text},?,{rest}", 8).shown == tuple(indices)
    assert parse_visible_devices(f"{text},{indices[0]}", 8).shown == ()


@given(st.integers(0, 3), st.integers(1, 32))
def test_every_beginning_of_a_uuid_names_it_or_is_ambiguous(index, length):
    found = parse_visible_devices(UUIDS[index][: 4 + length], 4, UUIDS)
    assert found.shown == (index,) or (not found.shown and found.why)


@given(VALUES)
def test_without_gpus_nothing_is_shown(value):
    assert parse_visible_devices(value, 0).shown == ()


# -- facts --------------------------------------------------------------------------------------------


def facts(env, count=2, gap="", names=("A", "A"), mig=()):
    gpus = {
        "gpu.count": Fact("gpu.count", None if gap else count, "NVML", gap=gap),
        "gpu.uuid": Fact("gpu.uuid", UUIDS[:count], "NVML", gap=gap),
        "gpu.name": Fact("gpu.name", names, "NVML", gap=gap),
        "gpu.mig_devices": Fact("gpu.mig_devices", mig, "NVML", gap=gap),
    }
    return by_key(visibility.probe_visibility(Fake(env=env), gpus))


def test_nothing_set():
    found = facts({})
    assert set(found) == set(visibility.KEYS)
    assert found["gpu.visible"].value == (0, 1)
    assert found["visibility.cuda"].value is None
    assert found["visibility.others"].value == ()


def test_the_table():
    table = facts({"CUDA_VISIBLE_DEVICES": "1,7,0"})["visibility.cuda"].value
    assert table["value"] == "1,7,0"
    assert (table["shown"], table["ignored"]) == ((1,), ("7", "0"))


def test_hidden_gpus_are_known_even_where_the_count_is_not():
    found = facts({"CUDA_VISIBLE_DEVICES": ""}, gap="NVML: no answer within 20 s")
    assert found["gpu.visible"].value == () and not found["gpu.visible"].gap
    assert found["visibility.cuda"].value["why"] == "CUDA_VISIBLE_DEVICES hides all GPUs"


@pytest.mark.parametrize("value", [None, "0", "0,1", UUIDS[0]])
def test_otherwise_an_unknown_count_leaves_it_unknown(value):
    env = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    found = facts(env, gap="NVML: no answer within 20 s")
    assert found["gpu.visible"].gap == "NVML: no answer within 20 s"


@pytest.mark.parametrize("order", ["", "pci_bus_id", " PCI_BUS_ID", "junk"])
def test_an_order_that_cuda_does_not_know_stops_it(order):
    """Measured: cuInit answers with 101 and there is no device."""
    found = facts({"CUDA_DEVICE_ORDER": order})
    assert found["gpu.visible"].value == ()
    assert "neither FASTEST_FIRST nor PCI_BUS_ID" in found["visibility.cuda"].value["why"]


def test_indices_of_unlike_gpus_name_nothing_certain():
    """D51: CUDA numbers by speed unless it is told to go by the bus."""
    mixed = ("NVIDIA A100", "NVIDIA H100")
    assert "by speed" in facts({"CUDA_VISIBLE_DEVICES": "0"}, names=mixed)["gpu.visible"].gap
    ordered = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert facts(ordered, names=mixed)["gpu.visible"].value == (0,)
    assert facts({"CUDA_VISIBLE_DEVICES": "0"})["gpu.visible"].value == (0,)
    assert facts({"CUDA_VISIBLE_DEVICES": "1,0"}, names=mixed)["gpu.visible"].value == (1, 0)
    assert facts({"CUDA_VISIBLE_DEVICES": UUIDS[1]}, names=mixed)["gpu.visible"].value == (1,)


def test_a_mig_device_shows_its_gpu():
    mig = ({"gpu": 1, "uuid": "MIG-abcd0000-0000-0000-0000-000000000000"}, {"gpu": 0, "uuid": None})
    assert facts({"CUDA_VISIBLE_DEVICES": "MIG-abcd"}, mig=mig)["gpu.visible"].value == (1,)


def test_what_others_read_is_noted():
    env = {"NVIDIA_VISIBLE_DEVICES": "void", "HIP_VISIBLE_DEVICES": "0", "ZE_AFFINITY_MASK": "0.1"}
    found = facts(env)
    assert found["visibility.container"].value == "void"
    assert [row["name"] for row in found["visibility.others"].value] == ["HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"]


def test_an_environment_that_cannot_be_seen():
    class Dark(Fake):
        def _env(self, name):
            return AccessError("not recorded")

    gpus = {f"gpu.{n}": Fact(f"gpu.{n}", None, "x") for n in ("count", "uuid", "name", "mig_devices")}
    for fact in visibility.probe_visibility(Dark(), gpus):
        assert fact.gap == "not recorded"
