"""Running one function on several ranks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

from course.cluster.account.network import MAX_RANKS
from course.cluster.calls import VERBS
from course.cluster.protocol.transport import Program, Run, Transport
from course.cluster.simulated.simulation import Simulated
from course.errors import BadArgument

Name = Literal["simulated", "gloo", "nccl"]
MAX_SECONDS = 1_000_000  # of a run: clocks of the system go no further


def run_ranks(
    function: Callable[..., Any],
    ranks: int,
    *,
    transport: Name | Transport = "simulated",
    inputs: Sequence[Sequence[Any]] | None = None,
    seconds: float | None = None,
    verbs: Collection[str] | None = None,
) -> Run:
    """Call `function(comm, *inputs[rank])` on every rank, and wait until all have returned.

    function   may be defined in a notebook; prints come out with the number of the rank
    ranks      how many: 1 to 1024 simulated ones, and at most 128 processes
    transport  "simulated", "gloo" or "nccl" with their defaults, or a transport with settings: `Simulated(seed=1)`
    inputs     what each rank gets beside its communicator: a copy of its own, but of what cannot be copied, such as a
               lock, on simulated ranks the caller's. By default nothing
    seconds    of real time that the run may take. By default 60 for simulated and brokered ranks, and as long as they
               need for gloo and NCCL, where an interrupt ends them; a call of torch.distributed then has torch's 30 min
    verbs      that the communicators offer; by default all

    Returns what the ranks returned, by rank, and the ledger. Raises RanksFailed where a rank raises or dies, where
    nobody can go on, where calls do not fit, where a message is never received, and at the time limit: in one sentence
    that says who waits for what. No process of the run is left then. Raises BadArgument on what makes no sense.

        >>> run_ranks(lambda comm: comm.rank, 3).values
        [0, 1, 2]
    """
    if not callable(function):
        raise BadArgument(f"function must be something to call with a communicator, got {function!r}")
    if message := _unfinished(function):
        raise BadArgument(f"function must return what it computes, but {message}")
    if seconds is not None and (not isinstance(seconds, (int, float)) or not 0 < seconds <= MAX_SECONDS):
        raise BadArgument(f"seconds must be a number above 0 and at most {MAX_SECONDS:,}, got {seconds!r}")
    is_list = isinstance(verbs, Collection) and not isinstance(verbs, str)
    if verbs is not None and (not is_list or any(each not in VERBS for each in verbs)):
        came = next(each for each in verbs if each not in VERBS) if is_list else verbs
        raise BadArgument(f"verbs must be a list of some of {', '.join(VERBS)}, got {came!r}")
    given = _given(ranks, inputs)
    program = Program(function=function, ranks=ranks, inputs=given, seconds=seconds, verbs=verbs)
    return _transport(transport).run(program)


def _unfinished(function: Callable[..., Any]) -> str:
    """Why a call of it would not run it; "" where it would."""
    name = getattr(function, "__name__", "it")
    if inspect.isgeneratorfunction(function):
        return f"{name} is a generator function: it has a yield, so that a call runs nothing of it"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"{name} is an async function: write it with def alone, a rank waits by itself"
    return ""


def _given(ranks: int, inputs: Sequence[Sequence[Any]] | None) -> list[Sequence[Any]]:
    """The arguments of each rank. Raises BadArgument."""
    if type(ranks) is not int or not 1 <= ranks <= MAX_RANKS:
        raise BadArgument(f"ranks must be a number from 1 to {MAX_RANKS}, got {ranks!r}")
    if inputs is None:
        return [()] * ranks
    if not isinstance(inputs, Sequence):
        raise BadArgument(f"inputs must be a list of sequences, one for each rank, got {type(inputs).__name__}")
    if len(inputs) != ranks:
        raise BadArgument(f"inputs must hold one sequence of arguments for each of {ranks} ranks, got {len(inputs)}")
    for rank, each in enumerate(inputs):
        if not isinstance(each, Sequence) or isinstance(each, str):
            raise BadArgument(
                f"inputs must hold a sequence of arguments for each rank, got {type(each).__name__} for rank {rank}; "
                "write (x,) for a single x"
            )
    return list(inputs)


def _transport(transport: Name | Transport) -> Transport:
    if isinstance(transport, type) or (not isinstance(transport, str) and not hasattr(transport, "run")):
        raise BadArgument(f"transport must be a name or a transport, such as Simulated(seed=1), got {transport!r}")
    if not isinstance(transport, str):
        return transport
    if transport == "simulated":
        return Simulated()
    if transport not in ("gloo", "nccl"):
        raise BadArgument(
            f"transport must be simulated, gloo or nccl, or a transport such as autograder.sandbox.Brokered(), "
            f"got {transport!r}"
        )
    from course.cluster.processes.transports import Gloo, Nccl  # what they import is of no use to simulated ranks

    return Gloo() if transport == "gloo" else Nccl()
