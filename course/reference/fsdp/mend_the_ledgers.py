"""The line by which each of the three programs holds too much, and how it must read."""

from __future__ import annotations


def mend_the_ledgers() -> dict[str, tuple[int, str]]:
    """A shard with memory of its own, a unit that is freed with its last use, a loss without its graph."""
    return {
        "masters": (4, "mine.append(w.double().chunk(comm.size)[comm.rank].clone())"),
        "units": (5, "x = torch.tanh(full.pop() * x)"),
        "losses": (6, "found.append(loss.detach())"),
    }
