"""Where students' code runs, and what stands between it and everything else.

Outside:  policy    what students' code may do and use
          seccomp   the system call filter
          folder    where a runner keeps its files, and who removes them
          stage     the part of the course that goes inside
          control   the warm process as the grader holds it
          runner    asks it for runs
          loading   one job of a submission: its cells loaded, performers forked
          session   one submission: conversations with its performers, and their deadlines
          ranks     exercises with several ranks, a job for each
          broker    does the ranks' collectives, and counts them; line, incoming: its connection to one rank
          brokered  the same for `run_ranks`, from a notebook
          doctor    which protections are active on this machine
Inside:   warm      a process that knows nothing secret, forked for each submission; its watchdog
          pages     huge pages, of which a fork copies less
          rehearsal what each fork would do first, done once before them
          walls     namespaces, mounts, limits of a fork
          job       one submission: loader, performers, display run
          rank_port how a rank calls the others, through the broker
          removed   what an answer may not use
          display   the notebook as people shall see it
          screen    the outputs of one cell of it
          census    who is there, and what it costs
          stand_ins for what the course can only do on a student's machine
Between:  wire, frame, texts, messages, rank_messages      what is sent, and trusted by nobody
"""

from __future__ import annotations

from autograder.sandbox.brokered import Brokered
from autograder.sandbox.folder import sweep
from autograder.sandbox.loading import RunnerError
from autograder.sandbox.messages import Output
from autograder.sandbox.policy import Limits
from autograder.sandbox.runner import Runner, Session, open_runner

__all__ = ["Brokered", "Limits", "Output", "Runner", "RunnerError", "Session", "open_runner", "sweep"]
