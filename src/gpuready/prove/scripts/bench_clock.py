"""Time on a GPU and on a CPU: warm first, many times, the median and the best. Standalone; torch is handed in."""

import time

from bench_search import median

FEWEST, MOST, LONGEST_QUEUE = 3, 200, 5000
RESTS, LONGEST_REST = 4, 0.3
"""A large GPU at full load meets its power limit within half a second and lowers its clocks: what came first would look
faster than what came later. So each piece of work is short, and before it the GPU rests so many times as long."""


class Clock:
    """Times one piece of work on one device, with the events of the GPU where there is one."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.cuda = device.type == "cuda"

    def settle(self):
        if self.cuda:
            self.torch.cuda.synchronize(self.device)

    def times(self, work, count):
        """The seconds of each of ``count`` turns. On a GPU they are queued together, so that it never waits for us."""
        if not self.cuda:
            return [_timed(work, turn) for turn in range(count)]
        with self.torch.cuda.device(self.device):  # an event belongs to the GPU that is current
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
        """Warm up, then work for about ``seconds``: the median and the best of the turns."""
        self.times(work, 1)  # the first turn loads kernels and takes memory
        one = max(min(self.times(work, 2)), 1e-7)
        if warm:
            self.times(work, _turns(warm, one, 1))
        turns = _turns(seconds, one, FEWEST)
        self.rest(turns * one)
        found = self.times(work, turns)
        return median(found), min(found)

    def held(self, work, seconds):
        """Work without a rest for about ``seconds``: the mean turn of the second half, and the best of all.

        A large GPU meets its power limit in the first half: what follows is what a long run gets.
        """
        self.times(work, 1)
        one = max(min(self.times(work, 2)), 1e-7)
        found = self.times(work, max(2 * FEWEST, min(LONGEST_QUEUE, int(seconds / one))))
        later = found[len(found) // 2 :]
        return sum(later) / len(later), min(found)

    def rest(self, after):
        """Leave the GPU alone for a multiple of this time; a CPU needs none."""
        if self.cuda:
            time.sleep(min(RESTS * after, LONGEST_REST))


def _turns(seconds, one, least):
    return max(least, min(MOST, int(seconds / one)))


def _timed(work, turn):
    begun = time.perf_counter()
    work(turn)
    return max(time.perf_counter() - begun, 1e-9)
