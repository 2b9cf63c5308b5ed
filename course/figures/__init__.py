"""Pictures: pure functions from plain data to a figure; the same data gives the same figure.

graph    draw: a computational graph, as inline SVG
charts   saved_bytes_bars, training_curves, digit_grid: with matplotlib
replay   derivatives: the numbers that pictures of graphs show

Nothing is imported here, so that a picture loads only what it needs.
"""
