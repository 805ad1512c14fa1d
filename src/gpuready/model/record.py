"""Frozen records: slots, initialiser, equality and JSON from annotated fields.

Importing ``dataclasses`` takes longer than a whole judgement (docs/design.md). The type checker sees ordinary
dataclass semantics.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar

    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class _RecordMeta(type):
    """Turn annotated fields into slots, an initialiser, equality and immutability."""

    _fields: tuple[str, ...]
    _defaults: dict[str, Any]

    def __new__(mcls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> Any:
        fields = tuple(f for f in space.get("__annotations__", {}) if not f.startswith("_"))
        defaults = {f: space.pop(f) for f in fields if f in space}
        space["__slots__"] = fields
        cls = super().__new__(mcls, name, bases, space)
        cls._fields, cls._defaults = fields, defaults
        return cls


_set_slot = object.__setattr__


class Record(metaclass=_RecordMeta):
    """A frozen record; equal when its fields are equal."""

    _nested: ClassVar[Mapping[str, type[Record]]] = {}

    if not TYPE_CHECKING:

        def __init__(self, *values, **named):
            fields, put = self._fields, _set_slot
            if len(values) > len(fields):
                raise TypeError(f"{type(self).__name__} takes {len(fields)} fields, got {len(values)}")
            for field, value in zip(fields, values, strict=False):
                put(self, field, value)
            for field in fields[len(values) :]:
                if field in named:
                    put(self, field, named.pop(field))
                elif field in self._defaults:
                    put(self, field, self._defaults[field])
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
        return hash(tuple(repr(getattr(self, f)) for f in type(self)._fields))

    def __repr__(self) -> str:
        inside = ", ".join(f"{f}={getattr(self, f)!r}" for f in type(self)._fields)
        return f"{type(self).__name__}({inside})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f) for f in type(self)._fields)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return type(self)(**{f: getattr(self, f) for f in type(self)._fields} | changes)

    def to_json(self) -> dict[str, Any]:
        return {f: _to_plain_json(getattr(self, f)) for f in type(self)._fields}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Build from decoded JSON; ValueError names the wrong field. Unknown keys are ignored."""
        if not isinstance(data, dict):
            raise ValueError(f"a {record_type_words(cls)} must be an object, not {_json_kind(data)}")
        values = {}
        for field in cls._fields:
            if field in data:
                values[field] = cls._decode_field(field, data[field])
            elif field not in cls._defaults:
                raise ValueError(f"a {record_type_words(cls)} needs the key {field!r}")
        return cls(**values)

    @classmethod
    def _decode_field(cls, field: str, value: object) -> object:
        inner = cls._nested.get(field)
        if inner is None:
            return _freeze_lists(value)
        if isinstance(value, list):
            return tuple(inner.from_json(item) for item in value)
        return inner.from_json(value)


def record_type_words(record_type: type[Record]) -> str:
    """``FitResult`` -> ``fit result``, for error messages."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in record_type.__name__).strip()


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
