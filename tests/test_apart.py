"""An answer does not see the frames of who calls it, and is otherwise called as ever."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import sys
import time
import weakref

import pytest
import torch

from course import exercises
from course.apart import apart
from course.lessons.experiments.programs import Programs
from course.performing.exercise import Case, observe
from course.performing.perform import perform


def names(frame) -> list[str]:
    """Of the functions from a frame outwards."""
    found = []
    while frame is not None:
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found


def probe_of(answer, *given):
    """Calls the answer, and knows more than it does."""
    secret = 42
    return answer(*given), secret


def test_the_frames_of_the_caller_cannot_be_reached():
    assert probe_of(apart(lambda: names(sys._getframe())))[0] == ["<lambda>", "_call"]
    assert probe_of(apart(lambda: names(sys._current_frames()[max(sys._current_frames())])))[0][-1] == "_call"


def test_nor_from_a_frame_that_was_kept():
    (kept, _) = probe_of(apart(lambda: sys._getframe()))
    assert names(kept) == ["<lambda>", "_call"]


def test_nor_from_a_line_of_a_program():
    program = Programs(f="def f(x):\n    return x\n").defined
    at_call = program("f", "def f(x):\n    import sys; return x(sys._getframe())\n")
    when_defined = program("f", "def f(x, frame=__import__('sys')._getframe()):\n    return x(frame)\n")
    assert probe_of(at_call, names)[0] == ["f", "_call"]
    assert probe_of(when_defined, names)[0] == ["<module>", "_executed", "_call"]


@pytest.mark.parametrize(
    ("name", "program", "line"),
    [
        ("mend_the_steps", "watched", (14, "import sys; sys._getframe(1).f_locals['alive']; return losses, means")),
        ("mend_the_quantizers", "layer", (12, "import sys; sys._getframe(1).f_locals['meter']; return outputs, kept")),
    ],
)
def test_a_line_of_a_program_does_not_reach_the_instrument_of_who_runs_it(name, program, line):
    exercise = dataclasses.replace(exercises.load(name), seconds=60.0)
    cases = exercise.cases(torch.Generator().manual_seed(0))
    seen = [perform(exercise, lambda: {program: line}, case) for case in cases]
    assert {each.error.type for each in seen} == {"KeyError", "WrongOutput"}  # the other programs have no line


def test_nor_from_an_exception_that_was_kept():
    error = ValueError("kept")

    def answer(x):
        raise error

    toy = dataclasses.replace(exercises.load("running_mean"), probe=lambda answer, inputs: observe({"y": answer(1)}))
    seen = perform(toy, apart(answer), Case(name="x", inputs={"xs": 1}))
    assert (seen.error.type, seen.error.message, error.__traceback__) == ("ValueError", "kept", None)


def test_what_is_handed_in_lives_no_longer_than_the_call():
    given = torch.ones(3)
    there = weakref.ref(given)
    gc.disable()
    try:
        apart(lambda x: None)(given)
        del given
        assert there() is None
    finally:
        gc.enable()


def test_what_is_returned_and_raised_comes_to_the_caller():
    def answer(x, *, times=2):
        """Says so."""
        return [x] * times if times else 1 / 0

    hidden = apart(answer)
    assert (hidden(3), hidden(3, times=1), hidden.__doc__) == ([3, 3], [3], "Says so.")
    assert inspect.signature(hidden) == inspect.signature(answer)
    with pytest.raises(ZeroDivisionError):
        hidden(3, times=0)
    assert names(sys._getframe())[:2] == [
        "test_what_is_returned_and_raised_comes_to_the_caller",
        *names(sys._getframe(1))[:1],
    ]


def test_an_answer_may_call_itself_and_be_called_back():
    def down(n, call):
        return call(n) if n == 0 else hidden(n - 1, call) + 1

    hidden = apart(down)
    assert hidden(100, lambda n: len(names(sys._getframe()))) == 100 + 3


def test_a_class_stays_the_same_class_and_hides_each_of_its_functions():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            Square.seen = names(sys._getframe())
            return x * x

        @staticmethod
        def backward(ctx, dy):
            return 2 * dy * ctx.saved_tensors[0]

    class Layer(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.size = size

        def forward(self, x):
            return Square.apply(x) * self.size

    assert (apart(Square), apart(Layer)) == (Square, Layer)
    x = torch.ones(3, requires_grad=True)
    Layer(2.0)(x).sum().backward()
    assert (x.grad.tolist(), Square.seen) == ([4.0] * 3, ["forward", "_call"])


def test_a_time_limit_still_ends_an_answer_and_leaves_the_stack_whole():
    def answer(x):
        while True:
            time.sleep(0.001)

    toy = dataclasses.replace(exercises.load("running_mean"), probe=lambda answer, inputs: answer(1), seconds=0.2)
    seen = perform(toy, apart(answer), Case(name="x", inputs={"xs": 1}))
    assert seen.error.type == "TimeLimit"
    assert "in answer: " in seen.error.where[-1]
    assert "test_a_time_limit" in names(sys._getframe())[0]


def test_deep_recursion_ends_as_ever():
    def answer(n):
        return answer(n + 1)

    with pytest.raises(RecursionError):
        apart(answer)(0)
    assert probe_of(apart(lambda: 3))[0] == 3
