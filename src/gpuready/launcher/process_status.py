"""The state of a process, from /proc: state letter, processor time, handled signals, memory."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

from gpuready.rollcall.endpoint import read_text

_TICKS = os.sysconf("SC_CLK_TCK")


def read_process_stat(pid: int) -> tuple[str, float, int]:
    """Return state letter, seconds of processor time and parent; no letter if there is no such process."""
    try:
        fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return fields[0], (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[1])
    except (IndexError, ValueError):
        return "", 0.0, 0


AGENT_PROCESS = "GPUREADY_AGENT_PROCESS"
"""The variable of a rank that tells its agent from every other process that has or had that pid."""


def describe_own_process() -> str:
    """``BOOT-ID pid:[4026531836] 4711 8812345``: the boot, the pid namespace, the pid and its start in ticks since the boot."""
    fields = read_text("/proc/self/stat").rpartition(")")[2].split()
    started = fields[19] if len(fields) > 19 else "0"
    namespace = read_link("/proc/self/ns/pid") or "-"
    return f"{read_text('/proc/sys/kernel/random/boot_id').strip() or '-'} {namespace} {os.getpid()} {started}"


def read_exit_status(pid: int) -> int:
    """Return with what a child has ended whose parent has not asked for it yet; 0 for every other process."""
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[49]) if fields[:1] == ["Z"] and len(fields) > 49 else 0


def read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def list_process_ids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def read_activity(pid: int) -> tuple[int, int]:
    """Return how often the main thread went to sleep by itself, and the bytes that the process has read and written."""
    bytes_moved = sum(read_number(f"/proc/{pid}/io", name) for name in ("rchar:", "wchar:"))
    return read_number(f"/proc/{pid}/task/{pid}/status", "voluntary_ctxt_switches:"), bytes_moved


def read_number(path: str, name: str) -> int:
    lines = (line.split() for line in read_text(path).splitlines() if line.startswith(name))
    return next((int(words[1]) for words in lines if words[1:2] and words[1].isdigit()), 0)


def list_descendants(pid: int) -> list[int]:
    """The children of a process and theirs, where the kernel lists them."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < 256:
        parent = waiting.pop()
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children", encoding="utf-8") as file:
                    children = [int(word) for word in file.read().split()]
                found += children
                waiting += children
        except (OSError, ValueError):
            continue
    return found


def list_kernel_waits(pid: int) -> list[str]:
    """For each thread in uninterruptible sleep the kernel function that it waits in, if it may be read."""
    found = []
    with suppress(OSError, ValueError):
        for task in os.listdir(f"/proc/{pid}/task"):
            if read_process_stat(int(task))[0] == "D":
                with open(f"/proc/{pid}/task/{task}/wchan", encoding="utf-8") as file:
                    found.append(file.read().strip("0\n"))
    return found


def is_frozen(pid: int, root: str = "") -> bool:
    """Whether the process's control group is frozen."""
    folders = _group_folders("freezer", root, str(pid))
    states = [read_text(f"{folder}/{name}") for folder in folders for name in ("freezer.state", "cgroup.events")]
    return any("FROZEN" in state or "frozen 1" in state for state in states)


def list_child_processes(parent: int) -> list[int]:
    return [pid for pid in list_process_ids() if read_process_stat(pid)[2] == parent]


def count_oom_kills(root: str = "") -> int | None:
    """Return how often the kernel killed for memory in our control group; None if unknown."""
    return _read_group_event("memory", ("memory.events", "memory.oom_control"), "oom_kill", root)


_LIMIT_ROWS = {
    "files": "Max open files",
    "processes": "Max processes",
    "addresses": "Max address space",
    "data_bytes": "Max data size",
    "locked_bytes": "Max locked memory",
    "file_bytes": "Max file size",
    "seconds": "Max cpu time",
}
"""Limits of a process, by their rows in /proc/PID/limits."""


def read_limits(root: str = "", pid: int | str = "self") -> dict[str, int]:
    """Return a rank's limits (-1: any) on files, processes, bytes of addresses, of data, of locked memory and of a file, and seconds; the processes and bytes of its control group (0: any), and how often more processes were refused."""
    rows = read_text(f"{root}/proc/{pid}/limits").splitlines()
    soft = {row[:26].strip(): row[26:].split()[0] for row in rows[1:]}
    words = {name: soft.get(row, "") for name, row in _LIMIT_ROWS.items()}
    own = {name: int(word) if word.isdigit() else -1 for name, word in words.items()}
    denied = _read_group_event("pids", ("pids.events", "pids.events"), "max", root, str(pid)) or 0
    counts = (read_text(f"{folder}/pids.max").strip() for folder in _group_folders("pids", root, str(pid)))
    pids = next(filter(None, counts), "")
    memory = [total for _, total in _group_room(_group_folders("memory", root, str(pid)))]
    return {**own, "pids": int(pids) if pids.isdigit() else 0, "memory": min(memory, default=0), "denied": denied}


NO_INODES = "no inodes: df -i"


def list_full_disks(places: Iterable[str]) -> list[str]:
    """``/mnt/scratch (0.0 GiB free)``: the disks without room or inodes on which these files and folders are."""
    found = {}
    for place in sorted({place if os.path.isdir(place) else os.path.dirname(place) for place in places}):
        try:
            disk = os.statvfs(place)
        except OSError:
            continue
        free = disk.f_bavail * disk.f_frsize
        says = f", {NO_INODES}" if free >= 1 << 16 and disk.f_files and not disk.f_favail else ""
        if disk.f_blocks and not disk.f_flag & os.ST_RDONLY and (free < 1 << 16 or says):
            found[_find_mount_point(place)] = f"{_gib(free)} GiB free{says}"
    return [f"{path} ({says})" for path, says in found.items()][:4]


def _find_mount_point(path: str) -> str:
    path = os.path.realpath(path)
    return path if os.path.ismount(path) else _find_mount_point(os.path.dirname(path))


def _group_folders(kind: str, root: str, pid: str = "self") -> list[str]:
    """The folders of our control group for one controller: v1 first. In a container the mounted one may be our own, whatever its path on the host."""
    rows = [line.split(":", 2) for line in read_text(f"{root}/proc/{pid}/cgroup").splitlines() if line.count(":") >= 2]
    found = []
    for _, kinds, path in sorted(rows, key=lambda row: row[1] == ""):
        mounted = f"{root}/sys/fs/cgroup" + (f"/{kind}" if kinds else "")
        found += [f"{mounted}{path}", mounted] if not kinds or kind in kinds.split(",") else []
    return found


def _read_group_event(kind: str, names: tuple[str, str], event: str, root: str, pid: str = "self") -> int | None:
    """Read a counter of a control group; ``names`` are its files in v2 and in v1."""
    for folder in _group_folders(kind, root, pid):
        for line in "\n".join(read_text(f"{folder}/{name}") for name in names).splitlines():
            if line.startswith(f"{event} ") and line.split()[1].isdigit():
                return int(line.split()[1])
    return None


def killed_for_memory(pid: int, log: str = "/dev/kmsg") -> bool | None:
    """Whether the kernel's log says so; None if it cannot be read: on most machines only root may."""
    try:
        fd = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    wanted, before = f"Killed process {pid} ".encode(), b""
    try:
        for _ in range(20_000):
            try:
                piece = os.read(fd, 8192)
            except BrokenPipeError:
                continue  # overwritten while reading: continue with the next
            if wanted in before + piece:
                return True
            if not piece:
                break
            before = piece[-len(wanted) :]
    except OSError:
        pass
    finally:
        os.close(fd)
    return False


def read_resident_bytes(pid: int) -> int:
    """Return the memory of a process that is in RAM and its own: shared pages count for nobody."""
    try:
        fields = read_text(f"/proc/{pid}/statm").split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, IndexError):
        return 0


def read_memory_room(root: str = "") -> tuple[int, int]:
    """Return the bytes that are left, and those there are, in the control group or on the host, whichever is tighter; 0, 0 if unknown."""
    rows = dict(line.split(":", 1) for line in read_text(f"{root}/proc/meminfo").splitlines() if ":" in line)
    room = [(_kibibytes(rows.get("MemAvailable", "")), _kibibytes(rows.get("MemTotal", "")))]
    room += _group_room(_group_folders("memory", root))
    known = [pair for pair in room if pair[1] > 0]
    return min(known, key=lambda pair: pair[0]) if known else (0, 0)


def _group_room(folders: list[str]) -> list[tuple[int, int]]:
    for folder in folders:
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            total, now = read_text(f"{folder}/{limit}").strip(), read_text(f"{folder}/{used}").strip()
            if total.isdigit() and now.isdigit() and int(total) < 1 << 60:
                stat = dict(row.split(" ", 1) for row in read_text(f"{folder}/memory.stat").splitlines() if " " in row)
                files = stat.get("inactive_file", stat.get("total_inactive_file", "0"))  # the kernel frees these first
                return [(int(total) - int(now) + int(files), int(total))]
    return []


def _kibibytes(text: str) -> int:
    words = text.split()
    return int(words[0]) << 10 if words and words[0].isdigit() else 0


LEAST_SHARE, LEAST_GROWTH = 0.1, 64 << 20
"""With less of the memory left, and a rank that has grown by at least so much, it is reported."""


class MemoryWatch:
    """The ranks of one agent: what each had at first, and who has grown most since."""

    def __init__(self) -> None:
        self.first: dict[int, tuple[float, int]] = {}
        self.reported, self.left = False, 0

    def look(self, pids: Mapping[int, int], now: float) -> tuple[int, str] | None:
        """Return the rank that has grown most, and a sentence, when memory runs out; only once."""
        sizes = {rank: read_resident_bytes(pid) for rank, pid in pids.items()}
        for rank, size in sizes.items():
            self.first.setdefault(rank, (now, size))
        left, total = read_memory_room()
        self.left = left
        if self.reported or not sizes or not total or left > LEAST_SHARE * total:
            return None
        rank = max(sizes, key=lambda one: sizes[one] - self.first[one][1])
        since, size = self.first[rank]
        if sizes[rank] - size < LEAST_GROWTH:
            return None
        self.reported = True
        grown = f"rank {rank} has grown from {_gib(size)} to {_gib(sizes[rank])} GiB in {now - since:.0f} s"
        return rank, f"memory runs out: {_gib(left)} of {_gib(total)} GiB are left, and {grown}"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"
