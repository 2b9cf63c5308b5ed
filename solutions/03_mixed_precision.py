# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 03 Mixed precision
#
# **Where do the bits go, and which ones may be dropped?**
#
# At the end of this lesson you will be able to
#
# - round a number to any format, to nearest and at random, and say what long sums in few digits lose;
# - train in half precision with a loss scale, master copies and autocast;
# - count the bytes and the time that a format costs, and multiply matrices in 8 bits;
# - decide which bits may be dropped.
#
# You need: PyTorch's training loop, binary numbers, and what AdamW keeps (lesson 02).
#
# None of the four parts needs another's answers. {{ workload(reading=65, sittings=4) }}

# %%
import torch

from course import check, hint, progress
from course.notebook.check import solved

torch.set_num_threads(1)  # the tensors here are tiny: a second thread costs more than it brings

# %% [markdown]
# # Part I: bits
#
# ## 1. Two digits
#
# A machine keeps the first two digits of every number. It has 0.25, 7.2 and 100, which is $1.0 \cdot 10^2$, but not
# 101. Each result is *rounded*: replaced by the nearest number that the machine has.
#
# **Predict.** What does it get for 3.3 + 3.3 + 3.3? And for the sum of 1,000 ones?

# %%
from course.lessons.widgets.two_digits import two_digits

two_digits("1 + 1 + 1 + …", 1000)

# %% [markdown]
# The three 3.3 make {{ kept("3.3 + 3.3 + 3.3 + …", 3) }}, exactly. The ones stop at {{ kept("1 + 1 + 1 + …", 1000) }}:
# beyond it the machine's numbers lie 10 apart, and 100 + 1 is rounded back to 100. The sum *stalls*.
#
# The distance from a number to the next larger one is the *gap*. A term of less than half the gap vanishes. With more
# terms of 3.3 the sum is off long before it stalls: $9.9 + 3.3 = 13.2$ becomes $13$.
#
# A single rounding does little harm. In base $\beta$ with $p$ digits and any exponent
#
# $$\mathrm{fl}(x) = x\,(1 + \delta), \qquad |\delta| \le u = \tfrac12\, \beta^{1-p},$$
#
# - $\mathrm{fl}(x)$ is $x$ rounded to nearest, with the relative error $\delta$;
# - $u$ is the *unit roundoff* (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed. 2002, Theorem 2.2).
#
# Here $u$ is {{ 10 ** (1 - 2) / 2 : .0%}}: each addition above is right to that, and their result is wrong by
# {{ 1 - float(kept("1 + 1 + 1 + …", 1000)) / 1000 : .0%}}.

# %% [markdown]
# ## 2. What the bits say
#
# Processors count in base 2. A number has a sign bit $s$, $w$ bits of *exponent* $E$ and $m$ bits of *mantissa* $M$.
# With $E$ and $M$ read as whole numbers, and the *bias* $b = 2^{w-1} - 1$,
#
# $$x = (-1)^s \; 2^{E - b} \left(1 + \frac{M}{2^m}\right).$$
#
# The leading 1 is not stored, so $p = m + 1$ and $u = 2^{-(m+1)}$. Two values of $E$ mean something else (IEEE
# 754-2019, section 3.4):
#
# - $E = 0$: the power is $2^{1-b}$, as for $E = 1$, but the leading 1 becomes 0. These *subnormal* numbers lie between
#   0 (or -0) and the smallest of the others, which are called *normal*.
# - $E$ all ones: inf where $M = 0$, else nan.
#
# Here is 0.1 in fp16 (`torch.float16`), with $w = 5$ and $m = 10$. Click on a bit.

# %%
from course.lessons.widgets.bits import bits

bits("fp16", 0.1)

# %% [markdown]
# Find the smallest number above 0, and the largest. What comes after the largest? Then choose other formats: bf16 is
# `torch.bfloat16`; e5m2 and e4m3 are named by their $w$ and $m$; tf32 is no dtype of torch. The ranges, from
# `torch.finfo`:

# %%
from course.lessons.experiments.formats import ranges

print(ranges())

# %% [markdown]
# fp16 and bf16 are *half precision*. bf16 has the exponents of fp32, but its $u$ is {{ u_ratio : .0f }} times that of
# fp16.
#
# Rounding takes the nearest number, of two equally near ones that whose last bit is 0: *ties to even*. What is too
# large is rounded as if the exponents went on; if it then lies beyond the largest number, it becomes inf (IEEE
# 754-2019, section 4.3.1).
#
# **Predict.** What are 2049, 65,519 and 65,520 in fp16? And 257 in bf16?

# %%
for number, dtype in ((2049, torch.float16), (65519, torch.float16), (65520, torch.float16), (257, torch.bfloat16)):
    print(f"{number} in {dtype}: {torch.tensor(float(number)).to(dtype).item():g}")

# %% [markdown]
# Beyond $2^{11}$ fp16 has every second whole number, and beyond $2^8$ so has bf16: 2049 and 257 are ties. So is 65,520,
# between the largest number and $2^{16}$, which would be next and even.
#
# e4m3 has no inf, and spends those patterns on larger numbers (Micikevicius et al., arXiv 2209.05433, section 3).
#
# What does a cast to e4m3 make of 500 and of inf? And one to e5m2 of 60,000 and 70,000?

# %%
for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
    print(dtype, torch.tensor([500.0, 60_000.0, 70_000.0, torch.inf]).to(dtype).tolist())

# %% [markdown]
# Torch's cast to e4m3 *saturates*: whatever is too large becomes the largest number, and nobody notices. (Before [this
# change](https://github.com/pytorch/pytorch/pull/178817) it gave nan on CPUs.) In e5m2 60,000 is still rounded down,
# and 70,000 overflows visibly.
#
# Now round without a cast, also to formats of which torch has no dtype. Every exercise has three hints. The first of
# this one is:

# %%
hint("round_to", 1)


# %% exercise
import torch
from torch import Tensor


def round_to(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """x rounded to a binary format of fewer bits, returned in float32; bit for bit what a processor does.

    x              float32 of any shape, also () and empty, contiguous or not. It requires no gradient, and is not
                   changed.
    exponent_bits  2 to 8; with bias = 2^(exponent_bits - 1) - 1 the exponents of normal numbers go from 1 - bias to
                   bias. So 4 and 3 bits are not torch's e4m3, which has other rules.
    mantissa_bits  1 to 23, without the leading 1, so eps = 2^-mantissa_bits; also formats of which torch has no dtype
    Returns        float32 of x's shape: the nearest number of the format, of two equally near ones that whose last bit
                   is 0. Numbers below the smallest normal one are kept as subnormal numbers. What lies half a gap or
                   more beyond the largest number, (2 - eps) 2^bias, becomes inf or -inf; inf stays, and nan stays nan.
                   Zero keeps its sign, and what is rounded to zero too.
    Example        round_to(torch.tensor([2049.0, -65520.0]), 5, 10) is [2048, -inf].
    """
    bias = 2 ** (exponent_bits - 1) - 1
    eps = 2.0**-mantissa_bits
    power = (x.view(torch.int32) & 0x7F80_0000).view(torch.float32)  # the exponent's bits alone: 2^e
    gap = power.clamp(2.0 ** (1 - bias), 2.0**127) * eps  # below the smallest normal number it stays
    rounded = (x / gap).round() * gap  # torch.round takes ties to even; the rest is exact
    return torch.where(rounded.abs() > (2 - eps) * 2.0**bias, rounded * torch.inf, rounded)


# %%
check(round_to)

# %% [markdown]
# ## 3. Adding many numbers
#
# A dot product, a mean loss, a gradient over a batch: each is a sum of many numbers. A sum that is kept in the format
# is rounded after every addition: $s \leftarrow \mathrm{fl}(s + x)$.
#
# **Predict.** Begin with 0 and add 5,000 ones, one after the other. Where does the sum end in fp16, and where in bf16?

# %%
from course.lessons.experiments.sums import plain_sum

for dtype in (torch.float16, torch.bfloat16):
    print(f"{dtype}: 5,000 ones add up to {plain_sum(torch.ones(5_000), dtype).item():,.0f}")

# %% [markdown]
# {{ stalled("fp16") : ,.0f }} + 1 is a tie in fp16, and goes back to the even number; so does
# {{ stalled("bf16") : .0f }} + 1 in bf16.
#
# Does `torch.sum` in half precision stall too?

# %%
for dtype in (torch.float16, torch.bfloat16):
    ones = torch.ones(5_000, dtype=dtype)
    print(f"{dtype}: sum {ones.sum().item():,.0f}, last of cumsum {ones.cumsum(0)[-1].item():,.0f}")

# %% [markdown]
# It does not: on the CPU, torch adds half precision in float32 and rounds at the end (for `sum` see PyTorch, [pull
# request 60387](https://github.com/pytorch/pytorch/pull/60387)); 5,000 itself is no number of bf16. But a sum that is
# *stored* in half precision between the additions stalls: a running mean, a gradient accumulated over micro-batches, a
# weight that receives small updates.
#
# Three ways to add $n$ numbers with rounded additions only (Higham, *Accuracy and Stability of Numerical Algorithms*,
# 2nd edition, 2002, sections 4.2 and 4.3):
#
# - **One after the other.** Each of $n - 1$ additions may be off by $u$ times its result, and no result is much larger
#   than $\sum |x|$. The error is at most about $n u \sum |x|$.
# - **By pairs.** Add neighbours, then neighbours of these sums, and so on. Each number goes through $\log_2 n$
#   additions, and the bound is about $u \log_2 n \sum |x|$.
# - **Compensated.** Compute what each addition has lost, and bring it back (Kahan, *Further remarks on reducing
#   truncation errors*, 1965).
#
# The third way rests on a fact: what one addition loses, $s + y - \mathrm{fl}(s + y)$, is itself a number of the format
# (if nothing overflows).
#
# Does `(s + y) - total` find it?

# %%
s, y = torch.tensor(1024.0, dtype=torch.float16), torch.tensor(0.25, dtype=torch.float16)
total = s + y
print(f"total {total.item()}, lost {s.double().item() + y.double().item() - total.double().item()}")
print(f"(s + y) - total = {((s + y) - total).item()}")

# %% [markdown]
# It does not: `s + y` is rounded again, to the same total. Two operations find the loss in another order, without any
# error if the larger of $s$ and $y$ comes first (Dekker, Numerische Mathematik 18, 1971). Which order?


# %% exercise
import torch
from torch import Tensor


def compensated_sum(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum over the first dimension, every operation rounded to `dtype`, with an error that hardly grows with n.

    xs          (n, ...), floating; n may be 0 or 1. Each number is rounded to `dtype` first. As a tensor, it may be a
                view, and may require a gradient. It is not changed. All numbers are finite, and no sum of their
                magnitudes overflows.
    dtype       torch.float16, bfloat16, float32 or float64; u is torch.finfo(dtype).eps / 2
    Returns     xs.shape[1:], the sum over the first dimension, in `dtype`. For n up to 1 / sqrt(u) (45 in fp16, 16 in
                bf16, 4,096 in float32) it is at most 3 u sum |x| from the exact sum of the rounded numbers, whatever
                their order and signs. 0 for n = 0; for n = 1 the number, rounded.
    Operations  additions and subtractions are done with tensors of `dtype` only, two numbers at a time: no wider dtype,
                no numbers of Python or NumPy, nor a reduction (sum, cumsum, mean, @), which has more digits inside.
    Example     xs = [2048, 1, 1, 1, 1] in torch.float16 gives 2052. Without compensation it is 2048.
    """
    s = lost = torch.zeros(xs.shape[1:], dtype=dtype)
    for x in xs.to(dtype):
        y = x + lost
        total = s + y
        s_is_larger = s.abs() >= y.abs()
        larger, smaller = torch.where(s_is_larger, s, y), torch.where(s_is_larger, y, s)
        lost = (larger - total) + smaller  # exact: s + y - total
        s = total
    return s


# %%
check(compensated_sum)

# %% [markdown]
# How far off can such a sum be? Here is one step of Kahan's kind, in exact terms. It begins with
# $s_0 = \mathrm{lost}_0 = 0$, and for $i = 1, \dots, n$
#
# $$
# y_i = \mathrm{fl}(x_i + \mathrm{lost}_{i-1}), \qquad
# s_i = \mathrm{fl}(s_{i-1} + y_i), \qquad
# \mathrm{lost}_i = s_{i-1} + y_i - s_i \quad \text{(without error)}.
# $$
#
# The result is $s_n$. Which of the roundings are never made good? How many $u$ is that, to first order? Then find, with
# pencil and paper, a small $B$ with $|s_n - \sum x_i| \le B \sum |x_i|$ for *every* input. Begin with what one step
# does to $s + \mathrm{lost}$. The check tries your $B$ on inputs that were made to break it.


# %% exercise
def compensated_bound(n: int, u: float) -> float:
    """The least B that you can prove for the steps above, with |s_n - sum x| <= B sum |x|.

    n        how many numbers are added, at least 1
    u        the unit roundoff of a binary format that rounds to nearest: a power of 2, at most 1/256 (bf16), with n u
             at most 1/4
    Returns  B, a number that holds for every n numbers of the format, if nothing overflows. Terms with u^2 are not
             dropped. B must be within 12% of the least that we can prove; for n below 3 it may be up to 2.1 u.
    Example  for n = 1 any B from 0 to 2.1 u is right, because one number is returned as it is.
    """
    carried = (n - 1) * u * (1 + u) / (1 - (n - 1) * u * u)  # |lost_1| + ... + |lost_(n-1)|, for sum |x| = 1
    last = u * (1 + u + u * carried)  # |lost_n|
    return u * (1 + carried) + last


# %%
check(compensated_bound)

# %% [markdown]
# On random numbers, which of the three sums comes closest to its bound?

# %%
import math

from course.lessons.experiments.sums import PLAIN, errors, worst_case
from course.lessons.figures.sums import sum_errors


def your_bound(n, u):
    """Where it was asked for."""
    return compensated_bound(n, u) if n * u <= 1 / 4 and solved(compensated_bound) else math.nan


methods = dict(PLAIN)
if solved(compensated_sum):
    methods["compensated"] = (compensated_sum, your_bound)
    off, bound = worst_case(compensated_sum, torch.float16, 500), 2**11 * your_bound(500, 2**-11)
    print(f"500 numbers in fp16, chosen for Kahan's sum: yours is off by {off:.2f} u sum |x|")
    print(f"Your bound for 500 numbers: {bound:.2f} u" if solved(compensated_bound) else "Your bound is not there yet.")
else:
    print("Your compensated sum joins the two others here once it passes.")
sum_errors(
    {"fp16": errors(torch.float16, methods), "bf16": errors(torch.bfloat16, methods)},
    title="One after the other, the error grows with n; the others stay near u",
)

# %% [markdown]
# Compensated does, and by pairs it is nearly as good: on uniform numbers (the worst of {{ sums.COLUMNS }} sums each,
# both formats, all $n$) the error is at most {{ worst("compensated") : .1f }} $u$ and {{ worst("by pairs") : .1f }}
# $u$. One after the other, {{ max(sums.COUNTS) : ,d }} numbers in bf16 lose
# {{ max(sum_errors("bf16").errors["one after the other"]) : .0%}} of the sum. But the bound by pairs grows, and the
# check of `compensated_sum` has {{ LONG }} numbers on which pairs fail. On numbers chosen against it, Kahan's sum is
# {{ hard_sum() : .2f }} $u$ off, more than $2u$; the bound that can be proved is {{ hard_bound() : .2f }} $u$. Where
# numbers come one by one, pairs store $\log_2 n$ sums; compensation stores one number more, and pays with a few
# operations for each.

# %% [markdown]
# ## 4. Rounding by chance
#
# A weight of 1 in bf16 gets {{ tiny.UPDATES : ,d }} updates of $2^{-10}$ each. Between 1 and 2 the gap from one bf16
# number to the next is $2^{-7}$, so an update is an eighth of a gap. Without rounding, the weight would end at
# {{ float(tiny.exactly()[-1]) : .3f }}.
#
# After every update the sum must be rounded to bf16. One way is rounding to nearest. Another is *stochastic rounding*:
# a random draw decides between the two neighbours of the sum, and the nearer one is the likelier.
#
# **Predict.** Where does the weight end with rounding to nearest? With stochastic rounding, do five runs with different
# draws end in the same place, and is it the right one?

# %%
from course.lessons.experiments import tiny_updates as tiny
from course.lessons.figures.tiny_updates import weight_curves

runs = tiny.by_draws()
print("five runs end at", runs[-1].tolist())
weight_curves(
    tiny.exactly(),
    tiny.by_nearest(),
    runs,
    title="1,000 updates of an eighth of a gap: all lost, or kept on average",
)

# %% [markdown]
# With rounding to nearest the weight never moves: it stalls. Each sum, $1 + 2^{-10}$, is nearest to 1, and the next
# update begins at 1 again.
#
# With stochastic rounding each run ends in another place, but they scatter around the right one: the mean over
# {{ MANY : ,d }} runs is {{ mean_end() : .3f }}, with a standard error of {{ tiny.spread() / MANY**0.5 : .4f }}. The
# price is noise: a run is off by about {{ tiny.spread() : .2f }} (one standard deviation).
#
# *How likely must each neighbour be, so that nothing is lost on average?* Let $x$ lie between its neighbours in bf16,
# $x_- < x < x_+$, and round it to $x_+$ with the probability $q$. Find the $q$ with which the mean of the result is
# $x$. Then write the rounding. The draws, uniform in $[0, 1)$, are handed in as `u` (not the unit roundoff).


# %% exercise
import torch
from torch import Tensor


def stochastic_round(x: Tensor, u: Tensor) -> Tensor:
    """Rounds each number of x to one of its two neighbours in bfloat16, by a draw, so that the mean over draws is x.

    x        float32 of any shape, () and empty ones too; views too; it may require a gradient.
    u        float32 of x's shape, multiples of 2^-24 in [0, 1), as torch.rand draws them: the draw of each number, and
             all the randomness there is. x and u are not changed.
    Returns  bfloat16 of x's shape. A number that bfloat16 holds stays, whatever its draw, -0.0 with its sign. Any
             other becomes its lower or its upper neighbour. Of K draws, one from each K-th part of [0, 1), exactly so
             many give the upper one that the mean of the K results is x, where a whole number of them can (K a power of
             two up to 65,536). Which ones they are is up to you.
    Ends     Subnormal numbers are rounded like all others. Beyond the largest bfloat16 the upper neighbour is inf, and
             counts as 2^128 in the mean; likewise -inf as -2^128. inf and nan stay, whatever the bits of a nan.
    Refused  with a ValueError: an x that is not float32, a u of another shape than x.
    Example  x = 1 + 2^-9 lies between 1 and 1 + 2^-7. Of the draws 0, 0.25, 0.5 and 0.75, one gives 1.0078125 and
             three give 1.
    """
    if x.dtype != torch.float32 or u.shape != x.shape:
        raise ValueError(f"x must be float32, and u of its shape {tuple(x.shape)}, got {x.dtype} and {tuple(u.shape)}")
    bits = x.detach().view(torch.int32)
    nearer = bits & -65536  # the upper 16 bits alone: the neighbour nearer to 0
    share = (bits - nearer) / 65536  # of the way to the other one
    rounded = torch.where(u < share, nearer + 65536, nearer).view(torch.float32)
    return torch.where(x.isfinite(), rounded, x).to(torch.bfloat16)


# %%
check(stochastic_round)

# %% [markdown]
# Section 12 tries it on a small GPT.

# %% [markdown]
# # Part II: training in half precision
#
# ## 5. Gradients below the range
#
# fp16's smallest number is $2^{-24}$; up to half of it is rounded to 0. Below $2^{-14}$ numbers are subnormal: they
# keep fewer and fewer bits. Are gradients that small?
#
# **Predict.** The loss of the small GPT from lesson 02 is a mean over all characters of a batch. Which share of the
# gradients of its activations does fp16 round to 0, and which share is subnormal? By which power of two would you
# multiply them?

# %%
from course.lessons.widgets.loss_scale import loss_scale

loss_scale()

# %% [markdown]
# Before training and without a scale, fp16 loses {{ lost("activations") : .1f }}% of those that are not 0, and
# {{ subnormal("activations") : .0f }}% are subnormal. Of the weights' gradients it loses only
# {{ lost("weights") : .1f }}%. Move the slider: there are many powers of two between too small and too large. bf16 has
# the exponents of fp32 and needs none of this. e5m2, whose smallest number is $2^{-16}$, loses
# {{ lost("activations", name="e5m2") : .0f }}%.
#
# Multiplying each gradient would come too late, because it would have been rounded already. But backward is linear in
# the derivative that it starts from. So we multiply the loss $L$ by a *loss scale* $S$, and divide in fp32 what arrives
# at the weights $w$:
#
# $$
# \nabla_w L = \tfrac1S \, \nabla_w (S L).
# $$
#
# Micikevicius et al. (arXiv 1710.03740, section 3.2) report a detector, Multibox SSD, that diverges in fp16 and matches
# fp32 with $S = 8$. Which $S$ another model needs is not known beforehand, and it changes during training. A *dynamic*
# loss scale starts large. A step whose gradients hold inf or nan is left out (*skipped*), and the scale becomes
# smaller; after many good steps in a row it becomes larger again.
#
# `torch.amp.GradScaler` halves its scale after a skip, and doubles it after {{ INTERVAL : , }} good steps. If the
# gradients keep their sizes, how often does it skip a step, once it has found its scale?

# %% exercise
from collections.abc import Callable

import torch
from torch import Tensor


class LossScaler:
    """The loss scale, and the rule that finds it. A step of training calls scale, unscale_, step and update, in turn.

    init_scale       the first loss scale, above 0
    growth_factor    what it is multiplied by to grow, above 1
    backoff_factor   what it is multiplied by after a skipped step, between 0 and 1
    growth_interval  how many good steps in a row make it grow, an int, at least 1
    factor           attribute that you set: the loss scale, a number or a tensor (). It changes in update only. It
                     never needs to be below 2^-100. Each scaler has its own.
    scale(loss)      returns loss times factor, connected with the loss, so that backward goes through it. The loss is
                     (), in float32, bfloat16 or float16; the product of a float16 loss is formed in float32. The loss
                     is not changed.
    unscale_(grads)  divides all gradients by factor, or multiplies them by 1 / factor in float32, in the memory of the
                     very tensors, and notes whether they are finite. Finite ones stay finite: none is so large. grads
                     is a list of tensors in float32 or bfloat16, of any shapes (also without numbers), views too, and
                     of None for parameters without a gradient; one at least is a tensor. They require no gradient
                     themselves. After an inf or nan nobody reads the gradients of this step: they may hold anything.
    step(step)       calls step(), the optimizer's, once if all gradients were finite, however large, and not if any
                     number in them was inf, -inf or nan. Returns True if it called it, else False, whatever step()
                     returned.
    update()         after a skipped step multiplies factor by backoff_factor, also below 1; after growth_interval good
                     steps in a row by growth_factor, but a growth beyond the largest float32 number is left out. After
                     a skip, and after a growth, the count of good steps is 0 again.
    Refused          with a ValueError or a RuntimeError, before anything is changed: a number of the constructor that
                     is outside of its range (none is nan); a float16 gradient (divided, it would be lost after all),
                     also without numbers; a second unscale_ before update; step before unscale_; a second step, also
                     after a skip; update before unscale_.
    Example          init_scale 8, gradient [inf]: step returns False, and after update the factor is 4. A gradient [2.]
                     is [0.5] after the next unscale_.
    Not allowed: torch.amp, torch.cuda.amp.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        *,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        if not (init_scale > 0 and growth_factor > 1 and 0 < backoff_factor < 1 and growth_interval >= 1):
            raise ValueError(f"out of range: {init_scale=}, {growth_factor=}, {backoff_factor=}, {growth_interval=}")
        self.factor = torch.tensor(init_scale, dtype=torch.float32)
        self.growth, self.backoff, self.interval = growth_factor, backoff_factor, growth_interval
        self.good_steps = 0  # in a row
        self.finite: bool | None = None  # this step's gradients; None before unscale_
        self.stepped = False

    def scale(self, loss: Tensor) -> Tensor:
        return loss * self.factor  # float16 times float32 is float32

    def unscale_(self, grads: list[Tensor | None]) -> None:
        present = [g for g in grads if g is not None]
        if self.finite is not None or any(g.dtype == torch.float16 for g in present):
            raise RuntimeError("unscale_ must be called once, with gradients wider than float16")
        self.finite = all(bool(g.isfinite().all()) for g in present)
        for g in present:
            g.div_(self.factor)

    def step(self, step: Callable[[], object]) -> bool:
        if self.finite is None or self.stepped:
            raise RuntimeError("step must be called once, after unscale_")
        self.stepped = True
        if self.finite:
            step()
        return self.finite

    def update(self) -> None:
        if self.finite is None:
            raise RuntimeError("update must follow unscale_")
        self.good_steps = self.good_steps + 1 if self.finite else 0
        if not self.finite:
            self.factor = self.factor * self.backoff
        elif self.good_steps == self.interval:
            grown = self.factor * self.growth
            self.factor = grown if grown.isfinite() else self.factor
            self.good_steps = 0
        self.finite, self.stepped = None, False


# %%
check(LossScaler)

# %% [markdown]
# It doubles until a step overflows, halves, and tries again {{ INTERVAL : , }} good steps later: about one step in
# {{ INTERVAL : , }} is lost. `GradScaler.step` also unscales, if you have not done so; call its `unscale_` yourself
# where you clip, because a limit for the norm means the true gradients.
#
# Does a scale matter? Large runs average the loss over millions of tokens: 16 million in a step for Llama 3 405B (arXiv
# 2407.21783, Table 4). If each worker divides its loss by the number of all tokens, gradients need only be added. We
# imitate one worker on the digits: it divides the loss of its {{ loss_scaling.BATCH }} digits as if all workers had
# $2^{24}$, which is {{ EXAMPLES / 1e6 : .1f }} million. Its gradient, once rounded to fp16 and unscaled, is multiplied
# by the number of workers for an SGD step on fp32 master copies.
#
# **Predict.** The derivative of one digit's loss with respect to a logit lies between -1 and 1. What is left of it in
# fp16, after the division? Does the run without a scale learn?

# %%
from course.lessons.experiments import half_stand_ins, loss_scaling
from course.lessons.figures.loss_scaling import loss_and_scale

yours = solved(LossScaler)
runs = loss_scaling.compare(LossScaler if yours else half_stand_ins.LossScaler, seed=1)
print(f"the scaler is {'yours' if yours else 'torch.amp.GradScaler'}")
loss_and_scale(runs, title="Without a scale fp16 does not learn; with one it follows fp32")

# %% [markdown]
# It does not. A derivative beyond one half is rounded to $\pm 2^{-24}$, as if it were $\pm 1$, and a smaller one to 0:
# at first the right classes are only pushed up, and soon every confident mistake is corrected at full force. Over the
# last {{ loss_scaling.LAST }} steps the mean loss is {{ min(scaling.fp16) : .1f }} to {{ max(scaling.fp16) : .0f }}
# nats ({{ len(scaling.fp16) }} seeds, recorded), against {{ min(scaling.fp32) : .2f }} to {{ max(scaling.fp32) : .2f }}
# in fp32 and {{ min(scaling.scaled) : .2f }} to {{ max(scaling.scaled) : .2f }} with a scaler. And the surprise: with a
# mean over its {{ loss_scaling.BATCH }} digits alone, fp16 without any scale arrives at {{ min(scaling.alone) : .2f }}
# to {{ max(scaling.alone) : .2f }}.
#
# On the right, the scale starts at $2^{44}$, beyond the $2^{24}$ by which the loss was divided, and grows after
# {{ loss_scaling.INTERVAL }} good steps instead of {{ INTERVAL : , }}, so that you see it move. Crosses are skipped
# steps. From the largest gradients alone you can tell the first one:

# %% exercise
from collections.abc import Sequence


def first_overflow(amaxes: Sequence[float], init_scale: float, growth_interval: int) -> int | None:
    """The first step that a loss scaler skips.

    amaxes           a list: the largest magnitude in the unscaled gradients of each step; finite float32 numbers, 0 or
                     above. It may be empty, and is not changed.
    init_scale       the scale of the first step, a power of two, also below 1. Growth doubles it; there are never so
                     many steps that float32 could not hold it
    growth_interval  how many good steps in a row make it grow, at least 1; growth acts from the next step on
    Returns          the number of the step, counted from 1, whose largest gradient times the scale becomes inf when it
                     is rounded to float16; None if no step's does
    Example          amaxes [1.0, 20000.0, 20000.0], init_scale 2.0, growth_interval 2: returns 3. Steps 1 and 2 fit
                     (2.0 and 40,000); then the scale is 4, and 80,000 does not.
    """
    for good, amax in enumerate(amaxes):  # so many good steps lie behind
        if amax * init_scale * 2.0 ** (good // growth_interval) >= 65520:  # 65,504 and half a gap: a tie, to even
            return good + 1
    return None


# %%
check(first_overflow)

# %% [markdown]
# ## 6. Master copies
#
# Stochastic rounding keeps small updates at the price of noise. The usual way is a *master copy* of each weight in
# float32, beside the one in half precision. The optimizer's step moves the master copy. Then the weight, with which the
# model computes, is set to the rounded master copy (Micikevicius et al., arXiv 1710.03740, section 3.1).
#
# **Predict.** The weight is 1 in bf16, its master copy is 1 too, and the updates are $2^{-10}$ as before. Which update
# is the first that moves the weight, and by how much? Where does it end? (Ties go to the even neighbour, which is 1.)

# %%
weight, master = tiny.by_master()
for updates in (1, 4, 5, 11, 12, 1000):
    print(f"after {updates:4d} updates: master copy {master[updates]:.7f}, weight {weight[updates]:.7f}")

# %% [markdown]
# After four updates the master copy lies half way to the next bf16 number, and the tie goes to 1. The fifth update
# decides, and the weight moves by a whole gap. The twelfth makes a tie again, which goes up to the even neighbour. The
# weight is always the bf16 number nearest to the exact sum.
#
# The price is memory: four bytes more for each parameter. And float32 has gaps as well: adding $2^{-24}$ or less to a
# master copy of 1 does not change it.
#
# One more place can lose an update, before it ever reaches the master copy.
#
# In fp16 the smallest number above 0 is $2^{-24}$. Let a gradient be $2^{-12}$, and the rate $2^{-13}$. What is their
# product, if the gradient is an fp16 tensor and the rate a Python number?

# %%
gradient = torch.tensor(2.0**-12, dtype=torch.float16)
product = 2.0**-13 * gradient
print("product:", product.item(), product.dtype)
print("in float32:", (2.0**-13 * gradient.float()).item())

# %% [markdown]
# A Python number does not change the dtype of a floating tensor. The product is rounded to fp16, and here it is 0. A
# loss scale does not help: gradients are divided by it before the step.
#
# Your function gets gradients in half precision, or a direction in float32, such as AdamW computes it.


# %% exercise
import torch
from torch import Tensor


@torch.no_grad()
def master_step(p16: list[Tensor], p32: list[Tensor], g16: list[Tensor], lr: float) -> None:
    """One plain step, in place: the masters lose lr times the gradient, then the parameters are their roundings.

    p16      parameters, all float16 or all bfloat16, of any shapes, () and empty ones too; views too; they may require
             a gradient, and still do so afterwards. What they hold before the step does not matter.
    p32      float32, the masters of p16: one for each, of its shape
    g16      their gradients, one for each, of its shape: in p16's dtype, as backward leaves them, or in float32, as
             after unscaling; inf and nan count like other numbers. They are not changed.
    lr       the rate, at least 0
    After    p32 holds p32 - lr g16, computed in float32 or finer, and p16 the nearest numbers to p32: both in the
             tensors' own memory, which an assignment to a name or to `.data` does not change.
    Example  p16 = [1.] in bfloat16, p32 = [1.], g16 = [3.], lr = 2^-8: p32 is [0.98828125], and so is p16. With lr =
             2^-12 p32 is [0.999267578125], and p16 is [1.] still.
    """
    for half, master, grad in zip(p16, p32, g16, strict=True):
        master.sub_(grad.float() * lr)
        half.copy_(master)


# %%
check(master_step)

# %% [markdown]
# ## 7. Which operator in which precision
#
# A matrix product in half precision is fast, and rounding its inputs does little harm. A sum of many numbers, an
# exponential or a loss needs float32. *Autocast* has lists of operators, and casts the inputs of an operator when it is
# called.
#
# The lists depend on the device. These are CUDA's, from torch's header `ATen/autocast_mode.h`, in the names of Python's
# functions, `op.__name__`. Most of them stand on torch's page [Automatic Mixed
# Precision](https://pytorch.org/docs/stable/amp.html).

# %%
import textwrap

from course.lessons.autocast_lists import HIGH, LOW, WIDEST

for words, names in {"LOW": LOW, "HIGH": HIGH, "WIDEST": WIDEST}.items():
    print(textwrap.fill(f"{words}: {', '.join(sorted(names))}", 110, subsequent_indent="    "))

# %% [markdown]
# - `LOW`: the products. Their floating inputs are cast to half precision.
# - `HIGH`: exponentials, powers, norms, sums, losses. Their floating inputs are cast to float32, and the result stays
#   in float32.
# - `WIDEST`: operators whose inputs should have the same dtype. If one is in float32, all of them are cast to it.
# - All other operators (`add`, `relu`, `mul`, ...) run on what they get. `add` gives the wider dtype by itself.
#
# float64 and integers, such as class numbers, are never cast.
#
# **Predict.** Activations come out of a matrix product in bfloat16. On CUDA, in which dtype does each of `linear`,
# `softmax` and `relu` return its result, applied to them? And on a CPU?

# %%
from course.lessons.experiments import cpu_autocast

print(cpu_autocast.table(cpu_autocast.rows()))

# %% [markdown]
# On CUDA the three give bfloat16, float32 and bfloat16. On a CPU, `torch.autocast` has other lists. Of the operators
# above, {{ spelled(len(cpu_differing())) }} that CUDA runs in float32 stay in bfloat16 when their input comes in
# bfloat16: {{ cpu_names() }}.
#
# **What a cast costs.** Activations are new in each pass, but a weight may be used several times in one: by tied
# layers, or by the steps of a recurrent network. Autocast keeps the cast of a weight for the next use. A *weight* here
# is a float32 *leaf* (a tensor that no recorded operation computed) that requires a gradient.
#
# A weight is the unit matrix, and x is (1, 2). Within one region of `torch.autocast` we multiply x by the weight,
# triple the weight in place, and multiply x by it again. A third product follows in a new region.

# %%
import torch.nn.functional as F

from course.meter import metered

x, weight = torch.tensor([[1.0, 2.0]]), torch.eye(2, requires_grad=True)
with metered() as meter:
    with torch.autocast("cpu", torch.bfloat16):
        first = F.linear(x, weight)
        with torch.no_grad():
            weight *= 3
        second = F.linear(x, weight)
    with torch.autocast("cpu", torch.bfloat16):
        third = F.linear(x, weight)
print("products:", first.tolist(), second.tolist(), third.tolist())
print("casts from float32:", sum(op.is_cast for op in meter.trace), "for 3 activations and 3 uses of the weight")

# %% [markdown]
# The second product is out of date: it used the cast that was made for the first. So the casts must not outlive a
# *pass*, here one region of autocast: the forward computation of a step. Torch drops them where the outermost region
# ends.
#
# All uses share one cast, which is an operation of the graph. The gradients of all uses are added in half precision,
# and backward through the cast makes their sum float32.
#
# If the first use of a weight stands under `torch.no_grad()`, its cast is not recorded, and a second use that shares it
# gives the weight no gradient. Older versions of torch had this fault ([issue
# 158232](https://github.com/pytorch/pytorch/issues/158232), mended by [pull request
# 165068](https://github.com/pytorch/pytorch/pull/165068)). Build an autocast without it.


# %% exercise
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.lessons.autocast_lists import HIGH, LOW, WIDEST


class Autocast:
    """Runs operators in the precision that CUDA's autocast gives them, and casts each weight once per pass.

    Used as         with Autocast(torch.bfloat16) as cast: y = cast.run(torch.matmul, x, w)
    Autocast(half)  half is torch.float16 or torch.bfloat16; no tensor comes in the other of these.
    with            begins a pass, which ends with the block, also where an error ends it; the caller gets the error.
                    One object serves many passes; passes never overlap.
    run(op, *args)  returns op(*args), called in a pass; what in args is no tensor (a dimension, None, a list or
                    tuple of tensors) stays as it is. `op.__name__` is in LOW or HIGH or WIDEST or in no list:
    LOW             floating tensors are cast to half, also those without dimensions
    HIGH            floating tensors are cast to float32; the result is returned as it is
    WIDEST          floating tensors are cast to float32 where any of them, wherever it stands, is in float32
    other names     what is in no list is called with its tensors as they come
    Never cast      float64, integers, booleans
    Weights         are float32 leaves that require a gradient. Each is cast once in a pass, however often it is used in
                    half precision, with and without torch.no_grad(); it does not change within a pass. Every other
                    tensor is cast at each use, since it may change in place. What needs no cast is not copied.
    Gradients       come in float32, also where the first use in a pass was under torch.no_grad()
    Afterwards      tensors in args are as they were. Nothing is kept: between passes the object holds no tensor, also
                    after an error.
    Example         for x and w in float32, run(torch.matmul, x, w) is in bfloat16, and run(torch.sum, y) of that result
                    y in float32.
    Not allowed: torch.autocast, torch.amp.
    """

    def __init__(self, half: torch.dtype) -> None:
        """An object without casts."""
        self.half = half
        self.casts: dict[Tensor, Tensor] = {}

    def __enter__(self) -> "Autocast":
        """A pass begins."""
        return self

    def __exit__(self, *error: Any) -> None:
        """The pass ends."""
        self.casts.clear()

    def run(self, op: Callable[..., Any], *args: Any) -> Any:
        """op(*args) in the precision of its list."""
        mine = (torch.float32, self.half)
        dtypes = [arg.dtype for arg in args if isinstance(arg, Tensor) and arg.dtype in mine]
        name, target = op.__name__, None
        if name in LOW:
            target = self.half
        elif name in HIGH or (name in WIDEST and torch.float32 in dtypes):
            target = torch.float32
        given = []
        for arg in args:
            if target is None or not isinstance(arg, Tensor) or arg.dtype not in mine or arg.dtype == target:
                given.append(arg)
            elif arg.is_leaf and arg.requires_grad and target == self.half:
                if arg not in self.casts:
                    with torch.enable_grad():
                        self.casts[arg] = arg.to(target)
                given.append(self.casts[arg])
            else:
                given.append(arg.to(target))
        return op(*given)


# %%
check(Autocast)

# %% [markdown]
# ## Find the fault
#
# Three programs train a linear model in float16. The float32 weights `w` are cast to float16, the loss is multiplied by
# the scale, and the gradients are divided by it. Each program has one fault, and none of them raises an error.
#
# - `clipped` limits the norm of the gradient to `max_norm`.
# - `growing` adapts the scale as in section 5, and skips a step whose gradient is not finite. After `interval` good
#   steps in a row the scale doubles.
# - `cached` keeps the cast of the weights for a pass. Here a pass is one step and has only one product.

# %%
from course.lessons.experiments import half_runs

for name in half_runs.PROGRAMS:
    print(half_runs.PROGRAMS.listing(name), end="\n\n")

# %% [markdown]
# Each program now runs {{ faulty_steps() }} steps on the same batch; only in `growing` the third batch is an outlier.
# `clipped` and `cached` have a `scale` of {{ setting("clipped", "scale") : ,.0f }}, and `clipped` a `max_norm` of
# {{ setting("clipped", "max_norm") : .0f }}. `growing` begins with a `scale` of
# {{ setting("growing", "scale") : ,.0f }}, and its `interval` is {{ setting("growing", "interval") : .0f }}.
#
# **Predict.** The true gradient has a norm of about {{ true_norm() : .1f }} at the start. Which norm should `clipped`
# log in its first step? After how many good steps should `growing` double its scale for the first time after the
# outlier?

# %%
half_runs_shown = {name: half_runs.run(name, **half_runs.example(name)) for name in half_runs.PROGRAMS}
print(half_runs.table(half_runs_shown))

# %% [markdown]
# The columns are the scale, the norm of the gradient that the step uses, and the loss.
#
# - In `clipped` the norm is {{ clipped_norm() }} in every step, and the loss hardly falls.
# - In `growing` the scale doubles {{ spelled(too_soon()) }} good step after the outlier, and not
#   {{ spelled(int(setting("growing", "interval"))) }}.
# - In `cached` gradient and loss never change, although the weights do.
#
# For each symptom, follow the number that is wrong back to the line that makes it wrong.


# %% exercise
def mend_the_runs() -> dict[str, tuple[int, str]]:
    """The wrong line of each of the three programs above, and how it must read.

    Returns   for "clipped", "growing" and "cached" the number of a line as it is printed above, and the line that
              replaces it, a str without a line break. Its indentation is kept, and may be left out; `torch` and `math`
              are imported.
    Judged    by the scales, the losses and the last weights of the program with your line in it: it does what it should
              on any numbers, and any spelling of it is right. `clipped` also gets gradients shorter than max_norm, and
              `growing` skipped steps anywhere.
    Example   {"clipped": (2, "log = [0]"), ...} would replace the second line of `clipped`.
    """
    return {
        "clipped": (8, "g = g * (max_norm * scale / g.norm()).clamp(max=1)"),  # g is not unscaled yet
        "growing": (11, "good = (good + 1) * finite"),  # in a row
        "cached": (9, "casts.clear()"),  # the pass ends here
    }


# %%
check(mend_the_runs)

# %% [markdown]
# # Part III: bytes and seconds
#
# ## 8. What it saves: bytes
#
# A bf16 number has half the bytes of an fp32 one. Does training in bf16 need half the memory? The *model states* are
# what lies in memory when a step begins, whatever the batch: parameters, every copy of the gradients, Adam's two
# moments, and an fp32 master copy where half-precision parameters are rounded to nearest. A *block* of 8-bit moments
# shares one fp32 scale.
#
# | recipe | parameters | gradients | rounding | moments |
# | --- | --- | --- | --- | --- |
# | fp32 | fp32 | fp32 | nearest | fp32 |
# | autocast | fp32, cast to bf16 for products | fp32 | nearest | fp32 |
# | fp16 | fp16 | fp16 | nearest | fp32 |
# | bf16 | bf16 | fp32 | nearest | fp32 |
# | fp16, two gradients | fp16 | fp16 and an fp32 copy | nearest | fp32 |
# | stochastic | bf16 | bf16 | stochastic | bf16 |
# | 8-bit moments | bf16 | bf16 | nearest | e4m3, blocks of 256 |
#
# **Predict.** How many bytes has each recipe for each parameter? Write them down.

# %%
f32, f16, bf16, e4m3 = torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn
plain = {"param": f32, "grads": (f32,), "rounding": "nearest", "moments": f32, "block": None, "autocast": None}
training_recipes = {
    "fp32": plain,
    "autocast": plain | {"autocast": bf16},
    "fp16": plain | {"param": f16, "grads": (f16,)},
    "bf16": plain | {"param": bf16},
    "fp16, two gradients": plain | {"param": f16, "grads": (f16, f32)},
    "stochastic": plain | {"param": bf16, "grads": (bf16,), "rounding": "stochastic", "moments": bf16},
    "8-bit moments": plain | {"param": bf16, "grads": (bf16,), "moments": e4m3, "block": 256},
}
predicted = dict.fromkeys(training_recipes)  # your numbers: predicted["fp32"] = ...

# %% [markdown]
# Autocast keeps the cast of each fp32 weight from its first use to the end of backward, because the gradient of a
# product needs it. Count these copies apart from the states.


# %% exercise


def training_bytes(n: int, recipe: dict[str, object]) -> tuple[int, int]:
    """Bytes of the model states when a step of Adam begins, and of the copies that are there only while a pass runs.

    n         how many numbers all parameters have together; may be 0, and is below 2**53
    recipe    a dict of six entries. Every dtype is a floating one of 1 to 8 bytes a number.
              "param": dtype of the parameters that forward and backward use;
              "grads": a tuple, the dtype of each copy of the gradients that is there when the step begins. It may be
              empty: then each gradient is used and freed inside backward;
              "rounding": how a step rounds the parameters, "nearest" or "stochastic";
              "moments": dtype of each of Adam's two moments;
              "block": None, or how many numbers of a moment share a scale;
              "autocast": None, or the dtype to which autocast casts, of 2 bytes. The parameters are then in float32
              or have that dtype already.
    Returns   (states, passing), two ints (floats that hold them will do)
    states    the parameters, every copy of the gradients and both moments; a float32 master copy where parameters of
              fewer than 4 bytes are rounded to nearest; with a block, one float32 scale for each block of each moment,
              of which the last may be smaller. Autocast's copies are not in them, nor activations, nor step counters.
    passing   autocast's copies, one for each parameter that does not have autocast's dtype (as if all went into
              products)
    Example   for n = 1000 in bfloat16, with gradients in float32, rounded to nearest, with moments in float8_e4m3fn in
              blocks of 256, without autocast: 2000 + 4000 + 4000 + 2 * 1000 + 2 * 4 * 4 bytes. (12032, 0) is returned.
    """
    param = recipe["param"].itemsize
    each = param + sum(dtype.itemsize for dtype in recipe["grads"]) + 2 * recipe["moments"].itemsize
    if param < 4 and recipe["rounding"] == "nearest":
        each += 4  # the master copy
    states = n * each
    if recipe["block"] is not None:
        states += 2 * 4 * math.ceil(n / recipe["block"])
    cast = recipe["autocast"]
    passing = 0 if cast in (None, recipe["param"]) else n * cast.itemsize
    return states, passing


# %%
check(training_bytes)

# %% [markdown]
# Now weigh it. torch's AdamW takes a real step on two linear layers, and all that is alive afterwards is counted. Each
# line shows states + passing, in bytes for each parameter.

# %%
from course.lessons.experiments.states import measured

right = "training_bytes" in globals() and solved(training_bytes)
for name, recipe in training_recipes.items():
    real = "(not in torch.optim)"
    if recipe["block"] is None:
        real = "measured {0.states:5.2f} + {0.passing:.1f}".format(measured(recipe))
    yours = "yours {:5.2f} + {:.1f}".format(*(each / 1e6 for each in training_bytes(10**6, recipe))) if right else ""
    print(f"{name:20} {real:21} {yours:18} predicted {predicted[name]}")

# %% [markdown]
# None of the first five needs less than fp32, and two need more. The numbers with master copies are those of ZeRO (16;
# arXiv 1910.02054, section 3.1) and of Megatron Core (18 and 20; "Distributed Optimizer",
# https://docs.nvidia.com/megatron-core). Half precision saves elsewhere: in activations, and in time.

# %% [markdown]
# ## 9. What it saves: time
#
# How much faster is half precision? That depends on what an operator waits for. Its *arithmetic intensity* $I$ is the
# number of floating-point operations (FLOPs) for each byte that it moves between memory and processor. A processor has
# a *peak* $P$ of its matrix products, in FLOP/s, and a *bandwidth* $W$ of its memory, in byte/s. An operator runs at
# most at
#
# $$\min(P,\ I\,W)\ \text{FLOP/s}.$$
#
# Over $I$ this is a slope that ends in a flat roof, the *roofline* (Williams, Waterman and Patterson, Communications of
# the ACM 52, 2009). They meet at the *ridge*, $I = P / W$.
#
# Take $n \times n$ matrices in bf16, each input read once and the output written once. A product does $2 n^3$ FLOPs and
# moves three matrices: $n / 3$ FLOP/byte. An addition `a + b` does $n^2$ FLOPs and moves three matrices too: $1 / 6$.
#
# A chain of $k$ element-wise operators reads and writes each number $k$ times. A *fused* kernel keeps it in the
# processor until all $k$ are done.
#
# **Predict.** Which of these gain from matrix units that are twice as fast, and which only from fewer bytes: a product
# of large matrices, softmax, layer norm, GELU, an addition? How many times faster can fusion make 8 multiplications?
#
# The next cell measures your machine. "Fused" means here: a piece that fits into the cache takes all 8 multiplications
# before the next piece is fetched.

# %%
from course.lessons.experiments.roofline import measure
from course.lessons.figures.roofline import roofs

machine, points = measure("cuda" if torch.cuda.is_available() else "cpu")
chains = [point for point in points if "multiplications" in point.work.name]
for point in chains:
    print(f"{point.form}: {point.work.name:32} {1000 * point.seconds:6.1f} ms")
roofs(machine, points, title=f"{machine.name}: only large products come near the flat roofs")

# %% [markdown]
# Large products lie right of the ridge. The others lie left of it: there faster matrix units do not help, but fewer
# bytes do for points on the slope, from a narrower format or from fusion (at best 8-fold here). Points far below wait
# for neither: an exp or an erf, which counts as one FLOP here, takes many. A CPU without units for bf16 has a lower
# roof for it, not a higher one. And CPUs convert bf16 to fp32 and back in each operation, which can cost more than the
# bytes save.
#
# **Predict.** An A100 (80 GB, SXM) does 312 TFLOP/s in bf16 and reads 2,039 GB/s
# (https://www.nvidia.com/en-us/data-center/a100). From which $n$ on does arithmetic limit a bf16 product? Calculate it,
# then look at both sides of it with the slider. Here each operator stands where the roof allows no more.

# %%
from course.lessons.widgets.roofline import roofline

roofline(machine)

# %% [markdown]
# From $n = {{ first_side() }}$ on: the ridge is at {{ A100.ridge("bf16") : .0f }} FLOP/byte. In fp32, without matrix
# units, it is at {{ A100.ridge("fp32") : .1f }}.

# %% [markdown]
# # Part IV: eight bits, and a choice
#
# ## 10. Eight bits
#
# There are two formats of 8 bits (Micikevicius et al., arXiv 2209.05433, section 3): *e4m3* ends at $448$, *e5m2* at
# $57344$. Each tensor has a scale of its own (not the loss scale): numbers are divided by it before the cast, and
# products are multiplied by it afterwards. The *amax* of a tensor is its largest $|x|$. The scale makes it the largest
# number of the format. What is too small for the exponents becomes 0.
#
# Divided by the amax, the smallest number above 0 is about $2^{-18}$ in e4m3, and $2^{-32}$ in e5m2.
#
# **Predict.** Take the activations of a hidden layer, and the gradients of the loss with respect to them, for all
# examples. Which of the two tensors needs the exponents of e5m2, and what does it pay for them?

# %%
from course.lessons.experiments import eight_bits
from course.lessons.figures.eight_bits import below_the_largest, error_over_outlier

hidden = eight_bits.tensors()
for name, numbers in hidden.items():
    for form in eight_bits.FORMATS:
        zeros, off = eight_bits.kept(numbers, form)
        print(f"{name:11} in {form}: {zeros:5.1%} become 0, the median number is off by {off:.1%}")
below_the_largest(hidden)

# %% [markdown]
# In e4m3, {{ zeros_percent("gradients", "e4m3") : .1f }}% of the gradients become 0; in e5m2 none of them does, but
# there a number is off by {{ off_percent("gradients", "e5m2") : .1f }}%, where e4m3 has
# {{ off_percent("gradients", "e4m3") : .1f }}%. Activations need no more than e4m3. The same paper recommends e4m3 for
# weights and activations, and e5m2 for gradients.
#
# ## 11. One outlier
#
# **Predict.** All numbers of a matrix are about 1, but one is 1,000, and that is the amax. Look at the rows of the
# product in which it does *not* stand. How much does their relative error grow with 8-bit integers (which are evenly
# spaced)? In e4m3 with one scale for the tensor? In e4m3 where 128 neighbours along the inner dimension share a scale?

# %%
for size in (4, 1000):
    found = eight_bits.error_at(size)
    print(f"largest number {size:5,}: " + "; ".join(f"{way} {error:.1%}" for way, error in found.items()))
errors = eight_bits.outlier_errors()
error_over_outlier(eight_bits.SIZES, errors)

# %% [markdown]
# With one scale the integers have lost everything. In e4m3 the error is
# {{ outlier_percent(1000.0, "e4m3, one scale") : .1f }}%, as without the outlier. The other numbers become small when
# they are divided, but a floating-point format has as many bits of mantissa at every exponent. Only where the exponents
# end does one scale fail: at $10^6$ the error is {{ outlier_percent(1e6, "e4m3, one scale") : .0f }}%. With scales of
# their own these rows stay at {{ outlier_percent(1e6, "e4m3, blocks of 128") : .1f }}%. Blocks protect the outlier's
# own row too, except for its block (DeepSeek-V3 has blocks of 128: DeepSeek-AI, arXiv 2412.19437, section 3.3.2).
#
# An amax is known only after the whole tensor has been read. *Delayed scaling* (`DelayedScaling` in NVIDIA's
# Transformer Engine) does not wait: it takes the largest amax of the last steps, the *history*. What has grown beyond
# that is clipped.
#
# The amaxes of three steps were 8, 9 and 2. Now comes a tensor whose amax is 7. What would be clipped if the scale came
# from the last step alone?


# %% exercise
import torch
from torch import Tensor


def scaled_fp8_matmul(
    a: Tensor,
    b: Tensor,
    scales: tuple[list[float], list[float]] | None,
    *,
    formats: tuple[torch.dtype, torch.dtype] = (torch.float8_e4m3fn, torch.float8_e4m3fn),
    block: int | None = None,
) -> Tensor:
    """The product a @ b of two matrices that are rounded to 8 bits first, each number with a scale that it shares.

    a, b      (m, k) and (k, n), m, k and n at least 1, float32, float16 or bfloat16, which may differ; views too. They
              may require a gradient; the product needs none. They are not changed. All numbers are finite, and every
              amax (the largest |x|) is from 1e-14 to 1e12, or 0. What is not in 8 bits is computed in float32.
    scales    None: each tensor is scaled by its own amax. Else two lists of floats, the amaxes of a and of b in earlier
              steps, oldest first: the largest in the list as it is handed in, or the own amax where the list is empty,
              makes the scale. Then the own amax is appended to the very list, and all but the last 16 are removed.
    formats   of a and of b: torch.float8_e4m3fn or torch.float8_e5m2
    block     only with scales None: so many neighbours along k share a scale, that of their own amax, in each row of a
              and in each column of b. The last block may be shorter.
    Scale     amax / the format's largest number (torch.finfo), in float32 and not rounded further; 1 where that amax is
              0. A number x becomes the code x / scale, rounded by torch's cast (where x / scale is within a rounding of
              the middle between two codes, either will do); what is beyond the format's largest number is clipped to
              it, never inf or nan.
    Returns   float32 (m, n): the product of the numbers that the codes stand for; products are added in float32
    Refused   with a ValueError, before a history changes: shapes that are not (m, k) and (k, n); a block below 1;
              a block beside histories
    Example   a = [[448., 17.]], b = [[1.], [1.]], no scales: the scale of a is 1, its codes are 448 and 16 (between 16
              and 18 lies none, and the tie goes to the even one). b has scale 1 / 448 and codes 448. It
              returns [[464.]], where a @ b is 465.
    """
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"a must be (m, k) and b (k, n), got {tuple(a.shape)} and {tuple(b.shape)}")
    if block is not None and (block < 1 or scales is not None):
        raise ValueError("block must be at least 1, and goes without histories")
    k = a.shape[1]
    size = block or k
    sides = []
    for x, dtype, history in zip((a, b.T), formats, scales or (None, None), strict=True):
        padded = torch.nn.functional.pad(x.detach().float(), (0, -k % size))
        blocks = padded.reshape(len(x), -1, size)  # (rows, blocks, size)
        amax = blocks.abs().amax(dim=-1, keepdim=True) if block else blocks.abs().amax().reshape(1, 1, 1)
        if history is not None:
            own = amax.item()
            amax = torch.full_like(amax, max(history, default=own))
            history.append(own)
            del history[:-16]
        largest = torch.finfo(dtype).max
        scale = torch.where(amax > 0, amax / largest, 1.0)
        codes = (blocks / scale).clamp(-largest, largest).to(dtype)
        sides.append((codes.float() * scale).flatten(1))  # the numbers that the codes stand for
    return sides[0] @ sides[1].T


# %%
check(scaled_fp8_matmul)

# %% [markdown]
# With the scale of the last step alone, everything above 2 would be clipped. An amax jumps from step to step, so the
# largest of several steps is safer.
#
# A linear layer needs three such products, one forward and two for its gradients. In the products for the gradients,
# one factor is in e5m2. Every product keeps histories of its own. Here your function trains two layers.


# %%
class Linear8(torch.autograd.Function):
    """x @ w.T in 8 bits, and both gradients too."""

    @staticmethod
    def forward(ctx, x, w, histories):
        ctx.save_for_backward(x, w)
        ctx.histories = histories
        return scaled_fp8_matmul(x, w.T, histories["forward"])

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        formats = torch.float8_e5m2, torch.float8_e4m3fn
        grad_x = scaled_fp8_matmul(grad, w, ctx.histories["x"], formats=formats)
        grad_w = scaled_fp8_matmul(grad.T, x, ctx.histories["w"], formats=formats)
        return grad_x, grad_w, None


print(f"loss after 60 steps in float32: {eight_bits.train(lambda x, w, layer: x @ w.T):.4f}")
if solved(scaled_fp8_matmul):
    kept = [{product: ([], []) for product in ("forward", "x", "w")} for layer in range(2)]
    ours = eight_bits.train(lambda x, w, layer: Linear8.apply(x, w, kept[layer]))
    print(f"loss after 60 steps in 8 bits:  {ours:.4f}")
else:
    print("In 8 bits the layers train as soon as your product gets full marks.")

# %% [markdown]
# ## 12. Which bits may be dropped
#
# Which of all these parts does a run need? The GPT trains {{ dropped.steps }} steps with AdamW; the rate goes up to
# {{ which_bits.PEAK : .3f }}, then down along a cosine. Weights, activations and gradients really have the dtype named,
# but for 8 bits, which are emulated; moments are in fp32. Two recipes are complete: `fp16` with loss scale and master
# copy, `bf16` with a master copy. Both do softmax, norms and loss in fp32. The other rows change one or two things:
#
# - *no master copy*: AdamW's step is rounded to nearest; *stochastic*: rounded with your rule.
# - *sums in ...*: softmax, norms and loss in half precision, their sums rounded after each term.
# - *moments in ...*: AdamW keeps both averages in half precision.
# - *fp8*: the blocks' linear layers multiply e4m3 by e4m3, with gradients in e5m2, one scale per tensor or *no scales*.
# - *shrunk*: all gradients are {{ which_bits.SHRINK : , }} times smaller on their way, as in a mean over half a million
#   tokens in place of our {{ TOKENS }}; before AdamW they are multiplied again.
#
# Losses are held out, in nats above the floor, and computed in fp32 with the weights that the forward pass reads.
#
# **Predict.** What hurts most when it is missing in fp16, in bf16, in fp8? And which recipes save bytes per parameter?

# %%
from course.lessons.experiments import which_bits
from course.lessons.figures.which_bits import costs_by_recipe, loss_curves

dropped_bits = which_bits.recorded()
print(dropped_bits)
print(which_bits.table(dropped_bits.data))
groups = {
    kind: [name for name in which_bits.RECIPES if name.startswith(kind)] for kind in ("fp32", "fp16", "bf16", "fp8")
}
costs_by_recipe(dropped_bits.data, groups, title="Four of the recipes end far above fp32")

# %% [markdown]
# Within {{ harmless_within() : .3f }} nats of fp32, in the mean of {{ spelled(len(which_bits.SEEDS)) }} seeds: the
# complete recipes, sums in half precision (they are short here, and torch's products add in fp32), and moments in bf16,
# as DeepSeek-V3 keeps them (arXiv 2412.19437, section 3.3.3). And, a surprise, fp16 without a loss scale, and fp8
# without scales, although e5m2 loses {{ lost("activations", name="e5m2") : .0f }}% of the activations' gradients
# (section 5). With shrunk gradients the loss scale is worth
# {{ cost("fp16, shrunk, no loss scale", "fp16, shrunk") : .2f }} nats, the scales of fp8
# {{ cost("fp8, shrunk, no scales", "fp8, shrunk") : .2f }}: without them {{ share("fp8, shrunk, no scales") : .0%}} of
# the weights' gradients are 0. bf16 does not notice.
#
# fp16 moments end the run. An average of squares below $2^{-25}$ is stored as 0. AdamW then divides by its $\epsilon$
# alone, some weights jump far out, and from there on gradients are inf or nan at every scale:
# {{ skipped("fp16, moments in fp16") : .0f }} of the steps are skipped on average.
#
# Without a master copy fp16 loses {{ cost("fp16, no master copy", "fp16") : .3f }} nats and bf16, with three bits
# fewer, {{ cost("bf16, no master copy", "bf16") : .2f }}. Stochastic rounding brings those back, at 12 bytes per
# parameter in place of {{ dropped.row("bf16").state_bytes : .0f }}.
#
# AdamW moves a weight by about the rate, or less. A bf16 weight of $0.1$ has neighbours $2^{-11}$ away. Below which
# rate does it stand still? What happens to the damage at a peak rate of {{ which_bits.HIGH_PEAK : .2f }} in place of
# {{ which_bits.PEAK : .3f }}?

# %%
rounding = ("bf16", "bf16, no master copy", "bf16, stochastic")
print(which_bits.table(dropped_bits.data, rounding, which_bits.HIGH_PEAK))
loss_curves(
    dropped_bits.data,
    {which_bits.PEAK: rounding, which_bits.HIGH_PEAK: rounding},
    title="Rounding to nearest loses the small updates of a low rate",
)

# %% [markdown]
# Half a gap at $0.1$ is $2^{-12}$, a quarter of the low peak rate. Most steps are smaller than the rate, which falls
# along the cosine: the curve flattens. In the last tenth of the steps, {{ still("bf16, no master copy") : .0%}} of the
# weights stand still in each step (at the high rate too, as its cosine ends at 0, but by then it has learnt). With
# stochastic rounding {{ still("bf16, stochastic") : .0%}} do, and yet the run learns as with a master copy: the few
# that move, by a whole gap, make up for the others on average. At the high rate, with the same seed, the runs without
# and with a master copy differ by {{ paired_at_high()[0] : +.2f }} to {{ paired_at_high()[1] : +.2f }} nats:
# {{ spelled(len(which_bits.SEEDS)) }} seeds cannot tell them apart. Rounding to nearest harmed the applications of
# Zamirai et al. (arXiv 2010.06192), and stochastic rounding has trained 6.7 billion parameters in bf16 (Ozkara et al.,
# arXiv 2502.20566).
#
# A short run with another seed:

# %%
live = which_bits.measure(80, (7,), rounding, (), points=2)
print(which_bits.table(live, rounding))

# %% [markdown]
# ## 13. Choose a format for each operator
#
# Below is a small transformer block of 11 operators. Each writes its result in a format of its own, which fixes the
# bytes of all results together. Its attention scores are larger than usual by a factor of 8, and the numbers between
# `up` and `down` by $2^{15}$. The loss is the squared error of the block's output, as a share of the squares of the
# output in float32. The cell gives one operator after the other a smaller format, and leaves the others in float32.
#
# **Predict.** Which operators break in float16? In e4m3, which here has no scale? For which is bfloat16 clearly worse
# than float16, although both have 16 bits?

# %%
from course.exercises.mixed_precision import small_block

drawn = small_block.block(torch.Generator().manual_seed(0), 12, sharp=8.0, hidden=2.0**15)
print(f"{'operator':10}{'numbers':>9}" + "".join(f"{form:>12}" for form in ("bfloat16", "float16", "e4m3")))
for name, losses in small_block.alone(drawn).items():
    print(f"{name:10}{drawn.numbers()[name]:9}" + "".join(f"{loss:12.1e}" for loss in losses.values()))

# %% [markdown]
# `up` and `relu` need the *range* of bfloat16: float16 overflows, and e4m3 clips at $448$. All others need *mantissa*:
# float16, with three bits more, is clearly better there. In 8 bits `norm`, `key` and `scores` lose most, because
# softmax raises $e$ to the scores, and large scores have large errors. So no format is right for all operators, and no
# list of operators for all blocks: one has to measure.
#
# With four formats and 11 operators there are $4^{11}$ plans, too many to measure.
#
# In bfloat16 the losses of the single operators add up to {{ added("bfloat16") : .1e }}. Is the loss with all of them
# in bfloat16 about that, far more, or far less?

# %%
whole, coarse = (dict.fromkeys(small_block.ORDER, form) for form in ("float32", "bfloat16"))
print(f"all in bfloat16: {small_block.error(drawn(whole), drawn(coarse)):.1e}")

# %% [markdown]
# The roundings are nearly independent, and variances of independent errors add up. Where something overflows, or one
# error is large, this fails. Your plan is judged by the loss that it reaches.


# %% exercise
from collections.abc import Callable

import torch


def choose_precisions(
    operators: dict[str, dict[torch.dtype, int]], budget: int, loss: Callable[[dict[str, torch.dtype]], float]
) -> dict[str, torch.dtype]:
    """A plan: a format for each operator of a block, within a budget of bytes and with little loss.

    operators  for each operator, by name, its formats with the bytes of its result in each. All have torch.float32;
               not every operator has every format (torch.bfloat16, torch.float16, torch.float8_e4m3fn).
    budget     bytes of all results together. The plan may need all of it.
    loss       loss(plan) runs the block with these formats. It returns the squared error of the block's output, as a
               share of the squares of the output in float32; inf where something overflowed. You may call it at most
               500 times.
    Returns    the plan, {operator: format}: one of its formats for every operator, at most `budget` bytes together. Its
               loss is at most three times that of our plan, and at most half that of the best single format that fits.
    Refused    with a ValueError: a budget that is too small for any plan
    Example    operators {"up": {torch.float32: 400, torch.bfloat16: 200}, "out": {torch.float32: 40}},
               budget = 240. Only "up" can become smaller. It returns
               {"up": torch.bfloat16, "out": torch.float32}: 240 bytes.
    """
    if sum(min(sizes.values()) for sizes in operators.values()) > budget:
        raise ValueError(f"no plan has at most {budget} bytes")
    plan = dict.fromkeys(operators, torch.float32)
    alone = {(name, form): min(loss(plan | {name: form}), 1e9) for name in operators for form in operators[name]}
    while sum(operators[name][form] for name, form in plan.items()) > budget:
        rates = {}
        for name, form in alone:
            saved = operators[name][plan[name]] - operators[name][form]
            if saved > 0:
                rates[name, form] = (alone[name, form] - alone[name, plan[name]]) / saved  # loss for each byte
        name, form = min(rates, key=rates.get)
        plan[name] = form
    return plan


# %%
check(choose_precisions)

# %% [markdown]
# ## 14. Put together
#
# Now your own parts train the GPT. A step of the fp16 recipe needs `Autocast`, `LossScaler` and `master_step`; the bf16
# recipe without a master copy needs `stochastic_round`; `round_to` tests the weights at the end. Where an answer has
# not passed its check, PyTorch's part stands in, or a plain one where PyTorch has none.
#
# Both fp16 runs below begin with the same weights and see the same batches. Which part will make the losses of yours
# and PyTorch's differ?

# %%
from torch.nn import functional as F

from course.lessons.experiments.functional_gpt import logits, weights_of
from course.lessons.experiments.half_stand_ins import adamw_direction
from course.lessons.experiments.problems import gpt_problem

problem = gpt_problem()
parts = half_stand_ins.PARTS
passed = parts.passed(globals(), solved)
print(parts.whose(passed))
runs = {"PyTorch's": parts.with_yours({}), **({"yours": parts.with_yours(passed)} if passed else {})}


def train_in_half(parts, dtype, steps=60, peak=0.005):
    """The loss of each step in nats, and the steps that were skipped."""
    rng, noise = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    weights = weights_of(problem.model(rng))
    p32 = [w.clone() for w in weights.values()]  # the master copy
    p16 = [w.to(dtype).requires_grad_() for w in p32]
    scaler, state, losses, skipped = parts["LossScaler"](), {}, [], []

    @torch.no_grad()
    def with_master():
        parts["master_step"](p16, p32, adamw_direction(grads, state), lr)

    @torch.no_grad()
    def with_noise():  # no master copy
        for p, direction in zip(p16, adamw_direction(grads, state), strict=True):
            u = torch.rand(p.shape, generator=noise)
            p.copy_(parts["stochastic_round"](p.float() - lr * direction, u))

    for step in range(steps):
        inputs, targets = problem.batch(rng)
        lr = peak * min((step + 1) / 10, 1 - step / steps)
        with parts["Autocast"](dtype) as cast:
            found = logits(dict(zip(weights, p16, strict=True)), inputs, cast.run)
            loss = cast.run(F.cross_entropy, found.flatten(0, 1), targets.flatten())
        losses.append(loss.item())
        if dtype == torch.float16:
            grads = [g.float() for g in torch.autograd.grad(scaler.scale(loss), p16)]
            scaler.unscale_(grads)
            if not scaler.step(with_master):
                skipped.append(step)
            scaler.update()
        else:
            grads = [g.float() for g in torch.autograd.grad(loss, p16)]
            with_noise()
    if dtype == torch.float16:
        rounded = all(torch.equal(parts["round_to"](w, 5, 10), p.float()) for w, p in zip(p32, p16, strict=True))
        print(f"every weight is the rounding of its master: {rounded}; skipped steps: {skipped or 'none'}")
    return losses


assembled = {}
for owner, run in runs.items():
    for name, dtype in (("fp16 with a master copy", torch.float16), ("bf16, stochastic", torch.bfloat16)):
        losses = assembled[f"{name}, {owner}"] = train_in_half(run, dtype)
        above = sum(losses[-20:]) / 20 - problem.least
        print(f"{name}, {owner}: {above:.5f} nats above the floor, mean of the last 20 steps")

# %% [markdown]
# The scalers and the master steps do the same arithmetic. `Autocast` makes the difference: PyTorch's stand-in goes by
# the CPU's lists, yours by CUDA's. The stochastic runs differ in their random bits too, where yours spends `u` in
# another way.

# %% [markdown]
# ## For real
#
# In PyTorch all of this is a few lines in the usual loop. Loss scaling belongs to fp16: bf16 has fp32's exponents, so
# its scaler is switched off and passes everything through.
#
# Which of these are in bf16: parameters, gradients, moments, the model's output, the loss?

# %%
from torch import nn
from torch.nn import functional as F

from course.lessons.data import digits_split

train, _ = digits_split()


def trained(device: str, dtype: torch.dtype) -> None:
    """Thirty steps of AdamW under autocast, and the dtypes that were seen."""
    torch.manual_seed(0)
    images, labels = (each.to(device) for each in (train.images.flatten(1), train.labels))
    model = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    losses = []
    for _ in range(30):
        with torch.autocast(device, dtype):
            output = model(images)
            loss = F.cross_entropy(output, labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    weight = model[0].weight
    seen = {"parameter": weight, "gradient": weight.grad, "moment": optimizer.state[weight]["exp_avg"]}
    print(f"{device}, autocast to {dtype}: loss {losses[0]:.2f} to {losses[-1]:.2f}")
    for name, tensor in {**seen, "output": output, "loss": loss}.items():
        print(f"    {name:10} {tensor.dtype}")


trained("cpu", torch.bfloat16)
trained("cpu", torch.float16)
if torch.cuda.is_available():
    trained("cuda", torch.bfloat16)
    trained("cuda", torch.float16)

# %% [markdown]
# Even a product of fp32 tensors need not calculate in fp32. *TF32* keeps 10 mantissa bits of its inputs for the matrix
# units of GPUs since the A100; tensors keep their 4 bytes. For products it is off until you switch it on. On CPUs a
# similar switch goes down to bf16, if the processor has units for that.

# %%
cuda = torch.cuda.is_available()
switch, coarse = (torch.backends.cuda.matmul, "tf32") if cuda else (torch.backends.mkldnn.matmul, "bf16")
a = torch.randn(512, 512, generator=torch.Generator().manual_seed(0)).to("cuda" if cuda else "cpu")
exact, before = a.double() @ a.double(), switch.fp32_precision
for precision in ("ieee", coarse):
    switch.fp32_precision = precision
    print(f"{precision}: result in {(a @ a).dtype}, largest error {(a @ a - exact).abs().max().item():.1e}")
switch.fp32_precision = before

# %% [markdown]
# ## At scale
#
# Figure 1 of the ZeRO paper (arXiv 1910.02054) shows a model of 7.5 billion parameters, trained by the fp16 recipe with
# Adam: 120 GB of states on each GPU. Then 64 GPUs share out, one after the other, what the optimizer keeps, the
# gradients and the parameters: 31.4, 16.6 and 1.9 GB remain on each. Does your count agree?

# %%
billions = 7.5
n = int(billions * 1e9)
mine = globals().get("training_bytes")  # yours, if this session has run its cell
right = mine is not None and solved(mine)
count = mine if right else lambda n, recipe: (n * (14 + 2 * len(recipe["grads"])), 0)  # in fp16
fp16 = {"param": torch.float16, "grads": (torch.float16,), "rounding": "nearest", "moments": torch.float32}
fp16 |= {"block": None, "autocast": None}
total = count(n, fp16)[0]
gradients = total - count(n, fp16 | {"grads": ()})[0]
parameters = 2 * n
optimizer = total - gradients - parameters
stages = {"nothing": 0, "optimizer": optimizer, "+ gradients": optimizer + gradients, "+ parameters": total}
for (shared, part), paper in zip(stages.items(), (120, 31.4, 16.6, 1.9), strict=True):
    gigabytes = (total - part + part / 64) / 1e9
    print(f"shared out: {shared:12} {gigabytes:6.2f} GB; the paper {paper:5} GB. Error {gigabytes / paper - 1:+.1%}")

# %%
for name, recipe in training_recipes.items():
    if right:
        print(f"{name:20} {training_bytes(n, recipe)[0] / 1e9:6.1f} GB")

# %% [markdown]
# The larger A100 has 80 GB (https://www.nvidia.com/en-us/data-center/a100): only the last two recipes fit, and that
# before the first activation.

# %% [markdown]
# ## What to remember
#
# 1. Exponent bits buy range, mantissa bits buy precision: fp16 lacks range, bf16 lacks precision, 8 bits lack both.
# 2. Loss scaling moves gradients into fp16's range. bf16 has the exponents of fp32 and does not need it.
# 3. An update below half a gap is lost. A master copy keeps it; stochastic rounding keeps it on average, for no bytes.
# 4. Products may be low; long sums, softmax, norms and losses stay in fp32. In 8 bits every tensor or block needs a
#    scale.
# 5. With a master copy and fp32 moments, states need at least {{ dropped.row("fp16").state_bytes : .0f }} bytes per
#    parameter, like fp32. What half precision saves is time and activations.
#
# ## What to read
#
# - Micikevicius et al., *Mixed Precision Training*, arXiv 1710.03740, section 3: the three techniques.
# - Micikevicius et al., *FP8 Formats for Deep Learning*, arXiv 2209.05433, sections 2 and 3.
# - Zamirai et al., *Revisiting BFloat16 Training*, arXiv 2010.06192: why updates need the bits.
# - Higham, *Accuracy and Stability of Numerical Algorithms*, second edition, 2002, chapters 2 and 4.
# - PyTorch's documentation of `torch.amp`, "Autocast Op Reference".
#
# ## What this lesson simplified
#
# - Our GPT has two layers and trains for hundreds of steps. Large models meet outliers in their activations, and
#   instabilities late in training, that no run here can show.
# - Eight bits were emulated: rounded to e4m3 or e5m2, then multiplied in fp32. Tensor cores may add in fewer bits
#   (DeepSeek-V3, arXiv 2412.19437, section 3.3.2).
# - The CPU kernels used here add in fp32. Others, and a GPU's, may not.
# - No recorded number comes from a GPU.

# %%
progress()
