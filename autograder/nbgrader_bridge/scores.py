"""grades.csv as nbgrader writes it, but for names that CSV must quote: nbgrader takes "Doe, Jane" for two columns."""

from __future__ import annotations

import csv
import itertools
from typing import Any

from nbgrader.api import Assignment, Gradebook, MissingEntry, Student
from nbgrader.plugins import CsvExportPlugin

HEADINGS = (
    *("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"),
    *("raw_score", "late_submission_penalty", "score", "max_score"),
)


class QuotingExport(CsvExportPlugin):
    """nbgrader's, with its settings: `to`, `student` and `assignment`."""

    def export(self, gradebook: Gradebook) -> None:
        """A row for each assignment and student."""
        with open(self.to or "grades.csv", "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(HEADINGS)
            for assignment, student in itertools.product(gradebook.assignments, gradebook.students):
                chosen = not self.assignment or assignment.name in self.assignment
                if chosen and (not self.student or student.id in self.student):
                    table.writerow(_row(gradebook, assignment, student))


def _row(gradebook: Gradebook, assignment: Assignment, student: Student) -> tuple[Any, ...]:
    """What stands under the headings; who has not handed in has 0 points."""
    time, score, penalty = "", 0.0, 0.0
    try:
        submission = gradebook.find_submission(assignment.name, student.id)
        time, score, penalty = submission.timestamp, submission.score, submission.late_submission_penalty or 0.0
    except MissingEntry:
        pass
    person = (student.id, student.last_name, student.first_name, student.email)
    return (
        assignment.name,
        assignment.duedate,
        time,
        *person,
        score,
        penalty,
        max(0.0, score - penalty),
        assignment.max_score,
    )
