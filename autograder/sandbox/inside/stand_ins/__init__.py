"""Modules that stand inside for those of the course that need a student's own machine."""
