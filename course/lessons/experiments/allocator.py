"""Why can memory run out while enough of it is free? A real trace of allocations, given to a model of CUDA's allocator.

    training steps --torch.profiler--> Trace, in recorded/allocator.json --replay--> bytes over time, and a map

The model follows PyTorch's CUDA caching allocator with its default settings (c10/cuda/CUDACachingAllocator.cpp):

segment  what is asked of the device at once: 2 MiB for requests up to 1 MiB, 20 MiB for those below 10 MiB, else the
         request, rounded up to a multiple of 2 MiB. Small requests, up to 1 MiB, have segments of their own
block    a piece of a segment, in use or free. A request is rounded up to a multiple of 512 bytes and gets the smallest
         free block that fits; the rest is split off if it has 512 bytes (small), or more than 1 MiB (large)
free     a block that is given back joins its free neighbours in the segment; the segment stays reserved
full     when the device has no more, segments that are free as a whole go back to it, and the request is tried again

Simplified: one stream, no expandable segments, and a device that gives any free bytes, wherever they lie. The trace is
of a CPU's kernels, whose scratch memory differs from a GPU's.
"""

from __future__ import annotations

import itertools
from bisect import bisect, bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from course.errors import CourseError
from course.lessons.experiments import planned, recording
from course.lessons.models import GPT, GPTConfig, next_token_loss

NAME = "allocator"
MIB = 2**20
ROUND, SMALL, SMALL_SEGMENT = 512, MIB, 2 * MIB
LARGE, LARGE_SEGMENT, ROUND_SEGMENT = 10 * MIB, 20 * MIB, 2 * MIB
SHAPE = GPTConfig(vocabulary=64, context=256, width=384, heads=8, layers=4)
BATCH, LENGTHS = 16, (160, 256)  # sequences in a batch; tokens of each in the first step, and in the second
KINDS = ("parameters", "moments", "gradients", "activations", "temporary")
PARTS = ("forward", "backward", "step")
VISIBLE = 2**16  # bytes of the smallest event that a figure shows
CAPACITY = 540 * MIB  # a device on which the steps without checkpoints fail
PHASES = ("model", *(f"{part} {n}" for n in (1, 2) for part in ("forward", "backward", "step", "end")))


# --- the trace ---------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Trace:
    """Allocations and frees in their order.

    events  n > 0 allocates n bytes; -k frees what the k-th allocation got, counted from 1
    phases  names, such as "forward 1", and for each the index of the first event that belongs to it
    """

    events: list[int]
    phases: list[str]
    starts: list[int]

    def phase(self, index: int) -> str:
        """The phase to which an event belongs."""
        return self.phases[bisect(self.starts, index) - 1]

    def kinds(self) -> list[str]:
        """What each allocation is, by the phases in which it is made and freed: the k-th has index k - 1."""
        made = [self.phase(index) for index, event in enumerate(self.events) if event > 0]
        freed = dict[int, str]()
        for index, event in enumerate(self.events):
            if event < 0:
                freed[-event] = self.phase(index)
        return [_kind(phase, freed.get(number)) for number, phase in enumerate(made, 1)]


def _kind(made: str, freed: str | None) -> str:
    """One of KINDS."""
    if freed is None:
        return "parameters" if made == "model" else "moments"
    if made.startswith("backward") and freed.startswith("end"):
        return "gradients"
    return "activations" if made.startswith("forward") and freed != made else "temporary"


@dataclass(kw_only=True)
class Traces:
    """The same steps without checkpoints, and with one at each block."""

    plain: Trace
    checkpointed: Trace


def steps(mark: Callable[[str], Any], *, checkpointed: bool) -> object:
    """Two training steps of the GPT, the second with longer sequences; `mark` is told which phase begins.

    Returns what must stay alive.
    """
    rng = torch.Generator().manual_seed(0)
    with mark("model"):
        model = GPT(SHAPE, rng)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)  # as on CUDA: all parameters at once
    segments = planned.in_segments(SHAPE.layers, 1) if checkpointed else ()
    for number, length in enumerate(LENGTHS, 1):
        with mark(f"forward {number}"):
            tokens = torch.randint(SHAPE.vocabulary, (BATCH, length), generator=rng)
            loss = next_token_loss(planned.forward(model, tokens, segments), tokens)
        with mark(f"backward {number}"):
            torch.autograd.backward(loss)
        with mark(f"step {number}"):
            optimizer.step()
        with mark(f"end {number}"):
            optimizer.zero_grad()
            del loss
    return optimizer


def traced(*, checkpointed: bool) -> Trace:
    """What the profiler sees of the steps."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = steps(torch.profiler.record_function, checkpointed=checkpointed)
    nodes = sorted(
        _all(profiler.profiler.kineto_results.experimental_event_tree()), key=lambda node: node.start_time_ns
    )
    del kept
    trace, holds, made = Trace(events=[], phases=[], starts=[]), dict[int, int](), itertools.count(1)
    for node in nodes:
        if node.name in PHASES:
            trace.phases.append(node.name)
            trace.starts.append(len(trace.events))
        elif node.tag.name == "Allocation":
            size, address = node.extra_fields.alloc_size, node.extra_fields.ptr
            if size > 0:
                holds[address] = next(made)
                trace.events.append(size)
            elif address in holds:  # else it is from before
                trace.events.append(-holds.pop(address))
    return trace


def _all(nodes: Sequence[Any]) -> Iterator[Any]:
    for node in nodes:
        yield node
        yield from _all(node.children)


def measure() -> Traces:
    """Both traces."""
    torch.set_num_threads(1)
    return Traces(plain=traced(checkpointed=False), checkpointed=traced(checkpointed=True))


@cache
def recorded() -> recording.Recording[Traces]:
    """The traces that lie in the repository."""
    return recording.load(NAME, Traces)


# --- the allocator -----------------------------------------------------------------------------------------


class OutOfMemory(CourseError):
    """A request cannot be served, although all free segments went back to the device."""


@dataclass(eq=False, kw_only=True)
class Block:
    """A piece of a segment: `holds` is the number of the allocation that has it, None where it is free."""

    start: int
    size: int
    holds: int | None = None


@dataclass(eq=False, kw_only=True)
class Segment:
    """Memory that was asked of the device at once, in blocks from its begin to its end."""

    small: bool
    size: int
    blocks: list[Block]


def segment_size(size: int) -> int:
    """Bytes of the segment that is made for a rounded request."""
    if size <= SMALL:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < LARGE else -(-size // ROUND_SEGMENT) * ROUND_SEGMENT


def _mib(count: int) -> str:
    return f"{count / MIB:.1f} MiB"


class CachingAllocator:
    """Segments and their blocks, on a device of `capacity` bytes (None: as many as are asked for)."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.segments: list[Segment] = []
        self._places: dict[int, tuple[Segment, Block]] = {}

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def allocated(self) -> int:
        """Bytes of all blocks in use, as rounded."""
        return sum(block.size for _, block in self._places.values())

    def largest_free(self, *, small: bool = False) -> int:
        """Bytes of the largest free block in the segments of one kind."""
        return max((block.size for _, block in self._free(small=small)), default=0)

    def allocate(self, number: int, size: int) -> None:
        """Serves a request; `number` names it. Raises OutOfMemory."""
        size = max(-(-size // ROUND) * ROUND, ROUND)
        fitting = [found for found in self._free(small=size <= SMALL) if found[1].size >= size]
        segment, block = min(fitting, key=lambda found: found[1].size) if fitting else self._grow(size)
        rest = block.size - size
        if rest >= ROUND if segment.small else rest > SMALL:
            place = segment.blocks.index(block)
            segment.blocks.insert(place + 1, Block(start=block.start + size, size=rest))
            block.size = size
        block.holds = number
        self._places[number] = segment, block

    def free(self, number: int) -> None:
        """Gives the block of a request back, and joins free neighbours."""
        segment, block = self._places.pop(number)
        block.holds = None
        place = segment.blocks.index(block)
        for left in (place, place - 1):
            if 0 <= left < len(segment.blocks) - 1:
                first, second = segment.blocks[left : left + 2]
                if first.holds is None and second.holds is None:
                    first.size += second.size
                    del segment.blocks[left + 1]

    def empty_cache(self) -> None:
        """Gives segments that are free as a whole back to the device."""
        self.segments = [each for each in self.segments if any(block.holds is not None for block in each.blocks)]

    @property
    def map(self) -> list[list[Block]]:
        """The blocks of the large segments, the longest segments first."""
        return [each.blocks for each in sorted(self.segments, key=lambda each: -each.size) if not each.small]

    def _free(self, *, small: bool) -> Iterator[tuple[Segment, Block]]:
        for segment in self.segments:
            if segment.small == small:
                yield from ((segment, block) for block in segment.blocks if block.holds is None)

    def _grow(self, size: int) -> tuple[Segment, Block]:
        """A new segment, after `empty_cache` where the device has no room for it."""
        needed = segment_size(size)
        if self.capacity is not None and self.reserved + needed > self.capacity:
            self.empty_cache()
            if self.reserved + needed > self.capacity:
                unused, longest = self.reserved - self.allocated, self.largest_free(small=size <= SMALL)
                raise OutOfMemory(
                    f"{_mib(size)} were asked for: {_mib(unused)} are free in segments, at most {_mib(longest)} of "
                    f"them side by side, and a new segment of {_mib(needed)} does not fit beside the "
                    f"{_mib(self.reserved)} reserved of {_mib(self.capacity)}"
                )
        segment = Segment(small=size <= SMALL, size=needed, blocks=[Block(start=0, size=needed)])
        self.segments.append(segment)
        return segment, segment.blocks[0]


# --- replaying ---------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class History:
    """What the allocator had after each event, in bytes; `failed` is the event that found no memory, with its words."""

    allocated: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)
    failed: tuple[int, str] | None = None

    @property
    def peak(self) -> int:
        """The event after which most bytes were allocated."""
        return max(range(len(self.allocated)), key=self.allocated.__getitem__)


def replay(trace: Trace, *, capacity: int | None = None, until: int | None = None) -> tuple[History, CachingAllocator]:
    """The trace's events given to an allocator, all or the first `until` of them, or up to one that finds no memory."""
    allocator, history, made = CachingAllocator(capacity), History(), itertools.count(1)
    for index, event in enumerate(trace.events[:until]):
        try:
            if event > 0:
                allocator.allocate(next(made), event)
            else:
                allocator.free(-event)
        except OutOfMemory as error:
            history.failed = index, str(error)
            break
        history.allocated.append(allocator.allocated)
        history.reserved.append(allocator.reserved)
    return history, allocator


def visible(trace: Trace, history: History) -> tuple[History, dict[str, int]]:
    """What a figure shows: the history after events of at least VISIBLE bytes, and where each part begins.

    A step ends where the next forward begins: its gradients are freed in it.
    """
    sizes = [event for event in trace.events if event > 0]
    kept = [
        index
        for index, event in enumerate(trace.events[: len(history.allocated)])
        if (event if event > 0 else sizes[-event - 1]) >= VISIBLE
    ]
    shown = History(
        allocated=[history.allocated[index] for index in kept], reserved=[history.reserved[index] for index in kept]
    )
    named = [pair for pair in zip(trace.phases, trace.starts, strict=True) if pair[0].split()[0] in PARTS]
    return shown, {name: bisect_left(kept, start) for name, start in named}


def failing() -> tuple[Trace, History, CachingAllocator]:
    """The steps without checkpoints on a device of CAPACITY bytes, up to the request that fails."""
    trace = recorded().data.plain
    return trace, *replay(trace, capacity=CAPACITY)


if __name__ == "__main__":
    recording.record(NAME, measure)
