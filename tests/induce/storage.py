"""Files, disks, caches and the hub."""

from __future__ import annotations

from tests.induce.scripts import LLAMA, PLAIN
from tests.induce.stage import Provoke

SAVED = LLAMA + 'model = LlamaForCausalLM(config)\nmodel.save_pretrained("model")\nlog.info("saved")\n'
LOAD = 'LlamaForCausalLM.from_pretrained("model")\n'
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4e' * 32}\nsize 9976576152\n"
SMALL_DISK = "mkdir out; unshare -m bash -c 'mount -t tmpfs -o size={size} none out; python train.py'"
NO_OVERRIDE = "setpriv --bounding-set=-dac_override,-dac_read_search "
READ_ONLY = "mkdir -p cache; unshare -m bash -c 'mount -t tmpfs none cache; mount -o remount,ro cache; python train.py'"
HUB = '''
import http.server, json, os, ssl, sys

class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the hub does for repositories that are gated, private or not there."""

    def do_GET(self):
        gated = "gated" in self.path or "llama" in self.path.lower()
        granted = "denied" in self.path
        if gated:
            code, error = (403 if granted else 401), "GatedRepo"
            text = ("Access to model meta-llama/Llama-3.1-8B is restricted and you are not in the authorized list. Visit "
                    "https://huggingface.co/meta-llama/Llama-3.1-8B to ask for access." if granted else
                    "Access to model meta-llama/Llama-3.1-8B is restricted. You must have access to it and be authenticated to access it. "
                    "Please log in.")
        else:
            code, error, text = 404, "RepoNotFound", "Repository not found"
        self.send_response(code)
        self.send_header("X-Error-Code", error)
        self.send_header("X-Error-Message", text)
        self.send_header("X-Request-Id", "Root=1-66a0-0001")
        body = json.dumps({"error": text}).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    do_HEAD = do_GET

    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 443), Hub)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
'''
OWN_HUB = (
    "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=huggingface.co "
    "-addext subjectAltName=DNS:huggingface.co >openssl.log 2>&1; echo '127.0.0.1 huggingface.co localhost' > hosts; "
    "unshare -m -n bash -c 'ip link set lo up; mount --bind hosts /etc/hosts; python hub.py 2>hub.log & sleep 1.5; {run}'"
)
TRUSTED = "SSL_CERT_FILE=$PWD/cert.pem REQUESTS_CA_BUNDLE=$PWD/cert.pem python train.py"
ASK = (
    PLAIN
    + """
from transformers import AutoConfig, AutoTokenizer
AutoTokenizer.from_pretrained("{repo}")
"""
)
DOWNLOAD = (
    PLAIN
    + """
from huggingface_hub import snapshot_download
snapshot_download("{repo}")
"""
)
OFFLINE = "unshare -n bash -c 'ip link set lo up; python train.py'"
UNREACHABLE = (
    r"couldn't connect to|[Nn]ame resolution|Name or service not known|offline mode is enabled|"
    r"(LocalEntryNotFound|Connection|Connect|Proxy)Error: "
)


def hub(name: str, cause: str, decisive: str, script: str, run: str = TRUSTED, **more: object) -> Provoke:
    return Provoke(name, cause, (decisive,), script, OWN_HUB.replace("{run}", run), files={"hub.py": HUB}, deadline=150,
                   needs=("root", "openssl", "ip"), **more)  # type: ignore[arg-type]  # fmt: skip


STORAGE = (
    hub("hub-gated", "hub-gated-repo", r"gated repo|[Cc]annot access gated", ASK.replace("{repo}", "meta-llama/Llama-3.1-8B")),
    hub("hub-gated-4.40", "hub-gated-repo", r"gated repo|[Cc]annot access gated", ASK.replace("{repo}", "meta-llama/Llama-3.1-8B"), room="old"),
    hub("hub-gated-denied", "hub-gated-repo", r"gated repo|[Cc]annot access gated|not in the authorized list",
        DOWNLOAD.replace("{repo}", "meta-llama/denied-Llama-3.1-8B"), env={"HF_TOKEN": "hf_" + "x" * 34}),
    hub("hub-no-such-repo", "not-environment", r"is not a valid model identifier|Repository Not Found for url",
        ASK.replace("{repo}", "our-org/lama-typo"), variant="misspelt"),
    hub("hub-untrusted", "hub-ssl-verify", r"CERTIFICATE_VERIFY_FAILED|certificate verify failed",
        DOWNLOAD.replace("{repo}", "gpt2"), "python train.py", env={"SSL_CERT_FILE": "-", "HF_HUB_DISABLE_XET": "1"}),
    hub("hub-untrusted-old", "hub-ssl-verify", r"CERTIFICATE_VERIFY_FAILED|certificate verify failed",
        ASK.replace("{repo}", "gpt2"), "python train.py", room="old"),
    Provoke("hub-no-network", "hub-unreachable", (UNREACHABLE,), ASK.replace("{repo}", "Qwen/Qwen2.5-7B"), OFFLINE, needs=("root", "ip"), deadline=120),
    Provoke("hub-no-network-old", "hub-unreachable", (UNREACHABLE,), ASK.replace("{repo}", "Qwen/Qwen2.5-7B"), OFFLINE, needs=("root", "ip"),
            deadline=120, room="old"),
    Provoke("hub-offline-mode", "hub-unreachable", (UNREACHABLE,), ASK.replace("{repo}", "Qwen/Qwen2.5-7B"), env={"HF_HUB_OFFLINE": "1"}),
    Provoke("hub-proxy-refused", "hub-unreachable", (r"Connection refused|couldn't connect|ProxyError: ",), DOWNLOAD.replace("{repo}", "Qwen/Qwen2.5-7B"),
            env={"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}, deadline=120),
    Provoke("hub-dataset-no-network", "hub-unreachable", (UNREACHABLE,), PLAIN + """
from datasets import load_dataset
load_dataset("tatsu-lab/alpaca")
""", OFFLINE, needs=("root", "ip"), deadline=150),
    Provoke("disk-full-checkpoint", "disk-full", (r"No space left on device|file write failed|iostream error|unexpected pos|PytorchStreamWriter failed",), PLAIN + """
model = nn.Linear(2048, 2048)
for step in range(1, 9):
    log.info("saving checkpoint %d", step)
    torch.save(model.state_dict(), f"out/checkpoint-{step}.pt")
""", SMALL_DISK.replace("{size}", "40m"), needs=("root",)),
    Provoke("disk-full-safetensors", "disk-full", (r"No space left on device",), LLAMA.replace("hidden_size=64", "hidden_size=512") + """
LlamaForCausalLM(config).save_pretrained("out/checkpoint-500")
""", SMALL_DISK.replace("{size}", "3m"), needs=("root",)),
    Provoke("disk-full-datasets", "disk-full", (r"No space left on device",), PLAIN + """
import datasets
rows = datasets.Dataset.from_dict({"text": ["word " * 200] * 5000})
rows.map(lambda row: {"again": row["text"] * 4}, cache_file_name="out/cache.arrow")
""", SMALL_DISK.replace("{size}", "2m"), needs=("root",), deadline=120),
    Provoke("disk-full-old", "disk-full", (r"No space left on device|file write failed|iostream error|unexpected pos|PytorchStreamWriter failed",), PLAIN + """
torch.save({"optimizer": torch.zeros(1 << 22), "step": 500}, "out/optimizer.pt")
""", SMALL_DISK.replace("{size}", "4m"), needs=("root",), room="old"),
    Provoke("cache-read-only", "read-only-file-system", (r"Read-only file system",), PLAIN + """
from huggingface_hub import hf_hub_download
import os
os.makedirs(os.environ["HF_HOME"] + "/hub/models--gpt2/refs")
""", READ_ONLY, env={"HF_HOME": "{job}/cache"}, needs=("root",)),
    Provoke("cache-not-writable", "cache-permission", (r"PermissionError|Permission denied",), PLAIN + """
import datasets
rows = datasets.load_dataset("json", data_files="rows.json")
""", "mkdir cache; chmod 555 cache; " + NO_OVERRIDE + "python train.py", files={"rows.json": '{"text": "a"}\n'},
            env={"HF_HOME": "{job}/cache"}, needs=("root", "setpriv"), deadline=100),
    Provoke("output-not-writable", "cache-permission", (r"PermissionError: \[Errno 13\] Permission denied",), PLAIN + """
os.makedirs("out/checkpoint-500", exist_ok=True)
torch.save({}, "out/checkpoint-500/model.pt")
""", "mkdir out; chmod 555 out; " + NO_OVERRIDE + "python train.py", needs=("root", "setpriv")),
    Provoke("triton-cache-not-writable", "cache-permission", (r"PermissionError: \[Errno 13\] Permission denied",), PLAIN + """
@torch.compile
def gelu(x):
    return x * torch.sigmoid(1.702 * x)

log.info("%s", gelu(torch.randn(64)).sum())
""", "mkdir cache; chmod 555 cache; " + NO_OVERRIDE + "python train.py", env={"TORCHINDUCTOR_CACHE_DIR": "{job}/cache/inductor"},
            needs=("root", "setpriv"), deadline=120),
    Provoke("weights-lfs-pointer", "corrupt-or-lfs-weights", (r"SafetensorError|header too large|HeaderTooLarge|InvalidHeader|not a valid|"
            r"corrupt|Unable to load weights",), SAVED
            + f"open('model/model.safetensors', 'w').write({POINTER!r})\n" + LOAD),
    Provoke("weights-lfs-pointer-bin", "corrupt-or-lfs-weights", (r"UnpicklingError: (invalid load key, 'v'|.*)|git-lfs|corrupt",), PLAIN
            + f"open('model.bin', 'w').write({POINTER!r})\n" + """
state = torch.load("model.bin", map_location="cpu", weights_only=False)
"""),
    Provoke("weights-lfs-pointer-bin-old", "corrupt-or-lfs-weights", (r"git lfs|git-lfs|invalid load key|Unable to load weights",), SAVED.replace(
            'save_pretrained("model")', 'save_pretrained("model", safe_serialization=False)')
            + f"open('model/pytorch_model.bin', 'w').write({POINTER!r})\n" + LOAD, room="old"),
    Provoke("weights-truncated", "corrupt-or-lfs-weights", (r"SafetensorError|incomplete|InvalidHeader|MetadataIncompleteBuffer",), SAVED + """
size = os.path.getsize("model/model.safetensors")
os.truncate("model/model.safetensors", size * 2 // 3)
""" + LOAD),
    Provoke("weights-truncated-zip", "corrupt-or-lfs-weights", (r"PytorchStreamReader failed|failed finding central directory|not a ZIP",), PLAIN + """
torch.save({"w": torch.zeros(1 << 20)}, "model.pt")
os.truncate("model.pt", 3 << 20)
torch.load("model.pt")
"""),
    Provoke("weights-empty", "corrupt-or-lfs-weights", (r"EOFError: Ran out of input",), PLAIN + """
open("model.pt", "wb").close()
torch.load("model.pt", weights_only=False)
"""),
    Provoke("weights-only-class", "torch26-weights-only", (r"Weights only load failed",), PLAIN + """
class Settings:
    def __init__(self):
        self.lr = 3e-4

torch.save({"model": nn.Linear(4, 4).state_dict(), "args": Settings()}, "checkpoint.pt")
torch.load("checkpoint.pt")
"""),
    Provoke("weights-only-numpy", "torch26-weights-only", (r"Weights only load failed",), PLAIN + """
import numpy, random
torch.save({"numpy": numpy.random.get_state(), "python": random.getstate()}, "rng_state_0.pth")
log.info("resuming from checkpoint-500")
torch.load("rng_state_0.pth")
"""),
    Provoke("weights-only-argparse", "torch26-weights-only", (r"Weights only load failed",), PLAIN + """
import argparse
torch.save({"args": argparse.Namespace(lr=1e-4)}, "checkpoint.pt")
torch.load("checkpoint.pt", map_location="cpu")
""", room="cuda"),
    Provoke("files-too-many", "too-many-open-files", (r"Too many open files|received 0 items of ancdata",), PLAIN + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        return torch.randn(4), torch.randn(4)

kept = [batch for batch in torch.utils.data.DataLoader(Rows(), batch_size=1, num_workers=2)]
""", "ulimit -n 128; python train.py"),
    Provoke("files-too-many-shards", "too-many-open-files", (r"Too many open files",), PLAIN + """
shards = [open(f"shard-{i:05d}.bin", "w+b") for i in range(500)]
log.info("%d shards", len(shards))
""", "ulimit -n 256; python train.py"),
    Provoke("files-too-many-old", "too-many-open-files", (r"Too many open files|received 0 items of ancdata",), PLAIN + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 2048
    def __getitem__(self, index):
        return torch.randn(4)

kept = list(torch.utils.data.DataLoader(Rows(), batch_size=1, num_workers=4))
""", "ulimit -n 160; python train.py", room="old"),
    Provoke("shm-small-loader", "shm-too-small", (r"[Bb]us error|insufficient shared memory|No space left|unable to (allocate|write|mmap)",), PLAIN + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.randn(3, 256, 256)

for step, batch in enumerate(torch.utils.data.DataLoader(Rows(), batch_size=16, num_workers=2)):
    log.info("batch %d %s", step, tuple(batch.shape))
""", "unshare -m bash -c 'mount -t tmpfs -o size=1m none /dev/shm; python train.py'", needs=("root",)),
    Provoke("shm-small-loader-old", "shm-too-small", (r"[Bb]us error|insufficient shared memory|No space left|unable to (allocate|write|mmap)",), PLAIN + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.randn(3, 256, 256)

for step, batch in enumerate(torch.utils.data.DataLoader(Rows(), batch_size=16, num_workers=2)):
    log.info("batch %d %s", step, tuple(batch.shape))
""", "unshare -m bash -c 'mount -t tmpfs -o size=1m none /dev/shm; python train.py'", needs=("root",), room="old"),
    Provoke("shm-small-share", "shm-too-small", (r"No space left on device|[Bb]us error|unable to (allocate|write|mmap|resize)",), PLAIN + """
import torch.multiprocessing as mp
mp.set_sharing_strategy("file_system")
buffer = torch.zeros(1 << 24).share_memory_()
log.info("shared %d", buffer.numel())
buffer.fill_(1)
""", "unshare -m bash -c 'mount -t tmpfs -o size=1m none /dev/shm; python train.py'", needs=("root",)),
)  # fmt: skip
