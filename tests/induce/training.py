"""One process in training: devices, number formats, the user's own mistakes, and runs that only look ill."""

from __future__ import annotations

from tests.induce.scripts import LLAMA, PLAIN
from tests.induce.stage import Provoke

NO_CUDA = r"Torch not compiled with CUDA enabled"
NO_DRIVER = r"Found no NVIDIA driver on your system"
TRAINER = (
    LLAMA
    + """
from transformers import Trainer, TrainingArguments
rows = [{"input_ids": list(range(1, 17)), "labels": list(range(1, 17))} for _ in range(16)]
model = LlamaForCausalLM(config)


def trained(rows, model=model, collator=None, **more):
    args = TrainingArguments(output_dir="out", max_steps=4, per_device_train_batch_size=4, logging_steps=1,
                             report_to=[], use_cpu=True, save_strategy="no", **more)
    trainer = Trainer(model=model, args=args, train_dataset=rows, data_collator=collator)
    trainer.train()
"""
)
SEQUENCES = "rows = [{'input_ids': list(range(1, 5 + i)), 'labels': list(range(1, 5 + i))} for i in range(16)]\n"


def plain(name: str, cause: str, decisive: str, source: str, **more: object) -> Provoke:
    return Provoke(name, cause, (decisive,), PLAIN + source, **more)  # type: ignore[arg-type]


def own(name: str, decisive: str, source: str, cause: str = "not-environment", **more: object) -> Provoke:
    """A mistake in the user's code or data."""
    return Provoke(name, cause, (decisive,), source, **more)  # type: ignore[arg-type]


TRAINING = (
    plain("cpu-torch-cuda", "torch-cpu-only", NO_CUDA, "model = nn.Linear(8, 8).cuda()\n"),
    plain("cpu-torch-set-device", "torch-cpu-only", NO_CUDA + "|has no attribute '_cuda_setDevice'", 'torch.cuda.set_device(0)\nlog.info("set")\n'),
    plain("cpu-torch-to", "torch-cpu-only", NO_CUDA, 'data = torch.randn(8).to("cuda:0")\n'),
    plain("cpu-torch-load", "torch-cpu-only", NO_CUDA, "from transformers import LlamaConfig, LlamaForCausalLM\n"
          "with torch.device('cuda'):\n    LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, "
          "num_hidden_layers=1, num_attention_heads=2))\n"),
    plain("cpu-torch-nccl", "torch-cpu-only", r"Distributed package doesn't have NCCL built in", """
import torch.distributed as dist
dist.init_process_group("nccl")
""", env={"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "28311"}),
    plain("no-driver", "no-gpu-visible", NO_DRIVER, "model = nn.Linear(8, 8).cuda()\n", room="cuda"),
    plain("no-driver-old", "no-gpu-visible", NO_DRIVER, 'torch.cuda.set_device(0)\n', room="old"),
    plain("no-driver-nccl", "no-gpu-visible", r"ProcessGroupNCCL is only supported with GPUs, no GPUs found|" + NO_DRIVER, """
import torch.distributed as dist
dist.init_process_group("nccl")
dist.barrier()
""", env={"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "28312"}, room="cuda"),
    plain("no-driver-triton", "no-gpu-visible", r"0 active drivers|no NVIDIA driver|Triton.*driver", """
import triton
print(triton.runtime.driver.active.get_current_target())
""", room="cuda"),
    plain("dtype-linear", "dtype-mismatch", r"must have the same dtype|expected .* but (got|found)", """
model = nn.Linear(64, 64).to(torch.bfloat16)
model(torch.randn(8, 64))
"""),
    plain("dtype-linear-old", "dtype-mismatch", r"must have the same dtype|expected .* but (got|found)", """
model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64)).to(torch.bfloat16)
model[1](model[0].float()(torch.randn(8, 64)))
""", room="old"),
    plain("dtype-index", "dtype-mismatch", r"[Ii]ndex put requires the source and destination dtypes match", """
hidden = torch.zeros(4, 8, dtype=torch.bfloat16)
hidden[torch.tensor([0, 2])] = torch.randn(2, 8)
"""),
    plain("dtype-attention", "dtype-mismatch", r"same dtype|Expected query, key, and value to have the same dtype", """
q = torch.randn(1, 4, 8, 16, dtype=torch.bfloat16)
k = torch.randn(1, 4, 8, 16)
nn.functional.scaled_dot_product_attention(q, k, k)
"""),
    plain("fp16-unscale", "fp16-unscale", r"Attempting to unscale FP16 gradients", """
model = nn.Linear(64, 64).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
loss = model(torch.randn(8, 64).half()).float().pow(2).mean()
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
"""),
    Provoke("fp16-trainer-unscale", "fp16-unscale", (r"Attempting to unscale FP16 gradients",), LLAMA + """
from accelerate import Accelerator
model = LlamaForCausalLM(config).half()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cpu")
ids = torch.randint(0, 512, (2, 16))
scaler.scale(model(input_ids=ids, labels=ids).loss).backward()
scaler.unscale_(optimizer)
""", room="cuda"),
    plain("fsdp-mixed-dtype", "fsdp-mixed-dtype", r"Must flatten tensors with uniform dtype", """
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8).to(torch.bfloat16), nn.Linear(8, 8))
FSDP(model, device_id=torch.device("cpu"))
""", env={"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "28313"}),
    plain("fsdp-mixed-dtype-old", "fsdp-mixed-dtype", r"Must flatten tensors with uniform dtype", """
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
dist.init_process_group("gloo")
FSDP(nn.Sequential(nn.Embedding(16, 8).half(), nn.Linear(8, 8)), device_id=torch.device("cpu"))
""", env={"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "28314"}, room="old"),
    plain("devices-meta", "mixed-devices", r"is not on the expected device|Expected all tensors to be on the same device", """
with torch.device("meta"):
    head = nn.Linear(64, 64)
model = nn.Sequential(nn.Linear(64, 64), head)
model(torch.randn(8, 64))
"""),
    plain("oom-killed-loader", "host-oom-killed", r"killed by signal: Killed|exited unexpectedly", """
class Rows(torch.utils.data.Dataset):
    held = []
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        self.held.append(torch.ones(1 << 24))
        return torch.zeros(4)

for step, batch in enumerate(torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1)):
    log.info("batch %d", step)
""", command="g=/sys/fs/cgroup/memory/induce-$$; mkdir $g && echo 1500M > $g/memory.limit_in_bytes && echo $BASHPID > $g/cgroup.procs; "
          "python train.py; code=$?; echo $BASHPID > /sys/fs/cgroup/memory/cgroup.procs; rmdir $g; exit $code", needs=("root",)),
    plain("oom-killed-load", "host-oom-killed", r"Killed", """
log.info("loading 12 checkpoint shards")
shards = []
for shard in range(12):
    shards.append(torch.ones(1 << 27))
    log.info("Loading checkpoint shards: %d/12", shard + 1)
""", command="g=/sys/fs/cgroup/memory/induce-$$; mkdir $g && echo 1500M > $g/memory.limit_in_bytes && echo $BASHPID > $g/cgroup.procs; "
          "python train.py; code=$?; echo $BASHPID > /sys/fs/cgroup/memory/cgroup.procs; rmdir $g; exit $code", needs=("root",)),
    own("own-labels-key", r"KeyError: 'labels'|did not return a loss", TRAINER + "trained([{'input_ids': [1, 2, 3]} for _ in range(8)])\n"),
    own("own-unpadded", r"ValueError: (expected sequence|Unable to create tensor)|stack expects each tensor to be equal size", TRAINER + SEQUENCES
        + "trained(rows)\n"),
    own("own-string-column", r"too many dimensions 'str'|ValueError|TypeError|Could not infer", TRAINER
        + "from transformers import default_data_collator\nimport datasets\n"
        "rows = datasets.Dataset.from_list([{**row, 'text': 'a b'} for row in rows])\n"
        "trained(rows, remove_unused_columns=False, collator=lambda b: {k: torch.tensor([r[k] for r in b]) for k in b[0]})\n"),
    own("own-vocab", r"IndexError: index out of range in self", TRAINER
        + "rows = [{'input_ids': [1, 2, 600], 'labels': [1, 2, 3]}] * 8\ntrained(rows)\n"),
    own("own-target", r"Target \d+ is out of bounds", PLAIN + """
nn.functional.cross_entropy(torch.randn(4, 3), torch.tensor([0, 1, 2, 3]))
"""),
    own("own-size-mismatch", r"size mismatch for", PLAIN + """
nn.Linear(64, 32).load_state_dict(nn.Linear(64, 48).state_dict())
""", "checkpoint-mismatch"),
    own("own-missing-keys", r"Missing key\(s\) in state_dict|Error\(s\) in loading state_dict", PLAIN + """
nn.Sequential(nn.Linear(8, 8)).load_state_dict(nn.Linear(8, 8).state_dict())
""", "checkpoint-mismatch"),
    own("own-no-grad", r"does not require grad and does not have a grad_fn", PLAIN + """
model = nn.Linear(8, 8).requires_grad_(False)
model(torch.randn(2, 8)).sum().backward()
"""),
    own("own-backward-twice", r"Trying to backward through the graph a second time", PLAIN + """
loss = nn.Linear(8, 8)(torch.randn(2, 8)).pow(2).sum()
loss.backward()
loss.backward()
"""),
    own("own-in-place", r"modified by an inplace operation", PLAIN + """
x = torch.randn(4, requires_grad=True)
y = x.exp()
y += 1
y.sum().backward()
"""),
    own("own-yaml", r"yaml\.\w+\.(Parser|Scanner)Error|mapping values are not allowed|ScannerError", PLAIN + """
import yaml
yaml.safe_load(open("config.yaml"))
""", files={"config.yaml": "model: llama\nlr: 1e-4: x\n"}),
    own("own-dataset-json", r"DatasetGenerationError|JSON parse error|ArrowInvalid", PLAIN + """
from datasets import load_dataset
load_dataset("json", data_files="rows.jsonl", split="train")
""", "dataset-error", files={"rows.jsonl": '{"text": "a"}\n{"text": \n'}, deadline=120),
    own("own-dataset-column", r"KeyError: 'prompt'|Column", PLAIN + """
import datasets
rows = datasets.Dataset.from_dict({"instruction": ["a"], "output": ["b"]})
rows.map(lambda row: {"text": row["prompt"] + row["output"]})
"""),
    own("own-template", r"chat_template is not set|chat template", PLAIN + """
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")))
tokenizer.apply_chat_template([{"role": "user", "content": "a"}])
"""),
    own("own-padding-token", r"does not have a padding token", PLAIN + """
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")))
tokenizer(["a", "a a"], padding=True)
"""),
    own("own-worker-error", r"Caught \w+ in DataLoader worker process", PLAIN + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.tensor([1.0, 2.0][index])

for batch in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2):
    log.info("batch %s", batch.shape)
"""),
    own("own-recursion", r"RecursionError: maximum recursion depth exceeded", PLAIN + """
def walk(node):
    return walk(node)
walk({})
"""),
    own("own-nan", r"loss (is )?nan", PLAIN + """
model = nn.Linear(64, 64)
data = torch.randn(8, 64) * 1e30
steps(model, data, data ** 2, 3)
raise ValueError("loss is nan at step 3, check the data")
""", "loss-diverged"),
    own("own-argparse", r"error: unrecognized arguments: --learning-rte", PLAIN + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float)
parser.parse_args(["--learning-rte", "1e-4"])
"""),
    own("own-import-cycle", r"cannot import name 'Rows' from partially initialized module", PLAIN + "import rows\n",
        files={"rows.py": "import loader\nclass Rows: pass\n", "loader.py": "from rows import Rows\n"}),
    own("own-interrupted", r"KeyboardInterrupt", PLAIN + "log.info('evaluating')\ntime.sleep(60)\n",
        "stopped-by-user", command="timeout -s INT 14 python train.py", variant="stopped by hand"),
    Provoke("healthy-trainer", "healthy", (r"train_loss|train_runtime",), TRAINER + "trained(rows)\n", ends="ok"),
    Provoke("healthy-trainer-old", "healthy", (r"train_loss|train_runtime",), TRAINER + "trained(rows)\n", ends="ok", room="old"),
    Provoke("healthy-fallbacks", "healthy", (r"No module named 'flash_attn'", r"finished"), PLAIN + """
for name in ("flash_attn", "xformers", "apex"):
    try:
        __import__(name)
    except ImportError:
        log.warning("%s is not there, falling back to torch", name, exc_info=True)
steps(nn.Linear(64, 64), torch.randn(8, 64), torch.randn(8, 64), 5)
log.info("finished")
""", ends="ok"),
    Provoke("healthy-nan-skipped", "healthy", (r"finished",), PLAIN + """
import warnings
warnings.warn("Error: overflow in step 2, skipping it", RuntimeWarning)
scaler = torch.amp.GradScaler("cpu")
steps(nn.Linear(64, 64), torch.randn(8, 64), torch.randn(8, 64), 5)
log.error("upload of metrics failed: 503 Service Unavailable, will try again at the end")
log.info("finished, 0 errors")
""", ends="ok"),
    Provoke("healthy-retried-download", "healthy", (r"ConnectionError|Connection refused", r"finished"), PLAIN + """
import urllib.request
for attempt in range(3):
    try:
        urllib.request.urlopen("http://127.0.0.1:9/tokenizer.json", timeout=2)
    except OSError:
        log.warning("download failed, using the cached copy (attempt %d)", attempt, exc_info=True)
steps(nn.Linear(64, 64), torch.randn(8, 64), torch.randn(8, 64), 5)
log.info("finished")
""", ends="ok"),
    Provoke("healthy-worker-restarted", "healthy", (r"RuntimeError: DataLoader worker", r"finished"), PLAIN + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        if index == 5 and not os.path.exists("seen"):
            open("seen", "w").close()
            os._exit(1)
        return torch.zeros(4)

for attempt in range(2):
    try:
        for batch in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1):
            pass
    except RuntimeError:
        log.exception("a worker was lost, the epoch starts again")
    else:
        break
log.info("finished epoch 1")
""", ends="ok"),
)  # fmt: skip
