"""Exercises of the unit computational_graphs."""
