"""What a job asks for and this machine does not have: capabilities and memory."""

from __future__ import annotations

from tests.faults.flips.gpu import no_gpu
from tests.faults.flips.machine import GIB, BreakableMachine, Fault


def old_gpu(name: str, capability: str, *words: str) -> Fault:
    def inject(p: BreakableMachine) -> None:
        p.gpu(name=name, capability=capability, memory_total=16 * GIB, memory_free=15 * GIB)
        p.wants(*words)

    return inject


def axolotl_job(*lines: str) -> Fault:
    def inject(p: BreakableMachine) -> None:
        p.machine.file("/job.yml", "\n".join(("base_model: meta-llama/Llama-3.1-8B", *lines, "")))
        p.frameworks = ["axolotl"]
        p.asked.update(config="/job.yml")

    return inject


def on_a_mac(p: BreakableMachine) -> None:
    no_gpu(p)
    p.kernel("25.1.0", system="Darwin", machine="arm64")
    p.contract(platforms=("cuda", "mps"))
    p.wants("flash-attn")


FAULTS: dict[str, Fault] = {
    "CAP012": on_a_mac,
    "CAP001": old_gpu("Tesla V100-SXM2-16GB", "7.0", "bf16"),
    "CAP002": old_gpu("NVIDIA A100-SXM4-80GB", "8.0", "fp8"),
    "CAP003": old_gpu("Tesla P40", "6.1", "fp16"),
    "CAP004": lambda p: (old_gpu("Tesla T4", "7.5", "tf32")(p), setattr(p, "frameworks", ["axolotl"])),
    "CAP005": lambda p: (old_gpu("Tesla T4", "7.5", "flash-attn")(p), setattr(p, "frameworks", ["axolotl"])),
    "CAP006": old_gpu("NVIDIA GeForce GTX 980", "5.2", "bnb-4bit"),
    "CAP007": old_gpu("Tesla P100-PCIE-16GB", "6.0", "torch-compile"),
    "CAP008": lambda p: (p.package("xformers", "0.0.33.post2"), old_gpu("Tesla V100-SXM2-16GB", "7.0", "xformers")(p)),
    "CAP009": lambda p: p.wants("fp8", "moe"),
    "CAP010": lambda p: (p.wants("fp8", "moe"), setattr(p, "frameworks", ["roll"])),
    "CAP011": lambda p: p.wants("bf16", "fp16"),
    "CAP017": axolotl_job("adaptr: lora"),
    "CAP018": axolotl_job("micro_batch_size: two"),
    "MEM001": lambda p: (
        p.gpu(name="Tesla T4", capability="7.5", memory_total=16 * GIB, memory_free=15 * GIB),
        p.asked.update(model="70b"),
    ),
    "MEM002": lambda p: p.gpu(
        memory_free=GIB, memory_used=79 * GIB, processes=[{"pid": 7, "used": 78 * GIB, "name": "python"}]
    ),
    "MEM003": lambda p: (
        p.machine.file("/sys/fs/cgroup/memory.max", f"{64 * GIB}\n"),
        p.asked.update(model="70b"),
        p.wants("bf16"),
    ),
    "MEM008": axolotl_job("micro_batch_size: 8", "sequence_len: 8192", "optimizer: adamw_torch", "bf16: true"),
}
