"""The virtual clock of the links: when a message that is sent now arrives.

    transfer(src, dst, bytes, at)  --link by link, each as soon as it is free-->  (start, end)

A link is busy for bytes / bandwidth; latency delays a message, but lets the next one start. A message takes the first
time at which a link is free for long enough; while it waits for the next link, it holds up nothing behind it.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Mapping

from course.cluster.topology import Topology
from course.cluster.traffic import Pair, Plan

Times = tuple[float, float]


class Network:
    """The links of a topology, and until when each is busy. All times are virtual seconds."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._busy: defaultdict[str, list[Times]] = defaultdict(list)  # when it is busy, in order
        self._routes: dict[Pair, tuple[str, ...]] = {}
        self._durations: dict[Plan, tuple[float, Mapping[str, float]]] = {}

    def transfer(self, src: int, dst: int, size: int, at: float) -> Times:
        """Start and end of a message of `size` bytes that is ready at `at`."""
        links = [(name, self.topology.links[name]) for name in self._route((src, dst))]
        begun, head, end = at, at, at
        for place, (name, link) in enumerate(links):
            seconds = size / link.bandwidth
            head = self._free(name, head, seconds)
            self._book(name, head, seconds, at)
            begun = head if place == 0 else begun
            end = max(end, head + seconds + sum(each.latency for _, each in links[place:]))
            head += link.latency
        return begun, end

    def collective(self, plan: Plan, at: float) -> Times:
        """Start and end of a collective whose ranks are all ready at `at`, on links that are free then.

        Each link is busy for what it carries, so that a fast one has room for others while a slow one sets the pace.
        """
        seconds, loads = self._duration(plan)
        start, tried = at, -1.0
        while start > tried:
            tried = start
            start = max([start, *(self._free(name, start, busy) for name, busy in loads.items())])
        for name, busy in loads.items():
            self._book(name, start, busy, at)
        return start, start + seconds

    def _free(self, name: str, start: float, seconds: float) -> float:
        """The first time from `start` on at which the link is free for so long."""
        for begun, end in self._busy[name]:
            if start + seconds <= begun:
                break
            start = max(start, end)
        return start

    def _book(self, name: str, start: float, seconds: float, now: float) -> None:
        """The link is busy. What was over before `now`, when the earliest call is made, is forgotten."""
        if seconds > 0:
            busy = self._busy[name] = [each for each in self._busy[name] if each[1] > now]
            insort(busy, (start, start + seconds))

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
            return sum(latencies.values()) + max(load.values())
        return max(latencies[pair] + max(load[name] for name in self._route(pair)) for pair in pairs)

    def _route(self, pair: Pair) -> tuple[str, ...]:
        if pair not in self._routes:
            self._routes[pair] = self.topology.route(*pair)
        return self._routes[pair]
