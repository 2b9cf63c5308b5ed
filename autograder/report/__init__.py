"""The class report: who got what and why, on one page and in the terminal.

    ClassResult --page--> report.html, one file that needs no other
                --terminal--> a table
    Graded, one after the other --progress--> a bar

It takes plain data and knows nothing of nbgrader; its numbers are the gradebook's.
"""

from __future__ import annotations

from autograder.report.page import to_html, write
from autograder.report.progress import ProgressReport
from autograder.report.terminal import show

__all__ = ["ProgressReport", "show", "to_html", "write"]
