"""Nobody waits for the disk in a process that imports this: what tests write need not outlive the machine.

What a process that is killed has written is there all the same; a gradebook is synced some thirty times a submission.
"""

from __future__ import annotations

import os

from sqlalchemy import event
from sqlalchemy.engine import Engine

os.fsync = lambda file: None


@event.listens_for(Engine, "connect")
def _leave_it_to_the_system(connection, record):
    if type(connection).__module__.startswith("sqlite3"):
        connection.execute("PRAGMA synchronous = OFF")
