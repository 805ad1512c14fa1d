"""Repeat a stretch of the tape: later steps allocate the same as the first one.

Only a stretch that is sure to repeat is reused: it frees nothing older, and all that stays live of it are
gradients, which the parameters hold, and the workspaces, which are allocated once.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuready.fit.tape.autograd import Tape, TapeMemory, Tensor


class RepeatedStretch:
    """What a stretch of the tape allocates and frees, numbered from 0, and which parameters get a gradient."""

    def __init__(self, tape: Tape, start: int, first: int) -> None:
        self.tape, self.first_event, self.first_birth = tape, start, first  # first event and first allocation
        self.parts: list[tuple[str, list[int]]] = []  # phases, each with its events
        self.kinds: list[str] = []
        self.ops: list[str] = []
        self.grads: list[tuple[Tensor, Tensor, int | None]] = []  # parameter, its gradient, and the allocation of that

    def learn_events(self, tag: str, holders: Iterable[Tensor], not_repeated: set[int]) -> bool:
        """Whether the tape from the start to its end can be repeated; ``not_repeated`` are one-time allocations."""
        tape, first = self.tape, self.first_birth
        kept = [n for n in range(first, len(tape.kinds)) if n not in not_repeated]
        number = {old: new for new, old in enumerate(kept)}
        still_live = set(number)
        phase_events: list[int] = []
        birth = first
        for event in tape.events[self.first_event :]:
            if event.__class__ is str:
                self.parts.append((str(event).removesuffix(tag), phase_events))
                phase_events = []
            elif event >= 0:  # type: ignore[operator]
                if birth not in not_repeated:
                    phase_events.append(event)  # type: ignore[arg-type]
                birth += 1
            elif ~event in still_live:  # type: ignore[operator]
                still_live.remove(~event)  # type: ignore[operator]
                phase_events.append(~number[~event])  # type: ignore[operator]
            else:
                return False
        for holder in holders:
            grad = holder.grad
            if grad is not None and (grad.memory is None or grad.memory.number in still_live):
                at = None if grad.memory is None else number[grad.memory.number]
                self.grads.append((holder, Tensor(None, grad.shape, grad.width), at))
        self.kinds = [tape.kinds[n] for n in kept]
        self.ops = [tape.ops[n] for n in kept]
        return not phase_events and still_live <= {kept[n] for _, _, n in self.grads if n is not None}

    def append_to_tape(self, tag: str) -> None:
        """Append the stretch to the tape, and give the parameters their gradients."""
        tape, base = self.tape, len(self.tape.kinds)
        for phase, events in self.parts:
            tape.events += [e if e >= 0 else e - base for e in events]
            tape.mark_phase(f"{phase}{tag}")
        tape.kinds += self.kinds
        tape.ops += self.ops
        tape.op = self.ops[-1] if self.ops else tape.op
        shared: dict[int | None, TapeMemory | None] = {None: None}  # several gradients can be views of one allocation
        for holder, grad, number in self.grads:
            if number is not None and number not in shared:
                shared[number] = TapeMemory.from_number(tape, base + number)
            holder.grad = Tensor(shared[number], grad.shape, grad.width)
