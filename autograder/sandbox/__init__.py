"""Where students' code runs, and what stands between it and everything else.

outside/  trusted
    stage         the part of the course that goes inside
    folder        where a runner keeps its files, and who removes them
    control       the warm process as the grader holds it
    runner        asks it for runs
    loading       one container of a submission: its cells read, performers forked
    session       one submission: conversations with its performers, and their deadlines
    together      several exercises in one performer
    ranks         exercises with several ranks, a container for each
    broker        does the ranks' collectives, and counts them; connection: what it hears of one rank
    brokered      the same for `run_ranks`, from a notebook
    doctor        which protections are active on this machine
wire/     what both may know, and what is sent, which neither trusts
    policy        what students' code may do and use
    seccomp       the system call filters
    frame         a tree as bytes, and back; stream: frames over a socket
    messages      what frames hold; rank_messages: between a rank and the broker
inside/   runs beside students' code
    warm          a process that knows nothing secret, forked for each submission; its watchdog
    huge_pages    of which a fork copies less
    rehearsal     what each fork would do first, done once before them
    isolation     namespaces, mounts, limits of a fork
    container     one submission: first process, reader, performers, display run
    rank_port     how a rank calls the others, through the broker
    removed       what an answer may not use
    traces        what one exercise may leave behind for another in its process
    display       the notebook as people shall see it
    needed        which cells of the lesson the student's own need; cell_names, cell_forms: what it reads in a cell
    cell_outputs  the outputs of one cell
    accounting    who is there, and what it costs
    stand_ins     for what the course can only do on a student's machine
"""

from __future__ import annotations

from autograder.sandbox.outside.brokered import Brokered
from autograder.sandbox.outside.folder import sweep
from autograder.sandbox.outside.loading import RunnerError, WarmProcessEnded
from autograder.sandbox.outside.runner import Runner, open_runner
from autograder.sandbox.outside.session import Session
from autograder.sandbox.outside.stage import exposed
from autograder.sandbox.outside.together import Together
from autograder.sandbox.wire.messages import Output
from autograder.sandbox.wire.policy import Limits

__all__ = [
    "Brokered",
    "Limits",
    "Output",
    "Runner",
    "RunnerError",
    "Session",
    "Together",
    "WarmProcessEnded",
    "exposed",
    "open_runner",
    "sweep",
]
