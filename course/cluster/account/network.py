"""What connects the ranks, and when a message that is sent now arrives.

    ring              0 <-> 1 <-> 2 <-> 3 <-> 0         a message to a rank that is no neighbour takes several links
    fully_connected   every rank --one link--> switch --one link--> every rank
    two_levels        the same inside a node; between nodes all ranks of a node share one link out and one link in

    transfer(src, dst, bytes, at)  --link by link, each as soon as it is free-->  (start, end)

On idle links a message of n bytes takes the sum of the latencies of its links plus n over the smallest bandwidth. For
one link that is the alpha-beta model (R. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2",
Parallel Computing 20(3), 1994). That bytes stream through several, and that a link carries one message at a time, is
our addition: a link is busy for bytes / bandwidth; latency delays a message, but lets the next one start. A message
takes the first time at which a link is free for long enough; while it waits for the next link, it holds up nothing
behind it.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TypeAlias

from course.cluster.account.traffic import Pair, Plan
from course.errors import BadArgument

Route: TypeAlias = tuple[str, ...]
Times: TypeAlias = tuple[float, float]
MAX_RANKS = 1024


@dataclass(frozen=True, kw_only=True)
class Link:
    """One connection, in one direction. latency in seconds, bandwidth in bytes per second.

    The defaults are of the order of a fast network card: 10 microseconds, 10 GB/s.
    """

    latency: float = 1e-5
    bandwidth: float = 1e10

    def __post_init__(self) -> None:
        are_numbers = isinstance(self.latency, Real) and isinstance(self.bandwidth, Real)
        if not (are_numbers and self.latency >= 0 and self.bandwidth > 0):
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
    link = _link(link)
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
    links = _ports(range(_checked(size)), _link(link))
    return Topology(name="fully connected", size=size, links=links, route=_through_ports)


def two_levels(nodes: int, per_node: int, *, inside: Link | None = None, between: Link | None = None) -> Topology:
    """Nodes of `per_node` ranks each; rank r is on node r // per_node. Two nodes speak over one link of each.

    inside   of a rank in its node; by default ten times as fast as `between`: 100 GB/s, 1 microsecond
    between  of a node, shared by its ranks
    """
    inside, between = _link(inside, latency=1e-6, bandwidth=1e11), _link(between)
    if type(nodes) is not int or type(per_node) is not int:
        raise BadArgument(f"the number of ranks must be from 1 to {MAX_RANKS}, got {nodes!r} nodes of {per_node!r}")
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


def _link(given: Link | None, **otherwise: float) -> Link:
    """That which was given; one with these settings where none was. Raises BadArgument for anything else."""
    if given is not None and not isinstance(given, Link):
        raise BadArgument(f"a link must be a Link, got {given!r}; write Link(latency=1e-5, bandwidth=1e10)")
    return given or Link(**otherwise)


def _ports(ranks: range, link: Link) -> dict[str, Link]:
    way_in = Link(latency=0.0, bandwidth=link.bandwidth)
    return {f"{rank} out": link for rank in ranks} | {f"{rank} in": way_in for rank in ranks}


def _through_ports(src: int, dst: int) -> Route:
    return (f"{src} out", f"{dst} in")


def _checked(size: int) -> int:
    if type(size) is not int or not 1 <= size <= MAX_RANKS:
        raise BadArgument(f"the number of ranks must be from 1 to {MAX_RANKS}, got {size!r}")
    return size


class Network:
    """The links of a topology, and until when each is busy. All times are virtual seconds."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._busy: defaultdict[str, list[Times]] = defaultdict(list)  # when it is busy, in order
        self._over = 0.0  # when the last of it ends
        self._routes: dict[Pair, Route] = {}
        self._paths: dict[Pair, list[tuple[str, Link, float]]] = {}
        self._durations: dict[Plan, tuple[float, Mapping[str, float]]] = {}

    def transfer(self, src: int, dst: int, size: int, at: float) -> Times:
        """Start and end of a message of `size` bytes that is ready at `at`."""
        begun, head, end = math.inf, at, at
        for name, link, latency in self._path((src, dst)):
            seconds = size / link.bandwidth
            head = self._free(name, head, seconds)
            self._book(name, head, seconds, at)
            begun = min(begun, head)
            end = max(end, head + seconds + latency)
            head += link.latency
        return min(begun, end), end  # without a link on its way a message begins and ends at once

    def collective(self, plan: Plan, at: float) -> Times:
        """Start and end of a collective whose ranks are all ready at `at`, on links that are free then.

        Each link is busy for what it carries, so that a fast one has room for others while a slow one sets the pace.
        """
        seconds, loads = self._duration(plan)
        if at >= self._over:  # all are free
            self._busy = defaultdict(list, {name: [(at, at + busy)] for name, busy in loads.items() if busy > 0})
            self._over = at + max(loads.values(), default=0.0)
            return at, at + seconds
        start, tried = at, -1.0
        while start > tried:
            tried = start
            start = max([start, *(self._free(name, start, busy) for name, busy in loads.items())])
        for name, busy in loads.items():
            self._book(name, start, busy, at)
        return start, start + seconds

    def _free(self, name: str, start: float, seconds: float) -> float:
        """The first time from `start` on at which the link is free for so long."""
        busy = self._busy[name]
        if not busy or busy[-1][1] <= start:
            return start
        first = max(bisect_right(busy, (start, math.inf)) - 1, 0)  # all before it are over
        for begun, end in busy[first:]:
            if start + seconds <= begun:
                break
            start = max(start, end)
        return start

    def _book(self, name: str, start: float, seconds: float, now: float) -> None:
        """The link is busy. What was over before `now`, when the earliest call is made, is forgotten."""
        if seconds > 0:
            end, busy = start + seconds, self._busy[name]
            if not busy or busy[-1][1] <= now:
                self._busy[name] = [(start, end)]
            else:
                self._busy[name] = busy = [each for each in busy if each[1] > now]
                insort(busy, (start, end))
            self._over = max(self._over, end)

    def _duration(self, plan: Plan) -> tuple[float, Mapping[str, float]]:
        """How long it takes on idle links, and how long it keeps each of them busy."""
        if plan not in self._durations:
            seconds, loads = 0.0, defaultdict[str, float](float)
            for count, pairs in plan.rounds:
                load = self._load(pairs)
                seconds += count * self._round(pairs, load, chain=plan.chain)
                for name, busy in load.items():
                    loads[name] += count * busy
            self._durations[plan] = (seconds, loads)
        return self._durations[plan]

    def _load(self, pairs: Mapping[Pair, int]) -> dict[str, float]:
        """Seconds that each link is busy; one that several pairs use carries the bytes of all."""
        load: Counter[str] = Counter()
        for pair, size in pairs.items():
            load.update(dict.fromkeys(self._route(pair), size))
        return {name: size / self.topology.links[name].bandwidth for name, size in load.items()}

    def _round(self, pairs: Mapping[Pair, int], load: Mapping[str, float], *, chain: bool) -> float:
        """The slowest of messages that start together; of a chain, all its latencies and the slowest of its links."""
        latencies = {pair: sum(self.topology.links[name].latency for name in self._route(pair)) for pair in pairs}
        if chain:
            return sum(latencies.values()) + max(load.values(), default=0.0)
        return max(latencies[pair] + max((load[name] for name in self._route(pair)), default=0.0) for pair in pairs)

    def _path(self, pair: Pair) -> list[tuple[str, Link, float]]:
        """The links from one rank to another, each with the sum of its latency and of those after it."""
        if pair not in self._paths:
            links = [(name, self.topology.links[name]) for name in self._route(pair)]
            rest = [sum(each.latency for _, each in links[place:]) for place in range(len(links))]
            self._paths[pair] = [(name, link, latency) for (name, link), latency in zip(links, rest, strict=True)]
        return self._paths[pair]

    def _route(self, pair: Pair) -> Route:
        if pair not in self._routes:
            self._routes[pair] = self.topology.route(*pair)
        return self._routes[pair]
