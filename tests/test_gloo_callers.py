"""Who calls ranks that are processes, what they print, and what cannot be run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import nbformat
import psutil
import pytest
import torch
from gloo_room import LIMIT, by_value, gloo, ring_all_reduce
from nbclient import NotebookClient
from torch._C._distributed_c10d import FileStore

from course.cluster import run_ranks
from course.cluster.processes.messages import CallLog
from course.cluster.processes.port import DistributedPort
from course.cluster.processes.transports import Gloo
from course.cluster.protocol.comm import Comm
from course.errors import BadArgument

by_value(__name__)


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
        port = DistributedPort(store, comm.rank, comm.size, CallLog(), device=cpu, seconds=LIMIT, channels=True)
        own = Comm(port, comm.ranks, comm.rank)
        found = ring_all_reduce(own, torch.arange(6.0) * (comm.rank + 1))
        pair = own.subgroup(own.ranks).subgroup(own.ranks)
        for tag in (0, 5):
            pair.send(torch.tensor([tag]), (comm.rank + 1) % comm.size, tag=tag)
        for tag in (5, 0):
            assert pair.recv(came := torch.zeros(1, dtype=torch.int64), (comm.rank - 1) % comm.size, tag=tag) >= 0
            assert came.item() == tag
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
    environment = os.environ | {"TMPDIR": str(folder)}
    environment.pop("PYTHONUNBUFFERED", None)  # it would hide what is not flushed
    return subprocess.Popen([sys.executable, path], text=True, env=environment, **streams)


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


def test_ranks_of_every_run_come_from_one_server():
    parents = {parent for _ in range(2) for parent in gloo(lambda comm: os.getppid()).values}
    assert len(parents) == 1
    assert parents <= {child.pid for child in psutil.Process().children()}


@pytest.mark.soak
@pytest.mark.parametrize("runs", [8, 30])
def test_runs_in_a_row_end(tmp_path, runs):
    told, _ = script(THREADED.format(runs=runs), folder=tmp_path).communicate(timeout=600)
    assert told.split() == [str(turn) for turn in range(runs)]


INTERRUPTED = """
import psutil, signal, time
from course.cluster import run_ranks

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it starts in the background

def waiting(comm):
    print("here")
    time.sleep(1000)

try:
    run_ranks(waiting, 2, transport="gloo")
except KeyboardInterrupt:
    left = [each for child in psutil.Process().children() for each in child.children(recursive=True)]
    print("interrupted, left:", len(left), flush=True)
"""


def test_an_interrupt_ends_all_ranks(tmp_path):
    process = script(INTERRUPTED, folder=tmp_path)
    assert process.stdout.readline().endswith("here\n")
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert told.splitlines()[-1] == "interrupted, left: 0"


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
