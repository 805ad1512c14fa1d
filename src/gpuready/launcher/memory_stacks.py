"""Read the Python stacks of a rank from its memory: no signal reaches its threads, and it may be stopped or hold the GIL.

The agent runs the same Python as its ranks. Where a field stands in a structure of the interpreter is found by
searching the agent's own structures for values that are known, so that no table of versions is needed. Runs in the
target environment; standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import os
import struct
import sys
from collections.abc import Callable
from ctypes import addressof, c_char, pythonapi
from types import CodeType, FrameType

WORD = struct.calcsize("P")
MAX_THREADS, MAX_FRAMES = 256, 200
_FIRST_LINE = 987_654  # a number of a line that no other field has
_TAG_BITS = 7  # a reference may carry tags in its lowest bits


class MemoryLayout:
    """Offsets of the fields that lead from a thread to its frames; ``LookupError`` if one is not found."""

    def __init__(self) -> None:
        fd = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        self.read_own: Callable[[int, int], bytes] = lambda address, size: os.pread(fd, size, address)
        self.code_type = id(type(_template_code()))
        self.has_inner_frames = sys.version_info >= (3, 11)
        self._find_code_fields(_template_code())
        self._find_frame_fields()
        self._find_thread_fields()
        self._find_image()
        self.allocations = self._find_allocation_count()

    def _find_code_fields(self, code: CodeType) -> None:
        size = type(code).__basicsize__
        table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
        self.code_name = self._offset_of(id(code), id(code.co_name), size)
        self.code_file = self._offset_of(id(code), id(code.co_filename), size)
        self.code_lines = self._offset_of(id(code), id(table), size)
        words = self.read_own(id(code), size)
        self.code_first_line = words.find(struct.pack("i", _FIRST_LINE))
        self.code_start = size  # since 3.11 the instructions follow the fields
        if self.code_first_line < 0:
            raise LookupError("co_firstlineno")

    def _find_frame_fields(self) -> None:
        """Look at this frame and at the caller's, which stands still during this call."""
        frame = sys._getframe()
        back = frame.f_back
        assert back is not None
        address, before = self._inner_frame(frame), self._inner_frame(back)
        self.frame_back = self._offset_of(address, before, 160)
        self.frame_code = self._offset_of(address, id(frame.f_code), 160, masked=True)
        self.frame_last = self._find_last_instruction(before, back)

    def _inner_frame(self, frame: FrameType) -> int:
        """The address of the frame that the interpreter runs; before 3.11 it is the frame object itself."""
        if not self.has_inner_frames:
            return id(frame)
        header = object.__basicsize__
        return int(struct.unpack_from("P", self.read_own(id(frame), header + 2 * WORD), header + WORD)[0])

    def _find_last_instruction(self, address: int, frame: FrameType) -> int:
        raw = self.read_own(address, 160)
        if not self.has_inner_frames:
            return _aligned_find(raw, struct.pack("i", frame.f_lasti // 2), 4, 2 * WORD)
        return _aligned_find(raw, struct.pack("P", id(frame.f_code) + self.code_start + frame.f_lasti), WORD, 0)

    def _find_thread_fields(self) -> None:
        """Where a thread has its newest frame, and the thread before it: in a second thread that stands still."""
        ready, done = _thread.allocate_lock(), _thread.allocate_lock()
        ready.acquire()
        done.acquire()
        number = _thread.start_new_thread(_stand_still, (ready, done))
        try:
            ready.acquire()
            self._find_thread_list()
            self._find_frame_of_thread(self._inner_frame(sys._current_frames()[number]))
        finally:
            done.release()

    def _find_thread_list(self) -> None:
        """The newest thread is the first, and leads to the one before it."""
        interpreter = ctypes.pythonapi.PyInterpreterState_Head
        interpreter.restype = ctypes.c_void_p
        head = ctypes.pythonapi.PyInterpreterState_ThreadHead
        head.restype, head.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        follow = ctypes.pythonapi.PyThreadState_Next
        follow.restype, follow.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        self.interpreter = int(interpreter())
        self.newest_thread = int(head(self.interpreter))
        self.thread_next = self._offset_of(self.newest_thread, int(follow(self.newest_thread) or 0), 64)
        self.first_thread = self._offset_of(self.interpreter, self.newest_thread, 1 << 19)

    def _find_frame_of_thread(self, frame: int) -> None:
        raw = self.read_own(self.newest_thread, 512)
        words = struct.unpack(f"{len(raw) // WORD}P", raw)
        if frame in words:
            self.thread_frame, self.thread_hop = words.index(frame) * WORD, -1
            return
        for index, word in enumerate(words):  # 3.11 and 3.12: by way of a structure on the C stack
            try:
                hop = struct.unpack("4P", self.read_own(word, 4 * WORD)) if word % WORD == 0 else ()
            except (OSError, OverflowError, struct.error):
                continue
            if frame in hop:
                self.thread_frame, self.thread_hop = index * WORD, hop.index(frame) * WORD
                return
        raise LookupError("the frame of a thread")

    def _find_image(self) -> None:
        """Where the interpreter's own variables are: for a rank that was started by itself."""
        try:
            runtime = addressof(c_char.in_dll(pythonapi, "_PyRuntime"))
            self.runtime_interpreter = self._offset_of(runtime, self.interpreter, 1 << 12)
        except (ValueError, LookupError, OSError):
            self.image, self.runtime, self.code_type_at = "", 0, 0
            return
        self.image, base = _image_of(os.getpid(), runtime)
        self.runtime, self.code_type_at = runtime - base, self.code_type - base

    def _find_allocation_count(self) -> int:
        """Where the collector counts new containers: a process that runs Python changes it. Before 3.9: not there."""
        size, kept = 1 << 19, []  # type: int, list[object]
        before, low = self.read_own(self.interpreter, size), gc.get_count()[0]
        kept += [set() for _ in range(61)]
        after = self.read_own(self.interpreter, size)
        for offset in range(0, min(len(before), len(after)) - 3, 4):
            if before[offset : offset + 4] != after[offset : offset + 4]:
                old, new = (struct.unpack_from("i", raw, offset)[0] for raw in (before, after))
                if abs(old - low) < 8 and abs(new - old - len(kept)) < 8:
                    return offset
        return -1

    def _offset_of(self, address: int, value: int, size: int, masked: bool = False) -> int:
        raw = self.read_own(address, size)
        for index, word in enumerate(struct.unpack(f"{len(raw) // WORD}P", raw[: len(raw) // WORD * WORD])):
            if value and (word & ~_TAG_BITS if masked else word) == value:
                return index * WORD
        raise LookupError(hex(value))


def _stand_still(ready: object, done: object) -> None:
    ready.release()  # type: ignore[attr-defined]
    done.acquire()  # type: ignore[attr-defined]


def _template_code() -> CodeType:
    return _stand_still.__code__.replace(co_firstlineno=_FIRST_LINE)


def _aligned_find(raw: bytes, wanted: bytes, step: int, start: int) -> int:
    for offset in range(start, len(raw) - len(wanted) + 1, step):
        if raw[offset : offset + len(wanted)] == wanted:
            return offset
    raise LookupError("the last instruction of a frame")


def _image_of(pid: int, address: int) -> tuple[str, int]:
    """Return the file that is mapped at an address of a process, and where it begins; not found: no file."""
    begins: dict[str, int] = {}
    for start, end, path in _list_mappings(pid):
        begins.setdefault(path, start)
        if start <= address < end:
            # Zeroed variables lie behind the file, in memory without a name.
            name = path if path.startswith("/") else [p for p in begins if p.startswith("/")][-1]
            return name, begins[name]
    return "", 0


def _list_mappings(pid: int) -> list[tuple[int, int, str]]:
    rows = []
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.rstrip("\n").split(None, 5)
            start, _, end = fields[0].partition("-")
            rows.append((int(start, 16), int(end, 16), fields[5] if len(fields) > 5 else ""))
    return rows


class Position:
    """Where a main thread is: its functions, its instructions, and how much Python has run in the process."""

    __slots__ = ("codes", "count", "files", "places")

    def __init__(self, codes: list[int], places: list[bytes], count: bytes, files: list[str]):
        self.codes, self.places, self.count, self.files = codes, places, count, files


_UNREADABLE = (OSError, ValueError, OverflowError, struct.error, LookupError)


class StackReader:
    """Reads the stacks of processes that run the same Python as this one."""

    def __init__(self) -> None:
        try:
            self.layout: MemoryLayout | None = MemoryLayout()
        except Exception:  # another interpreter, or memory that may not be read: no stacks
            self.layout = None

    def read_stacks(self, pid: int, forked: bool) -> list[str]:
        """Return the lines of all threads as faulthandler writes them, the main thread last; empty if unreadable."""
        if self.layout is None:
            return []
        try:
            with ProcessMemory(pid, self.layout, forked) as memory:
                return memory.format_threads()
        except _UNREADABLE:
            return []

    def read_position(self, pid: int, forked: bool, files: dict[int, str]) -> Position | None:
        """Return where the main thread is; None if unreadable. ``files`` remembers the file of each code."""
        if self.layout is None:
            return None
        try:
            with ProcessMemory(pid, self.layout, forked) as memory:
                return memory.read_position(files)
        except _UNREADABLE:
            return None


class ProcessMemory:
    """The memory of one process, for the time of one look."""

    def __init__(self, pid: int, layout: MemoryLayout, forked: bool):
        self.pid, self.layout, self.forked = pid, layout, forked
        self.shift, self.interpreter = 0, layout.interpreter

    def __enter__(self) -> ProcessMemory:
        self.fd = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        if not self.forked:
            self._find_interpreter()
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.fd)

    def _find_interpreter(self) -> None:
        """How far its image is from ours, and where its interpreter is."""
        layout = self.layout
        begin = next((start for start, _, path in _list_mappings(self.pid) if path and path == layout.image), None)
        if begin is None or not layout.runtime:
            os.close(self.fd)
            raise LookupError("another program")
        self.shift = begin + layout.code_type_at - layout.code_type
        self.interpreter = self._word(begin + layout.runtime + layout.runtime_interpreter)

    def format_threads(self) -> list[str]:
        lines = []
        for thread in self._list_threads():
            frames = [self._format_frame(frame, code) for frame, code in self._list_frames(thread)]
            lines += [f"Thread 0x{thread:x} (most recent call first):", *frames]
        return [line for line in lines if '"<shim>"' not in line]

    def read_position(self, files: dict[int, str]) -> Position:
        layout = self.layout
        frames = self._list_frames(self._list_threads()[-1])
        count = self._read(self.interpreter + layout.allocations, 4) if layout.allocations >= 0 else b""
        for _, code in frames:
            if code not in files:
                files[code] = self._text(code + layout.code_file)
        codes = [code for _, code in frames]
        places = [self._read(frame + layout.frame_last, WORD) for frame, _ in frames]
        return Position(codes, places, count, [files[code] for code in codes])

    def _list_threads(self) -> list[int]:
        """The newest first: the main thread is the oldest."""
        threads: list[int] = []
        thread = self._word(self.interpreter + self.layout.first_thread)
        while thread and len(threads) < MAX_THREADS and thread not in threads:
            threads.append(thread)
            thread = self._word(thread + self.layout.thread_next)
        return threads

    def _list_frames(self, thread: int) -> list[tuple[int, int]]:
        """The frames of a thread with their codes, the innermost first."""
        layout, frames = self.layout, []  # type: MemoryLayout, list[tuple[int, int]]
        frame = self._word(thread + layout.thread_frame)
        if layout.thread_hop >= 0 and frame:
            frame = self._word(frame + layout.thread_hop)
        while frame and len(frames) < MAX_FRAMES:
            code = self._word(frame + layout.frame_code) & ~_TAG_BITS
            if code and self._word(code + WORD) == layout.code_type + self.shift:
                frames.append((frame, code))
            frame = self._word(frame + layout.frame_back)
        return frames

    def _format_frame(self, frame: int, code: int) -> str:
        layout = self.layout
        file, name = self._text(code + layout.code_file), self._text(code + layout.code_name)
        return f'  File "{file}", line {self._line(frame, code)} in {name}'

    def _line(self, frame: int, code: int) -> int:
        layout = self.layout
        first = struct.unpack("i", self._read(code + layout.code_first_line, 4))[0]
        if layout.has_inner_frames:
            last = self._word(frame + layout.frame_last) - code - layout.code_start
        else:
            last = 2 * struct.unpack("i", self._read(frame + layout.frame_last, 4))[0]
        return _line_at(self._bytes(self._word(code + layout.code_lines)), first, last)

    def _text(self, pointer: int) -> str:
        address = self._word(pointer)
        length = self._word(address + 2 * WORD)
        if not 0 <= length < 4096:
            raise ValueError(length)
        short = self._read(address + sys.getsizeof("") - 1, length)
        if all(32 <= byte < 127 for byte in short):
            return short.decode("ascii")
        wide = self._read(address + sys.getsizeof("".join(("\xe9", "\xe8"))) - 3, 4 * length + 4)  # of a new text
        for size, name in ((1, "latin-1"), (2, "utf-16"), (4, "utf-32")):
            if not any(wide[length * size : length * size + size]):
                return wide[: length * size].decode(name, "replace")
        return "?"

    def _bytes(self, address: int) -> bytes:
        length = self._word(address + 2 * WORD)
        if not 0 <= length < 1 << 20:
            raise ValueError(length)
        return self._read(address + bytes.__basicsize__ - 1, length)

    def _word(self, address: int) -> int:
        return int(struct.unpack("P", self._read(address, WORD))[0])

    def _read(self, address: int, size: int) -> bytes:
        data = os.pread(self.fd, size, address) if size else b""
        if len(data) != size:
            raise OSError("short read")
        return data


def _line_at(table: bytes, first: int, last: int) -> int:
    """Return the line of an instruction; Python decodes its own table."""
    code = _stand_still.__code__.replace(co_linetable=table, co_firstlineno=first)
    return next((line or first for start, end, line in code.co_lines() if start <= last < end), first)
