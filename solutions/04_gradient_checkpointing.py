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
# # 04 Gradient checkpointing
#
# **How little can backward remember?**
#
# At the end of this lesson you will be able to
#
# - go back through a chain with as many activations as you like, and say beforehand what that costs;
# - put a checkpoint around any function, whatever it draws and in whatever precision it computes;
# - choose what is recomputed: which blocks, which operators, which tiles of an attention;
# - plan the memory of a large model, and see where the time of a step goes.
#
# You need: backward by hand and `torch.autograd.Function` (lesson 01), autocast (lesson 03).
#
# None of the four parts needs another's answers. {{ workload(reading=75, sittings=4) }}

# %%
import torch

from course import check, hint, progress
from course.notebook.check import solved

torch.set_num_threads(1)  # the tensors here are small: a second thread costs more than it brings

# %% [markdown]
# # Part I: a chain
#
# ## 1. What backward needs
#
# Twelve layers, one after the other, have computed $y$. Backward has come to the eighth:

# %%
from course.lessons.experiments.chain import moments
from course.lessons.figures.chain import chain_at

chain_at({"keep all": moments("keep all", 12)}, 17, layers=12, title="Layer 8 goes back, and needs its input x7 for it")

# %% [markdown]
# A deep network is a chain: layer $i$ takes $x_{i-1}$ and gives $x_i$, from the input $x_0$ to the output $y = x_n$.
# One call of a layer's forward is an *evaluation*. Backward goes the other way. For a loss $\ell$, layer $i$ turns
# $\partial \ell / \partial x_i$ into $\partial \ell / \partial x_{i-1}$, and it needs its own input for this: the slope
# of $\sin$, say, depends on where it is taken. (Some layers keep their output instead, which is the next layer's
# input.) The input of a layer that is kept until then is an *activation*.
#
# Does autograd keep all of them? Count the tensors that are alive after twelve layers:

# %%
from course.meter import kept_bytes

with kept_bytes() as meter:
    x = torch.randn(256, 256, requires_grad=True)
    for _ in range(12):
        x = torch.sin(x)
print(f"{meter.bytes_alive() // x.nbytes} tensors of {x.nbytes / 2**20} MiB are alive")

# %% [markdown]
# It does: twelve inputs, and $y$. A layer's weights have one size, however many examples go through them.
# Activations grow with the batch. A linear layer of width $d = 1024$ has {{ linear_mib(1024) : .0f }} MiB of weights
# in float32. Its input has {{ input_mib(1024, 1, 1024) : .0f }} MiB for one sequence of $T = 1024$ tokens and
# {{ input_mib(1024, 32, 1024) : .0f }} MiB for $B = 32$ of them.
#
# Autograd does this for you. Here you do it yourself, with layers whose `forward` and `backward` are two separate
# methods. In code, layers count from 0: `chain[0]` is layer 1. `check` hands your function *tokens* in place of
# tensors. They have no numbers in them, so only the layers can compute with them, and `check` sees when each one is
# made and when it is gone.


# %% exercise
from typing import Any


def backward_keep_all(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """Forward and backward through a chain of layers, every one evaluated once.

    chain    n layers, n >= 1; a layer may stand in it twice. layer.forward(x) gives the layer's output, and is an
             evaluation. layer.backward(x, dy) takes the layer's input x and dy, the gradient with respect to its
             output, and gives the gradient with respect to x; a call of backward is no evaluation.
    x, dy    the chain's input, and the gradient of a loss with respect to the chain's output: tensors, or tokens that
             stand for them. Only layers compute with them.
    Returns  (y, dx): the chain's output, and the gradient with respect to its input
    Cost     each layer's forward once and each layer's backward once
    Example  Two layers square their input: x = 3 and dy = 1 give y = 81 and dx = 108.
    """
    inputs = []
    for layer in chain:
        inputs.append(x)
        x = layer.forward(x)
    for layer in reversed(chain):
        dy = layer.backward(inputs.pop(), dy)
    return x, dy


# %%
check(backward_keep_all)

# %% [markdown]
# ## 2. Keep nothing
#
# The other end: keep $x_0$, which the caller has anyway. Whenever a layer needs its input in backward, evaluate the
# layers before it once more, from $x_0$ on, and let each activation go as soon as the next one is there.
#
# **Predict.** A chain has twelve layers. How many evaluations does it take to get $y$ and then $\partial \ell /
# \partial x_0$?
#
# Press play, or move the slider.

# %%
from course.lessons.widgets.chain import watch_chain

watch_chain(12)

# %% [markdown]
# Memory no longer depends on the number of layers: two activations are alive, $x_0$ and the input of the layer at
# work. The price is {{ chain_evaluations("keep none", 12) }} evaluations in place of 12. Now write it. Beware of what
# Python keeps alive for you: a list, a variable, or a call that has not returned yet.
#
# Every exercise has three hints. The first of this one is:

# %%
hint("backward_keep_none", 1)


# %% exercise
from typing import Any


def backward_keep_none(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """Forward and backward through a chain of layers, with nothing kept but its input.

    chain    n layers, n >= 1, with forward(x) and backward(x, dy) as in backward_keep_all
    x, dy    the chain's input, and the gradient of a loss with respect to the chain's output: tensors, or tokens that
             stand for them. Only layers compute with them.
    Returns  (y, dx): the chain's output, and the gradient with respect to its input
    Cost     n for y, then i for the input of layer i = n - 1, ..., 0, counted from 0 as in chain[i]: so many
             evaluations, exactly; and one backward for each layer
    Memory   Whenever a layer is called, at most 3 activations are alive: x, the input of the layer at work, and one
             that Python may still hold in a variable. y does not count.
    Example  Two layers square their input: x = 3 and dy = 1 give y = 81 and dx = 108, with 3 evaluations.
    """
    y = x
    for layer in chain:
        y = layer.forward(y)
    for i in reversed(range(len(chain))):
        at = x
        for layer in chain[:i]:
            at = layer.forward(at)
        dy = chain[i].backward(at, dy)
    return y, dy


# %%
check(backward_keep_none)

# %% [markdown]
# The sum is
#
# $$n + (n-1) + \dots + 1 + 0 = \frac{n(n+1)}{2}.$$
#
# It grows with the square of $n$: for $n = 1000$ it is {{ (1000 + 1) / 2 : .1f }} times what keeping all takes.
#
# ## 3. Keep some
#
# In between, keep one activation in every $s$ over the forward pass: $x_0, x_s, x_{2s}, \dots$ These are
# *checkpoints*, and $s$ is the *spacing*. The layers from one checkpoint to the next are a *segment*. If $s$ does not
# divide $n$, the last segment is shorter.
#
# Backward takes the segments from the last to the first. It recomputes the inputs inside one segment from its
# checkpoint, goes back through the segment, and lets them go. Only what is needed is recomputed: the last segment's
# inputs are still there when backward begins, and the last output of any other segment was the next checkpoint, which
# has done its work.
#
# **Predict.** Twelve layers, and $s = 4$. How many activations are alive at the highest, and how many evaluations does
# it take?

# %%
watch_chain(12, 4)

# %% [markdown]
# {{ chain_highest("checkpoints", 12, 4) }} activations are alive at the highest, and it takes
# {{ chain_evaluations("checkpoints", 12, 4) }} evaluations: half the memory, for half as many evaluations again. Try
# other spacings. Which have the lowest peak? Two of them keep everything, for two different reasons.


# %% exercise
from typing import Any


def backward_checkpointed(chain: tuple[Any, ...], x: Any, dy: Any, every: int) -> tuple[Any, Any]:
    """Forward and backward through a chain of layers, with one checkpoint for each segment of `every` layers.

    chain    n layers, n >= 1, with forward(x) and backward(x, dy) as in backward_keep_all
    x, dy    the chain's input, and the gradient of a loss with respect to the chain's output: tensors, or tokens that
             stand for them. Only layers compute with them.
    every    the length of a segment: at least 1, and possibly more than n. Segments begin at chain[0], chain[every],
             chain[2 * every] and so on; the last one may be shorter.
    Returns  (y, dx): the chain's output, and the gradient with respect to its input
    Cost     n for y, and length - 1 for each segment but the last: so many evaluations, exactly; and one backward for
             each layer
    Memory   Whenever a layer is called, at most ceil(n / every) + min(n, every) activations are alive: the
             checkpoints, those of one segment, and one that Python may still hold in a variable. y does not count.
    Example  Five layers that add 1, with x = 0, dy = 1 and every = 2: y = 5, dx = 1, with 5 + 1 + 1 evaluations.
    """
    *segments, last = [chain[start : start + every] for start in range(0, len(chain), every)]
    checkpoints = []
    for segment in segments:
        checkpoints.append(x)
        for layer in segment:
            x = layer.forward(x)
    inputs = []
    for layer in last:
        inputs.append(x)
        x = layer.forward(x)
    for layer in reversed(last):
        dy = layer.backward(inputs.pop(), dy)
    for segment in reversed(segments):
        inputs = [checkpoints.pop()]
        for layer in segment[:-1]:
            inputs.append(layer.forward(inputs[-1]))
        for layer in reversed(segment):
            dy = layer.backward(inputs.pop(), dy)
    return x, dy


# %%
check(backward_checkpointed)

# %% [markdown]
# Let $s$ divide $n$. There are $n/s$ checkpoints, and the segment at work has $s - 1$ activations more. At the highest
#
# $$\text{activations alive} = \frac{n}{s} + s - 1, \qquad \text{evaluations} < 2n.$$
#
# No layer is evaluated more than twice, whatever the spacing. The first term falls with $s$, and the second one grows.
# Somewhere between lies the best spacing.

# %% [markdown]
# ## 4. Memory against time
#
# Which spacing has the lowest peak? The slope of $n/s + s$ is $1 - n/s^2$, so the least is at
#
# $$s = \sqrt n, \qquad \frac ns + s = 2 \sqrt n.$$
#
# A hundred layers need about twenty activations, and less than one forward pass more (Chen et al., arXiv 1604.06174,
# section 4.3). This assumes that all activations have the same size. Real ones differ. What do checkpoints cost on a
# chain of any sizes? Find it before anything runs:


# %% exercise
from itertools import pairwise


def chain_costs(sizes: list[int], cuts: list[int]) -> tuple[int, int]:
    """What backward through a chain costs if the inputs at `cuts` are its checkpoints; found before anything runs.

    sizes     bytes of each layer's input: ints of at least 1, one for each layer; n of at least 1. Layers count from 0.
    cuts      the layers whose inputs are checkpoints: 0 first, then increasing, all below n. A segment goes from a cut
              to the next, the last one to n. Neither list is changed.
    Forward   evaluates all n layers, and keeps the checkpoints; in the last segment it keeps every layer's input.
    Backward  takes the segments from the last to the first. It runs any but the last again from its checkpoint, keeping
              the inputs of its layers; its last layer is not evaluated again. What a segment kept is freed, with its
              checkpoint, before another segment is run again.
    Returns   (evaluations, peak), ints, exact at any size: calls of layers' forward in both passes; and the most bytes
              of inputs that are kept at one time. Gradients, and inputs that are not kept, do not count.
    Refused   with a ValueError: empty cuts, a first cut that is not 0, cuts that do not increase, a cut of n or more
    Example   sizes [4, 2, 8, 2, 2] and cuts [0, 3] give (7, 14).
    """
    n = len(sizes)
    if not cuts or cuts[0] != 0:
        raise ValueError(f"cuts must begin with 0, got {cuts}")
    segments = [*pairwise([*cuts, n])]
    if any(start >= end for start, end in segments):
        raise ValueError(f"cuts must increase and stay below n = {n}, got {cuts}")
    evaluations, checkpoints, peak = n, 0, 0
    for start, end in segments:
        checkpoints += sizes[start]
        peak = max(peak, checkpoints + sum(sizes[start + 1 : end]))
        if end < n:  # the last segment keeps its inputs
            evaluations += end - start - 1
    return evaluations, peak


# %%
check(chain_costs)

# %% [markdown]
# A block of a transformer is more than one such layer. Autograd keeps the inputs of its norms, products and GELU too:
# altogether $k$ times the block's own input, which alone serves as a checkpoint. In the GPT of the next cell $k$ is
# {{ found.block.ratio : .2f}}, and $n = $ {{ segments.CONFIG.layers }} blocks stand in a row.
#
# **Predict.** Cut the blocks into segments of $s$. Is the best $s$ equal to $\sqrt n$, larger or smaller? Write down
# the two terms of the peak, in inputs of a block.

# %%
from course.lessons.experiments import segments
from course.lessons.figures.segments import memory_and_time

recorded = segments.recorded()
print(recorded)
if solved(chain_costs):
    block, n, s = recorded.data.block, segments.CONFIG.layers, 4
    sizes = [block.input, block.kept - block.input] * n  # each block as two layers: its input, and what is inside
    peak = chain_costs(sizes, [2 * start for start in range(0, n, s)])[1]
    print(f"your chain_costs, {s} blocks in a segment: {peak / 2**20:.2f} MiB")
memory_and_time(recorded.data, segments.seconds(), title="Short segments lower the peak, the shortest do not")

# %% [markdown]
# The best $s$ is smaller. With $a$ bytes for the input of a block,
#
# $$\text{peak} \approx a \left(\frac ns + k s\right), \qquad \text{least at } s = \sqrt{n / k}: \quad 2 a \sqrt{n k}.$$
#
# Here that is {{ found.best : .1f}} blocks. What the step makes is counted, without parameters and their gradients. Its
# measured peak is {{ mib(found.peak(2)) : .1f}} MiB at $s = 2$, and {{ mib(found.peak(segments.CONFIG.layers)) : .1f}}
# MiB with one segment, which keeps everything. Every peak lies {{ above() : .2f}} MiB above the law: logits, and what
# operators work with. (`chain_costs` gives $a$ less than the law, because it counts the checkpoint of the segment at
# work once.) Below $2k$ blocks, segments of one block are best, and most programs checkpoint every block.
#
# On the right, short segments run nearly every block twice. Backward has about twice the products of forward, so one
# more forward adds about a third to the products. Here it adds more to the time: in a GPT this small, short operations
# count for much.

# %% [markdown]
# ## 5. How little is possible
#
# With checkpoints no layer has been evaluated more than twice so far. What if it may be evaluated three times, or ten?
# The rules:
#
# - There are $c$ *slots*, and each can keep one activation. At the start $x_0$ lies in one of them.
# - One activation more is *in hand*. Evaluating layer $i$ turns $x_{i-1}$ in hand into $x_i$. You may copy what is in
#   hand into a free slot, take a copy out of a slot, and empty a slot.
# - Layer $i$ goes backward when $x_{i-1}$ is in hand and all layers after it are done. This is no evaluation. The
#   gradient with respect to $x_n$ is given, and nobody asks for $y$.
# - No layer is evaluated more than $t$ times. Call these $t$ *sweeps*.
#
# **Predict.** Ten slots and 2 sweeps reverse a chain of {{ longest_chain(10, 2) }} layers. About how many do ten slots
# and 4 sweeps reverse: twice as many, four times, or fifteen times?
#
# Now find the longest chain for any $c$ and $t$. Where would you put the first checkpoint after $x_0$, and what is left
# for the layers on each side of it?


# %% exercise
def longest_chain(slots: int, sweeps: int) -> int:
    """The most layers that can go backward by the rules above.

    slots    how many activations can be kept at one time, x_0 among them, besides the one in hand: at least 1
    sweeps   the most evaluations of any one layer: at least 0
    Returns  the number of layers, an int. It is exact for slots and sweeps of up to 200 each, and found in at most one
             second.
    Example  longest_chain(1, 2) = 3. Walk from x_0 to x_2: layer 3 goes backward. Walk again, to x_1: layer 2. Then x_0
             from its slot: layer 1, which has been evaluated twice.
    """
    longest = [1] * (sweeps + 1)  # no slot: the activation in hand is good for one layer
    for _ in range(slots):
        for used in range(1, sweeps + 1):
            longest[used] += longest[used - 1]
    return longest[sweeps]


# %%
check(longest_chain)

# %%
if solved(longest_chain):
    for sweeps in range(1, 6):
        print(f"10 slots, sweeps: {sweeps}, layers: {longest_chain(10, sweeps):5,d}")
    both = next(each for each in range(1, 100) if longest_chain(each, each) >= 10**6)
    print(f"a million layers: {both} slots and {both} sweeps")
else:
    print("Your numbers appear here once longest_chain passes.")

# %% [markdown]
# Fifteen times: {{ longest_chain(10, 4) : ,d}} layers. Let the first checkpoint be $x_k$. The layers after it go
# backward with one slot less. Then its slot is free, and the $k$ layers before it have all slots, but have used a
# sweep. So $m(c, t) = m(c, t-1) + m(c-1, t)$, which is Pascal's triangle:
#
# $$n = \binom{c + t}{c}$$
#
# (Griewank and Walther, Algorithm 799: revolve, ACM TOMS 26, 2000).
#
# - **Few sweeps.** For a fixed $t$, $n$ is about $c^t / t!$, so $c$ grows as $n^{1/t}$. Two sweeps need about
#   $\sqrt{2n}$ slots. Equal segments need $2\sqrt n$: as backward frees their checkpoints, the slots stay empty, where
#   longer segments at the beginning could use them.
# - **Few of both.** With $c = t$, $n$ is about $4^c / \sqrt{\pi c}$. A million layers need {{ both(10**6) }} slots and
#   {{ both(10**6) }} sweeps.
#
# So this is how little backward can remember: a few more than $\log_4 n$ activations, if each layer may be evaluated as
# often (Griewank, Optimization Methods and Software 1, 1992). With a single slot memory does not grow at all, but layer
# 1 is evaluated $n - 1$ times. Most programs stop at two sweeps, because each one more can cost a forward pass.

# %% [markdown]
# # Part II: any function
#
# ## 6. A checkpoint around any function
#
# A chain whose layers come with a `backward` of their own is a special case. In PyTorch a block is a function, and
# autograd knows how to differentiate it. So a checkpoint can be a function too: `checkpoint(fn, *args)` returns what
# `fn(*args)` returns, keeps `args`, and calls fn again when backward arrives. A `torch.autograd.Function` has the two
# places for it. Its `forward` runs without recording, and what its `backward` computes may itself use autograd.
#
# The gradient is right only if the second run computes what the first one did. It has the same arguments, but that is
# not all that a function depends on. Here is a checkpoint with the second run left out, to look at the two moments:


# %%
class TwoMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print("forward: ", surroundings())
        return x * 1

    @staticmethod
    def backward(ctx, dy):
        print("backward:", surroundings())
        return dy


def surroundings():
    recording, cast = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    with torch.random.fork_rng(devices=[]):
        return f"recording {recording!s:5}   autocast {cast!s:5}   the next random number {torch.rand(()).item():.4f}"


torch.manual_seed(0)
with torch.autocast("cpu", dtype=torch.bfloat16):
    looked_at = TwoMoments.apply(torch.ones(3, requires_grad=True))
    torch.rand(5)  # what a layer after it would draw
looked_at.sum().backward()

# %% [markdown]
# **Predict.** fn holds a dropout layer and a matrix product. For each of the three columns: what goes wrong in backward
# if the second run finds it as it stands in the second line?


# %% exercise
from collections.abc import Callable
from typing import Any

import torch


def checkpoint(fn: Callable[..., Any], *args: Any) -> Any:
    """Returns fn(*args), and keeps of it nothing but args: backward runs fn again.

    fn        returns a tensor, or a tuple of tensors (integer and detached ones and args too) and None. It may hold
              parameters that are not among args, but not return one; draw random numbers of torch on the CPU; and call
              checkpoint itself. A detached output may come back with requires_grad
    args      tensors, views among them, in any floating dtype or integer; the same one twice; None, numbers. Some
              require a gradient and some do not; at least one does
    Backward  is called with `.backward()`, once, on any of the outputs. It gives args and parameters the gradients that
              fn alone would give them; zeros may stand for no gradient
    Calls     fn once in forward and once in backward; once in all under torch.no_grad()
    Memory    from forward to backward: the tensors of args, no copies, and up to 8 KiB besides, in which a random state
              of torch's does not count
    Random    the second run draws what the first one drew. What the program draws after forward, and after backward, is
              what it would draw if fn had run once
    Autocast  the second run, but not its backward, is under the CPU autocast of the first, on or off and with its
              dtype, wherever backward is called. It leaves no cast of a parameter for a later step, which has an
              autocast of its own
    Example   with fn = lambda x: x.sin() * 2, checkpoint(fn, x).sum().backward() adds 2 cos(x) to x.grad.
    """

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            ctx.save_for_backward(*(arg for arg in args if isinstance(arg, torch.Tensor)))
            ctx.others = [arg for arg in args if not isinstance(arg, torch.Tensor)]
            ctx.are_tensors = [isinstance(arg, torch.Tensor) for arg in args]
            ctx.state = torch.get_rng_state()
            ctx.autocast = {"enabled": torch.is_autocast_enabled("cpu"), "dtype": torch.get_autocast_dtype("cpu")}
            return fn(*args)

        @staticmethod
        def backward(ctx, *grads):
            tensors = iter([each.detach().requires_grad_(each.requires_grad) for each in ctx.saved_tensors])
            others = iter(ctx.others)
            args = [next(tensors if is_tensor else others) for is_tensor in ctx.are_tensors]
            with torch.random.fork_rng(devices=[]), torch.enable_grad(), torch.autocast("cpu", **ctx.autocast):
                torch.set_rng_state(ctx.state)
                outputs = fn(*args)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            pairs = [(y, dy) for y, dy in zip(outputs, grads, strict=True) if y is not None and y.requires_grad]
            torch.autograd.backward([y for y, _ in pairs], [dy for _, dy in pairs])
            return tuple(getattr(arg, "grad", None) for arg in args)

    return Twice.apply(*args)


# %%
check(checkpoint)

# %% [markdown]
# The random number gives another mask: the gradient then belongs to a loss that was never computed, and nothing raises
# an error. The missing autocast gives another rounding. Without recording there is nothing to call backward on.
#
# Your checkpoint is what PyTorch calls *reentrant*: its backward starts another backward. The other kind, with
# `use_reentrant=False`, lets autograd record the first run, and puts hooks where the graph would keep a tensor: the
# first tensor that backward asks for makes them run fn again. The table tries both kinds: "yes" where the gradient
# arrives, "no" where it does not and nothing is raised, else the error. PyTorch's documentation of
# `torch.utils.checkpoint` names the same differences, and recommends the second kind.

# %%
from course.lessons.experiments import reentrant

print(reentrant.table(reentrant.tried()))

# %% [markdown]
# In the first row the reentrant kind raises no error (it warns, which is hidden here). A `Function` none of whose
# tensors requires a gradient is no part of the graph, so a first layer that gets data and holds all its parameters in a
# closure is never trained. A tensor in a dict is no argument of the `Function`, and gets no gradient either. The last
# row is a saving: "yes" means that the second run ends as soon as the last kept tensor has been made.
#
# ## 7. Find the fault: two training steps
#
# Both programs train a chain of four equal layers; `draw` is a generator of their own, and `checkpoint` is PyTorch's,
# not reentrant. The list `means` collects the mean of |h| of the last layer for a plot.

# %%
from course.lessons.experiments import checkpoint_runs

for name in checkpoint_runs.PROGRAMS:
    print(checkpoint_runs.PROGRAMS.listing(name), end="\n\n")

# %% [markdown]
# Each runs {{ len(steps_of("masked").losses) }} steps on one batch, first with checkpoints and then plain, where
# `checkpoint(layer, ...)` only calls the layer. The bytes are those of all tensors made in the program that are alive
# at once.
#
# **Predict.** In one program the losses of the two runs differ. Which one, and from which step on: the first or the
# second?

# %%
for name in checkpoint_runs.PROGRAMS:
    given = checkpoint_runs.example()
    with_checkpoints, plain_run = (checkpoint_runs.run(name, checkpointed=each, **given) for each in (True, False))
    print(name, checkpoint_runs.table(with_checkpoints, plain_run), sep="\n", end="\n\n")

# %% [markdown]
# - `masked` begins with the plain run's loss and leaves it in the second step. By then two things are wrong: the first
#   gradient, and `draw`, which the second runs have moved on.
# - `watched` has the plain losses, and needs {{ more_each_step("watched") : .0f }} KiB more in every step. So does its
#   plain run: the line is at fault, not the checkpoint. From the fifth step on, the program with checkpoints needs more
#   than a plain one without the fault.
#
# Mend one line of each.


# %% exercise
def mend_the_steps() -> dict[str, tuple[int, str]]:
    """The wrong line of each of the two programs above, and how it must read.

    Returns   for "masked" and "watched" the number of a line as it is printed above, and the line that replaces it, a
              str without a line break. Its indentation is kept, and may be left out; `torch` is imported.
    Judged    by the losses and means of the program with your line in it, which are those of its plain run, and by the
              bytes alive at the highest of each step, on other numbers; any spelling of a cure is right. Masks still
              come from `draw`. Bytes may be a quarter above ours.
    Example   {"masked": (2, "losses, means = [], [0]"), ...} would replace the second line of `masked`.
    """
    return {
        "masked": (
            6,
            "layer = lambda h, m=torch.rand(h.shape, generator=draw) < keep: (h @ w).sin().exp().cos() * m",
        ),  # drawn where the layer is made, once
        "watched": (9, "means.append(h.abs().mean().item())"),  # a number holds no graph
    }


# %%
check(mend_the_steps)

# %% [markdown]
# ## 8. Where to cut
#
# The blocks of a real model differ in bytes, and in what it costs to run them again. Most budgets are neither so small
# that every block must be run again nor so large that none must. *Which* blocks, in which segments?
#
# For block $i$ let $a_i$ be the bytes of its input, and $b_i$ those of its *inside*: all that autograd keeps of one
# forward of the block besides its input and its output. (The output is the next block's input.) A *plan* is a list of
# segments. A block outside of all segments keeps $a_i + b_i$ from forward to backward; a segment keeps only the input
# of its first block.
#
# Two moments decide whether a plan fits. After the forward, all that is kept is live. When backward has run a segment
# again, three things are live: what the blocks *before* it keep, its checkpoint, and all that its blocks have kept this
# time. What stood after the segment is gone by then.
#
# Does torch's checkpoint follow this rule on a GPT? We measure $a_i$ and $b_i$ of its twelve blocks. The `rest` at the
# peak belongs to no block: the loss, and the gradients that backward works with. Below, the peaks of three plans are
# predicted and measured. (`rest` is taken from the first of them, so only the other two test the rule. Weights and
# their gradients are not counted.)

# %%
from course.lessons.experiments import planned

model, batch = planned.problem()
bytes_, cost, rest = planned.measured(model, batch)
print(f"a block: input {bytes_[0][0]:,} bytes, inside {bytes_[0][1]:,} bytes; rest {rest:,} bytes")
for plan in ((), ((0, 12),), ((0, 4), (4, 8), (8, 12))):
    predicted = planned.predicted_peak(bytes_, rest, plan)
    peak = planned.step(model, batch, plan).peak
    print(f"{plan!s:30} predicted {predicted / 2**20:5.2f} MiB, measured {peak.live / 2**20:5.2f} MiB")

# %% [markdown]
# The rule predicts what the meter sees, and one segment of all twelve blocks saves nothing: when it is run again, all
# of it is live.
#
# **Predict.** All blocks of this GPT are equal. Six of them may keep everything; the other six form two segments of
# three. Should the six that keep everything be the first or the last? Or does it not matter?

# %%
for words, plan in {"the first six": ((6, 9), (9, 12)), "the last six": ((0, 3), (3, 6))}.items():
    run = planned.step(model, batch, plan)
    print(f"{words} keep everything: peak {run.peak.live / 2**20:5.2f} MiB, {sum(run.flops.values()) / 1e9:.2f} GFLOP")

# %% [markdown]
# The last six: {{ six(first=False) : .1f }} MiB instead of {{ six(first=True) : .1f }}, for as many blocks run again
# and the same FLOPs. Backward frees what the last blocks keep before it comes to the segments, and these are run again
# in the room that was freed. What the first blocks keep stays until the end.
#
# Where blocks differ, it is not so simple: an expensive block early in the row may deserve its room. Find the cheapest
# plan. Yours is judged by its cost and by what is live, so it need not be ours.


# %% exercise
def best_cuts(bytes_: list[tuple[int, int]], cost: list[int], budget: int) -> list[tuple[int, int]]:
    """The cheapest plan of checkpointed segments that fits a budget.

    bytes_   for each block of a row (bytes of its input, bytes kept inside it), in units
    cost     for each block what running it again costs. All of these are ints of at least 1; there are at most 200
             blocks.
    budget   the most that may be live, in units: at most 200 units. It may be used to the last unit.
    Plan     segments (start, end) of the blocks start, ..., end - 1, sorted; no block is in two. Its cost is the sum of
             the costs of all blocks in segments.
    Kept     of a segment the input of its first block; of a block in no segment its input and its inside
    Live     after the forward: all that is kept. When backward has run a segment again: what is kept of the blocks
             before it, and all inputs and insides of its own blocks, its checkpoint counted once.
    Returns  the list of segments: none where everything fits. Any plan of least cost is right.
             Neither list is changed.
    Refused  with a ValueError: a budget in which no plan fits
    Example  bytes_ = [(1, 5), (1, 5), (1, 5)], cost = [2, 3, 4]. All of it is 18. With a budget of 13 it returns
             [(0, 1)]: 1 + 6 + 6 = 13 are kept, and 6 are live in the segment. With 12 it returns [(0, 2)]: 1 + 6 = 7
             are kept, and 12 are live in the segment.
    """
    n = len(bytes_)
    table = [{0: (0, [])}] + [{} for _ in range(n)]  # table[i][kept] = cost and plan of the first i blocks

    def offer(i, kept, spent, plan):
        if kept <= budget and (kept not in table[i] or spent < table[i][kept][0]):
            table[i][kept] = spent, plan

    for i, (given, inside) in enumerate(bytes_):
        for kept, (spent, plan) in table[i].items():
            offer(i + 1, kept + given + inside, spent, plan)
            live, again = kept, spent
            for end in range(i + 1, n + 1):
                live, again = live + sum(bytes_[end - 1]), again + cost[end - 1]
                if live > budget:
                    break
                offer(end, kept + given, again, [*plan, (i, end)])
    if not table[n]:
        raise ValueError(f"no plan fits {budget}")
    return min(table[n].values(), key=lambda found: found[0])[1]


# %%
check(best_cuts)

# %% [markdown]
# Now on the GPT, in units of the {{ planned.UNIT // 2**10 }} KiB that one input takes. The cost of a block is the FLOPs
# of its forward.

# %%
if solved(best_cuts):
    units = planned.in_units(bytes_)
    for budget in (30, 60, 100, 150):
        plan = best_cuts(units, cost, budget)
        room = (budget * planned.UNIT + rest) / 2**20
        run = planned.step(model, batch, plan)
        again = sum(end - start for start, end in plan)
        print(f"room {room:5.2f} MiB, peak {run.peak.live / 2**20:5.2f}, {again:2} blocks again: {plan}")
else:
    print("This cell needs your `best_cuts`.")

# %% [markdown]
# No peak exceeds its room. (Some room stays unused, because a block fills {{ block_units() }} units at once.) Torch
# runs a little less again than our costs say: it stops when the last tensor that backward needs is there
# (`set_checkpoint_early_stop` in `torch.utils.checkpoint`), and does not compute a segment's output.
#
# ## 9. Cut inside a block
#
# A block need not be kept or dropped as a whole. Here is what its forward computes, with the bytes of the results and
# the FLOPs of products.

# %%
from course.lessons.experiments import selective

print(selective.table(selective.ops(), "KiB of results"))

# %% [markdown]
# Only {{ spelled(len(products())) }} kinds of op have FLOPs that count. All others read and write their tensors once,
# and are quick to run again. A *selective* checkpoint therefore saves some results and recomputes the rest. A *policy*
# says which, by the name of the op.
#
# **Predict.** A policy saves the results of products only. An ordinary forward keeps {{ kept_by_all() : .0f }} KiB
# besides input and output. Is more or less than half of it still kept? And how many FLOPs of products are run again?


# %% exercise
def policy(op_name: str) -> str:
    """Whether a selective checkpoint saves the result of an op, or recomputes it in backward.

    op_name  an op of ATen that a forward calls, by its full name, in any overload: "aten.mm.default"
    Returns  "save" for products. Of matrices: mm, addmm, bmm and baddbmm, and no others. Convolutions: names that
             contain convolution. Attention's fused kernels: names that begin with _scaled_dot_product. "recompute" for
             everything else. For a view (t, view, transpose), which has no bytes of its own, either word is right.
    Example  policy("aten.addmm.default") returns "save", policy("aten.gelu.default") returns "recompute".
    """
    name = op_name.split(".")[1]
    if name in ("mm", "addmm", "bmm", "baddbmm") or "convolution" in name:
        return "save"
    return "save" if name.startswith("_scaled_dot_product") else "recompute"


# %%
check(policy)

# %% [markdown]
# Torch asks such a policy for every op, if it is told so, as the code that is printed here does. It hands over the op,
# whose text is the full name.

# %%
import inspect

print(inspect.getsource(selective.with_policy))
ways = {"keep all": selective.keep_all, "checkpoint": planned.torchs}
if solved(policy):
    ways["your policy"] = selective.with_policy(policy)
print(selective.table({words: selective.cost(way) for words, way in ways.items()}, "KiB kept besides input and output"))

# %% [markdown]
# The policy keeps {{ 100 * share_kept() : .0f }}% of the bytes and runs {{ spelled(flops_again()) }} FLOPs of products
# again. The plain checkpoint keeps only the input, and adds {{ 100 * share_again() : .0f }}% to the FLOPs. (Not a
# third: torch stops before the block's last product.)
#
# It could be better still. Torch saves the *result* of each product, and backward needs its *inputs*: the result of the
# last product is only added to x, and is saved for nothing. If a softmax is written out, its products are saved too,
# with a result of $T \times T$ numbers for each head. Selective recomputation as Korthikanti et al. (arXiv 2205.05198,
# section 5) propose it decides that the other way round: it recomputes everything between the projections to queries,
# keys and values and the output projection, where bytes are many and FLOPs are few. Often the name of an op tells these
# products from others: a softmax that is written out calls `bmm`, and `nn.Linear` calls `addmm` or `mm`. But a linear
# layer written with `einsum` may call `bmm` too. Torch's policy gets the arguments as well: you can look at their
# shapes there.

# %% [markdown]
# # Part III: inside one operation
#
# ## 10. Attention without its matrix
#
# With T queries and T keys, attention computes T × T scores, takes the softmax of each row, and multiplies by the
# values. Autograd keeps the T × T probabilities for backward. Checkpointing the layer would drop them between the
# passes, but in backward the whole matrix exists again, as probabilities and as their gradient. Can each small part of
# it be made, used and dropped?
#
# The obstacle is the softmax: a row's probabilities need the sum over the whole row. Milakov and Gimelshein
# ([arXiv 1805.02867](https://arxiv.org/abs/1805.02867), section 3) compute that sum in one pass over the row, the
# *online* softmax. Rabe and Staats ([arXiv 2112.05682](https://arxiv.org/abs/2112.05682)) and Dao et al.
# (FlashAttention, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135), algorithm 1) build attention on it. A *tile* is
# the scores of a block of queries with a block of keys.

# %%
from course.lessons.figures.tiles import online_row

online_row(scores=[2.0, 1.0, 3.0, 0.5, 6.0, 4.0, 5.0, 1.5], block=2)

# %% [markdown]
# The picture follows one query through four tiles of two keys. Terms are relative to the largest score *so far*, so
# that no exp overflows. The last panel shows what all terms weigh once the fourth tile is seen.
#
# In the exercise three things are carried from tile to tile. What must happen to them when the largest score rises is
# for you to find.


# %% exercise
import math

import torch
from torch import Tensor


def attention_tiled(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> tuple[Tensor, Tensor]:
    """softmax(q k^T / sqrt(d)) v, one tile of scores at a time.

    q        (..., T, d), with any number of the same leading dimensions (batch, heads) in q, k and v
    k, v     (..., S, d) and (..., S, e), in the dtype of q: any floating dtype; views too. T, S, d, e are at least 1.
             They are not changed and require no gradient; any size of scores that float32 holds.
    block    queries and keys of a tile, at least 1; T and S need be no multiples of it, and may be smaller
    causal   whether query i sees keys 0 to i only; then T = S
    Returns  out (..., T, e) in q's dtype, and lse (..., T), the logarithm of the sum of exp over a row of scaled scores
             that the query sees: in float32, or in float64 where q is. All arithmetic is in that dtype.
    Cost     no tensor has more numbers than the largest of q, k, v, out and a tile (block × block for each leading
             index)
    Refused  with a ValueError: a block below 1, causal where T differs from S
    Example  d = 1, q = [[0.0]], k = [[1.0], [5.0]], v = [[2.0], [4.0]], block = 1: out = [[3.0]], lse = [log 2]
    """
    if block < 1 or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError(f"got a block of {block} for {q.shape[-2]} queries and {k.shape[-2]} keys")
    dtype = torch.promote_types(q.dtype, torch.float32)
    outs, logs = [], []
    for start in range(0, q.shape[-2], block):
        x = q[..., start : start + block, :].to(dtype) / math.sqrt(q.shape[-1])
        top = x.new_full((*x.shape[:-1], 1), -torch.inf)
        total = torch.zeros_like(top)
        out = x.new_zeros(*x.shape[:-1], v.shape[-1])
        for at in range(0, start + x.shape[-2] if causal else k.shape[-2], block):
            scores = x @ k[..., at : at + block, :].to(dtype).mT
            if causal:
                rows, columns = torch.arange(scores.shape[-2]), torch.arange(scores.shape[-1])
                scores.masked_fill_(at + columns > (start + rows)[:, None], -torch.inf)
            higher = torch.maximum(top, scores.amax(-1, keepdim=True))
            shrink, p = (top - higher).exp(), (scores - higher).exp()
            total = total * shrink + p.sum(-1, keepdim=True)
            out = out * shrink + p @ v[..., at : at + block, :].to(dtype)
            top = higher
        outs.append((out / total).to(q.dtype))
        logs.append((top + total.log()).squeeze(-1))
    return torch.cat(outs, -2), torch.cat(logs, -1)


# %%
check(attention_tiled)

# %% [markdown]
# Backward needs the probabilities again. They are not kept: this is checkpointing inside one operation, with lse as
# the smallest of checkpoints. One number for each query turns any score back into its probability.
#
# One more sum seems to run over a whole row. With p the probabilities of a row and dp their gradients, the gradient of
# a score is p (dp − D), where D is the mean of dp weighted by p. But out is the mean of the values with the same
# weights, and dp is the dot product of dout with each value. So D needs no scores at all: two rows that backward
# already has are enough. FlashAttention's backward (arXiv 2205.14135, appendix B.2) goes this way.


# %% exercise

import torch
from torch import Tensor


def attention_tiled_backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, block: int, causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, from that of out; one tile of probabilities at a time.

    q, k, v    (..., T, d), (..., S, d) and (..., S, e) with any number of leading dimensions, as attention_tiled takes
               them: any floating dtype; views too
    out, lse   what attention_tiled returned for them
    dout       like out, its gradient. None of them is changed; none requires a gradient.
    block      queries and keys of a tile, at least 1; T and S need be no multiples of it, and may be smaller
    causal     hides the same scores as forward did; then T = S
    Returns    dq, dk and dv, each in its tensor's dtype; all arithmetic is in the dtype of lse
    Cost       no tensor has more numbers than the largest of q, k, v, out and a tile (block × block for each leading
               index)
    Refused    with a ValueError: a block below 1, causal where T differs from S
    Example    T = S = d = e = 1: the probability is 1 whatever the score, so dq = dk = 0 and dv = dout
    """
    if block < 1 or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError(f"got a block of {block} for {q.shape[-2]} queries and {k.shape[-2]} keys")
    dtype = torch.promote_types(q.dtype, torch.float32)
    scale = 1 / math.sqrt(q.shape[-1])
    along = (dout.to(dtype) * out.to(dtype)).sum(-1, keepdim=True)
    dq, dk, dv = (torch.zeros(x.shape, dtype=dtype, device=x.device) for x in (q, k, v))
    for at in range(0, k.shape[-2], block):
        keys = slice(at, at + block)
        k_at, v_at = k[..., keys, :].to(dtype), v[..., keys, :].to(dtype)
        for start in range(at if causal else 0, q.shape[-2], block):
            rows = slice(start, start + block)
            q_at, dout_at = q[..., rows, :].to(dtype), dout[..., rows, :].to(dtype)
            scores = q_at @ k_at.mT * scale
            if causal:
                i, j = torch.arange(scores.shape[-2]), torch.arange(scores.shape[-1])
                scores.masked_fill_(at + j > (start + i)[:, None], -torch.inf)
            p = (scores - lse[..., rows, None]).exp()
            ds = p * (dout_at @ v_at.mT - along[..., rows, :]) * scale
            dq[..., rows, :] += ds @ k_at
            dk[..., keys, :] += ds.mT @ q_at
            dv[..., keys, :] += p.mT @ dout_at
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


# %%
check(attention_tiled_backward)

# %% [markdown]
# The meter now runs three ways to do the same attention, forward and backward, with T from {{ shortest }} to
# {{ longest : , }}: the explicit softmax, tiles of {{ tile }} × {{ tile }} by your two functions (left out until both
# are right), and torch's fused kernel.
#
# **Predict.** From one T to the next, T doubles. By which factor do the bytes kept for backward grow in the explicit
# softmax, and by which in tiles? Does the largest tensor of the tiled one grow at all?

# %%
from course.lessons.experiments.attention_bytes import measured
from course.lessons.figures.tiles import attention_bytes

yours = solved(attention_tiled) and solved(attention_tiled_backward)
rows = measured((attention_tiled, attention_tiled_backward) if yours else None)
attention_bytes(rows)

# %% [markdown]
# Besides q, k and v, at T = {{ longest : , }} the explicit softmax keeps {{ kept_mib('explicit') : .1f }} MiB, the
# fused kernel {{ kept_mib('fused') : .2f }} MiB: out and one number for each query, as in tiles. On these axes a slope
# of 2 is T², and a slope of 1 is T. So what is kept doubles with T in tiles, and grows fourfold with the whole matrix.
# The largest tensor of the tiled one is a tile, as long as q and out are smaller. What the fused kernel uses inside is
# not a tensor that the meter could see.
#
# The price is the recomputation of the scores in backward: one product of five there that forward had done already.
# On a GPU the tiles stay in the memory of the chip, and the slow memory outside of it is read and written less: Dao et
# al. report more FLOPs and less time than standard attention (arXiv 2205.14135, figure 2).

# %% [markdown]
# ## 11. Nothing kept (bonus)
#
# A checkpoint is still an activation that is kept. A reversible block keeps none: its input can be computed from its
# output. It splits the features into two halves, x = (x1, x2), and adds to each a function of the other:
#
# $$y_1 = x_1 + f(x_2), \qquad y_2 = x_2 + g(y_1)$$
#
# (Gomez et al., arXiv 1707.04585, section 3.1). Whatever f and g are, the block can be undone. Backward then needs the
# tensors of one block at a time, however long the chain.

# %% exercise
from typing import Any

import torch
from torch import Tensor


def reversible_backward(
    block: Any, y: tuple[Tensor, Tensor], dy: tuple[Tensor, Tensor]
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Rebuilds the input of a reversible block from its output, and goes back through the block.

    block       has block.f and block.g, nn.Modules, which may hold others, mix rows, and be one and the same:
                y1 = x1 + f(x2), then y2 = x2 + g(y1). Each returns the same for the same input: a tensor of its shape,
                which may be the input itself, and which depends on it and on each of the layer's parameters
    y, dy       pairs (y1, y2) and (dy1, dy2): the block's output, and the gradient of a loss with respect to it. All
                four are of one shape, float32 or float64. They may be views, and may require a gradient
    Returns     (x1, x2), (dx1, dx2): the block's input, and the gradient with respect to it, in the same dtype. They
                require no gradient, and hold no graph
    Parameters  Gradients of f's and g's parameters are added to what stands in .grad. Some may be frozen: they stay as
                they are
    Unchanged   y and dy stay as they are. Recording may be on or off where this is called, and is so afterwards
    Cost        f and g are each called once
    Example     f(v) = 2 v, g(v) = 3 v, y = (5, 17) and dy = (1, 1): x = (1, 2) and dx = (4, 9)
    """
    (y1, y2), (dy1, dy2) = ([each.detach() for each in pair] for pair in (y, dy))
    with torch.enable_grad():
        y1_leaf = y1.detach().requires_grad_()
        g = block.g(y1_leaf)
    g.backward(dy2)
    x2, dx1 = y2 - g.detach(), dy1 + y1_leaf.grad
    with torch.enable_grad():
        x2_leaf = x2.detach().requires_grad_()
        f = block.f(x2_leaf)
    f.backward(dx1)
    return (y1 - f.detach(), x2), (dx1, dy2 + x2_leaf.grad)


# %%
check(reversible_backward)

# %% [markdown]
# A subtraction undoes an addition only up to rounding, and each block begins from what the last one rebuilt. The next
# cell sends numbers of about 1 through a chain of blocks (f and g are a norm and a linear layer), rebuilds them by your
# function, and compares.
#
# **Predict.** After one block the error is about one rounding. Is it still harmless after 64 blocks, in float32 and in
# bfloat16?

# %%
from course.lessons.experiments import rebuilt

if solved(reversible_backward):
    print(rebuilt.table(reversible_backward))
else:
    print("This cell needs your `reversible_backward`.")

# %% [markdown]
# Errors add up along the chain, and each block passes them on. After {{ rebuilt.DEPTHS[-1] }} blocks of this kind
# float32 still has {{ rebuilt_digits() }} digits of x, and bfloat16 has none. Other blocks may enlarge errors faster.

# %% [markdown]
# # Part IV: the whole step
#
# ## 12. The whole budget
#
# A step holds more than activations: *states*, which are parameters, gradients, Adam's moments and perhaps a master
# copy (lesson 03), and buffers. The *planner*, `course/planner/memory.py`, adds these up before anything runs. It knows
# two published formulas for the bytes of activations in $L$ layers, with $B$ sequences of $T$ tokens, width $d$ and $h$
# heads:
#
# - $24\, T B d\, L$: 12 values per token, unit of width and layer (Rajbhandari et al., *ZeRO*, arXiv 1910.02054,
#   section 3.2, footnote 3), of 2 bytes, with which their 60 GB come out;
# - $T B d\, (34 + 5\, h T / d)\, L$ (Korthikanti et al., arXiv 2205.05198, section 4.1, equation 1).
#
# **Predict.** GPT-2 with {{ GPT2.parameters / 1e9 : .1f }} billion parameters has $d = {{ GPT2.width }}$,
# $h = {{ GPT2.heads }}$ and $L = {{ GPT2.layers }}$; let $B$ be {{ SETTING.size }}. How many times as large as the
# first formula is the second at $T = {{ SETTING.sequence }}$? Which of them changes if $T$ is halved and $B$ doubled?
# Then try it on the board.

# %%
from course.lessons.widgets.budget import budget_board

budget_board()

# %% [markdown]
# {{ planned_gb("Korthikanti et al.") / planned_gb("ZeRO") : .2f }} times: {{ planned_gb("Korthikanti et al.") : .0f }}
# instead of {{ planned_gb("ZeRO") : .0f }} GB. With half of $T$ and twice $B$ only the second changes; only there does
# *selective* recomputation help, which drops the 5. *Full* keeps a checkpoint of $2\, T B d$ bytes per layer, and in
# backward the activations of one layer.
#
# The formulas count different things. ZeRO gives a total without a list of tensors. In the other, $34$ stands for $16$
# tensors of width $d$ in 2 bytes, and two dropout masks of 1 byte. The 5 bytes are for each head and pair of tokens:
# softmax's output in 2 bytes, a dropout mask, and the dropout's output in 2.
#
# How many tensors of the size of $x$ does our own block keep?

# %%
from course.lessons.models import Block, GPTConfig
from course.meter import metered

batch, tokens, width, heads = 4, 128, 64, 4
block = Block(GPTConfig(vocabulary=64, context=tokens, width=width, heads=heads, layers=1))
x = torch.randn(batch, tokens, width, requires_grad=True)
with metered() as run:
    y = block(x)
print(f"{run.kept() / x.nbytes} tensors of the size of x, {run.kept() / 2**20:.2f} MiB in {x.dtype}")

# %% [markdown]
# The same $16$, here in 4 bytes and without masks, because there is no dropout. The rest, $(h + 4) / d$, is one number
# per token and head, all that `scaled_dot_product_attention` keeps of its scores, and the mean and deviation of each
# token in two norms. With such an attention, plan with $34$ and without the 5.
#
# ### Memory that nobody can use
#
# A framework takes large pieces of memory from the device, *memory segments*, and hands out *memory blocks* of them.
# PyTorch's allocator for CUDA (c10/cuda/CUDACachingAllocator.cpp) takes {{ alloc.LARGE_SEGMENT // 2**20 }} MiB for a
# request between 1 and 10 MiB, and for a larger one about its size. A request gets the smallest free memory block that
# fits; the rest is split off. A freed one joins its free neighbours, and its segment stays *reserved*.
#
# Below, a model of this allocator replays a real sequence of allocations, recorded on a CPU: two training steps of a
# GPT, on {{ alloc.LENGTHS[0] }} tokens per sequence, then on {{ alloc.LENGTHS[1] }}.

# %%
from course.lessons.experiments import allocator
from course.lessons.figures.allocator import memory_over_time, segment_map

traces = allocator.recorded().data
both = {"without checkpoints": traces.plain, "with a checkpoint at each block": traces.checkpointed}
memory_over_time(
    {name: allocator.visible(trace, allocator.replay(trace)[0]) for name, trace in both.items()},
    title="Checkpoints lower the mountain of activations, and leave a peak for each block",
)

# %% [markdown]
# The hill in step 2 is a temporary buffer: AdamW with `foreach=True`, the default on CUDA, takes the square roots of
# all second moments at once, {{ step_buffer() : .0f }} MiB. Each peak in backward with checkpoints is one transformer
# block's recomputed activations. The highest falls from {{ peak("plain") : .0f }} to {{ peak("checkpointed") : .0f }}
# MiB.
#
# **Predict.** Without checkpoints, do these steps run on a device of {{ alloc.CAPACITY // 2**20 }} MiB,
# {{ room() : .0%}} more than their peak? Memory segments that are free as a whole may be given back. Adam's moments are
# first allocated in step 1, after its activations were freed: where will they lie?

# %%
requests, history, memory = allocator.failing()
index, message = history.failed
print(f"{requests.phase(index)}: {message}")
segment_map(
    memory.map,
    requests.kinds(),
    names=allocator.KINDS,
    title="Moments lie where activations were, and no free block is as long as the request",
)

# %% [markdown]
# They do not run. {{ asked() : .0f }} MiB are asked for and {{ free_in_segments() : .0f }} are free in segments, but at
# most {{ longest_free() : .0f }} side by side. This is *fragmentation*. Long-lived moments keep two segments and part
# of a third from being given back, and the short sequences left segments into which the tensors of long ones do not fit
# without waste. ZeRO reports runs that ended with over 30% of memory still available, in extreme cases (arXiv
# 1910.02054, section 3.2). A cure is `PYTORCH_ALLOC_CONF=expandable_segments:True`: segments that can grow.

# %% [markdown]
# ## 13. Where the time goes
#
# Recomputation costs time. Before you pay for it, see what the time is spent on now. A *trace* lists what ran, on which
# *lane*, from when to when. The *host* (the Python program) only *launches* work: it puts it into the device's queue
# and goes on. `torch.profiler` records both lanes, and `record_function("data")` marks a part of your own loop.
#
# This is one training step of the tiny GPT. A processor has no such queue, so a thread plays the device here: it does
# what the host launches, in that order. Two suspects were planted:
#
# - `load`, inside `data`: the loader sleeps for {{ trace_wait() : .0f }} ms or more before each batch;
# - `item`: the loop reads `loss.item()` in every step, and the host waits until the queue is empty.

# %%
from course.lessons.experiments import profiled
from course.lessons.figures.trace import trace

runs = profiled.recorded()
both = runs.data.of(slow_loader=True, item=True)
print(runs)
trace({str(both): both.events}, title="The device is idle while the host loads a batch")

# %% [markdown]
# In `item` the host waits for the device, which is busy. In `load` the device waits for the host. In a real trace there
# are thousands of events, so let the computer look.


# %% exercise
from collections import Counter
from typing import Any


def find_stall(events: list[dict[str, Any]]) -> tuple[int, str | None]:
    """How long the device is idle in one step, and the name of the host's mark to blame.

    events    dicts with "name", "lane" ("host" or "device"), and "start" and "duration" in whole microseconds, 0 or
              more, in any order. An event runs from start up to, but not at, start + duration.
              One host event is named "step", and is longer than 0. Of any two of the host one lies inside the other,
              or they do not overlap; none lies around the step, and no two have the same start and duration.
              Device events may have any name, may overlap, lie outside of the step, or cross its ends. There may be
              none.
    Returns   (idle, name). idle is the number of microseconds of the step in which no device event runs, also before
              the first and after the last device event. Each of them is put down to the innermost host event that
              runs then (the step itself where there is no other). name is the name with most of them, added up by
              name; no other has as many. name is None if the device is never idle.
    Example   step 0 to 100 and data 0 to 30 on the host, kernels 20 to 60 and 50 to 90 on the device: (30, "data").
    """
    spans = [(each["start"], each["start"] + each["duration"], each) for each in events]
    device = [(start, stop) for start, stop, each in spans if each["lane"] == "device"]
    host = [(stop - start, start, stop, each["name"]) for start, stop, each in spans if each["lane"] == "host"]
    begin, end = next((start, stop) for _, start, stop, name in host if name == "step")
    edges = sorted({edge for start, stop, _ in spans for edge in (start, stop) if begin <= edge <= end})
    idle = Counter()
    for left, right in pairwise(edges):  # between two edges nothing begins or ends
        if not any(start <= left and right <= stop for start, stop in device):
            innermost = min(each for each in host if each[1] <= left and right <= each[2])
            idle[innermost[3]] += right - left
    return (idle.total(), max(idle, key=lambda name: idle[name])) if idle else (0, None)


# %%
check(find_stall)

# %% [markdown]
# Run the same step on your machine, with a loader that takes half as long as the device does for a step.

# %%
live = profiled.run(slow_loader=True, item=True, wait=profiled.half_a_step())
if solved(find_stall):
    idle, name = find_stall(live.events)
    print(f"idle for {idle / 1000:.1f} ms of {live.seconds_a_step * 1000:.1f} ms a step; most of it under {name}")
trace({"this machine": live.events}, title="The same step on your machine")

# %% [markdown]
# `live.profile.export_chrome_trace("trace.json")` writes such a trace to a file. Load it at
# [ui.perfetto.dev](https://ui.perfetto.dev): W and S zoom, A and D move. On a GPU, ask the profiler for
# `ProfilerActivity.CUDA` too: the second lane is then the real one.
#
# **Predict.** The trace blames the loader. Leave it as slow as it is, and only stop reading the loss. How much shorter
# does a step become?

# %%
for run in runs.data.runs:
    print(f"{run!s:45} {run.seconds_a_step * 1000:5.1f} ms a step")
quiet = runs.data.of(slow_loader=True, item=False)
trace({str(both): both.events, str(quiet): quiet.events}, title="Without item the host is ahead")

# %% [markdown]
# Without `item` a step takes {{ step_ms(True, False) : .0f }} ms instead of {{ step_ms(True, True) : .0f }}, nearly
# what it takes with a quick loader. The host launches the next step while the device still works on earlier ones, so
# its own step is shorter than the device's, and only the first batch is waited for. The idle time showed under one
# mark, but it took both suspects: a slow loader costs time only because `item` had emptied the queue. (A loader that is
# slower than the device must be mended itself.)
#
# How well is the device used while it works? Count the FLOPs of the matrix products (an $m \times k$ by a $k \times n$
# matrix: $2mkn$), and divide by the time and by the *peak*, the FLOP/s that the device can do at most.
#
# - *Model FLOPs utilization* (MFU) counts what the model needs: one forward and one backward pass (Chowdhery et al.,
#   arXiv 2204.02311, Appendix B).
# - *Hardware FLOPs utilization* (HFU) counts what is done, recomputation too (Korthikanti et al., arXiv 2205.05198).


# %% exercise
def utilization(
    model: dict[str, int], recomputed: list[str], tokens_per_second: float, peak: float
) -> tuple[float, float]:
    """MFU and HFU of a training run of a GPT.

    model              whole numbers: width, heads, hidden, vocabulary, sequence, and
                       kv_heads, which may be fewer than heads: how many heads keys and values have. All heads are
                       width / heads wide, and groups of query heads share one head of keys and one of values.
                       A block has queries, keys, values, attention, a matrix on its output (width to width), and an
                       MLP of two matrices with `hidden` between. After the last block comes the head's matrix, width
                       to vocabulary; tokens are looked up, not multiplied. A query meets all `sequence` keys (what the
                       mask hides counts too). Every matrix is trained, and the input of every product needs a gradient.
    recomputed         a list, never empty: for each block what of its forward is repeated in backward, "nothing",
                       "scores", "mlp" or "block".
                       "scores" are the products queries x keys and weights x values, "mlp" the two of the MLP,
                       "block" all products of the block.
    tokens_per_second  of the whole run; this and peak may be a whole number
    peak               FLOPs a second
    Returns            (MFU, HFU), as shares: 0.5 is half of the peak. model and recomputed stay as they are
    Example            one block of width 4, 2 heads of each kind, hidden 16, vocabulary 10 and sequence 8, recomputed
                       ["block"], 100 tokens a second and a peak of 1e6: (0.1776, 0.2288)
    """
    d = model["width"]
    keys_and_values = 2 * d * d * model["kv_heads"] // model["heads"]
    scores = 4 * model["sequence"] * d  # with the keys, and with the values
    mlp = 4 * d * model["hidden"]
    block = 2 * (2 * d * d + keys_and_values) + scores + mlp
    needed = 3 * (len(recomputed) * block + 2 * d * model["vocabulary"])
    again = sum({"nothing": 0, "scores": scores, "mlp": mlp, "block": block}[each] for each in recomputed)
    rate = tokens_per_second / peak
    return needed * rate, (needed + again) * rate


# %%
check(utilization)

# %% [markdown]
# Here is your machine on the tiny GPT; its peak is what a large product reaches. With checkpoints it does more for each
# token, so MFU falls. HFU counts that work, and changes less.

# %%
from course.lessons.experiments import utilised

plain, checkpointed, peak = utilised.rates()
blocks = utilised.CONFIG.layers
print(f"peak {peak / 1e9:.1f} GFLOP/s; {plain:,.0f} tokens a second, with checkpoints {checkpointed:,.0f}")
if solved(utilization):
    for words, speed in ((["nothing"] * blocks, plain), (["block"] * blocks, checkpointed)):
        mfu, hfu = utilization(utilised.MODEL, words, speed, peak)
        print(f"recomputed {words[0]:8} MFU {mfu:.1%}, HFU {hfu:.1%}")

# %% [markdown]
# **At scale.** Published runs on A100s. Their HFU tells how many tokens they did in a second, and your function then
# gives their MFU.

# %%
if solved(utilization):
    for run in utilised.RUNS:
        mfu, hfu = utilization(run.model, [run.recomputed] * run.layers, 1.0, 1.0)
        known = "not given" if run.mfu is None else f"{run.mfu}%"
        print(f"{run.name:6} {run.recomputed:7} HFU {run.hfu}%, MFU {run.hfu * mfu / hfu:.1f}%, published {known}")

# %% [markdown]
# With full recomputation HFU is {{ published_hfu("1.7B") : .0f }}% to {{ published_hfu("1008B") : .0f }}% (Narayanan et
# al., arXiv 2104.04473, Table 1), and MFU {{ our_mfu("1.7B") : .1f }}% to {{ our_mfu("1008B") : .1f }}%. Where only
# scores are recomputed, our MFU is up to {{ worst_gap() : .1f }} points above the published one (Korthikanti et al.,
# arXiv 2205.05198, in Megatron-LM's README). Their formula (appendix A, equation 8) counts recomputed scores three
# times, as much as forward and backward together; with it the pairs agree to {{ tripled_gap() : .1f }} points. Before
# you compare two HFUs, ask what each counts.

# %% [markdown]
# ## 14. Put together
#
# Now your parts train a GPT within a budget. Its blocks go through your `checkpoint`, in the segments that your
# `best_cuts` chooses, and your two halves of tiled attention become one operation of autograd's. Where an answer has
# not passed its check, PyTorch's part stands in. PyTorch has no planner: equal segments stand in for `best_cuts`, the
# shortest that fit, and those run every block again.
#
# The budget is enforced. `memory_limit` stops a step at the first op after which more bytes are live. One part at a
# time is then taken away, and at last all of them (`plain`). Without tiles, attention keeps the probability of every
# pair of tokens.
#
# The GPT has {{ layers() }} blocks. Each keeps {{ block_mib("all three") : .1f }} MiB, its input included, and
# {{ block_mib("plain") : .1f }} MiB without tiles. The budget is {{ budget_mib() : .0f }} MiB.
#
# **Predict.** Which of the three parts can be missing while a step still fits? What does its absence cost then?

# %%
from course.lessons.experiments import assembled_checkpointing

parts = assembled_checkpointing.PARTS
passed = parts.passed(globals(), solved)
print(parts.whose(passed))
for line in assembled_checkpointing.table(parts.with_yours(passed)):
    print(line)

# %% [markdown]
# A row that does not fit shows what the step would have taken, and the losses of a run without a limit. All losses
# agree up to rounding: none of the parts changes what is computed, only what is remembered.
#
# Without `checkpoint` everything is kept, and no plan can help. Without `best_cuts` a step fits and leaves memory
# unused; yours spends it to run fewer blocks again. Without tiles each block keeps more, so your plan must run more of
# them again. Look at the seconds, too: tiles in a loop of Python take time of their own, and on a CPU fewer blocks run
# again need not be quicker.

# %% [markdown]
# ## At scale
#
# Does the planner agree with what the ZeRO paper says of GPT-2 (sections 3.1 and 3.2)?

# %%
from course.planner import published

for name, figure in published.figures().items():
    ours = published.planned()[name]
    error = ours / figure.value - 1
    print(f"{name:14} paper {figure.value:4g} {figure.unit:2}, planner {ours:5.1f}, error {error:+5.1%}")

# %% [markdown]
# States come out exactly, and so does the buffer, in which all gradients are fused in fp32. Activations are within
# {{ off("activations") : .1%}}. The {{ published("recomputation") : .0f }}% are one more forward pass, where backward
# costs as much as two.
#
# Only the checkpoints need an interpretation. The paper says that they reduce activations by "approximately the square
# root of the total activations", here to about {{ published("checkpointed") : .0f }} GB. A square root of bytes has no
# meaning; the row above takes the total divided by $\sqrt L$, {{ ours("checkpointed") : .1f }} GB. One checkpoint per
# layer, as the board has it, makes {{ full().kept / 1e9 : .1f }} GB, and the layer that is recomputed
# {{ full().recomputed / 1e9 : .1f }} GB. With states and buffer that makes {{ full_total() : .0f }} GB, instead of
# {{ whole_total() : .0f }}. It would still not fit on a device of 40 GB: the logits of 50,257 words, which neither
# formula counts, are {{ logits_gb() : .1f }} GB in fp32 (Korthikanti et al., arXiv 2205.05198, section 4.3).

# %% [markdown]
# ## What to remember
#
# 1. Backward needs the input of every layer, and these grow with the batch. A checkpoint is one that is kept; the
#    others are computed again.
# 2. Equal segments of $\sqrt n$ layers need about $2\sqrt n$ activations and less than one forward pass more. With $t$
#    sweeps, $\binom{c+t}{c}$ layers need $c$ slots.
# 3. The second run must be the first one: the same random numbers, the same precision, the same arguments.
# 4. Recompute what has many bytes and few FLOPs. Keep the last blocks: backward frees them first.
# 5. Attention needs no matrix of $T \times T$ numbers: a running maximum, a running sum, and one number per query.
#
# ## What to read
#
# - Chen et al., *Training Deep Nets with Sublinear Memory Cost*, arXiv 1604.06174, sections 3 and 4.
# - Griewank and Walther, *Algorithm 799: revolve*, ACM TOMS 26, 2000: the fewest evaluations for given slots.
# - Dao et al., *FlashAttention*, arXiv 2205.14135, section 3.
# - Korthikanti et al., *Reducing Activation Recomputation in Large Transformer Models*, arXiv 2205.05198, sections 4
#   and 5.
# - PyTorch's documentation of `torch.utils.checkpoint`.
#
# ## What this lesson simplified
#
# - The meter counts the bytes of tensors. A device also holds its own context, libraries' workspaces, and what its
#   allocator cannot use.
# - Our plans run in one process. Activations may also be split over devices, or moved to the host's memory.
# - Times were measured on a CPU, where products are slow. On a GPU the operators between the products take a larger
#   share of the time unless they are fused, and recomputing them costs relatively more than here.
# - No recorded number comes from a GPU.

# %%
progress()
