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
# # 08 Quantization
#
# **What survives at four bits?**
#
# At the end of this lesson you will be able to
#
# - put a tensor on a grid of few values, choose the grid, and count every bit that it costs;
# - multiply in integers, and say when an outlier spoils that and what helps;
# - round a weight so that later columns make good for the errors of earlier ones;
# - split a weight into two factors with small entries, and say where this pays and where it does not;
# - train with weights on a grid, with Adam's states in 8 bits, and with a base of 4 bits.
#
# You need: floating formats (lesson 03), a linear layer and its gradient (lesson 01). Adapters (lesson 07) and AdamW
# (lesson 02) come back near the end.
#
# {{ workload(reading=75, sittings=4) }}

# %%
import torch

from course import check, progress
from course.notebook.check import solved

torch.set_num_threads(1)  # the tensors here are small: a second thread costs more than it brings

# %% [markdown]
# # Part I: a grid
#
# ## 1. What survives?
#
# The course's small GPT has {{ thousands() : .0f }} thousand parameters, and most of them stand in the matrices of its
# four blocks. To *quantize* such a matrix is to replace each weight by the nearest of a few values, the *grid*. A
# weight is then stored as the number of its value, its *code*: $b$ bits if there are $2^b$ values.
#
# The simplest grid has values at equal distances, the *step*, and reaches as far as the largest weight. Below is one
# matrix of the model. Move the sliders: what happens to the error when the grid ends early?

# %%
from course.lessons.widgets.grid import grid

grid()

# %% [markdown]
# The model writes text of the course's grammar. Its *perplexity* is $e$ to the power of its loss: the number of
# equally likely characters among which it would be as uncertain. Somebody who guesses among the
# {{ characters() }} characters has {{ characters() }}. The model has {{ perplexity() : .3f }}, and nobody can have
# less than {{ floor() : .3f }}, because that much of the text is chance: this is the *floor*.
#
# **Predict.** All matrices of the blocks are rounded to grids with one step for each matrix. What is the perplexity
# at 8 bits, at 4, at 3, and at 2? Write four numbers down.

# %%
import math

from course.lessons.experiments import four_bits

recording = four_bits.loaded()
print(recording)
measured = recording.data
(simplest,) = (scheme for scheme in measured.schemes if scheme.name == "per tensor")
for bits, loss in zip(simplest.gpt_bits, simplest.gpt_loss, strict=True):
    print(f"{bits:.0f} bits: perplexity {math.exp(loss):8.3f}")

# %% [markdown]
# At 4 bits this model hardly notices, with the simplest scheme of all; at 2 bits it does worse than a guess, because
# it is sure of what is wrong. All methods of this lesson fight about the last bits. The next picture has them all;
# you will write most of them, and then you can read it. Each point is a file that was written, with all codes packed,
# and a model made from what the file holds.

# %%
from course.lessons.figures.quantization import perplexity_over_bits

perplexity_over_bits(measured, title="From 4 bits on little is lost; below, the method decides")

# %% [markdown]
# ## 2. Step and zero point
#
# Weights lie on both sides of 0, but what leaves a ReLU does not, and half of a symmetric grid would be wasted. An
# *affine* grid has a *zero point* $z$, the code that stands for 0:
#
# $$\hat x = \Delta\,(q - z), \qquad q \in \{-2^{b-1}, \dots, 2^{b-1} - 1\},$$
#
# with the step $\Delta$. Codes are signed, so that a code of 8 bits is an int8. Zero must be exact, since padding,
# masks and ReLU make so many of them: $z$ is an integer, and the range of the grid always includes 0.
#
# **Predict.** Numbers lie from $-1$ to $4.1$, and $b = 8$. What are step and zero point? How large may the error of a
# number be, if no number is cut off? And which grid do numbers from 2 to 3 get?
#
# The step need not be one for all. *Per channel* means one for each row of a weight. From now on a *channel* is a row
# of a weight of shape $(m, n)$, one for each of its $m$ outputs.

# %% exercise
import torch
from torch import Tensor


def qparams(x: Tensor, bits: int, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """Step and zero point of the affine grid that just holds x and 0.

    x         any shape, any floating dtype, with one number at least; it may be a view
    bits      from 2 to 8
    dim       None: one grid for all of x. Otherwise one for each index of this dimension, which may be negative
    Returns   (step, zero). The range of a grid begins at the least number or 0, and ends at the largest or 0; step is
              its length over 2**bits - 1, and 1 where that is 0. zero is the code of 0, so that the beginning of the
              range has the code -2**(bits - 1), rounded to the nearest integer.
    Tensors   step in float32, or in float64 where x is, and computed in it; zero in int32. Both have the shape (), or
              as many dimensions as x, all 1 but dim.
    Example   For x = [-1.0, 4.1] and 8 bits: step 0.02 and zero -78. For x = [2.0, 3.0] and 2 bits: step 1, zero -2.

    x is not changed.
    """
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    dims = [each for each in range(x.dim()) if dim is None or each != dim % x.dim()]
    low = wide.amin(dims, keepdim=dim is not None).clamp(max=0) if dims else wide.clamp(max=0)
    high = wide.amax(dims, keepdim=dim is not None).clamp(min=0) if dims else wide.clamp(min=0)
    step = (high - low) / (2**bits - 1)
    step = torch.where(step > 0, step, 1.0)
    return step, (-(2 ** (bits - 1)) - (low / step).round()).to(torch.int32)

# %%
check(qparams)

# %% [markdown]
# With step and zero point, a code is one rounding away. Beyond the ends of the range codes stop: int8 would wrap
# around otherwise, and the largest number of a tensor would become the smallest.

# %% exercise
import torch
from torch import Tensor


def quantize(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """The codes of x on a grid.

    x         any shape, any floating dtype; it may be a view. Numbers outside of the grid, also infinite ones, get
              the code at its end.
    step      above 0, float32 or float64, of a shape that broadcasts to x's; x / step is computed in its dtype
    zero      int32, from -2**(bits - 1) to 2**(bits - 1) - 1, in the shape of step
    bits      from 2 to 8
    Returns   int8, in the shape of x: x / step to the nearest integer (of two, the even one), plus zero, and no less
              than -2**(bits - 1), no more than 2**(bits - 1) - 1
    Example   For x = [-1.0, 0.01, 9.0], step 0.5, zero 1 and 4 bits: [-1, 1, 7].

    Nothing that was handed in is changed.
    """
    low = -(2 ** (bits - 1))
    return ((x.detach().to(step.dtype) / step).round() + zero).clamp(low, -low - 1).to(torch.int8)

# %%
check(quantize)

# %% [markdown]
# The way back loses nothing more, if the difference is not taken in int8.

# %% exercise
from torch import Tensor


def dequantize(codes: Tensor, step: Tensor, zero: Tensor) -> Tensor:
    """What codes stand for: step (code - zero).

    codes     int8, any shape; it may be a view
    step      float16, float32 or float64, of a shape that broadcasts to that of codes
    zero      int8 or int32, from -128 to 127, in the shape of step
    Returns   in the dtype of step and the shape of codes
    Example   For codes = [-128, 0, 127], step 0.5 and zero 127: [-127.5, -63.5, 0.0].

    Nothing that was handed in is changed.
    """
    return (codes.to(step.dtype) - zero) * step

# %%
check(dequantize)

# %%
if solved(qparams) and solved(quantize) and solved(dequantize):
    x = torch.linspace(-1, 4.1, 10_001)
    for bits in (8, 4, 2):
        step, zero = qparams(x, bits)
        error = (dequantize(quantize(x, step, zero, bits), step, zero) - x).abs().max()
        print(f"{bits} bits: step {step:.4f}, zero point {zero}, largest error {error / step:.3f} steps")

# %% [markdown]
# ## 3. Where should the grid end?
#
# A grid that reaches the largest number wastes codes on numbers that hardly ever come. One that ends earlier cuts
# them off, but is finer for all others. For a given distribution there is a best step. We take the normal
# distribution with mean 0 and variance 1, because many trained weights look like it, and the symmetric grid with the
# codes $-(2^{b-1} - 1), \dots, 2^{b-1} - 1$ and $z = 0$, as weights mostly have it. The step wanted is the one at
# which
#
# $$\mathbb{E}\,\bigl(x - \hat x(x)\bigr)^2, \qquad x \sim \mathcal{N}(0, 1)$$
#
# is least. No formula for it is known; Max (1960, *Quantizing for Minimum Distortion*) computed a table. You compute
# yours: the expectation is an integral over pieces, and in each piece $\hat x$ is constant.
#
# **Predict.** At 4 bits, does the best grid end before 2 standard deviations, before 3, or later? And at 8 bits: nearer
# or farther? Which of the two errors, of rounding or of cutting off, is the larger one at the best step?

# %% exercise
import math


def best_step(bits: int) -> float:
    """The step at which a symmetric grid has the least mean squared error for a standard normal number.

    bits      from 2 to 8. The grid is step times the integers from -(2**(bits - 1) - 1) to 2**(bits - 1) - 1; each
              number becomes the nearest of these values, the last one where it lies outside.
    Returns   a float, right to one part in 10,000
    Example   With 2 bits the grid is -step, 0, step, and the best step is about 1.224.
    """
    top = 2 ** (bits - 1) - 1

    def moments(t: float) -> tuple[float, float, float]:  # integrals of p, x p and x^2 p from t on
        p = math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
        q = math.erfc(t / math.sqrt(2)) / 2
        return q, p, q + t * p

    def error(step: float) -> float:  # of the positive half
        total = 0.0
        for k in range(top + 1):
            a, b = max(k - 0.5, 0) * step, (k + 0.5) * step if k < top else 40.0
            q, p, s = (one - other for one, other in zip(moments(a), moments(b), strict=True))
            total += s - 2 * k * step * p + (k * step) ** 2 * q
        return total

    low, high = 0.01, 3.0
    for _ in range(60):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if error(a) < error(b) else (a, high)
    return (low + high) / 2

# %%
check(best_step)

# %%
normal = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
for bits in (2, 3, 4, 6, 8) if solved(best_step) else ():
    step, top = best_step(bits), 2 ** (bits - 1) - 1
    error = (normal - (normal / step).round().clamp(-top, top) * step) ** 2 / len(normal)
    cut = normal.abs() > (top + 0.5) * step
    print(f"{bits} bits: step {step:.4f}, the grid ends at {top * step:.2f} standard deviations;", end=" ")
    print(f"rounding {error[~cut].sum():.6f}, cutting off {error[cut].sum():.6f}")

# %% [markdown]
# The largest of 4,096 normal numbers lies at about {{ largest_normal(4096) : .1f }} standard deviations: at few bits
# the best grid ends well before. Whether the best grid for the *weights* is also the best for the *loss* is another
# question. Section {{ section_of("Put together") }} has the answer for the small GPT.

# %% [markdown]
# ## 4. What a bit costs
#
# A finer choice of steps makes errors smaller: one for each channel, or one for each *group* of 32 weights in a row.
# But steps are stored too, and so are zero points and codebooks. Comparisons at "4 bits" that forget them are
# common. In this lesson bits are always *bits per weight*: everything stored for a matrix, divided by its entries.
#
# **Predict.** A matrix of $4096 \times 4096$ at 4 bits with steps of 16 bits. What do steps per matrix, per channel
# and per group of 32 add, in bits per weight?

# %% exercise
def bits_per_weight(shape, bits, group=None, step_bits=16, zero_bits=0, codebook_bits=0, factors=1):
    """Everything that is stored for a matrix, in bits for each of its entries.

    shape          (m, n), both at least 1
    bits           of each code
    group          None: one step for the whole matrix. Otherwise one for each group of so many neighbours in a row,
                   at least 1; where group does not divide n, the last group of each row is shorter, and has a step
                   too.
    step_bits      of each step; may be 0
    zero_bits      of each zero point, of which there are as many as steps; may be 0
    codebook_bits  of each of the 2**bits values in a codebook; 0 where there is none
    factors        the matrix is kept as so many matrices of its shape, at least 1, each with codes, steps, zero
                   points and one codebook of its own
    Returns        a float, not rounded
    Example        For shape (2, 5), 4 bits and group = 4 there are four groups: 4 + 4 * 16 / 10 = 10.4.
    """
    m, n = shape
    groups = 1 if group is None else m * -(-n // group)
    stored = m * n * bits + groups * (step_bits + zero_bits) + 2**bits * codebook_bits
    return factors * stored / (m * n)

# %%
check(bits_per_weight)

# %%
for group in (None, 4096, 32) if solved(bits_per_weight) else ():
    words = "one step" if group is None else f"a step for each {group:,} of a row"
    print(f"{words:30} {bits_per_weight((4096, 4096), 4, group):.6f} bits per weight")

# %% [markdown]
# Here is what the schemes of this lesson leave of three kinds of weights: normal numbers, numbers with heavy tails
# (Student's t with 3 degrees of freedom, a few entries very large), and a matrix of the small GPT. All
# bits are counted. (A random rotation costs none: its seed makes it again.) The column "kB, GPT" is measured: the size
# of a file with the whole small GPT, whose other parts stay in 16 bits. It is a little larger than the count of bits
# says, because a file also names each tensor, and two factors have more of them.

# %%
from course.lessons.figures.quantization import error_over_bits

print(four_bits.table(measured))
error_over_bits(measured, title="Tails decide: one step for a heavy-tailed matrix costs a bit or two")

# %% [markdown]
# # Part II: integers
#
# ## 5. Two codes in a byte
#
# torch has a name for integers of 4 bits, `torch.int4`, but each takes a byte of its own, and there is next to nothing
# that one can do with them. So we put two codes into a byte. Codes are signed: $-3$ is `1101` in two's complement, and
# its upper bits, all ones in int8, must not leak into the neighbour. On the way back the sign has to be made again.
#
# **Predict.** The codes are $[-3, 5]$ and the first goes into the low half. Which byte is it, as a number from 0 to
# 255?

# %% exercise
import torch
from torch import Tensor


def pack_int4(codes: Tensor) -> Tensor:
    """Codes of 4 bits, two in each byte.

    codes     int8, from -8 to 7, any shape, also empty; it may be a view. They are taken in row-major order, as
              codes.flatten() has them.
    Returns   uint8, one dimension. A byte has the first code of two in its lower four bits and the second in its
              upper four, both in two's complement. Where the number of codes is odd, the last byte's upper bits are
              0.
    Example   For codes = [-3, 5, 7]: [93, 7], because -3 is 1101 and 5 is 0101, and 01011101 is 93.

    codes is not changed.
    """
    flat = torch.nn.functional.pad(codes.flatten(), (0, codes.numel() % 2))
    return (flat[::2] & 15 | flat[1::2] << 4).view(torch.uint8)

# %%
check(pack_int4)

# %% exercise
import torch
from torch import Tensor


def unpack_int4(packed: Tensor, count: int) -> Tensor:
    """The codes that pack_int4 has packed.

    packed    uint8, one dimension, any bytes, also none; it may be a view
    count     how many codes there are: twice the number of bytes, or one less
    Returns   int8 (count,), from -8 to 7: of each byte first the code in the lower four bits, then that in the upper
    Example   For packed = [93, 7] and count = 3: [-3, 5, 7].

    packed is not changed.
    """
    signed = packed.to(torch.int8)
    return torch.stack([signed << 4 >> 4, signed >> 4], 1).flatten()[:count]

# %%
check(unpack_int4)

# %% [markdown]
# ## 6. A product of codes
#
# A code $q$ with the step $\Delta$ and the zero point $z$ stands for $\Delta\,(q - z)$. In a product of two quantized
# matrices the steps come out of the sum, and
#
# $$\sum_k (q_{ik} - z_i)\,(p_{kj} - w_j)$$
#
# remains, a matter of integers alone. The difference of a code and its zero point needs nine bits, though, and what
# many processors have instructions for is to multiply int8 by int8 and to add up in int32, faster than in float32.
# `torch._int_mm` does that here, and `int8_product` of `course.lessons.int8` calls it (and keeps clear of two faults of
# torch 2.13: with views whose size is 1, and on processors without such an instruction). How can the product of the
# codes *as they are* be put right afterwards, at the cost of sums of rows and columns?
#
# **Predict.** Let all codes of a row of 20,000 be 127, and those of the column too. Which of int16, float32 and int32
# holds the sum exactly?

# %%
total = torch.zeros(())  # float32
for _ in range(20_000):
    total += 127 * 127
print(f"{127 * 127 * 20_000:,} exactly; int16 ends at {2**15 - 1:,}, int32 at {2**31 - 1:,}; float32 has {total:,.0f}")

# %% exercise
import torch
from torch import Tensor

from course.lessons.int8 import int8_product


def int8_matmul(qa: Tensor, qb: Tensor, za: Tensor, zb: Tensor) -> Tensor:
    """The product of two matrices of codes, each code less its zero point: sum over k of (qa - za) (qb - zb).

    qa, qb      (m, k) and (k, n), int8: any codes, also -128; k from 1 to 33,000. They may be views.
    za, zb      zero points, int32, from -128 to 127: za of the shape () or (m, 1), zb of the shape () or (1, n)
    Returns     (m, n), int32: equal to the same sum in int64, to the last bit
    Cost        int8_product multiplies the codes as they came, and neither matrix is copied into a wider type: where
                k is large beside m and n, no tensor is made that takes more bytes than qa and qb together, and all
                that are held at once take at most twice as many.
    Example     For qa = [[3, 1]], za = 1, qb = [[2], [5]], zb = 4: 2 * -2 + 0 * 1 = -4.

    Nothing that was handed in is changed.
    """
    rows = qa.sum(1, keepdim=True, dtype=torch.int32)
    columns = qb.sum(0, keepdim=True, dtype=torch.int32)
    return int8_product(qa, qb) - rows * zb - za * columns + qa.shape[1] * za * zb

# %%
check(int8_matmul)

# %% [markdown]
# ## 7. A layer in 8 bits
#
# Weights are quantized once, when the layer is made. Each channel has a step of its own, so that a row that is 1,000
# times larger than another does not take the other's codes. Inputs are known only when they come, and each of their
# rows gets its step then: this is *dynamic* quantization. Both grids are symmetric, so that the corrections of the
# last section vanish. The integers are scaled once, at the end, by both steps.
#
# What a layer keeps decides how large the model is. One that keeps the float weight beside the codes, to be on the
# safe side, is larger than it was.

# %% exercise
import torch
from torch import Tensor, nn

from course.lessons.int8 import int8_product


class Int8Linear(nn.Module):
    """A linear layer that keeps its weight in int8 and multiplies in int8: y = x W' + bias, nearly.

    weight     (m, n), float32, float16 or bfloat16, a view or not, a parameter or not; n up to 33,000
    bias       (m,), in the weight's dtype, a parameter or not, or None
    codes      buffer, int8 (m, n): weight / step to the nearest integer, from -127 to 127
    step       buffer, float32 (m, 1): the largest |weight| of the row, over 127; 1 where the row is all 0
    forward    x (..., n) in one of these dtypes, which may be another than the weight's, with any number of leading
               dimensions, also none, and also without a row. Each row of x gets a step of its own by the same rule
               and becomes codes; the integer product of codes is multiplied by both steps, and the bias is added.
               Returns y (..., m) in the dtype of x.
    Precision  Steps, quotients, and what integers are multiplied with, are in float32.
    Cost       kept: codes, step and bias, and no other copy of the weight in any form. forward multiplies in int8, and
               makes no tensor with more bytes than codes has, where x has few rows.
    Example    For weight = [[127, -2.2]], no bias: codes = [[127, -2]], step = [[1]]; for x = [0, 254]: y = [-508].

    There is nothing to train here: the layer has no parameters. Weight, bias and x are not changed.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        rows = weight.detach().float()
        step = rows.abs().amax(1, keepdim=True) / 127
        step = torch.where(step > 0, step, 1.0)
        self.register_buffer("codes", (rows / step).round().to(torch.int8))
        self.register_buffer("step", step)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(x.shape[:-1].numel(), x.shape[-1]).float()
        step = rows.abs().amax(1, keepdim=True) / 127
        step = torch.where(step > 0, step, 1.0)
        y = int8_product((rows / step).round().to(torch.int8), self.codes.T) * step * self.step.T
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype).reshape(*x.shape[:-1], len(self.codes))

# %%
check(Int8Linear)

# %%
if solved(Int8Linear):
    weight, x = torch.randn(1_000, 1_000), torch.randn(100, 1_000)
    layer = Int8Linear(weight, None)
    exact = x @ weight.T
    kept = sum(buffer.nbytes for buffer in layer.buffers())
    error = (layer(x) - exact).norm() / exact.norm()
    print(f"{weight.nbytes:,} bytes became {kept:,}; the error is {error:.2%} of the output")

# %% [markdown]
# ## 8. Outliers
#
# Language models of 6.7 billion parameters and more have a few input features whose values are up to 20 times larger
# than those of other features, the same ones in all layers and for 75% of the tokens (Dettmers et al., arXiv
# 2208.07339, section 1). One such value sets the step of its row.
#
# **Predict.** A row of 64 normal numbers gets one entry of 60. How many of the 255 codes do the other 63 still use?

# %%
row = torch.randn(64, generator=torch.Generator().manual_seed(0))
row[10] = 60
codes = (row / (row.abs().max() / 127)).round()
print(f"{len(codes.unique()) - 1} codes for the other 63: {sorted(codes.unique().int().tolist())}")

# %% [markdown]
# LLM.int8() multiplies the columns that hold outliers apart, in full precision, and quantizes the rest, in which
# steps are now small again. A column of $x$ is a feature, and it meets the same column of the weight.

# %% exercise
import torch
from torch import Tensor

from course.lessons.int8 import int8_product


def split_outliers(x: Tensor, w: Tensor, threshold: float) -> Tensor:
    """y = x W', with the columns of x that hold an outlier multiplied in full precision and the rest in int8.

    x, w       (N, n) and (m, n), of one dtype: float32, float16 or bfloat16; views or not; N may be 0
    threshold  at least 0, perhaps infinite. A column of x holds an outlier where any |x| in it is at or above it,
               compared in float32. It is one for all rows of x then, and the same column of w belongs to it.
    The rest   Each row of x, and each row of w, has one step: its largest |value| in the rest over 127, and 1 where
               these are all 0. Its codes are value / step to the nearest integer. The product of codes is exact, and
               is multiplied by both steps. All of this is in float32: steps, quotients and products with them.
    Returns    (N, m) in the dtype of x: the sum of both products. Either may be empty, with all columns or none.
    Example    For x = [[100, 1, 0.5]], w = [[2, 4, -4]] and threshold 6: 200 in full precision; codes [127, 64] of x
               and [127, -127] of w: 200 + (127 * 127 - 64 * 127) / 127 * 4 / 127 = 201.98.

    Nothing that was handed in is changed.
    """

    def in_codes(rows: Tensor) -> tuple[Tensor, Tensor]:
        rows = rows.float()
        largest = torch.cat([rows.abs(), rows.new_zeros(len(rows), 1)], dim=1).amax(1, keepdim=True)
        step = torch.where(largest > 0, largest / 127, 1.0)
        return (rows / step).round().to(torch.int8), step

    outlier = (x.float().abs() >= threshold).any(0)
    (qx, dx), (qw, dw) = in_codes(x[:, ~outlier]), in_codes(w[:, ~outlier])
    rest = int8_product(qx, qw.T) * dx * dw.T
    return (x[:, outlier].float() @ w[:, outlier].float().T + rest).to(x.dtype)

# %%
check(split_outliers)

# %% [markdown]
# The small GPT is too small to have such outliers. So we make one: behind each norm one channel is multiplied by a
# factor, and the weights that read it are divided by it. In float32 that changes nothing. Here are your layer and
# your split in all blocks, on the answers that pass; ours stand in for others.

# %%
from course.lessons.experiments import assembled_quantization

parts = assembled_quantization.PARTS
passed = parts.passed(globals(), solved)
for line in assembled_quantization.outliers(parts.with_yours(passed)):
    print(line)

# %% [markdown]
# With a step for each row of inputs, this model stands the factor of 20 that the paper reports. At 100 the loss
# suffers, at 500 nothing is left of the model. The split brings all of it back: of each matrix behind a norm it takes
# one column apart.

# %% [markdown]
# ## 9. Find the fault: three quantized layers
#
# Each of these programs quantizes a layer with the weight `weight` $(m, n)$. It returns its outputs for some batches,
# and what it keeps for the next ones.
#
# - `layer` shall keep codes and steps, and nothing else; each row of an input has a step of its own.
# - `channels` shall have one step for each output channel; inputs stay as they are.
# - `calibrated` shall have one step for all inputs, found beforehand: it looks at calibration batches, and its range
#   must hold them all. The weight stays as it is.

# %%
from course.lessons.experiments import quantizer_runs

for name in quantizer_runs.PROGRAMS:
    print(quantizer_runs.PROGRAMS.listing(name), end="\n\n")

# %% [markdown]
# The table shows each run: the relative error of the worst output channel and of the worst batch, and the bytes that
# are kept. Numbers are in float64. In each program one line is wrong.
#
# **Predict.** What should each program keep, in bytes, for a weight of $24 \times 32$? And what error should 8 bits
# make: rather 0.1%, 1% or 10%?

# %%
runs = {name: quantizer_runs.run(name, **quantizer_runs.example()) for name in quantizer_runs.PROGRAMS}
print(quantizer_runs.table(runs))

# %% exercise
def mend_the_quantizers() -> dict[str, tuple[int, str]]:
    """The wrong line of each of the three programs above, and how it must read.

    Returns     for "layer", "channels" and "calibrated" the number of a line as it is printed above, and the line
                that replaces it, a str without a line break. Its indentation is kept, and may be left out; `torch` is
                imported.
    Judged      by the outputs, and by the bytes that are kept, which may be a tenth above ours; on other numbers; any
                spelling of a cure is right
    layer       codes in int8 and a step for each output channel are kept; outputs stay those of the program above
    channels    the codes of each output channel go up to 127, with a step of its own
    calibrated  one step for all: the largest |number| of all calibration batches has the code 127
    Example     {"layer": (6, "outputs = [0]"), ...} would replace the sixth line of `layer`.
    """
    return {
        "layer": (3, "kept = torch.nn.Module()"),  # nn.Linear brings a float weight of its own
        "channels": (2, "step = weight.abs().amax(1, keepdim=True) / 127"),
        "calibrated": (4, "peak = max(peak, x.abs().max())"),
    }

# %%
check(mend_the_quantizers)

# %% [markdown]
# # Part III: four bits and fewer
#
# ## 10. Values where the weights are
#
# Four bits are 16 values, and nothing says that they must be evenly spaced. Most weights lie near 0. NF4 (QLoRA:
# Dettmers et al., arXiv 2305.14314, section 3) takes its values from quantiles of the normal distribution, chosen so
# that 0 is one of them and scaled so that the outermost are $-1$ and $1$. The 16 numbers are `course.lessons.nf4.NF4`.

# %%
from course.lessons.figures.quantization import two_grids

two_grids(title="NF4 has its values where normal weights are; the shaded hill is their density")

# %% [markdown]
# Each block of, say, 64 weights is divided by its largest magnitude, its *scale*, and each quotient gets the code of
# the nearest value. A code is not a number any more: nobody can multiply codes. The weight is made again from its
# table whenever it is needed, and what is saved is memory, not arithmetic.
#
# **Predict.** Which leaves the smaller error of normal weights: NF4 with blocks of 64, or an even grid of 4 bits with
# groups of 32? Which takes fewer bits? (The table of section 4 has both; scales are stored in 16 bits there.)

# %% exercise
import torch
from torch import Tensor

from course.lessons.nf4 import NF4


def nf4_quantize(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The NF4 code of each number, and the scale of each block.

    x        any shape, in float32, float16 or bfloat16, a view or not. Blocks are of its numbers in row-major order,
             as x.flatten() has them; the last one is shorter where block does not divide their number.
    block    numbers of a block, at least 1, perhaps more than x has
    Returns  (codes, scales): codes uint8 in the shape of x, the index in NF4 of the value nearest to number / scale;
             scales float32, one for each block, ragged ones included: its largest |number|. A block of zeros has
             scale 0 and the code 7, whose value is 0.
    Bits     What is returned is 8 bits for each number, four of them 0 until two codes share a byte, and 32 for each
             block.
    Example  For x = [0.5, -1.0, 0.1, 0.0, 4.0] and block = 4: scales [1, 4] and codes [12, 0, 8, 7, 15].

    x is not changed.
    """
    flat = x.detach().flatten().float()
    blocks = torch.nn.functional.pad(flat, (0, -len(flat) % block)).reshape(-1, block)
    scales = blocks.abs().amax(1)
    units = blocks / torch.where(scales > 0, scales, 1.0)[:, None]
    values = torch.tensor(NF4)
    codes = torch.bucketize(units, (values[1:] + values[:-1]) / 2)
    return codes.flatten()[: len(flat)].reshape(x.shape).to(torch.uint8), scales

# %%
check(nf4_quantize)

# %% [markdown]
# ## 11. Errors that are made good
#
# Until now each weight was rounded for itself. What counts, though, is the output: for inputs $x$ the error is
#
# $$\sum_x \lVert (W - Q)\,x \rVert^2 = \mathrm{tr}\bigl((W - Q)\,H\,(W - Q)^\top\bigr), \qquad H = \sum_x x\,x^\top,$$
#
# and $H$ is called the *Hessian* of the layer. (The second derivative by a row of $Q$ is $2H$, but a factor changes
# nothing here.) Suppose that two inputs of a layer are always equal, both weights are
# 0.4, and the step is 1.
#
# **Predict.** What does rounding to nearest make of the two weights, and how large is the error of the output for $x
# = (1, 1)$? Which codes are better?
#
# GPTQ (Frantar et al., arXiv 2210.17323) rounds a weight column by column. After column $j$ has been rounded, the
# columns that are still free move to where they make good as much of the error as they can. For one row $w$ of the
# weight, with the error $e_j = w_j - q_j$, this is a problem of least squares: minimise $(w - q)\,H\,(w - q)^\top$
# over the free entries. Two facts make it cheap. All rows share $H$, so that the same correction serves all. And
# what is left of $H^{-1}$ when columns have been fixed need not be computed anew for each: try Gaussian
# elimination on $H^{-1}$, and see what a Cholesky factor keeps of it.
#
# Inputs that are always 0, or fewer inputs than columns, make $H$ singular. So a small part of the mean of its
# diagonal is added to the diagonal, the *damping*.

# %% exercise
import torch
from torch import Tensor


def gptq_quantize(w: Tensor, hessian: Tensor, step: Tensor, bits: int, damp: float) -> Tensor:
    """Codes of a weight whose rounding errors are made good, column after column, by the columns still to come.

    w         (m, n), one row for each output; not changed
    hessian   (n, n), the sum of x x' over the layer's inputs, not all 0: symmetric, perhaps singular; not changed
    step      (m, 1), all above 0: what a code of 1 stands for in each row
    bits      from 2 to 8; codes lie from -(2**(bits - 1) - 1) to 2**(bits - 1) - 1
    damp      above 0: this part of the mean of hessian's diagonal is added to each entry of the diagonal
    Returns   codes, int8 (m, n). Columns are rounded from the first to the last; the error of each, also of values
              that the range cuts off, moves the columns after it to where the damped error of the output is least.
              Codes are judged by that error without damping, tr((W - Q) H (W - Q)') with Q = step codes: at most 1.02
              times ours. (Points are given for less than rounding each number by itself leaves.)
    Example   For w = [[0.4, 0.4]], hessian = [[1, 1], [1, 1]], step = [[1]], 4 bits and little damping: [[0, 1]],
              because the inputs are always equal and 0.8 is nearer to 1 than to 0.
    """
    n, top = w.shape[1], 2 ** (bits - 1) - 1
    damped = hessian + damp * hessian.diagonal().mean() * torch.eye(n, dtype=w.dtype)
    U = torch.linalg.cholesky(torch.linalg.inv(damped), upper=True)  # the inverse is U' U
    left, codes = w.clone(), torch.zeros(w.shape, dtype=torch.int8)
    for j in range(n):
        column = left[:, j : j + 1]
        code = (column / step).round().clamp(-top, top)
        codes[:, j : j + 1] = code.to(torch.int8)
        left[:, j + 1 :] -= (column - code * step) / U[j, j] * U[j, j + 1 :]
    return codes

# %%
check(gptq_quantize)

# %% [markdown]
# What is the error of real layers, on inputs that no Hessian has seen? Recorded at 3 bits, a step for each channel:

# %%
for layer in measured.layers[::4]:
    print(f"{layer.name:28} rounded {layer.rounded:7.2%}   GPTQ {layer.gptq:7.2%} of the squared output")

# %% [markdown]
# Programs that people use add two things. Steps belong to groups of columns (`group_size=128` in GPTQModel) and are
# chosen when a group's turn comes, from weights that earlier errors have moved already. And columns can be taken in the
# order of falling entries on the diagonal of $H$ (`desc_act`), so that those with large inputs are rounded while many
# others are free.

# %% [markdown]
# ## 12. Two factors
#
# A vector may be large in a few entries, and such entries cost bits. In another orthonormal basis $Q$ the same vector
# mostly has none that stand out. *Rotate, then quantize*: store $W Q$ with few bits, and compute $(W Q)(Q^\top x)$.
# With a random $Q$ every entry becomes a sum of many with random factors, and looks normal whatever the weights were.
# The picture in section 4 has it as "rotated": on heavy tails it does as well as on normal numbers. QuIP (arXiv
# 2307.13304) rotates weights, and QuaRot (arXiv 2404.00456) also activations, whose outliers it spreads over all
# features. It uses Hadamard matrices, because multiplying by them takes $n \log n$ additions.
#
# Kashin's decomposition goes further and uses both bases: $x = u + Q v$, with *all* entries of $u$ and $v$ small. An
# algorithm needs few lines (arXiv 2404.09737). Let $r$ be what is left of $x$, and let its sign vector have entries 1
# and $-1$. In each step $r$ is projected on its sign vector in one of the two bases, and the projection is moved into
# $u$ or $v$. Which basis? What does a step take off the squared length of $r$ in each? Derive it: it depends on one
# norm of $r$.
#
# **Predict.** Can this work with $Q = I$, when both bases are the same? Take a vector with a single entry that is
# not 0, and 64 entries in all. How much of its length does the first step leave, in the basis in which it stands?

# %% exercise
import torch
from torch import Tensor


def kashin_split(x: Tensor, q: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Two factors u and v with small entries, such that x = u + q v but for a residual that each step makes smaller.

    x         (n,), or (rows, n): its rows stand in the basis q one by one, so that x = u + v q', but a step makes one
              choice for all of them, and the matrix counts as one vector; in float32 or float64; not changed
    q         (n, n), orthogonal, in the dtype of x; not changed
    steps     at least 0
    Returns   (u, v), both like x. They begin at 0, with the residual r = x. At each step r stands in two bases: as it
              is, and as q' r. Where its 1-norm is larger (as it is, if both are equal), its projection on its sign
              vector is added to that basis's factor and taken off r. A sign vector has entries 1 and -1: 1 for 0.
    Example   For x = [3, 1], the rows of q [0.6, 0.8] and [0.8, -0.6], and 1 step: r = [3, 1] and q' r = [2.6, 1.8].
              The second has the larger 1-norm, 4.4, so that v = [2.2, 2.2] and u = [0, 0].
    """
    u, v, r = torch.zeros_like(x), torch.zeros_like(x), x.clone()
    for _ in range(steps):
        turned = r @ q  # q' r of each row
        own = r.abs().sum() >= turned.abs().sum()
        at = r if own else turned
        size = at.abs().mean()
        part = torch.where(at >= 0, size, -size)
        if own:
            u, r = u + part, r - part
        else:
            v, r = v + part, r - part @ q.T
    return u, v

# %%
check(kashin_split)

# %%
from course.lessons.experiments import two_factors
from course.lessons.figures.quantization import factors

splits = two_factors.loaded().data
for split in splits.splits:
    left = ", ".join(f"{split.residual[steps]:.3f}" for steps in (1, 5, 10, 20, 40))
    print(f"{split.basis:9} {split.vector:8} left after 1, 5, 10, 20, 40 steps: {left}")
factors(splits, "random", title="After the split the entries of both factors gather around a few peaks")

# %% [markdown]
# With $Q = I$ both bases are one. Then a vector with a single entry has the projection 1/64 of its squared length: the
# residual does go to 0, but slowly, and one factor is never used. A Hadamard matrix turns that vector into its own sign
# vector, and one step takes all of it.
#
# Entries on few peaks ask for few values: a *codebook* for each factor, found by k-means (Lloyd 1982, *Least Squares
# Quantization in PCM*). Each entry goes to its nearest value, each value to the mean of its entries, and so on. The
# factors were made by different steps, so that one codebook for both serves neither. Two codes for each weight: with
# 2 bits each, that is a scheme of 4 bits.
#
# **Predict.** Does it beat 4 bits in one grid with one step? On normal numbers, and on heavy tails? Does it beat NF4?

# %% exercise
import torch
from torch import Tensor


def two_factor_quantize(w: Tensor, q: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A weight as two factors, w = u + v q', each with a small codebook of its own.

    w         (m, n) in float32 or float64; not changed
    q         (n, n), orthogonal, in the dtype of w; not changed
    bits      of a code, from 1 to 4
    Returns   (codes_u, codebook_u, codes_v, codebook_v): codes uint8 (m, n) from 0 to 2**bits - 1, codebooks
              (2**bits,) in the dtype of w, so that codebook_u[codes_u] + codebook_v[codes_v] q' is near w. The
              factors are those of `kashin_split` of the whole matrix, after 30 steps. Each codebook begins at the
              quantiles (k + 1/2) / 2**bits of its factor's entries; 50 times each entry goes to its nearest value,
              and each value to the mean of its entries (it stays where none came). What is judged is the squared
              error of what they stand for, or the sum of both factors' own: either at most 1.02 times ours, so that
              other factors and codebooks that leave as little are right too. (Points are given for less than twice
              ours.)
    Example   For 1 bit and a w whose entries are all 2 or -2 in equal numbers, and q a random rotation: codebook_u is
              about [-2, 2], and codebook_v [0, 0].
    """
    u, v = kashin_split(w, q, 30)
    found = []
    for factor in (u, v):
        entries = factor.flatten()
        book = torch.quantile(entries, (torch.arange(2**bits, dtype=w.dtype) + 0.5) / 2**bits)
        for _ in range(50):
            codes = (entries[:, None] - book).abs().argmin(dim=1)
            for k in range(2**bits):
                if (codes == k).any():
                    book[k] = entries[codes == k].mean()
        codes = (entries[:, None] - book).abs().argmin(dim=1)
        found += [codes.reshape(w.shape).to(torch.uint8), book]
    return tuple(found)

# %%
check(two_factor_quantize)

# %% [markdown]
# The table of section 4 answers. At 4 bits the two factors leave an error of
# {{ error("two factors", "heavy tails") : .0% }} of heavy-tailed weights, one step for the matrix
# {{ error("per tensor", "heavy tails") : .0% }}. But they lose to
# everything with more than one step: a step for each channel leaves {{ error("per channel", "heavy tails") : .0% }},
# and a rotation before it {{ error("rotated, per channel", "heavy tails") : .0% }}, at a quarter of a bit more. A
# single codebook of 16 values leaves {{ error("one codebook", "heavy tails") : .0% }}, and takes one product with an
# input, where two factors take two, and one with $Q$.
#
# Is it the codebooks that lose, or the split? Leave the split out: one codebook for $W$ as it is, and another one for
# what the first has left, in the other basis. The table and the picture have this as
# "two codebooks, no split". At 4 bits it leaves
# {{ error("two codebooks, no split", "heavy tails") : .0% }}, and at 8 bits
# {{ error("two codebooks, no split", "heavy tails", 8) : .1% }}, where the two factors leave
# {{ error("two factors", "heavy tails", 8) : .0% }}. The second code is spent better on the error of the first than
# on half of the weight. The paper reports quality that is "competitive or superior" for OPT models, with a fast $Q$;
# the idea is beautiful, but at equal bits our experiment does not favour it.

# %% [markdown]
# ## 13. Where the bits go
#
# Matrices differ in what a bit is worth to them: some have larger inputs, some outputs on which the loss hangs, some
# weights with tails, which want groups. A *plan* says for each matrix the bits of a code and how many weights share a
# step. What does a plan cost? A token has the input $x$ of a matrix, and the gradient $g$ of its loss with respect to
# the outputs. Rounding $W$ to $Q$ moves the outputs by $(Q - W)\,x$ and so, to first order, the token's loss by
# $g^\top (Q - W)\,x$. At the end of training these changes cancel: their mean is near 0. Their mean square is not, and
# says how much the loss will rise: half of it is the second order, with the *empirical Fisher information* in the place
# of the Hessian, and each matrix for itself (Dong et al., arXiv 1911.03852, use the Hessian's trace). How would you
# spend a budget of bits?
#
# **Predict.** Two layers have the same weights and gradients, and the inputs of the second are ten times larger. By how
# many bits should their codes differ, if one bit halves the step?

# %% exercise
from collections.abc import Sequence

import torch
from torch import Tensor


def choose_bits(layers: Sequence[tuple[Tensor, Tensor, Tensor]], budget: int) -> list[tuple[int, int]]:
    """Bits and group of each layer's weight, so that a file of this size holds a model that computes nearly the same.

    layers    one or more (w, x, g), float32: a weight (m, n), and of k tokens for calibration the layer's inputs (k, n)
              and the gradients (k, m) of each token's loss with respect to its outputs
    budget    bits that all weights may take together; the cheapest plan fits
    Returns   (bits, group) for each layer, in their order: bits 2, 3, 4, 6 or 8, group 8 or n (a step for each row).
              Each run of `group` weights of a row has the step largest |weight| / (2**(bits - 1) - 1), and the step 1
              where it is all 0. Weights are rounded to the nearest multiple of their step. Steps take 16 bits, so that
              a layer takes m n bits + 16 m ceil(n / group); they are not rounded to these for the judgement. A plan
              above the budget earns nothing. What is judged is the squared change of the loss, the mean over tokens
              of (g' (W - Q) x)^2, summed over layers, on tokens which you are not given, drawn like yours: at most
              1.05 times what the best plan for yours leaves. (Points are given for less than the best plan which is
              the same for all layers, and for within a quarter of ours.)
    Example   For two layers of 8 x 16 and a budget of 1,280 bits, [(2, 16), (6, 16)] takes 256 + 128 + 768 + 128 =
              1,280. It suits a second layer whose inputs, or whose gradients, are ten times larger than the first's.

    Nothing that was handed in is changed.
    """
    states = {0: (0.0, ())}  # bits spent: least error, and the plans that gave it
    for w, x, g in layers:
        m, n = w.shape
        longer = {}
        for bits in (2, 3, 4, 6, 8):
            for group in (8, n):
                near, top = w.clone(), 2 ** (bits - 1) - 1
                for at in range(0, n, group):
                    part = w[:, at : at + group]
                    step = (part.abs().amax(dim=1, keepdim=True) / top).clamp(min=1e-12)
                    near[:, at : at + group] = (part / step).round() * step
                error = ((x @ (w - near).T) * g).sum(dim=1).square().mean().item()
                size = m * n * bits + 16 * m * -(-n // group)
                for spent, (before, plans) in states.items():
                    if spent + size <= budget:
                        new = (before + error, (*plans, (bits, group)))
                        longer[spent + size] = min(new, longer.get(spent + size, new))
        states = longer
    return list(min(states.values())[1])

# %%
check(choose_bits)

# %% [markdown]
# Here are the losses of the small GPT on a text that is hidden: by one plan for all of its matrices, by your plans
# where gradients are noise, so that all outputs count alike, and by your plans.
#
# **Predict.** Without gradients a plan still knows the error of every output. Is that better than one plan for all?

# %%
from course.lessons.experiments import bits_by_matrix

if solved(choose_bits):
    for line in bits_by_matrix.compared(choose_bits):
        print(line)

# %% [markdown]
# (Inputs that are ten times larger are worth $\log_2 10$ bits, a little more than 3: each bit halves a layer's error.)
# Where bits are scarce, plans that know the outputs' errors alone are worse than no plan: they spend bits on large
# outputs on which the loss does not hang. With gradients the same knapsack is better than one plan for all. Where every
# matrix has enough bits, what remains is as small as what another text would change.

# %% [markdown]
# # Part IV: training with few bits
#
# ## 14. Through the rounding
#
# A model can also be trained for its grid. In forward its weights are rounded, and the optimizer moves the unrounded
# ones. This needs a gradient of rounding.
#
# **Predict.** What is the derivative of `round`, almost everywhere? So what would autograd give, and what would
# training do?

# %%
x = torch.tensor([0.2, 0.7, 3.9], requires_grad=True)
x.round().sum().backward()
print(x.grad)

# %% [markdown]
# The *straight-through estimator* (Bengio et al., arXiv 1308.3432) pretends in backward that rounding was the
# identity. For a weight that is cut off at the end of the grid, though, a small move changes nothing, and its gradient
# is 0.

# %% exercise
import torch
from torch import Tensor


def fake_quant(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """x on the grid, with a gradient for training.

    x         any shape, float32 or float64; it may be a view
    step      above 0, in the dtype of x, of a shape that broadcasts to x's; it gets no gradient
    zero      int32, from -2**(bits - 1) to 2**(bits - 1) - 1, in the shape of step
    bits      from 2 to 8
    Returns   in the shape and dtype of x: step (q - zero), where q is x / step to the nearest integer, plus zero, and
              cut off at -2**(bits - 1) and 2**(bits - 1) - 1. Roundings of x are allowed, as x + (y - x) has them.
    Gradient  Where x lies from the first to the last value of the grid, both included, that of the result. Outside,
              beyond half a step, 0. (The half step between is not judged.) It can be differentiated again.
    Example   For x = [0.3, 5.0], step 0.5, zero 0 and 2 bits: [0.5, 0.5], and a gradient of [1, 1] becomes [1, 0].

    Nothing that was handed in is changed, nor is the gradient that backward is given.
    """
    low = -(2 ** (bits - 1))
    step = step.detach()
    raw = (x.detach() / step).round() + zero
    inside = (raw >= low) & (raw <= -low - 1)
    y = (raw.clamp(low, -low - 1) - zero) * step
    return y + torch.where(inside, x - x.detach(), 0.0)

# %%
check(fake_quant)

# %% [markdown]
# Here is the small GPT at 2 bits, a step for each channel, trained for some steps through your rounding. The grid is
# the affine one of section 2, with all four values: it starts far better than the symmetric grids of section 4, of
# which 2 bits leave three.

# %%
passed = parts.passed(globals(), solved)
for line in assembled_quantization.through(parts.with_yours(passed)):
    print(line)

# %% [markdown]
# ## 15. States in 8 bits
#
# Adam keeps two numbers for each weight: 8 bytes in float32, more than the model in half precision. Dettmers et al.
# (arXiv 2110.02861) keep both in 8 bits, in blocks with a scale each, and their 256 values are not evenly spaced:
# the *dynamic* code spends leading bits on a power of ten, as a float does on a power of two. The paper's blocks have
# 2,048 numbers (arXiv 2110.02861, section 2.1); ours have 256, as those of bitsandbytes have today.
#
# **Predict.** The second moment is a mean of squares, and its numbers lie orders of magnitude apart. If small ones are
# rounded to 0, what becomes of $m / (\sqrt v + \varepsilon)$? So which matters more, the blocks or the code? And where
# in a GPT do gradients of very different sizes stand side by side?

# %%
from course.lessons.experiments import eight_bit_states
from course.lessons.figures.quantization import states

recorded = eight_bit_states.loaded()
print(recorded)
print(eight_bit_states.table(recorded.data.runs, recorded.data.floor))
states(recorded.data, title="Eight bits suffice for Adam's states, if the code has small numbers too")

# %% [markdown]
# AdamW moves a weight by about one rate in a step. A number whose $v$ is rounded to 0 while its $m$ is not moves by
# thousands: with a linear code at once and everywhere, and with the dynamic code in the embeddings, where rare
# characters have next to no gradient beside frequent ones. Here the loss hardly shows it, since rare characters are
# rare; the paper keeps the states of embeddings in 32 bits (section 2.3), and so do the other runs.
#
# The values of the dynamic code are `SIGNED`, from $-1$ to $1$, for $m$, and `UNSIGNED`, from 0 to 1, for $v$, both in
# `course.lessons.dynamic_code`.

# %% exercise
import torch
from torch import Tensor

from course.lessons.dynamic_code import SIGNED, UNSIGNED


@torch.no_grad()
def adam8_step(
    param: Tensor,
    grad: Tensor,
    state: dict,
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    block: int = 256,
) -> None:
    """One step of AdamW, in place, whose moments are kept in 8 bits.

    param, grad  float32, contiguous, of one shape, also (); param may require a gradient, and still does afterwards;
                 grad is not changed. In place means in the tensor's own memory: an assignment to a name or to `.data`
                 does not change it.
    state        {} before the first step. After each: "step", an int, the number of steps; and for "m" and "v" a pair
                 (codes, scales): codes uint8, one for each number of param in row-major order, shape (numel,); scales
                 float32, one for each block of `block` numbers, the last perhaps shorter: its largest magnitude
    A number     of a moment is value[code] * scale, with SIGNED for m and UNSIGNED for v, code the one nearest to
                 number / scale. A block of zeros has scale 0, and any code.
    The step     Both moments are taken out of their codes, updated in float32, and used for the step as they are
                 then: they are rounded to codes afterwards.
                     m <- beta1 m + (1 - beta1) g                     v <- beta2 v + (1 - beta2) g^2
                     p <- p - lr wd p - lr m_hat / (sqrt(v_hat) + eps),   m_hat = m / (1 - beta1^t), v_hat likewise
    Cost         The state keeps two bytes for each number, 8 for each block, and nothing else, no padding either: a
                 view keeps all of the tensor that it is of.
    Example      For param = [1.0], grad = [2.0], lr = 0.1, weight_decay = 0: param = [0.9], m = 0.2, v = 0.004; the
                 state holds the step 1, the codes [255] and [255], and the scales [0.2] and [0.004].
    """
    beta1, beta2 = betas
    t = state["step"] = state.get("step", 0) + 1
    flat = grad.flatten()

    def taken_out(name: str, values: Tensor) -> Tensor:
        if name not in state:
            return torch.zeros_like(flat)
        codes, scales = state[name]
        return values[codes.int()] * scales.repeat_interleave(block)[: len(flat)]

    def put_away(numbers: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        blocks = torch.nn.functional.pad(numbers, (0, -len(numbers) % block)).reshape(-1, block)
        scales = blocks.abs().amax(1)
        units = blocks / torch.where(scales > 0, scales, 1.0)[:, None]
        codes = torch.bucketize(units, (values[1:] + values[:-1]) / 2)
        return codes.flatten()[: len(numbers)].to(torch.uint8), scales

    m = taken_out("m", SIGNED).lerp(flat, 1 - beta1)
    v = beta2 * taken_out("v", UNSIGNED) + (1 - beta2) * flat**2
    step = (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + eps)
    param.mul_(1 - lr * weight_decay).sub_(lr * step.reshape(param.shape))
    state["m"], state["v"] = put_away(m, SIGNED), put_away(v, UNSIGNED)

# %%
check(adam8_step)

# %%
if solved(adam8_step):

    def yours(param, grad, state, *, lr):
        adam8_step(param, grad, state, lr=lr, weight_decay=0.0)

    ways = {"float32": eight_bit_states.full, "yours": yours}
    live = [eight_bit_states.run(name, step, steps=20) for name, step in ways.items()]
    print(eight_bit_states.table(live, recorded.data.floor))

# %% [markdown]
# ## 16. Adapters on a base of four bits
#
# Lesson 07 counted what an adapter saves on a base of 4 bits. Here is such a base: bytes in which your
# `nf4_quantize` and `pack_int4` have put the weights. Forward makes a matrix from its bytes, uses and forgets it, and
# backward makes it again, because the gradient has to go through it. The base itself gets no gradient.
#
# **Predict.** The adapters are to learn the southern dialect, which has a floor of its own. How much of the result does
# the base of 4 bits cost? Can adapters also mend a base that rounding to 2 bits has ruined?

# %%
from course.lessons.experiments import four_bit_base

for line in four_bit_base.tuned(parts.with_yours(passed)):
    print(line)

# %% [markdown]
# Beside a base of 4 bits an adapter learns what it learns beside the full one. It even mends part of what 2 bits have
# ruined, but it does not get near the others.

# %% [markdown]
# # Part V: for real
#
# ## 17. Put together
#
# Your quantizers write the small GPT into files and read it again. All that is not a matrix of the blocks stays in 16
# bits. Losses are on a shorter text than in section 1, with a floor of its own.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

folder = TemporaryDirectory()
print(parts.whose(passed))
for line in assembled_quantization.make_files(parts.with_yours(passed), Path(folder.name)):
    print(line)

# %% [markdown]
# Differences of a thousandth or two between these losses mean nothing: finer groups lower the error of the weights, and
# with them the model hardly notices even 3 bits. Now everything that this lesson has is put into one recipe, and taken
# away again, one thing at a time:
#
# - *outliers*: columns of a weight that meet inputs of 6 and more stay in 16 bits. One channel behind each norm is made
#   20 times larger for that, as in section 8;
# - *rotation*: the inputs get another basis;
# - *groups*: a step for each 32 weights of a row, not for each row, and not for the matrix;
# - *step*: the one that suits normal numbers (your `best_step`), not the one that reaches the largest;
# - *Hessian*: later columns make good for earlier ones, by your `gptq_quantize`, else each number is rounded by itself;
# - *second factor*: your `kashin_split`, and half of the bits for each factor. The second also takes over what rounding
#   the first has left.
#
# Each line is a file that is written, measured and read again. The last has two codebooks of section 12 without a
# split, and nothing else. Two factors share the bits evenly, so that there is no line of theirs for 3.
#
# **Predict.** Which of these matters most at 3 bits, and which at 2? Is there one whose absence helps?

# %%
from course.lessons.experiments import one_taken_away

for line in one_taken_away.lines(parts.with_yours(passed), Path(folder.name)):
    print(line)

# %% [markdown]
# A hundredth here is one percent of perplexity. At 4 bits any single thing may be missing, and hardly a difference is
# seen. A second factor takes more bytes and leaves more loss: it is the one whose absence helps. At 3 bits a step for
# the whole matrix is too coarse, and the Hessian begins to tell. At 2 bits everything counts, groups and the Hessian
# most, but for one thing: the step that reaches the largest does no worse than the one that suits normal numbers.
#
# One thing at a time does not show what two things do to each other, though. Without groups, at 2 bits, that step
# does harm:

# %%
for line in one_taken_away.stretched(parts.with_yours(passed)):
    print(line)

# %% [markdown]
# Taken from the largest, a step for each row does better than groups did, and takes fewer bytes. The size of the
# outputs' errors does not explain it: with that step they are hardly smaller, and without the Hessian they are much
# larger, while the loss is lower. So look at their kind: how much of its output does a matrix still have?
#
# A grid that ends early cuts the large weights off, always towards 0. So every matrix becomes *weaker*, in all places
# in the same direction, while errors of rounding go in all directions and mostly cancel. Where each matrix is stretched
# by one number, so that its outputs have their size back, the model has much of its quality back. The least error of
# the weights is not the least loss of the model.
#
# Look at what the model writes, at any number of bits:

# %%
from course.lessons.widgets.few_bits import few_bits

few_bits(parts.with_yours(passed))

# %% [markdown]
# ## The library
#
# torch has the same operations: rounding with a gradient (`torch.fake_quantize_per_channel_affine`), and products of
# codes and with packed weights, in functions whose names begin with an underscore because they may change. Which of
# them there are depends on the build and the processor. Errors are those of a layer with a weight of $512 \times 512$,
# and time is relative to float32 on this machine.

# %%
from course.lessons.experiments import torchs_few_bits

for line in torchs_few_bits.lines():
    print(line)

# %% [markdown]
# Whether fewer bits are also faster depends on the kernels: on a CPU a path that was not tuned for it may well be
# slower. For models in PyTorch people use torchao, which is not among the packages of this course; with it one writes
#
# ```python
# from torchao.quantization import Int8WeightOnlyConfig, quantize_
#
# quantize_(model, Int8WeightOnlyConfig())
# ```
#
# It has taken the place of `torch.ao.quantization` and of tensors of type `torch.qint8`, which older texts use: in
# torch 2.13 both warn that they are deprecated. bitsandbytes has LLM.int8(), NF4 and 8-bit optimizers, GPTQModel has
# GPTQ, and llama.cpp runs models on laptops, in formats whose steps are themselves quantized.
#
# ## At scale
#
# The scales of NF4 in float32, one for each block of 64, take half a bit per weight. QLoRA quantizes them too: less
# their mean, to 8 bits, with a second scale in float32 for each 256 of them (*double quantization*). And GPTQ put a
# model of 175 billion parameters, at 3 bits, onto one GPU with 80 GB (arXiv 2210.17323, section 4). The count of bits
# says

# %%
from course.planner.published import figures, planned

found = planned()
for name, each in figures().items():
    if name.startswith("few bits"):
        error = found[name] / each.value - 1
        print(f"{name:28} published {each.value:6g} {each.unit:4} formula {found[name]:7.3f} ({error:+.1%})")

# %% [markdown]
# The last one counts matrices at 3 bits with a step and a zero point of 16 bits for each row, and embeddings, the
# output layer among them, at 16 bits. Its unit is the paper's, which counts in multiples of $2^{10}$.
#
# ## What to remember
#
# 1. A grid is a step, a zero point and a range. Count what they cost: bits per weight include all of it.
# 2. The largest number of those who share a step decides for all. Channels, groups, rotations and outliers apart are
#    four answers to this.
# 3. What counts is the error of the output. With the Hessian, later columns make good for earlier ones.
# 4. In this small model, at 4 bits almost everything works, at 3 the method decides, and at 2 the best error of the
#    weights is not the best model. In large ones the method decides at 4 bits already.
# 5. States and frozen bases stand few bits well, if small numbers keep a relative error.
#
# ## What to read
#
# - Dettmers et al., *LLM.int8()*, arXiv 2208.07339, sections 3 and 4.
# - Frantar et al., *GPTQ*, arXiv 2210.17323, sections 3 and 4.
# - Dettmers et al., *QLoRA*, arXiv 2305.14314, section 3; *8-bit Optimizers*, arXiv 2110.02861, section 2.
# - Merkulov et al., *Quantization of Large Language Models with an Overdetermined Basis*, arXiv 2404.09737.
# - What this lesson leaves out: scaling channels so that outliers move from inputs into weights (Xiao et al.,
#   *SmoothQuant*, arXiv 2211.10438), or so that important weights lose less (Lin et al., *AWQ*, arXiv 2306.00978);
#   floats of 8 and 4 bits that share a scale (Rouhani et al., *Microscaling Data Formats*, arXiv 2310.10537); one code
#   for several weights (Tseng et al., *QuIP#*, arXiv 2402.04396); keys and values in few bits (Liu et al., *KIVI*,
#   arXiv 2402.02750).
#
# ## What this lesson simplified
#
# - One small model that has no outliers of its own, and text from a grammar. Large models have them. With GPTQ they
#   lose less at 4 bits than small ones do, but rounding to nearest costs OPT-175B 2.2 of perplexity, so that a model
#   of 13 billion parameters is better, where GPTQ costs it 0.03 (arXiv 2210.17323, section 4).
# - Activations stay in float but in sections 7 to 9, embeddings and norms everywhere.
# - GPTQ quantizes a layer on inputs that the layers before it have made after they were quantized; ours come from the
#   float model.
# - Memory is counted, and speed hardly: it needs kernels of its own.

# %%
folder.cleanup()
progress()
