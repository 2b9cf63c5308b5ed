"""Three short programs for several workers, each with one fault: it hangs, it drifts apart, or it is slow.

program's name, line number, new line --mended--> text --run, on every rank--> the weights of that rank

The faults: a rank leaves the loop by a number of its own, skips an update by a gradient of its own, and waits for what
it has just begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.cluster import Comm, RanksFailed, run_ranks
from course.cluster.protocol.transport import Run
from course.errors import WrongOutput
from course.lessons.experiments.programs import Programs

PROGRAMS = Programs(
    stops="""\
def stops(comm, w, x, y, lr, enough):
    for step in range(50):
        error = x @ w - y
        loss = error.square().mean()
        mean = loss.clone()
        comm.all_reduce(mean, "mean")
        if loss < enough:
            break
        g = 2 * x.T @ error / len(y)
        comm.all_reduce(g, "mean")
        w = w - lr * g
    return w
""",
    branches="""\
def branches(comm, weights, batches, lr):
    for x, y, branch in batches:
        grads = [torch.zeros_like(w) for w in weights]
        error = x @ weights[branch] - y
        grads[branch] += 2 * x.T @ error / len(y)
        for w, g in zip(weights, grads):
            used = bool(g.any())
            comm.all_reduce(g, "mean")
            if used:
                w -= lr * g
    return torch.stack(weights)
""",
    waits="""\
def waits(comm, weights, backward, steps, lr):
    for step in range(steps):
        grads, works = [], []
        for g in backward(weights, step):
            grads.append(g)
            works.append(comm.all_reduce(g, "mean", async_op=True))
            if len(works) > 1:
                works[-1].wait()
        for work in works:
            work.wait()
        for w, g in zip(reversed(weights), grads):
            w -= lr * g
    return torch.stack(weights)
""",
)
SECONDS = 80e-6  # that the gradient of one layer takes in `waits`: somewhat more than its all-reduce


def run(comm: Comm, name: str, program: str = "", **given: Any) -> Tensor:
    """The weights that this rank has at the end.

    program  its text, as it stands above if left out. It is executed: it is run where its author's code is
    given    stops: w (d,), x (n, d), y (n,), lr, enough
             branches: weights (k, d), xs (steps, n, d), ys (steps, n), taken (k's of the steps), lr
             waits: weights (k, d), targets (steps, k, d), lr

    Raises WrongOutput where the program returns no tensor.
    """
    if name != "stops":
        given["weights"] = list(given["weights"].clone())
    if name == "branches":
        given["batches"] = list(zip(given.pop("xs"), given.pop("ys"), given.pop("taken"), strict=True))
    if name == "waits":
        targets = given.pop("targets")
        given |= {"backward": partial(_backward, comm, targets), "steps": len(targets)}
    found = PROGRAMS.defined(name, program)(comm, **given)
    if not isinstance(found, Tensor):
        raise WrongOutput(f"{name} must return a tensor, got {type(found).__name__}")
    return found


def _backward(comm: Comm, targets: Tensor, weights: Sequence[Tensor], step: int) -> Iterator[Tensor]:
    """The gradient of each layer, the last one's first: each is computed when it is asked for."""
    for w, target in zip(reversed(weights), reversed(targets[step]), strict=True):
        comm.compute(SECONDS, "backward")
        yield w - target


def example(name: str, ranks: int = 3) -> list[dict[str, Any]]:
    """What each rank gets where the lesson shows the programs."""
    rng = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    if name == "stops":
        w, parts = draw(4), [(draw(16, 4), 0.1 * (1 + rank)) for rank in range(ranks)]
        return [{"w": torch.zeros_like(w), "x": x, "y": x @ w + far, "lr": 0.2, "enough": 0.06} for x, far in parts]
    if name == "branches":
        weights, steps = draw(2, 4), 6
        taken = [[int(step >= 2 and rank == 1) for step in range(steps)] for rank in range(ranks)]
        shared = {"weights": weights, "lr": 0.1}
        return [{**shared, "xs": draw(steps, 8, 4), "ys": draw(steps, 8), "taken": each} for each in taken]
    weights = draw(6, 64)
    return [{"weights": weights, "targets": draw(2, 6, 64), "lr": 0.1} for _ in range(ranks)]


def seen(name: str, program: str = "", given: Sequence[dict[str, Any]] = ()) -> Run | str:
    """A run on simulated ranks, by default on the example; or the sentence that says why it did not end."""

    def worker(comm: Comm, mine: dict[str, Any]) -> Tensor:
        return run(comm, name, program, **mine)

    parts = [(each,) for each in given or example(name)]
    try:
        return run_ranks(worker, len(parts), inputs=parts)
    except RanksFailed as error:
        return str(error)


def apart(program: str = "") -> list[list[float]]:
    """For each number of steps of `branches` how far the weights of each rank are from rank 0's, at most."""
    given, found = example("branches"), []
    for steps in range(1, len(given[0]["taken"]) + 1):
        short = [{**each, **{key: each[key][:steps] for key in ("xs", "ys", "taken")}} for each in given]
        ended = seen("branches", program, short)
        assert not isinstance(ended, str), ended
        found.append([float((weights - ended.values[0]).abs().max()) for weights in ended.values])
    return found
