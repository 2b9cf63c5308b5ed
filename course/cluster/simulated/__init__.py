"""Ranks that are threads of this process: one runs at a time, on a virtual clock.

simulation  the transport, one run of it, and what its ranks call
ending      ends the threads of a run that is over
"""
