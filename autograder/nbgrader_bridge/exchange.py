"""Feedback on its way back through nbgrader's exchange: one student after the other, and none stops the others.

    feedback/<student>/<assignment>/*.html, and the secret beside them --> exchange --fetch_feedback--> the student

nbgrader itself gives the whole class up at the first student who handed in by hand, and so has no secret.
"""

from __future__ import annotations

import glob
from pathlib import Path

from nbgrader.exchange.default import ExchangeReleaseFeedback

from autograder.nbgrader_bridge.folders import EXCHANGED


class ReleaseFeedback(ExchangeReleaseFeedback):
    """What `nbgrader release_feedback` and formgrader's button do; whom it cannot reach is named in one sentence."""

    src_path: str

    def copy_files(self) -> None:
        """Hands every student's pages over to the exchange."""
        left = set(self.coursedir.student_id_exclude.split(","))
        unreached = []
        for folder in map(Path, sorted(glob.glob(self.src_path, include_hidden=True))):
            student = folder.parent.name
            if _came_by_exchange(folder):
                self.src_path = glob.escape(str(folder))
                super().copy_files()
            elif student not in left:
                unreached.append(student)
        if unreached:
            self.log.warning(
                "%s: no feedback was released, because %s must lie beside it, which the exchange writes, and do not; "
                "give out what lies in %s yourself, or collect and grade again",
                ", ".join(unreached),
                " and ".join(EXCHANGED),
                self.coursedir.feedback_directory,
            )


def _came_by_exchange(folder: Path) -> bool:
    """Whether nbgrader finds what it asks for beside a page."""
    try:
        return all((folder / name).read_text(encoding="utf-8") for name in EXCHANGED)
    except (OSError, ValueError):
        return False
