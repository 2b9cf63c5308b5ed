"""Right and wrong ways to write `stochastic_round`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.mixed_precision.stochastic_round import stochastic_round


def _refuse(x: Tensor, u: Tensor) -> None:
    if x.dtype != torch.float32 or u.shape != x.shape:
        raise ValueError(f"x must be float32 and u of its shape, got {x.dtype}, {tuple(x.shape)} and {tuple(u.shape)}")


def by_numpy(x: Tensor, u: Tensor) -> Tensor:
    """The definition in float64, which holds neighbours, gaps and 2^128; the last draws round up, not the first."""
    _refuse(x, u)
    exact = x.detach().numpy().astype(np.float64)
    gap = np.ldexp(1.0, np.maximum(np.frexp(exact)[1], -125) - 8)  # |x| is below 2 to the power of frexp's exponent
    with np.errstate(invalid="ignore"):
        lower, upper = np.floor(exact / gap) * gap, np.ceil(exact / gap) * gap
        chosen = np.where(u.detach().numpy() >= 1 - (exact - lower) / gap, upper, lower)
    return torch.from_numpy(np.where(np.isfinite(exact), chosen, exact)).to(torch.bfloat16)


def noise_in_the_bits(x: Tensor, u: Tensor) -> Tensor:
    """A whole number from 0 to 65,535 is added to the bits, and the lower 16 are cut off."""
    _refuse(x, u)
    bits = x.detach().view(torch.int32)
    noisy = bits + (u * 65536).to(torch.int32)
    rounded = (noisy & -65536).view(torch.float32)
    return torch.where(x.isfinite(), rounded, x).to(torch.bfloat16)


def share_of_the_bits(x: Tensor, u: Tensor) -> Tensor:
    """The neighbour nearer to 0, and the share that goes to the other, by magnitude."""
    _refuse(x, u)
    bits = x.detach().view(torch.int32)
    share = (bits & 0xFFFF) / 65536
    nearer = bits - (bits & 0xFFFF)
    rounded = torch.where(u < share, nearer + 65536, nearer).view(torch.float32)
    rounded[x.isnan()] = torch.nan
    return torch.where(x.isinf(), x.detach(), rounded).bfloat16()


RIGHT = (
    right(by_numpy, independent="numpy's floor and ceil in float64"),
    right(noise_in_the_bits),
    right(share_of_the_bits),
)

in_gaps = partial(edited, stochastic_round)
in_bits = partial(edited, noise_in_the_bits)
in_float64 = partial(edited, by_numpy)

DRAWN = "torch.where(u < gaps - lower, upper, lower)"
STEP = "gap(x, kept.smallest_normal, kept.eps)"
ROUNDED = f"({DRAWN} * step).to(dtype)"
LOG = "2.0 ** (x.abs().log2().floor() - 7)"
NOISE = "(u * 65536).to(torch.int32)"
PUT_BACK = "torch.where(x.isfinite(), rounded, x)"

OF_EVERY_DRAW = (
    "the_share_that_rounds_up",
    "each_number_by_its_own_draw",
    "negative_numbers",
    "every_draw_counts",
    "beside_powers_of_two",
    "subnormal_numbers",
    "beyond_the_largest_number",
    "every_form",
)

WRONG = (
    wrong(
        "the_draws_are_not_used",
        "Your result does not depend on u: rounding to nearest, or cutting bits off, gives the same for each draw, "
        "and an update below half a gap, or below a whole one, is lost each time. Compare u with the share of the gap "
        "that lies below x.",
        in_gaps((ROUNDED, "x.to(dtype)")),
        in_gaps((DRAWN, "lower")),
        in_bits((f" + {NOISE}", "")),
    ),
    wrong(
        "draws_of_its_own",
        "You draw random numbers yourself. The draws are handed in as u, so that a run can be repeated, and no other "
        "randomness may enter.",
        in_gaps(("u < gaps", "torch.rand_like(x) < gaps")),
        in_bits((NOISE, "torch.randint_like(bits, 65536)")),
        fails=OF_EVERY_DRAW,
    ),
    wrong(
        "one_draw_for_all",
        "You use one draw for all numbers. Their errors then go the same way and do not cancel. Each number is "
        "compared with its own entry of u.",
        in_gaps(("u < gaps", "u.flatten()[0] < gaps")),
        in_gaps(("u < gaps", "u[:1] < gaps")),
        in_gaps(("u < gaps", "u.mean() < gaps")),
    ),
    wrong(
        "the_share_of_the_other_neighbour",
        "You round up with the share that belongs to rounding down: the nearer x lies to its upper neighbour, the "
        "more seldom it goes there. Round up where u is less than (x - lower) / (upper - lower).",
        in_gaps(("u < gaps", "u >= gaps")),
        in_gaps(("u < gaps - lower, upper, lower", "u < gaps - lower, lower, upper")),
        in_float64((">= 1 -", ">=")),
    ),
    wrong(
        "a_coin_for_each",
        "You toss a fair coin between the two neighbours. On average that gives their middle, not x: the chance of "
        "the upper one must be the share of the gap that lies below x.",
        in_gaps(("u < gaps - lower", "u < 0.5")),
    ),
    wrong(
        "the_draw_at_the_share_too",
        "You round up one draw too many: where u equals the share. Draws begin with 0, so `u < share` has exactly the "
        "share of them. Likewise, from the other end, `u >= 1 - share`, and not `u > 1 - share`, which has one too "
        "few.",
        in_gaps(("u < gaps", "u <= gaps")),
        in_float64((">= 1 -", "> 1 -")),
    ),
    wrong(
        "noise_then_nearest",
        "You add noise of a gap and round to nearest after it. Rounding adds half a gap of its own, so x may land two "
        "gaps away, or is biased by half a gap. After noise in [0, 1) gaps, round down.",
        in_gaps((ROUNDED, "(x + u * step).to(dtype)")),
        in_gaps((ROUNDED, "(x + (2 * u - 1) * step).to(dtype)")),
        in_bits((NOISE, "(u * 65536).to(torch.int32) + 32768")),
    ),
    wrong(
        "noise_around_nearest",
        "You add noise between minus and plus half a gap, then round to nearest. That is nearly right. But where the "
        "sum is a tie, the even neighbour decides, so a number that bfloat16 holds can move; and beside a power of "
        "two noise of one gap meets two. Choose between the neighbours themselves.",
        in_gaps((ROUNDED, "(x + (u - 0.5) * step).to(dtype)")),
    ),
    wrong(
        "noise_relative_to_x",
        "Your noise is a share of x itself. The gap is the same from one power of two to the next, and is a share of "
        "the lower one: relative noise is up to twice as wide, and rounding to nearest after it adds an error of its "
        "own.",
        in_gaps((ROUNDED, "(x * (1 + (u - 0.5) * kept.eps)).to(dtype)")),
        in_gaps((ROUNDED, "(x * (1 + u * kept.eps)).to(dtype)")),
    ),
    wrong(
        "draws_mixed_up",
        "You sort or mix the draws before you use them, so a number is rounded by the draw of another. Compare x and "
        "u entry by entry.",
        in_gaps(("u < gaps", "(u.sort(0).values if u.dim() else u) < gaps")),
        in_gaps(("u < gaps", "(u.flip(0) if u.dim() else u) < gaps")),
        in_gaps(("u < gaps", "(u.roll(1, 0) if u.dim() else u) < gaps")),
        fails=("each_number_by_its_own_draw",),
    ),
    wrong(
        "noise_of_another_size",
        "The noise that you add is wider or narrower than a gap, so the share is off. It goes from 0 up to a gap, "
        "which it does not reach: of the bits these are the whole numbers from 0 to 65,535, u times 65,536 with its "
        "fraction cut off.",
        in_bits(("u * 65536", "u * 65535")),
        in_bits(("u * 65536", "u * 32768")),
        in_bits(("u * 65536", "u * 32767")),
    ),
    wrong(
        "noise_that_is_rounded",
        "Noise below a gap, then rounding down: that is right, but your noise or your sum is rounded before. x + u * "
        "gap and x / gap + u have more digits than float32 holds, and round(u * 65536) may be 65,536. So a draw near "
        "1 moves a number that bfloat16 holds. Cut the fraction of u * 65536 off, or compare u with the share.",
        in_bits((NOISE, "(u * 65536).round().to(torch.int32)")),
        in_gaps((DRAWN, "(gaps + u).floor()")),
        in_gaps((ROUNDED, "torch.where(x.isfinite(), (gaps + u).floor() * step, x).to(dtype)")),
    ),
    wrong(
        "draws_made_coarser",
        "You keep only some digits of the draw, so shares are rounded as well. Nothing is gained: compare u as it "
        "comes.",
        in_bits((NOISE, "(u * 256).to(torch.int32) * 256")),
        in_gaps(("u < gaps", "u.bfloat16() < gaps")),
    ),
    wrong(
        "one_gap_for_all_sizes",
        "Your gap is that between 1 and 2, 2^-7, whatever the size of x. In a floating point format the gap is a "
        "share of the power of two below |x|.",
        in_gaps((STEP, "torch.full_like(x, kept.eps)")),
    ),
    wrong(
        "twice_or_half_the_gap",
        "Your gap is off by a factor of two. bfloat16 stores 7 bits behind the leading one, so between 1 and 2 the "
        "gap is 2^-7. (torch.frexp gives a mantissa below 1, and so an exponent that is larger by one.)",
        in_gaps((STEP, f"2 * {STEP}")),
        in_gaps((STEP, f"{STEP} / 2")),
        in_float64(("- 8)", "- 7)")),
        in_float64(("- 8)", "- 9)")),
    ),
    wrong(
        "the_gap_of_what_is_rounded",
        "You take the gap from x after it was rounded. Just below a power of two, x rounds up to the power, whose gap "
        "is twice as large. Take it from x itself.",
        in_gaps((STEP, "gap(x.to(dtype).float(), kept.smallest_normal, kept.eps)")),
    ),
    wrong(
        "no_gap_at_zero",
        "At 0, or below the smallest normal number, your gap becomes too small or 0, and 0 / 0 is nan. Below 2^-126 "
        "the gap stays 2^-133.",
        in_gaps(("kept.smallest_normal", "0.0")),
        in_float64(("np.maximum(np.frexp(exact)[1], -125)", "np.frexp(exact)[1]")),
    ),
    wrong(
        "gap_from_a_logarithm",
        "You take the gap from log2(|x|), which is -inf at 0 and inf at inf: there, 0 / 0 and inf / inf are nan. And "
        "below 2^-126 your gap goes on shrinking. Bound the exponent from below by -126, and put inf and nan back.",
        in_gaps((STEP, LOG)),
        in_gaps((STEP, LOG), (DRAWN, "(gaps + u).floor()")),
        in_gaps((STEP, LOG), (ROUNDED, f"torch.where(x.isfinite(), {DRAWN} * step, x).to(dtype)")),
        in_gaps((STEP, LOG), (ROUNDED, "torch.where(x.isfinite(), (gaps + u).floor() * step, x).to(dtype)")),
        in_gaps((STEP, LOG), (ROUNDED, "torch.where(x == 0, x, (gaps + u).floor() * step).to(dtype)")),
        in_gaps((STEP, LOG), (ROUNDED, f"torch.where(x == 0, x, {DRAWN} * step).to(dtype)")),
    ),
    wrong(
        "subnormal_numbers_lost",
        "You set numbers below 2^-126 to 0. bfloat16 has numbers down to 2^-133, and between them the gap is 2^-133: "
        "they are rounded like all others.",
        in_gaps((ROUNDED, f"torch.where(x.abs() < kept.smallest_normal, 0 * x, {DRAWN} * step).to(dtype)")),
        in_gaps((ROUNDED, f"torch.where(x.abs() < kept.smallest_normal, 0.0, {DRAWN} * step).to(dtype)")),
    ),
    wrong(
        "towards_zero_and_up",
        "You cut the fraction off with trunc, which goes towards 0, and go on as if that were the lower neighbour. Of "
        "a negative number it is the upper one: use floor, or work with |x| and put the sign back.",
        in_gaps(("gaps.floor(), gaps.ceil()", "gaps.trunc(), gaps.trunc() + 1")),
    ),
    wrong(
        "the_sign_of_zero_lost",
        "You round |x| and multiply by sign(x), which is 0 for -0.0: its sign is lost. torch.copysign keeps it.",
        in_gaps(("gaps = x / step", "gaps = x.abs() / step"), (f"({DRAWN} * step)", f"({DRAWN} * step * x.sign())")),
    ),
    wrong(
        "never_beyond_the_largest",
        "A number beyond the largest bfloat16 never becomes inf: in float32 its upper neighbour is inf already, and a "
        "share of an infinite gap is 0. Or you hold it back. Here the share counts as if the upper neighbour were "
        "2^128.",
        in_gaps(
            ("lower, upper = gaps.floor(), gaps.ceil()", "lower, upper = gaps.floor() * step, gaps.ceil() * step"),
            (f"{DRAWN} * step", "torch.where(u < (x - lower) / (upper - lower), upper, lower)"),
        ),
        in_gaps((f"{DRAWN} * step", f"({DRAWN} * step).clamp(-kept.max, kept.max)")),
    ),
    wrong(
        "nan_becomes_a_number",
        "All is right but for nan. Noise in its bits can carry through to the sign, and cutting the lower 16 can cut "
        "off all that makes it a nan, so that inf is left. Put back what is not finite: torch.where(x.isfinite(), "
        "..., x).",
        in_bits((PUT_BACK, "rounded")),
        in_bits((PUT_BACK, "torch.where(x.isinf(), x, rounded)")),
        edited(share_of_the_bits, ("    rounded[x.isnan()] = torch.nan\n", "")),
    ),
    wrong(
        "inf_becomes_nan",
        "Your arithmetic makes nan of inf: inf - inf and inf % 1 are nan. Put back what is not finite.",
        in_gaps(("gaps.floor(), gaps.ceil()", "gaps - gaps % 1, gaps - gaps % 1 + 1")),
        in_gaps(
            ("gaps.floor(), gaps.ceil()", "x - x % step, x - x % step + step"),
            (DRAWN, "torch.where(u < x % step / step, upper, lower) / step"),
        ),
    ),
    wrong(
        "another_dtype_returned",
        "The numbers are right, but not in bfloat16: the result still takes as many bytes as x. End with "
        ".to(torch.bfloat16).",
        in_gaps((".to(dtype)", "")),
        in_bits((".to(torch.bfloat16)", "")),
        in_gaps((".to(dtype)", ".to(dtype).to(x.dtype)")),
        fails=("in_bfloat16", "every_form"),
    ),
    wrong(
        "changes_x",
        "You add noise to the bits in place. They are a view of x, so x has changed: use `+`, which makes a new "
        "tensor.",
        in_bits(("bits + (u * 65536).to(torch.int32)", "bits.add_((u * 65536).to(torch.int32))")),
        in_bits(
            ("x.detach().view(torch.int32)", "x.detach().view(torch.int32)\n    finite = x.isfinite()"),
            (
                "    noisy = bits + (u * 65536).to(torch.int32)",
                "    bits += (u * 65536).to(torch.int32)\n    noisy = bits",
            ),
            ("x.isfinite(), rounded, x)", "finite, rounded, x)"),
        ),
    ),
    wrong(
        "refuses_too_little",
        "All is right but what you refuse. A u of another shape may broadcast, and an x in another dtype has been "
        "rounded before: look at x.dtype and at both shapes, and raise a ValueError.",
        in_bits(("    _refuse(x, u)\n", "")),
        in_bits((" or u.shape != x.shape", "")),
        in_bits(("x.dtype != torch.float32", "x.is_floating_point() and x.dtype != torch.float32")),
        in_bits(("x.dtype != torch.float32 or ", "")),
        fails=("refusals",),
    ),
    wrong(
        "a_gradient_is_too_much",
        "An x that requires a gradient breaks your function: numpy takes no such tensor. Begin with x.detach().",
        in_float64(("x.detach().numpy()", "x.numpy()")),
    ),
)
