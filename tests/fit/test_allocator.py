"""The model of the caching allocator: rounding, pools, splitting, scarcity, settings."""

from __future__ import annotations

import itertools

import pytest

from gpuready.fit import FitUndecided
from gpuready.fit.allocator.alloc_conf import AllocatorSettings
from gpuready.fit.allocator.caching_allocator import LARGE_SEGMENT_SIZE, MIB, CachingAllocator, OutOfMemory, replay_tape
from gpuready.fit.search.minimum_reserve import TapeReplay
from gpuready.fit.tape.autograd import StreamAllocation, Tape, TapeMemory


def test_small_requests_share_a_segment_of_two_mib():
    allocator = CachingAllocator()
    blocks = [allocator.malloc_block(n) for n in (1, 512, 513, 300_000)]
    assert [b.size for b in blocks] == [512, 512, 1024, 300_032]
    assert allocator.reserved == 2 * MIB
    assert allocator.allocated == sum(b.size for b in blocks)


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (21 * MIB, 22 * MIB),
        (525336576, 526385152),
    ],
)
def test_large_segments(size, segment):
    allocator = CachingAllocator()
    allocator.malloc_block(size)
    assert allocator.reserved == segment


def test_a_large_block_keeps_a_rest_of_up_to_one_mib():
    """The rest counts as allocated: torch does not split it off."""
    allocator = CachingAllocator()
    block = allocator.malloc_block(11 * MIB + MIB // 2)
    assert block.size == 12 * MIB == allocator.allocated


def test_best_fit_and_merging():
    allocator = CachingAllocator()
    first, second, third = (allocator.malloc_block(n * MIB) for n in (64, 32, 16))
    for block in (first, second, third):
        allocator.free_block(block)
    assert allocator.malloc_block(15 * MIB + MIB // 2) is third  # the smallest that is large enough
    split = allocator.malloc_block(30 * MIB)
    assert allocator.reserved == 112 * MIB
    allocator.free_block(split)
    assert allocator.malloc_block(32 * MIB).size == 32 * MIB  # the two halves are one block again
    assert allocator.reserved == 112 * MIB


@pytest.mark.parametrize("expandable", [False, True])
def test_what_one_stream_frees_no_other_takes(expandable):
    settings = AllocatorSettings(expandable=expandable)
    events = [StreamAllocation.on_stream(1, 60 * MIB), ~0, 60 * MIB, ~1, StreamAllocation.on_stream(1, 60 * MIB)]
    assert replay_tape(events, settings, streams=2).reserved == 120 * MIB
    assert replay_tape([int(event) for event in events], settings).reserved == 60 * MIB
    scarce = replay_tape(events[:3], settings, cap=100 * MIB, streams=2)  # the device has one memory for both
    assert scarce.retries == 1 and scarce.reserved == 60 * MIB


def test_scarcity_gives_whole_cached_segments_back():
    events = [64 * MIB, ~0, 96 * MIB]
    assert replay_tape(events).peak_reserved == 160 * MIB
    capped = replay_tape(events, cap=100 * MIB)
    assert (capped.peak_reserved, capped.retries) == (96 * MIB, 1)


def test_a_split_segment_cannot_go_back():
    events = [64 * MIB, ~0, 8 * MIB, 96 * MIB]  # the 8 MiB sit in the 64
    with pytest.raises(OutOfMemory):
        replay_tape(events, cap=120 * MIB)
    assert replay_tape(events, cap=160 * MIB).reserved == 160 * MIB


def test_expandable_segments_grow_and_waste_little():
    events = [64 * MIB, ~0, 96 * MIB, 8 * MIB]
    assert replay_tape(events, AllocatorSettings(expandable=True)).peak_reserved == 120 * MIB  # in pages of 20 MiB
    assert replay_tape(events).peak_reserved == 160 * MIB


def test_expandable_segments_unmap_under_a_cap():
    events = [200 * MIB, 8 * MIB, ~0, 300 * MIB]
    assert replay_tape(events, AllocatorSettings(expandable=True), cap=340 * MIB).peak_reserved <= 340 * MIB
    with pytest.raises(OutOfMemory):
        replay_tape(events, AllocatorSettings(expandable=True), cap=300 * MIB)


def test_within_an_expandable_segment_a_hole_is_taken_before_the_end_that_can_grow():
    """The free 40 MiB at the end fit better, but they could become any size."""
    settings = AllocatorSettings(expandable=True)
    events = [60 * MIB, 8 * MIB, 52 * MIB, ~0, ~2, 30 * MIB]
    allocator = CachingAllocator(settings)
    blocks = [allocator.malloc_block(e) for e in events[:3]]
    allocator.free_block(blocks[0])
    allocator.free_block(blocks[2])
    assert allocator.malloc_block(30 * MIB).address == 0
    assert replay_tape(events, settings).peak_reserved == 120 * MIB


def test_pages_that_were_given_back_are_mapped_again_where_they_lay():
    settings = AllocatorSettings(expandable=True)
    allocator = CachingAllocator(settings)
    first, second = allocator.malloc_block(100 * MIB), allocator.malloc_block(20 * MIB)
    allocator.free_block(first)
    allocator.empty_cache()
    assert allocator.reserved == 20 * MIB
    assert allocator.malloc_block(35 * MIB).address == 0
    assert (allocator.reserved, second.address) == (60 * MIB, 100 * MIB)
    assert allocator.malloc_block(90 * MIB).address == 120 * MIB  # too large for the hole
    assert allocator.reserved == 160 * MIB


def test_a_limit_on_splitting_leaves_the_end_of_an_expandable_segment_open():
    """A free end over the limit is no cached block, but it is where the segment grows: nothing more is mapped."""
    settings = AllocatorSettings(expandable=True, max_split=64 * MIB)
    assert replay_tape([200 * MIB, ~0, 16 * MIB], settings).reserved == 200 * MIB


def test_max_split_size_leaves_large_blocks_whole():
    settings = AllocatorSettings(max_split=64 * MIB)
    events = [200 * MIB, ~0, 16 * MIB]
    assert replay_tape(events, settings).reserved == 216 * MIB
    assert replay_tape(events).reserved == 200 * MIB


def test_max_split_size_reuses_only_blocks_of_nearly_the_size():
    settings = AllocatorSettings(max_split=64 * MIB)
    assert replay_tape([200 * MIB, ~0, 190 * MIB], settings).reserved == 200 * MIB
    assert replay_tape([200 * MIB, ~0, 100 * MIB], settings).reserved == 300 * MIB


@pytest.mark.parametrize(("size", "rounded"), [(1200, 1280), (1024, 1024), (5 * MIB + 1, 6 * MIB), (700, 1024)])
def test_roundup_power2_divisions(size, rounded):
    allocator = CachingAllocator(AllocatorSettings(divisions=4))
    expected = rounded if size > 2048 else -(-size // 512) * 512  # small ones keep the ordinary rounding
    assert allocator.round_size(size) == expected


def test_an_emptied_cache_was_reserved_all_the_same():
    allocator = CachingAllocator()
    keep, drop = allocator.malloc_block(30 * MIB), allocator.malloc_block(50 * MIB)
    allocator.free_block(drop)
    allocator.empty_cache()
    assert keep.size == allocator.reserved == 30 * MIB and allocator.peak == allocator.peak_reserved == 80 * MIB
    allocator.reset_peaks()
    assert allocator.peak == allocator.peak_reserved == 30 * MIB


def test_a_cache_that_the_script_empties_at_its_end_lowers_no_peak():
    tape = Tape()
    held = [TapeMemory(tape, 30 * MIB)]
    tape.events.append("build")
    held.append(TapeMemory(tape, 50 * MIB))
    tape.events.append("fwd0.0")
    held.pop()
    tape.events += ["opt0", "empty"]
    replay = TapeReplay(tape, AllocatorSettings())
    assert replay.peak == replay.peak_reserved == 80 * MIB


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", AllocatorSettings()),
        ("expandable_segments:True", AllocatorSettings(expandable=True)),
        ("max_split_size_mb:128, expandable_segments:False", AllocatorSettings(max_split=128 * MIB)),
        ("roundup_power2_divisions:8", AllocatorSettings(divisions=8)),
        ("backend:native, garbage_collection_threshold:0.8", AllocatorSettings()),
    ],
)
def test_settings_are_read(text, settings):
    assert AllocatorSettings.parse_alloc_conf(text) == settings


@pytest.mark.parametrize("text", ["max_non_split_rounding_mb:64", "roundup_power2_divisions:[256:1,>:4]"])
def test_settings_that_are_not_modelled_are_undecided(text):
    with pytest.raises(FitUndecided, match=text.partition(":")[0]):
        AllocatorSettings.parse_alloc_conf(text)


@pytest.mark.parametrize(
    "text",
    [
        "expandable_segments",
        "max_split_size_mb:big",
        "max_split_size_mb:20",
        "expandable_segments:perhaps",
        "roundup_power2_divisions:3",
    ],
)
def test_settings_without_meaning_are_named(text):
    with pytest.raises(ValueError, match=text.partition(":")[0]):
        AllocatorSettings.parse_alloc_conf(text)


def test_blocks_never_overlap():
    """A thousand births and deaths: the free and the used add up to the reserve, and neighbours touch."""
    import random

    dice = random.Random(3)
    allocator = CachingAllocator()
    live = []
    for _ in range(1000):
        if live and dice.random() < 0.45:
            allocator.free_block(live.pop(dice.randrange(len(live))))
        else:
            live.append(allocator.malloc_block(int(2 ** dice.uniform(5, 27))))
    stretches = sorted(
        [(b.address, b.size) for b in live] + [e[:2][::-1] for pool in allocator._free_pools for e in pool]
    )
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(stretches))
    assert sum(size for _, size in stretches) == allocator.reserved
    assert sum(b.size for b in live) == allocator.allocated
    for block in live:
        allocator.free_block(block)
    allocator.empty_cache()
    assert allocator.reserved == 0
    assert LARGE_SEGMENT_SIZE == 20 * MIB
