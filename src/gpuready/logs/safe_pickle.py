"""Read pickled plain data without running anything: only containers, numbers and text are built.

A pickle is a program for a stack machine, some of whose instructions import and call. Only those that do neither are
implemented; any other is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pickletools import genops
from typing import Any

MAX_PICKLE_BYTES, MAX_STEPS = 256 << 20, 20_000_000
_PLAIN_OPCODES = {
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1",
    "LONG4", "BINFLOAT", "FLOAT", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "BINSTRING", "SHORT_BINSTRING", "STRING",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_SKIPPED_OPCODES = {"PROTO", "FRAME", "STOP"}


class _StackMark:
    """Marks where on the stack a container began."""


class _PickleMachine:
    """The stack and the memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop_since_mark(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[i], _StackMark):
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise ValueError("it has no beginning for a container")

    def push_tuple(self, size: int) -> None:
        items = tuple(self.stack[len(self.stack) - size :]) if size else ()
        del self.stack[len(self.stack) - size :]
        self.stack.append(items)

    def set_items(self, pairs: list[Any]) -> None:
        self.stack[-1].update({_safe_key(k): v for k, v in zip(pairs[::2], pairs[1::2], strict=True)})


def _safe_key(key: Any) -> Any:
    """A dict key. A container may contain itself a billion times over: it is never hashed or converted to text."""
    if isinstance(key, (str, int, float, bytes, type(None))):
        return key
    flat = isinstance(key, tuple) and all(isinstance(part, (str, int, float, bytes)) for part in key[:8])
    return key if flat and len(key) <= 8 else f"a {type(key).__name__}"


_OPERATIONS: dict[str, Callable[[_PickleMachine, Any], object]] = {
    "MARK": lambda m, a: m.stack.append(_StackMark()),
    "EMPTY_DICT": lambda m, a: m.stack.append({}),
    "EMPTY_LIST": lambda m, a: m.stack.append([]),
    "EMPTY_SET": lambda m, a: m.stack.append([]),
    "EMPTY_TUPLE": lambda m, a: m.stack.append(()),
    "TUPLE": lambda m, a: m.stack.append(tuple(m.pop_since_mark())),
    "TUPLE1": lambda m, a: m.push_tuple(1),
    "TUPLE2": lambda m, a: m.push_tuple(2),
    "TUPLE3": lambda m, a: m.push_tuple(3),
    "LIST": lambda m, a: m.stack.append(m.pop_since_mark()),
    "DICT": lambda m, a: _push_dict(m),
    "FROZENSET": lambda m, a: m.stack.append(tuple(m.pop_since_mark())),
    "APPEND": lambda m, a: _extend_top(m, [m.stack.pop()]),
    "APPENDS": lambda m, a: _extend_top(m, m.pop_since_mark()),
    "ADDITEMS": lambda m, a: _extend_top(m, m.pop_since_mark()),
    "SETITEM": lambda m, a: _set_item(m),
    "SETITEMS": lambda m, a: m.set_items(m.pop_since_mark()),
    "POP": lambda m, a: m.stack.pop(),
    "POP_MARK": lambda m, a: m.pop_since_mark(),
    "DUP": lambda m, a: m.stack.append(m.stack[-1]),
    "MEMOIZE": lambda m, a: m.memo.__setitem__(len(m.memo), m.stack[-1]),
}
for _put in ("PUT", "BINPUT", "LONG_BINPUT"):
    _OPERATIONS[_put] = lambda m, a: m.memo.__setitem__(a, m.stack[-1])
for _get in ("GET", "BINGET", "LONG_BINGET"):
    _OPERATIONS[_get] = lambda m, a: m.stack.append(m.memo[a])


def _push_dict(machine: _PickleMachine) -> None:
    pairs = machine.pop_since_mark()
    machine.stack.append({})
    machine.set_items(pairs)


def _extend_top(machine: _PickleMachine, items: list[Any]) -> None:
    machine.stack[-1].extend(items)


def _set_item(machine: _PickleMachine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_items([key, value])


def safe_unpickle(data: bytes) -> Any:
    """The data, or ValueError with why it is refused. Nothing is imported and nothing is called."""
    if len(data) > MAX_PICKLE_BYTES:
        raise ValueError(f"it is larger than {MAX_PICKLE_BYTES >> 20} MiB")
    machine = _PickleMachine()
    try:
        for step, (opcode, argument, _) in enumerate(genops(data)):
            if step > MAX_STEPS:
                raise ValueError("it has too many steps")
            _execute_opcode(machine, opcode.name, argument)
        found = machine.stack.pop()
    except (
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        UnicodeDecodeError,
        OverflowError,
        MemoryError,
        RecursionError,
    ):
        raise ValueError("it is broken") from None
    if isinstance(found, _StackMark):
        raise ValueError("it is broken")
    return found


def _execute_opcode(machine: _PickleMachine, name: str, argument: Any) -> None:
    if name in _PLAIN_OPCODES:
        machine.stack.append(argument)
    elif name in _CONSTANTS:
        machine.stack.append(_CONSTANTS[name])
    elif name in _OPERATIONS:
        _OPERATIONS[name](machine, argument)
    elif name not in _SKIPPED_OPCODES:
        raise ValueError(f"it asks for code to be run ({name}), which is refused")
