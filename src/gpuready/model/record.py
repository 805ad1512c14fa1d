"""Frozen records: slots, initialiser, equality and JSON from annotated fields.

Importing ``dataclasses`` takes longer than a whole judgement (docs/explanation/design.md). The type checker sees ordinary
dataclass semantics.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda cls: cls


FieldValue = TypeVar("FieldValue")


class _DefaultFactory:
    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], FieldValue]) -> FieldValue:
    """A field whose default is made anew for each record: ``field(default_factory=dict)``."""
    return _DefaultFactory(default_factory)  # type: ignore[return-value]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class _RecordMeta(type):
    """Turn annotated fields into slots, an initialiser, equality and immutability."""

    _fields: tuple[str, ...]
    _setters: tuple[tuple[str, Callable[[object, object], None]], ...]
    _defaults: dict[str, Any]
    _nested: dict[str, type[Record]] | None

    def __new__(mcls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> Any:
        annotations = space.get("__annotations__", {})
        fields = tuple(f for f, kind in annotations.items() if f[0] != "_" and not kind.startswith("ClassVar"))
        defaults = {f: space.pop(f) for f in fields if f in space}
        for field_name, default in defaults.items():
            if isinstance(default, (dict, list, set)):
                raise TypeError(f"{name}.{field_name}: a mutable default is shared; use field(default_factory=...)")
        space["__slots__"] = fields
        cls = super().__new__(mcls, name, bases, space)
        cls._fields, cls._defaults, cls._nested = fields, defaults, None
        cls._setters = tuple((f, vars(cls)[f].__set__) for f in fields)
        return cls


class Record(metaclass=_RecordMeta):
    """A frozen record; equal when its fields are equal."""

    if not TYPE_CHECKING:

        def __init__(self, *values, **named):
            setters, defaults = self._setters, self._defaults
            if len(values) > len(setters):
                raise TypeError(f"{type(self).__name__} takes {len(setters)} fields, got {len(values)}")
            for (_, put), value in zip(setters, values, strict=False):
                put(self, value)
            for field, put in setters[len(values) :]:
                if field in named:
                    put(self, named.pop(field))
                elif field in defaults:
                    default = defaults[field]
                    put(self, default.make() if type(default) is _DefaultFactory else default)
                else:
                    raise TypeError(f"{type(self).__name__} needs the field {field!r}")
            if named:
                raise TypeError(f"{type(self).__name__} has no field {next(iter(named))!r}")

        def __setattr__(self, name, value):
            raise AttributeError(f"{type(self).__name__} is frozen: {name!r} cannot be set")

        __delattr__ = None

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f) == getattr(other, f) for f in type(self)._fields)

    def __hash__(self) -> int:
        return hash(tuple(_hash_value(getattr(self, f)) for f in type(self)._fields))

    def __repr__(self) -> str:
        inside = ", ".join(f"{f}={getattr(self, f)!r}" for f in type(self)._fields)
        return f"{type(self).__name__}({inside})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f) for f in type(self)._fields)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        values = [changes.pop(f) if f in changes else getattr(self, f) for f in type(self)._fields]
        return type(self)(*values, **changes)

    def to_json(self) -> dict[str, Any]:
        return {f: _to_plain_json(getattr(self, f)) for f in type(self)._fields}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Build from decoded JSON; ValueError names the wrong field. Unknown keys are ignored."""
        if not isinstance(data, dict):
            raise ValueError(f"{describe_record_type(cls)} must be an object, not {_json_kind(data)}")
        values = {}
        for field in cls._fields:
            if field in data:
                values[field] = cls._decode_field(field, data[field])
            elif field not in cls._defaults:
                raise ValueError(f"{describe_record_type(cls)} needs the key {field!r}")
        return cls(**values)

    @classmethod
    def _decode_field(cls, field: str, value: object) -> object:
        inner = cls.nested_records().get(field)
        if inner is None or isinstance(value, inner) or (value is None and "None" in cls.__annotations__[field]):
            return _freeze_lists(value)
        if isinstance(value, list):
            return tuple(inner.from_json(item) for item in value)
        return inner.from_json(value)

    @classmethod
    def nested_records(cls) -> dict[str, type[Record]]:
        """Fields annotated with a record: ``Fact``, ``Fact | None`` or ``tuple[Fact, ...]``."""
        if cls._nested is None:
            names = vars(sys.modules[cls.__module__])
            kinds = {f: cls.__annotations__[f].removeprefix("tuple[").partition(",")[0] for f in cls._fields}
            found = {f: names.get(kind.partition(" |")[0]) for f, kind in kinds.items()}
            cls._nested = {f: kind for f, kind in found.items() if isinstance(kind, type) and issubclass(kind, Record)}
        return cls._nested


def describe_record_type(record_type: type[Record]) -> str:
    """``FitResult`` -> ``a fit result``, for error messages."""
    words = "".join(f" {char.lower()}" if char.isupper() else char for char in record_type.__name__).strip()
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _hash_value(value: Any) -> int:
    """A hash that is equal for equal values, also where they hold dicts, lists or sets."""
    if isinstance(value, (str, int)):  # most fields
        return hash(value)
    if isinstance(value, (tuple, list)):
        return hash(tuple(map(_hash_value, value)))
    if isinstance(value, (set, frozenset)):
        return hash(frozenset(value))
    if hasattr(value, "items"):
        return hash(frozenset((key, _hash_value(item)) for key, item in value.items()))
    try:
        return hash(value)
    except TypeError:  # an unhashable object of another kind: only its equality decides
        return 0


def _to_plain_json(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, (tuple, list)):
        return [_to_plain_json(v) for v in value]
    if isinstance(value, dict):
        return {k: _to_plain_json(v) for k, v in value.items()}
    return value


def _freeze_lists(value: Any) -> Any:
    return tuple(_freeze_lists(v) for v in value) if isinstance(value, (list, tuple)) else value


def _json_kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
