"""Widgets: sliders and buttons that move the figures of `course.lessons.figures`.

stepper   step_through: in which order are values and derivatives of a graph computed?
race      race: which optimizer gets down first, and what do rate, momentum and betas change?
"""
