"""Running a lesson's worked solutions: each must score full marks, and its stub nothing.

    import lines of the cells before, and earlier answers --> namespace --exec--> answer --judge--> full marks
                                                                        --exec--> stub   --judge--> not attempted

The author's code is trusted: it runs in this process. What an answer needs beyond imports and earlier answers it
must hold itself, because grading gives it nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from autograder import bank
from autograder.release import sheets
from autograder.release.authored import Cell, Lesson, parse
from autograder.release.stub import stub
from course.judging.judge import judge
from course.judging.sheet import Record
from course.judging.verdict import Verdict
from course.performing.exercise import Answer, Exercise
from course.performing.perform import perform_all

Namespace = dict[str, Any]


def records(lesson: Lesson, committed: Mapping[str, Record]) -> dict[str, Record]:
    """What the unit's answer sheet holds, by exercise id in the syllabus's order: what is `committed` where it is
    equivalent.

    Raises AuthorError where a solution does not score full marks, or a stub scores or seems attempted.
    """
    made: dict[str, Record] = {}
    for cell, before, namespace in _answers(lesson):
        known = bank.load(cell.entry)
        record = sheets.renewed(known, committed.get(known.exercise.id))
        _demand_untouched_scores_nothing(cell, known.exercise, record, before)
        _demand_full_marks(cell, known.exercise, record, namespace)
        made[known.exercise.id] = record
    return {entry.id: made[entry.id] for entry in lesson.unit.entries}


def solutions(lesson: Lesson) -> dict[str, Answer]:
    """The worked solutions by exercise id. Raises AuthorError where a cell does not run."""
    return {f"{lesson.unit.slug}.{cell.entry}": namespace[cell.entry] for cell, _, namespace in _answers(lesson)}


def _answers(lesson: Lesson) -> Iterator[tuple[Cell, Namespace, Namespace]]:
    """Each answer cell with what is defined before it and after it."""
    namespace: Namespace = {"__name__": "__main__"}
    for cell in lesson.cells:
        if cell.role == "code":
            _run_imports(cell, namespace)
        elif cell.role == "answer":
            before = dict(namespace)
            _run(parse(cell, magics=False), cell, namespace)
            yield cell, before, namespace


def _run_imports(cell: Cell, namespace: Namespace) -> None:
    tree = parse(cell)
    tree.body = [each for each in tree.body if isinstance(each, (ast.Import, ast.ImportFrom))]
    _run(tree, cell, namespace)


def _run(tree: ast.Module, cell: Cell, namespace: Namespace) -> None:
    """Executes under the lesson's own file name and lines, so that a traceback leads the author there."""
    ast.increment_lineno(tree, cell.line - 1)
    try:
        exec(compile(tree, cell.file, "exec", dont_inherit=True), namespace)
    except Exception as error:
        raise cell.mistake(f"the cell must run, but raised {type(error).__name__}: {error}") from error


def _demand_untouched_scores_nothing(cell: Cell, exercise: Exercise, record: Record, before: Namespace) -> None:
    _run(ast.parse(stub(cell, exercise.id)), cell, before)
    verdict = _verdict(exercise, record, before[cell.entry])
    if verdict.points or verdict.attempted:
        raise cell.mistake(
            f"the stub of `{cell.entry}` must score 0 and count as not attempted, but {_scored(verdict)}; "
            "what stands outside the bodies does some of the work"
        )


def _demand_full_marks(cell: Cell, exercise: Exercise, record: Record, namespace: Namespace) -> None:
    verdict = _verdict(exercise, record, namespace[cell.entry])
    if verdict.points < verdict.possible:
        raise cell.mistake(f"the solution of `{cell.entry}` must score full marks, but {_scored(verdict)}")


def _verdict(exercise: Exercise, record: Record, answer: Any) -> Verdict:
    seen = perform_all(exercise, answer, record.cases, clock="cpu")
    return judge(exercise, record.cases, seen, record.references, record.suspects)


def _scored(verdict: Verdict) -> str:
    """`scored 4 of 10 (failed: shared_nodes_accumulate; overwrites)`: points, then what is known of the reason."""
    reasons = [f"failed: {', '.join(each.property for each in verdict.findings if not each.held)}"]
    if verdict.diagnosis:
        reasons.append(f"diagnosed as {verdict.diagnosis.name}")
    if verdict.failure:
        reasons.append(f"{verdict.failure.type}: {verdict.failure.message}")
    held = all(each.held for each in verdict.findings)
    return f"scored {verdict.points} of {verdict.possible}" + ("" if held else f" ({'; '.join(reasons)})")
