"""Timing on a GPU and a CPU: warm-up, many turns, median and best. Standalone; torch is passed in."""

import time
from statistics import median

FEWEST_TURNS, MOST_TURNS, LONGEST_QUEUE = 3, 200, 5000
REST_FACTOR, LONGEST_REST = 4, 0.3
"""A large GPU at full load reaches its power limit within half a second and lowers its clocks, so that earlier work would
look faster than later. So each piece of work is short, and the GPU rests this many times as long before it."""


class BenchClock:
    """Times work on one device, with GPU events if it is a GPU."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.cuda = device.type == "cuda"

    def wait_for_device(self):
        if self.cuda:
            self.torch.cuda.synchronize(self.device)

    def time_turns(self, work, count):
        """Return the seconds of each of ``count`` turns. On a GPU they are queued together, so that it never idles."""
        if not self.cuda:
            return [_time_once(work, turn) for turn in range(count)]
        with self.torch.cuda.device(self.device):  # an event belongs to the current GPU
            return self._time_on_gpu(work, count)

    def _time_on_gpu(self, work, count):
        event = self.torch.cuda.Event
        marks = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(count)]
        for turn, (begin, end) in enumerate(marks):
            begin.record()
            work(turn)
            end.record()
        self.wait_for_device()
        return [begin.elapsed_time(end) / 1000 for begin, end in marks]

    def measure_burst(self, work, seconds, warm=0.0):
        """Warm up, then work for about ``seconds``: return the median and the best turn."""
        self.time_turns(work, 1)  # the first turn loads kernels and allocates memory
        one = max(min(self.time_turns(work, 2)), 1e-7)
        if warm:
            self.time_turns(work, _count_turns(warm, one, 1))
        turns = _count_turns(seconds, one, FEWEST_TURNS)
        self.rest_gpu(turns * one)
        seconds_each = self.time_turns(work, turns)
        return median(seconds_each), min(seconds_each)

    def measure_sustained(self, work, seconds):
        """Work without rests for about ``seconds``: return the mean turn of the second half, and the best of all.

        A large GPU reaches its power limit in the first half: the second half is what a long run gets.
        """
        self.time_turns(work, 1)
        one = max(min(self.time_turns(work, 2)), 1e-7)
        seconds_each = self.time_turns(work, max(2 * FEWEST_TURNS, min(LONGEST_QUEUE, int(seconds / one))))
        later = seconds_each[len(seconds_each) // 2 :]
        return sum(later) / len(later), min(seconds_each)

    def rest_gpu(self, after):
        """Leave the GPU idle for a multiple of this time; a CPU needs no rest."""
        if self.cuda:
            time.sleep(min(REST_FACTOR * after, LONGEST_REST))


def _count_turns(seconds, one, least):
    return max(least, min(MOST_TURNS, int(seconds / one)))


def _time_once(work, turn):
    begun = time.perf_counter()
    work(turn)
    return max(time.perf_counter() - begun, 1e-9)
