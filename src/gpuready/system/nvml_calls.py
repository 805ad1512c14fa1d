"""NVML functions through ctypes: the newest name this driver has, errors as exceptions."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOST, TOO_SMALL, MISSING = 15, 7, 13
"""NVML error codes that need special handling."""


class Refused(Exception):
    """NVML returned an error: its code and text."""

    def __init__(self, code: int, says: str):
        super().__init__(says)
        self.code, self.says = code, says


class Nvml:
    """Call functions by name; a code other than success raises NvmlError."""

    def __init__(self, path: str):
        import ctypes

        self.c = ctypes
        self.library = ctypes.CDLL(path)

    def call(self, names: str, *args: Any) -> str:
        """Call the first of several names (newest first) this driver has; return that name."""
        for name in names.split():
            function = getattr(self.library, name, None)
            if function is not None:
                code = function(*args)
                if code:
                    raise Refused(code, self.says(code))
                return name
        raise Refused(MISSING, "Function Not Found")

    def says(self, code: int) -> str:
        """NVML's text for an error code."""
        try:
            function = self.library.nvmlErrorString
            function.restype = self.c.c_char_p
            return words(function(code)) or f"NVML error {code}"
        except AttributeError:
            return f"NVML error {code}"

    def number(self, names: str, device: Any, *before: Any, kind: str = "c_uint") -> int:
        """A call whose last argument receives one number."""
        value = getattr(self.c, kind)()
        self.call(names, *device, *before, self.c.byref(value))
        return int(value.value)

    def numbers(self, names: str, device: Any, count: int, kind: str = "c_uint") -> list[int]:
        """A call whose last arguments receive one number each."""
        values = [getattr(self.c, kind)() for _ in range(count)]
        self.call(names, *device, *(self.c.byref(v) for v in values))
        return [int(v.value) for v in values]

    def words_of(self, names: str, *device: Any) -> str:
        """A call that fills a buffer with text."""
        buffer = self.c.create_string_buffer(128)
        self.call(names, *device, buffer, self.c.c_uint(96))
        return words(buffer.value)

    def record(self, names: str, device: Any, size: int) -> bytes:
        """A call that fills a structure; the buffer has spare bytes in case a driver writes a longer one."""
        buffer = self.c.create_string_buffer(size + 64)
        self.call(names, *device, buffer)
        return buffer.raw


def words(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "backslashreplace").strip()
