"""Ranks that are processes over gloo: values and bytes of simulated ranks, every failure told, nothing left."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import cloudpickle
import nbformat
import psutil
import pytest
import torch
from nbclient import NotebookClient
from torch._C._distributed_c10d import FileStore

from course.cluster import RanksFailed, run_ranks
from course.cluster.communicator import Communicator
from course.cluster.distributed import DistributedPort
from course.cluster.processes import Gloo
from course.cluster.reports import Nobody
from course.errors import BadArgument

LIMIT = 30  # seconds that only a hang takes
TOLD = 10  # seconds within which a failure must be told, on a busy machine: far below LIMIT
# As in a notebook: functions go by value, and ranks need not import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def gloo(function, ranks=2, **options):
    return run_ranks(function, ranks, transport="gloo", seconds=options.pop("seconds", LIMIT), **options)


def both(function, ranks, **options):
    """The same run on gloo and on simulated ranks; their values must be equal, and their bytes and messages."""
    real, simulated = gloo(function, ranks, **options), run_ranks(function, ranks, **options)
    torch.testing.assert_close(real.values, simulated.values, rtol=0, atol=0)
    assert (real.ledger.sent, real.ledger.messages) == (simulated.ledger.sent, simulated.ledger.messages)
    return real


def rank_processes():
    """Processes that the server of ranks has started and that are still there."""
    return [each for child in psutil.Process().children() for each in child.children(recursive=True)]


def ring_all_reduce(comm, x):
    """Pieces go round the ring twice: first they are summed, then handed on."""
    x = x.clone()
    pieces = list(x.chunk(comm.size))
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(2 * (comm.size - 1)):
        comm.send(pieces[(comm.rank - step) % comm.size], after)
        came = torch.empty_like(pieces[(comm.rank - step - 1) % comm.size])
        comm.recv(came, before)
        piece = pieces[(comm.rank - step - 1) % comm.size]
        piece.copy_(piece + came if step < comm.size - 1 else came)
    return x


def every_verb(comm):
    me, size = comm.rank, comm.size
    mine = torch.arange(4.0) + 10 * me
    outs = [torch.empty(4) for _ in range(size)]
    rows = [mine + place for place in range(size)]
    many, some = [each.clone() for each in rows], torch.empty(4)
    summed, best, rooted, told = mine.clone(), mine.clone(), mine.clone(), mine.clone()
    comm.all_reduce(summed)
    comm.all_reduce(best, op="max")
    comm.reduce(rooted, dst=size - 1, op="product")
    comm.broadcast(told, src=size - 1)
    comm.all_gather(outs, mine)
    comm.reduce_scatter(some, rows, op="mean")
    comm.all_to_all(many, rows)
    gathered = [torch.empty(4) for _ in range(size)] if me == 0 else None
    comm.gather(mine, gathered, dst=0)
    got = torch.empty(4)
    comm.scatter(got, rows if me == 0 else None, src=0)
    comm.barrier()
    return [summed, best, rooted, told, *outs, some, *many, *(gathered or []), got]


# --- the same as simulated ---


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_ring_all_reduce_has_the_values_and_bytes_of_simulated_ranks(ranks):
    inputs = [(torch.arange(24.0) * (rank + 1),) for rank in range(ranks)]
    run = both(ring_all_reduce, ranks, inputs=inputs)
    assert torch.equal(run.values[0], sum(x for (x,) in inputs))
    assert run.ledger.bytes_sent(0) == 2 * (ranks - 1) * 24 // ranks * 4


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_verb_does_what_it_does_on_simulated_ranks(ranks):
    both(every_verb, ranks)


def test_every_reducible_dtype_is_reduced():
    def reduced(comm):
        from course.cluster.calls import OPS, REDUCIBLE

        found = []
        for dtype in REDUCIBLE:
            for op in OPS:
                if op != "mean" or dtype.is_floating_point:
                    x, out = torch.tensor([1, 2, 3 + comm.rank], dtype=dtype), torch.empty(1, dtype=dtype)
                    comm.all_reduce(x, op=op)
                    comm.reduce_scatter(out, [x[:1], x[1:2], x[2:]], op=op)
                    comm.reduce(x, dst=1, op=op)
                    found += [x, out]
        return found

    both(reduced, 3)


def test_every_dtype_is_moved():
    def moved(comm):
        found = []
        for dtype in (torch.bool, torch.complex64, torch.int16, torch.float8_e4m3fn, torch.uint8, torch.float64):
            x = torch.tensor([1, 0, comm.rank]).to(dtype)
            come = [torch.empty_like(x) for _ in range(2)]
            comm.all_gather(come, x)
            comm.send(x, 1 - comm.rank)
            comm.recv(x, 1 - comm.rank)
            found += [each.to(torch.complex64) for each in (x, *come)]
        return found

    both(moved, 2)


def test_tensors_may_have_any_strides_and_no_elements():
    def strided(comm):
        x = torch.arange(12.0).reshape(3, 4).t() + comm.rank
        y = torch.zeros(4, 6)[:, ::2]
        comm.send(x, 1 - comm.rank)
        comm.recv(y, 1 - comm.rank)
        comm.all_reduce(x[1:])
        comm.all_reduce(torch.empty(0))
        number = torch.tensor(1.0 + comm.rank)
        comm.broadcast(number, 1)
        return [x, y, number]

    both(strided, 2)


def test_sizes_of_an_all_to_all_may_differ():
    def exchanged(comm):
        gives = [torch.full((dst,), comm.rank, dtype=torch.int16) for dst in range(comm.size)]
        takes = [torch.empty(comm.rank, dtype=torch.int16) for _ in range(comm.size)]
        comm.all_to_all(takes, gives)
        return takes

    both(exchanged, 3)


def test_sends_wait_for_nobody():
    def crossing(comm):
        """Each sends a megabyte to all before it receives, and asks for the last sender first."""
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        for dst in others:
            for part in range(3):
                comm.send(torch.full((1 << 18,), 10.0 * comm.rank + part), dst)
        found = []
        for src in reversed(others):
            for _ in range(3):
                found.append(torch.empty(1 << 18))
                comm.recv(found[-1], src)
        return [each[0] for each in found]

    both(crossing, 3)


def test_asynchronous_verbs_may_be_waited_for_in_any_order():
    def begun(comm):
        other = 1 - comm.rank
        come, x, y = torch.empty(2, 3), torch.ones(3), torch.full((3,), 2.0)
        works = [comm.irecv(come[0], other), comm.irecv(come[1], other), comm.all_reduce(x, async_op=True)]
        works += [comm.isend(y, other), comm.isend(y + 1, other), comm.all_reduce(y, async_op=True)]
        for work in reversed(works):
            work.wait()
        return [come, x, y, [work.is_completed() for work in works]]

    run = both(begun, 2)
    assert {each.verb for each in run.ledger.events if each.is_async} == {"send", "recv", "all_reduce"}


def test_whether_an_asynchronous_verb_is_completed_can_be_asked_until_it_is():
    def polled(comm):
        x, many = torch.ones(2), [torch.ones(2) for _ in range(comm.size)]
        works = [
            comm.broadcast(x.clone(), 0, async_op=True),
            comm.all_reduce(x.clone(), async_op=True),
            comm.reduce(x.clone(), 0, async_op=True),
            comm.all_gather(many, x, async_op=True),
            comm.reduce_scatter(x.clone(), many, async_op=True),
            comm.all_to_all([torch.ones(2) for _ in many], many, async_op=True),
            comm.isend(x, 1 - comm.rank),
            comm.irecv(x.clone(), 1 - comm.rank),
        ]
        while not all(work.is_completed() for work in works):
            time.sleep(0.01)

    gloo(polled)


def test_a_reduce_scatter_may_have_no_elements_and_any_place():
    def scattered(comm):
        x, none = torch.zeros(6)[::2], torch.empty(0)
        comm.reduce_scatter(x, [torch.rand(3) for _ in range(comm.size)])
        comm.reduce_scatter(none, [none] * comm.size)
        return x

    both(scattered, 3)


def test_a_receive_from_anybody_names_its_sender_and_keeps_the_order_of_each():
    def heard(comm):
        if comm.rank:
            for part in range(5):
                comm.send(torch.tensor([comm.rank, part]), 0)
            return None
        early = torch.empty(2, dtype=torch.int64)
        work, found = comm.irecv(early), []
        for _ in range(9):
            x = torch.empty(2, dtype=torch.int64)
            found.append((comm.recv(x), x.tolist()))
        work.wait()
        return found, early.tolist()

    for _ in range(3):
        found, early = gloo(heard, 3).values[0]
        assert all(sender == x[0] for sender, x in found)
        in_order = [early, *(x for _, x in found)]
        assert [x for x in in_order if x[0] == 2] == [[2, part] for part in range(5)]
        assert [x for x in in_order if x[0] == 1] == [[1, part] for part in range(5)]


def test_anybody_and_somebody_may_be_mixed():
    def mixed(comm):
        if comm.rank:
            comm.barrier()
            comm.send(torch.tensor([comm.rank]), 0)
            comm.send(torch.tensor([comm.rank + 10]), 0)
            return None
        a, b, c, d = (torch.zeros(1, dtype=torch.int64) for _ in range(4))
        works = [comm.irecv(a, 2), comm.irecv(b), comm.irecv(c, 1)]
        comm.barrier()
        comm.recv(d)
        for work in works:
            work.wait()
        return sorted([a.item(), b.item(), c.item(), d.item()]), a.item()

    assert gloo(mixed, 3).values[0] == ([1, 2, 11, 12], 2)


def test_groups_that_overlap_and_were_made_in_different_orders_work():
    def meshed(comm):
        axes = comm.mesh(dp=2, tp=2)
        x, y = torch.tensor([comm.rank + 1.0]), torch.tensor([comm.rank + 1.0])
        axes["tp"].all_reduce(x)
        axes["dp"].all_reduce(y)
        if comm.rank in (0, 3):
            pair = comm.subgroup([0, 3])
            pair.send(x, 1 - pair.rank)
            pair.recv(x, 1 - pair.rank)
            pair.all_reduce(y)
        if comm.rank < 3:
            comm.subgroup([0, 1, 2]).all_reduce(x)
        return [x, y]

    both(meshed, 4)


def test_two_of_a_group_may_speak_while_its_third_member_never_uses_it():
    def speaking(comm):
        three = comm.subgroup([0, 1, 2]) if comm.rank < 3 else comm
        x = torch.tensor([comm.rank])
        if comm.rank == 0:
            three.send(x, 1)
        if comm.rank == 1:
            three.recv(x, 0)
        return x

    both(speaking, 4)


def test_random_numbers_are_those_of_simulated_ranks():
    torch.manual_seed(7)
    both(lambda comm: torch.rand(3), 2)


def test_a_rank_has_one_thread_and_the_environment_of_now(monkeypatch):
    monkeypatch.setenv("SET_AFTER_THE_SERVER_STARTED", "yes")
    run = gloo(lambda comm: (torch.get_num_threads(), os.environ["SET_AFTER_THE_SERVER_STARTED"]))
    assert run.values == [(1, "yes")] * 2


def test_inputs_may_want_gradients_and_are_copies():
    x = torch.ones(2, requires_grad=True)

    def changed(comm, x):
        with torch.no_grad():
            x.add_(comm.rank)
        return x.requires_grad, x.sum().item()

    assert gloo(changed, inputs=[(x,), (x,)]).values == [(True, 2.0), (True, 4.0)]
    assert x.sum().item() == 2


def test_the_ledger_has_the_times_of_a_clock():
    def timed(comm):
        work = comm.all_reduce(torch.ones(2), async_op=True)
        comm.compute(0.5, "matmul")
        if comm.rank:
            time.sleep(0.2)
        work.wait()
        comm.barrier()

    ledger = gloo(timed).ledger
    first = next(each for each in ledger.events if each.rank == 0 and each.verb == "barrier")
    assert ledger.calls(0) == ledger.calls(1) == ["all_reduce", "barrier"]
    assert 0 < first.called <= first.start <= first.end <= ledger.makespan < LIMIT
    assert first.start - first.called > 0.1  # it was there before rank 1
    assert sum(each.verb == "compute" for each in ledger.events) == 2


def test_torch_distributed_is_there_too():
    def sharded(comm):
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(0)
        model = fully_shard(torch.nn.Linear(4, 4))
        model(torch.ones(1, 4)).sum().backward()
        return dist.get_rank(), tuple(model.weight.to_local().shape)

    assert gloo(sharded).values == [(0, (2, 4)), (1, (2, 4))]


# --- output ---


def test_lines_come_out_whole_with_their_rank(capsys):
    def speaking(comm):
        print("one", comm.rank)
        sys.stderr.write("two\n")
        os.write(1, "thrée\n".encode())
        print("four", end="")

    gloo(speaking)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "[rank 1]" in line] == [
        f"[rank 1] {word}" for word in ("one 1", "two", "thrée", "four")
    ]
    assert len(lines) == 8


def test_output_comes_while_ranks_run(capsys):
    seen = []

    def speaking(comm):
        print("early")
        comm.barrier()
        while not os.path.exists(flag):
            time.sleep(0.01)

    with tempfile.TemporaryDirectory() as folder:
        flag = f"{folder}/seen"

        class Watching:
            def write(self, text):
                seen.append(text)
                if "".join(seen).count("early") == 2:
                    open(flag, "w").close()

            def flush(self):
                pass

        before, sys.stdout = sys.stdout, Watching()
        try:
            gloo(speaking)
        finally:
            sys.stdout = before
    assert sorted(seen) == ["[rank 0] early\n", "[rank 1] early\n"]


def test_a_flood_of_output_holds_nobody_up(capsys):
    gloo(lambda comm: [print("x" * 100) for _ in range(5000)])
    assert capsys.readouterr().out.count("x" * 100) == 10_000


# --- broken runs ---


def receive_first(comm):
    comm.recv(torch.empty(2), (comm.rank + 1) % comm.size)


def return_early(comm):
    if comm.rank != 1:
        comm.barrier()


def die(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


def leave(comm):
    if comm.rank == 1:
        os._exit(0)
    comm.all_reduce(torch.ones(3))


def raise_while_others_wait(comm):
    x = torch.ones(1000)
    comm.all_reduce(x)
    if comm.rank == 1:
        raise ZeroDivisionError("one half")
    comm.all_reduce(x)


def exit_quietly(comm):
    if comm.rank == 1:
        sys.exit(0)
    comm.barrier()


def differ_in_verb(comm):
    x = torch.ones(2)
    comm.all_reduce(x) if comm.rank == 1 else comm.broadcast(x, 0)


def differ_in_shape(comm):
    comm.all_reduce(torch.ones(2 + (comm.rank == 1)))


def differ_in_dtype(comm):
    if comm.rank == 0:
        comm.send(torch.ones(2), 1)
    if comm.rank == 1:
        comm.recv(torch.ones(2, dtype=torch.float64), 0)


def leave_a_message(comm):
    if comm.rank == 0:
        comm.send(torch.ones(2), 1)


def leave_a_collective(comm):
    if comm.rank == 0:
        comm.all_reduce(torch.ones(2), async_op=True)


def wait_for_what_never_comes(comm):
    work = comm.irecv(torch.ones(2), 1 - comm.rank) if comm.rank < 2 else None
    if work:
        work.wait()


def name_no_rank(comm):
    comm.send(torch.ones(1), 3)


def return_a_lock(comm):
    return threading.Lock()


BROKEN = [
    (receive_first, "Deadlock", "all wait: rank 0 waits in recv(src=1); rank 1 waits in recv(src=2); rank 2 waits in"),
    (return_early, "Deadlock", "ranks 0, 2 are in barrier #1; rank 1 has returned"),
    (wait_for_what_never_comes, "Deadlock", "rank 0 waits in recv(src=1); rank 1 waits in recv(src=0); rank 2 has"),
    (die, "RankDied", "rank 1 died: killed by signal 9 (SIGKILL)"),
    (leave, "RankDied", "rank 1 died: ended by itself with exit status 0, before it returned"),
    (raise_while_others_wait, "RankRaised", "rank 1 raised ZeroDivisionError: one half (line "),
    (exit_quietly, "RankRaised", "rank 1 raised SystemExit: 0"),
    (name_no_rank, "RankRaised", "raised BadArgument: dst must be a rank from 0 to 2, got 3"),
    (return_a_lock, "RankRaised", "returned something that cannot be sent to the caller: cannot pickle"),
    (differ_in_verb, "Mismatch", "all ranks of a group must make the same calls in the same order"),
    (differ_in_shape, "Mismatch", "with float32 of shape (3,)"),
    (differ_in_dtype, "Mismatch", "rank 1 receives float64 of shape (2,) and rank 0 sent float32 of shape (2,)"),
    (leave_a_message, "Leftover", "rank 1 returned without receiving message #1 of rank 0"),
    (leave_a_collective, "Leftover", "ranks 1, 2 returned without joining rank 0, which is in all_reduce #1"),
]


@pytest.mark.parametrize(("function", "kind", "words"), BROKEN, ids=[each.__name__ for each, _, _ in BROKEN])
def test_a_broken_run_is_told_in_a_sentence_and_leaves_nothing(function, kind, words):
    began = time.monotonic()
    with pytest.raises(RanksFailed) as told:
        gloo(function, 3)
    assert told.value.kind == kind
    assert words in str(told.value)
    assert told.value.ledger is not None
    assert time.monotonic() - began < TOLD
    assert not rank_processes()


def test_the_kind_of_a_broken_run_is_that_of_simulated_ranks():
    for function, kind, _ in BROKEN:
        if function not in (die, leave, return_a_lock):
            with pytest.raises(RanksFailed) as told:
                run_ranks(function, 3)
            assert told.value.kind == kind, function.__name__


def test_at_the_time_limit_the_line_of_an_endless_loop_is_told():
    def looping(comm):
        if comm.rank == 1:
            while True:
                pass
        comm.barrier()

    with pytest.raises(RanksFailed, match=r"within 1 s, but rank 1 still runs \(line \d+, in looping") as told:
        gloo(looping, seconds=1)
    assert (told.value.kind, told.value.rank) == ("TimeLimit", 1)
    assert "rank 0 is in barrier #1" in str(told.value)


def test_a_rank_that_takes_its_time_is_no_deadlock():
    def slow(comm):
        x = torch.zeros(1)
        for turn in range(3):
            if comm.rank == turn:
                time.sleep(0.3)
            comm.all_reduce(x)
        if comm.rank == 0:
            time.sleep(0.3)
            comm.send(x, 1)
        elif comm.rank == 1:
            comm.recv(x)

    gloo(slow, 3)


def test_an_interrupt_ends_all_ranks():
    main = threading.main_thread().ident
    threading.Timer(1.5, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        gloo(lambda comm: time.sleep(LIMIT))
    assert not rank_processes()


def test_what_a_rank_starts_ends_with_it():
    def starting(comm):
        return subprocess.Popen(["sleep", "1000"]).pid

    pids = gloo(starting).values
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


def test_nothing_is_left_after_a_run():
    before = set(glob.glob(f"{tempfile.gettempdir()}/ranks-*"))
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        gloo(every_verb)
    assert not rank_processes()
    assert set(glob.glob(f"{tempfile.gettempdir()}/ranks-*")) <= before
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 4  # the server's, where this is the first test


# --- what cannot be run ---


def test_a_function_that_cannot_be_sent_is_refused_with_the_name_of_its_variable():
    lock = threading.Lock()
    with pytest.raises(BadArgument, match=r"but `lock`, which it uses, cannot be: cannot pickle '_thread\.lock'"):
        gloo(lambda comm: lock)


def test_inputs_that_cannot_be_sent_are_refused():
    with pytest.raises(BadArgument, match=r"but inputs\[1\]\[0\], of type lock, cannot be"):
        gloo(lambda comm, x: x, inputs=[(1,), (threading.Lock(),)])


def test_a_transport_with_settings_is_an_object():
    assert run_ranks(lambda comm: comm.rank, 2, transport=Gloo(), seconds=LIMIT).values == [0, 1]


@pytest.mark.skipif(torch.cuda.device_count() > 63, reason="has 64 GPUs")
def test_nccl_without_enough_gpus_says_so():
    with pytest.raises(
        BadArgument, match=r'one GPU for each of 64 ranks, but this machine has \d+; use transport="gloo"'
    ):
        run_ranks(lambda comm: None, 64, transport="nccl")


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_ring_all_reduce_on_gpus_has_the_values_and_bytes_of_simulated_ranks():
    ranks = torch.cuda.device_count()
    inputs = [(torch.arange(24.0 * ranks) * (rank + 1),) for rank in range(ranks)]
    real = run_ranks(ring_all_reduce, ranks, transport="nccl", inputs=inputs, seconds=60)
    simulated = run_ranks(ring_all_reduce, ranks, inputs=inputs)
    torch.testing.assert_close(real.values, simulated.values, rtol=0, atol=0)
    assert real.ledger.sent == simulated.ledger.sent


def test_a_connection_for_each_direction_carries_messages_as_nccl_needs_it():
    def channelled(comm, folder):
        store = FileStore(f"{folder}/channels", comm.size)
        cpu = torch.device("cpu")
        port = DistributedPort(store, comm.rank, comm.size, Nobody(), device=cpu, seconds=LIMIT, channels=True)
        own = Communicator(port, comm.ranks, comm.rank)
        found = ring_all_reduce(own, torch.arange(6.0) * (comm.rank + 1))
        own.barrier()
        return found

    with tempfile.TemporaryDirectory() as folder:
        values = gloo(channelled, 3, inputs=[(folder,)] * 3).values
    assert all(torch.equal(each, torch.arange(6.0) * 6) for each in values)


# --- from a notebook, and from processes that have threads ---


def test_functions_of_a_notebooks_cell_run():
    cells = [
        "import torch\nfrom course.cluster import run_ranks\nscale = 3",
        """
        class Found:
            def __init__(self, x):
                self.x = x

        def summed(comm):
            x = torch.tensor([scale * comm.rank])
            comm.all_reduce(x)
            print("sum", x.item())
            return Found(x.item())

        found = run_ranks(summed, 2, transport="gloo", seconds=30).values
        print([isinstance(each, Found) and each.x for each in found])
        """,
        """
        def broken(comm):
            return 1 / comm.rank

        try:
            run_ranks(broken, 2, transport="gloo", seconds=30)
        except Exception as error:
            print(error)
        """,
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(textwrap.dedent(each)) for each in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    told = ["".join(each.get("text", "") for each in cell.outputs) for cell in notebook.cells]
    assert sorted(told[1].splitlines()) == ["[3, 3]", "[rank 0] sum 3", "[rank 1] sum 3"]
    assert "rank 0 raised ZeroDivisionError: division by zero (line 2, in broken: return 1 / comm.rank)" in told[2]


def script(text, *, folder):
    """Run a script in a process of its own, without the guard that multiprocessing asks for."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([sys.executable, path], text=True, env=os.environ | {"TMPDIR": str(folder)}, **streams)


THREADED = """
import os, sys, torch
from torch.nn.parallel import DistributedDataParallel
from course.cluster import run_ranks
torch.set_num_threads(2)
a = torch.randn(500, 500, requires_grad=True)
(a @ a).sum().backward()
assert len(os.listdir("/proc/self/task")) > 1

def step(comm):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    model(torch.full((4, 8), comm.rank + 1.0)).square().sum().backward()
    return model.module.weight.grad.sum().item()

for turn in range({runs}):
    assert len(set(run_ranks(step, 4, transport="gloo", seconds=60).values)) == 1
    (a @ a).sum().backward()
    print(turn)
"""


def test_a_caller_that_ran_a_backward_on_two_threads_may_run_ranks(tmp_path):
    told, _ = script(THREADED.format(runs=2), folder=tmp_path).communicate(timeout=120)
    assert told.split() == ["0", "1"]


@pytest.mark.slow
def test_thirty_runs_in_a_row_end(tmp_path):
    told, _ = script(THREADED.format(runs=30), folder=tmp_path).communicate(timeout=600)
    assert told.split() == [str(turn) for turn in range(30)]


def test_ranks_end_when_their_launcher_is_killed(tmp_path):
    text = """
    import os, time
    from course.cluster import run_ranks
    def stay(comm):
        print(os.getpid(), flush=True)
        comm.barrier()
        time.sleep(100)
    run_ranks(stay, 2, transport="gloo", seconds=100)
    """
    process = script(text, folder=tmp_path)
    pids = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
    process.kill()
    process.communicate()
    until = time.monotonic() + LIMIT
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not list(tmp_path.glob("ranks-*"))
