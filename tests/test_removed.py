"""What an answer may not use is gone in its process, however it is reached; everything else goes on working.

Each attempt runs in a fork of its own, of a process with one thread that has run no backward.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator

import pytest
import torch
from removed_again import AGAIN
from removed_attempts import FAMILIES, Attempts, X

from autograder.sandbox.inside import removed
from course import exercises
from course.errors import DeclarationError
from course.performing.cells import CodeCell, load
from course.performing.exercise import Case, Observation, observe
from course.performing.perform import perform
from course.performing.removals import UNLOADED
from course.syllabus import entries

REMOVING = [name for name in (entry.id for entry in entries()) if exercises.load(name).removes]
TRIED = {removes: Attempts(value, cells | AGAIN.get(removes, {})) for removes, (value, cells) in FAMILIES.items()}
ATTEMPTS = [(removes, attempt) for removes, (_, cells) in TRIED.items() for attempt in cells]

# These meet no function of ours that could say so: torch finds no graph, or somebody else handles the error.
TOLD_BY_TORCH = ("a sparse leaf", "nodes by hand", "the engine")
TOLD_BY_TORCHSCRIPT = ("TorchScript", "a script", "a graph of TorchScript's", "a scripted gradient")
UNKNOWN_TO_TORCHSCRIPT = ("TorchScript's own operator", "a graph of TorchScript's own", "a method in a script")
TOLD_OTHERWISE = {
    *(*TOLD_BY_TORCH, *TOLD_BY_TORCHSCRIPT, *UNKNOWN_TO_TORCHSCRIPT),
    *("a scripted product of lists", "a fused AdamW, scripted"),
    *("autograd in a finalizer", "another interpreter"),
}


def run(*arguments: str) -> list[dict]:
    """What the program at the end of this file prints, one JSON value per line."""
    program = [sys.executable, "-W", "ignore", __file__, *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def free():
    """By (removes, attempt): what came when nothing was removed."""
    return dict(zip(ATTEMPTS, run("free"), strict=True))


@pytest.fixture(scope="module")
def tried():
    """What came of trials of a process that has imported little; then, attempt by attempt, of the removed."""
    return run("class", "later", "unloaded", "removed")


@pytest.fixture(scope="module")
def attempts(tried):
    """By (removes, attempt): what came when the family was removed."""
    return dict(zip(ATTEMPTS, tried[2 + len(UNLOADED) :], strict=True))


@pytest.mark.soak
@pytest.mark.parametrize(("removes", "attempt"), ATTEMPTS)
def test_an_attempt_gets_the_value_where_nothing_is_removed(free, removes, attempt):
    assert got(free[removes, attempt], TRIED[removes].value)


@pytest.mark.parametrize(("removes", "attempt"), ATTEMPTS)
def test_an_attempt_gets_nothing_where_it_is_removed(attempts, removes, attempt):
    seen = attempts[removes, attempt]
    assert not got(seen, TRIED[removes].value)
    if attempt not in TOLD_OTHERWISE:
        assert seen["error"] == "RemovedError"
        assert any(f"`{name}`" in seen["message"] for name in removes)
        assert "may not be used in this exercise" in seen["message"]


@pytest.mark.parametrize("name", REMOVING)
def test_what_an_exercise_removes_can_be_removed(name):
    removed.prepare(exercises.load(name).removes)


@pytest.mark.parametrize("name", ["math", "torch.nn.functional.swish", "nowhere", "torch.nowhere.silu"])
def test_what_cannot_be_removed_is_refused(name):
    with pytest.raises(DeclarationError, match=f"`{name}` must be Python code or an operator of torch"):
        removed.prepare([name])


@pytest.mark.parametrize(
    ("removed", "attempt", "written"),
    [
        ("torch.nn.functional.silu", "an instance", "f"),
        ("torch.autograd", "backward", "cubes(x).backward"),
        ("torch.autograd", "dual numbers", "with f.dual_level():"),
        ("torch.optim", "by its name", "torch.optim.SGD"),
        ("torch.Tensor.sum_to_size", "a subclass", "x.as_subclass(S).sum_to_size"),
        ("graphlib", "forgotten and imported", "import graphlib"),
    ],
)
def test_the_student_reads_what_was_written(attempts, removed, attempt, written):
    assert attempts[(removed,), attempt]["message"] == (
        f"`{written}` may not be used in this exercise, which is to be done without `{removed}`; "
        "write it from simpler operations"
    )


def test_where_nothing_of_the_students_runs_the_name_is_told(attempts):
    assert attempts[("torch.nn.functional.silu",), "another thread"]["message"] == (
        "`torch.nn.functional.silu` may not be used in this exercise; write it from simpler operations"
    )


@pytest.mark.parametrize("attempt", TOLD_BY_TORCH)
def test_an_error_of_torchs_own_says_which_name_may_be_why(attempts, attempt):
    seen = attempts[("torch.autograd",), attempt]
    assert "may not be used in this exercise, which is to be done without `torch.autograd`)" in seen["message"]


def test_no_line_of_torch_is_shown(attempts):
    """The first line shown is the probe's, which lies in this file."""
    seen = attempts[("torch.nn.functional.silu",), "by its name"]
    assert seen["where"][1:] == ["line 2, in answer: def answer(x): return torch.nn.functional.silu(x)"]


def test_a_class_stays_the_same_class(tried):
    assert tried[0] == {"same": True, "inside": "RemovedError", "outside": 3.0}


def test_what_is_loaded_after_looking_up_is_removed_too(tried):
    assert tried[1] == "RemovedError"


@pytest.mark.parametrize("name", UNLOADED)
def test_what_was_never_loaded_is_not_to_be_had_from_its_files(tried, name):
    seen = tried[2 + UNLOADED.index(name)]
    assert seen["error"] == "RemovedError"
    assert f"done without `{name}`" in seen["message"]


def got(seen: dict, value: torch.Tensor) -> bool:
    """Whether an answer returned the value."""
    found = seen["value"]
    return isinstance(found, list) and torch.allclose(torch.tensor(found).double(), value.reshape(-1).double())


# --- the program -------------------------------------------------------------------------------------


def forked(job, *arguments):
    """What a job returns that runs in a fork of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with os.fdopen(write, "wb") as told:
                pickle.dump(job(*arguments), told)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as reply:
        told = reply.read()
    os.waitpid(pid, 0)
    return pickle.loads(told)


def each_attempt(*, free: bool) -> Iterator[dict]:
    warm_up()
    for removes in TRIED:
        removed.prepare(removes)
    for removes, attempt in ATTEMPTS:
        cells, numbers = TRIED[removes].cells[attempt], "torch" in removes
        yield forked(attempt_once, () if free else removes, cells, numbers)


def warm_up() -> None:
    """Imports what the attempts would, each for a second."""
    for name in ("_decomp", "_dynamo", "_refs.nn.functional", "distributed.algorithms._checkpoint.checkpoint_wrapper"):
        importlib.import_module(f"torch.{name}")
    importlib.import_module("course.lessons.figures.words")


def attempt_once(names, cells, numbers) -> dict:
    def probe(answer, inputs):
        return observe({"y": answer(inputs["xs"])})

    toy = dataclasses.replace(exercises.load("running_mean"), probe=probe, removes=names, seconds=20.0)
    removed.disable(names)
    loaded = load([CodeCell(source=cells, answers="answer")], "answer")
    case = Case(name="x", inputs={"xs": X.tolist() if numbers else X})
    if loaded.failure is not None:
        seen = Observation(error=loaded.failure)
    else:
        seen = loaded.explained(perform(toy, removed.disabled(names, loaded.answer), case))
        seen = removed.explained(seen, names, loaded.answer)
    value = seen.values.get("y")
    if isinstance(value, torch.Tensor):
        value = value.reshape(-1).tolist()
    error = {"error": None, "message": "", "where": []}
    if seen.error:
        error = {"error": seen.error.type, "message": seen.error.message, "where": list(seen.error.where)}
    return {"value": value, **error}


def in_a_class() -> dict:
    class Answer:
        def total(self):
            return torch.tensor([1.0, 2.0]).sum()

    removed.disable(("torch",))
    kept = removed.disabled(("torch",), Answer)
    try:
        inside = str(kept().total())
    except removed.RemovedError as error:
        inside = type(error).__name__
    return {"same": kept is Answer, "inside": inside, "outside": float(torch.tensor([1.0, 2.0]).sum())}


def unloaded() -> Iterator[dict]:
    """In the later process `warm_up` has loaded sympy."""
    for name in UNLOADED:
        yield forked(attempt_once, (name,), FAMILIES[(name,)].cells["without who refuses imports"], False)


def loaded_later() -> str:
    removed.prepare(("course.lessons.figures",))
    from course.lessons.figures.words import number

    removed.disabled(("course.lessons.figures",), number)
    try:
        return number(2.5)
    except removed.RemovedError as error:
        return type(error).__name__


if __name__ == "__main__":
    torch.set_num_threads(1)
    trials = {
        "free": lambda: each_attempt(free=True),
        "removed": lambda: each_attempt(free=False),
        "class": lambda: [forked(in_a_class)],
        "later": lambda: [forked(loaded_later)],
        "unloaded": unloaded,
    }
    for seen in itertools.chain.from_iterable(trials[name]() for name in sys.argv[1:]):
        print(json.dumps(seen))
