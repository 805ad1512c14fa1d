"""Copies and kernel launches: on the GPU, over PCIe, to a peer. Standalone; torch is passed in."""

import time

from bench_clock import BenchClock
from bench_matmul import NotSupportedHere

MIB = 1 << 20


def memory_copy_measure(torch, device, quick):
    """Copies inside one memory, far larger than any cache; bytes read plus bytes written."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        sizes = [64 * MIB, 256 * MIB, 1024 * MIB] + ([] if quick else [4096 * MIB])
        sizes = [size for size in sizes if 2 * size <= free // 2]
    else:
        sizes = [(64 if quick else 256) * MIB]
    if not sizes:
        raise NotSupportedHere("less than 256 MiB of the GPU's memory is free")
    clock = BenchClock(torch, device)
    tried = sizes[1:] or sizes
    fitting = (
        tried[0] if len(tried) == 1 else max(tried, key=lambda size: _measure_copy(torch, device, clock, size, 0.02)[0])
    )
    return lambda seconds: _measure_copy(torch, device, clock, fitting, seconds), f"{fitting // MIB} MiB"


def _measure_copy(torch, device, clock, size, seconds):
    # Two pairs in turn, so that a copy finds nothing of the previous one in the cache.
    pairs = [[torch.empty(size, dtype=torch.uint8, device=device).fill_(1) for _ in range(2)] for _ in range(2)]
    middle, best = clock.measure_burst(lambda turn: pairs[turn % 2][0].copy_(pairs[turn % 2][1]), seconds)
    return 2 * size / middle, 2 * size / best


def transfer_measure(torch, device, quick, up):
    """Copies between pinned host memory and the GPU, one way."""
    size = (64 if quick else 256) * MIB
    clock = BenchClock(torch, device)

    def measure_transfer(seconds):
        here = [torch.empty(size, dtype=torch.uint8, pin_memory=True).fill_(1) for _ in range(2)]
        there = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2)]
        to, of = (there, here) if up else (here, there)
        middle, best = clock.measure_burst(lambda turn: to[turn % 2].copy_(of[turn % 2], non_blocking=True), seconds)
        return size / middle, size / best

    return measure_transfer, f"{size // MIB} MiB, pinned"


def peer_copy_measure(torch, device, quick):
    """Copies between GPUs, every pair in both directions; the slowest pair is the result, as a job waits for it."""
    count = torch.cuda.device_count()
    if count < 2:
        raise NotSupportedHere(f"needs two GPUs, and torch sees {count}")
    size = (64 if quick else 256) * MIB
    ways = [(a, b) for a in range(count) for b in range(count) if a != b]
    direct = [torch.cuda.can_device_access_peer(a, b) for a, b in ways]

    def measure_peers(seconds):
        rates = {way: _measure_peer_copy(torch, way, size, seconds / len(ways)) for way in ways}
        slowest = min(rates, key=lambda way: rates[way][0])
        measure_peers.at = f"GPU {slowest[0]} to GPU {slowest[1]}, {size // MIB} MiB" + (
            "" if all(direct) else ", not direct"
        )
        return rates[slowest]

    measure_peers.at = ""
    return measure_peers, f"{size // MIB} MiB"


def _measure_peer_copy(torch, way, size, seconds):
    a, b = (torch.empty(size, dtype=torch.uint8, device=f"cuda:{index}").fill_(1) for index in way)
    with torch.cuda.device(way[0]):
        middle, best = BenchClock(torch, a.device).measure_burst(lambda turn: b.copy_(a, non_blocking=True), seconds)
    return size / middle, size / best


def kernel_launch_measure(torch, device, quick):
    """Seconds the host needs to launch one small kernel, in batches of a hundred."""
    one = torch.zeros(1, device=device)

    def measure_launch(seconds):
        return _time_batches(lambda: [one.add_(1) for _ in range(100)], torch, device, seconds, 100)

    return measure_launch, "a kernel of one thread"


def round_trip_measure(torch, device, quick):
    """Seconds from the launch of a small kernel until the host knows that it has ended."""
    one = torch.zeros(1, device=device)

    def launch_and_wait():
        one.add_(1)
        torch.cuda.synchronize(device)

    return lambda seconds: _time_batches(launch_and_wait, torch, device, seconds, 1), "launch and wait"


def _time_batches(go, torch, device, seconds, each):
    torch.cuda.synchronize(device)
    go()
    seconds_each, until = [], time.perf_counter() + max(seconds, 0.05)
    while time.perf_counter() < until or len(seconds_each) < 20:
        begun = time.perf_counter()
        go()
        seconds_each.append((time.perf_counter() - begun) / each)
        torch.cuda.synchronize(device)  # a full queue would make the host wait, which is not launch time
    # Other work of the host adds noise: the least disturbed tenth is the most repeatable. (Pinning the process to
    # one processor does not help: it then waits for others there.)
    return sorted(seconds_each)[len(seconds_each) // 10], min(seconds_each)
