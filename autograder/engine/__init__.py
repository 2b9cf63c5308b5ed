"""The grading engine: a submission in, verdicts out. It knows nothing of nbgrader.

cells    the release and submissions as cells, parsed once; cells as a notebook again
read     bytes -> cells            of a file that nobody trusts; slim: what is needed of one
rebuild  release + cells -> cells and repairs
grade    all of it in order, and the judging; students' code runs in autograder.sandbox
suspects which misconceptions a wrong answer may come from
outputs  what the display run showed, made harmless
record   verdicts in a graded notebook's outputs and metadata, and back
results  a graded class as plain data
journal, pool, spawned, worker, stopping     batches: who grades what, what is kept, what happens when one dies
"""
