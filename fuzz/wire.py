#!/usr/bin/env python3
"""Coverage-guided fuzzing of the wire format; README.md says how to run it, wire_input.py what one input is."""

from __future__ import annotations

import sys

import atheris

# Only what is imported here is watched for new branches.
with atheris.instrument_imports(include=["autograder.sandbox", "course", "wire_input"]):
    import wire_input

atheris.Setup(sys.argv, wire_input.one_input)
atheris.Fuzz()
