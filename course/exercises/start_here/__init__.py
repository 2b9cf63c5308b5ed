"""Exercises of the unit start_here."""
