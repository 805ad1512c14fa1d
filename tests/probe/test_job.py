"""What a job states, by its flags and by its file."""

from __future__ import annotations

import json
import time

import pytest

from gpuready import contracts
from gpuready.jobs import job_files
from gpuready.model import Fact, Facts
from gpuready.probe import job
from gpuready.probe.job import ALIASES, WANTS, parse_wants
from gpuready.system import AccessError
from gpuready.workflow.contract_choice import add_job_needs
from tests.deadlines import HANG_S
from tests.probe.fakes import Fake, by_key
from tests.probe.test_size import LLAMA

AXOLOTL = """\
base_model: NousResearch/Llama-3.2-1B
load_in_8bit: false
load_in_4bit: true
adapter: qlora
bf16: auto
tf32: true
flash_attention: true
plugins:
  - axolotl.integrations.liger.LigerPlugin
deepspeed: deepspeed_configs/zero2.json
fsdp:
"""
ROLL = """\
defaults:
  - ../config/deepspeed_zero@_here_
exp_name: "qwen2.5-7B-rlvr"
num_gpus_per_node: 8
pretrain: Qwen/Qwen2.5-7B
actor_train:
  model_args:
    dtype: bf16
    attn_implementation: fa2
  strategy_args:
    strategy_name: megatron_train
    strategy_config:
      tensor_model_parallel_size: 1
  device_mapping: list(range(0,8))
actor_infer:
  strategy_args:
    strategy_name: vllm
    strategy_config:
      tensor_parallel_size: 2
"""


def look(wants=None, model=None, config=None, files=None):
    host = Fake(files or {})
    file = (
        None
        if config is None
        else job_files.load_job_file(
            config, lambda path: host.read_text(path, job_files.MAX_FILE_BYTES + 1), "--config"
        )
    )
    facts = job.probe_job(host, wants, model, file)
    assert {f.how for f in facts} <= {"stated"}
    assert {f.key for f in facts} <= set(job.KEYS)
    return {key: fact.value for key, fact in by_key(facts).items()}


def refused(**requested):
    with pytest.raises(ValueError, match="--") as no:
        look(**requested)
    assert "\n" not in str(no.value)
    return str(no.value)


def test_a_job_that_says_nothing_states_nothing():
    assert look() == {}


# -- --wants ------------------------------------------------------------------------------------------


def test_wants():
    assert look(wants="fp8, Flash_Attn,fp8")["job.wants"] == ("fp8", "flash-attn")
    assert parse_wants("4bit,int8,fa2,compile") == ("bnb-4bit", "bnb-8bit", "flash-attn", "torch-compile")


def test_every_alias_leads_to_a_want_and_is_none_itself():
    assert set(ALIASES.values()) <= set(WANTS)
    assert not set(ALIASES) & set(WANTS)
    assert len(set(WANTS)) == len(WANTS)


def test_an_unknown_want_names_the_nearest():
    assert (
        refused(wants="bf16,flash-atn")
        == "--wants flash-atn is not known; nearest: flash-attn, flash-attn-4, flash-attn-3"
    )


@pytest.mark.parametrize("wants", ["", " , ,", ","])
def test_wants_that_name_nothing(wants):
    assert "names nothing" in refused(wants=wants)


def test_hostile_wants():
    assert "is not known" in refused(wants="$(reboot)")
    assert "is not known" in refused(wants="x" * 10_000)


def test_every_condition_of_every_contract_can_be_asked_for():
    """A contract that waits for a word nobody can say would never be in force."""
    asked = set()
    for row in contracts.list_contract_rows():
        contract = contracts.load_contract(row["framework"], row["version"], row.get("variant") or None)
        for item in (*contract.needs, *contract.capabilities, *contract.variables):
            for atom in item.when.split(","):
                name, _, words = atom.partition("=")
                if name.rstrip("!") == "wants":
                    asked |= {word.strip() for word in words.split("|")}
    assert asked and asked <= set(WANTS), sorted(asked - set(WANTS))


# -- --model ------------------------------------------------------------------------------------------


def test_models():
    assert look(model="7b") == {"job.parameters": 7 * 10**9}
    assert look(model="Qwen/Qwen2.5-1.5B") == {"job.parameters": 1_500_000_000, "job.model": "Qwen/Qwen2.5-1.5B"}


@pytest.mark.parametrize("path", ["/m/llama", "/m/llama/", "/m/llama/config.json"])
def test_a_model_of_files(path):
    files = {"/m/llama/config.json": json.dumps(LLAMA)}
    assert look(model=path, files=files)["job.parameters"] == 6_738_415_616


@pytest.mark.parametrize(
    ("model", "text", "words"),
    [
        ("gpt2", None, "names no size"),
        ("/m/x", None, "names no size"),
        ("/m", "not json", "/m/config.json line 1"),
        ("/m", "[]", "must be an object"),
        ("/m", '{"model_type": "mamba"}', "models of type 'mamba' cannot be counted"),
        ("/m", '{"model_type": "llama"}', "the config has no hidden_size"),
        ("/m", "[" * 20_000, "/m/config.json"),
        ("/m", '{"a": 1,\n "b": }', "line 2"),
    ],
)
def test_models_that_cannot_be_counted(model, text, words):
    files = {} if text is None else {"/m/config.json": text}
    assert words in refused(model=model, files=files)


def test_a_folder_without_config():
    assert "has no config.json" in refused(model="/m", files={"/m/weights.bin": ""})


def test_a_model_that_cannot_be_read():
    assert "permission denied" in refused(
        model="/m/config.json", files={"/m/config.json": AccessError("permission denied")}
    )


# -- --config -----------------------------------------------------------------------------------------


def test_axolotl():
    found = look(config="/j/a.yml", files={"/j/a.yml": AXOLOTL})
    assert set(found["job.wants"]) == {"bnb-4bit", "qlora", "tf32", "flash-attn", "liger", "deepspeed"}
    assert found["job.model"] == "NousResearch/Llama-3.2-1B"
    assert found["job.parameters"] == 10**9
    assert found["job.config"] == "/j/a.yml"


def test_roll():
    found = look(config="/j/r.yaml", files={"/j/r.yaml": ROLL})
    assert set(found["job.wants"]) == {"bf16", "flash-attn", "megatron", "vllm", "tensor-parallel"}
    assert found["job.gpus"] == 8
    assert found["job.parameters"] == 7 * 10**9


@pytest.mark.parametrize(
    ("rows", "gpus"),
    [
        ("distributed_type: FSDP\nnum_processes: 8", 8),
        ("distributed_type: MULTI_GPU\nnum_processes: 16\nnum_machines: 2", 8),
        ("distributed_type: DEEPSPEED\nnum_processes: 15\nnum_machines: 2", None),
        ("distributed_type: MULTI_CPU\nnum_processes: 8", None),
        ("distributed_type: MULTI_GPU\nuse_cpu: true\nnum_processes: 8", None),
        ("distributed_type: MULTI_GPU\nnum_processes: true", None),
        ("distributed_type: 'NO'", None),
    ],
)
def test_the_gpus_of_one_node_from_accelerates_processes(rows, gpus):
    files = {"/j/acc.yaml": f"compute_environment: LOCAL_MACHINE\n{rows}\n"}
    assert look(config="/j/acc.yaml", files=files).get("job.gpus") == gpus


def test_hugging_face_arguments():
    arguments = {"output_dir": "x", "bf16": True, "fp16": False, "torch_compile": True, "device_map": "auto",
                 "model_name_or_path": "gpt2", "fsdp": "full_shard", "optim": "adamw_torch"}  # fmt: skip
    found = look(config="/j/a.json", files={"/j/a.json": json.dumps(arguments)})
    assert set(found["job.wants"]) == {"bf16", "torch-compile", "fsdp"}
    assert found["job.device_map"] == "auto"
    assert found["job.model"] == "gpt2"
    assert "job.parameters" not in found


def test_fsdp_of_the_second_version():
    text = json.dumps({"fsdp_version": 2, "fsdp": ["auto_wrap"]})
    assert look(config="/j/a.json", files={"/j/a.json": text})["job.wants"] == ("fsdp2",)


def test_the_config_of_a_model():
    text = json.dumps(LLAMA | {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"})
    found = look(config="/m/config.json", files={"/m/config.json": text})
    assert found["job.parameters"] == 6_738_415_616
    assert found["job.wants"] == ("bf16",)


def test_a_model_beside_the_config():
    files = {"/j/a.yml": "base_model: /m/llama\n", "/m/llama/config.json": json.dumps(LLAMA)}
    assert look(config="/j/a.yml", files=files)["job.parameters"] == 6_738_415_616


def test_flags_and_file_together():
    found = look(wants="fp8", model="13b", config="/j/a.yml", files={"/j/a.yml": AXOLOTL})
    assert found["job.wants"][0] == "fp8" and "qlora" in found["job.wants"]
    assert found["job.parameters"] == 13 * 10**9


@pytest.mark.parametrize("value", ["auto", "false", "~", "no", "''", "0"])
def test_what_is_left_to_the_framework_states_nothing(value):
    assert "job.wants" not in look(config="/a.yml", files={"/a.yml": f"bf16: {value}\nflash_attention: {value}\n"})


def test_templates_state_nothing():
    assert "job.model" not in look(config="/a.yml", files={"/a.yml": "pretrain: ${oc.env:MODEL}\n"})


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("/a.yml", "a: [1,\nb: 2", "/a.yml line"),
        ("/a.yml", "- 1\n- 2\n", "must be a mapping"),
        ("/a.yml", "", "must be a mapping"),
        ("/a.yml", "a: !!python/object/apply:os.system ['id']\n", "line 1"),
        ("/a.yml", "a: \x00", "/a.yml"),
        ("/a.json", "{", "/a.json line 1"),
        ("/a.json", "7", "must be an object"),
        ("/a.json", "[" * 50_000, "/a.json"),
        ("/a.yml", "{" * 5_000, "/a.yml"),
        ("/a.yml", "x" * (2 << 20), "larger than 1 MiB"),
        ("/a.yml", "a: 2020-99-99\n", "/a.yml"),
    ],
)
def test_files_that_cannot_be_understood(path, text, words):
    """E04, E05: refused in a sentence with the file and the line; nothing in it is run."""
    assert words in refused(config=path, files={path: text})


def test_a_file_that_is_not_there_or_not_readable():
    assert "does not exist" in refused(config="/nowhere.yml")
    assert "permission denied" in refused(config="/a.yml", files={"/a.yml": AccessError("permission denied")})


def test_a_file_that_multiplies_itself():
    """E05: anchors within anchors; the file is small, what it means is not."""
    lines = ["a0: &a0 {bf16: true}"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    begun = time.monotonic()
    assert look(config="/a.yml", files={"/a.yml": "\n".join(lines)})["job.wants"] == ("bf16",)
    assert time.monotonic() - begun < HANG_S / 2


def test_a_python_file_states_its_plugin():
    text = "plugin = HybridParallelPlugin(tp_size=2, precision='bf16')\n"
    assert look(config="/t.py", files={"/t.py": text})["job.config"] == "/t.py"


def test_braces_in_yaml_are_read_as_json_or_as_yaml():
    for text in ("{bf16: true}", '{\t"bf16": true}'):
        assert look(config="/a.yml", files={"/a.yml": text})["job.wants"] == ("bf16",)


def test_settings_of_a_file_require_their_packages_of_every_framework():
    """Seen: ``check --config`` said *no problems found* for a job that ends at its first import of peft."""
    text = "model_name_or_path: m\nuse_peft: true\noptim: paged_adamw_8bit\nreport_to: [wandb, tensorboard]\n"
    rows = look(config="job.yaml", files={"job.yaml": text})["job.packages"]
    assert {row["because"]: row["packages"][0] for row in rows if "report" not in row["because"]} == {
        "use_peft: True": "peft",
        "optim: 'paged_adamw_8bit'": "bitsandbytes",
    }
    stated = (Fact("job.packages", rows, "job.yaml"), Fact("package.tensorboardx", "2.6"))
    for name in ("trl", "transformers"):
        needs = add_job_needs(contracts.load_contract(name), Facts(stated)).needs
        ours = {need.key: need for need in needs if need.cite.startswith("job.yaml, ")}
        assert ours.keys() >= {"package.wandb", "package.bitsandbytes", "package.tensorboardx"}, name
        assert "report_to: " in ours["package.wandb"].cite and ours["package.wandb"].level == "required"
        assert "package.tensorboard" not in ours, "one of them is there"
    off = "model_name_or_path: m\nuse_peft: false\noptim: adamw_torch\nreport_to: none\n"
    assert "job.packages" not in look(config="job.yaml", files={"job.yaml": off})
