"""course/notebook/check.py and what it shows: the table, the points, the sentences, hints and progress."""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
import toy
from IPython.core import getipython

import course
from course import exercises, meter
from course.errors import BadArgument, CourseError, NotAnAnswer, SheetError, UnknownExercise
from course.judging import sheet
from course.notebook import progress_file, report
from course.notebook.check import check, hint, progress, solved
from course.notebook.progress_file import Row
from course.syllabus import UNITS, entries, find_entry

ROOT = Path(__file__).parent.parent
RECORD = toy.record()
checking = sys.modules["course.notebook.check"]  # the module: `course.check` is the function
load_sheet = checking._sheet


@pytest.fixture(autouse=True)
def _toy_is_in_the_course(monkeypatch):
    """`running_mean` is the toy, alone in its lesson; the other exercises are the course's own."""
    load = exercises.load

    def load_toy(name: str):
        return toy.EXERCISE if find_entry(name).id == toy.ID else load(name)

    monkeypatch.setattr(exercises, "load", load_toy)
    monkeypatch.setattr(checking, "_sheet", lambda unit: {toy.ID: RECORD})
    alone = dataclasses.replace(UNITS[0], entries=(find_entry(toy.ID),))
    monkeypatch.setattr(checking, "UNITS", (alone, *UNITS[1:]))


def called(name: str, answer):
    """The same answer under another name."""
    answer.__name__ = name
    return answer


def as_exercise(answer):
    """The answer as a student writes it: under the exercise's name."""

    def running_mean(x, numbers, square):
        return answer(x, numbers, square)

    return running_mean


def row() -> Row:
    return progress_file.load().get(toy.ID, Row())


# what a check returns and shows


@pytest.mark.parametrize(
    ("answer", "points"), [(toy.running_mean, "8"), (toy.cubes, "2"), (toy.row_by_row, "6"), (toy.stub, "0")]
)
def test_the_plain_result_is_the_number_of_points(answer, points):
    assert repr(check(as_exercise(answer))) == points


def test_outside_a_notebook_the_table_is_printed_and_nothing_goes_to_stderr(capfd):
    def noisy(x, numbers, square):
        print("mine")
        print("to stderr", file=sys.stderr)
        warnings.warn("careful", stacklevel=1)
        return torch.tensor([1.0]).to_sparse(), object()

    shown = check(as_exercise(noisy))
    out, err = capfd.readouterr()
    assert out == f"{shown}\n"
    assert err == ""
    assert "| mine" in out


def test_in_a_notebook_nothing_is_printed(monkeypatch, capfd):
    class Shell:
        kernel = object()

    monkeypatch.setattr(getipython, "get_ipython", Shell)
    shown = check(toy.running_mean)
    assert capfd.readouterr() == ("", "")
    assert shown._repr_html_().startswith("<style>")


@pytest.mark.parametrize("shell", [None, object()], ids=["no shell", "terminal"])
def test_a_terminal_is_no_notebook(monkeypatch, capfd, shell):
    monkeypatch.setattr(getipython, "get_ipython", lambda: shell)
    check(toy.running_mean)
    assert "running_mean: 8 of 8 points" in capfd.readouterr().out


def test_without_ipython_the_table_is_printed(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "IPython.core.getipython", None)
    check(toy.running_mean)
    assert "running_mean: 8 of 8 points" in capfd.readouterr().out


def test_full_marks_are_said():
    assert str(check(toy.running_mean)) == "running_mean: 8 of 8 points. All of it holds."


def test_a_table_that_holds_is_folded_under_its_headline():
    html = check(toy.running_mean)._repr_html_()
    summary, table = html.partition("<details>")[2].partition("</details>")[0].split("</summary>")
    assert "8 of 8 points. All of it holds." in summary
    assert table.startswith("<table>")
    assert "<details>" not in check(as_exercise(toy.cubes))._repr_html_()


def test_what_failed_stands_before_what_waits_and_what_holds():
    shown = check(as_exercise(toy.cubes))
    marks = [line[2:10].strip() for line in str(shown).splitlines() if line.endswith("points)")]
    assert marks == sorted(marks, key=("not held", "waits", "held").index)
    assert len(set(marks)) == 3
    html = shown._repr_html_()
    assert html.index("not held</span>") < html.index("waits</span>") < html.index("&#10003; held</span>")


def test_a_stub_is_not_attempted_and_raises_nothing(capfd):
    shown = check(as_exercise(toy.stub))
    assert str(shown).startswith("running_mean: not attempted, 0 of 8 points")
    assert "<table>" not in shown._repr_html_()


def test_the_table_has_a_row_for_each_property():
    shown = check(as_exercise(toy.last_number_dropped))
    html, text = shown._repr_html_(), str(shown)
    assert html.count("<tr>") == 1 + len(toy.EXERCISE.properties)
    for name in ("squares", "total", "one call", "arguments unchanged"):
        assert name in html
        assert name in text


def test_a_failed_property_says_expected_got_and_difference():
    text = str(check(as_exercise(toy.last_number_dropped)))
    numbers = RECORD.cases[0].inputs["numbers"]
    assert f"case vector, total: expected {sum(numbers):.6g}, got {sum(numbers[:-1]):.6g}; worst difference" in text


def test_the_diagnosis_names_the_misconception_and_its_cure():
    shown = check(as_exercise(toy.last_number_dropped))
    for form in (str(shown), shown._repr_html_()):
        assert "Diagnosis: last number dropped." in form
        assert "Cure of last_number_dropped." in form


def test_a_cost_that_waits_says_for_what():
    assert "Earns points once this holds: squares." in str(check(as_exercise(toy.cubes)))


def test_an_exception_is_told_with_its_case_and_line():
    shown = check(as_exercise(lambda x, numbers, square: 1 / 0))
    for form in (str(shown), shown._repr_html_()):
        assert "In case vector: ZeroDivisionError: division by zero" in form
        assert "in running_mean" in form


def test_another_exercise_that_is_not_written_is_named():
    def calls_backward(x, numbers, square):
        raise NotImplementedError("computational_graphs.backward")

    assert "your code called backward, which is not written yet" in str(check(as_exercise(calls_backward)))


EVIL = "<script>alert('x')</script>&\"<img src=x onerror=y>"


def test_html_escapes_everything_that_came_from_the_answer():
    def evil_value(x, numbers, square):
        print(EVIL)
        return EVIL, {EVIL: EVIL}

    def evil_error(x, numbers, square):
        raise type(EVIL, (Exception,), {})(EVIL)

    for answer in (evil_value, evil_error):
        html = check(as_exercise(answer))._repr_html_()
        assert "<script" not in html
        assert "<img" not in html
        assert "&lt;script&gt;" in html


def test_a_note_about_progress_is_escaped_and_shown():
    verdict = check(toy.running_mean).verdict
    assert "&lt;b&gt;" in report.to_html(verdict, "<b>")
    assert report.to_text(verdict, "a note").endswith("a note")


@pytest.mark.parametrize(("removes", "remarked"), [(("toy",), True), (("torch.optim",), False), ((), False)])
def test_what_an_exercise_asks_to_do_without_is_remarked(monkeypatch, removes, remarked):
    monkeypatch.setattr(toy, "EXERCISE", dataclasses.replace(toy.EXERCISE, removes=removes))

    def running_mean(x, numbers, square):
        return toy.with_sum(x, numbers, square)

    shown = check(running_mean)
    remark = "This exercise is to be done without `toy`, but your answer uses `toy.with_sum`; grading gives no points"
    assert (remark in str(shown)) == remarked
    assert repr(shown) == "8"


def test_what_no_answer_finds_in_grading_is_remarked():
    def running_mean(x, numbers, square):
        with meter.metered():
            return toy.running_mean(x, numbers, square)

    remark = "to be done without `course.meter`, but your answer uses `meter.metered`; grading gives no points for it"
    assert remark in str(check(running_mean))


def test_a_result_of_a_coarser_dtype_is_asked_about(capfd):
    shown = check(as_exercise(lambda x, numbers, square: (square(x), float(torch.tensor(sum(numbers)).half()))))
    for form in (str(shown), shown._repr_html_()):
        assert "digits only: was it computed in float16?" in form


def test_what_a_first_use_imports_is_imported_before_the_clock_and_only_where_it_is_named():
    code = (
        f"import sys, linecache; sys.path[:0] = [{str(ROOT)!r}]\n"
        "import course, torch\nfrom course import exercises\nfrom course.performing import perform\n"
        "def cell(source):\n    linecache.cache['<c>'] = (0, None, source.splitlines(True), '<c>')\n"
        "    scope = {'__name__': '__main__'}\n    exec(compile(source, '<c>', 'exec'), scope)\n"
        "    perform.perform_all(exercises.load('running_mean'), scope['running_mean'], ())\n"
        "    print(*(name in sys.modules for name in ('torch._dynamo', 'torch._decomp.decompositions_for_jvp')))\n"
        "cell('import torch\\ndef running_mean(xs): return torch.autograd.grad(xs, xs)')\n"
        "cell('import torch\\ndef running_mean(xs): return torch.func.jvp(sum, xs, xs)')\n"
        "cell('from torch.optim import SGD\\nhelper = lambda xs: SGD(xs)\\ndef running_mean(xs): return helper(xs)')\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False False", "False True", "True True"]


@pytest.mark.parametrize(
    ("name", "imports"), [("accumulate_gradients", True), ("adam8_step", True), ("backward", False)]
)
def test_what_a_probe_imports_in_its_first_use_is_imported_before_the_clock(name, imports):
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n"
        "import course\nfrom course import exercises\nfrom course.performing import perform\n"
        f"perform.perform_all(exercises.load({name!r}), lambda *args: None, ())\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(imports)


def test_text_that_no_output_can_encode_is_shown_all_the_same(capfd):
    def odd(x, numbers, square):
        print("\ud800")
        raise ValueError("\udfff")

    shown = check(as_exercise(odd))
    assert str(shown).encode()
    assert shown._repr_html_().encode()


@pytest.mark.parametrize(
    "answer", [toy.running_mean, toy.cubes, toy.row_by_row, lambda *a: None, lambda *a: 1 / 0, lambda *a: (3, "x")]
)
def test_html_is_balanced(answer):
    html = check(as_exercise(answer))._repr_html_()
    for tag in ("div", "details", "summary", "table", "tr", "td", "code", "span", "svg", "ul", "li", "pre", "b"):
        assert html.count(f"<{tag}>") + html.count(f"<{tag} ") == html.count(f"</{tag}>")


# sentences


def sentence(answer, caller=check) -> str:
    with pytest.raises(CourseError) as caught:
        caller(answer)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("value", "came", "advice"),
    [
        (3, "a value of type int", "leave out the brackets behind its name"),
        (None, "nothing (None)", "leave out the brackets behind its name"),
        ([1], "a value of type list", "leave out the brackets behind its name"),
        (torch.ones(2), "a value of type Tensor", "leave out the brackets behind its name"),
        ("backward", "the text 'backward'", "leave out the quotation marks around its name"),
        (lambda x: x, "a lambda, which has no name of its own", "write it with def or class under its name"),
        (functools.partial(toy.cubes, 1), "a partial, which has no name", "write it with def or class under its name"),
        (torch.nn.ReLU(), "a ReLU, which has no name of its own", "write it with def or class under its name"),
    ],
)
def test_what_is_no_answer_is_a_sentence(value, came, advice):
    text = sentence(value)
    assert text.startswith("check needs the function or class itself, as in check(backward), got ")
    assert came in text
    assert text.endswith(f"; {advice}")


def test_a_sentence_about_a_hint_speaks_of_hints():
    assert sentence(3, hint).startswith("hint needs the function or class itself, as in hint(backward)")


def test_a_misspelt_name_says_the_nearest():
    text = sentence(called("runing_mean", lambda: 0))
    assert text == "`runing_mean` is no exercise of this course; did you mean `running_mean`?"
    assert sentence("runing_mean", hint) == text


@pytest.mark.parametrize("function", [len, torch.zeros, print, int])
def test_a_function_that_is_no_exercise_is_a_sentence(function):
    assert "is no exercise of this course" in sentence(function)


def test_kinds_of_errors():
    with pytest.raises(NotAnAnswer):
        check(3)
    with pytest.raises(UnknownExercise):
        check(len)


def test_an_answer_that_was_decorated_is_found_by_its_name():
    cached = functools.cache(as_exercise(lambda x, numbers, square: toy.running_mean(x, [1.0], square)))
    assert checking._exercise_of(cached) is toy.EXERCISE
    plain = torch.no_grad()(as_exercise(toy.running_mean))
    assert repr(check(plain)) == "8"


def test_a_name_that_was_defined_again_is_judged_as_it_is_now():
    scope: dict = {}
    exec("def running_mean(x, numbers, square): return square(x), 0.0", scope)
    before = check(scope["running_mean"])
    exec("def running_mean(x, numbers, square): return square(x), sum(numbers)", scope)
    assert (repr(before), repr(check(scope["running_mean"]))) == ("5", "8")


def test_a_name_that_now_holds_a_result_is_a_sentence():
    running_mean = toy.running_mean(torch.ones(1), [1.0], torch.square)
    assert "got a value of type tuple; leave out the brackets" in sentence(running_mean)


def test_an_exercise_that_the_sheet_lacks_is_a_sentence(monkeypatch):
    monkeypatch.setattr(checking, "_sheet", lambda unit: {})
    assert "must hold start_here.running_mean, but it holds nothing" in sentence(toy.running_mean)


def test_a_missing_sheet_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(sheet, "FOLDER", tmp_path)
    monkeypatch.setattr(checking, "_sheet", load_sheet.__wrapped__)
    with pytest.raises(SheetError, match="install the course again"):
        check(toy.running_mean)


# what is remembered


def test_the_best_points_and_the_number_of_checks_are_remembered(capfd):
    for answer in (toy.cubes, toy.running_mean, toy.cubes):
        check(as_exercise(answer))
    assert row() == Row(points=8, possible=8, checks=3)


def test_a_stub_is_not_remembered(capfd):
    check(as_exercise(toy.stub))
    assert row() == Row()
    assert not progress_file.path().exists()


def test_progress_that_cannot_be_saved_is_a_note_not_an_error(monkeypatch, capfd):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(progress_file.tempfile, "mkstemp", full)
    shown = check(toy.running_mean)
    assert repr(shown) == "8"
    assert "Progress was not saved" in str(shown)
    assert "No space left on device" in shown._repr_html_()


def test_whether_an_answer_is_solved_leaves_no_trace(capfd):
    assert solved(toy.running_mean)
    assert not solved(as_exercise(toy.row_by_row))
    assert capfd.readouterr() == ("", "")
    assert not progress_file.path().exists()


def test_a_check_does_not_change_the_sheet(capfd):
    assert repr(check(as_exercise(toy.in_place))) == "7"
    assert repr(check(toy.running_mean)) == "8"


def test_a_check_in_another_thread_works(capfd):
    shown: list[str] = []
    thread = threading.Thread(target=lambda: shown.append(repr(check(toy.running_mean))))
    thread.start()
    thread.join()
    assert shown == ["8"]


# hints


def test_hints_come_one_after_the_other_and_are_counted():
    for count in (1, 2, 3, 3):
        page = hint(toy.running_mean)
        assert row().hints == count
        assert page.text.count("Hint ") == count
        assert page._repr_html_().count("Hint ") == count
    assert repr(page) == page.text
    assert "squares = square(x), and a sum" in page.text


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_hint_can_be_asked_for_by_its_number(step):
    page = hint("running_mean", step=step)
    assert toy.EXERCISE.hints[step - 1] in page.text
    assert row().hints == (0 if step == 1 else step)  # lessons show the first one themselves


@pytest.mark.parametrize("step", ["2", 2.0, 0, 4, -1, True])
def test_a_hint_that_there_is_not_is_a_sentence(step):
    with pytest.raises(BadArgument, match=re.escape(f"step must be 1, 2 or 3, got {step!r}")):
        hint("running_mean", step=step)
    assert progress_file.load() == {}


def test_an_earlier_hint_does_not_count_down():
    hint(toy.running_mean, step=3)
    hint(toy.running_mean, step=1)
    assert row().hints == 3


def test_a_hint_is_found_by_id_too():
    assert hint("start_here.running_mean").text == hint("running_mean", step=1).text


def test_hints_and_checks_share_a_row(capfd):
    hint(toy.running_mean)
    check(toy.running_mean)
    assert row() == Row(points=8, possible=8, checks=1, hints=1)


# progress


def test_progress_shows_every_exercise_before_anything_was_tried():
    page = progress()
    assert page.text.count("not attempted") == len(entries())
    for entry in entries():
        assert entry.name in page.text
        assert f"<code>{entry.name}" in page._repr_html_()


def test_progress_counts_points_checks_and_hints(capfd):
    hint(toy.running_mean)
    check(as_exercise(toy.row_by_row))
    text, html = progress().text, progress()._repr_html_()
    assert "6 of 8 points" in text
    assert "1 check, 1 hint" in text
    assert "6 / 8" in html


def test_the_bar_of_a_unit_is_as_full_as_its_points(capfd):
    check(toy.running_mean)
    first = progress().text.splitlines()[0]
    assert "[####################] 8 of 8 points" in first


def test_points_of_a_version_that_gave_more_do_not_overflow_the_bar():
    progress_file.update("start_here.running_mean", lambda row: Row(points=9, possible=9, checks=1))
    first = progress().text.splitlines()[0]
    assert "[####################] 8 of 8 points" in first


@pytest.mark.parametrize("damaged", [True, False])
def test_progress_that_cannot_be_read_is_told(damaged):
    progress_file.update("start_here.running_mean", lambda row: Row(points=1, possible=8, checks=1))
    if damaged:
        progress_file.path().write_text("{")
    page, told = progress(), f"{progress_file.path()} could not be read"
    assert (told in page.text, told in page._repr_html_()) == (damaged, damaged)


def test_a_bonus_does_not_count_as_missing():
    unit = progress().text.split("01 Computational graphs")[1]
    named = sum(exercises.load(entry.id).points for entry in entries() if entry.unit == "computational_graphs")
    bonus = exercises.load("hvp").points
    assert f"0 of {named - bonus} points" in unit
    assert "hvp (bonus)" in unit


# the package


def test_a_notebook_needs_three_names():
    assert (course.check, course.hint, course.progress) == (check, hint, progress)


def test_importing_the_course_loads_no_widget_no_plot_and_no_nbgrader():
    heavy = {"matplotlib", "ipywidgets", "nbgrader", "IPython", "jupytext", "nbclient", "rich", "typer"}
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import course; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_cost_is_drawn_as_two_bars():
    found = check(as_exercise(toy.row_by_row))._repr_html_()
    assert 'aria-label="yours 3 and ours 1"' in found
