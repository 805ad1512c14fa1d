"""Parse PYTORCH_ALLOC_CONF, the settings of the caching allocator."""

from __future__ import annotations

from gpuready.fit.job.records import FitUndecided
from gpuready.model.record import Record

MIB = 1 << 20
NO_LIMIT = 1 << 62
IGNORED_SETTINGS = (
    "backend",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "graph_capture_record_stream_reuse",
    "throw_on_cudamalloc_oom",
    "garbage_collection_threshold",  # it counts only with a memory fraction
)
"""Settings of torch that change no size on the GPU; those of pinned host memory do not either."""
UNMODELLED_SETTINGS = (
    "large_segment_size_mb", "per_process_memory_fraction", "max_non_split_rounding_mb",
)  # fmt: skip
MIN_SPLIT_MIB = 20  # MiB; torch refuses a smaller limit


class AllocatorSettings(Record):
    """The settings of PYTORCH_CUDA_ALLOC_CONF that change sizes."""

    expandable: bool = False
    max_split: int = NO_LIMIT
    divisions: int = 0  # of a power of two, to which sizes are rounded

    @property
    def is_cap_passive(self) -> bool:
        """Whether the cap matters only when hit: replays under two caps with no request in between are then equal."""
        return self.max_split >= NO_LIMIT

    @classmethod
    def parse_alloc_conf(cls, text: str) -> AllocatorSettings:
        """Parse the variable; ValueError names the invalid part."""
        parsed: dict[str, object] = {}
        for part in _split_settings(text):
            key, colon, value = part.partition(":")
            key, value = key.strip(), value.strip()
            if not colon:
                raise ValueError(f"the allocator setting {part!r} has no value: write it as name:value")
            try:
                parsed |= _parse_setting(key, value)
            except FitUndecided:
                raise
            except ValueError:
                raise ValueError(f"the allocator setting {key} cannot be {value!r}") from None
            except KeyError:
                raise ValueError(f"torch's allocator has no setting {key!r}") from None
        return cls(**parsed)  # type: ignore[arg-type]


def _parse_setting(key: str, value: str) -> dict[str, object]:
    if key == "expandable_segments":
        return {"expandable": _parse_setting_bool(value)}
    if key == "max_split_size_mb":
        if int(value) <= MIN_SPLIT_MIB:
            raise ValueError(value)
        return {"max_split": int(value) * MIB}
    if key == "backend" and value.lower() == "cudamallocasync":
        raise FitUndecided(
            "cudaMallocAsync is another allocator than torch's own: how it cuts memory up is not modelled"
        )
    if key == "roundup_power2_divisions" and not value.startswith("["):
        return {"divisions": _parse_power_of_two(value)}
    if key in (*UNMODELLED_SETTINGS, "roundup_power2_divisions"):
        raise FitUndecided(f"what the allocator setting {key} changes is not modelled")
    if key not in IGNORED_SETTINGS and not key.startswith("pinned_"):
        raise KeyError(key)
    return {}


def _parse_setting_bool(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower() == "true"


def _split_settings(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [p.strip() for p in parts if p.strip()]


def _parse_power_of_two(value: str) -> int:
    number = int(value)
    if number < 1 or number & (number - 1):
        raise ValueError(value)
    return number
