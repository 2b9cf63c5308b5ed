"""Widgets: sliders and buttons that move the figures of `course.lessons.figures`.

stepper   step_through: in which order are values and derivatives of a graph computed?
loss_scale  loss_scale: which gradients does fp16 lose, and which loss scale brings them back?
race      race: which optimizer gets down first, and what do rate, momentum and betas change?
"""
