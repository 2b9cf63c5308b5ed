"""Ranks in sandboxes with a broker between them: right answers as on simulated ranks, and what breaks is told."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import toy_ranks
from conftest import same_leaf, soak
from ranks_room import answer, broken, perform_ranks, staged_with_toy

from autograder.sandbox import Limits, open_runner
from autograder.sandbox.outside.loading import Container
from course.judging.judge import judge
from course.performing.perform import in_float64, perform_all

EXERCISE = dataclasses.replace(toy_ranks.EXERCISE, seconds=20.0)  # what is told at once comes long before
RUNNING = toy_ranks.RING.replace("def running_mean", "def running")


@pytest.fixture(scope="module")
def sandbox():
    """One warm process with the toy exercise, with walls."""
    with staged_with_toy(), open_runner(display=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def trusted():
    """The same without walls."""
    with staged_with_toy(), open_runner(trusted=True, display=False) as opened:
        yield opened


@pytest.fixture(params=[pytest.param("sandbox", marks=pytest.mark.sandbox), "trusted"])
def room(request):
    """With walls and without."""
    return request.getfixturevalue(request.param)


def ring():
    """The ring as a function of this process."""
    names: dict[str, object] = {}
    exec(toy_ranks.RING, names)
    return names["running_mean"]


# right answers


def test_a_ring_has_the_values_and_the_costs_of_simulated_ranks(room):
    cases = EXERCISE.draw(5)
    simulated = perform_all(EXERCISE, ring(), cases)
    brokered = perform_ranks(room, toy_ranks.RING, cases)
    for ours, theirs in zip(simulated, brokered, strict=True):
        assert theirs.error is None
        for one, other in ((ours.values, theirs.values), (ours.ledger, theirs.ledger)):
            assert one.keys() == other.keys()
            assert all(same_leaf(value, other[key]) for key, value in one.items())


def test_costs_are_the_brokers_and_claims_nowhere(sandbox):
    seen = perform_ranks(sandbox, toy_ranks.RING, EXERCISE.draw(5))
    assert {source for each in seen for source in each.sources.values()} == {"broker"}


def test_a_right_answer_gets_full_marks_and_a_dear_one_loses_the_cost(sandbox):
    cases = EXERCISE.draw(5)
    expected = perform_all(EXERCISE, ring(), [in_float64(case) for case in cases])
    dear = answer(
        "others = [each for each in range(size) if each != rank]\n"
        "for each in others:\n    comm.send(x, each)\n"
        "total, came = x.clone(), torch.empty_like(x)\n"
        "for each in others:\n    comm.recv(came, each)\n    total += came\n"
        "return total"
    )
    points = {}
    for name, source in (("ring", toy_ranks.RING), ("dear", dear)):
        verdict = judge(EXERCISE, cases, perform_ranks(sandbox, source, cases), expected, ())
        points[name] = {each.property for each in verdict.findings if each.held}
    assert points["ring"] == {"total", "few_bytes", "arguments_unchanged"}
    assert points["dear"] == {"total", "arguments_unchanged"}


def test_a_changed_argument_is_seen_on_the_rank_that_changed_it(sandbox):
    source = toy_ranks.RING.replace("size, rank =", "x += comm.rank == 1\n    size, rank =")
    (seen,) = perform_ranks(sandbox, source, EXERCISE.draw(5)[1:2])
    original = EXERCISE.draw(5)[1].inputs["parts"]
    assert torch.equal(seen.values["after/0/x"], original[0])
    assert torch.equal(seen.values["after/1/x"], original[1] + 1)


def test_what_is_begun_is_sent_as_it_is_at_the_next_call(sandbox):
    body = (
        "came = torch.zeros_like(x)\n"
        "work = comm.isend(x.clone().fill_(1.0), (rank + 1) % size)\n"
        "mine = torch.full_like(x, 2.0)\n"
        "other = comm.isend(mine, (rank + 1) % size)\n"
        "mine.fill_(3.0)\n"
        "first, second = comm.irecv(torch.zeros_like(x), (rank - 1) % size), comm.irecv(came, (rank - 1) % size)\n"
        "second.wait(); first.wait(); work.wait(); other.wait(); other.wait()\n"
        "return came"
    )
    (seen,) = perform_ranks(sandbox, answer(body), EXERCISE.draw(5)[2:3])
    assert seen.error is None
    assert float(seen.values["2/total"][0]) == 3.0


def test_ranks_of_a_submission_have_separate_random_states_and_globals(sandbox):
    head = "COUNT = []"
    body = "COUNT.append(rank)\ncomm.barrier()\nreturn torch.tensor([float(len(COUNT))])"
    (seen,) = perform_ranks(sandbox, answer(body, head), EXERCISE.draw(5)[3:])
    assert [float(seen.values[f"{rank}/total"]) for rank in range(4)] == [1.0] * 4


# runs that cannot go on


@pytest.mark.parametrize(
    ("body", "kind", "rank", "words"),
    [
        ("comm.recv(x.clone(), (rank + 1) % size)", "Deadlock", 0, "rank 2 waits in recv(src=0)"),
        ("return x if rank == 1 else comm.barrier()", "Deadlock", 0, "rank 1 has returned"),
        ("comm.barrier() if rank else comm.recv(x.clone(), 1)", "Deadlock", 0, "ranks 1, 2 are in barrier #1"),
        (
            "work = comm.irecv(x.clone(), (rank + 1) % size)\nwhile not work.is_completed():\n    pass",
            "Deadlock",
            0,
            "rank 2 asks whether recv(src=0) is completed",
        ),
        ("comm.send(x, (rank + 1) % size)\nreturn x", "Leftover", None, "every message must be received"),
        ("comm.irecv(x.clone(), (rank + 1) % size)\nreturn x", "Leftover", None, "must meet a message"),
        ("if rank == 1:\n    raise KeyError('oh')\ncomm.barrier()", "KeyError", 1, "rank 1 raised KeyError: 'oh'"),
        ("comm.send(x, size)", "BadArgument", None, "dst must be a rank from 0 to 2, got 3"),
        ("comm.send(x, rank)", "BadArgument", None, "dst must be another rank"),
        ("comm.all_reduce(x.clone())", "BadArgument", None, "all_reduce must not be used here"),
        (
            "comm.send(x[: 5 + rank], (rank + 1) % size)\ncomm.recv(x[:5].clone(), (rank - 1) % size)",
            "Mismatch",
            None,
            "must have the dtype and shape of what was sent",
        ),
        (
            "comm.send(x.double() if rank else x, (rank + 1) % size)\ncomm.recv(x.clone(), (rank - 1) % size)",
            "Mismatch",
            None,
            "float64",
        ),
        ("comm.broadcast(x.clone(), 0) if rank else comm.barrier()", "Mismatch", None, "is in broadcast(src=0) #1"),
        ("comm.broadcast(x[: 4 + rank].clone(), 0)", "Mismatch", None, "of shape (5,)"),
        ("comm.broadcast(x.clone(), int(rank == 2))", "Mismatch", None, "broadcast(src=1)"),
    ],
)
def test_a_broken_run_is_told_at_once(sandbox, body, kind, rank, words):
    failure, seconds = broken(sandbox, body, exercise=EXERCISE)
    assert failure.type == kind
    assert rank in (None, failure.rank)
    assert words in failure.message
    assert seconds < EXERCISE.seconds / 2


def test_after_a_broken_case_the_next_one_is_performed(sandbox):
    body = "if size == 3:\n    comm.recv(x.clone(), (rank + 1) % size)\n" + "return running(comm, x)"
    seen = perform_ranks(sandbox, answer(body, RUNNING), EXERCISE.draw(5))
    assert [each.error.type if each.error else None for each in seen] == [None, None, "Deadlock", None]


def test_after_a_case_in_which_a_rank_did_not_stop_nothing_of_the_others_goes_on(sandbox):
    body = """
assert not LEFT
if size == 3:
    LEFT.append(rank)
    if rank == 1:
        with contextlib.suppress(BaseException):
            comm.recv(x.clone(), 0)
        time.sleep(9)
    return x
return running(comm, x)
"""
    seen = perform_ranks(sandbox, answer(body, f"LEFT = []\n{RUNNING}"), EXERCISE.draw(5))
    assert [each.error.type if each.error else None for each in seen] == [None, None, "Deadlock", None]


def test_an_endless_loop_ends_at_the_time_limit_and_names_the_rank(sandbox):
    exercise = dataclasses.replace(EXERCISE, seconds=0.5)  # also on a busy machine over before the rank's own clock is
    failure, seconds = broken(sandbox, "while rank == 1:\n    pass\ncomm.barrier()", exercise=exercise)
    assert (failure.type, failure.rank) == ("TimeLimit", 1)
    assert "rank 1 still runs" in failure.message
    assert "ranks 0, 2 have called barrier" in failure.message
    assert seconds < EXERCISE.seconds


@pytest.mark.parametrize("waited", [0.0, 5.0])
def test_the_time_in_which_others_kept_the_processors_busy_is_not_a_ranks_own(trusted, monkeypatch, waited):
    tell = Container.tell
    seconds = {"seconds": waited}
    monkeypatch.setattr(Container, "tell", lambda self, do: seconds if do == {"do": "waited"} else tell(self, do))
    exercise = dataclasses.replace(EXERCISE, seconds=1.0)
    slow = answer("import time\ntime.sleep(3.3)\nreturn running(comm, x)", RUNNING)  # inside, 2 s are spare
    (seen,) = perform_ranks(trusted, slow, exercise.draw(5)[:1], exercise=exercise)
    assert (seen.error and seen.error.type) == (None if waited else "TimeLimit")


# memory, measured from outside

MIB = 2**20


def outside_longer(inputs):
    """Another length where memory is measured: a part that is itself large would hide what is computed with it."""
    return toy_ranks.split({"parts": [part.repeat(1 + inputs.get("outside", False)) for part in inputs["parts"]]})


@pytest.mark.parametrize("trusted", [pytest.param(False, marks=pytest.mark.sandbox), soak(True)])
def test_each_rank_has_a_peak_of_its_own(trusted):
    two = EXERCISE.draw(1)[1]
    exercise = dataclasses.replace(EXERCISE, split=outside_longer, measured=(two.name,))
    kept = "kept = [torch.ones(2**21) for _ in range(3 * rank + 1)]"
    with staged_with_toy(measured=(two.name,)), open_runner(trusted=trusted, display=False) as opened:
        seen = perform_ranks(opened, answer(f"{kept}\nreturn x"), [two, two], exercise)[1]
    assert (len(seen.values["0/total"]), seen.sources["peak_bytes"]) == (20, "kernel")
    assert (seen.ledger["peak_bytes"] / MIB).tolist() == pytest.approx([8, 32], abs=1)


def test_a_measured_case_is_not_begun_when_the_small_run_has_taken_what_time_was_left():
    two = EXERCISE.draw(1)[1]
    exercise = dataclasses.replace(EXERCISE, split=outside_longer, measured=(two.name,))
    limits = Limits(submission_seconds=1.4)
    with staged_with_toy(measured=(two.name,)), open_runner(limits, trusted=True, display=False) as opened:
        perform_ranks(opened, toy_ranks.RING, [two])  # the first one waits for the warm process
        (seen,) = perform_ranks(opened, answer("time.sleep(1.5)\nreturn x"), [two], exercise)
    assert seen.error is not None
    assert seen.error.message.startswith("all exercises together may take 1.4 s")


def test_a_rank_that_leaves_before_memory_is_asked_for_has_not_cost_nothing():
    two = EXERCISE.draw(1)[1]
    exercise = dataclasses.replace(EXERCISE, split=outside_longer, measured=(two.name,))
    head = "from autograder.sandbox.wire import stream\nCALLS = []"
    body = (
        "CALLS.append(1)\nif len(CALLS) == 2 and rank == 1:\n    seen = {'values': {'total': x}, 'ledger': {}, "
        "'error': None, 'printed': ''}\n    stream.send(port._sock, {'seen': [seen]}, token=port._token)\n"
        "    os._exit(0)\ntime.sleep(0.3)\nreturn x"
    )
    with staged_with_toy(measured=(two.name,)), open_runner(trusted=True, display=False) as opened:
        (seen,) = perform_ranks(opened, answer(body, head), [two], exercise)
    assert (seen.error.type, seen.error.rank) == ("RankDied", 1)


@pytest.mark.parametrize("told", [True, False])
def test_whether_a_rank_goes_on_beside_a_call_is_what_it_does_and_not_what_it_says(trusted, told):
    body = (
        f"work = comm.broadcast(x, 0, async_op=True)\nwork._pending._is_async = {told}\n"
        "comm.compute(1e-9)\nwork.wait()\nreturn x"
    )
    (seen,) = perform_ranks(trusted, answer(body), [EXERCISE.draw(1)[1]])
    assert seen.error is None
    assert seen.ledger["open/broadcast"].tolist() == [1, 1]


FILE_PAGES = """
import mmap
HEAVY = mmap.mmap(os.open(os.path.dirname(torch.__file__) + "/lib/libtorch_cpu.so", os.O_RDONLY), 40 * 2**20,
                  flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
HEAVY = (HEAVY, [HEAVY[each] for each in range(0, len(HEAVY), 4096)][:1])[0]
CALLS = []
"""


@pytest.mark.parametrize("held", [soak("comm.barrier()"), "time.sleep(0.2)"], ids=["at a call", "between calls"])
def test_pages_of_files_that_a_rank_lets_go_of_make_no_room(held):
    two = EXERCISE.draw(1)[1]
    exercise = dataclasses.replace(EXERCISE, split=outside_longer, measured=(two.name,))
    body = (
        "CALLS.append(1)\nif len(CALLS) == 2:  # the first is the small one\n    HEAVY.madvise(mmap.MADV_DONTNEED)\n"
        f"comm.barrier()\ntime.sleep(0.03)\nkept = torch.ones(2**21)\n{held}\ndel kept\ncomm.barrier()\nreturn x"
    )
    with staged_with_toy(measured=(two.name,)), open_runner(trusted=True, display=False) as opened:
        (seen,) = perform_ranks(opened, answer(body, FILE_PAGES), [two], exercise)
    assert (seen.ledger["peak_bytes"] / MIB).tolist() == pytest.approx([8, 8], abs=1)


def test_what_an_earlier_case_left_behind_makes_no_room_for_a_measured_one():
    two, (three,) = EXERCISE.draw(1)[1], [each for each in EXERCISE.draw(1) if each.name == "3 ranks"]
    exercise = dataclasses.replace(EXERCISE, split=outside_longer, measured=(two.name,))
    body = (
        "if size == 3:\n    KEPT.append(torch.ones(2**23))\nelse:\n    KEPT.clear()\nkept = torch.ones(2**22)\nreturn x"
    )
    with staged_with_toy(measured=(two.name,)), open_runner(trusted=True, display=False) as opened:
        seen = perform_ranks(opened, answer(body, "KEPT = []"), [three, two], exercise)[1]
    assert (seen.ledger["peak_bytes"] / MIB).tolist() == pytest.approx([16, 16], abs=1)
