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
# # 07 LoRA
#
# **How few numbers must change?**
#
# At the end of this lesson you will be able to
#
# - say what fine-tuning changes in a model, and how much of that a few directions hold;
# - write the layer that trains an adapter beside a frozen weight, and derive how its two factors begin to move;
# - put adapters into a model, save them in a file a tenth the size of the model or less, load them, and merge them;
# - serve several adapters with one model in one batch;
# - count what fine-tuning costs by each method, and spend a budget of numbers where it helps most.
#
# You need: the backward pass of a linear layer (lesson 01), AdamW and its states (lesson 02).
#
# {{ workload(reading=60, sittings=3) }}

# %%
import torch

from course import check, progress
from course.notebook.check import solved

torch.set_num_threads(1)  # the tensors here are small: a second thread costs more than it brings

# %% [markdown]
# # Part I: a small change
#
# ## 1. What does fine-tuning change?
#
# The course has a small GPT: {{ thousands() : .0f }} thousand parameters, trained to write the northern dialect of
# the course's grammar. It is nearly perfect there. Its loss is {{ loss() : .3f }} nats per character, and no model
# can have less than {{ least() : .3f }}, because that much of the text is chance: this is the *floor*.
#
# Now it is to write the southern dialect, which shares the structure and half of the words. Each dialect has its own
# floor; that of the south is {{ southern_floor() : .3f }}, and the model as it is has a loss of {{ untuned() : .3f }}
# there. *Full fine-tuning* trains all parameters on southern text. Take one weight matrix of the model, before and
# after: what was added to it is the *change* of this matrix, $\Delta = W_\mathrm{after} - W_\mathrm{before}$.
#
# The *singular values* $\sigma_1 \ge \sigma_2 \ge \dots \ge 0$ of a matrix say how many directions hold how much of
# it: the sum of their squares is the sum of the squares of all its entries, and a matrix of rank $r$ has $r$
# of them that are not 0.
#
# **Predict.** A matrix of $64 \times 64$ independent normal numbers has 64 singular values. Is the 32nd much smaller
# than the first one? And in the change of one of the model's matrices?

# %%
from course.lessons.experiments import fine_tuning
from course.lessons.experiments.small_gpt import CONFIG
from course.lessons.figures.tuning import singular_values

recording = fine_tuning.loaded()
print(recording)
measured = recording.data
singular_values(measured.singular, CONFIG.width, title="What fine-tuning adds falls off faster than random numbers do")

# %% [markdown]
# Each line is one matrix of the model. In a square matrix of normal numbers the 32nd singular value is still
# {{ middle_of_noise() : .0% }} of the first; in the change of a square matrix it is {{ middle_of_changes() : .0% }} in
# the median. (The last one of a square matrix of normal numbers is always near 0.) Of 64 directions
# {{ directions() }} hold nine tenths of the sum of squares in the median change, and {{ fewest() }} to {{ most() }}
# in all of them; a square matrix of normal numbers needs {{ directions_of_noise() }}. What if we kept only those? The
# table cuts every change down to the nearest matrix of rank $r$. Biases, norms and embeddings stay as they are after
# tuning, which is why $r = 0$ is better than not tuned at all.
#
# **Predict.** How many directions are needed before the loss is nearly as good as with all 64?

# %%
for r, loss in zip(fine_tuning.CUT, measured.cut, strict=True):
    print(f"r = {r:2}: loss {loss:.3f}, {loss - measured.least:+.3f} above the floor")

# %% [markdown]
# Four directions hold {{ squares_at_4() : .0% }} of the squares in the median matrix, and bring
# {{ gained_at_4() : .0% }} of what the changes take off the loss from $r = 0$ on. That is much, and yet it ends
# {{ cut_at_4() / full_above() : .0f }} times as far above the floor as the whole change: only with nearly all of the
# squares does the loss come near it. But training was free to use all directions here. Hu et al. (LoRA, arXiv
# 2106.09685) turn the question around: allow only changes of low rank from the start, train nothing else, and see how
# far that gets. You will see it in section {{ section_of_methods() }}; remember the loss at $r = 4$.

# %% [markdown]
# ## 2. The nearest matrix of rank $r$
#
# Let $\Delta$ be the change of one weight, of shape $(m, n)$. A product $B A$ of two thin matrices, $B$ of shape $(m,
# r)$ and $A$ of shape $(r, n)$, has rank $r$ at most, and $r (m + n)$ numbers in the place of $m n$. How near can
# such a product come to $\Delta$? We measure the distance by the Frobenius norm, the root of the sum of the squares
# of all entries:
#
# $$\min_{B, A} \; \lVert \Delta - B A \rVert_F .$$
#
# Eckart and Young (1936) gave the answer, and it needs no search. Start with a diagonal $\Delta$, such as
# $\mathrm{diag}(4, 3, 2, 1)$ and $r = 2$: what would you keep? Then remember that every matrix is $U \,
# \mathrm{diag}(\sigma_1, \sigma_2, \ldots) \, V^\top$, with $U$ and $V$ orthogonal, and that an orthogonal matrix
# changes no distance. `torch.linalg.svd` computes the three.
#
# **Predict.** For this diagonal matrix, how large is the distance that remains? In a matrix of random numbers, is it
# much worse to keep the first two rows than the best two directions, or a little?

# %% exercise
from torch import Tensor


def best_rank_r(delta: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """Two factors whose product is the matrix of rank at most r nearest to delta, in the Frobenius norm.

    delta     (m, n), wide, tall or square, in float32 or float64; not changed
    r         from 0 to the smaller of m and n
    Returns   (B, A), of the shapes (m, r) and (r, n), in the dtype of delta: the norm of delta - B A is as small as
              any matrix of rank at most r makes it. Factors are not unique, and only their product counts.
    Example   For [[3, 0], [0, 1]] and r = 1: B = [[3], [0]] and A = [[1, 0]], or B = [[-1], [0]] and A = [[-3, 0]].
    """
    U, S, Vh = torch.linalg.svd(delta, full_matrices=False)
    return U[:, :r], S[:r, None] * Vh[:r]

# %%
check(best_rank_r)

# %%
diagonal = torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0]))
drawn = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
for words, delta, r in (("diagonal", diagonal, 2), ("random", drawn, 2), ("random", drawn, 32)):
    best = torch.linalg.svdvals(delta)[r:].norm()
    rows = torch.cat([delta[:r], torch.zeros_like(delta[r:])])
    print(f"{words:8} r = {r:2}: best {best:5.2f}, first rows {(delta - rows).norm():5.2f}", end="")
    print(f" of {delta.norm():5.2f}")

# %% [markdown]
# In random numbers no direction holds much more than the next one, and the best two are little better than the first
# two rows. (Worst of all is an orthogonal matrix, whose singular values are equal.) Whether a few directions hold most
# of what fine-tuning changes is a question for experiments, and section 1 has shown the answer here.

# %% [markdown]
# ## 3. How few numbers
#
# We do not know the change $\Delta$ before we have trained, so its best factors cannot be computed. LoRA (Hu et al.,
# arXiv 2106.09685) trains two factors from the start: a layer with the weight $W$ of shape $(m, n)$ computes
#
# $$y = x W^\top + s \, (x A^\top) B^\top,$$
#
# with $A$ of shape $(r, n)$ and $B$ of shape $(m, r)$, and $W$ stays as it is. We call $W$ the *base*, $A$ and $B$
# the *adapter*, $r$ the *adapter's rank*, and the number $s = \alpha / r$ its *scale*. Any layer may have an adapter.
# Most experiments of the paper adapt the queries' and the values' matrices alone.
#
# In many models several heads share one head of keys and values (*grouped queries*, arXiv 2305.13245). Then the
# matrices of keys and values are not square.
#
# **Predict.** The largest model of the paper has 96 layers of width 12,288 (Hu et al. 2021, sections 1 and 7.1). With
# $r = 1$ on queries and values, what fraction of its 175 billion numbers is trained: a tenth of a percent, a
# hundredth, or less?

# %% exercise
from collections.abc import Mapping


def lora_parameters(shapes: Mapping[str, tuple[int, int]], r: int) -> int:
    """How many numbers are trained where each of these matrices has an adapter.

    shapes    for each matrix that is adapted, by its name, the shape (m, n) of its weight; a mapping which may be
              empty
    r         the adapter's rank of each of them: at least 1, and perhaps above m or n
    Returns   the numbers of all adapters together, an int
    Example   For {"q_proj": (6, 6), "v_proj": (2, 6)} and r = 2: 24 + 16 = 40.
    """
    return sum(m * r + r * n for m, n in shapes.values())

# %%
check(lora_parameters)

# %%
matrices = {f"layers.{layer}.{name}": (12_288, 12_288) for layer in range(96) for name in ("q_proj", "v_proj")}
for r in (1, 8, 64) if solved(lora_parameters) else ():
    trained = lora_parameters(matrices, r)
    print(f"r = {r:2}: {trained:11,} numbers, {trained / 175e9:.4%} of 175 billion")

# %% [markdown]
# The paper's table 15 (arXiv 2106.09685) has 4.7, 37.7 and 301.9 million for these three; the last is cut off, not
# rounded.

# %% [markdown]
# # Part II: one layer

# %% [markdown]
# ## 4. What moves first?
#
# The adapter's layer computes
#
# $$ y = x\,(W + s\,B A)^\top, \qquad A \in \mathbb{R}^{r \times n},\quad B \in \mathbb{R}^{m \times r},\quad s =
# \alpha / r, $$
#
# and $W$ is frozen. If $W$ were not, its gradient would be $G = \mathrm{d}y^\top x$, summed over all rows of the
# batch: a matrix of $(m, n)$, as large as the weight. With $m = n = 4096$ in float32 that is {{ 4096**2 * 4 // 2**20
# }} MiB for each layer, and the adapter is there to avoid just that.
#
# Training begins with a random $A$ and with $B = 0$ (arXiv 2106.09685, section 4.1). So $B A = 0$, and the model
# starts out as it was.
#
# **Predict.** In the first step, is the gradient of $A$ zero, or that of $B$, or neither? And would anything ever
# move if both factors began at zero? Write it down. Autograd tells:

# %%
x, dy = torch.randn(8, 6), torch.randn(8, 5)
for name, size_of_a, size_of_b in (("A random, B zero", 1.0, 0.0), ("both zero", 0.0, 0.0)):
    A = (size_of_a * torch.randn(2, 6)).requires_grad_()
    B = (size_of_b * torch.randn(5, 2)).requires_grad_()
    (x @ A.T @ B.T).backward(dy)
    print(f"{name}: the gradient of A has norm {A.grad.norm():.2f}, that of B {B.grad.norm():.2f}")

# %% [markdown]
# Each factor is multiplied by the other one, also in the gradients. $B$ moves first, and once it is not zero any
# more, $A$ moves too. With both at zero neither ever moves.
#
# Derive both gradients: read the adapter as two linear layers, one after the other. Then look at the order of the
# products. A product of three matrices can be taken in two orders, with the same result at a very different cost.

# %% exercise
from torch import Tensor


def lora_grads(x: Tensor, dy: Tensor, A: Tensor, B: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The gradients (dA, dB) of a scalar L with respect to the factors of y = x @ (W + scale * B @ A).T.

    x         (..., n): any number of leading dimensions, also none
    dy        (..., m): the gradient of L with respect to y, with the same ones as x
    A, B      (r, n) and (m, r), with r at least 1
    scale     a float
    Returns   (dA, dB), tensors of the shapes of A and B, in their dtype, summed over all rows
    Cost      no tensor of (m, n) is made, neither B A nor the gradient of W
    Example   For x = [1, 2], dy = [3], A = [[1, 1]], B = [[2]], scale = 10: dA = [[60, 120]], dB = [[90]].

    All four tensors have one floating dtype. They may be views, and they may require a gradient.
    Nothing that was handed in is changed.
    Not allowed: torch.autograd, torch.func.
    """
    rows = x.shape[:-1].numel()
    x, dy = x.reshape(rows, A.shape[1]), dy.reshape(rows, B.shape[0])
    dB = scale * dy.T @ (x @ A.T)
    dA = scale * (dy @ B).T @ x
    return dA, dB

# %%
check(lora_grads)

# %% [markdown]
# For $N$ rows, your order costs $4 N r (m + n)$ FLOPs, the other one $2 N m n$ for $G$ alone.

# %% [markdown]
# ## 5. A layer with an adapter
#
# Now the layer itself. It holds a linear layer that was trained before, the *base*, and leaves it as it is. Beside it
# runs the adapter:
#
# $$ y = \mathrm{base}(x) + s\,(x A^\top) B^\top, \qquad s = \frac{\alpha}{r} $$
#
# Frozen means three things. The optimizer must not find the base's parameters, so that it keeps no states for them.
# The backward pass must not compute their gradients. And the gradient must still go *through* the base, because
# adapters in the layers before need it. In PyTorch one flag does all three. Which of the three does `torch.no_grad()`
# around the base get right?
#
# The scale divides by $r$, so that $\alpha$ need not be tuned again for another $r$ (arXiv 2106.09685, section 4.1).
#
# How large must $A$ be? A number of $x A^\top$ is a sum of $n$ products. With independent numbers of variance 1 in
# $x$, and a standard deviation of $1 / \sqrt n$ in $A$, it has variance 1 again. (The paper says "random Gaussian";
# peft draws uniform numbers by Kaiming's rule.) As $B$ begins at 0, the size of $A$ decides how fast the product
# $B A$ moves: twice as large an $A$ moves it twice as far for the same step of $B$.
#
# **Predict.** A layer has $m = n = 4{,}096$ and $r = 8$. How many numbers does the adapter train, in percent of $W$?

# %%
m = n = 4_096
r = 8
print(f"{r * (m + n):,} of {m * n:,}: {r * (m + n) / (m * n):.2%}")

# %% [markdown]
# The flag `merged` says whether the adapter stands in the base's weight at present: the next exercise puts it there.

# %% exercise
import torch
from torch import Tensor, nn


class LoRALinear(nn.Module):
    """A frozen linear layer with an adapter beside it.

    base       an nn.Linear, or of a class derived from it, with a forward of its own and perhaps more parameters;
               weight (m, n), with a bias or without, in any floating dtype
    r          int, at least 1; may be above n and m
    alpha      above 0, an int or a float
    rng        a torch.Generator on the CPU: the only source of random numbers
    .base      the very module that came in, a part of this one; none of its parameters is replaced, each of them no
               longer requires a gradient
    .A         nn.Parameter (r, n), normal with mean 0 and standard deviation 1 / sqrt(n), in the dtype of base's
               weight
    .B         nn.Parameter (m, r), 0, in the dtype of base's weight
    .scale     alpha / r, a float
    .merged    False at the start
    Later      Others may set A, B, scale and merged: forward goes by what they are when it is called, in eval mode
               as in training.
    forward(x) returns base(x) + scale (x A') B', and base(x) alone while merged is True. x is (..., n) in the dtype
               of base's weight, with any number of leading dimensions, also none; a batch may be empty. With B = 0 it
               is base(x) bit for bit. Gradients reach A, B and x. What base returned is not changed.
    Cost       no tensor of (m, n) is made, neither forward nor backward
    Refused    with a ValueError, before base is touched: an r below 1, an alpha that is not above 0 (none is nan)
    Example    base with weight [[1, 1]] and no bias, r = 1, alpha = 2. When A = [[1, 0]] and B = [[3]], x = [1, 2]
               gives 3 + 2 * 1 * 3 = 9.
    """

    def __init__(self, base: nn.Linear, r: int, alpha: float, rng: torch.Generator) -> None:
        if r < 1 or not alpha > 0:
            raise ValueError(f"r must be at least 1 and alpha above 0, got {r} and {alpha}")
        super().__init__()
        self.base = base.requires_grad_(False)
        m, n = base.weight.shape
        drawn = torch.randn(r, n, generator=rng, dtype=base.weight.dtype) / n**0.5
        self.A = nn.Parameter(drawn.to(base.weight.device))
        self.B = nn.Parameter(base.weight.new_zeros(m, r))
        self.scale = alpha / r
        self.merged = False

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        return y if self.merged else y + self.scale * (x @ self.A.T @ self.B.T)

# %%
check(LoRALinear)

# %% [markdown]
# `torch.no_grad()` gets only the second right. The parameters still require a gradient, so that an optimizer that asks
# for this flag takes them. And the gradient through the base is lost: what reaches the layers before comes through the
# adapter alone, which is a wrong gradient without an error.

# %% [markdown]
# ## 6. An adapter that costs nothing
#
# While it is trained, the adapter is two more products in each layer. After that it need not be: $W + s B A$ is a
# matrix of the same shape as $W$. Add the adapter into the weight once, and the layer is as fast as it ever was
# (arXiv 2106.09685, section 4.1). This is called *merging*. Another adapter for another task can follow, once this
# one is taken out again.
#
# Two things can go wrong without an error. Merging twice adds the adapter twice, which is why the layer keeps a flag.
# And in half precision each operation rounds: $B A$, the product with $s$, and the sum. A weight in bfloat16 has
# between two and three decimal digits, and a fine-tuned change is small beside the weight.
#
# **Predict.** In bfloat16, what is 1 + 0.001? How much of a change of one thousandth of each weight survives a merge?

# %%
weight = torch.ones(1, dtype=torch.bfloat16)
print((weight + 0.001).item(), (weight + 0.005).item())
many = torch.randn(100_000, generator=torch.Generator().manual_seed(0)).bfloat16()
print(f"a thousandth of each weight: {(many * 1.001 != many).float().mean():.0%} of {len(many):,} weights change")

# %% [markdown]
# Whatever is smaller than half the distance to the next number is lost; of a thousandth nothing is left. No order of
# operations mends that last rounding, but the ones before it can be avoided: compute in float32, round once.
#
# The weight is a leaf that an optimizer, or a tied layer, may hold, and autograd watches it: the sum has to happen in
# its own memory, and unseen by autograd. `Adapted` is a layer that holds what your `LoRALinear` holds, and computes
# nothing.

# %% exercise
import torch

from course.lessons.adapted import Adapted


@torch.no_grad()
def merge_(layer: Adapted) -> None:
    """Adds the adapter into the weight of its base, in place.

    layer     has .base, an nn.Linear with weight (m, n), the parameters .A (r, n) and .B (m, r), all in one floating
              dtype, and .scale, a float, and .merged, a bool. r may be 1; the weight may be a view of another tensor.
    Result    scale B A is added to the weight, and layer.merged is True, also where B or scale is 0; where it is merged
              already, nothing happens. The weight is changed in its own memory: no parameter is replaced, and each
              keeps whether it requires a gradient; no graph leads to any of them. A, B and the bias are not changed.
    Digits    the product B A, scale times it and the sum are computed in float32, or in float64 where the weight is,
              then rounded once to the dtype of the weight
    Memory    no tensor outlives the call
    Example   weight [[1, 1]], A = [[1, 0]], B = [[3]], scale = 2: the weight becomes [[7, 1]].
    """
    if layer.merged:
        return
    weight = layer.base.weight
    finer = torch.promote_types(weight.dtype, torch.float32)
    weight.copy_(weight.to(finer) + layer.scale * (layer.B.to(finer) @ layer.A.to(finer)))
    layer.merged = True

# %%
check(merge_)

# %% [markdown]
# ## 7. And out again
#
# To serve another task, or to train on, the adapter has to leave the weight. The surest way would be a copy of $W$
# from before, which is the memory of the whole model once more. Subtract $s B A$ instead: $A$ and $B$ are still
# there.
#
# **Predict.** Is the weight afterwards what it was, bit for bit? In float32, and in bfloat16?

# %%
for dtype in (torch.float32, torch.bfloat16):
    weight = torch.randn(256, 256, generator=torch.Generator().manual_seed(0)).to(dtype)
    change = torch.randn(256, 256, generator=torch.Generator().manual_seed(1)) / 10
    merged = (weight.float() + change).to(dtype)
    back = (merged.float() - change).to(dtype)
    apart = (back.float() - weight.float()).abs().max()
    print(f"{dtype}: {(back == weight).float().mean():.0%} of the numbers are the same, others up to {apart:.1g} off")

# %% [markdown]
# What the rounding of the merged weight lost stays lost. Each time another adapter goes in and out, a few more numbers
# move. Anyone who swaps adapters often in half precision loads the base anew, or does not merge at all: a later
# section serves several adapters at once.

# %% exercise
import torch

from course.lessons.adapted import Adapted


@torch.no_grad()
def unmerge_(layer: Adapted) -> None:
    """Takes the adapter out of the weight of its base, in place.

    layer     as in `merge_`: weight (m, n), A (r, n) and B (m, r), all in one floating dtype; r may be 1, and the
              weight may be a view of another tensor
    Result    scale B A is taken off the weight, and layer.merged is False, also where B or scale is 0; where it is not
              merged, nothing happens. The weight is changed in its own memory: no parameter is replaced, and each keeps
              whether it requires a gradient; no graph leads to any of them. A, B and the bias are not changed. After
              `merge_` the weight is what it was, up to one rounding of the merged weight and one of its own.
    Digits    the product B A, scale times it and the difference are computed in float32, or in float64 where the
              weight is, then rounded once to the dtype of the weight
    Memory    no tensor outlives the call
    Example   weight [[7, 1]], A = [[1, 0]], B = [[3]], scale = 2, merged: the weight becomes [[1, 1]].
    """
    if not layer.merged:
        return
    weight = layer.base.weight
    finer = torch.promote_types(weight.dtype, torch.float32)
    weight.copy_(weight.to(finer) - layer.scale * (layer.B.to(finer) @ layer.A.to(finer)))
    layer.merged = False

# %%
check(unmerge_)

# %% [markdown]
# # Part III: a model

# %% [markdown]
# ## 8. Adapters into a model
#
# A model is a tree of modules, in which a linear layer is registered with its parent under a name. To adapt it, another
# module is registered there. `named_modules()` walks the tree and gives each module with its name from the root, such
# as `blocks.0.attention.q_proj`. Which layers get an adapter is mostly said by a regular expression for these names:
# `.*\.(q_proj|v_proj)` is what the paper adapts (arXiv 2106.09685, section 5.1).
#
# Two things are less simple than they look. A module may stand at several places of the tree, under several names,
# and be one module all the same. And whatever is not frozen trains: biases, norms, embeddings and the head are
# numbers that the fine-tuned model would have to ship, too.
#
# The module `Adapted` holds what an adapted layer holds, and you may use it from here on:

# %%
import inspect

from course.lessons.adapted import Adapted

print(inspect.getsource(Adapted))

# %% [markdown]
# **Predict.** The cell below puts an adapter in the place of each linear layer, while it walks. The model has two.
# How many adapters will there be?

# %%
import torch
from torch import nn

stack = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))
put_in = 0
try:
    for _, module in stack.named_modules():
        for child_name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, child_name, Adapted(child, torch.randn(1, 4), torch.zeros(4, 1), 1.0))
                put_in += 1
    print(put_in, "adapters")
except RecursionError:
    print(put_in, "adapters, each around the base of the one before; then Python's limit of recursion ended the loop")

# %% exercise
import re
from collections.abc import Callable

from torch import nn

from course.lessons.adapted import Adapted


def inject(model: nn.Module, pattern: str, wrap: Callable[[nn.Linear], Adapted]) -> list[str]:
    """Replaces layers of the model by adapters around them, and freezes the rest.

    Layers      each nn.Linear, or of a class derived from it, at any depth, one of whose names the pattern matches as
                a whole (re.fullmatch), names being those of named_modules(). A linear layer inside of an `Adapted`
                matches no pattern, nor does the model itself.
    wrap        makes the adapter of a layer, an `Adapted` around it whose A and B train; called once for each of them,
                in the order of named_modules(), and for no other
    Several     A layer may stand at several places. Its one adapter stands at all of them afterwards, if any of these
                names matches. Two layers that hold one weight are two layers.
    Training    A and B of the new adapters train; every other parameter of the model is frozen, adapters of an
                earlier call too.
    Returns     the names of the layers in the order of named_modules(), each by the first of its names
    Refused     with a ValueError: a pattern that matches no layer
    Errors      The message names the pattern. An error of `wrap` is passed on. In both cases the model is
                what it was, and trains what it did, but for what `wrap` itself has frozen.
    Example     inject(model, r".*\\.(query|value)", wrap) adapts blocks.0.query and blocks.0.value, and not
                blocks.0.query_norm.
    """
    inside = {id(part) for each in model.modules() if isinstance(each, Adapted) for part in each.modules()}
    names: dict[nn.Linear, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if name and isinstance(module, nn.Linear) and id(module) not in inside:
            names.setdefault(module, []).append(name)
    adapters = {
        layer: wrap(layer) for layer in names if any(re.fullmatch(pattern, name) is not None for name in names[layer])
    }
    if not adapters:
        raise ValueError(f"no linear layer has a name that {pattern!r} matches")
    model.requires_grad_(False)  # before the adapters are in it
    for layer, adapter in adapters.items():
        for name in names[layer]:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, adapter)
    return [names[layer][0] for layer in adapters]

# %%
check(inject)

# %% [markdown]
# ## 9. Find the fault: three runs with adapters
#
# Each of these programs fine-tunes the same small model, with the layers `up`, `norm`, `down` and `head`. `wrap` puts
# an adapter around a layer.
#
# - `classifier` is to train the adapters and the head, which is new, and nothing else.
# - `matrices` is to train the adapters alone; the head belongs to the base.
# - `largest` asks which of the two layers has the larger gradient, and trains an adapter there, by Adam.

# %%
from course.lessons.experiments import adapter_runs

for name in adapter_runs.PROGRAMS:
    print(adapter_runs.PROGRAMS.listing(name), end="\n\n")

# %% [markdown]
# The table shows each run: the first and the last loss; the norm of the change of all that was there before, the head
# apart; and the bytes of the optimizer's states at its end. Numbers are in float64, so that AdamW keeps 16 bytes for
# each number that it trains, and a counter for each tensor.
#
# **Predict.** In each program one line is wrong, and in each row one number or two give it away. Before you run the
# cell: which columns should be exactly 0 in which row?

# %%
print(adapter_runs.table({name: adapter_runs.run(name, **adapter_runs.example()) for name in adapter_runs.PROGRAMS}))

# %% [markdown]
# All three losses fall, and that alone would have satisfied many readers. `B` begins at 0, so that its norm tells
# whether an adapter has learned anything. For the third row, compare the bytes with what one adapter should need.

# %% exercise
def mend_the_adapters() -> dict[str, tuple[int, str]]:
    """The wrong line of each of the three programs above, and how it must read.

    Returns     for "classifier", "matrices" and "largest" the number of a line as it is printed above, and the line
                that replaces it, a str without a line break. Its indentation is kept, and may be left out; `torch` is
                imported.
    Judged      by the losses, by the factors, by what moves of the rest, and by the most bytes that the optimizer's
                states take, which may be a quarter above ours; on other numbers; any spelling of a cure is right
    classifier  the adapters and the head train, and nothing else
    matrices    the adapters train, and nothing else, the head included
    largest     the one adapter trains, by Adam; losses stay those of the program above
    Example     {"classifier": (9, "losses = [0]"), ...} would replace the ninth line of `classifier`.
    """
    return {
        "classifier": (4, "for p in set(model.parameters()) - {model.up.A, model.up.B, model.down.A, model.down.B}:"),
        "matrices": (3, "if p.dim() > 0:"),  # a bias and a norm have one dimension
        "largest": (9, "optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=lr)"),
    }

# %%
check(mend_the_adapters)

# %% [markdown]
# ## 10. What the file holds
#
# A fine-tuned model is the base, which everybody has, and an adapter. Only the adapter need be kept for each task:
# for GPT-3 the paper counts a checkpoint of 35 MB in place of 350 GB (arXiv 2106.09685, section 4.2).
#
# A dict of tensors goes into a safetensors file as it is, if each tensor is contiguous and no two share memory. It is
# also what you keep of the best step so far, while training goes on. Both ask for copies.
#
# **Predict.** Which of these copies change when the factor does?

# %%
factor = nn.Parameter(torch.zeros(2, 3))
kept = {
    "detach()": factor.detach(),
    "detach().cpu()": factor.detach().cpu(),
    "detach().contiguous()": factor.detach().contiguous(),
    "detach().clone()": factor.detach().clone(),
}
with torch.no_grad():
    factor += 1
for how, tensor in kept.items():
    print(f"{how:22} {tensor[0, 0].item():.0f}")

# %% exercise
import torch
from torch import Tensor, nn

from course.lessons.adapted import Adapted


def adapter_state(model: nn.Module) -> dict[str, Tensor]:
    """The numbers of the adapter, as they go into a file.

    Returns     for each module of the kind `Adapted` its factors as NAME.A and NAME.B, A first, and nothing else; in
                the order of model.named_modules(), which gives the NAMEs; all of them, whether they train or not,
                merged or not
    Model       may be of this kind itself: its names are A and B.
    Twice       A module at several places comes once, by the first of its names. Two modules may share a factor: both
                have both of their keys.
    Tensors     copies on the CPU, contiguous, without a gradient, each in memory of its own, of no more bytes than it
                needs
    Factors     in any floating dtype, which is kept, and lying in memory in any way. The model is not changed.
    Example     {"layers.0.q.A": (r, n), "layers.0.q.B": (m, r), ...} with tensors of these shapes
    """
    adapted = [(name, module) for name, module in model.named_modules() if isinstance(module, Adapted)]
    found = {f"{name}.{each}".lstrip("."): getattr(module, each) for name, module in adapted for each in ("A", "B")}
    return {
        name: factor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, factor in found.items()
    }

# %%
check(adapter_state)

# %% [markdown]
# ## 11. Back into a model
#
# A base in memory can serve one task after another: the next adapter is copied into the factors that are there. The
# optimizer holds these parameters, and perhaps their memory is part of a larger buffer: so no parameter is replaced.
#
# What if the file does not fit, because it was made with another pattern or another r? Some ways to load do not mind:
#
# **Predict.** Which of these three lines raises an error, and what does the layer hold after each?

# %%
layer = nn.Linear(3, 2, bias=False)
tries = {
    "a misspelt name, strict=False": lambda: layer.load_state_dict({"wieght": torch.ones(2, 3)}, strict=False),
    "copy_ of shape (1, 3)": lambda: layer.weight.data.copy_(torch.full((1, 3), 2.0)),
    "copy_ of shape (3, 2)": lambda: layer.weight.data.copy_(torch.full((3, 2), 3.0)),
}
for words, load in tries.items():
    with torch.no_grad():
        layer.weight.zero_()
    try:
        load()
        raised = "no error"
    except RuntimeError as error:
        raised = f"RuntimeError: {str(error)[:60]}..."
    print(f"{words:30} {layer.weight.unique().tolist()}   {raised}")

# %% [markdown]
# A model with half of an adapter is a model that nobody has trained, and its loss only looks a little worse. So
# everything is compared before anything is copied, and an error tells all that is wrong at once. A merged layer is
# refused as well: its weight holds the old adapter, which only the old factors can take off.

# %% exercise
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from course.lessons.adapted import Adapted


def load_adapter(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copies the numbers of an adapter into the factors of the model, all of them or none.

    state       one tensor for each factor of each `Adapted` in the model, named as adapter_state names them, in any
                order; a tensor may be in another floating dtype than the factor, or require a gradient
    Afterwards  the factors are the same parameters, in the same memory and dtype, training or frozen as before, with
                the numbers of the state; later changes of the state do not reach the model. The state is not changed.
    Refused     with a ValueError: a key that is missing, one that no factor has, a tensor of another shape than its
                factor, a layer that is merged
    Message     It names all such keys and layers, and no key that is right.
    Then        nothing in the model has changed.
    Example     For a model whose only adapter is at "head" with r = 2, a state with "head.A" of r = 3 and "tail.B" is
                refused with: head.B is missing; tail.B is unexpected; head.A must have the shape (2, 5), got (3, 5).
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, Adapted)}
    factors = {f"{name}.{each}".lstrip("."): getattr(layers[name], each) for name in layers for each in ("A", "B")}
    slips = [f"merged: {name or 'the model itself'}" for name, module in layers.items() if module.merged]
    slips += [f"missing: {name}" for name in factors if name not in state]
    slips += [f"unexpected: {name}" for name in state if name not in factors]
    both = [name for name in factors if name in state]
    slips += [f"shape: {name}" for name in both if factors[name].shape != state[name].shape]
    if slips:
        raise ValueError("the state does not fit: " + ", ".join(slips))
    with torch.no_grad():
        for name in both:
            factors[name].copy_(state[name])

# %%
check(load_adapter)

# %% [markdown]
# ### Adapters live
#
# Three adapters for the small GPT are trained now, one for the southern dialect, one for *mirror* (northern words
# spelt backwards) and one for *shifted* (every letter replaced by the next one of the alphabet). All have $r = 1$ and
# stand beside every linear layer of the blocks. Where an answer of yours has not passed its check, ours stands in. A
# line comes for each adapter when it is trained, after some seconds each on a quiet machine.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

from course.lessons.experiments import assembled_lora

folder = TemporaryDirectory()
parts = assembled_lora.PARTS
passed = parts.passed(globals(), solved)
print(parts.whose(passed))
for line in assembled_lora.make_files(parts.with_yours(passed), Path(folder.name)):
    print(line)

# %% [markdown]
# The model takes up {{ kilobytes() : .0f }} kB on disk, an adapter a thirtieth of that, both in half precision. One
# column and one row beside each matrix are enough to learn most of the southern dialect. The one with shifted letters
# is the hardest: an adapter beside the blocks cannot touch the embedding, where the letters are.
#
# **Predict.** With the adapter for mirror, how well does the model still do on northern text? And with half of its
# scale?

# %%
from course.lessons import grammar
from course.lessons.widgets.swap import swap

swap(
    assembled_lora.adapted(assembled_lora.PARTS.torchs),
    assembled_lora.adapters_in(Path(folder.name)),
    {"north": grammar.NORTH, **assembled_lora.DIALECTS},
)

# %% [markdown]
# Only the factors are exchanged; the base stays in memory, and stays as it is. That is how one server offers
# thousands of fine-tuned models.

# %% [markdown]
# ## 12. Many adapters in one batch
#
# A server holds one base and the adapters of many customers. A batch has requests from several of them. Merging serves
# one adapter at a time, and several copies of the base would not fit. But in
#
# $$y_i = x_i W^\top + s_k \, (x_i A_k^\top) B_k^\top, \qquad k = \text{adapter of row } i,$$
#
# the first product is the same for all rows, whichever adapter they use.
#
# **Predict.** Eight requests of 16 tokens go through a layer with $m = n = 4096$. Each has an adapter of its own,
# with $r = 8$. We count in FLOPs of the layer without adapters. What does it cost to run all rows through the layer
# once for each adapter, and keep the rows that are right? To merge a weight for each request? To do the base once,
# and each adapter on its own row?

# %%
requests, tokens, m, n, r = 8, 16, 4096, 4096, 8
base, adapters = 2 * requests * tokens * m * n, 2 * requests * tokens * r * (m + n)
costs = {
    "all rows, once for each adapter": requests * (base + adapters),
    "a merged weight for each request": base + requests * 2 * m * r * n,
    "the base once, adapters on their rows": base + adapters,
}
for way, flops in costs.items():
    print(f"{way:38} {flops / base:7.3f} times the base")

# %% exercise
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def mixed_adapter_forward(
    x: Tensor, ids: Tensor, linear: nn.Linear, adapters: Sequence[tuple[Tensor, Tensor, float]]
) -> Tensor:
    """One pass of a linear layer in which each row of the batch has the adapter that it asks for.

    x         (batch, time, n) in any floating dtype, views too; batch may be 0
    ids       int64 (batch,), in any order: row i uses the adapter adapters[ids[i]]; -1: none
    linear    the base, with its bias or without, in the dtype of x
    adapters  (A, B, scale) of each, may be empty: A (r, n) and B (m, r) in the dtype of x, scale a float. r may
              differ from adapter to adapter, some used by several rows, some used by no row
    Returns   (batch, time, m) in the dtype of x: row i is linear(x[i]), plus scale * x[i] A' B' where it has an
              adapter
    Cost      `linear` is called once. The product with A' and the one with B' are made with the rows that use the
              adapter, and no others: 2 r (m + n) FLOPs for each of their tokens, row by row or several rows at
              once. No tensor as large as the weight, nor B A in pieces.
    Refused   with a ValueError: an id below -1, or not below the number of adapters
    Example   With ids [1, -1], y[0] is linear(x[0]) + adapters[1][2] * x[0] A' B' with A and B of adapters[1], and
              y[1] is linear(x[1]).

    None of the arguments is changed.
    """
    if len(ids) and not -1 <= int(ids.min()) <= int(ids.max()) < len(adapters):
        raise ValueError(f"ids must lie from -1 to {len(adapters) - 1}, got {ids.tolist()}")
    y = linear(x)
    for number, (A, B, scale) in enumerate(adapters):
        mask = ids == number
        y[mask] += scale * (x[mask] @ A.T) @ B.T
    return y

# %%
check(mixed_adapter_forward)

# %% [markdown]
# A loop makes two small products for each adapter in use, or for each row, and with hundreds of them a GPU mostly
# waits for the next one to begin. Punica (arXiv 2310.18547) and S-LoRA (arXiv 2311.03285) have kernels that do all of
# them at once.

# %% [markdown]
# # Part IV: what it costs, and what it buys

# %% [markdown]
# ## 13. What it saves
#
# A step holds weights, gradients and Adam's states, besides activations (lesson 04). An adapter adds weights, and yet
# it saves memory, because frozen numbers need only one of the three.
#
# Nor need a frozen weight be as exact as one that is trained: Adam moves a number by far less than the distance
# between two neighbours among 16. QLoRA (Dettmers et al., arXiv 2305.14314) keeps the base in 4 bits, with one more
# number for each block of 64, by which it is multiplied, and the adapters above it in more. How a number gets into 4
# bits is the next lesson's question; here we count the bytes.
#
# **Predict.** The model below has 65 billion parameters, in 80 layers. All its matrices but embedding and head get
# adapters, at $r = 64$. Trained numbers take 2 bytes of weights, 2 of gradients and 8 of states. How many GB does
# full fine-tuning hold, how many with adapters on a base of 16 bits, and how many on one of 4 bits?

# %% exercise
from collections.abc import Collection, Mapping


def finetune_bytes(
    shapes: Mapping[str, tuple[int, ...]], adapted: Collection[str], r: int | None, recipe: Mapping[str, float]
) -> float:
    """Bytes of weights, gradients and the optimizer's states while a model is fine-tuned.

    shapes    of all parameters of the model, by name: (m, n) of a matrix, (m,) of a vector
    adapted   names of the matrices that get an adapter, which may be none; they and all other parameters are frozen
    r         the adapters' rank, at least 1 and perhaps above m or n. None: all parameters are trained, and there are
              no adapters, whatever is in `adapted`
    recipe    bytes of a number, not always whole, and may be 0:
              "weights", "gradients", "states": all three of each number that is trained
              "base": of each number in a frozen matrix that is adapted
              "others": of each number in another frozen parameter
    Returns   all bytes together, not rounded
    Example   {"q": (6, 4), "norm": (6,)} with an adapter of r = 1 on "q", where trained numbers take 4 + 4 + 8 bytes,
              "base" is 0.5 and "others" 2: 12 + 12 + 160 = 184. With r = None: 480.
    """
    trained = recipe["weights"] + recipe["gradients"] + recipe["states"]
    total = 0
    for name, shape in shapes.items():
        numbers = torch.Size(shape).numel()
        if r is None:
            total += numbers * trained
        elif name in adapted:
            total += numbers * recipe["base"] + r * sum(shape) * trained
        else:
            total += numbers * recipe["others"]
    return total

# %%
check(finetune_bytes)

# %%
width, inner = 8_192, 22_016
block = {f"{name}_proj": (width, width) for name in "qkvo"} | {"gate": (inner, width), "up": (inner, width)}
block |= {"down": (width, inner), "norm1": (width,), "norm2": (width,)}
model = {f"layers.{layer}.{name}": shape for layer in range(80) for name, shape in block.items()}
matrices = [name for name, shape in model.items() if len(shape) == 2]
model |= {"embedding": (32_000, width), "head": (32_000, width), "norm": (width,)}
trained = {"weights": 2, "gradients": 2, "states": 8}

methods = (("full", None, 2), ("adapters, 16 bits", 64, 2), ("adapters, 4 bits", 64, 4 / 8 + 4 / 64))
for words, r, base in methods if solved(finetune_bytes) else ():
    print(f"{words:18} {finetune_bytes(model, matrices, r, {**trained, 'base': base, 'others': 2}) / 1e9:6.1f} GB")

# %% [markdown]
# The introduction of QLoRA (arXiv 2305.14314, section 1) says that it brings the memory from over 780 GB to under 48
# GB. Two things make the counts differ: theirs is of all the memory, while activations are in none of these three, and
# adapters do not make them much smaller; and our base has 4 bytes more for each block, which the paper quantizes as
# well (section 3).

# %% [markdown]
# ## 14. What the numbers buy
#
# Here is the small GPT again on its way to the southern dialect: full fine-tuning, LoRA in all linear layers of the
# blocks at five values of $r$, and the last layer alone (the head, no longer tied to the embedding, and the norm
# before it). Every method has the best of three rates.
#
# **Predict.** Which comes nearest to the floor after {{ steps() }} steps? How far is LoRA with $r = 1$ from full
# fine-tuning, and the last layer alone?

# %%
from course.lessons.figures.tuning import loss_over_numbers, tuning_curves

tuning_curves(measured, title="LoRA comes near the floor; the last layer alone does not")

# %%
print(fine_tuning.table(measured))
loss_over_numbers(measured, title="What is left to learn, over the numbers that are trained")

# %% [markdown]
# Full fine-tuning, $r = 8$ and $r = 16$ end within {{ spread_of_best() : .3f }} of each other. With $r = 4$ LoRA ends
# {{ trained_at_4() : .3f }} above the floor. Full fine-tuning that is cut down to $r = 4$ was {{ cut_at_4() : .3f }}
# above it (section 1). There are good changes of low rank; full fine-tuning has no reason to find one of them.
#
# The last layer can only weigh anew what the blocks tell it, and they were trained on northern words. LoRA changes what
# the blocks say.

# %% [markdown]
# ## 15. Where the numbers go
#
# All adapters of a model usually have the same $r$. Need they? Suppose that a model has been fine-tuned in full once,
# so that you know the change $\Delta_i$ of each matrix and its singular values $\sigma_{i1} \ge \sigma_{i2} \ge
# \ldots$ An adapter with $r_i$ costs $r_i (m_i + n_i)$ numbers. What it leaves out raises the loss, in some matrices
# more than in others. Call the *sensitivity* $h_i$ the rise for each unit of squared error. Then
#
# $$\sum_i h_i \sum_{k > r_i} \sigma_{ik}^2$$
#
# is what ranks $r_1, r_2, \ldots$ leave of the loss. (That errors of different matrices simply add up is assumed.)
#
# **Predict.** Two matrices have the same singular values and the same sensitivity; one is square, and the other is
# four times as long in one direction. Which gets the larger $r$? Now the square one is half as sensitive: does that
# change your answer?
#
# Write the function that chooses. (Four matrices of 64 singular values have {{ 65**4 / 1e6 : .0f }} million
# combinations of ranks, too many to try them all.) Ranks that fit and beat the best single $r$ earn part of the
# points, those within a tenth of the least loss more, and all points go to those within 1%.

# %% exercise
from collections.abc import Sequence


def choose_ranks(changes: Sequence[tuple[tuple[int, int], Sequence[float], float]], budget: int) -> list[int]:
    """An adapter's rank for each matrix, so that little of the loss is left.

    changes   one or more (shape, values, h): the shape (m, n) of a matrix; all singular values of its change, largest
              first; its sensitivity, a number above 0
    budget    numbers that all adapters may have together, which may be 0
    Returns   r for each matrix, in their order, each from 0 to the smaller of m and n: at most `budget` numbers
              together, r (m + n) of each. The sum of h times the squares of the values after the first r is at most
              1% more than the least possible. (Points are given for less than the best single r, and for within a
              tenth.)
    Example   For [((2, 2), [3.0, 1.0], 1.0), ((2, 6), [2.9, 2.0], 1.0)] and 12 numbers: [1, 1], which leaves 1 + 4.
              With 11 of them: [2, 0], which leaves 8.41 + 4.
    """
    states = {0: (0.0, ())}  # numbers spent: least loss, and the ranks that gave it
    for (m, n), values, h in changes:
        found = {}
        for numbers, (loss, ranks) in states.items():
            for r in range(min(len(values), (budget - numbers) // (m + n)) + 1):
                there = numbers + r * (m + n)
                longer = (loss + h * sum(value**2 for value in values[r:]), (*ranks, r))
                found[there] = min(longer, found.get(there, longer))
        states = found
    return list(min(states.values())[1])

# %%
check(choose_ranks)

# %%
from course.exercises.lora.choose_ranks import left, spent, uniform

falling = [1 / k for k in range(1, 65)]
for h in (1.0, 0.5) if solved(choose_ranks) else ():
    two = [((64, 64), falling, h), ((256, 64), falling, 1.0)]
    print(f"square with a sensitivity of {h}, and long with one of 1.0: {choose_ranks(two, 6_000)}")

shapes = {"q_proj": (64, 64), "v_proj": (64, 64), "up": (256, 64), "down": (64, 256)}
changes = [
    {"shape": shape, "values": [k**-power for k in range(1, 65)], "h": 1.0}
    for shape, power in zip(shapes.values(), (2.0, 0.7, 0.5, 1.0), strict=True)
]
question = {"changes": changes, "budget": 8 * sum(m + n for m, n in shapes.values())}
found = {"one r for all": uniform(question)}
if solved(choose_ranks):
    given = [(each["shape"], each["values"], each["h"]) for each in changes]
    found["chosen"] = choose_ranks(given, question["budget"])
for words, ranks in found.items():
    by_name = dict(zip(shapes, ranks, strict=True))
    print(f"{words:13} {by_name}: {spent(question, ranks):,} numbers, {left(question, ranks):.2f} of the loss left")

# %% [markdown]
# With half the sensitivity the two are nearly even: what a direction brings counts for each number that it costs, and
# half of $h$ over 64 + 64 numbers is little more than all of it over 256 + 64. Singular values that fall slowly cost
# much to follow, and those that fall fast are soon followed. AdaLoRA (arXiv
# 2303.10512) moves directions between matrices while it trains, because nobody has $\Delta$ beforehand.

# %% [markdown]
# # Part V: for real
#
# ## 16. Put together
#
# Your layer, your injection, your files and your mixed forward serve four dialects in one batch; the rows of the
# north use no adapter. Afterwards your `merge_` adds the southern adapter into the weights.

# %%
passed = parts.passed(globals(), solved)
print(parts.whose(passed))
for line in assembled_lora.served(parts.with_yours(passed), Path(folder.name)):
    print(line)
print(assembled_lora.merged(parts.with_yours(passed), Path(folder.name)))

# %% [markdown]
# To serve another dialect costs a small file and a little arithmetic, and a merged adapter costs no time at all. But a
# merged model serves one dialect only.
#
# What does each choice buy? The southern dialect once more, with one thing changed at a time.
#
# **Predict.** Which hurts more: $r = 1$ instead of 4, or adapters in attention alone? What does a tenth of our rate
# do?

# %%
for line in assembled_lora.variants(parts.with_yours(passed)):
    print(line)

# %% [markdown]
# Here, with one model and one seed, where adapters stand matters more than their $r$. The paper adapts queries and
# values alone, which on this small model is not enough; later work found that all linear layers should have one, and
# that $r$ matters little then (Dettmers et al., arXiv 2305.14314, section 4). LoRA's best rate in section
# {{ section_of_methods() }} was {{ rate_of("LoRA, r = 4") : g }}, that of full fine-tuning {{ rate_of("full") : g }}.
# With the rate kept, $\alpha$ works like a second rate (arXiv 2106.09685, section 4.1).
#
# ## The library
#
# peft (Hugging Face) is what most people use. It is not among the packages of this course; with it one writes
#
# ```python
# from peft import LoraConfig, get_peft_model
#
# layers = r"blocks\.\d+\.(attention\.\w+_proj|mlp\.(up|down))"
# config = LoraConfig(r=4, lora_alpha=16, target_modules=layers, bias="none")
# model = get_peft_model(small_gpt(), config)
# model.save_pretrained("south")  # adapter_config.json and adapter_model.safetensors
# ```
#
# The course's own tests hold it against our reference: with the same factors both have the same outputs and
# gradients, and each reads the other's files. Its `merge_and_unload()` is your `merge_`; its factors are called
# `lora_A` and `lora_B`, and their shapes are those of this lesson.
#
# ## At scale
#
# GPT-3 has {{ layers() }} layers with matrices of {{ width() }} by {{ width() }}. Hu et al. adapted the queries and
# values of all of them. Your formulas give

# %%
from course.planner.published import figures, planned

found = planned()
for name, each in figures().items():
    if name.startswith("adapter") or name in ("checkpoint, full", "checkpoint, r = 4"):
        error = found[name] / each.value - 1
        print(f"{name:17} published {each.value:12,.0f} {each.unit:7} formula {found[name]:12,.0f} ({error:+.1%})")

# %% [markdown]
# The last line is nearly all of the error: the paper says "roughly 35MB" of 18 million numbers in half precision
# (section 7.1), which are 36 MB. The paper also says that training needed 350 GB instead of 1.2 TB (section 4.2). It
# does not say what is counted; 16 bytes for each parameter, as in lesson 03, would be 2.8 TB.
#
# ## What to remember
#
# 1. What fine-tuning adds to a matrix stands mostly in some of its directions. LoRA allows only a few from the start.
# 2. $W + s B A$ with $B = 0$ begins as the base. $B$ moves first; as long as it is 0, $A$ gets no gradient.
# 3. Frozen weights have no gradients and no optimizer states: that is what LoRA itself saves in training. And they may
#    be held in fewer bits.
# 4. An adapter is a small file. Merged it costs no time; unmerged, one base serves many.
# 5. Where adapters stand, and the rate, matter more than $r$.
#
# ## What to read
#
# - Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, arXiv 2106.09685, sections 4, 5.5 and 7.
# - Aghajanyan et al., *Intrinsic Dimensionality Explains the Effectiveness of Language Model Fine-Tuning*, arXiv
#   2012.13255, section 4.
# - Dettmers et al., *QLoRA: Efficient Finetuning of Quantized LLMs*, arXiv 2305.14314, section 4.
#
# ## What this lesson simplified
#
# - A model of a few hundred thousand parameters, two dialects that share a grammar, one seed. On such a model an
#   adapter is a tenth of the weights; on a large one a thousandth.
# - No dropout in the adapter, which the paper uses for some tasks.
# - The floor is known here. With real text nobody knows it.
# - Adapters are served by one process, without the kernels that large servers have for it.

# %%
folder.cleanup()
progress()
