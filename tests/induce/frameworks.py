"""Ray, DeepSpeed, accelerate, bitsandbytes: their own ways of failing."""

from __future__ import annotations

from tests.induce.scripts import LLAMA, PLAIN
from tests.induce.stage import Provoke

RAY = """
import logging, os, sys, time
import ray
ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000, _temp_dir=os.environ["RAY_DIR"], %s)
"""
SHORT_DIR = {"RAY_DIR": "{job}/r", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
ENGINE = (
    PLAIN
    + """
import deepspeed
model = nn.Linear(64, 64)
settings = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}}
settings.update(SETTINGS)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
"""
)
ONE = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "28401",
    "DS_ACCELERATOR": "cpu",
    "TORCH_EXTENSIONS_DIR": "{room}/extensions",
}
"""One rank without a launcher. DeepSpeed compiles an extension at first, which the cases then share."""
TASK = """
@ray.remote
def rollout(prompt):
    return {"text": prompt}["reward"]

print(ray.get([rollout.remote(str(i)) for i in range(2)]))
"""
ACTOR = """
@ray.remote(num_cpus=1)
class Worker:
    def ready(self):
        return os.getpid()
    def fill(self):
        import numpy
        held = []
        while True:
            held.append(numpy.ones(1 << 24))
            time.sleep(0.02)
    def crash(self):
        os._exit(1)
"""


def engine(settings: str) -> str:
    """A script that sets DeepSpeed up with these settings."""
    return ENGINE.replace("SETTINGS", settings)


def with_ray(name: str, cause: str, decisive: str, source: str, options: str = "", **more: object) -> Provoke:
    script = RAY % options + source
    fields = {"env": SHORT_DIR, "deadline": 150, **more}
    return Provoke(name, cause, (decisive,), script, **fields)  # type: ignore[arg-type]


FRAMEWORKS = (
    with_ray("ray-task-keyerror", "not-environment", r"KeyError: 'reward'", TASK),
    with_ray("ray-gpu-pending", "ray-resources-pending", r"cannot be scheduled right now|No available node types can fulfill|pending", ACTOR + """
worker = Worker.options(num_gpus=1).remote()
ray.get(worker.ready.remote(), timeout=75)
"""),
    with_ray("ray-group-pending", "ray-resources-pending", r"No available node types can fulfill|cannot be scheduled right now|GetTimeoutError: ", """
from ray.util.placement_group import placement_group
print("placing 8 bundles of one GPU")
group = placement_group([{"GPU": 1, "CPU": 1}] * 8, strategy="PACK")
ray.get(group.ready(), timeout=20)
"""),
    with_ray("ray-memory-monitor", "ray-host-oom", r"killed due to the node running low on memory|OutOfMemoryError|memory pressure", ACTOR + """
worker = Worker.remote()
print("worker", ray.get(worker.ready.remote()))
ray.get(worker.fill.remote())
""", '_system_config={"memory_usage_threshold": 0.0001, "memory_monitor_refresh_ms": 100}', deadline=120),
    with_ray("ray-oom-killer", "ray-host-oom", r"OOM|SIGKILL|[Oo]ut of memory|died unexpectedly", ACTOR + """
worker = Worker.remote()
pid = ray.get(worker.ready.remote())
group = f"/sys/fs/cgroup/memory/induce-ray-{os.getpid()}"
os.mkdir(group)
open(group + "/memory.limit_in_bytes", "w").write("600M")
open(group + "/cgroup.procs", "w").write(str(pid))
ray.get(worker.fill.remote())
""", needs=("root",)),
    Provoke("ray-cluster-differs", "ray-version-incompatible", (r"Version mismatch",), """
import ray
ray.init(address="auto")
""", "ray start --head --num-cpus 1 --include-dashboard false --port {port} --temp-dir $PWD/r > head.log 2>&1; "
            "PYTHONPATH={other} RAY_ADDRESS=127.0.0.1:{port} python train.py; code=$?; exit $code", also="ray-2.59",
            env={"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": ""}, deadline=150),
    with_ray("ray-healthy", "healthy", r"done \[1, 2\]", """
@ray.remote(max_retries=2)
def score(x):
    if x == 2 and not os.path.exists(os.environ["RAY_DIR"] + "-seen"):
        open(os.environ["RAY_DIR"] + "-seen", "w").close()
        os._exit(1)
    return x

print("done", ray.get([score.remote(1), score.remote(2)]))
""", ends="ok"),
    Provoke("deepspeed-batch", "not-environment", (r"Check batch related parameters",), engine('{"train_batch_size": 30, "gradient_accumulation_steps": 4}'),
            env=ONE, deadline=300, variant="own configuration"),
    Provoke("deepspeed-unknown-field", "not-environment", (r"ValidationError|[Vv]alidation error|Extra inputs|extra fields",), engine(
            '{"zero_optimization": {"stage": 7}}'), env={**ONE, "MASTER_PORT": "28402"}, deadline=300, variant="own configuration"),
    Provoke("deepspeed-config-missing", "not-environment", (r"does not exist|Expected a string path|not a (dict|file)|FileNotFoundError|JSON",), PLAIN + """
import deepspeed
model = nn.Linear(4, 4)
deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_zero9.json")
""", env={**ONE, "MASTER_PORT": "28403"}, deadline=300, variant="own configuration"),
    Provoke("deepspeed-loss-scale", "fp16-overflow", (r"[Ll]oss scale already at minimum",), engine('{"fp16": {"enabled": True, '
            '"initial_scale_power": 4, "hysteresis": 1, "min_loss_scale": 1, "loss_scale_window": 2}, "zero_optimization": {"stage": 2}}') + """
for step in range(40):
    data = torch.full((4, 64), 3e4, dtype=torch.float16)
    engine.backward((engine(data).float() ** 4).mean() * 1e8)
    engine.step()
""", env={**ONE, "MASTER_PORT": "28404"}, deadline=300),
    Provoke("deepspeed-rank-fails", "not-environment", (r"IndexError: list index out of range",), PLAIN + """
torch.distributed.init_process_group("gloo")
log.info("rank %d ready", rank)
torch.distributed.barrier()
if rank == 1:
    [][3]
torch.distributed.barrier()
""", "deepspeed --no_local_rank --num_accelerators 2 --master_addr 127.0.0.1 --master_port {port} train.py", rank=1, env={"DS_ACCELERATOR": "cpu"}, deadline=150),
    Provoke("accelerate-rank-fails", "not-environment", (r"ZeroDivisionError",), PLAIN + """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
accelerator.print("accelerator", accelerator.state)
accelerator.wait_for_everyone()
if accelerator.process_index == 1:
    1 / 0
accelerator.wait_for_everyone()
""", "accelerate launch --multi_gpu --num_processes 2 --main_process_ip 127.0.0.1 --main_process_port {port} train.py", rank=1, deadline=150),
    Provoke("accelerate-bad-config", "not-environment", (r"config.*(unknown keys|keys)|ValueError",), PLAIN,
            "accelerate launch --config_file config.yaml train.py", files={"config.yaml": "compute_environment: LOCAL_MACHINE\nnum_procs: 4\nmixed_precison: bf16\n"},
            variant="own configuration"),
    Provoke("accelerate-device-map-ddp", "device-map-vs-ddp", (r"device_map=.auto.|device_map",), LLAMA + """
from accelerate import Accelerator, dispatch_model
accelerator = Accelerator(cpu=True)
model = LlamaForCausalLM(config)
model.hf_device_map = {"model.embed_tokens": "cpu", "model.layers": "disk", "model.norm": "cpu", "lm_head": "cpu"}
accelerator.prepare(model)
""", "accelerate launch --multi_gpu --num_processes 2 --main_process_ip 127.0.0.1 --main_process_port {port} train.py", deadline=150),
    Provoke("bnb-moved", "quantized-model-moved", (r"`?\.?(to|half|float|cuda)\(?\)?`? is not supported for|cannot cast a bitsandbytes",), LLAMA + """
from transformers import BitsAndBytesConfig
LlamaForCausalLM(config).save_pretrained("model")
quantised = LlamaForCausalLM.from_pretrained("model", quantization_config=BitsAndBytesConfig(load_in_8bit=True), device_map={"": "cpu"})
log.info("quantised")
quantised.to(torch.float16)
""", deadline=120),
    Provoke("bnb-moved-4bit", "quantized-model-moved", (r"`?\.?(to|half|float|cuda)\(?\)?`? is not supported for|cannot cast a bitsandbytes",), LLAMA + """
from transformers import BitsAndBytesConfig
LlamaForCausalLM(config).save_pretrained("model")
quantised = LlamaForCausalLM.from_pretrained("model", quantization_config=BitsAndBytesConfig(load_in_4bit=True), device_map={"": "cpu"})
log.info("quantised")
quantised.half()
""", deadline=120),
)  # fmt: skip
