"""How a process is doing, from /proc alone: its state, its processor time, whether it can be asked for its stack."""

from __future__ import annotations

import os

_TICKS = os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> tuple[str, float, int]:
    """State letter, seconds of processor time, process group; no letter where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[2])
    except (OSError, IndexError, ValueError):
        return "", 0.0, 0


def family(group: int) -> list[int]:
    """The processes of a group."""
    return [pid for pid in pids() if stat(pid)[2] == group]


def pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, which would end it otherwise."""
    return bool(_mask(pid, "SigCgt") >> (number - 1) & 1)


def _mask(pid: int, name: str) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1], 16)
    except (OSError, ValueError, IndexError):
        pass
    return 0


def children(parent: int) -> list[int]:
    found = []
    for pid in pids():
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                if int(file.read().rpartition(")")[2].split()[1]) == parent:
                    found.append(pid)
        except (OSError, IndexError, ValueError):
            continue
    return found


def oom_kills() -> int | None:
    """How often the kernel killed for memory in our control group; None where it does not say."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            for line in file:
                _, kinds, path = line.rstrip("\n").split(":", 2)
                if kinds == "":
                    return _count(f"/sys/fs/cgroup{path}/memory.events")
                if "memory" in kinds.split(","):
                    return _count(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
    except (OSError, ValueError):
        pass
    return None


def _count(path: str) -> int | None:
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def killed_for_memory(pid: int) -> bool | None:
    """Whether the kernel's own log says so; None where it cannot be read: only root may on most machines."""
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    wanted = f"Killed process {pid} ".encode()
    try:
        for _ in range(20_000):
            try:
                if wanted in os.read(fd, 8192):
                    return True
            except BrokenPipeError:
                continue  # overwritten while we read: go on with the next
    except OSError:
        pass
    finally:
        os.close(fd)
    return False
