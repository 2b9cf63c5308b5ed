"""The only importer of nbgrader: the engine's verdicts go into nbgrader's gradebook, files and feedback.

    config         one configuration for our commands, plain `nbgrader` commands and formgrader
    preprocessors  the engine as a step of `nbgrader autograde`, and stubs as a step of `generate_assignment`
    gradebook      scores and comments in, results out
    batch          grade a class, write its feedback, export it

nbgrader stays the book-keeper. Its own Autograde converter creates students and submissions, reads time stamps, clears
old files, charges late penalties and sets permissions, for `autograder grade` and for plain `nbgrader autograde`
alike. Two things are kept away from it: `autograder grade` runs it for one student at a time, because one broken
submission must not stop the next, and it never sees a submission that cannot be read, because it would leave the
score of an earlier one in place.
"""

from __future__ import annotations

from autograder.nbgrader_bridge.batch import export, feedback, grade, results
from autograder.nbgrader_bridge.config import configure

__all__ = ["configure", "export", "feedback", "grade", "results"]
