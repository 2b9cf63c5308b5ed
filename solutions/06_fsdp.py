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
# # 06 Sharding
#
# **What must each worker hold, and when?**
#
# At the end of this lesson you will be able to
#
# - say how many bytes each worker holds and sends under every stage of ZeRO, before you run anything;
# - shard parameters, gradients and optimizer states, so that each number lives on one worker and the losses stay the
#   same;
# - gather a unit just in time, free it at once, and find out why memory that should be free is not;
# - clip, scale, save and load a model that no worker has as a whole;
# - decide when to shard, how much, and when not to.
#
# You need: collectives, hooks and overlap (lesson 05), AdamW and clipping (lesson 02), loss scales (lesson 03).
#
# {{ workload(reading=70, sittings=4) }}

# %%
import torch

from course import check, progress
from course.notebook.check import solved

torch.set_num_threads(1)  # the tensors here are small: a second thread costs more than it brings

# %% [markdown]
# From lesson 05 we need the collectives. They work in place and take what they fill first:
# `comm.all_gather_single(whole, mine)`, `comm.reduce_scatter_single(mine, whole, "mean")` with one tensor for all
# parts, `comm.all_gather(list_of_parts, mine)` with a list of them, and `comm.all_reduce(x, "mean")`. With
# `async_op=True` they return at once, a `Work` whose `wait()` one calls later.
#
# # Part I: stages

# %% [markdown]
# ## 1. What everybody holds
#
# In lesson 05 each rank held the whole model. Adam in mixed precision needs 2 bytes of a parameter, 2 of its
# gradient, and 12 more of what we call *states*: a master copy and two moments, 4 bytes each (lesson 03). That is the
# same on every rank, $P$ times in the cluster. Nobody reads the copies on the other ranks.
#
# So let each rank keep only a *shard*: an equal part of the $n$ elements. Three things can be sharded, and ZeRO
# (arXiv 1910.02054, section 5) does so in *stages*:
#
# | stage | sharded |
# | --- | --- |
# | 0 | nothing: data parallelism as in lesson 05 |
# | 1 | the states of the optimizer |
# | 2 | and the gradients |
# | 3 | and the parameters |
#
# Ranks in stage 3 still compute with full parameters. They gather those of a few layers, use them, and free them;
# what is full for a moment is not counted here.
#
# **Predict.** The example of the paper (arXiv 1910.02054, figure 1) is a model of $7.5 \cdot 10^9$ parameters on 64
# ranks. How many GB does each rank hold in stage 0? Which stage saves most compared with the one before it, and how
# little does stage 3 come to?
#
# Where $P$ does not divide $n$, zeros fill up the end, so that all shards are equally long: collectives want that.


# %% exercise
from collections.abc import Mapping


def zero_bytes(n: int, size: int, stage: int, recipe: Mapping[str, int]) -> int:
    """Bytes of parameters, gradients and the optimizer's states on one rank.

    n         parameters of the model, at least 0
    size      ranks, at least 1
    stage     0 to 3: stage 1 shards the states, stage 2 the gradients too, stage 3 the parameters too
    recipe    bytes per parameter by the names "parameters", "gradients" and "states": whole numbers, which may be 0
    Returns   the bytes of all three on one rank. A shard has ceil(n / size) elements; what is not sharded has n.
    Example   Five parameters on 2 ranks with {"parameters": 2, "gradients": 2, "states": 12}: 80 bytes in stage 0, and
              5 * 2 + 5 * 2 + 3 * 12 = 56 in stage 1.
    """
    shard = -(-n // size)
    parameters = (shard if stage >= 3 else n) * recipe["parameters"]
    gradients = (shard if stage >= 2 else n) * recipe["gradients"]
    states = (shard if stage >= 1 else n) * recipe["states"]
    return parameters + gradients + states

# %%
check(zero_bytes)

# %% [markdown]
# With other models, numbers of ranks and recipes:

# %%
from course.lessons.widgets.stages import stages

stages()

# %% [markdown]
# The more ranks, the less the optimizer's states weigh under stage 1, and the more it is the parameters and gradients
# that decide. Only stage 3 goes to zero as ranks are added. None of the bars has activations: they come from each
# rank's own samples, and sharding does not reduce them (lesson 04 does).

# %% [markdown]
# ## 2. As little as must be
#
# Each stage makes a step more complicated, and some of them also cost traffic, as you will work out in section 7. So,
# as a first rule, one takes the first stage that fits. Your function tells which that is.


# %% exercise
from collections.abc import Mapping


def smallest_stage(n: int, size: int, recipe: Mapping[str, int], limit: int) -> int | None:
    """The smallest stage whose parameters, gradients and states fit on a rank.

    n, size, recipe
              as in `zero_bytes`: n at least 0, size at least 1
    limit     bytes that a rank has for all three, at least 0
    Returns   the smallest stage, 0 to 3, whose bytes on one rank are at most `limit`; None if not even stage 3 fits
    Example   Five parameters on 2 ranks with {"parameters": 2, "gradients": 2, "states": 12} and 56 bytes: 1.

    You may call your `zero_bytes`.
    """
    for stage in range(4):
        sharded = ("states", "gradients", "parameters")[:stage]
        if sum((-(-n // size) if name in sharded else n) * recipe[name] for name in recipe) <= limit:
            return stage
    return None

# %%
check(smallest_stage)

# %% [markdown]
# ## 3. A piece for each rank
#
# To shard a model, or a part of it, write all its parameters one after the other into one row, and cut the row into
# $P$ equal pieces, one for each rank. This is what FSDP's *flat parameter* is (arXiv 2304.11277, section 3.2.1).
# Equal, because a collective wants tensors of one shape from all ranks; and where $P$ does not divide the $n$
# elements, the row is *padded*: zeros follow at its end until $P$ divides it. The cuts do not care where a parameter
# begins. A rank may hold the end of one matrix, a bias, and the beginning of the next matrix.
#
# A rank that keeps only its piece should have $P$ times more room than one that keeps all. Whether it does depends on
# one word.
#
# **Predict.** A row has 1,000 numbers of 4 bytes, and a rank keeps a quarter of it: `row[250:500]`. How many bytes
# are still held when `row` is deleted?

# %%
row = torch.zeros(1_000)
piece = row[250:500]
del row
print(f"{piece.nbytes:,} bytes can be read, {piece.untyped_storage().nbytes():,} are held")

# %% [markdown]
# A slice is a view. It keeps the whole storage alive, and so does a graph that remembers where a tensor came from.
# Neither raises an error, and no loss curve shows it: the model is sharded, and the memory is not.
#
# A *tied* parameter appears in two places of a model, such as an input embedding that is also the output matrix.
# Should it stand in the row twice, or once? If twice, each copy would be stepped with its own gradient, and after a
# step they would differ.


# %% exercise
from collections.abc import Sequence

from torch import Tensor


def shard_flat(params: Sequence[Tensor], size: int, rank: int) -> Tensor:
    """This rank's piece of all parameters, written one after the other into a row.

    params   at least one tensor, of any shapes, () and sizes of 0 too, and any strides; all of one floating dtype. Some
             may require a gradient, and others not. One that is tied stands here several times, as the same object,
             and counts where it stands first. Another object counts by itself, even if it lies in the same memory.
    size     how many ranks there are, at least 1; may exceed the number of elements
    rank     whose piece it is, 0 to size - 1
    Returns  (m,), m = ceil(n / size) of the n elements of all parameters: those from rank * m to rank * m + m - 1 in
             the row, and zeros where that is beyond n; in their dtype. It keeps no other memory alive, and requires
             no gradient.
    Example  Parameters [[1, 2], [3, 4]] and [5], 2 ranks: rank 0 gets [1, 2, 3], and rank 1 [4, 5, 0].

    The parameters are not changed, nor are their gradients and `requires_grad`.
    """
    row = torch.cat([each.detach().reshape(-1) for each in dict.fromkeys(params)])
    m = -(-len(row) // size)
    padded = torch.cat([row, row.new_zeros(size * m - len(row))])
    return padded[rank * m : (rank + 1) * m].clone()

# %%
check(shard_flat)

# %% [markdown]
# ## 4. Full for a moment
#
# To compute with a layer a rank needs all of it. An all-gather (lesson 05) brings the shards of all ranks into one
# row, and the layer's tensors are parts of that row. When the layer has been used, the row goes again.
#
# The shards have $m = \lceil n / P \rceil$ elements each, so that the row has $P m$, and the tensors only $n$ of
# them. That can be up to $P - 1$ elements too many: with 5 elements on 4 ranks, the last shard is all padding.
#
# What does gathering cost? First, what is sent: an all-gather of the shards, or an all-reduce of rows that are zero
# but for the rank's own part. Both end with the same row everywhere.
#
# **Predict.** Four ranks, a row of 1,000,000 numbers in float32. How many bytes does a rank send in each of the two?

# %%
from course.cluster import run_ranks

row, piece = torch.zeros(1_000_000, device="meta"), torch.zeros(250_000, device="meta")
ways = {
    "all_gather": lambda comm: comm.all_gather_single(row, piece),
    "all_reduce": lambda comm: comm.all_reduce(row),
}
for name, way in ways.items():
    print(f"{name}: {run_ranks(way, 4).ledger.bytes_sent(0):,} bytes from each rank")

# %% [markdown]
# Second, memory. The moment at which the row is there is the moment at which a rank holds most, and a copy of each
# tensor would be a second row. `split` and `view` copy nothing: what they return lies in the row.


# %% exercise
import math
from collections.abc import Sequence

from torch import Tensor

from course.cluster import Comm


def unshard(comm: Comm, shard: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """The full tensors whose elements all ranks hold together.

    comm     rank `comm.rank` of P = `comm.size`, any number of ranks; it has all_gather, all_gather_single and
             all_reduce
    shard    (m,), m = ceil(n / P): this rank's piece of the row, as `shard_flat` makes it, with zeros behind the last
             of n elements; any floating dtype. It may be a view.
    shapes   of the tensors that stand in the row, in their order, () and sizes of 0 too; n elements in all
    Returns  a list of tensors of these shapes, in the dtype of shard, all views of one tensor that has at most P * m
             elements
    Cost     one all-gather: (P - 1) * m elements from each rank. Before you return you may hold a second row, of what
             came. Nothing else leads to a row: when the caller lets go of the tensors, it is freed.
    Example  Two ranks with shard = [1, 2, 3] and [4, 5, 0], and shapes = [(2, 2), (1,)]: both return
             [[[1, 2], [3, 4]], [5]].

    shard is not changed. The tensors share no memory with it, nor with those of other calls.
    """
    row = shard.new_empty(comm.size * len(shard))
    comm.all_gather_single(row, shard)
    tensors, start = [], 0
    for shape in shapes:
        size = math.prod(shape)
        tensors.append(row[start : start + size].view(shape))
        start += size
    return tensors

# %%
check(unshard)

# %% [markdown]
# There is another way to cut a unit. PyTorch's first FSDP has one flat row, as you do. Its second one, `fully_shard`,
# cuts each parameter along its first dimension.

# %%
from course.lessons.experiments import two_layouts
from course.lessons.figures.sharding import owners

owners(
    {"one flat row": two_layouts.flat(), "each parameter by its rows": two_layouts.by_rows()},
    title="Four ranks: which of them holds which number of a unit",
)

# %% [markdown]
# Rows need more padding (rank 3 has nothing else here), and the gathered shards must be copied apart, because rank
# after rank is not parameter after parameter. In return every shard is a piece of one parameter, with its name, its
# dtype and its own `requires_grad`. In a flat row a frozen matrix (lesson 07 freezes nearly all) shares a tensor with
# trained ones, and one gradient has to have room for both. And a checkpoint of rows can be read without knowing what
# else was in the unit.

# %% [markdown]
# ## 5. Who keeps the moments
#
# In data parallel training every rank keeps the same two moments and computes the same new parameters from them.
# AdamW treats each element by itself, whatever stands beside it. So one rank could step one shard of the parameters,
# with the moments of that shard alone, and tell the others the result. That is stage 1 of ZeRO (arXiv 1910.02054,
# section 5.1): parameters and gradients stay whole, moments are sharded.
#
# A rank needs the mean gradient of its own shard, and of nothing else. Which half of a ring all-reduce does that, and
# what is left for the other half to carry?
#
# A program that does not shard at all has the same losses, and passes many tests: only looking at what the ranks keep
# tells. Here is a mistake that looks as harmless. Add the gradients up, and forget to divide by the number of ranks.
# With SGD the step is then too long. And with AdamW?

# %%
steps = {}
for name, factor in (("mean", 1.0), ("sum of 3", 3.0)):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    for gradient in ([1.0, -2.0, 0.5], [0.5, -1.0, 1.0]):
        weight.grad = factor * torch.tensor(gradient)
        optimizer.step()
    steps[name] = weight.detach()
    print(f"{name:9}", weight.tolist())
print(f"apart by {float((steps['mean'] - steps['sum of 3']).abs().max()):.1g}")

# %% [markdown]
# AdamW divides by the size of its gradients, so that their scale cancels, apart from eps. The moments are wrong all
# the same, and so is everything that reads gradients: clipping, logs, a checkpoint that another program loads.
#
# What of a parameter that some rank's samples did not use? `torch.optim.AdamW` skips one whose gradient is None. Here
# the shard of one rank may have parts of many parameters, and its owner does not know what the others lack. The rule
# here is simple: None counts as zeros, everywhere. (One process with `torch.optim.AdamW` would skip such a parameter,
# and neither decay it nor let its moments fade.)


# %% exercise
from collections.abc import Sequence
from typing import Any

from torch.nn import Parameter

from course.cluster import Comm


def zero1_step(
    comm: Comm,
    params: Sequence[Parameter],
    state: dict[str, Any],
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """One step of AdamW, in place, of which this rank takes one shard and keeps the moments of it alone.

    comm      rank `comm.rank` of P = `comm.size`, any number of ranks; it has reduce_scatter, all_gather (and both with
              `_single`) and all_reduce
    params    each once, alike on every rank, of any shapes and strides, one dtype, float32 or float64. The step is
              taken in the tensors' own memory. `.grad` is the gradient of this rank's mean loss, over as many samples
              as every other rank has; None counts as zeros, on some ranks or on all. Gradients are not changed.
    frozen    a parameter that requires no gradient stays as it is, and is left out of everything; not all are frozen
    state     a dict, empty before the first step; then it comes back as you left it, or a copy of it; or what was saved
              of an earlier step, with params as they were then. So nothing is kept anywhere else. Afterwards it has
              "step", the number of steps, and "m" and "v", the moments, uncorrected, each (m,), m = ceil(n / P) of n
              elements in the order of params, of their dtype, with zeros at the end as in `shard_flat`; nothing else in
              it, and it keeps no other memory alive
    options   lr (at least 0), betas, eps (above 0), weight_decay: those of torch.optim.AdamW. With an lr of 0 the
              moments move all the same
    Result    the parameters of every rank are as one process with the mean of all ranks' gradients would have them
    Cost      2 (P - 1) * m elements from each rank, in one reduce-scatter and one all-gather
    """
    trained = [p for p in params if p.requires_grad]
    sizes = [p.numel() for p in trained]
    m = -(-sum(sizes) // comm.size)
    grads, values = torch.zeros(2, comm.size, m, dtype=trained[0].dtype)
    places = [row.view(-1)[: sum(sizes)].split(sizes) for row in (grads, values)]
    parts = list(zip(trained, *places, strict=True))
    with torch.no_grad():
        for p, grad, value in parts:
            value.copy_(p.flatten())
            if p.grad is not None:
                grad.copy_(p.grad.flatten())
        g, own = torch.empty_like(grads[0]), values[comm.rank].clone()
        comm.reduce_scatter(g, list(grads), "mean")
        if not state:
            state.update(step=0, m=torch.zeros_like(g), v=torch.zeros_like(g))
        state["step"] += 1
        state["m"].mul_(betas[0]).add_(g, alpha=1 - betas[0])
        state["v"].mul_(betas[1]).add_(g * g, alpha=1 - betas[1])
        root = (state["v"] / (1 - betas[1] ** state["step"])).sqrt()
        own *= 1 - lr * weight_decay
        own -= lr * state["m"] / (1 - betas[0] ** state["step"]) / (root + eps)
        comm.all_gather(list(values), own)
        for p, _, value in parts:
            p.copy_(value.view(p.shape))

# %%
check(zero1_step)

# %% [markdown]
# ## 6. Gradients that nobody keeps
#
# Stage 1 shards what the optimizer remembers. Gradients are still whole on every rank, though a rank steps with one
# part of them alone. Stage 2 lets go of the rest (arXiv 1910.02054, section 5.2).
#
# When? All gradients of a model are there at once only because backward leaves each in `.grad` until somebody comes
# for it. The peak is at the end of backward. Freeing them after that is too late.
#
# **Predict.** Six layers have gradients of 1 MiB each. How many MiB of gradients are alive at the highest, if nobody
# removes any? And if a hook sets each `.grad` to None as soon as it has come?

# %%
from course.meter import kept_bytes


def highest(hook):
    layers = [torch.nn.Linear(512, 512, bias=False) for _ in range(6)]
    y = torch.nn.Sequential(*layers)(torch.ones(1, 512))
    for layer in layers:
        layer.weight.register_post_accumulate_grad_hook(hook)
    peak = 0

    def look(meter):
        nonlocal peak
        peak = max(peak, meter.bytes_alive())

    with kept_bytes(after=look):
        y.sum().backward()
    return peak / 2**20


def forget(p):
    p.grad = None


print(f"kept: {highest(lambda p: None):.1f} MiB, forgotten: {highest(forget):.1f} MiB")

# %% [markdown]
# A rank may forget a gradient when it has gone where it belongs: to the ranks that step with it. So buckets are
# filled by hooks, as in lesson 05, and a complete bucket is reduce-scattered instead of all-reduced. It may travel
# while backward goes on. But a bucket that travels is memory, too: wait for it before the next one is put together.
# (What `async_op=True` returns, a `Work`, holds its tensors for as long as you hold it.)
#
# The three traps of lesson 05 are here again: all ranks must begin the buckets in the same order; a parameter that
# was not used calls no hook; and a hook that is left fires again.


# %% exercise
from collections.abc import Sequence

from torch import Tensor
from torch.nn import Parameter

from course.cluster import Comm


def zero2_backward(comm: Comm, loss: Tensor, buckets: Sequence[Sequence[Parameter]]) -> list[Tensor]:
    """loss.backward(), in which each bucket of gradients is scattered over the ranks and freed when it is complete.

    comm     rank `comm.rank` of P = `comm.size`; it has reduce_scatter (and reduce_scatter_single), all_reduce, reduce
             and all_gather
    loss     this rank's loss, a tensor of shape ()
    buckets  lists of parameters of any shapes, all of one dtype, float32 or float64, and each contiguous and in one
             bucket, which all require a gradient and have none yet. The buckets are the same on every rank, and stand
             in the order in which they are to be scattered. A parameter may be used several times, or not at all on
             some ranks or on all.
    Returns  for each bucket a tensor (m,) of their dtype on rank r: part r of the mean over all ranks of the bucket's
             gradients, flat and one after the other, cut into P parts of m elements, with zeros at the end where P does
             not divide its elements; a rank that did not use it counts with zeros
    Cost     one backward pass, and one reduce_scatter for each bucket: every rank sends (P - 1) m elements
    Memory   If all parameters are used and buckets stand in the order of backward, a rank never holds, at any time of
             backward, more than the full gradients of one bucket, and a copy of them, besides those that the layer at
             work has just made.

    After the call no `.grad` and no hook is left on any parameter. The graph of loss may stay or go.
    """
    bucket_of = {p: number for number, bucket in enumerate(buckets) for p in bucket}
    missing = [len(bucket) for bucket in buckets]
    shards = []

    def scatter(bucket):
        shard = bucket[0].new_empty(-(-sum(p.numel() for p in bucket) // comm.size))
        flat = shard.new_zeros(comm.size * len(shard))
        start = 0
        for p in bucket:
            if p.grad is not None:
                flat[start : start + p.numel()] = p.grad.flatten()
            p.grad = None
            start += p.numel()
        comm.reduce_scatter_single(shard, flat, "mean")
        shards.append(shard)

    def arrived(p):
        missing[bucket_of[p]] -= 1
        while len(shards) < len(buckets) and missing[len(shards)] == 0:
            scatter(buckets[len(shards)])

    hooks = [p.register_post_accumulate_grad_hook(arrived) for p in bucket_of]
    loss.backward()
    for hook in hooks:
        hook.remove()
    for bucket in buckets[len(shards) :]:
        scatter(bucket)
    return shards

# %%
check(zero2_backward)

# %% [markdown]
# ## 7. What does it cost to hold less?
#
# Data parallelism sends gradients, and nothing else. A rank that lacks parameters must ask for them, too. Do we pay
# for memory with traffic?
#
# The parts are known: a *reduce-scatter* leaves each rank the sum of its shard, an *all-gather* gives every rank all
# shards. How much does each send, compared with the all-reduce?

# %%
from course.cluster import run_ranks


def one_of_each(comm, shard):
    full = list(torch.empty(comm.size, shard, device="meta"))
    mine = torch.empty(shard, device="meta")
    comm.reduce_scatter(mine, full)
    comm.all_gather(full, mine)
    comm.all_reduce(torch.empty(comm.size * shard, device="meta"))


run = run_ranks(one_of_each, 4, inputs=[(1000,)] * 4)
for event in run.ledger.events:
    if event.rank == 0:
        print(f"{event.verb:15} {event.sent // 4:5} elements of {4 * 1000}")

# %% [markdown]
# Now write down a step for each stage, as a list of these three. What does a rank hold when the step begins? It needs
# full parameters for forward and for backward. Its update needs the sum of those gradients whose states it has, and
# after it the others need what it has updated.
#
# Two things more matter. Large batches come in *micro-batches*, whose gradients are added up before one update.
# Stages 0 and 1 have full gradients to add to; from stage 2 on nobody keeps them: what a micro-batch gives is
# scattered before the next one begins. (FSDP can also keep them whole, and pay with memory.) And stage 3 may keep the
# parameters between forward and backward of a micro-batch, and free them then: more memory, for fewer gathers.
#
# **Predict**, for one micro-batch: by how much do stages 2 and 3 send more than data parallelism?


# %% exercise
def zero_traffic(n: int, size: int, stage: int, micro_batches: int, keeps_full: bool) -> int:
    """How many elements a rank sends in one step.

    n         parameters of the model: elements, at least 0
    size      ranks P, at least 1
    stage     0 to 3, of ZeRO, as in `zero_bytes`
    micro_batches
              at least 1, whose gradients are added up before the step's one update
    keeps_full
              whether stage 3 keeps full parameters from the forward pass of a micro-batch to its backward pass; after
              that they are freed in any case. It changes nothing in other stages.
    Returns   the elements that one rank sends in a step, by the fewest collectives: ring all-reduce, reduce-scatter and
              all-gather of flat, padded tensors, P chunks of ceil(n / P) elements. Gradients that are sharded are
              scattered after each micro-batch.
    Example   Six parameters on 2 ranks, stage 0: 6.
    """
    if stage < 2:
        turns = 2  # of P - 1 chunks: to the sums, and back to everybody
    elif stage == 2:
        turns = micro_batches + 1
    else:
        gathers = 1 if keeps_full else 2
        turns = micro_batches * (gathers + 1)
    return turns * (size - 1) * -(-n // size)

# %%
check(zero_traffic)

# %% [markdown]
# Data parallelism sends everything twice around the ring: first sums, then what came of them. Stages 1 and 2 use the
# same two turns, and update in between: for one micro-batch they send nothing more. (In time they may lose: the
# gather comes after the step, where no backward hides it, though the next forward may.) Stage 3 gathers a second
# time, for backward, so it sends half as much again. With many micro-batches the stages come apart.

# %% [markdown]
# # Part II: units
#
# ## 8. The life of a unit
#
# Stage 3 shards the parameters as well, and nothing can be computed from a shard. So the layers of a model are
# grouped in *units*, and a unit's parameters are brought together when they are needed: an all-gather of its shards,
# the computation, and then the full parameters are freed. What backward needs of the unit is saved, as always.
#
# In Python, memory is freed when nothing leads to it any more. Here a full weight is made, used and deleted:
#
# **Predict.** How many MiB are alive after the `del`, without `requires_grad` and with it?

# %%
from course import meter

x = torch.ones(2, 1024)
for requires_grad in (False, True):
    with meter.kept_bytes() as kept:
        full = torch.ones(1024, 1024).requires_grad_(requires_grad)  # 4 MiB
        y = torch.tanh(x @ full)
        del full
        print(f"requires_grad={requires_grad}: {kept.bytes_alive() / 2**20:.2f} MiB after del")

# %% [markdown]
# The second time the name is gone, and the weight is not: for the gradient of `x @ full` autograd saved it in the
# graph, which `y` leads to. PyTorch's FSDP lets the graph have the tensor and takes the memory from behind it
# (`weight.untyped_storage().resize_(0)`); before backward it makes room there again and gathers into it, hidden from
# autograd's version counter, so that the graph finds what it saved (`free_storage` and `alloc_storage` in
# `torch/distributed/fsdp/_fully_shard`). Who calls backward before that reads memory that is not there.

# %%
with meter.kept_bytes() as kept:
    weight = torch.ones(1024, 1024, requires_grad=True)
    y = torch.tanh(x @ weight)
    weight.untyped_storage().resize_(0)
    print(f"{kept.bytes_alive() / 2**20:.2f} MiB with an empty storage, and the shape is still {tuple(weight.shape)}")

# %% [markdown]
# You need no graph: your unit has a backward of its own, in the next section. It is a residual block, with parameters
# $a$ and $b$ of shape $(h, d)$:
#
# $$t = \tanh(x a^\top), \qquad y = x + t\, b$$
#
# Every tensor that its backward needs must be saved, but for those that a rank can gather again.


# %% exercise
from collections.abc import Sequence

from torch import Tensor

from course.cluster import Comm


def unit_forward(
    comm: Comm, shard: Tensor, shapes: Sequence[torch.Size], x: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """y = x + tanh(x a') b, a' being a transposed, by parameters that are gathered, used and freed.

    comm     rank `comm.rank` of P = `comm.size`; it has all_gather (and all_gather_single), all_reduce, broadcast,
             gather and scatter
    shard    (m,), this rank's part of the unit's flat parameters: a and b, one after the other, cut into P parts of m
             elements, with zeros at the end where P does not divide their number; float32 or float64. P may be larger
             than what is left for the last ranks: their part is zeros alone.
    shapes   of a and b: two times (h, d)
    x        (samples, d), in the dtype of shard, as are y, x and t; as many samples on every rank, each with its own
    Returns  (y, saved): y, (samples, d), the unit's output; saved, a dict of what backward will need, "x" and "t"
             with t = tanh(x a'), and of nothing else; neither y nor what is saved requires a gradient
    Cost     one all_gather of the shard: every rank sends (P - 1) m elements
    Memory   Many units stand in a row. Besides the shards and what is saved, each rank holds at any time never more
             than one unit's full parameters and one copy of them (a list of their parts is one, too), and nothing
             full is left after the call.

    Neither x nor shard is changed.
    """
    full = shard.new_empty(comm.size * shard.numel())
    comm.all_gather_single(full, shard)
    n = shapes[0].numel()
    a, b = full[:n].view(shapes[0]), full[n : n + shapes[1].numel()].view(shapes[1])
    t = torch.tanh(x @ a.T)
    return x + t @ b, {"x": x, "t": t}

# %%
check(unit_forward)

# %% [markdown]
# ## 9. The unit backward
#
# Backward comes to the unit with the gradient of its output, and the full parameters are gone. They are gathered a
# second time. Then there is a full gradient of the parameters, from this rank's samples; and this rank is to update
# only its own shard. For that it needs one part of the mean over all ranks, and can forget the rest.
#
# **Predict.** Eight units of 1 MiB, on 4 ranks. Forward gathers every unit, backward gathers it again and scatters
# its gradients. How many MiB does each rank send in all? How many would plain data parallelism send?

# %%
from course.cluster import run_ranks


def collectives(comm, verbs, units=8, numbers=2**18):
    whole = torch.empty(numbers, device="meta")
    part = torch.empty(numbers // comm.size, device="meta")
    for verb in verbs:
        for _ in range(units):
            if verb == "gather":
                comm.all_gather_single(whole, part)
            elif verb == "scatter":
                comm.reduce_scatter_single(part, whole, "mean")
            else:
                comm.all_reduce(whole, "mean")


for name, verbs in {"sharded units": ("gather", "gather", "scatter"), "data parallel": ("reduce",)}.items():
    sent = run_ranks(collectives, 4, inputs=[(verbs,)] * 4).ledger.bytes_sent(0)
    print(f"{name:15}{sent / 2**20:5.1f} MiB")

# %% [markdown]
# That is the price of stage 3: half as much again, for parameters that are nowhere whole but one unit at a time.
#
# The peak is in backward. While a unit is at work, two things are full: its parameters and its gradients. So the
# order matters in which they come and go, and so does what you return. What you return stays until the optimizer's
# step, and a view keeps alive all the memory that it looks into.


# %% exercise
from collections.abc import Mapping, Sequence

from torch import Tensor

from course.cluster import Comm


def unit_backward(
    comm: Comm, shard: Tensor, shapes: Sequence[torch.Size], saved: Mapping[str, Tensor], dy: Tensor
) -> tuple[Tensor, Tensor]:
    """Backward of y = x + tanh(x a') b, by parameters that are gathered again, and gradients that are scattered.

    comm     rank `comm.rank` of P = `comm.size`; it has all_gather and reduce_scatter (also as _single), all_reduce,
             broadcast, gather, scatter and reduce
    shard    (m,), this rank's part of the unit's flat parameters: a and b, one after the other, cut into P parts of m
             elements, with zeros at the end where P does not divide their number; float32 or float64. P may be larger
             than what is left for the last ranks: their part is zeros alone.
    shapes   of a and b: two times (h, d)
    saved    {"x": x, "t": tanh(x a')}, of shapes (samples, d) and (samples, h), as forward left it
    dy       (samples, d), the gradient of this rank's own loss with respect to y
    Returns  (dx, dshard): dx, (samples, d), the gradient of this rank's own loss with respect to x; dshard, (m,), this
             rank's part of the mean over all ranks of their flat gradients, with zeros where the shard has its padding;
             both in the dtype of shard
    Cost     one all_gather and one reduce_scatter: every rank sends 2 (P - 1) m elements
    Memory   Many units stand in a row. Besides the shards, what is saved, and what was returned, each rank holds at any
             time never more than one unit's full parameters, its full gradients and one copy of either (what `cat`
             makes is a copy, and what `pad` makes of it another); and nothing full is left after the call.

    The shard is not changed.
    """
    full = shard.new_empty(comm.size * shard.numel())
    comm.all_gather_single(full, shard)
    grads = torch.zeros_like(full)  # zeros also where the padding is
    n, x, t = shapes[0].numel(), saved["x"], saved["t"]
    a, b = full[:n].view(shapes[0]), full[n : 2 * n].view(shapes[1])
    da, db = grads[:n].view(shapes[0]), grads[n : 2 * n].view(shapes[1])
    dt = (dy @ b.T) * (1 - t * t)
    dx = dy + dt @ a
    torch.mm(dt.T, x, out=da)
    torch.mm(t.T, dy, out=db)
    dshard = torch.empty_like(shard)
    comm.reduce_scatter_single(dshard, grads, "mean")
    return dx, dshard

# %%
check(unit_backward)

# %% [markdown]
# ## 10. Gather early, free in time
#
# A unit that asks for its parameters when it needs them waits for them, while its processor is idle. When it
# computes, the links are. But the next unit is known: the one after this in forward, the one before this in backward.
# So its all-gather can begin one unit early. FSDP calls this *prefetching* (arXiv 2304.11277, section 3.3). Gradients
# need not be waited for at once either: their reduce-scatter may travel while the next unit computes.
#
# Whatever is on its way is memory: parameters that came early, gradients that have not left yet.
#
# **Predict.** Six units on four ranks. Forward of a unit takes 40 microseconds and backward 80; an all-gather or a
# reduce-scatter takes 30. The last unit stays full between the passes. How long is a step in which everything is
# waited for at once? And at best? (The answer stands below the exercise.)
#
# Memory has a trap in Python. A name holds its tensor until it means another one or is deleted, and a `Work` holds
# tensors, too.
#
# **Predict.** Six gradients of 1 MiB are scattered over four ranks, one after the other, and each is waited for. How
# many MiB does a rank hold at the highest, if it keeps the works in a list? And if it lets go of each? (No name
# is left to what it receives.)

# %%
from course.cluster import Simulated, run_ranks


def gradients_leave(comm, lets_go):
    works = []
    for _ in range(6):
        full, shard = torch.zeros(2**18), torch.zeros(2**18 // comm.size)  # 1 MiB, and 1/4
        works.append(comm.reduce_scatter_single(shard, full, "mean", async_op=True))
        works[-1].wait()
        del full, shard
        if lets_go:
            works.pop()


for lets_go in (False, True):
    run = run_ranks(gradients_leave, 4, inputs=[(lets_go,)] * 4, transport=Simulated(memory=True))
    print(f"works let go of: {lets_go!s:5}  {run.ledger.peak_bytes(0) / 2**20:.2f} MiB at the highest")

# %% [markdown]
# The units are given, as two functions: what is left to write is the schedule. Of each unit its `x` is saved.


# %% exercise
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from course.cluster import Comm


def run_units(
    comm: Comm,
    shards: Sequence[Tensor],
    forward: Callable[[int, Tensor, Any], Any],
    backward: Callable[[int, Tensor, Any, Any], tuple[Any, Tensor]],
    x: Any,
    dy: Any,
    prefetch: bool,
) -> tuple[Any, Any, list[Tensor]]:
    """Forward through all units, then backward, by parameters that are gathered, used and freed.

    comm      rank `comm.rank` of P = `comm.size`; it has all_gather and reduce_scatter (also as _single), all_reduce
    shards    for each of n units, at least one, a tensor (m,): this rank's part of the unit's flat parameters, with
              zeros at the end where P does not divide them. Units may be of one or of unlike sizes.
    forward   forward(i, full, x) gives y of unit i. full is (P * m,), all shards of unit i in the order of the ranks.
    backward  backward(i, full, x, dy) gives (dx, dfull) of unit i, from the x that its forward had: dx is dy of unit
              i - 1, and dfull, (P * m,), the gradient of full. Both say to `comm` how long they compute; ranks may be
              of unlike speed.
    x, dy     the input of unit 0, and the gradient of what the last unit gives
    prefetch  False: a unit is gathered when it is needed, and waited for, and so is what is scattered. True: the
              all-gather of the next unit begins before this one computes, in both passes, and gradients are scattered
              while the next unit computes.
    Returns   (y, dx, dshards): y of the last unit; dx of unit 0; for each unit, in the order of shards, this rank's
              part of the mean over ranks of dfull, (m,), in the dtype of the shards, which are not changed
    Cost      at most two all_gathers and one reduce_scatter for each unit. The last unit may be kept between the
              passes, or gathered again.
    Memory    besides the shards, what is returned and each unit's x, never more bytes than full parameters and
              full gradients of one unit have, with prefetch of two. A unit's forward needs as much room as its
              gradients, so that there is none for a copy
    Time      with prefetch within 10% of the best schedule on the virtual clock, where every unit computes at
              least as long as a gather or a scatter takes
    """
    n, xs, dshards = len(shards), [x], [torch.empty_like(shard) for shard in shards]
    visits = [*range(n), *reversed(range(n))]
    ahead, leaving = [], None
    for place, i in enumerate(visits):
        while len(ahead) <= prefetch and place + len(ahead) < len(visits):
            shard = shards[visits[place + len(ahead)]]
            full = shard.new_empty(comm.size * len(shard))
            ahead.append((full, comm.all_gather_single(full, shard, async_op=True)))
        full, work = ahead.pop(0)
        work.wait()
        if place < n:
            xs.append(forward(i, full, xs[i]))
        else:
            dy, dfull = backward(i, full, xs[i], dy)
            if leaving:
                leaving.wait()
            leaving = comm.reduce_scatter_single(dshards[i], dfull, "mean", async_op=prefetch)
            del dfull
        del full, work
    if leaving:
        leaving.wait()
    return xs[-1], dy, dshards

# %%
check(run_units)

# %% [markdown]
# Six units, one thing after another: {{ 6 * 40 + 6 * 80 + 17 * 30 : , }} microseconds. At best the computation, the
# first gather and the last scatter are left: {{ 6 * 40 + 6 * 80 + 2 * 30 }}. Here are sliders, with GPT-2 small on
# four ranks. They are its 12 blocks, without the embeddings. The last unit is freed between the passes (yours may
# keep it), so each begins with a gather that nothing hides. The lower picture shows what a rank holds of parameters
# and gradients. Without prefetch one unit is freed and the next one gathered at the same moment, so that forward is a
# level line; in backward the shards of the gradients pile up.

# %%
from course.lessons.widgets.unit_life import unit_life

unit_life()

# %% [markdown]
# And the same step, by the size of its units:

# %%
from course.lessons.experiments import unit_life as life
from course.lessons.figures.sharding import over_unit_size

over_unit_size(
    {
        "waits for each unit": life.by_unit_size(prefetch=False),
        "gathers the next one early": life.by_unit_size(prefetch=True),
    },
    title="A step of GPT-2 small, by the blocks in a unit",
)

# %% [markdown]
# Nothing hides the first gather of a pass and the last gradient, and they are as large as a unit. The bytes that
# are sent are the same for all sizes. What speaks against very small units is latency, which these links hardly have,
# and on real ones that short messages do not reach the full bandwidth (arXiv 2304.11277, section 3.2.1).

# %% [markdown]
# ## 11. What is gathered together
#
# A *unit* is a group of parameters that are gathered, used and freed together. Small units keep little in memory at a
# time; but each has its own collectives, and every message takes a latency. One unit for the whole model means that
# the full model is there again when the first layer computes.
#
# **Predict.** A model of 64 layers with a million parameters of 4 bytes each, on 8 ranks. Its layers are gathered one
# after the other, over links of 10 microseconds and 10 GB/s, in units of 1, 8 or 64 layers. Which way takes longest,
# and how much longer? Which one has most parameters in memory at a time?

# %%
from course.cluster import run_ranks


def gathers(layers, size=8, numbers=1_000_000):
    def all_units(comm):
        for _ in range(64 // layers):
            shard = torch.empty(layers * numbers // size, device="meta")
            comm.all_gather_single(torch.empty(layers * numbers, device="meta"), shard)

    return run_ranks(all_units, size).ledger.makespan


for layers in (1, 8, 64):
    tiny = gathers(layers, numbers=800)
    print(f"{layers:2} layers in a unit: {1e3 * gathers(layers):.2f} ms, {layers} million numbers at a time;", end=" ")
    print(f"with layers of 800 numbers {1e3 * tiny:.3f} ms")

# %% [markdown]
# With large layers the time is that of their bytes, and small units cost a fifth more here. With small layers it is
# nearly all latency. So a norm or a bias should go with what is around it, and the rule goes by size: a module
# becomes a unit if the parameters in it that no inner unit has taken are many enough. The first FSDP's
# `size_based_auto_wrap_policy` works so.
#
# Three things complicate it. A transformer *block* is computed as one: its attention and its MLP belong in one unit.
# An `nn.ModuleList` is a module without a forward: nothing calls it, so nothing could gather it. And a *tied*
# parameter is used at two places. In a unit of the first place it would be freed before the second needs it. FSDP
# wants both uses in one unit. (`fully_shard` unties a parameter that two groups share, and raises an error at the
# first forward; where only one of the two modules is sharded, it says nothing.) Which module sees both uses?


# %% exercise
from torch import nn


def wrap_policy(model: nn.Module, min_params: int, blocks: tuple[type[nn.Module], ...] = ()) -> list[list[str]]:
    """The parameters of a model in units, inner modules first.

    Rule        A module other than the model becomes a unit if the parameters in it that are in no unit yet have at
                least min_params elements together; the modules in it come first, in the order of named_children().
                Its unit has all of these parameters, also those that inner modules left over.
    Blocks      of these classes or derived from them: no module in it becomes a unit. It may become one itself.
    Lists       nn.ModuleList and nn.ModuleDict become none.
    Tied        A parameter with several names, by itself or in a shared module, waits for the innermost module in
                which all of them are, that is, with whose name all begin. Further in it does not count; from there on
                outwards it counts as any other.
    Counted     Frozen parameters count as all others; buffers do not.
    Root        The parameters that are left are the last unit, the root's, however few they are; where none is left
                there is no such unit.
    min_params  elements, at least 1
    Returns     the units in the order in which they are found, each a list of names of parameters, in any order inside
                of a unit, as model.named_parameters() has them (so each parameter has one name)
    Example     A Linear `a` of 12 elements, then a LayerNorm `b` of 6, and min_params = 10: [["a.weight", "a.bias"],
                ["b.weight", "b.bias"]], the last one the root's.
    """
    names: dict[nn.Parameter, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(p, []).append(name)
    units: list[list[nn.Parameter]] = []
    free = list(names)

    def visit(path: str, module: nn.Module) -> None:
        if not isinstance(module, blocks):
            for name, child in module.named_children():
                visit(f"{path}{name}.", child)
        inside = [p for p in free if all(name.startswith(path) for name in names[p])]
        enough = sum(p.numel() for p in inside) >= min_params
        if module is model or (enough and not isinstance(module, (nn.ModuleList, nn.ModuleDict))):
            units.append(inside)
            free[:] = [p for p in free if all(p is not each for each in inside)]

    visit("", model)
    return [[names[p][0] for p in unit] for unit in units if unit]

# %%
check(wrap_policy)

# %% [markdown]
# ## 12. Find the fault: three programs that hold too much
#
# These programs return the right numbers, on three ranks, and nobody would notice on a small model. `masters` is
# stage 1: every rank has all weights in float32, and keeps the master copy, in float64 here, of its own shard alone;
# `gradient(w)` is that shard's gradient. `units` is a forward pass of stage 3, and `losses` evaluates one unit on
# several batches. `gather` is an all-gather.

# %%
from course.lessons.experiments import ledger_runs

for name in ledger_runs.PROGRAMS:
    print(ledger_runs.PROGRAMS.listing(name), end="\n\n")

# %% [markdown]
# **Predict.** Draw for each program the bytes that a rank holds over time. Where should the line go down, or be
# lower?

# %%
from course.lessons.figures.ledgers import ledgers

ledgers(
    {name: ledger_runs.seen(name) for name in ledger_runs.PROGRAMS},
    title="Memory of three sharded programs, each of which holds more than it must",
)

# %% [markdown]
# A tensor's memory is free when nothing leads to it any more: no name, no list, no view, no graph. `del` removes one
# name. For each of the large tensors, who still leads to it? The line of `masters` is flat but for its gathers,
# because all of it is in place before anything is sent: work out how high it should be for its {{ weights() : , }}
# weights, with 4 bytes for each weight and 8 for each master copy.


# %% exercise
def mend_the_ledgers() -> dict[str, tuple[int, str]]:
    """The line by which each of the three programs above holds too much, and how it must read.

    Returns   for "masters", "units" and "losses" the number of a line as it is printed above, and the line that
              replaces it, a str without a line break. Its indentation is kept, and may be left out; `torch` is
              imported.
    Judged    by what each rank returns, on other numbers, and by the most bytes that a rank holds at once, which may be
              a quarter above ours, and in `units` two fifths; any spelling of a cure is right
    masters   Each rank keeps the master copy of its own shard, in float64, and no other.
    units     The full parameters of one unit, or two, are held at a time.
    losses    What is kept of a batch has no graph.
    Example   {"masters": (5, "for step in range(3):"), ...} would replace the fifth line of `masters`.
    """
    return {
        "masters": (4, "mine.append(w.double().chunk(comm.size)[comm.rank].clone())"),  # a view keeps the whole
        "units": (5, "x = torch.tanh(full.pop() * x)"),  # the list is empty again
        "losses": (6, "found.append(loss.detach())"),  # the graph goes, and what it has saved
    }

# %%
check(mend_the_ledgers)

# %% [markdown]
# ## 13. Which stage, how large a unit?
#
# You now have three knobs. A later stage holds less and sends more, most of all with many micro-batches. Small units
# hold little at a time, and pay many latencies. Prefetch hides a gather behind the unit before it, and needs room for
# two.
#
# Think of three clusters: on one memory is tight, on one the links are slow and there is room, on one both are good.
# Which stage, which size of unit, and prefetch or not, would you try first on each?
#
# Nobody needs to guess: write the function that decides. It gets clusters that you do not know. A choice that does
# not fit is worth nothing. One that fits earns all points within 2% of the best step, and some up to 20%.


# %% exercise
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any


def choose_sharding(
    layers: Sequence[tuple[float, int]], cluster: Mapping[str, Any], sizes: Sequence[int]
) -> tuple[int, int, bool]:
    """The stage, the size of units and prefetch or not by which a step is shortest.

    layers    (seconds, parameters) for each layer, layer 0 first: what forward takes; backward takes twice as long
    cluster   "ranks": ranks P, at least 2; "link": (latency, bandwidth) of a message, as in lesson 05;
              "micro_batches": micro-batches of a step, at least 1; "limit": bytes that a rank may hold, enough for some
              choice, and for none to the byte
    sizes     layers in a unit, in no order: units are consecutive layers from layer 0 on, the last may have fewer
    Returns   (stage, size, prefetch), stage 1, 2 or 3: the triple whose step is shortest among those that fit, or one
              that fits and whose step is less than 2% longer. Outside stage 3 prefetch changes nothing.
    Memory    Per parameter 2 bytes, 2 of its gradient, 12 of states, sharded by stage, without padding. Besides, of the
              largest unit, 2 bytes each: in stages 2 and 3 full gradients; in stage 3 full parameters, with prefetch
              those of two units.
    Turn      An all-gather or a reduce-scatter of a unit is P - 1 messages, one after another, of 1/P of its
              parameters' 2 bytes each. Gathers and reduce-scatters do not slow each other.
    Micro-batch
              Units compute one after another, forward, then backward from the last one. In stage 3 each is gathered
              before it computes, on both ways. The first gather begins at once; with prefetch a gather begins when the
              unit before begins to compute, else when it ends. (So the last unit is gathered twice.) A unit's
              reduce-scatter begins when its backward is over, and the reduce-scatter before it. A micro-batch ends
              when all is over, and the next one begins.
    Step      Its micro-batches. In stage 1 gradients are reduced in the last micro-batch alone. In stages 1 and 2
              all units are then gathered, one after another.
    """
    ranks, often = cluster["ranks"], cluster["micro_batches"]
    latency, bandwidth = cluster["link"]
    n = sum(count for _, count in layers)

    def units(size):
        parts = [layers[start : start + size] for start in range(0, len(layers), size)]
        return [(sum(each for each, _ in part), sum(count for _, count in part)) for part in parts]

    def turn(count):
        return (ranks - 1) * (latency + 2 * count / ranks / bandwidth)

    def held(stage, size, ahead):
        largest = max(count for _, count in units(size))
        unit = 2 * largest * {1: 0, 2: 1, 3: 3 if ahead else 2}[stage]
        return {1: 4, 2: 2, 3: 0}[stage] * n + {1: 12, 2: 14, 3: 16}[stage] * n / ranks + unit

    def micro_batch(stage, size, ahead, reduces):
        begin = end = over = 0.0
        own = units(size)
        for times, (seconds, count) in [*product([1], own), *product([2], reversed(own))]:
            there = (begin if ahead else end) + turn(count) if stage == 3 else end
            begin = max(end, there)
            end = begin + times * seconds
            if times == 2 and reduces:
                over = max(over, end) + turn(count)
        return max(end, over)

    def step(stage, size, ahead):
        last = micro_batch(stage, size, ahead, True)
        others = (often - 1) * micro_batch(stage, size, ahead, stage > 1)
        return others + last + (stage < 3) * sum(turn(count) for _, count in units(size))

    choices = [*product((1, 2, 3), sizes, (False, True))]
    return min(choices, key=lambda each: (held(*each) > cluster["limit"], step(*each)))

# %%
check(choose_sharding)

# %% [markdown]
# Links between servers are slower than those inside. *Hybrid* sharding cuts a unit over the ranks of one server only,
# and each server holds all shards once. Gathers stay inside; the gradient shards are all-reduced between servers, by
# the ranks that hold the same one (arXiv 2304.11277, section 3.2.2). Here are the blocks of GPT-2 small on four
# servers of 8 ranks, with links of {{ inside_gb() : .0f }} GB/s inside and {{ between_gb() : .0f }} GB/s between.

# %%
from course.lessons.experiments import unit_life as life

for name, (cost, between) in life.over_nodes().items():
    print(
        f"sharded {name:17} {cost.seconds * 1e3:5.1f} ms a step, {cost.peak / 2**20:4.0f} MiB held by a rank, "
        f"{between / 1e6:6.0f} MB between servers, of all ranks"
    )

# %% [markdown]
# Half the bytes between servers, for half as much memory again. The time hardly changes here, because prefetch had
# hidden most of it.
#
# ## When not to
#
# Sharding has a price, and many models do not need it. Eight ranks, with data parallelism as in lesson 05 beside
# sharded units with prefetch:
#
# **Predict.** For which of these steps does sharding cost most: few or many tokens, slow or fast links?

# %%
from course.lessons.experiments import when_to_shard

for line in when_to_shard.table():
    print(line)

# %% [markdown]
# - If everything fits, do not shard parameters between servers when each rank has few tokens: a step takes much
#   longer.
# - With enough tokens for each rank, or fast links, the gathers hide behind the computation: sharding is nearly free.
# - If it does not fit there is no choice: with data parallelism the larger model needs more memory than a device of
#   80 GB has.
# - Memory that is freed can hold a larger batch, and that is often the reason to shard a model which would fit.

# %% [markdown]
# # Part III: a run
#
# ## 14. One norm for all shards
#
# What else in a training step looks at all numbers of the model at once? Two things that you built before: clipping
# by the norm of the gradient (lesson 02), and the loss scaler of lesson 03, which looks for inf and nan. Under stages
# 1 to 3 no rank has the whole mean gradient any more.
#
# Suppose that nobody changes the line that clips: each rank calls torch's function on what it holds.
#
# **Predict.** Four ranks hold a gradient of 4,000 normal numbers, 1,000 each; those of rank 0 have the standard
# deviation 3 and all others 1. It is to be clipped to a norm of 32. How long is it before, and after each rank has
# clipped its own?

# %%
from course.cluster import run_ranks


def clips_alone(comm, shard):
    weight = torch.nn.Parameter(torch.zeros_like(shard))
    weight.grad = shard
    torch.nn.utils.clip_grad_norm_(weight, 32.0)
    return weight.grad


gradient = torch.randn(4_000, generator=torch.Generator().manual_seed(0))
gradient[:1_000] *= 3
shards = run_ranks(clips_alone, 4, inputs=[(each.clone(),) for each in gradient.split(1_000)]).values
clipped = torch.cat(shards)
direction = torch.nn.functional.cosine_similarity(gradient, clipped, dim=0)
print(f"norm before {gradient.norm():.1f}, after {clipped.norm():.1f}; cosine between the two {direction:.3f}")
print("norms of the shards after:", [round(each.norm().item(), 1) for each in shards])

# %% [markdown]
# The result is too long, and it points elsewhere: the long shard lost most of its length, and the others hardly any.
# It also depends on the number of ranks, which a step should not. (With `fully_shard` the same line is right, because
# its gradients are DTensors, which know that they are parts. Plain tensors do not.)
#
# One number from each rank mends this. Which one can simply be added up? And what does a rank send that has no shard
# at all, or one in another dtype? All ranks must make the same call, with a tensor of the same kind.


# %% exercise
from torch import Tensor

from course.cluster import Comm


def sharded_clip_(comm: Comm, grads: list[Tensor], max_norm: float) -> Tensor:
    """Shortens a gradient whose shards lie on several ranks, as torch.nn.utils.clip_grad_norm_ does with a whole one.

    comm      has all_reduce and all_gather, on any number of ranks
    grads     this rank's shards: tensors of any shapes, () and (0,) too, in any floating dtypes, also views. The list
              may be empty, and all of this may differ from rank to rank.
    max_norm  the same float on all ranks, above 0
    Returns   a tensor (), on each rank the norm of all shards of all ranks, before anything is scaled. All numbers of
              all shards are multiplied in place by one factor, the smaller of 1 and max_norm / (norm + 1e-6). An
              infinite norm makes the factor 0, and a nan makes it nan, as torch has it.
    Digits    squares are formed, added and sent in float32 or wider; norm and factor are not rounded further,
              and shards to their own dtype alone
    Cost      one collective, and at most 100 bytes from each rank
    Example   Shards [3.] and [4.] on two ranks, max_norm 1: both return 5, and the shards are about [0.6] and [0.8].
    """
    squares = torch.zeros((), dtype=torch.float64)  # of one dtype on all ranks, whatever they hold
    for grad in grads:
        squares += grad.double().square().sum()
    comm.all_reduce(squares)
    norm = squares.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)  # keeps a nan
    for grad in grads:
        grad.mul_(factor)
    return norm

# %%
check(sharded_clip_)

# %% [markdown]
# ## 15. All skip, or none
#
# The loss scaler of lesson 03 skips a step whose gradient has an inf or a nan in it, and halves the scale. Here is a
# cluster in which every rank does so for what it holds.
#
# **Predict.** There are four ranks with a shard each, and in one step an inf comes up on rank 2. Which part of the
# model is wrong after that step? What happens in the next one, when each rank multiplies its loss by its own scale,
# and the gradients are averaged?

# %%
from course.cluster import run_ranks


def scales_alone(comm, gradient):
    scale = 1024.0
    for step in range(2):
        loss_gradient = gradient * scale  # backward, under this rank's scale
        comm.all_reduce(loss_gradient, "mean")
        shard = loss_gradient[comm.rank].clone()
        if comm.rank == 2 and step == 0:
            shard += torch.inf
        taken = shard.isfinite().item()
        result = f"{shard / scale:5.3f}" if taken else "skipped"
        scale = scale if taken else scale / 2
        print(f"step {step + 1}: {result}")


ones = torch.ones(4)  # so that each entry of the true gradient is 1
run = run_ranks(scales_alone, 4, inputs=[(ones,)] * 4)

# %% [markdown]
# In the first step three quarters of the model moved on, and the rest did not. (`torch.amp.GradScaler` agrees among
# ranks where gradients are DTensors. Ours are plain tensors.) In the second all gradients are wrong, and nothing says
# so: neither the ranks whose scale is too large for the sum, nor the one whose scale is too small.
#
# So there must be one decision for all, made before anybody touches a parameter, and from then on every rank does the
# same arithmetic on the same two numbers: the scale, and the count of good steps in a row. The decision costs one
# small collective. It is tempting to sum up the gradients, or their norm, because section 14 all-reduces that anyway.
# Look at what such a sum does in float32 to large numbers that are finite; and at what `isinf` says of infinities of
# both signs, added up.


# %% exercise
from collections.abc import Callable

from torch import Tensor

from course.cluster import Comm


def sharded_scaler_step(
    comm: Comm, grads: list[Tensor], step: Callable[[], object], scale: float, good_steps: int, interval: int
) -> tuple[float, int]:
    """Takes one optimizer step under a loss scale on all ranks, or skips it on all.

    comm        has all_reduce, all_gather and broadcast, on any number of ranks
    grads       this rank's shards of the gradient of the scaled loss, reduced already: tensors of any shapes, () and
                (0,) too, in float32 or bfloat16, also views. The list may be empty, and all of this may differ from
                rank to rank.
    step        step() is the optimizer's step of this rank's shards. It reads the very tensors in grads.
    scale       the loss scale, a power of 2, below 1 too, the same on all ranks
    good_steps  how many good steps in a row came before this one, the same on all ranks, less than interval
    interval    how many good steps in a row make the scale grow, at least 1
    Good        No number was inf, -inf or nan on any rank (looked at before the division or after it). Then grads are
                divided by the scale in place, and step is called once on every rank, also on one without shards.
    Skipped     Else step is not called on any rank, and the scale is halved. Nobody reads grads then.
    Returns     the next scale and the next good_steps, on all ranks the same. The scale is doubled after `interval`
                good steps in a row; good_steps is 0 after a skip and after a growth.
    Cost        one collective, and at most 100 bytes from each rank
    Example     Shards [8.] and [inf], scale 4, good_steps 7: both ranks skip and return (2, 0).
    """
    broken = torch.tensor(float(any(not grad.isfinite().all() for grad in grads)))
    comm.all_reduce(broken, "max")
    if broken.item():
        return scale / 2, 0
    for grad in grads:
        grad.div_(scale)
    step()
    return (scale * 2, 0) if good_steps + 1 == interval else (scale, good_steps + 1)

# %%
check(sharded_scaler_step)

# %% [markdown]
# ## 16. Save what nobody holds
#
# A run of weeks will be interrupted, so it saves its weights and optimizer state now and then. Up to now rank 0 could
# do that, because it had everything.
#
# **Predict.** A model of 175 billion parameters is saved with 14 bytes for each: 2 of weights, 4 of master weights
# and 8 of moments; gradients are not saved. How many bytes must rank 0 receive, and hold, to save it alone? How long
# does writing them take at 2 GB/s, when all other ranks wait, and how long where each of 1,024 ranks writes its own
# at that speed?

# %%
parameters, bytes_each, ranks, disk = 175e9, 14, 1024, 2e9
whole = parameters * bytes_each
print(f"alone: {whole / 1e12:.1f} TB, {whole / disk / 60:.0f} minutes")
print(f"all:   {whole / ranks / 1e9:.1f} GB each, {whole / ranks / disk:.1f} seconds")

# %% [markdown]
# So each rank writes a file of its own. Now a checkpoint consists of many files on many disks, and some day one of
# the disks is full, or a node dies halfway. What is then on the disks must still be of use. Databases have an old
# answer: never touch what is valid; write the new beside it; and when all of the new is there, switch over in a
# single move that either happens or does not. On a POSIX file system renaming a file is such a move (`os.replace`).
# (What the new file holds survives a power failure only if it was synced before, by `os.fsync`. We leave that out.)
#
# Who may make this move, and when? Think of a rank that fails, of the ranks that do not know it yet, and of what the
# failing rank must still do before it raises. And think of whoever loads the checkpoint on another number of ranks:
# what will it take the zeros at the end of the last shard for?


# %% exercise
import os
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from course.cluster import Comm


def save_sharded(
    comm: Comm,
    folder: Path,
    step: int,
    tensors: dict[str, Tensor],
    n: int,
    write: Callable[[dict[str, Tensor], Path], None],
) -> None:
    """Saves a step of a sharded run, each rank its own part.

    comm      has all_reduce, all_gather, gather, broadcast and barrier, on any number of ranks
    folder    is there, and holds older steps, or nothing. The ranks may share it, or each has a disk of its own. An
              interrupted save on as many ranks may have left the step's folder, with files or parts of files. A rank
              replaces its own, and touches no file of another rank.
    step      a number of up to 8 digits
    tensors   this rank's shards of weights and moments, by name: all 1-D with ceil(n / P) elements, of any dtypes. The
              shards of all P ranks, one after the other, are n elements, at least 1, and then zeros that do not
              count. They are not changed, nor is the dict.
    write     write(tensors, path) writes a safetensors file, of tensors with any strides; it may raise an OSError and
              leave a part of a file
    Files     Rank 1 of 4 writes `step-00000020/rank-1-of-4.safetensors` under folder. It holds, of each of the tensors,
              those elements that count, which may be none, and n as an int64 tensor () under "n". When all ranks have
              written, and not before, rank 0, and no other, makes the file `latest` under folder, which holds the name
              of the step's folder: the old file is replaced, not written into.
    Raises    an OSError where some rank's write did: on every rank, with a message that names all ranks which failed
              and no other rank, as in `rank 2`. `latest` and the files of other steps are then as they were.
    Cost      at most 4 collectives and 1,000 bytes from each rank
    Example   5 elements on 2 ranks: shards of 3, of which rank 0 stores 3 and rank 1 stores 2.
    """
    part = folder / f"step-{step:08d}"
    chunk = -(-n // comm.size)
    real = max(0, min(chunk, n - comm.rank * chunk))
    failed = torch.zeros(comm.size)
    try:
        part.mkdir(exist_ok=True)
        mine = {name: each[:real] for name, each in tensors.items()}
        write({**mine, "n": torch.tensor(n)}, part / f"rank-{comm.rank}-of-{comm.size}.safetensors")
    except OSError:
        failed[comm.rank] = 1
    comm.all_reduce(failed)
    if failed.any():
        names = ", ".join(f"rank {rank}" for rank in failed.nonzero().flatten().tolist())
        raise OSError(f"step {step} is not saved: {names} could not write")
    if comm.rank == 0:
        new = folder / "latest.new"
        new.write_text(part.name)
        os.replace(new, folder / "latest")

# %%
check(save_sharded)

# %% [markdown]
# ## 17. Load on another number of ranks
#
# After the interruption a node is gone: four ranks saved, and three are left. Or the model is done, and is to be
# tried on a single one. The files are not shaped for either.
#
# **Predict.** Ten elements were saved by four ranks. Write down which elements lie in which file. Now three ranks
# load them: in which files are those of rank 1? Which files hold elements that nobody but rank 0 needs? And how long
# are the new shards?

# %%
n, lies_on = 10, {}
for size in (4, 3):
    chunk = -(-n // size)
    lies_on[size] = [each // chunk for each in range(n)]
    print(size, "ranks:", [list(range(n))[rank * chunk : (rank + 1) * chunk] for rank in range(size)])
for file in range(4):
    needed_by = {new for old, new in zip(lies_on[4], lies_on[3], strict=True) if old == file}
    print(f"file {file} holds elements for ranks", sorted(needed_by))

# %% [markdown]
# The pieces overlap as they happen to. So forget the ranks and count in elements of the whole: each old file is an
# interval, each new shard is an interval, and what must be read is where the two meet. Old padding is nowhere in this
# account, because section 16 did not store it; new padding comes at the end.
#
# Where ranks have disks of their own, somebody copies to each what its rank needs, and `latest` and rank 0's file to
# all of them. Rank 0's file tells the names, the dtypes and n, also to a rank that gets nothing but padding.
#
# A safetensors file begins with a table of what lies where, so that a slice is read without the rest of the file:
#
#     with safe_open(path, "pt") as file:
#         file.keys(), file.get_tensor("n"), file.get_slice("weight")[2:5]
#
# A rank that reads all files would do on one node. On a thousand it would wait for a thousand files, each of them
# read a thousand times. And a file that is damaged must not become a model with a hole that nobody notices.


# %% exercise
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from course.cluster import Comm


def load_resharded(comm: Comm, folder: Path) -> dict[str, Tensor]:
    """Loads this rank's shards of a checkpoint, whatever number of ranks saved it.

    comm      its rank and size alone are needed
    folder    holds what section 16 describes: the file `latest` names the step's folder, with files such as
              `rank-1-of-4.safetensors`, all saved by one number of ranks, which may be another than now. Other steps
              may lie beside it, of other numbers of ranks or elements. Each rank's disk holds `latest`, rank 0's file,
              which tells names, dtypes and n, and the files with elements of its own; others may be missing.
    Returns   by name (all but "n") this rank's shards, 1-D with ceil(n / P) elements for the P ranks of comm: elements
              rank * ceil(n / P) and on of the whole, with zeros behind the n-th element. All is bit for bit what was
              saved, in its dtype.
    Refused   with a message that names the file: one that is needed and is missing (FileNotFoundError), or is cut or
              empty (ValueError). All ranks need rank 0's file, and each those with elements of its own. A rank that
              does not need the damaged file loads as ever.
    Cost      nothing is sent
    Example   10 elements of 4 ranks, loaded on 3: rank 1 gets elements 4 to 7, of the files 1 and 2; rank 2 gets 8 and
              9, and two zeros.
    """
    part = folder / (folder / "latest").read_text().strip()
    saved = int(next(part.glob("rank-*")).stem.split("-")[-1])

    def opened(rank: int):
        path = part / f"rank-{rank}-of-{saved}.safetensors"
        if not path.exists():
            raise FileNotFoundError(f"{path.name} is missing in {part}")
        try:
            return safe_open(path, "pt")
        except SafetensorError as error:
            raise ValueError(f"{path.name} is damaged: {error}") from None

    with opened(0) as file:
        n = int(file.get_tensor("n"))
        pieces = {name: [file.get_tensor(name)[:0]] for name in sorted(file.keys()) if name != "n"}
    chunk, old = -(-n // comm.size), -(-n // saved)
    start, stop = min(comm.rank * chunk, n), min((comm.rank + 1) * chunk, n)
    for rank in range(start // old, -(-stop // old)) if start < stop else ():
        with opened(rank) as file:
            for name, found in pieces.items():
                found.append(file.get_slice(name)[max(start - rank * old, 0) : min(stop - rank * old, old)])
    return {name: torch.cat([*each, each[0].new_zeros(chunk - stop + start)]) for name, each in pieces.items()}

# %%
check(load_resharded)

# %% [markdown]
# # Part IV: for real
#
# ## 18. Put together
#
# Your functions train a GPT on four processes of this machine. Where an answer has not passed its check, PyTorch's
# part stands in. Beside the stages stand one process with the whole batch, and PyTorch's `fully_shard`.
# `course.meter` counts in each process what a rank's tensors take: after a step, and at the highest, with gradients
# and activations. In stage 3 a unit keeps its input alone, and backward runs its forward again (lesson 04), because
# the full parameters that a graph would need are gone.
#
# **Predict.** With AdamW in float32, how many times its parameters does a rank keep after a step, under each stage?

# %%
from course.lessons.experiments import assembled_fsdp

parts = assembled_fsdp.PARTS
passed = parts.passed(globals(), solved)
print(parts.whose(passed))
for line in assembled_fsdp.table(parts.with_yours(passed)):
    print(line)

# %% [markdown]
# All rows without clipping have the losses of one process: sharding changes where numbers lie, and not what is
# computed. With your answers a rank keeps parameters and two moments under stage 0, and DDP's buckets, as large as
# the parameters; under stage 1 half of the three, under stage 3 a quarter. (Stage 2 keeps the shard that it steps
# beside the parameters. Where PyTorch's parts stand in, more is kept, and the losses are the same.)
#
# The highest point tells another story. Stage 1 does not lower it here: gradients are whole, a row of all parameters
# is gathered beside them, and a step of AdamW in single lines has temporary tensors. From stage 2 on it falls.
# Prefetch raises it again, by more than one unit: on gloo what arrives has buffers of its own.
#
# `fully_shard` sends more here than your stage 3. PyTorch's gloo backend makes a reduce-scatter of an all-reduce,
# after which every rank takes its part. NCCL has one of its own.
#
# Which dtype travels is a choice of its own. `MixedPrecisionPolicy` has one for what is gathered and computed with,
# and one for what is reduced; the shards stay float32, and are the master copy of lesson 03.

# %%
for line in assembled_fsdp.dtypes_table():
    print(line)

# %% [markdown]
# Parameters in bfloat16 are other parameters, so that the loss is a little different. Gradients are often added in
# float32 all the same: a sum over a thousand ranks in bfloat16 loses the small ones (lesson 03).
#
# ## 19. A thousand ranks on a laptop
#
# No cluster is needed to know what a rank will hold. PyTorch's `fake` backend pretends to be 1,024 ranks, its fake
# tensors have shapes and no numbers, and a tracker counts their bytes by class. This is `fully_shard` with a GPT of
# {{ billions() : .1f }} billion parameters: shards in float32, gathers in bfloat16, one sequence on each rank. It
# takes some seconds, in a process of its own, and reports the peak of a step. That is in backward,
# when the last block but one has been through.
#
# **Predict.** Parameters, and both moments: how many MB of each does rank 0 keep? What takes most?

# %%
from course.lessons.experiments import thousand_ranks

for line in thousand_ranks.table(thousand_ranks.measure(), thousand_ranks.planned()):
    print(line)

# %% [markdown]
# The shards have shrunk to almost nothing (of the gradients only one block's has arrived). What is left is full for a
# moment: what backward computes in between, for which there is no formula here; the embedding and the head, which are
# the root's unit; one block that computes and one that is being gathered; gradients on their way; and activations.
# From here on more ranks do not help. Smaller units, checkpoints (lesson 04) and other ways to cut a layer (lesson
# 09) do.
#
# ## At scale
#
# ZeRO's example (arXiv 1910.02054, figure 1) comes out of the formulas. And Belevich et al. (*Training a 1 Trillion
# Parameter Model With PyTorch Fully Sharded Data Parallel on AWS*, 2022) measured FSDP on 128 A100: 159 TFLOP/s on
# each with 175 billion parameters, which is 51% of what the device can do, and 84 with a trillion. (They trained
# with SGD, so that Adam's states were not there.) From such speeds one can say how long a real training would take,
# and what it would cost:

# %%
from course.planner.published import figures, planned
from course.planner.sharding import GPT3, TRILLION, training_days, training_hours

found = planned()
for name, each in figures().items():
    if name.startswith(("stage", "throughput", "days")):
        error = found[name] / each.value - 1
        print(f"{name:18} published {each.value:6.1f} {each.unit:7} by formula {found[name]:6.1f}, error {error:+.1%}")

price, tokens = 2, 300e9  # of a GPU's hour, in dollars: choose your own
for parameters, share in ((GPT3, 0.51), (TRILLION, 0.27)):
    days = training_days(parameters, tokens, gpus=128, share=share)
    hours = training_hours(parameters, tokens, share=share)
    print(
        f"{parameters / 1e9:5,.0f} billion parameters: {days:5,.0f} days, {hours / 1e6:.1f} million GPU hours, "
        f"{price * hours / 1e6:.1f} million dollars"
    )

# %% [markdown]
# The published days are an estimate, too, by the same formula; nobody trained so long. It counts 8 operations for each
# parameter and token, because every forward ran twice; with 6 the same speed would come to a quarter less (lesson 04
# has both ways to count). A trillion parameters take {{ longer() : .0f }} times as long: more of them, and slower.
#
# And on a desk: GPT-2 large, fine-tuned on two GPUs of 24 GB (Mangrulkar et al., *Accelerate Large Model Training
# using PyTorch Fully Sharded Data Parallel*, 2022). The batch is the largest one that fits. By formula it is the room
# that states leave, over what a sequence takes in the first row.
#
# | | batch | by formula | minutes |
# | --- | --- | --- | --- |
# | data parallelism | {{ desk("DDP") }} |
# | data parallelism in fp16 | {{ desk("fp16") }} |
# | gradients and states sharded | {{ desk("gradients") }} |
# | parameters too, units of a million and more | {{ desk("1M") }} |
# | parameters too, units of 2,000 and more | {{ desk("2K") }} |
# | units of a million, kept on the CPU | {{ desk("1M offloaded") }} |
# | units of 2,000, kept on the CPU | {{ desk("2K offloaded") }} |
#
# So memory explains the batches: data parallelism keeps all states and, in its buckets, the gradients twice; what is
# sharded, or kept elsewhere, makes room. (Where parameters stay whole less fits: the formula counts nothing that is
# full for a moment.) The sharded rows have no fp16 in the sample settings of that text, so the fair comparison is
# with the first row: the larger batch more than pays for the traffic, and most where parameters are not sharded.
# Smaller units pay more latencies. On the CPU's side of the bus everything waits for the bus (`CPUOffloadPolicy`).
# And half precision alone, where it can be had, saved more time than any of them.

# %% [markdown]
# ## What to remember
#
# 1. Stage 1 shards optimizer states, stage 2 gradients too, stage 3 parameters too. Each number lives on one rank,
#    and the losses stay those of one process.
# 2. An all-reduce is a reduce-scatter and an all-gather. Stages 1 and 2 step between the two, for the same bytes;
#    stage 3 gathers once more, half as much again.
# 3. Memory is freed when nothing leads to it: no view, no graph, no `Work`. Gradients peak during backward, not after
#    it.
# 4. Units are gathered one ahead and freed at once. Small ones hold little; latency, and short messages, speak
#    against them.
# 5. What looks at all numbers (a norm, an overflow, a checkpoint) needs all ranks to agree, and a few bytes to do it.
#
# ## What to read
#
# - Rajbhandari et al., *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, arXiv 1910.02054,
#   sections 5 and 7.
# - Zhao et al., *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*, arXiv 2304.11277, section 3.
# - PyTorch's documentation of `torch.distributed.fsdp.fully_shard` and of `torch.distributed.checkpoint`.
#
# ## What this lesson simplified
#
# - The virtual clock: latency and bandwidth alone. It lets collectives of one group queue; section 13 lets gathers
#   and reduce-scatters pass each other. On a GPU communication takes cores and memory from computing.
# - Memory is counted by tensors. An allocator rounds sizes up, and leaves gaps (lesson 04).
# - All ranks run the same layers in the same order, and none fails.
# - Offloading to the CPU or to disks is only mentioned (ZeRO-Offload, ZeRO-Infinity).
# - No recorded number comes from a GPU.

# %%
progress()
