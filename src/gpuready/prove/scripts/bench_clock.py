"""Timing on a GPU and a CPU: warm-up, many turns, median and best. Standalone; torch is passed in."""

import time

from bench_search import median

FEWEST, MOST, LONGEST_QUEUE = 3, 200, 5000
RESTS, LONGEST_REST = 4, 0.3
"""A large GPU at full load reaches its power limit within half a second and lowers its clocks, so that earlier work would
look faster than later. So each piece of work is short, and the GPU rests this many times as long before it."""


class Clock:
    """Times work on one device, with GPU events if it is a GPU."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.cuda = device.type == "cuda"

    def settle(self):
        if self.cuda:
            self.torch.cuda.synchronize(self.device)

    def times(self, work, count):
        """Return the seconds of each of ``count`` turns. On a GPU they are queued together, so that it never idles."""
        if not self.cuda:
            return [_timed(work, turn) for turn in range(count)]
        with self.torch.cuda.device(self.device):  # an event belongs to the current GPU
            return self._queued(work, count)

    def _queued(self, work, count):
        event = self.torch.cuda.Event
        marks = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(count)]
        for turn, (begin, end) in enumerate(marks):
            begin.record()
            work(turn)
            end.record()
        self.settle()
        return [begin.elapsed_time(end) / 1000 for begin, end in marks]

    def measured(self, work, seconds, warm=0.0):
        """Warm up, then work for about ``seconds``: return the median and the best turn."""
        self.times(work, 1)  # the first turn loads kernels and allocates memory
        one = max(min(self.times(work, 2)), 1e-7)
        if warm:
            self.times(work, _turns(warm, one, 1))
        turns = _turns(seconds, one, FEWEST)
        self.rest(turns * one)
        found = self.times(work, turns)
        return median(found), min(found)

    def held(self, work, seconds):
        """Work without rests for about ``seconds``: return the mean turn of the second half, and the best of all.

        A large GPU reaches its power limit in the first half: the second half is what a long run gets.
        """
        self.times(work, 1)
        one = max(min(self.times(work, 2)), 1e-7)
        found = self.times(work, max(2 * FEWEST, min(LONGEST_QUEUE, int(seconds / one))))
        later = found[len(found) // 2 :]
        return sum(later) / len(later), min(found)

    def rest(self, after):
        """Leave the GPU idle for a multiple of this time; a CPU needs no rest."""
        if self.cuda:
            time.sleep(min(RESTS * after, LONGEST_REST))


def _turns(seconds, one, least):
    return max(least, min(MOST, int(seconds / one)))


def _timed(work, turn):
    begun = time.perf_counter()
    work(turn)
    return max(time.perf_counter() - begun, 1e-9)
