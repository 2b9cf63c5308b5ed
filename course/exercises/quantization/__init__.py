"""Exercises of the unit quantization."""
