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
# # 05 Data parallelism
#
# **How do many workers take one step?**
#
# At the end of this lesson you will be able to
#
# - build the collectives that training needs from send and receive, and say what each of them costs;
# - make many workers take exactly the step that one would take with all the data;
# - hide communication behind backward, and predict how long a step takes on given links;
# - find out why a run of many workers hangs, drifts or crawls.
#
# You need: backward and hooks (lesson 01), the critical batch size (lesson 02). The workers run in this notebook.
#
# {{ workload(reading=70, sittings=4) }}

# %%
import torch

from course import check, hint, progress
from course.notebook.check import solved

torch.set_num_threads(1)  # the tensors here are small: a second thread costs more than it brings

# %% [markdown]
# # Part I: collectives
#
# ## 1. Workers that talk
#
# Many workers run one program. Each is called a *rank* and has a number, from 0; how many there are is the *world
# size* $P$. All hold the same model, each computes the gradient of its own samples, and then all need the mean of
# these gradients. In between stands an *all-reduce*: every rank gives a tensor, and every rank gets the sum.
#
# Two ranks can send each other messages, and that is all we assume. Here four of them add up what they have at rank
# 0:

# %%
from course.cluster import run_ranks
from course.lessons.figures.messages import messages


def sum_at_rank_0(comm, x):
    if comm.rank == 0:
        came = torch.empty_like(x)
        for other in range(1, comm.size):
            comm.recv(came, other)
            x += came
        for other in range(1, comm.size):
            comm.send(x, other)
    else:
        comm.send(x, 0)
        comm.recv(x, 0)
    return x


run = run_ranks(sum_at_rank_0, 4, inputs=[(torch.full((1000,), float(rank)),) for rank in range(4)])
messages(run.ledger, title="Every gradient goes to rank 0, and the sum comes back")

# %% [markdown]
# `run_ranks` starts the function once for each rank, as threads that take turns. `comm` knows the rank's number and
# has the verbs of `torch.distributed`, as methods: `comm.broadcast(x, 0)`, `comm.all_reduce(x, "sum")`,
# `comm.all_gather(tensors, x)` work in place, with tensors that are there already (`course/cluster/protocol/comm.py`
# lists them). The same function runs on processes, and on GPUs. `run.values` has what each rank returned, and
# `run.ledger` what was sent: the picture was drawn from it. Ranks have a clock, too, which knows nothing of your
# computer. A message takes the link's latency plus its bytes divided by the bandwidth. Messages that leave one rank,
# or arrive at one, share its link: they take turns.
#
# The sum is right. But is this a good way?

# %%
from course.lessons.experiments import parameter_server
from course.lessons.figures.workers import server_and_ring

ways = {"server": parameter_server.server, "ring": parameter_server.ring}
found = {
    name: {workers: parameter_server.traffic(way(workers)) for workers in parameter_server.WORKERS}
    for name, way in ways.items()
}
server_and_ring(found, title="GPT-2 small: a server's traffic grows with the workers, a ring's stays bounded")

# %% [markdown]
# The server is a rank of its own here, to which every worker sends its gradient (a "parameter server", with a single
# server). All of them go through its one link, one after the other. The other way needs no middle: what goes through
# a worker stays below four times its gradients, in and out together, however many workers there are. How can that be?


# %% [markdown]
# ## 2. The first half of a ring
#
# Put the ranks in a circle. Each sends to the next one only, $r + 1$ modulo $P$, and all links are busy at once.
# Nobody needs the whole sum yet: cut the tensor into $P$ chunks, and let rank $r$ end with the sum of chunk $r$
# alone. This is a *reduce-scatter*.
#
# A chunk travels and grows. Think of chunk 0 with four ranks. It sets off at some rank as that rank's own part; at
# each stop the part of that rank is added; and at its last stop it is finished.
#
# Chunk 0 must be finished at rank 0. At which rank does it set off? How many messages does it take? What do the other
# ranks send meanwhile?
#
# All ranks send at the same moment, and then receive. Here that is safe, because `send` is *eager*: it returns when
# the data is copied, whether or not anybody receives it. In `torch.distributed` it may wait for its receiver, and
# then all would wait for one another, for ever. `isend`, a receive, and then `wait` is right on gloo, too. On NCCL
# both may stand in one stream, where the second waits for the first: `batch_isend_irecv` begins them together.
# (`Simulated(send="rendezvous")` as the transport shows who depends on eager sends.)
#
# Every exercise has three hints. The first of this one is:

# %%
hint("ring_reduce_scatter", 1)


# %% exercise
from torch import Tensor

from course.cluster import Comm


def ring_reduce_scatter(comm: Comm, x: Tensor) -> Tensor:
    """Chunk r of the sum over all ranks, on rank r, by messages around a ring.

    comm     rank `comm.rank` of P = `comm.size`; it has send and recv, isend and irecv, and no collective. Each
             isend is waited for, and what it sends stays as it is until then.
    x        this rank's tensor, x.shape[0] = P * m with m at least 1 and any further dims, any dtype that can be added;
             the same shape on every rank. Chunk c is its rows c * m to (c + 1) * m - 1.
    Returns  (m, ...), chunk comm.rank of the sum over all ranks, in the dtype of x
    Cost     P - 1 messages of one chunk from each rank, all to rank + 1 (modulo P), in P - 1 steps in which all ranks
             send at once
    Example  Two ranks with x = [1, 2] and [10, 20]: rank 0 returns [11], and rank 1 [22].

    x is not changed.
    """
    rank, size = comm.rank, comm.size
    chunks = list(x.clone().chunk(size))
    came = torch.empty_like(chunks[rank])
    for step in range(size - 1):
        comm.send(chunks[(rank - 1 - step) % size], (rank + 1) % size)
        comm.recv(came, (rank - 1) % size)
        chunks[(rank - 2 - step) % size] += came
    return chunks[rank]


# %%
check(ring_reduce_scatter)


# %% [markdown]
# ## 3. Everybody gets all of it
#
# After the reduce-scatter, rank $r$ has the finished chunk $r$ and nobody has the whole. The second half is an
# *all-gather*: every rank gives one chunk, and every rank gets all of them, in the order of ranks.
#
# The obvious idea is a collector. All chunks go to rank 0, which puts them together and sends the whole to everybody.
#
# **Predict.** Four ranks hold 1 MiB each. How many MiB does rank 0 send? How many does any other rank send? What
# would both numbers be with a thousand ranks?

# %%
from course.cluster import run_ranks
from course.lessons.figures.messages import messages


def by_a_collector(comm, mine):
    everything = mine.repeat(comm.size)
    places = everything.chunk(comm.size)
    if comm.rank == 0:
        for rank in range(1, comm.size):
            comm.recv(places[rank], rank)
        for rank in range(1, comm.size):
            comm.send(everything, rank)
    else:
        comm.send(mine, 0)
        comm.recv(everything, 0)


mine = torch.zeros(2**18)  # 1 MiB
messages(run_ranks(by_a_collector, 4, inputs=[(mine,)] * 4).ledger, title="The collector sends nearly everything")

# %% [markdown]
# Rank 0 sends the whole to each of the others, and each of them one chunk, however many there are: one link is busy
# and the others wait. A ring spreads the same work evenly. In the first step every rank gives its own chunk to the
# next rank. What comes in from the other side is news for that next rank as well.
#
# Follow the chunk of rank 0 until it has been everywhere. How many steps is that, and what do the other ranks send in
# the meantime?


# %% exercise
from torch import Tensor

from course.cluster import Comm


def ring_all_gather(comm: Comm, chunk: Tensor) -> Tensor:
    """The chunks of all ranks on every rank, by messages around a ring.

    comm     rank `comm.rank` of P = `comm.size`; it has send and recv, isend and irecv, and no collective. Each
             isend is waited for, and what it sends stays as it is until then.
    chunk    (m, ...), this rank's part, with m at least 1 and any further dims, any dtype, bool too. It may be a
             view. Chunks of all ranks are alike.
    Returns  (P * m, ...), the chunks of all ranks in the order of ranks, rank 0's first; in the dtype of chunk
    Cost     P - 1 messages of one chunk from each rank, all to rank + 1 (modulo P), in P - 1 steps in which all ranks
             send at once
    Example  Two ranks with chunk = [1, 2] and [3, 4]: both return [1, 2, 3, 4].

    chunk is not changed, and the result shares no memory with it.
    """
    rank, size = comm.rank, comm.size
    whole = chunk.new_empty(size * len(chunk), *chunk.shape[1:])
    parts = whole.chunk(size)
    parts[rank].copy_(chunk)
    for step in range(size - 1):
        comm.send(parts[(rank - step) % size], (rank + 1) % size)
        comm.recv(parts[(rank - step - 1) % size], (rank - 1) % size)
    return whole


# %%
check(ring_all_gather)


# %% [markdown]
# ## 4. The whole sum, the same everywhere
#
# After backward each worker has the gradients of its own examples, and all need their sum. That is an *all-reduce*:
# every rank gives a tensor $x$, and every rank gets the sum over all ranks. The two exercises above make one
# together, and yours may call them. Two things are new. Gradients have any shape, and $P$ seldom divides the number
# of their elements. And the ranks must agree. Each adds the sum to its own copy of the weights, in every step, and
# nobody ever compares the copies.
#
# How could they disagree? Let four ranks hold all four gradients. Each begins with its own and adds the others as
# they come round the ring.
#
# **Predict.** Of a thousand such sums in float32, how many are the same on all four ranks?

# %%
gradients = torch.randn(4, 1_000, generator=torch.Generator().manual_seed(0))
by_rank = [sum(gradients[(rank - step) % 4] for step in range(4)) for rank in range(4)]
same = torch.stack([total == by_rank[0] for total in by_rank]).all(0)
apart = max(float((total - by_rank[0]).abs().max()) for total in by_rank)
print(f"{int(same.sum())} of {len(same)} sums are the same on all ranks; the others differ by up to {apart:.1e}")

# %% [markdown]
# Additions of floating-point numbers are rounded, and another order rounds differently. A difference in the last bit
# is harmless once. After many steps the workers hold different models, and each steps along gradients that were
# computed on the others' models.
#
# The cure costs nothing. Look at who finishes a chunk in your reduce-scatter, and at what your all-gather does with
# it: how many ranks add up the same chunk?
#
# For the shapes there are two ways: zeros at the end, until $P$ divides the length, or chunks whose lengths differ by
# one. Try both on paper with 5 elements and 4 ranks.


# %% exercise
from torch import Tensor

from course.cluster import Comm


def ring_all_reduce(comm: Comm, x: Tensor) -> Tensor:
    """The sum over all ranks on every rank, by messages around a ring.

    comm     rank `comm.rank` of P = `comm.size`; it has send and recv, isend and irecv, and no collective. Each
             isend is waited for, and what it sends stays as it is until then.
    x        this rank's tensor of n elements, of any shape, () and (0, 2) too, in any floating or whole-number dtype.
             It may be a view. P need not divide n, and may be larger. The x of all ranks are alike.
    Returns  a tensor like x: the sum over all ranks, in any order of adding, but the same on every rank in every bit
    Cost     at most 2 (P - 1) messages of at most ceil(n / P) elements from each rank, in the dtype of x, all to
             rank + 1 (modulo P), in 2 (P - 1) steps in which all ranks send at once
    Example  Two ranks with x = [1, 2, 3] and [10, 20, 30]: both return [11, 22, 33].

    x is not changed, and the result shares no memory with it.
    """
    rank, size, n = comm.rank, comm.size, x.numel()
    after, before = (rank + 1) % size, (rank - 1) % size
    m = -(-n // size)
    padded = x.new_zeros(size * m)
    padded[:n] = x.flatten()
    chunks = padded.view(size, m)
    for step in range(size - 1):
        came = chunks[0].clone()
        comm.send(chunks[(rank - step) % size], after)
        comm.recv(came, before)
        chunks[(rank - step - 1) % size] += came
    for step in range(size - 1):
        comm.send(chunks[(rank + 1 - step) % size], after)
        comm.recv(chunks[(rank - step) % size], before)
    return padded[:n].view(x.shape)


# %%
check(ring_all_reduce)


# %% [markdown]
# ## 5. One tells all
#
# Before the first step all workers must have the same weights. One of them drew some; the others get a copy. That is
# a *broadcast*: the tensor of one rank, the *source*, goes into the memory of all others.
#
# Two plain ways are a chain, in which each rank tells the next, and a star, in which the source tells everybody. On
# our links a message is on its way for the *latency* (here 10 microseconds), and besides it occupies the sender's
# link for as long as its bytes take at the *bandwidth* (10 GB/s).
#
# **Predict.** 16 ranks. Which way is quicker for 4 bytes? Which for 4 MB, and by how much?

# %%
from course.cluster import run_ranks


def along_a_chain(comm, tensor):
    if comm.rank > 0:
        comm.recv(tensor, comm.rank - 1)
    if comm.rank + 1 < comm.size:
        comm.send(tensor, comm.rank + 1)


def from_the_source(comm, tensor):
    if comm.rank > 0:
        comm.recv(tensor, 0)
    for listener in range(1, comm.size) if comm.rank == 0 else ():
        comm.send(tensor, listener)


for count in (1, 1_000_000):
    tensor = torch.empty(count, device="meta")  # on simulated ranks a tensor needs no numbers
    for way in (along_a_chain, from_the_source):
        seconds = run_ranks(way, 16, inputs=[(tensor,)] * 16).ledger.makespan
        print(f"{4 * count:9,} bytes {way.__name__:16s} {1e6 * seconds:8.1f} microseconds")

# %% [markdown]
# For 4 bytes the star waits for one latency only, and the chain for one after another. For 4 MB both are about
# equally slow: the tensor moves to one rank at a time. In the chain a rank is idle as soon as it has told the next
# one; in the star everybody but the source always is.
#
# Suppose that nobody who has the tensor is ever idle. One rank has it at first. How many can have it after one round,
# after two, after three?
#
# How many rounds does it take to reach a thousand ranks?
#
# Write it for any number of ranks, and from any source. Draw six ranks on paper first, with rank 0 as the source; the
# last round is where six differs from eight.


# %% exercise
from torch import Tensor

from course.cluster import Comm


def tree_broadcast(comm: Comm, x: Tensor, source: int) -> None:
    """The x of one rank into the x of all ranks, in place, by a tree of messages.

    comm     rank `comm.rank` of P = `comm.size`, any number of them; it has send and recv, isend and irecv, and no
             collective
    x        this rank's tensor, any shape and dtype; alike on every rank. It may be a view. Afterwards it holds, in its
             own memory, the numbers of the source, whatever it held before. x of `source` stays as it is.
    source   the rank whose x is sent, 0 to P - 1; the same number on every rank
    Cost     P - 1 messages of one x in all, and at most ceil(log2 P) from any rank; in the time of ceil(log2 P)
             messages one after the other
    Example  Three ranks with x = [1], [2] and [3], and source = 2: afterwards every x is [3].
    """
    size = comm.size
    place = (comm.rank - source) % size  # in the tree, whose root is the source
    have = 1  # how many have x: those whose places are below
    while have < size:
        if place < have and place + have < size:
            comm.send(x, (comm.rank + have) % size)
        elif have <= place < 2 * have:
            comm.recv(x, (comm.rank - have) % size)
        have *= 2


# %%
check(tree_broadcast)

# %% [markdown]
# The next cell shows the messages of your tree, and those of the chain until it passes its check. In which step of
# your tree is rank 5 told, and by whom? (For a few bytes a star is still quicker here: all its messages are on their
# way at once. And for many bytes a chain is quicker if the tensor is cut into pieces, which follow one another;
# `comm.broadcast` does that.)

# %%
words = torch.zeros(256)
way, given = (tree_broadcast, (words, 0)) if solved(tree_broadcast) else (along_a_chain, (words,))
messages(run_ranks(way, 8, inputs=[given] * 8).ledger)


# %% [markdown]
# ## 6. Ring or trees
#
# Trees can add as well. Reverse every arrow of the broadcast: each rank waits for those that it would send to, adds
# what they send to its own tensor, and passes the sum on towards the root. That is a *reduce*. A reduce followed by a
# broadcast is an all-reduce up and down a tree. Its messages are few and long; those of the ring are many and short.
#
# First count bytes. Draw your ring and your tree for four ranks, and mark what each rank sends, in bytes of $x$. How
# does that grow with the number of ranks?


# %% exercise
def most_sent(ranks: int) -> tuple[float, float]:
    """How many times the bytes of x the busiest rank sends in an all-reduce: around a ring, and by two trees.

    ranks    P, a whole number, at least 1
    Ring     a reduce-scatter and an all-gather, as in sections 2 and 3, with P chunks of equal size
    Trees    Whole tensors go to rank 0 and back: down the tree of section 5, and before that up, with each of its
             arrows reversed.
    Returns  (ring, trees): what the rank sends that sends most, on both ways together, divided by the bytes of x
    Refused  with a ValueError: fewer than 1 rank
    Example  2 ranks: (1.0, 1.0). In the ring each of them sends half of x, twice.
    """
    if ranks < 1:
        raise ValueError(f"there is nobody among {ranks} ranks")
    rounds = (ranks - 1).bit_length()
    return 2 * (ranks - 1) / ranks, float(rounds)


# %%
check(most_sent)

# %% [markdown]
# With more ranks the busiest one of the ring hardly sends more; the root of the tree does. But bytes are not all.
#
# Let a message of $m$ bytes take
#
# $$\text{latency} + \frac{m}{\text{bandwidth}} \quad \text{seconds.}$$
#
# The two trees send $2 \lceil \log_2 P \rceil$ messages of $n$ bytes, one after the other, and the ring $2 (P - 1)$
# messages of $n / P$ bytes. (In a step of the ring all ranks send, each over a link of its own, so a step takes as
# long as one message.)
#
# **Predict.** 64 ranks, 10 microseconds, 10 GB/s. Which is quicker for 4 KB, the gradient of a small layer norm?
# Which for 10 MB? Guess the size at which it turns, to a factor of ten.

# %%
import math

P, latency, bandwidth = 64, 1e-5, 1e10
for n in (4_000, 10_000_000):
    ring = 2 * (P - 1) * (latency + n / P / bandwidth)
    trees = 2 * math.ceil(math.log2(P)) * (latency + n / bandwidth)
    numbers = torch.empty(n // 4, device="meta")
    clock = run_ranks(lambda comm, x: comm.all_reduce(x), P, inputs=[(numbers,)] * P).ledger.makespan
    print(f"{n:10,} bytes in ms: ring {1e3 * ring:7.3f}, virtual clock {1e3 * clock:7.3f}, trees {1e3 * trees:7.3f}")

# %% [markdown]
# Libraries choose by size and number of ranks, too. Their trees are better than these. NCCL cuts tensors into pieces
# and has two trees, with half of the bytes in each: who has children in one is a leaf of the other, so that all links
# send at nearly full bandwidth. Halving and doubling needs as few rounds as a tree and as few bytes as a ring, where
# $P$ is a power of two (Thakur et al., 2005). Find where *these two* turn.


# %% exercise
def tree_wins_below(ranks: int, latency: float, bandwidth: float) -> float:
    """The size of x below which an all-reduce by two trees takes less time than one around a ring.

    Message    of m bytes: latency + m / bandwidth seconds
    Trees      2 ceil(log2 P) messages of n bytes, one after the other, for an x of n bytes
    Ring       2 (P - 1) messages of n / P bytes, one after the other; n / P need not be whole
    ranks      P, a whole number, at least 1
    latency    seconds, at least 0
    bandwidth  bytes a second, above 0
    Returns    bytes, a float: the trees take less time for every x of fewer bytes, and for no other; 0.0 where they
               take less time for none. Right to a few roundings of float64.
    Refused    with a ValueError: fewer than 1 rank, a negative latency, a bandwidth of 0 or below
    Example    4 ranks, 1 second and 10 bytes a second: 8.0. There both take 7.2 seconds.
    """
    if ranks < 1 or latency < 0 or bandwidth <= 0:
        raise ValueError(f"there is no cluster of {ranks} ranks, {latency} s and {bandwidth} bytes/s")
    if ranks == 1:
        return 0.0
    rounds = (ranks - 1).bit_length()
    fewer = ranks - 1 - rounds
    longer = rounds - (ranks - 1) / ranks
    return fewer * latency * bandwidth / longer


# %%
check(tree_wins_below)


# %% [markdown]
# ## 7. Who is to blame?
#
# On GPUs a rank does not wait for a collective when it calls it. It puts the call into its stream and goes on, often
# by a whole step, until it needs a result. Where two ranks' calls do not match, no error is raised. Mostly everybody
# waits, until a time limit ends the run (torch's own is ten minutes for NCCL, half an hour for gloo). What remains is
# a list of what each rank had called; PyTorch's *flight recorder* keeps one for NCCL (the tutorial "Flight Recorder
# for Debugging Stuck Jobs").
#
# Here is such a trace. In every step each rank sends a tensor to its neighbour, receives one from the other side, and
# begins two all-reduces; in `wait` it stands still until all of its calls are over.
#
# **Predict.** Nobody moves any more. Which rank would you suspect from the last lines alone?

# %%
from course.lessons.experiments import hanging

print(hanging.table(hanging.example()))

# %% [markdown]
# Three ranks stand at the end of a longer list and one at the end of a shorter one. But the length is no proof: a
# rank that leaves out the last call of a step may find nothing left to wait for, run into the next step, and end with
# the longest list of all. And the ranks that wait first may be the innocent neighbours of the guilty one.
#
# What is proof is the program. It is the same on all ranks, so that three of them testify against the fourth. With
# two ranks there is no majority: who is wrong cannot be seen, and must be agreed on.
#
# "The same" needs care. In the first line all ranks call something else, and all are right. And two lists that differ
# at one place say little about the reason: hold what comes after that place side by side. How does it look where a
# call was left out? Where two were swapped?


# %% exercise
from collections.abc import Sequence
from typing import Any


def explain_deadlock(trace: Sequence[Sequence[dict[str, Any]]]) -> tuple[int, int, str]:
    """Which rank's program is at fault, at which of its calls, and what is wrong there.

    trace    for each of P ranks, at least 2 ranks, the list of its calls as far as it got. A call is a dict with the
             keys "verb", "peer", "shape" and "op". peer: where a send goes to or a recv comes from, or the root of a
             broadcast or reduce. shape: a list of ints. op: "mean", "sum", ... Each is None where a verb has none.
    Ends     Each list ends where its rank stands: in a "wait", until all of its calls before are over, or where
             the program has ended, and "returned" stands there.
    Program  All ranks make the same calls: roots are the same rank for all, and messages go the same distance on all
             ranks, modulo P. One rank makes a single mistake, and therefore nobody can go on: its calls
             differ from those of the others, which agree as far as they go. Of two ranks, rank 0 is right.
    Returns  (rank, index, reason): the rank at fault, and the first call, counted from 0, that is not what the others
             call at that place
    Reasons  "missing call" (it is left out), "extra call", "wrong order" (it and the next are swapped); and where
             one argument of a call differs "wrong peer" (of a send or recv), "wrong root", "wrong shape" or "wrong op"
    Example  Rank 0 calls all_reduce, all_gather, wait, and rank 1 all_gather, wait: (1, 0, "missing call").
    """
    size = len(trace)

    def from_rank_0(call: dict[str, Any], rank: int) -> tuple[Any, ...]:
        """Verb, peer as a distance on the ring, root, shape and op."""
        peer, is_message = call["peer"], call["verb"] in ("send", "recv")
        distance = (peer - rank) % size if is_message else None
        shape = None if call["shape"] is None else tuple(call["shape"])
        return call["verb"], distance, None if is_message else peer, shape, call["op"]

    def agree(some, others):
        return all(a == b for a, b in zip(some, others, strict=False))  # as far as both go

    lists = [[from_rank_0(call, rank) for call in calls] for rank, calls in enumerate(trace)]
    index = next(at for at, calls in enumerate(zip(*lists, strict=False)) if len(set(calls)) > 1)
    here = [calls[index] for calls in lists]
    usual = max(here, key=here.count)  # of two that differ it is the first, rank 0's
    rank = next(r for r, call in enumerate(here) if call != usual)
    mine, right = lists[rank][index:], lists[here.index(usual)][index:]
    if mine[:2] == [right[1], right[0]] and agree(mine[2:], right[2:]):
        return rank, index, "wrong order"
    if agree(mine, right[1:]):
        return rank, index, "missing call"
    if agree(mine[1:], right):
        return rank, index, "extra call"
    parts = ("verb", "peer", "root", "shape", "op")
    return rank, index, next(f"wrong {name}" for name, a, b in zip(parts, mine[0], right[0], strict=False) if a != b)


# %%
check(explain_deadlock)


# %% [markdown]
# # Part II: one step
#
# ## 8. What must be alike, and what must not
#
# Workers hold the same weights only as long as they begin alike and take the same steps. So the first weights must be
# alike, and so must the order from which each worker takes its samples. What about the masks of dropout?
#
# **Predict.** Four workers apply dropout to the same tensor of ones and take the mean of what comes out. How far from
# 1 is it, when all have the same random state? And when each has seeded with its rank?

# %%
from course.cluster import run_ranks


def mean_of_masks(comm, seeds_with_rank):
    if seeds_with_rank:
        torch.manual_seed(1000 + comm.rank)
    dropped = torch.nn.functional.dropout(torch.ones(100_000), 0.5)
    comm.all_reduce(dropped, "mean")
    return dropped.std().item()


for words, chosen in (("one state for all", False), ("each seeded with its rank", True)):
    found = run_ranks(mean_of_masks, 4, inputs=[(chosen,)] * 4)
    print(f"{words:25} standard deviation {found.values[0]:.2f}")

# %% [markdown]
# With the same masks, four workers are as noisy as one. Seeded with their ranks they average the noise away, as four
# times the samples should: it falls to half. Noise in the local gradients (dropout, augmentation) must differ between
# ranks. What decides together must not (the first weights, the order of samples, the choice of a layer to skip), and
# neither may noise in the step itself: weights that are rounded at random must be rounded alike everywhere.


# %% [markdown]
# ## 9. Who reads what
#
# Workers that share a model must not share their samples: each reads its own part of the data, its *shard*. They
# could ask rank 0 which samples to take, but then rank 0 would have to be asked in every step. No message is needed.
#
# Four workers draw a permutation each, and none tells the others anything. When are the four the same?


# %%
def draws(seed: int) -> list[int]:
    """A permutation from a generator that nobody else uses."""
    return torch.randperm(8, generator=torch.Generator().manual_seed(seed)).tolist()


print("each seeded with its rank:", *[draws(rank) for rank in range(4)], sep="\n  ")
print("all seeded alike:", *[draws(11) for _ in range(4)], sep="\n  ")

# %% [markdown]
# A pseudorandom order costs no message: whoever knows the seed knows it all. So the workers agree on the order, and
# each takes only its own part of it. The parts are dealt out like cards. Then the first step of all ranks together
# reads the beginning of the order, whatever the number of ranks, and a run can be resumed on another number of them.
#
# The cards rarely come out even. A rank that has one batch more than the others would wait for them in that step, for
# ever. So the last round is filled up with samples from the beginning of the order, and those count twice. (In an
# accuracy that is measured this way they count twice, too.) Torch has two other ways: a sampler with `drop_last=True`
# leaves the last samples out, and with DDP's `join()` a rank that is done goes on to answer the others' collectives.
#
# The order must change from epoch to epoch. torch's `DistributedSampler` seeds its generator with seed + epoch, and
# does not know the epoch unless you call `set_epoch`: then every epoch has the same order, and no error tells you.
# With that sum, seed 2 sees in each epoch the order that seed 1 sees one epoch later. That harms no single run;
# whoever averages over seeds may want to avoid it, and your function may do either.


# %% exercise
def shard_indices(n: int, rank: int, size: int, seed: int, epoch: int) -> list[int]:
    """The samples that one rank reads in one epoch: its part of an order on which all ranks agree.

    n, size  how many samples and ranks there are, each at least 1. size: it may be larger than n.
    rank     0 to size - 1
    seed, epoch
             ints from 0 to 10,000; a change of either changes the order (where n is large enough to show it)
    Returns  a list of ints, or an int64 tensor: ceil(n / size) indices, for all ranks the same number
    Order    a random permutation of 0 to n - 1, which you may draw as you like. It depends on n, seed and epoch alone.
             The rank reads entries rank, rank + size, rank + 2 size, ... of it, as far as the last step of all ranks
             goes; the order begins again after its end as often as needed.
    Example  Where the order is 3, 0, 4, 1, 2, two ranks read [3, 4, 2] and [0, 1, 3].

    The global random states of torch, Python and NumPy are left as they were.
    """
    # seed + epoch would give seed 2 the orders of seed 1, one epoch later
    generator = torch.Generator().manual_seed(10_007 * seed + epoch)
    order = torch.randperm(n, generator=generator)
    places = torch.arange(rank, -(-n // size) * size, size)
    return order[places % n].tolist()


# %%
check(shard_indices)


# %% [markdown]
# ## 10. One model everywhere
#
# In data parallelism every worker holds the whole model. In each step all of them apply the same averaged gradient,
# here with plain SGD.
#
# **Predict.** Two workers forget to begin with the same weights. They average their gradients in every step: do the
# two models come together, drift apart, or neither?

# %%
from course.cluster import run_ranks


def forgetful(comm: Comm, steps: int) -> list[tuple[list[float], float]]:
    """The weights of a linear model and its loss, step by step; each rank has drawn weights of its own."""
    torch.manual_seed(comm.rank)
    weight = torch.randn(2, requires_grad=True)
    seen = []
    for _ in range(steps):
        x = torch.randn(32, 2)
        loss = (x @ weight - x.sum(dim=1)).square().mean()
        (gradient,) = torch.autograd.grad(loss, [weight])
        comm.all_reduce(gradient, "mean")
        weight.data -= 0.1 * gradient
        seen.append((weight.tolist(), loss.item()))
    return seen


seen = run_ranks(forgetful, 2, inputs=[(101,), (101,)]).values
for step in (0, 10, 20, 50, 100):
    (one, loss), (other, _) = (each[step] for each in seen)
    apart = torch.dist(torch.tensor(one), torch.tensor(other))
    print(f"step {step:3d}: the ranks' weights differ by {apart:.4f}; rank 0's loss is {loss:.3f}")

# %% [markdown]
# Neither, with plain SGD and any model: whatever is subtracted, it is the same on both sides. (Weight decay would draw
# them together.) The loss falls all the same, but not to 0, where a single worker's would go: in this linear model the
# *mean* of the two learns, and nobody holds that one. Only with the same weights at the beginning is "average the
# gradients" a correct algorithm.
#
# The same seed on all ranks might do, until a rank loads a checkpoint, or draws one number more. It is safer to send
# rank 0's model to all others, once, before the first step. DDP does so when it is made.
#
# "The model" is more than what an optimizer changes. Look at what one small layer holds:

# %%
layer = torch.nn.BatchNorm1d(3)
print({name: (each.dtype, tuple(each.shape)) for name, each in layer.state_dict().items()})

# %% [markdown]
# A second tensor may be frozen, a third stand in two places, as the input and output embeddings of many language
# models do (*tied* weights). And the optimizer already holds the tensors that it is to change: what comes must be
# written into these.


# %% exercise
from torch import nn


def broadcast_parameters(comm: Comm, model: nn.Module) -> None:
    """Makes the models of all ranks equal to rank 0's.

    comm      rank `comm.rank`, with broadcast, all_reduce and all_gather
    model     with parameters and buffers in modules within modules, in any nesting, of the same structure on all ranks.
              They have any shapes, strides and dtypes. Parameters: some of them frozen (`requires_grad` is False), or
              under two names (tied). Buffers: persistent or not, some under two names.
    Returns   nothing. Afterwards every parameter and buffer holds rank 0's values, bit for bit, whatever the other
              ranks hold, nan too.
    In place  each tensor keeps its memory: an optimizer that was made before goes on with them
    Cost      as many collectives as you like, but no rank sends more bytes than its model has, tied ones counted once

    `.grad` and `requires_grad` are not changed.
    """
    for tensor in [*model.parameters(), *model.buffers()]:
        comm.broadcast(tensor.detach(), 0)


# %%
check(broadcast_parameters)


# %% [markdown]
# ## 11. The gradient of the whole batch
#
# Each rank has called backward on its own samples, and its `.grad` is the gradient of its own mean loss. Shards are
# not always equal: sentences differ in length, padding does not count, the last batch is short. Here a parameter's
# gradient is written down for each sample of two ranks.
#
# **Predict.** Which step would one worker take with all four samples, and which one do two workers take that average
# their gradients?

# %%
of_samples = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0])]
means = [each.mean() for each in of_samples]
print(f"local means {means[0]:g} and {means[1]:g}; the mean of these two: {torch.stack(means).mean():g}")
print(f"the mean of all samples: {torch.cat(of_samples).mean():g}")

# %% [markdown]
# The single sample has counted three times as much as each of the others. `DistributedDataParallel` does just that:
# it divides by the number of ranks. That is right for equal shards, and otherwise an error that nothing reports.
#
# There is a second trap. Some models use a layer only for some samples (an expert, an adapter, a head for one
# language). A rank whose samples did not need it has no gradient there: `.grad` is None.
#
# Rank 1 has no gradient for the second of three layers, and skips it. What does it get?

# %%
from course.cluster import RanksFailed


def skips_none(comm, gradients):
    for gradient in gradients:
        if gradient is not None:
            comm.all_reduce(gradient)
    return gradients


ones = torch.ones(4)
for second in (torch.ones(2), torch.ones(4)):
    try:
        found = run_ranks(skips_none, 2, inputs=[([ones, second, 100 * ones],), ([ones, None, 100 * ones],)])
        print([each.tolist() for each in found.values[0]])
    except RanksFailed as error:
        print(error)

# %% [markdown]
# Here you are told if the shapes differ; gloo and NCCL may wait, or add what does not belong together
# (TORCH_DISTRIBUTED_DEBUG=DETAIL compares the calls). If shapes agree, rank 0's second layer is added to rank 1's
# third, and only at the end does a rank wait. *Collectives are matched by their order alone.* So all ranks must make
# the same calls, whatever data each of them has.
#
# Could everybody put zeros where there is no gradient? Not where *no* rank has one. Here a weight of 1 gets no
# gradient after one ordinary step, once as None and once as zeros:

# %%
for nothing in (None, torch.zeros(())):
    weight = torch.nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.1)
    weight.grad = torch.tensor(1.0)
    optimizer.step()
    before, weight.grad = weight.item(), nothing
    optimizer.step()
    print(f"{nothing!s:12} the weight moves by {weight.item() - before:+.4f}")

# %% [markdown]
# So the zeros are wrong where nobody has a gradient. And *that* is something that nobody knows alone. (With
# `find_unused_parameters=True` DDP searches each forward's graph for what is not used, and the ranks add up who has
# used what. Without it the bucket of an unused parameter never leaves. That rank's next forward raises an error; a
# rank that did use the parameter already waits for the bucket.)


# %% exercise
def reduce_gradients(comm: Comm, model: nn.Module, weight: int) -> None:
    """Makes the gradients of all ranks those of the whole batch, after each has called backward on its own samples.

    comm     has all_reduce, reduce, broadcast, all_gather and gather, on any number of ranks
    model    its parameters are the same on all ranks, some of them frozen or under two names (tied), of any shapes,
             strides and floating dtypes. Each `.grad` is the gradient of this rank's mean loss, in the parameter's
             dtype, or None where its samples did not use the parameter.
    weight   how many samples this rank has, which may differ from rank to rank: 0 on some ranks, where every `.grad`
             is None, but not on all. The number of all samples may exceed the largest number of a gradient's dtype.
    Returns  nothing. Afterwards every `.grad` is the gradient of the mean loss over the samples of all ranks. A
             gradient that some ranks do not have counts as 0 there; where no rank has one, and in frozen parameters,
             `.grad` stays None.
    Cost     each rank sends at most two numbers for each element of a gradient, 16 bytes a parameter and 1,000 more
    Example  Three samples with a mean gradient of 2 on one rank, and one with 10 on the other: both end with 4.
    """
    trained = [each for each in model.parameters() if each.requires_grad]
    known = torch.tensor([weight, *(each.grad is not None for each in trained)])
    comm.all_reduce(known)
    samples, *ranks = known.tolist()
    for each, having in zip(trained, ranks, strict=True):
        if having:
            grad = torch.zeros_like(each) if each.grad is None else each.grad
            grad = grad * (weight / samples)  # before the sum: float16 ends at 65,504
            comm.all_reduce(grad)
            each.grad = grad


# %%
check(reduce_gradients)


# %% [markdown]
# ## 12. More samples than the ranks can hold
#
# The batch that you want is larger than what all ranks can hold at once. Each rank then takes several *micro-batches*
# one after the other, and lets backward add up their gradients in `.grad`, as in lesson 01. Now there are two sums,
# one over time and one over ranks.
#
# **Predict.** Eight ranks take a step of four micro-batches each. In one program they all-reduce after every
# micro-batch, as they would after every backward; in the other one only after the last. How do the bytes compare?

# %%
from course.cluster import Link, Simulated, two_levels


def step(comm, reductions):
    gradient = torch.zeros(1_000_000)
    for micro_batch in range(4):
        comm.compute(0.002, "forward and backward")
        if micro_batch >= 4 - reductions:
            comm.all_reduce(gradient)


fast, slow = Link(latency=1e-6, bandwidth=1e11), Link(latency=1e-5, bandwidth=1e10)
cluster = Simulated(topology=two_levels(2, 4, inside=fast, between=slow))
for reductions in (4, 1):
    ledger = run_ranks(step, 8, inputs=[(reductions,)] * 8, transport=cluster).ledger
    sent, seconds = ledger.bytes_sent(0) / 1e6, ledger.makespan
    print(f"{reductions} reductions: each rank sends {sent:4.0f} MB; a step takes {1000 * seconds:.2f} ms")

# %% [markdown]
# The bytes fall to a quarter, and so does the time that is not spent in computing. But for rounding nothing is lost,
# because a sum does not mind in which order it is taken: first in each rank's own memory, which costs no message,
# then over the ranks. This is what `no_sync()` of `DistributedDataParallel` is for, around forward and backward of
# all micro-batches but the last: what counts is where forward was.
#
# What is easily lost is how much each micro-batch counts. Below, two ranks have micro-batches of different sizes, and
# the losses of all rows are written down. What a rank can compute are the means of its micro-batches.

# %%
of_rows = [[[1.0, 1.0, 1.0, 1.0], [6.0]], [[3.0, 5.0]]]
means = [[sum(each) / len(each) for each in rank] for rank in of_rows]
print("means of the micro-batches, by rank:", means)
rows = [row for rank in of_rows for each in rank for row in each]
print(f"mean of all {len(rows)} rows: {sum(rows) / len(rows):.4f}")
print(f"mean of the ranks' means of means: {sum(sum(each) / len(each) for each in means) / len(means):.4f}")

# %% [markdown]
# Ranks need not even have equally many micro-batches, and one may have none: what they call together must not depend
# on that. And each micro-batch must be finished before the next one begins, or the memory is that of the batch that
# did not fit.


# %% exercise
from collections.abc import Callable


def accumulate(
    comm: Comm,
    model: nn.Module,
    loss_of: Callable[[nn.Module, tuple[Tensor, Tensor]], Tensor],
    micro_batches: list[tuple[Tensor, Tensor]],
) -> None:
    """The gradient of one large batch, of which every rank has some micro-batches.

    comm           has all_reduce, reduce, broadcast, all_gather and gather, on any number of ranks
    model          with the same parameters on all ranks, in float32 or float64, some of them frozen; each `.grad` is
                   None. Every loss depends on every parameter that is not frozen.
    loss_of        loss_of(model, batch) is the mean loss over the rows of one batch, a tensor of shape ()
    micro_batches  pairs (inputs, targets), each a tensor of shape (n, ...) with n >= 1 rows; their numbers of rows may
                   differ, and the lengths of rows. The list may be of another length on another rank, or empty, but
                   not on all.
    Returns        nothing. Afterwards every `.grad` is the gradient of the mean loss over all rows of all micro-batches
                   of all ranks, on ranks without micro-batches, too; in frozen parameters it stays None.
    Memory         one call of loss_of for each micro-batch; backward has freed what one call saved before the next one
    Cost           each rank sends at most two numbers for each element of a gradient, and 1,000 bytes more, however
                   many micro-batches there are

    Nothing but `.grad` is changed, and no hook is left.
    """
    rows = torch.tensor(sum(len(inputs) for inputs, _ in micro_batches))
    comm.all_reduce(rows)
    for batch in micro_batches:
        share = len(batch[0]) / rows.item()
        (loss_of(model, batch) * share).backward()
    trained = [each for each in model.parameters() if each.requires_grad]
    for p in trained:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.all_reduce(p.grad)


# %%
check(accumulate)


# %% [markdown]
# ## 13. A batch that no rank sees
#
# Most layers treat each sample by itself, and do not notice that their batch is a shard. Batch norm does: it needs
# the mean and the variance of each channel over the batch.
#
# **Predict.** Two ranks hold eight samples each. The first has numbers around 0, the second around 10, all with a
# deviation of about 1. Each normalises its own shard. What do the two ranks make of a sample of 5? And which
# deviation do all samples have together?

# %%
spread = torch.randn(8, 1, generator=torch.Generator().manual_seed(0))
shards = [spread, spread + 10]
for rank, shard in enumerate(shards):
    print(f"a sample of 5 on rank {rank}: {(5 - shard.mean()) / shard.std(correction=0):6.2f}")
print(f"deviation of a shard {shard.std(correction=0):.2f}, of all {torch.cat(shards).std(correction=0):.2f}")

# %% [markdown]
# So a network that is trained on shards learns from other statistics than one that sees the whole batch, and with few
# samples on each rank the statistics are poor. The variance of all is also not the mean of the variances: how far the
# shards lie apart is part of it.
#
# There is a way that needs only sums: the mean of the squares minus the square of the mean. Move all samples away
# from zero, which changes no variance, and look at what it gives in float32:

# %%
for shift in (0.0, 100.0, 1_000.0, 10_000.0):
    moved = torch.cat(shards) + shift
    from_squares, right = moved.square().mean() - moved.mean().square(), moved.var(correction=0)
    print(f"{shift:8.0f}: {from_squares:10.4f}, torch.var {right:.4f}")

# %% [markdown]
# So let each rank subtract its own mean first, and say how many samples it has, their mean, and the sum of their
# squared distances from it. Is that enough to merge two shards? Work it out for the two above.
#
# In backward the roles are turned around. A sample of rank 0 moves the mean, and the mean moves what rank 1 computes.
# So rank 0 needs something from rank 1 that only rank 1's backward knows. Write down what one channel's gradient sums
# over the batch: that is what must travel. Autograd does not see through these collectives, nor through those of
# `torch.distributed` that work in place, so both halves go into a `torch.autograd.Function`.


# %% exercise
from torch import Tensor

from course.cluster import Comm


def sync_batch_norm(comm: Comm, x: Tensor, eps: float) -> Tensor:
    """Batch norm, without weight and bias, over one batch whose samples lie on several ranks.

    comm      rank `comm.rank` of P = `comm.size`; it has all_reduce, all_gather and all_gather_single
    x         (n, C) or (n, C, L), this rank's samples, in float16, float32 or float64. n differs from rank to rank and
              may be 0 on some; the rest of the shape and the dtype are the same everywhere.
    eps       a float, added to the variance, above 0
    Returns   like x, in the dtype of x: (x - mean) / sqrt(variance + eps) for each of the C channels, with the mean and
              the biased variance (divided by their number) of all numbers of the channel on all ranks
    Backward  Each rank calls backward, also one without samples, with the gradient of its own loss, and x.grad becomes
              the gradient of the sum of all ranks' losses. The function may be called again before, for another layer.
    Cost      one collective in forward and one in backward
    Digits    where the mean is a thousand times the deviation, no less exact than a mean in that dtype can be. What is
              computed from many samples, and what is sent, is at least in float32.

    x is not changed.
    """

    def as_rows(x: Tensor) -> Tensor:
        """(n, C) or (n, C, L) as (n * L, C), in float32 at least."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return wide.movedim(1, -1).reshape(-1, x.shape[1])

    def as_before(rows: Tensor) -> Tensor:
        """Back from (n * L, C), in the shape and dtype of x."""
        return rows.reshape(len(x), *x.shape[2:], x.shape[1]).movedim(-1, 1).to(x.dtype)

    class Normalise(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            rows = as_rows(x)
            mean = rows.sum(0) / max(len(rows), 1)  # a rank without samples must not say nan
            mine = torch.stack([torch.full_like(mean, len(rows)), mean, (rows - mean).square().sum(0)])
            everybodys = mine.new_empty(comm.size, *mine.shape)
            comm.all_gather(everybodys.unbind(), mine)
            counts, means, m2s = everybodys.unbind(1)
            total = counts.sum(0)
            mean = (counts * means).sum(0) / total
            variance = (m2s + counts * (means - mean).square()).sum(0) / total
            scale = (variance + eps).rsqrt()
            unit = (rows - mean) * scale
            ctx.save_for_backward(unit, scale, total)
            return as_before(unit)

        @staticmethod
        def backward(ctx, dy):
            unit, scale, total = ctx.saved_tensors
            rows = as_rows(dy)
            sums = torch.stack([rows.sum(0), (rows * unit).sum(0)])
            comm.all_reduce(sums)
            by_mean, by_variance = sums / total
            return as_before(scale * (rows - by_mean - unit * by_variance))

    return Normalise.apply(x)


# %%
check(sync_batch_norm)


# %% [markdown]
# # Part III: speed
#
# ## 14. While backward goes on
#
# The gradient of the last layer is there first. It could leave at once, while backward goes on with the layers before
# it. Here is a step of GPT-2 small on four workers, on the virtual clock.
#
# **Predict.** The latency grows from 10 to 100 microseconds, at 25 GB/s. What is then best for a step: to send every
# gradient by itself, all in one, or something in between? And at 1 microsecond?

# %%
from course.lessons.widgets.overlap import overlap

overlap()

# %% [markdown]
# Gradients that leave during backward cost little, as long as the links keep up. All in one cannot leave before
# backward is over. And one by one is slow where a message's latency is large: the next section is about that. At 1
# microsecond it is as good as any group.
#
# One gradient cannot be hidden here at all. GPT-2's head and its embedding share one matrix, by far the largest, and
# its gradient is complete only when backward has come back to the embedding.


# %% [markdown]
# ## 15. Buckets
#
# A GPT-2 has well over a hundred parameters, from matrices of millions of numbers to biases of some hundred. Backward
# gives each a gradient, and each gradient must become the mean over all ranks. That can be one all-reduce for each
# parameter, or a single one for all of them, after `torch.cat`. The bytes are the same.
#
# **Predict.** There are 32 ranks, on links of 10 microseconds and 10 GB/s. How much longer do the many take than the
# one?

# %%
from course.cluster import run_ranks
from course.lessons.models import GPT, GPTConfig

with torch.device("meta"):  # shapes alone: what is sent is counted, and nothing is computed
    model = GPT(GPTConfig(vocabulary=50257, context=1024, width=768, heads=12, layers=12))
sizes = [p.numel() for p in model.parameters()]


def reduce_each(comm, sizes):
    for size in sizes:
        comm.all_reduce(torch.empty(size, device="meta"), "mean")


for name, pieces in {"each parameter": sizes, "all in one": [sum(sizes)]}.items():
    run = run_ranks(reduce_each, 32, inputs=[(pieces,)] * 32)
    print(f"{name:15}{len(pieces):4} all-reduces, {run.ledger.makespan * 1000:.1f} ms")

# %% [markdown]
# Every all-reduce pays its latencies anew, however small it is. But a single one has a price as well: it cannot begin
# before the last gradient is there. What lies between is a *bucket*: as many gradients as fit into so many bytes. It
# travels when its last gradient is complete, while backward goes on. Yours keep below their cap. DDP closes a bucket
# as soon as it has reached 25 MiB, the first one 1 MiB, unless you say otherwise. It fills them in the order in which
# gradients came in the first step. In that step itself all travel in one bucket (in this version of torch), so it says
# little about speed. With `find_unused_parameters=True` nothing is made anew: the order is always that of
# `model.parameters()`, reversed.
#
# So what belongs together is what is complete at about the same time. Draw a network of four layers, and backward's
# way through it. Then let the first and the last layer share one matrix, as many language models do: backward meets
# that matrix twice. When is its gradient complete? And if half of the parameters are in bfloat16, which gradients can
# be parts of one tensor?


# %% exercise
from collections.abc import Sequence

from torch.nn import Parameter


def make_buckets(params: Sequence[Parameter], cap: int) -> list[list[Parameter]]:
    """Parameters whose gradients travel together.

    params   a list of parameters in the order in which forward uses them, the first one used first. Some may be frozen
             (requires_grad is False); a parameter stands here several times if it is used several times; dtypes may
             differ. The gradient of one that is used several times is complete when backward has passed the first of
             its uses.
    cap      bytes, at least 1
    Returns  a list of buckets, which are lists of the parameters: each that requires a gradient once, in the order in
             which backward completes their gradients
    Filling  There is one open bucket for each dtype. A parameter goes into that of its dtype, if what is in it and the
             parameter have at most `cap` bytes together. Else that bucket is closed for good and a new one begins with
             this parameter, which may be larger than the cap alone.
    Order    The buckets stand in the order in which they are complete: by the last parameter in each.
    Example  Parameters a, b, c and d of 8, 4, 8 and 4 bytes and a cap of 12 give [[d, c], [b, a]].

    The list is not changed.
    """
    order = [p for p in reversed(dict.fromkeys(params)) if p.requires_grad]  # a tied one: where it is used first
    buckets, still_open = [], {}
    for p in order:
        bucket = still_open.get(p.dtype)
        if bucket is None or sum(each.nbytes for each in bucket) + p.nbytes > cap:
            bucket = still_open[p.dtype] = []
            buckets.append(bucket)
        bucket.append(p)
    place = {p: number for number, p in enumerate(order)}
    return sorted(buckets, key=lambda bucket: place[bucket[-1]])


# %%
check(make_buckets)


# %% [markdown]
# ## 16. Reduce while backward goes on
#
# Backward needs the processor, an all-reduce needs the network. A bucket is complete long before backward is over, so
# both could work at once. Here four layers take a millisecond each, and reducing one layer's gradients takes almost
# as long.
#
# **Predict.** Each rank waits for a bucket before it goes on with the next layer; or it begins all four at the end;
# or it begins each as soon as it can, and waits for all of them at the end. How long does each take?

# %%
from course.lessons.figures.timeline import timeline


def step(comm, way):
    works = []
    for layer in reversed(range(4)):
        comm.compute(0.001, f"layer {layer}")
        gradients = torch.empty(1_500_000, device="meta")
        works.append((gradients, None if way == "at the end" else comm.all_reduce(gradients, "mean", async_op=True)))
        if way == "at once":
            works.pop()[1].wait()
    for gradients, work in works:
        comm.all_reduce(gradients, "mean") if work is None else work.wait()


for way in ("at once", "at the end", "as soon as it can"):
    run = run_ranks(step, 4, inputs=[(way,)] * 4)
    print(f"{way:18}{run.ledger.makespan * 1000:5.1f} ms")
timeline(run.ledger)

# %% [markdown]
# But `loss.backward()` is one call. Autograd tells you about gradients by a *hook*: after `hook =
# p.register_post_accumulate_grad_hook(f)` it calls `f(p)` whenever `p.grad` is complete, in the middle of backward,
# and goes on when `f` returns. `hook.remove()` ends that.
#
# There are three traps. A collective needs all ranks in the same order, so a rank may not simply begin what it
# happens to have. A parameter that was not used (a branch not taken, an expert without tokens) calls no hook at all.
# For simplicity it counts as zeros here, also where no rank has used it. And a hook that is left behind fires in
# every later backward, too.


# %% exercise
from collections.abc import Sequence

from torch.nn import Parameter

from course.cluster import Work


def overlapped_backward(comm: Comm, loss: Tensor, buckets: Sequence[Sequence[Parameter]]) -> None:
    """loss.backward(), with the gradients' means over all ranks reduced beside it.

    comm     rank `comm.rank` of P = `comm.size`; it has all_reduce, and no other verb
    loss     this rank's loss, a tensor of shape (); it may depend on other things, too
    buckets  lists of parameters of one dtype, each in one bucket, which all require a gradient and have none yet. They
             may be of any strides. The buckets are the same on every rank, and stand in the order in which they are to
             be reduced. A parameter may be used several times, or not at all on some ranks or on all.
    Result   The .grad of every parameter in a bucket is the mean over all ranks of the gradient of their losses, in any
             strides; a rank that did not use it counts with zeros.
    Cost     one backward, and one all_reduce for each bucket, which begins during backward, as soon as its gradients
             are complete and the buckets before it have begun; else when backward is over

    No hook is left on any parameter, and no list is changed.
    """
    bucket_of = {p: number for number, bucket in enumerate(buckets) for p in bucket}
    missing = [len(bucket) for bucket in buckets]
    begun: list[tuple[Tensor, Work]] = []

    def begin(bucket):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        begun.append((flat, comm.all_reduce(flat, "mean", async_op=True)))

    def arrived(p):
        missing[bucket_of[p]] -= 1
        while len(begun) < len(buckets) and missing[len(begun)] == 0:
            begin(buckets[len(begun)])

    hooks = [p.register_post_accumulate_grad_hook(arrived) for p in bucket_of]
    loss.backward()
    for hook in hooks:
        hook.remove()
    for bucket in buckets[len(begun) :]:
        begin(bucket)
    for bucket, (flat, work) in zip(buckets, begun, strict=True):
        work.wait()
        for p, mean in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
            p.grad = mean.view_as(p)


# %%
check(overlapped_backward)


# %% [markdown]
# ## 17. How large a bucket?
#
# Small buckets begin early, and there are many of them. Here is a step of 48 layers on 16 ranks: backward takes half
# a millisecond for a layer, and its gradients have two million bytes. The links are those of section 5.
#
# With how many layers in a bucket is the step shortest: 1, 4, 16, or all 48?

# %%
def backward_with_buckets(comm, layers, in_a_bucket):
    works = []
    for layer in range(1, layers + 1):
        comm.compute(0.0005, "backward")
        if layer % in_a_bucket == 0:
            gradients = torch.empty(in_a_bucket * 2_000_000, dtype=torch.uint8, device="meta")
            works.append(comm.all_reduce(gradients, async_op=True))
    for work in works:
        work.wait()


for in_a_bucket in (1, 2, 4, 8, 16, 48):
    run = run_ranks(backward_with_buckets, 16, inputs=[(48, in_a_bucket)] * 16)
    print(f"{in_a_bucket:3} in a bucket: {run.ledger.makespan * 1000:5.1f} ms")

# %% [markdown]
# With one layer in each, the latencies make the network slower than backward: a queue of buckets grows, and the
# network still works when backward is long over. With all in one, it begins when backward ends. In between nearly
# everything is hidden behind backward but the last bucket, which no one can hide.
#
# To plan a run on a thousand GPUs you want this number without a simulation. Take two rows on paper, *backward* and
# *network*, and three buckets. Draw the case in which backward is the slower of the two, then the other one. When
# does a reduction begin? What ends last? Your function must say what these simulated ranks take, but for rounding.


# %% exercise
from collections.abc import Sequence


def step_seconds(
    backward: Sequence[float],
    sizes: Sequence[int],
    buckets: Sequence[Sequence[int]],
    *,
    ranks: int,
    latency: float,
    bandwidth: float,
) -> tuple[float, float]:
    """How long backward takes with reductions beside it, and what each rank sends.

    backward   seconds that backward takes for each layer, layer 0 first. It goes from the last to the first, and waits
               for nothing
    sizes      bytes of each layer's gradient, whole numbers that `ranks` divides
    buckets    one or more lists of numbers of layers, none empty, each layer in one bucket at most. A bucket is
               complete when backward has passed all of its layers.
    ranks      P, at least 1
    latency, bandwidth
               a message of m bytes takes latency + m / bandwidth: seconds, at least 0, and bytes per second
    Returns    (seconds, bytes): from the beginning of backward until it and all reductions are over, and the bytes that
               one rank sends
    Reduction  The buckets are reduced in the order of the list, one after another: each begins when it is complete
               and the one before it is over. The reduction of a bucket is 2 (P - 1) messages, one after another, each
               of 1/P of its bytes.
    Example    Two layers of 1 s and 8 bytes each in buckets [[1], [0]], two ranks, no latency and 4 bytes per second: a
               reduction takes 2 s, the first from 1 s to 3 s and the second to 5 s. It returns (5, 16).
    """
    done, now = {}, 0.0  # when backward has passed each layer
    for layer in reversed(range(len(backward))):
        now += backward[layer]
        done[layer] = now
    over, sent = 0.0, 0.0
    for bucket in buckets:
        message = sum(sizes[layer] for layer in bucket) / ranks
        complete = max(done[layer] for layer in bucket)
        over = max(over, complete) + 2 * (ranks - 1) * (latency + message / bandwidth)
        sent += 2 * (ranks - 1) * message
    return max(over, done[0]), sent


# %%
check(step_seconds)


# %% [markdown]
# ## 18. Which all-reduce, which bucket?
#
# A ring sends as few bytes as can be, in many messages. A tree sends few messages, all of them whole. And real
# clusters have two kinds of links: links inside a node are many times faster than those between nodes. A third
# algorithm makes use of that. Each node first adds up among its own ranks, the nodes then reduce what is left, and
# share it inside.
#
# **Predict.** Four nodes of eight ranks each reduce 32 MB. Links inside a node are twenty times as fast as those
# between nodes, and all ranks of a node share one link out. How many bytes pass that link in a flat ring, and how
# many with two levels? So how much faster can two levels be?

# %%
from course.cluster import Link, Simulated, two_levels


def flat(comm):
    comm.all_reduce(torch.empty(8_000_000, device="meta"))


def hierarchy(comm):
    axes = comm.mesh(node=4, place=8)
    mine, parts = torch.empty(1_000_000, device="meta"), list(torch.empty(8, 1_000_000, device="meta"))
    axes["place"].reduce_scatter(mine, parts)
    axes["node"].all_reduce(mine)
    axes["place"].all_gather(parts, mine)


links = {"inside": Link(latency=1e-6, bandwidth=2e11), "between": Link(latency=1e-5, bandwidth=1e10)}
for way in (flat, hierarchy):
    run = run_ranks(way, 32, transport=Simulated(topology=two_levels(4, 8, **links)))
    print(f"{way.__name__:10}{run.ledger.makespan * 1000:5.1f} ms")

# %% [markdown]
# In the flat ring each node's link carries what a rank sends: $2 (P - 1) / P$ of the bytes, with $P$ = 32 ranks. With
# two levels it is $2 (k - 1) / k$, with $k$ = 4 nodes. That is most of the difference, and it shrinks as nodes are
# added. The rest is latency: the flat ring has many steps, and all of them wait for the slow links; two levels cross
# these in far fewer. (Here a node has one link out. Where each GPU has its own, libraries run several rings side by
# side.) With links that are equally fast the bytes inside would only come on top; and where gradients are small and
# nodes many, even the few messages of two levels are more than a tree's.
#
# So nobody can say what is best without the cluster, and without the backward pass behind which it can hide. Write
# the function that decides. It gets clusters that you do not know, with a list of bucket sizes each. A choice gets
# half of the points where its step is up to a fifth longer than the best one, and all of them up to a fiftieth.


# %% exercise
import math
from collections.abc import Mapping, Sequence
from typing import Any


def choose_reduction(
    layers: Sequence[tuple[float, int]], cluster: Mapping[str, Any], caps: Sequence[int]
) -> tuple[int, str]:
    """The size of buckets and the all-reduce by which a step is shortest.

    layers    (seconds, bytes) for each layer, layer 0 first: what backward takes for it, and the size of its gradient
    cluster   "nodes" and "per_node": nodes of `per_node` ranks, at least 1 each, and not both 1;
              "inside" and "between": (latency, bandwidth) of a message in a node, and of one between nodes. A message
              of m bytes takes latency + m / bandwidth.
    caps      sizes of buckets in bytes, in no order, each at least as large as any layer
    Returns   (cap, algorithm), a cap of `caps` and "ring", "tree" or "two levels": the pair whose step is shortest, or
              one whose step is less than 2% longer
    Step      Backward goes from the last layer to the first. A layer joins the open bucket if both have at most `cap`
              bytes together; else it begins a new one. A bucket is complete with its last layer. Buckets are reduced
              one after another, each when it is complete and the one before it is over.
    Ring      an all-reduce around all P ranks, 2 (P - 1) messages of one of P parts, one after another. With several
              nodes each message is as slow as one between nodes; with a single node all are inside.
    Tree      Sums go to one rank and come back, as whole buckets. With k nodes, ceil(log2 k) messages one after another
              on each way, between nodes; inside, ceil(log2 per_node) more on each way.
    Two levels
              In each node ring reduce-scatter, so that each rank has the sum of one part of the bucket, one for each
              rank of a node. Then a ring all-reduce of each part over the ranks that have it, one in each node; the
              ranks of a node share its link: what they send at the same time has one latency, and the bytes of all.
              Then ring all-gather in each node.
    """
    nodes, per_node = cluster["nodes"], cluster["per_node"]
    ranks = nodes * per_node

    def message(size, link):
        latency, bandwidth = cluster[link]
        return latency + size / bandwidth

    def reduction(algorithm, size):
        if algorithm == "ring":
            return 2 * (ranks - 1) * message(size / ranks, "between" if nodes > 1 else "inside")
        if algorithm == "tree":
            far, near = math.ceil(math.log2(nodes)), math.ceil(math.log2(per_node))
            return 2 * (far * message(size, "between") + near * message(size, "inside"))
        near_parts = 2 * (per_node - 1) * message(size / per_node, "inside")
        return near_parts + 2 * (nodes - 1) * message(size / nodes, "between")

    def step(cap, algorithm):
        now = over = 0.0
        size = 0
        for seconds, more in reversed(layers):
            if size + more > cap:  # the bucket is closed, complete since the layer before
                over = max(over, now) + reduction(algorithm, size)
                size = 0
            now, size = now + seconds, size + more
        return max(over, now) + reduction(algorithm, size)

    pairs = [(cap, algorithm) for cap in caps for algorithm in ("ring", "tree", "two levels")]
    return min(pairs, key=lambda pair: step(*pair))


# %%
check(choose_reduction)


# %% [markdown]
# ## 19. From 1 to 64 workers
#
# More workers take more samples in each step. Does training get that many times faster?

# %%
from course.lessons.widgets.scaling import scaling

scaling()

# %% [markdown]
# There are two limits, and either may come first. The links limit how many samples per second all workers do
# together: a ring has more latencies with each worker. And a step from a batch far above the critical size (lesson 02)
# is hardly better than one from a batch half as large: the steps to a given loss stop falling, however many samples
# there are. (The curve takes the law of lesson 02's digits: steps fall as $1 + B_\text{crit} / B$. Each batch has a
# rate of its own there: more workers with the same rate are another run.)
#
# ## 20. Without waiting
#
# In a step everybody waits for the slowest worker. In *asynchronous* SGD nobody waits: each worker takes the current
# weights, computes a gradient, and adds it whenever it is done. With $P$ workers about $P - 1$ other steps have been
# taken meanwhile: the gradient is *stale*.
#
# **Predict.** A learning rate works well with fresh gradients. What happens with the same rate, and gradients that
# are 7 steps old?

# %%
from course.lessons.experiments import stale_gradients
from course.lessons.figures.workers import stale_losses

found = stale_gradients.recorded()
print(found)
rate = found.data.best(0)[0]
for age, losses in zip((0, 7), stale_gradients.measure((0, 7), (rate,)).losses, strict=True):
    print(f"measured now, rate {rate:.2f}, gradients {age} steps old: {losses[0]:.2f} nats")
stale_losses(found.data, title="The older the gradient, the smaller the largest rate that still trains")

# %% [markdown]
# With the same rate old gradients learn nothing: ten classes, guessed, cost {{ guessed() : .1f }} nats ($\ln 10$).
# With fresh gradients the best of these rates is {{ best_rate(0) : .2g }}, and the loss comes to {{ best_loss(0) :
# .2f }} nats. With gradients that are 7 steps old the best is {{ best_rate(7) : .2g }}, which leaves {{ best_loss(7)
# : .2f }} nats after as many steps. An old gradient overshoots: it answers where the weights were, and the steps
# since then have answered the same.
#
# But eight workers that wait for one another take fewer steps from the same samples, each from a batch eight times as
# large. Their best loss is {{ best_together(8) : .2f }} nats: less than with old gradients, and more than a single
# worker's with as many small steps. With two workers, whose gradients are one step old, there is hardly a difference
# ({{ best_together(2) : .2f }} and {{ best_loss(1) : .2f }}). What is saved by not waiting is paid for in
# progress: from as many samples old gradients never do clearly better than workers that wait. And no such run can be
# repeated. That is why nearly all large models are trained with steps that everybody takes together. Against slow
# workers there are other means: Chen et al. (arXiv 1604.00981) have a few to spare, and leave out the last ones of
# each step.


# %% [markdown]
# ## 21. Find the fault: three programs for several workers
#
# Each of these programs runs on every rank, and each has one wrong line. `stops` fits a line to samples and ends when
# the loss is small enough. `branches` has several weights, and a batch uses one of them: which one, may differ from
# rank to rank. `waits` gets its gradients from `backward`, the last layer's first; each is computed when the loop
# asks for it.

# %%
from course.lessons.experiments import worker_runs

for name in worker_runs.PROGRAMS:
    print(worker_runs.PROGRAMS.listing(name), end="\n\n")

# %% [markdown]
# **Predict.** One of them hangs, in one the workers drift apart silently, and one is right and slower than it must
# be. Which is which? Look for a number that may differ between ranks.

# %%
print("stops:", worker_runs.seen("stops"))

print("\nbranches: how far each rank's weights are from those of rank 0")
for step, row in enumerate(worker_runs.apart(), start=1):
    print(f"  step {step}", *(f"{each:8.3f}" for each in row))

# %%
from course.lessons.figures.timeline import timeline

timeline(worker_runs.seen("waits").ledger)

# %% [markdown]
# A rank that leaves a loop because of a number that only it has leaves the others alone in their next collective.
# Real code does it with a shard that is one batch shorter, with a time limit, or with a test for nan. The second
# fault is worse, because nothing tells you: losses go on falling, and each worker trains a model of its own. Some
# frameworks compare a checksum of the weights now and then.
#
# In the third, the rows show when each rank computes, and when it waits for a transfer. Which of the two could happen
# at the same time?


# %% exercise
def mend_the_workers() -> dict[str, tuple[int, str]]:
    """The wrong line of each of the three programs above, and how it must read.

    Returns   for "stops", "branches" and "waits" the number of a line as it is printed above, and the line that
              replaces it, a str without a line break. Its indentation is kept, and may be left out; `torch` is
              imported.
    Judged    by the weights of all ranks at the end, on other numbers, and for "waits" by its time on the virtual
              clock, which may be a tenth above ours; any spelling of a cure is right
    stops     All ranks leave the loop as soon as the mean of the ranks' losses is below `enough`.
    branches  In every step each weight moves by the mean of all ranks' gradients, on all ranks.
    waits     The weights are those that it has now.
    Example   {"stops": (2, "for step in range(7):"), ...} would replace the second line of `stops`.
    """
    return {
        "stops": (7, "if mean < enough:"),  # a number that all ranks have alike
        "branches": (9, "if g.any():"),  # after the all-reduce: whether anybody used it
        "waits": (8, "works[-2].wait()"),  # the one before is over, or nearly
    }


# %%
check(mend_the_workers)


# %% [markdown]
# # Part IV: for real
#
# ## 22. Digits on real processes
#
# Your functions take a communicator, and do not ask what is behind it. Here it is gloo: processes of this machine,
# each with a Python of its own. Your step trains a classifier of digits on two and on four of them, beside torch's
# DDP on the same shards and one process with the whole batch.

# %%
from course.lessons.experiments import digits_workers

parts = digits_workers.PARTS
passed = parts.passed(globals(), solved)
print(parts.whose(passed))
chosen = parts.with_yours(passed)
for workers in (2, 4):
    alone = digits_workers.one_process(workers, chosen)
    print(f"{workers} workers: one process ends at {alone[-1]:.6f} nats")
    for name, worker in (("your step", digits_workers.own), ("DDP", digits_workers.torchs)):
        found = digits_workers.losses(worker, workers, chosen)
        apart = max(abs(one - other) for one, other in zip(found, alone, strict=True))
        print(f"   {name:9} ends at {found[-1]:.6f}, at most {apart:.0e} apart in any step")

# %% [markdown]
# All three agree up to rounding: many workers take the step of one. (Not with batch norm: in training DDP leaves each
# worker the statistics of its shard, unless you take `torch.nn.SyncBatchNorm`, which needs GPUs. The running ones are
# buffers, and rank 0's go to all before each forward.)
#
# On a cluster `torchrun` starts a process for each GPU, and says in environment variables which rank it is. These
# options of DDP are worth knowing, beside `no_sync` (section 12) and `bucket_cap_mb` (section 15):
#
# | Option | What it does |
# | --- | --- |
# | `gradient_as_bucket_view=True` | `.grad` is a view into its bucket: gradients lie in memory once, not twice |
# | `find_unused_parameters=True` | a branch may be left out (section 11); costs a search in each step |
# | `static_graph=True` | you promise that all steps use the same parameters alike: no search, even with unused ones |
# | `with model.join():` | ranks may have unequally many batches (section 9) |
# | `register_comm_hook(...)` | another reduction: in bfloat16, or of low rank (PowerSGD, arXiv 1905.13727) |
# | `forward_sync_buffers=False` | buffers do not travel in each step (formerly `broadcast_buffers=False`) |
#
# Some things remain yours. A loss that a rank prints is that of its shard. One rank writes the checkpoint. And norms
# are clipped after backward, when gradients are means.
#
# `torch.nn.DataParallel` is older, and easier to call: one process, one thread for each GPU. In every step it copies
# the model from the first GPU to all others, sends each its samples, collects their outputs there, and sums the
# gradients there. How long is a step of GPT-2 small on simulated GPUs, if each way is as quick as the links allow?

# %%
from course.cluster import Link
from course.lessons.experiments import worker_step

link = Link(latency=1e-5, bandwidth=2.5e10)
print(f"one GPU: {1e3 * worker_step.seconds(1, link):.0f} ms")
for gpus in (2, 4, 8):
    parallel, distributed = worker_step.data_parallel(gpus, link).makespan, worker_step.seconds(gpus, link)
    print(f"{gpus} GPUs: DataParallel {1e3 * parallel:.0f} ms, DDP {1e3 * distributed:.0f} ms")

# %% [markdown]
# The copies go along chains of links here, so their time hardly grows with the number of GPUs. But nothing hides it:
# forward waits for the weights, and the sums for the end of backward. DDP sends no weights, and most of its sums
# travel during backward. Left out is that one Python interpreter serves all GPUs of DataParallel, and that the first
# one holds all outputs. PyTorch's documentation advises `DistributedDataParallel`, also for one machine.


# %% [markdown]
# ## 23. Put together
#
# Your broadcast, buckets, overlapped backward and ring become a data parallel GPT on four processes. Where an answer
# has not passed its check, PyTorch's part stands in. The four workers have {{ shards() }} sequences of each batch, so
# each weighs its loss by its share. One thing at a time is then taken away.
#
# Four processes on a laptop share its cores, and their messages cross no network. So the table has a second time: the
# same step on simulated ranks, whose compute time is measured and whose links are slow ({{ latency_ms() : .0f }} ms,
# {{ bandwidth_mb() : .0f }} MB/s).
#
# The rows: all but the ring, with your ring too, no buckets, no overlap, a mean of means, no broadcast. Which of them
# must have the losses of one process, and which is the slowest on slow links?

# %%
from course.lessons.experiments import assembled_ddp

parts = assembled_ddp.PARTS
passed = parts.passed(globals(), solved)
print(parts.whose(passed))
for line in assembled_ddp.table(parts.with_yours(passed)):
    print(line)

# %% [markdown]
# The ring, the buckets and the overlap change no loss, only the time. (`your ring` is over when it returns, so that
# it hides nothing behind backward; a library's own all-reduce does.) The broadcast and the weights change what is
# computed. Both mistakes still train: no error, no warning, and a curve that looks like a curve. Without the
# broadcast four different models get the mean of each other's gradients. The mean of means is close to right, the
# closer the more alike the shards are, and that makes it hard to find.
#
# And this is a step of four processes on the machine's own clock, with the same parts and with DDP. When does the first
# bucket leave, and how much is still on its way when backward is over?

# %%
from course.lessons.experiments import worker_timelines
from course.lessons.figures.timeline import timeline

accounts = worker_timelines.timelines(parts.with_yours(passed))
timeline(accounts["these parts"], title="A step on four processes: the parts above")

# %%
timeline(accounts["torch's DDP"], title="A step on four processes: torch's DDP")

# %% [markdown]
# Both send while backward goes on (PyTorch's stand-in for your `overlapped_backward` sends afterwards). How long
# anything takes changes from run to run, where four processes share a few cores: compare the order, not the
# milliseconds.
#
# ## At scale
#
# Goyal et al. trained ResNet-50 on ImageNet in {{ hours(8) : .0f }} hours on 8 GPUs, and in {{ hours(256) : .0f }}
# hour on 256 (arXiv 1706.02677): about {{ hour_published() : .0%}} of a perfect 32-fold speed-up, and the paper
# itself says about 90%, by images per second. Their gradients left during backward, were added up inside each server
# first, and then between servers by halving and doubling (sections 18 and 6). Here is a step on 256 simulated ranks in
# 32 servers, whose 8 GPUs share one card of 50 Gbit/s, with a flat ring:

# %%
from course.lessons.experiments import imagenet_hour

published = imagenet_hour.published()
for words, overlaps in (("during backward", True), ("after backward", False)):
    ours = imagenet_hour.simulated(overlaps=overlaps)
    print(f"gradients sent {words:15}: {ours:.1%} of the ideal speed, error {ours / published - 1:+.1%}")

# %% [markdown]
# Both are near it; hours that are given to the hour allow no more. The simulated ranks all take equally long for a
# step, and nobody reads data; real ones wait for the slowest of 256.


# %% [markdown]
# ## What to remember
#
# 1. An all-reduce around a ring is a reduce-scatter and an all-gather. Each rank sends $2(P-1)/P$ of the bytes, never
#    more than twice their number. Plain trees have fewer messages in a row, and win where tensors are small.
# 2. Many workers take the step of one if they begin alike and weigh each gradient by its samples. A mean of means
#    does not.
# 3. All ranks must make the same collectives in the same order, whatever their data: one that skips a call hangs the
#    others.
# 4. Buckets hide communication behind backward. Small ones pay for latency, large ones for waiting.
# 5. Noise in local gradients must differ between ranks; whatever changes the weights must be alike.
#
# ## What to read
#
# - Li et al., *PyTorch Distributed: Experiences on Accelerating Data Parallel Training*, arXiv 2006.15704, section 3.
# - Thakur et al., *Optimization of Collective Communication Operations in MPICH*, IJHPCA 19, 2005.
# - Patarasuk and Yuan, *Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations*, JPDC 69, 2009.
# - Goyal et al., *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour*, arXiv 1706.02677.
# - Li et al., *Scaling Distributed Machine Learning with the Parameter Server*, OSDI 2014.
# - Chen et al., *Revisiting Distributed Synchronous SGD*, arXiv 1604.00981.
# - PyTorch's documentation of `DistributedDataParallel`, and its note on DDP's design.
#
# ## What this lesson simplified
#
# - The virtual clock: latency and bandwidth alone. Sums cost nothing, and communication takes nothing from computing;
#   on a GPU NCCL's kernels take some of its processors.
# - Real libraries choose between rings, trees and more for each call, and cut large tensors into pieces. Some
#   switches of a network add up what passes through them.
# - No rank failed. Real runs of many workers must survive one that dies.
# - No recorded number comes from a GPU.

# %%
progress()
