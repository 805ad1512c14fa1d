"""The variables for a framework on a machine: what is set, what stays the user's, and who wants it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuready import contracts
from gpuready.catalog import torch as torches
from gpuready.catalog import variables
from gpuready.contracts.variables import RENDEZVOUS_VARIABLES
from gpuready.model import Contract, ContractVariable, Fact, Facts
from gpuready.plan.variables import recommend_variables
from gpuready.probe import stated_machine

ALL = [(row["framework"], row["version"], row["variant"] or None) for row in contracts.list_contract_rows()]


def on(name="h100x8", **more) -> Facts:
    what_if = {k: v for k, v in more.items() if k in stated_machine.WHAT_IF_FLAGS}
    rest = {k.replace("__", "."): v for k, v in more.items() if k not in stated_machine.WHAT_IF_FLAGS}
    return stated_machine.stated_machine_facts(name, what_if).with_facts(*(Fact(k, v) for k, v in rest.items()))


def of(framework: str) -> Contract:
    return contracts.load_contract(*contracts.parse_contract_spec(framework))


def values(found) -> dict[str, str]:
    return {one.name: one.value for one in found.variables}


@pytest.mark.parametrize(
    ("torch", "name", "other"),
    [
        ("2.8.0", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        ("2.9.0", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.13.0", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
    ],
)
@pytest.mark.parametrize("framework", ["roll", "llama-factory", "unsloth"])
def test_the_allocator_has_the_name_that_this_torch_reads(framework, torch, name, other):
    found = values(recommend_variables(on(torch=torch), of(framework)))
    assert "expandable_segments:True" in found[name] and other not in found


@pytest.mark.parametrize("version", ["0.14", "0.16", "0.18", "0.21"])
@pytest.mark.parametrize("torch", [None, "2.8.0", "2.13.0"])
def test_what_the_command_computes_itself_is_left_to_it(version, torch):
    """With PYTORCH_ALLOC_CONF exported, axolotl's command sets PYTORCH_CUDA_ALLOC_CONF as well: its ``elif``."""
    found = recommend_variables(on(**({"torch": torch} if torch else {})), of(f"axolotl=={version}"))
    assert not any("ALLOC_CONF" in name for name in values(found))
    assert any("ALLOC_CONF" in one.name and "itself" in one.why for one in found.left)
    assert not any("ALLOC_CONF" in note for note in found.notes)


@pytest.mark.parametrize(
    ("kind", "words", "own"),
    [
        ("script", ("train.py",), False),
        ("program", ("axolotl", "train", "job.yml"), True),
        ("program", ("/opt/env/bin/axolotl", "train", "job.yml"), True),
        ("module", ("axolotl.cli.train", "job.yml"), True),
        ("program", ("accelerate", "launch", "-m", "axolotl.cli.train", "job.yml"), True),
        ("program", ("accelerate", "launch", "train.py"), False),
        ("module", ("my_job.train",), False),
    ],
)
def test_a_script_of_the_user_gets_what_the_command_would_set(kind, words, own):
    from gpuready.workflow.launch_job import runs_framework_command

    assert runs_framework_command(kind, words, "axolotl") is own
    result = recommend_variables(on(torch="2.13.0"), of("axolotl==0.21"), in_process=not own)
    assert ("PYTORCH_ALLOC_CONF" in values(result)) is not own


def test_no_written_value_stands_for_one_that_the_code_computes():
    """Every contract with a table of its release: what is exported has the value that the code itself has."""
    for framework, version, variant in ALL:
        contract = contracts.load_contract(framework, version, variant)
        own = {one.name for one in contract.variables if "own-default" in one.traits}
        assert not own & set(values(recommend_variables(on(torch="2.13.0"), contract)))


def test_without_torch_the_name_is_given_where_all_that_the_contract_takes_agree():
    """A variant of ROLL takes one torch; llama-factory takes those of both names."""
    assert "PYTORCH_ALLOC_CONF" in values(recommend_variables(on(), of("roll:torch291-vllm")))
    found = recommend_variables(on(), of("llama-factory"))
    assert not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & set(values(found))
    assert any("PYTORCH_CUDA_ALLOC_CONF" in note and "--as torch=" in note for note in found.notes)


def test_the_users_value_stays_and_is_reported():
    mine = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:512", "TOKENIZERS_PARALLELISM": "false"}
    found = recommend_variables(on(torch="2.13.0"), of("axolotl"), None, mine)
    assert "PYTORCH_ALLOC_CONF" not in values(found)
    (clash,) = found.conflicts
    assert (clash.name, clash.have) == ("PYTORCH_ALLOC_CONF", "max_split_size_mb:512")
    assert clash.wants == "expandable_segments:True" and "leaves yours" in clash.then and clash.cite
    states = {one.name: one.state for one in found.variables}
    assert states["TOKENIZERS_PARALLELISM"] == "held" and states["HF_XET_HIGH_PERFORMANCE"] == "set"


def test_an_empty_value_is_a_value():
    found = recommend_variables(on(torch="2.13.0"), of("axolotl"), None, {"PYTORCH_ALLOC_CONF": ""})
    assert [c.name for c in found.conflicts] == ["PYTORCH_ALLOC_CONF"]


def test_the_old_name_counts_for_a_new_torch():
    """torch 2.9 and newer still read the old variable where the new one is not set."""
    mine = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    found = recommend_variables(on(torch="2.13.0"), of("axolotl"), None, mine)
    assert [c.name for c in found.conflicts] == ["PYTORCH_CUDA_ALLOC_CONF"]
    assert "PYTORCH_ALLOC_CONF" not in values(found)
    older = recommend_variables(on(torch="2.8.0"), of("axolotl"), None, {"PYTORCH_ALLOC_CONF": "x"})
    assert "PYTORCH_CUDA_ALLOC_CONF" in {one.name for one in older.left} and not older.conflicts


def test_a_forced_value_wins_all_the_same_and_that_is_said():
    found = recommend_variables(on(), of("colossalai"), None, {"CUDA_DEVICE_MAX_CONNECTIONS": "8"})
    assert "all the same" in found.conflicts[0].then
    found = recommend_variables(on(), of("roll"), "worker", {"NCCL_NVLS_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1"})
    then = {c.name: c.then for c in found.conflicts}
    assert "all the same" in then["NCCL_NVLS_ENABLE"] and "leaves yours" in then["NCCL_CUMEM_ENABLE"]


def test_rolls_workers_and_engines_differ():
    worker = values(recommend_variables(on(torch="2.8.0"), of("roll"), "worker"))
    vllm = values(recommend_variables(on(torch="2.8.0"), of("roll"), "vllm"))
    sglang = values(recommend_variables(on(torch="2.8.0"), of("roll"), "sglang"))
    driver = values(recommend_variables(on(torch="2.8.0"), of("roll"), "driver"))
    assert worker["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert worker["TORCH_EXTENSIONS_DIR"] == "" and worker["NCCL_NVLS_ENABLE"] == "0"
    assert vllm["PYTORCH_CUDA_ALLOC_CONF"] == "" and vllm["VLLM_ALLREDUCE_USE_SYMM_MEM"] == "0"
    assert vllm["VLLM_USE_FLASHINFER_SAMPLER"] == "0" and vllm["NCCL_NVLS_ENABLE"] == "0"
    assert "VLLM_ALLREDUCE_USE_SYMM_MEM" not in worker
    assert "PYTORCH_CUDA_ALLOC_CONF" not in sglang and sglang["CUDA_DEVICE_MAX_CONNECTIONS"] == "4"
    assert driver == {"RAY_DEDUP_LOGS": "1", "MODEL_DOWNLOAD_TYPE": "MODELSCOPE"}
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in values(recommend_variables(on(torch="2.6.0"), of("roll"), "vllm"))
    assert recommend_variables(on(), of("roll")).role == "worker"


def test_roll_on_other_platforms():
    amd = Facts([Fact("platform.name", "rocm"), Fact("gpu.count", 8), Fact("package.torch", "2.10.0")])
    found = values(recommend_variables(amd, of("roll"), "worker"))
    assert found["PYTORCH_HIP_ALLOC_CONF"] and found["VLLM_ROCM_USE_AITER"] == "0"
    assert "PYTORCH_ALLOC_CONF" not in found and "NCCL_NVLS_ENABLE" not in found


@pytest.mark.parametrize(("framework", "role"), [("roll", "boss"), ("axolotl", "worker"), ("roll", "")])
def test_a_role_that_is_not_there(framework, role):
    with pytest.raises(ValueError, match="--role"):
        recommend_variables(on(), of(framework), role)


def test_a_machine_without_a_gpu_still_gets_the_variables():
    bare = Facts([Fact("gpu.count", 0), Fact("platform.name", "cpu"), Fact("package.torch", None)])
    assert "NCCL_NVLS_ENABLE" in values(recommend_variables(bare, of("roll")))
    assert "TOKENIZERS_PARALLELISM" in values(recommend_variables(bare, of("axolotl")))


# -- what the machine asks for --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "driver", "off"),
    [
        ("rtx4090x2", "535.104.05", True),
        ("rtx4090x2", "550.54.14", False),
        ("rtx4090", "535.104.05", False),
        ("a100x2", "535.104.05", False),
    ],
)
@pytest.mark.parametrize("framework", ["axolotl", "transformers"])
def test_rtx_40_cards_under_an_old_driver(framework, machine, driver, off):
    found = values(recommend_variables(on(machine, driver=driver, torch="2.13.0"), of(framework)))
    assert (found.get("NCCL_P2P_DISABLE") == "1") is off
    assert ("NCCL_IB_DISABLE" in found) is (off and framework == "transformers")


def test_the_driver_of_rtx_40_cards_is_not_known():
    found = recommend_variables(on("rtx4090x2", torch="2.13.0"), of("axolotl"))
    assert any("NCCL_P2P_DISABLE" in note for note in found.notes)


TOOLKITS = (
    {"path": "/usr/local/cuda-11.8", "version": "11.8", "nvcc": "/usr/local/cuda-11.8/bin/nvcc"},
    {"path": "/usr/local/cuda-12.1", "version": "12.1", "nvcc": "/usr/local/cuda-12.1/bin/nvcc"},
    {"path": "/usr/local/cuda-12.4", "version": "12.4", "nvcc": "/usr/local/cuda-12.4/bin/nvcc"},
    {"path": "/opt/runtime", "version": "12.4", "nvcc": None},
)


def test_the_toolkit_that_fits_torch():
    facts = on(torch="2.5.1+cu124", toolkit__others=TOOLKITS, job__wants=("build",))
    found = values(recommend_variables(facts, of("colossalai")))
    assert found["CUDA_HOME"] == "/usr/local/cuda-12.4" and found["TORCH_CUDA_ARCH_LIST"] == "9.0"
    for mine in ("/usr/local/cuda-12.1", "/usr/local/cuda-12.1/"):
        held = recommend_variables(facts, of("colossalai"), None, {"CUDA_HOME": mine})
        assert not held.conflicts and values(held)["CUDA_HOME"] == mine
    clash = recommend_variables(facts, of("colossalai"), None, {"CUDA_HOME": "/usr/local/cuda-11.8"}).conflicts
    assert [c.name for c in clash] == ["CUDA_HOME"]
    none = recommend_variables(on(torch="2.13.0", toolkit__others=TOOLKITS, job__wants=("build",)), of("colossalai"))
    assert "CUDA_HOME" not in values(none)


def test_the_architectures_only_where_something_is_built():
    facts = on("a100", torch="2.13.0")
    assert "TORCH_CUDA_ARCH_LIST" not in values(recommend_variables(facts, of("axolotl")))
    building = facts.with_facts(Fact("job.wants", ("build",)))
    assert values(recommend_variables(building, of("axolotl")))["TORCH_CUDA_ARCH_LIST"] == "8.0"
    covered = {"TORCH_CUDA_ARCH_LIST": "7.5 8.0+PTX"}
    assert not recommend_variables(building, of("axolotl"), None, covered).conflicts
    missed = recommend_variables(building, of("axolotl"), None, {"TORCH_CUDA_ARCH_LIST": "9.0"}).conflicts
    assert [c.name for c in missed] == ["TORCH_CUDA_ARCH_LIST"]


def test_jobs_where_the_memory_is_small():
    small = on(job__wants=("build",), host__cores_usable=64, memory__available=16 * 10**9)
    assert values(recommend_variables(small, of("transformers")))["MAX_JOBS"] == "6"
    large = small.with_facts(Fact("memory.available", 10**12))
    assert "MAX_JOBS" not in values(recommend_variables(large, of("transformers")))


CARDS = {
    "docker0": {"up": True, "kind": "bridge", "addresses": ["172.17.0.1"]},
    "eth0": {"up": True, "kind": "ethernet", "addresses": ["10.0.0.7"]},
    "ib0": {"up": False, "kind": "infiniband", "addresses": []},
}


def test_the_interface_only_where_the_default_leads_nowhere():
    alone = on(net__interface="docker0", net__interfaces=CARDS)
    assert "NCCL_SOCKET_IFNAME" not in values(recommend_variables(alone, of("transformers")))
    several = alone.with_facts(Fact("job.wants", ("multi-node",)))
    found = values(recommend_variables(several, of("transformers")))
    assert found["NCCL_SOCKET_IFNAME"] == found["GLOO_SOCKET_IFNAME"] == "eth0"
    slurm = values(recommend_variables(alone, of("transformers"), None, {"SLURM_JOB_NUM_NODES": "4"}))
    assert slurm["NCCL_SOCKET_IFNAME"] == "eth0"
    right = several.with_facts(Fact("net.interface", "eth0"))
    assert "NCCL_SOCKET_IFNAME" not in values(recommend_variables(right, of("transformers")))
    mine = recommend_variables(several, of("transformers"), None, {"NCCL_SOCKET_IFNAME": "bond0"})
    assert [c.name for c in mine.conflicts] == ["NCCL_SOCKET_IFNAME"]


def test_devices_are_hidden_only_for_a_reason():
    whole = on("a100x2", torch="2.13.0")
    assert "CUDA_VISIBLE_DEVICES" not in values(recommend_variables(whole, of("axolotl")))
    mixed = whole.with_facts(Fact("gpu.capability", ("8.0", "6.1", "8.0")))
    found = values(recommend_variables(mixed, of("axolotl")))
    assert found["CUDA_VISIBLE_DEVICES"] == "0,2" and found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    lost = whole.with_facts(Fact("gpu.lost", (1,)))
    assert values(recommend_variables(lost, of("axolotl")))["CUDA_VISIBLE_DEVICES"] == "0"
    chosen = recommend_variables(mixed, of("axolotl"), None, {"CUDA_VISIBLE_DEVICES": "1"})
    assert "CUDA_VISIBLE_DEVICES" not in values(chosen) and not chosen.conflicts


# -- for all contracts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ALL, ids=lambda r: ":".join(filter(None, r)))
@pytest.mark.parametrize("torch", [None, "2.6.0", "2.8.0", "2.13.0"])
def test_every_contract_gives_its_variables_with_reasons(row, torch):
    contract = contracts.load_contract(*row)
    facts = on(torch=torch) if torch else on()
    for role in [None, *variables.list_roles(contract.framework)]:
        found = recommend_variables(facts, contract, role)
        names = [one.name for one in found.variables]
        assert len(names) == len(set(names)) and not set(names) & set(RENDEZVOUS_VARIABLES)
        assert all(one.by and one.why and one.cite for one in found.variables)
        assert not found.conflicts
        if torch:
            wrong = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} - {torches.allocator_variable(torch)}
            assert not wrong & set(names)


NAMES = sorted({v.name for row in ALL for v in contracts.load_contract(*row).variables})


@settings(deadline=None)
@given(st.sampled_from(ALL), st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["", "0", "1", "x y"])))
def test_nothing_that_the_user_set_is_ever_changed(row, mine):
    found = recommend_variables(on(torch="2.13.0"), contracts.load_contract(*row), None, mine)
    for one in found.variables:
        assert one.name not in mine or mine[one.name] == one.value
    for clash in found.conflicts:
        assert mine[clash.name] != clash.wants
    assert not {c.name for c in found.conflicts} & {one.name for one in found.variables}


def test_the_roles_name_variables_of_their_contracts():
    from gpuready.catalog import load_catalog

    data = load_catalog("roles")
    known: dict[str, set[str]] = {}
    for row in ALL:
        known.setdefault(row[0], set()).update(v.name for v in contracts.load_contract(*row).variables)
    for row in data["role"]:
        assert {*row["variables"], *row.get("drops", ())} <= known[row["framework"]], row["name"]
    for row in (*data["emptied"], *data["passing"]):
        assert row["name"] in known[row["framework"]]
    every = set().union(*known.values())
    assert {row["name"] for row in (*data["meaning"], *data["gated"])} <= every


def test_a_secret_is_not_told():
    own = Contract("mine", "1", variables=(ContractVariable("HF_TOKEN", "set", "none", cite="x"),))
    (clash,) = recommend_variables(on(), own, None, {"HF_TOKEN": "hf_abcdef"}).conflicts
    assert "hf_abcdef" not in str(clash)
