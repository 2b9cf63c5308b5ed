"""Experiments: runs whose results the lessons show; the same arguments give the same numbers.

They import data, models and torch, and no figure: `course.lessons.figures` draws what they return.
"""
