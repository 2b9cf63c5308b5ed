"""Questions of `choose_reduction`: clusters, layers and sizes of buckets, drawn at random."""

from __future__ import annotations

import torch

from course.exercises.ddp.reductions import Question, times
from course.performing.draws import integer


def any_at_all(rng: torch.Generator) -> Question:
    """Of all sizes."""
    return _question(
        rng, (2, 20), (2, 9), (8, 20), _between(rng, 1.5, 30), _between(rng, 1e-6, 1e-4), _between(rng, 1e4, 1e7)
    )


def small(rng: torch.Generator) -> Question:
    """Latencies and bytes take about as long."""
    return _question(
        rng, (2, 6), (2, 6), (6, 20), _between(rng, 1.5, 5), _between(rng, 1e-5, 1e-4), _between(rng, 1e4, 3e5)
    )


def powers_of_two(rng: torch.Generator) -> Question:
    """A tree is as high as its logarithm says."""
    return _question(rng, (4, 5), (4, 5), (8, 14), _between(rng, 1.2, 4), 5e-5, _between(rng, 1e4, 1e5))


def few(rng: torch.Generator) -> Question:
    """A few ranks, where a message more is much."""
    return _question(rng, (2, 4), (2, 4), (3, 12), _between(rng, 1.1, 2), 1e-6, 2e7)


def far_apart(rng: torch.Generator) -> Question:
    """Many nodes and small gradients: latencies take the time."""
    return _question(rng, (20, 70), (2, 9), (10, 40), 10.0, 5e-5, 2e4)


def even(rng: torch.Generator) -> Question:
    """Links inside a node are hardly faster than those between nodes."""
    return _question(rng, (3, 9), (2, 9), (10, 14), 1.5, 1e-6, 2e7)


def fast_nodes(rng: torch.Generator) -> Question:
    """Links inside a node are much faster."""
    return _question(rng, (3, 9), (4, 9), (10, 30), 30.0, 2e-5, 1e6)


def faster_nodes(rng: torch.Generator) -> Question:
    """Links inside a node are faster, and not for nothing: whole gradients over them would lose."""
    return _question(rng, (3, 9), (7, 10), (10, 30), 4.0, 2e-5, 1e6)


def slow_links(rng: torch.Generator) -> Question:
    """Few ranks and large gradients: bytes take the time."""
    return _question(rng, (2, 4), (2, 5), (8, 14), 10.0, 1e-6, 5e6)


def one_node(rng: torch.Generator) -> Question:
    """Nothing goes between nodes."""
    return _question(rng, (1, 2), (2, 9), (8, 20), 10.0, 1e-5, 1e6)


def one_rank_each(rng: torch.Generator) -> Question:
    """Nothing goes inside, where links are slower."""
    return _question(rng, (3, 40), (1, 2), (8, 20), 0.1, 2e-5, 2e6)


def _between(rng: torch.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return float(low * (high / low) ** (integer(rng, 0, 1001) / 1000))


def _question(
    rng: torch.Generator,
    nodes: tuple[int, int],
    per_node: tuple[int, int],
    share: tuple[int, int],
    faster: float,
    latency: float,
    size: float,
) -> Question:
    """share: tenths of the best reduction's time that backward takes; faster: the links inside; size: of a layer."""

    def about(number: float) -> float:
        return number * integer(rng, 600, 1400) / 1000

    layers = integer(rng, 12, 25)
    sizes = [int(about(size)) for _ in range(layers)]
    bandwidth = about(1e10)
    question: Question = {
        "cluster": {
            "nodes": integer(rng, *nodes),
            "per_node": integer(rng, *per_node),
            "inside": [about(latency) / faster, about(faster * bandwidth)],
            "between": [about(latency), bandwidth],
        },
        "caps": [max(*sizes, sum(sizes) // 2**power) for power in torch.randperm(5, generator=rng).tolist()],
    }
    whole = min(times({**question, "layers": [[0.0, sum(sizes)]]}).values())
    backward = whole * integer(rng, *share) / 10 / layers
    return {**question, "layers": [[about(backward), each] for each in sizes]}
