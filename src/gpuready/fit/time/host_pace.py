"""The host's own time in eager mode: Python, the dispatcher, the autograd engine, and what generate() does per token.

The paces of a layer are those of a Llama of transformers, as ``gpuready bench`` measures them on the host (eager-*). A layer of
another architecture has more or fewer kernels: a part of its time is the same, the rest goes by their number
(benchmarks/results/eager-pace-h200.json, by benchmarks/eager_pace.py). Without these measures a pace is a multiple of
the bare launch, as on the hosts of the H200s that were measured.
"""

from __future__ import annotations

from gpuready.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LAUNCH_SECONDS = 8.6e-6  # of a kernel, on the host of the H200 that was measured
FORWARD_LAUNCHES, BACKWARD_LAUNCHES, DECODE_LAUNCHES = 115.0, 190.0, 113.0  # of a layer, as multiples of a launch
CALL_LAUNCHES, TOKEN_LAUNCHES = 330.0, 240.0  # of a call of the model, and of a token, beside the layers
NO_GRADIENT_SHARE = 0.82  # of a forward pass that records nothing for a backward pass
# A layer of the Llama that is measured: its kernels on the tape, and those of the rest of the pass; the share of its time
# that does not depend on the number of kernels.
LAYER_KERNELS = {"fwd": 38, "bwd": 74, "decode": 40}
REST_KERNELS = {"fwd": 12, "bwd": 22, "decode": 30}
FIXED_SHARES = {"fwd": 0.4, "bwd": 0.1, "decode": 0.5}
TENSOR_LAUNCHES = {"adamw": 3.2, "adamw_fused": 0.6, "sgd": 0.25, "adamw_forloop": 9.0, "clip": 0.6}
"""Host time of an optimizer for one tensor, as a multiple of a launch."""
LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth")


class HostPace(Record):
    """Seconds of the host: of a launch, of a layer in each pass, and of what stands beside the layers."""

    launch: float
    forward: float
    backward: float
    decode: float
    call: float
    token: float
    measured: bool = False

    def tensor_seconds(self, optimizer: str) -> float:
        """Return the host's time of an optimizer's step for one tensor: Python, as a forward pass is."""
        return TENSOR_LAUNCHES.get(optimizer, 2.0) * self.forward / FORWARD_LAUNCHES

    def pass_seconds(self, name: str, kernels: int, layers: int, recomputed: int = 0) -> float:
        """Return the host's time of a pass (fwd, bwd, ref, decode) with so many kernels.

        ``recomputed`` of them are a forward pass again, inside of the backward pass.
        """
        if recomputed:
            again = self._layer_seconds("fwd", self.forward, recomputed, layers)
            return again + self.pass_seconds(name, max(0, kernels - recomputed), layers)
        if name == "decode":
            return self.token + self._layer_seconds("decode", self.decode, kernels, layers)
        if name == "bwd":
            return self._layer_seconds("bwd", self.backward, kernels, layers)
        spent = self.call + self._layer_seconds("fwd", self.forward, kernels, layers)
        return spent * NO_GRADIENT_SHARE if name == "ref" else spent

    def _layer_seconds(self, name: str, layer: float, kernels: int, layers: int) -> float:
        fixed = FIXED_SHARES[name]
        of_layers = max(0, kernels - REST_KERNELS[name])
        return layer * (fixed * layers + (1 - fixed) * of_layers / LAYER_KERNELS[name])


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
    names = ("forward", "backward", "decode", "call", "token")
    found = {name: measures.get(f"eager-{name}", 0.0) for name in names}
    return HostPace(launch=launch, **found, measured=True) if all(found.values()) else default_pace(launch)


def count_all_layers(model: Mapping[str, Any]) -> int:
    """Return the layers of a model's config, those of the configs inside of it included."""
    return max(1, _sum_layers(model))


def _sum_layers(model: Mapping[str, Any]) -> int:
    own = next((model[key] for key in LAYER_KEYS if isinstance(model.get(key), int)), 0)
    nested = (one for key, one in model.items() if key.endswith("_config") and isinstance(one, dict))
    return int(own) + int(model.get("num_decoder_layers") or 0) + sum(map(_sum_layers, nested))
