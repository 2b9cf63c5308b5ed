"""The transport whose ranks are threads of this process, one of which runs at a time, on a virtual clock.

See `simulation` for how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from course.cluster.job import Job, Run
from course.cluster.simulation import Simulation
from course.cluster.topology import Topology, fully_connected
from course.errors import BadArgument


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The simulated transport.

    topology  what connects the ranks; None: fully connected by links of 10 microseconds and 10 GB/s
    seed      shuffles what happens at the same time, and who is heard first by a receive from anybody
    clock     "declared": only `comm.compute` takes time; "measured": also the processor time of the ranks' own code,
              which differs from run to run
    memory    whether to write down, after each operation of a rank, the bytes of the tensors that it holds, its
              inputs included; every operation takes longer then
    """

    topology: Topology | None = None
    seed: int = 0
    clock: Literal["declared", "measured"] = "declared"
    memory: bool = False

    def __post_init__(self) -> None:
        if self.clock not in ("declared", "measured"):
            raise BadArgument(f"clock must be declared or measured, got {self.clock!r}")

    def run(self, job: Job) -> Run:
        """See Transport. Raises BadArgument where the topology has another number of ranks."""
        topology = self.topology or fully_connected(job.ranks)
        if topology.size != job.ranks:
            raise BadArgument(f"the topology must have {job.ranks} ranks, got {topology.name} of {topology.size}")
        return Simulation(job, topology, seed=self.seed, measured=self.clock == "measured", memory=self.memory).run()
