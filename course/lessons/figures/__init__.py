"""Pictures: pure functions from plain data to a figure; the same data gives the same figure.

graph    draw: a computational graph, as inline SVG
charts   saved_bytes_bars, training_curves, digit_grid: with matplotlib
replay   derivatives: the numbers that pictures of graphs show

convergence         gap_curves, floors, choices_and_regret: how methods come to rest
race, race_overlay  race_picture, and what the widget moves: who gets down first
minima              minima_picture: which minimum holds which step size
schedules           schedule_curves: learning rates over steps
maps                compare_maps: maps that were found over the true one
timeline, messages  what ranks did when, and who sent what to whom: from the account of a run
meter               memory_timeline: live bytes op by op, their peak, what forward keeps
batches, search     what a batch size is worth, and what a search has tried

Nothing is imported here, so that a picture loads only what it needs.
"""
