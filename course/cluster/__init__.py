"""A cluster on a laptop: ranks that are threads, processes or sandboxed strangers, and one way to write for them all.

def step(comm): ...                                 comm: a Comm, with torch.distributed's verbs
run_ranks(step, 4)                                  simulated: threads, a virtual clock, a ledger
run_ranks(step, 4, transport="gloo")                processes of this machine, started from a notebook cell
run_ranks(step, 64, transport=Simulated(topology=two_levels(8, 8)))

run         `run_ranks`; torchrun: the communicator of a script that torchrun starts, as in pi
simulated/  ranks that are threads
processes/  ranks that are processes: gloo, NCCL
protocol/   the verbs, where the ranks' calls meet, and in which order
account/    the ledger, the traffic of collectives, the links
calls       what a rank says when it calls a verb
"""

from __future__ import annotations

from course.cluster.account.ledger import Event, Ledger
from course.cluster.account.network import Link, Topology, fully_connected, ring, two_levels
from course.cluster.protocol.comm import Comm, P2POp, Work
from course.cluster.protocol.failures import RanksFailed
from course.cluster.protocol.transport import Run
from course.cluster.protocol.work import WaitTimedOut
from course.cluster.run import run_ranks
from course.cluster.simulated.simulation import Simulated

__all__ = [
    "Comm",
    "Event",
    "Ledger",
    "Link",
    "P2POp",
    "RanksFailed",
    "Run",
    "Simulated",
    "Topology",
    "WaitTimedOut",
    "Work",
    "fully_connected",
    "ring",
    "run_ranks",
    "two_levels",
]
