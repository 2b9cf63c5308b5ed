"""From authored lessons to notebooks, answer sheets and the students' bundle.

    solutions/ --build--> notebooks/, course/sheets/, build/{source,release}/ --release--> bundle for students

Nobody types a number twice: points, minutes, difficulty and stubs are derived.
"""

from __future__ import annotations

from autograder.release.building import BuildReport, build
from autograder.release.bundle import release
from autograder.release.errors import AuthorError, ReleaseError
from autograder.release.sheets import sheets_differ

__all__ = ["AuthorError", "BuildReport", "ReleaseError", "build", "release", "sheets_differ"]
