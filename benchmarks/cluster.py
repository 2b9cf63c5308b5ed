"""What a cluster on a laptop costs: verbs on every transport and beside torch's own, the simulator at 64 ranks,
launches, and a whole check.

    python benchmarks/cluster.py              everything, minutes
    python benchmarks/cluster.py --quick      fewer rounds

Each latency is the median over rounds; the transports take turns, so that whatever else the machine does meets all of
them. Ratios are against the simulated transport in the same round.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import typer
from measuring import ROOT, machine
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(ROOT / "tests"))

import toy_ranks
from ranks_room import staged_with_toy

from autograder.sandbox import Brokered, Runner, open_runner
from course.cluster import RanksFailed, run_ranks
from course.judging.judge import judge
from course.performing.cells import CodeCell
from course.performing.perform import in_float64, perform_all

RANKS = 4
SIZES = {"4 B": 1, "16 KiB": 2**12, "1 MiB": 2**18}  # float32 elements that a rank gives
CALLS = {1: 20, 2**12: 20, 2**18: 5}  # of one verb in one run: ranks may not send more than 256 MiB together


# Functions that sandboxed ranks load must stand in one file with what they use.
def verb(comm, name, elements, calls):
    """Seconds for one call of a verb, as this rank sees it; the first two are not counted."""
    import time

    import torch

    x = torch.ones(elements)
    rows = [torch.ones(elements) for _ in range(comm.size)]
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def once():
        if name == "send, recv":
            comm.send(x, after)
            comm.recv(rows[0], before)
        elif name == "broadcast":
            comm.broadcast(x, 0)
        elif name == "all_gather":
            comm.all_gather(rows, x)
        elif name == "reduce_scatter":
            comm.reduce_scatter(x, rows)
        elif name == "all_reduce":
            comm.all_reduce(x)
        else:
            comm.barrier()

    for _ in range(2):
        once()
    started = time.perf_counter()
    for _ in range(calls):
        once()
    return (time.perf_counter() - started) / calls


def beside(comm, name, elements, calls, turns):
    """Seconds for one call of a verb and of torch.distributed's own, in turns, as this rank sees them: (turns, 2)."""
    import time

    import torch
    import torch.distributed as dist

    x, other, is_root = torch.ones(elements), comm.rank ^ 1, comm.rank == 0
    rows, outs = ([torch.ones(elements) for _ in range(comm.size)] for _ in range(2))
    whole = torch.cat(rows)

    def there_and_back(send, recv):
        """As torch.distributed's send may wait for the receiver, one of the two receives first."""
        if comm.rank % 2:
            recv(x, other)
            send(x, other)
        else:
            send(x, other)
            recv(x, other)

    def both(name, *arguments):
        return (lambda: getattr(comm, name)(*arguments)), (lambda: getattr(dist, name)(*arguments))

    verbs = {
        "send, recv": (lambda: there_and_back(comm.send, comm.recv), lambda: there_and_back(dist.send, dist.recv)),
        "barrier": both("barrier"),
        "broadcast": both("broadcast", x, 0),
        "reduce": both("reduce", x, 0, dist.ReduceOp.MAX),
        "all_reduce": both("all_reduce", x, dist.ReduceOp.MAX),
        "all_gather": both("all_gather", rows, x),
        "all_gather_single": both("all_gather_single", whole, x),
        "reduce_scatter": both("reduce_scatter", x, rows),
        "reduce_scatter_single": both("reduce_scatter_single", x, whole),
        "gather": both("gather", x, rows if is_root else None),
        "scatter": both("scatter", x, rows if is_root else None),
        "all_to_all": both("all_to_all", outs, rows),
    }
    messages, found = 2 if name == "send, recv" else 1, []
    for _ in range(turns + 1):
        times = []
        for once in verbs[name]:
            once()
            dist.barrier()
            started = time.perf_counter()
            for _ in range(calls):
                once()
            times.append((time.perf_counter() - started) / calls / messages)
            dist.barrier()
        found.append(times)
    return found[1:]


def ddp_step(comm):
    """One step of torch's own DDP, on the default group."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    model(torch.ones(8, 64)).sum().backward()
    return float(model.module.weight.grad.sum())


def collectives(comm, elements, calls):
    """So many all_reduces."""
    x = torch.ones(elements)
    for _ in range(calls):
        comm.all_reduce(x, "mean")


def messages(comm, calls):
    """So many messages around the ring, of 4 elements."""
    x, after, before = torch.ones(4), (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for _ in range(calls):
        comm.send(x, after)
        comm.recv(x, before)


def latencies(brokered: Brokered, rounds: int) -> Table:
    """Milliseconds for one call by four ranks, by verb, size and transport."""
    transports: dict[str, Any] = {"simulated": "simulated", "brokered": brokered, "gloo": "gloo"}
    table = Table(title=f"one call by {RANKS} ranks, milliseconds (times the simulated one)")
    for name in ("verb", "each rank gives", *transports):
        table.add_column(name, justify="left" if name == "verb" else "right")
    for name in ("barrier", "send, recv", "broadcast", "all_gather", "reduce_scatter", "all_reduce"):
        for label, elements in SIZES.items():
            if name == "barrier" and elements > 1:
                continue
            found: dict[str, list[float]] = {each: [] for each in transports}
            for _ in range(rounds):
                for each, transport in transports.items():
                    inputs = [(name, elements, CALLS[elements])] * RANKS
                    run = run_ranks(verb, RANKS, transport=transport, inputs=inputs)
                    found[each].append(max(run.values))
            times = {each: 1000 * statistics.median(values) for each, values in found.items()}
            cells = [f"{value:.2f} ({value / times['simulated']:.1f})" for value in times.values()]
            table.add_row(name, "" if name == "barrier" else label, *cells)
    return table


VERBS = (
    *("send, recv", "barrier", "broadcast", "reduce", "all_reduce", "all_gather", "all_gather_single"),
    *("reduce_scatter", "reduce_scatter_single", "gather", "scatter", "all_to_all"),
)


def beside_torch(rounds: int) -> Table:
    """Microseconds for one call, of torch's own and of ours, by the slowest rank: a tenth of all turns is faster.

    Times torch's: by these two, and the median of the ratios of turns, which other work on the machine moves less.

    The median is of turns that were disturbed, where there are fewer cores than ranks and gloo's threads: a thread that
    another takes the place of comes back after 4 ms.
    """
    table = Table(title="gloo beside torch's own, microseconds for one call: torch's, ours (times torch's, in a turn)")
    for name in ("verb", "each rank gives", "2 ranks", f"{RANKS} ranks"):
        table.add_column(name, justify="left" if name == "verb" else "right")
    for name in VERBS:
        for label, elements in SIZES.items():
            if label == "16 KiB" or (name == "barrier" and elements > 1):
                continue
            cells = [_beside(name, ranks, elements, 10 * rounds) for ranks in (2, RANKS)]
            table.add_row(name, "" if name == "barrier" else label, *cells)
    return table


def _beside(name: str, ranks: int, elements: int, turns: int) -> str:
    calls = 10 if elements == 1 else 3
    run = run_ranks(beside, ranks, transport="gloo", inputs=[(name, elements, calls, turns)] * ranks)
    times = 1e6 * torch.tensor(run.values).amax(0)  # turns, ours and torch's
    ours, torchs = times.quantile(0.1, dim=0).tolist()
    ratio = (times[:, 0] / times[:, 1]).median().item()
    return f"{torchs:,.0f}, {ours:,.0f} ({ours / torchs:.1f}, {ratio:.1f})"


def summed(ranks, elements, calls):
    """What all_reduces of so many ranks read and write, by torch alone: the sum of all tensors, copied into each."""
    tensors = [torch.ones(elements) for _ in range(ranks)]
    for _ in range(calls):
        whole = tensors[0].clone()
        for each in tensors[1:]:
            torch.add(whole, each, out=whole)
        for each in tensors:
            each.copy_(whole)


def simulator(rounds: int) -> Table:
    """Seconds of simulated ranks, and microseconds for each call of each rank, elapsed and of processors.

    The runs take turns with what torch alone needs for the bytes of the largest: memory is the floor there.
    """
    small, large = "64 ranks, 1,000 all_reduces of 16 B", "64 ranks, 1,000 all_reduces of 1 MiB"
    runs: dict[str, tuple[Callable[..., Any], int, tuple[int, ...], int, str]] = {
        small: (collectives, 64, (4, 1000), 1000, "5 s, 30 us"),
        large: (collectives, 64, (2**18, 1000), 1000, "8 s"),
        "64 ranks, 500 messages each around the ring": (messages, 64, (500,), 1000, "30 us"),
        "1,024 ranks, 10 all_reduces of 16 B": (collectives, 1024, (4, 10), 10, ""),
        "1,024 ranks, 10 messages each around the ring": (messages, 1024, (10,), 20, ""),
    }
    alone = "the sums and copies of 1,000 times 64 MiB by torch alone"
    table = Table("what", "seconds", "at most", "us a call", "of processors: seconds", "us a call", "wanted")
    table.title, used = "the simulator, medians", dict[str, float]()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in (*runs, alone)}
    for _ in range(max(2, rounds // 2)):
        for name, (function, ranks, arguments, *_) in runs.items():
            times[name].append(
                _both_times(partial(run_ranks, function, ranks, inputs=[arguments] * ranks, seconds=600))
            )
        times[alone].append(_both_times(partial(summed, 64, 2**18, 1000)))
    for name, found in times.items():
        _, ranks, _, calls, wanted = runs.get(name, (None, 64, (), 1000, ""))
        elapsed, used[name] = (statistics.median(each) for each in zip(*found, strict=True))
        microseconds = [f"{1e6 * each / ranks / calls:.0f}" for each in (elapsed, used[name])]
        longest = max(each for each, _ in found)
        row = (f"{elapsed:.2f}", f"{longest:.2f}", microseconds[0], f"{used[name]:.2f}", microseconds[1], wanted)
        table.add_row(name, *row)
    table.caption = (
        f"all_reduces of 1 MiB take {used[large] / used[alone]:.2f} times the processor time of torch alone, and "
        f"{used[large] / (used[alone] + used[small]):.2f} times that of torch alone and the small calls together"
    )
    return table


PLAN = """
import resource, sys, time, torch
from course.cluster import run_ranks
from course.lessons.models import GPT, GPTConfig

SIZES = {
    "GPT-2 small, 124 million": GPTConfig(vocabulary=50257, context=1024, width=768, heads=12, layers=12),
    "GPT-2 XL, 1.6 billion": GPTConfig(vocabulary=50257, context=1024, width=1600, heads=25, layers=48),
}
with torch.device("meta"):
    shapes = [each.shape for each in GPT(SIZES[sys.argv[1]]).parameters()]

def step(comm, device):
    gradients = [torch.ones(shape, device=device) for shape in shapes]
    for each in gradients:
        comm.all_reduce(each, "mean")

before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
run_ranks(step, 8, inputs=[(sys.argv[2],)] * 8, seconds=600)
print(time.perf_counter() - started, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def plans() -> Table:
    """Seconds, and memory of a process of its own, for the gradients of a model on 8 ranks, with data and without."""
    table = Table("model", "data", "seconds", "MiB", title="all gradients of a model, 8 ranks (wanted: 1 s, 512 MiB)")
    for model, device in (("GPT-2 small, 124 million", "cpu"), *((each, "meta") for each in MODELS)):
        command = [sys.executable, "-c", PLAN, model, device]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        seconds, size = map(float, said.split())
        table.add_row(model, "yes" if device == "cpu" else "none", f"{seconds:.2f}", f"{size:,.0f}")
    return table


MODELS = ("GPT-2 small, 124 million", "GPT-2 XL, 1.6 billion")


def launches(count: int) -> Table:
    """Runs of four gloo processes with a DDP step; the caller has run a backward and an operation on two threads."""
    torch.set_num_threads(2)
    torch.ones(512, 512, requires_grad=True).mm(torch.ones(512, 512)).sum().backward()
    times, failed = list[float](), list[str]()
    for _ in range(count):
        started = time.perf_counter()
        try:
            run_ranks(ddp_step, RANKS, transport="gloo", seconds=30)
            times.append(time.perf_counter() - started)
        except RanksFailed as error:
            failed.append(str(error))
    torch.set_num_threads(1)
    table = Table("what", "", title="launches of 4 gloo processes with a DDP step")
    table.add_row("clean", f"{len(times)} of {count}")
    table.add_row("seconds: median, at most", f"{statistics.median(times):.2f}, {max(times):.2f}")
    for each in failed[:3]:
        table.add_row("failed", each)
    return table


STARTS = """
import time
from cluster import ddp_step
from course.cluster import run_ranks

for function in (lambda comm: None, lambda comm: None, ddp_step, ddp_step):
    started = time.perf_counter()
    run_ranks(function, 4, transport="gloo")
    print(time.perf_counter() - started)
"""


def starts(rounds: int) -> Table:
    """Seconds of the first runs in a process: the first one starts the server, which imports torch."""
    command = [sys.executable, "-c", STARTS]
    folders = {"cwd": ROOT / "benchmarks", "env": os.environ | {"PYTHONPATH": str(ROOT)}}
    runs = [
        [float(each) for each in subprocess.run(command, **folders, capture_output=True, check=True).stdout.split()]
        for _ in range(rounds)
    ]
    table = Table("run", "median", "at most", title="first runs of 4 gloo processes in a process, seconds (wanted: 1)")
    names = ("first, which does nothing", "second", "third, first with a DDP step", "fourth, with a DDP step")
    for name, found in zip(names, zip(*runs, strict=True), strict=True):
        table.add_row(name, f"{statistics.median(found):.2f}", f"{max(found):.2f}")
    return table


def checks(runner: Runner, rounds: int) -> Table:
    """Seconds of a whole check with four ranks: jobs, cells, ranks, judging. Wanted: 0.15 brokered, 0.03 simulated."""
    exercise = toy_ranks.EXERCISE
    (case,) = [each for each in exercise.draw(1) if each.name == f"{RANKS} ranks"]
    names: dict[str, Any] = {}
    exec(toy_ranks.RING, names)
    answer = names["running_mean"]

    def simulated() -> None:
        expected = perform_all(exercise, answer, [in_float64(case)])
        assert judge(exercise, [case], perform_all(exercise, answer, [case]), expected, ()).points

    def brokered() -> None:
        expected = perform_all(exercise, answer, [in_float64(case)])
        with runner.session([CodeCell(source=toy_ranks.RING, answers="running_mean")]) as session:
            assert judge(exercise, [case], session.perform(exercise, [case]), expected, ()).points

    table = Table("check of a ring all-reduce by 4 ranks", "median", "at most", "wanted", title="seconds")
    times = {"simulated": list[float](), "brokered": list[float]()}
    for _ in range(rounds):
        times["simulated"].append(_timed(simulated))
        times["brokered"].append(_timed(brokered))
    for (name, found), wanted in zip(times.items(), ("0.03", "0.15"), strict=True):
        table.add_row(name, f"{statistics.median(found):.3f}", f"{max(found):.3f}", wanted)
    return table


def told(brokered: Brokered, rounds: int) -> Table:
    """Seconds until a broken run is told, the slowest of all; wanted: within a second."""
    table = Table("transport", "slowest", title="broken runs, seconds until they are told (wanted: 1)")
    transports: dict[str, Any] = {"simulated": "simulated", "brokered": brokered, "gloo": "gloo"}
    for name, transport in transports.items():
        slowest = max(
            _timed(lambda transport=transport, how=how: _breaks(transport, how)) for how in HOW for _ in range(rounds)
        )
        table.add_row(name, f"{slowest:.2f}")
    return table


HOW = ("all receive", "early return", "raises", "verbs", "shapes", "dtypes", "leftover", "bad rank")


def broken(comm, how):
    """A run that cannot go on, by its name."""
    import torch

    x, after = torch.ones(4), (comm.rank + 1) % comm.size
    if how == "all receive":
        comm.recv(x, after)
    elif how == "early return" and comm.rank == 1:
        return
    elif how == "raises" and comm.rank == 1:
        raise ValueError("no")
    elif how == "verbs":
        comm.broadcast(x, 0) if comm.rank else comm.all_reduce(x)
    elif how == "shapes":
        comm.all_reduce(x[: 1 + comm.rank])
    elif how == "dtypes":
        comm.all_reduce(x.double() if comm.rank else x)
    elif how == "leftover":
        comm.send(x, after)
    elif how == "bad rank":
        comm.send(x, comm.size)
    else:
        comm.barrier()


def _breaks(transport: Any, how: str) -> None:
    try:
        run_ranks(broken, RANKS, transport=transport, inputs=[(how,)] * RANKS, seconds=30)
    except RanksFailed as failure:
        if failure.kind != "TimeLimit":
            return
    raise RuntimeError(f"{how} was not told")


def _timed(run: Callable[[], object]) -> float:
    return _both_times(run)[0]


def _both_times(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds: elapsed, and of processors by this process alone."""
    started, used = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - started, time.process_time() - used


def main(quick: bool = False) -> None:
    """Measure, and print tables."""
    rounds = 2 if quick else 7
    torch.set_num_threads(1)
    console = Console(width=120)
    console.print(machine())
    with staged_with_toy(), open_runner(display=False) as runner:
        brokered = Brokered(runner)
        for transport in ("gloo", brokered):  # whatever starts once, starts now
            run_ranks(verb, RANKS, transport=transport, inputs=[("barrier", 1, 1)] * RANKS)
        console.print(checks(runner, 5 * rounds), simulator(rounds), plans(), told(brokered, rounds), sep="\n")
        console.print(latencies(brokered, rounds))
    console.print(beside_torch(rounds), starts(rounds), launches(20 if quick else 200), sep="\n")


if __name__ == "__main__":
    typer.run(main)
