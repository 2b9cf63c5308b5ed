"""A script under torchrun: it gets a communicator, and every process ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from course.cluster.torchrun import comm_of_torchrun
from course.errors import BadArgument

LIMIT = 120


def torchrun(*arguments):
    """Its status, what was printed, and the processes of its group that are left."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    mark = {"MARK_OF_THE_TEST": str(time.time())}
    process = subprocess.Popen(command, text=True, env=os.environ | mark, **streams)
    told, complaints = process.communicate(timeout=LIMIT)
    return process.returncode, told, complaints, [each for each in psutil.process_iter() if marked(each, mark)]


def marked(process, mark):
    try:
        return mark.items() <= process.environ().items()
    except psutil.Error:
        return False


@pytest.mark.soak
def test_the_example_runs_on_two_ranks_and_ends():
    status, told, complaints, left = torchrun("-m", "course.cluster.pi")
    assert (status, left) == (0, [])
    assert told.startswith("2 ranks, 2,000,000 points: pi = 3.14")
    assert len(told.splitlines()) == 1
    assert "Traceback" not in complaints


def test_every_kind_of_message_works_and_a_rank_that_raises_ends_the_others(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "from course.cluster.torchrun import comm_of_torchrun\n"
        "with comm_of_torchrun() as comm:\n"
        "    x = torch.tensor([comm.rank])\n"
        "    comm.send(x, 1 - comm.rank)\n"
        "    (work := comm.irecv(x)).wait()\n"
        "    print(work.source_rank(), flush=True)\n"
        "    comm.subgroup([comm.rank]).all_reduce(x)\n"
        "    work = comm.all_reduce(x, async_op=True)\n"
        "    work.wait()\n"
        "    if comm.rank == 1:\n"
        "        raise ZeroDivisionError('one half')\n"
        "    comm.barrier()\n"
    )
    status, told, complaints, left = torchrun(str(script))
    assert (status, left) == (1, [])
    assert sorted("".join(told.split())) == ["0", "1"]  # the ranks share one output
    assert "ZeroDivisionError: one half" in complaints


def test_a_script_that_torchrun_did_not_start_says_how_to_start_it():
    with pytest.raises(BadArgument, match="must be started by torchrun"), comm_of_torchrun():
        pass
