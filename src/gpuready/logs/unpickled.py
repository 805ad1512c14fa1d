"""Read pickled plain data without running anything: only containers, numbers and text are built.

A pickle is a program for a stack machine, some of whose instructions import and call. Only those that do neither are
implemented; any other is refused.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LARGEST, STEPS = 256 << 20, 20_000_000
_PLAIN = {
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1",
    "LONG4", "BINFLOAT", "FLOAT", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "BINSTRING", "SHORT_BINSTRING", "STRING",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_SKIPPED = {"PROTO", "FRAME", "STOP"}


class _Mark:
    """Marks where on the stack a container began."""


class _Machine:
    """The stack and the memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def since_mark(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[i], _Mark):
                items = self.stack[i + 1 :]
                del self.stack[i:]
                return items
        raise ValueError("it has no beginning for a container")

    def tuple_of(self, size: int) -> None:
        items = tuple(self.stack[len(self.stack) - size :]) if size else ()
        del self.stack[len(self.stack) - size :]
        self.stack.append(items)

    def items(self, pairs: list[Any]) -> None:
        self.stack[-1].update({_key(k): v for k, v in zip(pairs[::2], pairs[1::2], strict=True)})


def _key(key: Any) -> Any:
    """A dict key. A container may contain itself a billion times over: it is never hashed or converted to text."""
    if isinstance(key, (str, int, float, bytes, type(None))):
        return key
    flat = isinstance(key, tuple) and all(isinstance(part, (str, int, float, bytes)) for part in key[:8])
    return key if flat and len(key) <= 8 else f"a {type(key).__name__}"


_DO: dict[str, Callable[[_Machine, Any], object]] = {
    "MARK": lambda m, a: m.stack.append(_Mark()),
    "EMPTY_DICT": lambda m, a: m.stack.append({}),
    "EMPTY_LIST": lambda m, a: m.stack.append([]),
    "EMPTY_SET": lambda m, a: m.stack.append([]),
    "EMPTY_TUPLE": lambda m, a: m.stack.append(()),
    "TUPLE": lambda m, a: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": lambda m, a: m.tuple_of(1),
    "TUPLE2": lambda m, a: m.tuple_of(2),
    "TUPLE3": lambda m, a: m.tuple_of(3),
    "LIST": lambda m, a: m.stack.append(m.since_mark()),
    "DICT": lambda m, a: _dict(m),
    "FROZENSET": lambda m, a: m.stack.append(tuple(m.since_mark())),
    "APPEND": lambda m, a: _append(m, [m.stack.pop()]),
    "APPENDS": lambda m, a: _append(m, m.since_mark()),
    "ADDITEMS": lambda m, a: _append(m, m.since_mark()),
    "SETITEM": lambda m, a: _setitem(m),
    "SETITEMS": lambda m, a: m.items(m.since_mark()),
    "POP": lambda m, a: m.stack.pop(),
    "POP_MARK": lambda m, a: m.since_mark(),
    "DUP": lambda m, a: m.stack.append(m.stack[-1]),
    "MEMOIZE": lambda m, a: m.memo.__setitem__(len(m.memo), m.stack[-1]),
}
for _put in ("PUT", "BINPUT", "LONG_BINPUT"):
    _DO[_put] = lambda m, a: m.memo.__setitem__(a, m.stack[-1])
for _get in ("GET", "BINGET", "LONG_BINGET"):
    _DO[_get] = lambda m, a: m.stack.append(m.memo[a])


def _dict(machine: _Machine) -> None:
    pairs = machine.since_mark()
    machine.stack.append({})
    machine.items(pairs)


def _append(machine: _Machine, items: list[Any]) -> None:
    machine.stack[-1].extend(items)


def _setitem(machine: _Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.items([key, value])


def unpickled(data: bytes) -> Any:
    """The data, or ValueError with why it is refused. Nothing is imported and nothing is called."""
    from pickletools import genops

    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 20} MiB")
    machine = _Machine()
    try:
        for step, (opcode, argument, _) in enumerate(genops(data)):
            if step > STEPS:
                raise ValueError("it has too many steps")
            _step(machine, opcode.name, argument)
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
    if isinstance(found, _Mark):
        raise ValueError("it is broken")
    return found


def _step(machine: _Machine, name: str, argument: Any) -> None:
    if name in _PLAIN:
        machine.stack.append(argument)
    elif name in _CONSTANTS:
        machine.stack.append(_CONSTANTS[name])
    elif name in _DO:
        _DO[name](machine, argument)
    elif name not in _SKIPPED:
        raise ValueError(f"it asks for code to be run ({name}), which is refused")
