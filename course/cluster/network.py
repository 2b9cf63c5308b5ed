"""The virtual clock of the links: when a message that is sent now arrives.

    transfer(src, dst, bytes, at)  --waits until every link on the way is free-->  (start, end)

A link is busy for bytes / bandwidth; latency delays a message, but lets the next one start.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from course.cluster.topology import Topology
from course.cluster.traffic import Pair, Plan

Times = tuple[float, float]


class Network:
    """The links of a topology, and until when each is busy. All times are virtual seconds."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._busy: defaultdict[str, float] = defaultdict(float)
        self._routes: dict[Pair, tuple[str, ...]] = {}
        self._durations: dict[int, tuple[Plan, float, tuple[str, ...]]] = {}

    def transfer(self, src: int, dst: int, size: int, at: float) -> Times:
        """Start and end of a message of `size` bytes that is ready at `at`."""
        route = self._route((src, dst))
        start = max([at, *(self._busy[name] for name in route)])
        links = [self.topology.links[name] for name in route]
        for name, link in zip(route, links, strict=True):
            self._busy[name] = start + size / link.bandwidth
        slowest = min(link.bandwidth for link in links)
        return start, start + sum(link.latency for link in links) + size / slowest

    def collective(self, plan: Plan, at: float) -> Times:
        """Start and end of a collective whose ranks are all ready at `at`; its links are busy all the time."""
        seconds, names = self._duration(plan)
        start = max([at, *(self._busy[name] for name in names)])
        for name in names:
            self._busy[name] = start + seconds
        return start, start + seconds

    def _duration(self, plan: Plan) -> tuple[float, tuple[str, ...]]:
        """How long it takes on idle links, and the links that it uses."""
        known = self._durations.get(id(plan))
        if known is None or known[0] is not plan:
            seconds = sum(count * self._round(pairs) for count, pairs in plan.rounds)
            names = {name for _, pairs in plan.rounds for pair in pairs for name in self._route(pair)}
            known = self._durations[id(plan)] = (plan, seconds, tuple(sorted(names)))
        return known[1], known[2]

    def _round(self, pairs: Mapping[Pair, int]) -> float:
        """The slowest of messages that start together; a link that several use carries the bytes of all."""
        load: Counter[str] = Counter()
        for pair, size in pairs.items():
            load.update(dict.fromkeys(self._route(pair), size))
        links = self.topology.links
        return max(
            sum(links[name].latency for name in self._route(pair))
            + max(load[name] / links[name].bandwidth for name in self._route(pair))
            for pair in pairs
        )

    def _route(self, pair: Pair) -> tuple[str, ...]:
        if pair not in self._routes:
            self._routes[pair] = self.topology.route(*pair)
        return self._routes[pair]
