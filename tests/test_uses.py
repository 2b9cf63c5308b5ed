"""What an answer names or runs that it should do without: `check` sees what grading disables.

Each attempt of tests/removed_attempts.py is defined as a cell of a notebook is, in a process of its own for all.
"""

from __future__ import annotations

import dataclasses
import graphlib
import importlib
import json
import linecache
import subprocess
import sys
import types
import warnings

import pytest
import torch
import torch.nn.functional as F
from removed_attempts import FAMILIES, X
from torch import Tensor
from torch.autograd import grad as gradient

from course import exercises
from course.judging.sheet import Record
from course.performing.exercise import Case, observe
from course.performing.perform import perform_all
from course.performing.uses import forbidden

ATTEMPTS = [(removes, attempt) for removes, (_, cells) in FAMILIES.items() for attempt in cells]
UNSEEN = {
    "a wrapper elsewhere in torch": "its class belongs to torch.distributed, and what is removed runs only inside it",
    "copies of its methods": "a copy has a name and a module of its own",
}


def through_a_module(x: Tensor) -> Tensor:
    return torch.autograd.grad(x.sum(), x)[0]


def through_an_alias(x: Tensor) -> Tensor:
    return F.silu(x)


def through_an_imported_function(x: Tensor) -> Tensor:
    return gradient(x.sum(), x)[0]


def through_a_local_import(x: Tensor) -> Tensor:
    from torch.func import vjp

    return vjp(torch.sin, x)[0]


def through_a_method(x: Tensor) -> Tensor:
    return x.sum_to_size(1)


def through_a_class() -> object:
    return graphlib.TopologicalSorter()


class InAClass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return F.silu(x)


def honest(x: Tensor) -> Tensor:
    functional = x.exp()
    return functional / functional.sum()


def calls_a_helper(x: Tensor) -> Tensor:
    return Holder().helped(x)


class Holder:
    @property
    def nothing(self) -> None:
        """Read too, and harmless."""

    @classmethod
    def helped(cls, x: Tensor) -> Tensor:
        return through_an_alias(x)

    def backward(self) -> None:
        self.backward()


def only_looks_at_types(x: object) -> object:
    return x if isinstance(x, torch.Tensor) else (torch.float32, [].pop, {}.values)


def test_names_are_told_as_they_are_written() -> None:
    autograd, silu = "torch.autograd", "torch.nn.functional.silu"
    assert forbidden(through_a_module, (autograd,)) == {"torch.autograd.grad": autograd}
    assert forbidden(through_an_alias, (autograd, silu)) == {"F.silu": silu}
    assert forbidden(through_an_imported_function, (autograd,)) == {"gradient": autograd}
    assert forbidden(through_a_local_import, ("torch.func",)) == {"vjp": "torch.func"}
    assert forbidden(through_a_class, ("graphlib",)) == {"graphlib.TopologicalSorter": "graphlib"}


def test_methods_of_tensors_are_known_by_their_name() -> None:
    name = "torch.Tensor.sum_to_size"
    assert forbidden(through_a_method, (name,)) == {"x.sum_to_size": name}


def test_methods_of_a_class_are_read_and_so_are_its_bases() -> None:
    names = ("torch.nn.functional.silu", "torch.autograd")
    assert forbidden(InAClass, names) == {"InAClass": names[1], "F.silu": names[0]}


def test_what_the_answer_calls_of_the_students_own_is_read_too() -> None:
    assert forbidden(calls_a_helper, ("torch.nn.functional.silu",)) == {"F.silu": "torch.nn.functional.silu"}


def test_what_only_shares_a_name_is_no_use() -> None:
    assert forbidden(honest, ("torch",)) == {}
    assert forbidden(only_looks_at_types, ("torch",)) == {}
    assert forbidden(Holder, ("torch.autograd",)) == {}
    assert forbidden(through_an_alias, ("torch.autograd", "torch.nn.functional.cross_entropy")) == {}


@pytest.mark.parametrize("long", ["x" + ".abs()" * 900, "+".join(["x"] * 2500)])
def test_what_is_too_long_to_be_read_names_nothing(long: str) -> None:
    module = cell(f"def answer(x):\n    return {long}\n", 900)
    assert forbidden(module.answer, ("torch.optim",)) == {}


def test_an_answer_without_source_names_nothing() -> None:
    assert forbidden(eval("lambda x: torch.sin(x)"), ("torch",)) == {}


# --- check against grading --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def remarks() -> dict[tuple[tuple[str, ...], str], str]:
    """By attempt: what `check` shows of an answer that gets full points."""
    program = [sys.executable, "-W", "ignore", __file__]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(zip(ATTEMPTS, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize(("removes", "attempt"), ATTEMPTS)
def test_a_check_remarks_what_grading_disables(remarks, removes, attempt) -> None:
    shown = remarks[removes, attempt]
    remarked = any(f"done without `{name}`" in shown for name in removes) and "grading gives no points" in shown
    assert remarked == (attempt not in UNSEEN), shown


def test_a_kernel_shows_the_remark_and_none_for_an_honest_answer() -> None:
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    cells = [
        "import sys, torch, torch.nn.functional as F\nfrom autograder import bank, recording\n"
        "from course import check\nfrom course.judging.sheet import Record\n"
        "def recorded(exercise):\n    cases = exercise.draw(1)\n    known = bank.load(exercise.id)\n"
        "    return Record(cases=tuple(cases), references=recording.references(known, cases), suspects=())\n"
        "sys.modules['course.notebook.check']._record = recorded",
        "class SaveLess(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, gate, up):\n"
        "        ctx.save_for_backward(gate, up)\n        return F.silu(gate) * up\n"
        "    @staticmethod\n    def backward(ctx, dy): raise NotImplementedError",
        "check(SaveLess)",
        "def orthogonalize(g, steps=5):\n    x = g / torch.linalg.matrix_norm(g, 2)\n    return x * (steps >= 0)",
        "check(orthogonalize)",
        "def orthogonalize(g, steps=5):\n    return g / torch.linalg.matrix_norm(g)",
        "check(orthogonalize)",
        "def helper(p, g):\n    torch._fused_sgd_([p], [g], [], weight_decay=0.0, momentum=0.0, lr=0.1,\n"
        "        dampening=0.0, nesterov=False, maximize=False, is_first_step=True)\n"
        "def sgd_step(params, grads, state, **options):\n    helper(params[0], grads[0])",
        "check(sgd_step)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [cell.outputs[-1]["data"]["text/html"] if cell.outputs else "" for cell in notebook.cells]
    assert "your answer uses <code>F.silu</code>; grading gives no points" in shown[2]
    assert "uses <code>torch.linalg.matrix_norm</code>; grading gives no points" in shown[4]
    assert "grading gives no points" not in shown[6]
    assert "uses <code>torch._fused_sgd_</code>; grading gives no points" in shown[8]


# --- the program ------------------------------------------------------------------------------------


def cell(source: str, number: int) -> types.ModuleType:
    """The notebook's module after a cell ran as in a kernel: its source is known to linecache only."""
    file, module = f"/tmp/ipykernel_1/{number}.py", types.ModuleType("__main__")
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), module.__dict__)
    return module


def shown_by_check(removes: tuple[str, ...], attempt: str, number: int) -> str:
    checking = importlib.import_module("course.notebook.check")
    xs = X.tolist() if "torch" in removes else X
    case = Case(name="x", inputs={"xs": xs})
    whole = exercises.load("running_mean")
    only = (dataclasses.replace(whole.properties[0], keys=("y",), holds=None, cases=("x",), beside=(), needs=()),)
    toy = dataclasses.replace(whole, probe=probe, properties=only, removes=removes, seconds=20.0, keeps=(), forms=())
    answer = cell(FAMILIES[removes].cells[attempt], number).answer
    answer.__name__ = "running_mean"
    record = Record(cases=(case,), references=tuple(perform_all(toy, answer, [case])), suspects=())
    checking._exercise_of, checking._record = lambda given: toy, lambda exercise: record
    return checking.check(answer).__str__()


def probe(answer, inputs):
    return observe({"y": answer(inputs["xs"])})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("\n" + json.dumps([shown_by_check(*each, number) for number, each in enumerate(ATTEMPTS)]))
