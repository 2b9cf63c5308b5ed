"""Exercises of the unit gradient_checkpointing."""
