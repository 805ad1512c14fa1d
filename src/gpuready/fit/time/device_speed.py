"""What a GPU reaches, from a bench record of it or from its data sheet and measured shares; and the host's own time in
eager mode: Python, the dispatcher, the autograd engine, and what generate() does per token.

The paces of a layer are those of a Llama of transformers, as ``gpuready bench`` measures them on the host (eager-*). A layer of
another architecture has more or fewer kernels: a part of its time is the same, the rest goes by their number
(benchmarks/results/eager-pace-h200.json, by benchmarks/eager_pace.py). Without these measures a pace is a multiple of
the bare launch, as on the hosts of the H200s that were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.model.record import Record, field

LAUNCH_SECONDS = 8.6e-6  # of a kernel, on the host of the H200 that was measured
FORWARD_LAUNCHES, BACKWARD_LAUNCHES, DECODE_LAUNCHES = 115.0, 190.0, 117.0  # of a layer, as multiples of a launch
CALL_LAUNCHES, TOKEN_LAUNCHES = 235.0, 185.0  # of a call of the model, and of a token, beside the layers
REAL_SHARES = {"forward": 1.05, "backward": 1.0, "decode": 1.0, "call": 1.0, "token": 1.0}
"""How much longer a layer of a real model takes the host than one of the small Llama of the bench on the same core: an optimizer and wider
tensors. Measured on an H200 by the fastest steps of benchmarks/results/host-placement-h200.json (forward 1.05, backward 1.02, a token 1.03) and by 13 steps
in several processes (step-time-dev-h200.json: 1.06, 0.94, with checkpointing 0.98 of both)."""
HOST_RANGE = (0.60, 1.45)
"""The range of a pace that was not measured on several cores: hosts differ, and so do their neighbours."""
NO_GRADIENT_SHARE = 0.82  # of a forward pass that records nothing for a backward pass
BACKWARD_CALL = 0.77  # of a call: the start of a backward pass, its loss and its embedding
# A layer of the Llama that is measured: its kernels on the tape, and those of the rest of the pass; the share of its time
# that does not depend on the number of kernels.
LAYER_KERNELS = {"fwd": 38, "bwd": 74, "decode": 40}
REST_KERNELS = {"fwd": 12, "bwd": 22, "decode": 30}
FIXED_SHARES = {"fwd": 0.32, "bwd": 0.22, "decode": 0.34}
EXPERT_LAYERS = {"fwd": 0.46, "bwd": 0.23, "decode": 0.39}
ADAPTER_LAYERS = {"fwd": 0.065, "bwd": 0.066, "decode": 0.0}
"""What the experts of a layer, and one LoRA adapter, take beside their kernels: Python of their modules, as a share of a layer."""
CHECKPOINT_LAYERS = {"fwd": 0.9, "again": 1.34}
"""What non-reentrant checkpointing takes in a layer beside its kernels, as a share of a layer forward: hooks of every saved tensor, the states
of the random generators; in the forward pass, and where it is run again."""
TENSOR_LAUNCHES = {
    "adamw": 3.2, "adamw_fused": 0.6, "sgd": 0.25, "adamw_forloop": 9.0, "adafactor": 27.6, "adafactor_torch": 25.6, "clip": 0.6,
}  # fmt: skip
CAST_LAUNCHES = {"adafactor": 9.3, "adafactor_torch": 3.1}
"""Host time of an optimizer for one tensor, as a multiple of a launch; and what it casts of a tensor in 16 bits. Adafactor: 289 tensors of a Qwen2, on an H200."""
EAGER_LOW, EAGER_HIGH = "eager-low", "eager-high"  # of a record: the range of its paces by core, as shares
EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")
LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth")


class LayerCounts(Record):
    """Layers of a model, those of them with experts, and LoRA adapters."""

    layers: int
    experts: int = 0
    adapters: int = 0
    checkpointed: bool = False
    called: bool = (
        True  # as a model of transformers, whose passes begin with masks and positions; a script shows its own
    )


class HostPace(Record):
    """Seconds of the host: of a launch, of a layer in each pass, and of what stands beside the layers."""

    launch: float
    forward: float
    backward: float
    decode: float
    call: float
    token: float
    range: tuple[float, float] = HOST_RANGE  # of all of these: shares of the pace, by core
    measured: bool = False

    def scale(self, share: float) -> HostPace:
        """Return the pace of a host that takes so many times as long."""
        names = ("launch", "forward", "backward", "decode", "call", "token")
        return self.replace(**{name: share * getattr(self, name) for name in names})

    def tensor_seconds(self, optimizer: str, width: int) -> float:
        """Return the host's time of an optimizer's step for one tensor: Python, as a forward pass is."""
        casts = CAST_LAUNCHES.get(optimizer, 0.0) if width == 2 else 0.0
        return (TENSOR_LAUNCHES.get(optimizer, 2.0) + casts) * self.forward / FORWARD_LAUNCHES

    def start_seconds(self, name: str) -> float:
        """Return the host's time before a pass (fwd, bwd, ref, decode) launches the kernels of its layers: masks, positions, what generate() does."""
        if name == "decode":
            return self.token
        return self.call * {"fwd": 1.0, "bwd": BACKWARD_CALL, "ref": NO_GRADIENT_SHARE}.get(name, 0.0)

    def pass_seconds(self, name: str, kernels: int, counts: LayerCounts, recomputed: int = 0) -> float:
        """Return the host's time of a pass with so many kernels, after its start.

        ``recomputed`` of them are a forward pass again, inside of the backward pass.
        """
        if recomputed:
            again = self._layer_seconds("fwd", self.forward, recomputed, counts)
            again += CHECKPOINT_LAYERS["again"] * self.forward * counts.layers
            return again + self.pass_seconds(name, max(0, kernels - recomputed), counts)
        if name == "decode":
            return self._layer_seconds("decode", self.decode, kernels, counts)
        if name == "bwd":
            return self._layer_seconds("bwd", self.backward, kernels, counts)
        spent = self._layer_seconds("fwd", self.forward, kernels, counts)
        if counts.checkpointed and name == "fwd":
            spent += CHECKPOINT_LAYERS["fwd"] * self.forward * counts.layers
        return spent * NO_GRADIENT_SHARE if name == "ref" else spent

    def _layer_seconds(self, name: str, layer: float, kernels: int, counts: LayerCounts) -> float:
        fixed = FIXED_SHARES[name]
        of_layers = max(0, kernels - REST_KERNELS[name]) / LAYER_KERNELS[name]
        beside = EXPERT_LAYERS[name] * counts.experts + ADAPTER_LAYERS[name] * counts.adapters
        return layer * (fixed * counts.layers + (1 - fixed) * of_layers + beside)


def default_pace(launch: float = LAUNCH_SECONDS) -> HostPace:
    """Return the paces of a host of which only the launch is known."""
    return HostPace(
        launch=launch,
        forward=FORWARD_LAUNCHES * launch,
        backward=BACKWARD_LAUNCHES * launch,
        decode=DECODE_LAUNCHES * launch,
        call=CALL_LAUNCHES * launch,
        token=TOKEN_LAUNCHES * launch,
    )


def calibrate_pace(measures: Mapping[str, float], launch: float) -> HostPace:
    """Return the paces as a bench record has them; all of them come from one run, or none is taken."""
    found = {name: share * measures.get(f"eager-{name}", 0.0) for name, share in REAL_SHARES.items()}
    if not all(found.values()):
        return default_pace(launch)
    limits = measures.get(EAGER_LOW, HOST_RANGE[0]), measures.get(EAGER_HIGH, HOST_RANGE[1])
    return HostPace(launch=launch, **found, range=limits, measured=True)


def count_layers_of_job(model: Mapping[str, Any], adapters: int = 0, checkpointed: bool = False) -> LayerCounts:
    """Count the layers of a model's config, those of the configs inside of it included."""
    layers = max(1, _sum_layers(model))
    text = model.get("text_config")
    inner: Mapping[str, Any] = text if isinstance(text, dict) else model
    has_experts = any(isinstance(inner.get(key), int) and inner[key] > 1 for key in EXPERT_KEYS)
    return LayerCounts(layers, layers if has_experts else 0, adapters, checkpointed)


def _sum_layers(model: Mapping[str, Any]) -> int:
    own = next((model[key] for key in LAYER_KEYS if isinstance(model.get(key), int)), 0)
    nested = (one for key, one in model.items() if key.endswith("_config") and isinstance(one, dict))
    return int(own) + int(model.get("num_decoder_layers") or 0) + sum(map(_sum_layers, nested))


# Shares of the data sheet that kernels reach without a bench record: measured on an H200, on others an estimate.
PEAK_SHARE, LASTING_SHARE, FP32_SHARE, MEMORY_SHARE = 0.83, 0.72, 0.78, 0.89
VALUES_PER_CYCLE = 1.61  # of one multiprocessor, by a kernel that handles one value at a time
LINK_SHARE, PCIE_SHARE = 0.75, 0.6  # of the link's rate, as collectives reach it
NODE_LINK = 50e9  # bytes a second and direction of one GPU between nodes, where nothing says otherwise: 400 Gbit/s
CORES = {"6.0": 64, "7": 64, "8.0": 64}  # of one multiprocessor; others have 128
CLOCKS = {"6": 1.4e9, "7": 1.5e9, "8.0": 1.41e9, "8.6": 1.75e9, "8.9": 2.5e9, "9": 1.98e9, "10": 1.9e9, "12": 2.4e9}
CACHES = {"8.0": 40, "8.9": 72, "9": 50, "10": 120, "12": 96}  # MiB of L2; 6 in older GPUs


class DeviceSpeed(Record):
    """Rates that kernels of a GPU reach, per second."""

    name: str
    processors: int
    matmul_16bit: float  # FLOP/s of a large product in bf16 or fp16, in a short burst
    lasting_16bit: float  # the same for seconds, at the GPU's power limit
    matmul_32bit: float  # fp32 without TF32
    memory: float  # bytes
    elements: float  # values of a kernel that handles one value at a time
    cache: int = 50 << 20  # bytes of the L2 cache
    pace: HostPace = field(default_factory=default_pace)
    link: float = 337e9  # bytes to other GPUs of the node, one direction
    peak: float = 989.4e12  # dense 16-bit FLOP/s of the data sheet
    measured: bool = False  # by a bench record
    host_to_device: float = 55e9

    def matmul_rate(self, width: int) -> float:
        """Return the rate of products by the bytes of a value; 3 are fp32 as TF32, which half as many go through tensor cores."""
        return self.matmul_32bit if width == 4 else self.matmul_16bit * {1: 1.25, 3: 0.5}.get(width, 1.0)


def speed_from_row(row: Mapping[str, Any]) -> DeviceSpeed | None:
    """Return the rates of a GPU of the catalogue; None where its data sheet is not known."""
    wide, narrow = row.get("fp32_tflops"), row.get("bf16_tflops") or row.get("fp16_tflops")
    moved = row.get("mem_bw_gbs")
    if not wide or not narrow or not moved:
        return None
    capability = row["compute_capability"]
    cycles = wide * 1e12 / (2 * _by_capability(CORES, capability, 128))  # of all multiprocessors, a second
    link = (row.get("nvlink_gbs") or 0.0) * 1e9 / 2 * LINK_SHARE or 2 ** (row.get("pcie_gen") or 3) * 2e9 * PCIE_SHARE
    return DeviceSpeed(
        name=row["name"],
        processors=max(1, round(cycles / _by_capability(CLOCKS, capability, 1.7e9))),
        matmul_16bit=narrow * 1e12 * PEAK_SHARE,
        lasting_16bit=narrow * 1e12 * LASTING_SHARE,
        matmul_32bit=wide * 1e12 * FP32_SHARE,
        memory=moved * 1e9 * MEMORY_SHARE,
        elements=VALUES_PER_CYCLE * cycles,
        cache=int(_by_capability(CACHES, capability, 6)) << 20,
        link=link,
        peak=narrow * 1e12,
    )


def _by_capability(table: Mapping[str, float], capability: str, default: float) -> float:
    return table.get(capability) or table.get(capability.partition(".")[0]) or default


def calibrate_speed(speed: DeviceSpeed, measures: Mapping[str, float]) -> DeviceSpeed:
    """Return the rates as a bench record of that GPU measured them."""
    narrow = measures.get("matmul-bf16") or measures.get("matmul-fp16") or speed.matmul_16bit
    lasting = measures.get("matmul-bf16-held") or narrow * speed.lasting_16bit / speed.matmul_16bit
    return speed.replace(
        matmul_16bit=narrow,
        lasting_16bit=min(lasting, narrow),
        matmul_32bit=measures.get("matmul-fp32") or speed.matmul_32bit,
        memory=measures.get("memory-copy") or speed.memory,
        pace=calibrate_pace(measures, measures.get("kernel-launch") or speed.pace.launch),
        host_to_device=measures.get("host-to-device") or speed.host_to_device,
        measured=True,
    )
