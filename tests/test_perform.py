"""course/performing/perform.py: whatever an answer does becomes an observation."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import linecache
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch
import toy
from conftest import same_tree

from course.failing import MAX_MESSAGE, MAX_WHERE, MAX_WRITTEN, short
from course.performing.exercise import Case, Observation, observe
from course.performing.oracle import Here, UnknownQuestion, is_here, with_costs
from course.performing.perform import MAX_PRINTED, in_float64, perform, perform_all
from course.tree import clone

VECTOR = Case(name="vector", inputs={"x": torch.tensor([1.0, 2.0]), "numbers": [1.0, 2.0]})


def run(answer, case=VECTOR, clock="wall", **fields) -> Observation:
    return perform(dataclasses.replace(toy.EXERCISE, **fields), answer, case, clock=clock)


def own_lines(seen: Observation) -> tuple[str, ...]:
    """Where it broke, without the toy's probe: real ones lie inside the course."""
    return tuple(line for line in seen.error.where if "in probe" not in line)


def raises(error):
    """An answer that raises `error`."""

    def answer(*args):
        raise error

    return answer


def test_a_right_answer_is_observed_with_its_cost_and_the_inputs_afterwards():
    seen = run(toy.running_mean)
    assert seen.error is None
    assert seen.values["squares"].tolist() == [1.0, 4.0]
    assert sorted(seen.values) == ["after/numbers", "after/x", "squares", "total"]
    assert (seen.ledger, seen.sources) == ({"calls": 1}, {"calls": "claimed"})


# exceptions


class Unreadable(Exception):
    def __str__(self):
        raise SystemExit("no message")


class Lying(Exception):
    @property
    def __class__(self):
        raise SystemExit


class Meta(type):
    __name__ = property(lambda cls: 1 / 0)


class Nameless(Exception, metaclass=Meta):
    pass


class Text(str):
    __slots__ = ()

    def __getitem__(self, at):
        raise SystemExit


class Texted(Exception):
    def __str__(self):
        return Text("said")


ERRORS = [
    ValueError("wrong"),
    KeyError("k"),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration(),
    StopAsyncIteration(),
    MemoryError(),
    RecursionError("deep"),
    OSError(2, "No such file"),
    ExceptionGroup("several", [ValueError("one")]),
    BaseExceptionGroup("all", [SystemExit()]),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_exception_becomes_a_failure(error):
    seen = run(raises(error))
    assert (seen.error.type, seen.error.message) == (type(error).__name__, str(error))
    assert "squares" not in seen.values


def test_an_exception_whose_message_cannot_be_read_is_still_named():
    failure = run(raises(Unreadable())).error
    assert (failure.type, failure.message) == ("Unreadable", "<an exception whose message cannot be read>")


def test_an_exception_that_lies_about_itself_is_told():
    told = [run(raises(error())).error for error in (Lying, Nameless, Texted)]
    assert [failure.type for failure in told] == ["Lying", "Exception", "Texted"]
    assert told[2].message == "said"


def test_messages_are_cut_and_can_be_encoded():
    message = run(raises(ValueError("\ud800" + "x" * 10_000))).error.message
    assert len(message) == MAX_MESSAGE
    assert message.encode()


def test_an_exception_in_one_case_does_not_stop_the_next():
    calls: list[int] = []

    def answer(x, numbers, square):
        calls.append(1)
        if len(calls) == 2:
            raise SystemExit(1)
        return toy.running_mean(x, numbers, square)

    seen = perform_all(toy.EXERCISE, answer, [VECTOR] * 3)
    assert [each.error and each.error.type for each in seen] == [None, "SystemExit", None]
    assert len(calls) == 3


def test_endless_recursion_is_a_failure():
    def answer(x, numbers, square):
        return answer(x, numbers, square)

    failure = run(answer).error
    assert failure.type == "RecursionError"
    assert len(failure.where) == MAX_WHERE


@pytest.mark.parametrize("result", [None, 3, (1, 2, 3), [1], "ab", object()])
def test_a_wrong_form_of_result_is_told(result):
    failure = run(lambda *args: result).error
    assert failure.type == "WrongOutput"
    assert "must return 2 values (squares, total), got" in failure.message


def test_a_wrong_type_inside_the_result_is_observed_as_it_is():
    assert run(lambda *args: (range(3), len)).values["squares"] == "<range>"


@pytest.mark.parametrize("answer", [None, 3, "text", object()])
def test_an_answer_that_cannot_be_called_is_a_failure(answer):
    assert run(answer).error.type == "TypeError"


def test_a_probe_that_returns_no_observation_shows_nothing():
    assert run(toy.running_mean, probe=lambda answer, inputs: 3, keeps=("x",)).values.keys() == {"after/x"}


def test_a_failure_that_the_probe_reports_is_kept():
    failure = run(raises(ValueError("inner"))).error

    def probe(answer, inputs):
        return dataclasses.replace(observe({"a": 1}), error=failure)

    seen = run(toy.running_mean, probe=probe)
    assert (seen.error, seen.values["a"]) == (failure, 1)


# the student's own lines

CELL = """\
def helper(x):
    return x.view(7)

def running_mean(x, numbers, square):
    squares = square(x)
    return helper(squares), 0
"""


def _from_a_cell(source: str, name: str, file: str):
    """A function as a notebook defines it: compiled from a cell, with its lines in linecache."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, object] = {}
    exec(compile(source, file, "exec"), scope)
    return scope[name]


def test_the_traceback_is_cut_to_the_students_lines():
    answer = _from_a_cell(CELL, "running_mean", "/tmp/ipykernel_1/100.py")
    assert own_lines(run(answer)) == (
        "line 6, in running_mean: return helper(squares), 0",
        "line 2, in helper: return x.view(7)",
    )


def test_lines_without_a_source_are_told_by_number():
    scope: dict[str, object] = {}
    exec("def running_mean(x, numbers, square):\n    1 / 0", scope)
    assert own_lines(run(scope["running_mean"])) == ("line 2, in running_mean",)


def test_the_name_of_a_function_is_told_in_few_words_on_one_line():
    def answer(x, numbers, square):
        raise ValueError("no")

    answer.__code__ = answer.__code__.replace(co_name="a\n" + " " * 40 + "x" * 9_000)
    (line,) = own_lines(run(answer))
    assert ("in a xxx" in line, "\n" in line, len(line) < 200) == (True, False, True)


@pytest.mark.parametrize(("end", "told"), [("", "a"), ("[0]", "...")])
def test_a_chain_of_hundreds_of_calls_is_told_in_few_words(end, told):
    text = short(ast.parse("x" + ".a()" * 400 + end, mode="eval").body)
    assert (text.endswith(told), len(text) <= MAX_WRITTEN) == (True, True)


def test_lines_of_libraries_and_of_the_course_are_left_out():
    def answer(x, numbers, square):
        return torch.nn.functional.linear(square(x), x.reshape(2, 1, 1), None), np.linalg.inv(np.ones(2))

    where = own_lines(run(answer))
    assert len(where) == 1
    assert "in answer" in where[0]


def test_a_students_folder_whose_name_begins_like_ours_is_the_students():
    import course

    file = os.path.dirname(course.__file__) + "_notes/mine.py"
    assert len(own_lines(run(_from_a_cell(CELL, "running_mean", file)))) == 2


def test_a_spoilt_line_cache_does_no_harm():
    answer = _from_a_cell(CELL, "running_mean", "/tmp/ipykernel_1/101.py")
    linecache.cache["/tmp/ipykernel_1/101.py"] = 3
    try:
        assert own_lines(run(answer)) == ("line 6, in running_mean", "line 2, in helper")
    finally:
        del linecache.cache["/tmp/ipykernel_1/101.py"]


# oracles


class Squares:
    """Squares what it is asked for by a hidden factor, and counts."""

    def __init__(self, case: Case) -> None:
        self.factor, self.calls = case.hidden["factor"], 0

    def ask(self, verb, arguments):
        if verb != "square":
            raise UnknownQuestion("only squares can be asked for")
        self.calls += 1
        return self.factor * arguments * arguments

    def ledger(self):
        return {"calls": self.calls}

    def values(self):
        return None


def asking(answer, inputs, ask):
    """Like the toy's probe, but the squares come from the oracle."""
    squares, total = answer(inputs["x"], inputs["numbers"], lambda x: ask("square", x))
    return observe({"squares": squares, "total": total, "here": is_here(ask)}, {"calls": 99, "own": 1})


ASKED = dataclasses.replace(toy.EXERCISE, probe=asking, oracle=Squares)
HIDING = dataclasses.replace(VECTOR, hidden={"factor": 3.0})


def test_without_a_way_to_ask_the_oracle_answers_here_and_its_counts_are_claims():
    seen = perform(ASKED, toy.running_mean, HIDING)
    assert (seen.values["squares"].tolist(), seen.values["here"]) == ([3.0, 12.0], True)
    assert seen.ledger == {"calls": 1, "own": 1}
    assert seen.sources == {"calls": "claimed", "own": "claimed"}


def test_with_a_way_to_ask_nothing_is_needed_here_and_nothing_is_added():
    oracle = Squares(HIDING)
    seen = perform(ASKED, toy.running_mean, VECTOR, ask=oracle.ask)
    assert (seen.values["squares"].tolist(), seen.values["here"]) == ([3.0, 12.0], False)
    assert (oracle.calls, seen.ledger["calls"]) == (1, 99)


def test_what_an_oracle_counted_outside_stands_over_what_a_probe_says():
    seen = with_costs(observe({}, {"calls": 99, "own": 1}), Squares(HIDING).ledger(), "broker")
    assert seen.ledger == {"calls": 0, "own": 1}
    assert seen.sources == {"calls": "broker", "own": "claimed"}


def test_what_was_asked_before_an_answer_broke_is_counted():
    def answer(x, numbers, square):
        square(x)
        raise ValueError("later")

    seen = perform(ASKED, answer, HIDING)
    assert (seen.error.message, seen.ledger) == ("later", {"calls": 1})


def test_a_question_without_an_answer_is_a_failure_of_the_answer():
    exercise = dataclasses.replace(ASKED, probe=lambda answer, inputs, ask: ask("cube", 1))
    failure = perform(exercise, toy.running_mean, HIDING).error
    assert (failure.type, failure.message) == ("UnknownQuestion", "only squares can be asked for")


def test_nothing_is_shared_with_an_oracle():
    class Keeps(Squares):
        def ask(self, verb, arguments):
            self.kept = arguments
            return self.factor

    factor = torch.ones(2)
    ask = Here(oracle := Keeps(dataclasses.replace(VECTOR, hidden={"factor": factor})))
    asked = torch.zeros(2)
    ask("square", asked).add_(1)
    asked.add_(1)
    assert (factor.tolist(), oracle.kept.tolist()) == ([1.0, 1.0], [0.0, 0.0])


def test_hidden_tensors_go_to_float64_with_the_inputs():
    case = in_float64(dataclasses.replace(VECTOR, hidden={"m": torch.ones(2), "row": 3}))
    assert (case.hidden["m"].dtype, case.inputs["x"].dtype) == (torch.float64, torch.float64)
    assert (case.hidden["row"], case.name) == (3, "vector")


# time


def test_an_answer_that_runs_too_long_is_stopped_and_told_where():
    def answer(x, numbers, square):
        while True:
            pass

    failure = run(answer, seconds=0.05).error
    assert (failure.type, failure.message) == ("TimeLimit", "did not end within 0.05 s")
    assert "in answer" in failure.where[-1]


def test_no_except_exception_swallows_the_time_limit():
    def answer(x, numbers, square):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    assert run(answer, seconds=0.05).error.type == "TimeLimit"


def test_on_the_cpu_clock_waiting_costs_nothing():
    def answer(x, numbers, square):
        time.sleep(0.1)
        return toy.running_mean(x, numbers, square)

    assert run(answer, clock="cpu", seconds=0.05).error is None


def test_on_the_cpu_clock_a_loop_ends_at_its_limit():
    def answer(x, numbers, square):
        while True:
            pass

    assert run(answer, clock="cpu", seconds=0.05).error.type == "TimeLimit"


def test_on_the_cpu_clock_nobody_waits_for_ever(monkeypatch):
    monkeypatch.setattr("course.performing.perform.WIDE", 4.0)
    assert run(lambda *args: time.sleep(60), clock="cpu", seconds=0.05).error.type == "TimeLimit"


def _swallows_everything(seconds: float):
    def answer(x, numbers, square):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(BaseException):
                time.sleep(0.01)
        return toy.running_mean(x, numbers, square)

    return answer


def test_an_answer_that_swallows_everything_is_late_all_the_same():
    seen = run(_swallows_everything(0.2), seconds=0.05)
    assert seen.error.type == "TimeLimit"
    assert seen.values.keys() == {"after/x", "after/numbers"}


def test_in_another_thread_the_clock_is_read_afterwards():
    seen: list[Observation] = []
    thread = threading.Thread(target=lambda: seen.append(run(_swallows_everything(0.1), seconds=0.05)))
    thread.start()
    thread.join()
    assert seen[0].error.type == "TimeLimit"
    assert "squares" not in seen[0].values


def test_nothing_rings_after_the_answer_has_left():
    before = signal.getsignal(signal.SIGALRM)
    for _ in range(40):
        run(_swallows_everything(0.005), seconds=0.0049)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before
    time.sleep(0.1)


def test_a_ring_between_the_answer_and_the_end_of_the_timer_is_nobodys():
    def probe(answer, inputs):
        handler = signal.getsignal(signal.SIGALRM)
        between = sys._getframe(1)  # of perform itself
        handler(signal.SIGALRM, between)
        handler(signal.SIGALRM, None)
        return observe({"a": 1})

    assert run(toy.running_mean, probe=probe).error is None


def test_a_ring_in_what_our_clean_up_calls_does_not_end_the_clean_up(monkeypatch):
    setitimer, rings = signal.setitimer, []

    def ring_and_set(*args):
        handler = signal.getsignal(signal.SIGALRM)
        if callable(handler):
            rings.append(handler(signal.SIGALRM, sys._getframe()))
        return setitimer(*args)

    monkeypatch.setattr(signal, "setitimer", ring_and_set)
    assert run(toy.running_mean).error is None
    assert len(rings) == 2  # as the timer starts and as it ends
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_somebody_elses_alarm_goes_on():
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *args: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        run(toy.running_mean)
        time.sleep(0.4)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung == [1]


def test_an_answer_that_checks_itself_keeps_its_own_limit():
    def answer(x, numbers, square):
        run(toy.running_mean)
        while True:
            pass

    assert run(answer, seconds=0.1).error.type == "TimeLimit"


def test_after_a_time_out_the_other_cases_are_not_run():
    calls: list[int] = []

    def answer(x, numbers, square):
        calls.append(1)
        while True:
            pass

    exercise = dataclasses.replace(toy.EXERCISE, seconds=0.05)
    seen = perform_all(exercise, answer, [VECTOR] * 3)
    assert [each.error.type for each in seen] == ["TimeLimit"] * 3
    assert len(calls) == 1


def test_an_interrupt_ends_the_row_too():
    seen = perform_all(toy.EXERCISE, raises(KeyboardInterrupt()), [VECTOR] * 3)
    assert [each.values for each in seen[1:]] == [{}, {}]


# what must not leak


def test_prints_and_warnings_are_captured(capfd):
    def answer(x, numbers, square):
        print("to stdout")
        print("to stderr", file=sys.stderr)
        warnings.warn("careful", stacklevel=1)
        return toy.running_mean(x, numbers, square)

    seen = run(answer)
    assert seen.printed == "to stdout\nto stderr\n"
    assert seen.error is None
    assert capfd.readouterr() == ("", "")


def test_endless_printing_is_capped():
    def answer(x, numbers, square):
        for _ in range(1000):
            print("x" * 1000)

    assert run(answer).printed == ("x" * 1000 + "\n" + "x" * 1000)[:MAX_PRINTED]


def test_an_answer_that_prints_for_ever_is_stopped():
    def answer(x, numbers, square):
        while True:
            print("more")

    assert run(answer, seconds=0.05).error.type == "TimeLimit"


def test_a_closed_stream_does_no_harm():
    def answer(x, numbers, square):
        print("before", flush=True)
        sys.stdout.close()
        print("after")
        return toy.running_mean(x, numbers, square)

    seen = run(answer)
    assert (seen.printed, seen.error) == ("before\nafter\n", None)


def test_only_text_can_be_printed():
    def answer(x, numbers, square):
        assert sys.stdout.writable()
        assert sys.stdout.write(Text("odd \ud800")) == 5
        sys.stdout.write(3)

    seen = run(answer)
    assert (seen.printed, seen.error.type) == ("odd ?", "TypeError")


def test_random_states_of_the_caller_stay():
    def answer(x, numbers, square):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        torch.rand(1), random.random(), np.random.rand()

    before = (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist())
    run(answer)
    assert before == (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist())


def test_the_gradient_mode_is_on_inside_and_stays_as_it_was_outside():
    def answer(x, numbers, square):
        recorded = torch.is_grad_enabled()
        torch.set_grad_enabled(not recorded)
        return x * recorded, 0.0

    with torch.no_grad():
        seen = run(answer)
        assert not torch.is_grad_enabled()
    assert seen.values["squares"].tolist() == [1.0, 2.0]
    run(answer)
    assert torch.is_grad_enabled()


# arguments


@pytest.mark.parametrize("spoil", ["x.add_(1)", "x.zero_()", "x.resize_(0)", "numbers.clear()", "numbers.append(3)"])
def test_a_changed_argument_is_seen_and_the_case_stays(spoil):
    case = Case(name="vector", inputs=clone(VECTOR.inputs))
    seen = run(lambda x, numbers, square: exec(spoil), case)
    assert same_tree(case.inputs, VECTOR.inputs)
    assert not same_tree(_after(seen), _after(run(toy.running_mean)))


class Denies(torch.Tensor):
    requires_grad = grad = is_leaf = property(lambda self: exec("raise SystemExit"))

    @classmethod
    def __torch_function__(cls, *call, **options):
        raise SystemExit


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ("x.requires_grad_()", "requires a gradient and has none now"),
        ("x.requires_grad_(); x.__class__ = Denies", "requires a gradient and has none now"),
        ("x.grad = torch.ones(2)", "requires no gradient and has one now"),
    ],
)
@pytest.mark.parametrize("change", ["", "x.detach().add_(1); "])
def test_what_autograd_notes_on_an_argument_is_seen_beside_its_numbers(spoil, says, change):
    values = run(lambda x, numbers, square: exec(change + spoil)).values
    assert values[f"after/x ({says})"]
    assert same_tree(values["after/x"], VECTOR.inputs["x"] + bool(change))


def test_what_autograd_notes_on_a_number_in_a_list_is_seen():
    case = Case(name="numbers", inputs={"x": [torch.tensor(1.0), torch.tensor(2.0)], "numbers": []})
    assert (
        "after/x/1 (requires a gradient and has none now)" in run(lambda x, *rest: x[1].requires_grad_(), case).values
    )


def _after(seen: Observation) -> dict:
    return {key: value for key, value in seen.values.items() if key.startswith("after/")}


def test_inputs_that_nobody_keeps_are_not_observed():
    seen = run(toy.running_mean, keeps=("x", "missing"))
    assert [key for key in seen.values if key.startswith("after")] == ["after/x"]
    bare = tuple(each for each in toy.EXERCISE.properties if each.name != "arguments_unchanged")
    assert "after/x" not in run(toy.running_mean, keeps=(), properties=bare).values


class Hostile(str):
    __slots__ = ()

    def __str__(self):
        raise SystemExit

    __len__ = __iter__ = __getitem__ = __hash__ = __str__


ODD = [Hostile("x"), 10**5000, float("nan"), [[[]]], {1: 2}, object(), torch.ones(2).to_sparse(), len]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_arguments_filled_with_anything_are_observed(odd):
    def answer(x, numbers, square):
        numbers[:] = [odd, numbers]

    seen = run(answer)
    assert seen.error.type == "WrongOutput"
    assert any(key.startswith("after/numbers") for key in seen.values)


def test_two_runs_of_one_case_do_not_see_each_other():
    seen = [run(toy.in_place) for _ in range(2)]
    assert same_tree(seen[0].values, seen[1].values)


def test_a_case_in_float64_leaves_the_case_alone():
    raised = in_float64(VECTOR)
    assert (raised.name, raised.inputs["x"].dtype) == ("vector", torch.float64)
    assert raised.inputs["numbers"] == [1.0, 2.0]
    assert VECTOR.inputs["x"].dtype == torch.float32


def test_without_an_interval_timer_the_clock_alone_decides(monkeypatch):
    monkeypatch.delattr(signal, "setitimer")
    assert run(toy.running_mean).error is None
    assert run(_swallows_everything(0.1), seconds=0.05).error.type == "TimeLimit"


def test_an_alarm_handler_that_python_did_not_install_does_no_harm(monkeypatch):
    monkeypatch.setattr(signal, "signal", _unknown_before(signal.signal))
    assert run(toy.running_mean).error is None


def _unknown_before(install):
    """`signal.signal` in a process whose alarm handler was installed from C: it returns None."""

    def replacement(number, handler):
        install(number, handler)

    return replacement


def test_a_process_ends_cleanly_after_many_time_outs():
    folders = [os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))]
    code = f"import sys; sys.path[:0] = {folders}; import test_perform as t"
    code += "\nfor _ in range(5): t.run(t._swallows_everything(0.02), seconds=0.01)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
