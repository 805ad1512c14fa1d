"""Environment variables, and the hub that some of them describe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready import contracts
from gpuready.catalog.variables import is_asked_variable
from gpuready.model import Facts
from gpuready.probe import environment, hub
from gpuready.probe.hub import find_mount
from gpuready.system import AccessError, LiveHost
from tests.probe.fakes import Fake, by_key


def look(env):
    return by_key(environment.probe_environment(Fake(env=env)))


def test_those_that_matter():
    facts = look({"NCCL_DEBUG": "INFO", "RANK": "3", "LS_COLORS": "x", "LD_LIBRARY_PATH": "/a:/b", "EDITOR": "vi"})
    assert facts["env.names"].value == ("LD_LIBRARY_PATH", "NCCL_DEBUG", "RANK")
    assert facts["env.NCCL_DEBUG"].value == "INFO"
    assert "env.EDITOR" not in facts


def test_a_variable_that_is_not_set_is_absent_and_one_of_a_dark_machine_unknown():
    seen = Facts(environment.probe_environment(Fake(env={"RANK": "0"})))
    assert seen.value("env.NCCL_DEBUG") is None
    dark = Facts(environment.probe_environment(Fake(env=AccessError("not recorded"))))
    assert dark.fact("env.NCCL_DEBUG").gap == "not recorded"


def test_an_empty_value_is_a_value():
    assert look({"CUDA_VISIBLE_DEVICES": ""})["env.CUDA_VISIBLE_DEVICES"].value == ""


def test_a_vast_environment():
    """D38: ten thousand variables, two megabytes."""
    facts = look({f"JUNK_{i}": "x" * 200 for i in range(10_000)} | {"NCCL_DEBUG": "y" * 100_000})
    assert facts["env.names"].value == ("NCCL_DEBUG",)
    assert len(facts["env.NCCL_DEBUG"].value) == environment.MAX_VALUE_LENGTH


def test_every_variable_of_every_contract_is_looked_at():
    names = set()
    for row in contracts.list_contract_rows():
        contract = contracts.load_contract(row["framework"], row["version"], row.get("variant") or None)
        names |= {variable.name for variable in contract.variables}
    assert names and not {name for name in names if not is_asked_variable(name.rstrip("*"))}


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "PIP_INDEX_URL", "RAY_ADDRESS"])
def test_secrets_stay_at_the_door(name):
    """E01."""
    secret = "hf_" + "AbCdEf0123456789" * 2
    value = f"https://me:{secret}@example.org/simple" if name == "PIP_INDEX_URL" else secret
    facts = environment.probe_environment(LiveHost(environ={name: value}))
    assert secret not in repr(facts)


@given(st.dictionaries(st.text(min_size=1, max_size=12), st.text(max_size=30), max_size=10))
def test_whatever_is_set(env):
    facts = look(env)
    assert set(facts["env.names"].value) == {name for name in env if is_asked_variable(name)}


# -- the hub ------------------------------------------------------------------------------------------

MOUNTS = """\
22 27 0:20 / /proc rw,nosuid - proc proc rw
27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
31 27 8:17 / /data rw,relatime shared:2 - xfs /dev/sdb1 rw
33 27 0:45 / /data/nfs rw - nfs4 server:/export rw
35 27 8:33 / /my\\040disk rw - ext4 /dev/sdc1 rw
broken line
"""
DISK = {"total": 100, "free": 40, "free_inodes": 7}
FILES = {
    "/proc/self/mountinfo": MOUNTS,
    "/sys/devices/nvme0n1/nvme0n1p2/partition": "2",
    "/sys/devices/nvme0n1/queue/rotational": "0\n",
    "/sys/devices/sdb/sdb1/partition": "1",
    "/sys/devices/sdb/queue/rotational": "1\n",
}


def hubbed(env, disks=None, files=None, **given):
    host = Fake({**FILES, **(files or {})}, env=env, disks=disks or {"/": DISK}, **given)
    return by_key(hub.probe_hub(host))


@pytest.mark.parametrize(
    ("env", "cache"),
    [
        ({"HOME": "/home/ada"}, "/home/ada/.cache/huggingface/hub"),
        ({"HOME": "/home/ada", "XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HOME": "/home/ada", "HF_HOME": "/data/hf/"}, "/data/hf/hub"),
        ({"HOME": "/home/ada", "HF_HOME": "~/hf"}, "/home/ada/hf/hub"),
        ({"HOME": "/home/ada", "HF_HOME": "/x", "HF_HUB_CACHE": "/fast/models"}, "/fast/models"),
        ({"HOME": "/home/ada", "HUGGINGFACE_HUB_CACHE": "/old"}, "/old"),
    ],
)
def test_where_models_are_kept(env, cache):
    assert hubbed(env)["hub.cache"].value == cache


def test_no_home():
    """D39."""
    facts = hubbed({})
    assert facts["hub.cache"].gap == facts["disk.free"].gap == "neither HF_HOME nor HOME is set"
    assert set(facts) == set(hub.KEYS)


def test_the_nearest_folder_that_exists():
    facts = hubbed({"HOME": "/home/ada"}, {"/": DISK, "/home": {"total": 9, "free": 5}})
    assert facts["disk.path"].value == "/home"
    assert (facts["disk.total"].value, facts["disk.free"].value) == (9, 5)
    assert facts["disk.path"].source == "/home/ada/.cache/huggingface/hub"


def test_a_relative_cache():
    assert hubbed({"HF_HOME": "models"}, {"/": DISK, "/home/ada": DISK})["disk.path"].value == "/home/ada"


@pytest.mark.parametrize(
    ("env", "offline"),
    [
        ({}, False),
        ({"HF_HUB_OFFLINE": "1"}, True),
        ({"HF_HUB_OFFLINE": "0"}, False),
        ({"TRANSFORMERS_OFFLINE": "TRUE"}, True),
    ],
)
def test_offline(env, offline):
    assert hubbed({"HOME": "/h"} | env)["hub.offline"].value is offline


@pytest.mark.parametrize(
    ("env", "files", "there"),
    [
        ({}, {}, False),
        ({"HF_TOKEN": "hf_x"}, {}, True),
        ({}, {"/h/.cache/huggingface/token": "secret"}, True),
        ({"HF_TOKEN_PATH": "/t"}, {"/t": "secret"}, True),
        ({"HF_HUB_CACHE": "/fast"}, {"/h/.cache/huggingface/token": "secret"}, True),
    ],
)
def test_a_token_is_seen_and_never_read(env, files, there):
    host = Fake({**FILES, **files}, env={"HOME": "/h"} | env, disks={"/": DISK})
    facts = by_key(hub.probe_hub(host))
    assert facts["hub.token"].value is there
    assert "secret" not in repr(facts)
    assert not [a for a in host.asked if a[0] == "read" and "token" in a[1]]


LINKS = {"/sys/dev/block/259:2": "../../devices/nvme0n1/nvme0n1p2", "/sys/dev/block/8:17": "../../devices/sdb/sdb1"}


class Linked(Fake):
    """Follows the link of a partition before it goes up, as the kernel does."""

    def _read(self, path, limit=65536):
        for link, target in {"/sys/dev/block/259:2": "nvme0n1", "/sys/dev/block/8:17": "sdb"}.items():
            if path == f"{link}/../queue/rotational":
                path = f"/sys/devices/{target}/queue/rotational"
        return super()._read(path, limit)


@pytest.mark.parametrize(("home", "spins"), [("/home/ada", False), ("/data", True)])
def test_disks_that_spin(home, spins):
    host = Linked(FILES, env={"HF_HOME": home}, disks={"/": DISK, home: DISK}, links=LINKS)
    assert by_key(hub.probe_hub(host))["disk.rotational"].value is spins


def test_a_disk_of_another_machine():
    facts = hubbed({"HF_HOME": "/data/nfs/x"}, {"/": DISK, "/data/nfs": DISK})
    assert facts["disk.rotational"].gap == "nfs4 lies on no disk of this machine"


def test_no_mounts():
    facts = hubbed({"HOME": "/h"}, files={"/proc/self/mountinfo": AccessError("permission denied")})
    assert facts["disk.rotational"].gap == "permission denied"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/home", ("259:2", "ext4")),
        ("/", ("259:2", "ext4")),
        ("/data", ("8:17", "xfs")),
        ("/database", ("259:2", "ext4")),
        ("/data/nfs/a", ("0:45", "nfs4")),
        ("/my disk/x", ("8:33", "ext4")),
    ],
)
def test_mounts(path, found):
    assert (find_mount(MOUNTS, path)["device"], find_mount(MOUNTS, path)["type"]) == found
