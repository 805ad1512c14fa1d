"""Two thousand values that are nobody's secret: what logs, reports and recordings of GPU machines are full of."""

from __future__ import annotations

import base64
import hashlib
import random
import uuid
from pathlib import Path

SEEDED = 20261115
PACKAGES = [
    "torch",
    "nvidia-cublas-cu12",
    "nvidia-nccl-cu12",
    "transformers",
    "tokenizers",
    "safetensors",
    "accelerate",
    "deepspeed",
    "flash-attn",
    "xformers",
    "bitsandbytes",
    "triton",
    "vllm",
    "sglang",
    "trl",
    "unsloth",
    "axolotl",
    "colossalai",
    "verl",
    "ray",
    "numpy",
    "huggingface-hub",
    "hf-xet",
    "sk-video",
    "sk-learn-contrib",
    "pypi-attestations",
    "pass-manager",
    "keyring",
    "secretstorage",
    "token-count",
    "tokenize-rt",
]
MODELS = [
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen3-30B-A3B-Instruct-2507",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
    "google/gemma-3-27b-it",
    "mistralai/Mixtral-8x7B-v0.1",
    "openai/gpt-oss-120b",
    "microsoft/Phi-4-mini-instruct",
]
GPUS = [
    "NVIDIA H200",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA A100-SXM4-80GB",
    "Tesla T4",
    "NVIDIA GeForce RTX 4090",
    "NVIDIA B200",
]
FLAGS = [
    "--max-tokens {n}",
    "max-new-tokens={n}",
    "tokenizer-mode auto",
    "token-type-ids",
    "pad-token-id {n}",
    "eos_token_id={n}",
    "num-key-value-heads 8",
    "primary-key id",
    "keyfile /etc/x.key",
    "max-num-batched-tokens {n}",
    "sort-key name",
    "author me",
    "pass-through",
    "no-auth",
    "auth-type none",
    "passes {n}",
    "session-timeout {n}",
    "key-bits 4096",
]
LINES = (
    "gpu-{n}:{n}:{n} [0] NCCL INFO Bootstrap : Using eth0:10.0.{o}.{o}<0>",
    "gpu-{n}:{n}:{n} [3] NCCL INFO comm 0x7f{h} rank 3 nranks 8 cudaDev 3 busId 5e000 commId 0x{h}{h} - Init COMPLETE",
    "[rank{o}]:[W1115 20:41:31.{n} ProcessGroupNCCL.cpp:4115] Warning: using GPU {o} to perform barrier",
    "{{'loss': {f}, 'grad_norm': {f}, 'learning_rate': 2e-05, 'num_tokens': {n}, 'epoch': {f}}}",
    "INFO {n} [metrics.py:455] Avg prompt throughput: {f} tokens/s, Avg generation throughput: {f} tokens/s",
    "tokens/s: {f} | tokens: {n} | keys: {n} | auth: ok | passed: {n}",
    "NVRM: Xid (PCI:0000:5e:00): 79, pid={n}, name=python, GPU has fallen off the bus.",
    "KeyError: 'model.layers.{o}.self_attn.k_proj.weight'",
    'RuntimeError: Error(s) in loading state_dict: Missing key(s) in state_dict: "lm_head.weight"',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {f} GiB. GPU {o} has a total capacity of {f} GiB",
    '  File "/opt/venv/lib/python3.12/site-packages/transformers/tokenization_utils_base.py", line {n}, in pad',
    "Special tokens have been added in the vocabulary, make sure the word embeddings are fine-tuned: {n}",
    "password for user me is not set; the token is missing; no credentials were given ({n})",
    "tensor([{f}, {f}, {f}], device='cuda:{o}', dtype=torch.bfloat16) # key {n}",
    "srun: error: gpu-{n}: task {o}: Exited with exit code 1",
    "SSH_AUTH_SOCK=/tmp/ssh-XXXX{h}/agent.{n} XDG_SESSION_ID={n}",
    "WARNING: token indices sequence length is longer than the specified maximum ({n} > 4096)",
    "AttributeError: 'Tokenizer' object has no attribute 'pad_token_{n}'",
)


def _hashes(pick: random.Random) -> list[str]:
    found = []
    for n in range(250):
        digest = hashlib.sha256(str(n).encode()).hexdigest()
        short = hashlib.md5(str(n).encode(), usedforsecurity=False).hexdigest()
        record = base64.urlsafe_b64encode(bytes.fromhex(digest)).decode().rstrip("=")
        found += [
            f"--hash=sha256:{digest}",
            f"sha256={record}",
            f"commit {digest[:40]}",
            f"GPU-{uuid.UUID(short)}" if n % 2 else f"MIG-{uuid.UUID(short)}",
            pick.choice((f"snapshots/{digest[:40]}", f"ETag: \"{short}\"", f"build-id {digest[:40]}", f"sha512-{record}{record[:40]}==")),
        ]  # fmt: skip
    return found


def _versions(pick: random.Random) -> list[str]:
    found = []
    for _ in range(200):
        name = pick.choice(PACKAGES)
        version = f"{pick.randint(0, 30)}.{pick.randint(0, 40)}.{pick.randint(0, 20)}"
        stem = name.replace("-", "_")
        found += [
            f"{name}=={version}",
            f"{stem}-{version}-cp312-cp312-manylinux_2_28_x86_64.whl",
            f"/usr/lib/python3/site-packages/{stem}-{version}.dist-info/METADATA",
        ]
    return found


def _lines(pick: random.Random) -> list[str]:
    def filled(form: str) -> str:
        n, o = pick.randint(10, 99999), pick.randint(0, 255)
        return form.format(n=n, o=o, f=round(pick.random() * 90, 4), h=f"{pick.getrandbits(32):08x}")

    rows = [filled(form) for form in LINES for _ in range(20)]
    return rows + [f"--{filled(flag)}".replace("----", "--") for flag in FLAGS for _ in range(4)]


def _words(pick: random.Random) -> list[str]:
    words = [
        "hello",
        "world",
        "cuda",
        "driver",
        "model",
        "layer",
        "weight",
        "token",
        "tokens",
        "session",
        "author",
        "keyboard",
        "passage",
        "secretary",
    ]
    short = [base64.b64encode(" ".join(pick.sample(words, 2)).encode()).decode() for _ in range(100)]
    found = [f"{word}" for word in short]
    for model in MODELS:
        owner, _, name = model.partition("/")
        found += [model, f"https://huggingface.co/{model}/resolve/main/config.json", f"models--{owner}--{name}"]
    for gpu in GPUS:
        found += [gpu, f'{{"name": "{gpu}", "memory_total": 150754820096, "uuid": null}}']
    return found


def values() -> list[str]:
    """The whole corpus, the signs of our own rules and the lines of the induced failures among it."""
    pick = random.Random(SEEDED)
    found = [*_hashes(pick), *_versions(pick), *_lines(pick), *_words(pick)]
    causes = Path(__file__).parents[1] / "logs" / "causes"
    for path in sorted(causes.glob("*.txt")):
        found += [line for line in path.read_text(errors="replace").splitlines() if len(line) > 20][:60]
    return list(dict.fromkeys(found))
