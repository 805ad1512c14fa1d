"""What is read on demand: the metadata of a named distribution, the variables of a user's contract."""

from __future__ import annotations

from gpuready.probe import environment, packages
from gpuready.probe.target_environment import TargetEnvironment
from tests.probe.fakes import Fake, by_key

SITE = "/v/lib/python3.11/site-packages"
WHO = TargetEnvironment("/v", "/v/bin/python", "venv", "3.11.7", (SITE,), "--python", "/v/pyvenv.cfg")
LICENSED = """\
Metadata-Version: 2.4
Name: sglang
License:                                  A Licence
        \n           1. Definitions.
        \t
Version: 0.5.23
Requires-Python: >=3.11
Requires-Dist: torch==2.14.1

Requires-Dist: nothing of the description
"""


def requires(files, *asked):
    return by_key(packages.probe_packages(Fake(files), WHO, asked))["python.requires"].value


def test_a_named_distribution_is_read_however_it_is_spelt():
    files = {f"{SITE}/kite_ml-1.2.dist-info/METADATA": "Name: kite-ml\nVersion: 1.2\nRequires-Dist: torch\n"}
    assert requires(files) == {}
    for spelling in ("kite-ml", "Kite_ML", "kite.ml"):
        assert requires(files, spelling)["kite-ml"]["requires_dist"] == ("torch",)


def test_a_name_that_is_not_installed_is_no_trouble():
    assert requires({f"{SITE}/x-1.dist-info/METADATA": "Name: x\n"}, "nowhere") == {}


def test_a_licence_with_blank_lines_does_not_end_the_headers():
    found = requires({f"{SITE}/sglang-0.5.23.dist-info/METADATA": LICENSED})["sglang"]
    assert found == {"requires_dist": ("torch==2.14.1",), "requires_python": ">=3.11", "version": "0.5.23"}


def test_the_frameworks_with_contracts_are_always_read():
    from gpuready import contracts

    assert {contracts.distribution_name(name) for name in contracts.list_frameworks()} <= set(packages.FRAMEWORKS)


def test_variables_are_kept_by_family_or_by_name():
    host = Fake({}, env={"KITE_STRING": "long", "NCCL_DEBUG": "INFO", "EDITOR": "ed"})
    assert by_key(environment.probe_environment(host))["env.names"].value == ("NCCL_DEBUG",)
    asked = by_key(environment.probe_environment(host, ["KITE_STRING", "KITE_TAIL"]))
    assert asked["env.names"].value == ("KITE_STRING", "NCCL_DEBUG")
    assert asked["env.KITE_STRING"].value == "long" and "env.EDITOR" not in asked
