"""Exercises of the unit ddp."""
