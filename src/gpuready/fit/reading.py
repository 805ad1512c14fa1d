"""Turn the values of one file into job fields, each with the key that set it."""

from __future__ import annotations

from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

OPEN = (None, "", "auto", "none", "None", "null", "~")
"""Values that state nothing: the framework decides."""

YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Stated(Noun):
    """What a file sets for a job. ``fields`` are those of FitJob; ``model`` is a name, a path or the config itself."""

    kind: str
    path: str = ""
    model: str | Mapping[str, Any] = ""
    fields: Mapping[str, Any] = {}
    said: Mapping[str, str] = {}  # field -> file and key
    inner: tuple[
        tuple[str, Any], ...
    ] = ()  # files that it names or contains: kind, and path or mapping
    unmodelled: tuple[str, ...] = ()  # uncounted features that may need more
    lessened: tuple[str, ...] = ()  # uncounted features that may need less
    notes: tuple[str, ...] = ()
    supposed: tuple[str, ...] = ()  # fields set to the framework's default: another file may set them


class Reading:
    """Reads one file."""

    def __init__(self, kind: str, path: str, found: Mapping[str, Any]):
        self.kind, self.path, self.found = kind, path, found
        self.fields: dict[str, Any] = {}
        self.said: dict[str, str] = {}
        self.inner: list[tuple[str, Any]] = []
        self.unmodelled: list[str] = []
        self.lessened: list[str] = []
        self.notes: list[str] = []
        self.supposed: list[str] = []
        self.model: str | Mapping[str, Any] = ""

    def get(self, key: str) -> Any:
        """Return the value at a dotted key; None if it states nothing."""
        here: Any = self.found
        for part in key.split("."):
            here = here.get(part) if isinstance(here, dict) else None
        if isinstance(here, str) and (here.strip() in OPEN or "${" in here):
            return None
        return here

    def value(self, key: str, turn: Callable[[Any], Any]) -> Any:
        """Return the converted value at a key; ValueError names the file and the key."""
        value = self.get(key)
        if value is None:
            return None
        try:
            return turn(value)
        except ValueError as bad:
            raise ValueError(f"{self.path}: {key} must be {bad}, not {shown(value)}") from None

    def take(self, field: str, turn: Callable[[Any], Any], *keys: str) -> Any:
        """Set the field from the first key that has a value."""
        for key in keys:
            value = self.value(key, turn)
            if value is not None:
                return self.put(field, value, key)
        return None

    def put(self, field: str, value: Any, key: str) -> Any:
        self.fields[field], self.said[field] = value, f"{self.path}: {key}"
        return value

    def suppose(self, field: str, value: Any, key: str) -> None:
        """Set a framework default, which another file may override."""
        self.put(field, value, key)
        self.supposed.append(field)

    def aside(self, says: str, side: str) -> None:
        """Note an uncounted feature, which may need ``more``, ``less`` or ``both``."""
        if side in ("more", "both"):
            self.unmodelled.append(says)
        if side in ("less", "both"):
            self.lessened.append(says)

    def join(self, other: Reading) -> None:
        """Merge a part of the file that was read separately."""
        self.fields |= other.fields
        self.said |= other.said
        self.unmodelled += other.unmodelled
        self.lessened += other.lessened
        self.notes += other.notes

    def on(self, key: str) -> bool:
        """Whether a switch is on; absent is off."""
        return bool(self.value(key, switch))

    def name(self, *keys: str) -> None:
        """Read the model that the file names."""
        for key in keys:
            value = self.get(key)
            if isinstance(value, str) and value.strip():
                self.model = value.strip()
                self.said["model"] = f"{self.path}: {key}"
                return

    def stated(self) -> Stated:
        return Stated(
            self.kind,
            self.path,
            self.model,
            self.fields,
            self.said,
            tuple(self.inner),
            tuple(self.unmodelled),
            tuple(self.lessened),
            tuple(self.notes),
            tuple(self.supposed),
        )


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def count(value: object) -> int:
    """Parse a whole number from 1 up, also if YAML made it text or a float."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value == value and abs(value) < 2**53 and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 31:
        raise ValueError("a whole number from 1 up")
    return value


def amount(value: object) -> int:
    """Parse a whole number from 0 up, which may be very large."""
    if isinstance(value, str) and len(value) < 20:
        try:
            value = float(value) if not value.strip().isdigit() else int(value)
        except ValueError:
            value = None
    if isinstance(value, float) and value == value and 0 <= value < 2**63:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError("a whole number from 0 up")
    return value


def ratio(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ValueError("a number from 0 up and below 1")
    return float(value)


def stage(value: object) -> int:
    if isinstance(value, float) and value in (0, 1, 2, 3):
        value = int(value)
    if isinstance(value, bool) or str(value).strip() not in ("0", "1", "2", "3"):
        raise ValueError("0, 1, 2 or 3")
    return int(str(value))


def switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in YES or word in NO:
        return word in YES
    raise ValueError("true or false")


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    return value.strip()


def mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a mapping of names to values")
    return value
