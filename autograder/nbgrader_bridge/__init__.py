"""The only importer of nbgrader: the engine's verdicts go into nbgrader's gradebook, files and feedback.

    config         one configuration for our commands, plain `nbgrader` commands and formgrader
    preprocessors  the engine as a step of `nbgrader autograde`, and stubs as a step of `generate_assignment`
    gradebook      scores and comments in, results out
    batch          grade a class: plan, judges, results
      submitted      what students handed in, read with suspicion
      running        one run: what is left, with which seed, and what became of it
      recording      the one writer of gradebook and autograded/
      locks          waiting for a gradebook that another program has locked
    converters     what nbgrader's own converters do: release, feedback, export
      pages        the exporter of feedback
      scores       the exporter of grades.csv
    exchange       feedback on its way back to students

nbgrader stays the book-keeper: formgrader, feedback, export, late penalties, manual scores and extra credit work as its
users know them. `autograder grade` does not run its Autograde converter: that opens the gradebook seven times for each
submission, stops at what the course can grade, and leaves an earlier score in place where it skips one.
"""

from __future__ import annotations

from autograder.nbgrader_bridge.batch import How, grade, results
from autograder.nbgrader_bridge.config import configure
from autograder.nbgrader_bridge.converters import export, feedback
from autograder.nbgrader_bridge.running import Watcher

__all__ = ["How", "Watcher", "configure", "export", "feedback", "grade", "results"]
