"""Xids in the kernel's log: read where the kernel wrote them, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.probe import kernel_log, optional_probes
from gpuready.system import AccessError
from tests.probe.fakes import DENIED, Fake, by_key

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FAULT = "NVRM: Xid (PCI:0000:5E:00): 31, pid=4711, name=python, Ch 00000008, MMU Fault"
OLD = "NVRM: Xid (0000:03:00): 14, 000c 00000000"
DRIVER = {"/sys/module/nvidia/version": "580.95.05\n"}


def looked(logs, files=DRIVER):
    return by_key(kernel_log.probe_kernel_log(Fake(files, logs=logs)))["kernel.xids"]


def kmsg(*messages, priority=3):
    return {"/dev/kmsg": [f"{priority},{n},12345,-;{message}" for n, message in enumerate(messages)]}


def test_what_the_buffer_has():
    found = looked(kmsg("Linux version 6.8", LOST, FAULT, OLD))
    assert [(row["xid"], row["pci"]) for row in found.value] == [
        (79, "0000:3b:00.0"),
        (31, "0000:5e:00.0"),
        (14, "0000:03:00.0"),
    ]
    assert found.value[0]["line"] == LOST
    assert (found.source, found.gap) == ("/dev/kmsg", "")


BOOT, LOAD = "Linux version 6.8.0-45 (buildd@x)", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05"


@pytest.mark.parametrize(
    ("messages", "xids"),
    [((LOST, BOOT, FAULT), [31]), ((BOOT, LOAD, LOST), [79]), ((LOST, LOAD), []), ((LOST, f"x {BOOT}"), [79])],
)
def test_only_lines_since_the_last_boot_and_load_count(messages, xids):
    stamped = [f"Nov 15 03:06:11 gpu-07 kernel: [   {n}.1] {message}" for n, message in enumerate(messages)]
    assert [row["xid"] for row in looked(kmsg(*messages)).value] == xids
    assert [row["xid"] for row in looked({"/var/log/kern.log": stamped}).value] == xids


def test_a_line_of_a_mig_instance_names_its_gpu():
    line = "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
    assert looked(kmsg(line)).value[0]["pci"] == "0000:01:00.0"


def test_a_quiet_buffer():
    assert looked(kmsg("Linux version 6.8")).value == ()


@pytest.mark.parametrize("priority", [8, 11, 14, 1030, "x", ""])
def test_what_somebody_else_wrote_into_the_buffer_does_not_count(priority):
    assert looked(kmsg(LOST, priority=priority)).value == ()


@pytest.mark.parametrize("priority", [0, 3, 6, 7])
def test_what_the_kernel_wrote_counts(priority):
    assert len(looked(kmsg(LOST, priority=priority)).value) == 1


@pytest.mark.parametrize(
    "message",
    [
        "audit: NVRM: Xid (PCI:0000:3b:00): 79, forged in the middle",
        "NVRM: Xid (PCI:0000:3b:00): , no number",
        "NVRM: Xid (PCI:0000:3b:00): 123456, far too large",
        "NVRM: Xid (PCI:0000:3b:00",
        "NVRM: Xid (",
    ],
)
def test_what_is_no_xid(message):
    assert looked(kmsg(message)).value == ()


def test_a_line_is_cut():
    assert len(looked(kmsg(LOST + "x" * 5000)).value[0]["line"]) == 400


@pytest.mark.parametrize(
    "line",
    [
        f"Nov 15 03:06:11 gpu-07 kernel: [   12.345678] {LOST}",
        f"Nov 15 03:06:11 gpu-07 kernel: {LOST}",
        f"2026-11-15T03:06:11.123456+00:00 gpu-07 kernel: {LOST}",
        f"2026-11-15T03:06:11.123456+00:00 gpu-07 kernel: [12.3] {LOST}",
    ],
)
def test_the_log_on_disk(line):
    found = looked({"/dev/kmsg": DENIED, "/var/log/kern.log": [line]})
    assert found.value == ({"xid": 79, "pci": "0000:3b:00.0", "line": LOST},)
    assert found.source == "/var/log/kern.log"


@pytest.mark.parametrize(
    "line",
    [
        f"Nov 15 03:06:11 gpu-07 logger[12]: kernel: {LOST}",
        f"Nov 15 03:06:11 gpu-07 me: oh kernel: {LOST}",
        f"Nov 15 03:06:11 gpu-07 python: {LOST}",
        f"Nov 15 03:06:11 gpu-07 kernel: usb 1-1: Product: {LOST}",
        LOST,
    ],
)
def test_a_forged_line_in_the_log_on_disk(line):
    assert looked({"/var/log/kern.log": [line]}).value == ()


def test_the_other_log_on_disk():
    found = looked({"/var/log/messages": [f"Nov 15 03:06:11 gpu-07 kernel: {FAULT}"]})
    assert (found.value[0]["xid"], found.source) == (31, "/var/log/messages")


def test_denied_everywhere_is_a_gap():
    found = looked({"/dev/kmsg": AccessError("operation not permitted"), "/var/log/kern.log": DENIED})
    assert found.value is None
    assert found.gap == "/dev/kmsg: operation not permitted; /var/log/kern.log: permission denied"


def test_no_log_at_all_is_a_gap():
    assert looked({}).gap == "there is no log of the kernel here"


def test_without_a_driver_nobody_reads_a_log():
    host = Fake({"/dev/null": ""}, logs={"/dev/kmsg": [f"3,1,1,-;{LOST}"]})
    found = by_key(optional_probes._kernel_log_facts(host))["kernel.xids"]
    assert found.value == () and "/sys/module/nvidia" in found.source
    assert host.count("lines") == 0


@pytest.mark.parametrize("sign", ["/sys/module/nvidia/version", "/proc/driver/nvidia/version", "/dev/nvidiactl"])
def test_any_sign_of_a_driver_is_enough(sign):
    found = optional_probes._kernel_log_facts(Fake({sign: ""}, logs=kmsg(LOST)))
    assert len(found[0].value) == 1


def test_a_driver_that_cannot_be_seen_may_be_there():
    assert optional_probes._kernel_log_facts(Fake({"/sys/module/nvidia": DENIED}, logs={}))[0].gap


@given(st.lists(st.text(max_size=80), max_size=5))
def test_hostile_lines_do_no_harm(lines):
    noisy = tuple(f"3,1,1,-;NVRM: Xid ({line}" for line in lines)
    for own in (kernel_log._kmsg_message, kernel_log._syslog_message):
        for row in kernel_log.parse_xids(noisy + tuple(lines), own):
            assert isinstance(row["xid"], int)


def test_the_keys():
    assert tuple(f.key for f in kernel_log.probe_kernel_log(Fake(DRIVER))) == kernel_log.KEYS
