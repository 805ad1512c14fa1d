"""AdamW by our own kernels, as optimizers of torch: FusedAdamW on CUDA, CPUAdam on the CPU.

The state is that of torch.optim.AdamW (step, exp_avg, exp_avg_sq): a checkpoint of the one loads into the other. This module
imports torch; ``gpuready.FusedAdamW`` and ``gpuready.CPUAdam`` import this module when they are first asked for.
"""

from __future__ import annotations

import torch

from gpuready.extensions import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
PLAIN = (torch.Tensor, torch.nn.Parameter)


class _KernelAdam(torch.optim.Optimizer):  # type: ignore[misc]
    """What both have in common. The kernel is built or loaded when the first step is taken."""

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
        """``adamw=False``: weight decay joins the gradient, as in Adam. ``state_dtype``: that of the parameter, or float32."""
        _within("lr", float(lr), 0.0, float("inf"))
        _within("eps", eps, 0.0, float("inf"))
        _within("weight_decay", weight_decay, 0.0, float("inf"))
        for at, beta in enumerate(betas):
            _within(f"betas[{at}]", beta, 0.0, 1.0)
        if state_dtype not in (None, torch.float32):
            raise ValueError(
                f"state_dtype is {state_dtype}: leave it out (like the parameter), or torch.float32"
            )
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "adamw": adamw, "state_dtype": state_dtype,
        }  # fmt: skip
        super().__init__(params, defaults)
        self._kernel: ours.AdamW | None = None

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step for every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for (device, step, kinds), rows in self._sorted(group).items():
                self._launch(group, device, step, kinds, rows)
        return loss

    def _sorted(self, group: dict[str, Any]) -> dict[Any, list[tuple[Any, Any, Any, Any, Any]]]:
        """The tensors of a group by what one launch can take: one device, one step, one kind of numbers.

        A model has hundreds of tensors, and the GPU waits for this loop: what can be done once is not done for each.
        """
        given = [parameter for parameter in group["params"] if parameter.grad is not None]
        if not given:
            return {}
        states = [self._state(parameter, group) for parameter in given]
        batches: dict[Any, list[tuple[Any, Any, Any, Any, Any]]] = {}
        for parameter, state, step in zip(given, states, _counted(states), strict=True):
            p, g = _local(parameter), _local(parameter.grad)
            m, v = _local(state["exp_avg"]), _local(state["exp_avg_sq"])
            if g.is_sparse:
                raise RuntimeError(f"{type(self).__name__} does not take sparse gradients")
            if g.dtype not in NAMES:
                raise ValueError(f"{type(self).__name__} takes no gradients in {g.dtype}")
            kinds = (p.dtype, g.dtype, m.dtype)
            if p.is_contiguous() and g.is_contiguous() and m.is_contiguous():
                row = (p, p, g, m, v)
            else:
                row = (p, _like(p, m), _like(g, m), m, v)
            batches.setdefault((p.device, step, kinds), []).append(row)
        return batches

    def _check(self, p: Any) -> None:
        if p.device.type != self.device:
            raise ValueError(
                f"{type(self).__name__} takes parameters on {self.device}, and one is on {p.device}"
            )
        if p.dtype not in NAMES:
            raise ValueError(f"{type(self).__name__} takes float32, bfloat16 and float16, and not {p.dtype}")

    def _state(self, parameter: Any, group: dict[str, Any]) -> Any:
        state = self.state[parameter]
        if not state:
            self._check(parameter)
            kind = group["state_dtype"] or parameter.dtype
            state["step"] = torch.tensor(0.0)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=kind, memory_format=torch.preserve_format)
        elif (
            state["step"].device.type != "cpu"
        ):  # of a checkpoint of torch's fused AdamW; kept there, each step would wait
            state["step"] = state["step"].cpu()
        return state

    def _launch(self, group: dict[str, Any], device: Any, step: float, kinds: Any, rows: list[Any]) -> None:
        if self._kernel is None:
            self._kernel = ours.adamw(self.device, torch)
        p, g, m, v = (
            [tensor.data_ptr() for tensor in column] for column in list(zip(*rows, strict=True))[1:]
        )
        settings = ours.Settings(
            lr=float(group["lr"]),
            beta1=float(group["betas"][0]),
            beta2=float(group["betas"][1]),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            step=int(step),
            decoupled=group["adamw"],
            maximize=group["maximize"],
        )
        of_parameters, of_gradients, of_states = (NAMES[kind] for kind in kinds)
        sizes = [row[3].numel() for row in rows]
        table = ours.Rows(p, g, m, v, sizes, (of_parameters, of_gradients, of_states))
        self._kernel.step(table, settings, *self._where(device))
        for row in rows:
            if row[1] is not row[0]:
                row[0].copy_(row[1])

    def _where(self, device: Any) -> tuple[int, int]:
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch does, but states in float32 stay so: torch would round them to the type of the parameter."""
        super().load_state_dict(state_dict)
        saved = [number for group in state_dict["param_groups"] for number in group["params"]]
        mine = [(parameter, group) for group in self.param_groups for parameter in group["params"]]
        for number, (parameter, group) in zip(saved, mine, strict=True):
            for name in (
                ("exp_avg", "exp_avg_sq") if group["state_dtype"] and number in state_dict["state"] else ()
            ):
                given = state_dict["state"][number][name]
                self.state[parameter][name] = given.to(parameter.device, group["state_dtype"], copy=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_kernel": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._kernel = None
        for group in self.param_groups:  # a checkpoint of torch.optim.AdamW has not all of ours
            for name, value in self.defaults.items():
                group.setdefault(name, value)


class FusedAdamW(_KernelAdam):
    """AdamW on CUDA: all tensors of a group in one launch, on torch's current stream."""

    device = "cuda"

    def _where(self, device: Any) -> tuple[int, int]:
        return device.index, torch.cuda.current_stream(device).cuda_stream


class CPUAdam(_KernelAdam):
    """AdamW on the CPU, vectorised, on as many threads as torch has."""

    device = "cpu"

    def _where(self, device: Any) -> tuple[int, int]:
        return torch.get_num_threads(), 0


def _counted(states: list[Any]) -> list[float]:
    """Every counter one further. They are places of one tensor, so that this is one operation and not one for each."""
    whole = states[0]["step"]._base
    if (
        whole is None
        or len(whole) != len(states)
        or any(state["step"]._base is not whole for state in states)
    ):
        whole = torch.stack([state["step"] for state in states])
        for at, state in enumerate(states):
            state["step"] = whole[at]
    whole += 1
    found: list[float] = whole.tolist()
    return found


def _local(tensor: Any) -> Any:
    """The part of a sharded tensor (DTensor) that is here."""
    if type(tensor) in PLAIN:  # asking a tensor for what it has not costs more than all the rest
        return tensor
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _like(tensor: Any, model: Any) -> Any:
    """The tensor itself where its memory is laid out like the state's, else a copy that is."""
    same = tensor.stride() == model.stride() or (tensor.is_contiguous() and model.is_contiguous())
    return tensor if same else torch.empty_like(model, dtype=tensor.dtype).copy_(tensor)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value < high:
        raise ValueError(f"{name} is {value}: it has to be at least {low:g} and below {high:g}")
