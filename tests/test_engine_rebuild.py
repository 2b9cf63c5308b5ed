"""What is read of a submitted file, and how the graded notebook is rebuilt from it."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import socket
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from living import peak
from small_class import NAMES, RIGHT, UNIT, find, notebook, release, stub, without

from autograder.engine.cells import Cell, Release, code_cells
from autograder.engine.grade import Submission, sanitize
from autograder.engine.read import MAX_BYTES, SMALL, Unreadable, bytes_of, read, read_file
from autograder.engine.rebuild import CLEARLY, PERHAPS, defines, rebuild
from autograder.engine.slim import CELL, LEFT_OUT, MAX_PARTS, TOTAL
from autograder.nbgrader_bridge.submitted import digest_of

RELEASE = release()


def submitted(book) -> list[Cell]:
    """A notebook as the engine reads it from a file."""
    return read(nbformat.writes(book).encode())


def rebuilt(book):
    """The rebuilt notebook and its repairs."""
    made = rebuild(RELEASE.cells, submitted(book))
    return RELEASE.notebook_of(made.cells), made.repairs


def counts(book) -> dict[str, str]:
    """By name: the source of the cell that is loaded as its answer."""
    cells = code_cells(rebuild(RELEASE.cells, submitted(book)).cells)
    return {name: cell.source for cell in cells if cell.source for name in cell.answers.split()}


# --- reading ---


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not valid JSON"),
        (b'{"cells": [', "not valid JSON"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[1, 2]", "no notebook"),
        (b'{"nbformat": 4}', "no list of cells"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"nbformat": 99, "cells": []}', "format 99, newer than 4; save it in format 4"),
        (b'{"nbformat": "9", "cells": []}', "format of type str and cannot be upgraded"),
        (b'{"nbformat": "\\u001bc\\ud800", "cells": []}', "format of type str and cannot be upgraded"),
        (b'{"nbformat": 2.5, "cells": []}', "format of type float and cannot be upgraded"),
        (b'{"nbformat": 2}', "cannot be upgraded"),
        (b'{"cells": [' + b"{}," * 5_000 + b"{}]}", "more than 5000 cells"),
        (b" " * (MAX_BYTES + 1), "larger than"),
        (b'{"cells": [' + b"{}," * MAX_PARTS + b"{}]}", "more than 500,000 lists and objects"),
        (b'{"nbformat": 3, "worksheets": [{"cells": [' + b"{}," * MAX_PARTS + b"{}]}]}", "more than 500,000 lists"),
        (b'{"a": "\\\\", "b": [' + b"{}," * MAX_PARTS + b'{}], "c": "\\""}', "more than 500,000 lists"),
    ],
)
def test_a_file_that_is_no_notebook_is_refused_with_the_reason(data, reason):
    with pytest.raises(Unreadable, match=reason):
        read(data)


@pytest.mark.parametrize("printed", ["[[0], [1]]", '{"a": "[\\\\"}', "\x1b[31mred\x1b[0m", '[\\"[\\\\\\"['])
def test_what_was_printed_counts_for_no_lists_and_objects(printed):
    output = {"output_type": "stream", "name": "stdout", "text": [printed * (MAX_PARTS // 2), '"[', "[\\"]}
    book = {"cells": [{"cell_type": "code", "source": "x", "outputs": [output]}]}
    assert [cell.source for cell in read(json.dumps(book).encode())] == ["x"]


def test_a_notebook_of_format_3_is_upgraded():
    old = nbformat.v3.new_notebook(worksheets=[nbformat.v3.new_worksheet(cells=[nbformat.v3.new_code_cell("x = 1")])])
    assert [(cell.kind, cell.source) for cell in read(json.dumps(old).encode())] == [("code", "x = 1")]


def test_what_a_notebook_of_format_3_has_shown_is_upgraded_by_nobody(monkeypatch):
    monkeypatch.setattr(nbformat, "convert", None)  # which validates each output, at 30 KiB and half a millisecond
    cell = {"cell_type": "code", "input": "x = 1", "outputs": [{}] * 100_000, "language": "python", "metadata": {}}
    book = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": [cell], "metadata": {}}]}
    assert [cell.source for cell in read(json.dumps(book).encode())] == ["x = 1"]


@pytest.mark.parametrize("heading", ["x\ny", ["x\n", "y"]])
def test_texts_of_format_3_are_lists_of_lines_in_a_file(heading):
    cells = [
        {"cell_type": "heading", "level": 1, "source": heading, "metadata": {}},
        {"cell_type": "code", "input": ["x = 1\n", "y = 2"], "outputs": [], "language": "python", "metadata": {}},
    ]
    book = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells, "metadata": {}}]}
    assert [cell.source for cell in read(json.dumps(book).encode())] == ["# x y", "x = 1\ny = 2"]


def test_a_heading_of_format_3_becomes_few_characters_whatever_its_level():
    heading = {"cell_type": "heading", "level": 10**9, "source": "x", "metadata": {}}
    book = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": [heading], "metadata": {}}]}
    assert [cell.source for cell in read(json.dumps(book).encode())] == ["#" * 10 + " x"]


def test_a_sentence_stands_for_a_cell_that_is_too_long():
    code, text = ({"cell_type": kind, "source": "x" * (CELL + 1)} for kind in ("code", "markdown"))
    long, said, short = read(json.dumps({"cells": [code, text, {"cell_type": "code", "source": "y"}]}).encode())
    assert long.source.startswith("# left out: a cell may hold 200,000 bytes of HTML")
    assert said.source.endswith(f"this one held {CELL + 1:,}")
    assert short.source == "y"


@pytest.mark.parametrize("letters", ["x" * CELL, "&" * (CELL // 5), "\u00e9" * (CELL // 2)], ids=["x", "&", "é"])
def test_all_cells_together_hold_no_more_than_one_page_can_show(letters):
    cells = [{"cell_type": "code", "source": letters}] * 20
    found = read(json.dumps({"cells": [*cells, {"cell_type": "code", "source": "y"}]}).encode())
    kept = [cell for cell in found if not cell.source.startswith("# left out")]
    assert (len(kept), kept[-1].source) == (TOTAL // CELL + 1, "y")


def test_texts_have_the_room_that_code_leaves():
    cells = [{"cell_type": "markdown", "source": "x" * CELL}] * 20
    answer = {"cell_type": "code", "source": "y" * CELL}
    found = read(json.dumps({"cells": [*cells, answer]}).encode())
    assert found[-1].source == answer["source"]
    assert sum(not cell.source.startswith("left out") for cell in found) == TOTAL // CELL


def test_the_margin_of_a_text_that_is_shown_as_it_was_typed_counts():
    code, text = ({"cell_type": kind, "source": "x" + "\n" * (CELL // 4) + "x"} for kind in ("code", "markdown"))
    kept, said = read(json.dumps({"cells": [code, text]}).encode())
    assert (kept.source, said.source[:9]) == (code["source"], "left out:")


def test_odd_cells_are_read_as_far_as_they_go():
    odd = [
        None,
        3,
        {},
        {"cell_type": "code", "source": ["a", 1, "b"], "metadata": {"nbgrader": "x", "hpml": {"role": 3}}},
    ]
    assert read(json.dumps({"cells": odd}).encode()) == [Cell(kind="raw", source=""), Cell(kind="code", source="ab")]


def test_half_a_surrogate_pair_is_replaced_because_no_file_can_hold_it():
    (cell,) = read(b'{"cells": [{"cell_type": "code", "source": "x = \\"\\ud800\\""}]}')
    assert cell.source == 'x = "?"'


def test_a_large_file_is_read_as_a_small_one():
    book = notebook(RIGHT)
    small = read(nbformat.writes(book).encode())
    book.metadata["widgets"] = {"state": "x" * SMALL}
    assert read(nbformat.writes(book).encode()) == small


COSTLY = (  # beside a few MiB of text, whose parts take a hundred times as much memory
    ("format 3, objects", b'{"nbformat": 3, "worksheets": [], "metadata": {"a": [' + b'{"a":1},' * 499_000 + b"{}]}}"),
    ("format 3, lines", b'{"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["a"%s]}]}]}'
     % (b',""' * 2_000_000)),
    ("numbers", b'{"cells": [], "metadata": {"a": [' + b"1.5," * 4_000_000 + b"1]}}"),
)  # fmt: skip


@pytest.mark.sandbox  # the kernel's account of memory
@pytest.mark.parametrize("data", [each for _, each in COSTLY], ids=[name for name, _ in COSTLY])
def test_what_a_large_file_costs_is_not_paid_by_who_grades(data):
    before = peak()
    with contextlib.suppress(Unreadable):
        read(data)
    assert peak(anew=False) - before < 3 * len(data)


def test_a_file_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr("autograder.engine.read.PATIENCE", 0.01)
    with pytest.raises(Unreadable, match="at most 1 GiB of memory and 20 s, but this one takes more"):
        read(b" " * (SMALL + 1))


KINDS = {
    "folder": os.mkdir,
    "link": lambda path: os.symlink(__file__, path),
    "pipe": os.mkfifo,
    "socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
}


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_read_whatever_they_were_when_they_were_looked_at(tmp_path, monkeypatch, kind):
    path = tmp_path / "lesson.ipynb"
    KINDS[kind](path)
    with monkeypatch.context() as patch:
        for look in ("stat", "lstat"):
            patch.setattr(Path, look, lambda *given, **named: os.stat(__file__))
        with pytest.raises(Unreadable, match="regular file"):
            read_file(path)
        assert digest_of(path).startswith("mode ")


def test_no_more_is_read_of_a_file_than_was_asked_for(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert (bytes_of(tmp_path / "a", 3), bytes_of(tmp_path / "a", 9)) == (b"123", b"12345")


# --- rebuilding ---


def test_a_repair_that_was_made_often_is_told_once(tmp_path):
    book = notebook(RIGHT)
    check = find(book, "check-hvp")
    book.cells += [{**check, "source": f"# {number}\n{check.source}"} for number in range(3_000)]
    path = tmp_path / "lesson.ipynb"
    path.write_text(json.dumps(book))
    first, *others = sanitize(Submission(student="ann", path=path), RELEASE).repairs
    assert (first[:46], first[-13:]) == ("The check cell of `hvp` held more than the che", "(3,000 times)")
    assert len(others) < 3


def test_a_submission_as_it_should_be_needs_no_repair():
    made, repairs = rebuilt(notebook(RIGHT))
    assert made == notebook(RIGHT)
    assert repairs == ()


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_another_system_are_no_change(end):
    book = notebook(RIGHT)
    for cell in book.cells:
        cell.source = cell.source.replace("\n", end)
    assert rebuilt(book) == (notebook(RIGHT), ())


def test_outputs_tags_and_metadata_of_the_submission_are_dropped():
    book = notebook(RIGHT)
    for cell in book.cells:
        cell.metadata["tags"] = ["skip-execution"]
        cell.metadata["nbgrader"] = {**cell.metadata.get("nbgrader", {}), "points": 1000}
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("stream", text="100 points")]
    book.metadata["widgets"] = {"state": "large"}
    assert rebuilt(book) == (notebook(RIGHT), ())


def test_a_deleted_check_cell_is_put_back():
    made, repairs = rebuilt(without(notebook(RIGHT), "check-hinge_backward"))
    assert made == notebook(RIGHT)
    assert repairs == ("The check cell of `hinge_backward` was missing; it was put back.",)


def test_a_deleted_answer_cell_is_put_back_unanswered():
    made, repairs = rebuilt(without(notebook(RIGHT), "answer-hinge_backward"))
    assert find(made, "answer-hinge_backward").source == stub("hinge_backward")
    assert repairs == ("The answer cell of `hinge_backward` was missing; it was put back as released.",)


def test_a_changed_check_cell_is_the_releases_again():
    book = notebook(RIGHT)
    find(book, "check-hvp").source = "100"
    made, repairs = rebuilt(book)
    assert [cell.source for cell in made.cells if cell.id.startswith("free")] == ["100"]
    made.cells = [cell for cell in made.cells if not cell.id.startswith("free")]
    assert made == notebook(RIGHT)
    assert repairs == (CHANGED,)


CHANGED = (
    "The check cell of `hvp` had been changed; the release's was put back, and the other was read as a cell of its own."
)
BESIDE = "The check cell of `hvp` held more than the check; that was read as a cell of its own."


def test_what_stands_beside_a_check_is_a_cell_of_the_students():
    book = notebook({"hvp": stub("hvp")})
    find(book, "check-hvp").source = f"{RIGHT['hvp']}\n\ncheck(hvp)\nafter = 1"
    assert counts(book)["hvp"] == RIGHT["hvp"].strip("\n")
    made, repairs = rebuilt(book)
    assert repairs == (BESIDE, FOUND.format("hvp"))
    sources = [cell.source for cell in made.cells]
    assert sources[sources.index("check(hvp)") - 1 :][:3] == [RIGHT["hvp"].strip("\n"), "check(hvp)", "after = 1"]


@pytest.mark.parametrize("check", ["check(hvp)  # works", "report = check(hvp)", "check(hvp);", "print(check(hvp))"])
def test_an_answer_in_a_check_cell_counts_however_its_check_is_called(check):
    book = notebook({"hvp": stub("hvp")})
    find(book, "check-hvp").source = f"{RIGHT['hvp']}\n\n{check}"
    assert counts(book)["hvp"] == f"{RIGHT['hvp']}\n\n{check}".strip("\n")
    assert rebuilt(book)[1] == (CHANGED, FOUND.format("hvp"))


COPIED = "The answer cell of `quadratic_grads` stood in the notebook 3 times; the last one {} was graded."
FIRST = "half = 0.5\n\n\ndef quadratic_grads(*args): return half"
NOTED = f"# mine\n{stub('quadratic_grads')}"
COPIES = {  # what the answer cell holds, so many cells below the copies, what counts, what becomes free, what is told
    "above the check": (FIRST, 1, RIGHT["quadratic_grads"], [FIRST], "written"),
    "below the check": (FIRST, 2, FIRST, [RIGHT["quadratic_grads"]], "above its check"),
    "below the check of a stub": (stub("quadratic_grads"), 2, RIGHT["quadratic_grads"], [], "written"),
    "above a stub with a note": (NOTED, 0, RIGHT["quadratic_grads"], [NOTED], "written"),
}


@pytest.mark.parametrize(("own", "below", "counting", "free", "told"), COPIES.values(), ids=COPIES)
def test_of_copied_answer_cells_the_last_written_above_the_check_counts(own, below, counting, free, told):
    book = notebook({"quadratic_grads": own})
    again, untouched = (copy.deepcopy(find(notebook(), "answer-quadratic_grads")) for _ in range(2))
    again.update(id="copy", source=RIGHT["quadratic_grads"])
    untouched.id = "copy-2"
    at = [cell.id for cell in book.cells].index("answer-quadratic_grads") + below
    book.cells[at:at] = [again, untouched]
    assert counts(book)["quadratic_grads"] == counting
    made, repairs = rebuilt(book)
    assert [cell.source for cell in made.cells if cell.id.startswith("free")] == free
    assert repairs[0] == COPIED.format(told)


def test_a_copy_below_the_check_is_not_what_a_check_saw_in_a_free_cell():
    book = notebook()
    again = copy.deepcopy(find(book, "answer-hvp"))
    again.update(id="copy", source=WRONG)
    at = [cell.id for cell in book.cells].index("check-hvp")
    book.cells[at : at + 1] = [nbformat.v4.new_code_cell(RIGHT["hvp"]), book.cells[at], again]
    assert counts(book)["hvp"] == RIGHT["hvp"]
    copied = "The answer cell of `hvp` stood in the notebook 2 times; the last one above its check was graded."
    assert rebuilt(book)[1] == (copied, FOUND.format("hvp"))


def test_an_answer_cell_that_was_split_keeps_both_halves():
    book = notebook({"quadratic_grads": "half = 0.5"})
    second = copy.deepcopy(find(book, "answer-quadratic_grads"))
    second.update(id="second", source=RIGHT["quadratic_grads"])
    book.cells.insert(3, second)
    made, _ = rebuilt(book)
    assert find(made, "answer-quadratic_grads").source == RIGHT["quadratic_grads"]
    assert [cell.source for cell in made.cells if cell.id.startswith("free")] == ["half = 0.5"]


def test_copies_of_a_check_cell_are_dropped():
    book = notebook(RIGHT)
    book.cells.append({**find(book, "check-hvp"), "id": "copy"})
    made, repairs = rebuilt(nbformat.from_dict(book))
    assert made == notebook(RIGHT)
    assert repairs == ("The check cell of `hvp` stood in the notebook 2 times; its copies were dropped.",)


def test_an_answer_that_became_text_is_read_as_code():
    book = notebook(RIGHT)
    cell = find(book, "answer-hvp")
    cell.update(cell_type="markdown")
    made, repairs = rebuilt(book)
    assert made == notebook(RIGHT)
    assert repairs == ("The answer cell of `hvp` had become a text cell; it was read as code.",)


def test_an_answer_too_long_to_be_read_is_told_among_the_repairs():
    book = notebook({**RIGHT, "hvp": RIGHT["hvp"] + "#" * CELL})
    *_, said = rebuilt(nbformat.from_dict(book))[1]
    assert said.startswith("The answer cell of `hvp` was left out: a cell may hold 200,000 bytes of HTML")


@pytest.mark.parametrize(
    "end", ["", " <img src=x>", "; this one held 200,001\n<b>1</b>", "; this one held 200,001 <b>"]
)
def test_a_student_who_writes_that_sentence_is_not_quoted_among_the_repairs(end):
    book = notebook({**RIGHT, "hvp": f"# {LEFT_OUT}{end}"})
    assert rebuilt(book)[1] == ()


FOUND = "`{}` was not written in its answer cell; it was found in another cell."
AGAIN = "`{}` was defined again between its answer cell and its check; that one was graded."
BELOW = "`{}` was defined again below its check; the one in its answer cell was graded."


def test_an_answer_written_in_a_cell_of_its_own_is_found_by_its_name_and_stays_there():
    book = notebook()
    book.cells.append(nbformat.v4.new_code_cell(RIGHT["hvp"]))
    made, repairs = rebuilt(book)
    assert [cell.source for cell in made.cells] == [cell.source for cell in book.cells]
    assert (counts(book)["hvp"], repairs) == (RIGHT["hvp"], (FOUND.format("hvp"),))


@pytest.mark.parametrize("kept", [True, False])
def test_several_answers_in_one_cell_are_all_found(kept):
    book, both = notebook(), RIGHT["hvp"] + RIGHT["hinge_backward"]
    book.cells.insert(1, nbformat.v4.new_code_cell(both))
    for name in () if kept else ("hvp", "hinge_backward"):
        book = without(book, f"answer-{name}")
    assert counts(book) == {"quadratic_grads": stub("quadratic_grads"), "hinge_backward": both, "hvp": both}
    assert rebuilt(book)[1] == (FOUND.format("hinge_backward"), FOUND.format("hvp"))


def test_an_answer_written_in_another_answer_cell_is_found_there():
    book = notebook({"quadratic_grads": RIGHT["quadratic_grads"] + "\n\n" + RIGHT["hvp"]})
    assert counts(book)["hvp"] == counts(book)["quadratic_grads"] == find(book, "answer-quadratic_grads").source
    assert rebuilt(book)[1] == (FOUND.format("hvp"),)


WRONG = RIGHT["hvp"].replace("product", "grad")
ELSEWHERE = {  # what stands in the answer cell and, so many cells below, in a free one; which counts; what is told
    "a stub with a comment": ("# see below\n" + stub("hvp"), 1, RIGHT["hvp"], FOUND),
    "a stub, and helpers": (stub("hvp") + "\n\ndef half(x):\n    return x / 2", 2, RIGHT["hvp"], FOUND),
    "a wrong one": (WRONG, 1, RIGHT["hvp"], AGAIN),
    "below the check": (RIGHT["hvp"], 2, WRONG, BELOW),
    "above": (RIGHT["hvp"], 0, WRONG, None),
    "in a cell that is skipped": (RIGHT["hvp"], 1, f"%%script false --no-raise-error\n{WRONG}", None),
    "in a cell that becomes a file": (RIGHT["hvp"], 2, f"\n%%writefile hvp.py\n{WRONG}", None),
    "in a cell that is timed": (WRONG, 1, f"%%time\n%%capture\n{RIGHT['hvp']}", AGAIN),
    "in a magic that nobody knows": (stub("hvp"), 1, f"%%mine\n{RIGHT['hvp']}", FOUND),
    "a lambda": ("hvp = lambda f, x, v: v", 0, WRONG, None),
    "under a condition": ("if True:\n    def hvp(f, x, v): return v", 0, WRONG, None),
    "what is raised at the end, too": (f"{RIGHT['hvp']}    {stub('hvp').splitlines()[-1].strip()}", 2, WRONG, BELOW),
    "another name for it": (stub("hvp"), 1, "def product(f, x, v): return v\nmine = hvp = product", FOUND),
    "with a type": (stub("hvp"), 1, "from typing import Any\nhvp: Any = lambda f, x, v: v", FOUND),
    "after a prompt": (stub("hvp"), 1, ">>> def hvp(f, x, v): return v", FOUND),
    "indented": (stub("hvp"), 1, "    def hvp(f, x, v):\n        return v", FOUND),
    "in an expression": (stub("hvp"), 1, "print(hvp := lambda f, x, v: v)", FOUND),
    "a keyword": (stub("hvp"), 1, "print(dict(hvp=3), helper.hvp == 3)", None),
    "another name, of a written one": (RIGHT["hvp"], 1, "hvp = print", None),
    "completed": (stub("hvp"), 1, "hvp.run = print", FOUND),
    "an item": (stub("hvp"), 1, "hvp[0] = print", FOUND),
    "with another": (stub("hvp"), 1, "other, hvp = make()", FOUND),
    "before another": (stub("hvp"), 1, "hvp, other = make()", FOUND),
    "beside its raise": (
        f'{RIGHT["hvp"]}\n    # raise NotImplementedError("computational_graphs.hvp")',
        2,
        WRONG,
        BELOW,
    ),
    "with its raise as a comment alone": (
        stub("hvp").replace("raise NotImplementedError", "# raise NotImplementedError") + "\n    pass",
        2,
        RIGHT["hvp"],
        FOUND,
    ),
    "compared below": (RIGHT["hvp"], 2, "hvp.calls <= 3", None),
    "in place of a cell that is no longer run": (f"%%script false\n{WRONG}", 0, RIGHT["hvp"], FOUND),
    "no more than a use": ("assert hvp == 3", 0, RIGHT["hvp"], FOUND),
}


@pytest.mark.parametrize(("own", "below", "free", "told"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_of_two_definitions_that_counts_which_the_check_sees(own, below, free, told):
    book = notebook({"hvp": own})
    at = [cell.id for cell in book.cells].index("answer-hvp") + below
    book.cells.insert(at, nbformat.v4.new_code_cell(free))
    assert counts(book)["hvp"] == (free if told in (FOUND, AGAIN) else own)
    assert rebuilt(book)[1] == ((told.format("hvp"),) if told else ())


@pytest.mark.parametrize("above", ["hvp = lambda f, x, v: v", "if True:\n    def hvp(f, x, v): return v"])
def test_beside_a_stub_that_counts_which_the_check_sees(above):
    book = notebook()
    at = [cell.id for cell in book.cells].index("check-hvp")
    book.cells[at : at + 1] = [nbformat.v4.new_code_cell(above), book.cells[at], nbformat.v4.new_code_cell(WRONG)]
    assert counts(book)["hvp"] == above
    assert rebuilt(book)[1] == (FOUND.format("hvp"),)


def test_to_look_for_a_definition_takes_no_time_that_grows_with_the_square_of_a_line():
    for how in (PERHAPS, CLEARLY):
        assert not defines("hvp:" * 200_000, "hvp", how)  # it would take a quarter of an hour


def test_a_later_check_sees_the_later_definition():
    book = notebook({"hvp": WRONG})
    book.cells.append(nbformat.v4.new_code_cell(RIGHT["hvp"]))
    book.cells.append(nbformat.from_dict({**find(book, "check-hvp"), "id": "copy"}))
    assert counts(book)["hvp"] == RIGHT["hvp"]


def test_a_copy_of_a_check_cell_with_something_else_in_it_is_a_cell_of_the_students():
    book = notebook(RIGHT)
    book.cells.insert(2, nbformat.from_dict({**find(book, "check-hvp"), "id": "copy", "source": "half = 0.5"}))
    made, repairs = rebuilt(book)
    assert [cell.source for cell in made.cells if cell.id.startswith("free")] == ["half = 0.5"]
    assert repairs == ()


@pytest.mark.parametrize("new_cell", [nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell])
def test_what_the_lesson_itself_defines_is_nobodys_answer(new_cell):
    lesson = notebook()
    lesson.cells.append(new_cell("def hvp(f, x, v):\n    return v", id="shown"))
    release = Release(name="lesson", notebook=lesson)
    made = rebuild(release.cells, submitted(lesson))
    assert (release.notebook_of(made.cells), made.repairs) == (lesson, ())


def test_answers_are_found_by_nbgraders_name_where_ours_is_gone():
    book = notebook(RIGHT)
    for cell in book.cells:
        cell.metadata.pop("hpml", None)
        cell.id = f"other-{cell.id}"
    assert rebuilt(book) == (notebook(RIGHT), ())


def test_free_cells_stay_where_they_were():
    book = notebook(RIGHT)
    book.cells.insert(0, nbformat.v4.new_code_cell("first = 1", metadata={"tags": ["x"], "hpml": {"role": "check"}}))
    book.cells.insert(5, nbformat.v4.new_code_cell("fifth = 5"))
    made, repairs = rebuilt(book)
    assert [
        (number, cell.source) for number, cell in enumerate(made.cells) if cell.metadata.get("hpml") == {"role": "free"}
    ] == [
        (0, "first = 1"),
        (5, "fifth = 5"),
    ]
    assert repairs == ()


def test_cells_that_were_the_students_to_change_keep_the_change():
    book = notebook()
    find(book, "imports").source += "\nimport random"
    made, repairs = rebuilt(book)
    assert find(made, "imports").source.endswith("import random")
    assert repairs == ()


def test_what_was_made_of_a_cell_that_lost_its_id_comes_after_the_releases_own():
    book = notebook(RIGHT)
    find(book, "imports").update(id="other", source="import torch\n\nhalf = 0.5")
    made, repairs = rebuilt(without(book, "title"))
    assert [cell.id for cell in made.cells][:3] == ["title", "imports", "free-0"]
    assert repairs[-1] == "2 other cell(s) of the release were missing; they were put back."


def test_what_completes_an_answer_stays_above_a_check_that_is_put_back():
    book = without(notebook(RIGHT), "check-hvp")
    at = [cell.id for cell in book.cells].index("answer-hvp") + 1
    book.cells.insert(at, nbformat.v4.new_code_cell("hvp.n = 1"))
    sources = [cell.source for cell in rebuilt(book)[0].cells]
    assert sources.index("hvp.n = 1") == sources.index("check(hvp)") - 1


def test_free_text_is_shown_as_typed_and_never_rendered():
    book = notebook()
    book.cells.append(nbformat.v4.new_raw_cell("<script>alert(1)</script>\r\n\n[x](javascript:alert(1))"))
    made, _ = rebuilt(book)
    assert made.cells[-1].cell_type == "markdown"
    assert all(line.startswith("    ") for line in made.cells[-1].source.split("\n"))


TEXT = st.text(max_size=8) | st.sampled_from([*NAMES, *RIGHT.values(), *map(stub, NAMES), "check(hvp)"])
CELLS = st.builds(
    Cell,
    kind=st.sampled_from(["code", "markdown", "raw"]),
    source=TEXT,
    id=st.sampled_from(["", "title", "demo", "answer-hvp"]),
    exercise=st.sampled_from(["", "hvp", f"{UNIT}.hvp", f"{UNIT}.quadratic_grads"]),
    role=st.sampled_from(["", "answer", "check", "free"]),
    grade_id=st.sampled_from(["", "hvp", "check_hvp", "check_quadratic_grads"]),
)


@given(st.lists(CELLS, max_size=12))
def test_whatever_is_submitted_every_released_cell_is_there_once_and_in_order(cells):
    made = RELEASE.notebook_of(rebuild(RELEASE.cells, cells).cells)
    assert [cell.id for cell in made.cells if not cell.id.startswith("free")] == [c.id for c in RELEASE.notebook.cells]
    fixed = {cell.id for cell in RELEASE.cells if cell.role == "check" or cell.id == "title"}
    assert [cell for cell in made.cells if cell.id in fixed] == [c for c in RELEASE.notebook.cells if c.id in fixed]
    nbformat.validate(made)
