"""Exercises of the unit lora."""
