"""autograder/edits.py: answers as text, and wrong ones as edits of right ones."""

from __future__ import annotations

import traceback

import pytest
import torch
import toy

from autograder.answers.optimizers.adamw_step import torchs_own
from autograder.edits import cell, edited, slip, source
from course.errors import DeclarationError
from course.reference.computational_graphs.backward import backward
from course.reference.optimizers.adamw_step import adamw_step

RETURN = "return square(x), math.fsum(numbers)"


class Doubled(torch.autograd.Function):
    """A right answer that is a class."""

    @staticmethod
    def forward(ctx, x):
        """Twice x."""
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        """The derivative is 2."""
        return 2 * dy


def defined(text: str, name: str):
    """What a cell with this source defines."""
    namespace: dict[str, object] = {}
    exec(text, namespace)
    return namespace[name]


def test_an_edit_changes_what_an_answer_does():
    wrong = edited(toy.running_mean, (RETURN, "return square(x) * 2, math.fsum(numbers)"))
    assert wrong(torch.ones(1), [1.0, 2.0], lambda x: x)[0].item() == 2.0
    assert toy.running_mean(torch.ones(1), [1.0, 2.0], lambda x: x)[0].item() == 1.0


def test_an_edited_answer_can_be_edited_again():
    once = edited(toy.running_mean, ("math.fsum(numbers)", "sum(numbers)"))
    assert "square(x) * 2, sum(numbers)" in source(edited(once, ("square(x)", "square(x) * 2")))


def test_a_class_can_be_edited():
    wrong = edited(Doubled, ("return 2 * dy", "return dy"))
    x = torch.ones(1, requires_grad=True)
    wrong.apply(x).sum().backward()
    assert x.grad.item() == 1.0


@pytest.mark.parametrize(("old", "times"), [("square(y)", 0), ("square", 2)])
def test_an_edit_that_no_longer_applies_is_a_sentence(old, times):
    with pytest.raises(DeclarationError, match=rf"running_mean no longer applies: .* holds it {times} times; adapt"):
        edited(toy.running_mean, (old, "x"))


def test_an_edit_that_leaves_no_python_is_a_sentence():
    with pytest.raises(DeclarationError, match="an edit of running_mean must leave valid Python, but"):
        edited(toy.running_mean, (RETURN, "return ("))


def test_a_source_holds_all_that_no_student_has():
    text = source(backward)
    assert "def topological_order" in text
    assert not {"course.reference", "autograder."} & {line.split()[1] for line in text.splitlines() if "import" in line}
    assert source(backward).count("\n") > 10
    defined(text, "backward")


@pytest.mark.parametrize("answer", [backward, adamw_step, torchs_own, toy.running_mean, Doubled])
def test_a_source_has_no_docstring_and_defines_the_answer(answer):
    made = defined(source(answer), answer.__name__)
    assert made.__doc__ is None or made.__doc__ == torch.autograd.Function.__doc__
    assert '"""' not in source(answer)


def test_a_cell_defines_the_entry_s_name_and_helpers_that_nobody_else_has():
    text = cell("backward", edited(backward, ("node.grad += upstream", "node.grad = upstream")))
    assert "def topological_order_of_backward(" in text
    assert "def topological_order(" not in text
    assert cell("doubled", Doubled).count("class doubled(") == 1
    assert cell("Doubled", Doubled) == source(Doubled)


def test_decorators_and_comments_stay():
    assert "@torch.no_grad()\ndef adamw_step" in source(adamw_step)
    assert "# p <- p - lr wd p" in source(adamw_step)


def test_an_answer_without_a_source_is_a_sentence():
    def inside(x):
        return x

    with pytest.raises(DeclarationError, match=r"must have a source of its own: define it at the margin"):
        source(inside)


def test_a_slip_is_the_lines_that_changed():
    assert slip(edited(toy.running_mean, (RETURN, "return 0"))) == f"- {RETURN}\n+ return 0"
    assert slip(toy.running_mean) == ""


def test_a_traceback_shows_the_edited_line():
    wrong = edited(toy.running_mean, (RETURN, "return 1 / 0"))
    with pytest.raises(ZeroDivisionError) as error:
        wrong(1, 2, 3)
    assert traceback.extract_tb(error.value.__traceback__)[-1].line == "return 1 / 0"
