"""The disk below a folder and /dev/shm: write and read large blocks. Standalone, standard library only."""

import errno
import mmap
import os
import tempfile
import threading
import time

from bench_matmul import NotSupportedHere

MIB = 1 << 20
BLOCK, THREADS = 4 * MIB, 4
O_DIRECT = getattr(os, "O_DIRECT", 0)


class BenchFile:
    """A temporary file that is unlinked once open, so that nothing is left behind."""

    def __init__(self, folder, size):
        space = os.statvfs(folder)
        free = space.f_bavail * space.f_frsize
        if free < 4 * size:
            raise NotSupportedHere(f"{free // MIB} MiB are free in {folder}, and {4 * size // MIB} MiB are wanted")
        self.size, self.filled = size // BLOCK * BLOCK, 0
        self.fd, path = tempfile.mkstemp(prefix=".gpuready-bench-", dir=folder)
        self.direct = None
        try:
            self.direct = os.open(path, os.O_RDWR | O_DIRECT) if O_DIRECT else None
        except OSError as error:  # tmpfs and some network file systems have no O_DIRECT
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
                raise
        finally:
            os.unlink(path)
        self.blocks = [mmap.mmap(-1, BLOCK) for _ in range(THREADS)]  # aligned, as O_DIRECT demands
        for block in self.blocks:
            block[:] = os.urandom(MIB) * (BLOCK // MIB)
        if self.direct is not None:
            self._test_direct_write()

    def _test_direct_write(self):
        """Drop O_DIRECT if a write fails: some file systems allow the open only."""
        try:
            os.pwrite(self.direct, self.blocks[0], 0)
        except OSError:
            os.close(self.direct)
            self.direct = None

    @property
    def access_mode(self):
        return "O_DIRECT" if self.direct is not None else "through the cache, synced"

    def write(self, seconds):
        """Return bytes per second, until the file is full or the time is up, including the final sync."""
        begun = time.perf_counter()
        done = self._move_blocks(os.pwrite, begun + seconds, self.size)
        if self.direct is None:
            os.fsync(self.fd)
        self.filled = max(self.filled, min(done) * THREADS)
        return sum(done) / (time.perf_counter() - begun)

    def read(self, seconds):
        """Return bytes per second of what was written; the page cache is dropped if possible."""
        if self.direct is None and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        begun = time.perf_counter()
        done = self._move_blocks(_read_block, begun + seconds, self.filled)
        return sum(done) / (time.perf_counter() - begun)

    def _move_blocks(self, move, until, most):
        """Move blocks in turn with several threads: one alone does not saturate a fast disk."""
        fd = self.fd if self.direct is None else self.direct
        done, faults = [0] * THREADS, []

        def move_share(hand):
            try:
                for at in range(hand * BLOCK, most, THREADS * BLOCK):
                    done[hand] += move(fd, self.blocks[hand], at)
                    if time.perf_counter() > until:
                        return
            except OSError as error:
                faults.append(error)

        hands = [threading.Thread(target=move_share, args=(hand,)) for hand in range(THREADS)]
        for hand in hands:
            hand.start()
        for hand in hands:
            hand.join()
        if faults:
            raise faults[0]
        return done

    def close(self):
        for fd in (self.fd, self.direct):
            if fd is not None:
                os.close(fd)
        self.fd = self.direct = None


def _read_block(fd, block, at):
    return os.preadv(fd, [block], at)


def disk_measure(store, folder, reading):
    """Return the measure of the disk below a folder: write or read speed."""
    if reading and not store.filled:
        store.write(5.0)

    def measure_disk(seconds):
        rate = store.read(6 * seconds) if reading else store.write(6 * seconds)
        return rate, rate

    return measure_disk, f"{folder}, {store.access_mode}"


def shared_memory_measure(folder, quick, size=0):
    """Return the measure of /dev/shm: one process writes and reads back, like the workers of a DataLoader."""
    if not os.path.isdir(folder):
        raise NotSupportedHere(f"{folder} is not there")
    space = os.statvfs(folder)
    room = space.f_bavail * space.f_frsize // 4 // BLOCK * BLOCK
    size = min(size or (64 if quick else 256) * MIB, room)
    if size < BLOCK:
        raise NotSupportedHere(f"{folder} has only {4 * room // MIB} MiB free")
    store = BenchFile(folder, size)
    store.write(5.0)  # allocate its pages once, as a running loader has them

    def measure_shared_memory(seconds):
        begun, moved = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds or not moved:
            store._move_blocks(os.pwrite, begun + 60, store.size)
            store._move_blocks(_read_block, begun + 60, store.size)
            moved += 2 * store.size
        rate = moved / (time.perf_counter() - begun)
        return rate, rate

    measure_shared_memory.close = store.close
    return measure_shared_memory, f"{folder}, {size // MIB} MiB"
