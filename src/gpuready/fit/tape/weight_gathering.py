"""How the operations of a model have their weights gathered; ZeRO 3 does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gpuready.fit.tape.autograd import Tensor


class WeightGatherer(Protocol):
    """Gathers the weights of a module while it runs; ``Zero3Weights`` is one."""

    def enter_module(self, tensors: Sequence[Tensor]) -> None: ...

    def mark_module_end(self, out: Tensor) -> Tensor: ...

    def run_module(self, tensors: Sequence[Tensor], call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor: ...

    def run_table_module(self, tensors: Sequence[Tensor], call: Callable[[], Tensor]) -> Tensor: ...

    def run_attention_module(
        self, call: Callable[[Tensor], tuple[Tensor, Tensor | None]], x: Tensor
    ) -> tuple[Tensor, Tensor | None]: ...

    def find_gathered(self, tensor: Tensor | None) -> Tensor | None: ...

    def begin_forward(self) -> None: ...
