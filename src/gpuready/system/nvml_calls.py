"""NVML functions through ctypes: the newest name this driver has, errors as exceptions."""

from __future__ import annotations

import ctypes
from typing import Any

GPU_IS_LOST, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND = 15, 7, 13
"""NVML error codes that need special handling."""


class NvmlError(Exception):
    """NVML returned an error: its code and text."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code, self.message = code, message


class NvmlLibrary:
    """Call functions by name; a code other than success raises NvmlError."""

    def __init__(self, path: str):
        self.ctypes = ctypes
        self.library = ctypes.CDLL(path)

    def call_newest(self, names: str, *args: Any) -> str:
        """Call the first of several names (newest first) this driver has; return that name."""
        for name in names.split():
            function = getattr(self.library, name, None)
            if function is not None:
                code = function(*args)
                if code:
                    raise NvmlError(code, self.error_text(code))
                return name
        raise NvmlError(FUNCTION_NOT_FOUND, "Function Not Found")

    def error_text(self, code: int) -> str:
        """NVML's text for an error code."""
        try:
            function = self.library.nvmlErrorString
            function.restype = self.ctypes.c_char_p
            return decode_text(function(code)) or f"NVML error {code}"
        except AttributeError:
            return f"NVML error {code}"

    def get_number(self, names: str, device: Any, *before: Any, kind: str = "c_uint") -> int:
        """A call whose last argument receives one number."""
        value = getattr(self.ctypes, kind)()
        self.call_newest(names, *device, *before, self.ctypes.byref(value))
        return int(value.value)

    def get_numbers(self, names: str, device: Any, count: int, kind: str = "c_uint") -> list[int]:
        """A call whose last arguments receive one number each."""
        values = [getattr(self.ctypes, kind)() for _ in range(count)]
        self.call_newest(names, *device, *(self.ctypes.byref(v) for v in values))
        return [int(v.value) for v in values]

    def get_text(self, names: str, *device: Any) -> str:
        """A call that fills a buffer with text."""
        buffer = self.ctypes.create_string_buffer(128)
        self.call_newest(names, *device, buffer, self.ctypes.c_uint(96))
        return decode_text(buffer.value)

    def get_struct(self, names: str, device: Any, size: int) -> bytes:
        """A call that fills a structure; the buffer has spare bytes in case a driver writes a longer one."""
        buffer = self.ctypes.create_string_buffer(size + 64)
        self.call_newest(names, *device, buffer)
        return buffer.raw


def decode_text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "backslashreplace").strip()
