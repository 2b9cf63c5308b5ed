"""Numbers that the prose of lesson 04 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch.nn.functional import scaled_dot_product_attention

from course.lessons.experiments import allocator as alloc
from course.lessons.experiments import (
    assembled_checkpointing,
    attention_bytes,
    chain,
    checkpoint_runs,
    planned,
    profiled,
    rebuilt,
    segments,
    selective,
    utilised,
)
from course.meter import metered
from course.planner import published as papers
from course.planner.memory import FORMULAS, GB, GPT2, ZERO, Activations, Checkpointing, activation_bytes, budget
from course.planner.published import SETTING
from course.reference.gradient_checkpointing.attention_tiled import attention_tiled
from course.reference.gradient_checkpointing.attention_tiled_backward import attention_tiled_backward
from course.reference.gradient_checkpointing.longest_chain import longest_chain
from course.reference.gradient_checkpointing.policy import policy
from course.reference.gradient_checkpointing.reversible_backward import reversible_backward
from course.reference.gradient_checkpointing.utilization import utilization

torch.set_num_threads(1)

found = segments.recorded().data

# --- a chain -----------------------------------------------------------------------------------------


def chain_evaluations(strategy: str, layers: int, spacing: int = 1) -> int:
    """Calls of forward."""
    return chain.evaluations(strategy, layers, spacing)


def chain_highest(strategy: str, layers: int, spacing: int = 1) -> int:
    """Most activations alive."""
    return chain.highest(strategy, layers, spacing)


def linear_mib(width: int) -> float:
    """The weights of a square linear layer in float32."""
    return width * width * 4 / 2**20


def input_mib(length: int, batch: int, width: int) -> float:
    """The input of such a layer in float32."""
    return length * batch * width * 4 / 2**20


# --- memory against time -----------------------------------------------------------------------------


def mib(count: float) -> float:
    """Bytes in MiB."""
    return count / 2**20


def above() -> float:
    """How far the measured peaks lie above the law, in MiB: all alike at two digits."""
    beyond = [mib(peak - found.law(length)) for length, peak in zip(found.lengths, found.peaks, strict=True)]
    assert f"{min(beyond):.2f}" == f"{max(beyond):.2f}"
    return max(beyond)


# --- how little is possible ------------------------------------------------------------------------------


def both(layers: int) -> int:
    """The least number of slots, and as many sweeps, with which so many layers can go backward."""
    return next(each for each in range(1, 100) if longest_chain(each, each) >= layers)


# --- a checkpoint around any function ----------------------------------------------------------------


@cache
def steps_of(name: str) -> checkpoint_runs.Log:
    """The log of a faulty program with checkpoints."""
    return checkpoint_runs.run(name, **checkpoint_runs.example())


def more_each_step(name: str) -> float:
    """KiB by which the bytes of a program grow from one step to the next."""
    peaks = steps_of(name).peaks
    return (peaks[-1] - peaks[-2]) / 2**10


# --- cuts --------------------------------------------------------------------------------------------


@cache
def gpt_blocks() -> tuple[list[tuple[int, int]], list[int], int]:
    """Bytes and FLOPs of each block of the GPT of section 8, and the rest at the peak."""
    return planned.measured(*planned.problem())


def block_units() -> int:
    """What one of its blocks keeps, its input included, in the units of its plans."""
    return sum(planned.in_units(gpt_blocks()[0])[0])


def six(*, first: bool) -> float:
    """MiB at the peak where six blocks keep everything and six stand in two segments of three."""
    bytes_, _, rest = gpt_blocks()
    segments = ((6, 9), (9, 12)) if first else ((0, 3), (3, 6))
    return planned.predicted_peak(bytes_, rest, segments) / 2**20


def products() -> list[str]:
    """The ops of a block's forward that have FLOPs."""
    return [name for name, cost in selective.ops().items() if cost.flops]


@cache
def block_costs() -> tuple[selective.Cost, selective.Cost, selective.Cost]:
    """A block that keeps all, one in a plain checkpoint, one with our policy."""
    ways = (selective.keep_all, planned.torchs, selective.with_policy(policy))
    keep_all, plain, chosen = (selective.cost(way) for way in ways)
    return keep_all, plain, chosen


def kept_by_all() -> float:
    """What a block keeps besides its input and output, in KiB."""
    return block_costs()[0].kept / 2**10


def share_kept() -> float:
    """Of what a block keeps, the share that is kept with our policy."""
    keep_all, _, chosen = block_costs()
    return chosen.kept / keep_all.kept


def flops_again() -> int:
    """FLOPs of products that are run again with our policy."""
    keep_all, _, chosen = block_costs()
    return chosen.flops - keep_all.flops


def share_again() -> float:
    """FLOPs that a plain checkpoint adds, as a share of those without one."""
    keep_all, plain, _ = block_costs()
    return plain.flops / keep_all.flops - 1


# --- attention ---------------------------------------------------------------------------------------


shortest, longest, tile = attention_bytes.LENGTHS[0], attention_bytes.LENGTHS[-1], attention_bytes.BLOCK


def kept_mib(way: str) -> float:
    """What attention leaves for backward at the longest sequence, in MiB."""
    ways = {"explicit": attention_bytes.explicit, "fused": scaled_dot_product_attention}
    return attention_bytes.cost(way, ways[way], longest).kept / 2**20


# --- nothing kept ----------------------------------------------------------------------------------------


def rebuilt_digits() -> int:
    """Of the input of the longest chain, which is about 1 in size, rebuilt in float32."""
    return int(-math.log10(rebuilt.error(reversible_backward, torch.float32, rebuilt.DEPTHS[-1])))


# --- the whole budget --------------------------------------------------------------------------------


def planned_gb(formula: str) -> float:
    """Activations of GPT-2 in ZeRO's setting, nothing recomputed, in GB."""
    return activation_bytes(GPT2, SETTING, FORMULAS[formula]).total / GB


def full() -> Activations:
    """The same with a checkpoint for each layer, by ZeRO's formula."""
    return activation_bytes(GPT2, SETTING, ZERO, Checkpointing.FULL)


def full_total() -> float:
    """Its whole budget in GB."""
    return budget(GPT2, SETTING, ZERO, Checkpointing.FULL).total / GB


def logits_gb() -> float:
    """A number of 4 bytes for each token and word of GPT-2's vocabulary."""
    return 4 * SETTING.size * SETTING.sequence * 50_257 / GB


def whole_total() -> float:
    """The same with nothing recomputed."""
    return budget(GPT2, SETTING, ZERO).total / GB


def published(name: str) -> float:
    """A figure of a paper."""
    return papers.figures()[name].value


def ours(name: str) -> float:
    """The planner's."""
    return papers.planned()[name]


def off(name: str) -> float:
    """By how much they differ, as a share of the paper's."""
    return abs(ours(name) / published(name) - 1)


@cache
def replayed(name: str) -> alloc.History:
    """One of the two recorded traces, with as much memory as it asks for."""
    return alloc.replay(getattr(alloc.recorded().data, name))[0]


def peak(name: str) -> float:
    """The most bytes that were allocated at once, in MiB."""
    return max(replayed(name).allocated) / alloc.MIB


def step_buffer() -> float:
    """What the second step of AdamW allocates and frees again, at its highest, in MiB."""
    trace, live = alloc.recorded().data.plain, replayed("plain").allocated
    inside = [live[index] for index in range(len(live)) if trace.phase(index) == "step 2"]
    return (max(inside) - inside[0]) / alloc.MIB


def room() -> float:
    """By how much the device is larger than the peak, as a share."""
    return alloc.CAPACITY / max(replayed("plain").allocated) - 1


def asked() -> float:
    """What the request that fails asks for, in MiB."""
    trace, history, _ = alloc.failing()
    assert history.failed is not None
    return trace.events[history.failed[0]] / alloc.MIB


def free_in_segments() -> float:
    """What is free in segments then, in MiB."""
    _, _, device = alloc.failing()
    return (device.reserved - device.allocated) / alloc.MIB


def longest_free() -> float:
    """The longest free block in MiB."""
    return alloc.failing()[2].largest_free() / alloc.MIB


# --- where the time goes -----------------------------------------------------------------------------


def trace_wait() -> float:
    """Milliseconds for which the recorded loader waits."""
    return 1000 * profiled.recorded().data.wait


def step_ms(slow_loader: bool, item: bool) -> float:
    """Milliseconds of a recorded step."""
    return 1000 * profiled.recorded().data.of(slow_loader=slow_loader, item=item).seconds_a_step


def _ratio(run: utilised.Published) -> float:
    """HFU over MFU by our count."""
    mfu, hfu = utilization(run.model, [run.recomputed] * run.layers, 1.0, 1.0)
    return hfu / mfu


def _run(name: str) -> utilised.Published:
    return next(run for run in utilised.RUNS if run.name == name)


def published_hfu(name: str) -> float:
    """Percent."""
    return _run(name).hfu


def our_mfu(name: str) -> float:
    """Percent, from the published HFU."""
    return _run(name).hfu / _ratio(_run(name))


def worst_gap() -> float:
    """Points by which our MFU is above the published one, at most."""
    return max(our_mfu(run.name) - run.mfu for run in utilised.RUNS if run.mfu is not None)


def tripled_gap() -> float:
    """Points between the published HFU and one that counts recomputed scores three times, at most."""
    known = [run for run in utilised.RUNS if run.mfu is not None]
    return max(abs(run.mfu * (1 + 3 * (_ratio(run) - 1)) - run.hfu) for run in known if run.mfu is not None)


# --- put together ------------------------------------------------------------------------------------


def budget_mib() -> float:
    """What a step may have live."""
    return assembled_checkpointing.BUDGET / 2**20


def layers() -> int:
    """Blocks of the GPT that is trained."""
    return assembled_checkpointing.CONFIG.layers


def block_mib(variant: str) -> float:
    """The input of one block and what is kept inside it, in MiB."""
    parts = {"attention_tiled": attention_tiled, "attention_tiled_backward": attention_tiled_backward}
    model, (batch,) = assembled_checkpointing.problem(parts, variant, steps=1)
    with metered() as run:
        x = torch.zeros(*batch[0].shape, model.config.width, requires_grad=True)
        output = model.blocks[0](x)
    return run.kept([output]) / 2**20

