"""Exercises of the unit mixed_precision."""
