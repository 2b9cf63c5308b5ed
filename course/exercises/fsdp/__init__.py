"""Exercises of the unit fsdp."""
