"""The grading engine: a submission in, verdicts out. It knows nothing of nbgrader.

    read     bytes -> cells            of a file that nobody trusts
    rebuild  release + cells -> notebook and repairs
    runner   where students' code runs: the seam for a sandbox
      child  the other side of the seam, forked from a warm process
      wire   frames between the two
    grade    all of it in order, and the judging
    record   verdicts in a graded notebook's outputs and metadata, and back
    results  a graded class as plain data

Nothing is imported here: `child` and `load` run beside students' code, and importing them must not bring the bank,
which holds the references, into that process.
"""
