"""What connects the ranks: links, each with a latency and a bandwidth, and the way from one rank to another.

    ring              0 <-> 1 <-> 2 <-> 3 <-> 0         a message to a rank that is no neighbour takes several links
    fully_connected   every rank --one link--> switch --one link--> every rank
    two_levels        the same inside a node; between nodes all ranks of a node share one link out and one link in

The time of a message of n bytes is the sum of the latencies of its links plus n over the smallest bandwidth. For one
link that is the alpha-beta model (R. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2",
Parallel Computing 20(3), 1994). That bytes stream through several, and that a link carries one message at a time, is
our addition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from course.errors import BadArgument

Route: TypeAlias = tuple[str, ...]
MAX_RANKS = 128


@dataclass(frozen=True, kw_only=True)
class Link:
    """One connection, in one direction. latency in seconds, bandwidth in bytes per second.

    The defaults are of the order of a fast network card: 10 microseconds, 10 GB/s.
    """

    latency: float = 1e-5
    bandwidth: float = 1e10

    def __post_init__(self) -> None:
        if not (self.latency >= 0 and self.bandwidth > 0):
            raise BadArgument(f"a link must have a latency >= 0 s and a bandwidth > 0 bytes/s, got {self}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Topology:
    """Named links, and the names of those from `src` to `dst`, in order: `route(src, dst)`."""

    name: str
    size: int
    links: Mapping[str, Link]
    route: Callable[[int, int], Route]


def ring(size: int, link: Link | None = None) -> Topology:
    """Each rank has a link to the next and to the previous one; the shorter way is taken, upwards where both are."""
    link = link or Link()
    names = {f"{rank}->{(rank + way) % size}" for rank in range(_checked(size)) for way in (1, -1)}

    def route(src: int, dst: int) -> Route:
        ahead = (dst - src) % size
        way, hops = (1, ahead) if 2 * ahead <= size else (-1, size - ahead)
        return tuple(f"{(src + way * hop) % size}->{(src + way * (hop + 1)) % size}" for hop in range(hops))

    return Topology(name="ring", size=size, links=dict.fromkeys(sorted(names), link), route=route)


def fully_connected(size: int, link: Link | None = None) -> Topology:
    """Each rank has one link out and one link in, to a switch that is never busy: many senders to one rank must queue.

    The latency is counted once for the way out and in together.
    """
    links = _ports(range(_checked(size)), link or Link())
    return Topology(name="fully connected", size=size, links=links, route=_through_ports)


def two_levels(nodes: int, per_node: int, *, inside: Link | None = None, between: Link | None = None) -> Topology:
    """Nodes of `per_node` ranks each; rank r is on node r // per_node. Two nodes speak over one link of each.

    inside   of a rank in its node; by default ten times as fast as `between`: 100 GB/s, 1 microsecond
    between  of a node, shared by its ranks
    """
    inside, between = inside or Link(latency=1e-6, bandwidth=1e11), between or Link()
    size = _checked(nodes * per_node if min(nodes, per_node) > 0 else 0)
    links = _ports(range(size), inside)
    links |= {f"node {node} out": between for node in range(nodes)}
    links |= {f"node {node} in": Link(latency=0.0, bandwidth=between.bandwidth) for node in range(nodes)}

    def route(src: int, dst: int) -> Route:
        here, there = src // per_node, dst // per_node
        if here == there:
            return _through_ports(src, dst)
        return (f"{src} out", f"node {here} out", f"node {there} in", f"{dst} in")

    return Topology(name=f"{nodes} nodes of {per_node}", size=size, links=links, route=route)


def _ports(ranks: range, link: Link) -> dict[str, Link]:
    way_in = Link(latency=0.0, bandwidth=link.bandwidth)
    return {f"{rank} out": link for rank in ranks} | {f"{rank} in": way_in for rank in ranks}


def _through_ports(src: int, dst: int) -> Route:
    return (f"{src} out", f"{dst} in")


def _checked(size: int) -> int:
    if type(size) is not int or not 1 <= size <= MAX_RANKS:
        raise BadArgument(f"the number of ranks must be from 1 to {MAX_RANKS}, got {size!r}")
    return size
