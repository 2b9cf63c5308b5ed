"""Makes plain `nbgrader` commands and formgrader work on build/ and grade with the course's engine.

Run them from this folder: `nbgrader autograde 01_computational_graphs`, `nbgrader generate_feedback ...`,
`nbgrader export`. What you set below the call wins, for example:

    c.AssignLatePenalties.plugin_class = ...            a late penalty
    c.CourseDirectory.db_url = "postgresql+psycopg://…" a gradebook in PostgreSQL (pip install psycopg)
    c.SandboxedExecute.enabled = False                  no display run
"""

from pathlib import Path

from autograder.nbgrader_bridge import configure

c = get_config()  # noqa: F821  (nbgrader defines it)
configure(c, Path(__file__).parent / "build")
