"""Exercises of the unit optimizers."""
