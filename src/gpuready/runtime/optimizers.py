"""AdamW with gpuready's kernels, as torch optimizers: FusedAdamW on CUDA, CPUAdam on the CPU.

The state is that of torch.optim.AdamW (step, exp_avg, exp_avg_sq): checkpoints are interchangeable. This module
imports torch; ``gpuready.FusedAdamW`` and ``gpuready.CPUAdam`` import it on first access.
"""

from __future__ import annotations

import torch

from gpuready.extensions import adamw_kernels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

DTYPE_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


class _KernelAdam(torch.optim.Optimizer):  # type: ignore[misc]
    """Shared code. The kernel is built or loaded at the first step."""

    device = ""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        adamw: bool = True,
        state_dtype: Any = None,
    ) -> None:
        """``adamw=False``: weight decay joins the gradient, as in Adam. ``state_dtype``: the parameter's, or float32."""
        _check_range("lr", float(lr), 0.0, float("inf"))
        _check_range("eps", eps, 0.0, float("inf"))
        _check_range("weight_decay", weight_decay, 0.0, float("inf"))
        for at, beta in enumerate(betas):
            _check_range(f"betas[{at}]", beta, 0.0, 1.0)
        if state_dtype not in (None, torch.float32):
            raise ValueError(f"state_dtype is {state_dtype}: leave it out (like the parameter), or torch.float32")
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "adamw": adamw, "state_dtype": state_dtype,
        }  # fmt: skip
        super().__init__(params, defaults)
        self._kernel: adamw_kernels.AdamWKernel | None = None

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for (device, step, kinds), rows in self._batch_tensors(group).items():
                self._launch_kernel(group, device, step, kinds, rows)
        return loss

    def _batch_tensors(self, group: dict[str, Any]) -> dict[Any, list[tuple[Any, Any, Any, Any, Any]]]:
        """Group tensors by what one launch can take: one device, one step count, one set of dtypes.

        A model has hundreds of tensors and the GPU waits for this loop, so as little as possible is done per tensor.
        """
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        if not parameters:
            return {}
        states = [self._parameter_state(parameter, group) for parameter in parameters]
        batches: dict[Any, list[tuple[Any, Any, Any, Any, Any]]] = {}
        for parameter, state, step in zip(parameters, states, _advance_steps(states), strict=True):
            p, g = _local_tensor(parameter), _local_tensor(parameter.grad)
            m, v = _local_tensor(state["exp_avg"]), _local_tensor(state["exp_avg_sq"])
            if g.is_sparse:
                raise RuntimeError(f"{type(self).__name__} does not take sparse gradients")
            if g.dtype not in DTYPE_NAMES:
                raise ValueError(f"{type(self).__name__} takes no gradients in {g.dtype}")
            kinds = (p.dtype, g.dtype, m.dtype)
            if p.is_contiguous() and g.is_contiguous() and m.is_contiguous():
                row = (p, p, g, m, v)
            else:
                row = (p, _match_layout(p, m), _match_layout(g, m), m, v)
            batches.setdefault((p.device, step, kinds), []).append(row)
        return batches

    def _check_parameter(self, p: Any) -> None:
        if p.device.type != self.device:
            raise ValueError(f"{type(self).__name__} takes parameters on {self.device}, and one is on {p.device}")
        if p.dtype not in DTYPE_NAMES:
            raise ValueError(f"{type(self).__name__} takes float32, bfloat16 and float16, and not {p.dtype}")

    def _parameter_state(self, parameter: Any, group: dict[str, Any]) -> Any:
        state = self.state[parameter]
        if not state:
            self._check_parameter(parameter)
            kind = group["state_dtype"] or parameter.dtype
            state["step"] = torch.tensor(0.0)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=kind, memory_format=torch.preserve_format)
        elif (
            state["step"].device.type != "cpu"
        ):  # from a checkpoint of torch's fused AdamW; on the GPU, each step would wait for it
            state["step"] = state["step"].cpu()
        return state

    def _launch_kernel(self, group: dict[str, Any], device: Any, step: float, kinds: Any, rows: list[Any]) -> None:
        if self._kernel is None:
            self._kernel = adamw_kernels.load_adamw(self.device, torch)
        p, g, m, v = ([tensor.data_ptr() for tensor in column] for column in list(zip(*rows, strict=True))[1:])
        settings = adamw_kernels.AdamWSettings(
            lr=float(group["lr"]),
            beta1=float(group["betas"][0]),
            beta2=float(group["betas"][1]),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            step=int(step),
            decoupled=group["adamw"],
            maximize=group["maximize"],
        )
        of_parameters, of_gradients, of_states = (DTYPE_NAMES[kind] for kind in kinds)
        sizes = [row[3].numel() for row in rows]
        table = adamw_kernels.AdamWTensors(p, g, m, v, sizes, (of_parameters, of_gradients, of_states))
        self._kernel.step(table, settings, *self._launch_target(device))
        for row in rows:
            if row[1] is not row[0]:
                row[0].copy_(row[1])

    def _launch_target(self, device: Any) -> tuple[int, int]:
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Like torch, but float32 states stay float32: torch would round them to the parameter's dtype."""
        super().load_state_dict(state_dict)
        saved = [number for group in state_dict["param_groups"] for number in group["params"]]
        mine = [(parameter, group) for group in self.param_groups for parameter in group["params"]]
        for number, (parameter, group) in zip(saved, mine, strict=True):
            for name in ("exp_avg", "exp_avg_sq") if group["state_dtype"] and number in state_dict["state"] else ():
                saved_state = state_dict["state"][number][name]
                self.state[parameter][name] = saved_state.to(parameter.device, group["state_dtype"], copy=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_kernel": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._kernel = None
        for group in self.param_groups:  # a checkpoint of torch.optim.AdamW lacks some of our options
            for name, value in self.defaults.items():
                group.setdefault(name, value)


class FusedAdamW(_KernelAdam):
    """AdamW on CUDA: all tensors of a group in one launch, on torch's current stream."""

    device = "cuda"

    def _launch_target(self, device: Any) -> tuple[int, int]:
        return device.index, torch.cuda.current_stream(device).cuda_stream


class CPUAdam(_KernelAdam):
    """AdamW on the CPU, vectorised, with torch's number of threads."""

    device = "cpu"

    def _launch_target(self, device: Any) -> tuple[int, int]:
        return torch.get_num_threads(), 0


def _advance_steps(states: list[Any]) -> list[float]:
    """Increment all step counters. They are views of one tensor, so this is a single operation."""
    whole = states[0]["step"]._base
    if whole is None or len(whole) != len(states) or any(state["step"]._base is not whole for state in states):
        whole = torch.stack([state["step"] for state in states])
        for at, state in enumerate(states):
            state["step"] = whole[at]
    whole += 1
    steps: list[float] = whole.tolist()
    return steps


def _local_tensor(tensor: Any) -> Any:
    """Return the local part of a sharded tensor (DTensor)."""
    if type(tensor) in PLAIN_TENSORS:  # hasattr on a plain tensor costs more than all the rest
        return tensor
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _match_layout(tensor: Any, model: Any) -> Any:
    """Return the tensor if its layout matches the state's, else a copy that does."""
    same = tensor.stride() == model.stride() or (tensor.is_contiguous() and model.is_contiguous())
    return tensor if same else torch.empty_like(model, dtype=tensor.dtype).copy_(tensor)


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value < high:
        raise ValueError(f"{name} is {value}: it has to be at least {low:g} and below {high:g}")
