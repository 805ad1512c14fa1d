"""Load YAML and turn the values of one file into job fields, each with the key that set it."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from gpuready.fit.roles.records import RoleSettings
from gpuready.model.record import Record, field

UNSTATED_VALUES = (None, "", "auto", "none", "None", "null", "~")
"""Values that state nothing: the framework decides."""

STEP_KEYS = ("max_steps", "max_train_steps", "trainer.total_training_steps")
EPOCH_KEYS = ("num_train_epochs", "num_epochs", "trainer.total_epochs", "epochs")

DATASET_KEYS = ("datasets", "train_file", "dataset_path", "data_path", "data_files", "dataset_name", "dataset")

TRUE_WORDS, FALSE_WORDS = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class JobSettings(Record):
    """What a file sets for a job. ``fields`` are those of FitJob; ``model`` is a name, a path or the config itself."""

    kind: str
    path: str = ""
    model: str | Mapping[str, Any] = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)  # field -> file and key
    inner: tuple[tuple[str, Any], ...] = ()  # files that it names or contains: kind, and path or mapping
    unmodelled: tuple[str, ...] = ()  # uncounted features that may need more
    lessened: tuple[str, ...] = ()  # uncounted features that may need less
    notes: tuple[str, ...] = ()
    supposed: tuple[str, ...] = ()  # fields set to the framework's default: another file may set them
    unknown_keys: tuple[str, ...] = ()  # keys that the framework's schema does not have, and that are near none
    run_steps: int | None = None  # of the whole run
    epochs: float | None = None
    datasets: tuple[str, ...] = ()  # as the file names them: paths, or names of a hub
    roles: tuple[RoleSettings, ...] = ()  # where several roles share the GPUs


class ConfigReader:
    """Reads one file."""

    def __init__(self, kind: str, path: str, config: Mapping[str, Any]):
        self.kind, self.path, self.config = kind, path, config
        self.fields: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.nested_files: list[tuple[str, Any]] = []
        self.unmodelled: list[str] = []
        self.lessened: list[str] = []
        self.notes: list[str] = []
        self.supposed: list[str] = []
        self.roles: tuple[RoleSettings, ...] = ()
        self.model: str | Mapping[str, Any] = ""

    def get_dotted(self, key: str) -> Any:
        """Return the value at a dotted key; None if it states nothing."""
        here: Any = self.config
        for part in key.split("."):
            here = here.get(part) if isinstance(here, dict) else None
        if isinstance(here, str) and (here.strip() in UNSTATED_VALUES or "${" in here):
            return None
        return here

    def parse_value(self, key: str, convert: Callable[[Any], Any]) -> Any:
        """Return the converted value at a key; ValueError names the file and the key."""
        value = self.get_dotted(key)
        if value is None:
            return None
        try:
            return convert(value)
        except ValueError as error:
            raise ValueError(f"{self.path}: {key} must be {error}, not {short_repr(value)}") from None

    def take_first(self, field: str, convert: Callable[[Any], Any], *keys: str) -> Any:
        """Set the field from the first key that has a value."""
        for key in keys:
            value = self.parse_value(key, convert)
            if value is not None:
                return self.set_field(field, value, key)
        return None

    def take_counts(self, **fields: str | tuple[str, ...]) -> None:
        """Set each field to the count at the first of its keys that has one."""
        for name, keys in fields.items():
            self.take_first(name, parse_positive_int, *((keys,) if isinstance(keys, str) else keys))

    def read_count(self, key: str) -> int | None:
        """Return a whole number from 1 up."""
        count: int | None = self.parse_value(key, parse_positive_int)
        return count

    def read_text(self, key: str) -> str | None:
        text: str | None = self.parse_value(key, parse_text_value)
        return text

    def set_field(self, field: str, value: Any, key: str) -> Any:
        self.fields[field], self.sources[field] = value, f"{self.path}: {key}"
        return value

    def set_default(self, field: str, value: Any, key: str) -> None:
        """Set a framework default, which another file may override."""
        self.set_field(field, value, key)
        self.supposed.append(field)

    def add_uncounted(self, message: str, side: str) -> None:
        """Note an uncounted feature, which may need ``more``, ``less`` or ``both``."""
        if side in ("more", "both"):
            self.unmodelled.append(message)
        if side in ("less", "both"):
            self.lessened.append(message)

    def is_enabled(self, key: str) -> bool:
        """Whether a switch is on; absent is off."""
        return bool(self.parse_value(key, parse_bool_value))

    def read_model_name(self, *keys: str) -> None:
        """Read the model that the file names."""
        for key in keys:
            value = self.get_dotted(key)
            if isinstance(value, str) and value.strip():
                self.model = value.strip()
                self.sources["model"] = f"{self.path}: {key}"
                return

    def to_job_settings(self) -> JobSettings:
        return JobSettings(
            self.kind,
            self.path,
            self.model,
            self.fields,
            self.sources,
            inner=tuple(self.nested_files),
            unmodelled=tuple(self.unmodelled),
            lessened=tuple(self.lessened),
            notes=tuple(self.notes),
            supposed=tuple(self.supposed),
            roles=self.roles,
            run_steps=next(filter(None, map(self._read_length, STEP_KEYS)), None),
            epochs=next(filter(None, map(self._read_length, EPOCH_KEYS)), None),
            datasets=next(filter(None, map(self._read_datasets, DATASET_KEYS)), ()),
        )

    def _read_datasets(self, key: str) -> tuple[str, ...]:
        """Return the names at a key: a text, or a list of texts or of mappings with a path."""
        value = self.get_dotted(key)
        rows = value if isinstance(value, list) else [value]
        names = [one.get("path") if isinstance(one, dict) else one for one in rows]
        texts = tuple(name for name in names if isinstance(name, str))
        return texts if len(texts) == len(names) else ()

    def _read_length(self, key: str) -> Any:
        """Return a positive number that states the length of the run; a trainer takes others as not set."""
        value = self.get_dotted(key)
        if isinstance(value, str) and value.strip().replace(".", "", 1).isdigit():
            value = float(value)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value < 1 << 40:
            return None
        return int(value) if key in STEP_KEYS else value


def short_repr(value: object) -> str:
    """``repr`` in at most 40 characters. The whole of a value whose YAML aliases multiply would fill the memory."""
    limited = reprlib.Repr()
    limited.maxlevel = 3
    limited.maxlist = limited.maxtuple = limited.maxset = limited.maxdict = 10
    limited.maxstring = limited.maxlong = limited.maxother = 100
    text = limited.repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def parse_positive_int(value: object) -> int:
    """Parse a whole number from 1 up, also if YAML made it text or a float."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value == value and abs(value) < 2**53 and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 31:
        raise ValueError("a whole number from 1 up")
    return value


def parse_amount(value: object) -> int:
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


def parse_ratio(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ValueError("a number from 0 up and below 1")
    return float(value)


def parse_zero_stage(value: object) -> int:
    if isinstance(value, float) and value in (0, 1, 2, 3):
        value = int(value)
    if isinstance(value, bool) or str(value).strip() not in ("0", "1", "2", "3"):
        raise ValueError("0, 1, 2 or 3")
    return int(str(value))


def parse_bool_value(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in TRUE_WORDS or word in FALSE_WORDS:
        return word in TRUE_WORDS
    raise ValueError("true or false")


def is_off(value: object) -> bool:
    """Whether a value leaves a feature off, or to the framework."""
    if not value or isinstance(value, (dict, list)):
        return not value
    return str(value).strip().lower() in (*UNSTATED_VALUES, *FALSE_WORDS)


def parse_text_value(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    return value.strip()


def parse_mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a mapping of names to values")
    return value


MAX_FLOW_DEPTH = 100
"""Nested brackets; no real file has a tenth of this."""


def make_bounded_loader() -> Any:
    """Return the loader class for plain values."""
    import yaml

    class BoundedLoader(yaml.SafeLoader):
        def fetch_flow_collection_start(self, token: Any) -> None:
            if self.flow_level >= MAX_FLOW_DEPTH:
                raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=self.get_mark())
            super().fetch_flow_collection_start(token)

    return BoundedLoader


def describe_yaml_error(error: Exception) -> str:
    """Describe why PyYAML cannot parse a text, with the line if known."""
    if not hasattr(error, "problem"):
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition("\n")[0]
        return f"cannot be read as YAML: {why}"
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    return f"{where}{error.problem or str(error).partition(chr(10))[0]}; it must be YAML"


SERVING_KEYS = {
    "tensor_parallel": ("tensor_parallel_size", "tensor_model_parallel_size", "tp_size", "tp"),
    "pipeline_parallel": ("pipeline_parallel_size", "pipeline_model_parallel_size", "pp_size"),
    "context": ("max_model_len", "context_length", "max_model_length"),
    "batch_tokens": ("max_num_batched_tokens", "chunked_prefill_size"),
    "max_sequences": ("max_num_seqs", "max_running_requests"),
}
FRACTION_KEYS = ("gpu_memory_utilization", "mem_fraction_static")


def parse_fraction(value: object) -> float:
    try:
        share = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        share = 0.0
    if isinstance(value, bool) or not 0 < share <= 1:
        raise ValueError("a number above 0 and up to 1")
    return share


def read_serving_keys(reader: ConfigReader, inside: str, engine: str) -> dict[str, Any]:
    """Return the fields of a ServingJob that a mapping of engine settings states."""
    served: dict[str, Any] = {"engine": engine}
    for name, keys in SERVING_KEYS.items():
        count = next((one for key in keys if (one := reader.read_count(inside + key)) is not None), None)
        if count is not None:
            served[name] = count
    for key in FRACTION_KEYS:
        share = reader.parse_value(inside + key, parse_fraction)
        if share is not None:
            served["fraction"] = share
    if reader.is_enabled(f"{inside}enforce_eager") or reader.is_enabled(f"{inside}disable_cuda_graph"):
        served["eager"] = True
    if "fp8" in str(reader.get_dotted(f"{inside}quantization") or ""):
        served["quant"] = "fp8"
    if str(reader.get_dotted(f"{inside}kv_cache_dtype") or "auto").startswith("fp8"):
        served["cache"] = "fp8"
    return served


MAX_DEPTH = 8
"""How many references a value may lead through."""


def resolve_references(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with every value that is one reference replaced; what cannot be resolved stays."""
    resolved: dict[str, Any] = _resolve_value(dict(config), config, 0)
    return resolved


def _resolve_value(value: Any, root: Mapping[str, Any], depth: int) -> Any:
    if depth > 40:
        return value
    if isinstance(value, dict):
        return {key: _resolve_value(one, root, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_resolve_value(one, root, depth + 1) for one in value]
    return _follow_reference(value, root)


def _follow_reference(value: Any, root: Mapping[str, Any]) -> Any:
    for _ in range(MAX_DEPTH):
        if not is_reference(value):
            return value
        name = value[2:-1].strip()
        if name.startswith("oc.select:"):
            name, _, default = name.removeprefix("oc.select:").partition(",")
            found = _find_dotted(root, name.strip())
            value = _parse_word(default) if found is None else found
        elif name.startswith("oc.env:"):
            value = _parse_word(name.partition(",")[2])
        else:
            found = _find_dotted(root, name)
            if found is None:
                return value
            value = found
    return value


def is_reference(value: object) -> bool:
    return isinstance(value, str) and value.startswith("${") and value.endswith("}") and "${" not in value[2:]


def _find_dotted(root: Mapping[str, Any], name: str) -> Any:
    here: Any = root
    for part in name.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return here


def _parse_word(text: str) -> Any:
    """Parse a default: a number, a switch, nothing, or text."""
    word = text.strip().strip("'\"")
    if word.lower() in ("", "null", "none"):
        return None
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        return int(word)
    except ValueError:
        return word
